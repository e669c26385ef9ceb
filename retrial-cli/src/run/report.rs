//! A run's report: text, JSON or CSV from the same figures.

use super::figures::{Event, Outcome, PARTS, TOP, Used, split};
use super::profile::report::Profile;
use crate::output::{Format, Table, plain, short};
use retrial::views::{Counter, Figures};
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
            "gets": self.gets,
            "gets_per_s": self.gets as f64 / self.elapsed_s,
            "misses": self.total.get(Counter::Misses),
            "spin_gets": self.total.get(Counter::SpinGets),
            "waits": self.total.get(Counter::Waits),
            "gave_up": self.total.get(Counter::GaveUp),
            "wait_ms": ms(self.total.get(Counter::WaitNs)),
            "max_wait_ms": ms(self.total.get(Counter::MaxNs)),
            "time_split_pct": self.split_json(),
            "busiest": self.busiest().json(),
            "events": self.events_table().json(),
            "calls": self.calls_table().json(),
            "alerts": self.alerts,
            "recoveries": self.recoveries,
            "sessions_living": self.living,
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

    fn split_json(&self) -> Value {
        let tenths = split(&self.total);
        PARTS.iter().zip(tenths).map(|((name, _), tenths)| ((*name).to_owned(), tenths_json(tenths))).collect()
    }

    /// One row for each of the busiest mutexes; then one for each lock and stack of the profile.
    fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let columns = || BUSIEST.iter().chain(&PROFILE);
        let _ = writer.write_record(columns());
        let Value::Array(mutexes) = self.busiest().json() else { return String::new() };
        let profile = self.profile.as_ref().map(Profile::rows).unwrap_or_default();
        for (group, rows) in [("mutex", mutexes), ("profile", profile)] {
            for mut row in rows {
                row["group"] = group.into();
                let _ = writer.write_record(columns().map(|column| plain(&row[*column])));
            }
        }
        String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned()
    }

    fn busiest(&self) -> Table {
        let mut table = Table::new(&BUSIEST);
        for mutex in self.mutexes.iter().take(TOP) {
            table.row(mutex.cells());
        }
        table
    }

    fn events_table(&self) -> Table {
        let mut table = Table::new(&[
            "event",
            "misses",
            "waits",
            "wait_ms",
            "avg_wait_ms",
            "max_wait_ms",
            "yields",
            "sleeps",
            "parks",
        ]);
        for Event { name, figures } in &self.events {
            table.row(vec![
                name.as_str().into(),
                figures.get(Counter::Misses).into(),
                figures.get(Counter::Waits).into(),
                ms(figures.get(Counter::WaitNs)).into(),
                average_ms(figures).into(),
                ms(figures.get(Counter::MaxNs)).into(),
                figures.get(Counter::Yields).into(),
                figures.get(Counter::Sleeps).into(),
                figures.get(Counter::Parks).into(),
            ]);
        }
        table
    }

    fn calls_table(&self) -> Table {
        let mut table = Table::new(&["kind", "handled", "fallback"]);
        for calls in &self.calls {
            table.row(vec![calls.kind.into(), calls.handled.into(), calls.fallback.into()]);
        }
        table
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.head(&mut text);
        if let Some(why) = &self.nothing {
            let _ = writeln!(text, "no pthread lock was handled: {why}");
        } else {
            self.locks(&mut text);
        }
        if let Some(profile) = &self.profile {
            text += &profile.text(self.cpu_s());
        }
        self.remarks(&mut text);
        let cost = &self.cost;
        let _ = writeln!(
            text,
            "observer: {} % of a CPU, {} samples/s of holders{}",
            short(percent(cost.share())),
            short(cost.samples_per_s()),
            if cost.refused > 0 {
                "; some processes may not be read, their utilization and some gets are missing"
            } else {
                ""
            },
        );
        let _ = writeln!(text, "Next: {}", self.next());
        text
    }

    fn head(&self, text: &mut String) {
        let finished = &self.finished;
        let cpu_s = finished.user_s + finished.system_s;
        let _ = writeln!(text, "retrial run -- {}", self.short_command());
        let _ = writeln!(
            text,
            "{} after {} s; CPU {} s user, {} s system ({} CPUs)",
            finished.end.text(),
            short(self.elapsed_s),
            short(finished.user_s),
            short(finished.system_s),
            short(cpu_s / self.elapsed_s.max(1e-9)),
        );
        // The kernel counts in ticks of 10 ms.
        let busy = self.machine_busy.filter(|_| self.elapsed_s > 0.5);
        let busy = busy.map_or_else(String::new, |busy| format!(", {:.0} % busy", percent(busy)));
        let _ = writeln!(text, "machine: {}{busy}", self.machine.text());
        let kept = if self.kept { "kept" } else { "removed" };
        let _ = writeln!(text, "scheme: {}; instance {} ({kept})", self.scheme(), self.instance);
    }

    fn cpu_s(&self) -> f64 {
        self.finished.user_s + self.finished.system_s
    }

    fn elapsed_us(&self) -> u128 {
        std::time::Duration::from_secs_f64(self.elapsed_s).as_micros().max(1)
    }

    fn locks(&self, text: &mut String) {
        let (misses, waits) = (self.total.get(Counter::Misses), self.total.get(Counter::Waits));
        let given_up = self.total.get(Counter::GaveUp);
        let _ = writeln!(
            text,
            "mutexes: {} contended; {} gets, {} gets/s, {} misses ({} %), {} got by the first spin, {} waits{}",
            self.contended(),
            grouped(self.gets),
            grouped(u64::try_from(u128::from(self.gets) * 1_000_000 / self.elapsed_us()).unwrap_or(u64::MAX)),
            grouped(misses),
            share(misses, self.gets + given_up),
            grouped(self.total.get(Counter::SpinGets)),
            grouped(waits),
            if given_up > 0 { format!(", of which {} gave up", grouped(given_up)) } else { String::new() },
        );
        if waits > 0 {
            let _ = writeln!(
                text,
                "wait time: {} ms in all, average {} ms, longest {} ms: {}",
                short(ms(self.total.get(Counter::WaitNs))),
                short(average_ms(&self.total)),
                short(ms(self.total.get(Counter::MaxNs))),
                split_text(&self.total),
            );
        }
        self.busiest_line(text);
        if !self.mutexes.is_empty() {
            let _ = writeln!(text, "\n{}", self.busiest_text());
        }
        if !self.events.is_empty() {
            let _ = writeln!(text, "\n{}", self.events_table().text());
        }
        if !self.calls.is_empty() {
            let _ = writeln!(text, "\n{}", self.calls_table().text());
        }
        text.push('\n');
    }

    fn busiest_line(&self, text: &mut String) {
        let Some(first) = self.mutexes.first() else {
            let _ = writeln!(text, "no lock was contended: a lock is listed from its first miss on");
            return;
        };
        let (title, mut kind) = (first.title(), first.mutex_type.clone());
        if first.processes > 1 {
            let _ = write!(kind, ", {} processes", first.processes);
        }
        let place = first.place().map_or_else(String::new, |place| format!(", busy at {place}"));
        let _ = writeln!(text, "busiest: {title} ({kind}){place}");
    }

    /// The columns that fit a terminal.
    fn busiest_text(&self) -> String {
        let mut table = Table::new(&[
            "mutex",
            "gets",
            "gets_per_s",
            "misses",
            "rho_pct",
            "U_pct",
            "k",
            "kappa",
            "S_us",
            "wait_ms",
            "max_ms",
            "busy_at",
        ]);
        for mutex in self.mutexes.iter().take(TOP) {
            let contended = mutex.figures.get(Counter::Misses) > 0;
            let derived = &mutex.derived;
            let only = |value: f64| if contended { Value::from(value) } else { Value::Null };
            table.row(vec![
                mutex.title().into(),
                mutex.counted(mutex.gets.into()),
                mutex.counted(derived.gets_per_s.into()),
                mutex.figures.get(Counter::Misses).into(),
                mutex.counted(only(percent(derived.miss_ratio))),
                mutex.utilization.map(percent).into(),
                if derived.spin_inefficiency <= 1.0 {
                    mutex.counted(only(derived.spin_inefficiency))
                } else {
                    Value::Null
                },
                only(derived.sleep_ratio),
                mutex.holding_s.map(|s| s * 1e6).into(),
                only(ms(mutex.figures.get(Counter::WaitNs))),
                only(ms(mutex.figures.get(Counter::MaxNs))),
                mutex.places_text().into(),
            ]);
        }
        table.text()
    }

    fn remarks(&self, text: &mut String) {
        if let Some(rest) = self.mutexes.iter().find(|mutex| mutex.id.0 == 0) {
            let _ = writeln!(
                text,
                "{} misses, {} ms of waiting: which locks these were of is not known; a thread has rows for {} combinations of lock, \
                 place and event",
                grouped(rest.figures.get(Counter::Misses)),
                short(ms(rest.figures.get(Counter::WaitNs))),
                self.rows,
            );
        }
        if self.starved() {
            let own = (self.finished.user_s + self.finished.system_s) / (self.elapsed_s * self.machine.cpus as f64);
            let _ = writeln!(
                text,
                "the machine was full ({:.0} % by this program) and most of the wait time is run queue: these waits are for \
                 the CPU, not the mutex",
                percent(own)
            );
        }
        if self.living > 0 {
            let _ = writeln!(
                text,
                "{} sessions live on in processes that the program left behind; they keep the instance's memory",
                self.living
            );
        }
        if self.recoveries > 0 {
            let _ = writeln!(text, "{} mutexes were held by a thread that died, and recovered", self.recoveries);
        }
        for alert in &self.alerts {
            let _ = writeln!(text, "alert: {alert}");
        }
    }

    fn next(&self) -> String {
        if self.kept {
            return format!("retrial show --instance {0}; then retrial rm {0}", self.instance);
        }
        if self.nothing.is_some() {
            return "retrial demo".to_owned();
        }
        let other = if self.scheme() == "pthread" { "orbit" } else { "pthread" };
        format!("retrial run --scheme {other} -- {}", self.command)
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

/// Columns of the CSV beyond those of the busiest mutexes: of which group a row is, and what only those of a profile have.
const PROFILE: [&str; 4] = ["group", "mode", "hold_ms", "calls"];

const BUSIEST: [&str; 29] = [
    "mutex",
    "type",
    "pid",
    "address",
    "busy_at",
    "gets",
    "gets_per_s",
    "misses",
    "miss_ratio",
    "spin_gets",
    "waits",
    "yields",
    "sleeps",
    "parks",
    "gave_up",
    "k",
    "kappa",
    "utilization",
    "samples",
    "holding_us",
    "wait_ms",
    "avg_wait_ms",
    "max_wait_ms",
    "spin_pct",
    "yield_pct",
    "slept_pct",
    "oversleep_pct",
    "places",
    "processes",
];

impl Used {
    fn cells(&self) -> Vec<Value> {
        let (figures, derived) = (&self.figures, &self.derived);
        let [spin, yields, slept, over] = split(figures);
        vec![
            self.title().into(),
            self.mutex_type.as_str().into(),
            self.pid.into(),
            format!("{:#x}", self.address).into(),
            self.place().into(),
            self.counted(self.gets.into()),
            self.counted(derived.gets_per_s.into()),
            figures.get(Counter::Misses).into(),
            self.counted(derived.miss_ratio.into()),
            figures.get(Counter::SpinGets).into(),
            figures.get(Counter::Waits).into(),
            figures.get(Counter::Yields).into(),
            figures.get(Counter::Sleeps).into(),
            figures.get(Counter::Parks).into(),
            figures.get(Counter::GaveUp).into(),
            self.counted(derived.spin_inefficiency.into()),
            derived.sleep_ratio.into(),
            self.utilization.into(),
            self.samples.into(),
            self.holding_s.map(|s| s * 1e6).into(),
            ms(figures.get(Counter::WaitNs)).into(),
            average_ms(figures).into(),
            ms(figures.get(Counter::MaxNs)).into(),
            tenths_json(spin),
            tenths_json(yields),
            tenths_json(slept),
            tenths_json(over),
            self.places_text().into(),
            self.processes.into(),
        ]
    }

    /// A figure that rests on the gets, null where they are not known, or not all: rwlocks, spin locks and adaptive mutexes in libc's
    /// format have no room to count them.
    fn counted(&self, figure: Value) -> Value {
        let requests = self.gets + self.figures.get(Counter::GaveUp);
        let are_all = requests >= self.figures.get(Counter::Misses) || self.samples > 0;
        if self.gets > 0 && are_all { figure } else { Value::Null }
    }

    /// The places with their shares of the misses: `push+0x1a (queue) 80 %, pop+0x2c (queue) 20 %`.
    fn places_text(&self) -> String {
        let misses = self.figures.get(Counter::Misses);
        let share = |figures: &Figures| percent(figures.get(Counter::Misses) as f64 / misses.max(1) as f64);
        if let [(place, _)] = self.places.as_slice() {
            return place.clone();
        }
        let shown = self.places.iter().take(2).filter(|(_, figures)| share(figures) >= 1.0);
        let shown: Vec<String> = shown.map(|(place, figures)| format!("{place} {:.0} %", share(figures))).collect();
        let mut text = shown.join(", ");
        if self.places.len() > shown.len() {
            let _ = write!(text, ", {} more", self.places.len() - shown.len());
        }
        text
    }
}

fn percent(share: f64) -> f64 {
    share * 100.0
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn average_ms(figures: &Figures) -> f64 {
    ms(figures.get(Counter::WaitNs)) / figures.get(Counter::Waits).max(1) as f64
}

fn tenths_json(tenths: u64) -> Value {
    Value::from(tenths as f64 / 10.0)
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "0".to_owned() } else { short(percent(part as f64 / whole as f64)) }
}

/// `spin 12.1 %, yield 30.0 %, slept 50.0 %, oversleep 7.9 %`.
fn split_text(figures: &Figures) -> String {
    let parts = PARTS.iter().zip(split(figures));
    parts.map(|((name, _), tenths)| format!("{name} {}.{} %", tenths / 10, tenths % 10)).collect::<Vec<_>>().join(", ")
}

/// `1,234,567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
