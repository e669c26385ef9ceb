//! Views of instances: what each is, its parameters, alerts and locations.

use super::{View, column, measure, text, view};
use crate::clock::time;
use crate::recording::scene::Span;
use crate::recording::snapshot::{Alert, Parameter};
use retrial::P;
use retrial::views::{Counter, Domain, LocationId};
use retrial_model::{Measure, Profile};

pub(super) fn views() -> Vec<View> {
    vec![instance(), parameter(), location(), alert()]
}

#[allow(clippy::too_many_lines)] // a table: an entry for each column
fn instance() -> View {
    fn total(profile: &Profile) -> &Profile {
        profile
    }
    view(
        "v$instance",
        "Instances, all their mutexes together, and the machine",
        |span| vec![span.period().total()],
        vec![
            column("time", "", "The moment that is shown, in UTC", |span: &Span, _: &Profile| time(span.to.at.real_ns)),
            column("created", "", "When it was created, in UTC", |span: &Span, _: &Profile| {
                time(span.to.instance.created_ns)
            }),
            column(
                "period_s",
                "s",
                "Length of the period that figures are of: since the creation unless differences are asked for",
                |_: &Span, all: &Profile| all.time_s,
            ),
            column("scheme", "", "How its sessions wait", |span: &Span, _: &Profile| {
                P::Scheme.format(span.to.param(P::Scheme, None))
            }),
            column("sessions", "", "Sessions that live", |span: &Span, _: &Profile| {
                span.to.sessions.iter().filter(|session| !session.info.dead).count()
            }),
            column("waiting", "", "Those of them that wait", |span: &Span, _: &Profile| {
                span.to.sessions.iter().filter(|session| !session.info.dead && session.info.wait.is_some()).count()
            }),
            column("dead", "", "Sessions that died and are not recovered", |span: &Span, _: &Profile| {
                span.to.sessions.iter().filter(|session| session.info.dead).count()
            }),
            column("mutexes", "", "Mutexes", |span: &Span, _: &Profile| {
                span.to.mutexes.iter().filter(|mutex| !mutex.is_event).count()
            }),
            column("deaths", "", "Deaths of holders since it was created", |span: &Span, _: &Profile| {
                span.to.recoveries
            }),
            column("alerts", "", "Number of the latest alert", |span: &Span, _: &Profile| {
                span.to.alerts.last().map_or(0, |alert| alert.number)
            }),
            column("gets", "", "Gets; null where those of some mutexes cannot be read", |_: &Span, all: &Profile| {
                all.gets
            }),
            super::counter(Counter::Misses, total),
            super::counter(Counter::Waits, total),
            measure("wait_time_ms", Measure::Registered, "ms", total),
            measure("gets_per_s", Measure::Throughput, "", total),
            measure("miss_ratio", Measure::MissRatio, "", total),
            measure("waits_per_s", Measure::WaitsPerS, "", total),
            column("processors", "", "Processors of the machine", |span: &Span, _: &Profile| span.to.load.processors),
            column(
                "busy_pct",
                "pct",
                "Share of the processors that were busy, with anybody's work; of a period",
                |_: &Span, all: &Profile| all.busy.map(|busy| 100.0 * busy),
            ),
            column(
                "runnable",
                "",
                "Threads that ran or were ready to, on all processors",
                |span: &Span, _: &Profile| span.to.load.runnable,
            ),
            column(
                "pressure_pct",
                "pct",
                "Share of the period in which a thread waited for a processor",
                |span: &Span, _: &Profile| span.period().pressed().map(|share| 100.0 * share),
            ),
            column(
                "steal_pct",
                "pct",
                "Share of the processors' time in the period that a hypervisor gave to others",
                |span: &Span, _: &Profile| span.period().stolen().map(|share| 100.0 * share),
            ),
        ],
    )
}

fn parameter() -> View {
    view(
        "v$parameter",
        "Parameters in force: of the instance, and those that types have of their own",
        |span| span.to.params.clone(),
        vec![
            text("name", "The parameter", |_: &Span, parameter: &Parameter| parameter.parameter.row().name),
            column("value", "", "Its value", |_: &Span, parameter: &Parameter| {
                parameter.parameter.format(parameter.value)
            }),
            column(
                "mutex_type",
                "",
                "The type that has it of its own; null for the instance",
                |span: &Span, parameter: &Parameter| parameter.of.map(|of| span.to.type_name(of).to_owned()),
            ),
            column("isdefault", "", "1 when nobody has set it", |_: &Span, parameter: &Parameter| !parameter.is_set),
            column("default_value", "", "Its default", |_: &Span, parameter: &Parameter| {
                parameter.parameter.format(parameter.parameter.row().default)
            }),
            column("range", "", "The values that it takes", |_: &Span, parameter: &Parameter| {
                match parameter.parameter.row().domain {
                    Domain::Number(low, high) => format!("{low}..{high}"),
                    Domain::Names(names) => names.join(" | "),
                }
            }),
            text("unit", "Its unit", |_: &Span, parameter: &Parameter| parameter.parameter.row().unit),
            text("effect", "When a change takes effect", |_: &Span, parameter: &Parameter| {
                parameter.parameter.row().effect.name()
            }),
            text("description", "What it does", |_: &Span, parameter: &Parameter| {
                parameter.parameter.row().description
            }),
            column(
                "changed_from",
                "",
                "Its value at the begin of the period, if that was another one",
                |span: &Span, now: &Parameter| span.period().changed_from(now),
            ),
        ],
    )
}

/// A location and what was counted there.
type Location = (LocationId, Profile);

fn location() -> View {
    fn of(row: &Location) -> &Profile {
        &row.1
    }
    let rows = |span: &Span| -> Vec<Location> {
        let mut counted = span.period().of(|_, key| Some(key.location));
        let empty = || Profile { time_s: span.period().time_s(), ..Profile::default() };
        span.to.places.keys().map(|id| (*id, counted.remove(id).unwrap_or_else(empty))).collect()
    };
    let mut columns = vec![
        column("location_id", "", "Number of the location", |_: &Span, (id, _): &Location| u32::from(id.0)),
        text("location", "Where in the code", |span: &Span, (id, _): &Location| span.to.place(*id)),
    ];
    columns.extend(super::wait_columns(of));
    view("v$location", "Places in the code, and what was waited for there", rows, columns)
}

fn alert() -> View {
    view(
        "v$alert",
        "Alerts: long waits, deaths, recoveries; of a period those that came in it",
        |span| span.period().alerts().cloned().collect(),
        vec![
            column("number", "", "From 1", |_: &Span, alert: &Alert| alert.number),
            column("time", "", "When, in UTC", |_: &Span, alert: &Alert| time(alert.at_ns)),
            text("text", "What", |_: &Span, alert: &Alert| alert.text.as_str()),
        ],
    )
}
