//! `retrial model`: cases, batches, lists.

#![allow(missing_docs)]

mod kit;

use kit::directory::Directory;
use kit::{both, command, failed};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Output, Stdio};

fn output(arguments: &[&str], input: &str) -> Output {
    let mut child = command(&[&["model"], arguments].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input closes it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = output(arguments, "");
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_case_is_calculated_from_times_with_units() {
    let case = ["residual", "dist=exponential:mean=1us", "limit=2us"];
    let found: Value = serde_json::from_str(&text(&[&case[..], &["--json"]].concat())).unwrap();
    let k0 = found["k0"].as_f64().unwrap();
    assert!((k0 / (-2.0_f64).exp() - 1.0).abs() < 1e-14, "{k0}");
    let seconds = ["residual", "dist=exponential:mean=1e-6", "limit=2e-6", "--json"];
    assert_eq!(serde_json::from_str::<Value>(&text(&seconds)).unwrap(), found);
    let table = text(&case);
    assert!(table.contains("k0") && table.contains("0.1353353"), "{table}");
    let csv = text(&[&case[..], &["--csv"]].concat());
    assert!(csv.starts_with("name,value,unit,meaning\nk0,0.13533528"), "{csv}");
}

#[test]
fn a_batch_answers_in_order_and_goes_on_after_errors() {
    let input = r#"{"id": 1, "function": "sleep-ratio", "k": 0.5, "utilization": 0.5}
{"id": "two", "function": "wait-identity", "utilization": 1.5, "residual_mean": "1us"}

not JSON
{"function": "nothing"}
{"function": "holding", "dist": {"type": "erlang", "stages": 4, "mean": "2us"}}
{"function": "holding", "dist": "pareto:minimum=1us,shape=1.5"}
{"function": "holding", "dist": "pareto:minimum=1us,shape=0.5"}
[1]
{"function": "holding", "dist": "exponential:mean=1us", "limit": 1}
{"function": "spin-open", "dist": "exponential:mean=1us", "limit": 1e-6, "rate": null}"#;
    let output = output(&["--batch"], input);
    let answers = lines(&output);
    assert_eq!(answers.len(), 10, "{}", both(&output));
    assert_eq!(answers[0], json!({"id": 1, "function": "sleep-ratio", "sleep_ratio": 0.5 / 0.75}));
    assert_eq!((&answers[1]["id"], &answers[1]["line"]), (&json!("two"), &json!(2)));
    for (answer, error) in [
        (1, "utilization 1.5, expected less than 1: no steady state"),
        (2, "expected a JSON object"),
        (3, "function `nothing`, expected one of holding, residual"),
        (6, "shape 0.5, expected a number above 1"),
        (7, "expected a JSON object"),
        (8, "parameter `limit` of holding, expected dist"),
        (9, "spin-open without rate, expected fresh requests"),
    ] {
        let found = answers[answer]["error"].as_str().unwrap_or_else(|| panic!("{answer}: {}", answers[answer]));
        assert!(found.contains(error), "{answer}: {found}");
    }
    assert_eq!(answers[4]["mean"], 2e-6);
    // What is infinite is null, not an error.
    assert_eq!((&answers[5]["mean"], &answers[5]["residual_mean"]), (&json!(3e-6), &Value::Null));
    assert!(failed(&output).contains("7 of 10 lines without a result"), "{}", both(&output));
}

#[test]
fn a_batch_takes_from_the_command_line_what_its_lines_leave_out() {
    let input = "{\"limit\": \"1us\"}\n{\"limit\": \"2us\", \"dist\": \"deterministic:mean=1us\"}\n{\"function\": \"holding\"}\n";
    let output = output(&["spin-open", "dist=exponential:mean=1us", "rate=5e5", "--batch"], input);
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    let answers = lines(&output);
    let names: Vec<_> = answers.iter().map(|answer| answer["function"].as_str().unwrap()).collect();
    assert_eq!(names, ["spin-open", "spin-open", "holding"]);
    assert_eq!(answers[2]["mean"], 1e-6);
    assert!(answers[0]["k"].as_f64() > answers[1]["k"].as_f64());
}

#[test]
fn what_cannot_be_answered_says_what_was_found_and_what_is_allowed() {
    for (arguments, expected) in [
        (&["spin-opn"][..], "function `spin-opn`, expected one of"),
        (
            &["wait-identity", "utilization=1", "residual_mean=1us"],
            "utilization 1, expected less than 1: no steady state",
        ),
        (&["wait", "dist=lomax:scale=1us,shape=2", "limit=1us", "rate=0.1/us", "sleep=1ms"], "infinite second moment"),
        (&["residual", "dist=exponential:mean=1us", "limit=-1us"], "limit -0.000001, expected a number from 0"),
        (&["residual", "dist=exponential:mean=1us", "limit=1parsec"], "time `1parsec`, expected a number with one of"),
        (&["residual", "dist=normal:mean=1us", "limit=1us"], "distribution `normal`, expected one of deterministic"),
        (&["residual", "dist=exponential:men=1us", "limit=1us"], "unknown field `men`, expected `mean`"),
        (&["residual", "dist=exponential", "limit=1us"], "missing field `mean`"),
        (&["residual", "dist=erlang:stages=1.5,mean=1us", "limit=1us"], "stages 1.5, expected a whole number"),
        (&["residual", "dist=sample:values=", "limit=1us"], "time ``, expected"),
        (&["residual", "limit"], "parameter `limit`, expected NAME=VALUE"),
        (&["residual", "limit=1us", "limit=2us"], "parameter limit given twice"),
        (&["residual", "dist=exponential:mean=1us"], "residual without limit, expected spin limit"),
        (
            &["hot-copies", "rate=1e308", "utilization=1e308", "a=1s", "b=1", "copy_cost=1e-300"],
            "expected a finite number",
        ),
    ] {
        let said = failed(&output(arguments, ""));
        assert!(said.contains(expected) && said.contains("retrial model"), "{arguments:?}: {said}");
    }
}

#[test]
fn simulate_says_whose_costs_it_took() {
    let cache = Directory::new();
    let simulate = |machine: &[&str]| {
        let case =
            ["model", "simulate", "dist=exponential:mean=1us", "sessions=4", "scheme=ydb", "replications=2", "--json"];
        let times = ["warm_up=0s", "duration=2ms"];
        let output =
            command(&[&case[..], &times[..], machine].concat()).env("XDG_CACHE_HOME", &*cache).output().unwrap();
        (output.status.code() == Some(0)).then(|| lines(&output).remove(0)).ok_or_else(|| both(&output))
    };
    let file = cache.join("costs");
    std::fs::write(&file, "# a machine with slow polls\npoll 300\nline 5000\n").unwrap();
    let named = format!("machine={}", file.display());
    let (kept, default, slow) =
        (simulate(&[]).unwrap(), simulate(&["machine=default"]).unwrap(), simulate(&[&named]).unwrap());
    // Nothing is kept in a cache that is empty.
    assert!(kept["machine"].as_str().unwrap().starts_with("default: `retrial calibrate`"), "{kept}");
    assert_eq!(default["machine"], json!("default"));
    let guessed = "guessed as in default, since no calibration measures them: quantum_ns, tick_ns, migration_ns, ";
    assert!(slow["machine"].as_str().unwrap().starts_with(&format!("{}; {guessed}", file.display())), "{slow}");
    assert_eq!(kept["throughput"], default["throughput"]);
    assert!(slow["throughput"].as_f64().unwrap() < default["throughput"].as_f64().unwrap(), "{slow}");
    std::fs::write(&file, "pol 300\n").unwrap();
    for (machine, expected) in [
        (named.as_str(), "line `pol 300`, expected the name of a cost"),
        ("machine=/nowhere", "expected default, ideal, calibrated or a file of `retrial calibrate`"),
        ("machine=calibrated", "no costs of this machine"),
    ] {
        let said = simulate(&[machine]).unwrap_err();
        assert!(said.contains(expected), "{machine}: {said}");
    }
}

#[test]
fn the_list_has_formula_parameters_domain_and_source_of_each() {
    let list: Value = serde_json::from_str(&text(&["--list", "--json"])).unwrap();
    let functions = list.as_array().unwrap();
    assert!(functions.len() >= 25, "{}", functions.len());
    let people = text(&["--list"]);
    for function in functions {
        let name = function["name"].as_str().unwrap();
        assert!(people.contains(&format!("\n{name}: ")) || people.starts_with(&format!("{name}: ")), "{name}");
        for key in ["summary", "formula", "domain", "source"] {
            let text = function[key].as_str().unwrap();
            assert!(!text.is_empty() && people.contains(text), "{name} {key}");
        }
        assert!(
            !function["parameters"].as_array().unwrap().is_empty()
                && !function["results"].as_array().unwrap().is_empty()
        );
        let one = text(&["--list", name]);
        assert!(one.starts_with(&format!("{name}: ")), "{one}");
    }
    assert_eq!(text(&["--list", "--csv"]).lines().count(), functions.len() + 1);
}
