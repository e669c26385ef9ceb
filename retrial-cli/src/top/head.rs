//! The lines above the lists: which instance and when, the machine, all mutexes together, the sessions.

use super::pages::Tone;
use super::seen::Seen;
use super::state::State;
use crate::clock::time;
use crate::duration;
use crate::output::{counted, grouped, short};
use crate::recording::{self, Snapshot};
use retrial_model::Measure;

/// A part of a line, which is left out where it is empty.
pub type Part = (String, Tone);

/// Each line, with what matters most at its left.
pub fn lines(state: &State, seen: &Seen) -> [Vec<Part>; 4] {
    [instance(state, seen), machine(seen), locks(seen), sessions(seen.to(), seen)]
}

fn instance(state: &State, seen: &Seen) -> Vec<Part> {
    let period = seen.span.period();
    let length = duration::seconds(period.time_s());
    let of = if period.from().is_some() { format!("last {length}") } else { format!("since creation, {length}") };
    let clock = time(seen.to().at.real_ns).get(11..19).unwrap_or_default().to_owned();
    let is = if state.gone {
        ("GONE: the last screen; waits for it".to_owned(), Tone::Bad)
    } else if state.frozen {
        ("FROZEN".to_owned(), Tone::Warn)
    } else {
        (String::new(), Tone::Plain)
    };
    vec![
        (format!("retrial top {}", state.name), Tone::Head),
        is,
        (format!("{clock}Z"), Tone::Plain),
        (of, Tone::Plain),
        (share("own cpu", seen.cost), Tone::Dim),
    ]
}

/// `PSI 12.3 %`, or nothing where it is not known.
fn share(name: &str, share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{name} {} %", short(100.0 * share)))
}

fn machine(seen: &Seen) -> Vec<Part> {
    let period = seen.span.period();
    let load = &seen.to().load;
    let ready =
        load.runnable.map_or_else(String::new, |ready| format!("{} ready", counted(ready, "thread", "threads")));
    let plain = |text| (text, Tone::Plain);
    vec![
        plain(counted(load.processors as u64, "processor", "processors")),
        plain(share("busy", period.busy())),
        plain(share("PSI", period.pressed())),
        plain(share("stolen", period.stolen())),
        plain(ready),
    ]
}

fn locks(seen: &Seen) -> Vec<Part> {
    let of = |name: &str, measure: Measure, times: f64, unit: &str| {
        let value = measure.of(&seen.total).map(|value| format!("{name} {}{unit}", short(value * times)));
        (value.unwrap_or_default(), Tone::Plain)
    };
    vec![
        of("gets/s", Measure::Throughput, 1.0, ""),
        of("ρ", Measure::MissRatio, 100.0, " %"),
        of("waits/s", Measure::WaitsPerS, 1.0, ""),
        of("wait", Measure::Registered, 1e3, " ms"),
        of("sleeps/s", Measure::SleepsPerS, 1.0, ""),
        of("k", Measure::SpinInefficiency, 100.0, " %"),
        of("longest", Measure::RegisteredMax, 1e3, " ms"),
    ]
}

fn sessions(to: &Snapshot, seen: &Seen) -> Vec<Part> {
    let count = |state| to.sessions.iter().filter(|session| session.state == state).count() as u64;
    let of = |state: recording::State, tone| {
        let count = count(state);
        if count == 0 { (String::new(), tone) } else { (format!("{} {}", grouped(count), state.name()), tone) }
    };
    let deaths = seen.span.period().from().map_or(0, |from| to.recoveries.saturating_sub(from.recoveries));
    let death = if deaths > 0 { counted(deaths, "death of a holder", "deaths of holders") } else { String::new() };
    vec![
        (counted(to.sessions.len() as u64, "session", "sessions"), Tone::Plain),
        of(recording::State::Running, Tone::Plain),
        of(recording::State::Waiting, Tone::Warn),
        of(recording::State::Deadlocked, Tone::Bad),
        of(recording::State::Dead, Tone::Bad),
        (death, Tone::Bad),
        (counted(to.alerts.len() as u64, "alert", "alerts"), Tone::Dim),
    ]
}
