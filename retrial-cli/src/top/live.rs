//! Looks at an instance again and again, in a thread of its own.

use super::seen::Seen;
use crate::instances::{Which, is_there};
use crate::naming::Names;
use crate::recording::{Pauses, Sampler, Snapshot, Span, Taker};
use crate::who::thread::Thread;
use crate::who::unwind::Files;
use retrial::Observer;
use retrial::views::Sid;
use retrial_bench::process::own_cpu;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Longest time to the second look, from which on figures are of an interval.
const SECOND: Duration = Duration::from_millis(200);
/// The time between two looks is at least this many times what one takes.
const LOOK_TIMES: u32 = 10;
/// Time between two looks for an instance that has gone.
const GONE: Duration = Duration::from_millis(200);

/// What the thread that looks tells.
pub enum Told {
    Seen(Arc<Seen>),
    Gone,
}

/// What is said to the thread that looks.
#[derive(Default)]
pub struct Wish {
    pub stop: AtomicBool,
    /// Number of the session that the kernel is to be asked about; 0: of none.
    pub session: AtomicU32,
}

/// Looks until it is stopped; when the instance has gone, until it is there again.
pub fn watch(which: &Which, first: Observer, every: Duration, wish: &Wish, told: &Sender<Told>) {
    let mut observer = Some(first);
    while !wish.stop.load(Ordering::Relaxed) {
        match observer.take() {
            Some(observer) => {
                Looker::new(&observer).go_on(every, wish, told);
                // Who is to be told may have gone.
                let _ = told.send(Told::Gone);
            }
            None => std::thread::park_timeout(GONE),
        }
        observer = which.observe().ok();
    }
}

/// One look at what an instance does for a time; less when a signal comes.
pub fn once(observer: &Observer, time: Duration) -> Seen {
    let mut looker = Looker::new(observer);
    looker.look();
    looker.pass(time, || crate::signals::received().is_some());
    looker.look()
}

struct Looker<'o> {
    observer: &'o Observer,
    taker: Taker<'o>,
    sampler: Sampler<'o>,
    pauses: Pauses,
    names: Names<'o>,
    files: Files,
    last: Option<Snapshot>,
    /// Processor time that this program has taken, and when that was noted.
    cost: (Duration, Instant),
}

impl<'o> Looker<'o> {
    fn new(observer: &'o Observer) -> Self {
        let tables = observer.tables();
        Self {
            observer,
            taker: Taker::new(tables),
            sampler: Sampler::new(tables),
            pauses: Pauses::default(),
            names: Names::new(tables),
            files: Files::default(),
            last: None,
            cost: (own_cpu(), Instant::now()),
        }
    }

    /// Until it is stopped, or the instance has gone.
    fn go_on(&mut self, every: Duration, wish: &Wish, told: &Sender<Told>) {
        let mut pause = every.min(SECOND);
        while !wish.stop.load(Ordering::Relaxed) && is_there(self.observer.tables()) {
            let began = Instant::now();
            let mut seen = self.look();
            seen.thread = self.thread(&seen, Sid::new(wish.session.load(Ordering::Relaxed)));
            if told.send(Told::Seen(Arc::new(seen))).is_err() {
                return;
            }
            let asked = wish.session.load(Ordering::Relaxed);
            let is_over = || wish.stop.load(Ordering::Relaxed) || wish.session.load(Ordering::Relaxed) != asked;
            self.pass(pause.max(began.elapsed() * LOOK_TIMES), is_over);
            pause = every;
        }
    }

    fn look(&mut self) -> Seen {
        let mut snapshot = self.taker.snapshot();
        self.sampler.complete(&mut snapshot);
        let now = (own_cpu(), Instant::now());
        let before = std::mem::replace(&mut self.cost, now);
        let (spent, length) = (now.0.saturating_sub(before.0), now.1.duration_since(before.1));
        let cost = self.last.is_some().then(|| spent.as_secs_f64() / length.as_secs_f64());
        let from = self.last.replace(snapshot.clone());
        Seen::new(Span { from, to: snapshot }, cost)
    }

    /// Samples who holds and who waits, for a time.
    fn pass(&mut self, time: Duration, is_over: impl Fn() -> bool) {
        let began = Instant::now();
        while let left = time.saturating_sub(began.elapsed())
            && !left.is_zero()
            && !is_over()
        {
            let pause = self.pauses.after_live(|| self.sampler.round());
            std::thread::park_timeout(pause.min(left));
        }
    }

    /// What the kernel says of a session's thread.
    fn thread(&mut self, seen: &Seen, sid: Sid) -> Option<(Sid, Thread)> {
        let info = &seen.session(sid)?.session.info;
        let is_seen = !info.dead;
        is_seen.then(|| (sid, Thread::of(info.pid, info.tid, &mut self.files, self.names.symbols())))
    }
}
