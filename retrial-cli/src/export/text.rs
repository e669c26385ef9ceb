//! The text formats of Prometheus: `OpenMetrics` 1.0, and the older one, which `promtool` and node exporter's
//! text files have.
//!
//! Written here because crates have the one or the other: prometheus-client has no older one, and a family in
//! both is some lines.

use crate::output::printable;
use retrial::views::{BUCKETS, Histogram};
use std::borrow::Cow;
use std::fmt::Write;

/// Of a family: what its numbers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Counter,
    Gauge,
    /// A gauge that is 1 and has its news in the labels.
    Info,
    /// Lengths, in buckets.
    Histogram,
}

/// Metrics of one name.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    /// Without the suffix of its kind; with its unit at the end.
    pub name: Cow<'static, str>,
    pub kind: Kind,
    /// Empty for a number without one.
    pub unit: &'static str,
    pub help: &'static str,
    pub samples: Vec<Sample>,
}

/// One metric.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    pub labels: Labels,
    pub value: Value,
}

/// Names and values.
pub type Labels = Vec<(&'static str, String)>;

/// What a metric says.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Number(f64),
    /// How many lengths are how long, and their sum in s.
    Lengths(Box<Histogram>, f64),
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// Ends of the buckets of a histogram in s; the last one has none.
pub fn ends_s() -> impl Iterator<Item = f64> {
    (0..BUCKETS).map_while(Histogram::end_us).map(|end_us| end_us as f64 / 1e6)
}

/// Which of the formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    OpenMetrics,
    Text,
}

impl Format {
    /// What a client takes, by its `Accept`.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Text }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Families as text. Those without samples are left out.
pub fn render(families: &[Family], format: Format) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let suffix = match family.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
            Kind::Info => "_info",
        };
        // The older format knows samples' names only.
        let head = if format == Format::Text { format!("{}{suffix}", family.name) } else { family.name.to_string() };
        let kind = match (family.kind, format) {
            (Kind::Counter, _) => "counter",
            (Kind::Histogram, _) => "histogram",
            (Kind::Info, Format::OpenMetrics) => "info",
            (Kind::Gauge | Kind::Info, _) => "gauge",
        };
        let _ = writeln!(text, "# TYPE {head} {kind}");
        if !family.unit.is_empty() && format == Format::OpenMetrics {
            let _ = writeln!(text, "# UNIT {head} {}", family.unit);
        }
        let _ = writeln!(text, "# HELP {head} {}", escaped(family.help, format == Format::OpenMetrics));
        for sample in &family.samples {
            let name = &family.name;
            match &sample.value {
                Value::Number(value) => {
                    let _ = writeln!(text, "{name}{suffix}{} {value}", labels(&sample.labels));
                }
                Value::Lengths(lengths, sum_s) => text += &buckets(name, &sample.labels, lengths, *sum_s),
            }
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// The lines of a histogram: each bucket with all shorter ones, the sum and the count.
fn buckets(name: &str, of: &Labels, lengths: &Histogram, sum_s: f64) -> String {
    let mut text = String::new();
    let mut so_far = 0_u64;
    // OpenMetrics wants a number in the form of a float there.
    let ends = ends_s().map(|end_s| format!("{end_s:?}")).chain(["+Inf".to_owned()]);
    for (end, count) in ends.zip(lengths.0) {
        so_far = so_far.wrapping_add(count);
        let within = [of.clone(), vec![("le", end)]].concat();
        let _ = writeln!(text, "{name}_bucket{} {so_far}", labels(&within));
    }
    let _ = writeln!(text, "{name}_sum{0} {sum_s}\n{name}_count{0} {so_far}", labels(of));
    text
}

fn labels(labels: &[(&'static str, String)]) -> String {
    let each = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)));
    let all = each.collect::<Vec<_>>().join(",");
    if all.is_empty() { all } else { format!("{{{all}}}") }
}

fn escaped(text: &str, quotes: bool) -> String {
    // An end of a line has a form of its own, and what a terminal would obey has none.
    let text = printable(&text.replace('\\', "\\\\").replace('\n', "\\n")).into_owned();
    if quotes { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> Vec<Family> {
        let sample = |name: &str, value: f64| Sample { labels: vec![("mutex", name.to_owned())], value: value.into() };
        let samples = vec![sample("a \"b\"\\\n", 1.5), sample("other", 3e-9)];
        vec![
            Family { name: "x_wait_seconds".into(), kind: Kind::Counter, unit: "seconds", help: "Time.", samples },
            Family { name: "x_none".into(), kind: Kind::Gauge, unit: "", help: "Nothing.", samples: Vec::new() },
            Family {
                name: "x".into(),
                kind: Kind::Info,
                unit: "",
                help: "A \"name\".",
                samples: vec![Sample { labels: Vec::new(), value: 1.0.into() }],
            },
        ]
    }

    #[test]
    fn open_metrics_has_type_unit_help_and_an_end() {
        let expected = "# TYPE x_wait_seconds counter\n# UNIT x_wait_seconds seconds\n# HELP x_wait_seconds Time.\n\
            x_wait_seconds_total{mutex=\"a \\\"b\\\"\\\\\\n\"} 1.5\nx_wait_seconds_total{mutex=\"other\"} 0.000000003\n\
            # TYPE x info\n# HELP x A \\\"name\\\".\nx_info 1\n# EOF\n";
        assert_eq!(render(&families(), Format::OpenMetrics), expected);
    }

    #[test]
    fn the_older_format_has_the_names_of_the_samples_and_no_units() {
        let text = render(&families(), Format::Text);
        assert!(text.starts_with("# TYPE x_wait_seconds_total counter\n# HELP x_wait_seconds_total Time.\n"), "{text}");
        assert!(text.contains("# TYPE x_info gauge\n# HELP x_info A \"name\".\nx_info 1\n"), "{text}");
        assert!(!text.contains("EOF") && !text.contains("UNIT"), "{text}");
    }

    #[test]
    fn a_histogram_counts_up_to_all() {
        let mut lengths = Histogram::default();
        lengths.count(3_000, 5);
        lengths.count(u64::MAX, 2);
        let samples =
            vec![Sample { labels: vec![("mutex", "m".to_owned())], value: Value::Lengths(Box::new(lengths), 1.5) }];
        let family =
            Family { name: "x_seconds".into(), kind: Kind::Histogram, unit: "seconds", help: "Time.", samples };
        let text = render(&[family], Format::OpenMetrics);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3 + BUCKETS + 2 + 1, "{text}");
        assert_eq!(lines[0], "# TYPE x_seconds histogram");
        assert_eq!(lines[3], "x_seconds_bucket{mutex=\"m\",le=\"1e-6\"} 0");
        assert_eq!(lines[5], "x_seconds_bucket{mutex=\"m\",le=\"4e-6\"} 5");
        assert_eq!(lines[32], "x_seconds_bucket{mutex=\"m\",le=\"536.870912\"} 5");
        let last = [
            "x_seconds_bucket{mutex=\"m\",le=\"+Inf\"} 7",
            "x_seconds_sum{mutex=\"m\"} 1.5",
            "x_seconds_count{mutex=\"m\"} 7",
            "# EOF",
        ];
        assert_eq!(lines[33..], last);
    }

    #[test]
    fn a_client_that_takes_open_metrics_has_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        assert_eq!(Format::accepted("*/*"), Format::Text);
    }
}
