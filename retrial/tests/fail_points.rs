//! SIGKILL between any two steps, in real processes.
//!
//! Pass 1 runs a script and counts the fail points that it passes; pass 2 runs it once for each point and has
//! the child die there. The survivor then gets the mutex and finds the references and the slots as if the
//! dead one had never been.
#![cfg(feature = "fail_points")]

use retrial::views::Word;
use retrial::{Address, Capacity, Class, GetError, Instance, Mode, P, Patience, Session, fail, location};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const SCRIPT: &str = "RETRIAL_TEST_SCRIPT";
const NAME: &str = "RETRIAL_TEST_INSTANCE";
const FATAL: &str = "RETRIAL_TEST_FATAL";

const SCRIPTS: [&str; 8] = ["X", "LX", "E", "S", "ladder", "nested", "session", "object"];

struct Name(Address);

impl Name {
    fn new(test: &str) -> Self {
        Self(Address::new(&format!("fail-{test}-{}", std::process::id())).unwrap())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.path());
    }
}

fn child(name: &Name, script: &str, fatal: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_child", "--nocapture", "--test-threads=1"]);
    command.env(SCRIPT, script).env(NAME, name.0.to_string()).env(FATAL, fatal.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Points that the script passes when nobody kills it.
fn points(name: &Name, script: &str) -> u64 {
    let output = child(name, script, u64::MAX).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, rest) = text.split_once("passed ").unwrap_or_else(|| panic!("{script} ran to its end: {text}"));
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// Runs the script until it dies at its `fatal`-th point. Whether it died.
fn die_at(name: &Name, script: &str, fatal: u64) -> bool {
    let status = child(name, script, fatal).stdout(Stdio::null()).status().unwrap();
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
}

fn got<G>(result: Result<G, GetError<G>>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(GetError::OwnerDied(died)) => Some(died.guard),
        Err(GetError::TimedOut | GetError::Busy) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Not a test of its own: what a child does.
#[test]
#[allow(clippy::too_many_lines)] // a script for each way
fn the_child() {
    let Ok(script) = std::env::var(SCRIPT) else { return };
    let address = Address::new(&std::env::var(NAME).unwrap()).unwrap();
    let fatal = std::env::var(FATAL).unwrap().parse().unwrap();
    if script == "create" {
        fail::arm(fatal);
        let instance = Instance::create_or_attach(&address, Capacity::default(), 0o600).unwrap();
        drop(instance.session("child", Class::Normal).unwrap());
        println!("passed {}", fail::passed());
        return;
    }
    let instance = Instance::attach(&address).unwrap();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    if script == "recover" {
        // Before a session of its own: the claim would recover as well.
        fail::arm(fatal);
        instance.recover_all();
        println!("passed {}", fail::passed());
        return;
    }
    let session = instance.session("child", Class::Normal).unwrap();
    let endless = Patience::Endless;
    let get = |mode: Mode| drop(got(mutex.get(&session, mode, location!(), endless)));
    fail::arm(fatal);
    match script.as_str() {
        "ladder" => {
            let mut guard = got(mutex.shared(&session, location!())).unwrap();
            guard.examine(endless).unwrap();
            guard.share();
            guard.examine(endless).unwrap();
            // Fails while the parent has a reference, and goes on in E.
            let _ = guard.upgrade(Patience::None);
            guard.share();
        }
        "nested" => {
            let first = got(mutex.shared(&session, location!())).unwrap();
            let second = got(mutex.shared(&session, location!())).unwrap();
            drop(first);
            // Two records of one mutex, one of them in flight, with the field in somebody else's hands or in ours.
            let refused = mutex.get(&session, Mode::Examine, location!(), Patience::None);
            assert!(matches!(refused, Err(GetError::Deadlock { held: Mode::Shared })));
            drop(got(mutex.get(&session, Mode::Shared, location!(), Patience::None)));
            drop(second);
            let examined = got(mutex.get(&session, Mode::Examine, location!(), endless)).unwrap();
            assert!(mutex.get(&session, Mode::Shared, location!(), Patience::None).is_err());
            drop(examined);
        }
        "session" => {
            let other = instance.session("other", Class::Normal).unwrap();
            drop(got(mutex.shared(&other, location!())));
            drop(other);
        }
        "object" => {
            let object = instance.mutex(&format!("object {fatal}"), "fresh type", || 7u64).unwrap();
            assert_eq!(got(object.exclusive(&session, location!())).map(|guard| *guard), Some(7));
        }
        "contend" => {
            for _ in 0..3 {
                let _ = got(mutex.get(
                    &session,
                    Mode::Exclusive,
                    location!(),
                    Patience::within(std::time::Duration::from_millis(3)),
                ));
            }
        }
        "hold S" => std::mem::forget(got(mutex.shared(&session, location!()))),
        "hold X" => std::mem::forget(got(mutex.exclusive(&session, location!()))),
        "drain" => {
            let mut guard = got(mutex.get(&session, Mode::Examine, location!(), endless)).unwrap();
            let soon = retrial::sys::Deadline::after(std::time::Duration::from_millis(2));
            let _ = guard.upgrade(Patience::Until(soon));
        }
        mode => get(mode.parse().unwrap()),
    }
    println!("passed {}", fail::passed());
    // Sessions that still hold something die here, as by a kill.
    std::process::exit(0);
}

/// Checks that nobody but `mine` and `reader` are left, and that the mutex works.
fn check(instance: &Instance, mine: &Session<'_>, reader: &Session<'_>, references: u32, context: &str) {
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    // As a survivor would: by a get. E needs no reference to leave, but the dead one's field and drain to go.
    let examined = got(mutex.get(mine, Mode::Examine, location!(), Patience::Endless));
    examined.unwrap().consistent();
    let (_, owing) = instance.recover_all();
    assert_eq!(owing, 0, "{context}: somebody still owes");
    let word = mutex.word();
    assert_eq!(word, Word(u64::from(references)), "{context}");
    let sids: Vec<_> = instance.tables().sessions().iter().map(|info| info.sid).collect();
    assert_eq!(sids, [mine.sid(), reader.sid()], "{context}: a slot leaked");
    assert!(instance.session("next", Class::Normal).is_ok(), "{context}");
}

#[test]
fn every_step_of_every_script_may_be_the_last() {
    let mut kills = 0;
    for script in SCRIPTS {
        for references in [0, 1] {
            if references == 1 && matches!(script, "X" | "LX") {
                continue;
            }
            let name = Name::new(script);
            let instance = Instance::create(&name.0, Capacity { sessions: 5, ..Capacity::default() }, 0o600).unwrap();
            let mutex = instance.mutex("m", "test", || 0u64).unwrap();
            let session = instance.session("parent", Class::Normal).unwrap();
            let other = instance.session("reader", Class::Normal).unwrap();
            let reader = (references == 1).then(|| mutex.shared(&other, location!()).unwrap());
            // What the first run had to make, later ones find: they pass a few points less.
            let points = points(&name, script);
            assert!(points > 2, "{script}: {points} points");
            for fatal in 1..=points {
                let died = die_at(&name, script, fatal);
                assert!(died || fatal > points / 2, "{script} at {fatal} of {points}: not killed");
                check(&instance, &session, &other, references, &format!("{script} at {fatal} of {points}"));
                kills += 1;
            }
            drop(reader);
        }
    }
    println!("{kills} kills");
    assert!(kills > 100);
}

#[test]
fn a_recoverer_may_die_at_every_step() {
    let mut kills = 0;
    for victim in ["hold S", "hold X", "drain"] {
        let name = Name::new("recover");
        let instance = Instance::create(&name.0, Capacity { sessions: 5, ..Capacity::default() }, 0o600).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let session = instance.session("parent", Class::Normal).unwrap();
        let other = instance.session("reader", Class::Normal).unwrap();
        let reader = (victim == "drain").then(|| mutex.shared(&other, location!()).unwrap());
        let references = u32::from(reader.is_some());
        // For the drain: dead while it is under way, which is at its sixth point or so; any other is fine too.
        let harm = || match victim {
            "drain" => drop(die_at(&name, victim, 6)),
            _ => drop(child(&name, victim, u64::MAX).output().unwrap()),
        };
        harm();
        let points = points(&name, "recover");
        check(&instance, &session, &other, references, victim);
        for fatal in 1..=points {
            harm();
            die_at(&name, "recover", fatal);
            check(&instance, &session, &other, references, &format!("recovery of {victim} at {fatal} of {points}"));
            kills += 1;
        }
        drop(reader);
    }
    println!("{kills} kills");
    assert!(kills > 10);
}

#[test]
fn a_creator_may_die_at_every_step() {
    let name = Name::new("create");
    let points = points(&name, "create");
    std::fs::remove_file(name.0.path()).unwrap();
    for fatal in 1..=points {
        assert!(die_at(&name, "create", fatal), "at {fatal} of {points}");
        let instance = Instance::create_or_attach(&name.0, Capacity::default(), 0o600).unwrap();
        let session = instance.session("next", Class::Normal).unwrap();
        let mutex = instance.mutex("m", "test", || 5u64).unwrap();
        assert_eq!(*mutex.exclusive(&session, location!()).unwrap(), 5, "at {fatal} of {points}");
        std::fs::remove_file(name.0.path()).unwrap();
    }
    assert!(points > 5, "{points}");
    let directory = std::fs::read_dir(retrial::layout::DIRECTORY).unwrap();
    let left = directory.filter_map(Result::ok).filter(|e| e.file_name().to_string_lossy().starts_with(".retrial."));
    assert_eq!(left.count(), 0, "no temporary file is left");
}

#[test]
fn waiters_of_every_scheme_may_die_at_every_step() {
    let mut kills = 0;
    for (position, scheme) in retrial::wait::NAMES.iter().enumerate() {
        let name = Name::new("contend");
        let instance = Instance::create(&name.0, Capacity { sessions: 8, ..Capacity::default() }, 0o600).unwrap();
        instance.set(P::Scheme, None, position as u64);
        instance.set(P::SoftSpinCount, None, 2);
        instance.set(P::OrbitYields, None, 2);
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let session = instance.session("parent", Class::Normal).unwrap();
        let other = instance.session("reader", Class::Normal).unwrap();
        for fatal in 1..=12 {
            // The parent holds while the child waits, then lets go; where the child dies depends on the race,
            // as it should.
            let guard = got(mutex.exclusive(&session, location!())).unwrap();
            let mut victim = child(&name, "contend", fatal).spawn().unwrap();
            let waits = || instance.tables().sessions().iter().any(|info| info.wait.is_some());
            while !waits() && victim.try_wait().unwrap().is_none() {
                std::thread::yield_now();
            }
            drop(guard);
            let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
            lines.for_each(drop);
            victim.wait().unwrap();
            check(&instance, &session, &other, 0, &format!("{scheme} at {fatal}"));
            kills += 1;
        }
    }
    println!("{kills} runs");
}
