//! Durations as people type them: a number and its unit, which is never guessed.

use miette::{Report, miette};
use std::time::Duration;

/// Units and their length in ns, shortest first.
const UNITS: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9), ("d", 86_400e9)];
/// A year: longer is a slip of the keyboard.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// The time that `text` means: `50s`, `100ms`, `1.5 s`, `2min`, `250us`, `100ns`.
///
/// The error says what was found and what was expected.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("duration `{text}`, expected a number and one of the units ns, us, ms, s, min, h, d");
    let trimmed = text.trim();
    if trimmed.starts_with('-') {
        return Err(format!("duration `{text}` is negative, expected a time from 0s on"));
    }
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim();
    if unit.is_empty() {
        return Err(format!(
            "duration `{text}` without a unit, expected one of ns, us, ms, s, min, h, d after the number"
        ));
    }
    let (_, ns) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let time = Duration::try_from_secs_f64((number * ns).round() / 1e9).map_err(|_| wrong())?;
    if time > LONGEST {
        return Err(format!("duration `{text}`, expected a year at most"));
    }
    Ok(time)
}

/// The same for the value of an option.
pub fn argument(option: &str, text: &str) -> Result<Duration, Report> {
    parse(text)
        .map_err(|error| miette!(code = "retrial::duration", help = format!("{option} 50s"), "{option}: {error}"))
}

/// The same, for what cannot be shorter than `least`.
pub fn at_least(option: &str, text: &str, least: Duration) -> Result<Duration, Report> {
    let time = argument(option, text)?;
    if time < least {
        let least = self::text(least);
        let help = format!("{option} {}", least.replace(' ', ""));
        return Err(miette!(code = "retrial::duration", help = help, "{option} {text}, expected {least} at least"));
    }
    Ok(time)
}

/// A time in ns, as clocks count; `u64::MAX` for one that is longer.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A time for people: `49.3 s`, `1.09 ms`, `640 us`.
pub fn text(time: Duration) -> String {
    let ns = time.as_nanos() as f64;
    let (unit, length) = UNITS[..4].iter().rev().find(|(_, length)| ns >= *length).unwrap_or(&UNITS[3]);
    format!("{} {unit}", crate::output::short(ns / length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit_is_a_duration() {
        for (text, ns) in [
            ("100ns", 100),
            ("250us", 250_000),
            ("100ms", 100_000_000),
            ("50s", 50_000_000_000),
            ("1.5 s", 1_500_000_000),
            ("0.1ms", 100_000),
            ("2min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("8d", 691_200_000_000_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_answered_with_what_was_found_and_expected() {
        for text in ["50", "s", "", "5 parsecs", "1.2.3s", "-1s", "1e3s", "99999999999min", "5sec", "٣s"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("`{text}`")) && error.contains("expected"), "{text}: {error}");
        }
    }

    #[test]
    fn a_time_for_people_has_its_largest_unit() {
        assert_eq!(text(Duration::from_nanos(49_300_000_123)), "49.3 s");
        assert_eq!(text(Duration::from_nanos(1_090_001)), "1.09 ms");
        assert_eq!(text(Duration::ZERO), "0 s");
    }
}
