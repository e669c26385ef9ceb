//! `retrial bench` as a user runs it. Function only: nothing here depends on how fast anything is.

mod kit;

use kit::{Running, failed, stderr, until};
use retrial::{Address, Observer};
use serde_json::Value;
use std::process::{Command, Output};

const COLUMNS: &str = "scheme,sessions,copies,kind,cs_ns,think_ns,ops_per_s,cpu_s_per_s,jain,wait_p50_us,wait_p99_us,wait_p999_us,wait_max_us,k,kappa,sleeps_per_s,errors";

/// `retrial bench` with these arguments.
fn command(arguments: &str) -> Command {
    kit::command(&["bench"].into_iter().chain(arguments.split_whitespace()).collect::<Vec<_>>())
}

fn bench(arguments: &str) -> Output {
    command(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn fails(arguments: &str, says: &[&str]) {
    let said = failed(&bench(arguments));
    for part in says {
        assert!(said.contains(part), "{arguments}: `{part}` is not in: {said}");
    }
}

#[test]
fn every_combination_gives_a_row_without_errors() {
    let output = bench("--schemes orbit,sleep --sessions 1,4 --kind both --duration 50ms --csv");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(COLUMNS));
    let mut seen = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), 17, "{line}");
        assert_eq!((cells[2], cells[4], cells[5], cells[16]), ("1", "100", "0", "0"), "{line}");
        assert!(cells[6].parse::<f64>().unwrap() > 0.0, "{line}");
        seen.push(format!("{} {} {}", cells[0], cells[1], cells[3]));
    }
    let mut expected = Vec::new();
    for kind in ["threads", "processes"] {
        for sessions in [1, 4] {
            expected.extend(["orbit", "sleep"].map(|scheme| format!("{scheme} {sessions} {kind}")));
        }
    }
    assert_eq!(seen, expected);
}

#[test]
fn every_scheme_excludes_in_every_mode() {
    for mode in ["X", "S", "LX", "E"] {
        let output =
            bench(&format!("--sessions 5 --duration 30ms --mode {mode} --writes 5% --distribution exponential --json"));
        assert!(output.status.success(), "{mode}: {}", stderr(&output));
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = rows.as_array().unwrap();
        assert_eq!(rows.len(), retrial::wait::NAMES.len(), "{mode}: one row for each scheme");
        for row in rows {
            assert_eq!(row["errors"], 0, "{row}");
            assert!(row["jain"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn copies_give_rows_of_their_own_and_each_excludes() {
    // One session on two copies, as many as there are, more than there are.
    let output =
        bench("--schemes orbit,sleep --sessions 1,2,5 --copies 1,2 --kind both --cs 20us --duration 50ms --json");
    assert!(output.status.success(), "{}", stderr(&output));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), 2 * 3 * 2 * 2);
    // A machine that is full may give none to a row of 50 ms.
    let with_gets = rows.iter().filter(|row| row["ops_per_s"].as_f64() > Some(0.0)).count();
    assert!(with_gets >= rows.len() - 4, "{with_gets} of {}", rows.len());
    for row in &rows {
        assert_eq!(row["errors"], 0, "{row}");
        // With a copy of its own nobody meets anybody.
        if row["sessions"].as_u64() <= row["copies"].as_u64() {
            assert_eq!((&row["sleeps_per_s"], &row["k"]), (&Value::from(0.0), &Value::Null), "{row}");
        }
    }
}

#[test]
fn a_named_instance_is_there_while_it_runs_and_gone_after_it() {
    let name = format!("test-bench-{}", std::process::id());
    let address = Address::new(&name).unwrap();
    let arguments = format!("--schemes sleep --sessions 4 --copies 2 --cs 50us --duration 10min --instance {name}");
    let running = Running::new(&mut command(&arguments));
    let gets = |mutex: &str| {
        let observer = Observer::open(&address).ok()?;
        Some(observer.tables().mutex_state(observer.tables().mutex_named(mutex)?)?.gets)
    };
    for mutex in ["bench.0", "bench.1"] {
        until(mutex, || gets(mutex) > Some(100));
    }
    let retrial =
        |arguments: &str| kit::command(&[]).args(arguments.split_whitespace()).args(["-i", &name]).output().unwrap();
    let shown = retrial("show mutexes");
    assert!(shown.status.success() && stdout(&shown).contains("bench.1"), "{}", stderr(&shown));
    let told = retrial("what-if --mutex bench.1 --interval 2s --quick --duration 20ms --copies 1 --json");
    let said: Value = serde_json::from_slice(&told.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(&told)));
    assert!(said.to_string().contains("bench.1"), "{said}");
    // What is set while it runs is in force.
    assert!(retrial("set --type bench mutex_wait_scheme=orbit").status.success());
    let again = bench(&format!("--duration 20ms --schemes orbit --sessions 1 --instance {name}"));
    let said = failed(&again);
    assert!(said.contains(&format!("retrial rm {name}")), "{said}");
    running.die_of(libc::SIGINT);
    assert!(Observer::open(&address).is_err(), "{name} is still there");
}

#[test]
fn rounds_lists_settings_and_the_plot_go_together() {
    let output = bench(
        "--schemes backoff --sessions 2 --cs 50ns,1us --think 100ns,1ms --duration 20ms --rounds 3 \
         --set mutex_wait_time=1cs --plot",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("wait_p999_us") && text.contains("Linux") && text.contains("mutex_wait_time=1cs"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("backoff")).count(), 4, "{text}");
    assert_eq!(text.matches("A backoff").count(), 4, "{text}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_type() {
    fails("--cs 100", &["`100`", "unit", "ns, us, ms"]);
    fails("--think 5parsecs", &["5parsecs", "ns, us, ms"]);
    fails("--duration 0s", &["more than 0"]);
    fails("--schemes orbit,nonesuch", &["nonesuch", "orbit", "retrial bench --schemes"]);
    fails("--sessions 0", &["0 is not in 1.."]);
    fails("--mode Q", &["`Q`", "S, X, LX or E"]);
    fails("--set mutex_spincount=3", &["mutex_spin_count"]);
    fails("--set mutex_spin_count", &["NAME=VALUE"]);
    fails("--schemes sleep --set mutex_wait_time=30cs", &["cs", "ms"]);
    fails("--set mutex_wait_scheme=orbit", &["--schemes orbit"]);
    fails("--writes 200%", &["percentage"]);
}

#[test]
fn a_cell_that_does_not_move_is_killed_and_counted() {
    let output = bench("--schemes orbit --sessions 3 --kind both --cs 60s --duration 50ms --stuck-after 300ms --json");
    let said = failed(&output);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    for row in rows.as_array().unwrap() {
        assert_eq!((&row["ops_per_s"], row["errors"].as_u64() >= Some(1)), (&Value::Null, true), "{row}");
    }
    assert!(said.contains("were killed"), "{said}");
}

#[test]
fn more_than_the_system_has_is_said_with_the_limit() {
    // As many processes as no Linux allows.
    fails("--schemes orbit --sessions 900000 --duration 50ms", &["of 900000 threads", "max_map_count"]);
}
