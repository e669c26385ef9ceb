//! `show mutexes`, `events`, `sleeps` and `history`: sums over the sessions' figures.

use super::Only;
use crate::blocking::Look;
use crate::naming::Names;
use crate::output::{Table, column, counter, measure};
use retrial::sys::now_ns;
use retrial::views::{Counter, Key, LocationId, MutexInfo, PastSleep, Tables, TypeId, WaitEvent, Word};
use retrial::{MutexId, P, wait};
use retrial_model::{Measure, Profile};
use std::cmp::Reverse;

/// Type of a mutex; `None` when its row was shared by several mutexes or it is gone.
fn type_of(observer: &Tables, mutex: MutexId) -> Option<TypeId> {
    observer.mutex_info(mutex).map(|mutex| mutex.mutex_type)
}

fn type_name(observer: &Tables, mutex_type: Option<TypeId>) -> String {
    mutex_type.map_or_else(|| "unknown".to_owned(), |id| observer.type_name(id))
}

/// Mutexes with what was counted of each, most waited for first.
pub fn mutexes(observer: &Tables, only: &Only) -> Table {
    let rows = Profile::of(observer, |_, key| Some(key.mutex));
    let (look, mut names) = (Look::at_all(observer), Names::new(observer));
    let wanted = |mutex: &MutexInfo| {
        only.mutex.is_none_or(|id| id == mutex.id) && only.mutex_type.is_none_or(|id| id == mutex.mutex_type)
    };
    let of_one = |info: MutexInfo| {
        let mut profile = Profile::of_mutex(observer, &info, rows.get(&info.id));
        let (state, read) = (observer.mutex_state(info.id), look.read.get(&info.id));
        profile.gets = look.gets(&info, profile.figures.get(Counter::SpinGets));
        let word = look.word_text(info.id);
        let flags = state.map(|state| state.word).or_else(|| read?.word);
        Mutex {
            name: names.name(&info),
            word,
            is_poisoned: flags.is_some_and(|word| word.has(Word::POISONED)),
            profile,
            info,
        }
    };
    let mut rows: Vec<Mutex> = observer.mutexes().into_iter().filter(wanted).map(of_one).collect();
    rows.sort_by_key(|row| {
        let figures = &row.profile.figures;
        Reverse((figures.get(Counter::WaitNs), figures.get(Counter::Misses), row.profile.gets))
    });
    let of = |row: &Mutex, measure: Measure| measure.of(&row.profile);
    let columns = [
        column("id", |row: &Mutex| row.info.id.0),
        column("name", |row: &Mutex| row.name.clone()),
        column("type", |row: &Mutex| observer.type_name(row.info.mutex_type)),
        column("scheme", |row: &Mutex| scheme(observer, &row.info)),
        column("word", |row: &Mutex| row.word.clone()),
        column("gets", |row: &Mutex| row.profile.gets),
        counter(Counter::Misses, |row: &Mutex| &row.profile),
        column("sleeps", |row: &Mutex| row.profile.figures.sleeps()),
        counter(Counter::Waits, |row: &Mutex| &row.profile),
        measure(Measure::Registered, "ms", of).named("wait_ms"),
        measure(Measure::MissRatio, "", of),
        measure(Measure::SleepRatio, "", of),
        measure(Measure::SpinInefficiency, "", of),
        column("poisoned", |row: &Mutex| row.is_poisoned),
        column("last_death", |row: &Mutex| {
            let death = row.info.death.as_ref()?;
            Some(format!("session {} in {} at {}", death.sid, death.mode, observer.location_name(death.location)))
        }),
    ];
    Table::of(&columns, rows)
}

/// A mutex, what its word says as far as it can be read, and what was counted of it.
struct Mutex {
    info: MutexInfo,
    name: String,
    word: String,
    is_poisoned: bool,
    profile: Profile,
}

fn scheme(observer: &Tables, mutex: &MutexInfo) -> String {
    let params = observer.params(Some(mutex.mutex_type));
    wait::shown(params.get(P::Scheme), mutex.pthread_in_use)
}

/// System events: each wait once, with the parts that its time adds up from; waits for mutexes, then
/// waits for events, which have no holder.
pub fn events(observer: &Tables) -> Table {
    type Row = ((Option<TypeId>, WaitEvent), Profile);
    let by = |_, key: Key| Some((type_of(observer, key.mutex), key.event));
    let mut rows: Vec<Row> = Profile::of(observer, by).into_iter().collect();
    rows.sort_by(|(_, a), (_, b)| b.registered_s().total_cmp(&a.registered_s()));
    let all_s: f64 = rows.iter().map(|(_, profile)| profile.registered_s()).sum();
    let mut awaited: Vec<Row> = Profile::of_events(observer, by).into_iter().collect();
    awaited.sort_by(|(_, a), (_, b)| b.registered_s().total_cmp(&a.registered_s()));
    rows.append(&mut awaited);
    let of = |row: &Row, measure: Measure| measure.of(&row.1);
    let share = |((_, event), profile): &Row| {
        // A share of contention: a wait for an event, such as for work, is none.
        (all_s > 0.0 && !event.for_event).then(|| 100.0 * profile.registered_s() / all_s)
    };
    let columns = [
        column("event", |((mutex_type, event), _): &Row| event.name(&type_name(observer, *mutex_type))).titled("Event"),
        counter(Counter::Waits, |row: &Row| &row.1).titled("Waits"),
        measure(Measure::Registered, "s", of).named("time_s").titled("Time(s)"),
        measure(Measure::RegisteredMean, "ms", of).named("avg_ms").titled("Avg wait (ms)"),
        column("pct_time", share).titled("% time"),
        measure(Measure::SpinShare, "pct", of).named("spin_pct").titled("% spin"),
        measure(Measure::YieldShare, "pct", of).named("yield_pct").titled("% yield"),
        measure(Measure::SleptShare, "pct", of).named("slept_pct").titled("% slept"),
        measure(Measure::OverShare, "pct", of).named("over_pct").titled("% over"),
        measure(Measure::RegisteredMax, "ms", of).named("max_ms").titled("Max (ms)"),
        column("wait_class", |row: &Row| if row.0.1.for_event { "Event" } else { "Concurrency" }).titled("Wait Class"),
    ];
    Table::of(&columns, rows)
}

/// Mutex sleeps by type and location, most first.
pub fn sleeps(observer: &Tables, only: &Only) -> Table {
    type Row = ((Option<TypeId>, LocationId), Profile);
    let rows = Profile::of(observer, |_, key| {
        let mutex_type = type_of(observer, key.mutex);
        only.mutex_type.is_none_or(|id| mutex_type == Some(id)).then_some((mutex_type, key.location))
    });
    let mut rows: Vec<Row> = rows.into_iter().filter(|(_, profile)| profile.figures.sleeps() > 0).collect();
    rows.sort_by_key(|(_, profile)| std::cmp::Reverse(profile.figures.sleeps()));
    let columns = [
        column("mutex_type", |row: &Row| type_name(observer, row.0.0)).titled("Mutex Type"),
        column("location", |row: &Row| observer.location_name(row.0.1)).titled("Location"),
        column("sleeps", |row: &Row| row.1.figures.sleeps()).titled("Sleeps"),
        measure(Measure::Registered, "ms", |row: &Row, measure| measure.of(&row.1))
            .named("wait_time_ms")
            .titled("Wait Time (ms)"),
    ];
    Table::of(&columns, rows)
}

/// The last sleep for each pair of mutex and blocking session, latest first.
pub fn history(observer: &Tables) -> Table {
    let mut rows = observer.history();
    rows.sort_by_key(|past| std::cmp::Reverse(past.at_ns));
    let columns = [
        column("ago_s", |past: &PastSleep| now_ns().saturating_sub(past.at_ns) as f64 / 1e9),
        column("mutex_type", |past: &PastSleep| type_name(observer, type_of(observer, past.mutex))),
        column("mutex", |past: &PastSleep| observer.mutex_name(past.mutex)),
        column("gets", |past: &PastSleep| past.gets),
        column("sleeps", |past: &PastSleep| past.sleeps),
        column("requesting_session", |past: &PastSleep| past.waiter.number()),
        column("blocking_session", |past: &PastSleep| past.blocker.number()),
        column("mode", |past: &PastSleep| past.mode.name()),
        column("location", |past: &PastSleep| observer.location_name(past.location)),
    ];
    Table::of(&columns, rows)
}
