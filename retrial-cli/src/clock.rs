//! Moments as people read them.

use chrono::{DateTime, SecondsFormat};

/// A moment of the real-time clock as ISO 8601 in UTC.
pub fn time(at_ns: u64) -> String {
    DateTime::from_timestamp_nanos(i64::try_from(at_ns).unwrap_or(i64::MAX))
        .to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_moment_is_written_as_in_iso_8601() {
        assert_eq!(super::time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(super::time(1_319_473_380_123_000_000), "2011-10-24T16:23:00.123Z");
        assert_eq!(super::time(1_709_164_800_000_000_000), "2024-02-29T00:00:00.000Z");
    }
}
