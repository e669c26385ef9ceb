//! SQL on instances and recordings: what it says is what other commands say, and it changes nothing.

mod kit;

use kit::directory::File;
use kit::load::{Load, Pass};
use kit::{Scratch, command, failed, until};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// A recording of an instance.
fn recording(scratch: &Scratch) -> File {
    let file = File::new("r.db");
    scratch.run(&["record", &file, "--for", "300ms", "--interval", "100ms", "--sample", "5ms"]);
    file
}

fn rows(file: &str, statement: &str) -> Vec<Value> {
    let output = command(&["sql", file, statement, "--json"]).output().unwrap();
    assert!(output.status.success(), "{statement}: {}", kit::both(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// An instance in which one session has waited in vain for another one, and nothing happens any more.
fn waited() -> Scratch {
    let scratch = Scratch::new();
    let hold = scratch.hold(&["m", "--create", "--type", "Cursor Pin", "--mode", "X", "--for", "300s"]);
    let waits = scratch.start(&["hold", "m", "--mode", "S", "--for", "0s"]);
    until("sleeps", || scratch.rows(&["show", "sleeps"]).first().is_some_and(|row| row["sleeps"].as_u64() > Some(3)));
    drop(hold);
    waits.end();
    scratch.output(&["recover"]);
    scratch
}

const LOAD: Load =
    Load { sessions: 2, hold: Pass::Busy(Duration::from_micros(200)), think: Pass::Asleep(Duration::from_micros(100)) };

/// The same figures of a row, under the names of a command and of a view.
fn same(what: &str, told: &Value, asked: &Value, names: &[(&str, &str)]) {
    for (told_name, asked_name) in names {
        let (told, asked) = (&told[told_name], &asked[asked_name]);
        assert!(!told.is_null() || asked.is_null(), "{what}: {told_name}");
        assert_eq!(told.to_string(), asked.to_string(), "{what}: {told_name} and {asked_name}");
    }
}

#[test]
#[allow(clippy::too_many_lines)] // one story
fn live_and_recorded_and_show_have_the_same_digits() {
    let scratch = waited();
    let file = recording(&scratch);
    let live = |statement| scratch.rows(&["sql", statement]);
    for (view, asked, names) in [
        (
            "mutexes",
            "SELECT * FROM v$mutex",
            &[
                ("id", "mutex"),
                ("name", "name"),
                ("type", "mutex_type"),
                ("scheme", "scheme"),
                ("word", "value"),
                ("gets", "gets"),
                ("misses", "misses"),
                ("sleeps", "sleeps"),
                ("waits", "waits"),
                ("wait_ms", "wait_time_ms"),
                ("miss_ratio", "miss_ratio"),
                ("sleep_ratio", "sleep_ratio"),
                ("spin_inefficiency", "spin_inefficiency"),
            ][..],
        ),
        (
            "sleeps",
            "SELECT * FROM v$mutex_sleep",
            &[
                ("mutex_type", "mutex_type"),
                ("location", "location"),
                ("sleeps", "sleeps"),
                ("wait_time_ms", "wait_time_ms"),
            ],
        ),
        (
            "events",
            "SELECT * FROM v$system_event",
            &[
                ("event", "event"),
                ("waits", "total_waits"),
                ("avg_ms", "average_wait_ms"),
                ("spin_pct", "spin_pct"),
                ("yield_pct", "yield_pct"),
                ("slept_pct", "slept_pct"),
                ("over_pct", "over_pct"),
                ("max_ms", "max_wait_ms"),
            ],
        ),
        (
            "history",
            "SELECT * FROM v$mutex_sleep_history ORDER BY sleep_timestamp DESC",
            &[
                ("mutex", "mutex"),
                ("gets", "gets"),
                ("sleeps", "sleeps"),
                ("requesting_session", "requesting_session"),
                ("blocking_session", "blocking_session"),
                ("location", "location"),
            ],
        ),
    ] {
        let (told, live, recorded) = (scratch.rows(&["show", view]), live(asked), rows(&file, asked));
        assert!(!told.is_empty() && told.len() == live.len() && told.len() == recorded.len(), "{view}");
        for (told, (live, recorded)) in told.iter().zip(live.iter().zip(&recorded)) {
            same(view, told, live, names);
            same(view, told, recorded, names);
        }
    }
    let params = "SELECT name, value FROM v$parameter WHERE mutex_type IS NULL";
    let told: Vec<_> = scratch.rows(&["show", "params"]);
    for (told, (live, recorded)) in told.iter().zip(live(params).iter().zip(rows(&file, params))) {
        same("params", told, live, &[("name", "name"), ("value", "value")]);
        assert_eq!(*live, recorded);
    }
}

#[test]
fn what_is_shown_over_a_time_is_what_happened_in_it() {
    let scratch = Scratch::new();
    let rows = LOAD.during(&scratch, || {
        let statement = "SELECT gets, misses, gets_per_s, utilization, samples, holding_time_us, period_s \
                         FROM v$mutex m JOIN (SELECT period_s FROM v$instance)";
        scratch.rows(&["sql", "--over", "500ms", statement])
    });
    let of = |name: &str| rows[0][name].as_f64().unwrap_or_else(|| panic!("{name} of {}", rows[0]));
    assert!(of("gets") > 0.0 && of("period_s") >= 0.5);
    assert!((of("gets_per_s") - of("gets") / of("period_s")).abs() < 1e-6 * of("gets_per_s"));
    assert!(of("samples") > 0.0 && (0.0..=1.0).contains(&of("utilization")));
}

#[test]
fn a_recording_can_be_asked_over_the_time_that_it_was_told_to_take() {
    let scratch = Scratch::new();
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s"]);
    let file = recording(&scratch);
    let ask =
        |over: &str| command(&["sql", &file, "--over", over, "SELECT period_s FROM v$instance"]).output().unwrap();
    // It was to be 300 ms, and is a little less or more, as its snapshots came.
    let length_ms =
        1e3 * rows(&file, "SELECT (max(at_ns) - min(at_ns)) / 1e9 AS s FROM snapshot")[0]["s"].as_f64().unwrap();
    let output = ask(&format!("{:.0}ms", length_ms * 1.02));
    assert!(output.status.success(), "{}", kit::both(&output));
    let output = ask(&format!("{:.0}ms", length_ms / 2.0));
    assert!(output.status.success(), "{}", kit::both(&output));
    assert!(failed(&ask(&format!("{:.0}ms", length_ms * 1.2))).contains("which is what was recorded"));
}

#[test]
fn the_snapshot_nearest_to_the_time_asked_for_is_taken_and_a_longer_time_is_said() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    scratch.run(&["record", &file, "--for", "500ms", "--interval", "100ms"]);
    let at_ns = rows(&file, "SELECT at_ns FROM snapshot ORDER BY at_ns DESC");
    let at_ns: Vec<i64> = at_ns.iter().map(|row| row["at_ns"].as_i64().unwrap()).collect();
    let last = at_ns[0];
    // The last two may be next to each other.
    let older: Vec<i64> = at_ns.into_iter().filter(|at_ns| last - at_ns > 20_000_000).collect();
    let [middle, first] = [older[0], older[1]];
    let ask = |over_ns: i64| {
        let statement = "SELECT period_s FROM v$instance";
        let output =
            command(&["sql", &file, "--over", &format!("{}us", over_ns / 1000), statement, "--json"]).output().unwrap();
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        (rows[0]["period_s"].as_f64().unwrap(), kit::stderr(&output))
    };
    let near = |s: f64, ns: i64| (s - ns as f64 / 1e9).abs() < 1e-3;
    let (period_s, said) = ask((last - middle) * 103 / 100);
    assert!(near(period_s, last - middle) && said.is_empty(), "{period_s} s: {said}");
    let (period_s, said) = ask((2 * last - middle - first) / 2);
    assert!(near(period_s, last - first) && said.contains("the figures are of that time"), "{period_s} s: {said}");
}

#[test]
fn sessions_and_samples_say_who_waits_for_whom() {
    let scratch = Scratch::new();
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s"]);
    let _waits = scratch.start(&["hold", "m", "--mode", "S", "--for", "0s"]);
    until("a wait", || scratch.observer().tables().waits().next().is_some());
    let file = recording(&scratch);
    let statement = "SELECT w.event, w.name, w.step IS NOT NULL AS has_step, w.blocking_session, h.mode, h.location \
                     FROM v$session_wait w JOIN v$mutex_holder h USING (mutex)";
    let expected = serde_json::json!({ "event": "cursor: pin S wait on X", "name": "m", "has_step": 1,
        "blocking_session": 1, "mode": "X", "location": "retrial hold" });
    for rows in [scratch.rows(&["sql", statement]), rows(&file, statement)] {
        assert_eq!((rows.len(), &rows[0]), (1, &expected));
    }
    let history = "SELECT session_state, sid, name, mode, blocking_session, sum(time_s) > 0 AS some \
                   FROM v$active_session_history GROUP BY 1, 2 ORDER BY 2";
    let expected = serde_json::json!([
        { "session_state": "holds", "sid": 1, "name": "m", "mode": "X", "blocking_session": null, "some": 1 },
        { "session_state": "waits", "sid": 2, "name": "m", "mode": "S", "blocking_session": 1, "some": 1 },
    ]);
    assert_eq!(Value::from(rows(&file, history)), expected);
    assert_eq!(Value::from(scratch.rows(&["sql", history])), expected);
    // The first word of the segment: its magic number.
    let magic = format!("{:016x}", u64::from_le_bytes(*b"RETRIAL\0"));
    let word = scratch.rows(&["sql", "SELECT ksmmmval FROM x$ksmmem WHERE indx = 0"]);
    assert_eq!(word[0]["ksmmmval"], magic.as_str());
}

#[test]
fn nothing_can_be_changed() {
    let scratch = waited();
    let file = recording(&scratch);
    let before = std::fs::read(&*file).unwrap();
    for statement in [
        "DELETE FROM wait",
        "INSERT INTO alert VALUES (1, 2, 3, 'x')",
        "UPDATE snapshot SET at_ns = 0",
        "DROP TABLE sample",
        "CREATE TABLE t (x)",
        "CREATE TEMP TABLE t (x)",
        "PRAGMA query_only = OFF",
        "PRAGMA user_version = 7",
        "PRAGMA journal_mode = DELETE",
        "ATTACH '/tmp/other.db' AS other",
        "VACUUM",
        "VACUUM INTO '/tmp/other.db'",
        "BEGIN",
        "UPDATE v$mutex SET gets = 0",
    ] {
        for source in [&[&*file][..], &["-i", &scratch.name]] {
            let said = failed(&command(&[&["sql"], source, &[statement]].concat()).output().unwrap());
            assert!(said.contains("retrial::sql::"), "{statement}: {said}");
        }
    }
    assert_eq!(std::fs::read(&*file).unwrap(), before);
    assert!(!Path::new("/tmp/other.db").exists());
}

#[test]
fn a_mistake_is_shown_with_its_place_and_what_may_have_been_meant() {
    let scratch = Scratch::new();
    for (statement, expected) in [
        ("SELECT * FROM v$mutexs", "no such table: v$mutexs SELECT * FROM v$mutexs ^ help: did you mean v$mutex?"),
        ("SELECT gest FROM v$mutex", "no such column: gest SELECT gest FROM v$mutex ^ help: did you mean gets?"),
        ("SELEC 1", "near \"SELEC\": syntax error SELEC 1 ^"),
        ("SELECT (1", "incomplete input"),
        (" ", "no statement, expected one in SQL"),
        ("/* nothing */", "no statement, expected one in SQL"),
        (".vews", "command `.vews`, expected one of .views"),
        (".views v$mutexs", "no view `v$mutexs`"),
    ] {
        let said = scratch.fail(&["sql", statement]);
        assert!(said.contains(expected), "{statement}: {said}");
    }
    // The caret is below the word.
    let output = scratch.output(&["sql", "SELECT gest FROM v$mutex"]);
    let text = String::from_utf8(output.stderr).unwrap();
    let column = |what: &str| text.lines().find_map(|line| line.find(what)).unwrap();
    let line = text.lines().find(|line| line.contains("SELECT gest")).unwrap();
    assert_eq!(column("^"), line.find("gest").unwrap(), "{text}");
}

#[test]
fn a_script_is_read_from_standard_input() {
    let scratch = Scratch::new();
    let mut child =
        command(&["sql", "-i", &scratch.name, "--csv"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"SELECT 1 AS one;\n-- and\nSELECT 'a,b' AS two, NULL AS three;\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "one\n1\n\ntwo,three\n\"a,b\",\n");
}

#[test]
fn a_command_of_a_script_ends_at_its_line() {
    let scratch = Scratch::new();
    let text = scratch.run(&["sql", "SELECT 3 AS x;\n.views v$mutex\nselect 4 AS y;"]);
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("x") < at("v$mutex") && at("v$mutex") < text.rfind("\n4").unwrap(), "{text}");
    let several = scratch.fail(&["sql", "--json", ".tables\nSELECT 1"]);
    assert!(several.contains("2 results, expected one with --json"), "{several}");
}

#[test]
fn the_caret_is_below_the_statement_that_is_wrong() {
    let scratch = Scratch::new();
    let said = scratch.fail(&["sql", "SELECT 3;\nSELECT bad;"]);
    assert!(said.contains("no such column: bad SELECT bad; ^"), "{said}");
}

#[test]
fn what_would_be_no_json_document_is_refused() {
    let scratch = Scratch::new();
    for (statement, expected) in [
        ("SELECT 1; SELECT 2", "2 results, expected one with --json"),
        ("SELECT 1 AS a, 2 AS a", "two columns are named a, expected another name for each"),
    ] {
        let output = scratch.output(&["sql", "--json", statement]);
        let said = failed(&output);
        assert!(said.contains(expected) && output.stdout.is_empty(), "{statement}: {said}");
        scratch.run(&["sql", "--csv", statement]);
    }
}

#[test]
fn every_view_that_is_described_can_be_asked() {
    let scratch = waited();
    let names = scratch.run(&["sql", ".tables"]);
    assert!(names.lines().count() > 20, "{names}");
    for name in names.lines().filter(|name| *name != "x$ksmmem") {
        let statement = format!("SELECT * FROM {name}");
        scratch.run(&["sql", &statement, "--csv"]);
        let described = scratch.run(&["sql", &format!(".views {name}")]);
        let columns: Vec<&str> = described.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        scratch.run(&["sql", &format!("SELECT {} FROM {name}", columns.join(", "))]);
    }
}

/// A live instance's tables are made for the statements that read them.
#[test]
fn the_tables_that_a_script_reads_have_their_rows() {
    let scratch = waited();
    let script = "SELECT count(*) > 0 FROM MUTEX; SELECT count(*) > 0 FROM (SELECT 1 FROM mutex_state WHERE gets > 0) \
                  JOIN (SELECT count(*) AS n FROM \"parameter\") ON n > 0; SELECT count(*) > 0 FROM wait";
    let answers = scratch.run(&["sql", script, "--csv"]);
    let answers: Vec<&str> = answers.lines().skip(1).step_by(3).collect();
    assert_eq!(answers, ["1", "1", "1"]);
}

#[test]
fn a_recording_that_is_none_is_refused() {
    for (path, expected) in
        [("/nonexistent.db", "No such file"), ("/etc/services", "is no SQLite file"), ("/", "is no file")]
    {
        let said = failed(&command(&["sql", path, "SELECT 1"]).output().unwrap());
        assert!(said.contains(expected), "{said}");
    }
}

/// `cargo test --release -p retrial-cli --test sql -- --ignored --nocapture`
#[test]
#[ignore = "measures: for a machine that does nothing else, in release"]
fn a_large_instance_is_answered_within_two_seconds_and_512_mb() {
    const SESSIONS: usize = 16_384;
    const MUTEXES: usize = 100_000;
    let scratch = Scratch::with(&["--sessions", "16384", "--mutexes", "100000", "--rows", "8", "--arena", "64M"]);
    let instance = scratch.instance();
    let mutexes: Vec<retrial::Mutex<u64>> =
        (0..MUTEXES).map(|i| instance.mutex(&format!("m{i}"), "test", || 0).unwrap()).collect();
    let sessions: Vec<retrial::Session<'_>> =
        (0..SESSIONS).map(|_| instance.session("many", retrial::Class::Normal).unwrap()).collect();
    // Each session has a row of counters.
    let held = mutexes[0].exclusive(&sessions[0], retrial::location!("hold")).unwrap();
    for session in &sessions[1..] {
        let patience = retrial::Patience::Until(retrial::sys::Deadline::after(Duration::from_micros(1)));
        let _ = mutexes[0].get(session, retrial::Mode::Exclusive, retrial::location!("miss"), patience);
    }
    for view in scratch.run(&["sql", ".tables"]).lines().filter(|name| name.starts_with("v$")) {
        let began = std::time::Instant::now();
        let statement = format!("SELECT count(*) FROM (SELECT * FROM {view})");
        let output = command(&["sql", "-i", &scratch.name, &statement, "--csv"]).output().unwrap();
        let (took, rows) = (began.elapsed(), kit::both(&output));
        // SAFETY: all zero is a valid value of this plain C struct.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is writable.
        unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
        let peak_kb = usage.ru_maxrss;
        println!(
            "{view}: {:.2} s, {} MB at most so far, {}",
            took.as_secs_f64(),
            peak_kb / 1024,
            rows.trim().replace('\n', " ")
        );
        assert!(took < Duration::from_secs(2) && peak_kb < 512 * 1024, "{view}");
    }
    drop(held);
}

#[test]
fn the_views_are_described_as_json_and_csv_too() {
    let of =
        |option: &str| String::from_utf8(command(&["sql", ".views v$mutex", option]).output().unwrap().stdout).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&of("--json")).unwrap();
    assert!(
        rows.iter().all(|row| row["name"] == "v$mutex") && rows.iter().any(|row| row["column"] == "gets"),
        "{rows:?}"
    );
    assert!(of("--csv").starts_with("name,description,column,type,unit,meaning\nv$mutex,"));
}
