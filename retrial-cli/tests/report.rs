//! Reports of a period, of recordings and live instances.

mod kit;

use kit::directory::File;
use kit::load::{Load, Pass, deadlocked};
use kit::{Scratch, both, command, failed, until};
use retrial::{Class, location};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn text_report(file: &str, arguments: &[&str]) -> String {
    let output = command(&[&["report", file], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{}", both(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn report(file: &str, arguments: &[&str]) -> Value {
    serde_json::from_str(&text_report(file, &[arguments, &["--json"]].concat())).unwrap()
}

const LOAD: Load =
    Load { sessions: 3, hold: Pass::Busy(Duration::from_micros(300)), think: Pass::Asleep(Duration::from_micros(200)) };

fn sum(rows: &Value, name: &str) -> f64 {
    rows.as_array().unwrap().iter().map(|row| row[name].as_f64().unwrap()).sum()
}

#[test]
fn the_parts_of_the_time_of_the_sessions_add_up() {
    let scratch = Scratch::new();
    let text = LOAD.during(&scratch, || scratch.run(&["report", "--for", "1s", "--json"]));
    let report: Value = serde_json::from_str(&text).unwrap();
    for (rows, name) in [("events", "pct_session_time"), ("session_time", "pct")] {
        let all = sum(&report[rows], name);
        assert!((all - 100.0).abs() < 0.1, "{rows}: {all} of {report}");
    }
    let (all_s, of_events) = (report["session_time_s"].as_f64().unwrap(), sum(&report["events"], "time_s"));
    assert!((all_s - of_events).abs() < 1e-6 * all_s);
    assert!(report["looks"].as_u64() > Some(0) && report["recorder_cpu_pct"].as_f64() > Some(0.0), "{report}");
    let is_negative = |row: &Value| row["time_s"].as_f64().unwrap().is_sign_negative();
    assert!(!report["session_time"].as_array().unwrap().iter().any(is_negative), "{report}");
    let m = &report["mutexes"][0];
    assert_eq!(m["mutex"], "m");
    assert!(m["gets"].as_u64() > Some(0) && m["throughput"].as_f64() > Some(0.0), "{m}");
}

#[test]
fn what_looks_at_an_instance_for_a_time_ends_when_it_has_gone() {
    for look in [&["report", "--for", "60s"][..], &["ash", "--for", "60s"], &["sql", "--over", "60s", "SELECT 1"]] {
        let scratch = Scratch::new();
        let mut looking = command(&[look, &["-i", &scratch.name]].concat());
        let looking = looking.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let maps = format!("/proc/{}/maps", looking.id());
        until("it looks", || std::fs::read_to_string(&maps).is_ok_and(|maps| maps.contains(&scratch.name)));
        let began = Instant::now();
        assert!(command(&["rm", &scratch.name]).status().unwrap().success());
        let output = looking.wait_with_output().unwrap();
        let said = both(&output);
        assert!(output.status.success() && began.elapsed() < Duration::from_secs(30), "{look:?}: {said}");
        assert!(said.contains("has gone: watched for ") && said.contains(" s of 60.0 s."), "{look:?}: {said}");
        let tells = look[0] != "report" || said.contains("the live instance, which has gone");
        assert!(tells && !said.contains(&format!("-i {}", scratch.name)), "{said}");
    }
}

#[test]
fn sessions_hold_as_long_as_the_utilization_says() {
    let scratch = Scratch::new();
    let text = LOAD.during(&scratch, || scratch.run(&["report", "--for", "3s", "--json"]));
    let report: Value = serde_json::from_str(&text).unwrap();
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{report}"));
    let holding = &report["session_time"][0];
    assert_eq!(holding["part"], "holding a mutex");
    let (held, utilization) =
        (number(&holding["time_s"]) / number(&report["period_s"]), number(&report["mutexes"][0]["utilization"]));
    // Each look sees the mutex at one moment and each session at one of its own: four times what chance makes of it.
    let chance = (2.0 * utilization * (1.0 - utilization) / number(&report["looks"])).sqrt();
    assert!((held - utilization).abs() < 4.0 * chance + 0.01, "{held} is not {utilization}: {report}");
}

#[test]
fn a_session_in_its_first_spin_is_seen_to_spin() {
    let scratch = Scratch::new();
    for set in ["mutex_wait_scheme=latch", "latch_spin_count=20000000"] {
        scratch.run(&["set", set]);
    }
    let instance = scratch.instance();
    let mutex = instance.mutex("m", "hot", || 0_u64).unwrap();
    let holder = scratch.hold(&["m"]);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let session = instance.session("spins", Class::Normal).unwrap();
            drop(mutex.exclusive(&session, location!("spins")));
        });
        until("the session", || scratch.rows(&["ps"]).len() == 2);
        let text = scratch.run(&["report", "--for", "300ms", "--json"]);
        let report: Value = serde_json::from_str(&text).unwrap();
        drop(holder);
        waiter.join().unwrap();
        let spinning = report["session_time"].as_array().unwrap().iter();
        let spinning: Vec<_> = spinning.filter(|part| part["part"] == "spinning first, before it is a wait").collect();
        assert!(spinning[0]["pct"].as_f64() > Some(40.0), "{report:#}");
        assert_eq!(report["mutexes"].as_array().unwrap().len(), 0, "no wait is counted yet: {report:#}");
        assert_eq!(report["blockers"][0]["mutex"], "m");
    });
}

#[test]
fn a_live_report_times_holds_from_outside() {
    const HELD: Load =
        Load { sessions: 1, hold: Pass::Busy(Duration::from_micros(30)), think: Pass::Busy(Duration::from_micros(10)) };
    let scratch = Scratch::new();
    HELD.during(&scratch, || {
        // Too few are seen while others have the processors.
        until("enough holds", || {
            let text = scratch.run(&["report", "--for", "2s", "--json"]);
            let report: Value = serde_json::from_str(&text).unwrap();
            let Some(holds) = report["holds"].as_array().unwrap().first() else { return false };
            let us = |name: &str| holds[name].as_f64().unwrap();
            assert!(holds["seen"].as_u64() >= Some(200), "{holds}");
            // A hold takes 30 us at least; a look is some tenths of a us away from its ends.
            assert!(us("p50_us") > 28.0 && us("p50_us") <= us("p90_us") && us("p90_us") <= us("p99_us"), "{holds}");
            true
        });
    });
}

#[test]
fn a_report_of_a_recording_says_what_kept_whom() {
    let scratch = Scratch::new();
    let file = File::new("r.db");
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s"]);
    let _waits = scratch.start(&["hold", "m", "--mode", "S", "--for", "0s"]);
    until("a wait", || scratch.observer().tables().waits().next().is_some());
    scratch.run(&["record", &file, "--for", "100ms", "--interval", "50ms", "--sample", "5ms"]);
    scratch.run(&["set", "mutex_spin_count=77"]);
    scratch.run(&["record", &file, "--for", "300ms", "--interval", "100ms", "--sample", "5ms"]);
    let text = command(&["report", &file]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let report: Value =
        serde_json::from_slice(&command(&["report", &file, "--json"]).output().unwrap().stdout).unwrap();
    let said = failed(&command(&["report", &file, "--from", "2999-01-01"]).output().unwrap());
    assert!(said.contains("no two snapshots in this period"), "{said}");
    let said = failed(&command(&["report", &file, "--from", "noon"]).output().unwrap());
    assert!(said.contains("expected a moment in UTC"), "{said}");
    let said = failed(&command(&["report", &file, "-i", "other"]).output().unwrap());
    assert!(said.contains("no instance `other` in it, expected one of"), "{said}");
    assert_eq!(report["blockers"][0]["blocker"], 1, "{report}");
    // One long wait, which had missed before: this is the mutex that matters.
    assert_eq!(report["mutexes"][0]["mutex"], "m", "{report}");
    // Both sessions were there all the time, also while nobody sampled.
    let session_s = report["session_time_s"].as_f64().unwrap() / report["period_s"].as_f64().unwrap();
    assert!((session_s - 2.0).abs() < 0.02, "{report}");
    let holding = &report["session_time"][0];
    assert!((holding["pct"].as_f64().unwrap() - 50.0).abs() < 1.0, "{report}");
    assert_eq!(report["blockers"][0]["sessions_waiting"], 1);
    assert_eq!(report["parameters"][0]["changed_from"], "255", "{}", report["parameters"]);
    assert!((sum(&report["events"], "pct_session_time") - 100.0).abs() < 0.1);
    for expected in
        ["TOP EVENTS", "cursor: pin S wait on X", "holding a mutex", "MUTEX SLEEPS BY TYPE AND LOCATION", "Cursor Pin"]
    {
        assert!(text.contains(expected), "no `{expected}` in\n{text}");
    }
}

#[test]
fn a_page_is_written_and_has_the_load_over_time() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let page = File::new("r.html");
    let record = ["record", &file, "--for", "1s", "--interval", "100ms", "--sample", "2ms"];
    LOAD.during(&scratch, || scratch.run(&record));
    // It is written anew, as whatever else commands write.
    std::fs::write(&*page, "what was there before").unwrap();
    assert_eq!(
        text_report(&file, &["--html", &page]),
        format!("{} is the report: a page to open in a browser.\n", &*page)
    );
    let html = std::fs::read_to_string(&*page).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"), "{html}");
    // Ten parts make a line of more than a few points in each chart.
    for title in ["sessions", "gets per second"] {
        let chart = html.split("<svg ").find(|svg| svg.contains(&format!("\n{title}\n"))).unwrap();
        let lines = chart.split("stroke-width=\"2\" d=\"").skip(1).map(|path| path.split('"').next().unwrap());
        assert!(lines.map(|path| path.matches('L').count()).max() >= Some(15), "{title}: {chart}");
    }
    // What the text says, the page says; with JSON both are given.
    for line in text_report(&file, &[]).lines().filter(|line| line.starts_with("machine: ")) {
        assert!(html.contains(line), "no {line} in {html}");
    }
    std::fs::remove_file(&*page).unwrap();
    let figures: Value = serde_json::from_str(&text_report(&file, &["--html", &page, "--json"])).unwrap();
    assert!(figures["events"].is_array() && Path::new(&*page).exists());
    text_report(&file, &["--diff", &file, "--from", "500ms", "--html", &page]);
    let html = std::fs::read_to_string(&*page).unwrap();
    assert_eq!(html.matches("<svg class=\"bar\"").count(), 2, "{html}");
    assert!(html.contains("TIME OF THE SESSIONS: MEAN NUMBER") && html.contains(" before</li>"), "{html}");
    scratch.run(&["report", "--for", "20ms", "--html", &page]);
    assert!(std::fs::read_to_string(&*page).unwrap().contains("from the live instance"));
}

#[test]
fn a_page_that_cannot_be_written_is_an_error_and_changes_nothing() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    scratch.run(&["record", &file, "--for", "30ms", "--interval", "10ms"]);
    let before = std::fs::read(&*file).unwrap();
    let refused = |arguments: &[&str]| failed(&command(arguments).output().unwrap());
    // The recording in the place of the page.
    let said = refused(&["report", "--html", &file]);
    assert!(
        said.contains("expected a name that ends in .html") && said.contains("retrial report retrial.db --html"),
        "{said}"
    );
    assert!(std::fs::read(&*file).unwrap() == before);
    let said = refused(&["report", &file, "--html", "/nonexistent/r.html"]);
    assert!(said.contains("/nonexistent/r.html: No such file or directory") && said.contains("help:"), "{said}");
    // A live instance is not watched for it: this ends at once, though the time is long.
    let said = refused(&["report", "-i", &scratch.name, "--for", "1h", "--html", "/dev/null/r.html"]);
    assert!(said.contains("/dev/null/r.html: Not a directory"), "{said}");
}

#[test]
fn without_samples_nothing_is_said_of_holding() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s"]);
    scratch.run(&["record", &file, "--for", "30ms", "--interval", "10ms", "--sample", "0s"]);
    let report = report(&file, &[]);
    let parts: Vec<&str> =
        report["session_time"].as_array().unwrap().iter().map(|row| row["part"].as_str().unwrap()).collect();
    assert!(
        !parts.contains(&"holding a mutex") && parts.contains(&"holding a mutex, spinning first, or elsewhere"),
        "{parts:?}"
    );
    assert!((sum(&report["events"], "pct_session_time") - 100.0).abs() < 0.1, "{report}");
}

#[test]
fn a_deadlock_is_what_a_report_says_first() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    deadlocked(&scratch, || scratch.run(&["record", &file, "--for", "50ms", "--interval", "20ms"]));
    let text = text_report(&file, &[]);
    let (deadlock, load) = (text.find("DEADLOCK: 2 sessions wait for each other"), text.find("LOAD"));
    assert!(deadlock.is_some() && deadlock < load, "{text}");
    assert!(text.contains("waits for X of a at second, held by session "), "{text}");
    assert_eq!(report(&file, &[])["deadlocks"][0]["sessions"].as_array().unwrap().len(), 2);
}

#[test]
fn an_earlier_instance_of_the_name_is_told_of_and_can_be_reported() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let _hold = scratch.hold(&["first", "--create", "--for", "300s"]);
    scratch.run(&["record", &file, "--for", "30ms", "--interval", "10ms"]);
    let first_to = report(&file, &[])["to"].as_str().unwrap().to_owned();
    assert!(!text_report(&file, &[]).contains("instances of this name"));
    assert!(command(&["rm", &scratch.name, "--force"]).output().unwrap().status.success());
    assert!(command(&["create", &scratch.name]).output().unwrap().status.success());
    scratch.run(&["record", &file, "--for", "30ms", "--interval", "10ms"]);
    let text = text_report(&file, &[]);
    assert!(text.contains("the latest of 2 instances of this name"), "{text}");
    assert_eq!(report(&file, &["--to", &first_to])["to"], first_to.as_str());
}
