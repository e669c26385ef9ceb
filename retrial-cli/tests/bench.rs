//! `retrial bench` as a user runs it. Function only: nothing here depends on how fast anything is.

use serde_json::Value;
use std::process::{Command, Output};

const COLUMNS: &str = "scheme,sessions,kind,cs_ns,think_ns,ops_per_s,cpu_s_per_s,jain,wait_p50_us,wait_p99_us,wait_p999_us,wait_max_us,errors";

fn bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_retrial")).arg("bench").args(arguments.split_whitespace()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Everything said on stderr, on one line however it was folded.
fn stderr(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    text.lines().map(|line| line.trim().trim_start_matches('│').trim()).collect::<Vec<_>>().join(" ")
}

fn fails(arguments: &str, says: &[&str]) {
    let output = bench(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
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
        assert_eq!(cells.len(), 13, "{line}");
        assert_eq!((cells[3], cells[4], cells[12]), ("100", "0", "0"), "{line}");
        assert!(cells[5].parse::<f64>().unwrap() > 0.0, "{line}");
        seen.push(format!("{} {} {}", cells[0], cells[1], cells[2]));
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
        assert_eq!(rows.len(), 10, "{mode}: one row for each scheme");
        for row in rows {
            assert_eq!(row["errors"], 0, "{row}");
            assert!(row["jain"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
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
    assert_eq!(output.status.code(), Some(2));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    for row in rows.as_array().unwrap() {
        assert_eq!((&row["ops_per_s"], row["errors"].as_u64() >= Some(1)), (&Value::Null, true), "{row}");
    }
    assert!(stderr(&output).contains("were killed"), "{}", stderr(&output));
}

#[test]
fn more_than_the_system_has_is_said_with_the_limit() {
    // As many processes as no Linux allows.
    fails("--schemes orbit --sessions 900000 --duration 50ms", &["of 900000 threads", "max_map_count"]);
}
