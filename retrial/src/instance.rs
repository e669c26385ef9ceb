//! Instances: a segment with a name, and its tables.

use crate::aol::{LocationId, MutexId, Record};
use crate::error::{AttachError, CreateError, Death, NameError, ObjectError, SessionError, TableFull};
use crate::mode::Mode;
use crate::mutex::RawMutex;
use crate::params::{P, PARAM_COUNT, Params};
use crate::segment::{Capacity, Layout, Segment, TYPES};
use crate::session::Slot;
use crate::sys::{self, AtomicU32, AtomicU64, Ordering, RobustLock, Taken};
use crate::text::{Text, hash};
use crate::word::Sid;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `RETRIAL\0`, as the first bytes of a segment read.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RETRIAL\0");
/// Where instances with a name are.
pub const DIRECTORY: &str = "/dev/shm";
const PREFIX: &str = "retrial.";

/// Types of the source and what they protect; the position is the type's number.
pub const SOURCE_TYPES: [&str; 9] = [
    "FSO mutex",
    "HT bucket mutex (kdlwl)",
    "SHT bucket mutex",
    "HT bucket mutex",
    "Library Cache",
    "Cursor Stat",
    "Cursor Parent",
    "Cursor Pin",
    "hash table",
];

/// The first page of a segment.
#[repr(C)]
pub(crate) struct Header {
    magic: AtomicU64,
    fingerprint: AtomicU64,
    capacity: [AtomicU64; 5],
    created_ns: AtomicU64,
    creator: AtomicU64,
    /// 1 when releases rely on the waiters' barrier, 2 when they have a fence of their own.
    fence: AtomicU64,
    poll_ns: AtomicU64,
    /// Slots 1 to this have an initialised lock.
    slots_ready: AtomicU64,
    /// Where the search for a free slot starts.
    slot_hint: AtomicU64,
    /// Mutex entries up to this one have been used.
    mutexes_high: AtomicU64,
    mutex_hint: AtomicU64,
    alerts_next: AtomicU64,
    arena_next: AtomicU64,
    /// Last time that somebody looked for dead sessions because of references.
    swept_ns: AtomicU64,
    recoveries: AtomicU64,
    locations_full: AtomicU64,
    /// Guards the claim of slots and the creation of named objects. Never held while anything is waited for.
    admin: RobustLock,
}

/// A value per parameter, stored plus one; 0 is "not set", so that fresh memory means the defaults.
#[repr(C)]
pub(crate) struct ParamRow([AtomicU64; 64]);

const _: () = assert!(PARAM_COUNT <= 64, "a parameter row has a cell for each parameter");

/// A mutex type's name.
#[repr(C)]
pub(crate) struct TypeEntry {
    hash: AtomicU64,
    name: Text<7>,
}

/// A place's name.
#[repr(C)]
pub(crate) struct Location {
    hash: AtomicU64,
    name: Text<31>,
}

/// A registered mutex.
#[repr(C, align(64))]
pub(crate) struct MutexEntry {
    /// 0 free, `FREED`, `CLAIMED`, or a hash of the name.
    key: AtomicU64,
    mutex_type: AtomicU32,
    place: AtomicU32,
    address: AtomicU64,
    len: AtomicU64,
    pid: AtomicU64,
    /// Gets of a mutex whose memory cannot be read any more, or which has no record of ours.
    gets: AtomicU64,
    death: AtomicU64,
    death_sid: AtomicU64,
    pub(crate) adaption: AdaptionCells,
    name: Text<8>,
}

/// State of `adaptive` for one mutex. Changed by its holder, but for the two counts of the waiters.
#[repr(C)]
pub(crate) struct AdaptionCells {
    pub(crate) state: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) queue_sleeps: AtomicU64,
    pub(crate) last_gets: AtomicU64,
    pub(crate) last_misses: AtomicU64,
    pub(crate) last_queue_sleeps: AtomicU64,
    pub(crate) last_ns: AtomicU64,
    pub(crate) switches: AtomicU64,
}

/// The last sleep of one session for one mutex behind one blocker: a row of the sleep history.
#[repr(C, align(64))]
pub(crate) struct Past {
    /// Mutex id and blocking SID.
    pub(crate) key: AtomicU64,
    pub(crate) at_ns: AtomicU64,
    pub(crate) waiter: AtomicU64,
    pub(crate) what: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) sleeps: AtomicU64,
}

/// A line of the alert log.
#[repr(C)]
pub(crate) struct Alert {
    number: AtomicU64,
    at_ns: AtomicU64,
    text: Text<30>,
}

const FREED: u64 = 1;
const CLAIMED: u64 = 2;

/// Where a registered mutex is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Place {
    /// In memory of the user's own; only who has it mapped can reach it.
    Elsewhere = 0,
    /// In the instance's arena; the address is an offset.
    Arena = 1,
    /// In a process's private memory or in a foreign format, at an address of that process.
    Process = 2,
}

/// Identifier of a mutex type within its instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, PartialOrd, Ord)]
pub struct TypeId(pub u8);

/// A place in the code, for `location!`.
#[derive(Debug)]
pub struct CodeLocation {
    name: &'static str,
    /// Tag of the instance and id in it of the last resolution.
    cache: AtomicU64,
}

impl CodeLocation {
    /// A location of this name; the same name is the same location.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, cache: AtomicU64::new(0) }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its id in the instance; 0 when the table of locations is full.
    #[inline]
    pub fn id(&self, instance: &Instance) -> LocationId {
        // Relaxed: the value is whole or belongs to another instance.
        let cached = self.cache.load(Ordering::Relaxed);
        if cached >> 16 == instance.tag { LocationId(cached as u16) } else { self.resolve(instance) }
    }

    #[cold]
    fn resolve(&self, instance: &Instance) -> LocationId {
        let id = instance.register_location(self.name).unwrap_or_default();
        self.cache.store(instance.tag << 16 | u64::from(id.0), Ordering::Relaxed);
        id
    }
}

/// The place in the code where this stands, registered by name on first use: `location!()` is named after its file and
/// line, `location!("kglpin1 4")` as it says.
#[macro_export]
macro_rules! location {
    () => {
        $crate::location!(concat!(file!(), ":", line!()))
    };
    ($name:expr) => {{
        static LOCATION: $crate::CodeLocation = $crate::CodeLocation::new($name);
        &LOCATION
    }};
}

/// Where an instance is: by name under [`DIRECTORY`], or at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    text: String,
    path: PathBuf,
}

impl Address {
    /// A name, or a path when there is a `/` in it.
    ///
    /// # Errors
    ///
    /// [`NameError`] for a name that could leave the directory or hide in it.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let error = || NameError { found: text.to_owned() };
        if text.contains('\0') {
            return Err(error());
        }
        let path = if text.contains('/') {
            PathBuf::from(text)
        } else {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            let fits = (1..=64).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with(['.', '-']);
            if !fits {
                return Err(error());
            }
            Path::new(DIRECTORY).join(format!("{PREFIX}{text}"))
        };
        Ok(Self { text: text.to_owned(), path })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.text)
    }
}

/// Names of the instances under [`DIRECTORY`].
///
/// # Errors
///
/// When the directory cannot be read.
pub fn list() -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(DIRECTORY)?
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PREFIX).map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

/// Removes an instance's name. Who is attached goes on with it; nobody new finds it.
///
/// # Errors
///
/// When there is none, or it is not a segment of ours, or may not be removed.
pub fn remove(address: &Address) -> Result<(), AttachError> {
    if let Err(error) = Observer::open(address)
        && !matches!(error, AttachError::Format { .. } | AttachError::Truncated { .. } | AttachError::Capacity { .. })
    {
        return Err(error);
    }
    fs::remove_file(&address.path).map_err(|source| AttachError::Io { path: address.path.clone(), source })
}

/// The tables of an instance, to be read.
#[derive(Debug)]
pub struct Tables {
    pub(crate) segment: Segment,
    address: Option<Address>,
}

/// An instance mapped read-only. It takes no session and changes nothing.
#[derive(Debug)]
pub struct Observer(Tables);

impl Deref for Observer {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.0
    }
}

impl Observer {
    /// Maps an instance read-only.
    ///
    /// # Errors
    ///
    /// [`AttachError`].
    pub fn open(address: &Address) -> Result<Self, AttachError> {
        open(address, false).map(Self)
    }
}

/// An instance that this process takes part in.
#[derive(Debug)]
pub struct Instance {
    tables: Tables,
    /// Differs between the instances of this process.
    tag: u64,
    /// Sessions of this process that the kernel knows of.
    pub(crate) sessions: AtomicU32,
}

impl Deref for Instance {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.tables
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.sessions.load(Ordering::Acquire) != 0 {
            // A session was forgotten: its lock is in the list that the kernel walks when the thread ends.
            self.tables.segment.leak();
        }
    }
}

impl Instance {
    /// Creates an instance. It appears whole or not at all: a creator that dies half-way leaves nothing.
    ///
    /// `permissions` are those of the file, 0o600 for oneself alone.
    ///
    /// # Errors
    ///
    /// [`CreateError`]; when there is one of this name already, it is left as it is.
    pub fn create(address: &Address, capacity: Capacity, permissions: u32) -> Result<Self, CreateError> {
        let path = &address.path;
        let failed = |source: io::Error| CreateError::Io { path: path.clone(), source };
        let layout = check(capacity)?;
        let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (file, temporary) = unnamed_file(directory).map_err(failed)?;
        let tidy = |error: CreateError| {
            if let Some(temporary) = &temporary {
                let _ = fs::remove_file(temporary);
            }
            error
        };
        let tables = format(&file, layout, Some(address.clone())).map_err(|e| tidy(e.at(path)))?;
        file.set_permissions(fs::Permissions::from_mode(permissions)).map_err(|e| tidy(failed(e)))?;
        let source = temporary.clone().unwrap_or_else(|| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
        let linked = link(&source, path);
        if let Some(temporary) = &temporary {
            let _ = fs::remove_file(temporary);
        }
        match linked {
            Ok(()) => Ok(Self::new(tables)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(CreateError::Exists(address.to_string())),
            Err(e) => Err(failed(e)),
        }
    }

    /// Creates an instance that only this process, and what it forks, can use.
    ///
    /// # Errors
    ///
    /// [`CreateError`].
    pub fn anonymous(capacity: Capacity) -> Result<Self, CreateError> {
        let layout = check(capacity)?;
        let path = Path::new("memfd:retrial");
        // SAFETY: the name is a string with its 0.
        let fd = unsafe { libc::memfd_create(c"retrial".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(CreateError::Io { path: path.into(), source: io::Error::last_os_error() });
        }
        // SAFETY: the kernel has just given us this descriptor.
        let file = unsafe { File::from_raw_fd(fd) };
        format(&file, layout, None).map(Self::new).map_err(|e| e.at(path))
    }

    /// Takes part in an existing instance.
    ///
    /// # Errors
    ///
    /// [`AttachError`].
    pub fn attach(address: &Address) -> Result<Self, AttachError> {
        open(address, true).map(Self::new)
    }

    /// Takes part in an instance, and creates it when there is none: of two that race, one creates and the other
    /// attaches.
    ///
    /// # Errors
    ///
    /// [`CreateError`], or an [`AttachError`] as its source.
    pub fn create_or_attach(address: &Address, capacity: Capacity, permissions: u32) -> Result<Self, CreateError> {
        loop {
            match Self::attach(address) {
                Ok(instance) => return Ok(instance),
                Err(AttachError::NotFound(_)) => {}
                Err(other) => {
                    return Err(CreateError::Io { path: address.path.clone(), source: io::Error::other(other) });
                }
            }
            match Self::create(address, capacity, permissions) {
                Err(CreateError::Exists(_)) => {}
                other => return other,
            }
        }
    }

    fn new(tables: Tables) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // A process that cannot be reached by barriers has lost wake-ups healed by the parks' time-outs.
        let _ = sys::register_for_barriers();
        Self { tables, tag: NEXT.fetch_add(1, Ordering::Relaxed), sessions: AtomicU32::new(0) }
    }

    /// Sets a parameter, for the instance or for one mutex type. The value must be in the parameter's domain, as
    /// [`P::parse`] gives it.
    pub fn set(&self, p: P, mutex_type: Option<TypeId>, value: u64) {
        self.param_row(mutex_type).0[p as usize].store(value.saturating_add(1), Ordering::Release);
    }

    /// Takes a setting back: a type then follows the instance, the instance has the default.
    pub fn unset(&self, p: P, mutex_type: Option<TypeId>) {
        self.param_row(mutex_type).0[p as usize].store(0, Ordering::Release);
    }

    /// The type of this name, registered if it is new.
    ///
    /// # Errors
    ///
    /// [`TableFull`] after 64 types.
    pub fn register_type(&self, name: &str) -> Result<TypeId, TableFull> {
        if let Some(id) = self.type_named(name) {
            return Ok(id);
        }
        let wanted = hash(name);
        for (id, entry) in self.segment.types().iter().enumerate() {
            // AcqRel: whoever finds the hash next finds our name, or writes the same.
            let found = entry.hash.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire);
            if found.is_ok() || found == Err(wanted) {
                entry.name.set(name);
                return Ok(TypeId(u8::try_from(id).unwrap_or(0)));
            }
        }
        Err(TableFull { table: "types", capacity: TYPES as u64 })
    }

    /// The location of this name, registered if it is new.
    ///
    /// # Errors
    ///
    /// [`TableFull`].
    pub fn register_location(&self, name: &str) -> Result<LocationId, TableFull> {
        let wanted = hash(name);
        let entries = &self.segment.locations()[1..];
        let start = (wanted % entries.len() as u64) as usize;
        for i in (start..entries.len()).chain(0..start) {
            // AcqRel: as in `register_type`.
            let found = entries[i].hash.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire);
            if found.is_ok() || found == Err(wanted) {
                if entries[i].name.is_empty() {
                    entries[i].name.set(name);
                }
                return Ok(LocationId(u16::try_from(i + 1).unwrap_or(0)));
            }
        }
        self.segment.header().locations_full.fetch_add(1, Ordering::Relaxed);
        Err(TableFull { table: "locations", capacity: entries.len() as u64 })
    }

    /// Registers a mutex that lies outside of the arena, for figures and recovery.
    ///
    /// # Errors
    ///
    /// [`TableFull`].
    pub fn register_mutex(
        &self,
        mutex_type: TypeId,
        place: Place,
        address: u64,
        name: &str,
    ) -> Result<MutexId, TableFull> {
        let header = self.segment.header();
        let entries = self.segment.mutexes();
        let capacity = entries.len() - 1;
        let start = header.mutex_hint.fetch_add(1, Ordering::Relaxed) as usize % capacity;
        for i in (start..capacity).chain(0..start).map(|i| i + 1) {
            let entry = &entries[i];
            let key = entry.key.load(Ordering::Relaxed);
            // Acquire: a freed entry's last user is done with it.
            if key <= FREED && entry.key.compare_exchange(key, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                entry.fill(mutex_type, place, address, 0, name);
                header.mutexes_high.fetch_max(i as u64, Ordering::Relaxed);
                // Release: whoever finds the key finds the rest.
                entry.key.store(hash(name), Ordering::Release);
                return Ok(MutexId(u32::try_from(i).unwrap_or(0)));
            }
        }
        Err(TableFull { table: "mutexes", capacity: capacity as u64 })
    }

    /// Gives a mutex's entry back. Its mutex must not be used any more.
    pub fn unregister_mutex(&self, id: MutexId) {
        if let Some(entry) = self.mutex_entry(id) {
            entry.key.store(FREED, Ordering::Release);
        }
    }

    /// Remembers the gets of a registered mutex whose memory is about to go, or which counts elsewhere.
    pub fn note_gets(&self, id: MutexId, gets: u64) {
        if let Some(entry) = self.mutex_entry(id) {
            entry.gets.store(gets, Ordering::Relaxed);
        }
    }

    /// The memory of the named object, allocated if it is new: its entry and the address of its `len` bytes, which were
    /// 0 when it was made. Aligned to 64 bytes.
    pub(crate) fn object(&self, name: &str, mutex_type: TypeId, len: usize) -> Result<(MutexId, *mut u8), ObjectError> {
        let _admin = self.lock_tables()?;
        let header = self.segment.header();
        let found = |entry: &MutexEntry, id: MutexId| {
            let there = entry.len.load(Ordering::Relaxed);
            if there != len as u64 {
                return Err(ObjectError::Shape { name: name.into(), found: there, expected: len as u64 });
            }
            let offset = entry.address.load(Ordering::Relaxed);
            self.segment.arena(offset, len).map(|address| (id, address)).ok_or(ObjectError::Shape {
                name: name.into(),
                found: 0,
                expected: len as u64,
            })
        };
        if let Some(id) = self.mutex_named(name)
            && let Some(entry) = self.mutex_entry(id)
        {
            return found(entry, id);
        }
        let capacity = self.segment.capacity().arena;
        let size = (len as u64).next_multiple_of(64);
        let offset = header.arena_next.load(Ordering::Relaxed);
        let full = || ObjectError::Full(TableFull { table: "arena", capacity });
        if self.segment.arena(offset, usize::try_from(size).unwrap_or(usize::MAX)).is_none() {
            return Err(full());
        }
        if !self.segment.populate_arena(offset, len) {
            return Err(ObjectError::NoSpace(name.into()));
        }
        let id = self.register_mutex(mutex_type, Place::Arena, offset, name)?;
        let entry = self.mutex_entry(id).ok_or_else(full)?;
        entry.len.store(len as u64, Ordering::Relaxed);
        header.arena_next.store(offset + size, Ordering::Relaxed);
        let result = found(entry, id)?;
        if let Some(mutex) = self.mutex_in_arena(id) {
            mutex.adopt(self, id, mutex_type);
        }
        Ok(result)
    }

    /// Appends a line to the alert log.
    pub fn alert(&self, text: &str) {
        let header = self.segment.header();
        let alerts = self.segment.alerts();
        let number = header.alerts_next.fetch_add(1, Ordering::Relaxed) + 1;
        let alert = &alerts[(number % alerts.len() as u64) as usize];
        alert.number.store(0, Ordering::Relaxed);
        alert.at_ns.store(sys::clock_ns(sys::Clock::Realtime), Ordering::Relaxed);
        alert.text.set(text);
        // Release: whoever sees the number sees the text.
        alert.number.store(number, Ordering::Release);
    }

    pub(crate) fn note_death(&self, id: MutexId, sid: Sid, record: Record) {
        self.segment.header().recoveries.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = self.mutex_entry(id) {
            entry.death_sid.store(u64::from(sid.number()), Ordering::Relaxed);
            entry.death.store(record.pack(), Ordering::Release);
        }
        let (name, location) = (self.mutex_name(id), self.location_name(record.location));
        self.alert(&format!("owner died: session {sid} held {} in {} from {location}", name, record.mode));
    }

    /// Looks for dead sessions, at most once in 10 ms in the whole instance: somebody waits for references, and the word
    /// does not say whose they are.
    pub(crate) fn sweep(&self, here: Option<&RawMutex>) {
        let header = self.segment.header();
        let now = sys::now_ns();
        let last = header.swept_ns.load(Ordering::Relaxed);
        // A monotonic clock that went back means another boot, or a container's clock.
        let due = now.abs_diff(last) > 10_000_000;
        if due && header.swept_ns.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.recover_all(here);
        }
    }

    /// Holds the lock of the tables until dropped.
    pub(crate) fn lock_tables(&self) -> Result<Admin<'_>, SessionError> {
        let admin = &self.segment.header().admin;
        // Its holders never wait, so a second is a stopped process. Looked at by time, so that no wake-up can be lost.
        for round in 0..1000 {
            if admin.try_take() != Taken::No {
                return Ok(Admin(admin));
            }
            if round < 16 { sys::yield_now() } else { sys::sleep(Duration::from_millis(1)) }
        }
        Err(SessionError::Stuck)
    }

    /// Claims a free slot, and recovers a dead session's when it is the turn of that one. The caller is its thread.
    pub(crate) fn claim_slot(&self) -> Result<(Sid, &Slot), SessionError> {
        let admin = self.lock_tables()?;
        let header = self.segment.header();
        let capacity = self.segment.capacity().sessions;
        let start = u32::try_from(header.slot_hint.load(Ordering::Relaxed)).unwrap_or(0) % capacity;
        for number in (start..capacity).chain(0..start).map(|i| i + 1) {
            let slot = &self.segment.slots()[number as usize];
            let sid = Sid::new(number);
            if u64::from(number) > header.slots_ready.load(Ordering::Relaxed) {
                for next in header.slots_ready.load(Ordering::Relaxed) + 1..=u64::from(number) {
                    let next = usize::try_from(next).unwrap_or(0);
                    if !self.segment.populate_session(next) {
                        return Err(SessionError::NoSpace);
                    }
                    self.segment.slots()[next].alive.init();
                    header.slots_ready.store(next as u64, Ordering::Release);
                }
            }
            if slot.is_dead() {
                self.recover(sid, None);
            }
            if !slot.is_live() && slot.alive.try_take() != Taken::No {
                header.slot_hint.store(u64::from(number) % u64::from(capacity), Ordering::Relaxed);
                let departed = &self.segment.slots()[0];
                crate::stats::fold(
                    self.segment.rows(number as usize),
                    &slot.rows_used,
                    self.segment.rows(0),
                    &departed.rows_used,
                );
                departed.gets.fetch_add(slot.gets.swap(0, Ordering::Relaxed), Ordering::Relaxed);
                drop(admin);
                return Ok((sid, slot));
            }
        }
        Err(SessionError::Full { capacity })
    }

    fn param_row(&self, mutex_type: Option<TypeId>) -> &ParamRow {
        let row = mutex_type.map_or(0, |t| usize::from(t.0).min(TYPES - 1) + 1);
        &self.segment.params()[row]
    }
}

/// The lock of the tables, held.
pub(crate) struct Admin<'a>(&'a RobustLock);

impl Drop for Admin<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl MutexEntry {
    fn fill(&self, mutex_type: TypeId, place: Place, address: u64, len: u64, name: &str) {
        self.mutex_type.store(u32::from(mutex_type.0), Ordering::Relaxed);
        self.place.store(place as u32, Ordering::Relaxed);
        self.address.store(address, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.pid.store(u64::from(sys::pid()), Ordering::Relaxed);
        for cell in [&self.gets, &self.death, &self.death_sid] {
            cell.store(0, Ordering::Relaxed);
        }
        self.adaption.reset();
        self.name.set(name);
    }
}

impl AdaptionCells {
    fn reset(&self) {
        let all = [
            &self.state,
            &self.misses,
            &self.queue_sleeps,
            &self.last_gets,
            &self.last_misses,
            &self.last_queue_sleeps,
            &self.last_ns,
            &self.switches,
        ];
        for cell in all {
            cell.store(0, Ordering::Relaxed);
        }
    }
}

/// A registered mutex, as the views show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutexInfo {
    /// Its id.
    pub id: MutexId,
    /// Its name; empty when it has none.
    pub name: String,
    /// Its type.
    pub mutex_type: TypeId,
    /// Where it is.
    pub place: Place,
    /// Offset in the arena, or address in its process.
    pub address: u64,
    /// The process that registered it, in its own PID namespace.
    pub pid: u32,
    /// Gets that were noted for it apart from its record.
    pub gets: u64,
    /// The last death of a holder.
    pub death: Option<Death>,
    /// Under `adaptive`: whether `pthread` is in use.
    pub pthread_in_use: bool,
    /// Under `adaptive`: switches so far.
    pub switches: u64,
}

/// A row of the sleep history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastSleep {
    /// The mutex slept for.
    pub mutex: MutexId,
    /// SID of the session that held it.
    pub blocker: Sid,
    /// SID of the session that slept.
    pub waiter: Sid,
    /// When, by the monotonic clock.
    pub at_ns: u64,
    /// Where in the code.
    pub location: LocationId,
    /// The mode wanted.
    pub mode: Mode,
    /// Steps of that session's wait so far.
    pub sleeps: u64,
    /// Gets of the mutex by then.
    pub gets: u64,
}

impl Tables {
    /// What the instance has room for.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.segment.capacity()
    }

    /// Where it is; `None` for an anonymous one.
    #[must_use]
    pub fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }

    /// Bytes of the segment.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.segment.len()
    }

    /// When it was created, by the real-time clock, in ns.
    #[must_use]
    pub fn created_ns(&self) -> u64 {
        self.segment.header().created_ns.load(Ordering::Relaxed)
    }

    /// The process that created it.
    #[must_use]
    pub fn creator_pid(&self) -> u32 {
        u32::try_from(self.segment.header().creator.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Whether releases rely on the barrier that a parking session has the kernel do everywhere; otherwise each release
    /// has a fence of its own. Decided when the instance was created.
    #[must_use]
    pub fn has_barrier(&self) -> bool {
        self.segment.header().fence.load(Ordering::Relaxed) == 1
    }

    /// Time of one poll of the word on the machine that created the instance, in ns.
    #[must_use]
    pub fn poll_ns(&self) -> u32 {
        u32::try_from(self.segment.header().poll_ns.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Owner deaths noted so far.
    #[must_use]
    pub fn recoveries(&self) -> u64 {
        self.segment.header().recoveries.load(Ordering::Relaxed)
    }

    /// The parameters in force for a mutex type, or for the instance.
    #[must_use]
    pub fn params(&self, mutex_type: Option<TypeId>) -> Params {
        let rows = self.segment.params();
        let own = mutex_type.map(|t| &rows[usize::from(t.0).min(TYPES - 1) + 1]);
        Params(std::array::from_fn(|i| {
            let set = |row: &ParamRow| row.0[i].load(Ordering::Acquire).checked_sub(1);
            own.and_then(set).or_else(|| set(&rows[0])).unwrap_or(crate::params::PARAMS[i].default)
        }))
    }

    /// The value set for exactly this row, `None` where it follows the instance or the default.
    #[must_use]
    pub fn param_set(&self, p: P, mutex_type: Option<TypeId>) -> Option<u64> {
        let row = mutex_type.map_or(0, |t| usize::from(t.0).min(TYPES - 1) + 1);
        self.segment.params()[row].0[p as usize].load(Ordering::Acquire).checked_sub(1)
    }

    /// The type of this name.
    #[must_use]
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        let wanted = hash(name);
        let position = self.segment.types().iter().position(|t| t.hash.load(Ordering::Acquire) == wanted)?;
        Some(TypeId(u8::try_from(position).ok()?))
    }

    /// Every registered type.
    #[must_use]
    pub fn types(&self) -> Vec<(TypeId, String)> {
        let entries = self.segment.types().iter().enumerate();
        entries
            .filter(|(_, entry)| entry.hash.load(Ordering::Acquire) != 0)
            .map(|(id, entry)| (TypeId(u8::try_from(id).unwrap_or(0)), entry.name.get()))
            .collect()
    }

    /// A type's name.
    #[must_use]
    pub fn type_name(&self, id: TypeId) -> String {
        self.segment.types().get(usize::from(id.0)).map_or_else(String::new, |entry| entry.name.get())
    }

    /// Every registered location.
    #[must_use]
    pub fn locations(&self) -> Vec<(LocationId, String)> {
        let entries = self.segment.locations().iter().enumerate().skip(1);
        entries
            .filter(|(_, entry)| entry.hash.load(Ordering::Acquire) != 0)
            .map(|(id, entry)| (LocationId(u16::try_from(id).unwrap_or(0)), entry.name.get()))
            .collect()
    }

    /// Bytes of the arena that named objects take.
    #[must_use]
    pub fn arena_used(&self) -> u64 {
        self.segment.header().arena_next.load(Ordering::Relaxed)
    }

    /// A location's name; `unknown` for id 0 and for what is not registered.
    #[must_use]
    pub fn location_name(&self, id: LocationId) -> String {
        match self.segment.locations().get(usize::from(id.0)) {
            Some(entry) if id.0 != 0 && entry.hash.load(Ordering::Acquire) != 0 => entry.name.get(),
            _ => "unknown".to_owned(),
        }
    }

    /// A mutex's name, or its id when it has none.
    #[must_use]
    pub fn mutex_name(&self, id: MutexId) -> String {
        match self.mutex_entry(id).map(|entry| entry.name.get()) {
            Some(name) if !name.is_empty() => name,
            _ => format!("#{}", id.0),
        }
    }

    /// The mutex of this name.
    #[must_use]
    pub fn mutex_named(&self, name: &str) -> Option<MutexId> {
        let wanted = hash(name);
        (1..=self.mutexes_high()).map(MutexId).find(|id| {
            self.mutex_entry(*id).is_some_and(|e| e.key.load(Ordering::Acquire) == wanted && e.name.get() == name)
        })
    }

    fn mutexes_high(&self) -> u32 {
        let high = self.segment.header().mutexes_high.load(Ordering::Acquire);
        u32::try_from(high).unwrap_or(u32::MAX).min(self.segment.capacity().mutexes)
    }

    /// Every registered mutex.
    #[must_use]
    pub fn mutexes(&self) -> Vec<MutexInfo> {
        (1..=self.mutexes_high()).filter_map(|id| self.mutex_info(MutexId(id))).collect()
    }

    /// The same as `mutex_info`.
    #[must_use]
    pub fn mutex(&self, id: MutexId) -> Option<MutexInfo> {
        self.mutex_info(id)
    }

    /// What is known of a registered mutex.
    #[must_use]
    pub fn mutex_info(&self, id: MutexId) -> Option<MutexInfo> {
        let entry = self.mutex_entry(id)?;
        if entry.key.load(Ordering::Acquire) <= CLAIMED {
            return None;
        }
        Some(MutexInfo {
            id,
            name: entry.name.get(),
            mutex_type: TypeId(u8::try_from(entry.mutex_type.load(Ordering::Relaxed)).unwrap_or(0)),
            place: match entry.place.load(Ordering::Relaxed) {
                1 => Place::Arena,
                2 => Place::Process,
                _ => Place::Elsewhere,
            },
            address: entry.address.load(Ordering::Relaxed),
            pid: u32::try_from(entry.pid.load(Ordering::Relaxed)).unwrap_or(0),
            gets: entry.gets.load(Ordering::Relaxed),
            death: self.death(id),
            pthread_in_use: entry.adaption.state.load(Ordering::Relaxed) & 1 == 1,
            switches: entry.adaption.switches.load(Ordering::Relaxed),
        })
    }

    /// The last death of a holder of this mutex.
    #[must_use]
    pub fn death(&self, id: MutexId) -> Option<Death> {
        let entry = self.mutex_entry(id)?;
        let record = Record::unpack(entry.death.load(Ordering::Acquire))?;
        let sid = Sid::new(u32::try_from(entry.death_sid.load(Ordering::Relaxed)).unwrap_or(0));
        Some(Death { sid, mode: record.mode, location: record.location })
    }

    pub(crate) fn mutex_entry(&self, id: MutexId) -> Option<&MutexEntry> {
        if id.0 == 0 { None } else { self.segment.mutexes().get(id.0 as usize) }
    }

    /// The record of a mutex in the arena.
    #[must_use]
    pub fn mutex_in_arena(&self, id: MutexId) -> Option<&RawMutex> {
        let entry = self.mutex_entry(id)?;
        if entry.place.load(Ordering::Relaxed) != Place::Arena as u32 {
            return None;
        }
        let address = self.segment.arena(entry.address.load(Ordering::Relaxed), size_of::<RawMutex>())?;
        if !address.addr().is_multiple_of(align_of::<RawMutex>()) {
            return None;
        }
        #[allow(clippy::cast_ptr_alignment)] // checked above
        let record: *const RawMutex = address.cast();
        // SAFETY: inside the arena and aligned, both checked, and a record is atomics only.
        Some(unsafe { &*record })
    }

    /// SIDs that sessions of this instance may have had so far.
    pub fn sids(&self) -> impl Iterator<Item = Sid> + use<> {
        let ready = self.segment.header().slots_ready.load(Ordering::Acquire);
        let ready = u32::try_from(ready).unwrap_or(u32::MAX).min(self.segment.capacity().sessions);
        (1..=ready).map(Sid::new)
    }

    pub(crate) fn slot(&self, sid: Sid) -> Option<&Slot> {
        if sid.is_none() { None } else { self.segment.slots().get(sid.number() as usize) }
    }

    /// Alerts after number `after`, oldest first: number, real time in ns, text.
    #[must_use]
    pub fn alerts(&self, after: u64) -> Vec<(u64, u64, String)> {
        let mut alerts: Vec<_> = self
            .segment
            .alerts()
            .iter()
            .filter_map(|alert| {
                let number = alert.number.load(Ordering::Acquire);
                (number > after).then(|| (number, alert.at_ns.load(Ordering::Relaxed), alert.text.get()))
            })
            .collect();
        alerts.sort_unstable();
        alerts
    }

    /// The sleep history: the last sleep for each pair of mutex and blocking session.
    #[must_use]
    pub fn history(&self) -> Vec<PastSleep> {
        let rows = self.segment.history().iter();
        rows.filter_map(|past| {
            let key = past.key.load(Ordering::Acquire);
            let record = Record::unpack(past.what.load(Ordering::Relaxed))?;
            (key != 0).then(|| PastSleep {
                mutex: MutexId((key >> 32) as u32),
                blocker: Sid::new(key as u32),
                waiter: Sid::new(past.waiter.load(Ordering::Relaxed) as u32),
                at_ns: past.at_ns.load(Ordering::Relaxed),
                location: record.location,
                mode: record.mode,
                sleeps: past.sleeps.load(Ordering::Relaxed),
                gets: past.gets.load(Ordering::Relaxed),
            })
        })
        .collect()
    }

    /// Words of the segment from `offset` bytes, for `peek`; `None` when they are not all inside or the offset is not a
    /// multiple of 8.
    #[must_use]
    pub fn peek(&self, offset: u64, count: usize) -> Option<Vec<u64>> {
        let words = self.segment.words(offset, count)?;
        Some(words.iter().map(|word| word.load(Ordering::Acquire)).collect())
    }

    /// Offset in the segment of a mutex in the arena.
    #[must_use]
    pub fn offset_of(&self, id: MutexId) -> Option<u64> {
        self.mutex_in_arena(id)?;
        Some(self.segment.arena_start() + self.mutex_entry(id)?.address.load(Ordering::Relaxed))
    }
}

impl Instance {
    /// Overwrites a word of the segment. Whether it is inside and aligned.
    ///
    /// Nothing protects what is overwritten: this fakes a busy mutex, or breaks the instance.
    pub fn poke(&self, offset: u64, value: u64) -> bool {
        match self.segment.words(offset, 1) {
            Some(words) => {
                words[0].store(value, Ordering::Release);
                true
            }
            None => false,
        }
    }
}

impl CreateError {
    /// The same error, said of this path.
    fn at(self, at: &Path) -> Self {
        match self {
            Self::NoSpace { needed, .. } => Self::NoSpace { path: at.into(), needed },
            Self::Io { source, .. } => Self::Io { path: at.into(), source },
            other => other,
        }
    }
}

fn check(capacity: Capacity) -> Result<Layout, CreateError> {
    for (field, found, low, high) in capacity.checked() {
        if !(low..=high).contains(&found) {
            return Err(CreateError::Capacity { field, found, low, high });
        }
    }
    Ok(Layout::of(capacity))
}

/// A file without a name in `directory`; where the file system has none, with a temporary one.
fn unnamed_file(directory: &Path) -> io::Result<(File, Option<PathBuf>)> {
    let open =
        |path: &Path, flags| OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(path);
    match open(directory, libc::O_TMPFILE) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            let path = directory.join(format!(".{PREFIX}{}.{}", sys::pid(), sys::now_ns()));
            let file = open(&path, libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW)?;
            Ok((file, Some(path)))
        }
        result => result.map(|file| (file, None)),
    }
}

/// Gives a file its name; never replaces one.
fn link(source: &Path, path: &Path) -> io::Result<()> {
    let text = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
    let (from, to) = (text(source)?, text(path)?);
    // SAFETY: both are strings with their 0.
    let rc =
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes an empty file a segment.
fn format(file: &File, layout: Layout, address: Option<Address>) -> Result<Tables, CreateError> {
    let failed = |source: io::Error| CreateError::Io { path: PathBuf::new(), source };
    let no_space = || CreateError::NoSpace { path: PathBuf::new(), needed: 64 << 10 };
    let is_full = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG));
    file.set_len(layout.len as u64).map_err(|e| if is_full(&e) { no_space() } else { failed(e) })?;
    let base = Segment::map(file.as_fd(), layout.len, true).map_err(failed)?;
    // SAFETY: just mapped, in this length, for us alone.
    let segment = unsafe { Segment::new(base, layout) };
    if !segment.populate_fixed() {
        return Err(no_space());
    }
    let header = segment.header();
    for (cell, (_, value, _, _)) in header.capacity.iter().zip(segment.capacity().checked()) {
        cell.store(value, Ordering::Relaxed);
    }
    header.created_ns.store(sys::clock_ns(sys::Clock::Realtime), Ordering::Relaxed);
    header.creator.store(u64::from(sys::pid()), Ordering::Relaxed);
    let barrier = sys::register_for_barriers() && sys::barrier_everywhere();
    header.fence.store(if barrier { 1 } else { 2 }, Ordering::Relaxed);
    header.poll_ns.store(crate::waiter::measure_poll_ns(), Ordering::Relaxed);
    header.admin.init();
    for (entry, name) in segment.types().iter().zip(SOURCE_TYPES) {
        entry.hash.store(hash(name), Ordering::Relaxed);
        entry.name.set(name);
    }
    header.fingerprint.store(Layout::fingerprint(), Ordering::Relaxed);
    // Release: the file gets its name after this, and whoever opens it finds the rest.
    header.magic.store(MAGIC, Ordering::Release);
    Ok(Tables { segment, address })
}

/// Opens and checks an instance. Trusts nothing that it finds.
fn open(address: &Address, writable: bool) -> Result<Tables, AttachError> {
    let path = address.path.clone();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => AttachError::NotFound(address.to_string()),
        io::ErrorKind::PermissionDenied => {
            let (owner, mode) = fs::symlink_metadata(&path).map_or((0, 0), |m| (m.uid(), m.mode() & 0o7777));
            AttachError::Permission { path: path.clone(), owner, mode, user: sys::euid() }
        }
        _ if source.raw_os_error() == Some(libc::ELOOP) => {
            AttachError::FileKind { path: path.clone(), found: "symbolic link" }
        }
        io::ErrorKind::IsADirectory => AttachError::FileKind { path: path.clone(), found: "directory" },
        _ => AttachError::Io { path: path.clone(), source },
    };
    // O_NONBLOCK: a FIFO of this name does not make us wait.
    let file = OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path)
        .map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let found = if kind.is_dir() {
            "directory"
        } else if kind.is_fifo() {
            "FIFO"
        } else {
            "device or socket"
        };
        return Err(AttachError::FileKind { path, found });
    }
    let user = sys::euid();
    if metadata.uid() != user && metadata.uid() != 0 && user != 0 {
        return Err(AttachError::Owner { path, found: metadata.uid(), expected: user });
    }
    let found = metadata.len();
    let smallest = Layout::of(Capacity { sessions: 1, mutexes: 1, locations: 1, rows: 1, arena: 0 }).len as u64;
    let word = |index: u64| {
        let mut bytes = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, index * 8).map(|()| u64::from_le_bytes(bytes))
    };
    let magic = if found >= 8 { word(0).map_err(failed)? } else { 0 };
    if magic != MAGIC {
        return Err(AttachError::Magic { path, found: magic, expected: MAGIC });
    }
    if found < smallest {
        return Err(AttachError::Truncated { path, found, expected: smallest });
    }
    let format = word(1).map_err(failed)?;
    if format != Layout::fingerprint() {
        return Err(AttachError::Format { path, found: format, expected: Layout::fingerprint() });
    }
    // Read once, by value: what another process writes into the header later changes nothing here.
    let mut capacity = Capacity::default();
    let mut values = [0; 5];
    for (i, (field, _, low, high)) in capacity.checked().into_iter().enumerate() {
        values[i] = word(2 + i as u64).map_err(failed)?;
        if !(low..=high).contains(&values[i]) {
            return Err(AttachError::Capacity { path, field, found: values[i], low, high });
        }
    }
    let small = |i: usize| u32::try_from(values[i]).unwrap_or(0);
    capacity =
        Capacity { sessions: small(0), mutexes: small(1), locations: small(2), rows: small(3), arena: values[4] };
    let layout = Layout::of(capacity);
    if found < layout.len as u64 {
        return Err(AttachError::Truncated { path, found, expected: layout.len as u64 });
    }
    let base = Segment::map(file.as_fd(), layout.len, writable).map_err(failed)?;
    // SAFETY: just mapped, in this length, for us alone.
    let segment = unsafe { Segment::new(base, layout) };
    Ok(Tables { segment, address: Some(address.clone()) })
}
