//! `retrial who`.

use crate::blocking::{Deadlock, Look};
use crate::instances::Which;
use crate::output::{Format, Table, column, counted, in_line, line};
use crate::recording::State;
use crate::who::object::{self, Object};
use crate::who::report::{Holding, Report as Found};
use crate::who::text::Item;
use crate::who::thread::Thread;
use crate::who::tree::Root;
use miette::Report;
use retrial::views::Sid;
use retrial::{MutexId, Observer};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Show who waits for whom now, as a tree: the holders that wait for nobody first
///
/// Of a holder: what it has, where it got it, how long as far as its waiters know, and what the kernel says
/// that its thread is at. One look, which costs the sessions nothing. Sessions that wait for each other are
/// marked DEADLOCK.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial who                        all mutexes of the one instance there is
  retrial who -p 4242                of the instance that process 4242 is in, also a program under `retrial run`
  retrial who --mutex accounts       the mutex, what it protects, who has it, who waits
  retrial who --mutex 0x2b40         the mutex of the object at this address")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Only what has to do with this mutex: its name, its id with `#`, a static variable of the program, or
    /// the address (`0x…`) of the object that it protects
    #[arg(long, value_name = "MUTEX")]
    mutex: Option<String>,
    /// Print all waiters; otherwise the first 10 of a mutex, and 200 lines
    #[arg(long)]
    all: bool,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let which = args.which.by_name()?;
    let flag = which.flag();
    let observer = which.observe()?;
    let tables = observer.tables();
    let only = args.mutex.as_deref().map(|text| object::find(tables, text)).transpose()?;
    let look = if only.is_some() { Look::at_all(tables) } else { Look::at_awaited(tables) };
    let mut found = Found::new(tables, look, only);
    if format.is_text() {
        print(&observer, &mut found, only, args.all, &flag);
    } else {
        rows(&mut found, only).print(format);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(observer: &Observer, found: &mut Found<'_>, only: Option<MutexId>, all: bool, flag: &str) {
    if let Some(info) = only.and_then(|mutex| observer.tables().mutex_info(mutex)) {
        line(&in_line(&Object::of(observer.tables(), &info, &mut found.names).text(flag)));
    }
    let waiting = found.tree.len();
    if found.tree.roots.is_empty() {
        line(if only.is_some() {
            "Nobody is seen to hold it, and nobody waits for it."
        } else {
            "Nobody waits for a mutex."
        });
        line(&format!("Next: retrial ps{flag}, retrial show mutexes{flag}"));
        return;
    }
    let (lines, left_out) = found.text(all);
    for text in lines {
        line(&text);
    }
    if left_out > 0 {
        let more = counted(left_out as u64, "more line", "more lines");
        line(&format!("… {more}. All: retrial who{flag} --all"));
    }
    let holders = found.tree.roots.iter().filter(|root| matches!(root, Root::Holder(_))).count();
    let at_the_top = counted(holders as u64, "holder who waits for nobody", "holders who wait for nobody");
    line(&format!("{}; {at_the_top}.", counted(waiting as u64, "session waits", "sessions wait")));
    for links in found.look.deadlocks() {
        line(&Deadlock::new(links, &mut found.names).text(found.now_ns));
    }
    line(&format!("Next: {}", found.next(flag)));
}

/// A session in the tree.
struct Row {
    root: usize,
    depth: usize,
    sid: Sid,
    waits: Option<Waiting>,
    holdings: Vec<Holding>,
}

struct Waiting {
    mutex: String,
    mode: &'static str,
    at: String,
    s: f64,
}

/// A row for each session; of one mutex that nobody has or waits for, a row with what it is.
fn rows(found: &mut Found<'_>, only: Option<MutexId>) -> Table {
    let lines: Vec<(usize, usize, Item)> =
        found.tree.lines(usize::MAX).map(|line| (line.root, line.depth, line.item)).collect();
    let mut rows: Vec<Row> = Vec::new();
    for (root, depth, item) in lines {
        match item {
            Item::Session { sid, .. } => {
                let wait = found.look.session(sid).and_then(|session| session.wait);
                let waits = wait.filter(|(key, ..)| !key.event.for_event).map(|(key, since_ns, _)| Waiting {
                    mutex: found.names.mutex(key.mutex),
                    mode: key.event.mode.name(),
                    at: found.names.place(key.location),
                    s: found.now_ns.saturating_sub(since_ns) as f64 / 1e9,
                });
                rows.push(Row { root, depth, sid, waits, holdings: Vec::new() });
            }
            Item::Mutex { holder, mutex } if !holder.is_none() => {
                let holding = found.holding(holder, mutex);
                if let Some(row) = rows.iter_mut().rev().find(|row| row.sid == holder) {
                    row.holdings.push(holding);
                }
            }
            Item::Mutex { .. } | Item::Top(_) | Item::More(_) => {}
        }
    }
    if let Some(mutex) = only.filter(|_| rows.is_empty()) {
        let holdings = vec![found.holding(Sid::NONE, mutex)];
        rows.push(Row { root: 1, depth: 0, sid: Sid::NONE, waits: None, holdings });
    }
    table(found, &rows)
}

fn table(found: &Found<'_>, rows: &[Row]) -> Table {
    let session = |row: &Row| found.look.session(row.sid);
    let columns = [
        column("tree", |row: &Row| row.root),
        column("depth", |row: &Row| row.depth),
        column("sid", |row: &Row| Some(row.sid.number()).filter(|_| !row.sid.is_none())),
        column("pid", |row: &Row| session(row).map(|session| session.pid)),
        column("tid", |row: &Row| session(row).map(|session| session.tid).or(row.sid.guest_tid())),
        column("name", |row: &Row| session(row).map(|session| session.name.clone())),
        column("action", |row: &Row| session(row).map(|session| session.action.clone())),
        column("state", |row: &Row| {
            session(row).map(|session| State::of(session, found.tree.is_deadlocked(row.sid)).name())
        }),
        column("mutex", |row: &Row| Some(row.waits.as_ref()?.mutex.clone())),
        column("mode", |row: &Row| Some(row.waits.as_ref()?.mode)),
        column("at", |row: &Row| Some(row.waits.as_ref()?.at.clone())),
        column("waited_s", |row: &Row| Some(row.waits.as_ref()?.s)),
        column("behind_sid", |row: &Row| found.tree.above(row.sid).map(Sid::number)),
        column("waiting_behind", |row: &Row| found.tree.behind(row.sid)),
        column("holds", |row: &Row| row.holdings.iter().map(json_of).collect::<Vec<Value>>()),
        column("thread", |row: &Row| found.threads.get(&row.sid).map_or(Value::Null, Thread::json)),
    ];
    Table::of(&columns, rows)
}

fn json_of(holding: &Holding) -> Value {
    json!({
        "mutex": holding.name,
        "id": holding.mutex.0,
        "mode": holding.mode.map(retrial::Mode::name),
        "got_at": holding.got_at,
        "waited_at": holding.waited_at,
        "held_at_least_s": holding.held_s,
        "seen_ago_s": holding.seen_s,
        "object": holding.object.as_ref().map(Object::json),
        "other_holders": holding.others.iter().map(|(sid, mode)| format!("{sid} {mode}")).collect::<Vec<_>>(),
        "waiters": holding.waiters,
    })
}
