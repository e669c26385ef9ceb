//! The metrics pushed to an `OpenTelemetry` receiver: OTLP over HTTP, in JSON.
//!
//! Sums are cumulative since the instance was created, so a push that did not arrive loses no count: the next
//! try is of the figures as they are then.

use super::serve::Source;
use super::text::{Family, Kind, Labels, Value, ends_s};
use crate::instances::Which;
use crate::output::{Format, counted};
use crate::recording::{Snapshot, host};
use crate::signals;
use miette::{Report, miette};
use retrial::Observer;
use serde_json::{Value as Json, json};
use std::time::{Duration, Instant};
use ureq::Agent;

/// Time for a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Back-off after the first push that is to be repeated, and the longest one.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];
/// Tries where one push is asked for.
const TRIES: u32 = 5;
/// How often a signal is looked for.
const PAUSE: Duration = Duration::from_millis(50);
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u32 = 2;

/// Where to push, and how often.
pub struct Push {
    agent: Agent,
    url: String,
    every: Duration,
    is_once: bool,
}

/// What became of a push.
enum Sent {
    Taken,
    /// To be repeated, after so long if the receiver says it; and why.
    Later(Option<Duration>, String),
}

impl Push {
    /// To this URL; one without a path gets that of OTLP.
    pub fn new(url: &str, every: Duration, is_once: bool) -> Result<Self, Report> {
        let Some(rest) = url.strip_prefix("http://").filter(|rest| !rest.is_empty()) else {
            return Err(miette!(
                code = "retrial::export::otlp",
                help = "retrial export --otlp http://127.0.0.1:4318",
                "--otlp {url}, expected a URL that begins with http://; a collector on this machine passes it on by TLS"
            ));
        };
        let has_path = rest.split_once('/').is_some_and(|(_, path)| !path.is_empty());
        let url = if has_path { url.to_owned() } else { format!("{}/v1/metrics", url.trim_end_matches('/')) };
        let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(TIMEOUT));
        Ok(Self { agent: config.build().into(), url, every, is_once })
    }

    /// Pushes until a signal. When the instance goes, nothing is pushed until it is there again.
    pub fn serve(&self, which: &Which, observer: Observer, most: usize, format: Format) -> Result<(), Report> {
        let mut observer = Some(observer);
        while signals::received().is_none() {
            if let Some(observer) = &observer {
                let mut source = Source::new(observer, most);
                while source.is_there() && signals::received().is_none() {
                    self.push(&mut source, format)?;
                    if self.is_once {
                        return Ok(());
                    }
                    pass(self.every);
                }
            } else {
                pass(self.every);
            }
            observer = which.observe().ok();
        }
        Ok(())
    }

    /// Pushes once, however often it takes.
    fn push(&self, source: &mut Source<'_>, format: Format) -> Result<(), Report> {
        let (mut back_off, mut told, began) = (BACK_OFF[0], None, Instant::now());
        for tries in 1_u32.. {
            let (families, now) = source.look();
            let body = request(families, now).to_string();
            let (wait, why) = match self.send(&body)? {
                Sent::Taken => {
                    if told.is_some() {
                        let after = crate::duration::text(began.elapsed());
                        format.say(&format!("{}: taken again, after {after}", self.url));
                    }
                    return Ok(());
                }
                Sent::Later(wait, why) => (wait, why),
            };
            if self.is_once && tries == TRIES {
                return Err(self.refused(&format!("{why}, {TRIES} times")));
            }
            let wait = wait.unwrap_or(back_off);
            // Once: a receiver may be away for days.
            if told.as_ref() != Some(&why) {
                format.say(&format!("{}: {why}; it is asked again until it takes them", self.url));
                told = Some(why);
            }
            pass(wait);
            if signals::received().is_some() {
                return Ok(());
            }
            back_off = (2 * back_off).min(BACK_OFF[1]);
        }
        Ok(())
    }

    fn send(&self, body: &str) -> Result<Sent, Report> {
        let mut answer = match self.agent.post(&self.url).header("Content-Type", "application/json").send(body) {
            Ok(answer) => answer,
            // A receiver that is not there may come, but not for a single push.
            Err(error) if self.is_once => return Err(self.refused(&error.to_string())),
            Err(error) => return Ok(Sent::Later(None, error.to_string())),
        };
        let status = answer.status().as_u16();
        let wait = answer.headers().get("Retry-After").and_then(|wait| wait.to_str().ok()?.parse().ok());
        let text = answer.body_mut().read_to_string().unwrap_or_default();
        match status {
            200..=299 => self.taken(&text),
            // Those that the protocol says are to be repeated.
            429 | 502..=504 => Ok(Sent::Later(wait.map(Duration::from_secs), format!("it answers {status}"))),
            _ => Err(self.refused(&format!("it answers {status}{}", said(&text)))),
        }
    }

    /// A success may leave out points.
    fn taken(&self, text: &str) -> Result<Sent, Report> {
        let answer: Json = serde_json::from_str(text).unwrap_or_default();
        let partial = &answer["partialSuccess"];
        // An int64 is a string in this JSON; some write a number.
        let rejected = &partial["rejectedDataPoints"];
        let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0);
        if rejected == 0 {
            return Ok(Sent::Taken);
        }
        let why = partial["errorMessage"].as_str().unwrap_or_default();
        Err(self.refused(&format!("it refuses {}{}", counted(rejected, "point", "points"), said(why))))
    }

    fn refused(&self, found: &str) -> Report {
        miette!(
            code = "retrial::export::otlp",
            help = "retrial export --otlp http://127.0.0.1:4318, where an OpenTelemetry collector takes OTLP over HTTP",
            "{}: {found}; expected a receiver that takes OTLP metrics as JSON",
            self.url
        )
    }
}

/// What a receiver said, if anything, in one line of bounded length.
fn said(text: &str) -> String {
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect();
    if text.is_empty() { text } else { format!(" ({text})") }
}

/// Lets the time pass, or until a signal.
fn pass(time: Duration) {
    let end = Instant::now() + time;
    while signals::received().is_none() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(PAUSE));
    }
}

/// An `ExportMetricsServiceRequest` with all families.
fn request(families: &[Family], now: &Snapshot) -> Json {
    let times = Times { start: now.instance.created_ns.to_string(), at: now.at.real_ns.to_string() };
    let metrics: Vec<Json> =
        families.iter().filter(|family| !family.samples.is_empty()).map(|family| metric(family, &times)).collect();
    let resource: Labels = vec![
        ("service.name", "retrial".to_owned()),
        ("service.instance.id", now.instance.name.clone()),
        ("host.name", host()),
    ];
    let scope = json!({ "name": "retrial", "version": env!("CARGO_PKG_VERSION") });
    json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes(&resource) },
        "scopeMetrics": [{ "scope": scope, "metrics": metrics }],
    }] })
}

/// Begin of what is counted, and now, in ns as OTLP has 64-bit numbers in JSON.
struct Times {
    start: String,
    at: String,
}

fn metric(family: &Family, times: &Times) -> Json {
    let is_gauge = matches!(family.kind, Kind::Gauge | Kind::Info);
    let points: Vec<Json> = family
        .samples
        .iter()
        .map(|sample| {
            let mut point = match &sample.value {
                Value::Number(value) => json!({ "asDouble": value }),
                Value::Lengths(lengths, sum_s) => json!({
                    "count": lengths.total().to_string(),
                    "sum": sum_s,
                    "bucketCounts": lengths.0.map(|count| count.to_string()),
                    "explicitBounds": ends_s().collect::<Vec<_>>(),
                }),
            };
            point["attributes"] = attributes(&sample.labels);
            point["timeUnixNano"] = times.at.as_str().into();
            if !is_gauge {
                point["startTimeUnixNano"] = times.start.as_str().into();
            }
            point
        })
        .collect();
    let (kind, data) = match family.kind {
        Kind::Gauge | Kind::Info => ("gauge", json!({ "dataPoints": points })),
        Kind::Counter => {
            ("sum", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true }))
        }
        Kind::Histogram => ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE })),
    };
    let unit = if family.unit == "seconds" { "s" } else { "1" };
    json!({ "name": family.name, "description": family.help, "unit": unit, kind: data })
}

fn attributes(labels: &Labels) -> Json {
    labels.iter().map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } })).collect()
}
