//! The groups for people and programs.

use super::heatmap::Heatmap;
use super::question::{Group, Groups, Question};
use crate::clock::time;
use crate::duration;
use crate::output::{self, Column, Format, Table, column, counted, line, measure, short};
use crate::recording::Span;
use crate::recording::store::Rounds;
use retrial_model::Measure;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// How the samples were taken.
pub struct Looked {
    pub rounds: Rounds,
    /// As often was asked for; nothing of a recording.
    pub every: Option<Duration>,
    /// Whether it ended early as there were enough samples.
    pub is_full: bool,
}

impl Looked {
    /// Time that the samples stand for.
    pub fn time_s(&self) -> f64 {
        self.rounds.length_ns as f64 / 1e9
    }

    /// Mean time from one round to the next.
    fn pace(&self) -> Duration {
        Duration::from_nanos(self.rounds.length_ns / self.rounds.rounds.max(1))
    }

    /// Processor time of the observer.
    fn observer_pct(&self) -> f64 {
        100.0 * self.rounds.recorder_ns as f64 / self.rounds.length_ns.max(1) as f64
    }

    fn text(&self, span: &Span) -> String {
        let asked = self.every.map(|every| format!(", asked for {}", duration::text(every)));
        let mut text = format!(
            "{}, {} apart{}; they took {} % of a processor",
            counted(self.rounds.rounds, "look", "looks"),
            duration::text(self.pace()),
            asked.unwrap_or_default(),
            short(self.observer_pct()),
        );
        if self.is_full {
            let _ = write!(text, "\nended after {} s, with as many samples as are kept", short(self.time_s()));
        }
        // Since the creation nobody has sampled.
        let period_s = span.from.as_ref().map(|_| span.period().time_s());
        if let Some(period_s) = period_s.filter(|period_s| self.every.is_none() && self.time_s() < 0.9 * period_s) {
            let of = short(period_s);
            let _ = write!(text, "\nonly {} s of {of} s were sampled", short(self.time_s()));
        }
        text
    }
}

/// What is said of the samples.
pub struct Answer {
    pub question: Question,
    pub groups: Groups,
    pub span: Span,
    /// Which of several instances of the name; nothing of one alone.
    pub note: String,
    pub looked: Looked,
    /// Groups that are shown.
    pub top: usize,
    /// The groups over time, where that was asked for.
    pub heatmap: Option<Heatmap>,
}

impl Answer {
    pub fn print(&self, format: Format) {
        if format.json {
            output::json(&self.json());
        } else if format.csv {
            self.heatmap
                .as_ref()
                .map_or_else(|| self.table(), |heatmap| heatmap.cells(&self.question.by))
                .print(format);
        } else {
            line(&self.text());
        }
    }

    fn table(&self) -> Table {
        let total = self.groups.total().time_s();
        let mut columns: Vec<Column<'_, Group>> = Vec::new();
        for (position, by) in self.question.by.iter().enumerate() {
            columns.push(column(by.short, move |group: &Group| group.text(position)).for_people());
            let programs = move |group: &Group| group.values.get(position).cloned();
            columns.push(column(by.short, programs).for_programs());
        }
        columns.push(column("groups", |group: &Group| group.groups).for_programs());
        columns.push(column("samples", |group: &Group| group.samples));
        columns.push(measure(Measure::Active, "", Group::measure).named("active_sessions").titled("sessions"));
        columns.push(column("share_pct", move |group: &Group| 100.0 * group.time_s() / total).titled("%"));
        Table::of(&columns, self.groups.top(self.top))
    }

    fn json(&self) -> Value {
        let (total, looked) = (self.groups.total(), &self.looked);
        json!({
            "instance": self.span.to.instance.name,
            "from": self.span.from.as_ref().map(|from| time(from.at.real_ns)),
            "to": time(self.span.to.at.real_ns),
            "sampled_s": looked.time_s(),
            "looks": looked.rounds.rounds,
            "every_s": looked.pace().as_secs_f64(),
            "every_asked_s": looked.every.map(|every| every.as_secs_f64()),
            "observer_pct": looked.observer_pct(),
            "is_full": looked.is_full,
            "active_sessions": total.measure(Measure::Active),
            "holding": total.measure(Measure::Utilization),
            "waiting": total.measure(Measure::Waiting),
            "groups": self.table().json(),
            "heatmap": self.heatmap.as_ref().map(|heatmap| heatmap.cells(&self.question.by).json()),
        })
    }

    /// What is said where there are no groups: what may have left all of them out.
    fn nobody(&self) -> String {
        let state = self.question.state.map(|state| if state == "holds" { "--holders" } else { "--waiters" });
        let narrowed: Vec<&str> =
            state.into_iter().chain(self.question.condition.as_ref().map(|_| "--where")).collect();
        if narrowed.is_empty() {
            return "Nobody held or waited at any of them. Next: --every 100us sees shorter holds, --for 1min more."
                .to_owned();
        }
        format!("Nobody was seen who fits. Next: leave out {} to see who was there.", narrowed.join(" or "))
    }

    fn text(&self) -> String {
        const ONCE: &str = "sessions held, each counted once for each mutex";
        let (total, span) = (self.groups.total(), &self.span);
        let from = span.from.as_ref().map_or_else(String::new, |from| format!("from {} ", time(from.at.real_ns)));
        let mut text = format!(
            "retrial ash of {}{}\n{from}to {}: {} s sampled\n{}\n",
            span.to.instance.name,
            self.note,
            time(span.to.at.real_ns),
            short(self.looked.time_s()),
            self.looked.text(span)
        );
        if self.groups.all.is_empty() {
            return text + &self.nobody();
        }
        let mean = |measure| total.measure(measure).map_or_else(String::new, short);
        let [holding, waiting] = [Measure::Utilization, Measure::Waiting].map(mean);
        let seen = match self.question.state {
            Some("holds") => format!("{holding} {ONCE}"),
            Some(_) => format!("{waiting} sessions waited"),
            None => format!("{holding} {ONCE}, and {waiting} waited"),
        };
        let _ = writeln!(text, "on average {seen}");
        match &self.heatmap {
            Some(heatmap) => {
                let lines = heatmap.lines(&self.question.by, total.time_s());
                text + &heatmap.legend() + "\n\n" + &lines.text()
            }
            None => text + "\n" + &self.table().text(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::question::columns;
    use super::*;
    use crate::golden::golden;
    use crate::recording::Snapshot;

    fn snapshot(s: u64) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.instance.name = "bank".to_owned();
        (snapshot.at.real_ns, snapshot.at.monotonic_ns) = (s * 1_000_000_000, s * 1_000_000_000);
        snapshot
    }

    fn answer(state: Option<&'static str>, groups: Vec<Group>, every: Option<Duration>) -> Answer {
        let by = if state.is_some() { "mutex,step" } else { "state,mutex,step" };
        let rounds = Rounds { rounds: 400, length_ns: 4_000_000_000, recorder_ns: 12_000_000, ..Rounds::default() };
        Answer {
            question: Question { by: columns(by).unwrap(), state, condition: None },
            groups: Groups::new(groups, 4.0),
            span: Span { from: Some(snapshot(1_709_208_000)), to: snapshot(1_709_208_010) },
            note: String::new(),
            looked: Looked { rounds, every, is_full: every.is_some() },
            top: 3,
            heatmap: None,
        }
    }

    #[test]
    fn people_read_this() {
        let values =
            |words: &[&str]| words.iter().map(|word| Some(*word).filter(|word| !word.is_empty()).into()).collect();
        let group = |words: &[&str], holds_s, waits_s| Group::new(values(words), 400, [holds_s, waits_s], 4.0);
        let both = [
            group(&["waits", "accounts", "park"], 0.0, 12.0),
            group(&["holds", "accounts", ""], 4.0, 0.0),
            group(&["waits", "accounts", "yield"], 0.0, 2.0),
            group(&["waits", "#7 a_long_name (a_program)", "spin"], 0.0, 1.5),
            group(&["holds", "#7 a_long_name (a_program)", ""], 0.5, 0.0),
        ];
        let texts = [
            answer(None, both.to_vec(), None),
            answer(Some("waits"), vec![group(&["accounts", "park"], 0.0, 12.0)], Some(Duration::from_micros(100))),
            answer(Some("holds"), Vec::new(), None),
        ];
        let text = texts.map(|answer| answer.text() + "\n").join("\n");
        golden("ash.txt", &text);
    }
}
