//! What is known of the sessions that are parked on a mutex, as arithmetic on a `u64`: no atomics, no I/O.
//!
//! ```text
//!  63      50 49     41  40  39     36 35      29 28   27 26     22 21              0
//! +----------+---------+-----+---------+----------+-------+---------+----------------+
//! |  stamp   |  epoch  | one |  woken  | sequence | crowd |  flags  |     parked     |
//! +----------+---------+-----+---------+----------+-------+---------+----------------+
//! ```
//!
//! | part | meaning |
//! |---|---|
//! | parked | sessions that have announced a park and have neither been woken nor come back |
//! | fenced | releases have a fence of their own |
//! | throttled | the session that announced last waits by a scheme with which releases wake nobody while enough woken sessions are on their way: see [`Wakes`] |
//! | starving | the next release hands over |
//! | wants X | a session that asked for a handover still wants X or LX |
//! | watched | one of the parked sessions is the watcher: it looks at the word sooner than the others |
//! | crowd | woken sessions that found the mutex busy, less those that found it open, from 0 to 3: see [`Parking::enough`] |
//! | sequence | counts announcements |
//! | woken | sessions that were woken, or [called before they slept](Wakes::Enough), and have neither got the mutex nor parked again nor given up |
//! | one | of throttled: one woken session is enough |
//! | epoch | counts how often `parked` was set to 0 because a wake-up found nobody asleep |
//! | stamp | time of the last handover, or of the first request since, in units of 2^17 ns |
//!
//! All of it is hints: each park has a time-out and is followed by a look at the word, which is the only
//! truth. `parked` counts at least the sessions that sleep or still can (why: `docs/DESIGN.md`). A session
//! that is killed leaves it one too high until a wake-up finds nobody asleep: then it is set to 0. The epoch
//! keeps a session that announced before that from taking another one off the count when it comes back.
//! `woken` may be too high by killed sessions too: each park that times out and was not
//! [brief](Announced::is_brief) takes one off.

use std::time::Duration;

mod handing;
mod parks;

pub use handing::{Circumstances, hands_over};
pub use parks::{Announced, Parks};

/// Number of gets after which a release beside parked sessions looks at the clock, and of misses after which
/// a session does: a look costs as much as a short section.
pub(crate) const LOOK_EVERY: u64 = 16;

/// Time for which a handover keeps other sessions out.
pub const HANDOVER_LASTS: Duration = Duration::from_micros(250);

/// How a park ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked<G> {
    /// The session has the target: in foreign formats a park may get it.
    Got(G),
    /// A release woke the session.
    Woken,
    /// The session did not sleep: its last look found the target open, or a release came after that.
    Looked,
    /// The session slept until its time-out.
    TimedOut,
}

/// Which releases wake a parked session. The rule of the session that announced last holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakes {
    /// Each.
    Each,
    /// Those beside which no woken session is on its way. So does glibc's mutex: a session that takes it while
    /// a woken one is on its way releases it without a wake-up.
    One,
    /// Those beside which fewer than [`Parking::enough`] woken sessions are on their way; some hand over. Counted
    /// are sessions too that such a release came too early for, before they slept: while one session is to be
    /// active alone, all that come would be called so, one after the other.
    Enough,
}

/// What a session out of a park finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The mutex is open to it, and to others.
    Open,
    /// The mutex is open to it alone, or to another one.
    HandedOver,
    /// Neither.
    Busy,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Parking(pub u64);

impl Parking {
    /// Maximum number of woken sessions on their way. With fewer, often none of them has a processor, and the
    /// mutex is free while the others sleep.
    pub const WOKEN_MAX: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };

    /// As many threads as Linux has ids for.
    const COUNT: u64 = (1 << 22) - 1;
    const FENCED: u64 = 1 << 22;
    const THROTTLED: u64 = 1 << 23;
    const STARVING: u64 = 1 << 24;
    const WANTS_X: u64 = 1 << 25;
    pub(crate) const CONCERNS_RELEASES: u64 = Self::COUNT | Self::FENCED | Self::STARVING;
    const WATCHED: u64 = 1 << 26;
    const CROWD_SHIFT: u32 = 27;
    const CROWD: u64 = 3 << Self::CROWD_SHIFT;
    const SEQUENCE: u64 = 0x7f << 29;
    const WOKEN_SHIFT: u32 = 36;
    const WOKEN: u64 = 0xf << Self::WOKEN_SHIFT;
    const ONE: u64 = 1 << 40;
    const EPOCH: u64 = 0x1ff << 41;
    const STAMP_SHIFT: u32 = 50;
    /// Unit of the stamp, as a power of 2 of ns: 131 us. The stamp comes round after 2.1 s.
    const STAMP_UNIT: u32 = 17;

    /// Releases have a fence of their own from now on.
    #[must_use]
    pub const fn fenced(self) -> Self {
        Self(self.0 | Self::FENCED)
    }

    /// In the child of a fork, where nobody is parked.
    #[must_use]
    pub const fn forgotten(self) -> Self {
        Self(self.0 & (Self::FENCED | Self::EPOCH)).next(Self::EPOCH)
    }

    /// Whether a release has to look closer: sessions are parked, releases have a fence, or one hands over.
    #[inline]
    #[must_use]
    pub const fn concerns_releases(self) -> bool {
        self.0 & Self::CONCERNS_RELEASES != 0
    }

    /// Sessions that are parked.
    #[must_use]
    pub const fn parked(self) -> u32 {
        (self.0 & Self::COUNT) as u32
    }

    /// Sessions that were woken and are on their way.
    #[must_use]
    pub const fn woken(self) -> u64 {
        (self.0 & Self::WOKEN) >> Self::WOKEN_SHIFT
    }

    /// Whether releases have a fence of their own.
    #[must_use]
    pub const fn is_fenced(self) -> bool {
        self.0 & Self::FENCED != 0
    }

    /// Whether one of the parked sessions is the watcher.
    #[must_use]
    pub const fn is_watched(self) -> bool {
        self.0 & Self::WATCHED != 0
    }

    /// Whether a session asks for a handover, and whether one that wants X or LX does.
    #[must_use]
    pub const fn starving(self) -> (bool, bool) {
        let starving = self.0 & Self::STARVING != 0;
        (starving, starving && self.wants_x())
    }

    /// Whether a session that has asked for a handover still wants X or LX, also when that is made.
    #[must_use]
    pub const fn wants_x(self) -> bool {
        self.0 & Self::WANTS_X != 0
    }

    /// Whether there is a session that a handover may be for: one is parked, or one that asked for it wants X
    /// or LX and may be awake.
    #[must_use]
    pub const fn has_a_taker(self) -> bool {
        self.parked() != 0 || self.starving().1
    }

    /// Number of woken sessions on their way beside which releases wake no more: [`Parking::WOKEN_MAX`], half
    /// of it after one that found the mutex busy, and so on down to one. Such a session was not needed: it
    /// takes a processor and the cache lines from the sessions that keep the mutex busy. One that finds it
    /// open came late, and doubles the number. With [`Wakes::One`] it is one.
    #[must_use]
    pub const fn enough(self) -> u64 {
        if self.0 & Self::ONE != 0 {
            return 1;
        }
        let enough = Self::WOKEN_MAX >> ((self.0 & Self::CROWD) >> Self::CROWD_SHIFT);
        if enough == 0 { 1 } else { enough }
    }

    /// What a session out of a park finds; `woken`: a release woke it.
    #[must_use]
    pub const fn found(self, found: Found, woken: bool) -> Self {
        match found {
            Found::Open if self.0 & Self::CROWD != 0 => Self(self.0 - (1 << Self::CROWD_SHIFT)),
            Found::Busy if woken && self.0 & Self::CROWD != Self::CROWD => self.next(Self::CROWD),
            _ => self,
        }
    }

    /// Whether enough woken sessions are on their way.
    #[must_use]
    pub const fn is_full(self) -> bool {
        self.woken() >= self.enough()
    }

    /// Whether a release wakes a session.
    #[must_use]
    pub const fn wakes(self) -> bool {
        self.parked() != 0 && !(self.throttles() && self.is_full())
    }

    /// Whether sessions are parked, and releases wake none while enough are on their way.
    #[must_use]
    pub const fn throttles(self) -> bool {
        self.parked() != 0 && self.0 & Self::THROTTLED != 0
    }

    const fn with(self, flag: u64, on: bool) -> Self {
        Self(if on { self.0 | flag } else { self.0 & !flag })
    }

    /// One more in a part that counts round and round.
    const fn next(self, part: u64) -> Self {
        Self(self.0 & !part | self.0.wrapping_add(part & part.wrapping_neg()) & part)
    }

    /// A session is about to park. `woken`: a wake-up ended its last park, and it is on its way no longer.
    /// `may_watch`: it becomes the watcher if there is none.
    #[must_use]
    pub const fn announce(self, wakes: Wakes, woken: bool, may_watch: bool) -> Self {
        let all = if woken { self.arrived() } else { self };
        let all = Self(all.0 + (all.parked() as u64 != Self::COUNT) as u64).next(Self::SEQUENCE);
        all.with(Self::THROTTLED, !matches!(wakes, Wakes::Each))
            .with(Self::ONE, matches!(wakes, Wakes::One))
            .with(Self::WATCHED, may_watch || all.is_watched())
    }

    /// A session that announced in the epoch of `announced` comes back without having been woken. `watches`:
    /// it was the watcher, and the next session that parks becomes it.
    #[must_use]
    pub const fn come_back(self, announced: Self, watches: bool) -> Self {
        let is_counted = self.parked() != 0 && (self.0 ^ announced.0) & Self::EPOCH == 0;
        Self(self.0 - is_counted as u64).unwatched(watches)
    }

    /// A session that was woken comes back, and the release has taken it off the count. `watches`: as above.
    #[must_use]
    pub const fn unwatched(self, watches: bool) -> Self {
        self.with(Self::WATCHED, self.is_watched() && !watches)
    }

    /// A release is about to wake a session.
    #[must_use]
    pub const fn wake(self) -> Self {
        if self.woken() == 15 { self } else { self.next(Self::WOKEN) }
    }

    /// A release has woken `count` sessions that were parked when it saw `then`.
    #[must_use]
    pub const fn has_woken(self, then: Self, count: u32) -> Self {
        let same_epoch = (self.0 ^ then.0) & Self::EPOCH == 0;
        let fewer = if same_epoch { self.parked().saturating_sub(count) } else { self.parked() };
        Self(self.0 & !Self::COUNT | fewer as u64)
    }

    /// A release found nobody asleep: none is parked, unless anything has changed since it saw `then`.
    #[must_use]
    pub const fn has_woken_nobody(self, then: Self) -> Self {
        let all = self.arrived();
        if self.0 != then.wake().0 {
            return all;
        }
        Self(all.0 & !(Self::COUNT | Self::WATCHED)).next(Self::EPOCH)
    }

    /// A woken session has the mutex or gives up. Also at each time-out of a park: a woken one may have died.
    #[must_use]
    pub const fn arrived(self) -> Self {
        Self(if self.woken() == 0 { self.0 } else { self.0 - (1 << Self::WOKEN_SHIFT) })
    }

    const fn stamp(now_ns: u64) -> u64 {
        now_ns >> Self::STAMP_UNIT & (u64::MAX >> Self::STAMP_SHIFT)
    }

    /// Age of the stamp, in ns, up to 2 s.
    #[must_use]
    pub const fn since_handover_ns(self, now_ns: u64) -> u64 {
        let since = Self::stamp(now_ns).wrapping_sub(self.0 >> Self::STAMP_SHIFT);
        (since & (u64::MAX >> Self::STAMP_SHIFT)) << Self::STAMP_UNIT
    }

    /// Whether the stamp is at least so old. Intervals beyond 2 s count as 2 s: the stamp comes round.
    #[must_use]
    pub const fn handover_is_due(self, now_ns: u64, interval: Duration) -> bool {
        const LONGEST: Duration = Duration::from_secs(2);
        let interval_ns =
            if interval.as_nanos() < LONGEST.as_nanos() { interval.as_nanos() } else { LONGEST.as_nanos() };
        self.since_handover_ns(now_ns) as u128 >= interval_ns
    }

    /// A session asks for a handover unless one did so within `interval`. The first request since the last
    /// handover sets the time, later ones leave it: readers that kept asking would keep a handover to a dead
    /// session binding for ever.
    #[must_use]
    pub const fn starve_if_due(self, now_ns: u64, interval: Duration, for_x: bool) -> Self {
        match (self.handover_is_due(now_ns, interval), self.starving()) {
            (false, _) => self,
            (true, (false, _)) => self.starve(now_ns, for_x),
            (true, (true, wanted_for_x)) => self.with(Self::WANTS_X, for_x || wanted_for_x),
        }
    }

    /// Whether a release after so many gets looks whether a handover is due that no session has asked for.
    #[must_use]
    pub const fn may_be_due(self, gets: u64) -> bool {
        self.throttles() && self.0 & Self::ONE == 0 && !self.starving().0 && gets.is_multiple_of(LOOK_EVERY)
    }

    /// Whether a release after so many gets wakes one more, which becomes the watcher when it parks again. The
    /// watcher is often the first to be woken, and where nobody else comes, nobody parks: of a thousand sessions
    /// that waited for one get each, the last ones would look after half a minute.
    #[must_use]
    pub const fn lacks_watcher(self, gets: u64) -> bool {
        self.parked() > 1 && !self.is_watched() && gets.is_multiple_of(LOOK_EVERY) && self.wakes()
    }

    /// A session asks for a handover; `for_x`: it wants X or LX, so that further readers are kept out.
    #[must_use]
    pub const fn starve(self, now_ns: u64, for_x: bool) -> Self {
        let stamped = Self(self.0 & !(u64::MAX << Self::STAMP_SHIFT) | Self::stamp(now_ns) << Self::STAMP_SHIFT);
        stamped.with(Self::STARVING, true).with(Self::WANTS_X, for_x || stamped.starving().1)
    }

    /// Whether the handover binds no longer, so that any session may take it: the session that it went to is
    /// dead, or has no processor. An idle processor has woken up by then.
    #[must_use]
    pub const fn handover_is_stale(self, now_ns: u64) -> bool {
        self.since_handover_ns(now_ns) > HANDOVER_LASTS.as_nanos() as u64
    }

    /// The mutex is handed over. A session that [wants X](Self::wants_x) takes that back when its wait ends.
    #[must_use]
    pub const fn handed_over(self, now_ns: u64) -> Self {
        self.starve(now_ns, false).with(Self::STARVING, false)
    }

    /// The handover is made, or not wanted any more.
    #[must_use]
    pub const fn fed(self) -> Self {
        Self(self.0 & !(Self::STARVING | Self::WANTS_X))
    }

    /// The same, if a session that wants X asked for it.
    #[must_use]
    pub const fn fed_for_x(self) -> Self {
        if self.starving().1 { self.fed() } else { self }
    }

    /// No session that wants X asks for a handover.
    #[must_use]
    pub const fn not_for_x(self) -> Self {
        Self(self.0 & !Self::WANTS_X)
    }
}

impl std::fmt::Display for Parking {
    /// `3 parked, one watches; 1 woken and on the way, at most 8`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let watched = if self.is_watched() { ", one watches" } else { "" };
        write!(f, "{} parked{watched}; {} woken and on the way", self.parked(), self.woken())?;
        if self.throttles() {
            write!(f, ", at most {}", self.enough())?;
        }
        let (starving, for_x) = self.starving();
        for (on, text) in [
            (starving, "the next release hands over"),
            (for_x, "to one that wants X"),
            (self.is_fenced(), "releases have a fence of their own"),
        ] {
            if on {
                write!(f, ", {text}")?;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod specification;

#[cfg(test)]
mod tests;
