//! `show mutexes`, `events`, `sleeps` and `history`: sums over the sessions' figures.

use super::Only;
use crate::output::{Table, column, counter, measure};
use crate::recording::{Mutex, Period, Snapshot, wait_class};
use retrial::views::{Counter, Key, LocationId, PastSleep, TypeId, WaitEvent};
use retrial_model::{Measure, Profile};
use std::cmp::Reverse;

/// Mutexes with what was counted of each, most waited for first.
pub fn mutexes(to: &Snapshot, only: &Only) -> Table {
    type Row<'s> = (&'s Mutex, Profile);
    let mut rows: Vec<Row<'_>> = Period::since_creation(to).mutexes();
    rows.retain(|(Mutex { info, .. }, _)| {
        only.mutex.is_none_or(|id| id == info.id) && only.mutex_type.is_none_or(|id| id == info.mutex_type)
    });
    rows.sort_by_key(|(_, profile)| {
        Reverse((profile.figures.get(Counter::WaitNs), profile.figures.get(Counter::Misses), profile.gets))
    });
    let of = |row: &Row<'_>, measure: Measure| measure.of(&row.1);
    let columns = [
        column("id", |row: &Row<'_>| row.0.info.id.0),
        column("name", |row: &Row<'_>| row.0.name.clone()),
        column("type", |row: &Row<'_>| to.type_name(row.0.info.mutex_type).to_owned()),
        column("scheme", |row: &Row<'_>| to.scheme(row.0)),
        column("word", |row: &Row<'_>| row.0.word.clone()),
        column("gets", |row: &Row<'_>| row.1.gets),
        counter(Counter::Misses, |row: &Row<'_>| &row.1),
        column("sleeps", |row: &Row<'_>| row.1.figures.sleeps()),
        counter(Counter::Waits, |row: &Row<'_>| &row.1),
        measure(Measure::Registered, "ms", of).named("wait_ms"),
        measure(Measure::MissRatio, "", of),
        measure(Measure::SleepRatio, "", of),
        measure(Measure::SpinInefficiency, "", of),
        column("poisoned", |row: &Row<'_>| row.0.is_poisoned),
        column("last_death", |row: &Row<'_>| {
            let death = row.0.info.death.as_ref()?;
            Some(format!("session {} in {} at {}", death.sid, death.mode, to.place(death.location)))
        }),
    ];
    Table::of(&columns, rows)
}

/// System events: each wait once, with the parts that its time adds up from; waits for mutexes, then
/// waits for events, which have no holder.
pub fn events(to: &Snapshot) -> Table {
    type Row = ((Option<TypeId>, WaitEvent), Profile);
    let period = Period::since_creation(to);
    let by = |_, key: Key| Some((to.type_of(key.mutex), key.event));
    let mut rows: Vec<Row> = period.of(by).into_iter().collect();
    rows.sort_by(|(_, a), (_, b)| b.registered_s().total_cmp(&a.registered_s()));
    let all_s: f64 = rows.iter().map(|(_, profile)| profile.registered_s()).sum();
    let mut awaited: Vec<Row> = period.of_events(by).into_iter().collect();
    awaited.sort_by(|(_, a), (_, b)| b.registered_s().total_cmp(&a.registered_s()));
    rows.append(&mut awaited);
    let of = |row: &Row, measure: Measure| measure.of(&row.1);
    let share = |((_, event), profile): &Row| {
        // A share of contention: a wait for an event, such as for work, is none.
        (all_s > 0.0 && !event.for_event).then(|| 100.0 * profile.registered_s() / all_s)
    };
    let columns = [
        column("event", |((mutex_type, event), _): &Row| event.name(to.maybe_type(*mutex_type))).titled("Event"),
        counter(Counter::Waits, |row: &Row| &row.1).titled("Waits"),
        measure(Measure::Registered, "s", of).named("time_s").titled("Time(s)"),
        measure(Measure::RegisteredMean, "ms", of).named("avg_ms").titled("Avg wait (ms)"),
        column("pct_time", share).titled("% time"),
        measure(Measure::SpinShare, "pct", of).named("spin_pct").titled("% spin"),
        measure(Measure::YieldShare, "pct", of).named("yield_pct").titled("% yield"),
        measure(Measure::SleptShare, "pct", of).named("slept_pct").titled("% slept"),
        measure(Measure::OverShare, "pct", of).named("over_pct").titled("% over"),
        measure(Measure::RegisteredMax, "ms", of).named("max_ms").titled("Max (ms)"),
        column("wait_class", |row: &Row| wait_class(row.0.1)).titled("Wait Class"),
    ];
    Table::of(&columns, rows)
}

/// Mutex sleeps of a period by type and location, or of one type, most first.
pub fn sleeps(period: Period<'_>, only: Option<TypeId>) -> Table {
    type Row = ((Option<TypeId>, LocationId), Profile);
    let to = period.to;
    let slept = period.of(|_, key| {
        let mutex_type = to.type_of(key.mutex);
        only.is_none_or(|id| mutex_type == Some(id)).then_some((mutex_type, key.location))
    });
    let mut rows: Vec<Row> = slept.into_iter().filter(|(_, profile)| profile.figures.sleeps() > 0).collect();
    rows.sort_by_key(|(_, profile)| Reverse(profile.figures.sleeps()));
    let columns = [
        column("mutex_type", |row: &Row| to.maybe_type(row.0.0).to_owned()).titled("Mutex Type"),
        column("location", |row: &Row| to.place(row.0.1).to_owned()).titled("Location"),
        column("sleeps", |row: &Row| row.1.figures.sleeps()).titled("Sleeps"),
        measure(Measure::Registered, "ms", |row: &Row, measure| measure.of(&row.1))
            .named("wait_time_ms")
            .titled("Wait Time (ms)"),
    ];
    Table::of(&columns, rows)
}

/// The last sleep for each pair of mutex and blocking session, latest first.
pub fn history(to: &Snapshot) -> Table {
    let mut rows = to.history.clone();
    rows.sort_by_key(|past| Reverse(past.at_ns));
    let columns = [
        column("ago_s", |past: &PastSleep| to.at.monotonic_ns.saturating_sub(past.at_ns) as f64 / 1e9),
        column("mutex_type", |past: &PastSleep| to.type_name_of(past.mutex).to_owned()),
        column("mutex", |past: &PastSleep| to.mutex_label(past.mutex)),
        column("gets", |past: &PastSleep| past.gets),
        column("sleeps", |past: &PastSleep| past.sleeps),
        column("requesting_session", |past: &PastSleep| past.waiter.number()),
        column("blocking_session", |past: &PastSleep| past.blocker.number()),
        column("mode", |past: &PastSleep| past.mode.name()),
        column("location", |past: &PastSleep| to.place(past.location).to_owned()),
    ];
    Table::of(&columns, rows)
}
