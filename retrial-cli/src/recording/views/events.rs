//! The view of wait events.

use super::{Bucket, View, column, text, view};
use crate::recording::scene::Span;
use crate::recording::wait_class;
use retrial::views::{Key, TypeId, WaitEvent};
use retrial_model::Profile;

/// A wait event, and what was counted.
type Waited = (Option<TypeId>, WaitEvent, Profile);

/// A wait event.
type Event = (Option<TypeId>, WaitEvent);

pub(super) fn views() -> Vec<View> {
    vec![system_event(), histogram()]
}

fn system_event() -> View {
    fn of(row: &Waited) -> &Profile {
        &row.2
    }
    let rows = |span: &Span| {
        counted(span).into_iter().map(|((mutex_type, event), profile)| (mutex_type, event, profile)).collect()
    };
    let mut columns =
        vec![column("event", "", "The wait event", |span: &Span, row: &Waited| row.1.name(span.to.maybe_type(row.0)))];
    columns.extend(super::wait_columns(of));
    columns.push(text("wait_class", "Concurrency, or Event for what nobody can hold", |_: &Span, row: &Waited| {
        wait_class(row.1)
    }));
    view("v$system_event", "Wait events: each wait once, with the parts that its time adds up from", rows, columns)
}

fn histogram() -> View {
    type Row = (Event, Bucket);
    let rows = |span: &Span| super::buckets(counted(span));
    let mut columns = vec![column("event", "", "The wait event", |span: &Span, ((of, event), _): &Row| {
        event.name(span.to.maybe_type(*of))
    })];
    columns.extend(super::bucket_columns());
    columns.push(text("wait_class", "Concurrency, or Event for what nobody can hold", |_: &Span, row: &Row| {
        wait_class(row.0.1)
    }));
    view("v$event_histogram", "How many waits were how long, by wait event", rows, columns)
}

/// What was counted of each wait event.
fn counted(span: &Span) -> Vec<(Event, Profile)> {
    let by = |_, key: Key| Some((span.to.type_of(key.mutex), key.event));
    span.period().of(by).into_iter().chain(span.period().of_events(by)).collect()
}
