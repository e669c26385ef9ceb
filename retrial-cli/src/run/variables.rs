//! Which static variable an address is: the module of the process that it lies in, and where in it.

use std::collections::{BTreeSet, HashMap};
use std::fs;

/// Modules of a process, as the kernel lists its mappings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// Start, end and name of each mapping of a file, with the untitled one that follows it.
    mappings: Vec<(u64, u64, String)>,
    /// Where each file's first mapping starts.
    bases: HashMap<String, u64>,
    /// Files of which something may be executed.
    code: BTreeSet<String>,
}

impl Modules {
    pub fn of(pid: u32) -> Self {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default())
    }

    /// From the kernel's text.
    pub fn parse(maps: &str) -> Self {
        let mut modules = Self::default();
        let mut before = (0, String::new());
        for line in maps.lines() {
            let mut fields = line.splitn(6, ' ');
            let Some((start, end)) = fields.next().and_then(|range| range.split_once('-')) else { continue };
            let number = |hex| u64::from_str_radix(hex, 16).unwrap_or(0);
            let (start, end) = (number(start), number(end));
            let may_execute = fields.next().is_some_and(|permissions| permissions.contains('x'));
            let path = fields.nth(3).unwrap_or_default().trim();
            // Zeroed variables lie in memory of no file, right after those of the file.
            let name = match path {
                "" if before.0 == start => std::mem::take(&mut before.1),
                path if path.starts_with('/') => path.to_owned(),
                _ => String::new(),
            };
            if !name.is_empty() {
                modules.bases.entry(name.clone()).or_insert(start);
                if may_execute {
                    modules.code.insert(name.clone());
                }
                modules.mappings.push((start, end, name.clone()));
            }
            before = (end, if path.is_empty() { String::new() } else { name });
        }
        modules
    }

    /// Path, start and end of each file of which something may be executed.
    pub fn code(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.code.iter().filter_map(|name| {
            let end = self.mappings.iter().filter(|mapping| mapping.2 == *name).map(|mapping| mapping.1).max()?;
            Some((name.as_str(), *self.bases.get(name)?, end))
        })
    }

    /// `MODULE+0xOFFSET` of an address in a module; `None` for the heap, stacks and the like.
    pub fn locate(&self, address: u64) -> Option<String> {
        let (_, _, name) = self.mappings.iter().find(|(start, end, _)| (*start..*end).contains(&address))?;
        Some(format!("{name}+{:#x}", address - self.bases.get(name)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_lies_in_its_module_and_the_heap_in_none() {
        static ZEROED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let modules = Modules::of(std::process::id());
        let location = modules.locate(ZEROED.as_ptr() as u64).unwrap();
        let executable = std::env::current_exe().unwrap();
        assert!(location.starts_with(&format!("{}+0x", executable.display())), "{location}");
        assert_eq!(modules.locate(&raw const *Box::new(7_u64) as u64), None);
    }

    #[test]
    fn only_the_memory_right_after_a_file_is_its() {
        let maps = "1000-2000 r--p 00000000 08:01 5 /bin/x\n2000-3000 rw-p 00001000 08:01 5 /bin/x\n\
                    3000-4000 rw-p 00000000 00:00 0 \n4000-5000 rw-p 00000000 00:00 0 \n5000-6000 rw-p 0 00:00 0 [heap]\n";
        let modules = Modules::parse(maps);
        assert_eq!(modules.locate(0x3010).as_deref(), Some("/bin/x+0x2010"));
        assert_eq!((modules.locate(0x4010), modules.locate(0x5010)), (None, None));
    }
}
