//! How each cost is measured.

use super::{Cost, Costs};
use crate::sys;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Rounds of a measurement, of which the median counts.
const ROUNDS: usize = 101;

impl Costs {
    /// Measures everything, in about 0.6 s; medians. Where the calling process may use one processor
    /// only, what needs two is not measured. `next` is called before each step.
    ///
    /// Starts threads of its own and binds them to the first two processors that the calling thread may use.
    pub fn measure(mut next: impl FnMut(Cost)) -> Self {
        let cpus = processors();
        let near = cpus.first().map(|cpu| (*cpu, *cpu));
        let far = cpus.first().zip(cpus.get(1)).map(|(a, b)| (*a, *b));
        let mut costs = Self::default();
        let (mut interrupted, mut together) = (None, None);
        for cost in Cost::ALL {
            next(*cost);
            let switch_ns = costs.0[Cost::YieldSwitch as usize];
            let mut interruptions = || *interrupted.get_or_insert_with(|| interruptions(far, switch_ns));
            let mut sleeps = || *together.get_or_insert_with(|| near.map_or((0, 0), |pair| sleeps(pair, switch_ns)));
            let on_two = |measure: fn((usize, usize)) -> u64, pair| Option::map_or(pair, 0, measure);
            costs.0[*cost as usize] = match cost {
                Cost::Poll => crate::waiter::measure_poll_ns(),
                Cost::ClockRead => each(100, || {
                    black_box(sys::now_ns());
                }),
                Cost::Exchange => exchange(),
                Cost::Line => on_two(line, far),
                Cost::YieldAlone => each(100, sys::yield_now),
                Cost::YieldSwitch => on_two(yield_switch, near),
                Cost::WakeCall => on_two(|pair| wakes(pair).0, far),
                Cost::WakeFar => on_two(|pair| wakes(pair).1, far),
                Cost::WakeNear => on_two(|pair| wakes(pair).1, near),
                Cost::Barrier => on_two(barrier, far),
                Cost::Interrupt => interruptions().0,
                Cost::InterruptInterval => interruptions().1,
                Cost::SleepCall => sleeps().0,
                Cost::Timer => sleeps().1,
                Cost::Sleep1us => slept(Duration::from_micros(1)),
                Cost::Sleep100us => slept(Duration::from_micros(100)),
                Cost::Sleep1ms => slept(Duration::from_millis(1)),
                Cost::Sleep10ms => slept(Duration::from_millis(10)),
            };
        }
        costs
    }
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0, |ns| (*ns).max(1))
}

/// Median over rounds of so many calls, per call.
fn each(calls: u64, call: impl Fn()) -> u64 {
    median((0..ROUNDS).map(|_| round(calls, &call)).collect())
}

/// A round of so many calls, per call.
fn round(calls: u64, call: impl Fn()) -> u64 {
    let start = sys::now_ns();
    (0..calls).for_each(|_| call());
    (sys::now_ns() - start) / calls
}

fn slept(asked: Duration) -> u64 {
    let round = |_| {
        let start = sys::now_ns();
        sys::sleep(asked);
        sys::now_ns() - start
    };
    median((0..9).map(round).collect())
}

fn exchange() -> u64 {
    let word = AtomicU64::new(0);
    each(1000, || {
        let _ = black_box(&word).compare_exchange(0, 0, Ordering::AcqRel, Ordering::Relaxed);
    })
}

/// Runs the first on one processor and the second on another one, or on the same. Gives what the first gives;
/// the second is told when that has come.
fn beside<T: Send>(
    (here, there): (usize, usize),
    first: impl FnOnce() -> T + Send,
    second: impl Fn(&AtomicBool) + Send,
) -> T {
    let (over, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (over, ready) = (&over, &ready);
        scope.spawn(move || {
            run_on(there);
            ready.store(true, Ordering::Release);
            second(over);
        });
        let first = scope.spawn(move || {
            run_on(here);
            while !ready.load(Ordering::Acquire) {
                sys::yield_now();
            }
            let value = first();
            over.store(true, Ordering::Release);
            value
        });
        first.join().expect("a measurement does not panic")
    })
}

fn line(pair: (usize, usize)) -> u64 {
    const TURNS: u64 = 200;
    let ball = AtomicU64::new(0);
    let play = || {
        let round = |_| {
            let start = sys::now_ns();
            for _ in 0..TURNS {
                let sent = ball.load(Ordering::Relaxed) + 1;
                ball.store(sent, Ordering::Release);
                while ball.load(Ordering::Acquire) == sent {
                    std::hint::spin_loop();
                }
            }
            (sys::now_ns() - start) / TURNS
        };
        median((0..ROUNDS).map(round).collect())
    };
    beside(pair, play, |over| {
        while !over.load(Ordering::Acquire) {
            let seen = ball.load(Ordering::Acquire);
            if seen % 2 == 1 {
                ball.store(seen + 1, Ordering::Release);
            } else {
                std::hint::spin_loop();
            }
        }
    })
}

fn yield_switch(pair: (usize, usize)) -> u64 {
    let (calls, others) = (1000, AtomicU64::new(0));
    let play = || {
        let round = |_| {
            let (start, before) = (sys::now_ns(), others.load(Ordering::Relaxed));
            (0..calls).for_each(|_| sys::yield_now());
            // A yield while the other thread is not ready switches nowhere: the time is for the turns that
            // both had.
            (sys::now_ns() - start) / (calls + others.load(Ordering::Relaxed) - before)
        };
        median((0..9).map(round).collect())
    };
    beside(pair, play, |over| {
        while !over.load(Ordering::Acquire) {
            sys::yield_now();
            others.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// The waker's call, and the time until the woken thread runs.
fn wakes(pair: (usize, usize)) -> (u64, u64) {
    let (call, reply) = (AtomicU32::new(0), AtomicU32::new(0));
    let ran_ns = AtomicU64::new(0);
    let wait = |word: &AtomicU32, seen: u32| {
        while word.load(Ordering::Acquire) == seen {
            sys::futex_wait(word, seen, None, true);
        }
    };
    let play = || {
        let round = |_| {
            // Time for the other thread to fall asleep, and its processor with it.
            sys::sleep(Duration::from_micros(300));
            let seen = reply.load(Ordering::Relaxed);
            let start = sys::now_ns();
            call.fetch_add(1, Ordering::Release);
            sys::futex_wake(&raw const call, 1, true);
            let called = sys::now_ns() - start;
            wait(&reply, seen);
            (called, ran_ns.load(Ordering::Relaxed).saturating_sub(start))
        };
        let (calls, ways): (Vec<u64>, Vec<u64>) = (0..ROUNDS).map(round).unzip();
        (median(calls), median(ways))
    };
    let answer = |_: &AtomicBool| {
        for round in 0..ROUNDS as u32 {
            wait(&call, round);
            ran_ns.store(sys::now_ns(), Ordering::Relaxed);
            reply.fetch_add(1, Ordering::Release);
            sys::futex_wake(&raw const reply, 1, true);
        }
    };
    beside(pair, play, answer)
}

fn barrier(pair: (usize, usize)) -> u64 {
    if !sys::register_for_own_barriers() {
        return 0;
    }
    let turns = AtomicU64::new(0);
    let spin = |over: &AtomicBool| {
        while !over.load(Ordering::Acquire) {
            turns.fetch_add(1, Ordering::Relaxed);
        }
    };
    // A processor that runs something else is not interrupted.
    let beside_it = |_| {
        let before = turns.load(Ordering::Relaxed);
        while turns.load(Ordering::Relaxed) == before {
            sys::yield_now();
        }
        round(10, || {
            black_box(sys::barrier_in_process());
        })
    };
    beside(pair, || median((0..ROUNDS).map(beside_it).collect()), spin)
}

/// How long a busy processor is away at a time from a thread that reads the clock all the time, and how long it is
/// from one such time to the next: what takes longer than a switch of threads, in the quieter rounds, so that the
/// turns of a busy program do not count, and the rare long interruptions do. 1 ns in all of the time where there was
/// none. The other processor is busy too: else other programs run there.
fn interruptions(pair: Option<(usize, usize)>, switch_ns: u64) -> (u64, u64) {
    const ROUND_NS: u64 = 20_000_000;
    let measure = || {
        let mut rounds: Vec<(u64, u64)> = (0..9).map(|_| away(ROUND_NS, switch_ns)).collect();
        rounds.sort_unstable();
        rounds.truncate(7);
        let away: u64 = rounds.iter().map(|round| round.0).sum();
        let times = rounds.iter().map(|round| round.1).sum::<u64>().max(1);
        ((away / times).max(1), rounds.len() as u64 * ROUND_NS / times)
    };
    let spin = |over: &AtomicBool| while !over.load(Ordering::Acquire) {};
    pair.map_or_else(measure, |pair| beside(pair, measure, spin))
}

/// For how long, of so long, and how often the calling thread was away from its processor for longer than a switch of
/// threads.
fn away(round_ns: u64, switch_ns: u64) -> (u64, u64) {
    let start = sys::now_ns();
    let (mut last, mut times, mut away) = (start, 0, 0);
    while last - start < round_ns {
        let now = sys::now_ns();
        if now - last > switch_ns {
            times += 1;
            away += now - last;
        }
        last = now;
    }
    (away, times)
}

/// What sleeps take from a thread that reads the clock all the time on the same processor: each of them, without the
/// switch to its thread, and the interrupt that ends those whose timers are due within the kernel's slack of 50 us.
/// Threads that sleep together once do so again, so that one interrupt ends the sleeps of all where they are few.
fn sleeps(pair: (usize, usize), switch_ns: u64) -> (u64, u64) {
    const ROUND_NS: u64 = 5_000_000;
    const MANY: u64 = 8;
    let refused = AtomicBool::new(false);
    let alone = |_| away(ROUND_NS, switch_ns).0;
    let alone_ns = beside(pair, || median((0..9).map(alone).collect()), |_| {});
    // Lost for each time that all of them have slept.
    let lost = |sleepers: u64| {
        let slept = AtomicU64::new(0);
        let play = || {
            let round = |_| {
                let before = slept.load(Ordering::Relaxed);
                let (away_ns, _) = away(ROUND_NS, switch_ns);
                away_ns.saturating_sub(alone_ns) * sleepers / (slept.load(Ordering::Relaxed) - before).max(1)
            };
            median((0..9).map(round).collect())
        };
        let sleep = |over: &AtomicBool| {
            while !over.load(Ordering::Acquire) {
                sys::sleep(Duration::from_micros(200));
                slept.fetch_add(1, Ordering::Relaxed);
            }
        };
        beside(pair, play, |over| {
            std::thread::scope(|scope| {
                let begin = |_| std::thread::Builder::new().spawn_scoped(scope, || sleep(over)).is_ok();
                if !(0..sleepers).all(begin) {
                    refused.store(true, Ordering::Relaxed);
                }
            });
        })
    };
    let (one, many) = (lost(1), lost(MANY));
    let each = many.saturating_sub(one) / (MANY - 1);
    // One sleeps, and the thread that reads the clock comes back: two switches. Less is that of another processor, or
    // drowns in what else runs here.
    if one <= 2 * switch_ns || refused.load(Ordering::Relaxed) {
        return (0, 0);
    }
    (each.saturating_sub(switch_ns).max(1), one.saturating_sub(each + switch_ns).max(1))
}

/// The processors that the calling thread may use, the first 1,024 of them.
fn processors() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: `set` is writable in this length.
    let rc = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) };
    // SAFETY: all 0 is an empty set.
    let set = unsafe { set.assume_init() };
    // SAFETY: in the range of the set.
    let has = |cpu: &usize| rc == 0 && unsafe { libc::CPU_ISSET(*cpu, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(has).collect()
}

/// Binds the calling thread to a processor. A refusal leaves it free: the costs are then those of wherever it
/// runs.
fn run_on(cpu: usize) {
    let set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: all 0 is an empty set.
    let mut set = unsafe { set.assume_init() };
    // SAFETY: in the range of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is readable in this length.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_measured_where_there_are_two_processors() {
        let costs = Costs::measure(|_| {});
        let is_alone = processors().len() < 2;
        for cost in Cost::ALL {
            let needs_two = matches!(cost, Cost::Line | Cost::WakeCall | Cost::WakeFar | Cost::Barrier);
            // Not where there is no membarrier, or other programs take the processor.
            let may_fail = matches!(cost, Cost::Barrier | Cost::SleepCall | Cost::Timer);
            assert!(costs.get(*cost).is_some() || needs_two && is_alone || may_fail, "{}", cost.name());
        }
        // A sleep is never shorter than was asked for.
        assert!(costs.get(Cost::Sleep10ms) >= Some(10_000_000));
    }

    /// How often a processor was interrupted to call a function, which is how the kernel does barriers.
    fn interrupts(cpu: usize) -> Option<u64> {
        let all = std::fs::read_to_string("/proc/interrupts").ok()?;
        let column = all.lines().next()?.split_whitespace().position(|name| name == format!("CPU{cpu}"))?;
        let line = all.lines().find(|line| line.trim_start().starts_with("CAL:"))?;
        line.split_whitespace().nth(column + 1)?.parse().ok()
    }

    /// Linux's `GLOBAL_EXPEDITED` barrier does not, in most cases.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_barrier_reaches_a_processor_where_a_thread_of_the_process_has_ended() {
        let &[here, there, ..] = &processors()[..] else { return println!("not tested: one processor") };
        if !sys::register_for_own_barriers() || interrupts(there).is_none() {
            return println!("not tested: no membarrier, or no counts of interrupts");
        }
        // Another process may have the processor for a while.
        let reached = || {
            std::thread::scope(|scope| drop(scope.spawn(|| run_on(there)).join()));
            let before = interrupts(there).unwrap();
            for _ in 0..100 {
                assert!(sys::barrier_in_process());
            }
            interrupts(there).unwrap() - before >= 100
        };
        let spin = |over: &AtomicBool| while !over.load(Ordering::Acquire) {};
        assert!(beside((here, there), || (0..50).any(|_| reached()), spin));
    }
}
