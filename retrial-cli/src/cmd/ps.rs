//! `retrial ps`.

use crate::holders;
use crate::instances::Which;
use crate::output::{Format, Table, column};
use miette::Report;
use retrial::sys::now_ns;
use retrial::views::{SessionInfo, Sid, Tables};
use std::process::ExitCode;

/// Show the sessions: what each holds, what it waits for and who holds that
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let observer = args.which.observe()?;
    let mut sessions = observer.tables().sessions();
    sessions.sort_by_key(|session| session.sid);
    if sessions.is_empty() && format.is_text() {
        let flag = args.which.flag();
        format.say(&format!("No sessions.\nNext: retrial hold m{flag} --create --mode X --for 50s"));
        return Ok(ExitCode::SUCCESS);
    }
    let columns = [
        column("sid", |session: &SessionInfo| session.sid.number()),
        column("pid", |session: &SessionInfo| session.pid),
        column("tid", |session: &SessionInfo| session.tid),
        column("name", |session: &SessionInfo| session.name.clone()),
        column("class", |session: &SessionInfo| if session.high_priority { "high" } else { "normal" }),
        column("action", |session: &SessionInfo| session.action.clone()),
        column("state", |session: &SessionInfo| match (session.dead, session.wait) {
            (true, _) => "DEAD",
            (false, Some(_)) => "waiting",
            (false, None) => "running",
        }),
        column("holds", |session: &SessionInfo| {
            holders::list(observer.tables(), &holders::held(observer.tables(), session))
        }),
        column("waits_for", |session: &SessionInfo| {
            let (key, ..) = session.wait?;
            let info = observer.tables().mutex_info(key.mutex);
            Some(key.event.name(&info.map_or_else(String::new, |info| observer.tables().type_name(info.mutex_type))))
        }),
        column("mutex", |session: &SessionInfo| Some(observer.tables().mutex_name(session.wait?.0.mutex))),
        column("held_by", |session: &SessionInfo| held_by(observer.tables(), &sessions, session)),
        column("waited_s", |session: &SessionInfo| Some(now_ns().saturating_sub(session.wait?.1) as f64 / 1e9)),
    ];
    Table::of(&columns, &sessions).print(format);
    if sessions.iter().any(|session| session.dead) {
        format.say(&format!("Next: retrial recover{}", args.which.flag()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Who has what a session waits for.
fn held_by(tables: &Tables, sessions: &[SessionInfo], session: &SessionInfo) -> Option<String> {
    let (key, _, blocker) = session.wait?;
    Some(match holders::text(&holders::of(tables, sessions, key.mutex)) {
        none if none.is_empty() && blocker != Sid::NONE => format!("{blocker}"),
        text => text,
    })
}
