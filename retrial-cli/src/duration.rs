//! Durations, as the library of the bench has them, and those that are figures.

pub use retrial_bench::duration::*;

use crate::output::short;
use std::time::Duration;

/// A time in s for people, as [`text`] has it. One below 0, as of clocks that are read apart, is 0; what no
/// clock can show stays a number.
pub fn seconds(time_s: f64) -> String {
    match Duration::try_from_secs_f64(if time_s < 0.0 { 0.0 } else { time_s }) {
        Ok(time) => text(time),
        Err(_) => format!("{} s", short(time_s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_seconds_has_a_text() {
        for (time_s, expected) in [
            (49.3, "49.3 s"),
            (0.00109, "1.09 ms"),
            (0.0, "0 s"),
            (-1e-9, "0 s"),
            (f64::NEG_INFINITY, "0 s"),
            (f64::INFINITY, "inf s"),
            (f64::NAN, "NaN s"),
            (1e20, "100000000000000000000 s"),
        ] {
            assert_eq!(seconds(time_s), expected, "{time_s:?}");
        }
    }
}
