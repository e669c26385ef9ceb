//! What an instance did in a period, for people: load, waits, the mutexes behind them, who kept whom.

mod course;
pub mod diff;
#[cfg(test)]
mod tests;
mod time;

pub use self::course::{Course, PARTS, Step, charts};

use self::time::Time;
use super::findings::{Blocker, Evidence, Finding, Source, TRIFLE, findings};
use super::period::Period;
use super::scene::Span;
use super::snapshot::{Mutex, Parameter};
use super::store::{Holder, Rounds};
use crate::blocking::Deadlock;
use crate::lengths;
use crate::output::{self, Format, Table, column, counted, counter, line, measure, short};
use crate::page::{Bar, Page, Part, Picture};
use crate::predict::holds::Timed;
use crate::{clock, cmd::show::figures};
use miette::Report as Failure;
use retrial::views::{Counter, Histogram, Key, LocationId};
use retrial::{Mode, MutexId};
use retrial_model::{Measure, Profile};
use serde_json::{Value, json};

/// Rows of a table for people.
const TOP: usize = 10;

/// What a report is of.
pub struct Report {
    pub span: Span,
    pub rounds: Rounds,
    /// Who was waited for, the longest first.
    pub blockers: Vec<Blocker>,
    /// Sessions that wait for each other, or did last.
    pub deadlocks: Vec<Deadlock>,
    /// What was read: a recording, or the live instance.
    pub of: String,
    pub source: Source,
    /// Commands to type next.
    pub next: String,
    /// Holds of the mutex that was held most, where they were timed.
    pub timed: Option<(MutexId, Timed)>,
    /// Parts of the period, for the charts; nothing where none are drawn.
    pub course: Vec<Step>,
}

impl Report {
    fn period(&self) -> Period<'_> {
        self.span.period()
    }

    pub fn print(&self, format: Format) {
        if format.json {
            output::json(&self.json());
        } else if format.csv {
            self.time().events().print(format);
        } else {
            line(&self.text());
        }
    }

    fn json(&self) -> Value {
        let (period, time) = (self.period(), self.time());
        let to = &self.span.to;
        let pct = |share: Option<f64>| share.map(|share| 100.0 * share);
        json!({
            "of": self.of,
            "instance": to.instance.name,
            "from": self.begin_ns().map(clock::time),
            "to": clock::time(to.at.real_ns),
            "period_s": period.time_s(),
            "processors": to.load.processors,
            "busy_pct": pct(period.busy()),
            "pressure_pct": pct(period.pressed()),
            "stolen_pct": pct(period.stolen()),
            "threads_ready": to.load.runnable,
            "sessions": to.sessions.len(),
            "deadlocks": self.deadlocks.iter().map(|found| found.json(to.at.monotonic_ns)).collect::<Vec<_>>(),
            "session_time_s": time.all_s,
            "findings": self.findings(&time).iter().map(Finding::json).collect::<Vec<_>>(),
            "looks": self.rounds.rounds,
            "recorder_cpu_pct": self.recorder_pct(),
            "load": self.load().json(),
            "events": time.events().json(),
            "session_time": time.parts().json(),
            "thread_time": time.kernel().json(),
            "sleeps": figures::sleeps(self.period(), None).json(),
            "mutexes": self.mutexes().json(),
            "waits": lengths::table(&self.waited()).json(),
            "holds": self.holds().json(),
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

    /// Time that was sampled, as that of the whole period in s: counters go on between the samples, and while
    /// nobody recorded.
    fn of_period(&self, sampled_ns: u64) -> f64 {
        match self.rounds.length_ns {
            0 => 0.0,
            length_ns => sampled_ns as f64 / length_ns as f64 * self.period().time_s(),
        }
    }

    fn findings(&self, time: &Time) -> Vec<Finding> {
        let scale = self.of_period(1_000_000_000);
        let (source, blockers) = (self.source.clone(), self.blockers.clone());
        findings(&Evidence::new(self.period(), source, time.all_s, blockers, scale, self.deadlocks.clone()))
    }

    fn deaths(&self) -> u64 {
        let before = self.period().from().map_or(0, |from| from.recoveries);
        self.span.to.recoveries.saturating_sub(before)
    }

    /// What it says, in its order.
    fn page(&self) -> Page {
        let time = self.time();
        let to = &self.span.to;
        let found = self.findings(&time);
        let next = found.first().map_or(&self.next, |finding| &finding.found.command).clone();
        let alarm = |found: &Deadlock| Part::Alarm(found.text(to.at.monotonic_ns));
        let mut parts: Vec<Part> = self.deadlocks.iter().map(alarm).collect();
        let nothing = format!(
            "None: nothing is stuck, and no rule found a cause that takes {:.0} % of the sessions' time.",
            100.0 * TRIFLE
        );
        parts.push(Part::Findings { found, nothing });
        let course = Picture::Charts(vec![Course { name: "", steps: self.course.clone() }]);
        parts.push(Part::pictured("LOAD", course, self.load()));
        let bar = Picture::Bars(vec![Bar { name: "", shares: time.shares().collect() }]);
        parts.push(Part::pictured("TOP EVENTS", bar, time.events()));
        parts.push(Part::section("TIME OF THE SESSIONS", time.parts(), ""));
        let kernel = time.kernel();
        if !kernel.is_empty() {
            parts.push(Part::section("THE SAME TIME, AS THE KERNEL DIVIDES IT", kernel, ""));
        }
        let sleeps = shortened(figures::sleeps(self.period(), None));
        parts.push(Part::section("MUTEX SLEEPS BY TYPE AND LOCATION", sleeps, "None."));
        let nothing = "None was missed or waited for.";
        parts.push(Part::section("MUTEXES, WAITED FOR MOST FIRST", shortened(self.mutexes()), nothing));
        let awaited = shortened(self.awaited());
        if !awaited.is_empty() {
            parts.push(Part::section("WAITS FOR EVENTS, WHICH NOBODY HOLDS", awaited, ""));
        }
        let mut waited = self.waited();
        waited.truncate(TOP);
        let table = lengths::table(&waited);
        parts.push(Part::pictured("HOW LONG THE WAITS WERE", Picture::Lengths(waited), table));
        let holds = self.holds();
        if !holds.is_empty() {
            parts.push(Part::section("HOW LONG THE HOLDS WERE, TIMED FROM OUTSIDE", holds, ""));
        }
        let nothing = "Nobody, as far as samples saw.";
        parts.push(Part::section("WHO KEPT OTHERS WAITING", shortened(self.blocked()), nothing));
        parts.push(Part::section("PARAMETERS THAT WERE SET", self.parameters(), "None."));
        parts.push(Part::section("ALERTS", shortened(self.alerts()), "None."));
        if self.deaths() > 0 {
            let deaths = counted(self.deaths(), "mutex was held", "mutexes were held") + " by a session that died";
            parts.push(Part::Lines(deaths));
        }
        let title = format!("retrial report of {}, from {}", to.instance.name, self.of);
        Page { title, head: self.head(), parts, next: Some(next) }
    }

    fn text(&self) -> String {
        self.page().text()
    }

    /// The same with pictures, as one file of HTML.
    pub fn html(&self) -> Result<String, Failure> {
        self.page().html()
    }

    /// Lines under the title.
    fn head(&self) -> Vec<String> {
        let (period, to) = (self.period(), &self.span.to);
        let from = self.begin_ns().map_or_else(|| "its creation".to_owned(), clock::time);
        let pct = |share: Option<f64>| share.map_or_else(|| "?".to_owned(), |share| short(100.0 * share));
        let looked = match self.recorder_pct() {
            Some(pct) => {
                let looked_s = self.rounds.length_ns as f64 / 1e9;
                let part = if looked_s < 0.9 * period.time_s() {
                    format!(" in {} s of it, taken for all of it", short(looked_s))
                } else {
                    String::new()
                };
                format!(
                    "{} at who holds and who waits{part}; the recorder took {} % of a processor",
                    counted(self.rounds.rounds, "look", "looks"),
                    short(pct)
                )
            }
            None => "nobody looked: who held what, and for how long, is not known".to_owned(),
        };
        vec![
            format!("from {from} to {}: {} s", clock::time(to.at.real_ns), short(period.time_s())),
            format!(
                "machine: {}, {} % busy, {} % of the time some thread waited for one, {} % stolen; {} ready at the end",
                counted(to.load.processors as u64, "processor", "processors"),
                pct(period.busy()),
                pct(period.pressed()),
                pct(period.stolen()),
                to.load.runnable.map_or_else(|| "? threads".to_owned(), |ready| counted(ready, "thread", "threads")),
            ),
            format!("sessions at the end: {}; {looked}", to.sessions.len()),
        ]
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
            ("wait time (s)", of(Measure::Registered), None, None),
            ("wait time (us)", None, None, of(Measure::Wait).map(|s| 1e6 * s)),
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
            measure(Measure::UtilizationError, "pct", of).titled("± (%)"),
        ];
        Table::of(&columns, rows)
    }

    /// How long the mutex that was held most was held at a time, where enough holds were seen.
    fn holds(&self) -> Table {
        type Row<'r> = (&'r (MutexId, Timed), [f64; 3], Histogram);
        let row = self.timed.as_ref().and_then(|timed| {
            let (quantiles, lengths) = timed.1.estimate([0.5, 0.9, 0.99])?;
            Some((timed, quantiles, lengths))
        });
        let us = |i: usize, name: &'static str| column(name, move |row: &Row<'_>| row.1[i] / 1e3);
        let columns = [
            column("mutex", |row: &Row<'_>| self.span.to.mutex_label(row.0.0)),
            column("seen", |row: &Row<'_>| row.0.1.count()).titled("holds seen"),
            column("lost", |row: &Row<'_>| row.0.1.lost()).titled("lost sight of"),
            us(0, "p50_us").titled("p50 (us)"),
            us(1, "p90_us").titled("p90"),
            us(2, "p99_us").titled("p99"),
            column("shape", |row: &Row<'_>| lengths::shape(&row.2)).titled("how many were how long").for_people(),
        ];
        Table::of(&columns, row)
    }

    /// Mutexes and events of which a wait has ended, those waited for most first.
    fn waited(&self) -> Vec<(String, Profile)> {
        let (period, by) = (self.period(), |_, key: Key| Some(key.mutex));
        let mut all: Vec<_> = period.of(by).into_iter().chain(period.of_events(by)).collect();
        all.retain(|(_, profile)| profile.figures.lengths.total() > 0);
        all.sort_by(|(_, a), (_, b)| b.registered_s().total_cmp(&a.registered_s()));
        all.into_iter().map(|(id, profile)| (self.span.to.mutex_label(id), profile)).collect()
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
        let to = &self.span.to;
        // A session that has ended is in the snapshot before, if it was there then.
        let before = |holder: &Holder| self.period().from().and_then(|from| holder.session(from));
        let name = |row: &Blocker| {
            let session = row.holder.session(to).or_else(|| before(&row.holder));
            session.map(|session| session.info.name.clone())
        };
        let columns = [
            column("blocker", |row: &Blocker| row.holder.sid.number()).titled("session"),
            column("pid", |row: &Blocker| Some(row.holder.pid).filter(|pid| *pid > 0)),
            column("name", name),
            column("mutex", |row: &Blocker| to.mutex_label(row.mutex)),
            column("mode", |row: &Blocker| row.holder.mode.map(Mode::name)),
            column("location", |row: &Blocker| row.holder.location.map(|at| to.place(at))).titled("got at"),
            column("sessions_waiting", |row: &Blocker| row.waiters).titled("kept waiting"),
            column("time_s", |row: &Blocker| self.of_period(row.time_ns)).titled("for (s)"),
        ];
        Table::of(&columns, &self.blockers)
    }

    fn parameters(&self) -> Table {
        let (to, period) = (&self.span.to, self.period());
        let rows = to.params.iter().filter(|parameter| parameter.is_set || period.changed_from(parameter).is_some());
        let columns = [
            column("name", |row: &&Parameter| row.parameter.row().name),
            column("of", |row: &&Parameter| row.of.map_or("the instance", |of| to.type_name(of)).to_owned()),
            column("value", |row: &&Parameter| row.parameter.format(row.value)),
            column("changed_from", |row: &&Parameter| period.changed_from(row)),
        ];
        Table::of(&columns, rows)
    }

    fn alerts(&self) -> Table {
        let columns = [
            column("time", |alert: &&super::Alert| clock::time(alert.at_ns)),
            column("text", |alert: &&super::Alert| alert.text.clone()),
        ];
        Table::of(&columns, self.period().alerts().rev())
    }
}

fn shortened(mut table: Table) -> Table {
    table.shorten(TOP);
    table
}
