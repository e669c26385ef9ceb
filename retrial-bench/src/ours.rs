//! The peers that are ours: a mutex of an instance, or copies of one, under one of the wait schemes.

use crate::check::{Guarded, Protected};
use crate::errors::{create_error, param_error};
use crate::peer::{Miss, Peer};
use crate::process::Shared;
use miette::{Report, miette};
use retrial::engine::{Get, RawMutex};
use retrial::sys::{self, Deadline};
use retrial::views::Figures;
use retrial::{
    Address, Capacity, Class, GetError, Instance, Mode, MutexId, P, Patience, Session, SessionError, location,
};
use std::path::PathBuf;

/// Name of the mutexes' type and, with the number of the copy where there are several, of the mutexes.
const NAME: &str = "bench";

/// The instance and its mutex, or the copies of it.
#[derive(Debug)]
pub struct Ours {
    pub instance: Instance,
    /// A mutex for each copy, unless the instance has it, and what it protects.
    pub place: Shared<Guarded<RawMutex>>,
    /// The mutexes of an instance with a name: in its arena, where observers see them.
    visible: Vec<MutexId>,
    /// The file of an instance with a name: removed with it.
    path: Option<PathBuf>,
}

impl Ours {
    /// For so many sessions, with the scheme at this position of [`retrial::wait::NAMES`].
    pub fn new(sessions: u32, scheme: usize, settings: &[(P, String)]) -> Result<Self, Report> {
        Self::with_copies(sessions, 1, None, scheme, settings)
    }

    /// The same with copies of the mutex, in an instance that has a name if there is one to have.
    pub fn with_copies(
        sessions: u32,
        copies: u32,
        name: Option<&Address>,
        scheme: usize,
        settings: &[(P, String)],
    ) -> Result<Self, Report> {
        // A record with its data takes a cache line.
        let arena = if name.is_some() { u64::from(copies) * 64 } else { 0 };
        let capacity = Capacity { sessions: sessions + 2, mutexes: copies + 7, locations: 16, rows: 8, arena };
        let made = name.map_or_else(|| Instance::anonymous(capacity), |at| Instance::create(at, capacity, 0o600));
        let place = Shared::filled(copies as usize, || Guarded::new(RawMutex::new())).map_err(|e| no_memory(&e))?;
        let instance = made.map_err(create_error)?;
        let path = name.map(|at| at.path().to_owned());
        // From here on what was created is removed if something fails.
        let mut ours = Self { instance, place, visible: Vec::new(), path };
        crate::calibration::apply(&ours.instance);
        ours.instance.set(P::Scheme, None, scheme as u64);
        for (p, text) in settings {
            ours.instance.set(*p, None, p.parse(text, scheme).map_err(|e| param_error(&e))?);
        }
        for copy in 0..copies {
            ours.register(if copies > 1 { format!("{NAME}.{copy}") } else { NAME.to_owned() }, copy)?;
        }
        Ok(ours)
    }

    fn register(&mut self, name: String, copy: u32) -> Result<(), Report> {
        let internal = |e: &dyn std::error::Error| miette!(code = "retrial::bench::instance", "{e}");
        if self.path.is_some() {
            // SAFETY: `session` is where sessions come from.
            unsafe { self.instance.mutex_record::<u64>(&name, NAME) }.map_err(|e| internal(&e))?;
            self.visible.extend(self.instance.tables().mutex_named(&name));
            return Ok(());
        }
        let mutex_type = self.instance.register_type(NAME).map_err(|e| internal(&e))?;
        // SAFETY: as above.
        unsafe { self.place[copy as usize].mutex.register(&self.instance, mutex_type, &name) }
            .map(drop)
            .map_err(|e| internal(&e))
    }

    /// A copy of the mutex.
    fn mutex(&self, copy: u32) -> Option<&RawMutex> {
        match self.visible.get(copy as usize) {
            // SAFETY: as in `register`.
            Some(id) => unsafe { self.instance.mutex_in_arena(*id) },
            None => self.place.get(copy as usize).map(|place| &place.mutex),
        }
    }

    pub fn session(&self) -> Option<Session<'_>> {
        // Once more in each process: a kernel need not hand it on to a child.
        let _ = sys::register_for_barriers();
        loop {
            match self.instance.session("bench", Class::Normal) {
                Ok(session) => return Some(session),
                Err(SessionError::Stuck) => {}
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Whoever observes it goes on with what there was.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A session and its copy of the mutex.
#[derive(Debug)]
pub struct Seat<'a> {
    session: Session<'a>,
    mutex: &'a RawMutex,
}

/// Does the section if the mutex was got.
#[inline(always)] // the hold stays in registers
#[allow(clippy::inline_always)]
pub fn finish(got: Get<'_>, section: impl FnOnce()) -> Result<(), Miss> {
    match got {
        Ok(_hold) => {
            section();
            Ok(())
        }
        Err(GetError::TimedOut) => Err(Miss::TimedOut),
        Err(GetError::OwnerDied(mut died)) => {
            died.guard.consistent();
            Err(Miss::Failed)
        }
        Err(_) => Err(Miss::Failed),
    }
}

/// Gets in a mode, by its position in [`Mode::ALL`] and so with a fast path of its own, until the cell is
/// over.
#[derive(Debug)]
pub struct InMode<const MODE: usize>(pub Ours);

impl<const MODE: usize> Peer for InMode<MODE> {
    type Session<'a> = Seat<'a>;

    fn session(&self, index: u32) -> Option<Seat<'_>> {
        Some(Seat { session: self.0.session()?, mutex: self.0.mutex(index % self.copies())? })
    }

    fn protected(&self) -> &Protected {
        self.protected_by(0)
    }

    fn copies(&self) -> u32 {
        self.0.place.len() as u32
    }

    fn protected_by(&self, copy: u32) -> &Protected {
        &self.0.place[copy as usize].data
    }

    fn figures(&self) -> Option<Figures> {
        let mut sum = Figures::default();
        self.0.instance.tables().figures().iter().for_each(|(_, _, figures)| sum.add(figures));
        Some(sum)
    }

    #[inline(always)]
    #[allow(clippy::inline_always)]
    fn with(&self, seat: &Seat<'_>, writes: bool, deadline: Deadline, section: impl FnOnce()) -> Result<(), Miss> {
        let mode = if writes { Mode::Exclusive } else { Mode::ALL[MODE] };
        // SAFETY: both are of the instance of `Ours`.
        let got = unsafe { seat.mutex.get(&seat.session, mode, location!("bench"), Patience::Until(deadline)) };
        finish(got, section)
    }
}

pub fn no_memory(error: &std::io::Error) -> Report {
    miette!(code = "retrial::bench::memory", help = "fewer --sessions", "no shared memory for the sessions: {error}")
}
