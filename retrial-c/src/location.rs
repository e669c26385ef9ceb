//! `retrial_location`: places in the code, registered by name once.

use crate::call::Text;
use crate::code::Failure;
use retrial::CodeLocation;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `retrial_location`, which `RETRIAL_HERE` makes one of for each place.
#[repr(C)]
pub(crate) struct CLocation {
    name: Text,
    /// The same for the library; NULL until the place is first passed.
    resolved: AtomicPtr<CodeLocation>,
}

/// Where C does not say where it is.
static UNKNOWN: CodeLocation = CodeLocation::new("C");

#[inline]
pub(crate) fn location(at: Option<&CLocation>) -> Result<&'static CodeLocation, Failure> {
    let Some(place) = at else { return Ok(&UNKNOWN) };
    // Acquire: pairs with the Release below.
    let resolved = place.resolved.load(Ordering::Acquire);
    // SAFETY: NULL, or leaked below.
    match unsafe { resolved.as_ref() } {
        Some(resolved) => Ok(resolved),
        None => place.resolve(),
    }
}

impl CLocation {
    #[cold]
    fn resolve(&self) -> Result<&'static CodeLocation, Failure> {
        let name = self.name.get("location->name")?;
        // Once for each place. Where two threads come at once, both stay.
        let made = Box::leak(Box::new(CodeLocation::new(String::leak(name.to_owned()))));
        self.resolved.store(made, Ordering::Release);
        Ok(made)
    }
}
