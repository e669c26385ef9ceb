//! `retrial show`: the views of an instance.

pub mod figures;
mod instance;
mod params;

use crate::blocking::{Deadlock, Look};
use crate::instances::{Which, mutex, mutex_type};
use crate::naming::Names;
use crate::output::{Format, quoted};
use crate::recording::{Mutex, Period, Snapshot};
use miette::{Report, miette};
use retrial::sys::now_ns;
use retrial::views::{Cost, Place, TypeId};
use retrial::{MutexId, Observer};
use std::process::ExitCode;

/// Show what is in an instance: parameters, mutexes, wait events, sleeps
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial show params mutex_wait_time
  retrial show params --type 'Cursor Pin'
  retrial show mutexes
  retrial show sleeps --csv")]
pub struct Args {
    /// Which view
    #[arg(value_enum, default_value = "instance")]
    view: View,
    /// Of params: a parameter; of mutexes: a mutex
    name: Option<String>,
    #[command(flatten)]
    which: Which,
    /// Of params: the values in force for this mutex type; of mutexes and sleeps: only those of the type
    #[arg(long = "type", value_name = "TYPE")]
    mutex_type: Option<String>,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum View {
    /// The instance: sizes, ages, counts
    Instance,
    /// Parameters: value, default, range, unit, where set
    Params,
    /// Mutexes: word, gets, misses, sleeps, ρ κ k, scheme in use
    Mutexes,
    /// Mutex types
    Types,
    /// Locations in the code
    Locations,
    /// Wait events with the split of their time
    Events,
    /// Mutex sleeps by type and location
    Sleeps,
    /// Mutex sleep history: the last sleep behind each blocker
    History,
    /// The machine: processors, kernel, what the steps of a wait cost
    Machine,
}

/// Mutexes that people are shown; JSON and CSV have all.
const MUTEXES: usize = 40;

/// What a view may be narrowed to.
#[derive(Default)]
pub struct Only {
    name: Option<String>,
    mutex: Option<MutexId>,
    mutex_type: Option<TypeId>,
    type_name: Option<String>,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let narrowed = |what: &str, views: &str| {
        miette!(
            code = "retrial::show::narrowed",
            help = format!("retrial show {}", format!("{:?}", args.view).to_lowercase()),
            "{what} with view {}, expected it with {views} only",
            format!("{:?}", args.view).to_lowercase()
        )
    };
    if args.name.is_some() && !matches!(args.view, View::Params | View::Mutexes) {
        return Err(narrowed("a name", "params or mutexes"));
    }
    if args.mutex_type.is_some() && !matches!(args.view, View::Params | View::Mutexes | View::Sleeps) {
        return Err(narrowed("--type", "params, mutexes or sleeps"));
    }
    let observer = args.which.observe()?;
    let mut only = Only { name: args.name, type_name: args.mutex_type, ..Only::default() };
    only.mutex_type = only.type_name.as_deref().map(|text| mutex_type(observer.tables(), text)).transpose()?;
    if args.view == View::Mutexes {
        only.mutex = only.name.as_deref().map(|text| mutex(observer.tables(), text)).transpose()?;
    }
    render(args.view, &observer, &only, &args.which, format)?;
    Ok(ExitCode::SUCCESS)
}

fn render(view: View, observer: &Observer, only: &Only, which: &Which, format: Format) -> Result<(), Report> {
    if view == View::Params {
        return params::print(observer, only, which, format);
    }
    let (flag, tables) = (which.flag(), observer.tables());
    // The other views take no memory, also where there is none.
    let is_of_snapshot = matches!(view, View::Mutexes | View::Events | View::Sleeps | View::History);
    let to = if is_of_snapshot { Snapshot::of(tables) } else { Snapshot::default() };
    let mut table = match view {
        View::Instance | View::Params => instance::instance(observer),
        View::Mutexes => figures::mutexes(&to, only),
        View::Types => instance::types(observer),
        View::Locations => instance::locations(observer),
        View::Events => figures::events(&to),
        View::Sleeps => figures::sleeps(Period::since_creation(&to), only.mutex_type),
        View::History => figures::history(&to),
        View::Machine => instance::machine(observer),
    };
    if table.is_empty() && format.is_text() {
        format.say(match view {
            View::Mutexes => "No mutexes.",
            View::Locations => "No locations.",
            _ => "Nobody has waited yet.",
        });
    } else {
        let left_out = if view == View::Mutexes && format.is_text() { table.shorten(MUTEXES) } else { 0 };
        table.print(format);
        if left_out > 0 {
            format.say(&format!("… {left_out} more, waited for less. All: retrial show mutexes{flag} --csv"));
        }
    }
    if matches!(view, View::Instance | View::Mutexes | View::Events | View::Sleeps) && format.is_text() {
        for deadlock in Look::at_awaited(tables).deadlocks() {
            format.say(&Deadlock::new(deadlock, &mut Names::new(tables)).text(now_ns()));
        }
    }
    match view {
        View::Instance => {
            format.say(&format!("Next: retrial ps{flag}, retrial show mutexes{flag}, retrial show params{flag}"));
        }
        View::Mutexes if table.is_empty() => format.say(&format!("Next: retrial hold m{flag} --create --for 50s")),
        View::Mutexes => {
            // Of a mutex whose words are in the instance.
            let in_arena = |mutex: &&Mutex| mutex.info.place == Place::Arena && !mutex.name.is_empty();
            let peek = to.mutexes.iter().find(in_arena);
            let peek = peek.map(|mutex| format!("retrial peek{flag} {}", quoted(&mutex.name)));
            format.say(&format!("Next: retrial show sleeps{flag}, {}", peek.unwrap_or(format!("retrial ps{flag}"))));
        }
        View::Machine if tables.costs().get(Cost::WakeFar).is_none() => {
            let name = tables.address().map_or_else(String::new, |at| format!(" -i {at}"));
            format.say(&format!("Costs without a value were not measured. Next: retrial calibrate{name}"));
        }
        View::Events => format.say(&format!("Next: retrial show sleeps{flag}, retrial trace{flag}")),
        _ => {}
    }
    Ok(())
}
