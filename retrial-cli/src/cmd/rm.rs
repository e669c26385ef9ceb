//! `retrial rm`.

use crate::instances::{address, attach_error, names};
use crate::output::{Format, Table, column, quoted};
use miette::{Report, miette};
use retrial::views::Tables;
use retrial::{Address, AttachError, Instance, Observer};
use std::process::ExitCode;

/// Remove instances; refuses while living sessions are in one
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial rm bank
  retrial rm --dead        what kept and killed runs have left")]
pub struct Args {
    /// Names of instances, or paths with `/`
    #[arg(value_name = "NAME", required_unless_present = "dead")]
    names: Vec<String>,
    /// Also while living sessions are in it (they go on, nobody new finds it), or when this build cannot tell
    #[arg(short, long, conflicts_with = "dead")]
    force: bool,
    /// Only what runs have left: no session lives, there is no room for named mutexes, and the creator is
    /// gone. Without names, of all
    #[arg(long)]
    dead: bool,
}

/// What was removed.
struct Removed {
    name: String,
    path: String,
    living: usize,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let names = if args.dead { left_by_runs(args.names)? } else { args.names };
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    for name in &names {
        match remove(name, args.force) {
            Ok(one) => removed.push(one),
            Err(report) => failed.push(report),
        }
    }
    if format.is_text() {
        for Removed { name, path, living } in &removed {
            let rest = if *living > 0 { format!("; {living} living sessions go on with it") } else { String::new() };
            format.say(&format!("Removed {name} ({path}){rest}."));
        }
        if names.is_empty() {
            format.say("No run has left an instance.\nNext: retrial list");
        }
    } else if failed.is_empty() || !removed.is_empty() {
        let columns = [
            column("name", |removed: &Removed| removed.name.clone()),
            column("path", |removed: &Removed| removed.path.clone()),
            column("living", |removed: &Removed| removed.living),
        ];
        Table::of(&columns, &removed).print(format);
    }
    // The last one is the command's own error; all are said.
    let last = failed.pop();
    for report in &failed {
        eprintln!("{report:?}");
    }
    last.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Which of the instances runs have left: they have no sessions, no process makes them, and they can have
/// nothing but figures.
fn left_by_runs(named: Vec<String>) -> Result<Vec<String>, Report> {
    let is_gone = |pid: u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
    let is_left =
        |tables: &Tables| tables.capacity().arena == 0 && living(tables) == 0 && is_gone(tables.creator_pid());
    let opened = |name: &String| Observer::open(&address(name)?).map_err(attach_error);
    if named.is_empty() {
        let is_dead = |name: &String| opened(name).is_ok_and(|observer| is_left(observer.tables()));
        return Ok(names()?.into_iter().filter(is_dead).collect());
    }
    // A name that is no instance's is an error.
    let observers = named.iter().map(opened).collect::<Result<Vec<_>, _>>()?;
    let all = named.into_iter().zip(observers);
    Ok(all.filter(|(_, observer)| is_left(observer.tables())).map(|(name, _)| name).collect())
}

fn living(tables: &Tables) -> usize {
    tables.sessions().iter().filter(|session| !session.dead).count()
}

/// Sessions whose threads live: the kernel marks no more than 2,048 sessions of a thread that is killed, so
/// each thread is asked for before an instance is taken to be in use.
fn found_living(at: &Address, tables: &Tables) -> usize {
    if let Ok(instance) = Instance::attach(at) {
        instance.look_for_threads();
    }
    living(tables)
}

fn remove(name: &str, force: bool) -> Result<Removed, Report> {
    let at = address(name)?;
    let forced = format!("retrial rm {} --force", quoted(name));
    let living = match Observer::open(&at) {
        Ok(observer) => match living(observer.tables()) {
            0 => 0,
            _ => found_living(&at, observer.tables()),
        },
        Err(error @ AttachError::Format { .. }) if !force => {
            return Err(miette!(
                code = "retrial::rm::format",
                help = forced,
                "{error}, so that it cannot tell whether living sessions are in it; expected a segment of this build"
            ));
        }
        // A damaged instance has no sessions that can be relied on.
        Err(AttachError::Format { .. } | AttachError::Truncated { .. } | AttachError::Capacity { .. }) => 0,
        Err(error) => return Err(attach_error(error)),
    };
    if living > 0 && !force {
        return Err(miette!(
            code = "retrial::rm::in_use",
            help = format!("retrial ps -i {} shows them; {forced}", quoted(name)),
            "{living} living session{} in instance `{name}`, expected none",
            if living == 1 { "" } else { "s" },
        ));
    }
    retrial::remove(&at).map_err(attach_error)?;
    Ok(Removed { name: name.to_owned(), path: at.path().display().to_string(), living })
}
