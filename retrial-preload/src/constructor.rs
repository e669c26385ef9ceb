//! What is done when the library has been loaded, and when the process ends.

use crate::private::PrivateMutex;
use crate::process::{self, Type};
use crate::thread::Thread;
use crate::{caller, real};
use retrial::sys::{self, RobustCalls};
use retrial::wait::DEFAULT;
use retrial::{Address, Capacity, Instance, MutexId, P};
use std::env;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCT: extern "C" fn() = construct;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCT: extern "C" fn() = destruct;

extern "C" fn construct() {
    let _errno = real::Errno::keep();
    real::resolve();
    if !process::is_on() {
        return;
    }
    // An allocator that locks comes back to us from here: as somebody without an instance.
    let thread = Thread::current();
    let _inside = thread.enter();
    sys::set_robust_calls(RobustCalls {
        init: real::mutex_init,
        trylock: real::mutex_trylock,
        unlock: real::mutex_unlock,
        consistent: real::mutex_consistent,
    });
    let instance = match take_part() {
        Ok(instance) => Box::leak(Box::new(instance)),
        Err(error) => {
            process::turn_off();
            complain(&error);
            return;
        }
    };
    Type::register_all(instance);
    caller::note_executable();
    process::publish(instance);
}

/// Takes part in the instance that the environment names, or makes one for this process and what it forks.
fn take_part() -> Result<Instance, String> {
    if let Some(name) = env::var("RETRIAL_INSTANCE").ok().filter(|name| !name.is_empty()) {
        let address = Address::new(&name).map_err(|error| error.to_string())?;
        return Instance::attach(&address).map_err(|error| error.to_string());
    }
    let capacity = Capacity { sessions: 16_384, mutexes: 65_536, locations: 4096, rows: 64, arena: 0 };
    let instance = Instance::anonymous(capacity).map_err(|error| error.to_string())?;
    if let Ok(scheme) = env::var("RETRIAL_SCHEME") {
        let value = P::Scheme.parse(&scheme, DEFAULT).map_err(|error| error.to_string())?;
        instance.set(P::Scheme, None, value);
    }
    Ok(instance)
}

/// One line, written whole.
fn complain(error: &str) {
    let line = format!("retrial: locks are left to libc: {error}\n");
    // SAFETY: the text is readable in this length.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Leaves the gets of this process's mutexes in the instance: their records go with the memory.
extern "C" fn destruct() {
    let Some(instance) = process::instance() else { return };
    let own = sys::pid();
    for id in (1..=instance.last_mutex().0).map(MutexId) {
        if let Some((pid, address)) = instance.mutex_in_process(id)
            && pid == own
            && let Some(copy) = peek(address)
            && let Some((found, gets)) = PrivateMutex::read(&copy)
            && found == id
        {
            instance.note_gets(id, gets);
        }
    }
}

/// Memory of this process, `None` when there is none any more.
fn peek(address: u64) -> Option<[u8; size_of::<PrivateMutex>()]> {
    let mut copy = [0u8; size_of::<PrivateMutex>()];
    let into = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: copy.len() };
    let from = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: copy.len() };
    let own = sys::pid().cast_signed();
    // SAFETY: the kernel reads what is readable, and writes into the copy only.
    let len = unsafe { libc::process_vm_readv(own, &raw const into, 1, &raw const from, 1, 0) };
    (usize::try_from(len) == Ok(copy.len())).then_some(copy)
}
