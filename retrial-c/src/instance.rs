//! `retrial_instance`: the calls that create, open and close instances.

use crate::call::{Uncancelled, code, failure, null, out, text};
use crate::code::{Answer, Code, Failure};
use crate::header::ABI;
use libc::mode_t;
use retrial::{Address, Capacity, Instance};
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};

/// `retrial_capacity`: what an instance has room for; 0 is the default of each.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CCapacity {
    sessions: u32,
    mutexes: u32,
    locations: u32,
    rows: u32,
    arena: u64,
}

/// `retrial_instance`. Its memory is never freed, so that a closed one is recognised.
pub(crate) struct Handle {
    /// Open sessions and calls under way, or `CLOSED`.
    users: AtomicU32,
    instance: UnsafeCell<ManuallyDrop<Instance>>,
}

const CLOSED: u32 = u32::MAX;

// SAFETY: the instance is shared as `&Instance` while it is open, and dropped by the one thread that closes it.
unsafe impl Sync for Handle {}

/// An instance that stays open.
pub(crate) struct Open(pub(crate) &'static Handle);

impl Open {
    /// # Safety
    ///
    /// NULL, or what one of the calls here gave.
    pub(crate) unsafe fn new(at: *const Handle) -> Result<Self, Failure> {
        // SAFETY: such a handle is never freed.
        let handle = unsafe { at.as_ref() }.ok_or_else(|| null("instance", "an open instance"))?;
        // Acquire: pairs with the Release of the drops below.
        let entered = handle
            .users
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |users| (users < CLOSED - 1).then(|| users + 1));
        entered.map_err(|_| failure(Code::Gone, "the instance is closed; open it again"))?;
        Ok(Self(handle))
    }

    /// It may be used as long as this one is open.
    pub(crate) fn instance(&self) -> &'static Instance {
        // SAFETY: written when the handle was made, and dropped only when it has no users.
        let instance: &'static ManuallyDrop<Instance> = unsafe { &*self.0.instance.get() };
        instance
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Release);
    }
}

fn handle(instance: Instance) -> *mut Handle {
    let instance = UnsafeCell::new(ManuallyDrop::new(instance));
    Box::into_raw(Box::new(Handle { users: AtomicU32::new(0), instance }))
}

/// # Safety
///
/// NULL, or a `retrial_capacity`.
unsafe fn capacity(at: *const CCapacity) -> Capacity {
    let default = Capacity::default();
    // SAFETY: the caller's.
    let Some(asked) = (unsafe { at.as_ref() }) else { return default };
    let or = |asked: u32, default: u32| if asked == 0 { default } else { asked };
    Capacity {
        sessions: or(asked.sessions, default.sessions),
        mutexes: or(asked.mutexes, default.mutexes),
        locations: or(asked.locations, default.locations),
        rows: or(asked.rows, default.rows),
        arena: if asked.arena == 0 { default.arena } else { asked.arena },
    }
}

/// Gives C an instance, if its header is of this library.
unsafe fn give(abi: u64, to: *mut *mut Handle, make: impl FnOnce() -> Result<Instance, Failure>) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: the caller's.
    code(unsafe {
        out("instance", to, || {
            if abi != ABI {
                return Err(failure(
                    Code::Format,
                    format_args!(
                        "the program was compiled with a retrial.h of ABI {abi:#x}, this library has {ABI:#x}; \
                         compile it with the header of the library that it runs with"
                    ),
                ));
            }
            make().map(handle)
        })
    })
}

/// # Safety
///
/// As for [`text`].
unsafe fn address(at: *const c_char) -> Result<Address, Failure> {
    // SAFETY: the caller's.
    let text = unsafe { text("address", at) }?;
    Address::new(text).map_err(|error| failure(Code::Invalid, error))
}

/// `retrial_instance_create`.
///
/// # Safety
///
/// Pointers are NULL or what the header says; so it is with all calls of this crate.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_instance_create_abi(
    abi: u64,
    name: *const c_char,
    asked: *const CCapacity,
    permissions: mode_t,
    to: *mut *mut Handle,
) -> c_int {
    // SAFETY: the caller's.
    let create = || unsafe { Ok(Instance::create(&address(name)?, capacity(asked), permissions)?) };
    // SAFETY: the caller's.
    unsafe { give(abi, to, create) }
}

/// `retrial_instance_attach`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_instance_attach_abi(
    abi: u64,
    name: *const c_char,
    to: *mut *mut Handle,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { give(abi, to, || Ok(Instance::attach(&address(name)?)?)) }
}

/// `retrial_instance_open`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_instance_open_abi(
    abi: u64,
    name: *const c_char,
    asked: *const CCapacity,
    permissions: mode_t,
    to: *mut *mut Handle,
) -> c_int {
    // SAFETY: the caller's.
    let open = || unsafe { open(&address(name)?, capacity(asked), permissions) };
    // SAFETY: the caller's.
    unsafe { give(abi, to, open) }
}

/// Attaches or creates; a file that is none of ours is told apart from one that cannot be created.
fn open(address: &Address, capacity: Capacity, permissions: u32) -> Result<Instance, Failure> {
    use retrial::{AttachError::NotFound, CreateError::Exists};
    loop {
        match Instance::attach(address) {
            Err(NotFound(_)) => {}
            other => return Ok(other?),
        }
        match Instance::create(address, capacity, permissions) {
            Err(Exists(_)) => {}
            other => return Ok(other?),
        }
    }
}

/// `retrial_instance_anonymous`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_instance_anonymous_abi(
    abi: u64,
    asked: *const CCapacity,
    to: *mut *mut Handle,
) -> c_int {
    // SAFETY: the caller's.
    let make = || Ok(Instance::anonymous(unsafe { capacity(asked) })?);
    // SAFETY: the caller's.
    unsafe { give(abi, to, make) }
}

/// `retrial_instance_close`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_instance_close(at: *const Handle) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: the caller's.
    code(unsafe { close(at) })
}

unsafe fn close(at: *const Handle) -> Answer {
    // SAFETY: the caller's.
    let open = ManuallyDrop::new(unsafe { Open::new(at) }?);
    // Acquire: pairs with the Release of the last user's drop. This call is a user itself.
    if let Err(users) = open.0.users.compare_exchange(1, CLOSED, Ordering::Acquire, Ordering::Relaxed) {
        drop(ManuallyDrop::into_inner(open));
        let users = users - 1;
        return Err(failure(
            Code::Busy,
            format_args!("the instance has {users} open sessions or calls under way, expected 0; close them first"),
        ));
    }
    // SAFETY: nobody else enters a closed one, and this thread alone has closed it.
    let instance = unsafe { &mut *open.0.instance.get() };
    // SAFETY: dropped once.
    unsafe { ManuallyDrop::drop(instance) };
    Ok(())
}

/// `retrial_instance_remove`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_instance_remove(name: *const c_char) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: the caller's.
    let address = unsafe { address(name) };
    code(address.and_then(|address| Ok(retrial::remove(&address)?)))
}
