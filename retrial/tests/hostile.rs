//! Processes in which a system call of ours is refused, from before the instance is made or from the middle
//! of its use: they get an error that says so, or do all that they do elsewhere.

use retrial::{Address, Capacity, Class, GetError, Instance, Mode, Mutex, Patience, SessionError, location};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What a child refuses: the number of a call, the error, and whether late.
const REFUSED: &str = "RETRIAL_TEST_REFUSED";
/// A child that hangs is ended.
const WATCHDOG_S: u32 = 60;

#[rustfmt::skip]
const CALLS: [(libc::c_long, &str, i32); 24] = [
    (libc::SYS_clock_nanosleep, "clock_nanosleep", libc::EPERM),
    (libc::SYS_ftruncate, "ftruncate", libc::EPERM),
    (libc::SYS_ftruncate, "ftruncate", libc::ENOSPC),
    (libc::SYS_get_robust_list, "get_robust_list", libc::EPERM),
    (libc::SYS_getpid, "getpid", libc::EPERM),
    (libc::SYS_getrandom, "getrandom", libc::ENOSYS),
    (libc::SYS_linkat, "linkat", libc::EPERM),
    (libc::SYS_madvise, "madvise", libc::EPERM),
    (libc::SYS_madvise, "madvise", libc::ENOMEM),
    (libc::SYS_membarrier, "membarrier", libc::EPERM),
    (libc::SYS_membarrier, "membarrier", libc::ENOSYS),
    (libc::SYS_memfd_create, "memfd_create", libc::EPERM),
    (libc::SYS_mmap, "mmap", libc::ENOMEM),
    (libc::SYS_mremap, "mremap", libc::ENOMEM),
    (libc::SYS_munmap, "munmap", libc::EPERM),
    (libc::SYS_openat, "openat", libc::EMFILE),
    (libc::SYS_openat, "openat", libc::EPERM),
    (libc::SYS_pread64, "pread64", libc::EPERM),
    (libc::SYS_prlimit64, "prlimit64", libc::EPERM),
    (libc::SYS_rt_sigprocmask, "rt_sigprocmask", libc::EPERM),
    (libc::SYS_sched_getscheduler, "sched_getscheduler", libc::EPERM),
    (libc::SYS_sched_yield, "sched_yield", libc::EPERM),
    (libc::SYS_statx, "statx", libc::EPERM),
    (libc::SYS_tgkill, "tgkill", libc::EPERM),
];

/// Has the kernel refuse a call to all threads of this process.
fn refuse(number: u32, error: u32) {
    let op = |code: u32, jump_false, k| libc::sock_filter { code: code as u16, jt: 0, jf: jump_false, k };
    let mut filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | error),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: takes no memory.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let (set, all_threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: `program` is as the kernel reads it.
    assert_eq!(unsafe { libc::syscall(libc::SYS_seccomp, set, all_threads, &raw const program) }, 0);
}

/// Threads that share two mutexes, one that gives up, one that dies with a mutex; `between` is called when
/// all have their sessions.
fn crowd(instance: &Instance, between: impl FnOnce()) -> Result<(), Box<dyn std::error::Error>> {
    const THREADS: u64 = 4;
    const GETS: u64 = 500;
    let (count, held): (Mutex<u64>, Mutex<u64>) =
        (instance.mutex("count", "test", || 0)?, instance.mutex("held", "test", || 0)?);
    let (ready, go) = (Barrier::new(THREADS as usize + 1), Barrier::new(THREADS as usize + 1));
    let main = instance.session("main", Class::Normal)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let session = instance.session("worker", Class::Detect);
                    ready.wait();
                    go.wait();
                    let session = session.map_err(|error| error.to_string())?;
                    for n in 0..GETS {
                        let mut guard = count.exclusive(&session, location!("count")).map_err(|e| e.to_string())?;
                        if n % 8 == 0 {
                            // Somebody parks behind it.
                            let since = Instant::now();
                            while since.elapsed() < Duration::from_micros(50) {}
                        }
                        *guard += 1;
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        ready.wait();
        between();
        go.wait();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let reader = count.get(&main, Mode::Shared, location!("read"), Patience::Endless).map_err(|e| e.to_string())?;
    assert_eq!(*reader, THREADS * GETS);
    drop(reader);
    let other = instance.session("other", Class::Normal)?;
    let guard =
        held.get(&other, Mode::LongExclusive, location!("hold"), Patience::Endless).map_err(|e| e.to_string())?;
    let late = held.get(&main, Mode::Exclusive, location!("late"), Patience::within(Duration::from_millis(20)));
    assert!(matches!(late, Err(GetError::TimedOut)), "it is held");
    drop(guard);
    Ok(())
}

/// Not a test of its own: what a child does.
#[test]
fn the_child() {
    let Ok(refused) = std::env::var(REFUSED) else { return };
    // SAFETY: has no preconditions; the default of SIGALRM ends the process.
    unsafe { libc::alarm(WATCHDOG_S) };
    let words: Vec<u32> = refused.split(' ').map(|word| word.parse().unwrap()).collect();
    let [number, error, is_late] = words[..] else { panic!("{refused}") };
    let file = Address::new(&format!("hostile-{}", std::process::id())).unwrap();
    if is_late == 0 {
        refuse(number, error);
    }
    let capacity = Capacity { sessions: 64, ..Capacity::default() };
    let anonymous = Instance::anonymous(capacity);
    let named = Instance::create(&file, capacity, 0o600);
    let result = [anonymous, named].into_iter().enumerate().map(|(n, instance)| {
        let refuse = || {
            if is_late == 1 && n == 1 {
                refuse(number, error);
            }
        };
        instance.map_err(Box::from).and_then(|instance| crowd(&instance, refuse))
    });
    for result in result.collect::<Vec<_>>() {
        match result {
            Ok(()) => println!("works"),
            Err(error) => println!("refused: {error}"),
        }
    }
    let _ = std::fs::remove_file(file.path());
    println!("done");
}

fn child(number: libc::c_long, error: i32, is_late: bool) -> Vec<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child", "--nocapture", "--test-threads=1"])
        .env(REFUSED, format!("{number} {error} {}", i32::from(is_late)))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().map(|line| line.trim_start_matches("test the_child ... ").to_owned());
    let lines: Vec<_> =
        lines.filter(|line| line == "works" || line == "done" || line.starts_with("refused: ")).collect();
    assert!(
        lines.last().is_some_and(|last| last == "done"),
        "{:?}: {}{text}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    lines
}

#[test]
fn a_process_to_which_a_call_is_refused_gets_an_error_or_all_it_asks_for() {
    for (number, name, error) in CALLS {
        for is_late in [false, true] {
            // Without it no thread can be started.
            if number == libc::SYS_mmap && !is_late {
                continue;
            }
            let lines = child(number, error, is_late);
            println!("{name} = error {error}, {}: {}", if is_late { "late" } else { "early" }, lines.join("; "));
            // The first instance was made and used before.
            assert!(!is_late || lines[0] == "works", "{name}: {lines:?}");
        }
    }
}

#[test]
fn a_process_without_a_key_for_thread_specific_data_has_no_session_until_it_deletes_one() {
    const CHILD: &str = "RETRIAL_TEST_KEYS";
    // A process keeps the key that it has had once.
    if std::env::var_os(CHILD).is_none() {
        let this = "a_process_without_a_key_for_thread_specific_data_has_no_session_until_it_deletes_one";
        let output =
            Command::new(std::env::current_exe().unwrap()).args(["--exact", this]).env(CHILD, "").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let instance = Instance::anonymous(Capacity { sessions: 2, ..Capacity::default() }).unwrap();
    let new_key = || {
        let mut key = 0;
        // SAFETY: `key` is writable.
        (unsafe { libc::pthread_key_create(&raw mut key, None) } == 0).then_some(key)
    };
    let last = std::iter::from_fn(new_key).last().unwrap();
    for _ in 0..3 {
        assert_eq!(instance.session("", Class::Normal).map(drop), Err(SessionError::NoKey));
    }
    // SAFETY: made above, and no thread has data of it.
    assert_eq!(unsafe { libc::pthread_key_delete(last) }, 0);
    assert_eq!(instance.session("", Class::Normal).map(drop), Ok(()));
}
