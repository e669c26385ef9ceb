//! `retrial list`.

use crate::instances::address;
use crate::output::{Format, Table};
use miette::{Report, miette};
use retrial::Observer;
use retrial::sys::{Clock, clock_ns};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

/// List the instances of this machine, also those that this build cannot read
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args, format: Format) -> Result<ExitCode, Report> {
    let names = retrial::list().map_err(|error| {
        miette!(
            code = "retrial::list",
            help = format!("ls -ld {}", retrial::layout::DIRECTORY),
            "cannot read {}: {error}; expected a directory with the instances",
            retrial::layout::DIRECTORY
        )
    })?;
    let mut table = Table::new(&["name", "living", "dead", "mutexes", "disk_kb", "age_s", "creator_pid", "error"]);
    for name in &names {
        table.row(row(name));
    }
    if names.is_empty() && format.is_text() {
        format.say(&format!("No instance under {}.\nNext: retrial create demo", retrial::layout::DIRECTORY));
        return Ok(ExitCode::SUCCESS);
    }
    table.print(format);
    format.say(&format!("Next: retrial show -i {}", names.first().map_or("", String::as_str)));
    Ok(ExitCode::SUCCESS)
}

fn row(name: &str) -> Vec<Value> {
    let opened = address(name).map_err(|e| e.to_string()).and_then(|at| {
        let disk_kb = std::fs::symlink_metadata(at.path()).map_or(0, |m| m.blocks() / 2);
        Observer::open(&at).map(|observer| (observer, disk_kb)).map_err(|e| e.to_string())
    });
    match opened {
        Ok((observer, disk_kb)) => {
            let sessions = observer.sessions();
            let dead = sessions.iter().filter(|s| s.dead).count();
            let age_s = clock_ns(Clock::Realtime).saturating_sub(observer.created_ns()) / 1_000_000_000;
            vec![
                name.into(),
                (sessions.len() - dead).into(),
                dead.into(),
                observer.mutexes().len().into(),
                disk_kb.into(),
                age_s.into(),
                observer.creator_pid().into(),
                Value::Null,
            ]
        }
        Err(error) => {
            let mut cells = vec![Value::Null; 8];
            cells[0] = name.into();
            cells[7] = error.into();
            cells
        }
    }
}
