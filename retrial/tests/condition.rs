//! Waits for conditions, with and without kills of waiters and signallers.
//!
//! A child is this test program again, told by an environment variable what to do.

use retrial::engine::EngineCondition;
use retrial::{
    Address, BindError, Capacity, Class, Condition, GetError, Guard, GuardResult, Instance, Mode, Mutex, ObjectError,
    Patience, Session, Waited, location,
};
use std::panic::{self, AssertUnwindSafe};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

const DEED: &str = "RETRIAL_TEST_DEED";
const NAME: &str = "RETRIAL_TEST_INSTANCE";
const FATAL: &str = "RETRIAL_TEST_FATAL";

/// Longer than a waiter takes that looks by itself.
const LONG: Duration = Duration::from_secs(20);

struct Name(Address);

impl Name {
    fn new(test: &str) -> Self {
        Self(Address::new(&format!("condition-{test}-{}", std::process::id())).unwrap())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.path());
    }
}

fn child(name: &Name, deed: &str, fatal: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_child", "--nocapture", "--test-threads=1"]).stdout(Stdio::null());
    command.env(DEED, deed).env(NAME, name.0.to_string()).env(FATAL, fatal.to_string()).spawn().unwrap()
}

/// Tokens under a mutex, and a condition for sessions that want one.
#[derive(Clone, Copy)]
struct Stage<'i> {
    instance: &'i Instance,
    tokens: Mutex<'i, u64>,
    some: Condition<'i>,
}

/// The guard, also after a death.
fn told(got: GuardResult<'_, u64>) -> Guard<'_, u64> {
    match got {
        Ok(guard) => guard,
        Err(GetError::OwnerDied(mut died)) => {
            died.guard.consistent();
            died.guard
        }
        Err(error) => panic!("{error}"),
    }
}

impl<'i> Stage<'i> {
    fn new(instance: &'i Instance) -> Self {
        let tokens = instance.mutex("tokens", "test", || 0).unwrap();
        Self { instance, tokens, some: instance.condition("some tokens").unwrap() }
    }

    fn session(self, name: &str) -> Session<'i> {
        self.instance.session(name, Class::Normal).unwrap()
    }

    /// Waits for a token and takes it: whether one came in time.
    fn takes(self, session: &Session<'_>, patience: Patience) -> bool {
        let mut held = told(self.tokens.exclusive(session, location!("take")));
        while *held == 0 {
            held = match held.wait(&self.some, patience) {
                Ok((held, Waited::Signalled)) => held,
                Ok((_, Waited::TimedOut)) => return false,
                Err(error) => told(Err(error)),
            };
        }
        *held -= 1;
        true
    }

    fn gives(self, session: &Session<'_>) {
        let mut held = told(self.tokens.exclusive(session, location!("give")));
        *held += 1;
        self.some.signal();
    }

    /// Sessions that wait for the condition.
    fn waiting(self) -> usize {
        let is_its = |key: retrial::views::Key| key.event.for_event && key.mutex == self.some.id();
        let all = self.instance.tables().sessions();
        all.iter().filter(|info| !info.dead && info.wait.is_some_and(|(key, ..)| is_its(key))).count()
    }

    /// Lets time pass until so many sessions wait, or something else has happened.
    fn until_waiting(self, count: usize, mut or: impl FnMut() -> bool) {
        let start = Instant::now();
        while self.waiting() < count && !or() {
            assert!(start.elapsed() < LONG, "{} sessions wait, expected {count}", self.waiting());
            thread::yield_now();
        }
        // They are about to sleep.
        thread::sleep(Duration::from_millis(20));
    }

    /// The tokens, without a get, which would be told of a death in place of the waiters.
    fn look(self) -> u64 {
        let range = self.instance.tables().object_of(self.tokens.id()).unwrap();
        // SAFETY: no thread of this process changes them now.
        unsafe { self.instance.tables().peek(range.end - 8, 1) }.unwrap()[0]
    }
}

/// Not a test of its own: what a child does.
#[test]
fn the_child() {
    let Ok(deed) = std::env::var(DEED) else { return };
    let instance = Instance::attach(&Address::new(&std::env::var(NAME).unwrap()).unwrap()).unwrap();
    let stage = Stage::new(&instance);
    let session = stage.session("child");
    #[cfg(feature = "fail_points")]
    retrial::fail::arm(std::env::var(FATAL).unwrap().parse().unwrap());
    match deed.as_str() {
        "take" => assert!(stage.takes(&session, Patience::Endless)),
        "give" => stage.gives(&session),
        "stay" => {
            let mut held = stage.tokens.exclusive(&session, location!("stay")).unwrap();
            *held += 1;
            // Waits for what nobody signals.
            let other = instance.mutex("other", "test", || 0u64).unwrap();
            let held_too = other.exclusive(&session, location!("stay")).unwrap();
            let _ = held_too.wait(&instance.condition("never").unwrap(), Patience::Endless);
        }
        other => panic!("{other}"),
    }
    std::process::exit(0);
}

#[test]
fn a_wait_gives_the_mutex_back_and_gets_it_again() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let stage = Stage::new(&instance);
    for mode in [Mode::Exclusive, Mode::LongExclusive] {
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                let session = stage.session("waits");
                let held = stage.tokens.get(&session, mode, location!("wait"), Patience::Endless).unwrap();
                let (mut held, waited) = held.wait(&stage.some, Patience::within(LONG)).unwrap();
                assert_eq!((waited, held.hold().mode(), *held), (Waited::Signalled, mode, 1));
                *held = 0;
                assert_eq!(stage.tokens.word().sid(), session.sid());
            });
            stage.until_waiting(1, || false);
            stage.gives(&stage.session("gives"));
            waiter.join().unwrap();
        });
    }
    assert_eq!(stage.look(), 0);
}

#[test]
fn at_the_deadline_the_mutex_is_held_again() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let stage = Stage::new(&instance);
    let session = stage.session("waits");
    let held = stage.tokens.exclusive(&session, location!()).unwrap();
    let start = Instant::now();
    let (held, waited) = held.wait(&stage.some, Patience::within(Duration::from_millis(30))).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(30), "{:?}", start.elapsed());
    assert_eq!((waited, stage.tokens.word().sid()), (Waited::TimedOut, session.sid()));
    let (held, waited) = held.wait(&stage.some, Patience::None).unwrap();
    assert_eq!((waited, stage.tokens.word().sid()), (Waited::TimedOut, session.sid()));
    // A signal before the wait is for nobody.
    stage.some.signal();
    stage.some.broadcast();
    let (held, waited) = held.wait(&stage.some, Patience::None).unwrap();
    assert_eq!(waited, Waited::TimedOut);
    drop(held);
    assert!(!session.has_records());
}

#[test]
fn a_broadcast_is_for_all_and_a_signal_for_one() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let stage = Stage::new(&instance);
    let waiters = 8;
    let waits = || {
        let session = stage.session("waits");
        let held = stage.tokens.exclusive(&session, location!("wait")).unwrap();
        held.wait(&stage.some, Patience::within(Duration::from_millis(500))).unwrap().1
    };
    thread::scope(|scope| {
        let spawn = || (0..waiters).map(|_| scope.spawn(waits)).collect::<Vec<_>>();
        let all_are_signalled = |all: Vec<ScopedJoinHandle<'_, Waited>>| {
            all.into_iter().all(|one| one.join().unwrap() == Waited::Signalled)
        };
        let all = spawn();
        stage.until_waiting(waiters, || false);
        stage.some.broadcast();
        assert!(all_are_signalled(all));
        let all = spawn();
        stage.until_waiting(waiters, || false);
        let start = Instant::now();
        stage.some.signal();
        while stage.waiting() == waiters {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(50));
        let (left, is_early) = (stage.waiting(), start.elapsed() < Duration::from_millis(300));
        assert!(left == waiters - 1 || !is_early, "{left} wait");
        // At their deadlines they find that there was a signal since they came.
        assert!(all_are_signalled(all));
    });
}

#[test]
fn a_wait_is_seen_as_one_for_an_event() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let stage = Stage::new(&instance);
    let tables = instance.tables();
    thread::scope(|scope| {
        let taker = scope.spawn(move || stage.takes(&stage.session("taker"), Patience::within(LONG)));
        stage.until_waiting(1, || false);
        let info = tables.sessions().into_iter().find(|info| info.name == "taker").unwrap();
        let (key, ..) = info.wait.unwrap();
        assert_eq!(tables.mutex_name(key.mutex), "some tokens");
        assert_eq!(tables.location_name(key.location), "take");
        let mutex_type = tables.type_name(tables.mutex_info(key.mutex).unwrap().mutex_type);
        assert_eq!(key.event.name(&mutex_type), "retrial condition");
        stage.gives(&stage.session("giver"));
        assert!(taker.join().unwrap());
    });
    let names = |all: Vec<retrial::views::MutexInfo>| all.into_iter().map(|info| info.name).collect::<Vec<_>>();
    assert_eq!(names(tables.events()), ["some tokens"]);
    assert_eq!(names(tables.mutexes()), ["tokens"]);
    assert_eq!((tables.mutex_state(stage.some.id()), tables.offset_of(stage.some.id())), (None, None));
}

#[test]
fn a_name_is_that_of_a_condition_or_of_a_mutex() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let stage = Stage::new(&instance);
    let text = instance.condition("tokens").unwrap_err().to_string();
    assert!(text.starts_with("object `tokens` is a mutex with "), "{text}");
    assert!(text.contains(", expected a condition: "), "{text}");
    assert!(matches!(instance.mutex("some tokens", "test", || 0u64), Err(ObjectError::Kind { .. })));
    assert!(matches!(instance.mutex_bytes("some tokens", "test", 0), Err(ObjectError::Kind { .. })));
    assert_eq!(instance.condition("some tokens").unwrap().id(), stage.some.id());
}

#[test]
fn a_wait_in_a_mode_beside_others_or_for_another_instance_is_refused() {
    let (instance, other) = [(); 2].map(|()| Instance::anonymous(Capacity::default()).unwrap()).into();
    let stage = Stage::new(&instance);
    let session = stage.session("waits");
    let refused = |held: Guard<'_, u64>, condition: &Condition<'_>| {
        panic::catch_unwind(AssertUnwindSafe(|| held.wait(condition, Patience::None).is_ok())).is_err()
    };
    for mode in [Mode::Shared, Mode::Examine] {
        let held = stage.tokens.get(&session, mode, location!(), Patience::Endless).unwrap();
        assert!(refused(held, &stage.some), "{mode}");
        assert!(!session.has_records(), "{mode}: given back");
    }
    let theirs = other.condition("some tokens").unwrap();
    assert!(refused(stage.tokens.exclusive(&session, location!()).unwrap(), &theirs));
    assert!(!session.has_records());
}

#[test]
fn an_engines_condition_belongs_to_its_first_instance_until_it_is_given_back() {
    let (ours, theirs) = [(); 2].map(|()| Instance::anonymous(Capacity::default()).unwrap()).into();
    let (ours, theirs): (Instance, Instance) = (ours, theirs);
    let condition = EngineCondition::default();
    let bound = condition.bind(&ours, "ours").unwrap();
    assert_eq!(ours.tables().mutex_name(bound.id()), "ours");
    assert_eq!(condition.bind(&ours, "again").unwrap().id(), bound.id());
    assert_eq!(condition.bind(&theirs, "").unwrap_err(), BindError::OtherInstance);
    let tokens = ours.mutex("tokens", "test", || 0u64).unwrap();
    let stage = Stage { instance: &ours, tokens, some: bound };
    thread::scope(|scope| {
        let taker = scope.spawn(move || stage.takes(&stage.session("taker"), Patience::within(LONG)));
        stage.until_waiting(1, || false);
        // SAFETY: refused.
        assert_eq!(unsafe { condition.unbind(&ours) }, Ok(false), "while a session waits");
        stage.gives(&stage.session("giver"));
        assert!(taker.join().unwrap());
    });
    // SAFETY: nobody uses it.
    assert_eq!(unsafe { condition.unbind(&ours) }, Ok(true));
    assert_eq!(condition.bind(&ours, "").unwrap_err(), BindError::Gone);
    assert!(ours.tables().mutex_info(bound.id()).is_none());
    let named = ours.condition("named").unwrap();
    // SAFETY: refused.
    assert_eq!(unsafe { named.engine().unbind(&ours) }, Err(BindError::Named));
}

#[test]
fn whatever_another_process_writes_into_a_condition_waits_and_signals_end() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let stage = Stage::new(&instance);
    let session = stage.session("waits");
    let words: *const EngineCondition = stage.some.engine();
    // SAFETY: all of a condition is atomics, of 4 and 8 bytes.
    let words: &[AtomicU32; 6] = unsafe { &*words.cast() };
    let values = [0, 1, 1 << 31, u32::MAX - 1, u32::MAX];
    for word in words {
        for value in values {
            word.store(value, Ordering::Relaxed);
            let held = told(stage.tokens.exclusive(&session, location!()));
            let (held, _) = held.wait(&stage.some, Patience::within(Duration::from_millis(1))).unwrap();
            stage.some.signal();
            stage.some.broadcast();
            drop(held);
            // By the instance that it is said to be of, and by the number.
            if let Ok(bound) = stage.some.engine().bind(&instance, "") {
                let held = told(stage.tokens.exclusive(&session, location!()));
                drop(held.wait(&bound, Patience::None).unwrap());
            }
        }
        instance.condition("some tokens").unwrap();
    }
    assert!(!session.has_records());
}

#[test]
fn the_waiters_are_told_of_a_holder_that_dies_before_its_signal() {
    let name = Name::new("owes");
    let instance = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
    let stage = Stage::new(&instance);
    thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let session = stage.session("waits");
            let held = stage.tokens.exclusive(&session, location!("wait")).unwrap();
            let start = Instant::now();
            let Err(GetError::OwnerDied(died)) = held.wait(&stage.some, Patience::within(LONG)) else {
                panic!("not told after {:?}", start.elapsed())
            };
            (*died.guard, start.elapsed())
        });
        stage.until_waiting(1, || false);
        let mut holder = child(&name, "stay", u64::MAX);
        stage.until_waiting(2, || stage.look() == 1);
        holder.kill().unwrap();
        holder.wait().unwrap();
        let (tokens, elapsed) = waiter.join().unwrap();
        assert!(tokens == 1 && elapsed < Duration::from_secs(10), "{tokens} tokens after {elapsed:?}");
    });
}

/// Runs a child that dies at its `fatal`-th point, beside a thread that waits for a token; whether the child
/// died.
#[cfg(feature = "fail_points")]
fn dies_beside_a_waiter(deed: &str, fatal: u64) -> bool {
    let name = Name::new(deed);
    let instance = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
    let stage = Stage::new(&instance);
    let giver = stage.session("giver");
    let gone = |child: &mut Child| child.try_wait().unwrap();
    thread::scope(|scope| {
        // Longer than the test waits: at its deadline it would find the token by itself.
        let waits = || scope.spawn(move || stage.takes(&stage.session("taker"), Patience::within(3 * LONG)));
        let (mut child, taker) = if deed == "take" {
            // First in the kernel's queue, so that the signal is for it.
            let mut first = child(&name, deed, fatal);
            stage.until_waiting(1, || gone(&mut first).is_some());
            let taker = waits();
            // Both, or the one that lives.
            stage.until_waiting(2, || gone(&mut first).is_some() && stage.waiting() == 1);
            stage.gives(&giver);
            (first, taker)
        } else {
            let taker = waits();
            stage.until_waiting(1, || false);
            (child(&name, deed, fatal), taker)
        };
        let start = Instant::now();
        let mut status = None;
        while start.elapsed() < LONG && (!taker.is_finished() || status.is_none()) {
            status = status.or_else(|| gone(&mut child));
            thread::sleep(Duration::from_millis(1));
            if stage.look() == 0 && (status.is_some() || deed == "take") {
                // Nothing is left to take: one was never given, or was taken by the other one.
                thread::sleep(Duration::from_millis(20));
                if stage.look() == 0 && (!taker.is_finished() || gone(&mut child).is_none()) {
                    stage.gives(&giver);
                }
            }
        }
        assert!(taker.is_finished(), "{deed} at {fatal}: {} tokens, and a waiter sleeps", stage.look());
        assert!(taker.join().unwrap(), "{deed} at {fatal}");
        std::os::unix::process::ExitStatusExt::signal(&status.unwrap()) == Some(libc::SIGKILL)
    })
}

#[cfg(feature = "fail_points")]
#[test]
fn a_waiter_and_a_signaller_may_die_at_every_step() {
    for deed in ["take", "give"] {
        let kills = (1..100).take_while(|fatal| dies_beside_a_waiter(deed, *fatal)).count();
        println!("{deed}: {kills} kills");
        assert!((6..99).contains(&kills), "{deed}: {kills} kills");
    }
}
