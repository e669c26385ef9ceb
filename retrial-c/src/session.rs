//! `retrial_session`: a thread's membership of an instance.

use crate::call::{Out, Text, Uncancelled, code, failure, null, out};
use crate::code::{Answer, Code, Failure};
use crate::instance::{self, Open};
use crate::location::CLocation;
use retrial::engine::{EngineMutex, Field, RawMutex, SHORTCUT, Shortcut};
use retrial::sys::ThreadEnd;
use retrial::{Class, Session};
use std::arch::asm;
use std::cell::{RefCell, UnsafeCell};
use std::ffi::c_int;
use std::hint::black_box;
use std::mem::{self, ManuallyDrop, offset_of};
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, compiler_fence};

/// `retrial_session`. Its memory is used again for later sessions and never freed, so that a closed one is
/// recognised. The header's inlined calls read what is before `session`.
#[repr(C, align(64))]
pub(crate) struct Handle {
    /// The thread pointer of its thread, and [`INSIDE`] while that is in a call; 0 while it is closed.
    thread: AtomicUsize,
    /// The address of the mutex that the session has in X by its first log record, while nothing is unusual about that:
    /// its word has the SID alone. An inlined release looks for no more. 0: the calls look.
    held: AtomicUsize,
    /// Of its thread alone, as all that follows.
    shortcut: UnsafeCell<Shortcut>,
    /// The place of calls without one.
    nowhere: CLocation,
    /// The session and what keeps its instance open.
    session: UnsafeCell<Option<(Session<'static>, Open)>>,
    /// The one that was made before it.
    before: Option<&'static Handle>,
    /// The next one that no thread has, while no thread has this one.
    next: AtomicPtr<Handle>,
}

/// Added to the thread pointer, which is even.
const INSIDE: usize = 1;

/// Bytes of a handle that the header knows.
pub(crate) const PUBLIC: usize = offset_of!(Handle, session);

/// The fields in them.
pub(crate) fn fields() -> Vec<Field> {
    let thread = ("thread", offset_of!(Handle, thread), "uintptr_t ", "whose it is; 1 more in a call; 0 when closed");
    let shortcut = SHORTCUT.map(|(name, offset, of, is)| (name, offset + offset_of!(Handle, shortcut), of, is));
    let nowhere = ("nowhere", offset_of!(Handle, nowhere), "retrial_location ", "where a call without a location is");
    let held = ("held", offset_of!(Handle, held), "uintptr_t ", "the mutex that an inlined release can give back");
    [[thread, held].as_slice(), &shortcut, &[nowhere]].concat()
}

impl Default for Handle {
    fn default() -> Self {
        Self {
            thread: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            shortcut: UnsafeCell::default(),
            nowhere: CLocation::unknown(),
            session: UnsafeCell::default(),
            before: None,
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// The last handle that was made: all of them, for a child of fork.
static LAST: AtomicPtr<Handle> = AtomicPtr::new(ptr::null_mut());

/// The first of those that no thread has. Any thread adds one; one thread at a time, which has [`TAKING`], takes
/// the first: so that one is still the first when it goes, whatever is added meanwhile.
static FREE: AtomicPtr<Handle> = AtomicPtr::new(ptr::null_mut());

static TAKING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The open sessions of a thread. Nothing to drop: destructors of the program's may use them.
    static OPENED: ManuallyDrop<RefCell<Vec<&'static Handle>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Closes what a thread has left open. Not when the process ends: until the kernel ends the thread, handlers of
/// `exit` may go on with what it holds.
static END: ThreadEnd = ThreadEnd::new(|| OPENED.with(|opened| opened.take()).into_iter().for_each(Handle::end));

/// The thread pointer, by which the header tells threads apart too. No call, unlike `pthread_self`.
#[inline]
fn own_thread() -> usize {
    let thread;
    // SAFETY: glibc has a pointer to itself at the begin of what a thread's FS points to.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("mov {}, fs:0", out(reg) thread, options(nostack, preserves_flags, readonly));
    }
    // SAFETY: a register that can be read at any time.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) thread, options(nostack, preserves_flags, nomem));
    }
    thread
}

/// The calling thread's session, in a call.
pub(crate) struct InUse(&'static Handle);

#[cold]
fn not_my_session() -> Failure {
    failure(
        Code::NotMySession,
        "the session is closed or belongs to another thread, expected one that this thread has opened",
    )
}

impl InUse {
    #[inline(always)] // its result went through memory otherwise, which took 2 ns
    #[allow(clippy::inline_always)]
    pub(crate) fn new(at: Option<&'static Handle>) -> Result<Self, Failure> {
        let session = Self::begin(at)?;
        if session.is_attended() && !session.is_forked() { Ok(session) } else { Err(session.refusal()) }
    }

    /// The same without a look whether its thread lives, and in this process.
    #[inline]
    fn begin(at: Option<&'static Handle>) -> Result<Self, Failure> {
        let handle = at.ok_or_else(|| null("session", "an open session of this thread"))?;
        let own = own_thread();
        // Relaxed: what this thread has written itself.
        match handle.thread.load(Ordering::Relaxed) {
            thread if thread == own => {
                handle.thread.store(own + INSIDE, Ordering::Relaxed);
                // A signal handler finds it in a call from here on.
                compiler_fence(Ordering::SeqCst);
                Ok(Self(handle))
            }
            thread if thread == own + INSIDE => Err(failure(
                Code::Reentered,
                "the session is in a call already, which a signal handler has interrupted; calls are not for signal handlers",
            )),
            _ => Err(not_my_session()),
        }
    }

    /// Why it cannot be used. A child of fork may have closed the instance of its parent's session. A thread
    /// that opened its first session amid its own end has left it open, and this thread may have its pointer.
    #[cold]
    fn refusal(&self) -> Failure {
        if !self.is_forked() {
            return not_my_session();
        }
        let pid = self.pid();
        failure(Code::Forked, format_args!("the session is of process {pid}, the parent; open one in the child"))
    }

    /// Has the release of what was got inlined, where that is an ordinary X.
    #[inline]
    pub(crate) fn has_got(&self, mutex: &EngineMutex, record: &RawMutex) {
        if record.is_plainly_held(self) {
            self.0.held.store(std::ptr::from_ref(mutex).addr(), Ordering::Relaxed);
        }
    }

    /// Before a get: another mutex may have been mapped at this address when the session got that one.
    #[inline]
    pub(crate) fn arrives_at(&self, mutex: &EngineMutex, record: &RawMutex) {
        let held = &self.0.held;
        if held.load(Ordering::Relaxed) == std::ptr::from_ref(mutex).addr() && !record.is_first_of(self) {
            held.store(0, Ordering::Relaxed);
        }
    }

    /// Has the release of a mutex be a call, before a call changes how the session holds it.
    #[inline]
    pub(crate) fn changes(&self, record: &RawMutex) {
        // By the record: the same mutex may be mapped at another address, and one that is held beside it stays.
        if record.is_first_of(self) {
            self.0.held.store(0, Ordering::Relaxed);
        }
    }

    /// The place of a call without one.
    pub(crate) const fn nowhere(&self) -> &'static CLocation {
        &self.0.nowhere
    }
}

impl Deref for InUse {
    type Target = Session<'static>;

    #[inline]
    fn deref(&self) -> &Session<'static> {
        // SAFETY: this thread's, and only `end` writes it, which is not called meanwhile: it is in a call.
        let session = unsafe { &*self.0.session.get() };
        let (session, _) = session.as_ref().expect("an open handle has its session");
        session
    }
}

impl Drop for InUse {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.0.thread.store(own_thread(), Ordering::Relaxed);
    }
}

impl Handle {
    /// A new one, of no session, which a child of fork finds.
    fn make() -> &'static Self {
        // A program that is linked with the static library has `AT_LOAD` by this reference.
        black_box(&raw const AT_LOAD);
        let mut last = LAST.load(Ordering::Acquire);
        let handle = Box::leak(Box::<Self>::default());
        loop {
            // SAFETY: NULL, or made below and never freed.
            handle.before = unsafe { last.as_ref() };
            // Release: what the handle is. Acquire: pairs with it.
            match LAST.compare_exchange(last, handle, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return handle,
                Err(found) => last = found,
            }
        }
    }

    /// Sends the header's inlined calls with this session to the calls.
    fn close_shortcut(&self) {
        self.held.store(0, Ordering::Relaxed);
        // SAFETY: this thread's, or the only thread is this one.
        unsafe { (*self.shortcut.get()).close() };
    }

    /// Ends the session of this thread, and gives the handle back. What it still holds is recovered when the
    /// kernel has ended the thread.
    fn end(&'static self) {
        self.thread.store(0, Ordering::Relaxed);
        self.close_shortcut();
        // SAFETY: this thread's, and no reference to it is left.
        let session = unsafe { &mut *self.session.get() };
        match session.take() {
            Some((session, _)) if !session.is_forked() && session.has_records() => mem::forget(session),
            // The session first: what keeps its instance open comes after it in the tuple.
            closed => drop(closed),
        }
        // Release: pairs with the Acquire in `take_free`.
        let _ = FREE.fetch_update(Ordering::Release, Ordering::Relaxed, |first| {
            self.next.store(first, Ordering::Relaxed);
            Some(ptr::from_ref(self).cast_mut())
        });
    }

    /// One that no thread has. `None`: there is none, or another thread is at it for long; it may be one that was
    /// there when this process was forked.
    fn take_free() -> Option<&'static Self> {
        const LOOKS: u32 = 1000;
        (0..LOOKS).find(|_| {
            let is_taken = TAKING.swap(true, Ordering::Acquire);
            if is_taken {
                std::thread::yield_now();
            }
            !is_taken
        })?;
        // SAFETY: null or a handle, which is never freed.
        let next = |first: *mut Self| unsafe { first.as_ref() }.map(|first| first.next.load(Ordering::Relaxed));
        let taken = FREE.fetch_update(Ordering::Acquire, Ordering::Acquire, next);
        TAKING.store(false, Ordering::Release);
        // SAFETY: the same; this thread took it.
        taken.ok().and_then(|first| unsafe { first.as_ref() })
    }
}

/// Has each child of fork told. The header's inlined calls do not look for a fork, and handlers run in the order in
/// which they were registered: those of the program may release what their parent holds. So this one is registered
/// when the library is loaded, before the program's constructors.
#[used]
#[unsafe(link_section = ".init_array.00099")] // a program's own priorities begin with 101
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        // The calls' own way to notice a child.
        retrial::sys::tell_children();
        // SAFETY: it stores to this process's memory only.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(refused, 0, "the C library has no memory for a handler of forks");
    }
    at_load
};

/// A child of fork begins: its parent's sessions are none of its own.
extern "C" fn in_child() {
    // The thread that took one is not here.
    TAKING.store(false, Ordering::Relaxed);
    // SAFETY: NULL, or a handle, which is never freed.
    let mut next = unsafe { LAST.load(Ordering::Acquire).as_ref() };
    while let Some(handle) = next {
        handle.close_shortcut();
        next = handle.before;
    }
}

/// `retrial_session_open`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_session_open(
    at: Option<&'static instance::Handle>,
    name: Text,
    to: Out<&'static Handle>,
) -> c_int {
    let _uncancelled = Uncancelled::new();
    code(out("session", to, || open(at, name)))
}

fn open(at: Option<&'static instance::Handle>, name: Text) -> Result<&'static Handle, Failure> {
    let open = Open::new(at)?;
    let name = name.or_empty("name")?;
    END.awaits()?;
    // SAFETY: the header says that a thread's holds end with it, and so does the use of what they protect.
    let session = unsafe { open.instance().thread_session(name, Class::Detect) }?;
    let handle = Handle::take_free().unwrap_or_else(Handle::make);
    OPENED.with(|opened| opened.borrow_mut().push(handle));
    // SAFETY: no other thread has it.
    unsafe { *handle.shortcut.get() = session.shortcut() };
    // SAFETY: the same.
    unsafe { *handle.session.get() = Some((session, open)) };
    handle.thread.store(own_thread(), Ordering::Relaxed);
    Ok(handle)
}

/// `retrial_session_close`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_session_close(at: Option<&'static Handle>) -> c_int {
    let _uncancelled = Uncancelled::new();
    code(close(at))
}

fn close(at: Option<&'static Handle>) -> Answer {
    let session = InUse::begin(at)?;
    // What a child of fork finds there is its parent's.
    let is_own = !session.is_forked();
    if is_own && !session.is_attended() {
        return Err(session.refusal());
    }
    if is_own && session.has_records() {
        return Err(failure(Code::Busy, "the session holds mutexes; release them before it is closed"));
    }
    let handle = ManuallyDrop::new(session).0;
    OPENED.with(|opened| opened.borrow_mut().retain(|other| !std::ptr::eq(*other, handle)));
    handle.end();
    Ok(())
}

/// `retrial_session_set_action`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_session_set_action(at: Option<&'static Handle>, action: Text) -> c_int {
    code(InUse::new(at).and_then(|session| {
        session.set_action(action.or_empty("action")?);
        Ok(())
    }))
}
