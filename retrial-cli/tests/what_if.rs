//! `retrial what-if`: the simulator's own numbers, varied, recorded and read again.

#![allow(missing_docs)]

mod kit;

use kit::directory::File;
use kit::load::{Load, Pass};
use kit::{Scratch, both, command, failed, processors, run_on, until};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

fn run(arguments: &[&str]) -> String {
    let output = command(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", both(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn what_if(arguments: &[&str]) -> Value {
    let text = run(&[&["what-if", "--json"], arguments].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn fails(arguments: &[&str]) -> String {
    failed(&command(&[&["what-if"], arguments].concat()).output().unwrap())
}

/// A description that is simulated in a moment.
const SHORT: [&str; 5] =
    ["dist=exponential:mean=5us", "think=exponential:mean=20us", "warm_up=1ms", "duration=5ms", "replications=2"];

fn described<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], more].concat()
}

#[test]
fn each_case_is_what_the_simulator_says() {
    let cases =
        what_if(&described(&["sessions=6", "seed=7", "--scheme", "sleep,orbit", "--copies", "1,3", "--cpus", "1,0"]));
    let cases = cases["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 9);
    for case in cases {
        let scheme = format!("scheme={}", case["scheme"].as_str().unwrap());
        let (copies, processors) = (format!("copies={}", case["copies"]), case["cpus"].as_u64().unwrap_or(0));
        let processors = format!("processors={processors}");
        let words = described(&["sessions=6", "seed=7", &scheme, &copies, &processors, "--json"]);
        let simulated: Value = serde_json::from_str(&run(&[&["model", "simulate"], &words[..]].concat())).unwrap();
        for (ours, theirs, unit) in [
            ("gets_per_s", "throughput", 1.0),
            ("gets_per_s_interval", "throughput_interval", 1.0),
            ("k", "spin_inefficiency", 1.0),
            ("k_interval", "spin_inefficiency_interval", 1.0),
            ("wait_us", "wait", 1e6),
            ("wait_us_interval", "wait_interval", 1e6),
            ("cpus_busy", "busy_processors", 1.0),
            ("fairness", "fairness", 1.0),
        ] {
            assert_eq!(case[ours].as_f64(), simulated[theirs].as_f64().map(|value| value * unit), "{ours} of {case}");
        }
    }
}

#[test]
fn the_present_comes_first_and_every_scheme_after_it() {
    let all = what_if(&described(&["sessions=4", "scheme=ydb"]));
    let schemes: Vec<&str> =
        all["cases"].as_array().unwrap().iter().map(|case| case["scheme"].as_str().unwrap()).collect();
    let mut expected = retrial::wait::NAMES.to_vec();
    expected.retain(|name| *name != "ydb");
    expected.insert(0, "ydb");
    assert_eq!(schemes, expected);
    assert_eq!(all["cases"][0]["change_pct"], 0.0);
    assert_eq!((&all["check"], &all["fits"]), (&Value::Null, &Value::Null), "nothing was measured");
}

#[test]
fn what_is_varied_is_multiplied() {
    let all = what_if(&described(&[
        "sessions=4",
        "scheme=sleep",
        "set=mutex_spin_count=50",
        "--set",
        "mutex_spin_count=50,200",
        "--set",
        "mutex_wait_time=1ms,4ms",
        "--sessions",
        "2,4",
    ]));
    let of = |case: &Value| (case["set"].as_str().unwrap().to_owned(), case["sessions"].as_u64().unwrap());
    let cases: Vec<(String, u64)> = all["cases"].as_array().unwrap().iter().map(of).collect();
    let mut expected = vec![(String::new(), 4), (String::new(), 2)];
    for set in ["mutex_wait_time=4", "mutex_spin_count=200", "mutex_spin_count=200 mutex_wait_time=4"] {
        expected.extend([(set.to_owned(), 2), (set.to_owned(), 4)]);
    }
    assert_eq!(cases, expected);
}

#[test]
fn theory_is_beside_the_simulation_or_says_why_not() {
    let all = what_if(&described(&["sessions=2", "processors=0", "--scheme", "10g,patch6904068,pthread,orbit"]));
    let cases = all["cases"].as_array().unwrap();
    let functions: Vec<&Value> = cases.iter().map(|case| &case["theory"]).collect();
    assert_eq!(functions, [&Value::Null, &json!("closed-spin"), &json!("chain-closed"), &json!("closed-barge")]);
    for case in &cases[1..] {
        assert!(case["gets_per_s_theory"].as_f64().unwrap() > 0.0 && case["why_no_theory"].is_null(), "{case}");
    }
    assert!(cases[0]["gets_per_s_theory"].is_null());
    assert!(cases[0]["why_no_theory"].as_str().unwrap().contains("no formula for orbit"), "{}", cases[0]);
    let text = run(&[&["what-if", "--why", "--scheme", "orbit"], &described(&["sessions=2"])[..]].concat());
    assert!(text.contains("orbit: no formula for orbit: few sessions in turns"), "{text}");
}

#[test]
fn a_case_that_cannot_be_simulated_leaves_the_others() {
    // Two copies have time for all who come, one has not.
    let all = what_if(&described(&["rate=3e5", "copies=2", "--copies", "1,2"]));
    let cases = all["cases"].as_array().unwrap();
    assert_eq!((cases.len(), &cases[0]["error"]), (2, &Value::Null));
    assert!(cases[1]["error"].as_str().unwrap().contains("no steady state"), "{}", cases[1]);
    assert!(cases[1]["gets_per_s"].is_null());
}

#[test]
fn what_is_measured_is_recorded_and_read_again() {
    let scratch = Scratch::new();
    let (first, second) = (File::new("first.json"), File::new("second.json"));
    let load = Load {
        sessions: 3,
        hold: Pass::Asleep(Duration::from_millis(1)),
        think: Pass::Asleep(Duration::from_millis(1)),
    };
    let measured = load.during(&scratch, || {
        let arguments =
            ["what-if", "--interval", "1s", "--scheme", "orbit", "--duration", "50ms", "--record", &first, "--json"];
        serde_json::from_str::<Value>(&scratch.run(&arguments)).unwrap()
    });
    let recording: Value = serde_json::from_str(&fs::read_to_string(&*first).unwrap()).unwrap();
    assert_eq!((&recording["instance"], &recording["mutex_type"]), (&json!(scratch.name), &json!("load")));
    assert_eq!(recording["measured"]["sessions"], 3);
    assert_eq!(recording["holds"], "mean");
    let read = what_if(&["--from", &first, "--scheme", "orbit", "--duration", "50ms", "--record", &second]);
    assert_eq!(fs::read_to_string(&*first).unwrap(), fs::read_to_string(&*second).unwrap());
    assert_eq!(read, measured);
    let of = |mutex| ["--from", &first, "--mutex", mutex, "--scheme", "orbit", "--duration", "50ms"];
    assert!(["m", "#1"].iter().all(|mutex| what_if(&of(mutex)) == read));
    assert!(fails(&of("other")).contains("no mutex `other`, expected #1, which is mutex m (load)"));
    for (option, value) in [("-p", "1"), ("--interval", "1s")] {
        assert!(fails(&["--from", &first, option, value]).contains("'--from <FILE>' cannot be used with"));
    }
    // Sleeping holders of 1 ms at least, of whom there is one at a time.
    let hold_s = recording["workload"]["hold"]["mean"].as_f64().unwrap();
    assert!(hold_s > 0.5e-3, "{recording}");
    let samples = &recording["measured"]["samples"];
    assert!(samples["held_s"].as_f64().unwrap() > 0.3 * samples["time_s"].as_f64().unwrap(), "{recording}");
    // Times that are all the same stand beside exponential ones.
    assert!(read["cases"][0]["gets_per_s_fixed"].as_f64().unwrap() > 0.0);
    let given = what_if(&[
        "--from",
        &first,
        "dist=uniform:low=0us,high=9us",
        "sessions=5",
        "--scheme",
        "orbit",
        "--duration",
        "50ms",
    ]);
    // What is given is a case: the present stays what was measured.
    let cases = given["cases"].as_array().unwrap();
    let of = |figure: &str| cases.iter().map(|case| case[figure].clone()).collect::<Vec<_>>();
    assert_eq!((of("sessions"), of("scheme")), (vec![json!(3), json!(5)], vec![json!("orbit"); 2]));
    assert_eq!((&given["check"], of("holding_time_us")[1].as_f64()), (&read["check"], Some(4.5)));
    assert!(cases[0]["gets_per_s_fixed"].is_f64() && cases[1]["gets_per_s_fixed"].is_null(), "{given}");
}

#[test]
fn an_interrupt_ends_the_simulations_too() {
    let scratch = Scratch::new();
    let pass = Pass::Asleep(Duration::from_millis(1));
    let output = Load { sessions: 3, hold: pass, think: pass }.during(&scratch, || {
        let words = ["what-if", "--interval", "60s", "-i", &scratch.name];
        let what_if = command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let is_caught = || {
            let status = fs::read_to_string(format!("/proc/{}/status", what_if.id())).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (libc::SIGINT - 1) != 0
        };
        until("the measurement", is_caught);
        let observer = scratch.observer();
        let gets = || observer.tables().mutex_state(observer.tables().mutexes()[0].id).unwrap().gets;
        let before = gets();
        until("enough gets", || gets() > before + 500);
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::kill(i32::try_from(what_if.id()).unwrap(), libc::SIGINT) }, 0);
        what_if.wait_with_output().unwrap()
    });
    assert_eq!(output.status.signal(), Some(libc::SIGINT));
    assert_eq!(both(&output), "interrupted; 0 of 10 cases simulated\n");
}

#[test]
fn sessions_have_the_processors_that_they_may_run_on_and_not_the_observers() {
    let scratch = Scratch::new();
    let load =
        Load { sessions: 2, hold: Pass::Busy(Duration::from_micros(50)), think: Pass::Busy(Duration::from_micros(50)) };
    let (all, one) = processors();
    // SAFETY: the set is readable.
    let processors_of_all = unsafe { libc::CPU_COUNT(&all) };
    for (of_load, of_observer, processors) in [(one, all, 1), (all, one, processors_of_all)] {
        run_on(&of_load);
        let found = load.during(&scratch, || {
            run_on(&of_observer);
            scratch.run(&["what-if", "--interval", "500ms", "--scheme", "orbit", "--duration", "10ms", "--json"])
        });
        let found: Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["workload"]["machine"]["processors"], processors, "{found}");
        run_on(&all);
    }
}

#[test]
fn of_a_report_of_a_run_the_mutex_that_is_meant_is_taken() {
    let file = File::new("report.json");
    run(&[&["what-if", "--record", &file, "--scheme", "ydb"], &described(&["sessions=4"])[..]].concat());
    let of = |mutex: &str, scheme: &str| {
        let mut recording: Value = serde_json::from_str(&fs::read_to_string(&*file).unwrap()).unwrap();
        (recording["mutex"], recording["workload"]["params"]["mutex_wait_scheme"]) = (json!(mutex), json!(scheme));
        recording
    };
    let workloads = [of("#7 pool", "pthread"), of("#8 log", "sleep")];
    fs::write(&*file, json!({ "command": "db -t 4", "workloads": workloads }).to_string()).unwrap();
    let scheme =
        |more: &[&str]| what_if(&[&["--from", &file, "--scheme", "ydb"], more].concat())["cases"][0]["scheme"].clone();
    assert_eq!([&[][..], &["--mutex", "log"], &["--mutex", "#7"]].map(scheme), ["pthread", "sleep", "pthread"]);
    assert!(fails(&["--interval", "0s"]).contains("expected 1.00 ms at least"));
    // Before anything is measured.
    assert!(fails(&["--interval", "10min", "think=1us"]).contains("expected sessions=N or dist=D where something is"));
    assert!(fails(&["--from", &file, "--mutex", "none"]).contains("no mutex `none`, expected #7 pool or #8 log"));
    fs::write(&*file, json!({ "workloads": [] }).to_string()).unwrap();
    assert!(fails(&["--from", &file]).contains("a report without a mutex of which enough was measured"));
}

#[test]
fn the_three_forms_say_the_same() {
    let words = described(&["sessions=3", "--scheme", "sleep"]);
    let json = what_if(&words);
    let csv = run(&[&["what-if", "--csv"], &words[..]].concat());
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(header, json["cases"][0].as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>());
    let second: Vec<&str> = lines.nth(1).unwrap().split(',').collect();
    let position = header.iter().position(|name| *name == "gets_per_s").unwrap();
    assert_eq!(second[position].parse::<f64>().ok(), json["cases"][1]["gets_per_s"].as_f64());
    let picture = File::new("picture.svg");
    let sessions = ["--scheme", "sleep,ydb", "--sessions", "2,4", "--plot", "--svg", &picture];
    let text = run(&[&["what-if"], &described(&["sessions=3"])[..], &sessions].concat());
    assert!(text.contains("gets/s against sessions, simulated") && text.contains("B sleep"), "{text}");
    assert!(text.starts_with("the workload described: 3 sessions that think for 20.0 us, hold it for"), "{text}");
    let text = run(&[&["what-if", "--scheme", "sleep"], &described(&["sessions=1", "work=150us"])[..]].concat());
    assert!(text.contains(": 1 session that thinks for 20.0 us, after 150 us of work, holds it"), "{text}");
    let shown = fs::read_to_string(&*picture).unwrap();
    assert!(shown.contains("sessions") && shown.contains("ydb"), "{shown}");
}

#[test]
fn what_cannot_be_answered_says_what_was_found_and_what_is_allowed() {
    let file = File::new("wrong.json");
    fs::write(&*file, "{\"a\": 1}").unwrap();
    for (arguments, expected) in [
        (&["dist=exponential:mean=1us", "sessions=4", "rate=1"][..], "both sessions and rate, expected one of the two"),
        (&["dist=exponential:mean=1us", "sesions=4"], "parameter `sesions` of simulate, expected dist, sessions"),
        (&["dist"], "parameter `dist`, expected NAME=VALUE"),
        (&["dist=a", "dist=b"], "parameter dist given twice"),
        (
            &["dist=exponential:mean=1us", "sessions=4", "--scheme", "fast"],
            "no scheme `fast`, expected `all` or some of yield, sleep",
        ),
        (&["dist=exponential:mean=1us", "sessions=4", "--set", "spin=1"], "no parameter `spin`"),
        (
            &["dist=exponential:mean=1us", "sessions=4", "--set", "mutex_spin_count"],
            "setting `mutex_spin_count`, expected NAME=VALUE",
        ),
        (&["dist=exponential:mean=1us", "sessions=4", "--set", "mutex_wait_scheme=1,2"], "is varied by --scheme"),
        (
            &["dist=exponential:mean=1us", "sessions=4", "--scheme", "sleep", "--set", "mutex_wait_time=5cs"],
            "unit `cs`",
        ),
        (&["dist=exponential:mean=1us", "rate=1e5", "--sessions", "4"], "expected a number of sessions to vary"),
        (&["dist=exponential:mean=1us", "rate=2e6"], "no steady state"),
        (
            &["dist=exponential:mean=1us", "sessions=4", "--copies", "2,1", "copies=0"],
            "copies 0, expected a whole number from 1",
        ),
        (&["dist=exponential:mean=1us", "sessions=4", "--copies", "0,1"], "0 is not in 1..=4096"),
        (&["dist=exponential:mean=1us", "sessions=4", "--svg", "/no/x.svg"], "cannot write /no/x.svg"),
        (&["dist=exponential:mean=1e300", "sessions=4"], "dist is 1e300, expected a mean of up to 5e6 s"),
        (&["--from", "/nonexistent/file"], "/nonexistent/file: No such file"),
        (&["--from", &file], "expected a recording of what-if, a report of run, or a workload"),
        (&["-i", "no-such-instance"], "no-such-instance"),
    ] {
        let said = fails(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
