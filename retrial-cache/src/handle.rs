//! A name that a session asks for again and again: where its object was found last is kept with it.

use crate::client::Client;
use crate::error::CacheError;
use crate::key::Key;
use crate::layout::{Block, ObjectRef, Phase, Pinned};
use crate::pin::{Pin, Place};
use crate::point;
use crate::rows::free_place;
use crate::shard::{count, is_biased, visit};
use retrial::sys::protocol::fence;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, SeqCst};

/// A name, and where a session found its object last. Made by [`Client::handle`].
///
/// [`Handle::get`] does what [`Client::get`] does, but looks the name up only where the object has changed or where
/// any object of its shard was replaced, evicted or thrown away since: the sources' engine keeps such handles as
/// *cached cursors*. A handle keeps no object from being changed, replaced or evicted.
pub struct Handle<'c> {
    client: &'c Client<'c>,
    key: Key<'c>,
    hash: [u64; 2],
    found: Cell<Option<Found<'c>>>,
}

/// Where an object was, in its chain, and what had been taken out of its shard's chains up to then.
#[derive(Clone, Copy)]
struct Found<'c> {
    object: ObjectRef,
    block: &'c Block,
    moment: u64,
}

impl fmt::Debug for Handle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<'c> Client<'c> {
    /// A handle of the object of this name, which need not be there.
    ///
    /// # Errors
    ///
    /// [`CacheError`]: a name that none can have, a session of a parent process.
    pub fn handle(&'c self, key: &Key<'c>) -> Result<Handle<'c>, CacheError> {
        self.check(key)?;
        Ok(Handle { client: self, key: *key, hash: key.hash().halves(), found: Cell::new(None) })
    }
}

impl Client<'_> {
    /// Names an object in this session's row to read it, before the session looks at the object.
    #[inline]
    pub(crate) fn place_to_read<'s>(&'s self, at: usize, object: ObjectRef, block: &'s Block) -> Place<'s> {
        let place = self.place(at, object, block, Pinned::Read);
        // SeqCst: pairs with the fence before a look at the rows.
        fence(SeqCst);
        place
    }
}

impl<'c> Handle<'c> {
    /// What it is the handle of.
    #[must_use]
    pub const fn key(&self) -> &Key<'c> {
        &self.key
    }

    /// The object, to be read, as [`Client::get`] gives it.
    ///
    /// # Errors
    ///
    /// As [`Client::get`].
    #[inline]
    pub fn get(&self) -> Result<Option<Pin<'c>>, CacheError> {
        match self.place()? {
            Some(place) => Ok(Some(Pin { hold: None, place })),
            None => self.look_up(),
        }
    }

    /// What `read` makes of the object while it is pinned; `None` where there is none. The fastest way to look at
    /// an object: a pin that is given away is moved about.
    ///
    /// # Errors
    ///
    /// As [`Client::get`].
    #[inline]
    pub fn read<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, CacheError> {
        if let Some(place) = self.place()? {
            return Ok(Some(read(place.bytes())));
        }
        Ok(self.look_up()?.map(|pin| read(&pin)))
    }

    /// The object, pinned where it was found last, if it is there and readers pin it in their rows alone.
    #[inline]
    fn place(&self) -> Result<Option<Place<'c>>, CacheError> {
        let client = self.client;
        let Some(Found { object, block, moment }) = self.found.get() else { return Ok(None) };
        if client.session.is_forked() {
            return Ok(None);
        }
        let place = client.place_to_read(free_place(client.row)?, object, block);
        point();
        // Acquire: what the builder wrote is seen.
        let state = block.state.load(Acquire);
        let is_read_by_rows = Phase::of(state) == Some(Phase::Live) && is_biased(state);
        // If no object was taken out of a chain, this one is in its own, and stays what it is from here on. Else
        // these may be bytes of another one's value.
        if !is_read_by_rows || !client.shard_of(object).is_as_at(moment) {
            return Ok(None);
        }
        count(&client.row.hits);
        visit(block);
        Ok(Some(place))
    }

    #[cold]
    fn look_up(&self) -> Result<Option<Pin<'c>>, CacheError> {
        let client = self.client;
        client.check(&self.key)?;
        let shard = client.shard(self.hash);
        let moment = shard.moment();
        let pin = client.get_hashed(&self.key, self.hash)?;
        // It was in its chain all the time.
        let is_sure = shard.is_as_at(moment);
        self.found.set(pin.as_ref().filter(|_| is_sure).map(|pin| {
            let (object, block) = (pin.place.object, pin.place.block);
            Found { object, block, moment }
        }));
        Ok(pin)
    }
}
