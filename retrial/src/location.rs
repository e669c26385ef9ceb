//! Places in the code, by name.

use crate::instance::Instance;
use crate::operation_log::LocationId;
use crate::sys::{AtomicU64, Ordering};

/// The last resolution of a location's name: the instance's tag in this process in the lower half, and the id
/// in the upper one, where a log record has it. 0 before the first.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct LocationCache(AtomicU64);

impl LocationCache {
    /// Of a name that was never resolved.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The id in the instance; `None` if the last resolution was in another one.
    #[inline]
    #[must_use]
    pub fn get(&self, instance: &Instance) -> Option<LocationId> {
        // Relaxed: the value is whole or belongs to another instance.
        let cached = self.0.load(Ordering::Relaxed);
        if cached as u32 == instance.tag() { Some(LocationId((cached >> 32) as u16)) } else { None }
    }

    /// The id of the location of this name in the instance; 0 when the table of locations is full.
    #[cold]
    pub fn resolve(&self, instance: &Instance, name: &str) -> LocationId {
        let id = instance.register_location(name).unwrap_or_default();
        self.0.store(u64::from(id.0) << 32 | u64::from(instance.tag()), Ordering::Relaxed);
        id
    }
}

/// A place in the code, for `location!`.
#[derive(Debug)]
pub struct CodeLocation {
    name: &'static str,
    cache: LocationCache,
}

impl CodeLocation {
    /// A location of this name; the same name is the same location.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, cache: LocationCache::new() }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its id in the instance; 0 when the table of locations is full.
    #[inline]
    pub fn id(&self, instance: &Instance) -> LocationId {
        self.cache.get(instance).unwrap_or_else(|| self.cache.resolve(instance, self.name))
    }
}

/// The place in the code where this stands, registered by name on first use: `location!()` is named after its
/// file and line, `location!("kglpin1 4")` as it says.
#[macro_export]
macro_rules! location {
    () => {
        $crate::location!(concat!(file!(), ":", line!()))
    };
    ($name:expr) => {{
        static LOCATION: $crate::CodeLocation = $crate::CodeLocation::new($name);
        &LOCATION
    }};
}
