//! Of our own: what a reader of a hot object costs: pins in the session's row alone, references counted in the
//! object's mutex, executions with and without copies.

use super::claims::{At, Check, Claim, of};
use super::lab::{Lab, thinned};
use super::load::{Load, Setup, Think, Vary, line};
use super::machine::{Machine, SOCKETS};
use super::quantities::{Found, How, Quantity as Q, Row};
use super::worked::{Figure, Job, Ran, row};
use super::{Experiment, Findings, Run};
use crate::chart::Scale;
use crate::work::Name;
use retrial_bench::cell::Stopped;
use retrial_model::Measure;
use retrial_model::sim::Spread;
use std::time::Duration;

const ROWS: &str = "read, pinned in rows";
const COUNTED: &str = "read, counted";
const EXECUTED: &str = "executed";
const COPIES: &str = "executed, 4 copies";

/// How an object is used: the load, whether readers are counted, and copies.
const WAYS: [(&str, Name, bool, u8); 4] = [
    (ROWS, Name::Reads, false, 1),
    (COUNTED, Name::Reads, true, 1),
    (EXECUTED, Name::CursorPin, false, 1),
    (COPIES, Name::CursorPin, false, 4),
];

const READS: &str = "reads";
const CHANGES: &str = "one of ten is followed by a change";

pub const PINS: Experiment = Experiment {
    name: "pins",
    source: "of our own, beside 003",
    shows: "pins in rows, counted references and hot copies: accesses of one object by many sessions",
    text: "Threads that do nothing but read or execute one cursor of the cache. A read is a pin in the session's own row, which no other session writes (`retrial cache work reads`), or, \
for comparison, a reference counted in the object's mutex (`Cache::set_counted`). An execution gets the mutex in E twice (`cursor-pin`), or that of one of four copies, of which as many are in use as \
there are processors. With changes every session changes the object after ten accesses: a change has to find all pins, and copies are made again. \
Simulated for the source's machine, without changes: an execution is two gets of 10 ns each and 1 us of work, and so is a counted reference; pins in rows have no mutex to be simulated, and what theory has for them is the \
work alone, on as many processors as there are.",
    x: "sessions",
    x_scale: Scale::Binary,
    quantities: &[Q::Executions, Q::Cpus],
    charts: &[(Q::Executions, Scale::Decimal)],
    together: false,
    run: Run::Own(run),
    claims: &[
        Claim::of(
            "(ours) two sessions read one object 1.9 times as often as one and more, with pins in rows",
            READS,
            Check::AtLeast(of(Q::Executions, &[ROWS], At::X(2.0)), 1.9, of(Q::Executions, &[ROWS], At::X(1.0))),
        ),
        Claim::of(
            "(ours) pins in rows are at least what counted references are with as many sessions as processors",
            READS,
            Check::AtLeast(
                of(Q::Executions, &[ROWS], At::Processors(1.0)),
                1.0,
                of(Q::Executions, &[COUNTED], At::Processors(1.0)),
            ),
        ),
        Claim::of(
            "(ours) and at least what executions on copies are",
            READS,
            Check::AtLeast(
                of(Q::Executions, &[ROWS], At::Processors(1.0)),
                1.0,
                of(Q::Executions, &[COPIES], At::Processors(1.0)),
            ),
        ),
        Claim::of(
            "copies of what is not changed pay: more executions with as many sessions as processors",
            READS,
            Check::AtLeast(
                of(Q::Executions, &[COPIES], At::Processors(1.0)),
                1.01,
                of(Q::Executions, &[EXECUTED], At::Processors(1.0)),
            ),
        ),
        Claim::of(
            "(ours) with changes pins in rows are never below counted references: with two sessions",
            CHANGES,
            Check::AtLeast(of(Q::Executions, &[ROWS], At::X(2.0)), 1.0, of(Q::Executions, &[COUNTED], At::X(2.0))),
        ),
        Claim::of(
            "(ours) and with the most",
            CHANGES,
            Check::AtLeast(of(Q::Executions, &[ROWS], At::Last), 1.0, of(Q::Executions, &[COUNTED], At::Last)),
        ),
        Claim::of(
            "copies of what is changed do not pay: fewer executions with as many sessions as processors",
            CHANGES,
            Check::AtLeast(
                of(Q::Executions, &[EXECUTED], At::Processors(1.0)),
                1.01,
                of(Q::Executions, &[COPIES], At::Processors(1.0)),
            ),
        ),
    ],
    takes_s: [50, 6],
};

const SESSIONS: &[f64] = &[1.0, 2.0, 4.0, 16.0, 64.0];
const THERE: &[f64] = &[1.0, 8.0, 24.0, 96.0, 192.0];
const FIGURES: [Figure; 2] = [(Q::Executions, |ran| Some(ran.executions_per_s())), (Q::Cpus, |ran| Some(ran.cpus()))];

fn run(lab: &mut Lab) -> Result<Findings, Stopped> {
    let mut rows = if lab.measures { measured(lab)? } else { Vec::new() };
    lab.show(0.1, format!("simulated for {}", SOCKETS.name));
    rows.extend(simulated(lab, &SOCKETS)?);
    Ok(Findings { rows, ..Findings::default() })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // numbers of sessions
fn measured(lab: &mut Lab) -> Result<Vec<Row>, Stopped> {
    let mut jobs = Vec::new();
    let mut at = Vec::new();
    for (load, change_after) in [(READS, None), (CHANGES, Some(10))] {
        for (way, name, is_counted, cursors) in WAYS {
            for x in thinned(SESSIONS, lab.quick) {
                let time = Duration::from_millis(300);
                let job = Job::new(name, "orbit", x as u32);
                jobs.push((format!("{load}, {way}, {x}"), Job { time, change_after, cursors, is_counted, ..job }));
                at.push((load, way, x));
            }
        }
    }
    let runs: Vec<Vec<Ran>> = lab.do_jobs(0.9, &jobs)?;
    Ok(at.iter().zip(&runs).map(|((load, way, x), runs)| row(load, way, *x, runs, &FIGURES)).collect())
}

/// Time between accesses, and that for which the mutex is held.
const THINK: Duration = Duration::from_micros(1);
const HOLD: Duration = Duration::from_nanos(10);
/// Gets of an access.
const GETS: f64 = 2.0;

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // numbers of sessions
fn simulated(lab: &Lab, machine: &'static Machine) -> Result<Vec<Row>, Stopped> {
    let points = thinned(THERE, lab.quick);
    let mut at = Vec::new();
    let mut workloads = Vec::new();
    for (way, copies) in [(EXECUTED, 1.0), (COPIES, 4.0)] {
        for x in &points {
            let load = Load::new(HOLD, Think::Time(THINK.div_f64(GETS)));
            let load = Load { sessions: *x as u32, copy: Spread::Processor, ..load };
            let setup = Setup::new(&load, &line("orbit"), Vary::Copies, copies, machine)?;
            workloads.push(setup.workload(machine, lab.time(0.04))?);
            at.push((way, *x));
        }
    }
    let row = |how, line, x, found: Found| {
        let (load, machine, values) = (READS, machine.name, vec![(Q::Executions, found)]);
        Row { load, line, x, how, machine, values }
    };
    let seen = lab.simulate(&workloads)?;
    let of = |((way, x), runs): (&(&'static str, f64), &Vec<_>)| {
        let values: Vec<f64> = runs.iter().filter_map(|run| Some(Measure::Throughput.of(run)? / GETS)).collect();
        Some(row(How::Simulated, *way, *x, Found::of(&values)?))
    };
    let mut rows: Vec<Row> = at.iter().zip(&seen).filter_map(of).collect();
    let own = |x: &f64| row(How::Predicted, ROWS, *x, (x.min(machine.processors.into()) / THINK.as_secs_f64()).into());
    rows.extend(points.iter().map(own));
    Ok(rows)
}
