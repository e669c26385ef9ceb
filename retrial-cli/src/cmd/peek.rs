//! `retrial peek`.

use crate::instances::{Which, mutex};
use crate::output::{Column, Format, Table, column};
use miette::{Report, miette};
use retrial::engine::RawMutex;
use retrial::parking::Parking;
use retrial::views::{Sid, Tables, Word};
use std::process::ExitCode;

/// Show raw words of the instance's memory; those of a mutex decoded
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial peek m            the 5 words of mutex m
  retrial peek 0x0 8        the first 8 words of the header")]
pub struct Args {
    /// Offset in the segment in hex (`0x…`), or name of a mutex, or its id with `#`
    #[arg(value_name = "ADDR|MUTEX")]
    at: String,
    /// How many 8-byte words
    #[arg(value_name = "WORDS")]
    words: Option<usize>,
    #[command(flatten)]
    which: Which,
}

/// Words of a mutex record.
const RECORD_WORDS: usize = size_of::<RawMutex>() / 8;

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let observer = args.which.observe()?;
    let start = offset(observer.tables(), &args.at, &args.which)?;
    let names_mutex = !args.at.starts_with("0x");
    let count = args.words.unwrap_or(if names_mutex { RECORD_WORDS } else { 1 });
    // SAFETY: this process has no guard.
    let words =
        unsafe { observer.tables().peek(start, count) }.ok_or_else(|| outside(observer.tables(), start, count))?;
    let columns = columns(observer.tables());
    Table::of(&columns, words.iter().zip(0..).map(|(value, i)| (start + 8 * i, *value))).print(format);
    Ok(ExitCode::SUCCESS)
}

/// Columns of words with their addresses.
pub fn columns(tables: &Tables) -> [Column<'_, (u64, u64)>; 4] {
    let decoded = |&(address, value): &(u64, u64)| {
        let (name, index) = record_around(tables, address)?;
        let (field, meaning) = decode(tables, index, value);
        Some((format!("{name}: {field}"), meaning))
    };
    [
        column("address", |(address, _)| format!("{address:#x}")),
        column("value", |(_, value)| format!("{value:#018x}")),
        column("field", move |word| Some(decoded(word)?.0)),
        column("meaning", move |word| Some(decoded(word)?.1)),
    ]
}

/// The segment offset that the user means.
pub fn offset(tables: &Tables, text: &str, which: &Which) -> Result<u64, Report> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| {
            miette!(
                code = "retrial::peek::address",
                help = "retrial peek 0x0 8",
                "address `{text}`, expected an offset in hex, or a mutex"
            )
        });
    }
    let id = mutex(tables, text)?;
    tables.offset_of(id).ok_or_else(|| elsewhere(text, which))
}

pub fn elsewhere(mutex: &str, which: &Which) -> Report {
    miette!(
        code = "retrial::mutex::elsewhere",
        help = format!("retrial show mutexes{}", which.flag()),
        "mutex {mutex} is in memory of another process, expected one in the instance's arena"
    )
}

pub fn outside(tables: &Tables, start: u64, count: usize) -> Report {
    let len = tables.len_bytes();
    miette!(
        code = "retrial::peek::range",
        help = "retrial peek 0x0 8",
        "{count} words at {start:#x}, expected a multiple of 8 and all words below {len:#x}"
    )
}

/// The mutex whose record the word at `address` belongs to, and which word of it that is.
pub fn record_around(tables: &Tables, address: u64) -> Option<(String, usize)> {
    tables.mutexes().into_iter().find_map(|mutex| {
        let start = tables.offset_of(mutex.id)?;
        let index = usize::try_from(address.checked_sub(start)? / 8).ok()?;
        (index < RECORD_WORDS).then(|| (tables.mutex_name(mutex.id), index))
    })
}

/// Name and meaning of a word of a mutex record.
fn decode(tables: &Tables, index: usize, value: u64) -> (&'static str, String) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    match index {
        0 => ("word", Word(value).to_string()),
        1 => ("parking", Parking(value).to_string()),
        2 => {
            let mutex_type = retrial::views::TypeId((low >> 16) as u8);
            ("kind, id", format!("type {}, #{high}", tables.type_name(mutex_type)))
        }
        3 => ("gets", value.to_string()),
        _ => {
            let drainer = match Sid::new(low) {
                Sid::NONE => "nobody has drained it".to_owned(),
                sid => format!("last drained by sid {sid}"),
            };
            ("drainer, wakes", format!("{drainer}; {high} wake-ups"))
        }
    }
}
