//! What the tests here share: instances with room for one cache, keys, values, and random numbers.
#![allow(dead_code)] // each test binary uses its part of it

use retrial::{Capacity, Class, Instance};
use retrial_cache::{Cache, Key, Namespace, Shape};
use std::convert::Infallible;

/// Room for one cache of this shape and for so many sessions.
pub(crate) fn capacity(shape: Shape, sessions: u32) -> Capacity {
    Capacity { sessions, arena: shape.arena(sessions), ..Capacity::default() }
}

pub(crate) fn instance(shape: Shape, sessions: u32) -> Instance {
    Instance::anonymous(capacity(shape, sessions)).unwrap()
}

pub(crate) fn key(name: &str) -> Key<'_> {
    Key::new(Namespace::Object, "S", name)
}

/// Gives a value its bytes, which are all the same.
pub(crate) fn fill(with: u8) -> impl Fn(&mut [u8]) -> Result<(), Infallible> {
    move |bytes| {
        bytes.fill(with);
        Ok(())
    }
}

pub(crate) fn is_whole(cache: &Cache<'_>, instance: &Instance) {
    let session = instance.session("check", Class::Normal).unwrap();
    let audit = cache.check(&session).unwrap();
    assert!(audit.wrong.is_empty(), "{:#?}", audit.wrong);
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        // The constants of Knuth's MMIX.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}
