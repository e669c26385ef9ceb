//! What is asked of the samples, as SQL, and the groups that come of it.

use super::VIEW;
use super::heatmap::{Axis, Stretch};
use crate::flame::Stacks;
use crate::output::{counted, whole};
use crate::recording::history::{COLUMNS, Column};
use crate::sql::{self, Database};
use miette::{Report, miette};
use retrial_model::profile::Samples;
use retrial_model::{Measure, Profile};
use serde_json::Value;
use std::fmt::Write;

/// What is asked of the samples.
pub struct Question {
    pub by: Vec<&'static Column>,
    /// Those in this state only.
    pub state: Option<&'static str>,
    /// Those of which this holds: SQL.
    pub condition: Option<String>,
}

/// The columns of these names, separated by commas.
pub fn columns(text: &str) -> Result<Vec<&'static Column>, Report> {
    let mut by: Vec<&'static Column> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let groups = || COLUMNS.iter().filter(|column| column.is_group);
        let Some(column) = groups().find(|column| column.short.eq_ignore_ascii_case(name)) else {
            let known = groups().map(|column| column.short).collect::<Vec<_>>();
            let help = sql::nearest(&name.to_lowercase(), known.iter().copied().filter(|_| !name.is_empty()))
                .map_or_else(|| "--by mutex,location".to_owned(), |nearest| format!("did you mean {nearest}?"));
            return Err(miette!(
                code = "retrial::ash::column",
                help = help,
                "--by `{name}`, expected some of {}",
                known.join(", ")
            ));
        };
        if !by.iter().any(|known| known.short == column.short) {
            by.push(column);
        }
    }
    Ok(by)
}

impl Question {
    /// That it can be asked.
    pub fn check(&self) -> Result<(), Report> {
        let Some(condition) = &self.condition else { return Ok(()) };
        sql::check_condition(&sql::nothing()?, condition, VIEW)
    }

    /// The groups of the samples that a database shows, which stand for so long: those with most time first.
    pub fn ask(&self, database: &Database, sampled_s: f64) -> Result<Groups, Report> {
        let by = self.by.iter().map(|column| column.short).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "SELECT {by}, sum(samples), total(time_s) FILTER (WHERE state = 'holds'), \
             total(time_s) FILTER (WHERE state = 'waits') FROM {VIEW}{} GROUP BY {by} ORDER BY total(time_s) DESC, {by}",
            self.filter()
        );
        let group = |mut values: Vec<Value>| {
            let figures = values.split_off(self.by.len());
            let s = |figure: &Value| figure.as_f64().unwrap_or(0.0);
            Group::new(values, figures[0].as_u64().unwrap_or(0), [s(&figures[1]), s(&figures[2])], sampled_s)
        };
        Ok(Groups::new(sql::ask(database, &sql)?.into_iter().map(group).collect(), sampled_s))
    }

    /// The same groups, each with the times in which its sessions were seen.
    ///
    /// Samples that lie within one cell are one stretch; a sample without its group, its moment and its
    /// length is from a length before that moment on.
    pub fn ask_when(
        &self,
        database: &Database,
        axis: &Axis,
        sampled_s: f64,
    ) -> Result<Vec<(Group, Vec<Stretch>)>, Report> {
        let by = self.by.iter().map(|column| column.short).collect::<Vec<_>>().join(", ");
        let cell_ns = axis.cell_ns;
        let sql = format!(
            "WITH part AS (SELECT {by}, state = 'holds' AS is_held, samples AS looks, time_s AS s, \
             at_ns - CAST(time_s * 1e9 / samples AS INTEGER) AS begin_ns, \
             at_ns + CAST(time_s * 1e9 / samples * (samples - 1) AS INTEGER) AS end_ns FROM {VIEW}{}) \
             SELECT {by}, is_held, min(begin_ns), max(end_ns), total(s), sum(looks) FROM part \
             GROUP BY {by}, is_held, begin_ns / {cell_ns}, end_ns / {cell_ns}, \
             CASE WHEN begin_ns / {cell_ns} = end_ns / {cell_ns} THEN 0 ELSE begin_ns END ORDER BY {by}",
            self.filter()
        );
        let mut groups: Vec<(Group, Vec<Stretch>)> = Vec::new();
        for mut values in sql::ask(database, &sql)? {
            let figures = values.split_off(self.by.len());
            let ns = |figure: &Value| figure.as_u64().unwrap_or(0);
            let (holds, time_s) = (figures[0] == 1, figures[3].as_f64().unwrap_or(0.0));
            let times = if holds { [time_s, 0.0] } else { [0.0, time_s] };
            let part = Group::new(values, ns(&figures[4]), times, sampled_s);
            let stretch = Stretch { between_ns: ns(&figures[1])..ns(&figures[2]), holds, time_s };
            match groups.last_mut().filter(|(group, _)| group.values == part.values) {
                Some((group, stretches)) => {
                    group.add(&part);
                    stretches.push(stretch);
                }
                None => groups.push((part, vec![stretch])),
            }
        }
        Ok(groups)
    }

    fn filter(&self) -> String {
        let mut sql = " WHERE true".to_owned();
        if let Some(state) = self.state {
            let _ = write!(sql, " AND state = '{state}'");
        }
        if let Some(condition) = &self.condition {
            let _ = write!(sql, " AND (\n{condition}\n)");
        }
        sql
    }
}

/// Samples that are alike, or those of several groups.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Of each column that samples are grouped by; empty of several groups.
    pub values: Vec<Value>,
    pub groups: usize,
    pub samples: u64,
    /// Time of the sessions that held, and of those that waited.
    holds_s: f64,
    waits_s: f64,
    /// Time in which they were looked at.
    sampled_s: f64,
}

impl Group {
    /// A group with its time of sessions that held and of those that waited.
    pub const fn new(values: Vec<Value>, samples: u64, [holds_s, waits_s]: [f64; 2], sampled_s: f64) -> Self {
        Self { values, groups: 1, samples, holds_s, waits_s, sampled_s }
    }

    pub fn measure(&self, measure: Measure) -> Option<f64> {
        measure.of(&Profile {
            time_s: self.sampled_s,
            waiting_s: Some(self.waits_s),
            samples: Samples { time_s: self.sampled_s, held_s: self.holds_s, ..Samples::default() },
            ..Profile::default()
        })
    }

    /// Its value of a column, for people.
    pub fn text(&self, position: usize) -> Value {
        match self.values.get(position) {
            None if position == 0 => counted(self.groups as u64, "other", "others").into(),
            None => Value::Null,
            Some(Value::Null) => "-".into(),
            Some(value) => value.clone(),
        }
    }

    /// Time of the sessions.
    pub fn time_s(&self) -> f64 {
        self.holds_s + self.waits_s
    }

    /// More samples of the same group.
    fn add(&mut self, more: &Self) {
        self.samples += more.samples;
        self.holds_s += more.holds_s;
        self.waits_s += more.waits_s;
    }

    /// Groups that were sampled for the same time as one.
    pub fn sum(all: &[Self]) -> Self {
        let sampled_s = all.first().map_or(0.0, |group| group.sampled_s);
        all.iter().fold(Self { sampled_s, ..Self::default() }, |mut sum, group| {
            sum.add(group);
            Self { groups: sum.groups + group.groups, ..sum }
        })
    }
}

/// The groups, those with most time first.
pub struct Groups {
    pub all: Vec<Group>,
    sampled_s: f64,
}

impl Groups {
    /// Groups, those with most time first, of samples that stand for so long.
    pub const fn new(all: Vec<Group>, sampled_s: f64) -> Self {
        Self { all, sampled_s }
    }

    pub fn total(&self) -> Group {
        Group { sampled_s: self.sampled_s, ..Group::sum(&self.all) }
    }

    /// Each group as a stack, its values from the first column on, with its time in ns. What is not known is
    /// left out.
    pub fn stacks(&self) -> Stacks {
        let frame = |value: &Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        let mut stacks = Stacks::new();
        for group in &self.all {
            let stack: Vec<String> = group.values.iter().filter_map(frame).collect();
            *stacks.entry(stack).or_default() += whole(group.time_s() * 1e9);
        }
        stacks
    }

    /// The first ones, and the rest as one, so that the parts add up.
    pub fn top(&self, count: usize) -> Vec<Group> {
        let (top, rest) = self.all.split_at(count.min(self.all.len()));
        let mut top = top.to_vec();
        match rest {
            [] => {}
            [last] => top.push(last.clone()),
            rest => top.push(Group::sum(rest)),
        }
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, holds_s: f64, waits_s: f64) -> Group {
        Group::new(vec![name.into()], 10, [holds_s, waits_s], 2.0)
    }

    #[test]
    fn the_rest_is_one_and_the_parts_add_up() {
        let all = vec![group("a", 2.0, 4.0), group("b", 0.0, 3.0), group("c", 1.0, 0.0), group("d", 0.5, 0.0)];
        let groups = Groups::new(all, 2.0);
        let active = |group: &Group| group.measure(Measure::Active).unwrap();
        assert!((active(&groups.total()) - 5.25).abs() < 1e-12);
        for count in 1..6 {
            let top = groups.top(count);
            assert!((top.iter().map(active).sum::<f64>() - 5.25).abs() < 1e-12);
            assert_eq!(top.iter().map(|group| group.groups).sum::<usize>(), 4);
        }
        let rest = &groups.top(2)[2];
        assert_eq!((rest.groups, rest.samples, rest.values.len()), (2, 20, 0));
        // One that is left over has its name.
        assert_eq!(groups.top(3)[3].values, ["d"]);
    }

    #[test]
    fn columns_are_those_of_the_samples() {
        let names = |text| columns(text).map(|by| by.iter().map(|column| column.short).collect::<Vec<_>>());
        assert_eq!(names("mutex, Location,mutex").unwrap(), ["mutex", "location"]);
        for (wrong, meant) in [("locaton", "location"), ("holder", "holder_location"), ("time_s", "time_s")] {
            let error = names(wrong).unwrap_err();
            let help = error.help().map(|help| help.to_string()).unwrap_or_default();
            assert_eq!(help.contains(&format!("did you mean {meant}?")), wrong != meant, "{help}");
            assert!(error.to_string().contains("expected some of instance, second, session"), "{error}");
        }
        for nothing in ["", "mutex,,mode"] {
            assert!(names(nothing).unwrap_err().to_string().contains("--by ``"));
        }
    }
}
