//! `retrial ps`.

use crate::holders;
use crate::instances::Which;
use crate::output::{Format, Table};
use miette::Report;
use retrial::sys::now_ns;
use retrial::views::{SessionInfo, Sid, Tables};
use serde_json::Value;
use std::process::ExitCode;

/// Show the sessions: what each holds, what it waits for and who holds that
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let observer = args.which.observe()?;
    let mut sessions = observer.sessions();
    sessions.sort_by_key(|session| session.sid);
    if sessions.is_empty() && format.is_text() {
        let flag = args.which.flag();
        format.say(&format!("No sessions.\nNext: retrial hold m{flag} --create --mode X --for 50s"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[
        "sid",
        "pid",
        "tid",
        "name",
        "class",
        "action",
        "state",
        "holds",
        "waits_for",
        "mutex",
        "held_by",
        "waited_s",
    ]);
    for session in &sessions {
        table.row(row(&observer, &sessions, session));
    }
    table.print(format);
    if sessions.iter().any(|session| session.dead) {
        format.say(&format!("Next: retrial recover{}", args.which.flag()));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(tables: &Tables, sessions: &[SessionInfo], session: &SessionInfo) -> Vec<Value> {
    let state = match (session.dead, session.wait) {
        (true, _) => "DEAD",
        (false, Some(_)) => "waiting",
        (false, None) => "running",
    };
    let wait = session.wait.map(|(key, since_ns, blocker)| {
        let mutex_type = tables.mutex_info(key.mutex).map_or_else(String::new, |m| tables.type_name(m.mutex_type));
        let now = holders::of(tables, sessions, key.mutex);
        let held_by = match holders::text(&now) {
            none if none.is_empty() && blocker != Sid::NONE => format!("{blocker}"),
            text => text,
        };
        let waited_s = now_ns().saturating_sub(since_ns) as f64 / 1e9;
        [key.event.name(&mutex_type).into(), tables.mutex_name(key.mutex).into(), held_by.into(), waited_s.into()]
    });
    let mut cells: Vec<Value> = vec![
        session.sid.number().into(),
        session.pid.into(),
        session.tid.into(),
        session.name.clone().into(),
        if session.high_priority { "high" } else { "normal" }.into(),
        session.action.clone().into(),
        state.into(),
        holders::list(tables, &holders::held(tables, session)).into(),
    ];
    cells.extend(wait.unwrap_or([const { Value::Null }; 4]));
    cells
}
