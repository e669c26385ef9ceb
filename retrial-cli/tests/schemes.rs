//! Each row of the sources' table of wait schemes, live: `hold` in two processes, `trace` in a third.
//! Structure, not time.

#![allow(missing_docs)]

mod kit;

use kit::{Running, Scratch, until};
use retrial::P;
use retrial::views::{Counter, Sid, What};
use std::time::Duration;

/// Equal steps in a row: kind, how many, sleep asked for in ms.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    what: String,
    count: u64,
    asked_ms: u64,
}

const FOR_EVER: u64 = u64::MAX;

fn yields(count: u64) -> Run {
    Run { what: "yield".into(), count, asked_ms: 0 }
}

fn sleeps(asked_ms: u64, count: u64) -> Run {
    Run { what: "sleep".into(), count, asked_ms }
}

fn parks() -> Run {
    Run { what: "timed_out".into(), count: FOR_EVER, asked_ms: 100 }
}

/// What `trace --csv` printed of a session: its runs between `began` and `got`, or `None` when some were lost.
fn runs(csv: &str, sid: u32) -> Option<Vec<Run>> {
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let own: Vec<&Vec<&str>> = rows.iter().filter(|row| row[0] == sid.to_string()).collect();
    if own.iter().any(|row| row[2] == "lost") {
        return None;
    }
    assert_eq!((own[0][2], own[own.len() - 1][2]), ("began", "got"), "{csv}");
    let run = |row: &&Vec<&str>| Run {
        what: row[2].to_owned(),
        count: row[3].parse().unwrap(),
        asked_ms: row[4].parse::<u64>().unwrap() / 1_000_000,
    };
    Some(own[1..own.len() - 1].iter().map(run).collect())
}

/// Steps that a session has taken.
fn steps(scratch: &Scratch, sid: u32) -> u64 {
    let all = scratch.observer().tables().figures();
    all.iter().filter(|(of, _, _)| of.number() == sid).map(|(_, _, figures)| figures.sleeps()).sum()
}

/// A wait behind a holder of X for at least so many steps; its runs.
fn wait(settings: &[&str], waiter: &[&str], enough: u64) -> Vec<Run> {
    // A trace that is kept from running for longer than the ring is deep loses runs, and says so.
    for _ in 0..20 {
        let scratch = Scratch::new();
        if !settings.is_empty() {
            scratch.run(&[&["set"], settings].concat());
        }
        let holder = scratch.hold(&["m", "--create", "--mode", "X"]);
        let mut trace = scratch.start(&["trace", "--csv", "--until-idle"]);
        trace.until("sid,number,what");
        let mut waiting = scratch.start(&[&["hold", "m", "--for", "0s"], waiter].concat());
        waiting.until("Session 2 waits");
        until("enough steps", || steps(&scratch, 2) >= enough);
        holder.die_of(libc::SIGTERM);
        waiting.until(" holds ");
        assert_eq!(waiting.end().0, Some(0));
        let (code, csv) = trace.end();
        assert_eq!(code, Some(0));
        if let Some(runs) = runs(&csv, 2) {
            return runs;
        }
    }
    panic!("runs lost in each of 20 traces");
}

/// Runs are these, the last of them cut short by the release; a queued session's last park ends by a wake-up.
fn assert_runs(found: &[Run], expected: impl Iterator<Item = Run>, of: &[&str]) {
    let woken = found.last().is_some_and(|run| run.what == "woken" && run.count == 1);
    let found = if woken { &found[..found.len() - 1] } else { found };
    assert!(!found.is_empty(), "{of:?}");
    for (i, (run, expected)) in found.iter().zip(expected).enumerate() {
        let whole = i + 1 < found.len();
        let count = if whole { expected.count } else { run.count };
        assert_eq!(run, &Run { count, ..expected.clone() }, "run {i} with {of:?} in {found:?}");
        assert!(run.count <= expected.count, "run {i} with {of:?} in {found:?}");
    }
}

fn cycle(settings: &[&str], cycle: &[Run]) {
    let length: u64 = cycle.iter().map(|run| run.count).sum();
    // Two cycles and the first step of the third, which ends the last run of the second.
    let found = wait(settings, &["--mode", "S"], 2 * length + 1);
    assert!(found.len() > 2 * cycle.len(), "two cycles with {settings:?} in {found:?}");
    assert_runs(&found, cycle.iter().cloned().cycle(), settings);
}

fn sequence(settings: &[&str], mode: &str, first: &[Run], last: &Run, enough: u64) {
    let found = wait(settings, &["--mode", mode], enough);
    assert!(found.len() > first.len(), "{settings:?}: {found:?}");
    assert_runs(&found, first.iter().cloned().chain(std::iter::once(last.clone())), settings);
    let woken = usize::from(found.last().is_some_and(|run| run.what == "woken"));
    assert_eq!(found.len(), first.len() + 1 + woken, "{settings:?}: {found:?}");
}

#[test]
fn scheme_10g_yields_for_ever() {
    sequence(&["mutex_wait_scheme=10g"], "S", &[], &yields(FOR_EVER), 1000);
    sequence(&["mutex_wait_scheme=10g"], "X", &[], &yields(FOR_EVER), 1000);
}

#[test]
fn the_patch_sleeps_a_centisecond_for_ever_and_without_a_time_it_is_10g() {
    sequence(&["mutex_wait_scheme=patch6904068"], "S", &[], &sleeps(10, FOR_EVER), 5);
    let zero = ["mutex_wait_scheme=patch6904068", "_first_spare_parameter=0"];
    sequence(&zero, "X", &[], &yields(FOR_EVER), 1000);
}

#[test]
fn scheme_0_in_yield_mode_sleeps_every_nth_step() {
    cycle(&["mutex_wait_scheme=0"], &[yields(99), sleeps(1, 1)]);
    let two = ["mutex_wait_scheme=0", "wait_yield_sleep_time_msecs=2", "wait_yield_sleep_freq=3"];
    cycle(&two, &[yields(2), sleeps(2, 1)]);
}

#[test]
fn scheme_0_in_sleep_mode_yields_every_nth_step() {
    cycle(&["mutex_wait_scheme=0", "wait_yield_mode=sleep"], &[sleeps(1, 19), yields(1)]);
    let three =
        ["mutex_wait_scheme=0", "wait_yield_mode=sleep", "wait_yield_sleep_time_msecs=3", "wait_yield_yield_freq=3"];
    cycle(&three, &[sleeps(3, 2), yields(1)]);
}

#[test]
fn scheme_0_can_be_10g_and_the_patch() {
    sequence(&["mutex_wait_scheme=0", "wait_yield_sleep_time_msecs=0"], "S", &[], &yields(FOR_EVER), 1000);
    let patch = ["mutex_wait_scheme=0", "wait_yield_sleep_time_msecs=10", "wait_yield_sleep_freq=0"];
    sequence(&patch, "S", &[], &sleeps(10, FOR_EVER), 5);
}

#[test]
fn scheme_1_yields_once_and_then_sleeps_milliseconds() {
    sequence(&["mutex_wait_scheme=1"], "S", &[yields(1)], &sleeps(1, FOR_EVER), 20);
    sequence(&["mutex_wait_scheme=1", "mutex_wait_time=4ms"], "X", &[yields(1)], &sleeps(4, FOR_EVER), 10);
}

#[test]
fn scheme_2_yields_twice_and_backs_off_to_its_maximum() {
    sequence(&["mutex_wait_scheme=2"], "S", &[yields(2)], &sleeps(10, FOR_EVER), 10);
    let first = [yields(2), sleeps(10, 2), sleeps(30, 2), sleeps(70, 2), sleeps(150, 2)];
    let growing = ["mutex_wait_scheme=2", "mutex_wait_time=30cs"];
    sequence(&growing, "X", &first, &sleeps(300, FOR_EVER), 12);
}

#[test]
fn the_queueing_schemes_spin_yield_and_park() {
    sequence(&["mutex_wait_scheme=latch"], "S", &[], &parks(), 2);
    sequence(&["mutex_wait_scheme=ydb"], "X", &[yields(128)], &parks(), 130);
    sequence(&["mutex_wait_scheme=pthread"], "S", &[], &parks(), 2);
    sequence(&["mutex_wait_scheme=adaptive"], "X", &[yields(128)], &parks(), 130);
}

#[test]
fn orbit_parks_at_once_in_the_first_wait_of_a_session() {
    let found = wait(&["mutex_wait_scheme=orbit"], &["--mode", "X"], 10);
    assert!(found.iter().all(|run| matches!(&*run.what, "timed_out" | "woken")), "{found:?}");
}

#[test]
fn a_session_of_high_priority_waits_by_its_own_mode() {
    for _ in 0..20 {
        let scratch = Scratch::new();
        scratch.run(&["set", "mutex_wait_scheme=0", "wait_yield_mode=yield", "wait_yield_hp_mode=sleep"]);
        let holder = scratch.hold(&["m", "--create", "--mode", "X"]);
        let mut trace = scratch.start(&["trace", "--csv", "--until-idle"]);
        trace.until("sid,number,what");
        let mut waiting: Vec<Running> = Vec::new();
        for (class, sid) in [("high", 2), ("normal", 3)] {
            let mut hold = scratch.start(&["hold", "m", "--mode", "S", "--for", "0s", "--class", class]);
            hold.until(&format!("Session {sid} waits"));
            waiting.push(hold);
        }
        let rows = scratch.rows(&["ps"]);
        assert_eq!((&rows[1]["class"], &rows[2]["class"]), (&"high".into(), &"normal".into()));
        until("enough steps", || steps(&scratch, 2) > 20 && steps(&scratch, 3) > 100);
        holder.signal(libc::SIGTERM);
        for hold in waiting {
            assert_eq!(hold.end().0, Some(0));
        }
        let (_, csv) = trace.end();
        if let (Some(high), Some(normal)) = (runs(&csv, 2), runs(&csv, 3)) {
            assert_runs(&high, [sleeps(1, 19), yields(1)].into_iter().cycle(), &["high"]);
            assert_runs(&normal, [yields(99), sleeps(1, 1)].into_iter().cycle(), &["normal"]);
            return;
        }
    }
    panic!("runs lost in each of 20 traces");
}

/// The open run of session 2.
fn open_run(scratch: &Scratch) -> Option<retrial::views::Event> {
    let observer = scratch.observer();
    observer.tables().event(Sid::new(2), observer.tables().last_run(Sid::new(2)))
}

/// Waits until the open run is of this kind, and has so many steps.
fn until_open(scratch: &Scratch, what: What, asked_ms: u64, count: u64) {
    until(&format!("{} of {asked_ms} ms", what.name()), || {
        open_run(scratch)
            .is_some_and(|run| run.what == what && run.asked == Duration::from_millis(asked_ms) && run.count >= count)
    });
}

#[test]
fn a_scheme_set_during_a_wait_has_the_next_step() {
    let scratch = Scratch::new();
    scratch.run(&["set", "mutex_wait_scheme=10g"]);
    let _holder = scratch.hold(&["m", "--create", "--mode", "X"]);
    let mut waiting = scratch.start(&["hold", "m", "--mode", "S", "--for", "0s"]);
    waiting.until("Session 2 waits");
    until_open(&scratch, What::Yield, 0, 100);
    let before = scratch.observer().tables().last_run(Sid::new(2));
    scratch.run(&["set", "mutex_wait_scheme=patch6904068"]);
    until_open(&scratch, What::Sleep, 10, 2);
    scratch.run(&["set", "first_spare_parameter=0"]);
    until_open(&scratch, What::Yield, 0, 100);
    scratch.run(&["set", "--type", "Cursor Pin", "mutex_wait_scheme=pthread"]);
    until_open(&scratch, What::TimedOut, 100, 1);
    scratch.run(&["set", "--type", "Cursor Pin", "--unset", "mutex_wait_scheme"]);
    until_open(&scratch, What::Yield, 0, 1);
    // Each setting began one run, and nothing came between.
    assert_eq!(scratch.observer().tables().last_run(Sid::new(2)), before + 4);
}

#[test]
fn a_time_set_during_a_wait_is_that_of_the_very_next_sleep() {
    let settings: [(&str, P); 2] = [("mutex_wait_scheme=1", P::WaitTime), ("mutex_wait_scheme=0", P::YieldSleepTime)];
    for (scheme, time) in settings {
        let scratch = Scratch::new();
        scratch.run(&["set", scheme, "wait_yield_sleep_freq=0", &format!("{}=1", time.row().name)]);
        let _holder = scratch.hold(&["m", "--create", "--mode", "X"]);
        let mut waiting = scratch.start(&["hold", "m", "--mode", "X", "--for", "0s"]);
        waiting.until("Session 2 waits");
        until_open(&scratch, What::Sleep, 1, 5);
        let (instance, observer) = (scratch.instance(), scratch.observer());
        let number = observer.tables().last_run(Sid::new(2));
        instance.set(time, None, 2);
        let counted = observer.tables().event(Sid::new(2), number).unwrap().count;
        until_open(&scratch, What::Sleep, 2, 2);
        // The sleep under way when it was set, and none after it.
        let total = observer.tables().event(Sid::new(2), number).unwrap().count;
        assert!(total <= counted + 1, "{counted} sleeps of 1 ms when 2 was set, {total} in the end");
        assert_eq!(observer.tables().last_run(Sid::new(2)), number + 1);
    }
}

#[test]
fn the_parts_of_a_wait_add_up_to_it() {
    let scratch = Scratch::new();
    scratch.run(&["set", "mutex_wait_scheme=0"]);
    let holder = scratch.hold(&["m", "--create", "--mode", "X"]);
    let mut waiting = scratch.start(&["hold", "m", "--mode", "S"]);
    waiting.until("Session 2 waits");
    until("enough steps", || steps(&scratch, 2) > 300);
    holder.signal(libc::SIGTERM);
    waiting.until(" holds ");
    let figures = scratch.observer().tables().figures();
    let (_, _, figures) = figures.iter().find(|(sid, _, _)| *sid == Sid::new(2)).unwrap();
    let parts = [Counter::SpinNs, Counter::YieldNs, Counter::SleptNs, Counter::OverNs].map(|part| figures.get(part));
    assert_eq!(parts.iter().sum::<u64>(), figures.get(Counter::WaitNs));
    assert!(parts.iter().all(|part| *part > 0), "{parts:?}");
}
