//! The columns of the lists: one description for the screen and for `--json`.

use super::seen::{MutexRow, SessionRow};
use crate::blocking;
use crate::output::{Column, column, counter, measure};
use retrial::views::Counter;
use retrial_model::{Measure, Profile};

/// A column, and how it takes part in a narrow screen.
pub struct Shown<'a, R> {
    pub column: Column<'a, R>,
    /// What it is, for the help.
    pub about: &'static str,
    /// Columns with a lower rank stay longer when the screen is narrow.
    pub rank: u8,
    /// Width that it has at least, so that figures do not jump; width of its longest cell beyond which it is
    /// cut.
    pub least: u16,
    pub most: u16,
    /// Whether it is a number, which is aligned to the right.
    pub is_number: bool,
    /// Whether its cells come and go. Another one is left out where they are all empty; this one would jump.
    pub is_live: bool,
}

impl<R> Shown<'_, R> {
    fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    fn live(self) -> Self {
        Self { is_live: true, ..self }
    }

    fn at_least(self, least: u16) -> Self {
        Self { least, ..self }
    }
}

/// A column of numbers.
pub fn number<R>(rank: u8, column: Column<'_, R>) -> Shown<'_, R> {
    Shown { column, about: "", rank, least: 6, most: 14, is_number: true, is_live: false }
}

/// A column of words.
pub fn text<R>(rank: u8, least: u16, most: u16, column: Column<'_, R>) -> Shown<'_, R> {
    Shown { column, about: "", rank, least, most, is_number: false, is_live: false }
}

/// The column that a list is sorted by at first.
pub const MUTEX_SORT: &str = "wait_ms";
pub const SESSION_SORT: &str = "waited_s";

/// Looks at the holder from which on the list tells the utilization.
const LOOKS_MIN: u64 = 10;

const LONGEST: &str = "The longest wait so far, not only in the time of this screen.";
const MISSES: &str = Counter::DESCRIPTIONS[Counter::Misses as usize];

/// What was counted and sampled of a mutex, or of all of them together.
pub fn figures<'a, R: 'a>(profile: fn(&R) -> &Profile) -> Vec<Shown<'a, R>> {
    let of = move |row: &R, measure: Measure| measure.of(profile(row));
    let figure = |rank, of: Measure, column| number(rank, column).about(of.description());
    // Of fewer looks it says nothing. 0 looks: every hold was timed.
    let sampled = move |row: &R, measure: Measure| {
        measure.of(profile(row)).filter(|_| !(1..LOOKS_MIN).contains(&profile(row).samples.looks))
    };
    vec![
        figure(1, Measure::Throughput, measure(Measure::Throughput, "", of).named("gets_per_s").titled("gets/s")),
        figure(2, Measure::MissRatio, measure(Measure::MissRatio, "pct", of).titled("ρ %")),
        figure(4, Measure::WaitsPerS, measure(Measure::WaitsPerS, "", of)),
        figure(0, Measure::Registered, measure(Measure::Registered, "ms", of).named("wait_ms").titled("wait ms")),
        figure(
            8,
            Measure::RegisteredMean,
            measure(Measure::RegisteredMean, "ms", of).named("wait_mean_ms").titled("mean ms"),
        ),
        number(9, measure(Measure::RegisteredMax, "ms", of).named("wait_max_ms").titled("max ms")).about(LONGEST),
        figure(7, Measure::SleepsPerS, measure(Measure::SleepsPerS, "", of).titled("sleeps/s")),
        figure(12, Measure::SleepRatio, measure(Measure::SleepRatio, "", of)),
        figure(11, Measure::SpinInefficiency, measure(Measure::SpinInefficiency, "pct", of).titled("k %")),
        figure(10, Measure::HoldingTime, measure(Measure::HoldingTime, "us", of).titled("S us")).live(),
        figure(5, Measure::Utilization, measure(Measure::Utilization, "pct", sampled).titled("U %")).live(),
        number(13, counter(Counter::Misses, profile)).about(MISSES),
    ]
}

pub fn mutexes<'s>() -> Vec<Shown<'s, MutexRow<'s>>> {
    type Row<'s> = MutexRow<'s>;
    let holders = |row: &Row<'_>| {
        let modes: Vec<_> = row.mutex.holders.iter().map(|(sid, mode)| (*sid, Some(*mode))).collect();
        blocking::text(&modes)
    };
    let mut shown = vec![
        text(0, 12, 48, column("mutex", |row: &Row<'_>| row.mutex.label())).about("Its name, or its number."),
        text(6, 13, 24, column("type", |row: &Row<'_>| row.to.type_name(row.mutex.info.mutex_type).to_owned()))
            .about("Its type; parameters can be set for one."),
    ];
    shown.extend(figures(|row: &Row<'_>| row.profile));
    shown.extend([
        number(1, column("waiting", |row: &Row<'_>| row.waiters)).at_least(5).about("Sessions that wait for it now."),
        text(3, 7, 24, column("held_by", holders).titled("held by"))
            .about("The numbers of the sessions that hold it, each with its mode.")
            .live(),
    ]);
    shown
}

pub fn sessions<'s>() -> Vec<Shown<'s, SessionRow<'s>>> {
    type Row<'s> = SessionRow<'s>;
    let of = |row: &Row<'_>, measure: Measure| measure.of(row.profile);
    let figure = |rank, of: Measure, column| number(rank, column).about(of.description());
    let wait = |row: &Row<'_>| row.session.info.wait.map(|(key, since_ns, _)| (key, since_ns));
    let waited_s = move |row: &Row<'_>| Some(row.to.at.monotonic_ns.saturating_sub(wait(row)?.1) as f64 / 1e9);
    vec![
        number(0, column("sid", |row: &Row<'_>| row.session.info.sid.number()))
            .at_least(4)
            .about("The number of the session in the instance."),
        number(8, column("pid", |row: &Row<'_>| row.session.info.pid)).about("Its process."),
        number(4, column("tid", |row: &Row<'_>| row.session.info.tid)).about("Its thread."),
        text(2, 10, 24, column("name", |row: &Row<'_>| row.session.info.name.clone())).about("As it called itself."),
        text(9, 10, 24, column("action", |row: &Row<'_>| row.session.info.action.clone()))
            .about("What it said that it is at."),
        text(0, 8, 8, column("state", |row: &Row<'_>| row.session.state.name()))
            .about("running, waiting, DEADLOCK, or DEAD."),
        text(
            1,
            12,
            40,
            column("waits_for", move |row: &Row<'_>| Some(row.to.mutex_label(wait(row)?.0.mutex))).titled("waits for"),
        )
        .about("The mutex that it waits for now.")
        .live(),
        text(6, 4, 4, column("mode", move |row: &Row<'_>| Some(wait(row)?.0.event.mode.name())))
            .about("The mode that it waits for.")
            .live(),
        number(1, column("waited_s", waited_s).titled("for s")).about("Time since that wait began.").live(),
        text(7, 5, 5, column("step", |row: &Row<'_>| row.session.info.step))
            .about("The step of the wait that it is in.")
            .live(),
        text(3, 7, 20, column("held_by", |row: &Row<'_>| blocking::text(&row.session.blockers)).titled("held by"))
            .about("The sessions that it waits for, each with its mode.")
            .live(),
        text(5, 12, 40, column("holds", |row: &Row<'_>| row.to.held_text(row.session)))
            .about("The mutexes that it holds, each with its mode.")
            .live(),
        text(
            10,
            12,
            48,
            column("at", move |row: &Row<'_>| Some(row.to.place(wait(row)?.0.location).to_owned())).titled("waits at"),
        )
        .about("The place in the program where it waits.")
        .live(),
        figure(11, Measure::Throughput, measure(Measure::Throughput, "", of).named("gets_per_s").titled("gets/s")),
        figure(12, Measure::WaitsPerS, measure(Measure::WaitsPerS, "", of)),
        figure(12, Measure::Registered, measure(Measure::Registered, "ms", of).named("wait_ms").titled("wait ms")),
        number(13, measure(Measure::RegisteredMax, "ms", of).named("wait_max_ms").titled("max ms")).about(LONGEST),
        number(14, counter(Counter::Misses, |row: &Row<'_>| row.profile)).about(MISSES),
    ]
}
