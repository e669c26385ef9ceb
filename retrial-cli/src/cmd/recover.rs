//! `retrial recover`.

use super::peek::elsewhere;
use crate::blocking::{Look, held_text};
use crate::instances::{Which, mutex, session_error};
use crate::output::{Format, Table, column};
use crate::{duration, signals};
use miette::{Report, miette};
use retrial::sys::Deadline;
use retrial::views::{SessionInfo, Sid, Word};
use retrial::{Class, GetError, Instance, Mode, Patience, Recovery, location};
use std::process::ExitCode;

/// Give back what dead sessions hold, or declare a poisoned mutex consistent
///
/// Waiters do the same by themselves. Exit code 1 when a session still owes something.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Only this session
    #[arg(long, value_name = "SID", conflicts_with = "clear_poison")]
    session: Option<u32>,
    /// Get this mutex in X and declare its data consistent
    #[arg(long, value_name = "MUTEX")]
    clear_poison: Option<String>,
    /// How long to wait for that mutex at most, with its unit
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "clear_poison")]
    wait: String,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let wait = duration::argument("--wait", &args.wait)?;
    let instance = args.which.attach()?;
    match &args.clear_poison {
        Some(name) => clear(&instance, name, wait, &args.which, format),
        None => recover(&instance, &args, format),
    }
}

/// A dead session, what it held, what came of it, and how many mutexes were given back.
type Row<'a> = (&'a SessionInfo, String, &'static str, u32);

fn recover(instance: &Instance, args: &Args, format: Format) -> Result<ExitCode, Report> {
    instance.look_for_threads();
    let flag = args.which.flag();
    let mut dead: Vec<SessionInfo> = instance.tables().sessions().into_iter().filter(|session| session.dead).collect();
    if let Some(number) = args.session {
        let sid = Sid::new(number);
        dead.retain(|session| session.sid == sid);
        if dead.is_empty() {
            let found = instance.tables().session_info(sid).map_or_else(
                || format!("no session {number}"),
                |session| format!("session {number} lives (pid {}, tid {})", session.pid, session.tid),
            );
            return Err(miette!(
                code = "retrial::recover::session",
                help = format!("retrial ps{flag}"),
                "{found}, expected the SID of a dead one"
            ));
        }
    }
    if dead.is_empty() && format.is_text() {
        format.say("No dead sessions.");
        return Ok(ExitCode::SUCCESS);
    }
    let (mut owing, mut poisoned, mut rows) = (false, Vec::new(), Vec::new());
    let look = Look::at_awaited(instance.tables());
    for session in &dead {
        let held = look.held(session.sid);
        let (result, given_back) = match instance.recover(session.sid) {
            Recovery::Done { mutexes } => ("recovered", mutexes),
            Recovery::Owing => {
                owing = true;
                ("still owes", 0)
            }
            // A waiter was faster.
            Recovery::NotDead => ("recovered by a waiter", 0),
        };
        rows.push((
            session,
            held_text(held.iter().copied(), |id| instance.tables().mutex_name(id)),
            result,
            given_back,
        ));
        // An object's poison is looked after by its engine.
        let is_poisoned = |id: &retrial::MutexId| {
            let tables = instance.tables();
            tables.offset_of(*id).is_some()
                && tables.mutex_state(*id).is_some_and(|state| state.word.has(Word::POISONED))
        };
        poisoned.extend(held.iter().map(|(mutex, _)| *mutex).filter(is_poisoned));
    }
    let columns = [
        column("sid", |row: &Row<'_>| row.0.sid.number()),
        column("pid", |row: &Row<'_>| row.0.pid),
        column("tid", |row: &Row<'_>| row.0.tid),
        column("name", |row: &Row<'_>| row.0.name.clone()),
        column("held", |row: &Row<'_>| row.1.clone()),
        column("result", |row: &Row<'_>| row.2),
        column("given_back", |row: &Row<'_>| row.3),
    ];
    Table::of(&columns, rows).print(format);
    for id in &poisoned {
        let name = instance.tables().mutex_name(*id);
        format.say(&format!("Next: retrial recover{flag} --clear-poison {name}   (its data may be half changed)"));
    }
    if owing {
        format.say("What is still owed is in a mutex that is busy now, or in memory of another process: its next waiter goes on.");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

fn clear(
    instance: &Instance,
    name: &str,
    wait: std::time::Duration,
    which: &Which,
    format: Format,
) -> Result<ExitCode, Report> {
    let flag = which.flag();
    let id = mutex(instance.tables(), name)?;
    // SAFETY: our session is of this instance.
    let Some(record) = (unsafe { instance.mutex_in_arena(id) }) else {
        return Err(elsewhere(name, which));
    };
    signals::catch();
    let session = instance.session("recover", Class::Normal).map_err(session_error)?;
    session.set_action(&format!("clear {name}"));
    let patience = Patience::Until(Deadline::after(wait));
    // SAFETY: both are of the same instance.
    let death = match unsafe { record.get(&session, Mode::Exclusive, location!("retrial recover"), patience) } {
        Ok(_) => None,
        Err(GetError::OwnerDied(mut died)) => {
            died.guard.consistent();
            Some(died.death)
        }
        Err(error) => {
            return Err(miette!(
                code = "retrial::recover::busy",
                help = format!("retrial ps{flag}, or a longer --wait"),
                "mutex {name} is {} ({error}), expected to get it in X within {}",
                record.load(),
                duration::text(wait)
            ));
        }
    };
    let known = death.flatten();
    let table = Table::one([
        ("mutex", name.into()),
        ("was_poisoned", death.is_some().into()),
        ("dead_sid", known.map(|death| death.sid.number()).into()),
        ("dead_mode", known.map(|death| death.mode.name()).into()),
        ("dead_location", known.map(|death| instance.tables().location_name(death.location)).into()),
    ]);
    match (format.is_text(), death) {
        (false, _) => table.print(format),
        (true, None) => format.say(&format!("{name} was not poisoned.")),
        (true, Some(None)) => format.say(&format!("{name} is declared consistent.")),
        (true, Some(Some(death))) => format.say(&format!(
            "{name} is declared consistent. Session {} had died with it in {}, got at {}.",
            death.sid,
            death.mode,
            instance.tables().location_name(death.location)
        )),
    }
    Ok(ExitCode::SUCCESS)
}
