//! `retrial hold`.

use super::peek::elsewhere;
use crate::blocking::Look;
use crate::instances::{Which, mutex_to_hold, object_error, session_error};
use crate::output::{Format, Table, quoted};
use crate::{duration, signals};
use miette::{Report, miette};
use retrial::engine::RawMutex;
use retrial::sys::Deadline;
use retrial::views::{Counter, Figures};
use retrial::{Class, CodeLocation, Death, GetError, Hold, Instance, Mode, MutexId, Patience, Session};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Get a mutex as a session of its own and keep it busy for a time
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial hold m --create --mode X --for 50s          keeps m busy
  retrial hold m --mode S --for 0s --wait 49s         waits for it; see `retrial trace` meanwhile
  retrial hold m --mode X --for 0s --consistent       declares m consistent after the death of a holder")]
pub struct Args {
    /// Name of the mutex, or its id with `#`
    mutex: String,
    #[command(flatten)]
    which: Which,
    /// S, X, LX or E
    #[arg(short, long, value_name = "MODE", default_value = "X")]
    mode: String,
    /// How long to hold it, with its unit; until Ctrl-C when left out
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
    /// How long to wait for it at most, with its unit; for ever when left out
    #[arg(long, value_name = "TIME")]
    wait: Option<String>,
    /// Make the mutex if there is none of this name
    #[arg(long)]
    create: bool,
    /// Mutex type of a mutex that is made
    #[arg(long = "type", value_name = "TYPE", default_value = "Cursor Pin")]
    mutex_type: String,
    /// Priority class of the session: those of class high wait by `wait_yield_hp_mode` in scheme 0
    #[arg(long, value_enum, default_value = "detect")]
    class: ClassArg,
    /// Declare the data consistent when a holder has died
    #[arg(long)]
    consistent: bool,
    /// Location under which the get is counted and logged
    #[arg(long, value_name = "NAME", default_value = "retrial hold")]
    location: String,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum ClassArg {
    Detect,
    Normal,
    High,
}

impl From<ClassArg> for Class {
    fn from(class: ClassArg) -> Self {
        match class {
            ClassArg::Detect => Self::Detect,
            ClassArg::Normal => Self::Normal,
            ClassArg::High => Self::High,
        }
    }
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let mode: Mode = args.mode.parse().map_err(|error| {
        miette!(
            code = "retrial::hold::mode",
            help = format!("retrial hold {}{} --mode X", quoted(&args.mutex), args.which.flag()),
            "{error}"
        )
    })?;
    let time = args.time.as_deref().map(|text| duration::argument("--for", text)).transpose()?;
    let wait = args.wait.as_deref().map(|text| duration::argument("--wait", text)).transpose()?;
    let instance = args.which.attach()?;
    let known = instance.tables().mutex_named(&args.mutex).is_some();
    if !known && !args.create {
        mutex_to_hold(instance.tables(), &args.mutex)?;
    }
    signals::catch();
    let session = instance.session("hold", args.class.into()).map_err(session_error)?;
    session.set_action(&format!("{mode} {}", args.mutex));
    let mutex = find(&instance, &args, known)?;
    let flag = args.which.flag();
    let busy = wait != Some(Duration::ZERO) && mutex.load().grant(session.sid(), mode, false).is_none();
    if busy {
        format.say(&format!("Session {} waits for {} ({}).", session.sid(), args.mutex, mutex.load()));
        format.say(&format!("Next: retrial trace{flag}, retrial ps{flag}"));
    }
    let patience = match wait {
        Some(Duration::ZERO) => Patience::None,
        Some(wait) => Patience::Until(Deadline::after(wait)),
        // A deadline, however far: Ctrl-C ends it.
        None => Patience::Until(Deadline::after(Duration::MAX)),
    };
    // For the life of the command.
    let location: &'static str = Box::leak(args.location.clone().into_boxed_str());
    let location = CodeLocation::new(location);
    // SAFETY: both are of this instance.
    let (mut hold, died) = match unsafe { mutex.get(&session, mode, &location, patience) } {
        Ok(hold) => (hold, None),
        Err(GetError::OwnerDied(died)) => (died.guard, Some(OwnerDied(died.death))),
        Err(GetError::TimedOut) if signals::received().is_some() => {
            format.say(&format!("Session {} has given up waiting for {}.", session.sid(), args.mutex));
            return Ok(ExitCode::SUCCESS); // and dies of the signal
        }
        Err(error) => return Err(not_got(&error, &instance, &args, wait, mutex)),
    };
    let since = Instant::now();
    if args.consistent {
        hold.consistent();
    }
    report(&instance, &session, &hold, &args, died, format);
    while signals::received().is_none() && time.is_none_or(|time| since.elapsed() < time) {
        let left = time.map_or(Duration::MAX, |time| time.saturating_sub(since.elapsed()));
        // A signal between the test and the sleep is seen after this at the latest.
        retrial::sys::sleep(left.min(Duration::from_millis(50)));
    }
    drop(hold);
    format.say(&format!(
        "Session {} has released {} after {}.",
        session.sid(),
        args.mutex,
        duration::text(since.elapsed())
    ));
    Ok(ExitCode::SUCCESS)
}

/// The mutex asked for, made if need be.
fn find<'i>(instance: &'i Instance, args: &Args, known: bool) -> Result<&'i RawMutex, Report> {
    if !known && args.create && !args.mutex.starts_with('#') {
        // SAFETY: our session is of this instance.
        return unsafe { instance.mutex_record::<u64>(&args.mutex, &args.mutex_type) }.map_err(object_error);
    }
    let id = mutex_to_hold(instance.tables(), &args.mutex)?;
    // SAFETY: our session is of this instance.
    unsafe { instance.mutex_in_arena(id) }.ok_or_else(|| elsewhere(&args.mutex, &args.which))
}

fn not_got(
    error: &GetError<Hold<'_>>,
    instance: &Instance,
    args: &Args,
    wait: Option<Duration>,
    mutex: &RawMutex,
) -> Report {
    let flag = args.which.flag();
    let by = match Look::at_awaited(instance.tables()).holders_text(mutex.id()) {
        none if none.is_empty() => String::new(),
        some => format!(", held by session {some}"),
    };
    let within = wait.map_or_else(String::new, |wait| format!(" within {}", duration::text(wait)));
    match error {
        GetError::TimedOut | GetError::Busy => miette!(
            code = "retrial::hold::busy",
            help = format!("retrial ps{flag}, or a longer --wait"),
            "mutex {} is busy ({}{by}), expected to get it{within}",
            args.mutex,
            mutex.load()
        ),
        other => miette!(code = "retrial::hold::get", help = format!("retrial ps{flag}"), "{other}"),
    }
}

/// What the wait of this session's one get came to.
fn wait_of(instance: &Instance, session: &Session<'_>, id: MutexId) -> Figures {
    let mut sum = Figures::default();
    for (_, _, figures) in
        instance.tables().figures().iter().filter(|(sid, key, _)| *sid == session.sid() && key.mutex == id)
    {
        sum.add(figures);
    }
    sum
}

/// The get was told that a holder died; what is known of it.
#[derive(Clone, Copy)]
struct OwnerDied(Option<Death>);

fn report(
    instance: &Instance,
    session: &Session<'_>,
    hold: &Hold<'_>,
    args: &Args,
    died: Option<OwnerDied>,
    format: Format,
) {
    let figures = wait_of(instance, session, hold.mutex().id());
    let waited = Duration::from_nanos(figures.get(Counter::WaitNs));
    let steps = [Counter::Yields, Counter::Sleeps, Counter::Parks].map(|counter| figures.get(counter));
    let known = died.and_then(|died| died.0);
    let place = known.map(|death| instance.tables().location_name(death.location));
    if !format.is_text() {
        let cells = [
            ("sid", session.sid().number().into()),
            ("mutex", args.mutex.clone().into()),
            ("mode", hold.mode().name().into()),
            ("wait_ms", (waited.as_secs_f64() * 1e3).into()),
            ("yields", steps[0].into()),
            ("sleeps", steps[1].into()),
            ("parks", steps[2].into()),
            ("owner_died", died.is_some().into()),
            ("dead_sid", known.map(|death| death.sid.number()).into()),
            ("dead_mode", known.map(|death| death.mode.name()).into()),
            ("dead_location", place.into()),
            ("consistent", (!hold.mutex().load().has(retrial::views::Word::POISONED)).into()),
        ];
        Table::one(cells).print(format);
        return;
    }
    let how = match figures.get(Counter::Waits) {
        0 => "at once".to_owned(),
        _ => format!("after {}: {} yields, {} sleeps, {} parks", duration::text(waited), steps[0], steps[1], steps[2]),
    };
    format.say(&format!("Session {} holds {} in {}, got {how}.", session.sid(), args.mutex, hold.mode()));
    if died.is_none() {
        return;
    }
    match (known, place) {
        (Some(death), Some(place)) => format.say(&format!(
            "Owner died: session {} held {} in {}, got at {place}; its data may be half changed.",
            death.sid, args.mutex, death.mode
        )),
        _ => format.say("Owner died; its data may be half changed."),
    }
    if !hold.mutex().load().has(retrial::views::Word::POISONED) {
        format.say(&format!("{} is declared consistent.", args.mutex));
    } else if args.consistent {
        format.say("S cannot declare it consistent; X, LX and E can.");
    } else {
        format.say(&format!("Next: retrial recover{} --clear-poison {}", args.which.flag(), quoted(&args.mutex)));
    }
}
