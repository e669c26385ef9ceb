//! 003, the source's three runs: before, with its procedures marked as hot, with its cursors marked as well.

mod simulated;

use super::claims::{At, Check, Claim, Term, of};
use super::copies::{is_creation, is_library};
use super::lab::Lab;
use super::load::{Line, line};
use super::machine::SOCKETS;
use super::quantities::{How, Quantity as Q, Row};
use super::worked::{Figure, Job, Ran, row};
use super::{Experiment, Findings, Run};
use crate::chart::Scale;
use crate::output::{Table, column};
use crate::work::Name;
use retrial::views::Counter;
use retrial_bench::cell::Stopped;
use std::time::Duration;

/// The runs.
const RUNS: [&str; 3] = ["before", "procedures", "cursors too"];
/// Copies of what is marked. The source does not say how many; a limit of 4 was a later test of its own.
const COPIES: u8 = 32;
/// Copies of each procedure and of each cursor in each run.
const HOT: [[u8; 2]; 3] = [[1, 1], [COPIES, 1], [COPIES, COPIES]];
/// The source's scheme, and ours.
const LINES: &[Line] = &[line("backoff"), line("orbit")];
const SESSIONS: u32 = 8;

pub const MARKED: Experiment = Experiment {
    name: "marked",
    source: "003, three runs",
    shows: "TPC-C's five procedures before, with the procedures marked as hot, and with the cursors marked as well",
    text: "Measured: `retrial cache work tpcc`, 8 threads, no work in a cursor but on the tables. What is marked has 32 copies, of which as many are in use as there are processors: two here. All 13 cursors are marked in \
the third run, the source's four most executed ones. Handles are what procedures are got by (`library cache: mutex X`) and what copies are made behind (`kglhdgn`). A miss found its mutex busy, and a wait is a miss whose first spin failed. \
On two processors most misses end in the first spin, so that the waits for handles and cursors are a few in a second, mostly behind a holder that has lost its processor: their claims are chance here, those of misses are not. \
Sessions wait for the tables of two warehouses most, as the source's do for rows. In our cache a copy is made once, by the first session that needs it, and is found without a mutex from then on: \
what the source met in its third run, the creation of handles behind `kglhdgn1 62`, is no part of that. \
The source counts waits in a time that it does not say; its shares of the sessions' time (`% DB time`) are beside the simulated ones, its counts in tables of their own. \
Simulated for its machine: 256 sessions on 192 processors; NEWORD (45 %) with four cursors and PAYMENT (43 %) with three; two gets of 1 us (exponential) for each call and each execution; 1.8 ms of work in a \
transaction, with which sessions wait a tenth of their time before anything is marked, as the source's do. In the third run NEWORD's four cursors have copies, and each execution of one looks for its handle behind one mutex for 1 us, \
which is supposed: so would a session find it that has no handle of its own. What that run comes to rests on it. Each mutex is simulated alone; the waits for the others are part of the time between its gets, in six rounds.",
    x: "run",
    x_scale: Scale::Names(&RUNS),
    quantities: &[
        Q::Executions,
        Q::LibraryMisses,
        Q::CreationMisses,
        Q::CursorMisses,
        Q::LibraryWaits,
        Q::CreationWaits,
        Q::CursorWaits,
        Q::HandleShare,
        Q::CursorShare,
        Q::Cpus,
    ],
    charts: &[
        (Q::Executions, Scale::Linear),
        (Q::LibraryMisses, Scale::Linear),
        (Q::HandleShare, Scale::Linear),
        (Q::CursorShare, Scale::Linear),
    ],
    together: false,
    run: Run::Own(run),
    claims: &[
        Claim::new("marking the procedures: throughput rises", more(Q::Executions, PROCEDURES, 1.01, BEFORE)),
        Claim::new(
            "and a small part of the waits for handles is left (library cache: mutex X, 1,443,752 to 23,288; a tenth and less)",
            more(Q::LibraryWaits, BEFORE, 10.0, PROCEDURES),
        ),
        Claim::new("the same of misses", more(Q::LibraryMisses, BEFORE, 10.0, PROCEDURES)),
        Claim::new(
            "while the waits for cursors stay (1,060,588 to 1,071,740; to a quarter)",
            Check::Same(at(Q::CursorWaits, PROCEDURES), at(Q::CursorWaits, BEFORE), 0.25),
        ),
        Claim::new(
            "the same of misses",
            Check::Same(at(Q::CursorMisses, PROCEDURES), at(Q::CursorMisses, BEFORE), 0.25),
        ),
        Claim::new(
            "marking the cursors as well takes most of the waits for cursors away (1,071,740 to 222,045; a third and less)",
            more(Q::CursorWaits, PROCEDURES, 3.0, CURSORS),
        ),
        Claim::new("the same of misses", more(Q::CursorMisses, PROCEDURES, 3.0, CURSORS)),
        Claim::new(
            "and moves them to the handles: ten times the waits for these, and more (23,288 to 849,072)",
            more(Q::LibraryWaits, CURSORS, 10.0, PROCEDURES),
        ),
        Claim::new("the same of misses", more(Q::LibraryMisses, CURSORS, 10.0, PROCEDURES)),
        Claim::new(
            "most of them where handles are made (kglhdgn1 62)",
            Check::AtLeast(at(Q::CreationWaits, CURSORS), 0.5, at(Q::LibraryWaits, CURSORS)),
        ),
        Claim::new("so that throughput falls", more(Q::Executions, PROCEDURES, 1.01, CURSORS)),
    ],
    takes_s: [45, 5],
};

/// A figure of a run under the source's scheme.
const fn at(quantity: Q, run: At) -> Term {
    of(quantity, &["backoff"], run)
}

/// So many times as much of it in one run as in another one, and more.
const fn more(quantity: Q, greater: At, factor: f64, smaller: At) -> Check {
    Check::AtLeast(at(quantity, greater), factor, at(quantity, smaller))
}

const BEFORE: At = At::First;
const PROCEDURES: At = At::X(2.0);
const CURSORS: At = At::Last;

const FIGURES: [Figure; 10] = [
    (Q::Executions, |ran| Some(ran.executions_per_s())),
    (Q::LibraryMisses, |ran| Some(ran.per_s(Counter::Misses, is_library))),
    (Q::LibraryWaits, |ran| Some(ran.per_s(Counter::Waits, is_library))),
    (Q::CreationMisses, |ran| Some(ran.per_s(Counter::Misses, is_creation))),
    (Q::CreationWaits, |ran| Some(ran.per_s(Counter::Waits, is_creation))),
    (Q::CursorMisses, |ran| Some(ran.per_s(Counter::Misses, is_cursor))),
    (Q::CursorWaits, |ran| Some(ran.per_s(Counter::Waits, is_cursor))),
    (Q::HandleShare, |ran| Some(ran.waiting(is_library))),
    (Q::CursorShare, |ran| Some(ran.waiting(is_cursor))),
    (Q::Cpus, |ran| Some(ran.cpus())),
];

/// Shares of the source's sessions' time in waits on `library cache: mutex X` and on `cursor: pin S`, in its
/// runs.
const SHARES: [[f64; 2]; 3] = [[0.056, 0.050], [0.001, 0.054], [0.126, 0.011]];

fn is_cursor(_event: &str, at: &str) -> bool {
    at.starts_with("kks")
}

/// The share of its time that measuring takes.
const MEASURED: f64 = 0.6;

fn run(lab: &mut Lab) -> Result<Findings, Stopped> {
    let mut findings = Findings { tables: published(), ..Findings::default() };
    if lab.measures {
        measured(lab, &mut findings)?;
    }
    for (at, [handles, cursors]) in SHARES.iter().enumerate() {
        let values = vec![(Q::HandleShare, (*handles).into()), (Q::CursorShare, (*cursors).into())];
        let (x, how) = (at as f64 + 1.0, How::Published);
        findings.rows.push(Row { load: "", line: LINES[0].name, x, how, machine: SOCKETS.name, values });
    }
    for line in LINES {
        lab.show((1.0 - MEASURED) / LINES.len() as f64, format!("simulated for 4 sockets: {}", line.name));
        findings.rows.extend(simulated::rows(lab, line)?);
    }
    Ok(findings)
}

/// The three runs here, under each scheme.
fn measured(lab: &mut Lab, findings: &mut Findings) -> Result<(), Stopped> {
    let mut jobs = Vec::new();
    for line in LINES {
        for (name, [procedures, cursors]) in RUNS.iter().zip(HOT) {
            let time = Duration::from_millis(1500);
            let job = Job::new(Name::Tpcc, line.scheme, SESSIONS);
            jobs.push((format!("{} {name}", line.name), Job { time, procedures, cursors, ..job }));
        }
    }
    let runs: Vec<Vec<Ran>> = lab.do_jobs(MEASURED, &jobs)?;
    for (number, (runs, (name, job))) in runs.iter().zip(&jobs).enumerate() {
        let at = number % RUNS.len();
        findings.rows.push(row("", LINES[number / RUNS.len()].name, at as f64 + 1.0, runs, &FIGURES));
        // A table for each run under the source's scheme.
        if let Some(first) = runs.first().filter(|_| job.scheme == LINES[0].scheme) {
            let title = format!("Measured, {name}, the first of {} runs: waits by event and location", runs.len());
            findings.tables.push((title, first.waits()));
        }
    }
    Ok(())
}

/// Event, and waits in each run where the source says them.
const EVENTS: [(&str, [Option<u64>; 3]); 3] = [
    ("library cache: mutex X", [Some(1_443_752), Some(23_288), Some(849_072)]),
    ("cursor: pin S", [Some(1_060_588), Some(1_071_740), Some(222_045)]),
    ("enq: TX - row lock contention", [Some(171_164), Some(373_472), Some(277_268)]),
];

type Location = (&'static str, &'static str, [Option<(u64, u64)>; 3]);

/// Type and location, and sleeps with their time in ms in each run.
const LOCATIONS: [Location; 8] = [
    (
        "Cursor Pin",
        "kksfbc [KKSCHLFSP2]",
        [Some((634_827, 933_897)), Some((644_771, 973_310)), Some((202_786, 338_137))],
    ),
    ("Library Cache", "kglpin1 4", [Some((610_798, 747_221)), Some((10_879, 11_115)), Some((127_693, 190_311))]),
    ("Library Cache", "kglpndl1 95", [Some((599_973, 753_431)), Some((8_330, 10_836)), Some((126_592, 200_987))]),
    ("Library Cache", "kglpnal1 90", [Some((503_140, 155_556)), Some((6_959, 1_857)), Some((83_421, 19_982))]),
    (
        "Cursor Pin",
        "kksLockDelete [KKSCHLPIN6]",
        [Some((454_516, 701_271)), Some((455_400, 725_202)), Some((56_208, 100_403))],
    ),
    ("Library Cache", "kglhbh1 63", [Some((2, 1)), Some((1, 0)), None]),
    ("Library Cache", "kglhdgn1 62", [None, None, Some((1_032_273, 2_763_927))]),
    ("Library Cache", "kglhdgn2 106", [None, None, Some((186_681, 496_834))]),
];

/// The source's tables, its three runs side by side.
fn published() -> Vec<(String, Table)> {
    type Event = (&'static str, [Option<u64>; 3]);
    let events = [
        column("event", |event: &Event| event.0),
        column("before", |event: &Event| event.1[0]),
        column("procedures", |event: &Event| event.1[1]),
        column("cursors_too", |event: &Event| event.1[2]),
    ];
    let sleeps = |run: usize| move |of: &Location| of.2[run].map(|(sleeps, _)| sleeps);
    let time_ms = |run: usize| move |of: &Location| of.2[run].map(|(_, time_ms)| time_ms);
    let locations = [
        column("mutex_type", |of: &Location| of.0),
        column("location", |of: &Location| of.1),
        column("before", sleeps(0)),
        column("before_ms", time_ms(0)),
        column("procedures", sleeps(1)),
        column("procedures_ms", time_ms(1)),
        column("cursors_too", sleeps(2)),
        column("cursors_too_ms", time_ms(2)),
    ];
    vec![
        ("Published: waits by event".to_owned(), Table::of(&events, EVENTS.iter())),
        ("Published: sleeps by location, and their time".to_owned(), Table::of(&locations, LOCATIONS.iter())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_tables_have_every_event_and_location_of_the_source() {
        let tables = published();
        assert_eq!(tables[0].1.json()[0]["cursors_too"], 849_072);
        assert_eq!(tables[1].1.json().as_array().unwrap().len(), LOCATIONS.len());
        assert_eq!(RUNS.len(), HOT.len());
    }
}
