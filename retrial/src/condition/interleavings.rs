//! Waits and signals under every interleaving of two waiters and a signaller (loom), and under random ones of
//! more (shuttle). A signal that is lost, or stolen by a later waiter, is a deadlock. How to run them:
//! `src/interleavings.rs`.

use super::{Look, Waiters, Wake};
use crate::sys::{LATEST_FIRST, Ordering, futex_wait_private};

#[cfg(loom)]
use loom::{sync, thread};
#[cfg(shuttle)]
use shuttle::{sync, thread};

const PROCESS: u32 = 1;

/// A condition, its mutex, and what the mutex protects.
struct Stage<T> {
    waiters: Waiters,
    data: sync::Mutex<T>,
}

impl<T: 'static> Stage<T> {
    fn new(data: T) -> &'static Self {
        Box::leak(Box::new(Self { waiters: Waiters::default(), data: sync::Mutex::new(data) }))
    }

    fn lock(&self) -> sync::MutexGuard<'_, T> {
        self.data.lock().unwrap()
    }

    /// Waits until it is signalled: it gives the mutex back and gets it again.
    fn wait<'a>(&'a self, data: sync::MutexGuard<'a, T>) -> sync::MutexGuard<'a, T> {
        let mut place = self.waiters.enter(PROCESS);
        drop(data);
        loop {
            futex_wait_private(&self.waiters.sequence, place.expected, place.bits());
            if self.waiters.look(PROCESS, &mut place, false) == Look::Released {
                return self.lock();
            }
        }
    }

    /// A wait whose deadline passes at once: whether it was signalled.
    fn wait_no_time(&self, data: sync::MutexGuard<'_, T>) -> bool {
        let mut place = self.waiters.enter(PROCESS);
        drop(data);
        self.waiters.look(PROCESS, &mut place, true) == Look::Released
    }

    /// A wait that is cancelled at once.
    fn wait_cancelled(&self, data: sync::MutexGuard<'_, T>) {
        let place = self.waiters.enter(PROCESS);
        drop(data);
        now(self.waiters.withdraw(PROCESS, place));
    }

    /// Changes the data and signals; the wake-up comes with the mutex held, or afterwards.
    fn signal(&self, change: impl FnOnce(&mut T), wakes_late: bool) {
        let mut data = self.lock();
        change(&mut data);
        let wake = self.waiters.signal(PROCESS);
        if wakes_late {
            drop(data);
            now(wake);
        } else {
            now(wake);
        }
    }

    /// Takes the stage down, once nobody is on it.
    fn end(&'static self) {
        assert_eq!(self.waiters.inside.load(Ordering::Relaxed), 0);
        // SAFETY: leaked by `new`, and the run is over.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(self).cast_mut()) });
    }
}

fn now(wake: Option<Wake>) {
    if let Some(wake) = wake {
        wake.now();
    }
}

#[cfg(loom)]
mod every {
    use super::*;
    use std::sync::atomic::AtomicU64 as Count;

    /// Runs all interleavings with at most so many preemptions, the kernel waking in order and against it.
    fn explore(name: &str, preemptions: usize, run: impl Fn() + Send + Sync + Copy + 'static) {
        for latest_first in [false, true] {
            LATEST_FIRST.set(latest_first);
            let runs: &'static Count = Box::leak(Box::default());
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(preemptions);
            builder.max_branches = 100_000;
            builder.check(move || {
                runs.fetch_add(1, Ordering::Relaxed);
                run();
            });
            println!("{name}, the latest first: {latest_first}: {} interleavings", runs.load(Ordering::Relaxed));
        }
    }

    const LATE: [bool; 2] = [false, true];

    fn takes(stage: &'static Stage<u32>) {
        let mut tokens = stage.lock();
        while *tokens == 0 {
            tokens = stage.wait(tokens);
        }
        *tokens -= 1;
    }

    #[test]
    fn each_of_two_signals_releases_a_waiter() {
        for late in LATE {
            explore(&format!("two waiters, late: {late}"), 2, move || {
                let stage = Stage::new(0);
                let waiters = [(); 2].map(|()| thread::spawn(move || takes(stage)));
                stage.signal(|tokens| *tokens += 1, late);
                stage.signal(|tokens| *tokens += 1, late);
                for waiter in waiters {
                    waiter.join().unwrap();
                }
                stage.end();
            });
        }
    }

    #[test]
    fn a_signal_is_not_for_a_waiter_that_comes_later() {
        for late in LATE {
            explore(&format!("a later waiter, late: {late}"), 2, move || {
                let stage = Stage::new([false; 2]);
                let waits_for = move |which: usize| {
                    let mut may_go = stage.lock();
                    while !may_go[which] {
                        may_go = stage.wait(may_go);
                    }
                };
                let first = thread::spawn(move || waits_for(0));
                let mut may_go = stage.lock();
                may_go[0] = true;
                let wake = stage.waiters.signal(PROCESS);
                if !late {
                    now(wake);
                }
                let second = thread::spawn(move || waits_for(1));
                drop(may_go);
                if late {
                    now(wake);
                }
                first.join().unwrap();
                stage.signal(|may_go| may_go[1] = true, late);
                second.join().unwrap();
                stage.end();
            });
        }
    }

    #[test]
    fn a_signal_is_no_time_out_and_is_not_lost_by_one() {
        for late in LATE {
            explore(&format!("a deadline, late: {late}"), 2, move || {
                let stage = Stage::new(0);
                let waiter = thread::spawn(move || takes(stage));
                let timed = thread::spawn(move || {
                    let tokens = stage.lock();
                    // Where it was signalled it takes what the signal was for, unless the other one has been
                    // there before.
                    if *tokens == 0 && stage.wait_no_time(tokens) {
                        let mut tokens = stage.lock();
                        let takes = u32::from(*tokens != 0);
                        *tokens -= takes;
                        return takes;
                    }
                    0
                });
                stage.signal(|tokens| *tokens += 1, late);
                let taken = timed.join().unwrap();
                if taken != 0 {
                    stage.signal(|tokens| *tokens += taken, late);
                }
                waiter.join().unwrap();
                stage.end();
            });
        }
    }

    #[test]
    fn a_signal_is_not_lost_by_a_cancelled_waiter() {
        for late in LATE {
            explore(&format!("a cancelled waiter, late: {late}"), 2, move || {
                let stage = Stage::new(0);
                let waiter = thread::spawn(move || takes(stage));
                let cancelled = thread::spawn(move || stage.wait_cancelled(stage.lock()));
                stage.signal(|tokens| *tokens += 1, late);
                waiter.join().unwrap();
                cancelled.join().unwrap();
                stage.end();
            });
        }
    }

    #[test]
    fn a_broadcast_releases_all_before_the_condition_ends() {
        for late in LATE {
            explore(&format!("a broadcast and the end, late: {late}"), 2, move || {
                let stage = Stage::new(false);
                let waiters = [(); 2].map(|()| {
                    thread::spawn(move || {
                        let mut may_go = stage.lock();
                        while !*may_go {
                            may_go = stage.wait(may_go);
                        }
                    })
                });
                let mut may_go = stage.lock();
                *may_go = true;
                let wake = stage.waiters.broadcast(PROCESS);
                if late {
                    drop(may_go);
                    now(wake);
                    stage.waiters.wait_until_left(PROCESS);
                } else {
                    now(wake);
                    stage.waiters.wait_until_left(PROCESS);
                    drop(may_go);
                }
                for waiter in waiters {
                    waiter.join().unwrap();
                }
                stage.end();
            });
        }
    }
}

#[cfg(shuttle)]
mod some {
    use super::*;
    use shuttle::rand::Rng;
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};

    const TAKERS: u32 = 4;
    const GIVERS: u32 = 2;
    /// Tokens that each taker takes.
    const TOKENS: u32 = 5;

    /// Takes its tokens; now and then its deadline passes, or it is cancelled and another thread comes in its
    /// place.
    fn takes(stage: &'static Stage<u32>) {
        for _ in 0..TOKENS {
            let mut tokens = stage.lock();
            while *tokens == 0 {
                tokens = match shuttle::rand::thread_rng().gen_range(0..8) {
                    0 => {
                        stage.wait_no_time(tokens);
                        stage.lock()
                    }
                    1 => {
                        stage.wait_cancelled(tokens);
                        stage.lock()
                    }
                    _ => stage.wait(tokens),
                };
            }
            *tokens -= 1;
        }
    }

    /// Waits for a moment, again and again, and takes no token: what it was signalled for is another
    /// thread's.
    fn passes_by(stage: &'static Stage<u32>) {
        for _ in 0..2 * TOKENS {
            let tokens = stage.lock();
            if shuttle::rand::thread_rng().gen_bool(0.5) {
                stage.wait_cancelled(tokens);
            } else if stage.wait_no_time(tokens) {
                stage.signal(|_| (), true);
            }
        }
    }

    fn gives(stage: &'static Stage<u32>) {
        for _ in 0..TAKERS * TOKENS / GIVERS {
            stage.signal(|tokens| *tokens += 1, shuttle::rand::thread_rng().gen_bool(0.7));
        }
    }

    fn run<S: Scheduler + 'static>(scheduler: S) {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 17;
        config.silence_warnings = true;
        shuttle::Runner::new(scheduler, config).run(|| {
            let stage = Stage::new(0);
            let takers = (0..TAKERS).map(|_| thread::spawn(move || takes(stage)));
            let givers = (0..GIVERS).map(|_| thread::spawn(move || gives(stage)));
            let passer = thread::spawn(move || passes_by(stage));
            for thread in takers.chain(givers).collect::<Vec<_>>() {
                thread.join().unwrap();
            }
            passer.join().unwrap();
            stage.end();
        });
    }

    #[test]
    fn every_signal_of_many_is_for_a_waiter() {
        let rounds = std::env::var("RETRIAL_SCHEDULES").map_or(3000, |text| text.parse().expect("a number"));
        for latest_first in [false, true] {
            LATEST_FIRST.set(latest_first);
            run(RandomScheduler::new(rounds));
            run(PctScheduler::new(3, rounds));
            println!("the latest first: {latest_first}: {} schedules", 2 * rounds);
        }
    }
}
