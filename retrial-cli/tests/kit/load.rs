//! Sessions of this process that get a mutex of an instance again and again, until they are stopped.

use super::{Scratch, until};
use retrial::sys::Deadline;
use retrial::{Class, Instance, Mutex, location};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a session does for a time.
#[derive(Clone, Copy)]
pub enum Pass {
    Busy(Duration),
    Asleep(Duration),
}

impl Pass {
    fn times(self, factor: f64) -> Self {
        match self {
            Self::Busy(time) => Self::Busy(time.mul_f64(factor)),
            Self::Asleep(time) => Self::Asleep(time.mul_f64(factor)),
        }
    }

    fn pass(self) {
        match self {
            Self::Asleep(time) => std::thread::sleep(time),
            Self::Busy(time) => {
                let start = Instant::now();
                while start.elapsed() < time {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

/// So many sessions, which hold the mutex `m` and think.
#[derive(Clone, Copy)]
pub struct Load {
    pub sessions: usize,
    pub hold: Pass,
    pub think: Pass,
}

impl Load {
    /// Does something while the load is on.
    pub fn during<T>(self, scratch: &Scratch, act: impl FnOnce() -> T) -> T {
        // One load at a time: tests run beside each other.
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let instance: Instance = scratch.instance();
        let mutex: Mutex<u64> = instance.mutex("m", "load", || 0).unwrap();
        let (stop, gets) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            // Also when what is done fails: the threads end, and the test does.
            let end = End(&stop);
            let (instance, mutex, stop, gets) = (&instance, &mutex, &stop, &gets);
            for i in 0..self.sessions {
                scope.spawn(move || {
                    let session = instance.session("load", Class::Normal).unwrap();
                    // Sessions that began together would come back together for ever, and wait.
                    self.think.times(i as f64 / self.sessions as f64).pass();
                    while !stop.load(Ordering::Relaxed) {
                        let mut held = mutex.exclusive(&session, location!("load")).unwrap();
                        *held += 1;
                        self.hold.pass();
                        drop(held);
                        gets.fetch_add(1, Ordering::Relaxed);
                        self.think.pass();
                    }
                });
            }
            until("gets", || gets.load(Ordering::Relaxed) > 20);
            let result = act();
            drop(end);
            result
        })
    }
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has two sessions wait for each other while something is done: each has the mutex of `a` and `b` that it
/// got at `first`, and wants the other one at `second`.
pub fn deadlocked<T>(scratch: &Scratch, act: impl FnOnce() -> T) -> T {
    let instance = scratch.instance();
    let [a, b]: [Mutex<u64>; 2] = ["a", "b"].map(|name| instance.mutex(name, "test", || 0).unwrap());
    let met = Barrier::new(2);
    std::thread::scope(|scope| {
        for (first, second) in [(&a, &b), (&b, &a)] {
            let (instance, met) = (&instance, &met);
            scope.spawn(move || {
                let session = instance.session("one of two", Class::Normal).unwrap();
                let held = first.exclusive(&session, location!("first")).unwrap();
                met.wait();
                let deadline = Deadline::after(Duration::from_secs(8));
                let _ = second.exclusive_until(&session, location!("second"), deadline);
                drop(held);
            });
        }
        until("the waits", || scratch.observer().tables().waits().count() == 2);
        act()
    })
}
