//! `retrial ps`.

use crate::blocking::{self, Deadlock, Look};
use crate::instances::Which;
use crate::naming::Names;
use crate::output::{Format, Table, column};
use crate::recording::State;
use miette::Report;
use retrial::sys::now_ns;
use retrial::views::SessionInfo;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Show the sessions: what each holds, what it waits for and who holds that
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// A session with what was found out about it.
struct Row<'l> {
    session: &'l SessionInfo,
    holds: String,
    mutex: Option<String>,
    held_by: Option<String>,
    is_deadlocked: bool,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let observer = args.which.observe()?;
    let tables = observer.tables();
    // No snapshot, which takes memory: this is what is typed when there is none.
    let look = Look::at_all(tables);
    if look.sessions.is_empty() && format.is_text() {
        let flag = args.which.flag();
        format.say(&format!("No sessions.\nNext: retrial hold m{flag} --create --mode X --for 50s"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut names = Names::new(tables);
    let deadlocks: Vec<Deadlock> = look.deadlocks().into_iter().map(|links| Deadlock::new(links, &mut names)).collect();
    let deadlocked: BTreeSet<_> = deadlocks.iter().flat_map(|deadlock| &deadlock.links).map(|link| link.sid).collect();
    let rows: Vec<Row<'_>> = (look.sessions.iter())
        .map(|session| Row {
            session,
            holds: blocking::held_text(look.held(session.sid).iter().copied(), |mutex| names.mutex(mutex)),
            mutex: session.wait.map(|(key, ..)| names.mutex(key.mutex)),
            held_by: session.wait.map(|_| blocking::text(&look.blockers(session))),
            is_deadlocked: deadlocked.contains(&session.sid),
        })
        .collect();
    let columns = [
        column("sid", |row: &Row<'_>| row.session.sid.number()),
        column("pid", |row: &Row<'_>| row.session.pid),
        column("tid", |row: &Row<'_>| row.session.tid),
        column("name", |row: &Row<'_>| row.session.name.clone()),
        column("class", |row: &Row<'_>| if row.session.high_priority { "high" } else { "normal" }),
        column("action", |row: &Row<'_>| row.session.action.clone()),
        column("state", |row: &Row<'_>| State::of(row.session, row.is_deadlocked).name()),
        column("holds", |row: &Row<'_>| row.holds.clone()),
        column("waits_for", |row: &Row<'_>| {
            let (key, ..) = row.session.wait?;
            Some(names.event(key.mutex, key.event))
        }),
        column("mutex", |row: &Row<'_>| row.mutex.clone()),
        column("held_by", |row: &Row<'_>| row.held_by.clone()),
        column("waited_s", |row: &Row<'_>| Some(now_ns().saturating_sub(row.session.wait?.1) as f64 / 1e9)),
    ];
    Table::of(&columns, &rows).print(format);
    for deadlock in &deadlocks {
        format.say(&deadlock.text(now_ns()));
    }
    if look.sessions.iter().any(|session| session.dead) {
        format.say(&format!("Next: retrial recover{}", args.which.flag()));
    }
    Ok(ExitCode::SUCCESS)
}
