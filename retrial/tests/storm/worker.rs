//! A worker: gets, converts and gives back at random, until it is killed or told to end, and says when exclusion broke.

use crate::board::{Board, Tally, add};
use crate::random::Random;
use retrial::sys::{self, Deadline};
use retrial::views::Word;
use retrial::{Address, Class, GetError, GetFailure, Guard, Instance, Mode, Mutex, ObjectError, Patience, Session};
use retrial::{SessionError, location};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a mutex protects: who is in it, and two counters that are the same while nobody is.
pub(crate) type Data = [u64; 3];

pub(crate) const OWNER: usize = 0;
pub(crate) const A: usize = 1;
pub(crate) const B: usize = 2;

/// Gets that a worker must still be given when it is told to end.
const LAST_GETS: u64 = 3;

/// The mutex of this number; who has stopped the table of names for a second is waited for.
pub(crate) fn mutex(instance: &Instance, number: usize) -> Mutex<'_, Data> {
    loop {
        match instance.mutex(&format!("storm-{number}"), "storm", || [0; 3]) {
            Ok(mutex) => return mutex,
            Err(ObjectError::Session(SessionError::Stuck)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A guard, and whether a death was told with it.
type Got<'a> = (Guard<'a, Data>, bool);

/// A worker of a crew.
pub(crate) struct Worker<'a> {
    board: &'a Board,
    tally: &'a Tally,
    /// Written to the data; no other worker's.
    name: u64,
    random: Random,
    instance: &'a Instance,
    mutexes: Vec<Mutex<'a, Data>>,
    /// Number of gets after which it ends, once it knows.
    last: Cell<u64>,
}

/// Lives as a worker until told to end. Does not return: what the parent has on its stack is not ours.
pub(crate) fn live(place: usize, name: u64, random: Random, address: &Address, parents: &Instance, count: usize) -> ! {
    let board = Board::get();
    std::panic::set_hook(Box::new(move |panic| {
        board.fail(format_args!("worker {name} in place {place}: {panic}"));
        // What it holds stays as it is, to be looked at.
        loop {
            sys::sleep(Duration::from_secs(1));
        }
    }));
    let attached;
    // Most attach as a program would; some use what they were forked with.
    let instance = if random.one_in(4) {
        parents
    } else {
        attached = Instance::attach(address).unwrap();
        &attached
    };
    let mutexes = (0..count).map(|number| mutex(instance, number)).collect();
    Worker { board, tally: &board.tallies[place], name, random, instance, mutexes, last: Cell::new(0) }.work();
    // SAFETY: ends this process without what the parent would do at its end.
    unsafe { libc::_exit(0) }
}

impl Worker<'_> {
    /// Whether it is to end, which it does after as many gets more.
    fn is_over(&self) -> bool {
        if !self.board.is_over() {
            return false;
        }
        if self.last.get() == 0 {
            self.last.set(self.tally.gets() + LAST_GETS);
        }
        self.tally.gets() >= self.last.get()
    }

    /// Sessions that begin and end, and what is done in them.
    fn work(&self) {
        while !self.is_over() {
            let session = match self.instance.session("worker", Class::Normal) {
                Ok(session) => session,
                // Somebody was stopped, or did not run for a second.
                Err(SessionError::Stuck) => continue,
                Err(error) => panic!("{error}"),
            };
            self.tally.sid.store(session.sid().number(), Ordering::Release);
            for _ in 0..self.random.below(300) {
                if self.is_over() {
                    break;
                }
                match self.random.below(64) {
                    0 => self.recover(),
                    1..5 => self.read_twice(&session),
                    _ => self.stay(&session, 0),
                }
            }
            self.tally.sid.store(0, Ordering::Release);
        }
    }

    fn recover(&self) {
        self.tally.recovering.store(1, Ordering::Relaxed);
        // Again and again: somebody may die meanwhile.
        for _ in 0..=self.random.below(50) {
            add(&self.tally.recovered, self.instance.recover_all().0.into());
        }
        self.tally.recovering.store(0, Ordering::Relaxed);
    }

    fn patience(&self) -> Patience {
        match self.random.below(8) {
            0 => Patience::None,
            1 | 2 => Patience::Until(Deadline::after(Duration::from_micros(self.random.below(2000)))),
            _ => Patience::Endless,
        }
    }

    /// Lets others in between two steps, if they can come in.
    fn pause(&self) {
        match self.random.below(64) {
            0 => sys::sleep(Duration::from_micros(self.random.below(100))),
            1..8 => sys::yield_now(),
            8..24 => (0..self.random.below(200)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }

    /// One request, `again` by a session that has a reference.
    fn get<'a>(&'a self, session: &'a Session<'a>, number: usize, mode: Mode, again: bool) -> Option<Got<'a>> {
        let (mutex, patience) = (&self.mutexes[number], self.patience());
        let got = if mode == Mode::Exclusive && patience == Patience::Endless {
            mutex.exclusive(session, location!("storm: exclusive"))
        } else {
            mutex.get(session, mode, location!("storm: get"), patience)
        };
        let got = match got {
            Ok(guard) => (guard, false),
            Err(GetError::OwnerDied(died)) => {
                let known = died.death.is_some_and(|death| death.mode != Mode::Shared);
                assert!(known, "told of {:?}, expected a death in X, LX or E", died.death);
                (died.guard, true)
            }
            Err(error) => {
                self.refused(error.into(), patience, again);
                return None;
            }
        };
        add(&self.tally.gets[number], 1);
        Some(got)
    }

    /// An error must be one that the patience allows; whoever has a reference may be told that somebody drains.
    fn refused(&self, error: GetFailure, patience: Patience, has_reference: bool) {
        let fits = match error {
            GetFailure::Busy => patience == Patience::None,
            GetFailure::TimedOut => matches!(patience, Patience::Until(_)),
            GetFailure::Deadlock { held } => has_reference && held == Mode::Shared && patience != Patience::None,
            _ => false,
        };
        assert!(fits, "{patience:?} ended with: {error}");
        add(&self.tally.refusals, 1);
    }

    /// Two references of one session, given back in either order.
    fn read_twice(&self, session: &Session<'_>) {
        let number = self.random.below(self.mutexes.len() as u64) as usize;
        let Some((first, _)) = self.get(session, number, Mode::Shared, false) else { return };
        let seen = **black_box(&first);
        if let Some((second, _)) = self.get(session, number, Mode::Shared, true) {
            self.pause();
            assert_eq!(**black_box(&second), seen, "changed under two references");
            if self.random.one_in(2) {
                drop(second);
                drop(first);
            } else {
                drop(first);
                drop(second);
            }
        }
    }

    /// Gets one of the mutexes from `first` on, does this and that, now and then with a later one beside it.
    fn stay(&self, session: &Session<'_>, first: usize) {
        let number = first + self.random.below((self.mutexes.len() - first) as u64) as usize;
        let mode = match self.random.below(20) {
            0..7 => Mode::Shared,
            7..13 => Mode::Exclusive,
            13..15 => Mode::LongExclusive,
            _ => Mode::Examine,
        };
        let Some((guard, told)) = self.get(session, number, mode, false) else { return };
        let mut stay = Stay { worker: self, number, guard, dirty: told, seen: [0; 3] };
        stay.begin(told);
        stay.work();
        while self.random.one_in(2) && stay.convert() {
            stay.work();
        }
        if self.random.one_in(32) {
            self.recover();
        }
        // In order only, or two would wait for each other.
        if number + 1 < self.mutexes.len() && self.random.one_in(4) {
            self.stay(session, number + 1);
            stay.is_unchanged();
        }
        stay.end();
    }
}

/// A mutex held.
struct Stay<'w, 'a> {
    worker: &'w Worker<'w>,
    number: usize,
    guard: Guard<'a, Data>,
    /// Whether a death has left the data as they may be.
    dirty: bool,
    /// The data, which nobody else may change now.
    seen: Data,
}

impl Stay<'_, '_> {
    fn is_poisoned(&self) -> bool {
        self.guard.hold().mutex().load().has(Word::POISONED)
    }

    fn excludes(&self) -> bool {
        self.guard.hold().mode() != Mode::Shared
    }

    fn is_exclusive(&self) -> bool {
        matches!(self.guard.hold().mode(), Mode::Exclusive | Mode::LongExclusive)
    }

    /// The data as they are in memory.
    fn read(&self) -> Data {
        **black_box(&self.guard)
    }

    fn write(&mut self, field: usize, value: u64) {
        black_box(&mut *self.guard)[field] = value;
        self.seen[field] = value;
    }

    fn is_unchanged(&self) {
        let (now, mode) = (self.read(), self.guard.hold().mode());
        assert_eq!(now, self.seen, "somebody else changed the data of mutex {} under {mode}", self.number);
    }

    /// From here on a death must be told.
    fn is_inside(&self, inside: bool) {
        self.worker.tally.inside[self.number].store(inside.into(), Ordering::SeqCst);
    }

    fn begin(&mut self, told: bool) {
        self.seen = self.read();
        if self.excludes() {
            assert_eq!(self.is_poisoned(), told, "a death is told exactly when the flag says so");
            self.took_field();
        }
        let [owner, a, b] = self.seen;
        if told {
            assert!(a - b <= 1, "more than one increment is unfinished: {a} and {b}");
        } else {
            assert_eq!((owner, a), (0, b), "somebody is in here, or died untold");
        }
    }

    fn took_field(&mut self) {
        self.dirty = self.is_poisoned();
        if self.dirty {
            add(&self.worker.tally.told[self.number], 1);
        }
        self.is_inside(true);
    }

    /// Whatever the mode allows.
    fn work(&mut self) {
        let tally = self.worker.tally;
        if self.excludes() {
            assert_eq!(self.is_poisoned(), self.dirty, "only the holder takes the flag back, and nobody sets it");
        }
        if !self.is_exclusive() {
            self.worker.pause();
            self.is_unchanged();
            // E may look at everything, and so may find that nothing was broken.
            let whole = self.seen[OWNER] == 0 && self.seen[A] == self.seen[B];
            if self.excludes() && self.dirty && whole && self.worker.random.one_in(2) {
                self.declare_consistent();
            }
            return;
        }
        self.write(OWNER, self.worker.name);
        if self.dirty {
            self.write(B, self.seen[A]);
            self.worker.pause();
            self.is_unchanged();
            self.declare_consistent();
        }
        self.write(A, self.seen[A] + 1);
        self.worker.pause();
        self.is_unchanged();
        self.write(B, self.seen[B] + 1);
        self.worker.pause();
        self.is_unchanged();
        add(&tally.increments[self.number], 1);
    }

    fn declare_consistent(&mut self) {
        self.guard.consistent();
        self.dirty = false;
        assert!(!self.is_poisoned(), "the flag is taken back");
        add(&self.worker.tally.repairs[self.number], 1);
    }

    /// To another mode. Whether that was done.
    fn convert(&mut self) -> bool {
        let patience = self.worker.patience();
        let from = self.guard.hold().mode();
        let result = match from {
            Mode::Shared => self.guard.examine(patience),
            Mode::Examine if self.worker.random.one_in(2) => self.guard.upgrade(patience),
            _ => {
                self.leave_field();
                self.guard.share();
                Ok(())
            }
        };
        if result.is_ok() && self.guard.hold().mode() != Mode::Shared {
            // More than it had.
            add(&self.worker.tally.gets[self.number], 1);
        }
        match &result {
            Ok(()) if from == Mode::Shared => self.took_field(),
            Ok(()) => {}
            Err(error) => {
                self.worker.refused((*error).into(), patience, from == Mode::Shared);
                assert_eq!(self.guard.hold().mode(), from, "a refusal changes nothing");
            }
        }
        self.is_unchanged();
        add(&self.worker.tally.conversions, result.is_ok().into());
        result.is_ok()
    }

    fn leave_field(&mut self) {
        if self.is_exclusive() {
            self.write(OWNER, 0);
        }
        self.is_inside(false);
    }

    fn end(mut self) {
        self.is_unchanged();
        if self.excludes() {
            self.leave_field();
        }
    }
}
