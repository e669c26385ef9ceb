//! One session.

use super::figures::figures;
use super::{Line, Target, Tone, columns, dim, head, plain, section};
use crate::output::{column, counter, measure, short};
use crate::top::grid::wrap;
use crate::top::seen::{Seen, SessionRow};
use retrial::MutexId;
use retrial::views::{Counter, LocationId, Sid};
use retrial_model::{Measure, Profile};

pub fn title(row: SessionRow<'_>) -> String {
    let info = &row.session.info;
    let name = if info.name.is_empty() { String::new() } else { format!(" {}", info.name) };
    format!("Session {}{name}", info.sid)
}

/// Its lines.
pub fn lines(seen: &Seen, row: SessionRow<'_>, room: u16) -> Vec<Line> {
    let (to, info) = (row.to, &row.session.info);
    let mut lines = Vec::new();
    let class = if info.high_priority { ", high priority" } else { "" };
    let action = if info.action.is_empty() { String::new() } else { format!(", action {}", info.action) };
    let age_s = to.at.monotonic_ns.saturating_sub(info.claimed_ns) as f64 / 1e9;
    let state = row.session.state.name();
    let is_bad = matches!(row.session.state, crate::recording::State::Dead | crate::recording::State::Deadlocked);
    lines.push(Line {
        text: format!("pid {}, tid {}, {state}{class}{action}, a session for {} s", info.pid, info.tid, short(age_s)),
        tone: if is_bad { Tone::Bad } else { Tone::Plain },
        target: None,
    });
    if let Some((_, thread)) = seen.thread.as_ref().filter(|(sid, _)| *sid == info.sid) {
        lines.push(plain(format!("its thread: {}", thread.text())));
        for (what, stack) in [("calls", &thread.stack), ("in the kernel", &thread.kernel_stack)] {
            if !stack.is_empty() {
                lines.extend(wrap(&format!("{what}: {}", stack.join(" < ")), room, "  ").into_iter().map(plain));
            }
        }
    }
    lines.push(Line::default());
    lines.push(head("Waits for"));
    match info.wait {
        None => lines.push(dim("nothing")),
        Some((key, since_ns, _)) => {
            let for_s = to.at.monotonic_ns.saturating_sub(since_ns) as f64 / 1e9;
            let step = row.session.info.step.map(|step| format!(", now: {step}")).unwrap_or_default();
            lines.push(Line {
                text: format!(
                    "  {} ({}) for {} s at {}{step}",
                    to.mutex_label(key.mutex),
                    to.event_name(key),
                    short(for_s),
                    to.place(key.location)
                ),
                tone: Tone::Warn,
                target: Some(Target::Mutex(key.mutex)),
            });
            for (sid, mode) in &row.session.blockers {
                let mode = mode.map(|mode| format!(" in {mode}")).unwrap_or_default();
                let text = format!("  held by session {sid}{mode}");
                lines.push(Line { text, tone: Tone::Plain, target: Some(Target::Session(*sid)) });
            }
        }
    }
    lines.push(Line::default());
    lines.push(head("Holds"));
    if row.session.holds.is_empty() {
        lines.push(dim("nothing that is seen"));
    }
    for held in &row.session.holds {
        let at = held.location.map(|at| format!(", got at {}", to.place(at))).unwrap_or_default();
        let text = format!("  {} in {}{at}", to.mutex_label(held.mutex), held.mode);
        lines.push(Line { text, tone: Tone::Plain, target: Some(Target::Mutex(held.mutex)) });
    }
    figures(&mut lines, row.profile, room);
    waited(&mut lines, seen, info.sid, room);
    lines
}

/// What a session has waited for, by mutex and place.
fn waited(lines: &mut Vec<Line>, seen: &Seen, sid: Sid, room: u16) {
    type Row = ((MutexId, LocationId), Profile);
    let period = seen.span.period();
    let by = |of: Sid, key: retrial::views::Key| (of == sid).then_some((key.mutex, key.location));
    let mut rows: Vec<Row> = period.of(by).into_iter().chain(period.of_events(by)).collect();
    rows.retain(|(_, profile)| profile.figures.get(Counter::Misses) > 0 || profile.registered_s() > 0.0);
    rows.sort_by(|a, b| b.1.registered_s().total_cmp(&a.1.registered_s()));
    let of = |row: &Row, measure: Measure| measure.of(&row.1);
    let text = |column| columns::text(0, 12, 60, column);
    let number = |column| columns::number(1, column);
    let columns = [
        text(column("mutex", |row: &Row| seen.to().mutex_label(row.0.0))),
        text(column("place", |row: &Row| seen.to().place(row.0.1).to_owned())),
        number(counter(Counter::Misses, |row: &Row| &row.1)),
        number(counter(Counter::Waits, |row: &Row| &row.1)),
        number(measure(Measure::Registered, "ms", of).titled("wait ms")),
        number(measure(Measure::RegisteredMax, "ms", of).titled("max ms")),
    ];
    section(lines, "What it has missed and waited for", &columns, &rows, room, |row| Some(Target::Mutex(row.0.0)));
}
