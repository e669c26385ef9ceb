//! How objects are made: built by one session while the others wait, put in the place of another one.

use crate::changing::ASK_EVERY_NS;
use crate::client::Client;
use crate::error::CacheError;
use crate::key::Key;
use crate::layout::{BIASED, BUILDERS, Block, Phase, Pinned, UNIT};
use crate::memory::Memory;
use crate::pin::{Pin, Place, value_mut};
use crate::rows::free_place;
use crate::shard::{New, change_phase, hash_of, is_apart, is_biased, phase};
use crate::{is_dead, point};
use retrial::zerocopy::{FromBytes, IntoBytes, KnownLayout};
use retrial::{GetFailure, Hold, Mode, Patience, location, sys};
use std::error::Error;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

/// Maximum wait for a builder's mutex before the session looks whether the object is built.
const BUILDER_WAIT: Duration = Duration::from_millis(100);

impl Client<'_> {
    /// The object of this name; where there is none, this session builds it, and others wait for it.
    /// `value_len` bytes, which are 0 at first.
    ///
    /// Nothing is left of an object whose builder fails, panics or dies: the next session builds it.
    ///
    /// # Errors
    ///
    /// [`CacheError`]: `Build` with what `build` gave; `TooLarge`, `Full`; as [`Client::get`].
    pub fn get_or_create<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        key: &Key<'_>,
        value_len: usize,
        build: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Pin<'_>, CacheError> {
        loop {
            if let Some(pin) = self.get(key)? {
                return Ok(pin);
            }
            if let Some(mut made) = self.begin(key, value_len, false)? {
                return made.build(build);
            }
        }
    }

    /// The same with a value that is there.
    ///
    /// # Errors
    ///
    /// As [`Client::get_or_create`].
    pub fn get_or_insert(&self, key: &Key<'_>, value: &[u8]) -> Result<Pin<'_>, CacheError> {
        self.get_or_create(key, value.len(), |bytes| {
            bytes.copy_from_slice(value);
            Ok::<_, std::convert::Infallible>(())
        })
    }

    /// The same with a value of a type, all bytes 0 at first: [`Pin::value`] reads it.
    ///
    /// # Errors
    ///
    /// As [`Client::get_or_create`]. An object that is there already may be of another type: [`Pin::value`]
    /// says so.
    ///
    /// A type that has to be aligned to more than 16 bytes is refused by the compiler.
    pub fn get_or_create_value<T, E>(
        &self,
        key: &Key<'_>,
        build: impl FnOnce(&mut T) -> Result<(), E>,
    ) -> Result<Pin<'_>, CacheError>
    where
        T: FromBytes + IntoBytes + KnownLayout,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        const { assert!(align_of::<T>() <= UNIT, "values begin at multiples of 16 bytes") };
        self.get_or_create(key, size_of::<T>(), |bytes| build(value_mut(bytes)?).map_err(Into::into))
    }

    /// Puts another value in the place of an object, or makes it: sessions that have the old one pinned read
    /// on, and those that ask from now on get the new one. Hot copies of the old one are not found any more.
    ///
    /// # Errors
    ///
    /// As [`Client::get_or_create`]; the old object stays then.
    pub fn replace<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        key: &Key<'_>,
        value_len: usize,
        build: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Pin<'_>, CacheError> {
        self.check(key)?;
        match self.begin(key, value_len, true)? {
            Some(mut made) => made.build(build),
            None => Err(CacheError::Deadlock),
        }
    }

    /// Begins an object that this session is to build. `None` where it has been made meanwhile.
    fn begin(&self, key: &Key<'_>, value_len: usize, is_apart: bool) -> Result<Option<Made<'_>>, CacheError> {
        let hash = key.hash().halves();
        let shard = self.shard(hash);
        let largest = shard.memory.largest().saturating_sub(key.len());
        if value_len > largest {
            return Err(CacheError::TooLarge { found: value_len, largest });
        }
        let (builder, hold) = self.builder()?;
        let locked = shard.lock(self.session, location!("kglhdgn1 62"))?;
        // Not before that wait: a session that is asked whether to give up may pin objects in its answer.
        let at = free_place(self.row)?;
        let has_key = |unit: u32, block: &Block| shard.has_key(unit, block, key);
        if !is_apart && shard.find(hash, has_key).is_some() {
            return Ok(None);
        }
        let unit = shard.room(Memory::units(key.len(), value_len))?;
        let Some(block) = shard.memory.block(unit) else { return Err(CacheError::Full { needed: value_len }) };
        // Before it is an object: one that is being built, and that nobody builds, goes.
        let place = self.place(at, shard.object(unit), block, Pinned::Built);
        point();
        shard.fill(unit, &New { key, hash, value_len, builder, is_apart });
        if !is_apart {
            shard.link(unit, block);
        }
        point();
        drop(locked);
        Ok(Some(Made { place: Some(place), _hold: hold }))
    }

    /// A mutex in LX for a builder, that sessions can wait for; none where all are held.
    fn builder(&self) -> Result<(u16, Option<Hold<'_>>), CacheError> {
        let from = self.session.sid().number() as usize;
        for number in (0..BUILDERS).map(|i| (from + i) % BUILDERS) {
            let at = location!("kglhdgn1 62");
            match self.get_mutex(self.cache.builders[number], Mode::LongExclusive, at, Patience::None) {
                Ok((mut held, is_released)) => {
                    if !is_released {
                        // The next session that finds what the dead one was building throws it away.
                        held.consistent();
                    }
                    return Ok((number as u16, Some(held)));
                }
                Err(CacheError::Get(GetFailure::Busy | GetFailure::Deadlock { .. })) => {}
                Err(other) => return Err(other),
            }
        }
        Ok((u16::MAX, None))
    }

    /// Waits until an object is no longer being built, and throws it away where its builder has died.
    pub(crate) fn wait_for_builder(&self, place: &Place<'_>) -> Result<(), CacheError> {
        let (shard, unit) = (self.shard_of(place.object), place.object.unit());
        // The row and not the SID, which a dead builder may have had before.
        if self.row.pins.iter().any(|pin| pin.load(Relaxed) == place.object.pin(Pinned::Built)) {
            return Err(CacheError::Deadlock);
        }
        if let Some(mutex) = self.cache.builders.get(usize::from(place.block.builder.load(Relaxed))) {
            // Not for ever: the builder may be done, and have the mutex again to build another object, which may need
            // one that this session builds.
            let patience = Patience::within(BUILDER_WAIT);
            let _ = self.session.gave_up();
            match self.get_mutex(mutex, Mode::Shared, location!("kglpin1 4"), patience) {
                // This session builds another object by it: the builder of this one is gone.
                Ok(_) | Err(CacheError::Get(GetFailure::Deadlock { .. })) => {}
                Err(CacheError::Get(GetFailure::TimedOut)) if !self.session.gave_up() => {}
                Err(other) => return Err(other),
            }
        } else {
            // More build at a time than there are mutexes for.
            let asks_at_ns = sys::now_ns() + ASK_EVERY_NS;
            while phase(place.block) == Some(Phase::Building) && shard.is_being_built(unit) {
                if sys::now_ns() >= asks_at_ns {
                    self.cache.instance.look_for_threads();
                    break;
                }
                sys::sleep(Duration::from_millis(1));
                self.ask()?;
            }
        }
        if phase(place.block) == Some(Phase::Building) && !shard.is_being_built(unit) {
            let held = shard.lock(self.session, location!("kglhdgn2 106"))?;
            if phase(place.block) == Some(Phase::Building) && !shard.is_being_built(unit) {
                shard.throw_away(unit, place.block);
            }
            drop(held);
        }
        Ok(())
    }

    /// Puts a built object into the place of those of its name.
    fn put_in_place(&self, place: &Place<'_>) -> Result<(), CacheError> {
        let (shard, block) = (self.shard_of(place.object), place.block);
        let locked = shard.lock(self.session, location!("kglhdgn1 62"))?;
        let is_old = |unit: u32, old: &Block| {
            unit != place.object.unit() && shard.key_bytes(unit, old) == shard.key_bytes(place.object.unit(), block)
        };
        let old = shard.find(hash_of(block), is_old);
        if let Some((_, old)) = old {
            block.copies.store(old.copies.load(Relaxed), Relaxed);
            // It stays in its chain until the new one is there: sessions that find it ask for the shard's
            // mutex.
            shard.end(old);
        }
        // As its builder has pinned it, whatever the cache says by now.
        let bias = block.state.load(Relaxed) & BIASED;
        // Release: a session that sees it live sees its value.
        block.state.store(Phase::Live as u32 | bias, Release);
        point();
        shard.link(place.object.unit(), block);
        point();
        if let Some((unit, old)) = old {
            shard.unlink(unit, old);
            // The new one is there whatever comes of it: what cannot go now goes when the hand comes by.
            shard.leave(unit, old);
        }
        drop(locked);
        Ok(())
    }
}

/// An object that this session builds: thrown away when dropped before it is built.
struct Made<'c> {
    place: Option<Place<'c>>,
    _hold: Option<Hold<'c>>,
}

impl<'c> Made<'c> {
    fn build<E: Into<Box<dyn Error + Send + Sync>>>(
        &mut self,
        build: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Pin<'c>, CacheError> {
        if let Some(place) = &mut self.place {
            // SAFETY: nobody reads or writes an object that this session builds.
            let bytes = unsafe { place.bytes_mut() };
            bytes.fill(0);
            build(bytes).map_err(|error| CacheError::Build(error.into()))?;
            // In a child that was forked meanwhile it is the parent's, which may still build it.
            place.client.check_owner()?;
        }
        let hold = self.place.as_ref().map_or(Ok(None), Place::count_builder)?;
        let Some(place) = self.place.take() else { return Err(CacheError::Deadlock) };
        point();
        // The hold is given back before the place, also where it has not come into its place.
        let pin = Pin { hold, place };
        let Pin { hold, place } = &pin;
        if is_apart(place.block) {
            place.client.put_in_place(place)?;
        } else {
            // A session that sees it live sees its value. What was thrown away meanwhile is this session's
            // alone.
            change_phase(place.block, Phase::Building, Phase::Live);
        }
        point();
        // Not before: a session that finds the object being built, and no builder of it, throws it away. One
        // that gets it in X meanwhile waits for its builder as for a reader.
        Client::now_is(place, if hold.is_some() { Pinned::Kept } else { Pinned::Read });
        point();
        Ok(pin)
    }
}

impl<'c> Place<'c> {
    /// The mutex of an object that this session builds, in S, where the object's readers are counted there: a
    /// session that changes such an object does not look at the rows. No other session gets the mutex before
    /// the object is live.
    fn count_builder(&self) -> Result<Option<Hold<'c>>, CacheError> {
        let (client, block) = (self.client, self.block);
        if is_biased(block.state.load(Relaxed)) {
            return Ok(None);
        }
        self.bind_mutex()?;
        point();
        let (hold, _) = client.get_mutex(&block.mutex, Mode::Shared, location!("kglpndl1 95"), Patience::Endless)?;
        Ok(Some(hold))
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let (client, unit) = (place.client, place.object.unit());
        if client.session.is_forked() || is_dead() {
            std::mem::forget(place);
            return;
        }
        let shard = client.shard_of(place.object);
        if let Ok(locked) = shard.lock(client.session, location!("kglhdgn2 106")) {
            shard.throw_away(unit, place.block);
            drop(place);
            // As above.
            shard.evict(&[unit]);
            drop(locked);
        }
    }
}
