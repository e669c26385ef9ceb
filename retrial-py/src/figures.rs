//! Rows for people and for data frames: lists of dicts.

use crate::errors::{Kind, raise};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use retrial::sys::now_ns;
use retrial::views::{Counter, Key, Sid, Tables};
use retrial_model::{Measure, Profile};

/// The counters and measures of a profile, by name; a measure that is not known is `None`.
fn measured(row: &Bound<'_, PyDict>, profile: &Profile) -> PyResult<()> {
    row.set_item("time", profile.time_s)?;
    row.set_item("gets", profile.gets)?;
    for (counter, name) in Counter::ALL.iter().zip(Counter::NAMES) {
        row.set_item(*name, profile.figures.get(*counter))?;
    }
    Measure::ALL.iter().try_for_each(|measure| row.set_item(measure.name(), measure.of(profile)))
}

/// What was counted since the instance was created.
pub(crate) fn figures<'py>(py: Python<'py>, tables: &Tables, by: &str) -> PyResult<Bound<'py, PyList>> {
    let rows = PyList::empty(py);
    match by {
        "mutex" => {
            let profiles = Profile::of(tables, |_, key| Some(key.mutex));
            for mutex in tables.mutexes() {
                let row = PyDict::new(py);
                row.set_item("mutex", tables.mutex_name(mutex.id))?;
                row.set_item("type", tables.type_name(mutex.mutex_type))?;
                measured(&row, &Profile::of_mutex(tables, &mutex, profiles.get(&mutex.id)))?;
                rows.append(row)?;
            }
        }
        "location" => {
            for (key, profile) in Profile::of(tables, |_, key| Some(key)) {
                let Key { mutex, location, event } = key;
                let mutex_type = tables.mutex_info(mutex).map(|info| tables.type_name(info.mutex_type));
                let row = PyDict::new(py);
                row.set_item("mutex", tables.mutex_name(mutex))?;
                row.set_item("location", tables.location_name(location))?;
                row.set_item("event", event.name(&mutex_type.unwrap_or_default()))?;
                measured(&row, &profile)?;
                rows.append(row)?;
            }
        }
        _ => return Err(raise(Kind::Invalid, format_args!("by `{by}`, expected mutex or location"))),
    }
    Ok(rows)
}

/// Every session: which it is, what it holds, what it waits for.
pub(crate) fn sessions<'py>(py: Python<'py>, tables: &Tables) -> PyResult<Bound<'py, PyList>> {
    let (rows, now_ns) = (PyList::empty(py), now_ns());
    for session in tables.sessions() {
        let waits_for = session.wait.map(|(key, _, _)| key);
        let holds = session.log.iter().filter_map(|standing| Some((standing.record.mutex, standing.holds?)));
        let holds: Vec<_> = holds.map(|(mutex, mode)| (tables.mutex_name(mutex), mode.name())).collect();
        let blocker = session.wait.map(|(_, _, sid)| sid).filter(|sid| *sid != Sid::NONE);
        let row = PyDict::new(py);
        row.set_item("sid", session.sid.number())?;
        row.set_item("pid", session.pid)?;
        row.set_item("tid", session.tid)?;
        row.set_item("name", session.name)?;
        row.set_item("action", session.action)?;
        row.set_item("dead", session.dead)?;
        row.set_item("holds", holds)?;
        row.set_item("waits_for", waits_for.map(|key| tables.mutex_name(key.mutex)))?;
        row.set_item("waits_at", waits_for.map(|key| tables.location_name(key.location)))?;
        row.set_item("waits_in", waits_for.map(|key| key.event.mode.name()))?;
        row.set_item("waits_s", session.wait.map(|(_, since_ns, _)| now_ns.saturating_sub(since_ns) as f64 / 1e9))?;
        row.set_item("blocker", blocker.map(Sid::number))?;
        rows.append(row)?;
    }
    Ok(rows)
}

/// Lines of the alert log after this number.
pub(crate) fn alerts<'py>(py: Python<'py>, tables: &Tables, after: u64) -> PyResult<Bound<'py, PyList>> {
    let rows = PyList::empty(py);
    for (number, at_ns, text) in tables.alerts(after) {
        let row = PyDict::new(py);
        row.set_item("number", number)?;
        row.set_item("time", at_ns as f64 / 1e9)?;
        row.set_item("text", text)?;
        rows.append(row)?;
    }
    Ok(rows)
}
