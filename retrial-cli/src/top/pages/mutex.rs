//! One mutex, or something else that is waited for.

use super::figures::figures;
use super::{Line, Target, Tone, columns, dim, head, parameters, plain, section};
use crate::lengths;
use crate::output::{column, counted, counter, measure};
use crate::recording::Mutex;
use crate::top::seen::{MutexRow, Seen, SessionRow};
use crate::who::text::label;
use retrial::views::{Counter, LocationId, PastSleep, Sid};
use retrial_model::{Measure, Profile};
use std::cmp::Reverse;

/// Its lines: who holds it and who waits first, as that is looked for first.
pub fn lines(seen: &Seen, row: MutexRow<'_>, room: u16) -> Vec<Line> {
    let (to, mutex) = (row.to, row.mutex);
    let mut lines = Vec::new();
    let poisoned = if mutex.is_poisoned { ", POISONED" } else { "" };
    let word = if mutex.word.is_empty() { String::new() } else { format!(", word: {}", mutex.word) };
    let parked = mutex.parked.filter(|parked| *parked > 0).map(|parked| format!(", {parked} parked"));
    lines.push(Line {
        text: format!(
            "#{}, type {}{poisoned}{word}{}",
            mutex.info.id.0,
            to.type_name(mutex.info.mutex_type),
            parked.unwrap_or_default()
        ),
        tone: if mutex.is_poisoned { Tone::Bad } else { Tone::Plain },
        target: None,
    });
    involved(&mut lines, seen, mutex, room);
    let id = mutex.info.id;
    let period = seen.span.period();
    let by = |_, key: retrial::views::Key| (key.mutex == id).then_some(key.location);
    let places = if mutex.is_event { period.of_events(by) } else { period.of(by) };
    let mut places: Vec<(LocationId, Profile)> = places.into_iter().collect();
    places.sort_by(|a, b| b.1.registered_s().total_cmp(&a.1.registered_s()));
    section(&mut lines, "Places where it was missed and waited for", &place_columns(seen), &places, room, |_| None);
    let mut past: Vec<&PastSleep> = to.history.iter().filter(|past| past.mutex == id).collect();
    past.sort_by_key(|past| Reverse(past.at_ns));
    section(&mut lines, "Last sleeps", &past_columns(seen), &past, room, |past| Some(Target::Session(past.waiter)));
    let waits = &row.profile.figures.lengths;
    lines.push(Line::default());
    lines.push(head("How long the waits were that have ended"));
    let bars = lengths::bars(waits);
    lines.extend(if bars.is_empty() { vec![dim("none")] } else { bars.into_iter().map(plain).collect() });
    figures(&mut lines, row.profile, room);
    parameters::list(&mut lines, seen, Some(mutex.info.mutex_type), room);
    lines
}

/// Who holds it, and who waits for it, the longest first.
fn involved(lines: &mut Vec<Line>, seen: &Seen, mutex: &Mutex, room: u16) {
    let found = |sid: Sid| seen.session(sid);
    let holders: Vec<SessionRow<'_>> = mutex.holders.iter().filter_map(|(sid, _)| found(*sid)).collect();
    let waiting = |session: &&crate::recording::Session| {
        session.info.wait.is_some_and(|(key, ..)| key.mutex == mutex.info.id) && !session.info.dead
    };
    let mut waiters: Vec<SessionRow<'_>> =
        seen.to().sessions.iter().filter(waiting).filter_map(|session| found(session.info.sid)).collect();
    waiters.sort_by_key(|row| (row.session.info.wait.map(|(_, since_ns, _)| since_ns), row.session.info.sid));
    let of_session = |row: &SessionRow<'_>| Some(Target::Session(row.session.info.sid));
    if !mutex.is_event {
        section(
            lines,
            &format!("Held by {}", of_sessions(mutex.holders.len())),
            &columns::sessions(),
            &holders,
            room,
            of_session,
        );
        let others = mutex.holders.iter().filter(|(sid, _)| seen.session(*sid).is_none());
        lines.extend(others.map(|(sid, mode)| dim(&format!("{} in {mode}", label(*sid, None, false)))));
    }
    let title = format!("Waited for by {}", of_sessions(waiters.len()));
    section(lines, &title, &columns::sessions(), &waiters, room, of_session);
}

fn of_sessions(count: usize) -> String {
    counted(count as u64, "session", "sessions")
}

fn place_columns(seen: &Seen) -> Vec<columns::Shown<'_, (LocationId, Profile)>> {
    type Row = (LocationId, Profile);
    let of = |row: &Row, measure: Measure| measure.of(&row.1);
    let number = |column| columns::number(1, column);
    vec![
        columns::text(0, 12, 100, column("place", |row: &Row| seen.to().place(row.0).to_owned())),
        number(counter(Counter::Misses, |row: &Row| &row.1)),
        number(counter(Counter::Waits, |row: &Row| &row.1)),
        number(measure(Measure::Registered, "ms", of).titled("wait ms")),
        number(measure(Measure::RegisteredMax, "ms", of).titled("max ms")),
        number(measure(Measure::SpinInefficiency, "pct", of).titled("k %")),
    ]
}

fn past_columns(seen: &Seen) -> Vec<columns::Shown<'_, &PastSleep>> {
    type Row<'s> = &'s PastSleep;
    let to = seen.to();
    let number = |column| columns::number(0, column);
    vec![
        number(
            column("ago_s", |past: &Row<'_>| to.at.monotonic_ns.saturating_sub(past.at_ns) as f64 / 1e9)
                .titled("s ago"),
        ),
        number(column("waiter", |past: &Row<'_>| past.waiter.number())),
        number(
            column("blocker", |past: &Row<'_>| (past.blocker.number() > 0).then(|| past.blocker.number()))
                .titled("held by"),
        ),
        number(column("sleeps", |past: &Row<'_>| past.sleeps)),
        columns::text(1, 12, 100, column("at", |past: &Row<'_>| to.place(past.location).to_owned())),
    ]
}
