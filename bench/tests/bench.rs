//! The benchmarks as they are run. Function only: nothing here depends on how fast anything is.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};

fn bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments.split_whitespace()).output().unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file of this test that is not there, and is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("bench-{}-{name}", std::process::id())))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn fails(arguments: &str, says: &[&str]) {
    let output = bench(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
    for part in says {
        assert!(said.contains(part), "{arguments}: `{part}` is not in: {said}");
    }
}

/// Every peer between what it works between: each moved, none let two in.
fn all_exclude(arguments: &str, everywhere: &[&str], threads_only: &[&str]) {
    let output = bench(&format!("{arguments} --kind both --sessions 3 --rounds 1 --duration 100ms --json"));
    assert!(output.status.success(), "{}", stderr(&output));
    let mut seen = BTreeSet::new();
    for row in rows(&output) {
        // Not without notes: a machine may be away, and spin locks that serve in order may take long to come
        // to their end.
        assert!(row["errors"] == 0 && row["rounds"] == 1, "{row}");
        assert!(row["mops_per_s"].as_f64().unwrap() > 0.0 && row["jain"].as_f64().unwrap() > 0.0, "{row}");
        seen.insert(format!("{} {}", row["kind"].as_str().unwrap(), row["peer"].as_str().unwrap()));
    }
    for (kind, peers) in [("threads", everywhere), ("processes", everywhere), ("threads", threads_only)] {
        for peer in peers {
            assert!(seen.contains(&format!("{kind} {peer}")), "{peer} between {kind}: {seen:?}");
        }
    }
    for peer in threads_only {
        assert!(!seen.contains(&format!("processes {peer}")), "{peer} between processes");
    }
}

#[test]
fn every_mutex_excludes() {
    let schemes: Vec<String> = retrial::wait::NAMES.iter().map(|name| format!("retrial {name}")).collect();
    let mut everywhere: Vec<&str> = schemes.iter().map(String::as_str).collect();
    everywhere.extend(["pthread process-shared", "pthread process-shared robust", "TTAS + sched_yield"]);
    let threads_only =
        ["std::sync::Mutex", "parking_lot::Mutex", "usync::Mutex", "pthread default", "pthread adaptive"];
    all_exclude("contended --cs 1us", &everywhere, &threads_only);
}

#[test]
fn every_read_write_lock_excludes() {
    let everywhere = ["retrial S and X", "pthread_rwlock process-shared"];
    let threads_only = ["std::sync::RwLock", "parking_lot::RwLock", "pthread_rwlock default"];
    all_exclude("readers --cs 1us --writers 10%", &everywhere, &threads_only);
}

#[test]
fn a_mutex_that_excludes_nobody_is_found_out() {
    for kind in ["threads", "processes"] {
        // As long as it takes on a machine with one processor to take it away within a section.
        let output = bench(&format!(
            "contended --peers none --kind {kind} --sessions 4 --cs 50us --rounds 1 --duration 400ms --json"
        ));
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("MUTUAL EXCLUSION BROKEN"), "{}", stderr(&output));
        assert!(rows(&output)[0]["errors"].as_u64().unwrap() > 0);
    }
    assert!(!bench("contended --quick --sessions 1 --json").stdout.windows(6).any(|part| part == b"\"none\""));
}

#[test]
fn thinking_is_counted_by_window_and_not_as_waiting() {
    let output =
        bench("thinking --peers orbit,ttas --sessions 8 --think 50ms --duration 2s --rounds 1 --start both --json");
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = rows(&output);
    assert_eq!(rows.len(), 4, "two peers after two starts");
    for row in rows {
        assert_eq!(row["windows_kops"].as_str().unwrap().split(' ').count(), 2, "{row}");
        // Half of all waits are far below the sleep that lies between two gets.
        assert!(row["wait_p50_us"].as_f64().unwrap() < 25_000.0, "{row}");
    }
}

#[test]
fn hogs_are_their_own_groups_and_not_counted() {
    let output =
        bench("contended --peers sleep --sessions 2 --cs 0 --think 5ms --hogs 0,3 --rounds 1 --duration 200ms --json");
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = rows(&output);
    let hogs: Vec<&Value> = rows.iter().map(|row| &row["hogs"]).collect();
    assert_eq!(hogs, [&Value::from(0), &Value::from(3)]);
    // Two sessions that sleep all the time: what is above that was not theirs.
    assert!(rows[1]["cpu_s_per_s"].as_f64().unwrap() < 0.9, "{}", rows[1]);
}

#[test]
fn what_was_interrupted_is_resumed() {
    let file = Scratch::new("resume.csv");
    let run = |sessions: &str, more: &str| {
        let path = file.0.display();
        bench(&format!(
            "contended --peers orbit,robust --cs 0 --rounds 1 --duration 20ms --csv {path} --sessions {sessions} {more}"
        ))
    };
    assert!(run("1", "").status.success());
    let first = file.text();
    assert_eq!(first.lines().count(), 3, "a header and two peers: {first}");
    // Not by accident, and not with measurements of another length.
    assert_eq!(run("1,2", "").status.code(), Some(2));
    assert_eq!(run("1,2", "--resume --duration 30ms").status.code(), Some(2));
    let output = run("1,2", "--resume");
    assert!(output.status.success() && stderr(&output).contains("1 of 2 groups"), "{}", stderr(&output));
    let second = file.text();
    assert!(second.starts_with(&first) && second.lines().count() == 5, "{second}");
    // Cut off within a line: that group is measured once more.
    std::fs::write(&file.0, &second[..second.len() - 10]).unwrap();
    assert!(stderr(&run("1,2", "--resume")).contains("1 of 2 groups"));
    assert_eq!(file.text().lines().count(), 5);
    assert!(stderr(&run("1,2", "--resume")).contains("0 of 2 groups"));
}

#[test]
fn the_page_is_whole_and_needs_no_network() {
    let (csv, html) = (Scratch::new("page.csv"), Scratch::new("page.html"));
    let output = bench(&format!(
        "all --quick --duration 20ms --peers orbit,std,ttas --csv {} --html {}",
        csv.0.display(),
        html.0.display()
    ));
    assert!(output.status.success(), "{}", stderr(&output));
    let page = html.text();
    // Closed loops of two kinds, with and without hogs, and three numbers of writers with five plots each;
    // two of windows.
    assert_eq!(page.matches("<svg").count(), (2 + 2 + 3) * 5 + 2);
    for tag in ["html", "body", "svg", "table", "tr", "td", "div", "h2", "text"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "<{tag}>");
    }
    assert!(!page.contains("http") && !page.contains("src=") && !page.contains("NaN"));
    assert_eq!(page.matches("<tr>").count(), csv.text().lines().count());
}

#[test]
fn one_thread_alone_has_a_row_for_each_peer() {
    let output = bench("uncontended --quick --json");
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = rows(&output);
    assert!(rows.len() >= 13 && rows.iter().all(|row| row["ns"].as_f64().unwrap() > 0.0), "{rows:?}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    fails("contended --peers nonesuch", &["nonesuch", "retrial orbit", "std::sync::Mutex"]);
    fails("contended --peers std --kind processes", &["between processes", "--kind threads"]);
    fails("contended --cs 100", &["`100`", "unit"]);
    fails("contended --sessions 0", &["0 is not in 1.."]);
    fails("contended --set mutex_spincount=3", &["mutex_spin_count"]);
    fails("contended --set mutex_wait_scheme=orbit", &["--peers orbit"]);
    fails("contended --resume", &["--csv FILE --resume"]);
    fails("thinking --think 5us", &["1 ms"]);
    fails("readers --writers 200%", &["percentage"]);
    // More threads than any Linux has: a row that says so, and no crash.
    let output = bench("contended --peers orbit --sessions 900000 --cs 0 --rounds 1 --duration 20ms --json");
    assert!(output.status.success(), "{}", stderr(&output));
    let note = rows(&output)[0]["note"].as_str().unwrap().to_owned();
    assert!(note.starts_with("not measured: the system made 0 of 900000 threads"), "{note}");
}

#[test]
fn figures_of_the_caches_go_to_files_as_well() {
    let (csv, html) = (Scratch::new("cache.csv"), Scratch::new("cache.html"));
    let load = "cache --peers retrial --kind threads --sessions 1 --objects 10 --bytes 64 --rounds 1 --duration 10";
    let output = bench(&format!("{load} --csv {} --html {} --json", csv.0.display(), html.0.display()));
    assert_eq!(rows(&output).len(), 2, "{}", stderr(&output));
    assert!(csv.text().starts_with("kind,sessions,objects,"), "{}", csv.text());
    assert_eq!(csv.text().lines().count(), 3, "{}", csv.text());
    assert!(html.text().contains("M_accesses_per_s"));
}
