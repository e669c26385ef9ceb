//! Groups of samples: they say what is so, and add up.

mod kit;

use kit::directory::File;
use kit::load::{Load, Pass};
use kit::{Running, Scratch, both, command, failed, until};
use serde_json::Value;
use std::time::Duration;

fn ask(file: &str, arguments: &[&str]) -> Value {
    let output = command(&[&["ash", file, "--json"], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", both(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn rows(file: &str, statement: &str) -> Value {
    let output = command(&["sql", file, statement, "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{statement}: {}", both(&output)))
}

/// An instance in which one session holds `m` and three wait for it, each at a place of its own, for as long as all are kept.
fn three_wait() -> (Scratch, Vec<Running>) {
    let scratch = Scratch::new();
    let mut all = vec![scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s", "--location", "keeper"])];
    for place in ["first", "second", "third"] {
        all.push(scratch.start(&["hold", "m", "--mode", "S", "--for", "0s", "--location", place]));
    }
    until("three waits", || scratch.observer().tables().waits().count() == 3);
    (scratch, all)
}

fn live(scratch: &Scratch, arguments: &[&str]) -> Value {
    let text = scratch.run(&[&["ash", "--json", "--for", "300ms"], arguments].concat());
    serde_json::from_str(&text).unwrap()
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row}"))
}

fn is(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 0.01 * expected
}

fn sum(answer: &Value, name: &str) -> f64 {
    answer["groups"].as_array().unwrap().iter().map(|row| number(row, name)).sum()
}

#[test]
fn one_holds_and_three_wait_all_the_time() {
    let (scratch, _all) = three_wait();
    let file = File::new("r.db");
    scratch.run(&["record", &file, "--for", "400ms", "--interval", "100ms", "--sample", "5ms"]);
    for ask in [&(|arguments: &[&str]| live(&scratch, arguments)) as &dyn Fn(&[&str]) -> Value, &|arguments| {
        ask(&file, arguments)
    }] {
        let answer = ask(&[]);
        assert!(is(number(&answer, "holding"), 1.0) && is(number(&answer, "waiting"), 3.0), "{answer}");
        assert!(is(number(&answer, "active_sessions"), 4.0), "{answer}");
        assert_eq!(answer["groups"].as_array().unwrap().len(), 4, "a place for each: {answer}");
        assert!((sum(&answer, "share_pct") - 100.0).abs() < 1e-6);

        let answer = ask(&["--waiters", "--by", "mutex,mode,blocker,holder_location,event,class"]);
        let [row] = answer["groups"].as_array().unwrap().as_slice() else { panic!("one group: {answer}") };
        for (column, expected) in [
            ("mutex", "m"),
            ("mode", "S"),
            ("holder_location", "keeper"),
            ("event", "cursor: pin S wait on X"),
            ("class", "Concurrency"),
        ] {
            assert_eq!(row[column], expected, "{answer}");
        }
        assert_eq!(row["blocker"], 1);
        assert!(is(number(row, "active_sessions"), 3.0) && is(number(row, "share_pct"), 100.0), "{answer}");

        let answer = ask(&["--holders", "--by", "session,action,mode,step"]);
        let [row] = answer["groups"].as_array().unwrap().as_slice() else { panic!("one group: {answer}") };
        assert_eq!(
            (&row["session"], &row["action"], &row["mode"]),
            (&1.into(), &"X m".into(), &"X".into()),
            "{answer}"
        );
        assert!(row["step"].is_null() && is(number(row, "active_sessions"), 1.0), "{answer}");
    }
}

#[test]
fn a_condition_chooses_and_the_rest_is_added_up() {
    let (scratch, _all) = three_wait();
    let answer = live(&scratch, &["--where", "location IN ('first', 'third') -- and nothing else"]);
    assert!(is(number(&answer, "active_sessions"), 2.0) && is(number(&answer, "holding") + 1.0, 1.0), "{answer}");
    let answer =
        live(&scratch, &["--where", "mutex IN (SELECT name FROM v$mutex) OR true", "--by", "location", "--top", "1"]);
    let rows = answer["groups"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{answer}");
    assert_eq!((&rows[1]["groups"], &rows[1]["state"]), (&3.into(), &Value::Null), "{answer}");
    assert!(is(sum(&answer, "active_sessions"), 4.0) && is(number(&rows[1], "share_pct"), 75.0), "{answer}");
    let answer = live(&scratch, &["--where", "location = 'nowhere'"]);
    assert_eq!((&answer["groups"], &answer["active_sessions"]), (&Value::Array(Vec::new()), &0.0.into()), "{answer}");
    assert!(scratch.run(&["ash", "--for", "10ms", "--where", "false"]).contains("Nobody was seen who fits."));
    let csv = scratch.run(&["ash", "--for", "50ms", "--by", "mutex", "--waiters", "--csv"]);
    assert!(csv.starts_with("mutex,groups,samples,active_sessions,share_pct\nm,1,"), "{csv}");
}

#[test]
fn the_pace_that_was_reached_is_said() {
    let (scratch, _all) = three_wait();
    let answer = live(&scratch, &["--every", "100us"]);
    assert!((number(&answer, "every_asked_s") - 1e-4).abs() < 1e-12);
    let (every_s, rounds) = (number(&answer, "every_s"), number(&answer, "looks"));
    assert!((every_s * rounds - number(&answer, "sampled_s")).abs() < 1e-6 * rounds && every_s >= 5e-5, "{answer}");
    assert!(number(&answer, "observer_pct") > 0.0, "{answer}");
    let samples = sum(&answer, "samples");
    assert!((samples - 4.0 * rounds).abs() <= 0.01 * samples, "each round sees four: {answer}");
}

#[test]
fn holders_of_a_recording_have_the_digits_of_the_utilization() {
    let load = Load {
        sessions: 2,
        hold: Pass::Busy(Duration::from_micros(300)),
        think: Pass::Asleep(Duration::from_micros(300)),
    };
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    load.during(&scratch, || {
        scratch.run(&["record", &file, "--for", "600ms", "--interval", "200ms", "--sample", "2ms"]);
    });
    let answer = ask(&file, &["--holders", "--by", "mutex"]);
    let utilization = number(&rows(&file, "SELECT utilization FROM v$mutex")[0], "utilization");
    let held = number(&answer["groups"][0], "active_sessions");
    assert!(utilization > 0.0 && (held / utilization - 1.0).abs() < 1e-9, "{held}, {utilization}");
}

#[test]
fn a_part_of_a_recording_has_the_samples_of_that_part() {
    let (scratch, _all) = three_wait();
    let file = File::new("r.db");
    scratch.run(&["record", &file, "--for", "600ms", "--interval", "200ms", "--sample", "5ms"]);
    let rows = rows(&file, "SELECT utc(at_ns) AS at FROM snapshot ORDER BY id");
    let all = ask(&file, &[]);
    let begin = ask(&file, &["--to", rows[1]["at"].as_str().unwrap()]);
    let end = ask(&file, &["--from", rows[1]["at"].as_str().unwrap()]);
    // Each round sees four sessions.
    for part in [&all, &begin, &end] {
        assert!((sum(part, "samples") - 4.0 * number(part, "looks")).abs() < 0.5, "{part}");
    }
    let rounds = |of| number(of, "looks");
    assert!((rounds(&begin) + rounds(&end) - rounds(&all)).abs() < 0.5, "{begin} and {end} of {all}");
}

#[test]
fn bad_input_is_one_clear_error() {
    let scratch = Scratch::new();
    let file = File::new("r.db");
    scratch.run(&["hold", "m", "--create", "--for", "0s"]);
    scratch.run(&["record", &file, "--for", "50ms", "--interval", "20ms", "--sample", "0s"]);
    let before = std::fs::read(&*file).unwrap();
    for (arguments, parts) in [
        (&["--by", "locaton"][..], &["`locaton`", "did you mean location?"][..]),
        (&["--by", "mutex,"], &["--by ``", "expected some of instance"]),
        (&["--by", "time_s"], &["`time_s`", "expected some of"]),
        (&["--where", "mutx = 'm'"], &["no such column: mutx", "^", "did you mean mutex?"]),
        (&["--where", "mutex = 'm"], &["unrecognized token", "^"]),
        (&["--where", "1) GROUP BY (1"], &["syntax error"]),
        (&["--where", "sum(samples) > 1"], &["misuse of aggregate"]),
        (&["--where", "1) or (1"], &["syntax error", "^"]),
        (&["--where", ""], &["an empty condition", "--where \"mutex = 'accounts'\""]),
        (&["--where", "1); DELETE FROM sample; --"], &["syntax error"]),
        (&["--flame", "/nonexistent/x.svg"], &["no directory /nonexistent", "mkdir -p /nonexistent"]),
        (&["--from", "noon"], &["expected a moment in UTC"]),
        (&["--from", "2999-01-01"], &["no two snapshots in this period", "retrial ash "]),
        (&["--from", "1s", "--to", "2s"], &["--from 1s is after --to 2s", "--from 2s --to 1s"]),
        (&["-i", "other"], &["no instance `other` in it"]),
        (&["--top", "0"], &["invalid value '0' for '--top <N>'"]),
        (&[], &["no samples in this period", "--sample 10ms"]),
    ] {
        let said = failed(&command(&[&["ash", &file], arguments].concat()).output().unwrap());
        for part in parts {
            assert!(said.contains(part), "`{part}` of {arguments:?} in: {said}");
        }
    }
    assert_eq!(before, std::fs::read(&*file).unwrap(), "nothing was changed");
    for (arguments, part) in [
        (&["--every", "0s"][..], "--every 0s, expected 1.00 us at least"),
        (&["--every", "5"], "without a unit"),
        (&["--every", "-1s"], "duration `-1s` is negative, expected a time from 0s on"),
        (&["--for", "0s"], "--for 0s, expected 1.00 ms at least"),
        (&["--for", "soon"], "expected a number and one of the units"),
        (&["--holders", "--waiters"], "cannot be used with"),
        (&["--from", "1min"], "required arguments were not provided"),
    ] {
        let said = scratch.fail(&[&["ash"], arguments].concat());
        assert!(said.contains(part), "`{part}` of {arguments:?} in: {said}");
    }
    let said = failed(&command(&["ash", "/nonexistent/file.db"]).output().unwrap());
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn a_heatmap_says_what_was_when() {
    let (scratch, _all) = three_wait();
    let file = File::new("r.db");
    scratch.run(&["record", &file, "--for", "600ms", "--interval", "200ms", "--sample", "5ms"]);
    let answer = ask(&file, &["--heatmap", "--by", "mutex"]);
    let cells = answer["heatmap"].as_array().unwrap();
    assert_eq!((cells.len() % 2, answer["groups"].as_array().unwrap().len()), (0, 2), "{answer}");
    let (mut time_s, mut at) = (0.0, String::new());
    for cell in cells {
        time_s += cell["active_sessions"].as_f64().unwrap_or(0.0) * number(cell, "sampled_s");
        assert!(at.as_str() <= cell["time"].as_str().unwrap(), "in the order of time");
        at = cell["time"].as_str().unwrap().to_owned();
    }
    let all_s = number(&answer, "active_sessions") * number(&answer, "sampled_s");
    assert!((time_s / all_s - 1.0).abs() < 1e-3, "the cells are all of the time: {time_s}, {all_s}");
    let text = scratch.run(&["ash", "--for", "300ms", "--heatmap", "--by", "mutex"]);
    let line = text.lines().find(|line| line.starts_with("waits  m  ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains('█') && text.contains("each cell is "), "{text}");
    let csv = command(&["ash", &file, "--heatmap", "--csv"]).output().unwrap();
    let csv = String::from_utf8(csv.stdout).unwrap();
    assert!(csv.starts_with("time,cell_s,sampled_s,state,class,step,groups,active_sessions\n"), "{csv}");
    assert!(csv.lines().count() > 2 && csv.contains(",waits,Concurrency,park,1,"), "{csv}");
}

#[test]
fn a_flame_graph_has_a_frame_for_each_column() {
    let (scratch, _all) = three_wait();
    let file = File::new("r.db");
    scratch.run(&["record", &file, "--for", "300ms", "--interval", "100ms", "--sample", "5ms"]);
    let folded = |arguments: &[&str]| {
        let output = command(&[&["ash", &file, "--flame"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{}", both(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = folded(&[]);
    let stacks: Vec<(&str, f64)> = text
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(stack, ns)| (stack, ns.parse().unwrap()))
        .collect();
    let names: Vec<&str> = stacks.iter().map(|(stack, _)| *stack).collect();
    assert_eq!(names, ["holds;m;keeper", "waits;m;first", "waits;m;second", "waits;m;third"]);
    let all_s = number(&ask(&file, &[]), "active_sessions") * number(&ask(&file, &[]), "sampled_s");
    assert!((stacks.iter().map(|(_, ns)| ns / 1e9).sum::<f64>() / all_s - 1.0).abs() < 1e-6, "{text}");
    assert!(folded(&["--waiters", "--by", "holder_location,mode"]).starts_with("keeper;S "));
    let svg = File::new("ash.svg");
    let said = folded(&[&svg]);
    let picture = std::fs::read_to_string(&*svg).unwrap();
    assert!(said.contains("is the flame graph.") && picture.contains("<title>waits: ") && picture.contains("75.0 %"));
    assert!(!picture.contains("<script") && !picture.contains("http://www.w3.org/1999"), "{picture}");
    // A recording is no place for a picture.
    let said = failed(&command(&["ash", "--flame", &file]).output().unwrap());
    assert!(said.contains("expected a name that ends in .svg"), "{said}");
    assert!(
        failed(&command(&["ash", &file, "--flame", "--json"]).output().unwrap()).contains("folded stacks are neither")
    );
    ask(&file, &[]);
}
