//! Recordings: snapshots and samples in one `SQLite` file.
//!
//! Counters are kept as they stand, and a row only where it has changed since the snapshot before: any two
//! snapshots have a difference, and what lies between may be thinned out. Now and then a snapshot has all its
//! rows; reading one starts there.

mod cells;
pub mod parquet;
mod reader;
mod rows;
mod sample;
pub mod schema;
#[cfg(test)]
mod tests;
mod thinning;
mod writer;

pub use reader::{Recorded, Recording};
pub use sample::{Holder, Sample};
pub use writer::{Rounds, Writer, host};

use crate::output::quoted;
use miette::{Report, miette};
use retrial_bench::errors::directory;
use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// What is said when the file cannot be read or written.
pub fn failed(path: &Path, error: &rusqlite::Error) -> Report {
    let shown = quoted(&path.to_string_lossy()).into_owned();
    let directory = quoted(&directory(path).to_string_lossy()).into_owned();
    let is_full = matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull)) || is_write_error(error);
    if is_full {
        return miette!(
            code = "retrial::recording::full",
            help = format!("df -h {directory}"),
            "recording {}: no room for what comes next ({error}); what was written before stays",
            path.display()
        );
    }
    // Rows that do not hold what they are to hold.
    let is_odd = matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
    );
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => foreign(path, "is no SQLite file"),
        code if is_odd || code == Some(ErrorCode::DatabaseCorrupt) => miette!(
            code = "retrial::recording::damaged",
            help = format!("sqlite3 {shown} .recover"),
            "recording {} is damaged: {error}",
            path.display()
        ),
        _ => miette!(
            code = "retrial::recording::io",
            help = format!("ls -ld {shown} {directory}; df -h {directory}"),
            "recording {}: {error}",
            path.display()
        ),
    }
}

/// A write that did not succeed: beyond the limit of a file's size, or of a quota.
fn is_write_error(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(rusqlite::ffi::SQLITE_IOERR_WRITE | rusqlite::ffi::SQLITE_IOERR_SHMSIZE))
}

/// What is said of a file that is no recording.
fn foreign(path: &Path, what: &str) -> Report {
    miette!(
        code = "retrial::recording::foreign",
        help = "retrial record --help",
        "{} {what}, expected a recording of `retrial record`",
        path.display()
    )
}

/// A name that `SQLite` takes for that of a file whatever it begins with: `file:` would be a URI, `:memory:`
/// no file.
fn plain(path: &Path) -> PathBuf {
    Path::new(".").join(path)
}

/// Whether a database has nothing in it yet, as its writer was killed before it had made the tables.
fn is_unborn(connection: &rusqlite::Connection) -> rusqlite::Result<bool> {
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(application == 0 && tables == 0)
}

/// That a file is a recording that this build reads.
fn check(path: &Path, connection: &rusqlite::Connection) -> Result<(), Report> {
    let pragma = |name| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i32>(0));
    let application = pragma("application_id").map_err(|error| failed(path, &error))?;
    let format = pragma("user_version").map_err(|error| failed(path, &error))?;
    if is_unborn(connection).map_err(|error| failed(path, &error))? {
        return Err(foreign(path, "is empty"));
    }
    if application != schema::APPLICATION {
        return Err(foreign(path, "is an SQLite file of something else"));
    }
    if format != schema::FORMAT {
        return Err(miette!(
            code = "retrial::recording::format",
            help = format!("use the build of retrial that wrote it; this one is {}", env!("CARGO_PKG_VERSION")),
            "{} has the recording format {format}, expected {}",
            path.display(),
            schema::FORMAT
        ));
    }
    Ok(())
}
