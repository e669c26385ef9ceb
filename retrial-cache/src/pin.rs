//! Objects that a session has pinned.

use crate::client::Client;
use crate::error::CacheError;
use crate::is_dead;
use crate::layout::{Block, CHANGING, ObjectRef};
use retrial::Hold;
use retrial::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// A place in a session's row that names an object; empty again when dropped.
pub(crate) struct Place<'c> {
    pub(crate) client: &'c Client<'c>,
    pub(crate) at: usize,
    pub(crate) object: ObjectRef,
    pub(crate) block: &'c Block,
}

impl Drop for Place<'_> {
    #[inline]
    fn drop(&mut self) {
        // A child of fork has a copy of its parent's.
        if !self.client.session.is_forked() && !is_dead() {
            let further = &self.client.further[self.at];
            match further.get() {
                // Release: what was read of the object was read before.
                0 => self.client.row.pins[self.at].store(0, Release),
                others => further.set(others - 1),
            }
        }
    }
}

impl Place<'_> {
    /// Gives the object's mutex an entry of the instance, by the object's name.
    pub(crate) fn bind_mutex(&self) -> Result<(), CacheError> {
        let (mutex_type, name) = self.client.shard_of(self.object).label(self.object.unit(), self.block);
        self.block.mutex.bind(self.client.cache.instance, mutex_type, &name)?;
        Ok(())
    }

    /// Where the value is, and its length.
    #[inline]
    fn value(&self) -> (*mut u8, usize) {
        let memory = self.client.shard_of(self.object).memory;
        let (begin, len) = memory.bytes(self.object.unit(), self.block);
        // Bytes of another process may say more than is there.
        (begin, (self.block.value_len.load(Relaxed) as usize).min(len))
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let (begin, len) = self.value();
        // SAFETY: the object is pinned, and its value changes only in X, which this pin or hold excludes.
        unsafe { std::slice::from_raw_parts(begin, len) }
    }

    /// # Safety
    ///
    /// No other session reads or writes the value.
    pub(crate) unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        let (begin, len) = self.value();
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts_mut(begin, len) }
    }
}

/// An object to be read: its bytes stay what they are until this is dropped, though the object may be thrown
/// away meanwhile. They begin at a multiple of 16.
#[must_use = "the object is unpinned at once otherwise"]
pub struct Pin<'c> {
    /// By which the object was found, where it could not be pinned in the row alone. Given back first.
    pub(crate) hold: Option<Hold<'c>>,
    pub(crate) place: Place<'c>,
}

impl Deref for Pin<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.place.bytes()
    }
}

impl Pin<'_> {
    /// The value as what it was built as: a number, an array, a slice, or a struct that derives zerocopy's
    /// traits. What another process might read otherwise than it was written is refused, as for
    /// [`retrial::Shareable`].
    ///
    /// # Errors
    ///
    /// [`CacheError::Type`] where its length is not that of the type. A type that has to be aligned to more
    /// than 16 bytes is refused as well.
    #[inline]
    pub fn value<T: FromBytes + KnownLayout + Immutable + ?Sized>(&self) -> Result<&T, CacheError> {
        T::ref_from_bytes(self).map_err(|_| no_value::<T>(self.len()))
    }

    /// Whether the pin is a store of this session alone, which no other session feels.
    #[must_use]
    pub const fn is_private(&self) -> bool {
        self.hold.is_none()
    }
}

impl fmt::Debug for Pin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin").field("bytes", &self.len()).field("private", &self.is_private()).finish()
    }
}

/// An object in X, to be changed in place.
///
/// When the session dies or panics before this is dropped, the next session that asks for the object throws
/// it away: nobody reads half of a change.
#[must_use = "the object is given back at once otherwise"]
pub struct Changed<'c> {
    pub(crate) _hold: Hold<'c>,
    pub(crate) place: Place<'c>,
    /// Whether the thread panicked already when it got this: then it says nothing of this change.
    pub(crate) panics: bool,
}

fn no_value<T: ?Sized>(found: usize) -> CacheError {
    CacheError::Type { found, expected: std::any::type_name::<T>() }
}

/// The bytes of a value that is built or changed, as a value of its type.
pub(crate) fn value_mut<T>(bytes: &mut [u8]) -> Result<&mut T, CacheError>
where
    T: FromBytes + IntoBytes + KnownLayout + ?Sized,
{
    let found = bytes.len();
    T::mut_from_bytes(bytes).map_err(|_| no_value::<T>(found))
}

impl Changed<'_> {
    /// The value as what it was built as, to be changed in place.
    ///
    /// # Errors
    ///
    /// As [`Pin::value`].
    pub fn value_mut<T>(&mut self) -> Result<&mut T, CacheError>
    where
        T: FromBytes + IntoBytes + KnownLayout + ?Sized,
    {
        value_mut(self)
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        let is_half = !self.panics && std::thread::panicking();
        if !is_half && !self.place.client.session.is_forked() && !is_dead() {
            // Release: after the last change.
            self.place.block.state.fetch_and(!CHANGING, Release);
        }
    }
}

impl Deref for Changed<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.place.bytes()
    }
}

impl DerefMut for Changed<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: held in X, with the other sessions' pins revoked.
        unsafe { self.place.bytes_mut() }
    }
}

impl fmt::Debug for Changed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changed").field("bytes", &self.len()).finish()
    }
}
