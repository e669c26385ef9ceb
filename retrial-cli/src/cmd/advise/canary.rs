//! An advice tried: applied, measured again, and taken back if a condition holds.

use super::{Args, change_text};
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
    let rate = |profile| short(Measure::Throughput.of(profile).unwrap_or(0.0));
    format.say(&format!("{} -> {} gets/s measured", rate(before), rate(&after)));
    if let Some((before, after)) = others(before).zip(others(&after)) {
        format.say(&format!("{} -> {} processors in others' use", short(before), short(after)));
    }
    if args.verify {
        applied["verify"] = verify(&after, prediction, format);
    }
    Ok(applied)
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
