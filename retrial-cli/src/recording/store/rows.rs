//! From a snapshot to rows; `cells.rs` has the way back.

use super::schema::Table;
use crate::recording::snapshot::{Mutex, Parameter, Session, Snapshot};
use retrial::Mode;
use retrial::views::{Figures, Key, PastSleep, SessionInfo, Sid};
use rusqlite::types::Value;
use serde_json::json;

/// A row without the snapshot, which is its first column.
pub type Row = Vec<Value>;

/// A cell of a number that uses all 64 bits.
pub fn whole(number: u64) -> Value {
    Value::Integer(number.cast_signed())
}

pub fn int(number: impl Into<i64>) -> Value {
    Value::Integer(number.into())
}

pub fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

pub fn maybe(cell: Option<Value>) -> Value {
    cell.unwrap_or(Value::Null)
}

/// The rows of a table of a state.
pub fn of(table: &Table, snapshot: &Snapshot) -> Vec<Row> {
    match table.name {
        "session" => snapshot.sessions.iter().map(|session| of_session(&session.info)).collect(),
        "session_state" => snapshot.sessions.iter().map(of_session_state).collect(),
        "wait" => snapshot.rows.iter().map(of_wait).collect(),
        "mutex" => snapshot.mutexes.iter().map(of_mutex).collect(),
        "mutex_state" => snapshot.mutexes.iter().map(of_mutex_state).collect(),
        "parameter" => snapshot.params.iter().map(of_parameter).collect(),
        "type" => snapshot.types.iter().map(|(id, name)| vec![int(id.0), text(name)]).collect(),
        "location" => snapshot.places.iter().map(|(id, name)| vec![int(id.0), text(name)]).collect(),
        "sleep" => snapshot.history.iter().map(of_sleep).collect(),
        other => unreachable!("table `{other}` is no state"),
    }
}

fn of_session(info: &SessionInfo) -> Row {
    vec![
        int(info.sid.number()),
        whole(info.claimed_ns),
        int(info.pid),
        int(info.tid),
        text(&info.name),
        int(info.high_priority),
    ]
}

fn of_session_state(session: &Session) -> Row {
    let holds: Vec<_> = session
        .holds
        .iter()
        .map(|held| json!([held.mutex.0, held.mode.name(), held.location.map(|at| at.0)]))
        .collect();
    let blockers: Vec<_> =
        session.blockers.iter().map(|(sid, mode)| json!([sid.number(), mode.map(Mode::name)])).collect();
    let wait = session.info.wait;
    vec![
        int(session.info.sid.number()),
        text(session.state.name()),
        text(&session.info.action),
        int(session.info.kept),
        whole(session.gets),
        text(json!(holds).to_string()),
        text(json!(blockers).to_string()),
        maybe(session.info.step.map(text)),
        maybe(wait.map(|(key, ..)| int(key.mutex.0))),
        maybe(wait.map(|(key, ..)| text(key.event.mode.name()))),
        maybe(wait.map(|(key, ..)| int(key.location.0))),
        maybe(wait.map(|(key, ..)| int(key.event.on_x))),
        maybe(wait.map(|(key, ..)| int(key.event.for_event))),
        maybe(wait.map(|(_, since_ns, _)| whole(since_ns))),
        maybe(wait.map(|(.., blocker)| int(blocker.number()))),
        whole(session.info.first_run),
        whole(session.info.last_run),
        maybe(session.spent.map(|spent| whole(spent.cpu_ns))),
        maybe(session.spent.map(|spent| whole(spent.queued_ns))),
    ]
}

fn of_wait((sid, key, figures): &(Sid, Key, Figures)) -> Row {
    let mut row = vec![
        int(sid.number()),
        int(key.mutex.0),
        int(key.location.0),
        text(key.event.mode.name()),
        int(key.event.on_x),
        int(key.event.for_event),
    ];
    row.extend(figures.counters.iter().map(|count| whole(*count)));
    let buckets = figures.lengths.0;
    let filled = buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    row.push(text(json!(buckets[..filled]).to_string()));
    row
}

fn of_mutex(mutex: &Mutex) -> Row {
    let info = &mutex.info;
    vec![
        int(info.id.0),
        int(info.mutex_type.0),
        text(&mutex.name),
        text(&info.name),
        int(info.place as u32),
        whole(info.address),
        int(info.pid),
        int(mutex.is_event),
    ]
}

fn of_mutex_state(mutex: &Mutex) -> Row {
    let (info, samples) = (&mutex.info, &mutex.samples);
    let holders: Vec<_> = mutex.holders.iter().map(|(sid, mode)| json!([sid.number(), mode.name()])).collect();
    let death = info.death.as_ref();
    vec![
        int(info.id.0),
        maybe(mutex.gets.map(whole)),
        maybe(info.gets.map(whole)),
        text(&mutex.word),
        int(mutex.is_poisoned),
        maybe(mutex.parked.map(int)),
        text(json!(holders).to_string()),
        int(info.pthread_in_use),
        whole(info.switches),
        int(info.one_alone),
        maybe(death.map(|death| int(death.sid.number()))),
        maybe(death.map(|death| text(death.mode.name()))),
        maybe(death.map(|death| int(death.location.0))),
        whole(samples.looks),
        whole(samples.held),
        Value::Real(samples.time_s),
        Value::Real(samples.held_s),
        whole(samples.gets),
    ]
}

fn of_parameter(parameter: &Parameter) -> Row {
    vec![
        int(parameter.of.map_or(-1, |mutex_type| i64::from(mutex_type.0))),
        text(parameter.parameter.row().name),
        whole(parameter.value),
        int(parameter.is_set),
    ]
}

fn of_sleep(past: &PastSleep) -> Row {
    vec![
        int(past.mutex.0),
        int(past.blocker.number()),
        int(past.waiter.number()),
        whole(past.at_ns),
        int(past.location.0),
        text(past.mode.name()),
        whole(past.sleeps),
        whole(past.gets),
    ]
}
