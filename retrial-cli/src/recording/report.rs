//! What an instance did in a period, for people: load, waits, the mutexes behind them, who kept whom.

use super::deadlocks::deadlocks;
use super::period::Period;
use super::scene::Span;
use super::snapshot::{Mutex, Parameter};
use super::store::Rounds;
use crate::cmd::alerts::time;
use crate::output::{Format, Table, column, counter, grouped, line, measure, short};
use miette::Report as Failure;
use retrial::MutexId;
use retrial::views::{Counter, Key, LocationId, Sid, TypeId, WaitEvent};
use retrial_model::{Measure, Profile};
use serde_json::{Value, json};
use std::cmp::Reverse;

/// Rows of a table for people.
const TOP: usize = 10;

/// What a report is of.
pub struct Report {
    pub span: Span,
    pub rounds: Rounds,
    /// Who was waited for longest: the session, its mutex, the sessions that waited, the time of all of them in ns.
    pub blockers: Vec<(Sid, MutexId, u64, u64)>,
    /// What was read: a recording, or the live instance.
    pub of: String,
    /// Commands to type next.
    pub next: String,
}

/// A line of the top events.
struct Event {
    name: String,
    class: &'static str,
    profile: Option<Profile>,
    time_s: f64,
}

/// Where the time of the sessions went.
struct Time {
    events: Vec<Event>,
    /// Time of all sessions together in s.
    all_s: f64,
    parts: Vec<(&'static str, f64)>,
}

impl Time {
    fn share(&self, time_s: f64) -> Option<f64> {
        (self.all_s > 0.0).then(|| 100.0 * time_s / self.all_s)
    }

    fn events(&self) -> Table {
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

    fn parts(&self) -> Table {
        type Part = (&'static str, f64);
        let columns = [
            column("part", |part: &Part| part.0).titled(""),
            column("time_s", |part: &Part| part.1).titled("Time (s)"),
            column("pct", |part: &Part| self.share(part.1)).titled("%"),
        ];
        Table::of(&columns, &self.parts)
    }
}

impl Report {
    fn period(&self) -> Period<'_> {
        self.span.period()
    }

    pub fn print(&self, format: Format) -> Result<(), Failure> {
        if format.json {
            line(&serde_json::to_string_pretty(&self.json()).unwrap_or_default());
        } else if format.csv {
            self.time().events().print(format);
        } else {
            line(&self.text());
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let (period, time) = (self.period(), self.time());
        let to = &self.span.to;
        json!({
            "of": self.of,
            "instance": to.instance.name,
            "from": self.begin_ns().map(self::time),
            "to": self::time(to.at.real_ns),
            "period_s": period.time_s(),
            "processors": to.load.processors,
            "busy_pct": period.busy().map(|busy| 100.0 * busy),
            "sessions": to.sessions.len(),
            "deadlocks": deadlocks(to).iter().map(|found| found.json(to.at.monotonic_ns)).collect::<Vec<_>>(),
            "session_time_s": time.all_s,
            "samples": self.rounds.rounds,
            "recorder_cpu_pct": self.recorder_pct(),
            "load": self.load().json(),
            "events": time.events().json(),
            "session_time": time.parts().json(),
            "sleeps": self.sleeps().json(),
            "mutexes": self.mutexes().json(),
            "awaited": self.awaited().json(),
            "blockers": self.blocked().json(),
            "parameters": self.parameters().json(),
            "alerts": self.alerts().json(),
            "deaths": self.deaths(),
        })
    }

    fn begin_ns(&self) -> Option<u64> {
        Some(self.period().from()?.at.real_ns)
    }

    /// Share of a processor that the recorder took.
    fn recorder_pct(&self) -> Option<f64> {
        (self.rounds.length_ns > 0).then(|| 100.0 * self.rounds.recorder_ns as f64 / self.rounds.length_ns as f64)
    }

    /// Time that was sampled, as that of the whole period in s: counters go on between the samples, and while nobody recorded.
    fn of_period(&self, sampled_ns: u64) -> f64 {
        match self.rounds.length_ns {
            0 => 0.0,
            length_ns => sampled_ns as f64 / length_ns as f64 * self.period().time_s(),
        }
    }

    fn deaths(&self) -> u64 {
        let before = self.period().from().map_or(0, |from| from.recoveries);
        self.span.to.recoveries.saturating_sub(before)
    }

    fn text(&self) -> String {
        let time = self.time();
        let to = &self.span.to;
        let mut parts = vec![self.head()];
        parts.extend(deadlocks(to).iter().map(|found| found.text(to.at.monotonic_ns)));
        let mut section = |title: &str, table: &Table, nothing: &str| {
            let rows = if table.is_empty() { nothing.to_owned() } else { table.text() };
            parts.push(format!("{title}\n{rows}"));
        };
        section("LOAD", &self.load(), "");
        section("TOP EVENTS", &time.events(), "");
        section("TIME OF THE SESSIONS", &time.parts(), "");
        section("MUTEX SLEEPS BY TYPE AND LOCATION", &shortened(self.sleeps()), "None.");
        section("MUTEXES, WAITED FOR MOST FIRST", &shortened(self.mutexes()), "None was missed or waited for.");
        let awaited = shortened(self.awaited());
        if !awaited.is_empty() {
            section("WAITS FOR EVENTS, WHICH NOBODY HOLDS", &awaited, "");
        }
        section("WHO KEPT OTHERS WAITING", &self.blocked(), "Nobody, as far as samples saw.");
        section("PARAMETERS THAT WERE SET", &self.parameters(), "None.");
        section("ALERTS", &shortened(self.alerts()), "None.");
        if self.deaths() > 0 {
            parts.push(format!("{} mutexes were held by a session that died", self.deaths()));
        }
        parts.push(format!("Next: {}", self.next));
        parts.join("\n\n")
    }

    fn head(&self) -> String {
        let (period, to) = (self.period(), &self.span.to);
        let from = self.begin_ns().map_or_else(|| "its creation".to_owned(), self::time);
        let pct = |share: Option<f64>| share.map_or_else(|| "?".to_owned(), |share| short(100.0 * share));
        let earlier = period.from().map(|from| &from.load);
        let steal = earlier.and_then(|earlier| to.load.stolen_since(earlier));
        let pressure = earlier.and_then(|earlier| to.load.pressed_since(earlier, period.time_s()));
        let looked = match self.recorder_pct() {
            Some(pct) => {
                let looked_s = self.rounds.length_ns as f64 / 1e9;
                let part = if looked_s < 0.9 * period.time_s() {
                    format!(" in {} s of it, taken for all of it", short(looked_s))
                } else {
                    String::new()
                };
                format!(
                    "{} looks at who holds and who waits{part}; the recorder took {} % of a processor",
                    grouped(self.rounds.rounds),
                    short(pct)
                )
            }
            None => "nobody looked: who held what, and for how long, is not known".to_owned(),
        };
        format!(
            "retrial report of {}, from {}\nfrom {from} to {}: {} s\nmachine: {} processors, {} % busy, {} % of the time some thread \
             waited for one, {} % stolen; {} threads ready at the end\nsessions at the end: {}; {looked}",
            to.instance.name,
            self.of,
            self::time(to.at.real_ns),
            short(period.time_s()),
            to.load.processors,
            pct(period.busy()),
            pct(pressure),
            pct(steal),
            to.load.runnable.map_or_else(|| "?".to_owned(), |runnable| runnable.to_string()),
            to.sessions.len(),
        )
    }

    /// Counts, per second and per get, as far as there are measures of them.
    fn load(&self) -> Table {
        type Row = (&'static str, Option<f64>, Option<f64>, Option<f64>);
        let total = self.period().total();
        let count = |counter: Counter| Some(total.figures.get(counter) as f64);
        let of = |measure: Measure| measure.of(&total);
        let rows = [
            ("gets", total.gets.map(|gets| gets as f64), of(Measure::Throughput), None),
            ("misses", count(Counter::Misses), None, of(Measure::MissRatio)),
            ("waits", count(Counter::Waits), of(Measure::WaitsPerS), of(Measure::WaitsPerGet)),
            ("sleeps", Some(total.sleeps()), of(Measure::SleepsPerS), of(Measure::SleepsPerGet)),
            ("wait time (s)", of(Measure::Registered), None, of(Measure::Wait)),
            ("sessions asleep", None, of(Measure::Asleep), None),
        ];
        let columns = [
            column("figure", |row: &Row| row.0).titled(""),
            column("total", |row: &Row| row.1),
            column("per_s", |row: &Row| row.2).titled("per second"),
            column("per_get", |row: &Row| row.3).titled("per get"),
        ];
        Table::of(&columns, rows)
    }

    /// The parts of the sessions' time: waits as they were counted, holding as it was sampled, and the rest.
    fn time(&self) -> Time {
        let (period, to) = (self.period(), &self.span.to);
        let by = |_, key: Key| Some((to.type_of(key.mutex), key.event));
        let name = |of: Option<TypeId>, event: WaitEvent| event.name(of.map_or("unknown", |of| to.type_name(of)));
        let event = |((mutex_type, event), profile): ((Option<TypeId>, WaitEvent), Profile)| Event {
            name: name(mutex_type, event),
            class: if event.for_event { "Event" } else { "Concurrency" },
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
        let named_s = class_s("Concurrency") + awaited_s + holding_s;
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
            ("holding a mutex", if is_sampled { "elsewhere" } else { "holding a mutex, or elsewhere" });
        let mut parts = vec![
            (holding, holding_s),
            ("waiting: spinning", part(Measure::SpinShare)),
            ("waiting: yielding", part(Measure::YieldShare)),
            ("waiting: asleep as asked, or parked", part(Measure::SleptShare)),
            ("waiting: asleep for longer, or in the run queue", part(Measure::OverShare)),
            ("waiting for events", awaited_s),
            (rest, elsewhere_s),
        ];
        let more = [(holding, "Holding", holding_s), (rest, "Other", elsewhere_s)];
        events.extend(more.map(|(name, class, time_s)| Event { name: name.to_owned(), class, profile: None, time_s }));
        if !is_sampled {
            parts.retain(|(name, _)| *name != holding);
            events.retain(|event| event.class != "Holding");
        }
        events.sort_by(|a, b| b.time_s.total_cmp(&a.time_s));
        Time { events, all_s, parts }
    }

    fn sleeps(&self) -> Table {
        type Row = ((Option<TypeId>, LocationId), Profile);
        let to = &self.span.to;
        let slept = self.period().of(|_, key| Some((to.type_of(key.mutex), key.location)));
        let mut rows: Vec<Row> = slept.into_iter().filter(|(_, profile)| profile.figures.sleeps() > 0).collect();
        rows.sort_by_key(|(_, profile)| Reverse(profile.figures.sleeps()));
        let columns = [
            column("mutex_type", |row: &Row| row.0.0.map_or("unknown", |of| to.type_name(of)).to_owned())
                .titled("Mutex Type"),
            column("location", |row: &Row| to.place(row.0.1).to_owned()).titled("Location"),
            column("sleeps", |row: &Row| row.1.figures.sleeps()).titled("Sleeps"),
            measure(Measure::Registered, "ms", |row: &Row, measure| measure.of(&row.1))
                .named("wait_time_ms")
                .titled("Wait Time (ms)"),
        ];
        Table::of(&columns, rows)
    }

    /// Table 4 of the paper, by mutex.
    fn mutexes(&self) -> Table {
        type Row<'s> = (&'s Mutex, Profile);
        let mut rows: Vec<Row<'_>> = self.period().mutexes();
        // Who waits all the time has missed before.
        rows.retain(|(_, profile)| profile.figures.get(Counter::Misses) > 0 || profile.registered_s() > 0.0);
        rows.sort_by(|(_, a), (_, b)| {
            let order = |profile: &Profile| (profile.registered_s(), profile.figures.get(Counter::Misses));
            order(b).partial_cmp(&order(a)).unwrap_or(std::cmp::Ordering::Equal)
        });
        let of = |row: &Row<'_>, measure: Measure| measure.of(&row.1);
        let columns = [
            column("mutex", |row: &Row<'_>| row.0.label()),
            column("gets", |row: &Row<'_>| row.1.gets),
            counter(Counter::Misses, |row: &Row<'_>| &row.1),
            counter(Counter::Waits, |row: &Row<'_>| &row.1),
            measure(Measure::Registered, "ms", of).named("wait_ms"),
            measure(Measure::Throughput, "", of).titled("λ (1/s)"),
            measure(Measure::SleepsPerS, "", of).titled("ω (1/s)"),
            measure(Measure::MissRatio, "", of),
            measure(Measure::SleepRatio, "", of),
            measure(Measure::HoldingTime, "us", of).titled("S (us)"),
            measure(Measure::SpinInefficiency, "", of),
            measure(Measure::Utilization, "", of),
        ];
        Table::of(&columns, rows)
    }

    /// What was waited for without being held, and where.
    fn awaited(&self) -> Table {
        type Row = ((MutexId, LocationId), Profile);
        let to = &self.span.to;
        let mut rows: Vec<Row> =
            self.period().of_events(|_, key| Some((key.mutex, key.location))).into_iter().collect();
        rows.retain(|(_, profile)| profile.registered_s() > 0.0);
        rows.sort_by(|(_, a), (_, b)| b.registered_s().total_cmp(&a.registered_s()));
        let columns = [
            column("object", |row: &Row| to.mutex_label(row.0.0)),
            column("type", |row: &Row| to.type_name_of(row.0.0).to_owned()),
            column("location", |row: &Row| to.place(row.0.1).to_owned()).titled("waited for at"),
            counter(Counter::Waits, |row: &Row| &row.1),
            measure(Measure::Registered, "ms", |row: &Row, measure| measure.of(&row.1)).named("wait_ms"),
        ];
        Table::of(&columns, rows)
    }

    fn blocked(&self) -> Table {
        type Row = (Sid, MutexId, u64, u64);
        let to = &self.span.to;
        let columns = [
            column("blocker", |row: &Row| row.0.number()).titled("session"),
            column("name", |row: &Row| to.session(row.0).map(|session| session.info.name.clone())),
            column("mutex", |row: &Row| to.mutex_label(row.1)),
            column("sessions_waiting", |row: &Row| row.2).titled("kept waiting"),
            column("time_s", |row: &Row| self.of_period(row.3)).titled("for (s)"),
        ];
        Table::of(&columns, &self.blockers)
    }

    fn parameters(&self) -> Table {
        let (to, from) = (&self.span.to, self.period().from());
        let before = |now: &Parameter| {
            let then = from?.params.iter().find(|then| (then.parameter, then.of) == (now.parameter, now.of))?;
            (then.value != now.value).then(|| then.parameter.format(then.value))
        };
        let rows = to.params.iter().filter(|parameter| parameter.is_set || before(parameter).is_some());
        let columns = [
            column("name", |row: &&Parameter| row.parameter.row().name),
            column("of", |row: &&Parameter| row.of.map_or("the instance", |of| to.type_name(of)).to_owned()),
            column("value", |row: &&Parameter| row.parameter.format(row.value)),
            column("changed_from", |row: &&Parameter| before(row)),
        ];
        Table::of(&columns, rows)
    }

    fn alerts(&self) -> Table {
        let from_ns = self.begin_ns().unwrap_or(0);
        let rows = self.span.to.alerts.iter().rev().filter(|alert| alert.at_ns >= from_ns);
        let columns = [
            column("time", |alert: &&super::Alert| self::time(alert.at_ns)),
            column("text", |alert: &&super::Alert| alert.text.clone()),
        ];
        Table::of(&columns, rows)
    }
}

fn shortened(mut table: Table) -> Table {
    table.shorten(TOP);
    table
}
