//! `retrial create`.

use crate::instances::{address, create_error};
use crate::output::{Format, Table, counted, quoted};
use miette::{Report, miette};
use retrial::{Capacity, Instance};
use std::process::ExitCode;

/// Create an instance: shared memory with its own mutexes, sessions, parameters and figures
#[derive(clap::Args)]
#[command(after_help = "Example: retrial create demo --sessions 64 --arena 4M")]
pub struct Args {
    /// Name under /dev/shm, or a path with `/`
    name: String,
    /// Sessions at a time
    #[arg(long, value_name = "N", default_value_t = Capacity::default().sessions)]
    sessions: u32,
    /// Mutexes that can be registered
    #[arg(long, value_name = "N", default_value_t = Capacity::default().mutexes)]
    mutexes: u32,
    /// Locations that can be registered
    #[arg(long, value_name = "N", default_value_t = Capacity::default().locations)]
    locations: u32,
    /// Combinations of mutex, location and event that each session counts apart
    #[arg(long, value_name = "N", default_value_t = Capacity::default().rows)]
    rows: u32,
    /// Memory for named mutexes and their data, with K, M or G
    #[arg(long, value_name = "BYTES", default_value = "1M")]
    arena: String,
    /// Permissions of the file, octal
    #[arg(long, value_name = "MODE", default_value = "0600")]
    mode: String,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let at = address(&args.name)?;
    let capacity = Capacity {
        sessions: args.sessions,
        mutexes: args.mutexes,
        locations: args.locations,
        rows: args.rows,
        arena: bytes("--arena", &args.arena)?,
    };
    let permissions = permissions(&args.mode)?;
    let instance = Instance::create(&at, capacity, permissions).map_err(create_error)?;
    crate::calibration::apply(&instance);
    let path = at.path().display().to_string();
    if format.is_text() {
        format.say(&format!(
            "Created {} ({path}): {}, {}; {} KB at most, used as needed.",
            args.name,
            counted(capacity.sessions.into(), "session", "sessions"),
            counted(capacity.mutexes.into(), "mutex", "mutexes"),
            instance.tables().len_bytes().div_ceil(1024),
        ));
        format.say(&format!("Next: retrial hold m -i {} --create --mode X --for 50s", quoted(&args.name)));
    } else {
        let cells = [
            ("name", args.name.into()),
            ("path", path.into()),
            ("sessions", capacity.sessions.into()),
            ("mutexes", capacity.mutexes.into()),
            ("locations", capacity.locations.into()),
            ("rows", capacity.rows.into()),
            ("arena_bytes", capacity.arena.into()),
            ("mode", format!("{permissions:04o}").into()),
            ("bytes", instance.tables().len_bytes().into()),
        ];
        Table::one(cells).print(format);
    }
    Ok(ExitCode::SUCCESS)
}

/// What an option of this name says: `4096`, `64K`, `1M`, `2G`.
pub fn bytes(option: &str, text: &str) -> Result<u64, Report> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|n| n.checked_mul(1 << shift)).ok_or_else(|| {
        miette!(
            code = "retrial::create::bytes",
            help = format!("{option} 1M"),
            "{option} `{text}`, expected a number of bytes, or one with K, M or G"
        )
    })
}

fn permissions(text: &str) -> Result<u32, Report> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| *mode <= 0o777 && mode & 0o600 == 0o600).ok_or_else(|| {
        miette!(
            code = "retrial::create::mode",
            help = "--mode 0600 for oneself, 0660 for the group too",
            "--mode `{text}`, expected octal permissions from 0600 to 0777 with which the owner can read and write"
        )
    })
}
