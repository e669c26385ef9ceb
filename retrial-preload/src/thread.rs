//! A thread's own record: who it is, under which cookie it is that, and its session.
//!
//! It lies in the static thread-local block (condition.c) and has no destructor: the session's robust lock
//! tells the instance that the thread is gone. All zeros is a thread that has not come by yet.

use crate::instance::instance;
use crate::process;
use crate::sampling::Sampling;
use retrial::condition::Wake;
use retrial::interposer::{self, Waiter};
use retrial::sys::Errno;
use retrial::views::Sid;
use retrial::{Class, Instance, Session, sys};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// What a thread knows of itself. Only it reads and writes this, and handlers of signals that interrupt it.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Complement of the cookie under which the rest was found, so that 0 is none.
    check: Cell<u64>,
    /// The holder field that says it is this thread: its SID, or that of a guest.
    me: Cell<u64>,
    tid: Cell<u32>,
    /// Whether it is in the library now: a call from there has to do without it.
    inside: Cell<bool>,
    has_session: Cell<bool>,
    /// Whether its next get of a mutex ends a wait on a condition.
    pub(crate) from_condition: Cell<bool>,
    /// Address of the private mutex that it got last, 0 when it has given one back since.
    latest: Cell<usize>,
    /// The wake-up that it has put off until it gives a mutex back.
    put_off: Cell<Wake>,
    session: UnsafeCell<MaybeUninit<Session<'static>>>,
    /// The condition polled last, how often in a row, and until when.
    pub(crate) polled: Cell<(usize, u32, u64)>,
    pub(crate) sampling: Sampling,
}

const _: () = assert!(size_of::<Thread>() <= 512, "retrial_thread in condition.c has room for it");

unsafe extern "C" {
    fn retrial_current_thread() -> *const c_void;
}

/// Holds `inside` until dropped.
pub(crate) struct Inside<'t>(&'t Thread);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.set(false);
    }
}

impl Thread {
    /// The calling thread's, for calls that are not handed it.
    pub(crate) fn current() -> &'static Self {
        // SAFETY: has no preconditions.
        let block = unsafe { retrial_current_thread() };
        // SAFETY: the block of the calling thread, large and aligned enough, of which all zeros is a value.
        unsafe { &*block.cast() }
    }

    /// The holder field that names this thread; finds out who it is if that is not known.
    #[inline]
    pub(crate) fn me(&self) -> u64 {
        if self.check.get() != !process::cookie() {
            self.find_out();
        }
        self.me.get()
    }

    /// The holder field that names this thread and its session, if both are known and of this process.
    #[inline]
    pub(crate) fn known(&self) -> Option<(u64, &Session<'static>)> {
        if self.check.get() == !process::cookie() { Some((self.me.get(), self.session()?)) } else { None }
    }

    /// Its thread id.
    pub(crate) fn tid(&self) -> u32 {
        self.me();
        self.tid.get()
    }

    /// Its session, if it has one.
    #[inline]
    pub(crate) fn session(&self) -> Option<&Session<'static>> {
        if !self.has_session.get() {
            return None;
        }
        // SAFETY: only this thread writes it, and not while it has a session of this process.
        let session = unsafe { &*self.session.get() };
        // SAFETY: written before `has_session` was set.
        Some(unsafe { session.assume_init_ref() })
    }

    /// What waits when this thread does.
    pub(crate) fn waiter(&self, instance: &'static Instance) -> Waiter<'_> {
        self.session().map_or(Waiter::without_session(instance), Waiter::of)
    }

    /// Says that it is in the library; `None` when it is already.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        if self.inside.replace(true) {
            return None;
        }
        Some(Inside(self))
    }

    /// It has got a private mutex.
    #[inline]
    pub(crate) fn got(&self, address: usize) {
        self.latest.set(address);
    }

    /// Whether it is known to hold the private mutex at an address.
    pub(crate) fn holds(&self, address: usize) -> bool {
        address != 0 && self.latest.get() == address
    }

    /// It has given a private mutex back: now the threads are woken that could not go on before.
    #[inline]
    pub(crate) fn gave_back(&self) {
        self.latest.set(0);
        self.wake_put_off();
    }

    /// Puts a wake-up off until it gives a mutex back, which the woken need to go on.
    pub(crate) fn put_off(&self, wake: Wake) {
        let both = self.put_off.get().and(wake).unwrap_or_else(|| {
            self.wake_put_off();
            wake
        });
        self.put_off.set(both);
    }

    /// Wakes the waiters whose wake-up was put off.
    #[inline]
    pub(crate) fn wake_put_off(&self) {
        if self.put_off.get().is_owed() {
            self.put_off.take().now();
        }
    }

    /// Counts a call, `call` by [`retrial::interposer::CALLS`], and a get if it was one.
    #[inline]
    pub(crate) fn count(&self, call: usize, is_get: bool) {
        match self.session() {
            Some(session) => {
                interposer::count_call(session, call);
                if is_get {
                    interposer::count_get(session);
                }
            }
            None => count_of_guest(call, is_get),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_out(&self) {
        let _errno = Errno::keep();
        if self.inside.get() {
            if self.me.get() == 0 {
                self.be_guest();
            }
            return;
        }
        // Before anything that could call this library again: it then finds this thread a guest.
        self.be_guest();
        let Some(_inside) = self.enter() else { return };
        let cookie = process::enter();
        self.has_session.set(false);
        let instance = instance().filter(|_| cookie & process::READY != 0 && self.has_robust_list());
        // Named by its thread's name when it is shown; there is none to be known here without a system call.
        // SAFETY: the locks of C, which come back when a thread ends: no reference of Rust is made to what
        // they protect.
        let session = instance.and_then(|instance| unsafe { instance.thread_session("", Class::Detect) }.ok());
        if let (Some(instance), None) = (instance, &session) {
            interposer::count_thread_without_session(instance);
        }
        if let Some(session) = session {
            self.me.set(u64::from(session.sid().number()) << 32);
            // SAFETY: only this thread writes here, and there is no reference while there is no session. The
            // bytes may be a session of the parent's, which this process must not end.
            unsafe { self.session.get().write(MaybeUninit::new(session)) };
            self.has_session.set(true);
        }
        self.check.set(if cookie == 0 { 0 } else { !cookie });
    }

    fn be_guest(&self) {
        // Libc's record of a thread that was left by a fork may have the parent's.
        let known = if process::is_first() { interposer::libc_tid() } else { None };
        let tid = known.unwrap_or_else(sys::tid);
        self.tid.set(tid);
        self.me.set(u64::from(Sid::guest(tid).number()) << 32);
    }

    /// Whether the kernel will mark this thread's robust locks when it dies: libc sees to it for its threads.
    /// A process made by the raw system call starts without, and has its parent's thread id in libc's record.
    /// Where no call may be made to tell, no child of a fork has a list.
    fn has_robust_list(&self) -> bool {
        interposer::libc_tid() == Some(self.tid.get()) && (process::is_first() || !interposer::calls_are_limited())
    }
}

#[cold]
#[inline(never)]
fn count_of_guest(call: usize, is_get: bool) {
    if let Some(instance) = instance() {
        interposer::count_call_of_guest(instance, call, is_get);
    }
}
