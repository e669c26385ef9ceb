//! Calls of procedures and look-ups as the sources' engine does them: by mutexes in X and S, for a short time
//! each.

use crate::client::Client;
use crate::error::CacheError;
use crate::key::Key;
use crate::layout::{BIASED, Pinned};
use crate::pin::{Pin, Place};
use crate::point;
use crate::rows::free_place;
use crate::shard::is_biased;
use retrial::{Hold, Mode, location};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

impl Client<'_> {
    /// Calls a procedure as the sources' engine does: gets it in X to pin it, gives that back while `run`
    /// runs, and has it in X again to give the pin back. `None` where there is none.
    ///
    /// A hot object is called by one of its copies.
    ///
    /// # Errors
    ///
    /// As [`Client::get`]. `Deadlock` inside of this session's own [`Client::execute`] of the object, always; and
    /// where this session reads or calls it while another one waits to change it, or has changed it a short time
    /// ago. Else it may be executed and called inside of a call of it, unless
    /// the cache counts its readers ([`Cache::set_counted`](crate::Cache::set_counted)).
    pub fn call<R>(&self, key: &Key<'_>, run: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, CacheError> {
        let Some((kept, hold)) = self.held_or_copy(key, Mode::Exclusive, location!("kglpin1 4"))? else {
            return Ok(None);
        };
        // A place of its own: what `run` has got of this object may live longer than this pin.
        let place = self.place(free_place(self.row)?, kept.object, kept.block, Pinned::Kept);
        let pin = self.pinned(place, hold);
        point();
        let result = run(&pin);
        drop(pin);
        match self.hold(&kept, Mode::Exclusive, location!("kglpndl1 95")) {
            // This session reads it, and another one that has it in X waits for that: the call's pin is gone.
            Ok(_) | Err(CacheError::Deadlock) => Ok(Some(result)),
            Err(other) => Err(other),
        }
    }

    /// The object of this name as [`Client::get`] gives it, by mutexes alone, as the sources' engine finds
    /// what a session has no cursor of: its shard's mutex in S, then its own one in S.
    ///
    /// # Errors
    ///
    /// As [`Client::get`].
    pub fn get_by_mutex(&self, key: &Key<'_>) -> Result<Option<Pin<'_>>, CacheError> {
        self.check(key)?;
        self.get_slow(key, key.hash().halves(), None)
    }

    /// A pin to read, of an object that this session has in X: private unless a change of it was a short time
    /// ago, or the cache counts its readers; then it is held in S.
    fn pinned<'s>(&self, place: Place<'s>, mut hold: Hold<'s>) -> Pin<'s> {
        let (block, head) = (place.block, self.cache.rows.head);
        if !is_biased(block.state.load(Relaxed)) && (head.is_counting() || head.bias() == 0) {
            hold.share();
            return Pin { hold: Some(hold), place };
        }
        // Under X: a session that gets X to change it sees this pin, and that it has to look for pins.
        Self::now_is(&place, Pinned::Read);
        block.state.fetch_or(BIASED, AcqRel);
        Pin { hold: None, place }
    }
}
