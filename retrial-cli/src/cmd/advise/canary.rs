//! What is advised, tried: set, measured, and taken back but for the best.

use super::{Advice, Args, change_text};
use crate::duration;
use crate::output::{Format, short};
use crate::predict::check;
use crate::predict::check::compare;
use crate::predict::condition::Condition;
use crate::predict::fit::used_by_others;
use crate::predict::prediction::Prediction;
use crate::predict::recording::Recording;
use crate::predict::rules::Change;
use crate::predict::source::Source;
use crate::settings::trial::{self, Trial, Tried};
use crate::signals;
use miette::Report;
use retrial::{Instance, P};
use retrial_model::{Measure, Profile};
use serde_json::{Value, json};
use std::time::Duration;

/// An advice, and what it sets.
pub(super) type Setting<'a> = (&'a Advice, P, u64);

/// What an advice sets, if it is a parameter.
pub(super) fn setting(advice: &Advice) -> Option<Setting<'_>> {
    match advice.finding.change {
        Change::Set(p, value) => Some((advice, p, value)),
        Change::Copies(_) | Change::Processors(_) => None,
    }
}

/// Ends a trial: what it has set stays, or is taken back for a reason. Returns whether it stays. What another
/// command has set meanwhile does, and all that was measured is in doubt then.
fn end(trial: Trial<'_>, why: Option<&str>, applied: &mut Value, format: Format) -> bool {
    let changed = trial.changed_by_another();
    match why {
        Some(_) => drop(trial),
        None => trial.keep(),
    }
    match (&changed, why) {
        (Some(what), _) => format.say(&format!(
            "another command has changed {what} meanwhile: that stays, and what was measured may be of both settings"
        )),
        (None, Some(why)) => format.say(&format!("taken back: {why}")),
        (None, None) => {}
    }
    let is_kept = changed.is_none() && why.is_none();
    applied["kept"] = is_kept.into();
    applied["changed_meanwhile"] = changed.into();
    is_kept
}

const INTERRUPTED: &str = "interrupted";
const NONE_BETTER: &str = "none has more gets than before, or as many for less processor time";

/// Less more gets than this are noise.
const NOISE: f64 = 0.03;

/// Less processor time than this share of before is worth a change that brings no more gets.
const LEAN: f64 = 0.9;

/// Measures the advised settings one after the other, the present once more, and the [chosen] one once
/// more, which then stays where it is chosen again and no condition holds. What came of it: where the program
/// ends meanwhile, what was measured until then.
pub(super) fn best_of(
    args: &Args,
    recording: &Recording,
    before: &Profile,
    best: &[Advice],
    format: Format,
) -> Result<Value, Report> {
    let settings: Vec<Setting<'_>> = best.iter().filter_map(setting).collect();
    let is_interrupted = signals::received().is_some();
    let mut contest = Contest {
        args,
        recording,
        before,
        format,
        measured: Vec::new(),
        applied: json!({ "change": null, "kept": false, "measured": [], "conditions": [] }),
    };
    if settings.is_empty() || is_interrupted {
        format.say(if is_interrupted { "\ninterrupted: nothing was changed" } else { "\nnothing to apply" });
        return Ok(contest.applied);
    }
    let count = settings.len();
    let times = u32::try_from(count).unwrap_or(u32::MAX).saturating_add(2);
    let each = again_for(args);
    format.say(&format!(
        "\nmeasures {times} times {}, {} in all: settings ({count}), as it is now, and the best once more",
        duration::text(each),
        duration::text(each.saturating_mul(times)),
    ));
    match contest.run(&settings) {
        Err(error) if !contest.measured.is_empty() => contest.ends_early(&error),
        ended => ended?,
    }
    Ok(contest.applied)
}

/// The advised settings, measured.
struct Contest<'a> {
    args: &'a Args,
    recording: &'a Recording,
    before: &'a Profile,
    format: Format,
    measured: Vec<(Setting<'a>, Profile)>,
    /// What came of it.
    applied: Value,
}

impl<'a> Contest<'a> {
    fn run(&mut self, settings: &[Setting<'a>]) -> Result<(), Report> {
        let instance = self.args.source.which.attach()?;
        for setting in settings {
            let (trial, after) = self.tried(&instance, *setting)?;
            if signals::received().is_some() || trial.changed_by_another().is_some() {
                end(trial, Some(INTERRUPTED), &mut self.applied, self.format);
                return Ok(());
            }
            self.measured.push((*setting, after));
            self.applied["measured"] = self.measured.iter().map(row).collect();
        }
        let again = measured_again(self.args, self.recording, &instance)?;
        if signals::received().is_some() {
            self.format.say(INTERRUPTED);
            return Ok(());
        }
        let present = [self.before, &again].map(Tally::of);
        let [first, last] = present.map(|tally| tally.gets_per_s);
        self.format.say(&format!("as it is: {} gets/s before, {} after", short(first), short(last)));
        self.applied["present"] = json!([first, last]);
        if let Some(best) = chosen(&self.tallies(), present) {
            return self.once_more(&instance, self.measured[best].0, present);
        }
        self.format.say(&format!("{NONE_BETTER}: all is as it was"));
        Ok(())
    }

    /// Measures the best setting a second time, for one of several may have been the best by chance.
    fn once_more(&mut self, instance: &Instance, best: Setting<'_>, present: [Tally; 2]) -> Result<(), Report> {
        let (trial, after) = self.tried(instance, best)?;
        if signals::received().is_some() {
            end(trial, Some(INTERRUPTED), &mut self.applied, self.format);
            return Ok(());
        }
        let (advice, p, value) = best;
        let change = change_text(Change::Set(p, value));
        self.applied["change"] = change.clone().into();
        self.applied["once_more"] = rate(&after).into();
        self.applied["before"] = json!(self.before);
        self.applied["after"] = json!(after);
        self.format.say(&format!("{} -> {} gets/s measured", short(rate(self.before)), short(rate(&after))));
        if let Some((before, after)) = used_by_others(self.before).zip(used_by_others(&after)) {
            self.format.say(&format!("{} -> {} processors in others' use", short(before), short(after)));
        }
        if chosen(&[Tally::of(&after)], present).is_none() {
            end(trial, Some(NONE_BETTER), &mut self.applied, self.format);
            return Ok(());
        }
        let (conditions, why) = held(&self.args.rollback_if, self.before, &after, self.format);
        self.applied["conditions"] = conditions.into();
        if end(trial, why.as_deref(), &mut self.applied, self.format) {
            self.format.say(&format!("applied: {change} for type {}", self.type_name()));
        }
        if self.args.verify {
            self.applied["verify"] = verify(&after, advice.prediction.as_ref(), self.format);
        }
        Ok(())
    }

    /// Sets what is advised, and measures.
    fn tried<'i>(&self, instance: &'i Instance, (_, p, value): Setting<'_>) -> Result<(Trial<'i>, Profile), Report> {
        let trial = Trial::begin(instance, vec![Tried::new(self.type_name(), p, value)])?;
        let change = change_text(Change::Set(p, value));
        self.format.say(&format!("\ntried: {change} for type {}", self.type_name()));
        let after = measured_again(self.args, self.recording, instance)?;
        self.format.say(&format!("{} gets/s measured", short(rate(&after))));
        Ok((trial, after))
    }

    /// Says why no more was measured, and what was the best until then.
    fn ends_early(&mut self, error: &Report) {
        self.format.say(&format!("\nnot measured to the end: {error}"));
        let best = chosen(&self.tallies(), [Tally::of(self.before); 2]).map(|best| &self.measured[best]);
        let text = best.map(|((_, p, value), after)| (change_text(Change::Set(*p, *value)), rate(after)));
        self.format.say(&match &text {
            Some((change, gets)) => format!("the best so far, measured once: {change}, {} gets/s", short(*gets)),
            None => format!("so far {NONE_BETTER}"),
        });
        self.applied["change"] = text.map(|(change, _)| change).into();
        self.applied["ended_early"] = error.to_string().into();
    }

    fn tallies(&self) -> Vec<Tally> {
        self.measured.iter().map(|(_, after)| Tally::of(after)).collect()
    }

    fn type_name(&self) -> &str {
        self.recording.mutex_type.as_deref().unwrap_or_default()
    }
}

fn row(((_, p, value), after): &(Setting<'_>, Profile)) -> Value {
    json!({ "change": change_text(Change::Set(*p, *value)), "gets_per_s": rate(after), "measured": after })
}

fn rate(measured: &Profile) -> f64 {
    Measure::Throughput.of(measured).unwrap_or(0.0)
}

/// What of a measured setting decides whether it stays.
#[derive(Clone, Copy, Debug)]
struct Tally {
    gets_per_s: f64,
    /// Processors that the sessions used.
    cpus: Option<f64>,
}

impl Tally {
    fn of(measured: &Profile) -> Self {
        Self { gets_per_s: rate(measured), cpus: Measure::BusyProcessors.of(measured) }
    }
}

/// The setting with the most gets, where that is more than the present had twice, by more than these differ. Else one
/// with as many gets as the present, for less processor time. Of those that have as many the leanest.
fn chosen(tried: &[Tally], present: [Tally; 2]) -> Option<usize> {
    let [before, again] = present.map(|tally| tally.gets_per_s);
    let middle = f64::midpoint(before, again);
    let noise = (before - again).abs().max(NOISE * middle);
    let most = tried.iter().map(|tally| tally.gets_per_s).fold(0.0, f64::max);
    let as_many = |gets: f64| gets * (1.0 - NOISE);
    let (least, cpus) = if most - middle > noise {
        (as_many(most).max(middle + noise), f64::INFINITY)
    } else {
        (as_many(middle), LEAN * present[0].cpus?.min(present[1].cpus?))
    };
    let used = |tally: &Tally| tally.cpus.unwrap_or(f64::MAX);
    let enough = tried.iter().enumerate().filter(|(_, tally)| tally.gets_per_s >= least);
    let (best, leanest) = enough.min_by(|(_, a), (_, b)| used(a).total_cmp(&used(b)))?;
    (used(leanest) < cpus).then_some(best)
}

/// Says how each condition came out: all of them, and the first that holds.
fn held(conditions: &[Condition], before: &Profile, after: &Profile, format: Format) -> (Vec<Value>, Option<String>) {
    let mut all = Vec::new();
    let mut why = None;
    for condition in conditions {
        let change = condition.change(before, after);
        // What is not known is not risked.
        let holds = change.is_none_or(|change| condition.holds(change));
        let text = change.map_or_else(|| "not measured".to_owned(), |change| format!("{change:+.1} %"));
        let text =
            format!("{condition}: {} {text}, {}", condition.figure(), if holds { "holds" } else { "does not hold" });
        format.say(&text);
        if holds {
            why.get_or_insert(text);
        }
        all.push(json!({ "condition": condition.to_string(), "change_pct": change, "holds": holds }));
    }
    (all, why)
}

/// For how long something is measured again: as a canary says, or as before.
fn again_for(args: &Args) -> Duration {
    args.canary.unwrap_or(args.source.interval())
}

/// The same mutex again. Where the instance is gone, that is the error, whatever could not be read of it.
fn measured_again(args: &Args, recording: &Recording, instance: &Instance) -> Result<Profile, Report> {
    let mutex = Some(recording.mutex.clone().unwrap_or_default());
    let source = Source { mutex, interval: Some(again_for(args)), ..args.source.clone() };
    let seen = args.source.which.observe().and_then(|observer| source.seen(&observer));
    trial::still_there(instance.tables())?;
    Ok(seen?.measured)
}

/// What was predicted beside what was measured.
fn verify(after: &Profile, prediction: Option<&Prediction>, format: Format) -> Value {
    let Some(prediction) = prediction else {
        format.say("nothing to verify: no numbers were predicted");
        return Value::Null;
    };
    let table = check::table(&compare(after, prediction), "predicted");
    format.say(&format!("\n{}", table.text()));
    table.json()
}

#[cfg(test)]
mod tests {
    use super::{Tally, chosen};

    fn all<const N: usize>(all: [(f64, f64); N]) -> [Tally; N] {
        all.map(|(gets_per_s, cpus)| Tally { gets_per_s, cpus: Some(cpus) })
    }

    #[test]
    fn what_stays_has_more_gets_than_before_by_more_than_noise() {
        let most = |rates: &[f64], present: [f64; 2]| {
            let tally = |gets_per_s: f64| Tally { gets_per_s, cpus: None };
            chosen(&rates.iter().copied().map(tally).collect::<Vec<_>>(), present.map(tally))
        };
        assert_eq!(most(&[104.0, 120.0, 90.0], [100.0, 100.0]), Some(1));
        assert_eq!(most(&[102.9], [100.0, 100.0]), None);
        // The present differed by a fifth meanwhile.
        assert_eq!(most(&[120.0], [100.0, 120.0]), None);
        assert_eq!(most(&[131.0], [100.0, 120.0]), Some(0));
        assert_eq!(most(&[], [1.0, 1.0]), None);
    }

    #[test]
    fn or_as_many_gets_for_less_processor_time() {
        let present = all([(100.0, 2.0), (100.0, 1.9)]);
        assert_eq!(chosen(&all([(101.0, 1.6), (98.0, 1.5), (80.0, 0.5)]), present), Some(1));
        assert_eq!(chosen(&all([(101.0, 1.8)]), present), None);
        assert_eq!(chosen(&all([(120.0, 2.0), (100.0, 0.5)]), present), Some(0), "more gets come first");
        assert_eq!(chosen(&[Tally { gets_per_s: 100.0, cpus: None }], present), None);
        assert_eq!(chosen(&all([(150.0, 2.0), (148.0, 1.2), (140.0, 0.5)]), present), Some(1), "as many for less");
        assert_eq!(chosen(&all([(104.0, 2.0), (102.0, 1.95)]), present), Some(0), "102 are not more than before");
    }
}
