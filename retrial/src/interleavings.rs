//! The real protocols under every interleaving of two or three sessions (loom), and under random ones of more
//! (shuttle).
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p retrial --lib interleavings
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p retrial --lib interleavings
//! ```
//!
//! `RETRIAL_MORE_PREEMPTIONS=1` lets loom interrupt sessions once more often than here, which takes some
//! hundred times as long.

use crate::GetError;
use crate::entries::TypeId;
use crate::instance::Instance;
use crate::mode::Mode;
use crate::mutex::Patience;
use crate::params::P;
use crate::raw_mutex::RawMutex;
use crate::segment::Capacity;
use crate::session::{Class, Session};
use crate::sys::{HAS_BARRIER, NOW, Ordering};
use crate::word::Word;

/// An instance with one mutex, made anew for every run.
#[derive(Clone, Copy)]
struct Stage {
    instance: &'static Instance,
    mutex: &'static RawMutex,
}

/// What a thread of the model is given: sessions belong to threads by rule, and a model has but one.
struct Given<T>(T);

// SAFETY: the threads of a model run in turn on one thread of the system.
unsafe impl<T> Send for Given<T> {}

impl<T> Given<T> {
    fn take(self) -> T {
        self.0
    }
}

impl Stage {
    fn new(scheme: usize, has_barrier: bool) -> Self {
        HAS_BARRIER.set(has_barrier);
        NOW.set(0);
        let capacity = Capacity { sessions: 5, mutexes: 2, locations: 8, rows: 2, arena: 0 };
        let instance = Box::leak(Box::new(Instance::anonymous(capacity).unwrap()));
        let mutex = Box::leak(Box::new(RawMutex::new()));
        // SAFETY: sessions of this instance only.
        unsafe { mutex.register(instance, TypeId(0), "m").unwrap() };
        // As little as a wait can be: one look, then the queue.
        let params = [(P::Scheme, scheme as u64), (P::LatchSpinCount, 0), (P::HardSpinCount, 0), (P::SoftSpinCount, 0)];
        let orbit = [(P::OrbitSpinTime, 0), (P::OrbitYields, 0), (P::HandoverInterval, 1)];
        for (p, value) in params.into_iter().chain(orbit) {
            instance.set(p, None, value);
        }
        Self { instance, mutex }
    }

    fn session(self) -> Given<Session<'static>> {
        Given(self.instance.session("", Class::Normal).unwrap())
    }

    /// Takes the stage down, once nobody is on it.
    fn end(self) {
        // SAFETY: leaked by `new`, and the run is over.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(self.mutex).cast_mut()) });
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(self.instance).cast_mut()) });
    }
}

#[cfg(loom)]
mod every {
    use super::*;
    use crate::mutex::Hold;
    use crate::operation_log::{LocationId, Phase, Record};
    use crate::recovery::Recovery;
    use crate::recovery::tests::{PROTOCOLS, State};
    use crate::word::Sid;
    use loom::cell::UnsafeCell;
    use loom::thread;
    use std::sync::atomic::AtomicU64 as Count;

    const LATCH: usize = 5;

    impl Stage {
        fn get<'a>(self, session: &'a Session<'static>, mode: Mode) -> Hold<'a>
        where
            'static: 'a,
        {
            // SAFETY: of the stage's instance.
            got(unsafe { self.mutex.get(session, mode, crate::location!("model"), Patience::Endless) })
        }

        /// Leaves what a session leaves that dies in this state.
        fn die(self, (phase, mode, kind, references, flags): State) -> Sid {
            let session = self.session().take();
            let record = Record { phase, mode, location: LocationId(0), mutex: self.mutex.id() };
            session.log(record).unwrap();
            let field = kind.map_or(0, |kind| kind | session.sid().bits());
            let drainer = if phase == Phase::Draining { session.sid() } else { Sid::NONE };
            self.mutex.fake(Word(field | flags | u64::from(references)), drainer);
            session.slot.alive.owner_dies();
            let sid = session.sid();
            std::mem::forget(session);
            // No list of the kernel's runs through the memory of a model: it may go with the instance.
            self.instance.sessions.fetch_sub(1, Ordering::Relaxed);
            sid
        }
    }

    fn got<G>(result: Result<G, GetError<G>>) -> G {
        match result {
            Ok(hold) => hold,
            Err(GetError::OwnerDied(died)) => died.guard,
            Err(error) => panic!("an endless get of an unheld mutex: {error}"),
        }
    }

    /// Runs all interleavings with at most so many preemptions, and says how many there were. Where a session
    /// has to wait, another one goes on whatever the number.
    fn explore(name: &str, preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
        let runs: &'static Count = Box::leak(Box::default());
        let mut builder = loom::model::Builder::new();
        let more = std::env::var("RETRIAL_MORE_PREEMPTIONS").map_or(0, |more| more.parse().expect("a number"));
        builder.preemption_bound = Some(preemptions + more);
        builder.max_branches = 100_000;
        builder.check(move || {
            runs.fetch_add(1, Ordering::Relaxed);
            run();
        });
        println!("{name}: {} interleavings", runs.load(Ordering::Relaxed));
    }

    /// What a mutex protects. Loom objects when two threads are in it of which one writes.
    struct Data(UnsafeCell<u64>);

    // SAFETY: what this is there to find out.
    unsafe impl Sync for Data {}

    impl Data {
        fn new() -> &'static Self {
            Box::leak(Box::new(Self(UnsafeCell::new(0))))
        }

        fn end(&'static self) {
            // SAFETY: leaked by `new`, and the run is over.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(self).cast_mut()) });
        }

        fn touch(&self, mode: Mode) {
            match mode {
                // SAFETY: held exclusively.
                Mode::Exclusive | Mode::LongExclusive => self.0.with_mut(|value| unsafe { *value += 1 }),
                // SAFETY: held shared.
                Mode::Shared | Mode::Examine => self.0.with(|value| assert!(unsafe { *value } < 10)),
            }
        }
    }

    /// Each session gets the mutex in its mode, touches the data and releases.
    fn together(scheme: usize, has_barrier: bool, modes: &[Mode]) {
        let stage = Stage::new(scheme, has_barrier);
        let data = Data::new();
        let act = move |session: Session<'static>, mode| {
            let hold = stage.get(&session, mode);
            data.touch(mode);
            drop(hold);
        };
        let mut sessions: Vec<_> = modes.iter().map(|mode| (stage.session(), *mode)).collect();
        let (mine, my_mode) = sessions.pop().unwrap();
        let others: Vec<_> =
            sessions.into_iter().map(|(session, mode)| thread::spawn(move || act(session.take(), mode))).collect();
        act(mine.take(), my_mode);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(stage.mutex.load(), Word::FREE);
        assert_eq!(stage.mutex.parked(), 0);
        data.end();
        stage.end();
    }

    const BOTH: [(bool, &str); 2] = [(true, "membarrier"), (false, "fences")];

    /// Two sessions in every pair of modes.
    fn pairs((has_barrier, how): (bool, &str)) {
        for (i, a) in Mode::ALL.into_iter().enumerate() {
            for b in Mode::ALL.into_iter().skip(i) {
                let run = move || together(LATCH, has_barrier, &[a, b]);
                let preemptions = if a == b && a == Mode::Shared { 1 } else { 2 };
                explore(&format!("{a} beside {b}, {how}"), preemptions, run);
            }
        }
    }

    #[test]
    fn every_pair_of_modes_excludes_each_other_and_nobody_sleeps_for_ever() {
        pairs(BOTH[0]);
    }

    #[test]
    fn without_barriers_every_pair_of_modes_excludes_each_other_and_nobody_sleeps_for_ever() {
        pairs(BOTH[1]);
    }

    /// A holder releases while two others come to wait.
    fn two_wait(scheme: usize, fairness: u64, has_barrier: bool, modes: [Mode; 3]) {
        let stage = Stage::new(scheme, has_barrier);
        stage.instance.set(P::Fairness, None, fairness);
        let data = Data::new();
        let (first, others) = (stage.session().take(), [1, 2].map(|i| (stage.session(), modes[i])));
        let hold = stage.get(&first, modes[0]);
        let others = others.map(|(session, mode)| {
            thread::spawn(move || {
                let session = session.take();
                let hold = stage.get(&session, mode);
                data.touch(mode);
                drop(hold);
            })
        });
        data.touch(modes[0]);
        drop(hold);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!((stage.mutex.load(), stage.mutex.parked()), (Word::FREE, 0));
        drop(first);
        data.end();
        stage.end();
    }

    /// A reader leaves while its drainer and another session come to wait.
    fn drainer_and_another(has_barrier: bool, mode: Mode) {
        let stage = Stage::new(LATCH, has_barrier);
        let (reader, drainer, other) = (stage.session().take(), stage.session().take(), stage.session());
        let reads = stage.get(&reader, Mode::Shared);
        let examines: Given<(Session<'static>,)> = Given((drainer,));
        let drains = thread::spawn(move || {
            let (session,) = examines.take();
            let mut hold = stage.get(&session, Mode::Examine);
            hold.upgrade(Patience::Endless).unwrap();
            drop(hold);
        });
        let other = thread::spawn(move || {
            let session = other.take();
            drop(stage.get(&session, mode));
        });
        drop(reads);
        drains.join().unwrap();
        other.join().unwrap();
        drop(reader);
        stage.end();
    }

    /// E is released over a reference that stays, while X and E come to wait.
    fn over_a_reference(has_barrier: bool, second: Mode) {
        let stage = Stage::new(LATCH, has_barrier);
        let (reader, holder) = (stage.session().take(), stage.session().take());
        let (first, second_session) = (stage.session(), stage.session());
        let reads = stage.get(&reader, Mode::Shared);
        let holds = stage.get(&holder, Mode::Examine);
        let first = thread::spawn(move || {
            let session = first.take();
            drop(stage.get(&session, Mode::Exclusive));
        });
        let second = thread::spawn(move || {
            let session = second_session.take();
            drop(stage.get(&session, second));
        });
        drop(holds);
        // The second can have it beside the reference.
        second.join().unwrap();
        drop(reads);
        first.join().unwrap();
        drop(reader);
        drop(holder);
        stage.end();
    }

    #[test]
    fn who_parks_beside_another_kind_is_not_left_asleep() {
        for (has_barrier, how) in BOTH {
            explore(&format!("drainer beside X, {how}"), 0, move || drainer_and_another(has_barrier, Mode::Exclusive));
            for mode in [Mode::Examine, Mode::Shared] {
                explore(&format!("X and {mode} over a reference, {how}"), 0, move || {
                    over_a_reference(has_barrier, mode)
                });
            }
        }
    }

    /// References and E come and go beside each other while a session comes to wait for X.
    fn beside_a_writer(has_barrier: bool) {
        let stage = Stage::new(crate::wait::DEFAULT, has_barrier);
        stage.instance.set(P::Fairness, None, 2);
        let (one, other, writer) = (stage.session().take(), stage.session().take(), stage.session());
        let mut first = stage.get(&one, Mode::Shared);
        let mut second = stage.get(&other, Mode::Examine);
        let writes = thread::spawn(move || {
            let session = writer.take();
            drop(stage.get(&session, Mode::Exclusive));
        });
        while !stage.mutex.parking().starving().1 {
            thread::yield_now();
        }
        second.share();
        first.examine(Patience::Endless).unwrap();
        drop(first);
        second.examine(Patience::Endless).unwrap();
        drop(second);
        writes.join().unwrap();
        assert_eq!((stage.mutex.load(), stage.mutex.parked()), (Word::FREE, 0));
        drop((one, other));
        stage.end();
    }

    #[test]
    fn a_writer_beside_sessions_that_examine_is_not_left_asleep() {
        for (has_barrier, how) in BOTH {
            explore(&format!("X beside S and E, {how}"), 1, move || beside_a_writer(has_barrier));
        }
    }

    #[test]
    fn of_two_that_wait_nobody_sleeps_for_ever() {
        use Mode::{Examine as E, Exclusive as X, Shared as S};
        for (has_barrier, how) in BOTH {
            for modes in [[X, X, X], [X, S, X], [E, S, X]] {
                for (scheme, fairness, name) in [
                    (LATCH, 0, "latch"),
                    (crate::wait::DEFAULT, 0, "orbit"),
                    (crate::wait::DEFAULT, 2, "orbit in order"),
                ] {
                    let run = move || two_wait(scheme, fairness, has_barrier, modes);
                    explore(&format!("{} before {} and {}, {name}, {how}", modes[0], modes[1], modes[2]), 0, run);
                }
            }
        }
    }

    /// A session of a process that no barrier reaches holds the mutex while another one, of a process that
    /// can do barriers, comes to wait.
    fn beside_one_out_of_reach(mode: Mode) {
        let stage = Stage::new(LATCH, true);
        let (outside, inside) = (stage.session(), stage.session());
        let waits = thread::spawn(move || {
            let session = inside.take();
            drop(stage.get(&session, Mode::Exclusive));
        });
        crate::sys::leave_reach();
        let outside = outside.take().out_of_reach();
        drop(stage.get(&outside, mode));
        waits.join().unwrap();
        assert_eq!((stage.mutex.load(), stage.mutex.parked()), (Word::FREE, 0));
        drop(outside);
        stage.end();
    }

    #[test]
    fn a_release_that_no_barrier_reaches_strands_nobody() {
        for mode in Mode::ALL {
            explore(&format!("{mode} out of reach"), 1, move || beside_one_out_of_reach(mode));
        }
    }

    #[test]
    fn a_look_for_a_thread_that_is_gone_mixes_no_sessions() {
        explore("a look for a thread", 3, crate::slot::looks::a_successor_is_not_taken_for_the_gone);
    }

    #[test]
    fn conversions_let_nobody_in_and_strand_nobody() {
        type Deed = fn(Stage, &Session<'static>, &Data);
        let ladder: [(&str, Deed); 4] = [
            ("S to E", |stage, session, data| {
                let mut hold = stage.get(session, Mode::Shared);
                hold.examine(Patience::Endless).unwrap();
                data.touch(Mode::Examine);
            }),
            ("E to X", |stage, session, data| {
                let mut hold = stage.get(session, Mode::Examine);
                hold.upgrade(Patience::Endless).unwrap();
                data.touch(Mode::Exclusive);
            }),
            ("X to S", |stage, session, data| {
                let mut hold = stage.get(session, Mode::Exclusive);
                data.touch(Mode::Exclusive);
                hold.share();
                data.touch(Mode::Shared);
            }),
            ("E to S", |stage, session, data| {
                let mut hold = stage.get(session, Mode::Examine);
                hold.share();
                data.touch(Mode::Shared);
            }),
        ];
        for (name, deed) in ladder {
            for mode in [Mode::Shared, Mode::Exclusive] {
                let run = move || {
                    let stage = Stage::new(LATCH, true);
                    let data = Data::new();
                    let (mine, other) = (stage.session().take(), stage.session());
                    let other = thread::spawn(move || {
                        let session = other.take();
                        let hold = stage.get(&session, mode);
                        data.touch(mode);
                        drop(hold);
                    });
                    deed(stage, &mine, data);
                    other.join().unwrap();
                    assert_eq!((stage.mutex.load(), stage.mutex.parked()), (Word::FREE, 0));
                    drop(mine);
                    data.end();
                    stage.end();
                };
                explore(&format!("{name} beside {mode}"), 1, run);
            }
        }
    }

    #[test]
    fn who_shares_lets_readers_in_while_it_reads() {
        for (mode, preemptions) in [(Mode::Exclusive, 2), (Mode::Examine, 2)] {
            explore(&format!("a reader beside {mode} that becomes S"), preemptions, move || {
                let stage = Stage::new(LATCH, true);
                let (mine, other) = (stage.session().take(), stage.session());
                let mut hold = stage.get(&mine, mode);
                let reader = thread::spawn(move || {
                    let session = other.take();
                    drop(stage.get(&session, Mode::Shared));
                });
                hold.share();
                // The reader comes to its end while this one still has its reference.
                reader.join().unwrap();
                drop(hold);
                drop(mine);
                stage.end();
            });
        }
    }

    #[test]
    fn whoever_sees_a_holder_in_the_word_sees_its_log() {
        for mode in Mode::ALL {
            explore(&format!("the log of {mode}"), 3, move || {
                let stage = Stage::new(LATCH, true);
                let session = stage.session();
                let slot = stage.instance.tables.slot(Sid::new(1)).unwrap();
                let other = thread::spawn(move || {
                    let session = session.take();
                    drop(stage.get(&session, mode));
                });
                let before = stage.mutex.load();
                let record = slot.log[0].load(Ordering::Acquire);
                let after = stage.mutex.load();
                if before.sid() == Sid::new(1) && after == before {
                    let record = Record::unpack(record).expect("logged before the exchange");
                    assert_eq!((record.mutex, record.mode), (stage.mutex.id(), mode));
                }
                other.join().unwrap();
                stage.end();
            });
        }
    }

    #[test]
    fn a_get_and_a_recovery_at_once_find_every_state_of_every_protocol() {
        for protocol in PROTOCOLS {
            let (states, poisons) = (protocol.states, protocol.poisons);
            // Beside references of others only E can be got.
            let mode = if protocol.others == 0 { Mode::Exclusive } else { Mode::Examine };
            for step in 0..states.len() {
                explore(&format!("{} at step {step}", protocol.name), 2, move || {
                    let stage = Stage::new(LATCH, true);
                    let (mine, sid) = (stage.session().take(), stage.die(states[step]));
                    let recoverer = thread::spawn(move || {
                        stage.instance.recover_with(sid, Some(stage.mutex));
                    });
                    // SAFETY: of the stage's instance.
                    let told =
                        match unsafe { stage.mutex.get(&mine, mode, crate::location!("model"), Patience::Endless) } {
                            Ok(hold) => {
                                drop(hold);
                                false
                            }
                            Err(GetError::OwnerDied(mut died)) => {
                                died.guard.consistent();
                                true
                            }
                            Err(error) => panic!("{error}"),
                        };
                    recoverer.join().unwrap();
                    // The get may have been there before the death was found, where nothing kept it out.
                    stage.instance.recover_with(sid, Some(stage.mutex));
                    assert_eq!(told, poisons[step]);
                    assert_eq!(stage.mutex.load(), Word(u64::from(protocol.others)));
                    assert_eq!(stage.instance.tables.recoveries(), u64::from(told), "noted once");
                    assert!(!stage.instance.tables.slot(sid).unwrap().is_live(), "the slot is free");
                    drop(mine);
                    stage.end();
                });
            }
        }
    }

    #[test]
    fn a_session_that_ends_is_never_taken_for_dead() {
        explore("a session ends, another is claimed, somebody looks", 2, || {
            let stage = Stage::new(LATCH, true);
            let session = stage.session();
            let sid = Sid::new(1);
            let other = thread::spawn(move || {
                drop(session.take());
                drop(stage.session().take());
            });
            assert_eq!(stage.instance.recover(sid), Recovery::NotDead);
            other.join().unwrap();
            assert!(stage.instance.tables.sessions().is_empty());
            stage.end();
        });
    }
}

#[cfg(shuttle)]
mod some {
    use super::*;
    use crate::sys::Deadline;
    use shuttle::rand::Rng;
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::thread;
    use std::sync::atomic::AtomicU64 as Plain;
    use std::time::Duration;

    const SESSIONS: usize = 4;
    const GETS: usize = 4;

    /// What the mutex protects: who writes, and how many read.
    #[derive(Default)]
    struct Data {
        writers: Plain,
        readers: Plain,
        writes: Plain,
    }

    impl Data {
        /// Others may run while this one is in.
        fn touch(&self, mode: Mode) {
            let writes = self.writes.load(Ordering::Relaxed);
            match mode {
                Mode::Exclusive | Mode::LongExclusive => {
                    assert_eq!(self.writers.fetch_add(1, Ordering::Relaxed), 0, "one writes");
                    thread::yield_now();
                    assert_eq!(self.readers.load(Ordering::Relaxed), 0, "nobody reads");
                    assert_eq!(self.writes.load(Ordering::Relaxed), writes);
                    self.writes.store(writes + 1, Ordering::Relaxed);
                    self.writers.fetch_sub(1, Ordering::Relaxed);
                }
                Mode::Shared | Mode::Examine => {
                    self.readers.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                    assert_eq!(self.writers.load(Ordering::Relaxed), 0, "nobody writes");
                    assert_eq!(self.writes.load(Ordering::Relaxed), writes);
                    self.readers.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// What each session is at, for a run that fails.
    static AT: std::sync::Mutex<[String; SESSIONS + 1]> =
        std::sync::Mutex::new([const { String::new() }; SESSIONS + 1]);

    fn at(stage: Stage, session: &Session<'static>, what: std::fmt::Arguments<'_>) {
        let word = stage.mutex.load();
        AT.lock().unwrap()[session.sid().number() as usize] =
            format!("{what}; {word:?}, {} parked", stage.mutex.parked());
    }

    /// Gets the mutex in some mode with some patience, converts it now and then. Gives the number of writes.
    fn act(stage: Stage, session: &Session<'static>, data: &Data) -> u64 {
        let mut random = shuttle::rand::thread_rng();
        let mode = Mode::ALL[random.gen_range(0..4)];
        let patience = match random.gen_range(0..6) {
            0 => Patience::None,
            1 => Patience::Until(Deadline::after(Duration::from_micros(random.gen_range(0..3000)))),
            _ => Patience::Endless,
        };
        at(stage, session, format_args!("gets {mode}, {patience:?}"));
        // SAFETY: of the stage's instance.
        let mut hold = match unsafe { stage.mutex.get(session, mode, crate::location!("model"), patience) } {
            Ok(hold) => hold,
            Err(GetError::Busy | GetError::TimedOut) if patience != Patience::Endless => return 0,
            Err(error) => panic!("{mode}: {error}"),
        };
        // No time runs out by itself here: a drain with a deadline would last for ever, and sessions with a
        // reference would not be told so.
        let patience_to_drain = if let Patience::Until(_) = patience { Patience::Endless } else { patience };
        let mut writes = 0;
        let mut touch = |mode| {
            data.touch(mode);
            writes += u64::from(matches!(mode, Mode::Exclusive | Mode::LongExclusive));
        };
        at(stage, session, format_args!("has got {mode}"));
        touch(mode);
        // So long that a session looks at the clock at every release.
        crate::sys::pass(60_000);
        for _ in 0..random.gen_range(0..3) {
            at(stage, session, format_args!("converts {}, {patience:?}", hold.mode()));
            match hold.mode() {
                Mode::Shared => drop(hold.examine(patience)),
                Mode::Examine if random.gen_bool(0.7) => drop(hold.upgrade(patience_to_drain)),
                _ => hold.share(),
            }
            touch(hold.mode());
        }
        at(stage, session, format_args!("releases {}", hold.mode()));
        drop(hold);
        at(stage, session, format_args!("has nothing"));
        writes
    }

    /// What a run is of.
    #[derive(Clone, Copy, Debug)]
    struct Case {
        scheme: usize,
        fairness: u64,
        has_barrier: bool,
    }

    impl Case {
        fn stage(self) -> Stage {
            let stage = Stage::new(self.scheme, self.has_barrier);
            for (p, value) in [(P::Fairness, self.fairness), (P::CheckEvery, 1), (P::Streak, 1)] {
                stage.instance.set(p, None, value);
            }
            stage
        }
    }

    fn run<S: Scheduler + 'static>(scheduler: S, case: Case) {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 18;
        config.silence_warnings = true;
        let runner = shuttle::Runner::new(scheduler, config);
        let all = move || {
            let stage = case.stage();
            let data: &'static Data = Box::leak(Box::default());
            let threads: Vec<_> = (0..SESSIONS)
                .map(|_| {
                    let session = stage.session();
                    thread::spawn(move || {
                        let session = session.take();
                        (0..GETS).map(|_| act(stage, &session, data)).sum::<u64>()
                    })
                })
                .collect();
            let writes: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert_eq!(data.writes.load(Ordering::Relaxed), writes, "no write is lost");
            let word = stage.mutex.load().without(Word::ATTENTION);
            assert_eq!((word, stage.mutex.parked()), (Word::FREE, 0));
            assert!(stage.instance.tables.sessions().is_empty());
            // SAFETY: leaked above, and the run is over.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(data).cast_mut()) });
            stage.end();
        };
        if let Err(failure) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runner.run(all))) {
            println!("{case:?}: {:#?}", AT.lock().unwrap());
            std::panic::resume_unwind(failure);
        }
    }

    #[test]
    fn sessions_of_every_scheme_exclude_each_other_and_all_come_to_an_end() {
        let rounds = std::env::var("RETRIAL_SCHEDULES").map_or(300, |text| text.parse().expect("a number"));
        let orbit = crate::wait::DEFAULT;
        let schemes = (0..crate::wait::NAMES.len()).map(|scheme| (scheme, 1));
        for (scheme, fairness) in schemes.chain([(orbit, 0), (orbit, 2)]) {
            for has_barrier in [true, false] {
                let case = Case { scheme, fairness, has_barrier };
                run(RandomScheduler::new(rounds), case);
                run(PctScheduler::new(3, rounds), case);
                println!("{}, {case:?}: {} schedules", crate::wait::NAMES[scheme], 2 * rounds);
            }
        }
    }
}
