//! `retrial doctor`.

use crate::doctor::checks::{CHECKS, Check, Finding, Verdict};
use crate::doctor::machine::Machine;
use crate::output::{Format, Table, column, line};
use std::process::ExitCode;

/// Look at what of this machine bears on waits: what was found, what it means, what to type
///
/// Exit code 1 when something keeps retrial from working, 0 otherwise. Makes an instance for a moment,
/// unpacks the interposer's library to where `run` would, and changes nothing else.
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args, format: Format) -> ExitCode {
    let machine = Machine::here();
    let found: Vec<(&Check, Finding)> = CHECKS.iter().map(|check| (check, (check.look)(&machine))).collect();
    if format.is_text() {
        let width = CHECKS.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for (check, finding) in &found {
            line(&format!("{:6}  {:width$}  {}", finding.verdict.name(), check.name, finding.found));
            line(&format!("        {:width$}  {}", "", finding.means));
            if !finding.command.is_empty() {
                line(&format!("        {:width$}  $ {}", "", finding.command));
            }
        }
    } else {
        let columns = [
            column("check", |(check, _): &(&Check, Finding)| check.name),
            column("verdict", |(_, finding): &(&Check, Finding)| finding.verdict.name().to_lowercase()),
            column("found", |(_, finding): &(&Check, Finding)| finding.found.clone()),
            column("means", |(_, finding): &(&Check, Finding)| finding.means),
            column("command", |(_, finding): &(&Check, Finding)| {
                Some(finding.command.clone()).filter(|command| !command.is_empty())
            }),
        ];
        Table::of(&columns, &found).print(format);
    }
    let of = |verdict| found.iter().filter(|(_, finding)| finding.verdict == verdict).count();
    let (stops, slows, limits) = (of(Verdict::Stops), of(Verdict::Slows), of(Verdict::Limits));
    format.say(&match stops {
        0 => format!(
            "retrial works here; {slows} of {} slow waits, {limits} limit what is seen or possible.",
            found.len()
        ),
        _ => format!("retrial does not work here: {stops} of {} checks.", found.len()),
    });
    if stops > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS }
}
