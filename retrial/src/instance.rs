//! Instances: a segment with a name, in which processes take part.

use crate::address::Address;
use crate::costs::Costs;
use crate::entries::{ParamRow, TypeId};
use crate::error::{AttachError, CreateError, SessionError};
use crate::fail;
use crate::file::{OPEN_FILES, check, format, link, open, unnamed_file};
use crate::operation_log::{MutexId, Record};
use crate::params::{P, Params};
use crate::probes;
use crate::searching::ASK_EVERY;
use crate::segment::{Capacity, TYPES};
use crate::slot::Slot;
use crate::sys::{self, AtomicU32, AtomicU64, Ordering, RobustLock, Taken};
use crate::tables::Tables;
use crate::text::Line;
use crate::word::Sid;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// An instance that this process takes part in.
#[derive(Debug)]
pub struct Instance {
    pub(crate) tables: Tables,
    /// Differs between the instances of this process.
    tag: u32,
    /// Sessions of this process that the kernel knows of.
    pub(crate) sessions: AtomicU32,
    /// Last time that this process found all slots taken and asked the kernel for their threads.
    searched_ns: AtomicU64,
    /// Alerts about long waits that this process has written since this time, within one threshold.
    alerts: AtomicU32,
    alerts_since_ns: AtomicU64,
    /// Whether barriers reach this process, or are not relied on.
    pub(crate) in_reach: bool,
}

/// Number of used slots that a claim looks at before it takes one that was never used, and number of mutex
/// entries that a miss looks at.
pub(crate) const A_FEW: u32 = 64;

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
        let source = temporary.clone().unwrap_or_else(|| Path::new(OPEN_FILES).join(file.as_raw_fd().to_string()));
        fail::point();
        let linked = link(&source, path);
        fail::point();
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
    /// Each process that can write the file is trusted: it can change data under a guard and write into this
    /// process's memory, since libc links its robust locks through the file, or truncate it, which is a
    /// `SIGBUS` here. So only files of this user or of root are opened. Whatever bytes are found at opening,
    /// the result is a typed error or an instance.
    ///
    /// # Errors
    ///
    /// [`AttachError`].
    pub fn attach(address: &Address) -> Result<Self, AttachError> {
        open(address, true).map(Self::new)
    }

    /// Takes part in an instance, and creates it when there is none: of two that race, one creates and the
    /// other attaches.
    ///
    /// # Errors
    ///
    /// [`CreateError`]; `Attach` when there is one that cannot be attached to.
    pub fn create_or_attach(address: &Address, capacity: Capacity, permissions: u32) -> Result<Self, CreateError> {
        loop {
            match Self::attach(address) {
                Ok(instance) => return Ok(instance),
                Err(AttachError::NotFound(_)) => {}
                Err(other) => return Err(CreateError::Attach(other)),
            }
            match Self::create(address, capacity, permissions) {
                Err(CreateError::Exists(_)) => {}
                other => return other,
            }
        }
    }

    /// What is in it, to be read: mutexes, sessions, figures, events.
    #[inline]
    #[must_use]
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Where it is; `None` for an anonymous one.
    #[must_use]
    pub fn address(&self) -> Option<&Address> {
        self.tables.address()
    }

    /// What it has room for.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.tables.capacity()
    }

    /// The parameters in force for a mutex type, or for the instance.
    #[must_use]
    pub fn params(&self, mutex_type: Option<TypeId>) -> Params {
        self.tables.params(mutex_type)
    }

    /// Differs between the instances of this process.
    #[inline]
    pub(crate) const fn tag(&self) -> u32 {
        self.tag
    }

    fn new(tables: Tables) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let in_reach = sys::register_for_barriers() || !tables.has_barrier();
        sys::tell_children();
        let (sessions, alerts) = (AtomicU32::new(0), AtomicU32::new(0));
        let (searched_ns, alerts_since_ns) = (AtomicU64::new(0), AtomicU64::new(0));
        let tag = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { tables, tag, sessions, searched_ns, alerts, alerts_since_ns, in_reach }
    }

    /// Sets a parameter, for the instance or for one mutex type. The value must be in the parameter's domain,
    /// as [`P::parse`] gives it.
    pub fn set(&self, p: P, mutex_type: Option<TypeId>, value: u64) {
        self.param_row(mutex_type).0[p as usize].store(value.saturating_add(1), Ordering::Release);
    }

    /// Takes a setting back: a type then follows the instance, the instance has the default.
    pub fn unset(&self, p: P, mutex_type: Option<TypeId>) {
        self.param_row(mutex_type).0[p as usize].store(0, Ordering::Release);
    }

    /// Says what the steps of a wait cost on this machine, as [`Costs::measure`] finds it; what was not
    /// measured stays as it was. Waits that begin later reckon the time of a spin with it.
    pub fn set_costs(&self, costs: &Costs) {
        for (cell, ns) in self.tables.segment.header().costs.iter().zip(costs.0).filter(|(_, ns)| *ns != 0) {
            cell.store(ns, Ordering::Relaxed);
        }
    }

    /// Appends a line to the alert log.
    pub fn alert(&self, text: &str) {
        let header = self.tables.segment.header();
        let alerts = self.tables.segment.alerts();
        let number = header.alerts_next.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let alert = &alerts[(number % alerts.len() as u64) as usize];
        alert.number.store(0, Ordering::Relaxed);
        alert.at_ns.store(sys::clock_ns(sys::Clock::Realtime), Ordering::Relaxed);
        alert.text.set(text);
        // Release: a reader that sees the number sees the text.
        alert.number.store(number, Ordering::Release);
    }

    /// The same for a line that is put together here, without allocating: sessions that wait write some.
    pub(crate) fn alert_line(&self, line: fmt::Arguments<'_>) {
        let mut text = Line::new();
        // A line takes what fits and never fails.
        let _ = fmt::Write::write_fmt(&mut text, line);
        self.alert(text.as_str());
    }

    /// Whether there is room for one more alert about a long wait within this threshold: each has two lines and
    /// looks at the holder's thread, and the log keeps its latest lines.
    pub(crate) fn has_alert_left(&self, now_ns: u64, threshold: Duration) -> bool {
        if sys::is_due(&self.alerts_since_ns, now_ns, threshold) {
            self.alerts.store(0, Ordering::Relaxed);
        }
        self.alerts.fetch_add(1, Ordering::Relaxed) < self.tables.segment.alerts().len() as u32 / 2
    }

    /// Notes which session died with a mutex, for the next holder.
    pub(crate) fn remember_death(&self, id: MutexId, sid: Sid, record: Record) {
        if let Some(entry) = self.tables.mutex_entry(id) {
            entry.death.store(Record { mutex: MutexId(sid.number()), ..record }.pack(), Ordering::Release);
        }
    }

    pub(crate) fn note_death(&self, id: MutexId, sid: Sid, record: Record) {
        probes::death(&self.tables, id, sid, record);
        self.tables.segment.header().recoveries.fetch_add(1, Ordering::Relaxed);
        let (name, location) = (self.tables.mutex_label(id), self.tables.location_label(record.location));
        self.alert_line(format_args!("owner died: session {sid} held {name} in {} from {location}", record.mode));
    }

    /// Holds the lock of the tables until dropped.
    pub(crate) fn lock_tables(&self) -> Result<Admin<'_>, SessionError> {
        let admin = self.tables.segment.admin();
        // Its holders never wait, so a second with the same one is a stopped process. Looked at by time, so
        // that no wake-up can be lost.
        let (mut owner, mut looks) = (admin.owner(), 0);
        for round in 0_u64.. {
            if admin.try_take() != Taken::No {
                fail::point();
                return Ok(Admin(admin));
            }
            sys::pause(round);
            let now = admin.owner();
            looks = if now == owner { looks + 1 } else { 0 };
            owner = now;
            if looks == 1000 {
                break;
            }
        }
        Err(SessionError::Stuck)
    }

    /// Claims a free slot; where the search comes to a dead session, recovers it. The caller is the new
    /// session's thread.
    pub(crate) fn claim_slot(&self) -> Result<(Sid, &Slot), SessionError> {
        match self.claim_slot_of_the_known() {
            Err(SessionError::Full { .. }) if sys::is_due(&self.searched_ns, sys::now_ns(), ASK_EVERY) => {
                self.look_for_threads();
                self.claim_slot_of_the_known()
            }
            claimed => claimed,
        }
    }

    /// The same among those free and those known to be dead.
    fn claim_slot_of_the_known(&self) -> Result<(Sid, &Slot), SessionError> {
        let admin = self.lock_tables()?;
        self.finish_addition();
        let header = self.tables.segment.header();
        let capacity = self.tables.segment.capacity().sessions;
        let used = u32::try_from(header.slots_ready.load(Ordering::Relaxed)).unwrap_or(u32::MAX).min(capacity);
        let start = u32::try_from(header.slot_hint.load(Ordering::Relaxed)).unwrap_or(0);
        // A few used ones first, so that threads that come and go stay in few pages; then a fresh one; then
        // all.
        let again = |count: u32| (0..count).map(move |i| start.wrapping_add(i) % used + 1);
        let fresh = (used < capacity).then_some(used + 1);
        for number in again(used.min(A_FEW)).chain(fresh).chain(again(used)) {
            let Some(slot) = self.tables.segment.slot(number as usize) else { return Err(SessionError::NoSpace) };
            let sid = Sid::new(number);
            if number > used {
                if !self.tables.segment.populate_session(number as usize) {
                    return Err(SessionError::NoSpace);
                }
                slot.init();
                fail::point();
                header.slots_ready.store(u64::from(number), Ordering::Release);
            }
            if slot.is_dead() {
                self.recover(sid);
            }
            if !slot.is_live() && slot.alive.try_take() != Taken::No {
                fail::point();
                header.slot_hint.store(u64::from(number), Ordering::Relaxed);
                if !self.add_departed(number) {
                    slot.alive.give_up();
                    return Err(SessionError::NoSpace);
                }
                drop(admin);
                return Ok((sid, slot));
            }
        }
        Err(self.full(capacity))
    }

    /// Why no slot is free: what the dead among them owe.
    fn full(&self, capacity: u32) -> SessionError {
        let dead = self.tables.slots().map(|(_, slot)| slot).filter(|slot| slot.is_dead());
        let mut owes = dead.filter_map(Slot::owes_to).peekable();
        let mutex = owes.peek().copied().unwrap_or_default();
        SessionError::Full { capacity, owing: owes.count() as u32, mutex }
    }

    fn param_row(&self, mutex_type: Option<TypeId>) -> &ParamRow {
        let row = mutex_type.map_or(0, |t| usize::from(t.0).min(TYPES - 1) + 1);
        &self.tables.segment.params()[row]
    }
}

/// The lock of the tables, held.
pub(crate) struct Admin<'a>(pub(crate) &'a RobustLock);

impl Drop for Admin<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl Instance {
    /// Overwrites a word of the segment. Whether it is inside and aligned.
    ///
    /// Nothing protects what is overwritten: this fakes a busy mutex, or breaks the instance.
    ///
    /// # Safety
    ///
    /// Data of mutexes change under their holders, and libc follows pointers that session locks have.
    pub unsafe fn poke(&self, offset: u64, value: u64) -> bool {
        match self.tables.segment.words(offset, 1) {
            Some(words) => {
                words[0].store(value, Ordering::Release);
                true
            }
            None => false,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_lock_that_many_take_one_after_the_other_is_not_stuck() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..600 {
                scope.spawn(|| {
                    let _admin = instance.lock_tables().unwrap();
                    sys::sleep(Duration::from_millis(3));
                });
            }
        });
    }
}
