//! `retrial advise`.

use super::what_if::{SEEDS, impossible};
use crate::instances::mutex_type;
use crate::output::{self, Format, Table, column, line, measure, quoted};
use crate::predict::check::{self, Compared, compare, fits, is_predicted, range, told, verdict};
use crate::predict::condition::Condition;
use crate::predict::prediction::{Prediction, percent, predict};
use crate::predict::recording::Recording;
use crate::predict::rules::{Change, Finding, findings};
use crate::predict::search::neighbours;
use crate::predict::source::{self, Source, bar, tell_interrupted};
use crate::signals;
use miette::{Report, miette};
use retrial_model::sim::SimulationError;
use retrial_model::{Measure, Profile};
use serde_json::{Value, json};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

mod canary;
mod outlook;

/// Measure a mutex and say what to change, with what it will come to
///
/// The measured workload is simulated first as it is. Only where that fits what was measured, within 25 % of
/// throughput, utilization and k, do the findings have numbers: of gets and waits the simulated change of what was
/// measured. A finding has its evidence, what it will come to, what it costs, what may go wrong, and the commands that
/// apply it and take it back.
///
/// Exit codes: 0 nothing to advise, or a change was applied and stays; 1 there is advice, or the change was
/// taken back, or another command has changed the same setting meanwhile; 2 failed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial advise -i shop --interval 10s
  retrial what-if -i shop --record now.json; retrial advise --from now.json
  retrial advise -i shop --apply --canary 60s --rollback-if 'throughput < -3%' --verify
  retrial advise -i shop --search --apply --canary 30s")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// Simulate the settings one step away from those in force (other schemes, other values of what the scheme
    /// depends on) in place of rules, and advise the best three that promise more. With --apply these are measured one
    /// after the other, for an interval or --canary each, and the best of them stays where it has more gets than
    /// before, or as many for less processor time, twice
    #[arg(long)]
    search: bool,
    /// Apply the first advice that is a parameter
    #[arg(long, conflicts_with = "from")]
    apply: bool,
    /// Measure for so long after the change, and before it where --interval says nothing
    #[arg(long, value_name = "T", requires = "apply", value_parser = source::interval)]
    canary: Option<Duration>,
    /// Take the change back when a figure has changed so: throughput, cpu, kappa, k or wait, then < or >,
    /// then percent of before; may be repeated
    #[arg(long, value_name = "CONDITION", requires = "canary")]
    rollback_if: Vec<Condition>,
    /// Say afterwards what was predicted and what was measured
    #[arg(long, requires = "apply")]
    verify: bool,
}

/// What is said where there is nothing to advise, by whether the model fits, and after a signal.
const INTERRUPTED: &str = "\ninterrupted: what there is to advise was not simulated";
const HEALTHY: &str = "\nhealthy: nothing to advise";
const NOTHING_FOUND: &str = "\nno rule finds anything; the model does not fit, so that nothing says that it is healthy";
const NOT_SEARCHED: &str = "\nwhere the model does not fit, what it says of other settings is worth nothing; with --apply the best three are measured";
const NONE_PROMISES_MORE: &str = "\nthe model does not fit, and by it no other setting has more gets: none is measured";

/// Settings of a search that are advised, and measured.
const BEST: usize = 3;

/// A finding and what it comes to.
struct Advice {
    finding: Finding,
    /// What measures it, where no parameter does it.
    trial: Option<String>,
    /// Where the model fits.
    prediction: Option<Prediction>,
}

pub fn run(mut args: Args, format: Format) -> Result<ExitCode, Report> {
    args.source.interval = args.source.interval.or(args.canary);
    let mut recording = args.source.recording()?;
    let Some(measured) = recording.measured.clone() else {
        return Err(miette!(
            code = "retrial::advise::measured",
            help = "retrial what-if -i NAME --record FILE measures; retrial what-if --from FILE says what a description comes to",
            "{}: nothing was measured, expected a recording of a live instance or a report of a run",
            recording.of
        ));
    };
    let mut seeds = SEEDS;
    args.source.spans(&mut recording.workload, &mut seeds);
    let found = if args.search { neighbours(&recording.workload) } else { findings(&measured, &recording.workload) };
    let (present, advice, useless) = weigh(&args, &recording, &measured, found, &seeds)?;
    let (advice, useless) = if args.search { (best(&present, advice), Vec::new()) } else { (advice, useless) };
    let (compared, is_fit) = (&present.compared, fits(&present.compared));
    let commands: Vec<(Option<String>, Option<String>)> =
        advice.iter().map(|advice| commands(&args, &recording, advice.finding.change)).collect::<Result<_, _>>()?;
    if format.is_text() {
        line(&recording.title());
        recording.notes.iter().for_each(|note| line(&format!("note: {note}")));
        line("");
        line(&check::table(compared, "simulated").text());
        line(&verdict(compared, &recording.holds, "No numbers are predicted."));
        for (number, (advice, commands)) in advice.iter().zip(&commands).enumerate() {
            tell(number + 1, advice, &present, commands);
        }
        for useless in &useless {
            line(&format!(
                "\nnot advised: {}: the simulation says that it gains nothing",
                change_text(useless.finding.change)
            ));
        }
        if advice.is_empty() && useless.is_empty() {
            line(match (signals::received(), is_fit, args.search) {
                (Some(_), ..) => INTERRUPTED,
                (None, true, _) => HEALTHY,
                (None, false, true) if args.apply => NONE_PROMISES_MORE,
                (None, false, true) => NOT_SEARCHED,
                (None, false, false) => NOTHING_FOUND,
            });
        }
    }
    let mut document = json!({
        "of": recording.of,
        "instance": recording.instance,
        "notes": recording.notes,
        "holds": recording.holds,
        "measured": measured,
        "check": check::table(compared, "simulated").json(),
        "fits": is_fit,
        "findings": advice.iter().zip(&commands).map(|(advice, commands)| as_json(advice, &present, commands)).collect::<Vec<_>>(),
        "not_advised": useless.iter().map(|advice| as_json(advice, &present, &(None, None))).collect::<Vec<_>>(),
    });
    let mut code = u8::from(!advice.is_empty());
    if let Some(applied) = apply(&args, &recording, &measured, &advice, format)? {
        code = u8::from(applied["kept"] == false && !advice.is_empty());
        document["applied"] = applied;
    }
    print(&document, &advice, &commands, &present, format);
    Ok(ExitCode::from(code))
}

/// Applies what is to be applied: what came of it.
fn apply(
    args: &Args,
    recording: &Recording,
    measured: &Profile,
    advice: &[Advice],
    format: Format,
) -> Result<Option<Value>, Report> {
    if !args.apply {
        return Ok(None);
    }
    if signals::received().is_some() {
        format.say("\ninterrupted: nothing was changed");
        return Ok(Some(json!({ "kept": false })));
    }
    if args.search {
        return canary::best_of(args, recording, measured, advice, format).map(Some);
    }
    let first = advice.iter().find_map(canary::setting);
    if first.is_none() {
        format.say("\nnothing to apply");
    }
    first.map(|setting| canary::apply(args, recording, measured, setting, format)).transpose()
}

/// JSON whole, CSV a row for each finding; a person has read it already.
fn print(
    document: &Value,
    advice: &[Advice],
    commands: &[(Option<String>, Option<String>)],
    present: &Present,
    format: Format,
) {
    if format.json {
        output::json(document);
    } else if format.csv {
        type Row<'a> = (&'a Advice, &'a (Option<String>, Option<String>));
        let of = |row: &Row<'_>, measure: Measure| row.0.prediction.as_ref()?.mean(measure);
        let half = |row: &Row<'_>, measure: Measure| row.0.prediction.as_ref()?.interval(measure);
        let ends = |row: &Row<'_>| range(&present.compared, row.0.prediction.as_ref()?, Measure::Throughput);
        let is_sure = |row: &Row<'_>| {
            let prediction = row.0.prediction.as_ref()?;
            check::is_sure(&present.compared, prediction, Measure::Throughput).map(check::yes)
        };
        let columns = [
            column("rule", |row: &Row<'_>| row.0.finding.rule),
            column("change", |row: &Row<'_>| change_text(row.0.finding.change)),
            measure(Measure::Throughput, "", of).named("gets_per_s"),
            measure(Measure::Throughput, "", half).named("gets_per_s_interval"),
            column("gets_per_s_from", |row: &Row<'_>| Some(ends(row)?[0])),
            column("gets_per_s_to", |row: &Row<'_>| Some(ends(row)?[1])),
            column("gets_per_s_sure", is_sure),
            column("change_pct", |row: &Row<'_>| {
                percent(of(row, Measure::Throughput), present.told.mean(Measure::Throughput))
            }),
            column("apply", |row: &Row<'_>| row.1.0.clone()),
            column("undo", |row: &Row<'_>| row.1.1.clone()),
        ];
        Table::of(&columns, advice.iter().zip(commands)).print(format);
    }
}

/// Simulates the present and, where it fits, what each finding advises; findings that gain nothing are apart.
/// What a search would try is simulated where the present does not fit as well, if it is measured afterwards.
fn weigh(
    args: &Args,
    recording: &Recording,
    measured: &Profile,
    found: Vec<Finding>,
    seeds: &Range<u64>,
) -> Result<(Present, Vec<Advice>, Vec<Advice>), Report> {
    let bar = bar(found.len() as u64 + 1, "{bar:30} simulating {msg}  {pos}/{len}, {eta} left");
    bar.set_message("the present");
    let simulated = predict(&recording.workload, seeds, &recording.holds).map_err(|error| impossible(&error))?;
    let compared = compare(measured, &simulated);
    let present = Present { told: told(simulated, &compared), compared };
    let is_fit = fits(&present.compared);
    let found = if args.search && !args.apply && !is_fit { Vec::new() } else { found };
    let (number, mut all) = (found.len(), Vec::new());
    for finding in found.into_iter().take_while(|_| signals::received().is_none()) {
        let is_simulated = is_fit || args.search;
        bar.inc(1);
        bar.set_message(finding.rule);
        let changed = finding.change.applied(&recording.workload);
        let predict = || Ok(told(predict(&changed, seeds, &recording.holds)?, &present.compared));
        let prediction = is_simulated.then(predict).transpose();
        let prediction = prediction.map_err(|error: SimulationError| impossible(&error))?;
        let trial = finding.change.trial(&recording.workload);
        all.push(Advice { finding, trial, prediction });
    }
    bar.finish_and_clear();
    tell_interrupted(all.len(), number, "settings");
    let gains = |advice: &Advice| {
        advice.prediction.as_ref().is_none_or(|prediction| {
            // What is measured before it stays is compared with the present itself.
            let is_measured = args.search && args.apply;
            let counts = |measure| is_measured || is_predicted(&present.compared, prediction, measure);
            gains(prediction, &present.told, counts)
        })
    };
    let (advice, useless) = all.into_iter().partition(gains);
    Ok((present, advice, useless))
}

/// The best settings of a search, the best first: by the gets/s that they have at least, in steps of a fiftieth of the
/// present ones, then by processor time.
fn best(present: &Present, mut found: Vec<Advice>) -> Vec<Advice> {
    let of = |advice: &Advice, measure: Measure| advice.prediction.as_ref().and_then(|all| all.mean(measure));
    let unsure = |advice: &Advice| advice.prediction.as_ref().and_then(|all| all.interval(Measure::Throughput));
    let before = present.told.mean(Measure::Throughput).unwrap_or(1.0);
    let steps = |advice: &Advice| {
        let at_least = of(advice, Measure::Throughput).unwrap_or(0.0) - unsure(advice).unwrap_or(0.0);
        (50.0 * at_least / before).round()
    };
    let cpus = |advice: &Advice| of(advice, Measure::BusyProcessors).unwrap_or(f64::MAX);
    found.sort_by(|a, b| steps(b).total_cmp(&steps(a)).then_with(|| cpus(a).total_cmp(&cpus(b))));
    found.truncate(BEST);
    found
}

/// The present as it is told, and what was simulated of it beside what was measured.
struct Present {
    told: Prediction,
    compared: Vec<Compared>,
}

/// Whether a change is worth it: more throughput, or as much for less processor time or shorter waits, of what
/// counts.
fn gains(prediction: &Prediction, present: &Prediction, counts: impl Fn(Measure) -> bool) -> bool {
    let change = |measure: Measure| {
        let change = || percent(prediction.mean(measure), present.mean(measure));
        counts(measure).then(change).flatten().unwrap_or(0.0)
    };
    let throughput = change(Measure::Throughput);
    throughput > 3.0
        || throughput > -3.0
            && (change(Measure::BusyProcessors) < -10.0
                || change(Measure::Wait) < -10.0
                || change(Measure::WaitP99) < -30.0)
}

fn change_text(change: Change) -> String {
    match change {
        Change::Set(p, value) => format!("{}={}", p.row().name, p.format(value)),
        Change::Copies(copies) => format!("{copies} copies of the mutex"),
    }
}

/// The commands that apply a change and take it back.
fn commands(args: &Args, recording: &Recording, change: Change) -> Result<(Option<String>, Option<String>), Report> {
    let (Change::Set(p, _), Some(instance), Some(type_name)) = (change, &recording.instance, &recording.mutex_type)
    else {
        return Ok((None, None));
    };
    let set = format!("retrial set -i {} --type {}", quoted(instance), quoted(type_name));
    // What is in force for the type alone, while the instance is there.
    let own = if args.source.from.is_some() {
        None
    } else {
        let observer = args.source.which.observe()?;
        observer.tables().param_set(p, Some(mutex_type(observer.tables(), type_name)?))
    };
    let name = p.row().name;
    let undo = own.map_or_else(|| format!("{set} --unset {name}"), |value| format!("{set} {name}={}", p.format(value)));
    Ok((Some(format!("{set} {}", change_text(change))), Some(undo)))
}

fn tell(number: usize, advice: &Advice, present: &Present, (apply, undo): &(Option<String>, Option<String>)) {
    let Finding { title, evidence, change, price, risk, .. } = &advice.finding;
    line(&format!("\n{number}. {title}: {}", change_text(*change)));
    for figure in evidence {
        line(&format!("   {figure}"));
    }
    if let Some(prediction) = &advice.prediction {
        let rows = outlook::table(prediction, present).text();
        // A header alone says nothing: of what does not fit no number is told.
        if rows.lines().count() > 1 {
            rows.lines().for_each(|row| line(&format!("     {row}")));
        }
    }
    line(&format!("   price: {price}"));
    line(&format!("   risk:  {risk}"));
    match (apply, undo) {
        (Some(apply), Some(undo)) => {
            line(&format!("   apply: {apply}"));
            line(&format!("   undo:  {undo}"));
        }
        _ if matches!(change, Change::Copies(_)) => {
            line("   needs: its program has to have that many mutexes in the place of one; no parameter does it");
            advice.trial.iter().for_each(|trial| line(&format!("   try:   {trial}")));
        }
        _ => line(&format!("   apply: retrial set {} --instance NAME", change_text(*change))),
    }
}

fn as_json(advice: &Advice, present: &Present, (apply, undo): &(Option<String>, Option<String>)) -> Value {
    let Finding { rule, title, evidence, change, price, risk } = &advice.finding;
    json!({
        "rule": rule,
        "title": title,
        "change": change_text(*change),
        "evidence": evidence,
        "prediction": advice.prediction.as_ref().map(|prediction| outlook::table(prediction, present).json()),
        "price": price,
        "risk": risk,
        "apply": apply,
        "undo": undo,
        "try": advice.trial,
    })
}
