//! The rules, as data. `predict/rules.rs` has those of `advise`, which change parameters; bounds that both
//! have are there.

use super::{Blocker, Evidence, Found, Rule, TRIFLE, Urgency, session_text};
use crate::duration::seconds;
use crate::output::{counted, grouped, short};
use crate::predict::rules;
use crate::recording::State;
use retrial::views::{Counter, Sid};
use retrial::{Mode, MutexId};
use retrial_model::Measure;

/// Every rule.
pub const RULES: &[Rule] = &[
    Rule { name: "deadlock", urgency: Urgency::Stuck, find: deadlock },
    Rule { name: "dead_holder", urgency: Urgency::Stuck, find: dead_holder },
    Rule { name: "false_contention", urgency: Urgency::Time, find: false_contention },
    Rule { name: "long_holder", urgency: Urgency::Time, find: long_holder },
    Rule { name: "hot_mutex", urgency: Urgency::Time, find: hot_mutex },
    Rule { name: "sleeps_too_long", urgency: Urgency::Time, find: sleeps_too_long },
    Rule { name: "one_place", urgency: Urgency::Time, find: one_place },
];

fn pct(share: f64) -> String {
    format!("{} %", short(100.0 * share))
}

/// Sessions wait for each other.
fn deadlock(evidence: &Evidence<'_>) -> Vec<Found> {
    let now_ns = evidence.to().at.monotonic_ns;
    let found = |deadlock: &crate::blocking::Deadlock| {
        let text = deadlock.text(now_ns);
        let lines: Vec<String> = text.lines().skip(1).map(|line| line.trim_start().to_owned()).collect();
        let begin_ns = evidence.period.from().map_or(0, |from| from.at.monotonic_ns);
        let end_ns = deadlock.ended_ns.unwrap_or(now_ns);
        let waited = deadlock.links.iter().map(|link| end_ns.saturating_sub(link.since_ns.max(begin_ns)));
        Found {
            sentence: match (deadlock.links.len(), deadlock.ended_ns) {
                (1, None) => "a session waits for itself: only a deadline ends it".to_owned(),
                (count, None) => {
                    format!("{count} sessions wait for each other: only a deadline, or the end of one of them, ends it")
                }
                (1, Some(_)) => "a session waited for itself, until a deadline or its own end".to_owned(),
                (count, Some(_)) => {
                    format!("{count} sessions waited for each other, until a deadline or the end of one of them")
                }
            },
            time_s: waited.sum::<u64>() as f64 / 1e9,
            evidence: lines,
            command: evidence.who(None),
        }
    };
    evidence.deadlocks.iter().map(found).collect()
}

/// A holder has died, and what it held is not given back, or its data is not declared consistent.
fn dead_holder(evidence: &Evidence<'_>) -> Vec<Found> {
    let to = evidence.to();
    let dead =
        |(sid, mode): &(Sid, Mode)| Some((to.session(*sid).filter(|session| session.state == State::Dead)?, *mode));
    let found = |mutex: &crate::recording::Mutex| {
        let holder = mutex.holders.iter().find_map(dead);
        let death = mutex.info.death.as_ref();
        let (sentence, line, command) = match (holder, mutex.is_poisoned) {
            (Some((session, mode)), _) => {
                let place =
                    session.holds.iter().find(|held| held.mutex == mutex.info.id).and_then(|held| held.location);
                (
                    format!("{} is held by a session that is dead", mutex.label()),
                    format!("{} died with it{}", session_text(session), evidence.held_text(Some(mode), place)),
                    evidence.on_instance("recover"),
                )
            }
            (None, true) => (
                format!("{} is poisoned: its holder died, and nobody has declared the data consistent", mutex.label()),
                death.map_or_else(
                    || "who died is not known".to_owned(),
                    |death| {
                        format!("session {} died with it in {} at {}", death.sid, death.mode, to.place(death.location))
                    },
                ),
                format!(
                    "retrial hold {} --consistent --for 0s -i {}",
                    crate::output::quoted(&mutex.name),
                    crate::output::quoted(&to.instance.name)
                ),
            ),
            (None, false) => return None,
        };
        let time_s = evidence.waited_s(mutex.info.id);
        let evidence = vec![line, format!("{} of waits for it in the period", seconds(time_s))];
        Some(Found { sentence, evidence, time_s, command })
    };
    to.mutexes.iter().filter_map(found).collect()
}

/// Waits due to processors: the sessions are in run queues, holders among them.
fn false_contention(evidence: &Evidence<'_>) -> Vec<Found> {
    /// A larger share of the time in which sessions could have run, spent in run queues, is what slows them.
    const QUEUED: f64 = 0.25;
    let Some((cpu_s, queued_s)) = evidence.period.processors() else { return Vec::new() };
    let (waited_s, ready_s) = (evidence.total.registered_s(), cpu_s + queued_s);
    if ready_s <= 0.0 || queued_s < QUEUED * ready_s || waited_s < TRIFLE * evidence.all_s {
        return Vec::new();
    }
    let (to, period) = (evidence.to(), evidence.period);
    let mut lines = vec![format!(
        "the sessions were in run queues for {} of the {} in which they could run: {}",
        seconds(queued_s),
        seconds(ready_s),
        pct(queued_s / ready_s)
    )];
    let mut machine = vec![counted(to.load.processors as u64, "processor", "processors")];
    machine.extend(period.busy().map(|busy| format!("{} busy", pct(busy))));
    machine.extend(period.pressed().map(|pressed| format!("some thread waited for one {} of the time", pct(pressed))));
    let stolen = period.stolen().filter(|stolen| *stolen >= 0.01);
    machine.extend(stolen.map(|stolen| format!("{} stolen by other machines", pct(stolen))));
    lines.push(machine.join(", "));
    let late =
        Measure::OverShare.of(&evidence.total).unwrap_or(0.0) + Measure::YieldShare.of(&evidence.total).unwrap_or(0.0);
    lines.push(format!("{} of waits, {} of it in yields, or awake too late", seconds(waited_s), pct(late)));
    vec![Found {
        sentence: "processors are short, not the mutexes: holders wait for a processor while others wait for them"
            .to_owned(),
        evidence: lines,
        time_s: queued_s,
        command: "retrial doctor; uptime; ps -eo pid,pcpu,comm --sort=-pcpu | head".to_owned(),
    }]
}

/// Whether this session alone is why others wait long for its mutex: most of the waits were for it, and one
/// was long.
fn keeps_long(evidence: &Evidence<'_>, blocker: &Blocker) -> bool {
    const LONG_S: f64 = 0.1;
    /// Of the sampled waits for the mutex.
    const MOST: f64 = 0.5;
    let of_mutex = evidence.blockers.iter().filter(|other| other.mutex == blocker.mutex);
    let all_ns: u64 = of_mutex.map(|other| other.time_ns).sum();
    // A wait behind many short holds of one session is long, too.
    let hold_s = evidence.mutex(blocker.mutex).and_then(|(_, profile)| Measure::HoldingTime.of(profile));
    blocker.longest_ns as f64 / 1e9 >= LONG_S
        && blocker.time_ns as f64 >= MOST * all_ns as f64
        && hold_s.is_none_or(|hold_s| hold_s >= LONG_S / 100.0)
}

/// One session keeps a mutex for so long that a wait for it is long in itself.
fn long_holder(evidence: &Evidence<'_>) -> Vec<Found> {
    // A session of a ring waits itself.
    let in_rings = evidence.deadlocks.iter().flat_map(|ring| &ring.links);
    let in_rings: Vec<(Sid, MutexId)> = in_rings.map(|link| (link.holder, link.mutex)).collect();
    let found = |blocker: &Blocker| {
        if in_rings.contains(&(blocker.holder.sid, blocker.mutex)) {
            return None;
        }
        let (mutex, profile) = evidence.mutex(blocker.mutex).filter(|_| keeps_long(evidence, blocker))?;
        let of_mutex = evidence.blockers.iter().filter(|other| other.mutex == blocker.mutex);
        let all_ns: u64 = of_mutex.map(|other| other.time_ns).sum();
        let (kept_s, longest_s) = (blocker.time_ns as f64 / 1e9 * evidence.scale, blocker.longest_ns as f64 / 1e9);
        let hold_s = Measure::HoldingTime.of(profile);
        let held = evidence.held_text(blocker.holder.mode, blocker.holder.location);
        let action = blocker.holder.session(evidence.to()).map(|session| session.info.action.clone());
        let mut lines = vec![
            format!(
                "{} waited for it, for {} together, {} of all that waited for this mutex",
                counted(blocker.waiters, "session", "sessions"),
                seconds(kept_s),
                pct(blocker.time_ns as f64 / all_ns as f64)
            ),
            format!("one wait alone was kept for {}", seconds(longest_s)),
        ];
        lines.extend(hold_s.map(|hold_s| format!("the mutex is held for {} on average", seconds(hold_s))));
        lines.extend(action.filter(|action| !action.is_empty()).map(|action| format!("its action: {action}")));
        Some(Found {
            sentence: format!(
                "{} keeps {}{held} for long, and others wait",
                evidence.holder_text(&blocker.holder),
                mutex.label()
            ),
            evidence: lines,
            time_s: kept_s,
            command: evidence.who(Some(mutex)),
        })
    };
    evidence.blockers.iter().filter_map(found).collect()
}

/// A mutex that is held nearly all the time, by many in turn.
///
/// Few gets need find it busy: sessions that sleep for longer than it is held come back seldom.
fn hot_mutex(evidence: &Evidence<'_>) -> Vec<Found> {
    let found = |(mutex, profile): &(&crate::recording::Mutex, retrial_model::Profile)| {
        let (utilization, miss_ratio) = (rules::utilization(profile)?, Measure::MissRatio.of(profile)?);
        let hold_s = Measure::HoldingTime.of(profile)?;
        let is_of_mutex = |blocker: &&Blocker| blocker.mutex == mutex.info.id;
        let is_kept = evidence.blockers.iter().filter(is_of_mutex).any(|blocker| keeps_long(evidence, blocker));
        if utilization < rules::SATURATED || is_kept {
            return None;
        }
        let waits_s = evidence.waited_s(mutex.info.id);
        // What stands in for U where nobody looked at the holder.
        let busy = match Measure::Utilization.of(profile) {
            Some(_) => {
                format!("held {} of the time (U), {} of the gets find it busy (ρ)", pct(utilization), pct(miss_ratio))
            }
            None => format!("{} of the gets find it busy (ρ); how long it was held, nobody looked at", pct(miss_ratio)),
        };
        Some(Found {
            sentence: format!("{} is held nearly all the time: more gets than it can give", mutex.label()),
            evidence: vec![
                busy,
                format!(
                    "{} gets/s, each holds it for {} (S); at most {}/s are possible",
                    short(Measure::Throughput.of(profile)?),
                    seconds(hold_s),
                    short(1.0 / hold_s)
                ),
                format!(
                    "{} of waits and first spins for it, {} sessions at a time",
                    seconds(waits_s),
                    short(waits_s / profile.time_s)
                ),
            ],
            time_s: waits_s,
            command: evidence.advise(mutex),
        })
    };
    evidence.mutexes.iter().filter_map(found).collect()
}

/// Timed sleeps that last far longer than the mutex is held.
fn sleeps_too_long(evidence: &Evidence<'_>) -> Vec<Found> {
    let found = |(mutex, profile): &(&crate::recording::Mutex, retrial_model::Profile)| {
        let (sleep_s, hold_s) = (Measure::SleepTime.of(profile)?, Measure::HoldingTime.of(profile)?);
        if !rules::sleeps_past(profile, hold_s) {
            return None;
        }
        let slept_s = (profile.count(Counter::SleptNs) + profile.count(Counter::OverNs)) / 1e9;
        let asleep = Measure::Asleep.of(profile).unwrap_or(0.0);
        let free = 1.0 - rules::utilization(profile)?;
        Some(Found {
            sentence: format!(
                "sessions sleep for {} where {} is held for {}: the wait time does not fit",
                seconds(sleep_s),
                mutex.label(),
                seconds(hold_s)
            ),
            evidence: vec![
                format!(
                    "{} sessions asleep at a time, while the mutex is free {} of the time",
                    short(asleep),
                    pct(free)
                ),
                format!("{} timed sleeps, nobody wakes them", grouped(profile.figures.get(Counter::Sleeps))),
            ],
            time_s: slept_s,
            command: evidence.advise(mutex),
        })
    };
    evidence.mutexes.iter().filter_map(found).collect()
}

/// One place in the code at which most of the waits are, of several.
fn one_place(evidence: &Evidence<'_>) -> Vec<Found> {
    const MOST: f64 = 0.6;
    let places = evidence.places();
    let all_s: f64 = places.iter().map(|(_, _, s)| s).sum();
    let Some((location, waits, s)) = places.first().filter(|(_, _, s)| places.len() > 1 && *s >= MOST * all_s) else {
        return Vec::new();
    };
    let place = evidence.to().place(*location);
    let second =
        places.get(1).map(|(at, _, s)| format!("the next one, {}, has {}", evidence.to().place(*at), pct(s / all_s)));
    vec![Found {
        sentence: format!("{place} makes {} of the time of all waits", pct(s / all_s)),
        evidence: [
            Some(format!(
                "{}, {} together, at one of {} places",
                counted(*waits, "wait", "waits"),
                seconds(*s),
                places.len()
            )),
            second,
        ]
        .into_iter()
        .flatten()
        .collect(),
        time_s: *s,
        command: evidence.ash(&format!(
            "--waiters --where {} --by mutex,mode,holder_location,action",
            crate::output::quoted(&format!("location = '{}'", place.replace('\'', "''")))
        )),
    }]
}
