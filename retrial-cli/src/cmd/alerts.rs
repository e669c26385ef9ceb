//! `retrial alerts`.

use crate::clock::time;
use crate::instances::{Presence, Which};
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
    let mut presence = Presence::of(observer.tables());
    while signals::received().is_none() && !presence.has_ended(format) {
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
