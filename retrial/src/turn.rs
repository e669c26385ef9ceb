//! A session's turn: how long it may keep coming back to a mutex that others are parked on, and whom its releases wake meanwhile.
//!
//! Known to the session alone; the clock is the caller's, the real one or a simulator's. Under schemes that throttle wake-ups a release asks here first; now and then it
//! looks at the clock and has the scheme decide. What the next get is to know is put in its way: the value that the exchange of the
//! fast path expects is not 0 then, so that the exchange fails by itself and the slow path looks why.
//!
//! Sources: a small set of active sessions beside many passive ones, D. Dice, *Malthusian Locks* (`EuroSys` 2017); slices of a lock,
//! Y. Patel and others, *Avoiding Scheduler Subversion using Scheduler-Cooperative Locks* (`EuroSys` 2020).

use crate::params::{P, Params};
use crate::sys::{AtomicU64, Ordering};
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
    /// What the exchange of the next get expects: `usual`, or the complement of a [`Hurdle`]'s position.
    expected: Cell<u64>,
    /// 0; in a process whose releases have to be fenced a value that no word has, so that every get takes the slow path.
    usual: u64,
    /// Gets of other mutexes that it was in the way of.
    passed: Cell<u32>,
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
    /// Misses since that was measured last; when it was, and the gets of the mutex then.
    misses: Cell<u32>,
    missed_ns: Cell<u64>,
    missed_gets: Cell<u64>,
    /// Misses of other mutexes in a row.
    elsewhere: Cell<u32>,
}

/// What is put in the way of a get is taken away after so many gets of other mutexes, which it costs some 10 ns each.
const PASSES: u32 = 64;

/// Longest gap that enters its running mean, in ns: whoever is away for longer is away.
const AWAY_NS: u64 = 100_000;

/// So many misses, and the time per get that they went with is taken.
const MISSES: u32 = 16;

/// The same took longer: somebody had lost its processor, or slept.
const MISSES_NS: u64 = 2_000_000;

/// So many looks, and the time of one session is not to be had.
const LOOKS: u8 = 64;

/// So many gets in a row are timed together, unless each takes so long in ns that the look itself does not count.
const SOLO_GETS: u32 = 8;
const SLOW_NS: u64 = 2000;

/// What was measured is measured again after 2 to this power of ns: the load may be another one.
const KNOWN_BITS: u32 = 30;

/// Longest holding time that enters its running mean, in ns: one such among eight is not spun for any more, and forgotten soon.
const LONG_HOLD_NS: u64 = 1_000_000;

/// What is known of two ways to share a mutex: several sessions take turns at every get, or one has it to itself for a turn while the
/// others are parked. Running means in 1/8 ns of the time from one get of anybody's to the next; 0 when not known.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Sharing {
    /// Of sessions whose gets miss.
    shared: AtomicU64,
    /// Of one that had it to itself.
    solo: AtomicU64,
    /// In its lowest 8 bits the looks since `shared` is known and `solo` is not; the others are the second in which that was measured.
    looks: AtomicU64,
}

impl Sharing {
    /// Whether the mutex is got more often while one session has it to itself: what it protects then stays in one processor's cache,
    /// and nobody waits until a word has come over. First the time of several is measured, as a matter of course; then that of one.
    #[must_use]
    pub fn alone(&self) -> bool {
        let shared = self.shared.load(Ordering::Relaxed);
        // Half of the processor time is worth a little.
        // Saturating: in memory that others write too, it may be anything.
        shared != 0 && self.solo.load(Ordering::Relaxed) <= (shared / 16).saturating_mul(17)
    }

    /// Forgets all.
    pub(crate) fn reset(&self) {
        for cell in [&self.shared, &self.solo, &self.looks] {
            cell.store(0, Ordering::Relaxed);
        }
    }

    /// Says that one alone gets it more often, for as long as the clock of a model lasts.
    #[cfg(all(test, shuttle))]
    pub(crate) fn pretend(&self) {
        self.shared.store(1 << 40, Ordering::Relaxed);
        self.solo.store(1, Ordering::Relaxed);
    }

    /// Forgets all once a second.
    fn renew(&self, now_ns: u64) {
        let second = now_ns >> KNOWN_BITS << 8;
        if self.looks.load(Ordering::Relaxed) >> 8 != second >> 8 {
            self.reset();
            self.looks.store(second, Ordering::Relaxed);
        }
    }

    /// A session has looked, and may have measured the time of one.
    fn looked(&self, solo_ns: Option<u64>) {
        let looks = self.looks.load(Ordering::Relaxed);
        if let Some(ns) = solo_ns {
            steady(&self.solo, ns);
        } else if self.solo.load(Ordering::Relaxed) == 0 && self.shared.load(Ordering::Relaxed) != 0 {
            if looks as u8 == LOOKS {
                // Nobody has it to itself for long enough.
                self.solo.store(u64::MAX / 2, Ordering::Relaxed);
            } else {
                self.looks.store(looks.wrapping_add(1), Ordering::Relaxed);
            }
        }
    }
}

/// What the exchange of a get expects where every get takes the slow path: no word, nor any [`Hurdle`].
const ALWAYS_SLOW: u64 = !2;

impl Turn {
    /// Of a session whose process no barrier reaches: each of its gets makes sure that the releases of the mutex are fenced.
    #[must_use]
    pub(crate) fn out_of_reach() -> Self {
        Self { expected: Cell::new(ALWAYS_SLOW), usual: ALWAYS_SLOW, ..Self::default() }
    }

    /// Whether barriers reach the session's releases.
    pub(crate) const fn is_in_reach(&self) -> bool {
        self.usual == 0
    }

    /// What the exchange of a get expects.
    #[inline]
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.expected.get()
    }

    /// Whether it is one of this mutex.
    #[inline]
    #[must_use]
    pub fn is_of(&self, mutex: u64) -> bool {
        self.mutex.get() == mutex
    }

    /// What was put in the way of the get of this mutex; it is out of the way then.
    #[must_use]
    pub fn take(&self, mutex: u64) -> Option<Hurdle> {
        if self.mutex.get() != mutex {
            // For the other mutex, unless the session has gone over to this one.
            let passed = self.passed.get().saturating_add(1);
            self.passed.set(passed);
            if passed >= PASSES {
                self.expected.set(self.usual);
            }
            return None;
        }
        match !self.expected.replace(self.usual) {
            0 => Some(Hurdle::Over),
            1 => Some(Hurdle::Timed),
            _ => None,
        }
    }

    fn put(&self, hurdle: Hurdle) {
        self.passed.set(0);
        self.expected.set(!(hurdle as u64));
    }

    /// The hold that begins is timed; `gets` of the mutex came before it.
    pub fn time(&self, gets: u64, now_ns: u64) {
        self.got_ns.set(now_ns);
        self.gets_before.set(gets);
    }

    /// A session that was parked has got the mutex.
    pub fn begin(&self, mutex: u64, gets: u64, now_ns: u64) {
        if self.mutex.replace(mutex) == mutex {
            // The load may be another one by now.
            self.due.set(self.due.get().min(SOLO_GETS));
        } else {
            self.gap.set(0);
            self.hold.set(0);
            self.forget();
        }
        if now_ns.saturating_sub(self.looked_ns.get()) > MISSES_NS {
            self.forget();
        }
        self.misses.set(0);
        self.missed_ns.set(now_ns);
        self.missed_gets.set(gets);
        self.elsewhere.set(0);
        self.looked_ns.set(now_ns);
        self.gets.set(gets);
        self.releases.set(0);
        self.since_ns.set(now_ns);
        self.got_ns.set(0);
        self.expected.set(self.usual);
    }

    /// What the last look decided says nothing any more.
    fn forget(&self) {
        self.due.set(1);
        self.stays.set(false);
    }

    /// A get of the mutex has missed; `gets` of it came before. Every few misses it is `known` how many gets there were meanwhile.
    pub fn missed(&self, mutex: u64, gets: u64, known: Option<&Sharing>, clock: impl Fn() -> u64) {
        if self.mutex.get() != mutex {
            let elsewhere = self.elsewhere.get() + 1;
            self.elsewhere.set(elsewhere);
            if elsewhere >= MISSES {
                self.begin(mutex, gets, clock());
            }
            return;
        }
        self.elsewhere.set(0);
        let misses = self.misses.get() + 1;
        self.misses.set(misses % MISSES);
        if misses == MISSES
            && let Some(known) = known
        {
            let now = clock();
            let took = now.saturating_sub(self.missed_ns.replace(now));
            let all = gets.wrapping_sub(self.missed_gets.replace(gets));
            if took < MISSES_NS && all != 0 {
                steady(&known.shared, took / all);
            }
            known.renew(now);
        }
    }

    /// Mean time that the session holds a mutex, in ns; 0 when that is not known.
    #[must_use]
    pub fn hold_ns(&self, mutex: u64) -> u64 {
        if self.mutex.get() == mutex { self.hold.get() / 8 } else { 0 }
    }

    /// What a release does about those who are parked. `gets` and `parked` are the mutex's; `clock` gives the time in ns and `usage`
    /// the parameters, the number of processors and what is known of the mutex, both asked now and then.
    #[inline]
    pub fn release<'a>(
        &self,
        mutex: u64,
        gets: u64,
        parked: u32,
        clock: impl Fn() -> u64,
        usage: impl Fn() -> (Params, u32, Option<&'a Sharing>),
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
        self.look(mutex, gets, parked, clock(), usage)
    }

    #[cold]
    fn look<'a>(
        &self,
        mutex: u64,
        gets: u64,
        parked: u32,
        now: u64,
        usage: impl Fn() -> (Params, u32, Option<&'a Sharing>),
    ) -> Release {
        if self.mutex.get() != mutex {
            self.begin(mutex, gets, now);
            if let (_, _, Some(known)) = usage() {
                known.renew(now);
            }
            return Release::Wake;
        }
        // A handler of a signal may have released it since it was counted.
        let own = u64::from(self.releases.replace(0).max(1));
        let took = now.saturating_sub(self.looked_ns.replace(now));
        let all = gets.wrapping_sub(self.gets.replace(gets));
        if took > own * AWAY_NS {
            // It was away, or its processor was: what it did before says nothing any more.
            self.gap.set(0);
        } else {
            mean(&self.gap, took / own);
        }
        let (params, processors, known) = usage();
        if let Some(known) = known {
            // Parked sessions have stayed parked.
            let solo = self.stays.get() && all <= own + own / 16 && took <= own * AWAY_NS;
            known.looked((solo && (own >= u64::from(SOLO_GETS) || took >= own * SLOW_NS)).then_some(took / own));
            known.renew(now);
        }
        let due = (8 * LOOK_NS).checked_div(self.gap.get()).unwrap_or(1);
        self.due.set(due.clamp(1, LOOK_EVERY) as u32);
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
            alone: known.is_some_and(Sharing::alone),
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

/// The same into a shared one, of twice the mean at most: whoever lost its processor meanwhile says little.
fn steady(cell: &AtomicU64, ns: u64) {
    let old = cell.load(Ordering::Relaxed);
    cell.store(if old == 0 { 8 * ns } else { old - old / 8 + ns.min(old / 4) }, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(turn: &Turn, gets: u64, now_ns: u64) -> Release {
        turn.release(7, gets, 1, || now_ns, || (Params::default(), 2, None))
    }

    /// Gets of a session that misses each, every `each` ns, with as many by others in between: the time after them.
    fn misses(turn: &Turn, known: &Sharing, gets: &mut u64, mut now: u64, each: u64) -> u64 {
        for _ in 0..MISSES {
            *gets += 2;
            now += each;
            turn.missed(7, *gets, Some(known), || now);
        }
        now
    }

    /// Gets that nobody else comes in between, of a session that others are parked beside: the time after them.
    fn alone(turn: &Turn, known: &Sharing, gets: &mut u64, mut now: u64, each: u64) -> u64 {
        for _ in 0..4 * LOOK_EVERY {
            *gets += 1;
            now += each;
            turn.release(7, *gets, 1, || now, || (Params::default(), 2, Some(known)));
        }
        now
    }

    #[test]
    fn one_has_the_mutex_to_itself_where_that_was_seen_to_give_more_gets() {
        for (each_alone, gives_more) in [(100, true), (210, true), (220, false), (10_000, false)] {
            let (turn, known, mut gets) = (Turn::default(), Sharing::default(), 0);
            turn.begin(7, gets, 1);
            // 200 ns from one get to the next.
            let now = misses(&turn, &known, &mut gets, 1, 400);
            assert!(known.alone(), "to be measured");
            let now = alone(&turn, &known, &mut gets, now, each_alone);
            assert_eq!(known.alone(), gives_more, "{each_alone} ns");
            turn.begin(7, gets, 1 << KNOWN_BITS);
            misses(&turn, &known, &mut gets, 1 << KNOWN_BITS, 400);
            assert_eq!(known.solo.load(Ordering::Relaxed), 0, "forgotten after a second");
            assert!(now < 1 << KNOWN_BITS);
        }
    }

    #[test]
    fn where_nobody_ever_has_the_mutex_to_itself_that_is_not_waited_for() {
        let (turn, known, mut gets) = (Turn::default(), Sharing::default(), 0);
        turn.begin(7, gets, 1);
        let mut now = misses(&turn, &known, &mut gets, 1, 400);
        for _ in 0..(u64::from(LOOKS) + 1) * LOOK_EVERY {
            assert_eq!(known.looks.load(Ordering::Relaxed) >> 8, 0);
            gets += 2;
            now += 400;
            turn.release(7, gets, 1, || now, || (Params::default(), 2, Some(&known)));
        }
        assert!(!known.alone());
    }

    #[test]
    fn what_is_put_in_the_way_of_one_mutex_is_not_taken_by_another() {
        let turn = Turn::default();
        turn.begin(7, 0, 1);
        turn.put(Hurdle::Over);
        assert_eq!((turn.take(8), turn.take(7), turn.take(7)), (None, Some(Hurdle::Over), None));
        turn.put(Hurdle::Over);
        for _ in 0..PASSES {
            assert_ne!(turn.expected(), 0);
            assert_eq!(turn.take(8), None);
        }
        assert_eq!(turn.expected(), 0, "the session has gone over to the other mutex");
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
