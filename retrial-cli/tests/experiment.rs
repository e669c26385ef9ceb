//! `retrial experiment`: the list, simulated figures, pictures, claims.

#![allow(missing_docs)]

mod kit;

use kit::directory::{Directory, File};
use kit::{both, command, failed};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn output(arguments: &[&str]) -> Output {
    // Nothing calibrated: the same costs on every machine.
    command(&[&["experiment"], arguments].concat()).env("XDG_CACHE_HOME", "/nonexistent").output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = output(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", both(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let text = text(&[arguments, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn names() -> Vec<String> {
    let list = json(&["--list"]);
    list.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_list_has_every_experiment_of_the_sources() {
    let list = json(&["--list"]);
    for name in [
        "k-utilization",
        "wait-time",
        "schemes",
        "spin-count",
        "squaring",
        "costs",
        "split",
        "granularity",
        "long-holder",
        "marked",
        "hot-copies",
        "engine",
    ] {
        let row = list.as_array().unwrap().iter().find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("{name} is not in {list}"));
        assert!(row["source"].as_str().unwrap().starts_with("00"), "{row}");
        assert!(row["takes_s"].as_u64() > row["quick_s"].as_u64() && row["quick_s"].as_u64() > Some(0), "{row}");
    }
}

#[test]
fn an_unknown_name_is_answered_with_all_names() {
    let said = failed(&output(&["sqaring"]));
    assert!(said.contains("`sqaring`"), "{said}");
    for name in names() {
        assert!(said.contains(&name), "{name} is not in {said}");
    }
}

const SIMULATED: [&str; 3] = ["squaring", "--quick", "--no-measure"];

#[test]
fn the_same_seed_gives_the_same_figures() {
    let with_seed = |seed: &str| json(&[&SIMULATED[..], &["--seed", seed]].concat());
    let (first, again, other) = (with_seed("5"), with_seed("5"), with_seed("6"));
    assert_eq!(first, again);
    assert_ne!(first[0]["rows"], other[0]["rows"]);
    for row in first[0]["rows"].as_array().unwrap() {
        assert!(["simulated", "predicted"].contains(&row["how"].as_str().unwrap()), "{row}");
        let k = row["k"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&k), "{row}");
    }
}

#[test]
fn theory_simulation_and_claims_are_beside_each_other() {
    let found = json(&SIMULATED);
    let rows = found[0]["rows"].as_array().unwrap();
    let of = |how: &str, load: &str, x: f64| {
        let is_it = |row: &&Value| row["how"] == how && row["load"] == load && row["spin_time"] == x;
        rows.iter().find(is_it).unwrap_or_else(|| panic!("{how} {load} {x}: {found}"))["k"].as_f64().unwrap()
    };
    // Two sessions with a processor each: k₀ = e⁻ˣ. Always the same seeds, whose means are that near.
    let has_each = std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
    for x in [0.5, 1.0, 2.0].into_iter().filter(|_| has_each) {
        let (simulated, predicted) = (of("simulated", "2 sessions", x), of("predicted", "", x));
        assert!((predicted - (-x).exp()).abs() < 1e-9);
        assert!((simulated / predicted - 1.0).abs() < 0.15, "{x}: {simulated}, {predicted}");
    }
    let claims = found[0]["claims"].as_array().unwrap();
    let exact = claims.iter().find(|claim| claim["how"] == "predicted").unwrap();
    assert_eq!(exact["agrees"], true, "{exact}");
}

#[test]
fn the_page_and_the_picture_have_all_lines() {
    let directory = Directory::new();
    let to = directory.path("new");
    let said = text(&[&SIMULATED[..], &["--out", &to]].concat());
    assert!(said.contains("experiments.md"), "{said}");
    let svg = std::fs::read_to_string(format!("{to}/experiments/squaring.svg")).unwrap();
    for word in ["sleeps of 1 ms", "k₀", "2 sessions, here", "8 sessions, Exadata X2-2", "spin_time"] {
        assert!(svg.contains(word), "`{word}` is not in {svg}");
    }
    assert!(svg.matches("<path").count() > 6 && svg.len() < 60_000 && !svg.contains("NaN"), "{svg}");
    let page = std::fs::read_to_string(format!("{to}/experiments.md")).unwrap();
    for word in [
        "## squaring",
        "![doubling the spin count squares the sleep ratio](experiments/squaring.svg)",
        "| Exadata X2-2 | 24 |",
        "000, scaling rule",
        "**does not agree**: simulated, Exadata X2-2",
        "| sleeps of 1 ms | simulated | 0.",
    ] {
        assert!(page.contains(word), "`{word}` is not in {page}");
    }
}

#[test]
fn what_does_not_agree_is_said_so() {
    let said = text(&["split", "--quick", "--no-measure"]);
    // Two figures of 001 that follow from each other, and one of 000 that does not follow from them.
    for line in [
        "agrees, simulated (Sun T2000): scheme 0 spins and yields for 31 s of 49 (63 %)",
        "agrees, simulated (Sun T2000): the patch sleeps 4,748 times in 49 s",
        "DOES NOT AGREE, simulated (Sun T2000): scheme 1 sleeps 25,637 times in 49 s",
    ] {
        assert!(said.lines().any(|said| said.starts_with(line)), "`{line}` is not in {said}");
    }
}

#[test]
fn what_is_measured_is_of_this_machine() {
    let found = json(&["split", "costs", "--quick"]);
    let rows = found.as_array().unwrap().iter().flat_map(|found| found["rows"].as_array().unwrap());
    let measured: Vec<&Value> = rows.filter(|row| row["how"] == "measured").collect();
    for line in ["10g", "yield", "patch6904068", "sleep", "backoff", "orbit", "spin", "yield", "shortest section"] {
        let row = measured.iter().find(|row| row["line"] == line).unwrap_or_else(|| panic!("{line}: {found}"));
        assert_eq!(row["machine"], "here");
        let figure = row["steps_per_s"].as_f64().or(row["time_us"].as_f64()).unwrap();
        assert!(figure > 0.0, "{row}");
    }
    // Whatever the machine: one of them never sleeps, one does nothing else but for its spins.
    let awake = |line: &str| measured.iter().find(|row| row["line"] == line).unwrap()["awake"].as_f64().unwrap();
    assert!(awake("10g") > awake("patch6904068"), "{found}");
    assert!((awake("10g") - 1.0).abs() < 1e-9, "{found}");
}

/// The rows of an experiment that are of this kind, load and line, by rising x: a figure of each.
fn figures(found: &Value, (how, load, line): (&str, &str, &str), figure: &str) -> Vec<f64> {
    let is_it = |row: &&Value| row["how"] == how && row["load"] == load && row["line"] == line;
    let rows = found[0]["rows"].as_array().unwrap().iter().filter(is_it);
    rows.filter_map(|row| row[figure].as_f64()).collect()
}

#[test]
fn the_third_source_has_its_three_runs_on_its_machine() {
    let found = json(&["marked", "--quick", "--no-measure"]);
    let simulated = |figure| figures(&found, ("simulated", "", "backoff"), figure);
    let [before, procedures, cursors] = simulated("handle_misses_per_s")[..] else { panic!("{found}") };
    assert!(before > 10.0 * procedures && cursors > 10.0 * procedures, "{before}, {procedures}, {cursors}");
    let [before, procedures, cursors] = simulated("cursor_misses_per_s")[..] else { panic!("{found}") };
    assert!(procedures > before / 2.0 && cursors < procedures / 2.0, "{before}, {procedures}, {cursors}");
    // Handles are made in the third run only.
    let [none, neither, made] = simulated("creation_misses_per_s")[..] else { panic!("{found}") };
    assert!(none + neither < 1e-9 && made > 0.0, "{found}");
    assert_eq!(figures(&found, ("published", "", "backoff"), "handle_wait_share"), [0.056, 0.001, 0.126]);
    let published = &found[0]["tables"]["Published: waits by event"];
    assert_eq!(published[0]["before"], 1_443_752, "{published}");
    // A claim of the source and whether it holds, in the words of its runs.
    let claims = found[0]["claims"].as_array().unwrap();
    let falls = claims.iter().find(|claim| claim["says"] == "so that throughput falls").unwrap();
    assert!(falls["found"].as_str().unwrap().contains("backoff at cursors too: "), "{falls}");
}

#[test]
fn the_third_sources_runs_are_measured_in_a_cache_with_their_waits_by_location() {
    let found = json(&["marked", "--quick"]);
    for line in ["backoff", "orbit"] {
        let executed = figures(&found, ("measured", "", line), "executions_per_s");
        assert!(executed.len() == 3 && executed.iter().all(|rate| *rate > 0.0), "{line}: {executed:?}");
    }
    let tables = found[0]["tables"].as_object().unwrap();
    for run in ["before", "procedures", "cursors too"] {
        let (title, waits) =
            tables.iter().find(|(title, _)| title.starts_with(&format!("Measured, backoff {run},"))).unwrap();
        let waits = waits.as_array().unwrap();
        // Sessions meet at the tables of two warehouses, whatever the machine.
        let at = waits
            .iter()
            .find(|wait| wait["location"] == "tpcc: NEWORD")
            .unwrap_or_else(|| panic!("{title}: {waits:?}"));
        assert!(at["misses"].as_u64() > Some(0) && at["event"] == "tpcc: mutex X", "{at}");
    }
}

#[test]
fn a_session_more_does_not_wait_for_pins_in_rows() {
    let found = json(&["pins", "--quick"]);
    let busy = |way: &str| figures(&found, ("measured", "reads", way), "executions_per_s");
    for way in ["read, pinned in rows", "read, counted", "executed", "executed, 4 copies"] {
        assert!(busy(way).len() >= 3 && busy(way).iter().all(|rate| *rate > 0.0), "{way}: {found}");
    }
    let predicted = figures(&found, ("predicted", "reads", "read, pinned in rows"), "executions_per_s");
    assert!(predicted.windows(2).all(|pair| pair[0] < pair[1]), "{predicted:?}");
    let simulated = |way: &str| figures(&found, ("simulated", "reads", way), "executions_per_s");
    let (one, four) = (simulated("executed"), simulated("executed, 4 copies"));
    assert!(one.last() < one.first() && four.last() > one.last(), "{one:?}, {four:?}");
}

#[test]
fn what_copies_cost_is_beside_what_they_bring() {
    let found = json(&["hot-copies", "--quick"]);
    for load in ["calls", "calls, changed"] {
        let misses = figures(&found, ("measured", load, "orbit"), "handle_misses_per_s");
        assert_eq!(misses.len(), 5, "{load}: {misses:?}");
    }
    let best = found[0]["tables"].as_object().unwrap().values().next().unwrap().as_array().unwrap();
    let copies: Vec<f64> = best.iter().map(|row| row["best_copies"].as_f64().unwrap()).collect();
    assert!(copies.len() == 5 && copies.windows(2).all(|pair| pair[0] > pair[1]), "{copies:?}");
    // A session takes the copy of its processor: on 192 of them each copy is got less often.
    let waits = figures(&found, ("simulated", "256 sessions", "backoff"), "waits_per_s");
    assert!(waits[0] > 10.0 * waits[waits.len() - 1], "{waits:?}");
}

#[test]
fn csv_has_a_row_for_each_figure() {
    let text = text(&[&SIMULATED[..], &["--csv"]].concat());
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("experiment,load,line,x_name,x,how,machine,quantity,value,spread"));
    assert!(lines.clone().count() > 20, "{text}");
    assert!(lines.all(|line| line.starts_with("squaring,") && line.split(',').count() == 10), "{text}");
}

#[test]
fn a_directory_that_cannot_be_written_is_found_before_anything_is_done() {
    let file = File::new("file");
    std::fs::write(&*file, "").unwrap();
    let said = failed(&output(&["all", "--out", &file]));
    assert!(said.contains("cannot write") && said.contains("Not a directory"), "{said}");
    assert!(Path::new(&*file).is_file());
}
