//! Every crash point of every operation on every kind of mutex word, recovered, with the recoverer dying at
//! each of its own points too; compared with a specification that looks at the word alone.
//!
//! A thread stands for a process here: it dies at a fail point, nothing that it drops has an effect, and the
//! kernel marks its session's lock. `tests/fail_points.rs` does some of the same by SIGKILL.
#![cfg(feature = "fail_points")]

use retrial::interposer::{self, CALLS};
use retrial::parking::{Parking, Wakes};
use retrial::views::{Figures, Key, Kind, Sid, Word};
use retrial::{Capacity, Class, GetError, Guard, Instance, Mode, Mutex, P, Patience, Session};
use retrial::{fail, location};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the living have of the mutex when somebody dies.
#[derive(Clone, Copy, Debug)]
struct Scene {
    references: u32,
    holder: Holder,
    /// Flags of the word.
    flags: u64,
    /// What the mutex knows of the parked.
    parking: Parking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    In(Mode),
    /// Moves a reference of its own.
    Moving,
    /// E that waits to be X.
    Draining,
}

/// One session is parked, or was when it died.
fn one() -> Parking {
    Parking::default().announce(Wakes::Enough, false, true)
}

/// A session that wants X asks for a handover.
fn starving(parking: Parking) -> Parking {
    parking.starve(0, true)
}

fn scenes() -> Vec<Scene> {
    let holders = Mode::ALL[1..].iter().map(|mode| Holder::In(*mode));
    let holders: Vec<Holder> = holders.chain([Holder::Nobody, Holder::Moving, Holder::Draining]).collect();
    let flags = [Word::POISONED, Word::ATTENTION, Word::HANDOVER];
    let sets =
        (0..8u32).map(|set| flags.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, flag)| flag).sum());
    let sets: Vec<u64> = sets.collect();
    let mut scenes = Vec::new();
    for &holder in &holders {
        for references in 0..3 {
            let alone = matches!(holder, Holder::In(Mode::Exclusive | Mode::LongExclusive));
            // A mover moves a reference, and a drain without any is over.
            let some = matches!(holder, Holder::Moving | Holder::Draining);
            if alone && references > 0 || some && references == 0 {
                continue;
            }
            scenes.extend(sets.iter().map(|&flags| Scene { references, holder, flags, parking: Parking::default() }));
            let nobody = Parking::default();
            let two = one().announce(Wakes::Enough, false, false);
            let parkings = [one(), starving(one()), nobody.fenced(), starving(two).fenced(), starving(nobody)];
            scenes.extend(parkings.map(|parking| Scene { references, holder, flags: 0, parking }));
        }
    }
    scenes
}

/// An instance with a mutex.
#[derive(Clone, Copy)]
struct Stage {
    instance: &'static Instance,
    mutex: Mutex<'static, u64>,
    offset: u64,
}

/// The sessions that stay alive.
struct Living {
    holder: Session<'static>,
    readers: [Session<'static>; 2],
}

/// What the living hold.
struct Cast<'a> {
    readers: Vec<Guard<'a, u64>>,
    holder: Option<Guard<'a, u64>>,
}

impl Stage {
    fn new() -> Self {
        let capacity = Capacity { sessions: 16, mutexes: 4096, locations: 64, ..Capacity::default() };
        // For the life of the test: sessions of threads that died keep it mapped anyway.
        let instance: &'static Instance = Box::leak(Box::new(Instance::anonymous(capacity).unwrap()));
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        Self { instance, mutex, offset: instance.tables().offset_of(mutex.id()).unwrap() }
    }

    fn session(&self, name: &str) -> Session<'static> {
        self.instance.session(name, Class::Normal).unwrap()
    }

    /// Word 0: the word; 1: what is known of the parked; 4: drainer and count of wake-ups.
    fn poke(&self, word: u64, value: u64) {
        // SAFETY: the mutex protects a number that nobody reads here.
        assert!(unsafe { self.instance.poke(self.offset + 8 * word, value) });
    }

    fn drainer(&self) -> Sid {
        // SAFETY: the words of a record are atomics.
        Sid::new(unsafe { self.instance.tables().peek(self.offset + 32, 1) }.unwrap()[0] as u32)
    }

    fn word(&self) -> Word {
        self.mutex.word()
    }

    fn set<'a>(&self, living: &'a Living, scene: Scene) -> Cast<'a> {
        self.poke(0, 0);
        self.poke(1, 0);
        self.poke(4, 0);
        let here = location!("living");
        let get = |session: &'a Session<'static>, mode| self.mutex.get(session, mode, here, Patience::None).unwrap();
        let readers =
            living.readers.iter().take(scene.references as usize).map(|reader| get(reader, Mode::Shared)).collect();
        let holder = match scene.holder {
            Holder::In(mode) => Some(get(&living.holder, mode)),
            _ => None,
        };
        let word = self.word().0 | scene.flags;
        let sid = u64::from(living.holder.sid().number());
        match scene.holder {
            Holder::Moving => self.poke(0, word | 3 << 56 | sid << 32),
            Holder::Draining => self.poke(0, word | Word::DRAINING),
            _ => self.poke(0, word),
        }
        self.poke(4, if scene.holder == Holder::Draining { sid } else { 0 });
        self.poke(1, scene.parking.0);
        Cast { readers, holder }
    }

    /// The living end what they were at; what the scene faked is taken back.
    fn clear(&self, cast: Cast<'_>) {
        let poisoned = self.word().0 & Word::POISONED;
        if let Some(holder) = cast.holder {
            drop(holder);
        }
        self.poke(0, u64::from(self.word().references()) | poisoned);
        cast.readers.into_iter().for_each(drop);
    }
}

type Op = fn(Stage, &Session<'static>, u64);

fn got<G>(result: Result<G, GetError<G>>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(GetError::OwnerDied(died)) => Some(died.guard),
        Err(_) => None,
    }
}

fn get<'a>(stage: Stage, session: &'a Session<'static>, mode: Mode) -> Option<Guard<'a, u64>>
where
    'static: 'a,
{
    got(stage.mutex.get(session, mode, location!("dying"), Patience::None))
}

const OPERATIONS: &[(&str, Op)] = &[
    ("get and release X", |stage, me, _| drop(get(stage, me, Mode::Exclusive))),
    ("get and release LX", |stage, me, _| drop(get(stage, me, Mode::LongExclusive))),
    ("get and release E", |stage, me, _| drop(get(stage, me, Mode::Examine))),
    ("get and release S", |stage, me, _| {
        let guard = get(stage, me, Mode::Shared);
        // A reader cannot leave while somebody living keeps the field.
        if stage.word().sid().is_none() {
            drop(guard);
        } else {
            std::mem::forget(guard);
        }
    }),
    ("endless get of a free mutex", |stage, me, _| {
        if stage.word().sid().is_none() && !stage.word().has(Word::DRAINING) && stage.word().references() == 0 {
            drop(got(stage.mutex.exclusive(me, location!("dying"))));
        }
    }),
    ("S to E to S to E to X to S", |stage, me, _| {
        let Some(mut guard) = get(stage, me, Mode::Shared) else { return };
        if guard.examine(Patience::None).is_ok() {
            guard.share();
        }
        if guard.examine(Patience::None).is_ok() && guard.upgrade(Patience::None).is_ok() {
            *guard += 1;
            guard.share();
        }
        guard.consistent();
        if stage.word().sid().is_none() || stage.word().sid() == me.sid() {
            drop(guard);
        } else {
            std::mem::forget(guard);
        }
    }),
    ("X to S, LX to S", |stage, me, _| {
        for mode in [Mode::Exclusive, Mode::LongExclusive] {
            if let Some(mut guard) = get(stage, me, mode) {
                guard.consistent();
                guard.share();
            }
        }
    }),
    ("S twice", |stage, me, _| {
        let first = get(stage, me, Mode::Shared);
        let second = get(stage, me, Mode::Shared);
        if stage.word().sid().is_none() {
            drop((first, second));
        } else {
            std::mem::forget((first, second));
        }
    }),
    ("S and E in two records", |stage, me, _| {
        let (Some(first), Some(mut second)) = (get(stage, me, Mode::Shared), get(stage, me, Mode::Shared)) else {
            return;
        };
        if second.examine(Patience::None).is_ok() {
            second.share();
        }
        drop((first, second));
    }),
    ("consistent", |stage, me, _| {
        if let Some(mut guard) = get(stage, me, Mode::Exclusive) {
            guard.consistent();
        }
    }),
    ("a mutex that is new", |stage, me, case| {
        let object = stage.instance.mutex(&format!("object {}", case % 256), "fresh type", || 7u64).unwrap();
        assert_eq!(
            got(object.get(me, Mode::Exclusive, location!("dying"), Patience::None)).map(|guard| *guard),
            Some(7)
        );
    }),
    ("S that leaves beside E of the same thread", |stage, me, _| {
        let other = stage.session("other");
        let (Some(reads), Some(examines)) = (get(stage, me, Mode::Shared), get(stage, &other, Mode::Examine)) else {
            return;
        };
        drop(reads);
        drop(examines);
    }),
    ("another session", |stage, _, _| {
        let other = stage.instance.session("other", Class::Normal).unwrap();
        drop(get(stage, &other, Mode::Examine));
    }),
];

/// For each fail point from the first on, as long as somebody dies there.
fn each(mut died: impl FnMut(u64) -> bool) {
    let mut n = 1;
    while died(n) {
        n += 1;
    }
}

/// Counts of what was tried.
#[derive(Default)]
struct Tally {
    crashes: u64,
    recoverers: u64,
    poisoned: u64,
}

/// One death: the operation at its `n`-th point, and the first recoverer at its `m`-th (0: it lives). Whether
/// the operation and the recoverer died.
fn case(
    stage: Stage,
    living: &Living,
    scene: Scene,
    (name, op): (&str, Op),
    n: u64,
    m: u64,
    tally: &mut Tally,
) -> (bool, bool) {
    let cast = stage.set(living, scene);
    let died = fail::die_at(n, || stage.session("dying"), |session| op(stage, &session, n + m)).is_none();
    let context = || format!("{name} at {n}, recoverer at {m}, {scene:?}");
    let before = stage.word();
    let drained = before.has(Word::DRAINING) && scene.holder != Holder::Draining;
    let drainer = stage.drainer();
    if drained {
        assert_ne!(stage.drainer(), living.holder.sid(), "{}", context());
    }
    let mine = !before.sid().is_none() && before.sid() != living.holder.sid();
    // The specification. The living keep what they have; the dead has nothing. Whoever dies in the field for
    // more than to move a reference, or while it waits to be X, leaves data that may be half changed.
    let changed = mine && before.kind() != Some(Kind::Moving) || drained;
    let poisoned = before.has(Word::POISONED) || changed;
    let holder =
        if matches!(scene.holder, Holder::Nobody | Holder::Draining) { Sid::NONE } else { living.holder.sid() };

    let mut recoverer_died = false;
    if m > 0 {
        recoverer_died = fail::die_at(m, || (), |()| stage.instance.recover_all()).is_none();
    }
    // Twice: a dead reader's reference waits for the field of another dead session.
    let (_, owing) = [stage.instance.recover_all(), stage.instance.recover_all()][1];
    let after = stage.word();
    assert_eq!(after.sid(), holder, "{}: the holder", context());
    assert_eq!(after.has(Word::POISONED), poisoned, "{}: poison", context());
    assert_eq!(after.has(Word::DRAINING), scene.holder == Holder::Draining, "{}: the drain", context());
    assert_eq!(after.has(Word::ATTENTION), before.has(Word::ATTENTION), "{}: attention", context());
    assert!(before.has(Word::HANDOVER) || !after.has(Word::HANDOVER), "{}: handed to nobody", context());
    if owing > 0 {
        assert!(!holder.is_none() && before.references() > scene.references, "{}: owes nothing it can pay", context());
    } else {
        assert_eq!(after.references(), scene.references, "{}: references", context());
    }
    let parked = stage.mutex.parked();
    assert!(parked <= scene.parking.parked() + 2, "{}: {parked} parked", context());
    stage.clear(cast);
    let (_, owing) = stage.instance.recover_all();
    // What was handed over to the dead is there for any session a moment later.
    let handed = if scene.parking.starving().1 { stage.word().0 & Word::HANDOVER } else { 0 };
    let left = Word(u64::from(poisoned) << 63 | handed);
    assert_eq!((owing, stage.word()), (0, left), "{}: at the end", context());
    assert_eq!(stage.instance.tables().sessions().len(), 3, "{}: a slot leaked", context());
    // The next holder is told, exactly then.
    let patience = if handed == 0 { Patience::None } else { Patience::within(Duration::from_secs(9)) };
    match stage.mutex.get(&living.holder, Mode::Exclusive, location!("next"), patience) {
        Ok(_) => assert!(!poisoned, "{}: not told", context()),
        Err(GetError::OwnerDied(died)) => {
            assert!(poisoned, "{}: told of no death", context());
            let who = died.death.map(|death| (death.sid, death.mode != Mode::Shared));
            let dead = if drained { drainer } else { before.sid() };
            assert!(!changed || who == Some((dead, true)), "{}: told of {who:?}, not of {dead:?}", context());
        }
        Err(error) => panic!("{}: {error}", context()),
    }
    tally.crashes += u64::from(died);
    tally.recoverers += u64::from(recoverer_died);
    tally.poisoned += u64::from(changed);
    (died, recoverer_died)
}

#[test]
fn whoever_dies_wherever_leaves_the_living_what_they_had() {
    let stage = Stage::new();
    let living =
        Living { holder: stage.session("holder"), readers: [stage.session("reader"), stage.session("reader")] };
    let mut tally = Tally::default();
    let scenes = scenes();
    for &scene in &scenes {
        for &operation in OPERATIONS {
            each(|n| {
                let mut died = |m| case(stage, &living, scene, operation, n, m, &mut tally);
                let (victim, _) = died(0);
                if victim {
                    each(|m| died(m).1);
                }
                victim
            });
        }
    }
    println!(
        "{} scenes, {} operations: {} crashes of which {} poison, {} more of recoverers",
        scenes.len(),
        OPERATIONS.len(),
        tally.crashes,
        tally.poisoned,
        tally.recoverers
    );
    assert!(tally.crashes > 1000 && tally.poisoned > 100 && tally.recoverers > 1000);
}

#[test]
fn a_switch_of_adaptive_may_be_the_last_step() {
    let stage = Stage::new();
    let living =
        Living { holder: stage.session("holder"), readers: [stage.session("reader"), stage.session("reader")] };
    // Every get checks, and every check switches.
    for (p, value) in [(P::Scheme, retrial::wait::ADAPTIVE as u64), (P::CheckEvery, 1), (P::Streak, 1)] {
        stage.instance.set(p, None, value);
    }
    stage.instance.set(P::PthreadThreshold, None, 1 << 32);
    stage.instance.set(P::YdbThreshold, None, 0);
    let switches = || stage.instance.tables().mutex_info(stage.mutex.id()).unwrap().switches;
    let mut tally = Tally::default();
    for parking in [Parking::default(), one(), starving(one()), Parking::default().fenced()] {
        for references in 0..2 {
            // The flag sends each get through the slow path, which runs the controller.
            let scene = Scene { references, holder: Holder::Nobody, flags: Word::ATTENTION, parking };
            for &operation in &OPERATIONS[..8] {
                each(|n| {
                    let mut died = |m| case(stage, &living, scene, operation, n, m, &mut tally);
                    let (victim, _) = died(0);
                    if victim {
                        each(|m| died(m).1);
                    }
                    victim
                });
            }
        }
    }
    println!("{} crashes, {} of recoverers, {} switches", tally.crashes, tally.recoverers, switches());
    assert!(tally.crashes > 100 && switches() > 100);
}

/// Sets a scheme with short times; a hang ends the test program.
fn hurry(instance: &Instance, scheme: usize, fairness: u64) {
    // SAFETY: takes no memory.
    unsafe { libc::alarm(600) };
    let params = [
        (P::Scheme, scheme as u64),
        (P::Fairness, fairness),
        (P::SoftSpinCount, 1),
        (P::HardSpinCount, 1),
        (P::SpinCount, 1),
        (P::LatchSpinCount, 1),
        (P::OrbitYields, 1),
        (P::OrbitSpinTime, 0),
        (P::QueueTimeout, 20),
        (P::HandoverInterval, 1),
    ];
    for (p, value) in params {
        instance.set(p, None, value);
    }
}

/// Every scheme, and the default one with each fairness.
fn manners() -> impl Iterator<Item = (usize, u64)> {
    let orbit = retrial::wait::DEFAULT;
    (0..retrial::wait::NAMES.len()).map(|scheme| (scheme, 1)).chain([(orbit, 0), (orbit, 2)])
}

#[test]
fn a_session_may_die_at_every_point_of_its_wait() {
    let stage = Stage::new();
    let living =
        Living { holder: stage.session("holder"), readers: [stage.session("reader"), stage.session("reader")] };
    let waits: [(&str, Op); 4] = [
        ("wait for S", |stage, me, _| std::mem::forget(wait(stage, me, Mode::Shared))),
        ("wait for X", |stage, me, _| drop(wait(stage, me, Mode::Exclusive))),
        ("wait for LX", |stage, me, _| drop(wait(stage, me, Mode::LongExclusive))),
        ("wait for E", |stage, me, _| drop(wait(stage, me, Mode::Examine))),
    ];
    let scenes = [
        (Holder::In(Mode::Exclusive), 0),
        (Holder::In(Mode::LongExclusive), 0),
        (Holder::In(Mode::Examine), 1),
        (Holder::Moving, 1),
        (Holder::Draining, 1),
        (Holder::Nobody, 1),
    ];
    let mut tally = Tally::default();
    for (scheme, fairness) in manners() {
        hurry(stage.instance, scheme, fairness);
        for (holder, references) in scenes {
            for operation in waits {
                let scene = Scene { references, holder, flags: 0, parking: Parking::default() };
                each(|n| case(stage, &living, scene, operation, n, 0, &mut tally).0);
            }
        }
    }
    println!("{} crashes of waiters", tally.crashes);
    assert!(tally.crashes > 1000);
}

/// Waits for two milliseconds.
fn wait<'a>(stage: Stage, session: &'a Session<'static>, mode: Mode) -> Option<Guard<'a, u64>>
where
    'static: 'a,
{
    got(stage.mutex.get(session, mode, location!("dying"), Patience::within(Duration::from_millis(2))))
}

/// Gives way until something is so.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

/// How many sessions wait.
fn waiting(instance: &Instance) -> usize {
    instance.tables().sessions().iter().filter(|info| info.wait.is_some() && !info.dead).count()
}

#[test]
fn a_holder_that_dies_while_it_releases_strands_nobody() {
    let mut crashes = 0;
    for (scheme, fairness) in manners() {
        let stage = Stage::new();
        hurry(stage.instance, scheme, fairness);
        for (holds, wants) in [
            (Mode::Exclusive, Mode::Exclusive),
            (Mode::LongExclusive, Mode::Shared),
            (Mode::Examine, Mode::Examine),
            (Mode::Shared, Mode::Exclusive),
        ] {
            for n in 1.. {
                let held = AtomicBool::new(false);
                let died = std::thread::scope(|scope| {
                    let waiter = scope.spawn(|| {
                        let session = stage.session("waiter");
                        until(|| held.load(Ordering::Acquire));
                        match stage.mutex.get(&session, wants, location!("waiter"), Patience::Endless) {
                            Ok(guard) => drop(guard),
                            Err(GetError::OwnerDied(mut died)) => {
                                if wants == Mode::Shared {
                                    drop(died);
                                    let mut guard = got(stage.mutex.exclusive(&session, location!("waiter"))).unwrap();
                                    guard.consistent();
                                } else {
                                    died.guard.consistent();
                                }
                            }
                            Err(error) => panic!("{error}"),
                        }
                    });
                    let died = fail::die_at(
                        n,
                        || stage.session("dying"),
                        |session| {
                            let guard = got(stage.mutex.get(&session, holds, location!("dying"), Patience::None));
                            held.store(true, Ordering::Release);
                            until(|| waiting(stage.instance) > 0);
                            drop(guard);
                        },
                    );
                    held.store(true, Ordering::Release);
                    waiter.join().unwrap();
                    died.is_none()
                });
                assert_eq!(stage.instance.recover_all().1, 0);
                assert_eq!(stage.word().without(Word::ATTENTION), Word::FREE, "{holds} for {wants} at {n}");
                assert_eq!(stage.instance.tables().sessions(), [], "a slot leaked");
                if !died {
                    break;
                }
                crashes += 1;
            }
        }
    }
    println!("{crashes} crashes of releasers");
    assert!(crashes > 30);
}

#[test]
fn a_session_that_dies_between_waking_and_getting_strands_nobody() {
    let mut crashes = 0;
    for (scheme, fairness) in manners() {
        let stage = Stage::new();
        hurry(stage.instance, scheme, fairness);
        for n in 1.. {
            let (held, dead) = (AtomicBool::new(false), AtomicBool::new(false));
            let is_held = || {
                until(|| held.load(Ordering::Acquire));
            };
            let died = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let session = stage.session("holder");
                    let guard = got(stage.mutex.exclusive(&session, location!("holder"))).unwrap();
                    held.store(true, Ordering::Release);
                    until(|| waiting(stage.instance) >= 2 || dead.load(Ordering::Acquire));
                    drop(guard);
                });
                scope.spawn(|| {
                    let session = stage.session("survivor");
                    is_held();
                    got(stage.mutex.exclusive(&session, location!("survivor"))).unwrap().consistent();
                });
                let victim = |session: Session<'static>| {
                    is_held();
                    drop(got(stage.mutex.exclusive(&session, location!("victim"))));
                };
                let died = fail::die_at(n, || stage.session("victim"), victim).is_none();
                dead.store(true, Ordering::Release);
                died
            });
            assert_eq!(stage.instance.recover_all().1, 0);
            let session = stage.session("last");
            got(stage.mutex.exclusive(&session, location!("last"))).unwrap().consistent();
            drop(session);
            assert_eq!(stage.word().without(Word::ATTENTION), Word::FREE, "at {n}");
            assert_eq!(stage.instance.tables().sessions(), [], "a slot leaked");
            if !died {
                break;
            }
            crashes += 1;
        }
    }
    println!("{crashes} crashes of sessions that were to be woken");
    assert!(crashes > 30);
}

/// What all sessions have counted, of waits and by an interposer.
fn counted(instance: &Instance) -> (Vec<(Key, Figures)>, u64, [u64; CALLS.len()]) {
    let mut sums: BTreeMap<Key, Figures> = BTreeMap::new();
    for (_, key, figures) in instance.tables().figures() {
        sums.entry(key).or_default().add(&figures);
    }
    (sums.into_iter().collect(), instance.tables().session_gets(), instance.tables().calls())
}

#[test]
fn a_claimer_may_die_at_every_point_while_it_adds_up_what_the_departed_counted() {
    let mut crashes = 0;
    // The first claimer dies at its n-th point, the second one at its m-th (0: it lives).
    for m in [0, 1, 4, 7, 12, 20, 40] {
        each(|n| {
            let capacity = Capacity { sessions: 2, ..Capacity::default() };
            let instance = Instance::anonymous(capacity).unwrap();
            let mutexes = ["first", "second"].map(|name| instance.mutex(name, "test", || 0u64).unwrap());
            let holder = instance.session("holder", Class::Normal).unwrap();
            // Two departed sessions of one slot: the second one's rows are added to those of the first.
            for _ in 0..2 {
                let waiter = instance.session("waiter", Class::Normal).unwrap();
                for mutex in &mutexes {
                    let held = mutex.exclusive(&holder, location!("holder")).unwrap();
                    let patience = Patience::within(Duration::from_micros(10));
                    assert!(mutex.get(&waiter, Mode::Shared, location!("waiter"), patience).is_err());
                    drop(held);
                }
                interposer::count_get(&waiter);
                interposer::count_call(&waiter, 3);
            }
            let before = counted(&instance);
            let claim = |()| drop(instance.session("claimer", Class::Normal).unwrap());
            let died = fail::die_at(n, || (), claim).is_none();
            assert_eq!(counted(&instance), before, "at {n}");
            if m > 0 {
                fail::die_at(m, || (), claim);
                assert_eq!(counted(&instance), before, "at {n}, the next one at {m}");
            }
            drop(instance.session("next", Class::Normal).unwrap());
            assert_eq!(counted(&instance), before, "at {n}, the next one at {m}");
            assert_eq!(instance.tables().sessions().len(), 1, "a slot leaked");
            crashes += u64::from(died);
            died
        });
    }
    println!("{crashes} crashes of claimers");
    assert!(crashes > 100);
}
