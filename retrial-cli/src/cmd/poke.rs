//! `retrial poke`.

use super::peek;
use crate::instances::Which;
use crate::output::{Format, Table, column, quoted};
use miette::{Report, miette};
use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

/// Overwrite a word of the instance's memory: fakes a busy mutex, or breaks the instance
#[derive(clap::Args)]
#[command(after_help = "Example: SID 1 holds m in E, with one shared reference, until 0 is poked
  retrial poke m 0x0000000100000001
  retrial poke m 0")]
pub struct Args {
    /// Offset in the segment in hex (`0x…`), or name of a mutex (its word), or its id with `#`
    #[arg(value_name = "ADDR|MUTEX")]
    at: String,
    /// The new word, in decimal or in hex (`0x…`)
    value: String,
    #[command(flatten)]
    which: Which,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let value = number(&args)?;
    let observer = args.which.observe()?;
    let at = peek::offset(observer.tables(), &args.at, &args.which)?;
    // SAFETY: this process has no guard.
    let before = unsafe { observer.tables().peek(at, 1) }.ok_or_else(|| peek::outside(observer.tables(), at, 1))?[0];
    if !args.yes {
        ask(&args, at, before, value)?;
    }
    let instance = args.which.attach()?;
    // SAFETY: what the user asked for and was asked about; this process has no session and looks at nothing
    // after it but words.
    if !unsafe { instance.poke(at, value) } {
        return Err(peek::outside(instance.tables(), at, 1));
    }
    let when = column("when", |word: &(u64, u64)| if word.1 == before { "BEFORE" } else { "AFTER" });
    let columns: Vec<_> = std::iter::once(when.titled("")).chain(peek::columns(instance.tables())).collect();
    Table::of(&columns, [(at, before), (at, value)]).print(format);
    format.say(&format!("Next: retrial poke {}{} {before:#018x}   (puts it back)", args.at, args.which.flag()));
    Ok(ExitCode::SUCCESS)
}

fn number(args: &Args) -> Result<u64, Report> {
    let text = &args.value;
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(&digits.replace('_', ""), 16),
        None => text.parse(),
    };
    value.map_err(|_| {
        miette!(
            code = "retrial::poke::value",
            help = format!("retrial poke {} 0x0000000100000001", quoted(&args.at)),
            "value `{text}`, expected a number of at most 64 bits, in decimal or in hex with 0x"
        )
    })
}

/// Asks on the terminal; without one there is no answer, and nothing is written.
fn ask(args: &Args, at: u64, before: u64, value: u64) -> Result<(), Report> {
    let refuse = |found: &str| {
        miette!(
            code = "retrial::poke::refused",
            help = format!("retrial poke {}{} {} --yes", args.at, args.which.flag(), args.value),
            "nothing overwritten: {found}, expected `yes` or --yes"
        )
    };
    if !io::stdin().is_terminal() {
        return Err(refuse("there is no terminal to ask on"));
    }
    let _ = write!(
        io::stderr(),
        "The word at {at:#x} is {before:#018x} and becomes {value:#018x}. Nothing protects what is overwritten.\n\
         Type yes to overwrite: "
    );
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "yes" => Ok(()),
        other => Err(refuse(&format!("`{other}` was typed"))),
    }
}
