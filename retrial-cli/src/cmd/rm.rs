//! `retrial rm`.

use crate::instances::{address, attach_error};
use crate::output::{Format, Table};
use miette::{Report, miette};
use retrial::{AttachError, Observer};
use std::process::ExitCode;

/// Remove an instance; refuses while living sessions are in it
#[derive(clap::Args)]
pub struct Args {
    /// Name of the instance, or a path with `/`
    name: String,
    /// Also while living sessions are in it (they go on, nobody new finds it), or when this build cannot tell
    #[arg(short, long)]
    force: bool,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let at = address(&args.name)?;
    let forced = format!("retrial rm {} --force", args.name);
    let living = match Observer::open(&at) {
        Ok(observer) => observer.tables().sessions().iter().filter(|s| !s.dead).count(),
        Err(error @ AttachError::Format { .. }) if !args.force => {
            return Err(miette!(
                code = "retrial::rm::format",
                help = forced,
                "{error}, so that it cannot tell whether living sessions are in it; expected a segment of this build"
            ));
        }
        // What is damaged has no sessions that anybody could count on.
        Err(AttachError::Format { .. } | AttachError::Truncated { .. } | AttachError::Capacity { .. }) => 0,
        Err(error) => return Err(attach_error(error)),
    };
    if living > 0 && !args.force {
        return Err(miette!(
            code = "retrial::rm::in_use",
            help = format!("retrial ps -i {} shows them; {forced}", args.name),
            "{living} living session{} in instance `{}`, expected none",
            if living == 1 { "" } else { "s" },
            args.name
        ));
    }
    retrial::remove(&at).map_err(attach_error)?;
    let path = at.path().display().to_string();
    if format.is_text() {
        let rest = if living > 0 { format!("; {living} living sessions go on with it") } else { String::new() };
        format.say(&format!("Removed {} ({path}){rest}.", args.name));
    } else {
        Table::one([("name", args.name.into()), ("path", path.into()), ("living", living.into())]).print(format);
    }
    Ok(ExitCode::SUCCESS)
}
