//! What is asked of this machine, once, for all checks.

use crate::cgroup::Read;
use miette::Report;
use retrial::{Address, Capacity, Class, Instance, location};
use std::ffi::CString;

/// The machine as a process of this user finds it.
pub struct Machine<'f> {
    pub read: &'f Read<'f>,
    pub is_root: bool,
    /// Soft limits; `None` is no limit.
    pub limits: Limits,
    /// Of `/dev/shm`; `None` where there is no such file system.
    pub shm: Option<Space>,
    /// Of a timer of this thread, in ns.
    pub timer_slack_ns: Option<u64>,
    /// Whether the memory of a process may be read by its id, tried on this one.
    pub reads_processes: bool,
    /// What came of an instance made for the purpose.
    pub instance: Result<Made, String>,
    /// Where the library of `retrial run` is.
    pub preload: Result<String, String>,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Limits {
    pub files: Option<u64>,
    pub file_bytes: Option<u64>,
    pub locked_bytes: Option<u64>,
    pub threads: Option<u64>,
}

/// Of a file system, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    pub size: u64,
    pub free: u64,
}

/// An instance in which a mutex was got and given back.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// Whether a session that parks can have all processors pass a barrier.
    pub has_barrier: bool,
    /// Length of an instance of the default sizes.
    pub bytes: u64,
}

impl Machine<'_> {
    /// This one.
    pub fn here() -> Self {
        Self {
            read: &|path| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned()),
            is_root: retrial::sys::euid() == 0,
            limits: Limits {
                files: limit(libc::RLIMIT_NOFILE),
                file_bytes: limit(libc::RLIMIT_FSIZE),
                locked_bytes: limit(libc::RLIMIT_MEMLOCK),
                threads: limit(libc::RLIMIT_NPROC),
            },
            shm: space(retrial::layout::DIRECTORY),
            timer_slack_ns: timer_slack(),
            reads_processes: reads_processes(),
            instance: make(),
            preload: crate::run::preload::find().map(|path| path.display().to_string()).map_err(|error| said(&error)),
        }
    }
}

fn said(error: &Report) -> String {
    error.to_string()
}

fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writable.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    Some(limit.rlim_cur).filter(|limit| *limit != libc::RLIM_INFINITY)
}

fn space(path: &str) -> Option<Space> {
    let path = CString::new(path).ok()?;
    // SAFETY: all zero is a valid value of this plain C struct.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path with its end, and a writable struct.
    let failed = unsafe { libc::statvfs(path.as_ptr(), &raw mut stat) };
    (failed == 0).then_some(Space { size: stat.f_blocks * stat.f_frsize, free: stat.f_bavail * stat.f_frsize })
}

fn timer_slack() -> Option<u64> {
    // SAFETY: asks only.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    u64::try_from(slack).ok()
}

fn reads_processes() -> bool {
    let (there, mut here) = ([7_u8; 8], [0_u8; 8]);
    let local = libc::iovec { iov_base: here.as_mut_ptr().cast(), iov_len: here.len() };
    let remote = libc::iovec { iov_base: there.as_ptr().cast_mut().cast(), iov_len: there.len() };
    let pid = std::process::id().cast_signed();
    // SAFETY: reads our own bytes into others of ours.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    read == 8 && here == there
}

/// Makes an instance under a name of its own, gets a mutex in it, gives it back and removes the instance.
fn make() -> Result<Made, String> {
    let name = format!("doctor-{}", std::process::id());
    let address = Address::new(&name).map_err(|error| error.to_string())?;
    let capacity = Capacity { sessions: 4, mutexes: 16, locations: 16, rows: 4, arena: 4096 };
    let made = Instance::create(&address, capacity, 0o600).map_err(|error| error.to_string())?;
    let used = get(&made);
    let removed = retrial::remove(&address).map_err(|error| error.to_string());
    used?;
    removed?;
    // Where a limit keeps it from being made, any limit is too small.
    let bytes = Instance::anonymous(Capacity::default()).map_or(u64::MAX, |full| full.tables().len_bytes() as u64);
    Ok(Made { has_barrier: made.tables().has_barrier(), bytes })
}

fn get(instance: &Instance) -> Result<(), String> {
    let session = instance.session("doctor", Class::Normal).map_err(|error| error.to_string())?;
    let mutex = instance.mutex("m", "doctor", || 0_u64).map_err(|error| error.to_string())?;
    let held = mutex.exclusive(&session, location!("retrial doctor")).map_err(|error| error.to_string())?;
    drop(held);
    Ok(())
}
