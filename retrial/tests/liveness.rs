//! Who is dead and who is not, where process ids cannot tell: ids that are taken again, namespaces, forks,
//! execs, stops.
//!
//! An *actor* is this test program again, told by an environment variable to do what it reads from its
//! standard input and to say how that went, a line for a line. It does so on its main thread, before the
//! harness starts, so that its thread id is its process id. A *stage* is one test of this program again, as
//! the first process of a PID namespace: there a test can choose the ids of its actors. Nobody sleeps to let
//! somebody else get there.

use retrial::views::{Sid, Word};
use retrial::{
    Address, Capacity, Class, Death, GetError, Guard, Instance, Mode, Mutex, Observer, P, Patience, Recovery, Session,
    SessionError, location,
};
use std::ffi::{CString, OsStr, c_void};
use std::io::{self, BufRead, BufReader, Lines, PipeReader, PipeWriter, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The instance that an actor attaches to.
const ACTOR: &str = "RETRIAL_TEST_ACTOR";
/// The test that a stage is to run.
const STAGE: &str = "RETRIAL_TEST_STAGE";

/// A run that hangs ends after this time, in s.
const WATCHDOG_S: u32 = 300;

/// Small, since some tests look at every word.
const CAPACITY: Capacity = Capacity { sessions: 64, mutexes: 64, locations: 64, rows: 4, arena: 4096 };

/// `pid` and `tid` that a test asks for; far from what a young namespace gives by itself.
const CHOSEN: i32 = 7000;

// Part one: actors.

unsafe extern "C-unwind" {
    // As C declares it: it unwinds through its callers.
    fn pthread_exit(value: *mut c_void) -> !;
    fn pthread_testcancel();
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> i32;
}

/// Makes an actor of this process before the harness starts: the harness runs tests on threads of their own.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    if let Ok(name) = std::env::var(ACTOR) {
        act(&name);
    }
    // SAFETY: has no preconditions; the default of SIGALRM ends the process, and its children end with it.
    unsafe { libc::alarm(WATCHDOG_S) };
}

fn say(reply: &str) {
    // Nobody listens when the test is over.
    let _ = writeln!(io::stdout(), "{reply}");
}

fn tid() -> i32 {
    retrial::sys::tid().cast_signed()
}

/// What an actor has. All of it stays to its end, which may be any.
struct Part {
    instance: &'static Instance,
    session: Option<&'static Session<'static>>,
    guards: Vec<Guard<'static, u64>>,
    cancelled: Option<libc::pthread_t>,
    lock: Option<*mut libc::pthread_mutex_t>,
}

impl Part {
    fn attach(name: &str) -> &'static Instance {
        Box::leak(Box::new(Instance::attach(&Address::new(name).unwrap()).unwrap()))
    }

    fn session(&mut self) -> &'static Session<'static> {
        self.session.get_or_insert_with(|| Box::leak(Box::new(self.instance.session("actor", Class::Normal).unwrap())))
    }

    fn mutex(&self, name: &str) -> Mutex<'static, u64> {
        self.instance.mutex(name, "test", || 0).unwrap()
    }

    fn keep(&mut self, got: Result<Guard<'static, u64>, GetError<Guard<'static, u64>>>) -> String {
        match got {
            Ok(guard) => {
                self.guards.push(guard);
                "got".into()
            }
            Err(GetError::OwnerDied(mut died)) => {
                let reply = format!("died {}", died.death.map_or(Sid::NONE, |death| death.sid));
                died.guard.consistent();
                self.guards.push(died.guard);
                reply
            }
            Err(GetError::Busy) => "busy".into(),
            Err(other) => other.to_string(),
        }
    }
}

/// Does what the standard input says.
fn act(name: &str) -> ! {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `none` is readable. Whatever kills this process leaves no core.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    let mut part =
        Part { instance: Part::attach(name), session: None, guards: Vec::new(), cancelled: None, lock: None };
    say("hello");
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let reply = obey(&mut part, name, &words);
        say(&reply);
    }
    // SAFETY: ends this process without the harness that never started.
    unsafe { libc::_exit(0) }
}

fn obey(part: &mut Part, name: &str, words: &[&str]) -> String {
    match *words {
        ["ids"] => format!("{} {}", std::process::id(), tid()),
        ["session"] => part.session().sid().number().to_string(),
        ["sessions", count] => {
            // Sessions that come and go beside the others.
            for _ in 0..count.parse().unwrap() {
                drop(part.instance.session("passing", Class::Normal).unwrap());
            }
            "done".into()
        }
        ["late", "session"] => match part.instance.session("late", Class::Normal) {
            Ok(_) => "made".into(),
            Err(error) => error.to_string(),
        },
        ["get", mode, mutex] => {
            let (session, mutex) = (part.session(), part.mutex(mutex));
            part.keep(mutex.get(session, mode.parse().unwrap(), location!("actor"), Patience::Endless))
        }
        ["try", mode, mutex] => {
            let (session, mutex) = (part.session(), part.mutex(mutex));
            part.keep(mutex.get(session, mode.parse().unwrap(), location!("actor"), Patience::None))
        }
        ["add"] => {
            **part.guards.last_mut().unwrap() += 1;
            "done".into()
        }
        ["release"] => {
            drop(part.guards.pop().unwrap());
            "done".into()
        }
        ["recover", sid] => format!("{:?}", part.instance.recover(Sid::new(sid.parse().unwrap()))),
        ["lock", offset] => take_lock(part, name, offset.parse().unwrap()),
        ["unlock"] => {
            // SAFETY: this thread took it.
            let rc = unsafe { libc::pthread_mutex_unlock(part.lock.take().unwrap()) };
            rc.to_string()
        }
        ["spawn"] => {
            let program = Command::new(std::env::current_exe().unwrap())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status()
                .unwrap();
            program.success().to_string()
        }
        ["fork" | "exec" | "thread", ..] => part_ways(part, name, words),
        ["die", ..] => die(words),
        _ => panic!("{words:?}"),
    }
}

/// Takes a lock of the segment by hand, as a process that stops half-way has it.
fn take_lock(part: &mut Part, name: &str, offset: usize) -> String {
    let address = Address::new(name).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(address.path()).unwrap();
    let len = part.instance.tables().len_bytes();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(base, libc::MAP_FAILED);
    let lock: *mut libc::pthread_mutex_t = base.wrapping_byte_add(offset).cast();
    // SAFETY: the test says that a lock is there, and the mapping stays.
    match unsafe { libc::pthread_mutex_trylock(lock) } {
        0 => {}
        // SAFETY: just taken.
        libc::EOWNERDEAD => assert_eq!(unsafe { libc::pthread_mutex_consistent(lock) }, 0),
        other => return format!("refused {other}"),
    }
    part.lock = Some(lock);
    "taken".into()
}

/// Ends this process.
fn die(words: &[&str]) -> String {
    match *words {
        ["die", "signal", signal] => {
            let signal = signal.parse().unwrap();
            // Whoever was started in the background of a shell ignores some.
            // SAFETY: no handler is installed.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            // SAFETY: has no preconditions.
            unsafe { libc::raise(signal) };
        }
        ["die", "cpu"] => {
            let limit = libc::rlimit { rlim_cur: 1, rlim_max: 60 };
            // SAFETY: `limit` is readable.
            unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) };
            loop {
                std::hint::spin_loop();
            }
        }
        ["die", "address"] => {
            let address = std::hint::black_box(8usize) as *mut u64;
            // SAFETY: none; a segmentation fault is what was asked for.
            unsafe { address.write_volatile(1) };
        }
        ["die", "exit"] => std::process::exit(3),
        // SAFETY: ends this process.
        ["die", "_exit"] => unsafe { libc::_exit(3) },
        ["die", "abort"] => std::process::abort(),
        ["die", "thread"] => {
            // SAFETY: ends this thread, and the process with it, without libc's knowledge.
            unsafe { libc::syscall(libc::SYS_exit, 3) };
        }
        _ => panic!("{words:?}"),
    }
    "lives".into()
}

/// Becomes two processes, another program, or two threads.
#[allow(clippy::too_many_lines)] // a case for each way
fn part_ways(part: &mut Part, name: &str, words: &[&str]) -> String {
    match *words {
        ["fork", "checks", end] => {
            let found = fork(|| check_child(part, name), end == "exit");
            format!("{:?}", wait(found).code)
        }
        ["fork", "drops"] => {
            let found = fork(|| drop_session(part), false);
            format!("{:?}", wait(found).code)
        }
        ["fork", "stays"] => {
            fork(wait_for_the_end, false);
            String::from("done")
        }
        ["fork", "holds", mutex] => {
            let own = |instance: &'static Instance| {
                let session = instance.session("child of fork", Class::Normal).unwrap();
                let mutex = instance.mutex(mutex, "test", || 0u64).unwrap();
                let _guard = mutex.exclusive(&session, location!("child of fork")).unwrap();
                say(&format!("{} {}", std::process::id(), session.sid()));
                wait_for_the_end()
            };
            let child = fork(|| own(part.instance), false);
            // Its line is the reply; this one says that it has ended.
            format!("ended {:?}", wait(child).signal)
        }
        ["thread", "lends", mode, mutex] => {
            let (instance, mutex, mode) = (part.instance, part.mutex(mutex), mode.parse().unwrap());
            let lend = move || {
                let session: &'static Session<'static> =
                    Box::leak(Box::new(instance.session("lender", Class::Normal).unwrap()));
                &**Box::leak(Box::new(mutex.get(session, mode, location!("lends"), Patience::Endless).unwrap()))
            };
            let lent: &'static u64 = std::thread::spawn(lend).join().unwrap();
            format!("lent {lent}")
        }
        ["exec"] => {
            let error = Command::new(std::env::current_exe().unwrap()).exec();
            panic!("{error}")
        }
        ["exec", "beside"] => {
            std::thread::spawn(|| panic!("{}", Command::new(std::env::current_exe().unwrap()).exec()));
            stay()
        }
        ["exec", "thread", mode, mutex] => {
            let (instance, mutex, mode) = (part.instance, part.mutex(mutex), mode.parse().unwrap());
            std::thread::spawn(move || {
                let session = instance.session("thread", Class::Normal).unwrap();
                let _guard = mutex.get(&session, mode, location!("thread"), Patience::Endless).unwrap();
                panic!("{}", Command::new(std::env::current_exe().unwrap()).exec())
            });
            stay()
        }
        ["thread", end @ ("returns" | "exits" | "waits"), mode, mutex] => {
            let (mutex, mode) = (part.mutex(mutex), mode.parse().unwrap());
            let end = match end {
                "returns" => End::Return,
                "exits" => End::PthreadExit,
                _ => End::Cancelled,
            };
            let thread = start(Order { instance: part.instance, mutex, mode, end });
            if end == End::Cancelled {
                part.cancelled = Some(thread);
                return "done".into();
            }
            join(thread).to_string()
        }
        ["thread", "cancel"] => {
            // SAFETY: the thread has not been joined.
            unsafe { pthread_cancel(part.cancelled.unwrap()) }.to_string()
        }
        ["thread", "join"] => join(part.cancelled.take().unwrap()).to_string(),
        ["thread", "forgets", mode, mutex] => {
            forget(name, mutex, mode.parse().unwrap());
            "ended".into()
        }
        _ => panic!("{words:?}"),
    }
}

/// Waits until the test is over.
fn wait_for_the_end() -> i32 {
    let mut byte = 0u8;
    // SAFETY: `byte` is writable.
    while unsafe { libc::read(0, (&raw mut byte).cast(), 1) } != 0 {}
    0
}

/// Waits until another thread ends this one.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// A child of fork that ends with what `deed` gives.
fn fork(deed: impl FnOnce() -> i32, runs_exit_handlers: bool) -> i32 {
    // SAFETY: this process has one thread; the child has all that its parent has.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = deed();
        if runs_exit_handlers {
            std::process::exit(code);
        }
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    child
}

/// What a child of fork finds: a bit for each thing that is not so.
fn check_child(part: &mut Part, name: &str) -> i32 {
    let session = part.session.unwrap();
    let mutex = part.mutex("m");
    let parent = session.sid();
    let holds = |instance: &Instance| {
        let word = mutex.word();
        let alive = instance.tables().session_info(parent).is_some_and(|info| !info.dead && info.log.len() == 1);
        word.sid() == parent && alive && instance.recover(parent) == Recovery::NotDead
    };
    let is_busy = |session: &Session<'_>, mutex: &Mutex<'_, u64>| {
        matches!(mutex.get(session, Mode::Exclusive, location!("child"), Patience::None), Err(GetError::Busy))
    };
    let forked = |mutex: &Mutex<'static, u64>| {
        let owner = session.pid();
        let exclusive = mutex.exclusive(session, location!("child"));
        let shared = mutex.get(session, Mode::Shared, location!("child"), Patience::None);
        let is_refused =
            [exclusive, shared].iter().all(|got| matches!(got, Err(GetError::Forked { owner: o }) if *o == owner));
        is_refused && owner != std::process::id()
    };
    let mut found = Vec::new();
    found.push(session.is_forked() && holds(part.instance));
    found.push(forked(&mutex) && forked(&part.mutex("other")));
    part.guards.clear();
    found.push(holds(part.instance));
    {
        let own = part.instance.session("child", Class::Normal).unwrap();
        found.push(is_busy(&own, &mutex) && own.pid() == std::process::id() && !own.is_forked());
        found.push(part.mutex("other").exclusive(&own, location!("child")).is_ok());
    }
    {
        let attached = Instance::attach(&Address::new(name).unwrap()).unwrap();
        let own = attached.session("child", Class::Normal).unwrap();
        found.push(is_busy(&own, &attached.mutex("m", "test", || 0).unwrap()));
        found.push(attached.mutex("other", "test", || 0u64).unwrap().exclusive(&own, location!("child")).is_ok());
    }
    drop_session(part);
    found.push(holds(part.instance));
    found.iter().enumerate().map(|(bit, is_so)| i32::from(!is_so) << bit).sum()
}

/// Drops a session that belongs to the parent. 0 if it is one still.
fn drop_session(part: &mut Part) -> i32 {
    let session: *const Session<'static> = part.session.take().unwrap();
    // SAFETY: made by `Part::session` from a box, and used no more.
    let session = unsafe { Box::from_raw(session.cast_mut()) };
    let sid = session.sid();
    drop(session);
    i32::from(part.instance.tables().session_info(sid).is_none_or(|info| info.dead))
}

/// What a thread of an actor is to do. A thread of C: it may end in ways that one of Rust may not.
struct Order {
    instance: &'static Instance,
    mutex: Mutex<'static, u64>,
    mode: Mode,
    end: End,
}

/// How a thread ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Return,
    PthreadExit,
    Cancelled,
}

fn start(order: Order) -> libc::pthread_t {
    let mut thread = 0;
    let order = Box::into_raw(Box::new(order));
    // SAFETY: the function takes what it is given here, and a thread may end in any way that C has.
    let main: extern "C" fn(*mut c_void) -> *mut c_void = unsafe { std::mem::transmute(thread_main as *const ()) };
    // SAFETY: `thread` is writable; the order is the thread's from here on.
    let rc = unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), main, order.cast()) };
    assert_eq!(rc, 0);
    thread
}

/// Waits for a thread and says how it ended.
fn join(thread: libc::pthread_t) -> &'static str {
    let mut value = std::ptr::null_mut();
    // SAFETY: the thread has not been joined.
    assert_eq!(unsafe { libc::pthread_join(thread, &raw mut value) }, 0);
    // As C has PTHREAD_CANCELED.
    if value.addr() == usize::MAX { "cancelled" } else { "ended" }
}

/// Gets and ends: nothing here has a destructor, since C unwinds through it.
extern "C-unwind" fn thread_main(order: *mut c_void) -> *mut c_void {
    let order: *const Order = order.cast();
    // SAFETY: given by `start`, and leaked.
    let order: &'static Order = unsafe { &*order };
    hold_for_ever(order);
    match order.end {
        End::Return => std::ptr::null_mut(),
        // SAFETY: nothing is left to drop.
        End::PthreadExit => unsafe { pthread_exit(std::ptr::null_mut()) },
        End::Cancelled => loop {
            // SAFETY: as above.
            unsafe { pthread_testcancel() };
        },
    }
}

fn hold_for_ever(order: &'static Order) {
    let session: &'static Session<'static> =
        // SAFETY: nobody uses what is leaked here.
        Box::leak(Box::new(unsafe { order.instance.thread_session("thread", Class::Normal) }.unwrap()));
    let _ = ManuallyDrop::new(order.mutex.get(session, order.mode, location!("thread"), Patience::Endless));
}

/// A thread forgets its guard and its session, drops the instance, goes on, and ends.
fn forget(name: &str, mutex: &str, mode: Mode) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let instance = Instance::attach(&Address::new(name).unwrap()).unwrap();
            // SAFETY: nobody uses what is forgotten here.
            let session = unsafe { instance.thread_session("forgotten", Class::Normal) };
            let session = ManuallyDrop::new(session.unwrap());
            let mutex = instance.mutex(mutex, "test", || 0u64).unwrap();
            let _ = ManuallyDrop::new(mutex.get(&session, mode, location!("forgets"), Patience::Endless));
            drop(instance);
            say("forgotten");
            // The test says when to go on.
            let mut byte = 0u8;
            // Not by `stdin`, which the main thread has locked.
            while byte != b'\n' {
                // SAFETY: `byte` is writable.
                assert_eq!(unsafe { libc::read(0, (&raw mut byte).cast(), 1) }, 1);
            }
        });
    });
}

// Part two: how tests start actors.

/// Where a process is started.
#[derive(Clone, Copy, Default)]
struct Place<'a> {
    /// In a PID namespace of its own, as its first process.
    fresh: bool,
    /// In a user namespace of its own, as its root.
    user: bool,
    /// In the PID namespace of this actor.
    beside: Option<&'a Actor>,
    /// With this process id.
    tid: Option<i32>,
}

const HERE: Place<'_> = Place { fresh: false, user: false, beside: None, tid: None };
const FRESH: Place<'_> = Place { fresh: true, user: false, beside: None, tid: None };

/// Starts this program at a place. The child does nothing but system calls before it is the program.
fn launch(place: Place<'_>, args: &[&str], env: (&str, &str), stdio: Option<[RawFd; 2]>) -> io::Result<(i32, OwnedFd)> {
    let text = |text: &OsStr| CString::new(text.as_bytes()).unwrap();
    let program = text(std::env::current_exe()?.as_os_str());
    let args: Vec<CString> =
        std::iter::once(&*program).map(CString::from).chain(args.iter().map(|a| text(a.as_ref()))).collect();
    let others = std::env::vars_os().filter(|(key, _)| key != ACTOR && key != STAGE && key != env.0);
    let mut vars: Vec<CString> =
        others.map(|(key, value)| text(&[key.as_os_str(), value.as_os_str()].join(OsStr::new("=")))).collect();
    vars.push(text(format!("{}={}", env.0, env.1).as_ref()));
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|t| t.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (args_p, vars_p) = (pointers(&args), pointers(&vars));
    let map = |id: u32| text(format!("0 {id} 1\n").as_ref());
    // SAFETY: cannot fail.
    let (user, group) = (retrial::sys::euid(), unsafe { libc::getegid() });
    let maps = [
        (c"/proc/self/setgroups", c"deny".to_owned()),
        (c"/proc/self/uid_map", map(user)),
        (c"/proc/self/gid_map", map(group)),
    ];
    let child = || {
        // Whoever started us may die by a failed assertion.
        // SAFETY: takes no memory.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        for (path, content) in maps.iter().filter(|_| place.user) {
            // SAFETY: a string with its 0.
            let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY) };
            // SAFETY: as long as it says.
            unsafe { libc::write(fd, content.as_ptr().cast(), content.as_bytes().len()) };
        }
        for (to, from) in (0..).zip(stdio.iter().flatten()) {
            // SAFETY: takes no memory.
            unsafe { libc::dup2(*from, to) };
        }
        // SAFETY: strings with their 0 in arrays that end with null.
        unsafe { libc::execve(program.as_ptr(), args_p.as_ptr(), vars_p.as_ptr()) };
        // SAFETY: ends the child.
        unsafe { libc::_exit(127) }
    };
    clone(place, child)
}

/// A child process at a place; `child` is called in it and must not return.
fn clone(place: Place<'_>, child: impl FnOnce() -> i32) -> io::Result<(i32, OwnedFd)> {
    let mut pidfd: RawFd = -1;
    let wanted = place.tid.as_ref().map_or(0, |tid| std::ptr::from_ref(tid).addr());
    let flags = [(place.fresh, libc::CLONE_NEWPID), (place.user, libc::CLONE_NEWUSER)];
    let flags: i32 = flags.iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, flag)| flag).sum();
    // SAFETY: plain numbers, of which 0 is none.
    let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
    how.flags = u64::from((flags | libc::CLONE_PIDFD).cast_unsigned());
    how.pidfd = (&raw mut pidfd).addr() as u64;
    how.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    how.set_tid = wanted as u64;
    how.set_tid_size = u64::from(place.tid.is_some());
    // A namespace is entered by the children of the thread that asks for it.
    let home = std::fs::File::open("/proc/thread-self/ns/pid_for_children")?;
    if let Some(actor) = place.beside {
        enter(actor.pidfd.as_raw_fd())?;
    }
    // SAFETY: like fork: the child has a copy of this memory, and calls nothing but the kernel.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut how, size_of_val(&how)) };
    if pid == 0 {
        child();
        unreachable!("the child has ended");
    }
    let error = io::Error::last_os_error();
    if place.beside.is_some() {
        enter(home.as_raw_fd())?;
    }
    if pid < 0 {
        return Err(error);
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok((pid as i32, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

fn enter(namespace: RawFd) -> io::Result<()> {
    // SAFETY: takes no memory.
    if unsafe { libc::setns(namespace, libc::CLONE_NEWPID) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ended {
    code: Option<i32>,
    signal: Option<i32>,
}

fn wait(pid: i32) -> Ended {
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    Ended {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
    }
}

/// Waits until all threads of a child are stopped.
fn wait_until_stopped(pid: i32) {
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) }, pid);
    assert!(libc::WIFSTOPPED(status), "{status:#x}");
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: takes no memory.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Whether there is such a process in our namespace.
fn is_there(pid: i32) -> bool {
    // SAFETY: signal 0 is none.
    unsafe { libc::kill(pid, 0) == 0 }
}

/// A process that does what it is told.
struct Actor {
    /// As this process sees it.
    pid: i32,
    pidfd: OwnedFd,
    input: PipeWriter,
    lines: Lines<BufReader<PipeReader>>,
    is_gone: bool,
}

impl Actor {
    fn try_new(name: &Name, place: Place<'_>) -> io::Result<Self> {
        let ((input_end, input), (output, output_end)) = (io::pipe()?, io::pipe()?);
        let stdio = Some([input_end.as_raw_fd(), output_end.as_raw_fd()]);
        let (pid, pidfd) = launch(place, &[], (ACTOR, &name.0.to_string()), stdio)?;
        let mut actor = Self { pid, pidfd, input, lines: BufReader::new(output).lines(), is_gone: false };
        drop((input_end, output_end));
        assert_eq!(actor.hear(), "hello");
        Ok(actor)
    }

    fn new(name: &Name, place: Place<'_>) -> Self {
        Self::try_new(name, place).unwrap()
    }

    fn tell(&mut self, command: &str) {
        self.input.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        self.lines.next().expect("the actor lives").unwrap()
    }

    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear()
    }

    fn session(&mut self) -> Sid {
        Sid::new(self.ask("session").parse().unwrap())
    }

    /// Its process and thread id as it sees them.
    fn ids(&mut self) -> (i32, i32) {
        let reply = self.ask("ids");
        let (pid, tid) = reply.split_once(' ').unwrap();
        (pid.parse().unwrap(), tid.parse().unwrap())
    }

    fn wait(mut self) -> Ended {
        self.is_gone = true;
        wait(self.pid)
    }

    fn kill(self) {
        signal(self.pid, libc::SIGKILL);
        assert_eq!(self.wait().signal, Some(libc::SIGKILL));
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if !self.is_gone {
            signal(self.pid, libc::SIGKILL);
            wait(self.pid);
        }
    }
}

struct Name(Address);

impl Name {
    fn new(test: &str) -> Self {
        let text = format!("live-{test}-{}-{}", std::process::id(), retrial::sys::now_ns());
        Self(Address::new(&text).unwrap())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.path());
    }
}

/// An instance with a mutex `m`, and a session of the test itself.
struct Scene {
    name: Name,
    instance: &'static Instance,
    session: &'static Session<'static>,
    mutex: Mutex<'static, u64>,
}

impl Scene {
    fn new(test: &str) -> Self {
        let name = Name::new(test);
        let instance: &'static Instance = Box::leak(Box::new(Instance::create(&name.0, CAPACITY, 0o600).unwrap()));
        let session = Box::leak(Box::new(instance.session("test", Class::Normal).unwrap()));
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        Self { name, instance, session, mutex }
    }

    fn actor(&self, place: Place<'_>) -> Actor {
        Actor::new(&self.name, place)
    }

    /// Whether a session has the mutex, lives, and cannot be taken for dead.
    fn holds(&self, sid: Sid) -> bool {
        let info = self.instance.tables().session_info(sid);
        let lives = info.is_some_and(|info| !info.dead) && self.instance.recover(sid) == Recovery::NotDead;
        let busy = matches!(
            self.mutex.get(self.session, Mode::Exclusive, location!("test"), Patience::None),
            Err(GetError::Busy)
        );
        lives && busy && self.mutex.word().sid() == sid
    }

    /// Gets the mutex after a death, which is told, and declares it consistent.
    fn get_from_the_dead(&self, context: &str) -> Death {
        let Err(GetError::OwnerDied(mut died)) = self.mutex.exclusive(self.session, location!("test")) else {
            panic!("{context}: not told of a death")
        };
        died.guard.consistent();
        died.death.expect("known")
    }

    /// Waits until so many sessions wait.
    fn until_waiting(&self, count: usize) {
        while self.instance.tables().sessions().iter().filter(|session| session.wait.is_some()).count() < count {
            std::thread::yield_now();
        }
    }

    /// Offset in the segment of the first lock that this thread of an actor holds, the tables' lock for nobody.
    fn lock_of(&self, tid: Option<i32>) -> u64 {
        // SAFETY: this process changes no data now.
        let words = unsafe { self.instance.tables().peek(0, self.instance.tables().len_bytes() / 8) }.unwrap();
        let robust_shared = 16 | 128;
        let is_lock = |at: &usize| words[at + 2] & 0xffff_ffff == robust_shared;
        let is_held = |at: &usize| tid.is_none_or(|tid| words[*at] & 0x3fff_ffff == u64::from(tid.cast_unsigned()));
        (0..words.len() - 2).step_by(8).filter(is_lock).find(is_held).expect("it holds one") as u64 * 8
    }
}

/// Whether the kernel lets us choose process ids in a PID namespace of our own.
fn is_refused(error: &io::Error) -> bool {
    let codes = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::ENOSPC, libc::E2BIG];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Runs a test as the first process of a PID namespace of its own, in a user namespace of its own unless we are root.
fn on_stage(test: &str, scene: impl FnOnce()) {
    if std::env::var(STAGE).is_ok_and(|stage| stage == test) {
        // SAFETY: ends the child.
        let probe = clone(Place { tid: Some(CHOSEN - 1), ..HERE }, || unsafe { libc::_exit(0) });
        match probe {
            Ok((pid, _)) => assert_eq!(wait(pid).code, Some(0)),
            Err(error) => return eprintln!("{test}: not tested, no process ids of our choice: {error}"),
        }
        return scene();
    }
    let user = retrial::sys::euid() != 0;
    let (pid, _stage) = match launch(Place { user, ..FRESH }, &["--exact", test, "--nocapture"], (STAGE, test), None) {
        Ok(stage) => stage,
        Err(error) if is_refused(&error) => return eprintln!("{test}: not tested, no PID namespace: {error}"),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(wait(pid), Ended { code: Some(0), signal: None }, "the stage of {test}");
}

// Part three: PID namespaces.

#[test]
fn a_dead_holder_whose_ids_are_taken_again_is_dead() {
    on_stage("a_dead_holder_whose_ids_are_taken_again_is_dead", || {
        let chosen = Place { tid: Some(CHOSEN), ..HERE };
        let mut cases = 0;
        // The one that has the ids now looks for the dead itself, or somebody else does.
        for (mode, looks) in Mode::ALL.into_iter().flat_map(|mode| [false, true].map(|looks| (mode, looks))) {
            let scene = Scene::new("again");
            let mut holder = scene.actor(chosen);
            assert_eq!(holder.ids(), (CHOSEN, CHOSEN));
            assert_eq!(holder.ask(&format!("get {mode} m")), "got");
            let sid = holder.session();
            holder.kill();
            let mut again = scene.actor(chosen);
            assert_eq!(again.ids(), (CHOSEN, CHOSEN), "taken by another process before anybody looks");
            let info = scene.instance.tables().session_info(sid).unwrap();
            assert!(info.dead && info.tid == CHOSEN as u32, "{mode}: dead, although somebody has its id");
            let told = mode != Mode::Shared;
            if looks {
                // It claims the dead one's slot, or another.
                let expected = if told { format!("died {sid}") } else { "got".to_owned() };
                assert_eq!(again.ask("get X m"), expected, "{mode}");
                assert_eq!(again.ask("release"), "done");
            } else if told {
                assert_eq!(scene.get_from_the_dead(&mode.to_string()).sid, sid);
            } else {
                assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok());
            }
            assert_eq!(scene.mutex.word(), Word::FREE, "{mode}");
            assert!(is_there(CHOSEN), "nobody did anything to the process that has the ids now");
            cases += 1;
        }
        assert_eq!(cases, 8);
    });
}

#[test]
fn a_dead_holder_whose_slot_and_ids_are_taken_again_is_two_sessions() {
    on_stage("a_dead_holder_whose_slot_and_ids_are_taken_again_is_two_sessions", || {
        let chosen = Place { tid: Some(CHOSEN), ..HERE };
        let scene = Scene::new("slot");
        let mut rounds = 0;
        let mut sids = Vec::new();
        for _ in 0..40 {
            let mut holder = scene.actor(chosen);
            let told = holder.ask("get X m");
            match sids.last() {
                None => assert_eq!(told, "got"),
                Some(before) => {
                    assert_eq!(told, format!("died {before}"), "with the same ids, and often the same slot");
                }
            }
            sids.push(holder.session());
            holder.kill();
            rounds += 1;
        }
        scene.get_from_the_dead("the last");
        assert_eq!(scene.instance.tables().sessions().len(), 1);
        assert!(sids.windows(2).any(|pair| pair[0] == pair[1]), "the same slot at least once: {sids:?}");
        assert_eq!(rounds, 40);
    });
}

#[test]
fn a_living_holder_whose_ids_mean_nobody_or_the_dead_elsewhere_is_alive() {
    on_stage("a_living_holder_whose_ids_mean_nobody_or_the_dead_elsewhere_is_alive", || {
        let scene = Scene::new("mirror");
        let inside = scene.actor(FRESH);
        let mut holder = scene.actor(Place { tid: Some(CHOSEN), beside: Some(&inside), ..HERE });
        assert_eq!(holder.ids(), (CHOSEN, CHOSEN));
        assert_ne!(holder.pid, CHOSEN);
        assert_eq!(holder.ask("get X m"), "got");
        let sid = holder.session();
        assert!(!is_there(CHOSEN), "its id means nobody here");
        assert!(scene.holds(sid));
        // Another one with this id lives here, dies, is waited for: none of it is the holder's.
        for what in ["get X other", "session", "ids"] {
            let mut namesake = scene.actor(Place { tid: Some(CHOSEN), ..HERE });
            assert_eq!(namesake.pid, CHOSEN);
            namesake.ask(what);
            assert!(scene.holds(sid), "{what}: beside a living namesake");
            signal(namesake.pid, libc::SIGKILL);
            while is_there(CHOSEN) && scene.instance.tables().sessions().iter().all(|s| !s.dead) && what != "ids" {
                assert!(scene.holds(sid), "{what}: beside a namesake that dies");
            }
            assert_eq!(namesake.wait().signal, Some(libc::SIGKILL));
            assert!(scene.holds(sid), "{what}: after the death of a namesake");
            scene.instance.recover_all();
            assert!(scene.holds(sid), "{what}: after its recovery");
        }
        assert_eq!(scene.instance.tables().sessions().len(), 2);
        assert_eq!(holder.ask("release"), "done");
        assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok(), "nobody died");
    });
}

#[test]
fn two_namespaces_recover_each_others_dead() {
    on_stage("two_namespaces_recover_each_others_dead", || {
        let mut cases = 0;
        // The first process of each has thread id 1; the others have ids of their own.
        for (mode, equal) in Mode::ALL.into_iter().flat_map(|mode| [true, false].map(|equal| (mode, equal))) {
            let scene = Scene::new("two");
            let (one, two) = (scene.actor(FRESH), scene.actor(FRESH));
            let actors = |tids: [i32; 2]| {
                let place = |beside, tid| Place { tid: Some(tid), beside: Some(beside), ..HERE };
                [scene.actor(place(&one, tids[0])), scene.actor(place(&two, tids[1]))]
            };
            for round in 0..2 {
                let tids = if equal { [CHOSEN; 2] } else { [CHOSEN, CHOSEN + 1] };
                let [a, b] = actors(tids);
                let (mut holder, mut waiter) = if round == 0 { (a, b) } else { (b, a) };
                assert_eq!(holder.ids().1 == waiter.ids().1, equal);
                assert_eq!(holder.ask(&format!("get {mode} m")), "got");
                let sid = holder.session();
                assert_eq!(waiter.ask("try X m"), "busy", "{mode}");
                waiter.tell("get X m");
                scene.until_waiting(1);
                assert!(scene.holds(sid) || mode == Mode::Shared);
                holder.kill();
                let expected = if mode == Mode::Shared { "got".to_owned() } else { format!("died {sid}") };
                assert_eq!(waiter.hear(), expected, "{mode}, equal ids {equal}, round {round}");
                assert_eq!(waiter.ask("release"), "done");
                cases += 1;
            }
        }
        assert_eq!(cases, 16);
    });
}

#[test]
fn an_equal_thread_id_in_another_namespace_is_somebody_else() {
    on_stage("an_equal_thread_id_in_another_namespace_is_somebody_else", || {
        let scene = Scene::new("equal");
        let (mut a, mut b) = (scene.actor(FRESH), scene.actor(FRESH));
        assert_eq!((a.ids(), b.ids()), ((1, 1), (1, 1)));
        assert_eq!(a.ask("get X m"), "got");
        let (sid, lock) = (a.session(), scene.lock_of(Some(1)));
        assert_ne!(sid, b.session(), "the slot of the one is not free to the other");
        let busy = format!("refused {}", libc::EBUSY);
        assert_eq!(b.ask(&format!("lock {lock}")), busy, "libc compares numbers, and says that it is taken");
        for mode in Mode::ALL {
            assert_eq!(b.ask(&format!("try {mode} m")), "busy");
        }
        assert_eq!(b.ask("sessions 200"), "done", "more than there are slots");
        assert!(scene.holds(sid), "after claims and ends of another one's sessions");
        assert_eq!(b.ask(&format!("recover {}", sid.number())), "NotDead", "asked by its namesake");
        // A dead third is recovered by either beside the other.
        for round in 0..2 {
            let mut third = scene.actor(FRESH);
            assert_eq!(third.ask("get X third"), "got");
            let dead = third.session();
            third.kill();
            let recoverer = if round == 0 { &mut a } else { &mut b };
            assert_eq!(recoverer.ask(&format!("recover {}", dead.number())), "Done { mutexes: 1 }");
            assert_eq!(recoverer.ask("get X third"), format!("died {dead}"));
            assert_eq!(recoverer.ask("release"), "done");
            assert!(scene.holds(sid));
        }
        // The tables that the one has locked are locked to the other.
        let tables = scene.lock_of(None);
        assert_eq!(a.ask(&format!("lock {tables}")), "taken");
        assert_eq!(b.ask(&format!("lock {tables}")), busy);
        assert_eq!(b.ask("late session"), SessionError::Stuck.to_string());
        assert_eq!(a.ask("unlock"), "0");
        assert_eq!(b.ask("late session"), "made");
        // The death of the one is not the other's, whoever waits for it.
        assert_eq!(b.ask("get X other"), "got");
        b.kill();
        assert!(scene.holds(sid));
        assert_eq!(scene.instance.recover_all(), (1, 0));
        assert!(scene.holds(sid));
        assert_eq!(a.ask("release"), "done");
        assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok());
    });
}

#[test]
fn a_user_namespace_of_its_own_changes_nothing() {
    let scene = Scene::new("user");
    let mut actor = match Actor::try_new(&scene.name, Place { user: true, ..FRESH }) {
        Ok(actor) => actor,
        Err(error) if is_refused(&error) => return eprintln!("not tested, no user namespace: {error}"),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(actor.ids(), (1, 1));
    for mode in [Mode::Exclusive, Mode::LongExclusive, Mode::Examine] {
        assert_eq!(actor.ask(&format!("get {mode} m")), "got");
        let sid = actor.session();
        assert!(scene.holds(sid));
        assert_eq!(actor.ask("release"), "done");
    }
    assert_eq!(actor.ask("get X m"), "got");
    let sid = actor.session();
    actor.kill();
    assert_eq!(scene.get_from_the_dead("outside of it").sid, sid);
    // The reverse: it waits for one outside.
    let (mut actor, mut holder) = (scene.actor(Place { user: true, ..FRESH }), scene.actor(HERE));
    assert_eq!(holder.ask("get X m"), "got");
    actor.tell("get X m");
    scene.until_waiting(1);
    let sid = holder.session();
    holder.kill();
    assert_eq!(actor.hear(), format!("died {sid}"));
}

// Part four: forks and execs.

#[test]
fn a_child_of_fork_has_nothing_of_its_parent_and_takes_nothing_from_it() {
    for (mode, end) in [Mode::Exclusive, Mode::LongExclusive, Mode::Examine]
        .into_iter()
        .flat_map(|mode| ["exit", "_exit"].map(|end| (mode, end)))
    {
        let scene = Scene::new("fork");
        let mut parent = scene.actor(HERE);
        assert_eq!(parent.ask(&format!("get {mode} m")), "got");
        let sid = parent.session();
        assert_eq!(parent.ask(&format!("fork checks {end}")), "Some(0)", "{mode}: a bit for each thing that is not so");
        assert!(scene.holds(sid), "{mode}, {end}: after the child has ended");
        assert_eq!(scene.instance.tables().sessions().len(), 2, "{mode}, {end}: the child's own sessions ended");
        assert_eq!(parent.ask("release"), "done");
        assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok(), "{mode}, {end}");
    }
}

#[test]
fn a_session_without_a_mutex_stays_its_parents_too() {
    let scene = Scene::new("idle");
    let mut parent = scene.actor(HERE);
    let sid = parent.session();
    assert_eq!(parent.ask("fork drops"), "Some(0)");
    assert!(scene.instance.tables().session_info(sid).is_some_and(|info| !info.dead));
    assert_ne!(scene.actor(HERE).session(), sid, "its slot is not free");
    assert_eq!(parent.ask("get X m"), "got");
    assert!(scene.holds(sid));
}

#[test]
fn a_holder_that_dies_before_its_child_is_dead() {
    for mode in Mode::ALL {
        let scene = Scene::new("orphan");
        let mut parent = scene.actor(HERE);
        assert_eq!(parent.ask(&format!("get {mode} m")), "got");
        let sid = parent.session();
        assert_eq!(parent.ask("fork stays"), "done");
        let (pid, mut lines) =
            (parent.pid, std::mem::replace(&mut parent.lines, BufReader::new(io::pipe().unwrap().0).lines()));
        signal(pid, libc::SIGKILL);
        wait(pid);
        parent.is_gone = true;
        if mode == Mode::Shared {
            assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok());
        } else {
            assert_eq!(scene.get_from_the_dead("the child lives").sid, sid);
        }
        // The child has its end of the pipe until it is told that the test is over.
        drop(parent);
        assert!(lines.next().is_none(), "the child has ended");
    }
}

#[test]
fn a_child_of_fork_dies_for_itself() {
    let scene = Scene::new("own");
    let mut parent = scene.actor(HERE);
    assert_eq!(parent.ask("get X m"), "got");
    let sid = parent.session();
    let reply = parent.ask("fork holds other");
    let (pid, child) = reply.split_once(' ').unwrap();
    let child = Sid::new(child.parse().unwrap());
    assert_ne!(child, sid, "a session of its own, on the instance of its parent");
    signal(pid.parse().unwrap(), libc::SIGKILL);
    assert_eq!(parent.hear(), format!("ended Some({})", libc::SIGKILL));
    assert!(scene.holds(sid));
    let other = scene.instance.mutex("other", "test", || 0u64).unwrap();
    let Err(GetError::OwnerDied(died)) = other.exclusive(scene.session, location!("test")) else {
        panic!("not told of the child's death")
    };
    assert_eq!(died.death.unwrap().sid, child);
    assert!(scene.holds(sid), "its parent has what it had");
    assert_eq!(parent.ask("release"), "done");
    assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok());
}

#[test]
fn a_program_that_a_holder_starts_takes_nothing_from_it() {
    let scene = Scene::new("spawn");
    let mut holder = scene.actor(HERE);
    assert_eq!(holder.ask("get X m"), "got");
    let sid = holder.session();
    for _ in 0..3 {
        // posix_spawn: a child in the holder's memory, until it is another program.
        assert_eq!(holder.ask("spawn"), "true");
        assert!(scene.holds(sid));
    }
    assert_eq!(holder.ask("release"), "done");
    assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok());
}

#[test]
fn an_exec_is_a_death() {
    for (mode, how) in Mode::ALL.into_iter().flat_map(|mode| ["exec", "exec beside"].map(|how| (mode, how))) {
        let scene = Scene::new("exec");
        let mut holder = scene.actor(HERE);
        assert_eq!(holder.ask(&format!("get {mode} m")), "got");
        let sid = holder.session();
        assert_eq!(holder.ask(how), "hello", "the same process, another program");
        assert_eq!(holder.ids().0, holder.pid);
        if mode == Mode::Shared {
            assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok());
        } else {
            assert_eq!(scene.get_from_the_dead(how).sid, sid, "{how}: {mode}");
        }
        assert_eq!(holder.ask("get X m"), "got", "{how}: {mode}: a participant like any other");
    }
}

#[test]
fn a_child_that_no_fork_handler_is_told_of_has_nothing_of_its_parents() {
    let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let session = instance.session("parent", Class::Normal).unwrap();
    let here = location!("no handler");
    drop(mutex.exclusive(&session, here).unwrap());
    let guard = mutex.exclusive(&session, here).unwrap();
    // As fork, but libc knows nothing of it. SAFETY: a copy of this process on its own copy of the stack.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        let refused = matches!(mutex.get(&session, Mode::Shared, here, Patience::None), Err(GetError::Forked { .. }));
        drop(guard);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: our own child; `status` is writable.
    let waited = unsafe { libc::waitpid(child as i32, &raw mut status, 0) };
    assert_eq!((i64::from(waited), status), (child, 0), "refused");
    assert_eq!(mutex.word().sid(), session.sid(), "still the parent's");
    drop(guard);
    assert_eq!(mutex.word(), Word::FREE);
}

#[test]
fn an_exec_by_another_thread_than_the_first_is_a_death_too() {
    // The kernel gives this thread the id of the first one, and then marks the locks that the id of the first
    // one has: not this one's. So a waiter asks the kernel for its blocker's thread.
    for mode in Mode::ALL {
        let scene = Scene::new("exec-thread");
        let (mut holder, mut elsewhere) = (scene.actor(HERE), scene.actor(HERE));
        assert_eq!(elsewhere.ask("exec thread X other"), "hello");
        assert_eq!(holder.ask(&format!("exec thread {mode} m")), "hello");
        if mode == Mode::Shared {
            assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok());
        } else {
            assert_eq!(scene.get_from_the_dead("exec thread").mode, mode);
        }
        // No session asks for one that does not keep it waiting; but a word with references names no session.
        let threads = || scene.instance.tables().sessions().into_iter().filter(|session| session.name == "thread");
        scene.instance.recover_all();
        let left = if mode == Mode::Shared { vec![] } else { vec![false] };
        assert_eq!(threads().map(|session| session.dead).collect::<Vec<_>>(), left, "{mode}");
        let reply = holder.ask("get X other");
        assert!(reply.starts_with("died"), "{mode}: {reply}, by a participant like any other");
    }
}

#[test]
fn tries_find_out_that_an_exec_has_ended_the_holder() {
    let scene = Scene::new("exec-try");
    let mut holder = scene.actor(HERE);
    assert_eq!(holder.ask("exec thread X m"), "hello");
    let found = (0..30_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        matches!(scene.mutex.try_exclusive(scene.session, location!("test")), Err(GetError::OwnerDied(_)))
    });
    assert!(found);
}

#[test]
fn a_reader_can_leave_although_an_exec_has_ended_the_examiner() {
    let scene = Scene::new("exec-examiner");
    let (mut reader, mut holder) = (scene.actor(HERE), scene.actor(HERE));
    assert_eq!(reader.ask("get S m"), "got");
    assert_eq!(holder.ask("exec thread E m"), "hello");
    // Hangs where the reader does not ask for the examiner's thread.
    assert_eq!(reader.ask("release"), "done");
}

#[test]
fn a_session_that_an_exec_has_ended_gives_its_slot_to_the_next_when_all_are_taken() {
    let scene = Scene::new("exec-slot");
    let mut holder = scene.actor(HERE);
    assert_eq!(holder.ask("exec thread S m"), "hello");
    let mut sessions = Vec::new();
    while let Ok(session) = scene.instance.session("more", Class::Normal) {
        sessions.push(session);
    }
    let names: Vec<_> = scene.instance.tables().sessions().into_iter().map(|session| session.name).collect();
    assert_eq!(names.len(), CAPACITY.sessions as usize);
    assert!(!names.contains(&"thread".into()), "{names:?}");
}

// Part five: ways to die.

#[test]
fn a_death_is_a_death_however_it_comes() {
    let signals = [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGABRT,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGSYS,
        libc::SIGTRAP,
        libc::SIGALRM,
        libc::SIGXFSZ,
        libc::SIGKILL,
    ];
    let by_signal = |signal: i32| (format!("die signal {signal}"), Ended { code: None, signal: Some(signal) });
    let mut ways: Vec<(String, Ended)> = signals.into_iter().map(by_signal).collect();
    ways.push(("die cpu".into(), Ended { code: None, signal: Some(libc::SIGXCPU) }));
    ways.push(("die address".into(), Ended { code: None, signal: Some(libc::SIGSEGV) }));
    ways.push(("die abort".into(), Ended { code: None, signal: Some(libc::SIGABRT) }));
    ways.push(("die exit".into(), Ended { code: Some(3), signal: None }));
    ways.push(("die _exit".into(), Ended { code: Some(3), signal: None }));
    ways.push(("die thread".into(), Ended { code: Some(3), signal: None }));
    for (way, expected) in &ways {
        let scene = Scene::new("ways");
        let mut holder = scene.actor(HERE);
        let mut waiter = scene.actor(HERE);
        assert_eq!(holder.ask("get X m"), "got");
        let sid = holder.session();
        waiter.tell("get X m");
        scene.until_waiting(1);
        holder.tell(way);
        assert_eq!(holder.wait(), *expected, "{way}");
        assert_eq!(waiter.hear(), format!("died {sid}"), "{way}");
    }
    assert_eq!(ways.len(), 20);
}

#[test]
fn a_thread_that_ends_with_a_mutex_is_dead_while_its_process_lives() {
    for (mode, how) in Mode::ALL.into_iter().flat_map(|mode| ["returns", "exits"].map(|how| (mode, how))) {
        let scene = Scene::new("thread");
        let mut actor = scene.actor(HERE);
        assert_eq!(actor.ask("get X other"), "got");
        let reply = actor.ask(&format!("thread {how} {mode} m"));
        assert_eq!(reply, "ended", "{how}");
        if mode == Mode::Shared {
            assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok());
        } else {
            assert_eq!(scene.get_from_the_dead(how).mode, mode);
        }
        let sid = actor.session();
        assert!(scene.instance.tables().session_info(sid).is_some_and(|info| !info.dead), "the other thread lives");
        assert_eq!(actor.ask("release"), "done");
    }
}

#[test]
fn what_an_ended_thread_has_lent_is_held_until_its_process_ends_or_is_replaced() {
    for (mode, end) in Mode::ALL.into_iter().flat_map(|mode| ["kill", "exec", "exit"].map(|end| (mode, end))) {
        let scene = Scene::new("lent");
        let mut actor = scene.actor(HERE);
        assert_eq!(actor.ask(&format!("thread lends {mode} m")), "lent 0");
        let lender = scene.instance.tables().sessions().into_iter().find(|session| session.name == "lender").unwrap();
        let kept = || {
            scene.instance.look_for_threads();
            scene.instance.recover_all();
            let got = scene.mutex.get(scene.session, Mode::Exclusive, location!("test"), Patience::None);
            let info = scene.instance.tables().session_info(lender.sid).unwrap();
            matches!(got, Err(GetError::Busy)) && !info.dead && info.kept
        };
        // The kernel marks the lock when the thread is quite gone.
        while !scene.instance.tables().session_info(lender.sid).unwrap().kept {
            assert!(!scene.instance.tables().session_info(lender.sid).unwrap().dead);
            std::thread::yield_now();
        }
        assert!(kept() && kept(), "{mode}");
        let alerts =
            scene.instance.tables().alerts(0).into_iter().filter(|(_, _, text)| text.contains("a guard was leaked"));
        assert_eq!(alerts.count(), 1, "told once");
        match end {
            "kill" => signal(actor.pid, libc::SIGKILL),
            "exec" => assert_eq!(actor.ask("exec"), "hello"),
            _ => actor.tell("die exit"),
        }
        if mode == Mode::Shared {
            assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok());
        } else {
            assert_eq!(scene.get_from_the_dead(end).mode, mode);
        }
        assert!(scene.instance.tables().session_info(lender.sid).is_none_or(|info| info.name != "lender"), "{end}");
    }
}

#[test]
fn a_waiter_that_is_cancelled_ends_after_its_wait_and_is_dead_then() {
    for (position, scheme) in retrial::wait::NAMES.iter().enumerate() {
        let scene = Scene::new("cancel");
        scene.instance.set(P::Scheme, None, position as u64);
        let guard = scene.mutex.exclusive(scene.session, location!("test")).unwrap();
        let mut actor = scene.actor(HERE);
        assert_eq!(actor.ask("thread waits X m"), "done");
        scene.until_waiting(1);
        assert_eq!(actor.ask("thread cancel"), "0");
        drop(guard);
        assert_eq!(actor.ask("thread join"), "cancelled", "{scheme}");
        // No step of a wait is a cancellation point: it ended at the first one after it.
        assert_eq!(scene.get_from_the_dead(scheme).mode, Mode::Exclusive, "{scheme}");
        assert_eq!(scene.mutex.parked(), 0, "{scheme}");
    }
}

#[test]
fn a_forgotten_session_is_alive_as_long_as_its_thread() {
    for mode in [Mode::Exclusive, Mode::LongExclusive, Mode::Examine] {
        let scene = Scene::new("forget");
        let mut actor = scene.actor(HERE);
        assert_eq!(actor.ask(&format!("thread forgets {mode} m")), "forgotten");
        // Its instance is dropped, its thread goes on.
        let sid = scene.mutex.word().sid();
        assert!(scene.holds(sid), "{mode}");
        actor.tell("go on");
        assert_eq!(actor.hear(), "ended", "{mode}: and nothing crashed");
        let death = scene.get_from_the_dead("its thread has ended");
        assert_eq!((death.sid, death.mode), (sid, mode));
        assert_eq!(actor.ask("get X m"), "got", "{mode}: the process goes on");
    }
}

// Part six: stops.

#[test]
fn a_stopped_holder_is_waited_for_and_reported() {
    for (position, scheme) in retrial::wait::NAMES.iter().enumerate() {
        let scene = Scene::new("stop");
        scene.instance.set(P::Scheme, None, position as u64);
        scene.instance.set(P::AlertThreshold, None, 1);
        let mut holder = scene.actor(HERE);
        assert_eq!(holder.ask("get X m"), "got");
        let sid = holder.session();
        assert_eq!(holder.ask("add"), "done");
        signal(holder.pid, libc::SIGSTOP);
        wait_until_stopped(holder.pid);
        let mut waiters = [scene.actor(HERE), scene.actor(HERE)];
        for waiter in &mut waiters {
            waiter.tell("get X m\nadd\nrelease");
        }
        scene.until_waiting(2);
        let reported = || {
            let alerts = scene.instance.tables().alerts(0);
            let told =
                |waiter: &str| alerts.iter().any(|(_, _, line)| line.contains(waiter) && line.contains("has waited"));
            let waiting = scene.instance.tables().sessions();
            let waiting: Vec<Sid> =
                waiting.iter().filter(|session| session.wait.is_some()).map(|session| session.sid).collect();
            waiting.len() == 2 && waiting.iter().all(|sid| told(&format!("session {sid} ")))
        };
        while !reported() {
            assert!(scene.holds(sid), "{scheme}: stopped, not dead");
        }
        let by = format!("held by session {sid}");
        assert!(scene.instance.tables().alerts(0).iter().any(|(_, _, line)| line.ends_with(&by)), "{scheme}");
        let short = Duration::from_millis(20);
        let got = scene.mutex.get(scene.session, Mode::Exclusive, location!("test"), Patience::within(short));
        assert!(matches!(got, Err(GetError::TimedOut)), "{scheme}: a deadline holds");
        drop(got);
        assert!(scene.holds(sid), "{scheme}: after a wait of {short:?}");
        signal(holder.pid, libc::SIGCONT);
        assert_eq!(holder.ask("add"), "done");
        assert_eq!(holder.ask("release"), "done");
        for waiter in &mut waiters {
            assert_eq!([waiter.hear(), waiter.hear(), waiter.hear()], ["got", "done", "done"], "{scheme}: nobody died");
        }
        let guard = scene.mutex.exclusive(scene.session, location!("test")).expect("nobody died");
        assert_eq!(*guard, 4, "{scheme}: nobody lost anything");
    }
}

#[test]
fn a_stopped_waiter_strands_nobody() {
    let mut cases = 0;
    for (position, scheme) in retrial::wait::NAMES.iter().enumerate() {
        for fairness in 0..3 {
            let scene = Scene::new("stopped");
            scene.instance.set(P::Scheme, None, position as u64);
            scene.instance.set(P::Fairness, None, fairness);
            let guard = scene.mutex.exclusive(scene.session, location!("test")).unwrap();
            let (mut first, mut second) = (scene.actor(HERE), scene.actor(HERE));
            first.tell("get X m");
            scene.until_waiting(1);
            signal(first.pid, libc::SIGSTOP);
            wait_until_stopped(first.pid);
            second.tell("get X m");
            scene.until_waiting(2);
            // Whatever a release does for the one that waits longest, it does not run.
            drop(guard);
            assert_eq!(second.hear(), "got", "{scheme}, fairness {fairness}");
            assert_eq!(second.ask("release"), "done");
            signal(first.pid, libc::SIGCONT);
            assert_eq!(first.hear(), "got", "{scheme}, fairness {fairness}");
            assert_eq!(first.ask("release"), "done");
            cases += 1;
        }
    }
    assert_eq!(cases, 3 * retrial::wait::NAMES.len(), "each scheme with each fairness");
}

#[test]
fn a_process_that_stops_with_the_tables_locked_is_said_and_its_death_is_healed() {
    let scene = Scene::new("tables");
    let lock = scene.lock_of(None);
    let mut stopped = scene.actor(HERE);
    assert_eq!(stopped.ask(&format!("lock {lock}")), "taken");
    signal(stopped.pid, libc::SIGSTOP);
    wait_until_stopped(stopped.pid);
    assert!(matches!(scene.instance.session("late", Class::Normal), Err(SessionError::Stuck)));
    // Who has a session already needs no tables.
    assert!(scene.mutex.exclusive(scene.session, location!("test")).is_ok());
    assert!(Observer::open(&scene.name.0).unwrap().tables().sessions().len() == 1, "nor does an observer");
    signal(stopped.pid, libc::SIGCONT);
    assert_eq!(stopped.ask("unlock"), "0");
    assert!(scene.instance.session("late", Class::Normal).is_ok());
    assert_eq!(stopped.ask(&format!("lock {lock}")), "taken");
    stopped.kill();
    assert!(scene.instance.session("late", Class::Normal).is_ok(), "the tables of the dead are anybody's");
}

#[test]
fn a_recoverer_that_stops_is_waited_for_and_one_that_dies_is_replaced() {
    let scene = Scene::new("recoverer");
    let mut holder = scene.actor(HERE);
    assert_eq!(holder.ask("get X m"), "got");
    let sid = holder.session();
    let lock = scene.lock_of(Some(holder.ids().1));
    holder.kill();
    // A recoverer begins with the dead one's lock. Here it stops.
    let mut recoverer = scene.actor(HERE);
    assert_eq!(recoverer.ask(&format!("lock {lock}")), "taken");
    signal(recoverer.pid, libc::SIGSTOP);
    wait_until_stopped(recoverer.pid);
    let short = Duration::from_millis(20);
    let got = scene.mutex.get(scene.session, Mode::Exclusive, location!("test"), Patience::within(short));
    assert!(matches!(got, Err(GetError::TimedOut)), "nobody else recovers the same one");
    drop(got);
    assert_eq!(scene.instance.recover(sid), Recovery::NotDead);
    let mut waiter = scene.actor(HERE);
    waiter.tell("get X m");
    scene.until_waiting(1);
    recoverer.kill();
    assert_eq!(waiter.hear(), format!("died {sid}"));
}
