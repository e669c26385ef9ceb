//! Processes in C, C++, Python and Rust keep one ledger on one instance. They are killed at any moment and
//! replaced: no entry is lost, and every death of a holder is told once.
//!
//! `RETRIAL_STORM_KILLS` says how many are killed at least, 40 if it is not set; `RETRIAL_STORM_SEED` which and
//! when, by the clock if it is not set.

#![allow(clippy::duplicate_mod)] // both kits say what is not tested

mod kit;

#[path = "../../retrial-c/tests/kit/mod.rs"]
mod c;
#[path = "../../retrial/tests/kit/example.rs"]
mod example;
#[allow(dead_code)] // the storm of the library uses the rest
#[path = "../../retrial/tests/storm/random.rs"]
mod random;
#[path = "../../retrial/tests/storm/settings.rs"]
mod settings;

use random::Random;
use retrial::{Address, Capacity, Class, GetError, Instance, Mutex, location};
use settings::{seed, setting};
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

const LANGUAGES: [&str; 4] = ["C", "C++", "Python", "Rust"];
const PYTHON: usize = 2;
/// Processes of each language at a time.
const OF_EACH: usize = 2;

/// `begun`, `done`, and `told` by language: `struct ledger` of the programs.
type Ledger = [u64; 6];

/// The programs, by language; `None` when not all can be had here.
fn programs() -> Option<[PathBuf; 4]> {
    let python = c::here("../retrial-py/examples/ledger.py");
    if !c::is_there("c++") || kit::python().is_none() {
        return None;
    }
    let compiled = |compiler, standard, source| {
        let source = c::here(source);
        let name = source.file_name().expect("a name").display().to_string().replace('.', "-in-");
        let (mut command, binary) = c::compiler(compiler, standard, &source, &name);
        c::check(command.arg("-O2").args(c::shared()));
        binary
    };
    let in_c = compiled("cc", "c11", "examples/ledger.c");
    let in_cpp = compiled("c++", "c++17", "examples/ledger.cpp");
    Some([in_c, in_cpp, python, example::example("ledger")])
}

struct Worker {
    child: Child,
    language: usize,
}

impl Worker {
    /// Signals it, and waits until it has stopped or ended.
    fn signal(&self, signal: i32) -> i32 {
        let (pid, mut status) = (self.child.id().cast_signed(), 0);
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(pid, signal) };
        // SAFETY: as above; `status` is writable.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) }, pid);
        status
    }
}

struct Storm<'i> {
    instance: &'i Instance,
    path: String,
    mutex: Mutex<'i, Ledger>,
    programs: [PathBuf; 4],
    workers: Vec<Worker>,
    /// Where the workers print their entries, and what goes wrong.
    printed: PathBuf,
    complaints: PathBuf,
    random: Random,
    kills: [u64; 4],
    /// Deaths of holders, and how many of them have to be told: a holder that dies before it has noted what it was
    /// told leaves that to the next one, which is told of both at once.
    holders: [u64; 4],
    to_be_told: u64,
}

impl Storm<'_> {
    fn start(&mut self, language: usize) {
        let program = &self.programs[language];
        let mut command = if language == PYTHON { kit::python().expect("looked for") } else { Command::new(program) };
        command.args((language == PYTHON).then_some(program)).arg(&self.path);
        let append = |path| File::options().create(true).append(true).open(path).expect("a file can be written");
        command.stdout(append(&self.printed)).stderr(append(&self.complaints));
        let child = command.spawn().expect("it starts");
        self.workers.push(Worker { child, language });
    }

    /// The ledger as it is at this moment.
    fn look(&self) -> Ledger {
        let tables = self.instance.tables();
        let object = tables.object_of(self.mutex.id()).expect("it is in the arena");
        let size = size_of::<Ledger>();
        // SAFETY: this process has no guard meanwhile.
        let words = unsafe { tables.peek(object.end - size as u64, size / 8) };
        words.expect("inside").try_into().expect("as many as asked for")
    }

    /// The process that has the mutex.
    fn holder(&self) -> Option<u32> {
        let sid = self.mutex.word().sid();
        (!sid.is_none()).then(|| self.instance.tables().session_info(sid)).flatten().map(|info| info.pid)
    }

    /// Kills a worker wherever it is, and notes what it leaves: it is stopped first, so that this can be seen.
    fn kill(&mut self, at: usize) -> usize {
        let worker = &self.workers[at];
        let (language, pid) = (worker.language, worker.child.id());
        let status = worker.signal(libc::SIGSTOP);
        let complaints = || std::fs::read_to_string(&self.complaints).unwrap_or_default();
        assert!(libc::WIFSTOPPED(status), "{} ended by itself: {status:#x}\n{}", LANGUAGES[language], complaints());
        if self.holder() == Some(pid) {
            // Nobody writes while a stopped process has it.
            let ledger = self.look();
            let told: u64 = ledger[2..].iter().sum();
            assert!(told <= self.to_be_told && self.to_be_told <= told + 1, "{} deaths: {ledger:?}", self.to_be_told);
            self.to_be_told = told + 1;
            self.holders[language] += 1;
        }
        let status = self.workers[at].signal(libc::SIGKILL);
        self.workers.swap_remove(at);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL, "{status:#x}");
        self.kills[language] += 1;
        language
    }

    /// One of the workers: every other time the holder.
    fn victim(&self) -> usize {
        let holder = self.random.one_in(2).then(|| self.holder()).flatten();
        let holds = self.workers.iter().position(|worker| Some(worker.child.id()) == holder);
        holds.unwrap_or_else(|| self.random.below(self.workers.len() as u64) as usize)
    }

    /// What is left when nobody lives.
    fn last_look(&self) -> Ledger {
        let session = self.instance.session("looks", Class::Normal).expect("a session");
        let (mut ledger, is_told) = match self.mutex.exclusive(&session, location!()) {
            Err(GetError::OwnerDied(mut died)) => {
                died.guard.consistent();
                (*died.guard, 1)
            }
            got => (*got.expect("got, or told"), 0),
        };
        let told: u64 = ledger[2..].iter().sum();
        assert_eq!(told + is_told, self.to_be_told, "of {:?} holders' deaths: {ledger:?}", self.holders);
        assert!(ledger[0] == ledger[1] || (is_told == 1 && ledger[0] == ledger[1] + 1), "{ledger:?}");
        ledger[0] = ledger[1];
        ledger
    }

    /// How many entries no process has printed. Every other one was printed by one process, once.
    fn unprinted(&self, done: u64) -> u64 {
        let text = std::fs::read_to_string(&self.printed).expect("the entries");
        let entries: Vec<u64> = text.lines().map(|line| line.parse().expect("an entry")).collect();
        let different: HashSet<_> = entries.iter().copied().collect();
        assert_eq!(different.len(), entries.len(), "an entry was written twice");
        assert!(entries.iter().all(|entry| (1..=done).contains(entry)), "of {done} entries");
        done - entries.len() as u64
    }
}

impl Drop for Storm<'_> {
    /// After a failure too, nobody goes on.
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

#[test]
fn a_ledger_kept_in_four_languages_loses_nothing_whoever_is_killed() {
    let Some(programs) = programs() else { return };
    let (kills, seed) = (setting::<u64>("RETRIAL_STORM_KILLS", 40), seed());
    println!("RETRIAL_STORM_SEED={seed:#x}");
    let path = c::instance("languages");
    let instance = Instance::create(&Address::new(&path).expect("a path"), Capacity::default(), 0o600).expect("made");
    let [printed, complaints] = ["entries", "complaints"].map(|name| PathBuf::from(format!("{path}.{name}")));
    let mut storm = Storm {
        mutex: instance.mutex("ledger", "ledgers", Ledger::default).expect("made"),
        instance: &instance,
        path,
        programs,
        workers: Vec::new(),
        printed,
        complaints,
        random: Random::new(seed),
        kills: [0; 4],
        holders: [0; 4],
        to_be_told: 0,
    };
    (0..OF_EACH * LANGUAGES.len()).for_each(|number| storm.start(number % LANGUAGES.len()));
    let killed = |storm: &Storm<'_>| storm.kills.iter().sum::<u64>();
    // Until enough were killed, holders in each language among them, and a death was told in each.
    while killed(&storm) < kills || storm.holders.contains(&0) || storm.look()[2..].contains(&0) {
        assert!(killed(&storm) < 50 * kills, "killed with the ledger: {:?}; {:?}", storm.holders, storm.look());
        std::thread::sleep(Duration::from_micros(storm.random.below(20_000)));
        let language = storm.kill(storm.victim());
        storm.start(language);
    }
    while !storm.workers.is_empty() {
        storm.kill(0);
    }
    let ledger = storm.last_look();
    let unprinted = storm.unprinted(ledger[1]);
    assert!(unprinted <= killed(&storm), "{unprinted} entries were lost");
    println!("{} entries, {unprinted} of them by processes killed before they printed them", ledger[1]);
    println!("by language, {LANGUAGES:?}: {:?} killed, {:?} of them with the ledger", storm.kills, storm.holders);
    println!("{} times a death had to be told; told in {:?}", storm.to_be_told, &ledger[2..]);
    for path in [Path::new(&storm.path), &storm.printed, &storm.complaints] {
        std::fs::remove_file(path).expect("it is there");
    }
}
