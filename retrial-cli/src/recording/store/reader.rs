//! Reads a recording.

use super::cells::{self, Cells};
use super::schema;
use super::{Holder, Rounds, check, failed, foreign, plain};
use crate::output::quoted;
use crate::recording::findings::Blocker;
use crate::recording::snapshot::{Alert, Identity, Moment, Snapshot, State};
use crate::recording::state::Load;
use miette::{Report, miette};
use retrial::views::{LocationId, Sid};
use retrial::{Address, MutexId};
use retrial_bench::machine::Ticks;
use rusqlite::{Connection, OpenFlags};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A recording to be read, also while it is written.
pub struct Recording {
    path: PathBuf,
    connection: Connection,
}

/// A snapshot that is in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub id: i64,
    /// Number of its instance in the recording.
    pub instance: i64,
    /// By the real-time clock, in ns.
    pub at_ns: u64,
}

/// What is said when the file cannot be looked at.
fn unreadable(path: &Path, error: &std::io::Error) -> Report {
    let name = path.to_string_lossy();
    let shown = quoted(&name);
    let is_instance = Address::new(name.as_ref()).is_ok_and(|address| address.path().exists());
    let help = match error.kind() {
        ErrorKind::NotFound if is_instance => {
            format!("retrial report -i {shown} (an instance), or: retrial record -i {shown} {shown}.db")
        }
        ErrorKind::NotFound => "retrial record NEW.db, or: ls *.db".to_owned(),
        _ => format!("ls -ld {shown}"),
    };
    miette!(code = "retrial::recording::io", help = help, "recording {}: {error}", path.display())
}

impl Recording {
    pub fn open(path: &Path) -> Result<Self, Report> {
        match std::fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => return Err(foreign(path, "is no file")),
            Ok(metadata) if metadata.len() == 0 => return Err(foreign(path, "is empty")),
            Ok(_) => {}
            Err(error) => return Err(unreadable(path, &error)),
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(plain(path), flags).map_err(|error| failed(path, &error))?;
        connection.busy_timeout(Duration::from_secs(10)).map_err(|error| failed(path, &error))?;
        check(path, &connection)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Of a database that was written by this process.
    pub fn of(connection: Connection) -> Self {
        Self { path: PathBuf::from("memory"), connection }
    }

    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The database, for those who ask it themselves.
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    /// Every snapshot, oldest first.
    pub fn snapshots(&self) -> Result<Vec<Recorded>, Report> {
        self.try_snapshots().map_err(|error| failed(&self.path, &error))
    }

    fn try_snapshots(&self) -> rusqlite::Result<Vec<Recorded>> {
        let mut statement = self.connection.prepare("SELECT id, instance, at_ns FROM snapshot ORDER BY id")?;
        let recorded = |row: &rusqlite::Row<'_>| {
            Ok(Recorded { id: row.get(0)?, instance: row.get(1)?, at_ns: row.get::<_, i64>(2)?.cast_unsigned() })
        };
        statement.query_map([], recorded)?.collect()
    }

    /// Names of the instances, by their numbers.
    pub fn instances(&self) -> Result<Vec<(i64, String)>, Report> {
        let read = || {
            let mut statement = self.connection.prepare("SELECT id, name FROM instance ORDER BY id")?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| failed(&self.path, &error))
    }

    /// How many rows of samples there are.
    pub fn samples(&self) -> Result<usize, Report> {
        let count = self.connection.query_row("SELECT count(*) FROM sample", [], |row| row.get::<_, i64>(0));
        count.map(|count| usize::try_from(count).unwrap_or(0)).map_err(|error| failed(&self.path, &error))
    }

    /// The rounds of samples after one snapshot of an instance up to another one.
    pub fn rounds(&self, instance: i64, after: i64, to: i64) -> Result<Rounds, Report> {
        let sql = "SELECT coalesce(sum(rounds), 0), coalesce(sum(rounds_ns), 0), coalesce(sum(sessions_ns), 0), \
                   coalesce(sum(holding_ns), 0), coalesce(sum(spinning_ns), 0), coalesce(sum(recorder_ns), 0) FROM snapshot \
                   WHERE instance = ?1 AND id > ?2 AND id <= ?3";
        let rounds = |row: &rusqlite::Row<'_>| {
            let mut cells = Cells::new(row, 0);
            Ok(Rounds {
                rounds: cells.whole()?,
                length_ns: cells.whole()?,
                sessions_ns: cells.whole()?,
                holding_ns: cells.whole()?,
                spinning_ns: cells.whole()?,
                recorder_ns: cells.whole()?,
            })
        };
        self.connection.query_row(sql, [instance, after, to], rounds).map_err(|error| failed(&self.path, &error))
    }

    /// When an instance was sampled after one snapshot up to another one: by the real-time clock, in ns.
    pub fn sampled(&self, instance: i64, after: i64, to: i64) -> Result<Vec<Range<u64>>, Report> {
        let read = || {
            let mut statement = self.connection.prepare(
                "SELECT at_ns, rounds_ns FROM snapshot WHERE instance = ?1 AND id > ?2 AND id <= ?3 AND rounds_ns > 0",
            )?;
            let sampled = |row: &rusqlite::Row<'_>| {
                let mut cells = Cells::new(row, 0);
                let (end, length) = (cells.whole()?, cells.whole()?);
                Ok(end.saturating_sub(length)..end)
            };
            statement.query_map([instance, after, to], sampled)?.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| failed(&self.path, &error))
    }

    /// The last snapshot of an instance after one up to another one at which sessions began to wait for each
    /// other.
    pub fn deadlocked(&self, instance: i64, after: i64, to: i64) -> Result<Option<i64>, Report> {
        let sql = "SELECT max(id) FROM snapshot JOIN session_state ON snapshot = id WHERE instance = ?1 AND id > ?2 \
                   AND id <= ?3 AND state = ?4";
        let id = self.connection.query_row(sql, (instance, after, to, State::Deadlocked.name()), |row| row.get(0));
        id.map_err(|error| failed(&self.path, &error))
    }

    /// Until when a session was seen between two moments in the wait that began at a moment of the monotonic
    /// clock. The others are of the real-time clock, in ns.
    pub fn waited_until(
        &self,
        instance: i64,
        sid: Sid,
        since_ns: u64,
        (from_ns, to_ns): (u64, u64),
    ) -> Result<Option<u64>, Report> {
        let sql = "SELECT max(at_ns + length_ns) FROM sample WHERE state = 'waits' AND instance = ?1 AND sid = ?2 \
                   AND since_ns = ?3 AND at_ns BETWEEN ?4 AND ?5";
        let of = (instance, sid.number(), since_ns.cast_signed(), from_ns.cast_signed(), to_ns.cast_signed());
        let end: rusqlite::Result<Option<i64>> = self.connection.query_row(sql, of, |row| row.get(0));
        Ok(end.map_err(|error| failed(&self.path, &error))?.map(i64::cast_unsigned))
    }

    /// Who was waited for by samples of an instance between two moments, the longest first.
    pub fn blockers(&self, instance: i64, from_ns: u64, to_ns: u64) -> Result<Vec<Blocker>, Report> {
        let read = || {
            let mut statement = self.connection.prepare(
                "SELECT blocker, blocker_since_ns, max(pid), CASE WHEN min(least) = max(most) THEN min(least) END, \
                 CASE WHEN min(first) = max(last) THEN min(first) END, mutex, count(DISTINCT sid), sum(length_ns), \
                 max(length_ns) FROM (SELECT blocker, blocker_since_ns, max(blocker_pid) AS pid, \
                 min(blocker_mode) AS least, max(blocker_mode) AS most, min(blocker_location) AS first, \
                 max(blocker_location) AS last, mutex, sid, sum(length_ns) AS length_ns FROM sample \
                 WHERE state = 'waits' AND blocker <> 0 AND instance = ?1 AND at_ns BETWEEN ?2 AND ?3 \
                 GROUP BY blocker, blocker_since_ns, mutex, sid, since_ns) \
                 GROUP BY blocker, blocker_since_ns, mutex ORDER BY 8 DESC, mutex, blocker, blocker_since_ns",
            )?;
            let blocker = |row: &rusqlite::Row<'_>| {
                let mut cells = Cells::new(row, 0);
                Ok(Blocker {
                    holder: Holder {
                        sid: Sid::new(cells.small()?),
                        claimed_ns: cells.whole()?,
                        pid: cells.small()?,
                        mode: cells.maybe_text()?.and_then(|mode| mode.parse().ok()),
                        location: cells.maybe_whole()?.and_then(|at| u16::try_from(at).ok()).map(LocationId),
                    },
                    mutex: MutexId(cells.small()?),
                    waiters: cells.whole()?,
                    time_ns: cells.whole()?,
                    longest_ns: cells.whole()?,
                })
            };
            let rows = statement.query_map([instance, from_ns.cast_signed(), to_ns.cast_signed()], blocker)?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| failed(&self.path, &error))
    }

    /// A snapshot as it was.
    pub fn snapshot(&self, id: i64) -> Result<Snapshot, Report> {
        self.try_snapshot(id).map_err(|error| failed(&self.path, &error))
    }

    fn try_snapshot(&self, id: i64) -> rusqlite::Result<Snapshot> {
        let (instance, mut snapshot) = self.connection.query_row(
            "SELECT instance, at_ns, monotonic_ns, deaths, session_gets, processors, busy_ticks, all_ticks, steal_ticks, \
             runnable, pressure_us, frequency_khz FROM snapshot WHERE id = ?1",
            [id],
            |row| Ok((row.get::<_, i64>(0)?, head(Cells::new(row, 1))?)),
        )?;
        snapshot.instance = self.connection.query_row(
            "SELECT name, created_ns, device, inode FROM instance WHERE id = ?1",
            [instance],
            |row| identity(Cells::new(row, 0)),
        )?;
        let whole: i64 = self.connection.query_row(
            "SELECT coalesce(max(id), 0) FROM snapshot WHERE instance = ?1 AND id <= ?2 AND whole = 1",
            [instance, id],
            |row| row.get(0),
        )?;
        for table in schema::states() {
            let mut statement = self.connection.prepare_cached(&table.select())?;
            let mut rows = statement.query([instance, whole, id])?;
            while let Some(row) = rows.next()? {
                cells::put(table, row, &mut snapshot)?;
            }
        }
        let position = |p| retrial::P::ALL.iter().position(|known| *known == p);
        snapshot.params.sort_by_key(|parameter| (position(parameter.parameter), parameter.of));
        snapshot.alerts = self.alerts(instance, snapshot.at.real_ns)?;
        Ok(snapshot)
    }

    fn alerts(&self, instance: i64, until_ns: u64) -> rusqlite::Result<Vec<Alert>> {
        let mut statement = self
            .connection
            .prepare("SELECT number, at_ns, text FROM alert WHERE instance = ?1 AND at_ns <= ?2 ORDER BY number")?;
        let alert = |row: &rusqlite::Row<'_>| {
            let mut cells = Cells::new(row, 0);
            Ok(Alert { number: cells.whole()?, at_ns: cells.whole()?, text: cells.text()? })
        };
        statement.query_map([instance, until_ns.cast_signed()], alert)?.collect()
    }
}

fn head(mut cells: Cells<'_>) -> rusqlite::Result<Snapshot> {
    let at = Moment { real_ns: cells.whole()?, monotonic_ns: cells.whole()? };
    let (recoveries, session_gets) = (cells.whole()?, cells.whole()?);
    let processors = usize::try_from(cells.whole()?).unwrap_or(0);
    let ticks = (cells.maybe_whole()?, cells.maybe_whole()?, cells.maybe_whole()?);
    let ticks = match ticks {
        (Some(busy), Some(all), Some(steal)) => Some(Ticks { busy, all, steal }),
        _ => None,
    };
    let load = Load {
        processors,
        ticks,
        runnable: cells.maybe_whole()?,
        pressure_us: cells.maybe_whole()?,
        frequency_khz: cells.maybe_whole()?,
    };
    Ok(Snapshot { at, recoveries, session_gets, load, ..Snapshot::default() })
}

fn identity(mut cells: Cells<'_>) -> rusqlite::Result<Identity> {
    Ok(Identity { name: cells.text()?, created_ns: cells.whole()?, device: cells.whole()?, inode: cells.whole()? })
}
