//! Programs of safe Rust that would break exclusion.

#![forbid(unsafe_code)]

use retrial::{Capacity, Class, Instance, Mode, Mutex, Patience, location};
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn instance() -> Instance {
    Instance::anonymous(Capacity { sessions: 8, ..Capacity::default() }).unwrap()
}

/// Whether `done` becomes true while everything that a recovery could do is done.
fn comes_true(mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
#[should_panic(expected = "make the session by the `Instance` that gave the mutex")]
fn a_session_of_another_instance_is_refused() {
    let (ours, theirs) = (instance(), instance());
    let mutex: Mutex<u64> = ours.mutex("m", "test", || 0).unwrap();
    let foreign = theirs.session("foreign", Class::Normal).unwrap();
    let _ = mutex.shared(&foreign, location!());
}

#[test]
fn a_thread_that_ends_keeps_what_it_has_lent() {
    let instance = instance();
    let mutex: Mutex<u64> = instance.mutex("m", "test", || 7).unwrap();
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::channel::<&mut u64>();
        let (mutex, instance) = (&mutex, &instance);
        scope
            .spawn(move || {
                let session = Box::leak(Box::new(instance.session("lender", Class::Normal).unwrap()));
                let guard = Box::leak(Box::new(mutex.exclusive(session, location!("lend")).unwrap()));
                send.send(&mut **guard).unwrap();
            })
            .join()
            .unwrap();
        let lent = receive.recv().unwrap();
        let session = instance.session("another", Class::Normal).unwrap();
        let got = comes_true(|| {
            instance.look_for_threads();
            instance.recover_all();
            !matches!(mutex.get(&session, Mode::Exclusive, location!(), Patience::None), Err(retrial::GetError::Busy))
        });
        *lent += 1;
        assert!(!got, "granted while {lent} is lent");
    });
}

#[test]
fn what_keeps_a_leaked_guard_takes_little_memory() {
    let instance = instance();
    let mutex: Mutex<u64> = instance.mutex("m", "test", || 7).unwrap();
    std::thread::scope(|scope| {
        let lends = || {
            let session = Box::leak(Box::new(instance.session("lender", Class::Normal).unwrap()));
            Box::leak(Box::new(mutex.exclusive(session, location!("lend")).unwrap()));
        };
        // The thread that keeps it is made by this one, and has its name.
        std::thread::Builder::new().name("lends".to_owned()).spawn_scoped(scope, lends).unwrap().join().unwrap();
    });
    let read = |task: &std::path::Path, file| std::fs::read_to_string(task.join(file)).unwrap_or_default();
    let number = |hex: &str| usize::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap();
    let mut stacks = Vec::new();
    assert!(comes_true(|| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        stacks = tasks.filter(|task| read(task, "comm") == "lends\n").map(|task| read(&task, "syscall")).collect();
        // It sleeps: a thread that runs has no address there.
        stacks.len() == 1 && stacks[0].contains("0x")
    }));
    let pointer = number(stacks[0].split_whitespace().nth_back(1).unwrap());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let starts = maps.lines().filter_map(|line| line.split_once('-')).map(|(start, _)| number(start));
    let below = pointer - starts.filter(|start| *start <= pointer).max().unwrap();
    assert!((8 << 10..512 << 10).contains(&below), "{below} bytes of stack below what is in use");
}

/// With the table of mutexes as it is from the start: a test that fills it is elsewhere.
#[cfg(feature = "lock_api")]
mod locks {
    use retrial::lock_api::{Mutex, RwLock, instance};

    #[test]
    fn a_lock_that_is_dropped_while_a_leaked_guard_holds_it_keeps_its_entry() {
        let lock = RwLock::new(());
        let is_registered = |address| instance().tables().mutexes().iter().any(|mutex| mutex.address == address);
        // The lock comes first in it.
        let address = std::ptr::from_ref(&lock).addr() as u64;
        std::mem::forget(lock.read());
        assert!(is_registered(address));
        drop(lock);
        assert!(is_registered(address), "the log of this thread's session names it still");
    }

    #[test]
    #[should_panic(expected = "would wait for itself")]
    fn what_another_session_of_the_thread_holds_is_not_waited_for() {
        let locks: Vec<Mutex<u32>> = (0..=retrial::engine::LOG_RECORDS as u32).map(Mutex::new).collect();
        let guards: Vec<_> = locks.iter().map(|lock| lock.lock()).collect();
        drop(locks[retrial::engine::LOG_RECORDS].lock());
        drop(guards);
    }

    const CHILD: &str = "RETRIAL_TEST_NO_MEMORY";

    /// In a process that may have no file large enough for an instance.
    #[test]
    fn the_child_that_has_no_instance() {
        if std::env::var_os(CHILD).is_some() {
            let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
            let time = std::time::Duration::from_millis(5);
            assert!(mutex.try_lock_for(time).is_none() && mutex.try_lock().is_none());
            assert!(lock.try_read_for(time).is_none() && lock.try_write().is_none());
        }
    }

    #[test]
    fn without_shared_memory_a_try_is_refused_and_does_not_panic() {
        let child = ["-c", "ulimit -f 8; exec \"$0\" --exact locks::the_child_that_has_no_instance"];
        // Its output may be a file that is longer than the limit already.
        let quiet = std::process::Stdio::null;
        let mut command = std::process::Command::new("sh");
        command.args(child).arg(std::env::current_exe().unwrap()).env(CHILD, "").stdout(quiet()).stderr(quiet());
        assert!(command.status().unwrap().success());
    }
}
