//! How a session waits under each scheme: the steps of one wait, with what they are for.

use crate::output::line;
use crate::settings;
use miette::{IntoDiagnostic, Report, miette};
use retrial::views::{Event, Tables};
use retrial::{Capacity, Class, Instance, Mutex, P, location, wait};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long the mutex is held while the other session waits.
pub const HOLD: Duration = Duration::from_millis(1500);
/// How often the waiter's steps are read: it remembers the last 64 runs of them.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A scheme with parameters, as the sources publish them.
#[derive(Clone, Copy)]
struct Row {
    scheme: &'static str,
    settings: &'static [&'static str],
    class: Class,
    /// What the steps are and what they cost, in one line.
    meaning: &'static str,
}

const fn row(scheme: &'static str, settings: &'static [&'static str], meaning: &'static str) -> Row {
    Row { scheme, settings, class: Class::Normal, meaning }
}

const ROWS: [Row; 17] = [
    row("10g", &[], "yields for ever: gets the mutex soon after its release, and uses a processor until then"),
    row("patch6904068", &[], "sleeps of 10 ms instead of yields: uses no processor, and comes up to 10 ms late"),
    row("yield", &[], "99 yields, then a sleep of 1 ms, over and over: most of the time a processor is used"),
    row(
        "yield",
        &["wait_yield_sleep_time_msecs=2", "wait_yield_sleep_freq=3"],
        "every 3rd step is a sleep, of 2 ms: less processor time, later gets",
    ),
    row("yield", &["wait_yield_mode=sleep"], "the other way round: 19 sleeps of 1 ms, then a yield"),
    row(
        "yield",
        &["wait_yield_mode=sleep", "wait_yield_sleep_time_msecs=3", "wait_yield_yield_freq=3"],
        "every 3rd step is a yield, the others are sleeps of 3 ms",
    ),
    row("yield", &["wait_yield_sleep_time_msecs=0"], "a sleep of 0 ms is a yield: the same as 10g"),
    row(
        "yield",
        &["wait_yield_sleep_time_msecs=10", "wait_yield_sleep_freq=0"],
        "every step is a sleep of 10 ms: the same as patch6904068",
    ),
    Row {
        scheme: "yield",
        settings: &["wait_yield_hp_mode=sleep"],
        class: Class::High,
        meaning: "this class alone sleeps, 19 times 1 ms, then yields: so a holder of lower priority gets the processor",
    },
    row("sleep", &[], "one yield, then sleeps of 1 ms for ever: little processor time while few sessions wait"),
    row(
        "backoff",
        &[],
        "two yields, then sleeps of 10 ms, the value of mutex_wait_time: uses no processor, comes late",
    ),
    row(
        "backoff",
        &["mutex_wait_time=30"],
        "two yields, then sleeps of 10, 30, 70 and 150 ms, each twice, then of 300 ms for ever",
    ),
    row(
        "latch",
        &[],
        "a spin of 20,000 polls, then parked in a queue until a release wakes it; it looks every 100 ms by itself",
    ),
    row("ydb", &[], "128 yields for short holding times, then parked in a queue for long ones"),
    row("pthread", &[], "parked at once, without a spin, as in glibc's mutexes: every contended get costs a wake-up"),
    row(
        "adaptive",
        &[],
        "as ydb while few sessions wait, as pthread when the yields of many would take the processors",
    ),
    row(
        "orbit",
        &[],
        "the default: a session's first wait parks at once; later ones spin, yield up to 512 times, down to 8 where \
         yields bring nothing, then park",
    ),
];

/// These, and with their defaults the schemes that none of them is of.
fn rows() -> impl Iterator<Item = Row> {
    let others = wait::NAMES.iter().filter(|name| ROWS.iter().all(|row| row.scheme != **name));
    ROWS.into_iter().chain(others.map(|name| row(name, &[], "with its defaults")))
}

impl Row {
    fn title(&self) -> String {
        let mut title = self.scheme.to_owned();
        for setting in self.settings {
            title.push(' ');
            title.push_str(setting);
        }
        if self.class == Class::High {
            title.push_str(", session of the high priority class");
        }
        title
    }

    fn apply(&self, instance: &Instance) -> Result<(), Report> {
        for &p in P::ALL {
            instance.unset(p, None);
        }
        let values = settings::given(Some(self.scheme), self.settings);
        settings::apply(instance, None, &values.map_err(|error| crate::instances::param_error(&error))?);
        Ok(())
    }
}

/// How long [`show`] takes, without the waits' ends.
pub fn time() -> Duration {
    HOLD * rows().count() as u32
}

pub fn show() -> Result<(), Report> {
    let instance = Instance::anonymous(Capacity::default()).map_err(crate::instances::create_error)?;
    let mutex = instance.mutex("demo", "demo", || 0_u64).into_diagnostic()?;
    for row in rows() {
        row.apply(&instance)?;
        line(&format!("\n{}\n  ({})", row.title(), row.meaning));
        for text in folded(&waited(&instance, &mutex, row.class, HOLD)?) {
            line(&format!("  {text}"));
        }
    }
    Ok(())
}

/// The steps of a session that waits while this thread holds the mutex for so long.
fn waited(instance: &Instance, mutex: &Mutex<'_, u64>, class: Class, hold: Duration) -> Result<Vec<Event>, Report> {
    let session = instance.session("holder", Class::Normal).into_diagnostic()?;
    let held = mutex
        .exclusive(&session, location!("demo: hold"))
        .map_err(|error| miette!("the mutex was not got: {error}"))?;
    std::thread::scope(|scope| {
        let (announce, announced) = mpsc::channel();
        scope.spawn(move || {
            let Ok(session) = instance.session("waiter", class) else { return };
            let before = instance.tables().session_info(session.sid()).map_or(0, |info| info.last_run);
            if announce.send((session.sid(), before)).is_ok() {
                drop(mutex.exclusive(&session, location!("demo: wait")));
            }
        });
        let Ok((sid, before)) = announced.recv() else {
            drop(held);
            return Err(miette!("no session for the waiter"));
        };
        let mut events = BTreeMap::new();
        let tables: &Tables = instance.tables();
        let mut last = before;
        let mut look = || {
            last = tables.session_info(sid).map_or(last, |info| info.last_run);
            let known = events.last_key_value().map_or(before + 1, |(number, _)| *number);
            events.extend((known..=last).filter_map(|number| Some((number, tables.event(sid, number)?))));
        };
        let began = Instant::now();
        while began.elapsed() < hold {
            std::thread::sleep(LOOK_EVERY);
            look();
        }
        drop(held);
        // The wait's last step is the mutex itself; its session may be gone by then, the steps are not.
        loop {
            look();
            let ended = tables.session_info(sid).is_none_or(|info| info.wait.is_none());
            if ended {
                let known = events.last_key_value().map_or(before + 1, |(number, _)| *number);
                let rest = (known..).map_while(|number| Some((number, tables.event(sid, number)?)));
                events.extend(rest);
                return Ok(events.into_values().collect());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    })
}

/// The lines of a trace: the first ones and the last two.
fn folded(events: &[Event]) -> Vec<String> {
    const FIRST: usize = 8;
    const LAST: usize = 2;
    let lines: Vec<String> = events.iter().map(Event::line).collect();
    if lines.len() <= FIRST + LAST + 1 {
        return lines;
    }
    let between = lines.len() - FIRST - LAST;
    let (first, rest) = lines.split_at(FIRST);
    let mut folded = first.to_vec();
    folded.push(format!("… {between} more lines"));
    folded.extend_from_slice(&rest[between..]);
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::views::What;

    #[test]
    fn each_row_is_waited_through_and_explained_in_a_line() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let mutex = instance.mutex("m", "test", || 0).unwrap();
        for row in rows() {
            row.apply(&instance).unwrap();
            let events = waited(&instance, &mutex, row.class, Duration::from_millis(20)).unwrap();
            assert_eq!(events.last().map(|event| event.what), Some(What::Got), "{}", row.title());
            assert!(!row.meaning.is_empty() && !row.meaning.contains('\n'), "{}", row.title());
        }
        for scheme in wait::NAMES {
            assert!(rows().any(|row| row.scheme == *scheme), "{scheme}");
        }
    }

    #[test]
    fn a_long_trace_is_shown_by_its_first_and_last_lines() {
        let event = |number| Event {
            number,
            what: What::Got,
            count: 1,
            asked: Duration::ZERO,
            actual: Duration::from_millis(number),
            started_ns: 0,
            mutex: retrial::MutexId(1),
            location: retrial::views::LocationId(1),
            event: retrial::views::WaitEvent { mode: retrial::Mode::Shared, on_x: true, for_event: false },
            blocker: retrial::views::Sid::NONE,
        };
        let lines = |n| folded(&(1..=n).map(event).collect::<Vec<_>>());
        assert_eq!(lines(11).len(), 11);
        assert_eq!(lines(12)[7..], ["got S after 8 ms", "… 2 more lines", "got S after 11 ms", "got S after 12 ms"]);
    }
}
