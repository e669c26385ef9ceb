//! A wait for a condition, which gives the mutex back and gets it again.

use super::getting::{Aim, Getting};
use super::{Hold, Patience};
use crate::engine_condition::{Condition, Waited};
use crate::error::GetError;
use crate::event::EventWait;
use crate::fail;
use crate::mode::Mode;
use crate::sys;
use crate::waiter::Target;
use crate::word::Word;

impl Hold<'_> {
    /// Gives the mutex back, waits until the condition is signalled or the deadline has passed, and gets the
    /// mutex again, however long that takes. See [`Guard::wait`](crate::Guard::wait).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn wait(self, condition: &Condition<'_>, patience: Patience) -> Result<(Self, Waited), GetError<Self>> {
        let (mutex, session, mode) = (self.mutex, self.session, self.mode);
        condition.check(session);
        assert!(
            matches!(mode, Mode::Exclusive | Mode::LongExclusive),
            "a wait for a condition gives X or LX back, not {mode}"
        );
        if session.is_forked() {
            return Err(GetError::Forked { owner: session.pid() });
        }
        let location = self.location();
        let expected = condition.shared.enter();
        // Before the release: with the mutex held, a session sees all waiters.
        let event = EventWait::begin(session, condition.id, location);
        drop(self);
        fail::point();
        let getting = Getting::new(mutex, session, mode, Aim::Get);
        let waited = condition.shared.sleep(expected, patience, || {
            // A signaller that was killed with the mutex held owes a signal.
            getting.look_after_blocker(sys::now_ns(), true);
            mutex.load().has(Word::POISONED)
        });
        fail::point();
        event.end(session);
        // SAFETY: the mutex was got by the same session.
        let hold = unsafe { mutex.get_at(session, mode, location, Patience::Endless) }?;
        Ok((hold, waited))
    }
}
