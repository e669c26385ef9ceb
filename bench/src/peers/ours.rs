//! Ours: without a deadline, as the others, and for one thread in all ways.

use super::{Made, Setup};
use miette::Report;
use retrial::sys::Deadline;
use retrial::{Mode, Patience, Session, location};
use retrial_bench::check::Protected;
use retrial_bench::ours::{Ours, finish};
use retrial_bench::peer::{Miss, Peer};

/// Implements a peer on [`Ours`] by what it does for a get: (mutex, session, writes, deadline).
macro_rules! peer {
    ($(#[$doc:meta])* $name:ident, |$mutex:ident, $session:ident, $writes:ident, $deadline:ident| $get:expr) => {
        $(#[$doc])*
        pub struct $name(Ours);

        impl Made for $name {
            fn new(setup: &Setup) -> Result<Self, Report> {
                Ours::new(setup.sessions, setup.scheme, setup.settings).map(Self)
            }
        }

        impl Peer for $name {
            type Session<'a> = Session<'a>;

            fn session(&self, _: u32) -> Option<Session<'_>> {
                self.0.session()
            }

            fn protected(&self) -> &Protected {
                &self.0.place[0].data
            }

            #[inline]
            fn with(
                &self,
                $session: &Session<'_>,
                $writes: bool,
                $deadline: Deadline,
                section: impl FnOnce(),
            ) -> Result<(), Miss> {
                let $mutex = &self.0.place[0].mutex;
                // SAFETY: `Ours` makes sessions of the instance that it registers its mutexes with.
                finish(unsafe { $get }, section)
            }
        }
    };
}

peer!(
    /// X.
    Exclusive, |mutex, session, _writes, _deadline| mutex.exclusive(session, location!("bench: X"))
);
peer!(
    /// X, by the get with a deadline.
    Timed, |mutex, session, _writes, deadline| {
        mutex.get(session, Mode::Exclusive, location!("bench: X, timed"), Patience::Until(deadline))
    }
);
peer!(
    /// S.
    Shared, |mutex, session, _writes, _deadline| {
        mutex.get(session, Mode::Shared, location!("bench: S"), Patience::Endless)
    }
);
peer!(
    /// S, and X to write.
    Reads, |mutex, session, writes, _deadline| if writes {
        mutex.exclusive(session, location!("bench: writes"))
    } else {
        mutex.get(session, Mode::Shared, location!("bench: reads"), Patience::Endless)
    }
);
