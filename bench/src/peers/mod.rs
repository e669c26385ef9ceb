//! The peers: who they are, and how each is got and released.

mod foreign;
mod mcs;
mod ours;
mod pthread;
mod rust;
mod spin;

use miette::{Report, miette};
use retrial::P;
use retrial::sys::{self, Deadline};
use retrial_bench::cell::{Cell, Conditions, Stopped};
use retrial_bench::check::{Guarded, Protected};
use retrial_bench::ours::no_memory;
use retrial_bench::outcome::{Kind, Outcome};
use retrial_bench::peer::{Miss, Peer};
use retrial_bench::process::Shared;
use std::hint::black_box;
use std::time::Duration;

/// Peers that could not be built, with what to install.
pub const ABSENT: &str = env!("BENCH_ABSENT");

/// What a peer is made for.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub sessions: u32,
    /// Position of a scheme of ours.
    pub scheme: usize,
    /// Of our parameters.
    pub settings: &'a [(P, String)],
}

/// A peer that can be made.
pub trait Made: Peer + Sized + 'static {
    fn new(setup: &Setup) -> Result<Self, Report>;
}

/// Called now and then with the time since the start.
pub type Tick<'a> = &'a dyn Fn(Duration);
/// Does so many pairs of get and release and gives the time that the thread computed.
pub type Round = Box<dyn Fn(u64) -> Duration>;

/// A peer of the lists below.
#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    between_processes: bool,
    scheme: usize,
    measure: fn(&Setup, &'static str, &Cell, &Conditions, Tick) -> Result<Outcome, Stopped>,
    round: fn(&Setup) -> Result<Round, Report>,
}

impl Entry {
    const fn of<P: Made>(name: &'static str) -> Self {
        Self { name, between_processes: false, scheme: 0, measure: measure::<P>, round: round::<P> }
    }

    /// One whose whole state is in shared memory.
    const fn shared<P: Made>(name: &'static str) -> Self {
        Self { between_processes: true, ..Self::of::<P>(name) }
    }

    pub fn works_for(&self, kind: Kind) -> bool {
        kind == Kind::Threads || self.between_processes
    }

    pub fn measure(
        &self,
        settings: &[(P, String)],
        cell: &Cell,
        conditions: &Conditions,
        tick: Tick,
    ) -> Result<Outcome, Stopped> {
        let setup = Setup { sessions: cell.sessions, scheme: self.scheme, settings };
        (self.measure)(&setup, self.name, cell, conditions, tick)
    }

    /// For one thread, for the rest of the program.
    pub fn round(&self) -> Result<Round, Report> {
        (self.round)(&Setup { sessions: 1, scheme: self.scheme, settings: &[] })
    }
}

/// The schemes of ours, whose name begins with this.
const OURS: &str = "retrial ";

/// Every scheme of ours.
fn schemes() -> impl Iterator<Item = Entry> {
    let name = |scheme| -> &'static str { Box::leak(format!("{OURS}{scheme}").into_boxed_str()) };
    retrial::wait::NAMES
        .iter()
        .enumerate()
        .map(move |(scheme, text)| Entry { scheme, ..Entry::shared::<ours::Exclusive>(name(text)) })
}

/// The mutexes.
pub fn mutexes() -> Vec<Entry> {
    let others = [
        Entry::of::<Plain<std::sync::Mutex<()>>>("std::sync::Mutex"),
        Entry::of::<Plain<parking_lot::Mutex<()>>>("parking_lot::Mutex"),
        Entry::of::<Plain<usync::Mutex<()>>>("usync::Mutex"),
        Entry::of::<Plain<pthread::Default>>("pthread default"),
        Entry::of::<Plain<pthread::Adaptive>>("pthread adaptive"),
        Entry::shared::<Plain<pthread::Shared>>("pthread process-shared"),
        Entry::shared::<Plain<pthread::Robust>>("pthread process-shared robust"),
        Entry::shared::<Plain<spin::Ttas>>("TTAS + sched_yield"),
        #[cfg(has_absl)]
        Entry::of::<Plain<foreign::Absl>>("absl::Mutex"),
        #[cfg(has_nsync)]
        Entry::of::<Plain<foreign::Nsync>>("nsync_mu"),
        #[cfg(has_ck)]
        Entry::shared::<Plain<foreign::CkFas>>("ck fas"),
        #[cfg(has_ck)]
        Entry::shared::<Plain<foreign::CkTicket>>("ck ticket"),
        #[cfg(has_ck)]
        Entry::shared::<mcs::CkMcs>("ck mcs"),
    ];
    schemes().chain(others).collect()
}

/// Excludes nobody: shows that the check finds what it is there for. Measured only when it is asked for by
/// its name.
pub const NONE: Entry = Entry::shared::<Plain<spin::None>>("none");

/// Locks with S, or with readers.
pub fn read_write_locks() -> Vec<Entry> {
    let default = retrial::wait::DEFAULT;
    vec![
        Entry { scheme: default, ..Entry::shared::<ours::Reads>("retrial S and X") },
        Entry::of::<Plain<std::sync::RwLock<()>>>("std::sync::RwLock"),
        Entry::of::<Plain<parking_lot::RwLock<()>>>("parking_lot::RwLock"),
        Entry::of::<Plain<pthread::RwLock<false>>>("pthread_rwlock default"),
        Entry::shared::<Plain<pthread::RwLock<true>>>("pthread_rwlock process-shared"),
    ]
}

/// For one thread: what there is at the least, which are no mutexes, and how many these are; then the
/// mutexes.
pub fn uncontended() -> (usize, Vec<Entry>) {
    let bare = [
        Entry::shared::<Plain<spin::Bare>>("compare-exchange + store"),
        Entry::shared::<Plain<spin::TwoExchanges>>("compare-exchange + exchange"),
    ];
    let default = retrial::wait::DEFAULT;
    let ours = [
        Entry { scheme: default, ..Entry::shared::<ours::Exclusive>("retrial X") },
        Entry { scheme: default, ..Entry::shared::<ours::Timed>("retrial X, with a deadline") },
        Entry { scheme: default, ..Entry::shared::<ours::Shared>("retrial S") },
    ];
    let others = mutexes().into_iter().filter(|entry| !entry.name.starts_with(OURS));
    (bare.len(), bare.into_iter().chain(ours).chain(others).collect())
}

/// Those of `all` whose names contain one of the parts, upper and lower case alike; all of them for no parts.
pub fn chosen(all: Vec<Entry>, parts: &[String]) -> Result<Vec<Entry>, Report> {
    if parts.is_empty() {
        return Ok(all);
    }
    let parts: Vec<String> = parts.iter().map(|part| part.to_ascii_lowercase()).collect();
    let known: Vec<&str> = all.iter().map(|entry| entry.name).collect();
    let named = |entry: &Entry| parts.iter().any(|part| entry.name.to_ascii_lowercase().contains(part));
    if let Some(part) = parts.iter().find(|part| !known.iter().any(|name| name.to_ascii_lowercase().contains(*part)))
        && part != NONE.name
    {
        return Err(miette!(
            code = "bench::peers",
            help = format!("--peers takes parts of these names: {}", known.join(", ")),
            "no peer has `{part}` in its name"
        ));
    }
    let none = parts.iter().any(|part| part == NONE.name).then_some(NONE);
    Ok(all.iter().copied().filter(named).chain(none).collect())
}

fn measure<P: Made>(
    setup: &Setup,
    name: &'static str,
    cell: &Cell,
    conditions: &Conditions,
    tick: Tick,
) -> Result<Outcome, Stopped> {
    cell.measure(name, &P::new(setup)?, conditions, tick)
}

fn round<P: Made>(setup: &Setup) -> Result<Round, Report> {
    let peer: &'static P = Box::leak(Box::new(P::new(setup)?));
    let session = peer.session(0).ok_or_else(|| miette!(code = "bench::session", "no session for one thread"))?;
    Ok(Box::new(move |pairs| pairs_of(black_box(peer), black_box(&session), pairs)))
}

/// The loop: monomorphic, so that each peer is inlined into its own. By the thread's own clock, which stands
/// still while others have the processor.
#[inline(never)]
fn pairs_of<P: Made>(peer: &P, session: &P::Session<'_>, pairs: u64) -> Duration {
    let never = Deadline::after(Duration::from_secs(1 << 30));
    let (protected, start) = (peer.protected(), sys::thread_cpu_ns());
    for _ in 0..pairs {
        let got = peer.with(session, false, never, || protected.count());
        debug_assert!(got.is_ok(), "nobody dies, and there is time");
    }
    Duration::from_nanos(sys::thread_cpu_ns() - start)
}

/// A mutex that needs nothing but its place.
pub trait Lock: Sync + Sized + 'static {
    /// A free one, to be moved to its place.
    fn new() -> Self;

    /// Called once, in its place.
    fn init(&self) {}

    /// Gets it, does the section, releases it. Whether it was got.
    fn with(&self, section: impl FnOnce()) -> bool;

    /// The same for one that only reads, which a mutex does not tell apart.
    #[inline]
    fn read(&self, section: impl FnOnce()) -> bool {
        self.with(section)
    }
}

/// A [`Lock`] as a peer.
pub struct Plain<L>(Shared<Guarded<L>>);

impl<L: Lock> Made for Plain<L> {
    fn new(_: &Setup) -> Result<Self, Report> {
        let place = Shared::of(Guarded::new(L::new())).map_err(|e| no_memory(&e))?;
        place[0].mutex.init();
        Ok(Self(place))
    }
}

impl<L: Lock> Peer for Plain<L> {
    type Session<'a> = ();

    fn session(&self, _: u32) -> Option<()> {
        Some(())
    }

    fn protected(&self) -> &Protected {
        &self.0[0].data
    }

    #[inline]
    fn with(&self, (): &(), writes: bool, _: Deadline, section: impl FnOnce()) -> Result<(), Miss> {
        let lock = &self.0[0].mutex;
        let got = if writes { lock.with(section) } else { lock.read(section) };
        if got { Ok(()) } else { Err(Miss::Failed) }
    }
}
