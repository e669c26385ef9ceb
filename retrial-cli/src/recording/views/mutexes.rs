//! Views of mutexes: what each is, who holds it, what it protects, and its sleeps.

#![allow(clippy::trivially_copy_pass_by_ref)] // cells are of any kind of row

use super::{Column, View, column, counter, measure, sleeps, text, view};
use crate::clock::time;
use crate::recording::scene::Span;
use crate::recording::snapshot::Mutex;
use retrial::views::{Counter, Key, LocationId, PastSleep, Place, Sid, TypeId};
use retrial::{Mode, MutexId};
use retrial_model::{Measure, Profile};

pub(super) fn views() -> Vec<View> {
    vec![mutex(), holder(), object(), sleep(), history(), wait(), histogram()]
}

/// A mutex by its position in the snapshot, and what was counted of it.
type Counted = (usize, Profile);

fn info<'s>(span: &'s Span, row: &Counted) -> &'s Mutex {
    &span.to.mutexes[row.0]
}

fn all(span: &Span) -> Vec<Counted> {
    let profiles = span.period().mutexes();
    // Both are in the order of the numbers, one without what nobody can hold.
    let positions =
        span.to.mutexes.iter().enumerate().filter(|(_, mutex)| !mutex.is_event).map(|(position, _)| position);
    positions.zip(profiles).map(|(position, (_, profile))| (position, profile)).collect()
}

fn mutex() -> View {
    fn of(row: &Counted) -> &Profile {
        &row.1
    }
    view(
        "v$mutex",
        "Mutexes, what was counted of each, and what follows from it",
        all,
        vec![
            column("mutex", "", "Its number", |span: &Span, row: &Counted| info(span, row).info.id.0),
            column("name", "", "What commands take it by, and what it is", |span: &Span, row: &Counted| {
                info(span, row).label()
            }),
            text("mutex_type", "Its type", |span: &Span, row: &Counted| {
                span.to.type_name(info(span, row).info.mutex_type)
            }),
            column("scheme", "", "How sessions wait for it", |span: &Span, row: &Counted| {
                span.to.scheme(info(span, row))
            }),
            text("value", "Its word", |span: &Span, row: &Counted| info(span, row).word.as_str()),
            column("holders", "", "Sessions that hold it, and their modes", |span: &Span, row: &Counted| {
                crate::blocking::text(
                    &info(span, row).holders.iter().map(|(sid, mode)| (*sid, Some(*mode))).collect::<Vec<_>>(),
                )
            }),
            column("parked", "", "Sessions parked", |span: &Span, row: &Counted| info(span, row).parked),
            column("gets", "", "First requests granted; null where they cannot be read", |_: &Span, row: &Counted| {
                row.1.gets
            }),
            counter(Counter::Misses, of),
            counter(Counter::SpinGets, of),
            sleeps(of),
            counter(Counter::Waits, of),
            counter(Counter::GaveUp, of),
            counter(Counter::Yields, of),
            counter(Counter::Sleeps, of).renamed("timed_sleeps"),
            counter(Counter::Parks, of),
            measure("wait_time_ms", Measure::Registered, "ms", of),
            measure("average_wait_ms", Measure::RegisteredMean, "ms", of),
            measure("max_wait_ms", Measure::RegisteredMax, "ms", of),
            measure("gets_per_s", Measure::Throughput, "", of),
            measure("sleeps_per_s", Measure::SleepsPerS, "", of),
            measure("miss_ratio", Measure::MissRatio, "", of),
            measure("sleep_ratio", Measure::SleepRatio, "", of),
            measure("spin_inefficiency", Measure::SpinInefficiency, "", of),
            measure("utilization", Measure::Utilization, "", of),
            measure("utilization_error_pct", Measure::UtilizationError, "pct", of),
            measure("holding_time_us", Measure::HoldingTime, "us", of),
            column("samples", "", "Looks at its holder", |_: &Span, row: &Counted| row.1.samples.looks),
            column(
                "poisoned",
                "",
                "1 when a holder died and nobody has declared the data consistent",
                |span: &Span, row: &Counted| info(span, row).is_poisoned,
            ),
            column("last_death", "", "The last holder that died", |span: &Span, row: &Counted| {
                let death = info(span, row).info.death.as_ref()?;
                Some(format!("session {} in {} at {}", death.sid, death.mode, span.to.place(death.location)))
            }),
        ],
    )
}

/// A mutex by its position, and a session that holds it.
type Holding = (usize, Sid, Mode);

fn holder() -> View {
    let rows = |span: &Span| {
        let of = |(position, mutex): (usize, &Mutex)| {
            mutex.holders.iter().map(|(sid, mode)| (position, *sid, *mode)).collect::<Vec<Holding>>()
        };
        span.to.mutexes.iter().enumerate().flat_map(of).collect()
    };
    view(
        "v$mutex_holder",
        "Who holds which mutex",
        rows,
        vec![
            column("mutex", "", "Number of the mutex", |span: &Span, row: &Holding| span.to.mutexes[row.0].info.id.0),
            column("name", "", "What it is called", |span: &Span, row: &Holding| span.to.mutexes[row.0].label()),
            column("sid", "", "The session that holds it", |_: &Span, row: &Holding| row.1.number()),
            text("mode", "S, X, LX or E", |_: &Span, row: &Holding| row.2.name()),
            column("location", "", "Where it got it; null where it does not say", |span: &Span, row: &Holding| {
                let mutex = span.to.mutexes[row.0].info.id;
                let held = span.to.session(row.1)?.holds.iter().find(|held| held.mutex == mutex)?;
                Some(span.to.place(held.location?).to_owned())
            }),
            column("session", "", "Name of the session", |span: &Span, row: &Holding| {
                Some(span.to.session(row.1)?.info.name.clone())
            }),
            column(
                "state",
                "",
                "What the session is at: running, waiting, DEADLOCK, DEAD",
                |span: &Span, row: &Holding| Some(span.to.session(row.1)?.state.name().to_owned()),
            ),
        ],
    )
}

fn object() -> View {
    fn of<'s>(span: &'s Span, row: &usize) -> &'s Mutex {
        &span.to.mutexes[*row]
    }
    let rows = |span: &Span| -> Vec<usize> { (0..span.to.mutexes.len()).collect() };
    view(
        "v$object",
        "What each mutex protects, and where it is: from a mutex to the object and back",
        rows,
        vec![
            column("mutex", "", "Number of the mutex", |span: &Span, row: &usize| of(span, row).info.id.0),
            text(
                "object",
                "The object: its name, or the static variable that the mutex is; v$db_object_cache has the whole name of one of a cache",
                |span: &Span, row: &usize| of(span, row).name.as_str(),
            ),
            text("type", "Type of the mutex, or of what else is waited for", |span: &Span, row: &usize| {
                span.to.type_name(of(span, row).info.mutex_type)
            }),
            text("place", "arena, process, or elsewhere", |span: &Span, row: &usize| match of(span, row).info.place {
                Place::Arena => "arena",
                Place::Process => "process",
                Place::Elsewhere => "elsewhere",
            }),
            column(
                "address",
                "",
                "Offset in the arena, or address in the process, in hex",
                |span: &Span, row: &usize| format!("{:#x}", of(span, row).info.address),
            ),
            column("pid", "", "The process that registered it", |span: &Span, row: &usize| of(span, row).info.pid),
            column(
                "is_event",
                "",
                "1 when nobody can hold it: a semaphore, a barrier, a condition",
                |span: &Span, row: &usize| of(span, row).is_event,
            ),
        ],
    )
}

/// A type of mutexes, a location, and what was counted.
type Slept = (Option<TypeId>, LocationId, Profile);

fn sleep() -> View {
    fn of(row: &Slept) -> &Profile {
        &row.2
    }
    let rows = |span: &Span| {
        let counted = span.period().of(|_, key| Some((span.to.type_of(key.mutex), key.location)));
        let slept = counted.into_iter().filter(|(_, profile)| profile.figures.sleeps() > 0);
        slept.map(|((mutex_type, location), profile)| (mutex_type, location, profile)).collect()
    };
    view(
        "v$mutex_sleep",
        "Mutex sleeps by type and location",
        rows,
        vec![
            column("mutex_type", "", "Type of the mutexes", |span: &Span, row: &Slept| {
                row.0.map_or("unknown", |of| span.to.type_name(of)).to_owned()
            }),
            text("location", "Where in the code", |span: &Span, row: &Slept| span.to.place(row.1)),
            sleeps(of),
            measure("wait_time_ms", Measure::Registered, "ms", of),
            counter(Counter::Waits, of),
            counter(Counter::Misses, of),
        ],
    )
}

fn history() -> View {
    let rows = |span: &Span| {
        let from_ns = span.period().from().map_or(0, |from| from.at.monotonic_ns);
        span.to.history.iter().filter(|past| past.at_ns >= from_ns).copied().collect()
    };
    view(
        "v$mutex_sleep_history",
        "The last sleep for each pair of mutex and blocking session",
        rows,
        vec![
            column("sleep_timestamp", "", "When, in UTC", |span: &Span, past: &PastSleep| {
                let ago_ns = span.to.at.monotonic_ns.saturating_sub(past.at_ns);
                time(span.to.at.real_ns.saturating_sub(ago_ns))
            }),
            column("mutex_identifier", "", "Number of the mutex", |_: &Span, past: &PastSleep| past.mutex.0),
            column("mutex", "", "What it is called", |span: &Span, past: &PastSleep| span.to.mutex_label(past.mutex)),
            text("mutex_type", "Its type", |span: &Span, past: &PastSleep| span.to.type_name_of(past.mutex)),
            column("gets", "", "Gets of the mutex by then", |_: &Span, past: &PastSleep| past.gets),
            column("sleeps", "", "Steps of that wait so far", |_: &Span, past: &PastSleep| past.sleeps),
            column("requesting_session", "", "The session that slept", |_: &Span, past: &PastSleep| {
                past.waiter.number()
            }),
            column("blocking_session", "", "The session that held it", |_: &Span, past: &PastSleep| {
                past.blocker.number()
            }),
            text("mode", "The mode asked for", |_: &Span, past: &PastSleep| past.mode.name()),
            text("location", "Where in the code", |span: &Span, past: &PastSleep| span.to.place(past.location)),
        ],
    )
}

/// A mutex, a place and an event, all sessions together.
type Wait = (Key, Profile);

fn wait() -> View {
    fn of(row: &Wait) -> &Profile {
        &row.1
    }
    let mut columns = key_columns();
    columns.extend(super::wait_columns(of));
    view("v$mutex_wait", "Waits by mutex, location and event", counted, columns)
}

fn histogram() -> View {
    let mut columns = key_columns();
    columns.extend(super::bucket_columns());
    let rows = |span: &Span| super::buckets(counted(span));
    view("v$mutex_histogram", "How many waits were how long, by mutex, location and event", rows, columns)
}

/// Each mutex, place and event with misses or waits.
fn counted(span: &Span) -> Vec<Wait> {
    let mut all: Vec<Wait> = span.period().of(|_, key| Some(key)).into_iter().collect();
    all.extend(span.period().of_events(|_, key| Some(key)));
    all.retain(|(_, profile)| profile.figures.get(Counter::Misses) > 0 || profile.figures.get(Counter::Waits) > 0);
    all
}

/// The columns that say which they are.
fn key_columns<T: 'static>() -> Vec<Column<(Key, T)>> {
    let label =
        |span: &Span, id: MutexId| if id.0 == 0 { "(without a row)".to_owned() } else { span.to.mutex_label(id) };
    vec![
        column("mutex", "", "Number of the mutex; 0 for what found no row of its own", |_: &Span, row: &(Key, T)| {
            row.0.mutex.0
        }),
        column("name", "", "What it is called", move |span: &Span, row: &(Key, T)| label(span, row.0.mutex)),
        text("mutex_type", "Its type", |span: &Span, row: &(Key, T)| span.to.type_name_of(row.0.mutex)),
        text("location", "Where in the code", |span: &Span, row: &(Key, T)| span.to.place(row.0.location)),
        column("event", "", "The wait event", |span: &Span, row: &(Key, T)| span.to.event_name(row.0)),
    ]
}
