//! Writes a recording.

use super::cells::Cells;
use super::rows::{self, Row, whole};
use super::sample::Sample;
use super::schema::{self, TABLES, Table, table_named};
use super::{check, failed, is_unborn, plain, thinning};
use crate::output::quoted;
use crate::recording::snapshot::{Identity, Snapshot};
use crate::signals;
use miette::{Report, miette};
use retrial::MutexId;
use retrial_bench::errors::directory;
use retrial_model::profile::Samples;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params_from_iter};
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Snapshots from one that is written whole to the next.
const WHOLE_EVERY: u64 = 60;

/// Writes a recording. One at a time.
pub struct Writer {
    path: PathBuf,
    connection: Connection,
    /// The tables of states that are written.
    states: Vec<&'static Table>,
    /// By instance.
    written: HashMap<Identity, Written>,
    /// Held as long as this writes; it ends with the process, however that ends. Dropped after the
    /// connection: closing a file drops what `SQLite` has locked of it.
    _lock: Option<File>,
}

/// What was written of an instance.
#[derive(Default)]
struct Written {
    id: i64,
    snapshots: u64,
    /// Hashes of the latest rows, by table and key.
    rows: HashMap<(&'static str, Vec<Cell>), u64>,
}

/// A cell of a key.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Cell {
    Number(i64),
    Text(String),
}

/// The samples between two snapshots, and what the recorder took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    pub rounds: u64,
    pub length_ns: u64,
    /// Time of all sessions together, the part of it in which they held something and did not wait, and that
    /// in which they spun for the first time, before that is a wait.
    pub sessions_ns: u64,
    pub holding_ns: u64,
    pub spinning_ns: u64,
    pub recorder_ns: u64,
}

impl Writer {
    /// Opens a recording to go on with it, or makes one. Refused while another process writes it.
    pub fn open(path: &Path) -> Result<Self, Report> {
        let unopened = |error: std::io::Error| {
            let help = format!("ls -ld {}", quoted(&directory(path).to_string_lossy()));
            miette!(code = "retrial::recording::io", help = help, "recording {}: {error}", path.display())
        };
        signals::outlive_file_limit();
        let was_there = path.exists();
        let lock = File::options().read(true).append(true).create(true).open(path).map_err(unopened)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(miette!(
                    code = "retrial::recording::busy",
                    help = format!("fuser -v {}", quoted(&path.to_string_lossy())),
                    "another process records into {}, expected a file of its own for each",
                    path.display()
                ));
            }
            Err(TryLockError::Error(error)) => return Err(unopened(error)),
        }
        let is_empty = lock.metadata().map_err(unopened)?.len() == 0;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(plain(path), flags).map_err(|error| failed(path, &error))?;
        let is_new = is_empty || is_unborn(&connection).map_err(|error| failed(path, &error))?;
        let states = schema::states().collect();
        let mut writer = Self { path: path.to_owned(), connection, states, written: HashMap::new(), _lock: Some(lock) };
        if !is_new {
            check(path, &writer.connection)?;
        }
        writer.prepare(is_new).map_err(|error| {
            if !was_there {
                let _ = std::fs::remove_file(path);
            }
            failed(path, &error)
        })?;
        Ok(writer)
    }

    /// A recording in memory: samples, and of the tables of states those that will be read. The rest stays
    /// empty: the rows of 100,000 mutexes take longer to write than the mutexes to look at.
    pub fn in_memory(is_read: impl Fn(&str) -> bool) -> rusqlite::Result<Self> {
        let (path, connection) = (PathBuf::from("memory"), Connection::open_in_memory()?);
        let states = schema::states().filter(|table| is_read(table.name)).collect();
        let mut writer = Self { path, connection, states, written: HashMap::new(), _lock: None };
        writer.prepare(true)?;
        Ok(writer)
    }

    /// The database that was written.
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    #[cfg(test)]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    fn prepare(&mut self, is_new: bool) -> rusqlite::Result<()> {
        self.connection.busy_timeout(Duration::from_secs(10))?;
        self.connection.set_prepared_statement_cache_capacity(64);
        if is_new {
            // Before the first table: pages that were thinned out go back to the file system.
            self.connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        self.connection.pragma_update(None, "journal_mode", "WAL")?;
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        if is_new {
            let transaction = self.connection.transaction()?;
            for table in TABLES.iter() {
                transaction.execute(&table.create(), [])?;
            }
            transaction.execute("CREATE INDEX snapshot_of ON snapshot (instance, at_ns)", [])?;
            transaction.pragma_update(None, "application_id", schema::APPLICATION)?;
            transaction.pragma_update(None, "user_version", schema::FORMAT)?;
            transaction.commit()?;
        }
        Ok(())
    }

    /// What was seen of an instance's mutexes up to its latest snapshot; nothing of one that was not recorded.
    pub fn seen(&self, instance: &Identity) -> Result<HashMap<MutexId, Samples>, Report> {
        self.try_seen(instance).map_err(|error| failed(&self.path, &error))
    }

    fn try_seen(&self, instance: &Identity) -> rusqlite::Result<HashMap<MutexId, Samples>> {
        let Some(instance) = known(&self.connection, instance)? else { return Ok(HashMap::new()) };
        // Of each mutex the latest row since all were written; nulls for one that has gone.
        let mut statement = self.connection.prepare(
            "SELECT mutex, looks, held, looked_s, held_s, looked_gets, max(snapshot) FROM mutex_state \
             JOIN snapshot ON snapshot.id = mutex_state.snapshot WHERE instance = ?1 AND snapshot >= \
             (SELECT max(id) FROM snapshot WHERE instance = ?1 AND whole = 1) GROUP BY mutex",
        )?;
        let seen = |row: &rusqlite::Row<'_>| {
            let mut cells = Cells::new(row, 0);
            let id = MutexId(cells.small()?);
            let Some(looks) = cells.maybe_whole()? else { return Ok(None) };
            let (held, time_s, held_s, gets) = (cells.whole()?, cells.real()?, cells.real()?, cells.whole()?);
            Ok(Some((id, Samples { looks, held, time_s, held_s, gets })))
        };
        statement.query_map([instance], seen)?.filter_map(Result::transpose).collect()
    }

    /// Writes a snapshot and the samples since the one before: all of it or nothing. Gives its number.
    pub fn store(&mut self, snapshot: &Snapshot, samples: &[Sample], rounds: Rounds) -> Result<i64, Report> {
        self.try_store(snapshot, samples, rounds).map_err(|error| {
            // What was taken for written is not in the file: the next one is written whole.
            self.written.remove(&snapshot.instance);
            failed(&self.path, &error)
        })
    }

    fn try_store(&mut self, snapshot: &Snapshot, samples: &[Sample], rounds: Rounds) -> rusqlite::Result<i64> {
        let transaction = self.connection.transaction()?;
        let written = match self.written.remove(&snapshot.instance) {
            Some(written) => written,
            None => Written { id: instance(&transaction, snapshot)?, ..Written::default() },
        };
        let written = self.written.entry(snapshot.instance.clone()).or_insert(written);
        let is_whole = written.snapshots.is_multiple_of(WHOLE_EVERY);
        let id =
            1 + transaction.query_row("SELECT coalesce(max(id), 0) FROM snapshot", [], |row| row.get::<_, i64>(0))?;
        insert(&transaction, table_named("snapshot"), &of_snapshot(id, written.id, is_whole, snapshot, rounds))?;
        for table in &self.states {
            written.write(&transaction, table, id, is_whole, rows::of(table, snapshot))?;
        }
        for alert in &snapshot.alerts {
            let row = [written.id.into(), whole(alert.number), whole(alert.at_ns), alert.text.clone().into()];
            insert(&transaction, table_named("alert"), &row)?;
        }
        store_samples(&transaction, written.id, samples)?;
        transaction.commit()?;
        written.snapshots += 1;
        Ok(id)
    }

    /// Writes samples of an instance that a snapshot was written of.
    pub fn store_samples(&mut self, instance: &Identity, samples: &[Sample]) -> Result<(), Report> {
        let Some(id) = self.written.get(instance).map(|written| written.id) else { return Ok(()) };
        let store = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            store_samples(&transaction, id, samples)?;
            transaction.commit()
        };
        store(&mut self.connection).map_err(|error| failed(&self.path, &error))
    }

    /// Thins out what is older than `keep` allows at `now_ns` by the real-time clock.
    pub fn thin(&mut self, keep: Duration, now_ns: u64) -> Result<(), Report> {
        thinning::thin(&mut self.connection, keep, now_ns).map_err(|error| failed(&self.path, &error))
    }

    /// Bytes that the recording takes, with what is not merged into its file yet.
    pub fn size(&self) -> u64 {
        let len = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        len(&self.path) + len(Path::new(&log))
    }

    /// Ends the recording with all of it in its one file, unless somebody reads it.
    pub fn close(self) -> Result<(), Report> {
        let merged = self.connection.pragma_update(None, "journal_mode", "DELETE");
        match merged {
            Err(error) if error.sqlite_error_code() != Some(rusqlite::ErrorCode::DatabaseBusy) => {
                Err(failed(&self.path, &error))
            }
            _ => Ok(()),
        }
    }
}

impl Written {
    /// Writes the rows of a table that have changed, and one of nulls for each key that has gone.
    fn write(
        &mut self,
        connection: &Connection,
        table: &'static Table,
        snapshot: i64,
        is_whole: bool,
        rows: Vec<Row>,
    ) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(&table.insert())?;
        let mut before: HashMap<_, u64> = self.rows.extract_if(|(of, _), _| *of == table.name).collect();
        for row in rows {
            let key = (table.name, key(&row[..table.keys - 1]));
            let now = hash(&row);
            if before.remove(&key) != Some(now) || is_whole {
                statement.execute(params_from_iter(std::iter::once(Value::Integer(snapshot)).chain(row)))?;
            }
            self.rows.insert(key, now);
        }
        if is_whole {
            return Ok(());
        }
        for ((_, key), _) in before {
            let nulls = std::iter::repeat_n(Value::Null, table.columns.len() - table.keys);
            let cells = std::iter::once(Value::Integer(snapshot)).chain(key.into_iter().map(Cell::value)).chain(nulls);
            statement.execute(params_from_iter(cells))?;
        }
        Ok(())
    }
}

impl Cell {
    fn value(self) -> Value {
        match self {
            Self::Number(number) => Value::Integer(number),
            Self::Text(text) => Value::Text(text),
        }
    }
}

fn key(cells: &[Value]) -> Vec<Cell> {
    let cell = |value: &Value| match value {
        Value::Integer(number) => Cell::Number(*number),
        Value::Text(text) => Cell::Text(text.clone()),
        other => unreachable!("{other:?} in a key"),
    };
    cells.iter().map(cell).collect()
}

fn hash(row: &[Value]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for cell in row {
        match cell {
            Value::Null => 0.hash(&mut hasher),
            Value::Integer(number) => (1, number).hash(&mut hasher),
            Value::Real(number) => (2, number.to_bits()).hash(&mut hasher),
            Value::Text(text) => (3, text).hash(&mut hasher),
            Value::Blob(bytes) => (4, bytes).hash(&mut hasher),
        }
    }
    hasher.finish()
}

fn insert(connection: &Connection, table: &Table, row: &[Value]) -> rusqlite::Result<()> {
    connection.prepare_cached(&table.insert())?.execute(params_from_iter(row))?;
    Ok(())
}

/// The number of an instance in the recording, where a snapshot of it is there.
fn known(connection: &Connection, identity: &Identity) -> rusqlite::Result<Option<i64>> {
    let number = connection.query_row(
        "SELECT id FROM instance WHERE name = ?1 AND created_ns = ?2 AND device = ?3 AND inode = ?4 AND boot_id = ?5",
        (
            &identity.name,
            identity.created_ns.cast_signed(),
            identity.device.cast_signed(),
            identity.inode.cast_signed(),
            boot_id(),
        ),
        |row| row.get(0),
    );
    number.optional()
}

/// The number of an instance in the recording; it gets one at its first snapshot.
fn instance(connection: &Connection, snapshot: &Snapshot) -> rusqlite::Result<i64> {
    let identity = &snapshot.instance;
    if let Some(id) = known(connection, identity)? {
        return Ok(id);
    }
    let id: i64 =
        1 + connection.query_row("SELECT coalesce(max(id), 0) FROM instance", [], |row| row.get::<_, i64>(0))?;
    let capacity = snapshot.capacity;
    let row = [
        id.into(),
        identity.name.clone().into(),
        whole(identity.created_ns),
        whole(identity.device),
        whole(identity.inode),
        host().into(),
        boot_id().into(),
        capacity.sessions.into(),
        capacity.mutexes.into(),
        capacity.locations.into(),
        capacity.rows.into(),
        whole(capacity.arena),
    ];
    insert(connection, table_named("instance"), &row)?;
    Ok(id)
}

/// What the kernel calls the time since this machine was started.
fn boot_id() -> String {
    kernel("random/boot_id")
}

/// Name of this machine.
pub fn host() -> String {
    kernel("hostname")
}

/// What the kernel says of this machine: a file of `/proc/sys/kernel`.
fn kernel(name: &str) -> String {
    std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn of_snapshot(id: i64, instance: i64, is_whole: bool, snapshot: &Snapshot, rounds: Rounds) -> Row {
    let load = &snapshot.load;
    let maybe = |number: Option<u64>| number.map_or(Value::Null, whole);
    vec![
        id.into(),
        instance.into(),
        whole(snapshot.at.real_ns),
        whole(snapshot.at.monotonic_ns),
        is_whole.into(),
        whole(snapshot.recoveries),
        whole(snapshot.session_gets),
        whole(load.processors as u64),
        maybe(load.ticks.map(|ticks| ticks.busy)),
        maybe(load.ticks.map(|ticks| ticks.all)),
        maybe(load.ticks.map(|ticks| ticks.steal)),
        maybe(load.runnable),
        maybe(load.pressure_us),
        maybe(load.frequency_khz),
        whole(rounds.rounds),
        whole(rounds.length_ns),
        whole(rounds.sessions_ns),
        whole(rounds.holding_ns),
        whole(rounds.spinning_ns),
        whole(rounds.recorder_ns),
    ]
}

fn store_samples(connection: &Connection, instance: i64, samples: &[Sample]) -> rusqlite::Result<()> {
    let table = table_named("sample");
    samples.iter().try_for_each(|sample| insert(connection, table, &sample.row(instance)))
}
