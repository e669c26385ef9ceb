//! Views of sessions: what each is at, and what it has waited for.

#![allow(clippy::trivially_copy_pass_by_ref)] // cells are of any kind of row

use super::{View, column, text, view};
use crate::clock::time;
use crate::recording::scene::Span;
use crate::recording::snapshot::Session;
use crate::recording::wait_class;
use retrial::views::{Key, Sid, TypeId, WaitEvent};
use retrial_model::Profile;

pub(super) fn views() -> Vec<View> {
    vec![session(), waiting(), by_event()]
}

fn of<'s>(span: &'s Span, row: &usize) -> &'s Session {
    &span.to.sessions[*row]
}

/// What a session waits for, and since when by the monotonic clock.
fn wait(span: &Span, row: &usize) -> Option<(Key, u64)> {
    of(span, row).info.wait.map(|(key, since_ns, _)| (key, since_ns))
}

fn waited_ms(span: &Span, row: &usize) -> Option<f64> {
    let (_, since_ns) = wait(span, row)?;
    Some(span.to.at.monotonic_ns.saturating_sub(since_ns) as f64 / 1e6)
}

fn blocker(span: &Span, row: &usize) -> Option<u32> {
    of(span, row).blockers.first().map(|(sid, _)| sid.number())
}

fn session() -> View {
    let rows = |span: &Span| (0..span.to.sessions.len()).collect();
    view(
        "v$session",
        "Sessions, what each holds and waits for",
        rows,
        vec![
            column("sid", "", "The session", |span: &Span, row: &usize| of(span, row).info.sid.number()),
            column("pid", "", "Its process", |span: &Span, row: &usize| of(span, row).info.pid),
            column("tid", "", "Its thread", |span: &Span, row: &usize| of(span, row).info.tid),
            text("name", "Its name", |span: &Span, row: &usize| of(span, row).info.name.as_str()),
            text(
                "class",
                "high or normal",
                |span: &Span, row: &usize| {
                    if of(span, row).info.high_priority { "high" } else { "normal" }
                },
            ),
            text("action", "What it says it is at", |span: &Span, row: &usize| of(span, row).info.action.as_str()),
            text("state", "running, waiting, DEADLOCK or DEAD", |span: &Span, row: &usize| of(span, row).state.name()),
            column("logon_time", "", "When it began, in UTC", |span: &Span, row: &usize| {
                let ago_ns = span.to.at.monotonic_ns.saturating_sub(of(span, row).info.claimed_ns);
                time(span.to.at.real_ns.saturating_sub(ago_ns))
            }),
            column("holds", "", "The mutexes that it holds, and the modes", |span: &Span, row: &usize| {
                span.to.held_text(of(span, row))
            }),
            column("event", "", "What it waits for", |span: &Span, row: &usize| {
                wait(span, row).map(|(key, _)| span.to.event_name(key))
            }),
            column("mutex", "", "Number of the mutex that it waits for", |span: &Span, row: &usize| {
                wait(span, row).map(|(key, _)| key.mutex.0)
            }),
            column("blocking_session", "", "The session that holds that, or one of them", blocker),
            column("wait_time_ms", "ms", "How long it has waited", waited_ms),
            column(
                "gets",
                "",
                "Gets that it has counted itself, as threads under `retrial run` do",
                |span: &Span, row: &usize| of(span, row).gets,
            ),
        ],
    )
}

fn waiting() -> View {
    let rows = |span: &Span| {
        let sessions = span.to.sessions.iter().enumerate();
        sessions.filter(|(_, session)| session.info.wait.is_some()).map(|(position, _)| position).collect()
    };
    view(
        "v$session_wait",
        "Sessions that wait, each with its step and the holder",
        rows,
        vec![
            column("sid", "", "The session", |span: &Span, row: &usize| of(span, row).info.sid.number()),
            column("event", "", "What it waits for", |span: &Span, row: &usize| {
                wait(span, row).map(|(key, _)| span.to.event_name(key))
            }),
            column("mutex", "", "Number of the mutex", |span: &Span, row: &usize| {
                wait(span, row).map(|(key, _)| key.mutex.0)
            }),
            column("name", "", "What it is called", |span: &Span, row: &usize| {
                wait(span, row).map(|(key, _)| span.to.mutex_label(key.mutex))
            }),
            column("location", "", "Where in the code", |span: &Span, row: &usize| {
                wait(span, row).map(|(key, _)| span.to.place(key.location).to_owned())
            }),
            column("mode", "", "The mode asked for; null for an event", |span: &Span, row: &usize| {
                wait(span, row).filter(|(key, _)| !key.event.for_event).map(|(key, _)| key.event.mode.name().to_owned())
            }),
            column("step", "", "What the wait is at: spin, yield, sleep or park", |span: &Span, row: &usize| {
                of(span, row).info.step.map(str::to_owned)
            }),
            column("blocking_session", "", "The session that holds it, or one of them", blocker),
            column("blocker_mode", "", "Its mode", |span: &Span, row: &usize| {
                of(span, row).blockers.first()?.1.map(|mode| mode.name().to_owned())
            }),
            column("wait_time_ms", "ms", "How long it has waited", waited_ms),
            text("state", "waiting, DEADLOCK or DEAD", |span: &Span, row: &usize| of(span, row).state.name()),
            text("wait_class", "Concurrency, or Event for what nobody can hold", |span: &Span, row: &usize| {
                wait(span, row).map_or("Concurrency", |(key, _)| wait_class(key.event))
            }),
            text("action", "What the session says it is at", |span: &Span, row: &usize| {
                of(span, row).info.action.as_str()
            }),
        ],
    )
}

/// A session, a wait event, and what was counted.
type Waited = (Sid, Option<TypeId>, WaitEvent, Profile);

fn by_event() -> View {
    fn of(row: &Waited) -> &Profile {
        &row.3
    }
    let rows = |span: &Span| {
        let by = |sid, key: Key| Some((sid, span.to.type_of(key.mutex), key.event));
        let all = span.period().of(by).into_iter().chain(span.period().of_events(by));
        all.map(|((sid, mutex_type, event), profile)| (sid, mutex_type, event, profile)).collect()
    };
    let mut columns = vec![
        column("sid", "", "The session; 0 for those that have departed", |_: &Span, row: &Waited| row.0.number()),
        column("event", "", "The wait event", |span: &Span, row: &Waited| row.2.name(span.to.maybe_type(row.1))),
    ];
    columns.extend(super::wait_columns(of));
    columns.push(text("wait_class", "Concurrency, or Event for what nobody can hold", |_: &Span, row: &Waited| {
        wait_class(row.2)
    }));
    view("v$session_event", "What each session has waited for", rows, columns)
}
