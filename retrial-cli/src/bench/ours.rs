//! The peers that are ours: a mutex of an anonymous instance, under one of the wait schemes.

use super::check::{Guarded, Protected};
use super::peer::{Miss, Peer};
use super::process::Shared;
use crate::instances::{create_error, param_error};
use miette::{Report, miette};
use retrial::sys::{self, Deadline};
use retrial::{Capacity, Class, Get, GetError, Instance, Mode, P, Patience, RawMutex, Session, SessionError, location};

/// The instance and its mutex.
#[derive(Debug)]
pub struct Ours {
    pub instance: Instance,
    pub place: Shared<Guarded<RawMutex>>,
}

impl Ours {
    /// For so many sessions, with the scheme at this position of [`retrial::wait::NAMES`].
    pub fn new(sessions: u32, scheme: usize, settings: &[(P, String)]) -> Result<Self, Report> {
        let capacity = Capacity { sessions: sessions + 2, mutexes: 8, locations: 16, rows: 8, arena: 0 };
        let instance = Instance::anonymous(capacity).map_err(create_error)?;
        crate::calibration::apply(&instance);
        instance.set(P::Scheme, None, scheme as u64);
        for (p, text) in settings {
            instance.set(*p, None, p.parse(text, scheme).map_err(|e| param_error(&e))?);
        }
        let place = Shared::of(Guarded::new(RawMutex::new())).map_err(|e| no_memory(&e))?;
        let internal = |e| miette!(code = "retrial::bench::instance", "{e}");
        let mutex_type = instance.register_type("bench").map_err(internal)?;
        // SAFETY: `session` is where sessions come from.
        unsafe { place[0].mutex.register(&instance, mutex_type, "bench") }.map_err(internal)?;
        Ok(Self { instance, place })
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

/// Gets in a mode, by its position in [`Mode::ALL`] and so with a fast path of its own, until the cell is over.
#[derive(Debug)]
pub struct InMode<const MODE: usize>(pub Ours);

impl<const MODE: usize> Peer for InMode<MODE> {
    type Session<'a> = Session<'a>;

    fn session(&self, _: u32) -> Option<Session<'_>> {
        self.0.session()
    }

    fn protected(&self) -> &Protected {
        &self.0.place[0].data
    }

    #[inline(always)]
    #[allow(clippy::inline_always)]
    fn with(
        &self,
        session: &Session<'_>,
        writes: bool,
        deadline: Deadline,
        section: impl FnOnce(),
    ) -> Result<(), Miss> {
        let mode = if writes { Mode::Exclusive } else { Mode::ALL[MODE] };
        finish(self.0.place[0].mutex.get(session, mode, location!("bench"), Patience::Until(deadline)), section)
    }
}

pub fn no_memory(error: &std::io::Error) -> Report {
    miette!(code = "retrial::bench::memory", help = "fewer --sessions", "no shared memory for the sessions: {error}")
}
