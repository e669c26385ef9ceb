//! A session's turn: how long it may keep coming back to a mutex that others are parked on, and whom its releases wake meanwhile.
//!
//! Known to the session alone; the clock is the caller's, the real one or a simulator's. Under schemes that throttle wake-ups a release asks here first; now and then it
//! looks at the clock and has the scheme decide. What the next get is to know is put in its way: the value that the exchange of the
//! fast path expects is not 0 then, so that the exchange fails by itself and the slow path looks why.
//!
//! Sources: a small set of active sessions beside many passive ones, D. Dice, *Malthusian Locks* (`EuroSys` 2017); slices of a lock,
//! Y. Patel and others, *Avoiding Scheduler Subversion using Scheduler-Cooperative Locks* (`EuroSys` 2020).

use crate::params::{P, Params};
use crate::wait::{Release, Usage};
use std::cell::Cell;

/// A look at the clock about this often, in ns: it costs a hundredth of that.
const LOOK_NS: u64 = 50_000;

/// Releases from one look to the next, at most.
const LOOK_EVERY: u64 = 64;

/// What the next get of the mutex is to know, as a word that no mutex has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hurdle {
    /// Its turn is over: it queues.
    Over,
    /// It is to say when it began, so that the holding time can be known.
    Timed,
}

/// See the module. The mutex is known by its address alone, which is not followed.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    mutex: Cell<u64>,
    /// What the exchange of the next get expects: 0, or the complement of a [`Hurdle`]'s position.
    expected: Cell<u64>,
    /// Releases since the last look, and how many of them make the next one due.
    releases: Cell<u32>,
    due: Cell<u32>,
    /// At the last look: the time, and the gets of the mutex.
    looked_ns: Cell<u64>,
    gets: Cell<u64>,
    /// When the turn began.
    since_ns: Cell<u64>,
    /// When the hold under way began, where it is timed, and the gets of the mutex before it.
    got_ns: Cell<u64>,
    gets_before: Cell<u64>,
    /// Running means of the time from one get to the next and of the holding time, in 1/8 ns; 0 when not known.
    gap: Cell<u64>,
    hold: Cell<u64>,
    /// What the last look decided.
    stays: Cell<bool>,
}

/// Longest gap that enters its running mean, in ns: whoever is away for longer is away.
const AWAY_NS: u64 = 100_000;

/// Longest holding time that enters its running mean, in ns: one such among eight is not spun for any more, and forgotten soon.
const LONG_HOLD_NS: u64 = 1_000_000;

impl Turn {
    /// What the exchange of a get expects.
    #[inline]
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.expected.get()
    }

    /// What was put in the way of the get of this mutex; it is out of the way then.
    #[must_use]
    pub fn take(&self, mutex: u64) -> Option<Hurdle> {
        let hurdle = match !self.expected.replace(0) {
            0 => Hurdle::Over,
            1 => Hurdle::Timed,
            _ => return None,
        };
        (self.mutex.get() == mutex).then_some(hurdle)
    }

    fn put(&self, hurdle: Hurdle) {
        self.expected.set(!(hurdle as u64));
    }

    /// The hold that begins is timed; `gets` of the mutex came before it.
    pub fn time(&self, gets: u64, now_ns: u64) {
        self.got_ns.set(now_ns);
        self.gets_before.set(gets);
    }

    /// A session that was parked has got the mutex.
    pub fn begin(&self, mutex: u64, gets: u64, now_ns: u64) {
        if self.mutex.replace(mutex) != mutex {
            self.gap.set(0);
            self.hold.set(0);
            self.due.set(1);
            self.stays.set(false);
        }
        self.looked_ns.set(now_ns);
        self.gets.set(gets);
        self.releases.set(0);
        self.since_ns.set(now_ns);
        self.got_ns.set(0);
        self.expected.set(0);
    }

    /// Mean time that the session holds a mutex, in ns; 0 when that is not known.
    #[must_use]
    pub fn hold_ns(&self, mutex: u64) -> u64 {
        if self.mutex.get() == mutex { self.hold.get() / 8 } else { 0 }
    }

    /// What a release does about those who are parked. `gets` and `parked` are the mutex's; `clock` gives the time in ns and `params`
    /// the parameters and the number of processors, both asked now and then.
    #[inline]
    pub fn release(
        &self,
        mutex: u64,
        gets: u64,
        parked: u32,
        clock: impl Fn() -> u64,
        params: impl Fn() -> (Params, u32),
    ) -> Release {
        let got_ns = self.got_ns.replace(0);
        // A release that finds nobody parked does not come by: then it is another hold that ends here.
        if got_ns != 0 && gets == self.gets_before.get().wrapping_add(1) {
            mean(&self.hold, clock().saturating_sub(got_ns).min(LONG_HOLD_NS));
        }
        let releases = self.releases.get() + 1;
        self.releases.set(releases);
        if releases < self.due.get() && self.mutex.get() == mutex {
            return if self.stays.get() { Release::Stay } else { Release::Wake };
        }
        self.look(mutex, gets, parked, clock(), params)
    }

    #[cold]
    fn look(&self, mutex: u64, gets: u64, parked: u32, now: u64, params: impl Fn() -> (Params, u32)) -> Release {
        if self.mutex.get() != mutex {
            self.begin(mutex, gets, now);
            return Release::Wake;
        }
        let own = u64::from(self.releases.replace(0));
        let took = now.saturating_sub(self.looked_ns.replace(now));
        let all = gets.wrapping_sub(self.gets.replace(gets));
        if took > own * AWAY_NS {
            // It was away, or its processor was: what it did before says nothing any more.
            self.gap.set(0);
        } else {
            mean(&self.gap, took / own);
        }
        let due = (8 * LOOK_NS).checked_div(self.gap.get()).unwrap_or(1);
        self.due.set(due.clamp(1, LOOK_EVERY) as u32);
        let (params, processors) = params();
        let usage = Usage {
            params: &params,
            gap_ns: self.gap.get() / 8,
            hold_ns: self.hold.get() / 8,
            turn_ns: now.saturating_sub(self.since_ns.get()),
            took_ns: took,
            own,
            all,
            parked,
            processors,
        };
        let release = crate::wait::scheme(params.get(P::Scheme)).release(&usage);
        self.stays.set(release == Release::Stay);
        self.put(if release == Release::Leave { Hurdle::Over } else { Hurdle::Timed });
        release
    }
}

/// Takes a time into a running mean of about eight.
fn mean(cell: &Cell<u64>, ns: u64) {
    let old = cell.get();
    cell.set(if old == 0 { 8 * ns } else { old - old / 8 + ns });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(turn: &Turn, gets: u64, now_ns: u64) -> Release {
        turn.release(7, gets, 1, || now_ns, || (Params::default(), 2))
    }

    #[test]
    fn a_hold_that_is_timed_is_known_by_its_own_release_only() {
        let turn = Turn::default();
        turn.begin(7, 100, 1_000);
        turn.time(100, 2_000);
        release(&turn, 101, 2_500);
        assert_eq!(turn.hold_ns(7), 500);
        // The release of the timed hold found nobody parked; this is a later one.
        turn.time(101, 3_000);
        release(&turn, 140, 90_000);
        assert_eq!(turn.hold_ns(7), 500);
    }

    #[test]
    fn a_long_hold_is_known_as_one() {
        let turn = Turn::default();
        turn.begin(7, 0, 1);
        for get in 0..10 {
            let got = get * 20_000_000 + 1;
            turn.time(get, got);
            release(&turn, get + 1, got + 10_000_000);
        }
        assert_eq!(turn.hold_ns(7), LONG_HOLD_NS);
    }

    #[test]
    fn a_count_of_gets_that_goes_back_is_no_trouble() {
        let turn = Turn::default();
        turn.begin(7, 1 << 40, 0);
        for get in 1..200 {
            turn.time(get - 1, get * 1_000);
            release(&turn, get, get * 1_000 + 900);
        }
        assert_eq!(turn.hold_ns(7), 900);
    }
}
