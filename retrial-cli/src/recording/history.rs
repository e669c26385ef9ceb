//! The columns of the samples of who held and who waited, as data: the view of the sources, what `retrial
//! ash` groups by, and what describes both come from this list.

use super::store::schema::Kind;

/// A column of the samples.
#[derive(Debug)]
pub struct Column {
    /// Its name in `v$active_session_history`.
    pub name: &'static str,
    /// Its name in `ash`, and for `retrial ash --by`.
    pub short: &'static str,
    pub kind: Kind,
    /// Empty for a number without one, and for texts.
    pub unit: &'static str,
    /// Its cell, of a row of the table `sample`.
    pub expression: &'static str,
    pub doc: &'static str,
    /// Whether samples are grouped by it, rather than added up.
    pub is_group: bool,
}

const fn group([name, short]: [&'static str; 2], kind: Kind, expression: &'static str, doc: &'static str) -> Column {
    Column { name, short, kind, unit: "", expression, doc, is_group: true }
}

const SECOND: &str = "substr(utc(at_ns), 1, 19)";
const MODE: &str = "CASE for_event WHEN 1 THEN NULL ELSE mode END";
const CLASS: &str = "CASE for_event WHEN 0 THEN 'Concurrency' WHEN 1 THEN 'Event' END";
const NAME: &str = "mutex_name(sample.instance, mutex)";
const EVENT: &str = "event_name(sample.instance, mutex, mode, on_x, for_event)";
const PLACE: &str = "location_name(sample.instance, location)";
const HOLDER_PLACE: &str = "location_name(sample.instance, blocker_location)";

/// Every column.
pub static COLUMNS: &[Column] = &[
    group(["instance", "instance"], Kind::Text, "instance_name(sample.instance)", "The instance"),
    Column {
        is_group: false,
        ..group(["sample_time", "time"], Kind::Text, "utc(at_ns)", "When the first of them was taken, in UTC")
    },
    Column {
        is_group: false,
        unit: "ns",
        ..group(["at_ns", "at_ns"], Kind::Integer, "at_ns", "The same moment, by the real-time clock")
    },
    group(["sample_second", "second"], Kind::Text, SECOND, "The second of that moment"),
    group(["sid", "session"], Kind::Integer, "sid", "The session"),
    group(["session_state", "state"], Kind::Text, "state", "holds or waits"),
    Column {
        is_group: false,
        ..group(["samples", "samples"], Kind::Integer, "count", "Samples in a row that said the same")
    },
    Column {
        is_group: false,
        unit: "s",
        ..group(["time_s", "time_s"], Kind::Real, "length_ns / 1e9", "Time that they stand for")
    },
    group(["mutex", "mutex_id"], Kind::Integer, "mutex", "Number of the mutex"),
    group(["name", "mutex"], Kind::Text, NAME, "What it is called"),
    group(["mutex_type", "type"], Kind::Text, "mutex_type(sample.instance, mutex)", "Its type"),
    group(["mode", "mode"], Kind::Text, MODE, "Held, or asked for; null for an event"),
    group(["location", "location"], Kind::Text, PLACE, "Where in the code it was got, or is waited for"),
    group(["action", "action"], Kind::Text, "nullif(action, '')", "What the session said it was at"),
    group(["step", "step"], Kind::Text, "step", "Of a wait: spin, yield, sleep or park"),
    group(
        ["blocking_session", "blocker"],
        Kind::Integer,
        "nullif(blocker, 0)",
        "Of a wait: the session that held the mutex, or one of them",
    ),
    group(
        ["blocking_location", "holder_location"],
        Kind::Text,
        HOLDER_PLACE,
        "Of a wait: where that session had got the mutex",
    ),
    group(["event", "event"], Kind::Text, EVENT, "Of a wait: its name in the source's form"),
    group(["wait_class", "class"], Kind::Text, CLASS, "Of a wait: for a mutex, or for an event that nobody can hold"),
];
