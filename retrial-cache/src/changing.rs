//! How objects are changed in place and thrown away.

use crate::client::Client;
use crate::error::CacheError;
use crate::key::Key;
use crate::layout::{BIASED, CHANGING, ObjectRef, Phase, Pinned};
use crate::pin::Changed;
use crate::point;
use crate::rows::Seen;
use crate::shard::{count, is_biased, phase};
use retrial::views::Sid;
use retrial::{Mode, location, sys};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

/// After a revocation the readers of objects that were changed go by the mutex for so many times as long as its
/// look at the rows took: all revocations of a cache together slow a session by a twentieth at most, if the
/// readers lose as much, to whose processors the rows' lines go back (Dice and Kogan, 2019, with a tenth and of
/// each lock).
const REVOKED_TIMES: u64 = 39;

/// Rounds of a wait for readers, about 2 ms, after which it looks for a cycle of such waits, and asks its session
/// whether it gives up.
const LOOK_EVERY: u32 = 20;
/// Interval between two questions to the kernel for the threads of all sessions, on behalf of a wait for
/// readers or for a builder: it marks no thread that has replaced its process without being the first one of
/// it.
pub(crate) const ASK_EVERY_NS: u64 = 1_000_000_000;
/// Looks one after the other that have to find a cycle. A look reads the rows while sessions change them, and
/// may see a pin that has gone beside a wait that has begun since; a cycle stays.
const CYCLES: u32 = 3;

/// Whether a session waits, over other sessions, for itself, and is to give up: of each cycle the session
/// with the highest number is.
fn gives_up(seen: &[Seen], me: Sid) -> bool {
    let mut reached = vec![me];
    let mut next = 0;
    while let Some(from) = reached.get(next).copied() {
        next += 1;
        for wanted in seen.iter().filter(|pin| pin.sid == from && pin.how == Pinned::Wanted) {
            for reader in seen.iter().filter(|pin| pin.object == wanted.object && pin.how.is_read()) {
                if reader.sid == me {
                    return true;
                }
                if reader.sid < me && !reached.contains(&reader.sid) {
                    reached.push(reader.sid);
                }
            }
        }
    }
    false
}

impl Client<'_> {
    /// The object of this name in X, to be changed in place; `None` where there is none. Waits until no
    /// session reads it; one that took its place meanwhile is changed then.
    ///
    /// # Errors
    ///
    /// As [`Client::get`]; `Deadlock` where this session has it pinned; `Cycle` where another session reads
    /// it and waits itself for what this one reads.
    pub fn exclusive(&self, key: &Key<'_>) -> Result<Option<Changed<'_>>, CacheError> {
        loop {
            let changed = self.changed(key)?;
            if changed.as_ref().is_none_or(|changed| phase(changed.place.block) != Some(Phase::Gone)) {
                return Ok(changed);
            }
        }
    }

    /// The same, even if it was replaced or thrown away while this session waited.
    fn changed(&self, key: &Key<'_>) -> Result<Option<Changed<'_>>, CacheError> {
        let Some((place, hold)) = self.held(key, Mode::Exclusive, location!("kglpin1 4"))? else { return Ok(None) };
        let block = place.block;
        // AcqRel: orders what other changes wrote. The fence of the look at the rows keeps that behind it.
        if is_biased(block.state.fetch_and(!BIASED, AcqRel)) {
            point();
            // What the session waits for is in its row, for the views and for the search for deadlocks.
            Self::now_is(&place, Pinned::Wanted);
            point();
            let revoked = self.revoke(place.object);
            // A child of fork has its parent's wait, and leaves it alone.
            self.check_owner()?;
            Self::now_is(&place, Pinned::Kept);
            point();
            if let Err(error) = revoked {
                block.state.fetch_or(BIASED, AcqRel);
                return Err(error);
            }
            count(&self.row.revocations);
        }
        // Copies of what it was until now are not found any more.
        block.birth.store(self.shard_of(place.object).next_birth(), Relaxed);
        // Acquire: before the first change.
        block.state.fetch_or(CHANGING, Acquire);
        Ok(Some(Changed { _hold: hold, place, panics: std::thread::panicking() }))
    }

    /// Waits until no session has pinned an object in its row to read it.
    fn revoke(&self, object: ObjectRef) -> Result<(), CacheError> {
        let rows = &self.cache.rows;
        let began = sys::now_ns();
        let (mut cycles, mut asked_ns) = (0, began);
        for round in 0_u32.. {
            let readers = rows.seen(|seen, how| seen == object && how.is_read());
            if round == 0 {
                // Not the wait for readers: a session that gets a mutex waits for them, too.
                rows.head.count_longer(REVOKED_TIMES * (sys::now_ns() - began));
            }
            if readers.iter().any(|seen| seen.sid == self.session.sid()) {
                return Err(CacheError::Deadlock);
            }
            match (readers.is_empty(), round) {
                (true, _) => break,
                (false, 0..100) => sys::yield_now(),
                (false, _) => sys::sleep(Duration::from_micros(50)),
            }
            if round >= 100 && round.is_multiple_of(LOOK_EVERY) {
                let all = rows.seen(|_, how| how.is_read() || how == Pinned::Wanted);
                cycles = if gives_up(&all, self.session.sid()) { cycles + 1 } else { 0 };
                if cycles == CYCLES {
                    return Err(CacheError::Cycle);
                }
                if sys::now_ns() >= asked_ns + ASK_EVERY_NS {
                    self.cache.instance.look_for_threads();
                    asked_ns = sys::now_ns();
                }
                self.ask()?;
            }
        }
        Ok(())
    }

    /// Waits a little, the longer the more `rounds` were in vain, for a session that executes an object.
    pub(crate) fn pause(&self, rounds: u32) -> Result<(), CacheError> {
        if rounds <= 16 {
            sys::yield_now();
            return Ok(());
        }
        self.ask()?;
        sys::sleep(Duration::from_micros(u64::from(rounds.min(1000))));
        Ok(())
    }

    /// Throws an object away, which other caches call a purge: nobody finds it or its hot copies any more,
    /// and sessions that have it pinned read on. Its memory is free at once where no session has it pinned,
    /// else when a session looks for room after the last pin has gone. Whether it was there.
    ///
    /// The versions of a parent go with it, and before it: after a death amid this the parent is still there.
    ///
    /// # Errors
    ///
    /// As [`Client::get`].
    pub fn invalidate(&self, key: &Key<'_>) -> Result<bool, CacheError> {
        self.check(key)?;
        let hash = key.hash().halves();
        let shard = self.shard(hash);
        let locked = shard.lock(self.session, location!("kglhdgn2 106"))?;
        let object = shard.find(hash, |unit, block| shard.has_key(unit, block, key));
        let versions = shard.versions(hash, key);
        let all = versions.into_iter().chain(object);
        let units: Vec<u32> =
            all.inspect(|(unit, block)| shard.throw_away(*unit, block)).map(|(unit, _)| unit).collect();
        if !units.is_empty() {
            // Their memory: what cannot be freed now is freed when the hand comes by.
            shard.evict(&units);
        }
        drop(locked);
        Ok(object.is_some())
    }

    /// The versions of an object ([`Key::version`]) that are there now or are being built, in ascending order:
    /// of a [`Cursor`](crate::Namespace::Cursor) the children of its name, of another object those of its
    /// namespace beside version 0.
    ///
    /// # Errors
    ///
    /// As [`Client::get`].
    pub fn versions(&self, key: &Key<'_>) -> Result<Vec<u16>, CacheError> {
        self.check(key)?;
        let hash = key.hash().halves();
        let shard = self.shard(hash);
        let held = shard.lock_shared(self.session)?;
        let all = shard.versions(hash, key);
        let mut versions: Vec<u16> = all.into_iter().map(|(_, block)| block.version.load(Relaxed)).collect();
        drop(held);
        versions.sort_unstable();
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins by number of the session and of the object.
    fn pins(all: &[(u32, u32, Pinned)]) -> Vec<Seen> {
        let seen = |&(sid, unit, how)| Seen { sid: Sid::new(sid), object: ObjectRef::new(0, unit), how };
        all.iter().map(seen).collect()
    }

    fn who_gives_up(all: &[(u32, u32, Pinned)]) -> Vec<u32> {
        (1..=5).filter(|number| gives_up(&pins(all), Sid::new(*number))).collect()
    }

    #[test]
    fn of_each_cycle_the_session_with_the_highest_number_gives_up() {
        use Pinned::{Built, Kept, Read, Wanted};
        // Each reads what the one before it wants.
        let two = [(1, 7, Read), (1, 8, Wanted), (2, 8, Read), (2, 7, Wanted)];
        assert_eq!(who_gives_up(&two), [2]);
        let three = [(3, 7, Read), (3, 8, Wanted), (1, 8, Built), (1, 9, Wanted), (2, 9, Read), (2, 7, Wanted)];
        assert_eq!(who_gives_up(&three), [3]);
        // Another one waits for a session of the cycle, and is in none.
        assert_eq!(who_gives_up(&[two.as_slice(), &[(5, 7, Wanted)]].concat()), [2]);
        // Two cycles over one session.
        let more = [(1, 9, Read), (4, 7, Read), (4, 9, Wanted)];
        assert_eq!(who_gives_up(&[two.as_slice(), &more].concat()), [2, 4]);
        // In a row, and for a pin that is none of a reader.
        assert_eq!(who_gives_up(&[(1, 7, Read), (2, 7, Wanted), (2, 8, Read), (3, 8, Wanted)]), []);
        assert_eq!(who_gives_up(&[(1, 7, Kept), (1, 8, Wanted), (2, 8, Read), (2, 7, Wanted)]), []);
    }
}
