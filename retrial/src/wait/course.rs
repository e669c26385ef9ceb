//! The course of one wait, as a machine that performs nothing: what the waiter sees goes in, what it does
//! next comes out.
//!
//! The [waiter](crate::interposer::Waiter) interprets it with the real clock, for mutexes and for locks of
//! libc's formats; the simulator with a virtual clock. So each rule of waiting stands once: here what all
//! schemes share, in the [schemes](super) the rest.

use super::{Attempt, Park, Scheme, Step, clamp};
use crate::mode::Mode;
use crate::params::{Fairness, P, Params};
use crate::parking::{Parked, Wakes};
use std::time::Duration;

/// What a wait begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    /// A spin, as the scheme says.
    Spin,
    /// A yield: the session has [had its turn](super::Experience::first).
    Yield,
    /// A park: the session comes out of a condition's queue, one is to be active alone, or it is the session's
    /// [first wait](super::Experience::first).
    Park,
}

/// What stays the same while a wait lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The mode in which the mutex is wanted.
    pub mode: Mode,
    /// Whether the session is of the high priority class.
    pub high_priority: bool,
    /// What it begins with.
    pub first: First,
    /// How often it halves `orbit_yields`: see [`Experience::yielded`](super::Experience::yielded).
    pub halvings: u32,
    /// Time of one poll of the word on this machine, in ns.
    pub poll_ns: u32,
    /// [`Seen::soft_spins`] when it begins.
    pub soft_spins: u64,
}

/// What the waiter sees before a step.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The values in force for the mutex's type, read afresh.
    pub params: &'a Params,
    /// By the monotonic clock.
    pub now_ns: u64,
    /// Sessions parked on the mutex, a hint.
    pub parked: u32,
    /// Gets of the mutex so far.
    pub gets: u64,
    /// Yields and sleeps of all sessions there so far. Only a scheme with [`Params::counts_soft_spins`] asks, so
    /// they need not be counted under another one.
    pub soft_spins: u64,
    /// Whether a session holds it in X or LX.
    pub on_x: bool,
    /// Whether one session is to be active alone: see [`Restriction`](super::Restriction).
    pub restricted: bool,
    /// Whether `adaptive` has `pthread` in use.
    pub pthread_in_use: bool,
    /// A fresh random number.
    pub random: u64,
}

/// A spin: polls of the word, and the exchange when a poll finds it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spin {
    /// Maximum number of polls.
    pub polls: u32,
    /// Whether it may take what was handed over.
    pub handed: bool,
    /// Whether polls grow apart, so that the holder's processor has the line for longer.
    pub backs_off: bool,
    /// Whether it ends when another session wins the exchange.
    pub stops_at_lost_race: bool,
}

/// Time-outs where parked sessions do not know of each other are as long as the session has waited, within
/// these: a session that libc forgets when another one is killed waits for twice as long as it has waited then.
const ALONE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(8));

/// Maximum mean time-out of a first park beside a watcher, in thousandths: 32 s. Doubles with each park.
const FIRST_LOOK: Duration = Duration::from_millis(32);

/// Parts of `orbit_handover_interval`: how long a session that stands by sleeps, and for how long it polls when
/// it has asked for its turn. By default that is about as long as a wake-up would leave the mutex idle.
const SLEEPS: u32 = 2;
const POLLS: u32 = 16;

/// Whether a release ended a park, or one came before the session slept.
#[derive(Clone, Copy, Debug)]
enum Call {
    None,
    BeforeSleep,
    Woken,
}

/// A wait under way.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    wanted: Wanted,
    /// Steps so far: a failed spin precedes each, but for a yield that ends a turn.
    failed: u32,
    /// Parks that have ended.
    parks: u32,
    /// Steps since the last park ended, or since the wait began.
    since_park: u32,
    /// What a release had to do with the end of the last park.
    call: Call,
    /// Whether one session was to be active alone at the last step.
    restricted: bool,
    /// If it has [stood by](Self::stands_by) since then, the gets of the mutex before that.
    stood_by: Option<u64>,
    /// Whether it has asked for a handover awake since then, and was not refused.
    asked: Option<bool>,
    /// End of the first failed spin.
    started_ns: u64,
}

impl Course {
    /// A wait that begins.
    #[must_use]
    pub const fn begin(wanted: Wanted) -> Self {
        Self {
            wanted,
            failed: 0,
            parks: 0,
            since_park: 0,
            call: Call::None,
            restricted: false,
            stood_by: None,
            asked: None,
            started_ns: 0,
        }
    }

    /// Steps so far: a failed spin precedes each, but for a yield that ends a turn.
    #[must_use]
    pub const fn failed(&self) -> u32 {
        self.failed
    }

    /// End of the first failed spin; 0 before it.
    #[must_use]
    pub const fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Whether it has yielded and not parked: its end, or its first park, says what the yields were worth.
    /// Not so where it parks because one session is to be active alone.
    pub(super) const fn has_only_yielded(&self) -> bool {
        self.parks == 0 && self.since_park > 0 && !self.restricted && !matches!(self.wanted.first, First::Park)
    }

    const fn has_had_its_turn(&self) -> bool {
        matches!(self.wanted.first, First::Yield) && self.failed == 0
    }

    /// Whether a release ended the last park, or came before the session slept.
    const fn was_called(&self) -> bool {
        !matches!(self.call, Call::None)
    }

    fn attempt<'a>(&self, seen: &Seen<'a>) -> Attempt<'a> {
        Attempt {
            params: seen.params,
            failed: self.failed,
            parks: self.parks,
            since_park: self.since_park,
            soft_spins: seen.soft_spins.wrapping_sub(self.wanted.soft_spins).max(u64::from(self.failed)),
            woken: self.was_called(),
            high_priority: self.wanted.high_priority,
            parked: seen.parked,
            pthread_in_use: seen.pthread_in_use,
            parks_first: self.wanted.first == First::Park,
            halvings: self.wanted.halvings,
            poll_ns: self.wanted.poll_ns,
            random: seen.random,
        }
    }

    /// The spin before the next step. None where the session yields first, for a look might give it the mutex
    /// once more; and none while it stands by and others get the mutex: it would take it between two of their
    /// gets, and end a turn. `gets`, those so far, are asked for only then: that takes the line from the
    /// holder.
    #[must_use]
    pub fn spin(&self, params: &Params, pthread_in_use: bool, gets: impl FnOnce() -> u64) -> Option<Spin> {
        let stood_by = self.stood_by.filter(|_| self.stands_by_now() && self.asked.is_none());
        if self.has_had_its_turn() || stood_by.is_some_and(|before| gets() != before) {
            return None;
        }
        let (soft_spins, restricted) = (self.wanted.soft_spins, self.restricted);
        let seen = Seen {
            params,
            now_ns: 0,
            parked: 0,
            gets: 0,
            soft_spins,
            on_x: false,
            restricted,
            pthread_in_use,
            random: 0,
        };
        let (scheme, attempt) = (scheme(&seen), self.attempt(&seen));
        let polls = match (self.stands_by_now(), self.asked == Some(true)) {
            (true, true) => attempt.polls_in(stands_by_time(params, POLLS).as_nanos() as u64),
            (true, false) => 0,
            (false, true) => scheme.spins(&Attempt { since_park: 0, ..attempt }),
            (false, false) => scheme.spins(&attempt),
        };
        Some(Spin {
            polls,
            handed: self.takes_handover(),
            backs_off: scheme.is_orbit(),
            stops_at_lost_race: params.get(P::OnLostRace) != 0,
        })
    }

    /// The spin has failed: what follows it.
    pub fn step(&mut self, seen: &Seen<'_>) -> Step<Park> {
        if self.failed == 0 {
            self.started_ns = seen.now_ns;
        }
        if self.has_had_its_turn() {
            // Not counted among `orbit_yields`; a spin of full length follows.
            self.failed = 1;
            return Step::Yield;
        }
        let scheme = scheme(seen);
        self.restricted = seen.restricted && scheme.is_orbit();
        let step = if self.stands_by_now() {
            self.stands_by(seen)
        } else if self.restricted {
            self.parks(seen, super::orbit::watch_after(self.parks))
        } else {
            match scheme.step(&self.attempt(seen)) {
                Step::Yield => Step::Yield,
                Step::Ask(interval) => Step::Ask(interval),
                Step::Sleep(asked) => Step::Sleep(jittered(asked, scheme, seen)),
                Step::Overflow(asked) => Step::Overflow(jittered(asked, scheme, seen)),
                Step::Park(limit) => self.parks(seen, limit),
            }
        };
        if !matches!(step, Step::Ask(_) | Step::Park(_)) {
            self.asked = None;
        }
        self.failed = self.failed.saturating_add(1);
        self.since_park = self.since_park.saturating_add(1);
        step
    }

    /// What has become of [`Step::Ask`]: whether it was not refused.
    pub const fn asked(&mut self, asked: bool) {
        self.asked = Some(asked);
    }

    /// A session that was woken in vain and has waited for long asks for its turn before it parks, and is
    /// awake when that comes: the mutex would be idle while the kernel wakes it up.
    fn parks(&self, seen: &Seen<'_>, limit: Duration) -> Step<Park> {
        let park = self.park(seen, limit);
        let is_for_x = matches!(self.wanted.mode, Mode::Exclusive | Mode::LongExclusive);
        match park.asks {
            Some(_) if self.asked.is_some() => Step::Park(Park { asks: None, ..park }),
            // Counted as on its way: the release knows that it is awake.
            Some(interval) if self.was_called() && !interval.is_zero() && is_for_x => Step::Ask(interval),
            _ => Step::Park(park),
        }
    }

    /// A park that the watcher ends after `limit`; the waiter sets `left`.
    #[must_use]
    pub fn park(&self, seen: &Seen<'_>, limit: Duration) -> Park {
        let scheme = scheme(seen);
        let is_orbit = scheme.is_orbit();
        let waited = Duration::from_nanos(seen.now_ns.saturating_sub(self.started_ns));
        let wakes = scheme.wakes(&self.attempt(seen));
        Park {
            // One woken session that has died would keep all others waiting.
            watch: if wakes == Wakes::One { limit.min(super::orbit::watch_after(self.parks)) } else { limit },
            timeout: limit.max(self.look_beside_a_watcher(seen)),
            left: Duration::MAX,
            alone: if is_orbit { waited.clamp(ALONE.0, ALONE.1) } else { limit },
            wakes,
            handed: self.takes_handover(),
            asks: self.asks_for_handover(seen, waited).filter(|_| is_orbit),
        }
    }

    const fn stands_by_now(&self) -> bool {
        self.restricted && self.was_called()
    }

    /// A session that was woken while one is active alone *stands by*: it sleeps, and looks if nobody got the
    /// mutex meanwhile. It stays on its way, so that releases wake no other one. If it parked, the next
    /// release would wake it, or another one, at once. Where it has waited for an interval by then, it asks for
    /// its turn.
    fn stands_by(&mut self, seen: &Seen<'_>) -> Step<Park> {
        if self.stood_by.is_some() {
            return self.parks(seen, super::orbit::watch_after(self.parks));
        }
        self.stood_by = Some(seen.gets);
        Step::Sleep(stands_by_time(seen.params, SLEEPS))
    }

    /// The park has ended.
    pub const fn park_ended<G>(&mut self, how: &Parked<G>) {
        self.call = match how {
            Parked::Woken => Call::Woken,
            Parked::Looked => Call::BeforeSleep,
            Parked::Got(_) | Parked::TimedOut => Call::None,
        };
        self.stood_by = None;
        self.asked = None;
        self.parks = self.parks.saturating_add(1);
        self.since_park = 0;
    }

    /// Time-out beside a watcher: all of these look `orbit_retry_rate` times a second together.
    fn look_beside_a_watcher(&self, seen: &Seen<'_>) -> Duration {
        // Uniform on 0 to 2 times the mean: sessions that parked together look one by one, and the first
        // soon.
        let permille = (seen.random % 2000) as u32;
        let share =
            Duration::from_millis(1) * seen.parked.saturating_add(1) / clamp(seen.params.get(P::OrbitRetryRate));
        // The watcher may have died, with all other parked sessions.
        let longest = FIRST_LOOK * (1 << self.parks.min(8));
        share.min(longest) * permille
    }

    /// Whether the session may take a mutex that was handed over: if it has asked for that awake, or comes
    /// out of a park right now, for the release has woken the session that it hands over to. Not so readers
    /// that were not woken: the handover may be for a writer that they keep out.
    fn takes_handover(&self) -> bool {
        let is_called = matches!(self.call, Call::Woken) || self.wanted.mode != Mode::Shared;
        self.asked == Some(true) || self.parks > 0 && self.since_park == 0 && is_called
    }

    /// `balanced`: a session asks for its turn when it has waited for longer than the interval, and was woken
    /// in vain or waits for sessions that do not hold X. `fifo`: every session asks. At most once in the time
    /// that this gives.
    fn asks_for_handover(&self, seen: &Seen<'_>, waited: Duration) -> Option<Duration> {
        let interval = seen.params.handover_interval();
        match seen.params.fairness() {
            Fairness::Throughput => None,
            Fairness::Balanced => {
                ((self.was_called() || self.parks > 0 && !seen.on_x) && waited >= interval).then_some(interval)
            }
            Fairness::Fifo => Some(Duration::ZERO),
        }
    }
}

fn stands_by_time(params: &Params, part: u32) -> Duration {
    super::restriction::interval(params) / part
}

fn scheme(seen: &Seen<'_>) -> &'static dyn Scheme {
    super::scheme(seen.params.get(P::Scheme))
}

/// The published sleeps are exact unless `sleep_jitter` is set.
fn jittered(asked: Duration, scheme: &dyn Scheme, seen: &Seen<'_>) -> Duration {
    let half_width_ns = seen.params.get(P::SleepJitter) * 1000;
    if half_width_ns == 0 || !scheme.takes_jitter() {
        return asked;
    }
    (asked + Duration::from_nanos(seen.random % (2 * half_width_ns)))
        .saturating_sub(Duration::from_nanos(half_width_ns))
}

#[cfg(test)]
mod tests {
    use super::super::example::{WANTED, seen};
    use super::*;

    /// A wait that parks at each step, to its first park.
    fn parks_at_once(params: &mut Params) -> Course {
        *params = params.with(P::OrbitYields, 0);
        Course::begin(WANTED)
    }

    fn park(course: &mut Course, seen: &Seen<'_>) -> Park {
        match course.step(seen) {
            Step::Park(park) => park,
            step => panic!("found {step:?}, expected a park"),
        }
    }

    #[test]
    fn only_a_session_right_out_of_a_park_takes_what_was_handed_over_and_a_reader_only_if_it_was_woken() {
        let mut params = Params::default();
        for mode in [Mode::Exclusive, Mode::Examine, Mode::Shared] {
            let shared = mode == Mode::Shared;
            let begun = Course { wanted: Wanted { mode, ..WANTED }, ..parks_at_once(&mut params) };
            for (how, expected) in [(Parked::Woken, true), (Parked::TimedOut, !shared), (Parked::Looked, !shared)] {
                let mut course = begun;
                assert!(!course.spin(&params, false, || 0).unwrap().handed);
                park(&mut course, &seen(&params));
                course.park_ended::<()>(&how);
                assert_eq!(course.spin(&params, false, || 0).unwrap().handed, expected, "{how:?}, {mode:?}");
                course.step(&seen(&params));
                assert!(!course.spin(&params, false, || 0).unwrap().handed);
            }
        }
    }

    #[test]
    fn a_session_that_was_woken_in_vain_asks_for_its_turn_after_the_interval() {
        let mut params = Params::default();
        let interval = Duration::from_micros(params.get(P::HandoverInterval));
        let mut course = parks_at_once(&mut params);
        let at = |now: Duration, on_x| Seen { now_ns: now.as_nanos() as u64, on_x, ..seen(&params) };
        assert_eq!(park(&mut course, &at(Duration::ZERO, true)).asks, None);
        let mut looked = course;
        course.park_ended::<()>(&Parked::Woken);
        assert_eq!(park(&mut course.clone(), &at(interval / 2, true)).asks, None);
        // Awake once, with a spin that may take it; then it parks, and its request stands.
        let woken = course;
        assert_eq!(course.step(&at(interval, true)), Step::Ask(interval));
        course.asked(true);
        let spin = course.spin(&params, false, || 0).unwrap();
        assert!(spin.handed && spin.polls == woken.spin(&params, false, || 0).unwrap().polls && spin.polls > 0);
        assert_eq!(park(&mut course, &at(interval, true)).asks, None);
        course.park_ended::<()>(&Parked::Woken);
        assert_eq!(course.step(&at(interval, true)), Step::Ask(interval), "a request for each park");
        for mode in [Mode::Shared, Mode::Examine] {
            let other = Course { wanted: Wanted { mode, ..WANTED }, ..woken };
            assert_eq!(park(&mut other.clone(), &at(interval, true)).asks, Some(interval), "only X is handed over so");
        }
        let mut looked_awake = Course { call: Call::BeforeSleep, ..woken };
        assert_eq!(looked_awake.step(&at(interval, true)), Step::Ask(interval), "on its way too");
        let mut refused = woken;
        assert_eq!(refused.step(&at(interval, true)), Step::Ask(interval));
        refused.asked(false);
        assert!(!refused.spin(&params, false, || 0).unwrap().handed);
        assert_eq!(park(&mut refused, &at(interval, true)).asks, None);
        // A session that no release woke asks where no release of X will come.
        looked.park_ended::<()>(&Parked::TimedOut);
        assert_eq!(park(&mut looked.clone(), &at(interval, true)).asks, None);
        assert_eq!(park(&mut looked, &at(interval, false)).asks, Some(interval));
        let never = params.with(P::Fairness, 0);
        assert_eq!(park(&mut woken.clone(), &Seen { params: &never, ..at(interval, true) }).asks, None);
        let fifo = params.with(P::Fairness, 2);
        let first = park(&mut Course::begin(WANTED), &Seen { params: &fifo, ..at(Duration::ZERO, true) });
        assert_eq!(first.asks, Some(Duration::ZERO));
        assert_eq!(park(&mut woken.clone(), &Seen { params: &fifo, ..at(interval, true) }).asks, Some(Duration::ZERO));
    }

    #[test]
    fn a_session_that_a_release_called_before_it_slept_goes_on_as_if_it_had_been_woken() {
        let params = Params::default();
        let after = |how| {
            let mut course = Course::begin(Wanted { first: First::Park, ..WANTED });
            park(&mut course, &seen(&params));
            course.park_ended::<()>(&how);
            (course.spin(&params, false, || 0).unwrap().polls, course.step(&seen(&params)))
        };
        let (polls, step) = after(Parked::Woken);
        assert_eq!((after(Parked::Looked), step), ((polls, Step::Yield), Step::Yield));
        assert!(polls > 0 && matches!(after(Parked::TimedOut), (0, Step::Park(_))));
        let interval = params.handover_interval();
        let at = Seen { now_ns: 1 + interval.as_nanos() as u64, ..seen(&params) };
        let course = Course { started_ns: 1, call: Call::BeforeSleep, ..parks_at_once(&mut params.clone()) };
        assert_eq!(course.park(&at, interval).asks, Some(interval));
    }

    #[test]
    fn a_session_that_yields_parks_when_one_is_to_be_active_alone_and_learns_nothing_from_that() {
        let params = Params::default();
        let mut course = Course::begin(WANTED);
        assert_eq!(course.step(&seen(&params)), Step::Yield);
        assert!(course.has_only_yielded());
        park(&mut course, &Seen { restricted: true, ..seen(&params) });
        assert!(!course.has_only_yielded());
    }

    #[test]
    fn a_session_that_is_woken_while_one_is_active_alone_stands_by_for_less_than_the_interval() {
        let params = Params::default().with(P::HandoverInterval, 1600);
        let after = |how, params: &Params| {
            let mut course = Course::begin(Wanted { first: First::Park, ..WANTED });
            let seen = Seen { restricted: true, now_ns: 1, ..seen(params) };
            park(&mut course, &seen);
            course.park_ended::<()>(&how);
            let mut slept = Vec::new();
            loop {
                let polls = course.spin(params, false, || 0).unwrap().polls;
                match course.step(&Seen { now_ns: 1_600_001, ..seen }) {
                    Step::Sleep(time) => slept.push((polls, time.as_micros())),
                    step => break (slept, step, course),
                }
            }
        };
        let interval = params.handover_interval();
        for how in [Parked::Woken, Parked::Looked] {
            let (slept, step, mut course) = after(how, &params);
            assert_eq!((slept, step), (vec![(0, 800)], Step::Ask(interval)));
            course.asked(true);
            // Others get the mutex meanwhile.
            let polls = course.spin(&params, false, || 9).unwrap().polls;
            assert_eq!(polls, 100_000 / WANTED.poll_ns, "a sixteenth");
        }
        let (slept, step, _) = after(Parked::Woken, &params.with(P::HandoverInterval, 1_000_000));
        assert_eq!(slept, [(0, 1000)], "half of 2 ms");
        assert!(matches!(step, Step::Park(how) if how.asks.is_none()), "it has not waited for a second");
        assert!(matches!(after(Parked::TimedOut, &params), (slept, Step::Park(_), _) if slept.is_empty()));
        let published = params.with(P::Scheme, crate::wait::named("pthread").unwrap() as u64);
        assert!(matches!(after(Parked::Woken, &published), (slept, Step::Park(_), _) if slept.is_empty()));
        // Others get the mutex while it sleeps.
        let standing = Course { call: Call::Woken, restricted: true, parks: 1, ..Course::begin(WANTED) };
        assert!(standing.spin(&params, false, || 7).is_some());
        let mut standing = standing;
        standing.step(&Seen { restricted: true, gets: 7, ..seen(&params) });
        assert!(standing.spin(&params, false, || 7).is_some() && standing.spin(&params, false, || 8).is_none());
        // The restriction ends.
        let mut course = Course { call: Call::Woken, restricted: true, parks: 1, ..Course::begin(WANTED) };
        assert_eq!(course.step(&seen(&params)), Step::Yield);
        assert!(course.spin(&params, false, || 0).unwrap().polls > 0);
    }

    #[test]
    fn sessions_that_do_not_know_of_each_other_look_when_they_have_waited_twice_as_long() {
        let params = Params::default().with(P::OrbitYields, 0);
        let mut course = Course::begin(WANTED);
        let (mut now, ms) = (Duration::ZERO, Duration::from_millis);
        let mut looks = Vec::new();
        for _ in 0..16 {
            let how = park(&mut course, &Seen { now_ns: now.as_nanos() as u64, ..seen(&params) });
            course.park_ended::<()>(&Parked::TimedOut);
            assert!([true, false].iter().all(|watches| how.lasts_in_process(*watches) >= how.alone));
            looks.push(how.lasts_alone());
            now += how.lasts_alone();
        }
        assert_eq!(looks[..4], [10, 10, 20, 40].map(ms));
        assert_eq!(looks[14..], [ms(8_000); 2]);
        let left = Park { left: ms(7), ..park(&mut course, &seen(&params)) };
        assert_eq!((left.lasts_alone(), left.lasts_in_process(true)), (ms(7), ms(7)));
        let published = params.with(P::Scheme, crate::wait::named("pthread").unwrap() as u64);
        let how = Course::begin(WANTED).park(&seen(&published), ms(99));
        assert_eq!((how.alone, how.watch), (ms(99), ms(10)), "as its parameter says, but for the watcher");
        assert_eq!(how.lasts_in_process(true), ms(10));
    }

    #[test]
    fn those_that_do_not_watch_look_more_rarely_the_more_they_are_but_not_more_than_each_wait_allows() {
        let params = Params::default().with(P::OrbitRetryRate, 25).with(P::OrbitYields, 0);
        let mut course = Course::begin(WANTED);
        let beside = |parked| Seen { parked, random: 1000, ..seen(&params) };
        let ms = Duration::from_millis;
        assert_eq!(park(&mut course.clone(), &beside(0)).timeout, ms(40));
        assert_eq!(park(&mut course.clone(), &beside(99)).timeout, ms(4000));
        assert_eq!(park(&mut course, &beside(100_000)).timeout, 1000 * FIRST_LOOK);
        course.park_ended::<()>(&Parked::TimedOut);
        assert_eq!(park(&mut course, &beside(100_000)).timeout, 2000 * FIRST_LOOK);
    }

    #[test]
    fn a_session_that_has_had_its_turn_yields_once_and_then_waits_as_any() {
        let params = Params::default();
        let mut course = Course::begin(Wanted { first: First::Yield, ..WANTED });
        assert_eq!(course.spin(&params, false, || 0), None);
        assert_eq!(course.step(&Seen { now_ns: 7, ..seen(&params) }), Step::Yield);
        assert_eq!((course.started_ns(), course.failed()), (7, 1));
        let mut any = Course::begin(WANTED);
        for _ in 0..10 {
            assert_eq!(course.spin(&params, false, || 0), any.spin(&params, false, || 0));
            assert_eq!(course.step(&seen(&params)), any.step(&seen(&params)));
        }
    }

    #[test]
    fn only_a_wait_that_yields_before_its_first_park_says_what_yields_are_worth() {
        let params = Params::default();
        let said = |first| {
            let mut course = Course::begin(Wanted { first, ..WANTED });
            let mut said = vec![course.has_only_yielded()];
            for _ in 0..3 {
                if matches!(course.step(&seen(&params)), Step::Park(_)) {
                    said.push(course.has_only_yielded());
                    course.park_ended::<()>(&Parked::Woken);
                }
                said.push(course.has_only_yielded());
            }
            said
        };
        assert_eq!(said(First::Spin), [false, true, true, true]);
        assert_eq!(said(First::Yield), [false, false, true, true], "the first one only ends a turn");
        assert_eq!(said(First::Park), [false; 5]);
    }

    #[test]
    fn sleeps_are_exact_unless_jitter_is_set() {
        let params = Params::default().with(P::Scheme, super::super::SLEEP as u64);
        let second = |params: &Params, random| {
            let mut course = Course::begin(WANTED);
            course.step(&seen(params));
            course.step(&Seen { random, ..seen(params) })
        };
        let ms = |n| Step::Sleep(Duration::from_millis(n));
        assert_eq!(second(&params, 77), ms(1));
        let jitter = params.with(P::SleepJitter, 1000);
        assert_eq!((second(&jitter, 0), second(&jitter, 1_000_000)), (Step::Sleep(Duration::ZERO), ms(1)));
    }
}
