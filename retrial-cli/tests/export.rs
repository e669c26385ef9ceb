//! `retrial export`, asked over HTTP, and by Prometheus where it is installed.

#![allow(missing_docs)]

mod kit;
#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

use kit::directory::Directory;
use kit::{Running, Scratch, failed, until};
use not_tested::not_tested;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

/// Starts it on a free port: it, and where.
fn export(scratch: &Scratch, arguments: &[&str]) -> (Running, String) {
    let mut export = scratch.start(&[&["export", "--listen", "127.0.0.1:0"], arguments].concat());
    let line = export.until("Metrics are at http://");
    let address = line.split_once("http://").unwrap().1.split_once('/').unwrap().0.to_owned();
    (export, address)
}

/// Status, headers and body of an answer.
fn ask(address: &str, request: &str, accept: &str) -> (u32, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
}

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// A holder of `m`, and a session that has begun to wait for it.
fn contended(scratch: &Scratch) -> (Running, Running) {
    let holder = scratch.hold(&["m", "--create"]);
    let waiter = scratch.start(&["hold", "m", "--mode", "S", "--for", "0s", "--location", "read \"it\""]);
    until("the wait", || scratch.rows(&["ps"]).iter().any(|row| row["state"] == "waiting"));
    (holder, waiter)
}

#[test]
fn metrics_are_there_in_both_formats_and_say_what_show_says() {
    let scratch = Scratch::new();
    let both = contended(&scratch);
    let (export, address) = export(&scratch, &[]);
    let (status, head, text) = ask(&address, "GET /metrics", OPEN_METRICS);
    assert_eq!(status, 200);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(text.ends_with("# EOF\n") && text.contains("\n# UNIT retrial_mutex_wait_seconds seconds\n"), "{text}");
    let of = |name: &str| value(&text, &format!("{name}{{mutex=\"m\",type=\"Cursor Pin\"}}"));
    assert_eq!(
        (of("retrial_mutex_held"), of("retrial_mutex_waiters"), of("retrial_mutex_gets_total")),
        (Some(1.0), Some(1.0), Some(1.0))
    );
    assert_eq!((of("retrial_mutex_misses_total"), of("retrial_mutex_waits_total")), (Some(1.0), Some(1.0)));
    assert_eq!(value(&text, "retrial_place_waits_total{place=\"read \\\"it\\\"\"}"), Some(1.0), "{text}");
    assert_eq!(value(&text, "retrial_event_waits_total{event=\"cursor: pin S wait on X\"}"), Some(1.0), "{text}");
    assert_eq!(value(&text, "retrial_sessions{state=\"waiting\"}"), Some(1.0));
    // The wait is over: its time is what `show` has.
    drop(both.0.die_of(libc::SIGTERM));
    assert_eq!(both.1.end().0, Some(0));
    let mut wait_ms = 0.0;
    until("a fresh answer", || {
        let (_, head, text) = ask(&address, "GET /metrics", "*/*");
        assert!(head.contains("content-type: text/plain; version=0.0.4") && !text.contains("EOF"), "{head}");
        let part = |part| {
            value(
                &text,
                &format!("retrial_mutex_wait_seconds_total{{mutex=\"m\",type=\"Cursor Pin\",part=\"{part}\"}}"),
            )
        };
        wait_ms = ["spin", "yield", "slept", "over"].into_iter().map(|name| part(name).unwrap()).sum::<f64>() * 1e3;
        value(&text, "retrial_mutex_held{mutex=\"m\",type=\"Cursor Pin\"}") == Some(0.0)
    });
    let shown = scratch.rows(&["show", "mutexes", "m"])[0]["wait_ms"].as_f64().unwrap();
    // More by the time from the wait's end to its record, where a look fell between: totals do not fall again.
    assert!(shown > 0.0 && (-1e-6..1e3).contains(&(wait_ms - shown)), "{shown} and {wait_ms}");
    export.die_of(libc::SIGTERM);
}

#[test]
fn series_are_bounded_and_the_rest_is_other() {
    let scratch = Scratch::with(&["--sessions", "16", "--mutexes", "256", "--locations", "64", "--arena", "256K"]);
    let instance = scratch.instance();
    let session = instance.session("s", retrial::Class::Normal).unwrap();
    for i in 0..100 {
        let mutex = instance.mutex(&format!("m{i}"), "many", || 0_u64).unwrap();
        drop(mutex.exclusive(&session, retrial::location!("x")).unwrap());
    }
    let text = scratch.run(&["export", "--once", "--most", "3"]);
    let gets: Vec<&str> = text.lines().filter(|line| line.starts_with("retrial_mutex_gets_total{")).collect();
    assert_eq!(gets.len(), 4, "{text}");
    let sum: f64 = gets.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    // Each was got once, and once as it was made.
    assert!((sum - 200.0).abs() < 1e-9, "{gets:?}");
    assert!(
        gets.iter().any(|line| line.starts_with("retrial_mutex_gets_total{mutex=\"other\",type=\"other\"} 194")),
        "{gets:?}"
    );
    assert!(scratch.fail(&["export", "--most", "1001"]).contains("expected at most 1000:"));
}

#[test]
fn what_else_is_asked_is_refused_and_an_instance_may_go_and_come_back() {
    let scratch = Scratch::new();
    let (export, address) = export(&scratch, &[]);
    assert_eq!(ask(&address, "GET /", "*/*").0, 404);
    assert_eq!(ask(&address, "POST /metrics", "*/*").0, 405);
    assert_eq!(ask(&address, "HEAD /metrics", "*/*").2, "");
    let busy = scratch.fail(&["export", "--listen", &address]);
    assert!(busy.contains(&format!("cannot listen on {address}")) && busy.contains("expected an address"), "{busy}");
    let nowhere = scratch.fail(&["export", "--listen", "nowhere"]);
    assert!(nowhere.contains("cannot listen on nowhere") && nowhere.contains("help:"), "{nowhere}");
    fs::remove_file(scratch.path()).unwrap();
    assert_eq!(ask(&address, "GET /metrics", "*/*").0, 503);
    let create = kit::command(&["create", &scratch.name, "--sessions", "4", "--mutexes", "16"]).output().unwrap();
    assert!(create.status.success());
    until("it is back", || ask(&address, "GET /metrics", "*/*").0 == 200);
    export.die_of(libc::SIGINT);
    let text = failed(&kit::command(&["export", "-i", "no-such-instance"]).output().unwrap());
    assert!(text.contains("no-such-instance"), "{text}");
}

/// Whether a program is there; where all programs are required, it has to be.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        not_tested(format_args!("no {program}: apt-get install prometheus"));
    }
    is_there
}

#[test]
fn promtool_finds_nothing_wrong() {
    if !has("promtool") {
        return;
    }
    let scratch = Scratch::new();
    let _both = contended(&scratch);
    let text = scratch.run(&["export", "--once"]);
    let mut promtool = Command::new("promtool");
    let promtool =
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{text}", kit::both(&output));
    assert_eq!(kit::both(&output), "", "{text}");
}

#[test]
fn the_dashboard_asks_for_what_is_exported() {
    let scratch = Scratch::new();
    let _both = contended(&scratch);
    let (_export, address) = export(&scratch, &[]);
    let (_, _, text) = ask(&address, "GET /metrics", "*/*");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/grafana/retrial.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let asked: Vec<&str> = panels.iter().map(|panel| panel["targets"][0]["expr"].as_str().unwrap()).collect();
    assert!(asked.len() > 10);
    for expression in asked {
        let words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("retrial_")) {
            assert!(text.contains(&format!("\n{name}")), "{name} is in no metrics: {text}");
        }
        if let Some((_, state)) = expression.split_once("state=") {
            let state = state.split('"').nth(1).unwrap();
            assert!(text.contains(&format!("{{state=\"{state}\"}}")), "no state {state}: {text}");
        }
    }
}

/// A server that is ended before its directory is removed.
struct Prometheus {
    child: Child,
    _directory: Directory,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_scrapes_it_and_answers_a_query() {
    if !has("prometheus") {
        return;
    }
    let scratch = Scratch::new();
    let _both = contended(&scratch);
    let (_export, address) = export(&scratch, &[]);
    let directory = Directory::new();
    let config = directory.join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
         scrape_configs: [{{job_name: retrial, static_configs: [{{targets: ['{address}']}}]}}]\n"
    );
    fs::write(&config, text).unwrap();
    // A port that was free just now.
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", config.display()));
    prometheus.arg(format!("--storage.tsdb.path={}", directory.join("data").display()));
    prometheus.arg(format!("--web.listen-address={own}")).stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Prometheus { child: prometheus.spawn().unwrap(), _directory: directory };
    until("it listens", || TcpStream::connect(&own).is_ok());
    let query = |query: &str| -> Option<Value> {
        let (_, _, body) = ask(&own, &format!("GET /api/v1/query?query={query}"), "*/*");
        // The body may come in pieces: from the first bracket to the last.
        let json = &body[body.find('{')?..=body.rfind('}')?];
        serde_json::from_str(json).ok()
    };
    let found = |text: &str| query(text).map(|answer| answer["data"]["result"][0]["value"][1].clone());
    until("a scrape", || found("retrial_mutex_waiters%7Bmutex%3D%22m%22%7D") == Some("1".into()));
    assert_eq!(found("up%7Bjob%3D%22retrial%22%7D"), Some("1".into()));
    let state = query("retrial_sessions%7Bstate%3D%22waiting%22%7D").unwrap();
    assert_eq!(state["data"]["result"][0]["metric"]["job"], "retrial", "{state}");
}
