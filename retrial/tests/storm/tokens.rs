//! Tokens that pass from givers to takers through a place for one, in processes that are killed at any
//! moment: a worker that finds the place empty or full waits for a condition. When a wake-up is lost, nothing
//! moves any more.
//!
//! The same load on glibc's `pthread_cond_t`, shared and with a robust mutex, counts what it loses. There a
//! loss has no end: all are killed, and mutex and conditions made anew.

use crate::random::Random;
use crate::{seed, setting};
use retrial::{Capacity, Class, Condition, GetError, Guard, GuardResult, Instance, Patience, location};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Workers; each second one takes.
const WORKERS: usize = 8;
/// Signals after a kill before the killed one is replaced: its successor would find what nobody was woken
/// for.
const GO_ON: u64 = 30;
/// A pause that is longer was ended by a look, not by a wake-up.
const LATE: Duration = Duration::from_millis(300);
/// A wake-up that has not come by then is lost.
const LOST: Duration = Duration::from_secs(5);

/// What the workers of glibc share, and how far all have come.
#[repr(C)]
struct Board {
    signals: AtomicU64,
    /// Deaths that were told.
    told: AtomicU64,
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    changed: [UnsafeCell<libc::pthread_cond_t>; 2],
    moved: [UnsafeCell<u64>; 2],
}

/// Whose conditions.
#[derive(Clone, Copy)]
enum Whose<'i> {
    Ours(&'i Instance),
    Glibc,
}

/// Whether a worker that gives (0) or takes (1) can go on.
fn may(moved: &[u64; 2], which: usize) -> bool {
    (moved[0] == moved[1]) == (which == 0)
}

/// A worker of ours.
fn ours(instance: &Instance, board: &Board, which: usize) -> ! {
    let session = instance.session(["gives", "takes"][which], Class::Normal).expect("a session");
    let moved = instance.mutex("moved", "storm", || [0u64; 2]).expect("a mutex");
    let changed = ["taken", "given"].map(|name| instance.condition(name).expect("a condition"));
    loop {
        let mut held = told(moved.exclusive(&session, location!("move")), &changed, board);
        while !may(&held, which) {
            let waited = held.wait(&changed[which], Patience::Endless).map(|(held, _)| held);
            held = told(waited, &changed, board);
        }
        held[which] += 1;
        changed[1 - which].signal();
        board.signals.fetch_add(1, Ordering::Relaxed);
    }
}

/// The guard. After a death all look: each count is one store, so that there is nothing to repair.
fn told<'a>(got: GuardResult<'a, [u64; 2]>, changed: &[Condition<'_>; 2], board: &Board) -> Guard<'a, [u64; 2]> {
    match got {
        Ok(held) => held,
        Err(GetError::OwnerDied(mut died)) => {
            died.guard.consistent();
            changed.iter().for_each(Condition::broadcast);
            board.told.fetch_add(1, Ordering::Relaxed);
            died.guard
        }
        Err(error) => panic!("{error}"),
    }
}

/// A worker of glibc's.
fn glibc(board: &Board, which: usize) -> ! {
    let (mutex, changed) = (board.mutex.get(), board.changed.each_ref().map(UnsafeCell::get));
    let told = |rc: libc::c_int| {
        if rc == libc::EOWNERDEAD {
            // SAFETY: held.
            unsafe { libc::pthread_mutex_consistent(mutex) };
            for changed in changed {
                // SAFETY: made before the workers.
                unsafe { libc::pthread_cond_broadcast(changed) };
            }
            board.told.fetch_add(1, Ordering::Relaxed);
        } else {
            assert_eq!(rc, 0);
        }
    };
    loop {
        // SAFETY: made before the workers.
        told(unsafe { libc::pthread_mutex_lock(mutex) });
        loop {
            let moved = board.moved.each_ref().map(|count| {
                // SAFETY: read and written under the mutex.
                unsafe { *count.get() }
            });
            if may(&moved, which) {
                // SAFETY: as above.
                unsafe { *board.moved[which].get() += 1 };
                break;
            }
            // SAFETY: made before the workers, and the mutex is held.
            told(unsafe { libc::pthread_cond_wait(changed[which], mutex) });
        }
        // SAFETY: made before the workers.
        unsafe { libc::pthread_cond_signal(changed[1 - which]) };
        board.signals.fetch_add(1, Ordering::Relaxed);
        // SAFETY: held.
        unsafe { libc::pthread_mutex_unlock(mutex) };
    }
}

impl Board {
    /// Memory for the board, which what this process forks shares.
    fn new() -> &'static Self {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Self>(), protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "memory for the board");
        // SAFETY: just mapped for good, long enough and aligned to a page; zeros are a board.
        unsafe { &*at.cast::<Self>() }
    }

    /// Makes glibc's mutex and conditions anew. There is no worker.
    fn renew(&self) {
        let mut of_mutex = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let of_mutex = of_mutex.as_mut_ptr();
        let mut of_condition = MaybeUninit::<libc::pthread_condattr_t>::uninit();
        let of_condition = of_condition.as_mut_ptr();
        // SAFETY: writable.
        unsafe { libc::pthread_mutexattr_init(of_mutex) };
        // SAFETY: made above.
        unsafe { libc::pthread_mutexattr_setrobust(of_mutex, libc::PTHREAD_MUTEX_ROBUST) };
        // SAFETY: made above.
        unsafe { libc::pthread_mutexattr_setpshared(of_mutex, libc::PTHREAD_PROCESS_SHARED) };
        // SAFETY: nobody uses it, and the attribute was made above.
        unsafe { libc::pthread_mutex_init(self.mutex.get(), of_mutex) };
        // SAFETY: writable.
        unsafe { libc::pthread_condattr_init(of_condition) };
        // SAFETY: made above.
        unsafe { libc::pthread_condattr_setpshared(of_condition, libc::PTHREAD_PROCESS_SHARED) };
        for changed in &self.changed {
            // SAFETY: as the mutex.
            unsafe { libc::pthread_cond_init(changed.get(), of_condition) };
        }
    }

    fn signals(&self) -> u64 {
        self.signals.load(Ordering::Relaxed)
    }

    /// Lets the workers go on until they have given so many signals: the longest time in which they gave
    /// none, or `None` once that is over [`LOST`].
    fn until(&self, signals: u64) -> Option<Duration> {
        let (mut longest, mut last, mut since) = (Duration::ZERO, self.signals(), Instant::now());
        while last < signals {
            std::thread::sleep(Duration::from_micros(50));
            let now = self.signals();
            longest = longest.max(since.elapsed());
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > LOST {
                return None;
            }
        }
        Some(longest)
    }
}

#[derive(Default)]
struct Outcome {
    signals: u64,
    /// Of givers and of takers.
    kills: [u64; 2],
    told: u64,
    late: u64,
    lost: u64,
}

/// The workers of a run.
struct Crew<'i> {
    whose: Whose<'i>,
    board: &'static Board,
    pids: [libc::pid_t; WORKERS],
}

impl Crew<'_> {
    fn fork(&mut self, place: usize) {
        // SAFETY: this process has one thread.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "no more processes");
        if pid == 0 {
            // SAFETY: has no preconditions; a parent that ends takes its workers with it.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            match self.whose {
                Whose::Ours(instance) => ours(instance, self.board, place % 2),
                Whose::Glibc => glibc(self.board, place % 2),
            }
        }
        self.pids[place] = pid;
    }

    fn kill(&self, place: usize) {
        let mut status = 0;
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(self.pids[place], libc::SIGKILL) };
        // SAFETY: as above; `status` is writable.
        let pid = unsafe { libc::waitpid(self.pids[place], &raw mut status, 0) };
        assert!(pid == self.pids[place] && libc::WIFSIGNALED(status), "a worker ended with {status:#x}, see above");
    }
}

/// Passes tokens until there were so many signals.
fn pass(whose: Whose<'_>, signals: u64, random: &Random) -> Outcome {
    let kill_every = setting::<u64>("RETRIAL_STORM_KILL_EVERY", 150).max(1);
    let board = Board::new();
    board.renew();
    let mut crew = Crew { whose, board, pids: [0; WORKERS] };
    (0..WORKERS).for_each(|place| crew.fork(place));
    let mut outcome = Outcome::default();
    while board.signals() < signals {
        let mut longest = board.until(board.signals() + random.below(2 * kill_every));
        if longest.is_some() {
            let place = random.below(WORKERS as u64) as usize;
            crew.kill(place);
            outcome.kills[place % 2] += 1;
            longest = board.until(board.signals() + GO_ON);
            crew.fork(place);
        }
        if let Some(longest) = longest {
            outcome.late += u64::from(longest > LATE);
        } else {
            outcome.lost += 1;
            (0..WORKERS).for_each(|place| crew.kill(place));
            board.renew();
            (0..WORKERS).for_each(|place| crew.fork(place));
        }
    }
    (0..WORKERS).for_each(|place| crew.kill(place));
    (outcome.signals, outcome.told) = (board.signals(), board.told.load(Ordering::Relaxed));
    outcome
}

/// Passes tokens and prints what has come of it.
fn pass_and_print(name: &str, whose: Whose<'_>, signals: u64, seed: u64) -> Outcome {
    let start = Instant::now();
    let outcome = pass(whose, signals, &Random::of(seed, "tokens", 0));
    let Outcome { signals, kills: [givers, takers], told, late, lost } = &outcome;
    let seconds = start.elapsed().as_secs_f64();
    println!("{name:<8} {signals:>9} {givers:>14} {takers:>14} {told:>6} {late:>6} {lost:>6} {seconds:>7.1}");
    outcome
}

pub(crate) fn tokens() {
    let (signals, seed) = (setting::<u64>("RETRIAL_STORM_SIGNALS", 10_000), seed());
    println!("seed {seed:#x}");
    let heads = ["whose", "signals", "killed givers", "killed takers", "told", "late", "lost", "s"];
    let [whose, count, givers, takers, told, late, lost, seconds] = heads;
    println!("{whose:<8} {count:>9} {givers:>14} {takers:>14} {told:>6} {late:>6} {lost:>6} {seconds:>7}");
    if setting::<u64>("RETRIAL_STORM_GLIBC", 0) != 0 {
        pass_and_print("glibc", Whose::Glibc, signals, seed);
    }
    let instance = Instance::anonymous(Capacity::default()).expect("an instance");
    let outcome = pass_and_print("retrial", Whose::Ours(&instance), signals, seed);
    if outcome.lost != 0 {
        println!(
            "a wake-up was lost; again: RETRIAL_STORM_SEED={seed:#x} RETRIAL_STORM_SIGNALS={signals} cargo test -p retrial \
             --test storm tokens"
        );
        exit(1);
    }
}
