//! The view of wait events.

use super::{View, column, text, view};
use crate::recording::scene::Span;
use retrial::views::{Key, TypeId, WaitEvent};
use retrial_model::Profile;

/// A wait event, and what was counted.
type Waited = (Option<TypeId>, WaitEvent, Profile);

pub(super) fn views() -> Vec<View> {
    fn of(row: &Waited) -> &Profile {
        &row.2
    }
    let rows = |span: &Span| {
        let by = |_, key: Key| Some((span.to.type_of(key.mutex), key.event));
        let all = span.period().of(by).into_iter().chain(span.period().of_events(by));
        all.map(|((mutex_type, event), profile)| (mutex_type, event, profile)).collect()
    };
    let mut columns = vec![column("event", "", "The wait event", |span: &Span, row: &Waited| name(span, row.0, row.1))];
    columns.extend(super::wait_columns(of));
    columns.push(text("wait_class", "Concurrency, or Event for what nobody can hold", |_: &Span, row: &Waited| {
        class(row.1.for_event)
    }));
    vec![view(
        "v$system_event",
        "Wait events: each wait once, with the parts that its time adds up from",
        rows,
        columns,
    )]
}

/// The name of an event of a type of mutexes.
pub(super) fn name(span: &Span, mutex_type: Option<TypeId>, event: WaitEvent) -> String {
    event.name(mutex_type.map_or("unknown", |of| span.to.type_name(of)))
}

pub(super) const fn class(for_event: bool) -> &'static str {
    if for_event { "Event" } else { "Concurrency" }
}
