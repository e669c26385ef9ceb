//! `retrial export --otlp`, to a receiver that refuses, sends away and takes.

#![allow(missing_docs)]

mod kit;

use kit::{Scratch, until};
use retrial::sys::Deadline;
use retrial::{Class, GetError, location};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A request: its first line, its headers in lower case, and its body.
struct Request {
    line: String,
    headers: Vec<String>,
    body: Value,
    at: Instant,
}

/// Answers requests in this order, the last one for ever: where, and the requests.
fn receiver(answers: &'static [&'static str]) -> (String, Receiver<Request>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    (url, requests, std::thread::spawn(move || serve(&listener, answers, &sender)))
}

fn serve(listener: &TcpListener, answers: &[&str], sender: &Sender<Request>) {
    let mut next = answers.iter();
    let mut answer = "";
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let headers: Vec<String> = head[1..].iter().map(|line| line.to_lowercase()).collect();
        let length = headers.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        answer = next.next().copied().unwrap_or(answer);
        let (head_of_answer, text) = answer.split_once("\r\n\r\n").unwrap();
        let length = text.len();
        write!(stream, "HTTP/1.1 {head_of_answer}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}")
            .unwrap();
        let body = serde_json::from_slice(&body).unwrap();
        let request = Request { line: head[0].clone(), headers, body, at: Instant::now() };
        if sender.send(request).is_err() {
            return;
        }
    }
}

const AWAY: &str = "503 Service Unavailable\r\nRetry-After: 0\r\n\r\n";
const TAKEN: &str = "200 OK\r\nContent-Type: application/json\r\n\r\n{\"partialSuccess\":{}}";

/// The metrics of a request by name, each checked for what the protocol says of its kind.
fn metrics(body: &Value) -> BTreeMap<String, Value> {
    let [of_resource] = body["resourceMetrics"].as_array().unwrap().as_slice() else { panic!("{body}") };
    let [of_scope] = of_resource["scopeMetrics"].as_array().unwrap().as_slice() else { panic!("{body}") };
    assert_eq!(of_scope["scope"]["name"], "retrial");
    let nanos = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let check = |metric: &Value| {
        let kinds: Vec<&str> =
            ["gauge", "sum", "histogram"].into_iter().filter(|kind| !metric[kind].is_null()).collect();
        let [kind] = kinds[..] else { panic!("{metric}") };
        let data = &metric[kind];
        assert!(metric["unit"] == "s" || metric["unit"] == "1", "{metric}");
        assert_eq!(data["aggregationTemporality"] == 2, kind != "gauge", "{metric}");
        assert_eq!(data["isMonotonic"] == true, kind == "sum", "{metric}");
        for point in data["dataPoints"].as_array().unwrap() {
            assert!(nanos(&point["timeUnixNano"]) > 1_700_000_000_000_000_000, "{point}");
            assert_eq!(point["startTimeUnixNano"].is_null(), kind == "gauge", "{point}");
            if kind != "gauge" {
                assert!(nanos(&point["startTimeUnixNano"]) < nanos(&point["timeUnixNano"]), "{point}");
            }
            assert!(point["attributes"].as_array().unwrap().iter().all(|a| a["value"]["stringValue"].is_string()));
            if kind != "histogram" {
                assert!(point["asDouble"].is_f64(), "{point}");
                continue;
            }
            let (counts, ends) =
                (point["bucketCounts"].as_array().unwrap(), point["explicitBounds"].as_array().unwrap());
            assert_eq!(counts.len(), ends.len() + 1, "{point}");
            assert!(ends.is_sorted_by(|a, b| a.as_f64() < b.as_f64()), "{point}");
            assert_eq!(counts.iter().map(nanos).sum::<u64>(), nanos(&point["count"]), "{point}");
        }
    };
    let all = of_scope["metrics"].as_array().unwrap();
    all.iter().for_each(check);
    all.iter().map(|metric| (metric["name"].as_str().unwrap().to_owned(), metric.clone())).collect()
}

/// Three waits in vain.
fn waited() -> Scratch {
    let scratch = Scratch::new();
    let instance = scratch.instance();
    let mutex = instance.mutex("m", "Cursor Pin", || 0_u64).unwrap();
    let holder = instance.session("holder", Class::Normal).unwrap();
    let waiter = instance.session("waiter", Class::Normal).unwrap();
    let held = mutex.exclusive(&holder, location!("keep")).unwrap();
    for _ in 0..3 {
        let got = mutex.shared_until(&waiter, location!("read"), Deadline::after(Duration::from_millis(3)));
        assert!(matches!(got, Err(GetError::TimedOut)));
    }
    drop(held);
    drop((holder, waiter));
    scratch
}

#[test]
fn a_push_has_the_series_of_the_page_and_is_repeated_while_it_is_sent_away() {
    let scratch = waited();
    let (url, requests, _) = receiver(&[
        "503 Service Unavailable\r\nRetry-After: 1\r\n\r\nlater",
        "429 Too Many Requests\r\n\r\nlater",
        TAKEN,
    ]);
    let export = scratch.start(&["export", "--otlp", &url, "--interval", "100ms"]);
    let next = || requests.recv_timeout(Duration::from_mins(1)).unwrap();
    let (away, again, taken, later) = (next(), next(), next(), next());
    export.die_of(libc::SIGTERM);
    // As long as the receiver says, and then as long as the first back-off: half of both, that no clock matters.
    assert!(again.at - away.at >= Duration::from_millis(500) && taken.at - again.at >= Duration::from_millis(500));
    for request in [&away, &taken, &later] {
        assert_eq!(request.line, "POST /v1/metrics HTTP/1.1");
        assert!(request.headers.iter().any(|line| line == "content-type: application/json"), "{:?}", request.headers);
    }
    let attributes = taken.body["resourceMetrics"][0]["resource"]["attributes"].as_array().unwrap();
    let instance = attributes.iter().find(|attribute| attribute["key"] == "service.instance.id").unwrap();
    assert_eq!(instance["value"]["stringValue"], scratch.name.as_str());
    assert!(attributes.iter().any(|attribute| attribute["key"] == "host.name"));
    let metrics = metrics(&taken.body);
    let histogram = &metrics["retrial_mutex_wait_duration_seconds"]["histogram"]["dataPoints"][0];
    assert_eq!((&histogram["count"], &histogram["attributes"][0]["value"]["stringValue"]), (&"3".into(), &"m".into()));
    assert_eq!(metrics["retrial_mutex_waits"]["sum"]["dataPoints"][0]["asDouble"], 3.0);
    // The same families as over HTTP, each with as many points as it has series there.
    let text = scratch.run(&["export", "--once"]);
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let name = name.strip_suffix("_total").or_else(|| name.strip_suffix("_info")).unwrap_or(name);
        let kind = if kind == "counter" { "sum" } else { kind };
        let points = metrics[name][kind]["dataPoints"].as_array().unwrap().len();
        let of_family = |line: &&str| {
            let rest = line.strip_prefix(name).unwrap_or("#");
            ["{", " ", "_total{", "_total ", "_info{", "_count{"].iter().any(|end| rest.starts_with(end))
        };
        assert_eq!(points, text.lines().filter(of_family).count(), "{name}");
    }
}

#[test]
fn a_receiver_that_is_away_is_said_to_be_once_and_to_be_back() {
    let scratch = waited();
    let (url, requests, _) =
        receiver(&[AWAY, AWAY, AWAY, TAKEN, TAKEN, "429 Too Many Requests\r\nRetry-After: 0\r\n\r\n", TAKEN]);
    let export = scratch.start(&["export", "--otlp", &url, "--interval", "100ms"]);
    for _ in 0..8 {
        requests.recv_timeout(Duration::from_mins(1)).unwrap();
    }
    let said = export.die_of(libc::SIGTERM);
    let said: Vec<&str> = said.lines().map(|line| line.strip_prefix(&format!("{url}/v1/metrics: ")).unwrap()).collect();
    let [away, back, hurried, again] = said[..] else { panic!("{said:?}") };
    assert_eq!(away, "it answers 503; it is asked again until it takes them");
    assert_eq!(hurried, "it answers 429; it is asked again until it takes them");
    assert!(back.starts_with("taken again, after ") && again.starts_with("taken again, after "), "{said:?}");
}

#[test]
fn a_receiver_that_refuses_is_said_to_have() {
    let scratch = waited();
    let (url, _requests, _) = receiver(&["404 Not Found\r\n\r\nno such page"]);
    let said = scratch.fail(&["export", "--otlp", &url]);
    assert!(said.contains("it answers 404 (no such page)") && said.contains("expected a receiver"), "{said}");
    let partial = "200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedDataPoints\":\"2\",\"errorMessage\":\"too old\"}}";
    let (url, requests, _) = receiver(Vec::leak(vec![partial]));
    let said = scratch.fail(&["export", "--otlp", &format!("{url}/own/path"), "--once"]);
    assert!(said.contains("it refuses 2 points (too old)"), "{said}");
    assert_eq!(requests.recv().unwrap().line, "POST /own/path HTTP/1.1");
    let (url, requests, _) = receiver(&[TAKEN]);
    scratch.run(&["export", "--otlp", &url, "--once"]);
    assert!(metrics(&requests.recv().unwrap().body).contains_key("retrial_sessions"));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = scratch.fail(&["export", "--otlp", &format!("http://{nobody}"), "--once"]);
    assert!(said.contains(&nobody.to_string()) && said.contains("onnection refused"), "{said}");
    let said = scratch.fail(&["export", "--otlp", "https://x:4318"]);
    assert!(said.contains("expected a URL that begins with http://"), "{said}");
}

#[test]
fn an_instance_may_go_and_come_back() {
    let scratch = waited();
    let (url, requests, _) = receiver(&[TAKEN]);
    let export = scratch.start(&["export", "--otlp", &url, "--interval", "100ms"]);
    let created = |request: &Request| {
        metrics(&request.body)["retrial_alerts"]["sum"]["dataPoints"][0]["startTimeUnixNano"].clone()
    };
    let first = created(&requests.recv_timeout(Duration::from_mins(1)).unwrap());
    std::fs::remove_file(scratch.path()).unwrap();
    let create = kit::command(&["create", &scratch.name, "--sessions", "4", "--mutexes", "16"]).output().unwrap();
    assert!(create.status.success());
    until("the one that came back", || created(&requests.recv_timeout(Duration::from_mins(1)).unwrap()) != first);
    export.die_of(libc::SIGINT);
}
