//! How values lie on an axis, and its ticks.

use crate::output::short;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use std::ops::Range;

/// Maximum number of ticks of an axis.
const MOST: usize = 12;

/// How the values of an axis lie on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0 on.
    Linear,
    /// By powers of 2: numbers of sessions.
    Binary,
    /// By powers of 10.
    Decimal,
    /// Names for 1, 2, 3 and so on.
    Names(&'static [&'static str]),
    /// The same as `Decimal` for so many decades below the greatest value; what is lower lies at the bottom.
    Decades(u8),
}

impl Scale {
    /// Where a value lies; nowhere when it has no logarithm.
    pub(super) fn place(self, value: f64) -> Option<f64> {
        let place = match self {
            Self::Linear | Self::Names(_) => value,
            Self::Binary => value.log2(),
            Self::Decimal | Self::Decades(_) => value.log10(),
        };
        Some(place).filter(|place| place.is_finite())
    }

    /// The value at a place.
    fn value(self, place: f64) -> f64 {
        match self {
            Self::Linear | Self::Names(_) => place,
            Self::Binary => place.exp2(),
            Self::Decimal | Self::Decades(_) => 10f64.powf(place),
        }
    }

    /// The name of a value, where values have names and this is one of them.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a whole number from 1 on
    pub fn name(self, value: f64) -> Option<&'static str> {
        let Self::Names(names) = self else { return None };
        let is_one = value >= 0.5 && (value - value.round()).abs() < 1e-6;
        is_one.then(|| names.get(value.round() as usize - 1).copied()).flatten()
    }

    /// The axis for these places.
    pub(super) fn range(self, places: impl Iterator<Item = f64>) -> Range<f64> {
        let ends = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if ends.0 <= ends.1 { ends } else { (0.0, 1.0) };
        let low = match self {
            Self::Names(names) => return 0.5..names.len() as f64 + 0.5,
            Self::Linear => return low.min(0.0)..(high * 1.05).max(low + 0.01),
            Self::Decades(decades) => low.max(high - f64::from(decades)),
            _ => low,
        };
        let room = ((high - low) * 0.05).max(0.05);
        low - room..high + room
    }

    /// The axis for these values; a linear one begins at the lowest of them, as the others do.
    pub(super) fn of_points(self, values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
        let ends = |pick: fn(f64, f64) -> f64, start| values.clone().fold(start, pick);
        let (low, high) = (ends(f64::min, f64::INFINITY), ends(f64::max, f64::NEG_INFINITY));
        if self == Self::Linear && low < high {
            return low..high + (high - low) * 0.03;
        }
        self.range(values.filter_map(|value| self.place(value)))
    }

    /// What stands beside a tick at a place.
    pub(super) fn label(self, place: f64) -> String {
        let value = self.value(place);
        match self {
            Self::Names(_) => self.name(value).unwrap_or_default().to_owned(),
            Self::Binary if (value - value.round()).abs() < 1e-6 => format!("{value:.0}"),
            _ if value >= 1e6 => format!("{}M", without_zeros(&short(value / 1e6))),
            _ if value.abs() < 0.01 => without_zeros(&format!("{value:.9}")).to_owned(),
            _ => without_zeros(&short(value)).to_owned(),
        }
    }

    /// Where an axis of these places has its ticks: at numbers that begin with 1, 2 or 5 and end in zeros, or at
    /// the powers of 2.
    fn ticks(self, range: &Range<f64>) -> Vec<f64> {
        let values = || self.value(range.start)..self.value(range.end);
        let (mantissas, steps): (&[f64], &[f64]) = match self {
            Self::Linear => return even(range),
            Self::Names(names) => return (1..=names.len()).map(|name| name as f64).collect(),
            Self::Binary => (&[1.0], &[1.0, 2.0, 4.0]),
            Self::Decimal | Self::Decades(_) if range.end - range.start <= 4.0 => (&[1.0, 2.0, 5.0], &[1.0]),
            Self::Decimal | Self::Decades(_) => (&[1.0], &[1.0, 2.0, 5.0, 10.0]),
        };
        let of = |step: f64| -> Vec<f64> {
            let first = (range.start / step).floor();
            let powers = (0..).map(|n| (first + f64::from(n)) * step).take_while(|power| *power <= range.end);
            let all = powers.flat_map(|power| mantissas.iter().filter_map(move |m| Some(power + self.place(*m)?)));
            all.filter(|place| range.contains(place)).collect()
        };
        let logarithmic = steps.iter().map(|step| of(*step)).find(|ticks| ticks.len() <= MOST).unwrap_or_default();
        if logarithmic.len() >= 3 {
            return logarithmic;
        }
        // Less than some powers: even steps.
        even(&values()).into_iter().filter_map(|value| self.place(value)).collect()
    }
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// Some five to ten numbers at even distances.
fn even(range: &Range<f64>) -> Vec<f64> {
    let rough = (range.end - range.start) / 10.0;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| *step >= rough * 0.999).unwrap_or(power);
    let first = (range.start / step - 1e-6).ceil();
    let all = (0..).map(|n| (first + f64::from(n)) * step).take_while(|value| *value <= range.end + step * 1e-6);
    all.take(2 * MOST).collect()
}

/// The places of an axis and its ticks, for the drawing.
pub(super) struct Places {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Places {
    pub(super) fn new(scale: Scale, range: Range<f64>) -> Self {
        let ticks = scale.ticks(&range);
        Self { range, ticks }
    }

    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// Pixels beside a y axis for its labels and its name.
    pub(super) fn room_for_labels(&self, scale: Scale) -> u32 {
        let longest = self.ticks.iter().map(|place| scale.label(*place).chars().count()).max().unwrap_or(0);
        u32::try_from(22 + 7 * longest.clamp(4, 16)).unwrap_or(0)
    }
}

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    #[allow(clippy::cast_possible_truncation)] // pixels
    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (place - self.range.start) / (self.range.end - self.range.start);
        from + (f64::from(to - from) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, range: Range<f64>) -> Vec<String> {
        let places = scale.place(range.start).unwrap()..scale.place(range.end).unwrap();
        scale.ticks(&places).into_iter().map(|place| scale.label(place)).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(Scale::Linear, 0.0..10.0), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
        assert_eq!(labels(Scale::Linear, 2.4..4.1), ["2.4", "2.6", "2.8", "3", "3.2", "3.4", "3.6", "3.8", "4"]);
        assert_eq!(labels(Scale::Decimal, 0.9..99.0), ["1", "2", "5", "10", "20", "50"]);
        assert_eq!(labels(Scale::Decimal, 0.05..2e6), ["0.1", "1", "10", "100", "1000", "10000", "100000", "1M"]);
        assert_eq!(labels(Scale::Decimal, 0.00004..0.0003), ["0.00005", "0.0001", "0.0002"]);
        assert_eq!(labels(Scale::Linear, 0.0..0.0001)[..3], ["0", "0.00001", "0.00002"]);
        assert_eq!(labels(Scale::Decimal, 41.0..77.0), ["45", "50", "55", "60", "65", "70", "75"]);
        assert_eq!(labels(Scale::Binary, 0.9..16_400.0), ["1", "4", "16", "64", "256", "1024", "4096", "16384"]);
        assert_eq!(labels(Scale::Binary, 0.9..70.0), ["1", "2", "4", "8", "16", "32", "64"]);
        assert_eq!(labels(Scale::Names(&["a", "b"]), 0.5..2.5), ["a", "b"]);
    }

    #[test]
    fn values_far_below_the_top_lie_at_the_bottom() {
        let range = Scale::Decades(2).range([-7.0, 3.0].into_iter());
        assert!(range.start > 0.8 && range.end > 3.0, "{range:?}");
    }
}
