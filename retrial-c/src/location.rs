//! `retrial_location`: places in the code, registered by name once.

use crate::call::Text;
use crate::code::Failure;
use retrial::Instance;
use retrial::engine::{Field, LocationCache};
use retrial::views::LocationId;
use std::mem::offset_of;

/// `retrial_location`, which `RETRIAL_HERE` makes one of for each place.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CLocation {
    name: Text,
    resolved: LocationCache,
}

// SAFETY: the name is read only.
unsafe impl Sync for CLocation {}

/// Its fields in the header.
pub(crate) const FIELDS: [Field; 2] = [
    ("name", offset_of!(CLocation, name), "const char *", "a string that stays"),
    ("resolved", offset_of!(CLocation, resolved), "uint64_t ", "a number, and the instance"),
];

impl CLocation {
    /// Where C does not say where it is.
    pub(crate) const fn unknown() -> Self {
        Self { name: Text::literal(c"C"), resolved: LocationCache::new() }
    }

    /// Its id in an instance.
    #[inline]
    pub(crate) fn id(&self, instance: &Instance) -> Result<LocationId, Failure> {
        self.resolved.get(instance).map_or_else(|| self.resolve(instance), Ok)
    }

    #[cold]
    fn resolve(&self, instance: &Instance) -> Result<LocationId, Failure> {
        Ok(self.resolved.resolve(instance, self.name.get("location->name")?))
    }
}
