//! `show mutexes`, `events`, `sleeps` and `history`: sums over the sessions' figures.

use super::Only;
use crate::output::Table;
use retrial::sys::{Clock, clock_ns, now_ns};
use retrial::views::{Counter, Derived, Figures, Key, MutexInfo, TypeId, WaitEvent, Word};
use retrial::wait::ADAPTIVE;
use retrial::{MutexId, Observer, P};
use serde_json::Value;
use std::collections::BTreeMap;

/// Sums of the figures by whatever a view is by.
fn sums<K: Ord>(observer: &Observer, by: impl Fn(Key) -> Option<K>) -> BTreeMap<K, Figures> {
    let mut sums: BTreeMap<K, Figures> = BTreeMap::new();
    for (_, key, figures) in observer.figures() {
        if let Some(key) = by(key) {
            sums.entry(key).or_default().add(&figures);
        }
    }
    sums
}

/// Type of a mutex; `None` when its row was shared by several mutexes or it is gone.
fn type_of(observer: &Observer, mutex: MutexId) -> Option<TypeId> {
    observer.mutex_info(mutex).map(|mutex| mutex.mutex_type)
}

fn type_name(observer: &Observer, mutex_type: Option<TypeId>) -> String {
    mutex_type.map_or_else(|| "unknown".to_owned(), |id| observer.type_name(id))
}

/// Time that a wait's parts add up to, also of waits under way.
fn wait_ns(figures: &Figures) -> u64 {
    [Counter::SpinNs, Counter::YieldNs, Counter::SleptNs, Counter::OverNs].map(|part| figures.get(part)).iter().sum()
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

pub fn mutexes(observer: &Observer, only: &Only) -> Table {
    let columns = [
        "id",
        "name",
        "type",
        "scheme",
        "word",
        "gets",
        "misses",
        "sleeps",
        "waits",
        "wait_ms",
        "miss_ratio",
        "sleep_ratio",
        "spin_inefficiency",
        "poisoned",
        "last_death",
    ];
    let mut titles = columns;
    (titles[10], titles[11], titles[12]) = ("ρ", "κ", "k");
    let mut table = Table::new(&columns).titled(&titles);
    let sums = sums(observer, |key| Some(key.mutex));
    let wanted = |mutex: &MutexInfo| {
        only.mutex.is_none_or(|id| id == mutex.id) && only.mutex_type.is_none_or(|id| id == mutex.mutex_type)
    };
    for mutex in observer.mutexes().into_iter().filter(wanted) {
        let figures = sums.get(&mutex.id).copied().unwrap_or_default();
        table.row(mutex_row(observer, &mutex, &figures));
    }
    table
}

fn mutex_row(observer: &Observer, mutex: &MutexInfo, figures: &Figures) -> Vec<Value> {
    let state = observer.mutex_state(mutex.id);
    // Those of a lock in a process's memory are known when it is gone.
    let gets = state.map_or(mutex.gets, |state| Some(state.gets));
    let age_s = clock_ns(Clock::Realtime).saturating_sub(observer.created_ns()) as f64 / 1e9;
    let derived = Derived::new(gets.unwrap_or(0), figures, age_s, None);
    let params = observer.params(Some(mutex.mutex_type));
    let scheme = match (params.get(P::Scheme) as usize, mutex.pthread_in_use) {
        (ADAPTIVE, false) => "ADAPTIVE (YDB)".to_owned(),
        (ADAPTIVE, true) => "ADAPTIVE (PTHREAD)".to_owned(),
        _ => P::Scheme.format(params.get(P::Scheme)),
    };
    let death =
        mutex.death.map(|d| format!("session {} in {} at {}", d.sid, d.mode, observer.location_name(d.location)));
    vec![
        mutex.id.0.into(),
        mutex.name.clone().into(),
        observer.type_name(mutex.mutex_type).into(),
        scheme.into(),
        state.map_or_else(|| "in another process".to_owned(), |state| state.word.to_string()).into(),
        gets.into(),
        figures.get(Counter::Misses).into(),
        figures.sleeps().into(),
        figures.get(Counter::Waits).into(),
        (wait_ns(figures) as f64 / 1e6).into(),
        gets.map(|_| derived.miss_ratio).into(),
        derived.sleep_ratio.into(),
        derived.spin_inefficiency.into(),
        state.is_some_and(|state| state.word.has(Word::POISONED)).into(),
        death.map_or(Value::Null, Value::from),
    ]
}

/// System events: each wait once, with the parts that its time adds up from.
pub fn events(observer: &Observer) -> Table {
    let mut table = Table::new(&[
        "event",
        "waits",
        "time_s",
        "avg_ms",
        "pct_time",
        "spin_pct",
        "yield_pct",
        "slept_pct",
        "over_pct",
        "max_ms",
        "wait_class",
    ])
    .titled(&[
        "Event",
        "Waits",
        "Time(s)",
        "Avg wait (ms)",
        "% time",
        "% spin",
        "% yield",
        "% slept",
        "% over",
        "Max (ms)",
        "Wait Class",
    ]);
    let sums = sums(observer, |key| Some((type_of(observer, key.mutex), key.event)));
    let all: u64 = sums.values().map(wait_ns).sum();
    let mut rows: Vec<(&(Option<TypeId>, WaitEvent), &Figures)> = sums.iter().collect();
    rows.sort_by_key(|(_, figures)| std::cmp::Reverse(wait_ns(figures)));
    for ((mutex_type, event), figures) in rows {
        let (waits, time) = (figures.get(Counter::Waits), wait_ns(figures));
        let part = |counter| Value::from(share(figures.get(counter), time));
        table.row(vec![
            event.name(&type_name(observer, *mutex_type)).into(),
            waits.into(),
            (time as f64 / 1e9).into(),
            if waits == 0 { Value::Null } else { (time as f64 / 1e6 / waits as f64).into() },
            share(time, all).into(),
            part(Counter::SpinNs),
            part(Counter::YieldNs),
            part(Counter::SleptNs),
            part(Counter::OverNs),
            (figures.get(Counter::MaxNs) as f64 / 1e6).into(),
            "Concurrency".into(),
        ]);
    }
    table
}

/// Mutex sleeps by type and location, most first.
pub fn sleeps(observer: &Observer, only: &Only) -> Table {
    let mut table = Table::new(&["mutex_type", "location", "sleeps", "wait_time_ms"]).titled(&[
        "Mutex Type",
        "Location",
        "Sleeps",
        "Wait Time (ms)",
    ]);
    let sums = sums(observer, |key| {
        let mutex_type = type_of(observer, key.mutex);
        only.mutex_type.is_none_or(|id| mutex_type == Some(id)).then_some((mutex_type, key.location))
    });
    let mut rows: Vec<_> = sums.into_iter().filter(|(_, figures)| figures.sleeps() > 0).collect();
    rows.sort_by_key(|(_, figures)| std::cmp::Reverse(figures.sleeps()));
    for ((mutex_type, location), figures) in rows {
        table.row(vec![
            type_name(observer, mutex_type).into(),
            observer.location_name(location).into(),
            figures.sleeps().into(),
            (wait_ns(&figures) as f64 / 1e6).into(),
        ]);
    }
    table
}

/// The last sleep for each pair of mutex and blocking session, latest first.
pub fn history(observer: &Observer) -> Table {
    let columns = [
        "ago_s",
        "mutex_type",
        "mutex",
        "gets",
        "sleeps",
        "requesting_session",
        "blocking_session",
        "mode",
        "location",
    ];
    let mut table = Table::new(&columns);
    let mut rows = observer.history();
    rows.sort_by_key(|past| std::cmp::Reverse(past.at_ns));
    for past in rows {
        table.row(vec![
            (now_ns().saturating_sub(past.at_ns) as f64 / 1e9).into(),
            type_name(observer, type_of(observer, past.mutex)).into(),
            observer.mutex_name(past.mutex).into(),
            past.gets.into(),
            past.sleeps.into(),
            past.waiter.number().into(),
            past.blocker.number().into(),
            past.mode.name().into(),
            observer.location_name(past.location).into(),
        ]);
    }
    table
}
