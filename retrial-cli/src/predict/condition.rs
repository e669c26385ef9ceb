//! When a change is to be taken back: `throughput < -3%`.

use super::prediction::percent;
use retrial_model::{Measure, Profile};
use std::fmt;
use std::str::FromStr;

/// Figures that a condition may be about, and their values where no get missed the mutex.
const FIGURES: [(&str, Measure, Option<f64>); 5] = [
    ("throughput", Measure::Throughput, None),
    ("cpu", Measure::BusyProcessors, None),
    ("kappa", Measure::SleepRatio, Some(0.0)),
    ("k", Measure::SpinInefficiency, Some(0.0)),
    ("wait", Measure::Wait, None),
];

/// A figure's change against before, and from where on it is too much.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Position in [`FIGURES`].
    figure: usize,
    below: bool,
    percent: f64,
}

impl Condition {
    /// Name of the figure.
    pub const fn figure(&self) -> &'static str {
        FIGURES[self.figure].0
    }

    /// The change in percent, `None` where the figure was not measured.
    pub fn change(&self, before: &Profile, after: &Profile) -> Option<f64> {
        let (_, measure, otherwise) = FIGURES[self.figure];
        let of = |profile| measure.of(profile).or(otherwise);
        let (before, after) = (of(before)?, of(after)?);
        let from_nothing = if after > 0.0 { f64::INFINITY } else { 0.0 };
        Some(percent(Some(after), Some(before)).unwrap_or(from_nothing))
    }

    /// Whether a change is too much.
    pub fn holds(&self, change: f64) -> bool {
        if self.below { change < self.percent } else { change > self.percent }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = FIGURES.map(|(name, ..)| name).join(", ");
        let wrong = || {
            format!(
                "condition `{text}`, expected one of {names}, then < or >, then a percentage, as `throughput < -3%`"
            )
        };
        let sign = text.find(['<', '>']).ok_or_else(wrong)?;
        let (name, rest) = text.split_at(sign);
        let figure = FIGURES.iter().position(|(known, ..)| *known == name.trim()).ok_or_else(wrong)?;
        let percent = rest[1..].trim().strip_suffix('%').ok_or_else(wrong)?;
        let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
        if percent.is_nan() {
            return Err(wrong());
        }
        Ok(Self { figure, below: rest.starts_with('<'), percent })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}%", self.figure(), if self.below { '<' } else { '>' }, self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::views::{Counter, Figures};

    fn measured(gets: u64, misses: u64, cpu_s: Option<f64>) -> Profile {
        let mut figures = Figures::default();
        figures.counters[Counter::Misses as usize] = misses;
        figures.counters[Counter::Sleeps as usize] = 2 * misses;
        Profile { time_s: 2.0, gets: Some(gets), figures, cpu_s, ..Profile::default() }
    }

    #[test]
    fn a_change_is_in_percent_of_before() {
        let (before, after) = (measured(100, 10, Some(1.0)), measured(96, 10, Some(1.5)));
        for (text, change, holds) in [
            ("throughput < -3%", -4.0, true),
            ("throughput<-5 %", -4.0, false),
            ("throughput > -5%", -4.0, true),
            ("cpu > 40%", 50.0, true),
            ("cpu > 60%", 50.0, false),
            ("kappa > 0%", 0.0, false),
            ("k < 0%", 0.0, false),
            ("wait > 1%", 0.0, false),
        ] {
            let condition: Condition = text.parse().unwrap();
            let found = condition.change(&before, &after).unwrap();
            assert!((found - change).abs() < 1e-9, "{text}: {found}");
            assert_eq!(condition.holds(found), holds, "{text}");
        }
        let condition: Condition = "cpu > 40%".parse().unwrap();
        assert_eq!(condition.change(&before, &measured(1, 0, None)), None);
        // From nothing to something.
        let condition: Condition = "kappa > 10%".parse().unwrap();
        assert!(condition.holds(condition.change(&measured(5, 0, None), &measured(5, 1, None)).unwrap()));
    }

    #[test]
    fn a_condition_survives_printing() {
        for text in ["throughput < -3%", "wait > 12.5%"] {
            assert_eq!(text.parse::<Condition>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_answered_with_what_is_allowed() {
        for text in [
            "",
            "throughput",
            "throughput -3%",
            "speed < 3%",
            "cpu < 3",
            "cpu < x%",
            "cpu = 3%",
            "cpu <> 3%",
            "k < NaN%",
        ] {
            let error = text.parse::<Condition>().unwrap_err();
            assert!(
                error.contains(&format!("`{text}`")) && error.contains("throughput, cpu, kappa, k, wait"),
                "{error}"
            );
        }
    }
}
