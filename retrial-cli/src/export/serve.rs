//! The metrics over HTTP.

use super::families::Exported;
use super::text::{Family, Format, Kind, Sample, render};
use crate::instances::{Which, is_there};
use crate::recording::{Snapshot, Taker};
use crate::signals;
use miette::{Report, miette};
use retrial::Observer;
use std::io::Cursor;
use std::time::{Duration, Instant};
use tiny_http::{Header, Method, Request, Response, Server};

/// How often a signal is looked for.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for which an answer is kept for the next client, so that its cost is bounded.
const FRESH: Duration = Duration::from_millis(250);

type Answer = Response<Cursor<Vec<u8>>>;

/// Listens there.
pub fn listen(address: &str) -> Result<Server, Report> {
    Server::http(address).map_err(|error| {
        miette!(
            code = "retrial::export::listen",
            help = "retrial export --listen 127.0.0.1:0, which takes any port that is free",
            "cannot listen on {address}: {error}; expected an address of this machine and a free port"
        )
    })
}

/// Answers until a signal. When the instance goes, there are no metrics until it is there again.
pub fn serve(server: &Server, which: &Which, observer: Observer, most: usize) {
    let mut observer = Some(observer);
    while signals::received().is_none() {
        match observer.take() {
            Some(observer) => Source::new(&observer, most).answer(server),
            None => absent(server),
        }
        observer = which.observe().ok();
    }
}

/// What is needed to make metrics of an instance.
pub(super) struct Source<'o> {
    observer: &'o Observer,
    taker: Taker<'o>,
    exported: Exported,
    /// Looks so far, and what they cost.
    looks: u64,
    spent: Duration,
    last: Option<(Instant, Vec<Family>, Snapshot)>,
}

impl<'o> Source<'o> {
    pub(super) fn new(observer: &'o Observer, most: usize) -> Self {
        let taker = Taker::new(observer.tables());
        Self { observer, taker, exported: Exported::new(most), looks: 0, spent: Duration::ZERO, last: None }
    }

    /// Until a signal, or until the instance has gone.
    fn answer(&mut self, server: &Server) {
        while signals::received().is_none() {
            let Ok(Some(request)) = server.recv_timeout(PAUSE) else { continue };
            if !self.is_there() {
                return respond(request, unavailable());
            }
            let answer = match routed(&request) {
                Ok(format) => metrics(&render(self.look().0, format), format),
                Err(refusal) => refusal,
            };
            respond(request, answer);
        }
    }

    pub(super) fn is_there(&self) -> bool {
        is_there(self.observer.tables())
    }

    /// The metrics, and the snapshot that they are of.
    pub(super) fn look(&mut self) -> (&[Family], &Snapshot) {
        let last = self.last.take().filter(|(at, ..)| at.elapsed() < FRESH).unwrap_or_else(|| {
            let started = Instant::now();
            let snapshot = self.taker.snapshot();
            let mut families = self.exported.families(&snapshot);
            self.looks += 1;
            self.spent += started.elapsed();
            families.extend(self.own());
            (Instant::now(), families, snapshot)
        });
        let (_, families, snapshot) = self.last.insert(last);
        (families, snapshot)
    }

    /// What the exporter itself has cost.
    fn own(&self) -> [Family; 2] {
        let counter = |name: &'static str, unit, help, value: f64| Family {
            name: name.into(),
            kind: Kind::Counter,
            unit,
            help,
            samples: vec![Sample { labels: Vec::new(), value: value.into() }],
        };
        let spent_s = self.spent.as_secs_f64();
        [
            counter("retrial_exporter_looks", "", "Looks at the instance by this exporter.", self.looks as f64),
            counter("retrial_exporter_look_seconds", "seconds", "Time that they took.", spent_s),
        ]
    }
}

fn absent(server: &Server) {
    if let Ok(Some(request)) = server.recv_timeout(PAUSE) {
        respond(request, unavailable());
    }
}

/// The format that a request is answered in, or what else it is answered.
fn routed(request: &Request) -> Result<Format, Answer> {
    let path = request.url().split('?').next().unwrap_or_default();
    match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => {
            let accept = request.headers().iter().find(|header| header.field.equiv("Accept"));
            Ok(Format::accepted(accept.map_or("", |header| header.value.as_str())))
        }
        (Method::Get | Method::Head, _) => {
            Err(Response::from_string("metrics are at /metrics\n").with_status_code(404))
        }
        _ => Err(Response::from_string("expected GET\n").with_status_code(405)),
    }
}

fn metrics(text: &str, format: Format) -> Answer {
    let response = Response::from_string(text);
    match Header::from_bytes("Content-Type", format.content_type()) {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    }
}

fn unavailable() -> Answer {
    Response::from_string("the instance is not there\n").with_status_code(503)
}

fn respond(request: Request, answer: Answer) {
    // The client may have gone.
    let _ = request.respond(answer);
}
