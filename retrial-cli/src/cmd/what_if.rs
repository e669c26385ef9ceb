//! `retrial what-if`.

use super::model;
use crate::chart::{self, Axis, Chart, Form, Legend, Point, Scale};
use crate::duration::seconds;
use crate::errors::{can_write, unwritable};
use crate::output::{self, Format, Table, column, counted, line, measure, quoted, short, whole};
use crate::predict::cases::{Vary, scheme, sessions, settings};
use crate::predict::check::{self, Compared, compare, fits, range, verdict};
use crate::predict::prediction::{CONFIDENCE, Prediction, percent, predict};
use crate::predict::recording::{Holds, Recording};
use crate::predict::source::{Source, bar, check_early, tell_interrupted, with_words, words};
use crate::signals;
use miette::{Report, miette};
use retrial_bench::plot::{self, plot_against};
use retrial_model::catalogue::simulated;
use retrial_model::sim::{Arrivals, Measure, SimulationError, Workload};
use retrial_model::theory::Theory;
use retrial_model::{CallError, Function};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

/// Predict what a workload would come to with another scheme, other parameters, sessions, processors, copies
///
/// The workload is described by NAME=VALUE as for `retrial model simulate`, recorded, or measured at a live
/// instance: how often which sessions get the mutex, how long they hold it, what their threads do between.
/// Nothing is changed there. Each case is simulated by the library's own schemes on a virtual clock; beside
/// it is what theory says where it has a formula. The present comes first. Where it was measured and fits, the
/// simulated change of gets and waits is told of what was measured.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial what-if dist=exponential:mean=1us sessions=64
  retrial what-if dist=exponential:mean=5us sessions=8 think=exponential:mean=20us --scheme sleep --set mutex_spin_count=50,255,1000
  retrial what-if -i shop --interval 10s --record now.json
  retrial what-if --from now.json --scheme orbit,ydb --sessions 8,64,512 --plot
  retrial run --report report.json -- memcached -t 4; retrial what-if --from report.json --cpus 2,8 --copies 1,4")]
pub struct Args {
    /// NAME=VALUE: dist=, sessions=, think=, scheme=, processors=, … of `retrial model --list simulate`;
    /// where something is measured or read: only sessions= and dist=, of a case beside the present
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
pub struct Predicted {
    pub workload: Workload,
    pub prediction: Result<Prediction, SimulationError>,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let words = words(&args.parameters)?;
    args.svg.as_deref().map_or(Ok(()), can_write)?;
    let Source { from, which, mutex, interval, .. } = &args.source;
    let is_measured = which.is_named() || mutex.is_some() || interval.is_some();
    let is_described = !words.is_empty() && from.is_none() && !is_measured;
    let (mut recording, mut seeds, beside) = if is_described {
        let mut given = words.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        let simulate = Function::named("simulate").map_err(|error| refused(&error))?;
        let machine = model::machine(simulate, &mut given).map_err(|message| {
            miette!(code = "retrial::predict::machine", help = "retrial calibrate, or machine=default", "{message}")
        })?;
        let (workload, seeds) = simulated(&given).map_err(|error| refused(&error))?;
        let mut recording = Recording::described(workload);
        recording.notes.extend(machine.map(|taken| format!("machine: {taken}")));
        args.source.keep(&recording)?;
        (recording, seeds, &[][..])
    } else {
        check_early(&args.vary, &words)?;
        (args.source.recording()?, SEEDS, &words[..])
    };
    args.source.spans(&mut recording.workload, &mut seeds);
    let cases = args.vary.cases(&recording.workload, &with_words(&recording.workload, beside)?)?;
    let mut predicted = predict_all(cases, &seeds, &recording);
    let Some(present) = predicted.first() else { return Ok(ExitCode::from(2)) };
    if let Err(error) = &present.prediction {
        return Err(impossible(error));
    }
    if format.is_text() {
        head(&recording);
    }
    let measured = recording.measured.as_ref().zip(ok(present));
    let compared = measured.map(|(measured, prediction)| compare(measured, prediction));
    if let Some(compared) = &compared {
        let told = |case: Predicted| {
            let prediction = case.prediction.map(|prediction| check::told(prediction, compared));
            Predicted { prediction, ..case }
        };
        predicted = predicted.into_iter().map(told).collect();
    }
    let is_fit = compared.as_deref().map(fits);
    let table = table(&predicted, compared.as_deref());
    if format.json {
        let whole = json!({ "of": recording.of, "holds": recording.holds, "notes": recording.notes, "workload": recording.workload,
            "check": compared.as_ref().map(|compared| check::table(compared, "simulated").json()), "fits": is_fit, "cases": table.json() });
        output::json(&whole);
    } else {
        table.print(format);
    }
    if format.is_text() {
        remarks(&recording, compared.as_deref(), &predicted, args.why);
    }
    let drawing = Drawing::of(&predicted, if compared.is_some() { "predicted" } else { "simulated" });
    if args.plot && format.is_text() {
        line(&format!("\n{}", drawing.text()));
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, drawing.svg()?).map_err(|error| unwritable(path, &error))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Seeds of the replications where nothing is said of them: those of `retrial model simulate`.
pub const SEEDS: Range<u64> = 1..5;

/// Simulates one case after the other, each on all processors, until a signal.
fn predict_all(cases: Vec<Workload>, seeds: &Range<u64>, recording: &Recording) -> Vec<Predicted> {
    let number = cases.len();
    let bar = bar(number as u64, "{bar:30} {msg}  {pos}/{len}, {eta} left");
    let all = cases.into_iter().take_while(|_| signals::received().is_none()).map(|workload| {
        bar.set_message(scheme(&workload));
        let holds = if workload.hold == recording.workload.hold { recording.holds } else { Holds::Given };
        let prediction = predict(&workload, seeds, &holds);
        bar.inc(1);
        Predicted { workload, prediction }
    });
    let all: Vec<_> = all.collect();
    bar.finish_and_clear();
    tell_interrupted(all.len(), number, "cases");
    all
}

fn head(recording: &Recording) {
    let Workload { arrivals, hold, work, machine, .. } = &recording.workload;
    let who = match arrivals {
        Arrivals::Closed { sessions, think, on_processor } => {
            let away = if *on_processor { "" } else { ", away from the processors" };
            let sessions = counted((*sessions).into(), "session that thinks", "sessions that think");
            format!("{sessions} for {}{away}", seconds(think.mean()))
        }
        Arrivals::Open { rate } => format!("sessions from outside, {}/s", short(*rate)),
    };
    let work = if *work > 0.0 { format!(", after {} of work", seconds(*work)) } else { String::new() };
    let hold_verb = if matches!(arrivals, Arrivals::Closed { sessions: 1, .. }) { "holds" } else { "hold" };
    let processors = machine.processors.map_or_else(|| "a processor each".to_owned(), |n| format!("{n} processors"));
    line(&format!("{}: {who}{work}, {hold_verb} it for {}, {processors}", recording.title(), seconds(hold.mean())));
    let fixed = if recording.holds == Holds::Mean { "; `fixed`: gets/s if they were all the same" } else { "" };
    line(&format!("holding times {}{fixed}", recording.holds));
    for note in &recording.notes {
        line(&format!("note: {note}"));
    }
    line("");
}

/// Everything for JSON and CSV; a person reads the columns of what is varied, and the main figures. Changes only
/// where the present is as measured.
pub fn table(predicted: &[Predicted], compared: Option<&[Compared]>) -> Table {
    let present = &predicted[0];
    let is_fit = compared.is_none_or(fits);
    let end =
        |case: &Predicted, measure: Measure, end: usize| Some(range(compared?, changed(case, present)?, measure)?[end]);
    let [from, to] = [0, 1].map(|which| move |case: &Predicted, measure: Measure| end(case, measure, which));
    let is_sure =
        |case: &Predicted| check::is_sure(compared?, changed(case, present)?, Measure::Throughput).map(check::yes);
    let named = move |case: &Predicted| settings(&case.workload, &present.workload);
    let of = |case: &Predicted, measure: Measure| ok(case)?.mean(measure);
    let half = |case: &Predicted, measure: Measure| ok(case)?.interval(measure);
    let fixed = |case: &Predicted, measure: Measure| Some(ok(case)?.fixed.as_ref()?.get(measure)?.mean);
    let is_told = |case: &Predicted| tells_waits(case, present, compared);
    let wait = |case: &Predicted, measure: Measure| of(case, measure).filter(|_| is_told(case));
    let half_wait = |case: &Predicted, measure: Measure| half(case, measure).filter(|_| is_told(case));
    let fixed_wait = |case: &Predicted, measure: Measure| fixed(case, measure).filter(|_| is_told(case));
    let theory = |case: &Predicted| ok(case).map(|prediction| prediction.theory.clone());
    let by_theory =
        move |figure: fn(&Theory) -> Option<f64>| move |case: &Predicted, _: Measure| figure(&theory(case)?.ok()?);
    let differ = |key: Key<Value>| predicted.iter().any(|case| key(&case.workload) != key(&present.workload));
    let has_settings = predicted.iter().any(|case| !named(case).is_empty());
    let has_fixed = predicted.iter().any(|case| ok(case).is_some_and(|prediction| prediction.fixed.is_some()));
    let title =
        |case: &Predicted| scheme(&case.workload) + if case.workload == present.workload { " (present)" } else { "" };
    let columns = [
        column("scheme", title).for_people(),
        column("scheme", |case: &Predicted| scheme(&case.workload)).for_programs(),
        column("set", named).told(has_settings),
        column("sessions", |case: &Predicted| sessions(&case.workload)).told(differ(|w| sessions(w).into())),
        column("cpus", |case: &Predicted| case.workload.machine.processors)
            .titled("on_cpus")
            .told(differ(|w| w.machine.processors.into())),
        column("copies", |case: &Predicted| case.workload.copies).told(differ(|w| w.copies.into())),
        column("holding_time_us", |case: &Predicted| case.workload.hold.mean() * 1e6).told(differ(|w| json!(w.hold))),
        measure(Measure::Throughput, "", of).named("gets_per_s"),
        measure(Measure::Throughput, "", half).named("gets_per_s_interval").titled("±"),
        measure(Measure::Throughput, "", from).named("gets_per_s_from").titled("from").told(compared.is_some()),
        measure(Measure::Throughput, "", to).named("gets_per_s_to").titled("to").told(compared.is_some()),
        column("gets_per_s_sure", is_sure).titled("sure").told(compared.is_some()),
        measure(Measure::Throughput, "", by_theory(|theory| theory.gets_per_s))
            .named("gets_per_s_theory")
            .titled("theory"),
        measure(Measure::Throughput, "", fixed).named("gets_per_s_fixed").titled("fixed").told(has_fixed),
        column("change_pct", |case: &Predicted| percent(gets(case), gets(present)).filter(|_| is_fit)),
        measure(Measure::Utilization, "", of).for_programs(),
        measure(Measure::MissRatio, "", of).for_programs(),
        measure(Measure::SpinInefficiency, "", of).named("k"),
        measure(Measure::SpinInefficiency, "", half).named("k_interval").for_programs(),
        measure(Measure::SpinInefficiency, "", fixed).named("k_fixed").for_programs(),
        measure(Measure::SpinInefficiency, "", by_theory(|theory| theory.k)).named("k_theory"),
        measure(Measure::SleepRatio, "", of).named("kappa"),
        measure(Measure::SleepsPerS, "", of).named("sleeps_per_s"),
        measure(Measure::Wait, "us", wait).titled("wait_us"),
        measure(Measure::Wait, "us", half_wait).named("wait_us_interval").titled("±"),
        measure(Measure::Wait, "us", from).named("wait_us_from").titled("w_from").told(compared.is_some()),
        measure(Measure::Wait, "us", to).named("wait_us_to").titled("w_to").told(compared.is_some()),
        measure(Measure::Wait, "us", fixed_wait).named("wait_us_fixed").for_programs(),
        measure(Measure::Wait, "us", by_theory(|theory| theory.wait_s)).named("wait_us_theory").titled("w_theory"),
        measure(Measure::WaitP99, "us", wait).titled("p99_us"),
        measure(Measure::WaitP99, "us", half_wait).named("wait_p99_us_interval").for_programs(),
        measure(Measure::WaitMax, "us", wait).titled("max_us"),
        measure(Measure::BusyProcessors, "", of).named("cpus_busy").titled("cpus"),
        measure(Measure::BusyProcessors, "", half).named("cpus_busy_interval").for_programs(),
        measure(Measure::WaitingProcessors, "", of).named("cpus_waiting").for_programs(),
        measure(Measure::Fairness, "", of).for_programs(),
        column("theory", |case: &Predicted| Some(theory(case)?.ok()?.function)).for_programs(),
        column("why_no_theory", |case: &Predicted| theory(case)?.err()).for_programs(),
        column("error", |case: &Predicted| case.prediction.as_ref().err().map(ToString::to_string)).for_programs(),
    ];
    Table::of(&columns, predicted)
}

/// Whether the waits of a case are told. Those of the present are for the comparison.
fn tells_waits(case: &Predicted, present: &Predicted, compared: Option<&[Compared]>) -> bool {
    let is_sure = |changed| compared.is_none_or(|compared| check::is_predicted(compared, changed, Measure::Wait));
    case.workload == present.workload || ok(case).is_none_or(is_sure)
}

fn ok(case: &Predicted) -> Option<&Prediction> {
    case.prediction.as_ref().ok()
}

fn gets(case: &Predicted) -> Option<f64> {
    ok(case)?.mean(Measure::Throughput)
}

/// What is predicted of a case that is not the present.
fn changed<'a>(case: &'a Predicted, present: &Predicted) -> Option<&'a Prediction> {
    ok(case).filter(|_| case.workload != present.workload)
}

fn remarks(recording: &Recording, compared: Option<&[Compared]>, predicted: &[Predicted], why: bool) {
    let present = &predicted[0];
    for Predicted { workload, prediction } in predicted {
        let case = [scheme(workload), settings(workload, &present.workload)].join(" ");
        match prediction {
            Err(error) => line(&format!("{}: {error}", case.trim_end())),
            Ok(Prediction { theory: Err(reason), .. }) if why => line(&format!("{}: {reason}", case.trim_end())),
            Ok(_) => {}
        }
    }
    if let Some(compared) = compared {
        line(&format!("\n{}", check::table(compared, "simulated").text()));
        line(&verdict(compared, &recording.holds, "Changes against it are left out: do not rely on the other rows."));
        if fits(compared) && !predicted.iter().all(|case| tells_waits(case, present, Some(compared))) {
            line(
                "Waits are left out where they are unsure: where those of the present are off, where holding \
                 times that are all the same would change them, where the replications differ, or where they \
                 change much.",
            );
        }
    }
    if !why && predicted.iter().any(|case| case.prediction.as_ref().is_ok_and(|p| p.theory.is_err())) {
        line("Where theory has no number, --why says why.");
    }
    if let Some(instance) = &recording.instance {
        line(&format!("Next: retrial advise -i {}", quoted(instance)));
    }
}

/// Throughput against what is varied.
struct Drawing {
    /// What is at the x axis; nothing when only names are varied.
    x: Option<&'static str>,
    lines: Vec<(String, Vec<Point>)>,
    /// Whether it is simulated, or told of what was measured.
    how: &'static str,
}

impl Drawing {
    fn of(predicted: &[Predicted], how: &'static str) -> Self {
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
            let Some(estimate) = prediction.estimates.get(Measure::Throughput) else { continue };
            let (mean, half) = (estimate.mean, estimate.half_width(CONFIDENCE));
            let mut name =
                [scheme(workload), settings(workload, &predicted[0].workload)].join(" ").trim_end().to_owned();
            for (other, key) in
                keys.iter().filter(|(other, key)| x.is_none_or(|(x, _)| x != *other) && values(*key) > 1)
            {
                name += &key(workload).map_or_else(String::new, |n| format!(" {n} {other}"));
            }
            if workload.hold != predicted[0].workload.hold {
                name = format!("{name} held {}", seconds(workload.hold.mean()));
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
        Self { x: x.map(|(name, _)| name), lines, how }
    }

    fn text(&self) -> String {
        let Some(x) = self.x else { return self.bars() };
        let series = self.lines.iter().map(|(name, points)| plot::Series {
            name: name.clone(),
            points: points.iter().map(|point| (point.x, point.y)).collect(),
        });
        let series: Vec<_> = series.collect();
        plot_against(&format!("gets/s against {x}, {}", self.how), x, &series)
    }

    /// A bar for each case, in proportion.
    fn bars(&self) -> String {
        const WIDTH: f64 = 60.0;
        let cases = || self.lines.iter().flat_map(|(name, points)| points.iter().map(move |point| (name, point.y)));
        let (most, widest) = cases().fold((0.0, 0), |(most, wide), (name, y)| (y.max(most), wide.max(name.len())));
        let bar = |y: f64| "#".repeat(whole(y / most.max(f64::MIN_POSITIVE) * WIDTH) as usize);
        let rows = cases().map(|(name, y)| format!("{name:<widest$}  {} {}", bar(y), short(y)));
        std::iter::once(format!("gets/s, {}", self.how)).chain(rows).collect::<Vec<_>>().join("\n")
    }

    fn svg(&self) -> Result<String, Report> {
        let colours = chart::colours(self.lines.iter().map(|(name, _)| name.as_str()));
        let series = self.lines.iter().zip(colours).flat_map(|((name, points), colour)| {
            let of = |name: &str, form| chart::Series { name: name.to_owned(), form, colour, points: points.clone() };
            let mut series = vec![of(name, Form::Points)];
            series.extend((points.len() > 1).then(|| of("", Form::Line)));
            series
        });
        let scale = if self.x.is_some() { Scale::Binary } else { Scale::Linear };
        let chart = Chart {
            title: format!("{} throughput with 95 % intervals", self.how),
            x: Axis::new(self.x.unwrap_or("case"), scale),
            y: Axis::new("gets/s", Scale::Linear),
            series: series.collect(),
            legend: Legend::Beside,
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
