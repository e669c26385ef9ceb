//! The tables of a recording as Parquet files, by host and hour:
//! `DIR/TABLE/host=H/hour=2026-11-23T07/part-R.parquet`.
//!
//! They are made of the recording, which stays the journal: an hour's file is written when the hour is over
//! and at the end, under a temporary name, and is complete when it has its own. Which files are to be written
//! follows from the recording and the files alone: those that are missing, and those with fewer rows than the
//! recording has.

use super::schema::{Kind, TABLES, Table};
use super::{Recording, failed};
use crate::clock;
use crate::duration::nanos;
use crate::output::quoted;
use crate::signals;
use miette::{Report, miette};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use retrial::sys::{Clock, clock_ns};
use rusqlite::{Connection, Row};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const HOUR_NS: u64 = 3_600_000_000_000;
/// Maximum number of rows that are in memory at once: a row group.
const GROUP: usize = 65_536;

/// Writes the Parquet files of a recording.
pub struct Partitions {
    directory: PathBuf,
    /// How long files are kept; `None`: for ever.
    keep: Option<Duration>,
    /// Hours before this one have been looked at.
    from_hour: u64,
}

/// What was written: files and rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub files: u64,
    pub rows: u64,
}

/// Why a file was not written.
enum Failure {
    Recording(rusqlite::Error),
    File(PathBuf, io::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Recording(error)
    }
}

/// Of a file.
trait At<T> {
    fn at(self, path: &Path) -> Result<T, Failure>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, Failure> {
        self.map_err(|error| Failure::File(path.to_owned(), error))
    }
}

impl<T> At<T> for parquet::errors::Result<T> {
    fn at(self, path: &Path) -> Result<T, Failure> {
        let of_file = |error| match error {
            // The cause says whether there was no room.
            ParquetError::External(cause) => match cause.downcast::<io::Error>() {
                Ok(error) => *error,
                Err(cause) => io::Error::other(cause),
            },
            error => io::Error::other(error),
        };
        self.map_err(|error| Failure::File(path.to_owned(), of_file(error)))
    }
}

impl Partitions {
    /// Makes the directory, if there is none.
    pub fn new(directory: &Path, keep: Option<Duration>) -> Result<Self, Report> {
        signals::outlive_file_limit();
        // What cannot be written later is said now.
        let probe = directory.join(format!(".retrial-{}.tmp", std::process::id()));
        std::fs::create_dir_all(directory)
            .and_then(|()| File::create(&probe).map(|_| ()))
            .and_then(|()| std::fs::remove_file(&probe))
            .map_err(|error| unwritten(directory, &error))?;
        Ok(Self { directory: directory.to_owned(), keep, from_hour: 0 })
    }

    /// Writes what is missing of the hours that were over at `before_ns`, by the real-time clock.
    pub fn write(&mut self, file: &Path, before_ns: u64) -> Result<Parts, Report> {
        let recording = Recording::open(file)?;
        self.try_write(file, recording.connection(), before_ns / HOUR_NS).map_err(|failure| match failure {
            Failure::Recording(error) => failed(file, &error),
            Failure::File(path, error) => unwritten(&path, &error),
        })
    }

    fn try_write(&mut self, file: &Path, connection: &Connection, before_hour: u64) -> Result<Parts, Failure> {
        // All tables are of one moment of the recording.
        let transaction = connection.unchecked_transaction()?;
        let id = recording_id(file, &transaction)?;
        if let Some(keep) = self.keep {
            let kept_ns = clock_ns(Clock::Realtime).saturating_sub(nanos(keep));
            self.from_hour = self.from_hour.max(kept_ns / HOUR_NS);
            remove(&self.directory, &id, &hour_name(self.from_hour))?;
        }
        let mut parts = Parts::default();
        let hours = hours(&transaction, self.from_hour, before_hour)?;
        for (host, hour) in &hours {
            for table in TABLES.iter() {
                let part = Part { table, host, hour: *hour, id: &id };
                parts.rows += part.write(&self.directory, &transaction)?.inspect(|_| parts.files += 1).unwrap_or(0);
            }
        }
        // What is stamped with an hour may be written some time after its end: the last one is looked at
        // again.
        self.from_hour = hours.iter().map(|(_, hour)| *hour).max().unwrap_or(self.from_hour);
        Ok(parts)
    }
}

/// The rows of a table of one host in one hour.
struct Part<'a> {
    table: &'a Table,
    host: &'a str,
    hour: u64,
    /// Which recording they are of.
    id: &'a str,
}

impl Part<'_> {
    /// The rows, without `SELECT` and columns.
    fn from(&self) -> String {
        let (begin, end) = (self.hour * HOUR_NS, (self.hour + 1) * HOUR_NS);
        let of_host = "SELECT id FROM instance WHERE host = ?1";
        let snapshots = format!("FROM snapshot WHERE instance IN ({of_host}) AND at_ns >= {begin} AND at_ns < {end}");
        let is = |column| self.table.columns.iter().any(|known| known.name == column);
        match self.table.name {
            "snapshot" => snapshots,
            "instance" => format!("FROM instance WHERE id IN (SELECT instance {snapshots})"),
            name if is("snapshot") => format!("FROM {name} WHERE snapshot IN (SELECT id {snapshots})"),
            name => format!("FROM {name} WHERE instance IN ({of_host}) AND at_ns >= {begin} AND at_ns < {end}"),
        }
    }

    fn path(&self, directory: &Path) -> PathBuf {
        let (host, hour) = (format!("host={}", escaped(self.host)), hour_name(self.hour));
        directory.join(self.table.name).join(host).join(hour).join(file_name(self.id))
    }

    /// Writes its file unless that has all rows: how many it has.
    fn write(&self, directory: &Path, connection: &Connection) -> Result<Option<u64>, Failure> {
        let count = format!("SELECT count(*) {}", self.from());
        let rows: i64 = connection.query_row(&count, [self.host], |row| row.get(0))?;
        let path = self.path(directory);
        if rows <= rows_of(&path).unwrap_or(0) {
            return Ok(None);
        }
        let parent = path.parent().unwrap_or(directory);
        std::fs::create_dir_all(parent).at(parent)?;
        // No pattern for Parquet files finds it under this name.
        let unfinished = parent.join(format!(".part-{}.tmp", self.id));
        let written =
            self.write_as(&unfinished, connection).and_then(|()| std::fs::rename(&unfinished, &path).at(&path));
        if written.is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
        written.map(|()| Some(rows.cast_unsigned()))
    }

    fn write_as(&self, path: &Path, connection: &Connection) -> Result<(), Failure> {
        let file = File::create(path).at(path)?;
        let schema = Arc::new(parse_message_type(&message(self.table)).at(path)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut writer = SerializedFileWriter::new(BufWriter::new(&file), schema, Arc::new(properties)).at(path)?;
        let columns: Vec<&str> = self.table.columns.iter().map(|column| column.name).collect();
        let mut statement = connection.prepare(&format!("SELECT {} {}", columns.join(", "), self.from()))?;
        let mut rows = statement.query([self.host])?;
        let mut group = Group::of(self.table);
        loop {
            let row = rows.next()?;
            if let Some(row) = row {
                group.push(row)?;
            }
            if group.rows == GROUP || row.is_none() && group.rows > 0 {
                let full = std::mem::replace(&mut group, Group::of(self.table));
                let mut into = writer.next_row_group().at(path)?;
                full.write(self.id, &mut into).at(path)?;
                into.close().at(path)?;
            }
            if row.is_none() {
                break;
            }
        }
        writer.finish().at(path)?;
        writer.inner_mut().flush().at(path)?;
        // Complete on the disk before it has its name.
        file.sync_all().at(path)
    }
}

/// The rows of a row group, by column: the values that are not null, and for each row whether there is one.
struct Group {
    rows: usize,
    columns: Vec<(Values, Vec<i16>)>,
}

enum Values {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Texts(Vec<ByteArray>),
}

impl Group {
    fn of(table: &Table) -> Self {
        let values = |kind| match kind {
            Kind::Integer => Values::Integers(Vec::new()),
            Kind::Real => Values::Reals(Vec::new()),
            Kind::Text => Values::Texts(Vec::new()),
        };
        Self { rows: 0, columns: table.columns.iter().map(|column| (values(column.kind), Vec::new())).collect() }
    }

    fn push(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        for (i, (values, levels)) in self.columns.iter_mut().enumerate() {
            let is_there = match values {
                Values::Integers(values) => row.get::<_, Option<i64>>(i)?.map(|value| values.push(value)),
                Values::Reals(values) => row.get::<_, Option<f64>>(i)?.map(|value| values.push(value)),
                Values::Texts(values) => {
                    row.get::<_, Option<String>>(i)?.map(|value| values.push(value.into_bytes().into()))
                }
            };
            levels.push(is_there.is_some().into());
        }
        self.rows += 1;
        Ok(())
    }

    fn write<W: Write + Send>(
        self,
        id: &str,
        into: &mut SerializedRowGroupWriter<'_, W>,
    ) -> parquet::errors::Result<()> {
        let of_recording = Values::Texts(vec![ByteArray::from(id); self.rows]);
        let columns = std::iter::once((of_recording, vec![1; self.rows])).chain(self.columns);
        for (values, levels) in columns {
            let Some(mut column) = into.next_column()? else { break };
            match values {
                Values::Integers(values) => column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?,
                Values::Reals(values) => column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?,
                Values::Texts(values) => column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?,
            };
            column.close()?;
        }
        Ok(())
    }
}

/// The columns of a table in Parquet's words; the first one says which recording a row is of.
fn message(table: &Table) -> String {
    let column = |name: &str, kind: Kind| match kind {
        Kind::Integer => format!("optional int64 {name};\n"),
        Kind::Real => format!("optional double {name};\n"),
        Kind::Text => format!("optional binary {name} (utf8);\n"),
    };
    let columns: String = table.columns.iter().map(|known| column(known.name, known.kind)).collect();
    format!("message {} {{\n{}{columns}}}", table.name, column("recording", Kind::Text))
}

/// Hosts and hours of which there is something.
fn hours(connection: &Connection, from: u64, before: u64) -> rusqlite::Result<Vec<(String, u64)>> {
    let of = |table| {
        format!(
            "SELECT DISTINCT host, at_ns / {HOUR_NS} AS hour FROM {table} JOIN instance ON instance.id = instance \
             WHERE at_ns >= ?1 AND at_ns < ?2"
        )
    };
    let mut statement =
        connection.prepare(&format!("{} UNION {} ORDER BY hour, host", of("snapshot"), of("sample")))?;
    let ends = [from, before].map(|hour| hour.saturating_mul(HOUR_NS).min(i64::MAX as u64).cast_signed());
    let hour = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()));
    statement.query_map(ends, hour)?.collect()
}

/// A name for the recording that no other one on its host has: two may write into one directory.
fn recording_id(file: &Path, connection: &Connection) -> rusqlite::Result<String> {
    let of_first = "SELECT boot_id || created_ns || inode || name FROM instance ORDER BY id LIMIT 1";
    let first: Option<String> = connection.query_row(of_first, [], |row| row.get(0)).or_else(|error| match error {
        rusqlite::Error::QueryReturnedNoRows => Ok(None),
        error => Err(error),
    })?;
    let mut hasher = DefaultHasher::new();
    let path = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    (first, path).hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

/// Removes the files of a recording that are of hours before this one, and directories that are empty then.
fn remove(directory: &Path, id: &str, first: &str) -> Result<(), Failure> {
    let entries = |of: &Path| match std::fs::read_dir(of) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>().at(of),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Failure::File(of.to_owned(), error)),
    };
    for table in TABLES.iter() {
        for host in entries(&directory.join(table.name))? {
            let is_old = |hour: &PathBuf| hour.file_name().is_some_and(|name| *name < *first);
            for hour in entries(&host)?.into_iter().filter(is_old) {
                // What another recording has there stays.
                let _ = std::fs::remove_file(hour.join(file_name(id)));
                let _ = std::fs::remove_dir(hour);
            }
        }
    }
    Ok(())
}

/// Directory of an hour: in the order of time.
fn hour_name(hour: u64) -> String {
    format!("hour={}", &clock::time(hour * HOUR_NS)[..13])
}

fn file_name(id: &str) -> String {
    format!("part-{id}.parquet")
}

/// Rows of a file that is complete.
fn rows_of(path: &Path) -> Option<i64> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&File::open(path).ok()?).ok()?;
    Some(metadata.file_metadata().num_rows())
}

/// A host as the value of a partition: what has a meaning in a path is written as Hive does.
fn escaped(host: &str) -> String {
    if host.is_empty() {
        return "unknown".to_owned();
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    host.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn unwritten(path: &Path, error: &io::Error) -> Report {
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    let shown = quoted(&there.to_string_lossy()).into_owned();
    miette!(
        code = "retrial::recording::parquet",
        help = format!("ls -ld {shown}; df -h {shown}"),
        "Parquet file {}: {error}; files that have their names are complete, and the recording has all rows",
        path.display()
    )
}
