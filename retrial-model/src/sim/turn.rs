//! A session's turn at the mutex, on the virtual clock: the bookkeeping of the library's `turn.rs`, whose decisions are
//! those of the scheme itself ([`Scheme::release`]).

use retrial::Params;
use retrial::wait::{Release, Scheme, Usage};

/// A look at the clock about this often, in ns, and releases from one look to the next at most: as in the library.
const LOOK_NS: u64 = 50_000;
const LOOK_EVERY: u64 = 64;

/// Longest time that enters a running mean, in ns: whoever is away for longer is away.
const AWAY_NS: u64 = 100_000;

/// What the next get of the mutex is to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hurdle {
    /// Its turn is over: it queues.
    Over,
    /// It is to say when it began, so that the holding time can be known.
    Timed,
}

/// What a release knows of the mutex and of the machine.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) params: &'a Params,
    pub(super) scheme: &'static dyn Scheme,
    pub(super) gets: u64,
    pub(super) parked: u32,
    pub(super) processors: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    /// Whether the session has had to do with the mutex before.
    knows: bool,
    pub(super) hurdle: Option<Hurdle>,
    releases: u32,
    due: u32,
    looked_ns: u64,
    gets: u64,
    since_ns: u64,
    got_ns: u64,
    /// Running means of the time from one get to the next and of the holding time, in 1/8 ns; 0 when not known.
    gap: u64,
    hold: u64,
    stays: bool,
}

impl Turn {
    /// The hold that begins is timed.
    pub(super) fn time(&mut self, now_ns: u64) {
        self.got_ns = now_ns;
    }

    /// A session that was parked has got the mutex.
    pub(super) fn begin(&mut self, gets: u64, now_ns: u64) {
        if !self.knows {
            *self = Self { knows: true, due: 1, got_ns: self.got_ns, ..Self::default() };
        }
        self.looked_ns = now_ns;
        self.gets = gets;
        self.releases = 0;
        self.since_ns = now_ns;
        self.hurdle = None;
    }

    /// Mean time that the session holds the mutex, in ns; 0 when that is not known.
    pub(super) fn hold_ns(&self) -> u64 {
        self.hold / 8
    }

    /// What a release does about those who are parked.
    pub(super) fn release(&mut self, now_ns: u64, seen: Seen<'_>) -> Release {
        let got_ns = std::mem::take(&mut self.got_ns);
        if got_ns != 0 {
            mean(&mut self.hold, now_ns.saturating_sub(got_ns));
        }
        self.releases += 1;
        if self.releases < self.due && self.knows {
            return if self.stays { Release::Stay } else { Release::Wake };
        }
        self.look(now_ns, seen)
    }

    fn look(&mut self, now_ns: u64, seen: Seen<'_>) -> Release {
        if !self.knows {
            self.begin(seen.gets, now_ns);
            return Release::Wake;
        }
        let own = u64::from(std::mem::take(&mut self.releases));
        let took_ns = now_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, now_ns));
        let all = seen.gets - std::mem::replace(&mut self.gets, seen.gets);
        if took_ns > own * AWAY_NS {
            self.gap = 0;
        } else {
            mean(&mut self.gap, took_ns / own);
        }
        self.due = (8 * LOOK_NS).checked_div(self.gap).unwrap_or(1).clamp(1, LOOK_EVERY) as u32;
        let usage = Usage {
            params: seen.params,
            gap_ns: self.gap / 8,
            hold_ns: self.hold / 8,
            turn_ns: now_ns.saturating_sub(self.since_ns),
            took_ns,
            own,
            all,
            parked: seen.parked,
            processors: seen.processors,
        };
        let release = seen.scheme.release(&usage);
        self.stays = release == Release::Stay;
        self.hurdle = Some(if release == Release::Leave { Hurdle::Over } else { Hurdle::Timed });
        release
    }
}

/// Takes a time into a running mean of about eight.
fn mean(cell: &mut u64, ns: u64) {
    let new = ns.min(AWAY_NS);
    *cell = if *cell == 0 { 8 * new } else { *cell - *cell / 8 + new };
}
