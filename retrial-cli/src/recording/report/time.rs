//! Where the time of the sessions went: parts that add up to 100 %.

use super::Report;
use crate::output::{Table, column, measure};
use crate::page::Share;
use crate::recording::wait_class;
use retrial::views::{Counter, Key, TypeId, WaitEvent};
use retrial_model::{Measure, Profile};

/// A line of the top events.
struct Event {
    name: String,
    class: &'static str,
    profile: Option<Profile>,
    time_s: f64,
}

/// A part of the time, and how long it was in s.
type Part = (&'static str, f64);

/// Where the time of the sessions went.
pub(super) struct Time {
    events: Vec<Event>,
    /// Time of all sessions together in s.
    pub(super) all_s: f64,
    parts: Vec<Part>,
    /// The same time as the kernel divides it, whatever the sessions were at; empty where it does not say it.
    kernel: Vec<Part>,
}

impl Time {
    fn share(&self, time_s: f64) -> Option<f64> {
        (self.all_s > 0.0).then(|| 100.0 * time_s / self.all_s)
    }

    /// What the sessions did, and for how long altogether in s.
    pub(super) fn times(&self) -> impl Iterator<Item = (&str, f64)> {
        self.events.iter().map(|event| (event.name.as_str(), event.time_s))
    }

    /// The same as shares of the time of all of them, which add up to 100 %.
    pub(super) fn shares(&self) -> impl Iterator<Item = Share> {
        self.events.iter().filter_map(|event| {
            Some(Share { name: event.name.clone(), class: event.class, pct: self.share(event.time_s)? })
        })
    }

    pub(super) fn events(&self) -> Table {
        let of = |event: &Event, measure: Measure| measure.of(event.profile.as_ref()?);
        let columns = [
            column("event", |event: &Event| event.name.clone()).titled("Event"),
            column("waits", |event: &Event| Some(event.profile.as_ref()?.figures.get(Counter::Waits))).titled("Waits"),
            column("time_s", |event: &Event| event.time_s).titled("Time (s)"),
            measure(Measure::RegisteredMean, "ms", of).named("avg_wait_ms").titled("Avg wait (ms)"),
            measure(Measure::RegisteredMax, "ms", of).named("max_wait_ms").titled("Max (ms)"),
            column("pct_session_time", |event: &Event| self.share(event.time_s)).titled("% session time"),
            column("wait_class", |event: &Event| event.class).titled("Wait class"),
        ];
        Table::of(&columns, &self.events)
    }

    pub(super) fn parts(&self) -> Table {
        self.table(&self.parts)
    }

    pub(super) fn kernel(&self) -> Table {
        self.table(&self.kernel)
    }

    fn table(&self, parts: &[Part]) -> Table {
        let columns = [
            column("part", |part: &Part| part.0).titled(""),
            column("time_s", |part: &Part| part.1).titled("Time (s)"),
            column("pct", |part: &Part| self.share(part.1)).titled("%"),
        ];
        Table::of(&columns, parts)
    }
}

impl Report {
    /// The parts of the sessions' time: waits as they were counted, holding as it was sampled, and the rest.
    pub(super) fn time(&self) -> Time {
        let (period, to) = (self.period(), &self.span.to);
        let by = |_, key: Key| Some((to.type_of(key.mutex), key.event));
        let event = |((mutex_type, event), profile): ((Option<TypeId>, WaitEvent), Profile)| Event {
            name: event.name(to.maybe_type(mutex_type)),
            class: wait_class(event),
            time_s: profile.registered_s(),
            profile: Some(profile),
        };
        let mut events: Vec<Event> = period.of(by).into_iter().chain(period.of_events(by)).map(event).collect();
        events.retain(|event| event.time_s > 0.0);
        let class_s = |class| {
            let of_class = events.iter().filter(|event| event.class == class);
            of_class.fold(0.0, |sum, event| sum + event.time_s)
        };
        let (awaited_s, waited) = (class_s("Event"), period.total());
        let is_sampled = self.rounds.length_ns > 0;
        let holding_s = self.of_period(self.rounds.holding_ns);
        let spinning_s = self.of_period(self.rounds.spinning_ns);
        let named_s = class_s("Concurrency") + awaited_s + holding_s + spinning_s;
        // Without samples as if those at the end had been there all the time.
        let sessions_s = if is_sampled {
            self.of_period(self.rounds.sessions_ns)
        } else {
            to.sessions.iter().filter(|session| !session.info.dead).count() as f64 * period.time_s()
        };
        let all_s = sessions_s.max(named_s);
        let elsewhere_s = all_s - named_s;
        let part = |part: Measure| part.of(&waited).unwrap_or(0.0) * waited.registered_s();
        let (holding, rest) =
            ("holding a mutex", if is_sampled { "elsewhere" } else { "holding a mutex, spinning first, or elsewhere" });
        let spinning = "spinning first, before it is a wait";
        let mut parts = vec![
            (holding, holding_s),
            (spinning, spinning_s),
            ("waiting: spinning", part(Measure::SpinShare)),
            ("waiting: yielding", part(Measure::YieldShare)),
            ("waiting: asleep as asked, or parked", part(Measure::SleptShare)),
            ("waiting: asleep for longer than asked", part(Measure::OverShare)),
            ("waiting for events", awaited_s),
            (rest, elsewhere_s),
        ];
        let more =
            [(holding, "Holding", holding_s), (spinning, "Concurrency", spinning_s), (rest, "Other", elsewhere_s)];
        events.extend(more.map(|(name, class, time_s)| Event { name: name.to_owned(), class, profile: None, time_s }));
        events.retain(|event| event.name != spinning || event.time_s > 0.0);
        if !is_sampled {
            parts.retain(|(name, _)| ![holding, spinning].contains(name));
            events.retain(|event| ![holding, spinning].contains(&&*event.name));
        }
        events.sort_by(|a, b| b.time_s.total_cmp(&a.time_s));
        let of_kernel = |(cpu_s, queued_s): (f64, f64)| {
            let rest_s = (all_s - cpu_s - queued_s).max(0.0);
            vec![("on a processor", cpu_s), ("in run queues", queued_s), ("asleep, or not known", rest_s)]
        };
        let kernel = period.processors().map(of_kernel).unwrap_or_default();
        Time { events, all_s, parts, kernel }
    }
}
