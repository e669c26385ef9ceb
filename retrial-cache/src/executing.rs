//! How objects are executed, and the copies of those that many sessions execute.

use crate::client::{Client, Look};
use crate::error::CacheError;
use crate::key::{Hash, Key};
use crate::layout::Block;
use crate::pin::Place;
use crate::rows::free_place;
use crate::shard::{Shard, visit};
use retrial::{CodeLocation, ConvertError, Hold, Mode, Patience, location};
use std::sync::atomic::Ordering::Relaxed;

impl Client<'_> {
    /// Executes an object as the sources' engine does a cursor: gets it in E, shares it while `run` runs, and
    /// has it in E again to give it back. `None` where there is none.
    ///
    /// A hot object is executed by one of its copies.
    ///
    /// # Errors
    ///
    /// As [`Client::get`]. `Deadlock` inside of this session's own [`Client::execute`] of the object, always; and
    /// where this session reads or calls it while another one waits to change it, or has changed it a short time
    /// ago. Else it may be executed and called inside of a call of it.
    pub fn execute<R>(&self, key: &Key<'_>, run: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, CacheError> {
        let at = location!("kksfbc [KKSCHLFSP2]");
        let Some((place, mut hold)) = self.held_or_copy(key, Mode::Examine, at)? else { return Ok(None) };
        hold.share();
        let result = run(place.bytes());
        match hold.examine(Patience::Endless) {
            // A session that wants X waits for this reference: it goes at once.
            Ok(()) | Err(ConvertError::Deadlock { .. }) => {}
            Err(other) => return Err(other.into()),
        }
        drop(hold);
        Ok(Some(result))
    }

    /// An object in a mode, or where it is hot one of its copies.
    pub(crate) fn held_or_copy(
        &self,
        key: &Key<'_>,
        mode: Mode,
        at: &CodeLocation,
    ) -> Result<Option<(Place<'_>, Hold<'_>)>, CacheError> {
        match self.copy_of(key)? {
            Some((copy, birth)) => self.held_copy(key, (copy, birth), mode, at),
            None => self.held(key, mode, at),
        }
    }

    /// Which copy of a hot object this session executes, by its processor; `None` for the object itself.
    fn copy_of(&self, key: &Key<'_>) -> Result<Option<(u8, u32)>, CacheError> {
        self.check(key)?;
        if self.cache.rows.head.most_copies.load(Relaxed) == 0 {
            return Ok(None);
        }
        let at = free_place(self.row)?;
        let Look::Found { object, block, .. } = self.look(key, key.hash().halves(), at) else { return Ok(None) };
        let place = Place { client: self, at, object, block };
        // The hand leaves it alone as long as its copies are used: the mark is in it.
        visit(block);
        let copies = place.block.copies.load(Relaxed);
        // SAFETY: takes no memory.
        let processor = unsafe { libc::sched_getcpu() };
        let spread = u32::try_from(processor).unwrap_or(self.session.sid().number());
        let copy = spread.checked_rem(u32::from(copies)).unwrap_or(0) as u8;
        Ok((copy != 0).then(|| (copy, place.block.birth.load(Relaxed))))
    }

    /// A copy of a hot object, which this session makes where there is none.
    fn held_copy(
        &self,
        key: &Key<'_>,
        (copy, birth): (u8, u32),
        mode: Mode,
        at: &CodeLocation,
    ) -> Result<Option<(Place<'_>, Hold<'_>)>, CacheError> {
        let name = key.copy(copy, birth);
        loop {
            if let Some(held) = self.held(&name, mode, at)? {
                return Ok(Some(held));
            }
            let Some(object) = self.get(key)? else { return Ok(None) };
            if object.place.block.birth.load(Relaxed) != birth {
                // It has changed meanwhile.
                drop(object);
                return self.held(key, mode, at);
            }
            match self.get_or_insert(&name, &object) {
                Ok(made) => drop(made),
                // There is no room for a copy: the object itself is there.
                Err(CacheError::Full { .. }) => {
                    drop(object);
                    return self.held(key, mode, at);
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// Marks an object as hot: sessions execute or call one of so many copies of it, 2 to 255, or the object
    /// alone with 1 or 0.
    ///
    /// # Errors
    ///
    /// `UnknownName` where there is none; `Copies` for more than
    /// [`Cache::copies_max`](crate::Cache::copies_max).
    pub fn mark_hot(&self, key: &Key<'_>, copies: u8) -> Result<(), CacheError> {
        self.check(key)?;
        self.mark(key.hash().halves(), copies, |shard, unit, block| shard.has_key(unit, block, key))
            .and_then(|found| if found { Ok(()) } else { Err(CacheError::UnknownName(key.to_string())) })
    }

    /// The same by full hash, as `retrial cache ls` shows it.
    ///
    /// # Errors
    ///
    /// `Unknown` where no object has this hash; `Copies` as above.
    pub fn mark_hot_by_hash(&self, hash: Hash, copies: u8) -> Result<(), CacheError> {
        self.mark(hash.halves(), copies, |_, _, _| true)
            .and_then(|found| if found { Ok(()) } else { Err(CacheError::Unknown(hash)) })
    }

    fn mark(
        &self,
        hash: [u64; 2],
        copies: u8,
        is_it: impl Fn(&Shard<'_>, u32, &Block) -> bool,
    ) -> Result<bool, CacheError> {
        let limit = self.cache.copies_max();
        if copies > limit {
            return Err(CacheError::Copies { found: copies, limit });
        }
        let shard = self.shard(hash);
        let locked = shard.lock(self.session, location!("kglhdgn2 106"))?;
        let found = shard.find(hash, |unit, block| is_it(shard, unit, block));
        let Some((_, block)) = found.filter(|(_, block)| block.copy.load(Relaxed) == 0) else { return Ok(false) };
        block.copies.store(copies.max(1), Relaxed);
        self.cache.rows.head.most_copies.fetch_max(u64::from(copies), Relaxed);
        drop(locked);
        Ok(true)
    }
}
