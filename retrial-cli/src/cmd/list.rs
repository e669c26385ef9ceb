//! `retrial list`.

use crate::instances::{address, names as instance_names};
use crate::output::{Format, Table, column, quoted};
use miette::Report;
use retrial::Observer;
use retrial::sys::{Clock, clock_ns};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

/// List the instances of this machine, also those that this build cannot read
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args, format: Format) -> Result<ExitCode, Report> {
    let names = instance_names()?;
    if names.is_empty() && format.is_text() {
        format.say(&format!("No instance under {}.\nNext: retrial create demo", retrial::layout::DIRECTORY));
        return Ok(ExitCode::SUCCESS);
    }
    let ok = |found: &Found| found.opened.as_ref().ok().cloned();
    let columns = [
        column("name", |found: &Found| found.name.clone()),
        column("living", |found: &Found| Some(ok(found)?.living)),
        column("dead", |found: &Found| Some(ok(found)?.dead)),
        column("mutexes", |found: &Found| Some(ok(found)?.mutexes)),
        column("disk_kb", |found: &Found| Some(ok(found)?.disk_kb)),
        column("age_s", |found: &Found| Some(ok(found)?.age_s)),
        column("creator_pid", |found: &Found| Some(ok(found)?.creator_pid)),
        column("error", |found: &Found| found.opened.as_ref().err().cloned()),
    ];
    let all: Vec<Found> = names.iter().map(|name| Found::new(name)).collect();
    Table::of(&columns, &all).print(format);
    let readable = all.iter().find(|found| found.opened.is_ok());
    let next = readable.map(|found| format!("retrial show -i {}", quoted(&found.name)));
    format.say(&format!("Next: {}", next.unwrap_or_else(|| "retrial create demo".to_owned())));
    Ok(ExitCode::SUCCESS)
}

/// An instance, or why it cannot be read.
struct Found {
    name: String,
    opened: Result<Opened, String>,
}

#[derive(Clone)]
struct Opened {
    living: usize,
    dead: usize,
    mutexes: usize,
    disk_kb: u64,
    age_s: u64,
    creator_pid: u32,
}

impl Found {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), opened: Opened::new(name) }
    }
}

impl Opened {
    fn new(name: &str) -> Result<Self, String> {
        let at = address(name).map_err(|error| error.to_string())?;
        let disk_kb = std::fs::symlink_metadata(at.path()).map_or(0, |metadata| metadata.blocks() / 2);
        let observer = Observer::open(&at).map_err(|error| error.to_string())?;
        let sessions = observer.tables().sessions();
        let dead = sessions.iter().filter(|session| session.dead).count();
        Ok(Self {
            living: sessions.len() - dead,
            dead,
            mutexes: observer.tables().mutexes().len(),
            disk_kb,
            age_s: clock_ns(Clock::Realtime).saturating_sub(observer.tables().created_ns()) / 1_000_000_000,
            creator_pid: observer.tables().creator_pid(),
        })
    }
}
