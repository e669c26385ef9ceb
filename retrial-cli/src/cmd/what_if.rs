//! `retrial what-if`.

use super::model;
use crate::bench::plot::{self, plot_against};
use crate::chart::{self, Axis, Chart, Form, Point, Scale};
use crate::duration;
use crate::output::{Format, Table, line, short};
use crate::predict::cases::{Vary, scheme, sessions, settings};
use crate::predict::measured::{ratio, whole};
use crate::predict::prediction::{Prediction, predict};
use crate::predict::recording::{Holds, Recording};
use crate::predict::source::{Source, bar, words};
use miette::{Report, miette};
use retrial_model::catalogue::simulated;
use retrial_model::sim::{Arrivals, Measure, SimulationError, Workload};
use retrial_model::{CallError, Function};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Predict what a workload would come to with another scheme, other parameters, sessions, processors, copies
///
/// The workload is described by NAME=VALUE as for `retrial model simulate`, recorded, or measured at a live instance: how often which
/// sessions get the mutex, how long they hold it, what their threads do between. Nothing is changed there. Each case is simulated by the
/// library's own schemes on a virtual clock; beside it is what theory says where it has a formula. The present comes first.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial what-if dist=exponential:mean=1us sessions=64
  retrial what-if dist=exponential:mean=5us sessions=8 think=exponential:mean=20us --scheme sleep --set mutex_spin_count=50,255,1000
  retrial what-if -i shop --interval 10s --record now.json
  retrial what-if --from now.json --scheme orbit,ydb --sessions 8,64,512 --plot
  retrial run --report report.json -- memcached -t 4; retrial what-if --from report.json sessions=4 --cpus 2,8 --copies 1,4")]
pub struct Args {
    /// NAME=VALUE: dist=, sessions=, think=, scheme=, processors=, … of `retrial model --list simulate`; beside -i and --from: sessions=
    /// and dist= instead of what was found
    #[arg(value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    vary: Vary,
    /// Say why theory has no number where it has none
    #[arg(long)]
    why: bool,
    /// Draw throughput against what is varied
    #[arg(long)]
    plot: bool,
    /// The same as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Something by which cases differ.
type Key<T> = fn(&Workload) -> T;

/// A case and what it comes to.
struct Predicted {
    workload: Workload,
    prediction: Result<Prediction, SimulationError>,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let words = words(&args.parameters)?;
    let is_described = !words.is_empty() && args.source.from.is_none() && args.source.which.instance.is_none();
    let (mut recording, mut seeds) = if is_described {
        let mut given = words.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        let simulate = Function::named("simulate").map_err(|error| refused(&error))?;
        let machine = model::machine(simulate, &mut given).map_err(|message| {
            miette!(code = "retrial::predict::machine", help = "retrial calibrate, or machine=default", "{message}")
        })?;
        let (workload, seeds) = simulated(&given).map_err(|error| refused(&error))?;
        let mut recording = Recording::described(workload);
        recording.notes.extend(machine.map(|taken| format!("machine: {taken}")));
        args.source.keep(&recording)?;
        (recording, seeds)
    } else {
        (args.source.recording(&words)?, SEEDS)
    };
    args.source.spans(&mut recording.workload, &mut seeds);
    let cases = args.vary.cases(&recording.workload)?;
    let predicted = predict_all(cases, &seeds, &recording.holds);
    let present = &predicted[0];
    if let Err(error) = &present.prediction {
        return Err(impossible(error));
    }
    if format.is_text() {
        head(&recording);
    }
    let table = table(&predicted);
    if format.json {
        let whole = json!({ "of": recording.of, "holds": recording.holds, "notes": recording.notes, "workload": recording.workload,
            "cases": table.json() });
        line(&serde_json::to_string_pretty(&whole).unwrap_or_default());
    } else if format.csv {
        table.print(format);
    } else {
        narrow(&predicted).print(format);
    }
    if format.is_text() {
        remarks(&recording, &predicted, args.why);
    }
    let drawing = Drawing::of(&predicted);
    if args.plot && format.is_text() {
        line(&format!("\n{}", drawing.text()));
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, drawing.svg()?).map_err(|error| {
            miette!(
                code = "retrial::predict::svg",
                help = "df; ls -ld of its directory",
                "cannot write {}: {error}",
                path.display()
            )
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Seeds of the replications where nothing is said of them: those of `retrial model simulate`.
pub const SEEDS: Range<u64> = 1..5;

/// Simulates one case after the other, each on all processors.
fn predict_all(cases: Vec<Workload>, seeds: &Range<u64>, holds: &Holds) -> Vec<Predicted> {
    let bar = bar(cases.len() as u64, "{bar:30} {msg}  {pos}/{len}, {eta} left");
    let all = cases.into_iter().map(|workload| {
        bar.set_message(scheme(&workload));
        let prediction = predict(&workload, seeds, holds);
        bar.inc(1);
        Predicted { workload, prediction }
    });
    let all = all.collect();
    bar.finish_and_clear();
    all
}

fn head(recording: &Recording) {
    let Workload { arrivals, hold, machine, .. } = &recording.workload;
    let who = match arrivals {
        Arrivals::Closed { sessions, think, on_processor } => {
            let away = if *on_processor { "" } else { ", away from the processors" };
            format!("{sessions} sessions that think for {}{away}", time(think.mean()))
        }
        Arrivals::Open { rate } => format!("sessions from outside, {}/s", short(*rate)),
    };
    let processors = machine.processors.map_or_else(|| "a processor each".to_owned(), |n| format!("{n} processors"));
    line(&format!("{}: {who}, hold it for {}, {processors}", recording.of, time(hold.mean())));
    line(&match recording.holds {
        Holds::Given => "holding times: as given".to_owned(),
        Holds::Timed(count) => {
            format!("holding times: as {count} of them timed from outside")
        }
        Holds::Mean => {
            "holding times: the mean alone is known; exponential, and `fixed` the throughput if they were all the same"
                .to_owned()
        }
    });
    for note in &recording.notes {
        line(&format!("note: {note}"));
    }
    line("");
}

/// A time for people.
fn time(seconds: f64) -> String {
    duration::text(Duration::from_secs_f64(seconds))
}

const COLUMNS: [&str; 32] = [
    "scheme",
    "set",
    "sessions",
    "cpus",
    "copies",
    "gets_per_s",
    "gets_per_s_interval",
    "gets_per_s_fixed",
    "gets_per_s_theory",
    "change_pct",
    "utilization",
    "miss_ratio",
    "k",
    "k_interval",
    "k_fixed",
    "k_theory",
    "kappa",
    "sleeps_per_s",
    "wait_us",
    "wait_us_interval",
    "wait_us_fixed",
    "wait_us_theory",
    "wait_p99_us",
    "wait_p99_us_interval",
    "wait_max_us",
    "cpus_busy",
    "cpus_busy_interval",
    "cpus_waiting",
    "fairness",
    "theory",
    "why_no_theory",
    "error",
];

/// Everything, for JSON and CSV.
fn table(predicted: &[Predicted]) -> Table {
    let mut table = Table::new(&COLUMNS);
    let present = &predicted[0];
    for Predicted { workload, prediction } in predicted {
        let mut row: Vec<Value> = vec![
            scheme(workload).into(),
            settings(workload, &present.workload).into(),
            sessions(workload).into(),
            workload.machine.processors.into(),
            workload.copies.into(),
        ];
        match prediction {
            Ok(prediction) => row.extend(figures(prediction, present)),
            Err(error) => {
                row.resize(COLUMNS.len() - 1, Value::Null);
                row.push(error.to_string().into());
            }
        }
        table.row(row);
    }
    table
}

fn figures(prediction: &Prediction, present: &Predicted) -> Vec<Value> {
    let mean = |measure: Measure| Value::from(prediction.mean(measure));
    let us = |seconds: f64| Value::from(seconds * 1e6);
    let fixed = |measure: Measure, unit: f64| -> Value {
        prediction.fixed.as_ref().map(|fixed| fixed.get(measure).mean * unit).into()
    };
    let theory = prediction.theory.as_ref();
    vec![
        mean(Measure::Throughput),
        prediction.interval(Measure::Throughput).into(),
        fixed(Measure::Throughput, 1.0),
        theory.ok().and_then(|theory| theory.gets_per_s).into(),
        change(prediction, present).into(),
        mean(Measure::Utilization),
        mean(Measure::MissRatio),
        mean(Measure::SpinInefficiency),
        prediction.interval(Measure::SpinInefficiency).into(),
        fixed(Measure::SpinInefficiency, 1.0),
        theory.ok().and_then(|theory| theory.k).into(),
        prediction.sleep_ratio().into(),
        prediction.sleeps_per_s().into(),
        us(prediction.mean(Measure::Wait)),
        us(prediction.interval(Measure::Wait)),
        fixed(Measure::Wait, 1e6),
        theory.ok().and_then(|theory| theory.wait_s).map(|wait| wait * 1e6).into(),
        us(prediction.mean(Measure::WaitP99)),
        us(prediction.interval(Measure::WaitP99)),
        us(prediction.mean(Measure::WaitMax)),
        mean(Measure::BusyProcessors),
        prediction.interval(Measure::BusyProcessors).into(),
        mean(Measure::WaitingProcessors),
        mean(Measure::Fairness),
        theory.ok().map(|theory| theory.function).into(),
        theory.err().cloned().into(),
        Value::Null,
    ]
}

/// Throughput against the present, in percent.
fn change(prediction: &Prediction, present: &Predicted) -> Option<f64> {
    let before = present.prediction.as_ref().ok()?.mean(Measure::Throughput);
    (before > 0.0).then(|| (prediction.mean(Measure::Throughput) / before - 1.0) * 100.0)
}

/// The columns that a person reads: those of what is varied, and the main figures.
fn narrow(predicted: &[Predicted]) -> Table {
    const FIGURES: [&str; 15] = [
        "gets_per_s",
        "±",
        "theory",
        "fixed",
        "change_pct",
        "k",
        "k_theory",
        "kappa",
        "sleeps_per_s",
        "wait_us",
        "± ",
        "w_theory",
        "p99_us",
        "max_us",
        "cpus",
    ];
    let differ = |key: Key<Value>| predicted.iter().any(|case| key(&case.workload) != key(&predicted[0].workload));
    let present = &predicted[0];
    let has_settings = predicted.iter().any(|case| !settings(&case.workload, &present.workload).is_empty());
    let has_fixed = predicted.iter().any(|case| case.prediction.as_ref().is_ok_and(|p| p.fixed.is_some()));
    let varied: [(&'static str, Key<Value>); 3] = [
        ("sessions", |workload| sessions(workload).into()),
        ("on_cpus", |workload| workload.machine.processors.into()),
        ("copies", |workload| workload.copies.into()),
    ];
    let varied: Vec<_> = varied.into_iter().filter(|(_, key)| differ(*key)).collect();
    let mut columns = vec!["scheme"];
    columns.extend(has_settings.then_some("set"));
    columns.extend(varied.iter().map(|(name, _)| *name));
    columns.extend(FIGURES.into_iter().filter(|name| has_fixed || *name != "fixed"));
    let mut table = Table::new(&columns);
    for Predicted { workload, prediction } in predicted {
        let is_present = workload == &present.workload;
        let mut row = vec![Value::from(scheme(workload) + if is_present { " (present)" } else { "" })];
        row.extend(has_settings.then(|| settings(workload, &present.workload).into()));
        row.extend(varied.iter().map(|(_, key)| key(workload)));
        if let Ok(prediction) = prediction {
            let all = figures(prediction, present);
            let of = |name: &str| all[COLUMNS.iter().position(|known| *known == name).expect("a column") - 5].clone();
            let shown = [
                "gets_per_s",
                "gets_per_s_interval",
                "gets_per_s_theory",
                "gets_per_s_fixed",
                "change_pct",
                "k",
                "k_theory",
                "kappa",
                "sleeps_per_s",
                "wait_us",
                "wait_us_interval",
                "wait_us_theory",
                "wait_p99_us",
                "wait_max_us",
                "cpus_busy",
            ];
            row.extend(shown.into_iter().filter(|name| has_fixed || *name != "gets_per_s_fixed").map(of));
        } else {
            row.resize(columns.len(), Value::Null);
        }
        table.row(row);
    }
    table
}

fn remarks(recording: &Recording, predicted: &[Predicted], why: bool) {
    let present = &predicted[0];
    for Predicted { workload, prediction } in predicted {
        let case = [scheme(workload), settings(workload, &present.workload)].join(" ");
        match prediction {
            Err(error) => line(&format!("{}: {error}", case.trim_end())),
            Ok(Prediction { theory: Err(reason), .. }) if why => line(&format!("{}: {reason}", case.trim_end())),
            Ok(_) => {}
        }
    }
    if let (Some(measured), Ok(prediction)) = (&recording.measured, &present.prediction) {
        let simulated = prediction.mean(Measure::Throughput);
        line(&format!(
            "measured: {} gets/s; the present as simulated: {} ({:+.0} %)",
            short(measured.gets_per_s()),
            short(simulated),
            (simulated / measured.gets_per_s() - 1.0) * 100.0
        ));
    }
    if !why && predicted.iter().any(|case| case.prediction.as_ref().is_ok_and(|p| p.theory.is_err())) {
        line("Where theory has no number, --why says why.");
    }
    if let Some(instance) = &recording.instance {
        line(&format!("Next: retrial advise -i {instance}"));
    }
}

/// Throughput against what is varied.
struct Drawing {
    /// What is at the x axis; nothing when only names are varied.
    x: Option<&'static str>,
    lines: Vec<(String, Vec<Point>)>,
}

impl Drawing {
    fn of(predicted: &[Predicted]) -> Self {
        let keys: [(&'static str, Key<Option<u32>>); 3] = [
            ("sessions", sessions),
            ("processors", |workload| workload.machine.processors),
            ("copies", |workload| Some(workload.copies)),
        ];
        let values = |key: Key<Option<u32>>| {
            let mut values: Vec<u32> = predicted.iter().filter_map(|case| key(&case.workload)).collect();
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        let x = keys
            .into_iter()
            .max_by_key(|(name, key)| (values(*key), *name == "sessions"))
            .filter(|(_, key)| values(*key) > 1);
        let mut lines: Vec<(String, Vec<Point>)> = Vec::new();
        for (number, Predicted { workload, prediction }) in predicted.iter().enumerate() {
            let Ok(prediction) = prediction else { continue };
            let (mean, half) = (prediction.mean(Measure::Throughput), prediction.interval(Measure::Throughput));
            let mut name =
                [scheme(workload), settings(workload, &predicted[0].workload)].join(" ").trim_end().to_owned();
            for (other, key) in
                keys.iter().filter(|(other, key)| x.is_none_or(|(x, _)| x != *other) && values(*key) > 1)
            {
                name += &key(workload).map_or_else(String::new, |n| format!(" {n} {other}"));
            }
            let at = match x {
                Some((_, key)) => key(workload).map(f64::from),
                None => Some(number as f64 + 1.0),
            };
            let Some(at) = at else { continue };
            let point = Point { x: at, y: mean, interval: Some((mean - half, mean + half)) };
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => lines.push((name, vec![point])),
            }
        }
        for (_, points) in &mut lines {
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        Self { x: x.map(|(name, _)| name), lines }
    }

    fn text(&self) -> String {
        let Some(x) = self.x else { return self.bars() };
        let series = self.lines.iter().map(|(name, points)| plot::Series {
            name: name.clone(),
            points: points.iter().map(|point| (point.x, point.y)).collect(),
        });
        let series: Vec<_> = series.collect();
        plot_against(&format!("gets/s against {x}, simulated"), x, &series)
    }

    /// A bar for each case, in proportion.
    fn bars(&self) -> String {
        const WIDTH: f64 = 60.0;
        let cases = || self.lines.iter().flat_map(|(name, points)| points.iter().map(move |point| (name, point.y)));
        let (most, widest) = cases().fold((0.0, 0), |(most, wide), (name, y)| (y.max(most), wide.max(name.len())));
        let bar = |y: f64| "#".repeat(whole(ratio(y, most) * WIDTH) as usize);
        let rows = cases().map(|(name, y)| format!("{name:<widest$}  {} {}", bar(y), short(y)));
        std::iter::once("gets/s, simulated".to_owned()).chain(rows).collect::<Vec<_>>().join("\n")
    }

    fn svg(&self) -> Result<String, Report> {
        let series = self.lines.iter().enumerate().flat_map(|(colour, (name, points))| {
            let of = |name: &str, form| chart::Series { name: name.to_owned(), form, colour, points: points.clone() };
            let mut series = vec![of(name, Form::Points)];
            series.extend((points.len() > 1).then(|| of("", Form::Line)));
            series
        });
        let scale = if self.x.is_some() { Scale::Binary } else { Scale::Linear };
        let chart = Chart {
            title: "simulated throughput with 95 % intervals".to_owned(),
            x: Axis::new(self.x.unwrap_or("case"), scale),
            y: Axis::new("gets/s", Scale::Linear),
            series: series.collect(),
            legend: true,
        };
        chart::svg(&[chart], 1)
    }
}

fn refused(error: &CallError) -> Report {
    miette!(code = "retrial::predict::word", help = "retrial model --list simulate", "{error}")
}

pub fn impossible(error: &SimulationError) -> Report {
    miette!(code = "retrial::predict::workload", help = "retrial model --list simulate says what is allowed", "{error}")
}
