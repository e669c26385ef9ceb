//! `retrial trace`.

use crate::blocking::Look;
use crate::instances::{Presence, Which, mutex};
use crate::naming::Names;
use crate::output::{Column, Format, Stream, column, in_line};
use crate::{duration, signals};
use miette::{Report, miette};
use retrial::views::{Event, Sid, What};
use retrial::{MutexId, Observer};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Follow the waits: each step as it happens, equal steps folded into runs
///
/// A run is printed when the next one begins or the wait ends. Reads the instance only: no session, no cost
/// to the waiters.
#[derive(clap::Args)]
#[command(after_help = "Example, in a second terminal while `retrial hold m --for 50s` runs in the first:
  retrial hold m --mode S --for 0s & retrial trace --until-idle")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Only waits of this session
    #[arg(long, value_name = "SID")]
    session: Option<u32>,
    /// Only waits for this mutex: its name, or its id with `#`
    #[arg(long, value_name = "MUTEX")]
    mutex: Option<String>,
    /// End after this time, with its unit; at Ctrl-C when left out
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
    /// End when nobody waits any more; waits for a first wait
    #[arg(long)]
    until_idle: bool,
}

/// Shortest time between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// Time between two looks for each session: a look at one that does not wait is a load, so that this is a few
/// percent of a processor however many there are.
const PAUSE_PER_SESSION: Duration = Duration::from_nanos(500);

/// What is printed of a session: a run of steps, or that runs were lost, or that it died.
struct Seen {
    sid: Sid,
    what: &'static str,
    count: Option<u64>,
    run: Option<Event>,
}

fn columns<'a>(names: &'a RefCell<Names<'_>>) -> [Column<'a, Seen>; 11] {
    [
        column("sid", |seen: &Seen| seen.sid.number()),
        column("number", |seen: &Seen| Some(seen.run?.number)),
        column("what", |seen: &Seen| seen.what),
        column("count", |seen: &Seen| seen.count),
        column("asked_ns", |seen: &Seen| Some(duration::nanos(seen.run?.asked))),
        column("actual_ns", |seen: &Seen| Some(duration::nanos(seen.run?.actual))),
        column("started_ns", |seen: &Seen| Some(seen.run?.started_ns)),
        column("mutex", |seen: &Seen| Some(names.borrow_mut().mutex(seen.run?.mutex))),
        column("event", |seen: &Seen| Some(names.borrow().event(seen.run?.mutex, seen.run?.event))),
        column("location", |seen: &Seen| Some(names.borrow_mut().place(seen.run?.location))),
        column("blocker", |seen: &Seen| Some(seen.run?.blocker.number())),
    ]
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let time = args.time.as_deref().map(|text| duration::argument("--for", text)).transpose()?;
    let observer = args.which.observe()?;
    let only_mutex = args.mutex.as_deref().map(|text| mutex(observer.tables(), text)).transpose()?;
    let sessions = observer.tables().capacity().sessions;
    let only_session = match args.session {
        Some(number) if !(1..=sessions).contains(&number) => {
            return Err(miette!(
                code = "retrial::trace::session",
                help = format!("retrial ps{}", args.which.flag()),
                "session {number}, expected 1 to {sessions}"
            ));
        }
        session => session.map(Sid::new),
    };
    signals::catch();
    let names = RefCell::new(Names::new(observer.tables()));
    let columns = columns(&names);
    let mut trace = Trace {
        observer: &observer,
        names: &names,
        format,
        stream: Stream::new(&columns, format),
        only_mutex,
        only_session,
        followed: BTreeMap::new(),
        speaker: None,
        seen: false,
    };
    trace.begin();
    let started = Instant::now();
    let mut presence = Presence::of(observer.tables());
    loop {
        trace.look();
        let idle = trace.seen && !trace.followed.values().any(|followed| followed.waits);
        let over = time.is_some_and(|time| started.elapsed() >= time);
        if signals::received().is_some() || over || args.until_idle && idle || presence.has_ended(format) {
            break;
        }
        let left = time.map_or(Duration::MAX, |time| time.saturating_sub(started.elapsed()));
        let sessions = u32::try_from(trace.followed.len()).unwrap_or(u32::MAX);
        retrial::sys::sleep(PAUSE.max(PAUSE_PER_SESSION * sessions).min(left));
    }
    trace.end();
    Ok(ExitCode::SUCCESS)
}

/// How far a session's runs have been printed.
#[derive(Default)]
struct Followed {
    /// Number of the last run that was printed or lost.
    printed: u64,
    /// Whether a wait is under way.
    waits: bool,
    /// Whether the header of that wait was printed.
    headed: bool,
    /// Whether the wait had run for too long when the trace began: its first runs were overwritten.
    beheaded: bool,
}

struct Trace<'a, 't> {
    observer: &'a Observer,
    names: &'a RefCell<Names<'t>>,
    format: Format,
    stream: Stream<'a, Seen>,
    only_mutex: Option<MutexId>,
    only_session: Option<Sid>,
    followed: BTreeMap<Sid, Followed>,
    /// The session that the last line was about.
    speaker: Option<Sid>,
    /// Whether a wait was seen at all.
    seen: bool,
}

impl Trace<'_, '_> {
    fn sids(&self) -> Vec<Sid> {
        match self.only_session {
            Some(sid) => vec![sid],
            None => self.observer.tables().sids().collect(),
        }
    }

    /// Starts with the waits under way, from their beginning as far as it is still there.
    fn begin(&mut self) {
        for sid in self.sids() {
            let tables = self.observer.tables();
            let session = tables.session_info(sid).filter(|session| !session.dead && session.wait.is_some());
            let (first, found) = match session {
                Some(session) => tables.wait_began(&session),
                None => (tables.last_run(sid).saturating_add(1), true),
            };
            let printed = first.saturating_sub(1);
            self.followed.insert(sid, Followed { printed, beheaded: !found, ..Followed::default() });
        }
    }

    fn look(&mut self) {
        for sid in self.sids() {
            let tables = self.observer.tables();
            let mut followed = self.followed.remove(&sid).unwrap_or_default();
            // Another session may have had the slot since the last look.
            let successor = tables.session_info(sid).filter(|_| followed.waits);
            if let Some(session) = successor.filter(|session| session.first_run > followed.printed) {
                self.gone(sid, &mut followed, session.first_run - 1);
            }
            self.follow(sid, &mut followed, tables.last_run(sid));
            if followed.waits && tables.session_info(sid).is_none_or(|session| session.dead) {
                self.gone(sid, &mut followed, tables.last_run(sid));
            }
            self.followed.insert(sid, followed);
        }
    }

    /// Ends what is printed of a session that is gone, whose last run this is.
    fn gone(&mut self, sid: Sid, followed: &mut Followed, last: u64) {
        // It may have got the mutex and left since its runs were read; now that it is gone they are all
        // there.
        self.follow(sid, followed, last);
        if followed.waits {
            self.finish(sid, followed, last);
            self.died(sid, followed);
        }
    }

    /// Prints the runs that are complete.
    fn follow(&mut self, sid: Sid, followed: &mut Followed, last: u64) {
        // What the ring has no room for is gone, however much a segment says that there was.
        let oldest = last.saturating_sub(retrial::views::RUNS as u64);
        let mut lost = oldest.saturating_sub(followed.printed);
        followed.printed = followed.printed.max(oldest);
        while followed.printed < last {
            let number = followed.printed + 1;
            let Some(event) = self.observer.tables().event(sid, number) else {
                if number == self.observer.tables().last_run(sid) {
                    break;
                }
                lost += 1;
                followed.printed = number;
                continue;
            };
            let single = matches!(event.what, What::Began | What::Got | What::GaveUp);
            // The last run may still grow.
            followed.waits = self.wanted(&event) && !matches!(event.what, What::Got | What::GaveUp);
            self.seen |= followed.waits;
            if number == last && !single {
                break;
            }
            self.lost(sid, followed, &mut lost);
            self.print(sid, followed, &event);
            followed.printed = number;
        }
        self.lost(sid, followed, &mut lost);
    }

    fn wanted(&self, event: &Event) -> bool {
        self.only_mutex.is_none_or(|id| id == event.mutex)
    }

    /// Prints the run that was still open.
    fn finish(&mut self, sid: Sid, followed: &mut Followed, last: u64) {
        self.follow(sid, followed, last);
        let open = (followed.printed < last).then_some(followed.printed + 1);
        if let Some(event) = open.and_then(|number| self.observer.tables().event(sid, number)) {
            self.print(sid, followed, &event);
            followed.printed += 1;
        }
    }

    fn end(&mut self) {
        for (sid, mut followed) in std::mem::take(&mut self.followed) {
            if followed.waits {
                self.finish(sid, &mut followed, self.observer.tables().last_run(sid));
            }
        }
    }

    fn print(&mut self, sid: Sid, followed: &mut Followed, event: &Event) {
        if !self.wanted(event) {
            return;
        }
        let mut names = self.names.borrow_mut();
        let named = [names.event(event.mutex, event.event), names.mutex(event.mutex), names.place(event.location)];
        drop(names);
        let [name, mutex, location] = named.map(|name| in_line(&name).into_owned());
        self.stream.row(&Seen { sid, what: event.what.name(), count: Some(event.count), run: Some(*event) });
        if !self.format.is_text() {
            return;
        }
        if event.what == What::Began || !followed.headed {
            let by = match event.blocker {
                Sid::NONE => match Look::at_awaited(self.observer.tables()).holders_text(event.mutex) {
                    none if none.is_empty() => String::new(),
                    some => format!(" held by session {some}"),
                },
                blocker => format!(" held by session {blocker}"),
            };
            self.format.say(&format!("session {sid} waits for {name} on \"{mutex}\"{by}, at {location}"));
        } else if self.speaker != Some(sid) {
            self.format.say(&format!("session {sid}, for {name} on \"{mutex}\":"));
        }
        if std::mem::take(&mut followed.beheaded) && event.what != What::Began {
            self.format.say("  … earlier runs lost");
        }
        followed.headed = !matches!(event.what, What::Got | What::GaveUp);
        self.speaker = Some(sid);
        if event.what != What::Began {
            self.format.say(&format!("  {}", event.line()));
        }
    }

    /// Says that runs were overwritten before they were read.
    fn lost(&mut self, sid: Sid, followed: &mut Followed, lost: &mut u64) {
        let count = std::mem::take(lost);
        if count == 0 {
            return;
        }
        self.stream.row(&Seen { sid, what: "lost", count: Some(count), run: None });
        if self.speaker != Some(sid) {
            self.format.say(&format!("session {sid}:"));
        }
        self.speaker = Some(sid);
        self.format.say(&format!("  … {count} runs lost"));
        followed.headed = false;
    }

    fn died(&mut self, sid: Sid, followed: &mut Followed) {
        self.stream.row(&Seen { sid, what: "died", count: None, run: None });
        if self.speaker != Some(sid) {
            self.format.say(&format!("session {sid}:"));
        }
        self.speaker = Some(sid);
        self.format.say("  died while it waited");
        (followed.waits, followed.headed) = (false, false);
    }
}
