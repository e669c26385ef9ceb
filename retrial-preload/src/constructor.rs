//! What is done when the library has been loaded, and when the process ends.

use crate::instance::{Type, instance};
use crate::private::PrivateMutex;
use crate::process;
use crate::thread::Thread;
use crate::{caller, condition, filter, profile, real, registry};
use retrial::interposer::{self, RobustCalls};
use retrial::sys::{self, Errno};
use retrial::wait::DEFAULT;
use retrial::{Address, AttachError, Capacity, Instance, MutexId, P};
use std::env;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCT: extern "C" fn() = construct;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCT: extern "C" fn() = destruct;

extern "C" fn construct() {
    let _errno = Errno::keep();
    real::resolve();
    filter::resolve(real::look_up);
    if !process::is_on() {
        return;
    }
    // An allocator that locks calls this library from here: as a thread without an instance.
    let thread = Thread::current();
    let _inside = thread.enter();
    if real::finds_thread_sanitizer() {
        return give_up(Some("ThreadSanitizer takes the calls itself"));
    }
    if let Some(taker) = real::finds_taker() {
        return give_up(Some(&format!("{} takes the calls itself", taker.to_string_lossy())));
    }
    if let Some(checker) = real::finds_checker() {
        return give_up(Some(&format!("{} follows libc's calls", checker.to_string_lossy())));
    }
    if !condition::find_flags() {
        return give_up(Some("conditions of this libc have an unknown format"));
    }
    interposer::learn_from_libc();
    // SAFETY: found behind ours by the names of libc.
    unsafe {
        interposer::set_robust_calls(RobustCalls {
            init: real::mutex_init,
            trylock: real::mutex_trylock,
            unlock: real::mutex_unlock,
            consistent: real::mutex_consistent,
        });
    }
    let instance = match take_part() {
        Ok(instance) => Box::leak(Box::new(instance)),
        Err(error) => return give_up(error.as_deref()),
    };
    Type::register_all(instance);
    caller::note_executable();
    process::publish(instance);
    if let Err(Some(error)) = profile::join() {
        say(&error);
    }
}

/// Takes part in the instance that the environment names, or makes one for this process and what it forks.
/// The error is what there is to say, if anything.
fn take_part() -> Result<Instance, Option<String>> {
    match env::var("RETRIAL_INSTANCE") {
        Ok(name) if !name.is_empty() => attach(&name),
        _ => make().map_err(Some),
    }
}

fn attach(name: &str) -> Result<Instance, Option<String>> {
    let address = Address::new(name).map_err(|error| Some(error.to_string()))?;
    Instance::attach(&address).map_err(|error| {
        let file = address.path().file_name().unwrap_or_default().as_encoded_bytes();
        let is_over = matches!(error, AttachError::NotFound(_)) && file.starts_with(b"retrial.run-");
        // What `retrial run` started may start programs long after it has ended.
        (!is_over).then(|| error.to_string())
    })
}

fn make() -> Result<Instance, String> {
    let sessions = Capacity::SESSIONS_OF_ANY_PROGRAM;
    let capacity = Capacity { sessions, mutexes: 8192, locations: 2048, rows: 64, arena: 0 }.within_limits();
    let instance = Instance::anonymous(capacity).map_err(|error| error.to_string())?;
    if let Ok(scheme) = env::var("RETRIAL_SCHEME") {
        let value = P::Scheme.parse(&scheme, DEFAULT).map_err(|error| error.to_string())?;
        instance.set(P::Scheme, None, value);
    }
    Ok(instance)
}

/// Leaves all calls to libc, or goes on without an instance when locks have been taken already: in one line.
fn give_up(error: Option<&str>) {
    let kept = if process::turn_off() { "locks are left to libc" } else { "locks wait without an instance" };
    let Some(error) = error else { return };
    say(&format!("{kept}: {error}"));
}

/// One line, written whole.
fn say(what: &str) {
    let line = format!("retrial: {what}\n");
    // SAFETY: the text is readable in this length.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Leaves the gets of this process's mutexes that were missed in the instance: their records go with the
/// memory.
extern "C" fn destruct() {
    // From a sandbox memory that may be gone cannot be read: what the observer has seen last stays.
    let Some(instance) = instance().filter(|_| !interposer::calls_are_limited()) else { return };
    // What has more gets than there were is no mutex any more: C++ ends the life of a `std::mutex` without a
    // word.
    let most = instance.tables().session_gets();
    registry::retire_all(instance, |id, address| {
        let (found, gets) = PrivateMutex::read(&peek(address)?)?;
        // The first waiter may wait still: then the holder has not been told the number.
        (matches!(found, MutexId(0)) || found == id).then_some(gets).filter(|gets| *gets <= most)
    });
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
