//! `retrial model`.

mod formfactor;

use crate::calibration;
use crate::chart;
use crate::errors::unwritable;
use crate::output::{self, Format, Table, column, line};
use miette::{Report, miette};
use retrial_model::function::{Field, Parameter, Unit};
use retrial_model::sim::GUESSED;
use retrial_model::{CallError, Function, functions};
use serde_json::{Map, Value};
use std::io::{BufRead, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

/// Calculate what theory says, or simulate: spins, sleeps and waits from a holding time, a spin limit and a
/// rate
///
/// One case on the command line, or with --batch one JSON object per line of the standard input:
/// {"function":"wait", "dist":"exponential:mean=1us", "limit":2e-6, …}; an `id` comes back with the result. A
/// line that cannot be answered gives an object with `error`, the others go on, and the command exits with 2
/// at the end.
///
/// `simulate` takes the costs that `retrial calibrate` has kept for this machine, where it has;
/// machine=default, ideal, calibrated or a FILE of `retrial calibrate` says otherwise. The result says which
/// it took.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial model --list
  retrial model --list wait
  retrial model spin-open dist=exponential:mean=1us limit=2us rate=5e5
  retrial model wait dist=erlang:stages=4,mean=1us limit=2us rate=0.5/us sleep=1ms --json
  retrial model residual dist=histogram:edges=0us/1us/5us,weights=90/10 limit=2us
  retrial model simulate dist=exponential:mean=1us sessions=64 scheme=ydb processors=8
  retrial model simulate dist=exponential:mean=1us sessions=64 machine=default --json
  retrial model wait dist=exponential:mean=1us sleep=10ms --batch < cases.jsonl")]
pub struct Args {
    /// What to calculate; see --list
    #[arg(required_unless_present_any = ["list", "batch", "formfactor"])]
    function: Option<String>,
    /// NAME=VALUE: times as 1us, rates as 5e5 or 0.5/us, numbers without a unit in s and 1/s; with --batch
    /// for every line that does not say otherwise
    #[arg(value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// Print what can be calculated: formula, parameters, domain and source
    #[arg(long, conflicts_with_all = ["batch", "parameters"])]
    list: bool,
    /// Read cases from the standard input, one JSON object per line; print their results likewise
    #[arg(long, conflicts_with = "csv")]
    batch: bool,
    /// Draw k against ρ, by the paper's form factor, by that of requests, and simulated, as SVG into this
    /// file; takes some minutes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "batch", "function"])]
    formfactor: Option<PathBuf>,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    if args.list {
        let named = args.function.as_deref().map(Function::named).transpose().map_err(|error| refused(&error))?;
        list(&named.map_or_else(|| functions().collect(), |function| vec![function]), format);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = args.formfactor {
        let svg = chart::svg(&formfactor::charts()?, 3)?;
        std::fs::write(&path, svg).map_err(|error| unwritable(&path, &error))?;
        format.say(&format!("Drawn in {}.", path.display()));
        return Ok(ExitCode::SUCCESS);
    }
    // The first word may be a parameter when the lines say which function.
    let first = args.function.filter(|word| !args.batch || !word.contains('='));
    let words = args.parameters;
    let mut given = parameters(&words)?;
    if args.batch {
        return batch(first.as_deref(), &given);
    }
    let function = Function::named(&first.unwrap_or_default()).map_err(|error| refused(&error))?;
    let machine = machine(function, &mut given).map_err(|message| {
        miette!(code = "retrial::model::machine", help = "retrial calibrate, or machine=default", "{message}")
    })?;
    let mut results = function.call(&given).map_err(|error| refused(&error))?;
    if format.json {
        results.extend(machine.map(|taken| ("machine".into(), taken.into())));
        line(&Value::Object(results).to_string());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(taken) = machine {
        format.say(&format!("Machine: {taken}"));
    }
    let columns = [
        column("name", |field: &Field| field.name),
        column("value", |field: &Field| {
            let value = &results[field.name];
            if format.csv { value.clone() } else { digits(value).into() }
        }),
        column("unit", |field: &Field| field.unit),
        column("meaning", |field: &Field| field.meaning),
    ];
    Table::of(&columns, function.results).print(format);
    Ok(ExitCode::SUCCESS)
}

fn parameters(words: &[String]) -> Result<Map<String, Value>, Report> {
    let mut parameters = Map::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| {
            miette!(
                code = "retrial::model::form",
                help = "retrial model --list",
                "parameter `{word}`, expected NAME=VALUE"
            )
        })?;
        if parameters.insert(name.trim().to_owned(), value.trim().into()).is_some() {
            return Err(miette!(
                code = "retrial::model::twice",
                help = format!("retrial model … {}=VALUE", name.trim()),
                "parameter {} given twice, expected once",
                name.trim()
            ));
        }
    }
    Ok(parameters)
}

/// One object out for each that comes in, in the same order.
fn batch(function: Option<&str>, defaults: &Map<String, Value>) -> Result<ExitCode, Report> {
    let (mut lines, mut errors) = (0, 0);
    for (number, text) in stdin().lock().lines().enumerate() {
        let text = text.map_err(|error| {
            miette!(
                code = "retrial::model::input",
                help = "retrial model --batch < cases.jsonl",
                "line {} of the standard input: {error}; expected text in UTF-8",
                number + 1
            )
        })?;
        if text.trim().is_empty() {
            continue;
        }
        lines += 1;
        let mut out = Map::new();
        if let Err(error) = answer(&text, function, defaults, &mut out) {
            errors += 1;
            out.insert("line".into(), (number + 1).into());
            out.insert("error".into(), error.into());
        }
        line(&Value::Object(out).to_string());
    }
    if errors == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    Err(miette!(
        code = "retrial::model::lines",
        help = "the objects with `error` say what was expected; retrial model --list",
        "{errors} of {lines} lines without a result, expected none"
    ))
}

/// The answer to a line: its id, its function, its results.
fn answer(
    text: &str,
    function: Option<&str>,
    defaults: &Map<String, Value>,
    out: &mut Map<String, Value>,
) -> Result<(), String> {
    let mut case: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("{error}; expected a JSON object"))?;
    if let Some(id) = case.shift_remove("id") {
        out.insert("id".into(), id);
    }
    let name = match case.shift_remove("function") {
        None => function.ok_or_else(|| format!("no function, expected one of {}", names()))?.to_owned(),
        Some(Value::String(name)) => name,
        Some(other) => return Err(format!("function {other}, expected one of {}", names())),
    };
    let function = Function::named(&name).map_err(|error| error.to_string())?;
    out.insert("function".into(), function.name.into());
    // What was typed is for the functions that take it.
    for (name, value) in defaults {
        if function.parameters.iter().any(|known| known.name == name) && !case.contains_key(name) {
            case.insert(name.clone(), value.clone());
        }
    }
    let machine = machine(function, &mut case)?;
    out.extend(function.call(&case).map_err(|error| error.to_string())?);
    out.extend(machine.map(|taken| ("machine".into(), taken.into())));
    Ok(())
}

/// Puts the costs of the machine into a case that has one: those that are kept for this machine unless it
/// says otherwise. Gives where they come from.
pub fn machine(function: &Function, case: &mut Map<String, Value>) -> Result<Option<String>, String> {
    if !function.parameters.iter().any(|known| known.name == "machine") {
        return Ok(None);
    }
    let guessed = format!("guessed as in default, since no calibration measures them: {}", GUESSED.join(", "));
    let kept = || calibration::path().map_or_else(String::new, |path| format!(" ({})", path.display()));
    let (costs, taken) = match case.get("machine").filter(|value| !value.is_null()) {
        None => match calibration::load() {
            Some(costs) => (costs.to_string(), format!("calibrated{}; {guessed}", kept())),
            None => ("default".to_owned(), "default: `retrial calibrate` has kept nothing for this machine".to_owned()),
        },
        Some(Value::String(name)) if name == "calibrated" => match calibration::load() {
            Some(costs) => (costs.to_string(), format!("calibrated{}; {guessed}", kept())),
            None => return Err(format!("no costs of this machine{}, expected those of `retrial calibrate`", kept())),
        },
        Some(Value::String(name)) if name == "default" || name == "ideal" => return Ok(Some(name.clone())),
        Some(Value::String(path)) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                format!(
                    "machine `{path}`: {error}; expected default, ideal, calibrated or a file of `retrial calibrate`"
                )
            })?;
            // Its first line says which machine it is of.
            let costs: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            let costs = costs.join("\n").parse::<retrial::views::Costs>();
            (costs.map_err(|error| format!("machine `{path}`: {error}"))?.to_string(), format!("{path}; {guessed}"))
        }
        // What is no text is refused with the others.
        Some(_) => return Ok(None),
    };
    case.insert("machine".into(), costs.into());
    Ok(Some(taken))
}

fn names() -> String {
    functions().map(|function| function.name).collect::<Vec<_>>().join(", ")
}

fn refused(error: &CallError) -> Report {
    let (code, help) = match error {
        CallError::Function { .. } => ("retrial::model::function", "retrial model --list".to_owned()),
        CallError::Parameter { function, .. } | CallError::Missing { function, .. } => {
            ("retrial::model::parameter", format!("retrial model --list {function}"))
        }
        CallError::Value { .. } => ("retrial::model::value", "retrial model --list".to_owned()),
        _ => ("retrial::model::domain", "retrial model --list says where each formula holds".to_owned()),
    };
    miette!(code = code, help = help, "{error}")
}

fn list(listed: &[&Function], format: Format) {
    if format.json {
        return output::json(listed);
    }
    if format.csv {
        let columns = [
            column("name", |function: &Function| function.name),
            column("summary", |function: &Function| function.summary),
            column("formula", |function: &Function| function.formula),
            column("domain", |function: &Function| function.domain),
            column("source", |function: &Function| function.source),
            column("parameters", |function: &Function| {
                function.parameters.iter().map(|known| known.name).collect::<Vec<_>>().join(" ")
            }),
            column("results", |function: &Function| {
                function.results.iter().map(|field| field.name).collect::<Vec<_>>().join(" ")
            }),
        ];
        return Table::of(&columns, listed.iter().copied()).print(format);
    }
    for function in listed {
        line(&format!("{}: {}", function.name, function.summary));
        for (title, text) in [("formula", function.formula), ("domain", function.domain), ("source", function.source)] {
            line(&format!("  {title:<8} {text}"));
        }
        for (known, title) in function.parameters.iter().zip(["takes"].into_iter().chain(std::iter::repeat(""))) {
            line(&format!("  {title:<8} {:<16} {}{}", known.name, known.meaning, kind(known)));
        }
        for (field, title) in function.results.iter().zip(["gives"].into_iter().chain(std::iter::repeat(""))) {
            let unit = if field.unit == "1" { String::new() } else { format!(" ({})", field.unit) };
            line(&format!("  {title:<8} {:<16} {}{unit}", field.name, field.meaning));
        }
        line("");
    }
    line(
        "Distributions: deterministic:mean=1us exponential:mean=1us erlang:stages=4,mean=1us gamma:shape=0.5,mean=1us",
    );
    line(
        "  hyperexponential:probabilities=0.9/0.1,means=0.5us/5us lognormal:median=1us,sigma=1.2 pareto:minimum=1us,shape=2.5",
    );
    line(
        "  lomax:scale=2us,shape=3 uniform:low=0us,high=2us histogram:edges=0us/1us/5us,weights=9/1 sample:values=1us/3us/2us",
    );
}

/// Unit and default of a parameter, for the list.
fn kind(known: &Parameter) -> String {
    let unit = if known.unit == Unit::Number { String::new() } else { format!(" ({})", known.unit.name()) };
    match known.default {
        None => unit,
        Some("") => format!("{unit}, may be absent"),
        Some(default) => format!("{unit}, {default} if absent"),
    }
}

/// A number with seven digits: without an exponent where that stays short.
fn digits(value: &Value) -> String {
    let Some(x) = value.as_f64() else { return "-".into() };
    let magnitude = x.abs();
    if x == 0.0 || (1e-3..1e7).contains(&magnitude) {
        let decimals = if x == 0.0 { 0 } else { (6 - magnitude.log10().floor() as i32).max(0).unsigned_abs() as usize };
        let text = format!("{x:.decimals$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    } else {
        format!("{x:.6e}")
    }
}
