//! `retrial alerts`.

use crate::instances::Which;
use crate::output::{Format, Stream, Table, column};
use crate::signals;
use miette::Report;
use std::process::ExitCode;
use std::time::Duration;

/// Show the alert log: long waits, deaths of holders, recoveries
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Only alerts after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Go on with new ones until Ctrl-C; one JSON object per line with --json
    #[arg(short, long)]
    follow: bool,
}

/// Number, moment, text.
type Alert = (u64, u64, String);

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let observer = args.which.observe()?;
    let mut after = args.after;
    let columns = [
        column("number", |(number, ..): &Alert| *number),
        column("time", |(_, at_ns, _): &Alert| time(*at_ns)),
        column("text", |(.., text): &Alert| text.clone()),
    ];
    if !args.follow {
        let table = Table::of(&columns, observer.tables().alerts(after));
        if table.is_empty() && format.is_text() {
            format.say("No alerts.");
        } else {
            table.print(format);
        }
        return Ok(ExitCode::SUCCESS);
    }
    signals::catch();
    let stream = Stream::new(&columns, format);
    while signals::received().is_none() {
        for alert in observer.tables().alerts(after) {
            let (number, at_ns, text) = &alert;
            after = *number;
            format.say(&format!("{number}  {}  {text}", time(*at_ns)));
            stream.row(&alert);
        }
        retrial::sys::sleep(Duration::from_millis(100));
    }
    Ok(ExitCode::SUCCESS)
}

/// A moment of the real-time clock as ISO 8601 in UTC. Days to date: Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`.
pub fn time(at_ns: u64) -> String {
    let (seconds, ms) = (at_ns / 1_000_000_000, at_ns / 1_000_000 % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z")
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
