//! An advice tried: applied, measured again, and taken back if a condition holds.

use super::{Advice, Args, change_text};
use crate::output::{Format, short};
use crate::predict::check;
use crate::predict::check::compare;
use crate::predict::condition::Condition;
use crate::predict::prediction::Prediction;
use crate::predict::recording::Recording;
use crate::predict::rules::Change;
use crate::predict::source::Source;
use crate::settings::trial::{Trial, Tried};
use crate::signals;
use miette::{Report, miette};
use retrial::P;
use retrial_model::{Measure, Profile};
use serde_json::{Value, json};

/// Sets a parameter, measures again, and takes it back if a condition holds. What came of it.
pub(super) fn apply(
    args: &Args,
    recording: &Recording,
    before: &Profile,
    (p, value): (P, u64),
    prediction: Option<&Prediction>,
    format: Format,
) -> Result<Value, Report> {
    if prediction.is_none() && args.canary.is_none() {
        return Err(miette!(
            code = "retrial::advise::unsure",
            help = "retrial advise --apply --canary 60s --rollback-if 'throughput < -3%'",
            "the model does not fit the present, so nothing is known of what {} would do; expected --canary, which measures it",
            change_text(Change::Set(p, value))
        ));
    }
    let instance = args.source.which.attach()?;
    let type_name = recording.mutex_type.as_deref().unwrap_or_default();
    let trial = Trial::begin(&instance, vec![Tried::new(type_name, p, value)])?;
    let change = change_text(Change::Set(p, value));
    format.say(&format!("\napplied: {change} for type {type_name}"));
    let mut applied = json!({ "change": change, "kept": true, "conditions": [] });
    if args.canary.is_none() && !args.verify {
        trial.keep();
        return Ok(applied);
    }
    let take_back = |trial, why: &str| {
        drop(trial);
        format.say(&format!("taken back: {why}"));
    };
    let after = match measured_again(args, recording) {
        Ok(after) if signals::received().is_none() => after,
        Ok(_) => {
            take_back(trial, "interrupted");
            applied["kept"] = false.into();
            return Ok(applied);
        }
        Err(error) => {
            take_back(trial, "it could not be measured");
            return Err(error);
        }
    };
    let (conditions, why) = held(&args.rollback_if, before, &after, format);
    applied["conditions"] = conditions.into();
    applied["before"] = json!(before);
    applied["after"] = json!(after);
    match &why {
        Some(why) => take_back(trial, why),
        None => trial.keep(),
    }
    applied["kept"] = why.is_none().into();
    format.say(&format!("{} -> {} gets/s measured", short(rate(before)), short(rate(&after))));
    if let Some((before, after)) = others(before).zip(others(&after)) {
        format.say(&format!("{} -> {} processors in others' use", short(before), short(after)));
    }
    if args.verify {
        applied["verify"] = verify(&after, prediction, format);
    }
    Ok(applied)
}

/// Less more gets than this are noise.
const NOISE: f64 = 0.03;

/// Measures the best settings of a search one after the other, then the present once more, and sets the one
/// with the most gets, where it has more than the present and no condition holds. What came of it.
pub(super) fn best_of(
    args: &Args,
    recording: &Recording,
    before: &Profile,
    best: &[Advice],
    format: Format,
) -> Result<Value, Report> {
    let type_name = recording.mutex_type.as_deref().unwrap_or_default();
    let instance = args.source.which.attach()?;
    let mut measured: Vec<(P, u64, Profile)> = Vec::new();
    for advice in best {
        let Change::Set(p, value) = advice.finding.change else { continue };
        let trial = Trial::begin(&instance, vec![Tried::new(type_name, p, value)])?;
        format.say(&format!("\ntried: {} for type {type_name}", change_text(advice.finding.change)));
        let after = measured_again(args, recording);
        drop(trial);
        if signals::received().is_some() {
            format.say("taken back: interrupted");
            return Ok(json!({ "kept": false, "measured": [] }));
        }
        let after = after?;
        format.say(&format!("{} gets/s measured", short(rate(&after))));
        measured.push((p, value, after));
    }
    if measured.is_empty() {
        format.say("\nnothing to apply");
        return Ok(json!({ "kept": false, "measured": [] }));
    }
    let again = measured_again(args, recording)?;
    let present = [rate(before), rate(&again)];
    format.say(&format!("as it is: {} gets/s before, {} after", short(present[0]), short(present[1])));
    let rates: Vec<f64> = measured.iter().map(|(.., after)| rate(after)).collect();
    let chosen = most(&rates, present).map(|chosen| &measured[chosen]);
    let rows = measured.iter().map(|(p, value, after)| {
        json!({ "change": change_text(Change::Set(*p, *value)), "gets_per_s": rate(after), "measured": after })
    });
    let mut tried = json!({ "change": null, "kept": false, "measured": rows.collect::<Vec<_>>(), "present": present, "conditions": [] });
    let Some((p, value, after)) = chosen else {
        format.say("none has more gets than before: all is as it was");
        return Ok(tried);
    };
    let change = change_text(Change::Set(*p, *value));
    let (conditions, why) = held(&args.rollback_if, before, after, format);
    tried["change"] = change.clone().into();
    tried["conditions"] = conditions.into();
    tried["kept"] = why.is_none().into();
    if let Some(why) = why {
        format.say(&format!("not applied: {why}"));
    } else {
        Trial::begin(&instance, vec![Tried::new(type_name, *p, *value)])?.keep();
        format.say(&format!("applied: {change} for type {type_name}"));
    }
    Ok(tried)
}

fn rate(measured: &Profile) -> f64 {
    Measure::Throughput.of(measured).unwrap_or(0.0)
}

/// The setting with the most gets, where that is more than the present had twice, by more than these differ.
fn most(rates: &[f64], [before, again]: [f64; 2]) -> Option<usize> {
    let (present, differ) = (f64::midpoint(before, again), (before - again).abs());
    let (most, highest) = rates.iter().copied().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (highest - present > differ.max(NOISE * present)).then_some(most)
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

/// The same mutex again, for as long.
fn measured_again(args: &Args, recording: &Recording) -> Result<Profile, Report> {
    let observer = args.source.which.observe()?;
    let source = Source { mutex: Some(recording.mutex.clone().unwrap_or_default()), ..args.source.clone() };
    Ok(source.seen(&observer)?.measured)
}

/// Of the processors that the sessions may use, those that others used.
fn others(measured: &Profile) -> Option<f64> {
    Some(measured.others_s? / measured.time_s)
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
    use super::most;

    #[test]
    fn what_stays_has_more_gets_than_before_by_more_than_noise() {
        assert_eq!(most(&[104.0, 120.0, 90.0], [100.0, 100.0]), Some(1));
        assert_eq!(most(&[102.9], [100.0, 100.0]), None);
        // The present differed by a fifth meanwhile.
        assert_eq!(most(&[120.0], [100.0, 120.0]), None);
        assert_eq!(most(&[131.0], [100.0, 120.0]), Some(0));
        assert_eq!(most(&[], [1.0, 1.0]), None);
    }
}
