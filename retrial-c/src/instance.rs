//! `retrial_instance`: the calls that create, open and close instances.

use crate::call::{Out, Text, Uncancelled, code, failure, null, out};
use crate::code::{Answer, Code, Failure};
use crate::header;
use libc::mode_t;
use retrial::{Address, Capacity, CreateError, Instance, sys};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Open sessions and calls under way, behind the id of the process that has them; or `CLOSED`.
    users: AtomicU64,
    instance: UnsafeCell<ManuallyDrop<Instance>>,
}

const CLOSED: u64 = u64::MAX;

/// The users, without the process.
const COUNT: u64 = u32::MAX as u64;

/// A process without users. What a child of fork finds of its parent's are none of its own.
fn no_users() -> u64 {
    u64::from(sys::known_pid()) << 32
}

// SAFETY: the instance is shared as `&Instance` while it is open, and dropped by the one thread that closes it.
unsafe impl Sync for Handle {}

/// An instance that stays open in this process.
pub(crate) struct Open {
    handle: &'static Handle,
    /// The process, as `no_users` gave it.
    of: u64,
}

impl Open {
    pub(crate) fn new(at: Option<&'static Handle>) -> Result<Self, Failure> {
        let handle = at.ok_or_else(|| null("instance", "an open instance"))?;
        let none = no_users();
        let enter = |users| match users {
            CLOSED => None,
            users if users & !COUNT == none => Some(users + 1),
            _ => Some(none + 1),
        };
        // Acquire: pairs with the Release of the drops below.
        let entered = handle.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter);
        entered.map_err(|_| failure(Code::Gone, "the instance is closed; open it again"))?;
        Ok(Self { handle, of: none })
    }

    /// It may be used as long as this one is open.
    pub(crate) fn instance(&self) -> &'static Instance {
        // SAFETY: written when the handle was made, and dropped only when it has no users.
        let instance: &'static ManuallyDrop<Instance> = unsafe { &*self.handle.instance.get() };
        instance
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // In a child of fork a parent's is not counted.
        if self.of == no_users() {
            self.handle.users.fetch_sub(1, Ordering::Release);
        }
    }
}

fn handle(instance: Instance) -> &'static Handle {
    // For leak checkers: C has forgotten the handle once it is closed.
    static MADE: Mutex<Vec<&Handle>> = Mutex::new(Vec::new());
    let instance = UnsafeCell::new(ManuallyDrop::new(instance));
    let handle = &*Box::leak(Box::new(Handle { users: AtomicU64::new(0), instance }));
    // Not where another thread had the list when this process was forked.
    if let Ok(mut made) = MADE.try_lock() {
        made.push(handle);
    }
    handle
}

fn capacity(asked: Option<&CCapacity>) -> Capacity {
    let default = Capacity::default();
    let Some(asked) = asked else { return default };
    let or = |asked: u32, default: u32| if asked == 0 { default } else { asked };
    Capacity {
        sessions: or(asked.sessions, default.sessions),
        mutexes: or(asked.mutexes, default.mutexes),
        locations: or(asked.locations, default.locations),
        rows: or(asked.rows, default.rows),
        arena: if asked.arena == 0 { default.arena } else { asked.arena },
    }
}

/// Where C gets an instance.
type To<'a> = Out<'a, &'static Handle>;

/// Gives C an instance, if its header is of this library.
fn give(abi: u64, to: To, make: impl FnOnce() -> Result<Instance, Failure>) -> c_int {
    let _uncancelled = Uncancelled::new();
    code(out("instance", to, || {
        let own = header::abi();
        if abi != own {
            return Err(failure(
                Code::Format,
                format_args!(
                    "the program was compiled with a retrial.h of ABI {abi:#x}, this library has {own:#x}; compile \
                     it with the header of the library that it runs with"
                ),
            ));
        }
        make().map(handle)
    }))
}

fn address(text: Text) -> Result<Address, Failure> {
    Address::new(text.get("address")?).map_err(|error| failure(Code::Invalid, error))
}

/// `retrial_instance_create`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_instance_create_abi(
    abi: u64,
    name: Text,
    asked: Option<&CCapacity>,
    permissions: mode_t,
    to: To,
) -> c_int {
    give(abi, to, || Ok(Instance::create(&address(name)?, capacity(asked), permissions)?))
}

/// `retrial_instance_attach`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_instance_attach_abi(abi: u64, name: Text, to: To) -> c_int {
    give(abi, to, || Ok(Instance::attach(&address(name)?)?))
}

/// `retrial_instance_open`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_instance_open_abi(
    abi: u64,
    name: Text,
    asked: Option<&CCapacity>,
    permissions: mode_t,
    to: To,
) -> c_int {
    give(abi, to, || {
        let opened = Instance::create_or_attach(&address(name)?, capacity(asked), permissions);
        opened.map_err(|error| match error {
            CreateError::Attach(error) => error.into(),
            error => error.into(),
        })
    })
}

/// `retrial_instance_anonymous`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_instance_anonymous_abi(abi: u64, asked: Option<&CCapacity>, to: To) -> c_int {
    give(abi, to, || Ok(Instance::anonymous(capacity(asked))?))
}

/// `retrial_instance_close`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_instance_close(at: Option<&'static Handle>) -> c_int {
    let _uncancelled = Uncancelled::new();
    code(close(at))
}

fn close(at: Option<&'static Handle>) -> Answer {
    let open = Open::new(at)?;
    // Acquire: pairs with the Release of the last user's drop. This call is a user itself.
    let alone = no_users() + 1;
    if let Err(users) = open.handle.users.compare_exchange(alone, CLOSED, Ordering::Acquire, Ordering::Relaxed) {
        let users = (users & COUNT) - 1;
        return Err(failure(
            Code::Busy,
            format_args!("the instance has {users} open sessions or calls under way, expected 0; close them first"),
        ));
    }
    // It stays closed.
    let open = ManuallyDrop::new(open);
    // SAFETY: nobody else enters a closed one, and this thread alone has closed it.
    let instance = unsafe { &mut *open.handle.instance.get() };
    // SAFETY: dropped once.
    unsafe { ManuallyDrop::drop(instance) };
    Ok(())
}

/// `retrial_instance_remove`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_instance_remove(name: Text) -> c_int {
    let _uncancelled = Uncancelled::new();
    code(address(name).and_then(|address| Ok(retrial::remove(&address)?)))
}
