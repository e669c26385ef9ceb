//! A session's part in a cache: it finds, pins, builds, executes, changes and throws away objects.

use crate::cache::Cache;
use crate::error::CacheError;
use crate::key::Key;
use crate::layout::{BIASED, Block, CHANGING, ObjectRef, PINS, Phase, Pinned, Row};
use crate::pin::{Pin, Place};
use crate::rows::{FIRST_LINE, free_place};
use crate::shard::{self, Shard, count, has_hash, is_biased, phase, visit};
use crate::{is_dead, point};
use retrial::engine::EngineMutex;
use retrial::{CodeLocation, GetFailure, Hold, Mode, Patience, Session, location};
use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A session that takes part in a cache. Made by [`Cache::join`]; one for each session.
pub struct Client<'c> {
    pub(crate) cache: &'c Cache<'c>,
    pub(crate) session: &'c Session<'c>,
    pub(crate) row: &'c Row,
    /// Pins by each place of the row, beside the first one.
    pub(crate) further: [Cell<u64>; PINS],
    /// S of the cache: as long as a session's log has it, the library keeps the session known, also when it
    /// was leaked.
    pub(crate) _joined: Hold<'c>,
}

impl std::fmt::Debug for Client<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("sid", &self.session.sid()).finish_non_exhaustive()
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        if !self.session.is_forked() && !is_dead() {
            // No pin borrows it any more. Those that were forgotten end here.
            self.row.pins.iter().for_each(|pin| pin.store(0, Release));
            self.row.tag.store(0, Release);
        }
    }
}

/// Most looks for an object while others are taken out of their chains. Looks are as cheap as what such a
/// session does meanwhile; what comes after them gets mutexes.
const LOOKS: u32 = if cfg!(loom) { 2 } else { 32 };

/// What a look for an object without a lock found. Plain values, and the place is made of them where it stays:
/// moved about as a whole, a pin costs as much as all else of a get (measured: 45 instead of 30 ns).
pub(crate) enum Look<'c> {
    /// The place that was asked for in the row names it now.
    Found {
        object: ObjectRef,
        block: &'c Block,
        state: u32,
    },
    None,
    /// It has to be looked for under the shard's mutex.
    Unsure,
}

impl<'c> Client<'c> {
    /// The session that takes part.
    pub const fn session(&self) -> &'c Session<'c> {
        self.session
    }

    #[inline]
    pub(crate) fn check_owner(&self) -> Result<(), CacheError> {
        if self.session.is_forked() { Err(CacheError::Forked { owner: self.session.pid() }) } else { Ok(()) }
    }

    pub(crate) fn check(&self, key: &Key<'_>) -> Result<(), CacheError> {
        self.check_owner()?;
        key.check()
    }

    pub(crate) fn shard_of(&self, object: ObjectRef) -> &'c Shard<'c> {
        &self.cache.shards[object.shard() as usize]
    }

    pub(crate) fn shard(&self, hash: [u64; 2]) -> &'c Shard<'c> {
        self.cache.shard(hash)
    }

    /// Names an object in this session's row.
    #[inline]
    pub(crate) fn place<'s>(&'s self, at: usize, object: ObjectRef, block: &'s Block, how: Pinned) -> Place<'s> {
        let place = Place { client: self, at, object, block };
        Self::now_is(&place, how);
        place
    }

    /// Says for what a place names its object.
    #[inline]
    pub(crate) fn now_is(place: &Place<'_>, how: Pinned) {
        // Release: the place's depth is seen with it.
        place.client.row.pins[place.at].store(place.object.pin(how), Release);
    }

    /// Looks for an object without a lock and pins it, to read it.
    #[inline]
    pub(crate) fn look(&self, key: &Key<'_>, hash: [u64; 2], at: usize) -> Look<'_> {
        for _ in 0..LOOKS {
            if let Some(look) = self.look_once(key, hash, at) {
                return look;
            }
        }
        Look::Unsure
    }

    /// The same; `None` where an object was found, and another one was taken out of a chain meanwhile.
    #[inline]
    fn look_once(&self, key: &Key<'_>, hash: [u64; 2], at: usize) -> Option<Look<'_>> {
        let shard = self.shard(hash);
        let before = shard.moment();
        let mut unit = shard.first(hash[0]);
        // More than a chain has, but for one that another process has bent into a ring, or one of very many
        // versions, in which objects are found by the shard's mutex.
        for _ in 0..1000 {
            let Some(block) = shard.memory.block(unit) else {
                return Some(if unit == 0 && shard.is_as_at(before) { Look::None } else { Look::Unsure });
            };
            if has_hash(block, hash) {
                let place = self.place_to_read(at, shard.object(unit), block);
                point();
                // Acquire: what the builder wrote is seen.
                let state = block.state.load(Acquire);
                if Phase::of(state) != Some(Phase::Live) || !has_hash(block, hash) || !shard.has_key(unit, block, key) {
                    return Some(Look::Unsure);
                }
                // Else the object that was here may have been freed before it was pinned, and these may be
                // bytes of a value, which are whatever a session has written. If no object was taken out of a
                // chain up to now, this one is in its chain, and stays what it is from here on.
                if !shard.is_as_at(before) {
                    return None;
                }
                let object = place.object;
                std::mem::forget(place);
                return Some(Look::Found { object, block, state });
            }
            unit = block.next.load(Acquire);
        }
        Some(Look::Unsure)
    }

    /// The object of this name, to be read; `None` where there is none. Waits for one that is being built or
    /// changed.
    ///
    /// # Errors
    ///
    /// [`CacheError`]: a name that none can have, no room for another pin, a session of a parent process,
    /// `Deadlock` where this session builds or changes it.
    #[inline]
    pub fn get(&self, key: &Key<'_>) -> Result<Option<Pin<'_>>, CacheError> {
        self.check_owner()?;
        self.get_hashed(key, key.hash().halves())
    }

    /// The same, in the process of the session. A name that none can have is one that no object has, so it is looked
    /// at last.
    #[inline]
    pub(crate) fn get_hashed(&self, key: &Key<'_>, hash: [u64; 2]) -> Result<Option<Pin<'_>>, CacheError> {
        let at = free_place(self.row)?;
        match self.look(key, hash, at) {
            Look::Found { object, block, state } if is_biased(state) => {
                count(&self.row.hits);
                visit(block);
                Ok(Some(Pin { hold: None, place: Place { client: self, at, object, block } }))
            }
            Look::Found { object, block, .. } => {
                self.get_slow(key, hash, Some(Place { client: self, at, object, block }))
            }
            Look::None => self.missed(key),
            Look::Unsure => self.get_slow(key, hash, None),
        }
    }

    /// By mutexes: the object that was found, or what the shard's mutex finds.
    #[cold]
    pub(crate) fn get_slow<'s>(
        &'s self,
        key: &Key<'_>,
        hash: [u64; 2],
        mut found: Option<Place<'s>>,
    ) -> Result<Option<Pin<'s>>, CacheError> {
        loop {
            let place = match found.take() {
                Some(place) => place,
                None => match self.find(key, hash)? {
                    Some(place) => place,
                    None => return self.missed(key),
                },
            };
            // It may have gone, perhaps for another one of its name.
            if let Some(pin) = self.read_by_mutex(place)? {
                count(&self.row.hits);
                visit(pin.place.block);
                return Ok(Some(pin));
            }
        }
    }

    /// Of a get that has found nothing.
    fn missed<T>(&self, key: &Key<'_>) -> Result<Option<T>, CacheError> {
        count(&self.row.misses);
        key.check().map(|()| None)
    }

    /// Finds a live object under the shard's mutex, after waiting for its builder, and keeps it.
    fn find(&self, key: &Key<'_>, hash: [u64; 2]) -> Result<Option<Place<'_>>, CacheError> {
        let shard = self.shard(hash);
        loop {
            let held = shard.lock_shared(self.session)?;
            let Some((unit, block)) = shard.find(hash, |unit, block| shard.has_key(unit, block, key)) else {
                return Ok(None);
            };
            // Nobody ends an object without this mutex.
            let place = self.place(free_place(self.row)?, shard.object(unit), block, Pinned::Kept);
            drop(held);
            if phase(block) != Some(Phase::Building) {
                return Ok(Some(place));
            }
            self.wait_for_builder(&place)?;
        }
    }

    /// Asks the session whether it gives up a wait that is not one for a mutex, as each of those does.
    pub(crate) fn ask(&self) -> Result<(), CacheError> {
        let gives_up = self.session.asks_to_give_up();
        // The question may fork.
        self.check_owner()?;
        if gives_up { Err(GetFailure::TimedOut.into()) } else { Ok(()) }
    }

    /// Gets a pinned object's mutex in a mode. `None` where the object has gone, or a session died or
    /// panicked while it changed it: then it goes now.
    pub(crate) fn hold<'s>(
        &'s self,
        place: &Place<'s>,
        mode: Mode,
        at: &CodeLocation,
    ) -> Result<Option<Hold<'s>>, CacheError> {
        let block = place.block;
        if block.mutex.bound(self.cache.instance).ok().flatten().is_none_or(|raw| raw.id().0 == 0) {
            place.bind_mutex()?;
        }
        let patience = if self.own_pin(place).is_some() { Patience::None } else { Patience::Endless };
        let mut rounds = 0;
        let got = loop {
            match self.get_mutex(&block.mutex, mode, at, patience) {
                Err(CacheError::Get(GetFailure::Busy)) if is_biased(block.state.load(Acquire)) => {
                    rounds += 1;
                    self.pause(rounds)?;
                }
                // A session that has it in X may wait for this session's pin.
                Err(CacheError::Get(GetFailure::Busy | GetFailure::Deadlock { .. })) => {
                    return Err(CacheError::Deadlock);
                }
                got => break got?,
            }
        };
        let (mut held, is_released) = got;
        // Whether half of a change is there is in the object: the last death need not be that of the session
        // that changed it, and a session that panicked has not died. Acquire: pairs with the Release in
        // `Changed::drop`.
        let is_whole = block.state.load(Acquire) & CHANGING == 0;
        if is_whole && phase(block) == Some(Phase::Live) {
            if !is_released {
                // The dead session may have taken the privacy away and not waited for the readers: the next
                // session that changes the object waits for them.
                block.state.fetch_or(BIASED, AcqRel);
                point();
            }
            held.consistent();
            return Ok(Some(held));
        }
        drop(held);
        if !is_whole {
            let shard = self.shard_of(place.object);
            let locked = shard.lock(self.session, location!("kglhdgn2 106"))?;
            if phase(block) == Some(Phase::Live) {
                shard.throw_away(place.object.unit(), block);
            }
            drop(locked);
        }
        Ok(None)
    }

    /// Gets a mutex of the cache.
    pub(crate) fn get_mutex<'s>(
        &'s self,
        mutex: &'s EngineMutex,
        mode: Mode,
        at: &CodeLocation,
        patience: Patience,
    ) -> Result<(Hold<'s>, bool), CacheError> {
        shard::get(self.cache.instance, mutex, self.session, mode, at, patience)
    }

    /// Another place of this session's row by which it reads the object.
    fn own_pin(&self, place: &Place<'_>) -> Option<usize> {
        let reads = place.object.pin(Pinned::Read);
        let deep = (self.row.deep.load(Relaxed) as usize).clamp(FIRST_LINE, PINS);
        (0..deep).find(|at| *at != place.at && self.row.pins[*at].load(Relaxed) == reads)
    }

    /// Reads a pinned object by its mutex. Lets later readers do without, where the last revocation is long
    /// ago.
    #[cold]
    fn read_by_mutex<'s>(&'s self, place: Place<'s>) -> Result<Option<Pin<'s>>, CacheError> {
        if let Some(at) = self.own_pin(&place) {
            // Under that pin it stays what it is, and a session that has it in X waits for it: it is lent
            // again.
            let is_live = phase(place.block) == Some(Phase::Live);
            return Ok(is_live.then(|| {
                self.further[at].set(self.further[at].get() + 1);
                Pin { hold: None, place: Place { client: self, at, object: place.object, block: place.block } }
            }));
        }
        Self::now_is(&place, Pinned::Kept);
        point();
        let Some(hold) = self.hold(&place, Mode::Shared, location!("kglpndl1 95"))? else { return Ok(None) };
        count(&self.row.counted);
        if !self.cache.rows.head.is_counting() {
            // Nobody holds X, and a session that gets it sees this.
            place.block.state.fetch_or(self.cache.rows.head.bias(), AcqRel);
        }
        Ok(Some(Pin { hold: Some(hold), place }))
    }

    /// Finds an object and gets its mutex, to keep it meanwhile.
    pub(crate) fn held(
        &self,
        key: &Key<'_>,
        mode: Mode,
        at: &CodeLocation,
    ) -> Result<Option<(Place<'_>, Hold<'_>)>, CacheError> {
        self.check(key)?;
        let hash = key.hash().halves();
        loop {
            let free = free_place(self.row)?;
            let place = match self.look(key, hash, free) {
                Look::Found { object, block, .. } => Place { client: self, at: free, object, block },
                Look::None => return Ok(None),
                Look::Unsure => match self.find(key, hash)? {
                    Some(place) => place,
                    None => return Ok(None),
                },
            };
            Self::now_is(&place, Pinned::Kept);
            if let Some(hold) = self.hold(&place, mode, at)? {
                visit(place.block);
                return Ok(Some((place, hold)));
            }
        }
    }
}
