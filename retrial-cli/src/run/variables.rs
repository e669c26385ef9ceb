//! What an address of a process is: which static variable, by the module that it lies in; which object of
//! shared memory.

use std::collections::{BTreeSet, HashMap};
use std::fs;

/// Modules of a process, as the kernel lists its mappings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// Start, end and name of each mapping of a file, with the untitled ones that follow it.
    mappings: Vec<(u64, u64, String)>,
    /// Where each file's first mapping starts.
    bases: HashMap<String, u64>,
    /// Files of which something may be executed.
    code: BTreeSet<String>,
    /// Start and end of what other processes may have as well, and what lies at the start.
    shared: Vec<(u64, u64, Shared)>,
}

/// A place in memory that several processes have, at whatever address: in a file, a segment, or what has no
/// name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shared {
    device: (u64, u64),
    inode: u64,
    /// Whether the inode's number is that of a System V segment, which the kernel counts apart on the same
    /// device.
    is_segment: bool,
    offset: u64,
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
            let permissions = fields.next().unwrap_or_default();
            let mut next = || fields.next().unwrap_or_default();
            let (offset, device, inode) = (number(next()), next(), next().parse().unwrap_or(0));
            let path = next().trim();
            if permissions.ends_with('s') {
                let device = device.split_once(':').map_or((0, 0), |(major, minor)| (number(major), number(minor)));
                let is_segment = path.starts_with(SEGMENT);
                modules.shared.push((start, end, Shared { device, inode, is_segment, offset }));
            }
            // Zeroed variables lie in memory of no file, right after those of the file. The library asks the kernel
            // to clear one of its pages in forked children, which splits that memory into several mappings.
            let name = match path {
                "" if before.0 == start && permissions == "rw-p" => std::mem::take(&mut before.1),
                path if path.starts_with('/') => path.to_owned(),
                _ => String::new(),
            };
            if !name.is_empty() {
                modules.bases.entry(name.clone()).or_insert(start);
                if permissions.contains('x') {
                    modules.code.insert(name.clone());
                }
                modules.mappings.push((start, end, name.clone()));
            }
            before = (end, name);
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

    /// `MODULE+0xOFFSET` of an address in a module, `FILE+0xOFFSET` or `shmid NUMBER+0xOFFSET` of one in
    /// shared memory; `None` for what has no name: the heap, stacks and the like.
    pub fn locate(&self, address: u64) -> Option<String> {
        let (_, _, name) = self.mappings.iter().find(|(start, end, _)| (*start..*end).contains(&address))?;
        match self.shared(address) {
            None => Some(format!("{name}+{:#x}", address - self.bases.get(name)?)),
            Some(_) if name == UNNAMED => None,
            // Many segments have the same key.
            Some(shared) if shared.is_segment => Some(format!("shmid {}+{:#x}", shared.inode, shared.offset)),
            Some(shared) => Some(format!("{}+{:#x}", name.trim_end_matches(" (deleted)"), shared.offset)),
        }
    }

    /// What an address is in memory that other processes may have as well; `None` for memory of the process
    /// alone.
    pub fn shared(&self, address: u64) -> Option<Shared> {
        let (start, _, first) = self.shared.iter().find(|(start, end, _)| (*start..*end).contains(&address))?;
        Some(Shared { offset: first.offset + (address - start), ..*first })
    }
}

/// How the kernel names what is shared but has no file, and how the names of System V segments begin.
const UNNAMED: &str = "/dev/zero (deleted)";
const SEGMENT: &str = "/SYSV";

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
                    3000-4000 rw-p 00000000 00:00 0 \n4000-5000 rw-p 00000000 00:00 0 \n\
                    5000-6000 rw-p 0 00:00 0 [heap]\n6000-7000 r--p 00000000 08:01 6 /bin/y\n\
                    7000-8000 ---p 00000000 00:00 0 \n8000-9000 rw-p 00000000 00:00 0 \n";
        let modules = Modules::parse(maps);
        assert_eq!(modules.locate(0x3010).as_deref(), Some("/bin/x+0x2010"));
        assert_eq!(modules.locate(0x4010).as_deref(), Some("/bin/x+0x3010"));
        assert_eq!([0x5010, 0x7010, 0x8010].map(|address| modules.locate(address)), [None, None, None]);
    }

    #[test]
    fn shared_memory_is_the_same_at_any_address() {
        let one = "1000-3000 rw-s 00004000 08:01 77 /srv/a file.mdb\n3000-4000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n\
                   4000-6000 rw-s 00000000 00:01 9 /SYSV0000002a (deleted)\n6000-7000 rw-p 00000000 08:01 77 /srv/a file.mdb\n";
        let other = "9000-a000 rw-s 00005000 08:01 77 /other/root/file.mdb\na000-c000 rw-s 00000000 08:02 77 /srv/b\n";
        let (one, other) = (Modules::parse(one), Modules::parse(other));
        let object = one.shared(0x2040);
        assert!(object.is_some() && object == other.shared(0x9040));
        for differs in [one.shared(0x1040), one.shared(0x2041), other.shared(0xb040), one.shared(0x6040)] {
            assert_ne!(object, differs);
        }
        assert_eq!((one.shared(0x6040), one.shared(0x7000)), (None, None));
        assert_ne!(one.shared(0x3000), one.shared(0x4000), "a segment's number is none of an inode");
        assert_eq!(one.locate(0x2040).as_deref(), Some("/srv/a file.mdb+0x5040"));
        assert_eq!(one.locate(0x5008).as_deref(), Some("shmid 9+0x1008"));
        assert_eq!(one.locate(0x3008), None);
    }
}
