//! What mutexes are called, and where threads wait: by the files of the program and the calls on the threads'
//! stacks.

use super::futex::is_shared;
use super::look::{Futex, Holder, What};
use super::process::{Process, Sleeper, comm};
use crate::run::symbols::Symbols;
use crate::who::thread::Thread;
use crate::who::unwind::Files;
use std::collections::HashMap;

/// Number of stacks that are read at the only look, and at each of many, so that these follow each other in
/// time.
const STACKS: usize = 64;
const STACKS_EACH: usize = 4;

/// Modules of the C library, in which threads wait for others.
const LIBRARIES: [&str; 3] = ["libc.so", "libpthread.so", "libpthread-"];

/// Where a thread waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The function of the C library that the program called: `pthread_cond_wait`.
    pub call: Option<String>,
    /// Where the program called it.
    pub at: Option<String>,
}

/// Names of places, each looked up once.
pub struct Places {
    files: Files,
    symbols: Symbols,
    names: HashMap<u64, String>,
    /// Where each thread waited when its stack was last read, and the sleep that this was.
    waits: HashMap<u32, (Sleeper, Place)>,
    /// How many more stacks may be read.
    left: usize,
}

impl Default for Places {
    fn default() -> Self {
        let (files, symbols) = (Files::default(), Symbols::default());
        Self { files, symbols, names: HashMap::new(), waits: HashMap::new(), left: STACKS }
    }
}

impl Places {
    /// One look of many begins: a few stacks may be read.
    pub fn again(&mut self) {
        self.left = STACKS_EACH;
    }

    /// `lock (memcached)`, or the address and what memory it is in.
    pub fn mutex(&mut self, process: &Process, address: u64) -> String {
        let symbols = &mut self.symbols;
        let name = self.names.entry(address).or_insert_with(|| {
            let variable = process.modules.locate(address).and_then(|place| symbols.variable(&place));
            variable.unwrap_or_else(|| match process.memory(address) {
                Some(memory) => format!("{address:#x} in {memory}"),
                None => format!("{address:#x}"),
            })
        });
        name.clone()
    }

    /// Where a thread waits; nothing beyond the number of stacks that are read, and where the kernel keeps us
    /// from them.
    pub fn wait(&mut self, process: &Process, sleeper: &Sleeper) -> Place {
        if let Some((known, place)) = self.waits.get(&sleeper.tid)
            && known == sleeper
        {
            return place.clone();
        }
        if self.left == 0 {
            return Place::default();
        }
        self.left -= 1;
        let stack = || self.files.stack(process.pid, &process.modules, sleeper.call.ip?, sleeper.call.sp?);
        let mut stack = { stack }().unwrap_or_default().into_iter().peekable();
        let mut innermost = None;
        while let Some(location) = stack.next_if(|location| is_of_library(location)) {
            innermost = Some(location);
        }
        // Others are inlined into the one that the program called.
        let call = innermost.and_then(|location| self.symbols.functions(&location).pop());
        let call = call.filter(|function| !function.contains("+0x")).map(|function| public(&function).to_owned());
        let at = stack.next().map(|location| self.symbols.text(&location));
        let place = Place { call, at };
        self.waits.insert(sleeper.tid, (sleeper.clone(), place.clone()));
        place
    }

    /// What the kernel says of a thread, and its calls.
    pub fn thread(&mut self, pid: u32, tid: u32) -> Thread {
        Thread::of(pid, tid, &mut self.files, &mut self.symbols)
    }
}

/// `thread 4242 (worker)`, with its process where that is another one.
pub fn label(process: &Process, tid: u32, other: Option<u32>) -> String {
    let name = comm(other.unwrap_or(process.pid), tid);
    let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
    match other {
        Some(pid) => format!("thread {tid} of process {pid}{name}"),
        None => format!("thread {tid}{name}"),
    }
}

/// What is to be said of a holder that cannot give a mutex back.
pub fn trouble(process: &Process, futex: &Futex) -> Option<String> {
    let What::Mutex { kind, holder } = futex.what else { return None };
    match holder {
        Holder::Gone(_) if is_shared(kind) || process.is_nested => {
            Some("is not there: it has ENDED with the mutex, or is in another container".to_owned())
        }
        Holder::Gone(_) => Some("is not there: it has ENDED with the mutex".to_owned()),
        Holder::Other { pid, .. } if !is_shared(kind) => {
            Some(format!("had the mutex when fork copied it from process {pid}: NOBODY can give this copy back"))
        }
        _ => None,
    }
}

fn is_of_library(location: &str) -> bool {
    let name = location.rsplit_once("+0x").map_or(location, |(path, _)| path).rsplit('/').next().unwrap_or_default();
    LIBRARIES.iter().any(|library| name.starts_with(library))
}

/// A function of the C library as programs call it: `___pthread_cond_wait` → `pthread_cond_wait`.
fn public(function: &str) -> &str {
    let name = function.trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    let name = name.strip_prefix("new_").unwrap_or(name);
    name.strip_suffix("_slow64").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_first_call_that_is_not_the_c_librarys() {
        assert!(
            is_of_library("/usr/lib/x86_64-linux-gnu/libc.so.6+0x1a") && is_of_library("/lib/libpthread-2.31.so+0x1")
        );
        assert!(!is_of_library("/usr/bin/libcheck+0x1a") && !is_of_library("/usr/lib/libcurl.so.4+0x1"));
    }

    #[test]
    fn functions_have_the_names_that_programs_call_them_by() {
        let names = ["___pthread_mutex_lock", "__GI___pthread_cond_wait", "__new_sem_wait_slow64"].map(public);
        assert_eq!(names, ["pthread_mutex_lock", "pthread_cond_wait", "sem_wait"]);
    }
}
