//! Places in the code, by name.

use crate::instance::Instance;
use crate::operation_log::LocationId;
use crate::sys::{AtomicU64, Ordering};

/// A place in the code, for `location!`.
#[derive(Debug)]
pub struct CodeLocation {
    name: &'static str,
    /// Tag of the instance and id in it of the last resolution.
    cache: AtomicU64,
}

impl CodeLocation {
    /// A location of this name; the same name is the same location.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, cache: AtomicU64::new(0) }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its id in the instance; 0 when the table of locations is full.
    #[inline]
    pub fn id(&self, instance: &Instance) -> LocationId {
        // Relaxed: the value is whole or belongs to another instance.
        let cached = self.cache.load(Ordering::Relaxed);
        if cached >> 16 == instance.tag() { LocationId(cached as u16) } else { self.resolve(instance) }
    }

    #[cold]
    fn resolve(&self, instance: &Instance) -> LocationId {
        let id = instance.register_location(self.name).unwrap_or_default();
        self.cache.store(instance.tag() << 16 | u64::from(id.0), Ordering::Relaxed);
        id
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
