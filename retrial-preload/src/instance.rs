//! The instance of this process, and the types that its mutexes have there.

use retrial::Instance;
use retrial::views::{EVENT_TYPES, TypeId};
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

static INSTANCE: AtomicPtr<Instance> = AtomicPtr::new(null_mut());

/// The instance, once the constructor has run.
#[inline]
pub(crate) fn instance() -> Option<&'static Instance> {
    // SAFETY: null, or `set`, for good.
    unsafe { INSTANCE.load(Ordering::SeqCst).as_ref() }
}

/// For [`process::publish`](crate::process::publish).
pub(crate) fn set(instance: &'static Instance) {
    INSTANCE.store(from_ref(instance).cast_mut(), Ordering::SeqCst);
}

/// The types of what is waited for, in the instance.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Type {
    Mutex,
    SharedMutex,
    Rwlock,
    Spin,
    Semaphore,
    Barrier,
    Condition,
}

const TYPE_NAMES: [&str; 7] = [
    "pthread mutex",
    "pthread mutex shared",
    "pthread rwlock",
    "pthread spin",
    EVENT_TYPES[0],
    EVENT_TYPES[1],
    EVENT_TYPES[2],
];
static TYPES: [AtomicU8; TYPE_NAMES.len()] = [const { AtomicU8::new(0) }; TYPE_NAMES.len()];

impl Type {
    pub(crate) fn id(self) -> TypeId {
        TypeId(TYPES[self as usize].load(Ordering::Relaxed))
    }

    /// Registers all; a type that finds no place goes as the first one.
    pub(crate) fn register_all(instance: &Instance) {
        for (name, id) in TYPE_NAMES.iter().zip(&TYPES) {
            if let Ok(found) = instance.register_type(name) {
                id.store(found.0, Ordering::Relaxed);
            }
        }
    }
}
