//! Waits and signals under every interleaving of two waiters and a signaller (loom), and under random ones of
//! more (shuttle). No wait ends by time here unless the test says so: a signal that is lost is a deadlock.
//! How to run them: `src/interleavings.rs`.

use super::{EngineCondition, LOOK_EVERY, Patience, WAITERS, Waited};
use crate::sys::{LATEST_FIRST, Ordering, futex_wait_as, time_out};

#[cfg(loom)]
use loom::{sync, thread};
#[cfg(shuttle)]
use shuttle::{sync, thread};

/// A condition, its mutex, and the tokens that the mutex protects.
struct Stage {
    condition: EngineCondition,
    tokens: sync::Mutex<u32>,
}

impl Stage {
    fn new() -> &'static Self {
        Box::leak(Box::new(Self { condition: EngineCondition::default(), tokens: sync::Mutex::new(0) }))
    }

    fn lock(&self) -> sync::MutexGuard<'_, u32> {
        self.tokens.lock().unwrap()
    }

    /// Waits for a signal as `Hold::wait` does.
    fn wait<'a>(
        &'a self,
        tokens: sync::MutexGuard<'a, u32>,
        patience: Patience,
    ) -> (sync::MutexGuard<'a, u32>, Waited) {
        let expected = self.condition.enter();
        drop(tokens);
        let waited = self.condition.sleep(expected, patience, || false);
        (self.lock(), waited)
    }

    fn takes(&self) {
        let mut tokens = self.lock();
        while *tokens == 0 {
            (tokens, _) = self.wait(tokens, Patience::Endless);
        }
        *tokens -= 1;
    }

    /// Gives tokens, and signals with the mutex held or afterwards.
    fn gives(&self, count: u32, late: bool, signal: impl FnOnce(&EngineCondition)) {
        let mut tokens = self.lock();
        *tokens += count;
        if late {
            drop(tokens);
            signal(&self.condition);
        } else {
            signal(&self.condition);
        }
    }

    /// Takes the stage down, once nobody is on it.
    fn end(&'static self) {
        // SAFETY: leaked by `new`, and the run is over.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(self).cast_mut()) });
    }
}

fn one(condition: &EngineCondition) {
    condition.signal(1);
}

fn all(condition: &EngineCondition) {
    condition.signal(u32::MAX);
}

/// A signaller that is killed between the change of the sequence and the wake-up.
fn dies(condition: &EngineCondition) {
    condition.begin();
}

#[cfg(loom)]
mod every {
    use super::*;
    use std::sync::atomic::AtomicU64 as Count;

    /// Runs all interleavings with at most three preemptions, the kernel waking in order and against it, the
    /// signals with the mutex held and after its release.
    fn explore(name: &str, run: impl Fn(bool) + Send + Sync + Copy + 'static) {
        for (latest_first, late) in [(false, false), (false, true), (true, false), (true, true)] {
            LATEST_FIRST.set(latest_first);
            let runs: &'static Count = Box::leak(Box::default());
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.max_branches = 100_000;
            builder.check(move || {
                runs.fetch_add(1, Ordering::Relaxed);
                run(late);
            });
            let runs = runs.load(Ordering::Relaxed);
            println!("{name}, the latest first: {latest_first}, late: {late}: {runs} interleavings");
        }
    }

    #[test]
    fn each_of_two_signals_releases_a_waiter() {
        explore("two waiters", |late| {
            let stage = Stage::new();
            let waiters = [(); 2].map(|()| thread::spawn(move || stage.takes()));
            stage.gives(1, late, one);
            stage.gives(1, late, one);
            for waiter in waiters {
                waiter.join().unwrap();
            }
            stage.end();
        });
    }

    #[test]
    fn a_waiter_that_comes_while_a_signal_ends_is_signalled() {
        explore("two signallers", |late| {
            let stage = Stage::new();
            let taker = thread::spawn(move || {
                stage.takes();
                stage.takes();
            });
            let giver = thread::spawn(move || stage.gives(1, late, one));
            stage.gives(1, late, one);
            giver.join().unwrap();
            taker.join().unwrap();
            stage.end();
        });
    }

    #[test]
    fn a_broadcast_releases_all() {
        explore("a broadcast", |late| {
            let stage = Stage::new();
            let waiters = [(); 2].map(|()| thread::spawn(move || stage.takes()));
            stage.gives(2, late, all);
            for waiter in waiters {
                waiter.join().unwrap();
            }
            stage.end();
        });
    }

    #[test]
    fn a_signal_is_no_time_out_and_is_not_lost_by_one() {
        explore("a deadline", |late| {
            let stage = Stage::new();
            let waiter = thread::spawn(move || stage.takes());
            let timed = thread::spawn(move || {
                let (mut tokens, mut waited) = (stage.lock(), Waited::Signalled);
                if *tokens == 0 {
                    (tokens, waited) = stage.wait(tokens, Patience::None);
                }
                let takes = waited == Waited::Signalled && *tokens != 0;
                *tokens -= u32::from(takes);
                takes
            });
            stage.gives(1, late, one);
            if timed.join().unwrap() {
                stage.gives(1, late, one);
            }
            waiter.join().unwrap();
            stage.end();
        });
    }

    #[test]
    fn a_killed_waiter_takes_no_signal_from_another() {
        explore("a killed waiter", |late| {
            let stage = Stage::new();
            // It waits, and when it is woken it is dead.
            let expected = stage.condition.enter();
            let killed = thread::spawn(move || futex_wait_as(&stage.condition.sequence, expected, LOOK_EVERY, WAITERS));
            let waiter = thread::spawn(move || stage.takes());
            stage.gives(1, late, one);
            time_out(&stage.condition.sequence);
            killed.join().unwrap();
            waiter.join().unwrap();
            stage.end();
        });
    }

    #[test]
    fn a_signal_that_was_begun_is_given_though_its_signaller_is_killed() {
        explore("a killed signaller", |late| {
            let stage = Stage::new();
            let waiters = [(); 2].map(|()| thread::spawn(move || stage.takes()));
            stage.gives(1, late, dies);
            stage.gives(1, late, one);
            time_out(&stage.condition.sequence);
            for waiter in waiters {
                waiter.join().unwrap();
            }
            stage.end();
        });
    }
}

#[cfg(shuttle)]
mod some {
    use super::*;
    use shuttle::rand::Rng;
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use sync::atomic::AtomicU32;

    const TAKERS: u32 = 3;
    const GIVERS: u32 = 2;
    /// Tokens that each taker takes.
    const TOKENS: u32 = 6;

    /// Half of the givers die before the wake-up, if `kills`.
    fn gives(stage: &'static Stage, kills: bool) {
        for _ in 0..TAKERS * TOKENS / GIVERS {
            let mut random = shuttle::rand::thread_rng();
            let (late, count) = (random.gen_bool(0.5), random.gen_range(0..3));
            stage.gives(
                1,
                late,
                if kills && count == 0 {
                    dies
                } else if count == 1 {
                    all
                } else {
                    one
                },
            );
        }
    }

    /// Waits that end at once, and that are killed when they are woken, if `kills`.
    fn passes_by(stage: &'static Stage, kills: bool) {
        for _ in 0..TOKENS {
            let tokens = stage.lock();
            if *tokens != 0 {
                continue;
            }
            if kills && shuttle::rand::thread_rng().gen_bool(0.5) {
                let expected = stage.condition.enter();
                drop(tokens);
                futex_wait_as(&stage.condition.sequence, expected, LOOK_EVERY, WAITERS);
            } else if let (tokens, Waited::Signalled) = stage.wait(tokens, Patience::None) {
                // Woken in place of a taker, which it lets know.
                drop(tokens);
                one(&stage.condition);
            }
        }
    }

    fn run<S: Scheduler + 'static>(kills: bool, scheduler: S) {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 17;
        config.silence_warnings = true;
        shuttle::Runner::new(scheduler, config).run(move || {
            let (stage, at_work) = (Stage::new(), &*Box::leak(Box::new(AtomicU32::new(TAKERS + 1))));
            let takers = (0..TAKERS).map(|_| {
                thread::spawn(move || {
                    (0..TOKENS).for_each(|_| stage.takes());
                    at_work.fetch_sub(1, Ordering::SeqCst);
                })
            });
            let givers = (0..GIVERS).map(|_| thread::spawn(move || gives(stage, kills)));
            let threads: Vec<_> = takers.chain(givers).collect();
            let passer = thread::spawn(move || {
                passes_by(stage, kills);
                at_work.fetch_sub(1, Ordering::SeqCst);
            });
            // Without kills no wait needs the clock.
            while kills && at_work.load(Ordering::SeqCst) != 0 {
                time_out(&stage.condition.sequence);
                thread::yield_now();
            }
            for thread in threads {
                thread.join().unwrap();
            }
            passer.join().unwrap();
            // SAFETY: leaked above, and the run is over.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(at_work).cast_mut()) });
            stage.end();
        });
    }

    #[test]
    fn every_waiter_comes_back_for_its_token() {
        let rounds = std::env::var("RETRIAL_SCHEDULES").map_or(3000, |text| text.parse().expect("a number"));
        for (latest_first, kills) in [(false, false), (true, false), (false, true), (true, true)] {
            LATEST_FIRST.set(latest_first);
            run(kills, RandomScheduler::new(rounds));
            if !kills {
                // A thread of the highest priority that only lets time pass would be all that runs.
                run(kills, PctScheduler::new(3, rounds));
            }
            println!("the latest first: {latest_first}, kills: {kills}: {rounds} schedules");
        }
    }
}
