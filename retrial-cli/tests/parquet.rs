//! A recording as Parquet files: complete or not there, all rows, and `DuckDB` reads them.

#![allow(missing_docs)]

mod kit;

use kit::directory::Directory;
use kit::load::{Load, Pass};
use kit::{Scratch, both, command, failed};
use parquet::file::reader::{FileReader, SerializedFileReader};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LOAD: Load =
    Load { sessions: 4, hold: Pass::Busy(Duration::from_micros(200)), think: Pass::Asleep(Duration::from_micros(100)) };

/// A recording of a second under load.
fn recorded(directory: &Directory, more: &[&str]) -> String {
    let (scratch, file) = (Scratch::new(), directory.path("r.db"));
    let record = ["record", &file, "--for", "1s", "--interval", "50ms", "--sample", "2ms"];
    LOAD.during(&scratch, || scratch.run(&[&record, more].concat()));
    file
}

fn convert(file: &str, to: &str) -> Command {
    command(&["record", file, "--convert", "--parquet", to])
}

fn done(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", both(&output));
    both(&output)
}

/// Every file below a directory.
fn files(below: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(below) else { return Vec::new() };
    let each = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| each(entry.unwrap().path())).collect()
}

/// Rows of each table in the files that have their names, each of which is read to its end.
fn rows(directory: &str) -> BTreeMap<String, i64> {
    let mut tables = BTreeMap::new();
    for path in files(Path::new(directory)) {
        if path.extension().is_none_or(|end| end != "parquet") {
            continue;
        }
        let reader = SerializedFileReader::new(File::open(&path).unwrap());
        let reader = reader.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let count = reader.get_row_iter(None).unwrap().map(Result::unwrap).count();
        let relative = path.strip_prefix(directory).unwrap();
        let names: Vec<_> = relative.iter().map(|name| name.to_str().unwrap()).collect();
        let [table, host, hour, part] = names[..] else { panic!("{}", relative.display()) };
        assert!(host.starts_with("host=") && hour.starts_with("hour=20") && part.starts_with("part-"), "{names:?}");
        *tables.entry(table.to_owned()).or_default() += i64::try_from(count).unwrap();
    }
    tables
}

/// The same of the recording, tables without a row left out.
fn recorded_rows(file: &str) -> BTreeMap<String, i64> {
    let connection = Connection::open(file).unwrap();
    let mut statement = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
    let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
    let count = |name: &String| connection.query_row(&format!("SELECT count(*) FROM {name}"), [], |row| row.get(0));
    names.map(|name| (count(&name).unwrap(), name)).filter(|(count, _)| *count > 0).map(|(n, name)| (name, n)).collect()
}

#[test]
fn each_row_of_a_recording_is_in_one_file() {
    let directory = Directory::new();
    let to = directory.path("parquet");
    let file = recorded(&directory, &["--parquet", &to]);
    let all = recorded_rows(&file);
    assert!(all["snapshot"] > 10 && all["wait"] > 10 && all["sample"] > 10, "{all:?}");
    assert_eq!(rows(&to), all);
    // Nothing is missing: nothing is written again.
    assert!(done(convert(&file, &to)).starts_with("0 Parquet files with 0 rows in "));
    let told: serde_json::Value =
        serde_json::from_slice(&convert(&file, &to).arg("--json").output().unwrap().stdout).unwrap();
    assert_eq!(told, serde_json::json!([{ "files": 0, "rows": 0 }]));
    // Two files that are missing.
    let lost = files(Path::new(&to)).into_iter().find(|path| path.to_str().unwrap().contains("/sample/")).unwrap();
    fs::remove_file(lost).unwrap();
    let alert = |number: u32| {
        let insert = "INSERT INTO alert SELECT 1, ?1, at_ns, 'later' FROM snapshot WHERE id = 1";
        Connection::open(&file).unwrap().execute(insert, [number]).unwrap();
    };
    assert!(!all.contains_key("alert"), "{all:?}");
    alert(77);
    assert!(done(convert(&file, &to)).starts_with("2 Parquet files with "));
    assert_eq!(rows(&to), recorded_rows(&file));
    // One that has fewer rows by now.
    alert(78);
    assert!(done(convert(&file, &to)).starts_with("1 Parquet file with 2 rows in "));
    assert_eq!(rows(&to), recorded_rows(&file));
    // What is older than --keep goes.
    let old = Path::new(&to).join("snapshot/host=x/hour=2001-02-03T04");
    let own = files(&Path::new(&to).join("snapshot"))[0].file_name().unwrap().to_owned();
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join(own), "").unwrap();
    let output = command(&["record", &file, "--convert", "--parquet", &to, "--keep", "1h"]).output().unwrap();
    assert!(output.status.success() && !old.exists(), "{}", both(&output));
}

#[test]
fn what_is_there_is_complete_whenever_it_is_killed() {
    let directory = Directory::new();
    let file = recorded(&directory, &[]);
    let (to, all) = (directory.path("parquet"), recorded_rows(&file));
    for delay in 0..25 {
        let mut child = convert(&file, &to).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(4 * delay));
        child.kill().unwrap();
        child.wait().unwrap();
        for (table, count) in rows(&to) {
            assert_eq!(count, all[&table], "{table}, killed after {} ms", 4 * delay);
        }
    }
    done(convert(&file, &to));
    assert_eq!(rows(&to), all);
    // A recorder that is killed: the recording has what it wrote, and so has what is made of it.
    let (scratch, second, to) = (Scratch::new(), directory.path("killed.db"), directory.path("of-killed"));
    LOAD.during(&scratch, || {
        let running = scratch.start(&[
            "record",
            &second,
            "--interval",
            "20ms",
            "--sample",
            "2ms",
            "--parquet",
            &to,
            "--for",
            "60s",
        ]);
        let begun = || Connection::open(&second).is_ok() && fs::metadata(&second).is_ok_and(|file| file.len() > 50_000);
        kit::until("some of it is written", begun);
        running.die_of(libc::SIGKILL);
    });
    done(convert(&second, &to));
    assert_eq!(rows(&to), recorded_rows(&second));
}

#[test]
fn what_cannot_be_written_is_said_and_leaves_nothing_half_done() {
    let directory = Directory::new();
    let (file, to) = (recorded(&directory, &[]), directory.path("parquet"));
    let limited = format!("ulimit -f 4; exec {} record {file} --convert --parquet {to}", kit::RETRIAL);
    let said = failed(&Command::new("sh").args(["-c", &limited]).env("NO_COLOR", "1").output().unwrap());
    assert!(said.contains("File too large") && said.contains("df -h"), "{said}");
    assert!(!files(Path::new(&to)).iter().any(|path| path.extension().is_some_and(|end| end == "tmp")), "{said}");
    for (table, count) in rows(&to) {
        assert_eq!(count, recorded_rows(&file)[&table]);
    }
    let said = failed(&convert(&file, &format!("{file}/below")).output().unwrap());
    assert!(said.contains("Not a directory") && said.contains("ls -ld"), "{said}");
    let said = failed(&convert(&directory.path("none.db"), &to).output().unwrap());
    assert!(said.contains("No such file"), "{said}");
}

/// Whether Python has `DuckDB`; where all programs are required, it has to.
fn has_duckdb() -> bool {
    let found = Command::new("python3").args(["-c", "import duckdb"]).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        let what = "NOT TESTED, no DuckDB: pip install duckdb\n";
        assert!(std::env::var("CI_PROGRAMS").as_deref() != Ok("required"), "{what}");
        // Not captured, as what tests print is.
        let _ = std::io::stderr().write_all(what.as_bytes());
    }
    is_there
}

#[test]
fn duckdb_asks_the_files_of_two_hosts() {
    if !has_duckdb() {
        return;
    }
    let directory = Directory::new();
    let (file, to) = (recorded(&directory, &[]), directory.path("parquet"));
    let other = directory.path("other.db");
    fs::copy(&file, &other).unwrap();
    for (file, host) in [(&file, "alpha"), (&other, "beta/2")] {
        Connection::open(file).unwrap().execute("UPDATE instance SET host = ?1", [host]).unwrap();
        done(convert(file, &to));
    }
    let manual = include_str!("../../docs/USING.md");
    let query =
        manual.split("```sql\n-- DuckDB").nth(1).unwrap().split_once('\n').unwrap().1.split("```").next().unwrap();
    let query = query.replace("/srv/retrial", &to);
    let python = format!("import duckdb\nfor row in duckdb.sql(\"\"\"{query}\"\"\").fetchall(): print(*row, sep='|')");
    let output = Command::new("python3").args(["-c", &python]).output().unwrap();
    assert!(output.status.success(), "{}", both(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let expected: (i64, f64) = Connection::open(&file)
        .unwrap()
        .query_row(
            "SELECT sum(waits), sum(s) FROM (SELECT max(waits) AS waits, max(wait_ns) / 1e9 AS s FROM wait \
             GROUP BY sid, mutex, location, mode, on_x, for_event)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('|').collect()).collect();
    let hosts: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(hosts, ["alpha", "beta/2"], "{text}");
    for row in rows {
        assert_eq!(row[2].parse::<i64>().unwrap(), expected.0, "{text}");
        assert!((row[3].parse::<f64>().unwrap() - expected.1).abs() < 0.01, "{text}, not {}", expected.1);
    }
}
