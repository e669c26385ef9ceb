//! Real processes that die by SIGKILL while they hold or wait.
//!
//! A child is this test program again, told by an environment variable what to do. It says on its standard
//! output how far it has come; nobody sleeps to let somebody else get there.

#[path = "kit/not_tested.rs"]
mod not_tested;

use not_tested::not_tested;
use retrial::engine::RawMutex;
use retrial::views::Word;
use retrial::{Address, Capacity, Class, GetError, Instance, Mode, Observer, P, Patience, location};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const DEED: &str = "RETRIAL_TEST_DEED";
/// Gets of a child whose releases no barrier reaches.
const ROUNDS: u64 = 10_000;
const NAME: &str = "RETRIAL_TEST_INSTANCE";

struct Name(Address);

impl Name {
    fn new(test: &str) -> Self {
        Self(Address::new(&format!("kill-{test}-{}", std::process::id())).unwrap())
    }
}

/// The file of a mutex outside of the instance's memory.
fn elsewhere(name: &Address) -> PathBuf {
    let mut path = name.path().as_os_str().to_owned();
    path.push(".elsewhere");
    path.into()
}

/// Maps that mutex: all bytes 0 in a fresh file.
fn map_elsewhere(name: &Address) -> &'static RawMutex {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(elsewhere(name)).unwrap();
    file.set_len(4096).unwrap();
    let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: a new mapping overlaps nothing.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd, 0) };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: a page of atomics that is never unmapped.
    unsafe { &*base.cast() }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(elsewhere(&self.0));
        let _ = std::fs::remove_file(self.0.path());
    }
}

/// Starts a child and waits until it says that it is where it should be.
fn child(name: &Name, deed: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child", "--nocapture", "--test-threads=1"])
        .env(DEED, deed)
        .env(NAME, name.0.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")), "the child of {deed} got there");
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Has the kernel refuse `membarrier` to this thread, as a container's filter may.
fn refuse_barriers() {
    let (load, jump, give) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut steps = [
        // The number of the call is at 0.
        step(load, 0, 0, 0),
        step(jump, 0, 1, libc::SYS_membarrier as u32),
        step(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: takes no memory.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program is readable for the call.
    let rc = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(rc, 0, "a filter can be set");
    assert!(!retrial::sys::register_for_barriers());
}

/// Forks after `limit_calls`. Whether this is the child; the parent has waited for its end.
fn is_forked_with_few_calls() -> bool {
    retrial::interposer::limit_calls();
    // SAFETY: the child makes an end of itself.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
    pid == 0
}

/// Not a test of its own: what a child does.
#[test]
fn the_child() {
    let Ok(deed) = std::env::var(DEED) else { return };
    if deed.ends_with("without barriers") {
        refuse_barriers();
    }
    if deed == "lends its pid" && !is_forked_with_few_calls() {
        return;
    }
    let instance = Instance::attach(&Address::new(&std::env::var(NAME).unwrap()).unwrap()).unwrap();
    let session = instance.session("child", Class::Normal).unwrap();
    if deed == "elsewhere" {
        let mutex = map_elsewhere(instance.address().unwrap());
        println!("ready");
        // SAFETY: both are of the same instance.
        let _ = unsafe { mutex.get(&session, Mode::Exclusive, location!("child waits elsewhere"), Patience::Endless) };
        return;
    }
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    if deed.ends_with("without barriers") {
        for _ in 0..ROUNDS {
            *mutex.exclusive(&session, location!("child without barriers")).unwrap() += 1;
        }
        println!("ready");
        return;
    }
    if deed == "lends its pid" {
        let held = mutex.exclusive(&session, location!("grandchild")).unwrap();
        println!("ready");
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(held);
        std::process::exit(0);
    }
    let stay = || {
        println!("ready");
        loop {
            std::thread::park();
        }
    };
    let (what, mode) = deed.split_once(' ').unwrap();
    let mode: Mode = mode.parse().unwrap();
    match what {
        "hold" => {
            let _guard = mutex.get(&session, mode, location!("child holds"), Patience::Endless).unwrap();
            stay();
        }
        "drain" => {
            let mut guard = mutex.get(&session, Mode::Examine, location!("child drains"), Patience::Endless).unwrap();
            println!("ready");
            guard.upgrade(Patience::Endless).unwrap();
            stay();
        }
        "wait" => {
            println!("ready");
            let _guard = mutex.get(&session, mode, location!("child waits"), Patience::Endless).unwrap();
            stay();
        }
        "thread" => {
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    // SAFETY: what is forgotten is not used.
                    let session = unsafe { instance.thread_session("thread", Class::Normal) }.unwrap();
                    std::mem::forget(mutex.get(&session, mode, location!("thread leaves"), Patience::Endless).unwrap());
                    std::mem::forget(session);
                });
                thread.join().unwrap();
            });
            stay();
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_dead_holder_is_replaced_and_the_next_one_told() {
    for (position, scheme) in retrial::wait::NAMES.iter().enumerate() {
        for mode in Mode::ALL {
            let name = Name::new("hold");
            let instance = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
            instance.set(P::Scheme, None, position as u64);
            let mutex = instance.mutex("m", "test", || 0u64).unwrap();
            let session = instance.session("parent", Class::Normal).unwrap();
            kill(child(&name, &format!("hold {mode}")));
            let got = mutex.exclusive(&session, location!("parent"));
            if mode == Mode::Shared {
                assert!(got.is_ok(), "{scheme}: a dead reader is nobody's concern");
                drop(got);
            } else {
                let Err(GetError::OwnerDied(mut died)) = got else { panic!("{scheme}: {mode}: not told") };
                let death = died.death.expect("known");
                assert_eq!(death.mode, mode, "{scheme}");
                assert_eq!(instance.tables().location_name(death.location), "child holds", "{scheme}");
                died.guard.consistent();
                drop(died);
                assert!(mutex.exclusive(&session, location!("parent")).is_ok(), "{scheme}: told once");
            }
            assert_eq!(mutex.word(), Word::FREE, "{scheme}: {mode}");
            assert_eq!(instance.tables().sessions().len(), 1, "{scheme}: {mode}: the slot is free again");
            std::fs::remove_file(name.0.path()).unwrap();
        }
    }
}

#[test]
fn an_undeclared_death_stays() {
    let name = Name::new("poison");
    let instance = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let session = instance.session("parent", Class::Normal).unwrap();
    kill(child(&name, "hold X"));
    for _ in 0..3 {
        let got = mutex.exclusive(&session, location!("parent"));
        assert!(matches!(got, Err(GetError::OwnerDied(_))), "told again while nobody has said that the data are fine");
    }
    assert!(matches!(mutex.shared(&session, location!("parent")), Err(GetError::OwnerDied(_))));
}

#[test]
fn a_dead_drainer_lets_the_readers_in_again() {
    let name = Name::new("drain");
    let instance = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let session = instance.session("parent", Class::Normal).unwrap();
    let reader = mutex.shared(&session, location!("parent")).unwrap();
    let drainer = child(&name, "drain E");
    while !mutex.word().has(Word::DRAINING) {
        std::thread::yield_now();
    }
    kill(drainer);
    // Not told that it waits for itself: the drainer waits no more.
    let Err(GetError::OwnerDied(again)) = mutex.shared(&session, location!("parent")) else {
        panic!("told of the death")
    };
    drop(again);
    let other = instance.session("other", Class::Normal).unwrap();
    let Err(GetError::OwnerDied(second)) = mutex.shared(&other, location!("parent")) else {
        panic!("told of the death")
    };
    assert_eq!(mutex.word().references(), 2);
    drop(second);
    drop(reader);
}

#[test]
fn readers_come_in_beside_a_reader_again_when_the_writer_that_kept_them_out_has_died() {
    let name = Name::new("door");
    let instance = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let [stays, comes] = ["stays", "comes"].map(|name| instance.session(name, Class::Normal).unwrap());
    let reader = mutex.shared(&stays, location!("parent")).unwrap();
    let writer = child(&name, "wait X");
    while !mutex.word().has(Word::HANDOVER) {
        drop(mutex.get(&comes, Mode::Shared, location!("parent"), Patience::None));
        std::thread::yield_now();
    }
    kill(writer);
    let patience = Patience::within(std::time::Duration::from_secs(20));
    assert!(mutex.get(&comes, Mode::Shared, location!("parent"), patience).is_ok());
    drop(reader);
}

/// Kills three waiters; how many sessions count as parked after that.
fn parked_after_kills_of_waiters(scheme: &str) -> u32 {
    let name = Name::new("wait");
    let instance = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
    instance.set(P::Scheme, None, retrial::wait::named(scheme).unwrap() as u64);
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let session = instance.session("parent", Class::Normal).unwrap();
    let guard = mutex.exclusive(&session, location!("parent")).unwrap();
    let waiters: Vec<Child> = (0..3).map(|_| child(&name, "wait X")).collect();
    let observer = Observer::open(&name.0).unwrap();
    while observer.tables().sessions().iter().filter(|s| s.wait.is_some()).count() < 3 {
        std::thread::yield_now();
    }
    waiters.into_iter().for_each(kill);
    drop(guard);
    assert!(mutex.exclusive(&session, location!("parent")).is_ok(), "{scheme}");
    assert_eq!(instance.recover_all().0, 3, "{scheme}");
    assert_eq!(instance.tables().sessions().len(), 1, "{scheme}");
    mutex.parked()
}

#[test]
fn a_killed_waiter_costs_the_others_nothing() {
    for scheme in ["orbit", "latch", "pthread", "10g"] {
        // A session that dies while it is counted stays so until a release finds nobody asleep, wherever it died.
        for _ in 0..5 {
            assert_eq!(parked_after_kills_of_waiters(scheme), 0, "{scheme}: the dead are counted for ever");
        }
    }
}

#[test]
fn killed_waiters_of_a_mutex_elsewhere_keep_no_slots() {
    for scheme in ["orbit", "latch", "10g"] {
        let name = Name::new("elsewhere");
        let instance = Instance::create(&name.0, Capacity { sessions: 8, ..Capacity::default() }, 0o600).unwrap();
        instance.set(P::Scheme, None, retrial::wait::named(scheme).unwrap() as u64);
        let mutex = map_elsewhere(&name.0);
        let mutex_type = instance.register_type("elsewhere").unwrap();
        // SAFETY: sessions of this instance only.
        unsafe { mutex.register(&instance, mutex_type, "elsewhere").unwrap() };
        let session = instance.session("parent", Class::Normal).unwrap();
        // SAFETY: both are of the same instance.
        let held = unsafe { mutex.exclusive(&session, location!("parent")) }.unwrap();
        let waiting = || instance.tables().sessions().iter().filter(|s| s.wait.is_some() && !s.dead).count();
        let payer = child(&name, "elsewhere");
        for _ in 0..12 {
            let dies = child(&name, "elsewhere");
            while waiting() < 2 {
                std::thread::yield_now();
            }
            kill(dies);
            // Nobody is blocked by the dead: one process finds them, and the waiter, which has the mutex mapped, pays.
            instance.recover_all();
            while instance.tables().sessions().len() > 2 {
                std::thread::yield_now();
            }
        }
        kill(payer);
        drop(held);
    }
}

#[test]
fn a_session_is_of_the_process_that_it_is_in_whatever_its_parent_had_asked_for() {
    let name = Name::new("limited");
    let instance = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let mut child = child(&name, "lends its pid");
    let session = instance.session("parent", Class::Normal).unwrap();
    // It lives: its holder is not the thread of that number in the process that forked it.
    assert!(mutex.exclusive(&session, location!("parent")).is_ok());
    child.wait().unwrap();
}

#[test]
fn a_process_that_no_barrier_reaches_fences_its_releases() {
    let name = Name::new("barrier");
    let instance = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
    if !instance.tables().has_barrier() {
        not_tested("this kernel has no membarrier");
        return;
    }
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let session = instance.session("parent", Class::Normal).unwrap();
    let id = instance.tables().mutex_named("m").unwrap();
    // Bit 22 of what is known of the parked, at 8.
    let parking = instance.tables().offset_of(id).unwrap() + 8;
    // SAFETY: the words of a record are atomics.
    let is_fenced = || unsafe { instance.tables().peek(parking, 1) }.unwrap()[0] & 1 << 22 != 0;
    *mutex.exclusive(&session, location!("parent")).unwrap() += 1;
    assert!(!is_fenced(), "one store, where barriers reach everybody");
    // Nobody is beside it: it has parked nowhere.
    child(&name, "get without barriers").wait().unwrap();
    assert!(is_fenced(), "others that park do no barrier that it would not see");
    let mut beside = Command::new(std::env::current_exe().unwrap());
    beside.args(["--exact", "the_child", "--test-threads=1"]).env(DEED, "get without barriers");
    let mut beside = beside.env(NAME, name.0.to_string()).stdout(Stdio::null()).spawn().unwrap();
    for _ in 0..ROUNDS {
        *mutex.exclusive(&session, location!("parent")).unwrap() += 1;
    }
    assert!(beside.wait().unwrap().success());
    assert_eq!(*mutex.exclusive(&session, location!("parent")).unwrap(), 1 + 3 * ROUNDS);
}

#[test]
fn a_thread_that_ends_with_a_mutex_is_as_dead_as_a_process() {
    let name = Name::new("thread");
    let instance = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let session = instance.session("parent", Class::Normal).unwrap();
    let living = child(&name, "thread X");
    assert!(matches!(mutex.exclusive(&session, location!("parent")), Err(GetError::OwnerDied(_))));
    kill(living);
}
