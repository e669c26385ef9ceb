//! Numbers as people and programs write them: SI units in JSON, `1us` or `2.5ms` where a person types.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Units of time and their length in seconds.
const TIMES: [(&str, f64); 5] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0)];

/// The seconds that `text` means: `1us`, `2.5ms`, `1e-6s`, or a bare number of seconds.
///
/// # Errors
/// What was found and what was expected.
pub fn seconds(text: &str) -> Result<f64, String> {
    let text = text.trim();
    // The longest unit first: `ns` and `us` end in `s`, too.
    let unit = TIMES.iter().filter(|(unit, _)| text.ends_with(unit)).max_by_key(|(unit, _)| unit.len());
    let (number, length) = unit.map_or((text, 1.0), |(unit, length)| (&text[..text.len() - unit.len()], *length));
    match number.trim_end().parse::<f64>() {
        // A quotient: 3us is the double nearest to 3e-6, which 3 times the double 1e-6 is not.
        Ok(value) if value.is_finite() && length < 1.0 => Ok(value / (1.0 / length).round()),
        Ok(value) if value.is_finite() => Ok(value * length),
        _ => Err(format!(
            "time `{text}`, expected a number with one of the units ns, us, ms, s, min, or a number of seconds"
        )),
    }
}

/// The events per second that `text` means: `2e5`, `2e5/s`, `0.2/us`.
///
/// # Errors
/// What was found and what was expected.
pub fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("rate `{}`, expected a number of 1/s, or a number and a unit as 0.2/us", text.trim());
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let (_, length) = TIMES.into_iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
    let value = number.trim().parse::<f64>().map_err(|_| wrong())?;
    let value = if length < 1.0 { value * (1.0 / length).round() } else { value / length };
    if value.is_finite() { Ok(value) } else { Err(wrong()) }
}

/// A finite number without a unit.
///
/// # Errors
/// What was found and what was expected.
pub fn number(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(format!("number `{text}`, expected a finite number without a unit")),
    }
}

/// A number of JSON, or a text that one of the two above reads.
struct Typed(fn(&str) -> Result<f64, String>);

impl Visitor<'_> for Typed {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number in SI units, or a text with a number and its unit")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        if value.is_finite() { Ok(value) } else { Err(E::invalid_value(Unexpected::Float(value), &self)) }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        (self.0)(text).map_err(E::custom)
    }
}

/// A value that is read as seconds.
struct Seconds(f64);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Typed(seconds)).map(Self)
    }
}

/// A value that is read as a number.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Typed(number)).map(Self)
    }
}

/// For `#[serde(deserialize_with)]`: seconds.
pub(crate) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Seconds::deserialize(from).map(|value| value.0)
}

/// For `#[serde(deserialize_with)]`: a list of seconds.
pub(crate) fn times<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    Ok(Vec::<Seconds>::deserialize(from)?.into_iter().map(|value| value.0).collect())
}

/// For `#[serde(deserialize_with)]`: a number.
pub(crate) fn plain<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Number::deserialize(from).map(|value| value.0)
}

/// For `#[serde(deserialize_with)]`: a list of numbers.
pub(crate) fn plains<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    Ok(Vec::<Number>::deserialize(from)?.into_iter().map(|value| value.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_rates_and_numbers() {
        for (text, expected) in [
            ("3us", 3e-6),
            ("2.5 ms", 2.5e-3),
            ("1e-6", 1e-6),
            ("1e-6s", 1e-6),
            ("0.3ns", 0.3e-9),
            ("2min", 120.0),
            ("0", 0.0),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for (text, expected) in [("2e5", 2e5), ("2e5/s", 2e5), ("0.2/us", 2e5), ("60/min", 1.0)] {
            assert_eq!(rate(text), Ok(expected), "{text}");
        }
        assert_eq!(number("-1.5"), Ok(-1.5));
    }

    #[test]
    fn anything_else_is_answered_with_what_was_found_and_expected() {
        for (read, texts) in [
            (seconds as fn(&str) -> Result<f64, String>, ["", "us", "1 parsec", "nan", "inf s", "1/s"]),
            (rate, ["", "/s", "1/m", "nan", "inf/s", "1e308/ns"]),
            (number, ["", "1us", "nan", "inf", "1,5", "x"]),
        ] {
            for text in texts {
                let error = read(text).unwrap_err();
                assert!(error.contains(&format!("`{text}`")) && error.contains("expected"), "{text}: {error}");
            }
        }
    }
}
