//! `retrial advise`.

use super::what_if::{SEEDS, impossible};
use crate::instances::mutex_type;
use crate::output::{self, Format, Table, column, line, measure, quoted};
use crate::predict::cases::sessions;
use crate::predict::check::{self, Compared, compare, fits, is_predicted, range, told, verdict};
use crate::predict::condition::Condition;
use crate::predict::fit::others;
use crate::predict::prediction::{Prediction, percent, predict};
use crate::predict::recording::Recording;
use crate::predict::rules::{Change, Finding, findings, merged, wait_matters};
use crate::predict::search::{SEARCH, neighbours};
use crate::predict::source::{self, Source, bar, tell_interrupted};
use crate::signals;
use miette::{Report, miette};
use retrial_model::sim::SimulationError;
use retrial_model::{Measure, Profile};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

mod canary;
mod outlook;

use canary::setting;

/// Measure a mutex and say what to change, with what it will come to
///
/// The measured workload is simulated first as it is. Where that fits what was measured, within 25 % of throughput,
/// utilization and k, every setting one step away from those in force is simulated too (other schemes, other values of
/// what the scheme depends on), and the best three that promise more are advised: their gets and waits are the
/// simulated change of what was measured. Where it does not fit, rules advise, without numbers. Copies of the mutex,
/// and more processors, are advised where they promise more than any setting does. A finding has its evidence, what it
/// will come to, what it costs, what may go wrong, and the commands that apply it and take it back.
///
/// Exit codes: 0 nothing to advise, or a change was applied and stays; 1 there is advice and no change stays, or
/// another command has changed the same setting meanwhile; 2 failed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial advise -i shop --interval 10s
  retrial what-if -i shop --record now.json; retrial advise --from now.json
  retrial advise -i shop --apply --canary 60s --rollback-if 'wait > 10%' --verify")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// Measure the best settings, three at most, one after the other, the present once more, and the best again. It
    /// stays where it has more gets than the present, or as many for less processor time, twice
    #[arg(long, conflicts_with = "from")]
    apply: bool,
    /// Measure each setting for so long, and the present as well where --interval says nothing
    #[arg(long, value_name = "T", requires = "apply", value_parser = source::interval)]
    canary: Option<Duration>,
    /// Take the change back when a figure has changed so: throughput, cpu, kappa, k or wait, then < or >,
    /// then percent of before; may be repeated
    #[arg(long, value_name = "CONDITION", requires = "apply")]
    rollback_if: Vec<Condition>,
    /// Say afterwards what was predicted and what was measured
    #[arg(long, requires = "apply")]
    verify: bool,
}

/// What is said where there is nothing to advise, by whether the model fits, and after a signal.
const INTERRUPTED: &str = "\ninterrupted: what there is to advise was not simulated";
const HEALTHY: &str = "\nhealthy: nothing to advise";
const SHARED: &str =
    "\nothers use the processors of its sessions: that is what there is to find, and nothing else is said beside it";
const NOTHING_FOUND: &str = "\nno rule finds anything; the model does not fit, so that nothing says that it is healthy";
const NONE_PROMISES_MORE: &str = "\nthe model does not fit, and by it no other setting has more gets: none is measured";

/// What is said beside them where the model does not fit.
const NO_NUMBERS: &str =
    "No numbers are predicted; of a live instance --apply measures the settings that are best by simulation.";
const MEASURES: &str = "No numbers are predicted: the settings that are best by simulation are measured.";

/// Settings that are advised, and measured, at most.
const BEST: usize = 3;

/// Gets, as a multiple of the present's, that are worth a change.
const GAIN: f64 = 1.03;

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
    let mut recording = match args.source.recording() {
        Err(error) if args.source.record.is_none() && source::is_unmissed(&error) => {
            format.say(&format!("{error}\n{HEALTHY}"));
            let notes = [error.to_string()];
            print(&json!({ "notes": notes, "fits": null, "findings": [], "not_advised": [] }), [].into_iter(), format);
            return Ok(ExitCode::SUCCESS);
        }
        recording => recording?,
    };
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
    let (present, advice, useless) = weigh(&args, &recording, &measured, &seeds)?;
    let (compared, is_fit) = (&present.compared, fits(&present.compared));
    let commands: Vec<Commands> =
        advice.iter().map(|advice| commands(&args, &recording, advice.finding.change)).collect::<Result<_, _>>()?;
    if format.is_text() {
        line(&recording.title());
        recording.notes.iter().for_each(|note| line(&format!("note: {note}")));
        line("");
        line(&check::table(compared, "simulated").text());
        line(&verdict(compared, &recording.holds, if args.apply { MEASURES } else { NO_NUMBERS }));
        for (number, (advice, commands)) in advice.iter().zip(&commands).enumerate() {
            tell(number + 1, advice, &recording, &present, commands);
        }
        for useless in &useless {
            line(&format!(
                "\nnot advised: {}: the simulation says that it gains nothing",
                change_text(useless.finding.change)
            ));
        }
        if advice.is_empty() && useless.is_empty() {
            line(match (signals::received(), is_fit) {
                (Some(_), _) => INTERRUPTED,
                (None, true) => HEALTHY,
                (None, false) if others(&measured).is_some() => SHARED,
                (None, false) if args.apply => NONE_PROMISES_MORE,
                (None, false) => NOTHING_FOUND,
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
    if args.apply {
        let applied = canary::best_of(&args, &recording, &measured, &advice, format)?;
        code = u8::from(applied["kept"] == false && !advice.is_empty());
        document["applied"] = applied;
    }
    print(&document, advice.iter().zip(&commands).map(|(advice, commands)| (advice, commands, &present)), format);
    Ok(ExitCode::from(code))
}

/// The commands that apply a change and take it back.
type Commands = (Option<String>, Option<String>);

/// JSON whole, CSV a row for each finding; a person has read it already.
fn print<'a>(document: &Value, advice: impl Iterator<Item = (&'a Advice, &'a Commands, &'a Present)>, format: Format) {
    if format.json {
        output::json(document);
    } else if format.csv {
        type Row<'a> = (&'a Advice, &'a Commands, &'a Present);
        let of = |row: &Row<'_>, measure: Measure| row.0.prediction.as_ref()?.mean(measure);
        let half = |row: &Row<'_>, measure: Measure| row.0.prediction.as_ref()?.interval(measure);
        let ends = |row: &Row<'_>| range(&row.2.compared, row.0.prediction.as_ref()?, Measure::Throughput);
        let is_sure = |row: &Row<'_>| {
            let prediction = row.0.prediction.as_ref()?;
            check::is_sure(&row.2.compared, prediction, Measure::Throughput).map(check::yes)
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
                percent(of(row, Measure::Throughput), row.2.told.mean(Measure::Throughput))
            }),
            column("apply", |row: &Row<'_>| row.1.0.clone()),
            column("undo", |row: &Row<'_>| row.1.1.clone()),
        ];
        Table::of(&columns, advice).print(format);
    }
}

/// Simulates the present, and changes of it: where it fits, or they are measured afterwards, what rules find and every
/// setting near. What there is to advise, and what rules find and the simulation does not.
fn weigh(
    args: &Args,
    recording: &Recording,
    measured: &Profile,
    seeds: &Range<u64>,
) -> Result<(Present, Vec<Advice>, Vec<Advice>), Report> {
    let workload = &recording.workload;
    let by_rules = findings(measured, workload);
    // Where next to nobody waits, no setting makes a difference.
    let near = if wait_matters(measured) { neighbours(workload) } else { Vec::new() };
    let bar = bar((by_rules.len() + near.len()) as u64 + 1, "{bar:30} simulating {msg}  {pos}/{len}, {eta} left");
    bar.set_message("the present");
    let simulated = predict(workload, seeds, &recording.holds).map_err(|error| impossible(&error))?;
    let compared = compare(measured, &simulated);
    let present = Present { told: told(simulated, &compared), compared };
    let is_simulated = fits(&present.compared) || args.apply;
    let found = if is_simulated { merged(by_rules.into_iter().chain(near)) } else { by_rules };
    let (number, mut all) = (found.len(), Vec::new());
    for finding in found.into_iter().take_while(|_| signals::received().is_none()) {
        bar.inc(1);
        bar.set_message(finding.rule);
        let changed = finding.change.applied(workload);
        let predict = || Ok(told(predict(&changed, seeds, &recording.holds)?, &present.compared));
        let prediction = is_simulated.then(predict).transpose();
        let prediction = prediction.map_err(|error: SimulationError| impossible(&error))?;
        let trial = match (finding.change, &recording.cache, &recording.instance) {
            (Change::Copies(_), Some(cache), Some(instance)) => {
                Some(format!("retrial cache suggest-hot -i {} --cache {}", quoted(instance), quoted(cache)))
            }
            (change, ..) => change.trial(workload),
        };
        all.push(Advice { finding, trial, prediction });
    }
    bar.finish_and_clear();
    tell_interrupted(all.len(), number, "settings");
    let (advice, useless) = chosen(&present, all, sessions(workload), args.apply);
    Ok((present, advice, useless))
}

/// What is advised, the best first, and what rules find that gains nothing. Where the present does not fit, what rules
/// find comes before what the simulation does.
fn chosen(present: &Present, all: Vec<Advice>, sessions: Option<u32>, is_measured: bool) -> (Vec<Advice>, Vec<Advice>) {
    let is_fit = fits(&present.compared);
    // What is measured before it stays is compared with the present itself.
    let counts = |prediction: &Prediction, measure| is_measured || is_predicted(&present.compared, prediction, measure);
    let gains = |advice: &Advice| {
        let of = advice.prediction.as_ref();
        of.is_none_or(|of| gains(of, &present.told, sessions, |measure| counts(of, measure)))
    };
    let is_sign = |advice: &Advice| !is_fit && advice.finding.rule != SEARCH;
    let (mut gain, mut useless): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|advice| is_sign(advice) || gains(advice));
    useless.retain(|advice| advice.finding.rule != SEARCH);
    let of = |advice: &Advice, measure: Measure| advice.prediction.as_ref().and_then(|all| all.mean(measure));
    let unsure = |advice: &Advice| advice.prediction.as_ref().and_then(|all| all.interval(Measure::Throughput));
    let before = present.told.mean(Measure::Throughput).unwrap_or(1.0);
    let at_least = |advice: &Advice| of(advice, Measure::Throughput).unwrap_or(0.0) - unsure(advice).unwrap_or(0.0);
    let most = gain.iter().filter(|advice| setting(advice).is_some()).map(at_least).fold(0.0, f64::max);
    // By the gets/s that they have at least. Of those with as many as any, the one with the least processor time first.
    let as_many = |advice: &Advice| at_least(advice).min(most / GAIN);
    let cpus = |advice: &Advice| {
        let told = advice.prediction.as_ref().filter(|of| counts(of, Measure::BusyProcessors));
        told.and_then(|of| of.mean(Measure::BusyProcessors)).unwrap_or(f64::MAX)
    };
    gain.sort_by(|a, b| match (is_sign(a), is_sign(b)) {
        (true, true) => Ordering::Equal,
        (false, false) => as_many(b).total_cmp(&as_many(a)).then_with(|| cpus(a).total_cmp(&cpus(b))),
        (a, b) => b.cmp(&a),
    });
    let (mut advice, mut others): (Vec<_>, Vec<_>) = gain.into_iter().partition(|advice| setting(advice).is_some());
    advice.truncate(BEST);
    // What no parameter does is worth it where it promises more than all of these.
    let most = advice.iter().filter_map(|advice| of(advice, Measure::Throughput)).fold(before, f64::max);
    others.retain(|advice| !is_fit || of(advice, Measure::Throughput).is_some_and(|gets| gets > most * GAIN));
    advice.append(&mut others);
    (advice, useless)
}

/// The present as it is told, and what was simulated of it beside what was measured.
struct Present {
    told: Prediction,
    compared: Vec<Compared>,
}

/// Whether a change is worth it: more throughput, or as much for less processor time or shorter waits, of what
/// counts.
fn gains(
    prediction: &Prediction,
    present: &Prediction,
    sessions: Option<u32>,
    counts: impl Fn(Measure) -> bool,
) -> bool {
    let change = |measure: Measure| {
        let change = || percent(prediction.mean(measure), present.mean(measure));
        counts(measure).then(change).flatten().unwrap_or(0.0)
    };
    let of = |of: &Prediction, measure: Measure| of.mean(measure).unwrap_or(0.0);
    let throughput = change(Measure::Throughput);
    // Sessions that wait for less and get no more have their time in run queues in place of waits.
    let spared_s = of(present, Measure::Wait) - of(prediction, Measure::Wait);
    let share = sessions.map_or(0.0, |n| spared_s * of(present, Measure::Throughput) / f64::from(n));
    throughput > 100.0 * (GAIN - 1.0)
        || throughput > -100.0 * (GAIN - 1.0)
            && (change(Measure::BusyProcessors) < -10.0
                || share < GAIN - 1.0 && (change(Measure::Wait) < -10.0 || change(Measure::WaitP99) < -30.0))
}

fn change_text(change: Change) -> String {
    match change {
        Change::Set(p, value) => format!("{}={}", p.row().name, p.format(value)),
        Change::Copies(copies) => format!("{copies} copies of the mutex"),
        Change::Processors(processors) => format!("{processors} processors"),
    }
}

fn commands(args: &Args, recording: &Recording, change: Change) -> Result<Commands, Report> {
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

fn tell(number: usize, advice: &Advice, recording: &Recording, present: &Present, (apply, undo): &Commands) {
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
    for (name, text) in [("price: ", price), ("risk:  ", risk)] {
        if let Some(text) = text {
            line(&format!("   {name}{text}"));
        }
    }
    match (change, apply, undo) {
        (Change::Copies(_), ..) => {
            line(match recording.cache {
                Some(_) => "   needs: copies of its object in the cache; this says how many, and what makes them",
                None => "   needs: its program has to have that many mutexes in the place of one; no parameter does it",
            });
            advice.trial.iter().for_each(|trial| line(&format!("   try:   {trial}")));
        }
        (Change::Processors(_), ..) => {
            line("   needs: its threads' affinity, its group's quota, or another machine; no parameter does it");
            line("   try:   `retrial what-if --cpus 3,6` for what other numbers of them come to");
        }
        (Change::Set(..), Some(apply), Some(undo)) => {
            line(&format!("   apply: {apply}"));
            line(&format!("   undo:  {undo}"));
        }
        (Change::Set(..), ..) => line(&format!("   apply: retrial set {} --instance NAME", change_text(*change))),
    }
}

fn as_json(advice: &Advice, present: &Present, (apply, undo): &Commands) -> Value {
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
