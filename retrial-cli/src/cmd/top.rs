//! `retrial top`.

use crate::instances::Which;
use crate::output::{self, Format, line};
use crate::top::{self, Seen, State, live, rows, terminal};
use crate::{duration, signals};
use miette::{Report, miette};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Watch an instance on the terminal: load, mutexes, sessions, the tree of who waits for whom
///
/// The first screen has figures since the creation of the instance, all others those since the look before;
/// the first line says which. `?` shows the keys. A mutex or a session is opened with Enter; there parameters
/// can be changed, after a confirmation, and back with `u`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial top -i bank
  retrial top -p 4242 --every 5s       of the instance that process 4242 is in, also a program under `retrial run`
  retrial top --once > screen.txt      one screen, of what happens in the next second")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: String,
    /// Print one screen, of what happens in the time of --every, and end; with --json and --csv rows
    #[arg(long)]
    once: bool,
}

/// Shortest time between two looks.
const EVERY_MIN: Duration = Duration::from_millis(10);

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let every = duration::at_least("--every", &args.every, EVERY_MIN)?;
    if !args.once {
        has_screen(format)?;
    }
    let which = args.which.by_name()?;
    let observer = which.observe()?;
    signals::catch();
    let name = observer.tables().address().map_or_else(String::new, ToString::to_string);
    if args.once {
        once(live::once(&observer, every), name, format);
        return Ok(ExitCode::SUCCESS);
    }
    let wish = live::Wish::default();
    let (told, news) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| live::watch(&which, observer, every, &wish, &told));
        let mut state = State::new(name);
        let ended = terminal::interact(&mut state, &which, &news, &wish);
        wish.stop.store(true, Ordering::Relaxed);
        looker.thread().unpark();
        ended
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Whether there is a terminal to draw on.
fn has_screen(format: Format) -> Result<(), Report> {
    let kind = std::env::var("TERM").unwrap_or_default();
    let found = if !format.is_text() {
        "--json and --csv have no screen"
    } else if !std::io::stdout().is_terminal() {
        "standard output is no terminal"
    } else if !std::io::stdin().is_terminal() {
        "standard input is no terminal, keys cannot be read"
    } else if kind.is_empty() {
        "TERM is not set"
    } else if kind == "dumb" {
        "TERM is dumb, a terminal that cannot be drawn on"
    } else {
        return Ok(());
    };
    Err(miette!(
        code = "retrial::top::terminal",
        help = "retrial top --once",
        "{found}; expected a terminal, or --once for one screen as text"
    ))
}

/// Columns of a screen where there is no terminal.
const WIDTH: u16 = 120;

fn once(seen: Seen, name: String, format: Format) {
    if format.json {
        output::json(&rows::json(&seen));
    } else if format.csv {
        rows::mutexes(&seen).print(format);
    } else {
        line(&top::once(Arc::new(seen), name, terminal::width().unwrap_or(WIDTH)));
    }
}
