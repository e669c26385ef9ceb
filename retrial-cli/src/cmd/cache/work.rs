//! `retrial cache work`: the sources' loads, each by many sessions for a while, and what came of it.

use super::{One, duration, signals};
use crate::instances::param_error;
use crate::output::{Format, quoted};
use crate::recording::Snapshot;
use crate::settings::trial::{Trial, Tried};
use crate::work::{Name, crew, prepare, report};
use miette::{Report, miette};
use retrial::{Instance, P};
use retrial_bench::outcome::Kind;
use retrial_cache::{Hash, Key};
use std::process::ExitCode;

/// Have many sessions work on the objects of a cache as those of the published workloads do
///
/// Says at the end how much was executed, what sessions waited for and where, as the instance counts it, and
/// the share of the processors that they took. Sessions see each other's work: run it while `retrial top`
/// looks on.
///
/// `--csv` prints the figures of the run without the waits.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial cache work library-cache --sessions 8 --for 5s --scheme backoff
  retrial cache work library-cache --sessions 8 --for 5s --scheme backoff --mark-hot SCOTT.DEMO_PROC=4
  retrial cache work hash-table --sessions 64 --kind processes
  retrial cache work tpcc --kind processes --kill 100     exit code 1 where the tables are not consistent")]
pub struct Args {
    /// What sessions do
    #[arg(value_enum, default_value = "cursor-pin")]
    load: Name,
    #[command(flatten)]
    one: One,
    /// Sessions
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    sessions: u32,
    /// What a session is
    #[arg(long, value_enum, default_value = "threads")]
    kind: Kind,
    /// How long, with its unit
    #[arg(long = "for", value_name = "TIME", default_value = "5s")]
    time: String,
    /// How long an execution runs, as busy work
    #[arg(long, value_name = "TIME", default_value = "3us")]
    run: String,
    /// Time between two executions of a session, as busy work
    #[arg(long, value_name = "TIME", default_value = "0s")]
    think: String,
    /// Each session changes the object of `cursor-pin`, `library-cache` or `reads` after so many executions: its copies
    /// have to be made again
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    change_after: Option<u64>,
    /// Wait scheme of the types of mutexes that the load uses, for the time of the run: other sessions of the
    /// instance wait by it too. Then the types have their own again, also when this command is killed
    #[arg(long, value_name = "NAME")]
    scheme: Option<String>,
    /// Spread the sessions over 2 to 255 copies of an object of the load, as `mark-hot` does; may be
    /// repeated. It stays marked: `unmark-hot` takes it back
    #[arg(long, value_name = "OBJECT=COPIES")]
    mark_hot: Vec<String>,
    /// Kill so many processes at random moments of the run, and start another one for each
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    kill: u32,
}

pub fn run(args: &Args, format: Format) -> Result<ExitCode, Report> {
    let (types, counts) = args.load.uses();
    let plan = crew::Plan {
        name: args.load.text(),
        sessions: args.sessions,
        kind: args.kind,
        time: duration::argument("--for", &args.time)?,
        run: duration::argument("--run", &args.run)?,
        think: duration::argument("--think", &args.think)?,
        change_after: args.change_after,
        kills: args.kill,
        counts,
        shows: true,
    };
    if args.change_after.is_some() && !args.load.changes() {
        return Err(miette!(
            code = "retrial::cache::change",
            help = "retrial cache work cursor-pin --change-after 10",
            "--change-after with {}, expected cursor-pin, library-cache or reads",
            args.load.text()
        ));
    }
    if args.kill > 0 && args.kind == Kind::Threads {
        let help = "retrial cache work --kind processes --kill 100";
        return Err(miette!(
            code = "retrial::cache::kill",
            help = help,
            "--kill {} with threads, expected processes",
            args.kill
        ));
    }
    let scheme = args.scheme.as_deref().map(|text| P::Scheme.parse(text, retrial::wait::DEFAULT));
    let scheme = scheme.transpose().map_err(|error| param_error(&error))?;
    let instance = args.one.which.attach()?;
    let load = args.load.load(&instance, &args.one.cache)?;
    let objects = load.objects();
    let hot = args.mark_hot.iter().map(|text| hot(text, &objects, args.load)).collect::<Result<Vec<_>, _>>()?;
    prepare(&instance, &args.one.cache, &objects, &hot)?;
    signals::catch();
    let trial = scheme.map(|scheme| tried(&instance, types, scheme)).transpose()?;
    let before = Snapshot::of(instance.tables());
    let outcome = crew::run(&plan, &*load, &instance)?;
    let after = Snapshot::of(instance.tables());
    drop(trial);
    report::print(&plan, &outcome, (&before, &after), format);
    Ok(match (outcome.failed, outcome.wrong.is_empty()) {
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}

/// The object of a load that `OBJECT=COPIES` names, and how many copies.
fn hot<'o>(text: &str, objects: &'o [Key<'static>], load: Name) -> Result<(&'o Key<'static>, u8), Report> {
    let names = || objects.iter().map(Key::to_string).collect::<Vec<_>>();
    let help = |names: &[String]| {
        let first = names.first().map_or_else(|| "OBJECT".to_owned(), Clone::clone);
        format!("--mark-hot {}", quoted(&format!("{first}=4")))
    };
    // A statement may have an equals sign.
    let copies = text.rsplit_once('=').and_then(|(object, copies)| Some((object, copies.parse::<u8>().ok()?)));
    let Some((object, copies)) = copies.filter(|(_, copies)| *copies >= 2) else {
        return Err(miette!(
            code = "retrial::cache::mark_hot",
            help = help(&names()),
            "--mark-hot {text}, expected OBJECT=COPIES with 2 to 255 copies"
        ));
    };
    let is_it = |key: &&Key<'_>| key.to_string() == object || Hash::parse(object) == Some(key.hash());
    objects.iter().find(is_it).map(|key| (key, copies)).ok_or_else(|| {
        let names = names();
        let expected = if names.is_empty() { "none: it has no objects".to_owned() } else { names.join(", ") };
        let load = load.text();
        miette!(
            code = "retrial::cache::unknown",
            help = help(&names),
            "no object `{object}` in load {load}, expected one of: {expected}"
        )
    })
}

/// A wait scheme for these types, until it is dropped.
fn tried<'i>(instance: &'i Instance, types: &[&str], scheme: u64) -> Result<Trial<'i>, Report> {
    let setting = |name: &&str| {
        instance.register_type(name).map_err(|error| crate::instances::object_error(error.into()))?;
        Ok(Tried::new(name, P::Scheme, scheme))
    };
    Trial::begin(instance, types.iter().map(setting).collect::<Result<_, Report>>()?)
}
