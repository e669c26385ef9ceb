//! A run's report: text, JSON, CSV or a page from the same figures.

use super::outcome::{Calls, Event, Outcome, PARTS, TOP, Used, split};
use super::profile::report::Profile as Calling;
use crate::lengths::shape;
use crate::output::{Format, Table, column, counted, counter, grouped, measure, plain, record, short, whole};
use crate::page::{Bar, Page, Part, Picture, Share};
use crate::predict::fit::{Of, recording};
use crate::predict::holds::Timed;
use crate::predict::recording::Recording;
use miette::Report as Failure;
use retrial::views::{Counter, Figures};
use retrial_model::{Measure, Profile};
use serde_json::{Value, json};
use std::fmt::Write;

impl Outcome {
    /// The report in one of the three forms, with its last line ended.
    pub fn render(&self, format: Format) -> String {
        if format.json {
            serde_json::to_string_pretty(&self.json()).unwrap_or_default() + "\n"
        } else if format.csv {
            self.csv()
        } else {
            self.text()
        }
    }

    fn json(&self) -> Value {
        let finished = &self.finished;
        let (exit, signal) = match finished.end {
            super::child::End::Exit(code) => (Some(code), None),
            super::child::End::Signal(signal) => (None, Some(signal)),
        };
        json!({
            "command": self.command,
            "exit_code": exit,
            "signal": signal,
            "elapsed_s": self.elapsed_s,
            "cpu_user_s": finished.user_s,
            "cpu_system_s": finished.system_s,
            "machine": self.machine.json(),
            "machine_busy_pct": self.machine_busy.map(percent),
            "instance": self.instance,
            "instance_kept": self.kept,
            "scheme": self.scheme(),
            "mutexes_contended": self.contended(),
            "gets": self.total.gets,
            "gets_per_s": Measure::Throughput.of(&self.total),
            "misses": self.total.figures.get(Counter::Misses),
            "spin_gets": self.total.figures.get(Counter::SpinGets),
            "waits": self.total.figures.get(Counter::Waits),
            "gave_up": self.total.figures.get(Counter::GaveUp),
            "wait_ms": ms(Measure::Registered, &self.total),
            "max_wait_ms": ms(Measure::RegisteredMax, &self.total),
            "time_split_pct": self.split_json(),
            "busiest": self.busiest().json(),
            "workloads": self.workloads(),
            "events": self.events_table().json(),
            "waits_for_events": Used::awaited(&self.awaited).json(),
            "calls": self.calls_table().json(),
            "deadlocks": self.deadlocks.iter().map(|deadlock| deadlock.json(self.ended_ns)).collect::<Vec<_>>(),
            "alerts": self.alerts,
            "recoveries": self.recoveries,
            "sessions_living": self.unseen.living,
            "processes_living": self.unseen.processes,
            "threads_without_session": self.unseen.threads,
            "cpu_starved": self.starved(),
            "nothing_handled": self.nothing,
            "profile": self.profile.as_ref().map(|profile| profile.json(self.cpu_s())),
            "observer": {
                "cpu_pct": percent(self.cost.share()),
                "samples": self.cost.samples,
                "samples_per_s": self.cost.samples_per_s(),
                "records": self.cost.records,
                "refused": self.cost.refused,
            },
        })
    }

    /// The workloads of the busiest mutexes, as `what-if` and `advise` take them.
    fn workloads(&self) -> Vec<Recording> {
        let of = |used: &Used| {
            let mutex = used.title();
            let text = format!("{mutex} of `{}`", self.command);
            let of = Of { text, instance: None, mutex, mutex_type: used.mutex_type.clone() };
            recording(of, &used.profile, &Timed::default(), self.params, self.costs.clone())
        };
        self.mutexes.iter().filter_map(of).collect()
    }

    fn split_json(&self) -> Value {
        let share = |measure: Measure| percent(measure.of(&self.total).unwrap_or(0.0));
        PARTS.into_iter().map(|(name, _, measure)| (name.to_owned(), Value::from(share(measure)))).collect()
    }

    /// One row for each of the busiest mutexes; then one for each lock and stack of the profile.
    fn csv(&self) -> String {
        let busiest = self.busiest();
        let columns = || busiest.names().chain(PROFILE);
        let Value::Array(mutexes) = busiest.json() else { return String::new() };
        let profile = self.profile.as_ref().map(Calling::rows).unwrap_or_default();
        let of = |group: &'static str, row: &Value| {
            record(columns().map(|name| if name == "group" { group.to_owned() } else { plain(&row[name]) }))
        };
        let rows = mutexes.iter().map(|row| of("mutex", row)).chain(profile.iter().map(|row| of("profile", row)));
        std::iter::once(record(columns())).chain(rows).collect()
    }

    fn busiest(&self) -> Table {
        Used::table(&self.mutexes)
    }

    fn events_table(&self) -> Table {
        let of = |event: &Event, measure: Measure| measure.of(&event.profile);
        let counted = |which| counter(which, |event: &Event| &event.profile);
        let columns = [
            column("event", |event: &Event| event.name.clone()),
            counted(Counter::Misses),
            counted(Counter::Waits),
            measure(Measure::Registered, "ms", of).named("wait_ms"),
            measure(Measure::RegisteredMean, "ms", of).named("avg_wait_ms"),
            measure(Measure::RegisteredMax, "ms", of).named("max_wait_ms"),
            counted(Counter::Yields),
            counted(Counter::Sleeps),
            counted(Counter::Parks),
        ];
        Table::of(&columns, &self.events)
    }

    fn calls_table(&self) -> Table {
        let columns = [
            column("kind", |calls: &Calls| calls.kind),
            column("handled", |calls: &Calls| calls.handled),
            column("fallback", |calls: &Calls| calls.fallback),
        ];
        Table::of(&columns, &self.calls)
    }

    fn text(&self) -> String {
        self.page().text() + "\n"
    }

    /// The report as one file of HTML.
    pub fn html(&self) -> Result<String, Failure> {
        self.page().html()
    }

    /// What it says, in its order.
    fn page(&self) -> Page {
        let mut parts: Vec<Part> =
            self.deadlocks.iter().map(|deadlock| Part::Alarm(deadlock.text(self.ended_ns))).collect();
        if self.nothing.is_none() {
            parts.extend(self.tables());
        }
        if let Some(profile) = &self.profile {
            parts.extend(profile.parts(self.cpu_s()));
        }
        parts.push(Part::Lines(self.remarks().join("\n")));
        let head = [self.head(), self.locks()].concat();
        Page { title: format!("retrial run -- {}", self.short_command()), head, parts, next: Some(self.next()) }
    }

    /// The tables that have rows.
    fn tables(&self) -> impl Iterator<Item = Part> {
        let lengths = |used: &Used| (used.title(), used.profile.clone());
        let waited = self.mutexes.iter().take(TOP).filter(|used| used.profile.figures.lengths.total() > 0);
        let waited = Picture::Lengths(waited.map(lengths).collect());
        let tables = [
            ("MUTEXES, WAITED FOR MOST FIRST", waited, self.busiest()),
            ("WAIT EVENTS", self.wait_time(), self.events_table()),
            ("WAITS FOR EVENTS, WHICH NOBODY HOLDS", Picture::None, Used::awaited(&self.awaited)),
            ("CALLS BY KIND OF LOCK", Picture::None, self.calls_table()),
        ];
        let filled = tables.into_iter().filter(|(.., table)| !table.is_empty());
        filled.map(|(title, picture, table)| Part::pictured(title, picture, table))
    }

    /// The parts of the wait time as a bar: what took processors, in one colour, and what did not.
    fn wait_time(&self) -> Picture {
        let share = |((name, counter, _), tenths): (&(&str, Counter, Measure), u64)| {
            let class = match counter {
                Counter::SpinNs | Counter::YieldNs => "Concurrency",
                Counter::SleptNs => "Event",
                _ => "Other",
            };
            Share { name: (*name).to_owned(), class, pct: tenths as f64 / 10.0 }
        };
        let shares = PARTS.iter().zip(split(&self.total.figures)).map(share).filter(|share| share.pct > 0.0);
        let bar = Bar { name: "wait time", shares: shares.collect() };
        if bar.shares.is_empty() { Picture::None } else { Picture::Bars(vec![bar]) }
    }

    /// The lines under the title.
    fn head(&self) -> Vec<String> {
        let finished = &self.finished;
        // The kernel counts in ticks of 10 ms.
        let busy = self.machine_busy.filter(|_| self.elapsed_s > 0.5);
        let busy = busy.map_or_else(String::new, |busy| format!(", {:.0} % busy", percent(busy)));
        let kept = if self.kept { "kept" } else { "removed" };
        vec![
            format!(
                "{} after {} s; CPU {} s user, {} s system ({} CPUs)",
                finished.end.text(),
                short(self.elapsed_s),
                short(finished.user_s),
                short(finished.system_s),
                short(self.cpu_s() / self.elapsed_s.max(1e-9)),
            ),
            format!("machine: {}{busy}", self.machine.text()),
            format!("scheme: {}; instance {} ({kept})", self.scheme(), self.instance),
        ]
    }

    fn cpu_s(&self) -> f64 {
        self.finished.user_s + self.finished.system_s
    }

    /// All locks together, and the busiest; why there is none.
    fn locks(&self) -> Vec<String> {
        if let Some(why) = &self.nothing {
            return vec![format!("no pthread lock was handled: {why}")];
        }
        let total = &self.total.figures;
        let (misses, waits, given_up) =
            (total.get(Counter::Misses), total.get(Counter::Waits), total.get(Counter::GaveUp));
        let mut lines: Vec<String> = self.not_seen().collect();
        lines.push(format!(
            "mutexes: {} contended; {}, {} gets/s, {} ({} %), {} got by the first spin, {}{}",
            self.contended(),
            counted(self.total.gets.unwrap_or(0), "get", "gets"),
            grouped(whole(Measure::Throughput.of(&self.total).unwrap_or(0.0))),
            counted(misses, "miss", "misses"),
            short(percent(Measure::MissRatio.of(&self.total).unwrap_or(0.0))),
            grouped(total.get(Counter::SpinGets)),
            counted(waits, "wait", "waits"),
            if given_up > 0 { format!(", of which {} gave up", grouped(given_up)) } else { String::new() },
        ));
        let ms = |measure: Measure| short(ms(measure, &self.total).unwrap_or(0.0));
        if waits > 0 {
            lines.push(format!(
                "wait time: {} ms in all, average {} ms, longest {} ms: {}",
                ms(Measure::Registered),
                ms(Measure::RegisteredMean),
                ms(Measure::RegisteredMax),
                split_text(total),
            ));
        }
        if total.lengths.total() > 0 {
            lines.push(format!(
                "waits: half end within {} ms, 90 % within {} ms, 99 % within {} ms: {}",
                ms(Measure::RegisteredP50),
                ms(Measure::RegisteredP90),
                ms(Measure::RegisteredP99),
                shape(&total.lengths),
            ));
        }
        lines.push(self.busiest_line());
        lines
    }

    fn busiest_line(&self) -> String {
        let Some(first) = self.mutexes.first() else {
            if self.not_seen().next().is_some() {
                return "no other lock was contended: a lock is listed from its first miss on".to_owned();
            }
            return "no lock was contended: a lock is listed from its first miss on".to_owned();
        };
        let (title, mut kind) = (first.title(), first.mutex_type.clone());
        if first.processes > 1 {
            let _ = write!(kind, ", {} processes", first.processes);
        }
        let place = first.place().map_or_else(String::new, |place| format!(", busy at {place}"));
        format!("busiest: {title} ({kind}){place}")
    }

    /// What is to be known of the figures, and what they cost.
    fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(rest) = self.mutexes.iter().find(|mutex| mutex.id.0 == 0) {
            lines.push(format!(
                "{}, {} ms of waiting: which locks these were of is not known; a thread has rows for {} combinations of lock, \
                 place and event",
                counted(rest.profile.figures.get(Counter::Misses), "miss", "misses"),
                short(ms(Measure::Registered, &rest.profile).unwrap_or(0.0)),
                self.rows,
            ));
        }
        if self.starved() {
            let own = self.cpu_s() / (self.elapsed_s * self.machine.cpus as f64);
            lines.push(format!(
                "the machine was full ({:.0} % by this program) and most of the wait time is run queue: these waits are for \
                 the CPU, not the mutex",
                percent(own)
            ));
        }
        lines.extend(self.left_behind());
        if self.recoveries > 0 {
            let were = counted(self.recoveries, "mutex was held", "mutexes were held");
            lines.push(format!("{were} by a thread that died, and recovered"));
        }
        lines.extend(self.alerts.iter().map(|alert| format!("alert: {alert}")));
        let cost = &self.cost;
        let refused = "; some processes may not be read, their utilization and some gets are missing";
        lines.push(format!(
            "observer: {} % of a CPU, {} samples/s of holders{}",
            short(percent(cost.share())),
            short(cost.samples_per_s()),
            if cost.refused > 0 { refused } else { "" },
        ));
        lines
    }

    /// The command, or as much of it as fits a line.
    fn short_command(&self) -> String {
        const FITS: usize = 120;
        if self.command.chars().count() <= FITS {
            return self.command.clone();
        }
        self.command.chars().take(FITS - 1).chain(['…']).collect()
    }
}

/// Columns of the CSV beyond those of the busiest mutexes: of which group a row is, and what only those of a
/// profile have.
const PROFILE: [&str; 4] = ["group", "mode", "hold_ms", "calls"];

pub(super) fn percent(share: f64) -> f64 {
    share * 100.0
}

fn ms(measure: Measure, profile: &Profile) -> Option<f64> {
    measure.of(profile).map(|s| s * 1e3)
}

/// `spin 12.1 %, yield 30.0 %, slept 50.0 %, oversleep 7.9 %`.
fn split_text(figures: &Figures) -> String {
    let parts = PARTS.iter().zip(split(figures));
    parts.map(|((name, ..), tenths)| format!("{name} {}.{} %", tenths / 10, tenths % 10)).collect::<Vec<_>>().join(", ")
}
