//! How objects are changed in place and thrown away.

use crate::client::Client;
use crate::error::CacheError;
use crate::key::Key;
use crate::layout::{BIASED, Block, CHANGING, ObjectRef, Pinned};
use crate::pin::Changed;
use crate::point;
use crate::shard::{count, is_biased};
use retrial::{Mode, location, sys};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

/// After a revocation readers go by the mutex for so many times as long as it took: it slows what follows by a
/// tenth at most (Dice and Kogan, 2019).
const REVOKED_TIMES: u64 = 9;

impl Client<'_> {
    /// The object of this name in X, to be changed in place; `None` where there is none. Waits until no session
    /// reads it.
    ///
    /// # Errors
    ///
    /// As [`Client::get`]; `Deadlock` where this session has it pinned.
    pub fn exclusive(&self, key: &Key<'_>) -> Result<Option<Changed<'_>>, CacheError> {
        let Some((place, hold)) = self.held(key, Mode::Exclusive, location!("kglpin1 4"))? else { return Ok(None) };
        let (block, began) = (place.block, sys::now_ns());
        // AcqRel: the pins of readers that have seen it are read after it.
        if is_biased(block.state.fetch_and(!BIASED, AcqRel)) {
            point();
            if let Err(error) = self.revoke(place.object) {
                block.state.fetch_or(BIASED, AcqRel);
                return Err(error);
            }
            let now = sys::now_ns();
            block.counted_until_ns.store(now + REVOKED_TIMES * (now - began), Relaxed);
            count(&self.row.revocations);
        }
        // Copies of what it was until now are not found any more.
        block.birth.store(self.shard_of(place.object).next_birth(), Relaxed);
        // Acquire: before the first change.
        block.state.fetch_or(CHANGING, Acquire);
        Ok(Some(Changed { _hold: hold, place }))
    }

    /// Waits until no session has pinned an object in its row to read it.
    fn revoke(&self, object: ObjectRef) -> Result<(), CacheError> {
        let rows = &self.cache.rows;
        rows.before_reading()?;
        for round in 0_u32.. {
            // A builder reads what it has built as soon as that is live.
            let readers = rows.seen(|seen, how| seen == object && how != Pinned::Kept);
            if readers.iter().any(|seen| seen.sid == self.session.sid()) {
                return Err(CacheError::Deadlock);
            }
            match (readers.is_empty(), round) {
                (true, _) => break,
                (false, 0..100) => sys::yield_now(),
                (false, _) => sys::sleep(Duration::from_micros(50)),
            }
        }
        Ok(())
    }

    /// Throws an object away: nobody finds it or its hot copies any more, and sessions that have it pinned read on.
    /// Whether it was there.
    ///
    /// # Errors
    ///
    /// As [`Client::get`].
    pub fn invalidate(&self, key: &Key<'_>) -> Result<bool, CacheError> {
        self.check(key)?;
        let hash = key.hash().halves();
        let shard = self.shard(hash);
        let locked = shard.lock(self.session, location!("kglhdgn2 106"))?;
        let has_key = |unit: u32, block: &Block| shard.has_key(unit, block, key);
        let Some((unit, block)) = shard.find(hash, has_key) else { return Ok(false) };
        shard.throw_away(unit, block);
        shard.evict(&[unit])?;
        drop(locked);
        Ok(true)
    }
}
