//! `retrial attach`.

use crate::attach::futex::kind_text;
use crate::attach::look::{Futex, Holder, Look, Looker, What};
use crate::attach::place::Places;
use crate::attach::process::{Process, ended};
use crate::attach::rwlock;
use crate::attach::samples::Samples;
use crate::attach::text::Told;
use crate::cmd::period::TIME_MIN;
use crate::output::{Format, Table, column, counted, line, rounded};
use crate::who::text::Item;
use crate::who::thread::Thread;
use crate::{duration, signals};
use miette::Report;
use retrial::views::Sid;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Show who waits for whom in a program that was not started under `retrial run`
///
/// What can be seen of any process from outside, without stopping it: the threads that sleep in the kernel
/// for a pthread mutex of glibc's, and the thread that has it, as the tree of `retrial who`. Threads that
/// wait for each other are marked DEADLOCK. Not seen: threads that spin, mutexes for which nobody waits, and
/// how often a mutex was got; `retrial run` counts these.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial attach 4242                          who waits for whom now
  retrial attach $(pidof memcached) --for 10s  which mutexes threads wait for, how many on average, and who has them
  retrial attach 4242 --for 1s --every 1ms --json")]
pub struct Args {
    /// Number of the process, or of any of its threads
    #[arg(value_name = "PID")]
    pid: u32,
    /// Look again and again for so long, and count; otherwise one look
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
    /// From one look to the next; 10ms when left out
    #[arg(long, value_name = "TIME", requires = "time")]
    every: Option<String>,
    /// Print all waiters; otherwise the first 10 of a mutex, 10 events and 200 lines
    #[arg(long, conflicts_with = "time")]
    all: bool,
}

/// Minimum time between two looks.
const EVERY_MIN: Duration = Duration::from_micros(100);
/// Time after which the mappings are read anew: a program loads libraries as it goes.
const MAPPED: Duration = Duration::from_secs(1);
/// Mutexes that people are shown.
const MUTEXES: usize = 20;

const UNSEEN: &str = "Not seen from outside: threads that spin, mutexes for which nobody waits, how often and how long each was got. \
                      From its start: retrial run -- PROGRAM";

/// Of a process that has ended meanwhile.
const NEXT: &str = "Next: retrial run -- PROGRAM, which reports when the program ends";

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let time = args.time.as_deref().map(|text| duration::at_least("--for", text, TIME_MIN)).transpose()?;
    let every = duration::at_least("--every", args.every.as_deref().unwrap_or("10ms"), EVERY_MIN)?;
    let mut looker = Looker::new(Process::open(args.pid)?);
    let mut places = Places::default();
    if let Some(time) = time {
        return watch(&mut looker, &mut places, time, every, format);
    }
    let look = looker.look()?;
    let mut told = Told::new(&looker, &look, &mut places);
    if format.is_text() {
        print(&mut told, args.all);
    } else {
        rows(&mut told).print(format);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(told: &mut Told<'_>, all: bool) {
    let (lines, left_out) = told.trees(all);
    let pid = told.looker.process.pid;
    if lines.is_empty() {
        line("No thread waits for a mutex.");
    }
    for text in lines {
        line(&text);
    }
    if left_out > 0 {
        let more = counted(left_out as u64, "more line", "more lines");
        line(&format!("… {more}. All: retrial attach {pid} --all"));
    }
    for text in told.events(all) {
        line(&text);
    }
    line(&told.summary());
    for links in &told.look.deadlocks {
        let text = told.deadlock(links);
        line(&text);
    }
    line(UNSEEN);
    if told.looker.process.check().is_ok() {
        line(&format!("Next: {}", told.next()));
    } else {
        line(&ended(pid).to_string());
        line(NEXT);
    }
}

/// Looks until the time is over, the process ends or a signal comes.
fn watch(
    looker: &mut Looker,
    places: &mut Places,
    time: Duration,
    every: Duration,
    format: Format,
) -> Result<ExitCode, Report> {
    signals::catch();
    // The first stacks take long: the files of the program are read for them.
    let look = looker.look()?;
    Samples::default().add(looker, &look, places);
    let (began, mut samples, mut last) = (Instant::now(), Samples::default(), Look::default());
    let (mut mapped, mut end) = (began, None);
    while signals::received().is_none() && (samples.looks == 0 || began.elapsed() < time) {
        let next = Instant::now() + every;
        if mapped.elapsed() >= MAPPED {
            looker.process.map_again();
            mapped = Instant::now();
        }
        places.again();
        match looker.look() {
            Ok(look) => {
                samples.add(looker, &look, places);
                last = look;
            }
            Err(error) if samples.looks == 0 => return Err(error),
            Err(_) => {
                end = Some(began.elapsed());
                break;
            }
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()).min(time.saturating_sub(began.elapsed())));
    }
    let over = end.unwrap_or_else(|| began.elapsed());
    let mut table = samples.table(over, !format.is_text());
    if !format.is_text() {
        table.print(format);
        return Ok(ExitCode::SUCCESS);
    }
    let left_out = table.shorten(MUTEXES);
    if table.is_empty() {
        line("No thread was seen to wait for a mutex.");
    } else {
        table.print(format);
    }
    if left_out > 0 {
        line(&format!("… {}. All: --json", counted(left_out as u64, "more mutex", "more mutexes")));
    }
    let events = rounded(samples.waiting_for_events(), 2);
    let looks = counted(samples.looks, "look", "looks");
    line(&format!("{looks} in {}; waiting for an event: {events} on average.", duration::text(over)));
    if end.is_some() {
        line(&ended(looker.process.pid).to_string());
        line(UNSEEN);
        line(NEXT);
    } else {
        let mut told = Told::new(looker, &last, places);
        for links in &last.deadlocks {
            line(&told.deadlock(links));
        }
        line(UNSEEN);
        line(&format!("Next: retrial attach {}", looker.process.pid));
    }
    Ok(ExitCode::SUCCESS)
}

/// A thread in the tree, or one that waits for an event.
struct Row {
    tree: Option<(usize, usize)>,
    tid: u32,
    pid: Option<u32>,
    name: String,
    call: Option<String>,
    at: Option<String>,
    waits: Option<(Futex, String)>,
    holds: Vec<Value>,
}

fn rows(told: &mut Told<'_>) -> Table {
    let look = told.look;
    let mut rows: Vec<Row> = Vec::new();
    let lines = look.tree.lines(usize::MAX).map(|line| (line.root, line.depth, line.item));
    for (root, depth, item) in lines {
        match item {
            Item::Session { sid, .. } => rows.extend(sid.guest_tid().map(|tid| row(told, tid, Some((root, depth))))),
            Item::Mutex { holder, mutex } => {
                let Some(futex) = look.futex(mutex) else { continue };
                if !matches!(futex.what, What::Mutex { .. }) {
                    continue;
                }
                let held = held(told, futex, look.tree.waiters(holder, mutex).len());
                if let Some(row) = rows.iter_mut().rev().find(|row| holder.guest_tid() == Some(row.tid)) {
                    row.pid = pid_of(told, futex);
                    row.holds.push(held);
                }
            }
            Item::Top(_) | Item::More(_) => {}
        }
    }
    let in_tree: std::collections::BTreeSet<u32> = rows.iter().map(|row| row.tid).collect();
    for waiting in look.waits.iter().filter(|waiting| !in_tree.contains(&waiting.sleeper.tid)) {
        rows.push(row(told, waiting.sleeper.tid, None));
    }
    table(told, &rows)
}

/// The process of the thread that has a mutex.
fn pid_of(told: &Told<'_>, futex: &Futex) -> Option<u32> {
    match futex.what {
        What::Mutex { holder: Holder::Other { pid, .. }, .. } => Some(pid),
        What::Mutex { holder: Holder::Gone(_), .. } => None,
        _ => Some(told.looker.process.pid),
    }
}

fn row(told: &mut Told<'_>, tid: u32, tree: Option<(usize, usize)>) -> Row {
    let process = &told.looker.process;
    let place = told.look.wait(tid).map(|waiting| told.places.wait(process, &waiting.sleeper)).unwrap_or_default();
    let waits = told.look.waits_for(tid).map(|futex| (*futex, told.places.mutex(process, futex.address)));
    Row {
        tree,
        tid,
        pid: Some(process.pid),
        name: process.comm(tid),
        call: place.call,
        at: place.at,
        waits,
        holds: Vec::new(),
    }
}

fn held(told: &mut Told<'_>, futex: &Futex, waiters: usize) -> Value {
    let kind = if let What::Mutex { kind, .. } = futex.what { kind } else { None };
    json!({
        "mutex": told.places.mutex(&told.looker.process, futex.address),
        "address": format!("{:#x}", futex.address),
        "memory": told.looker.process.memory(futex.address),
        "kind": kind_text(kind),
        "waiters": waiters,
    })
}

fn table(told: &Told<'_>, rows: &[Row]) -> Table {
    let tree = &told.look.tree;
    let rwlock = |row: &Row| row.call.as_deref().filter(|call| rwlock::is_call(call)).map(rwlock::kind_text);
    let kind = |row: &Row| {
        Some(match row.waits.as_ref()?.0.what {
            What::Mutex { kind, .. } => kind_text(kind),
            What::End(tid) => format!("end of thread {tid}"),
            What::Event => rwlock(row).unwrap_or("event").to_owned(),
        })
    };
    let is_mutex = |futex: &Futex| matches!(futex.what, What::Mutex { .. });
    let state = |row: &Row| match &row.waits {
        _ if tree.is_deadlocked(Sid::guest(row.tid)) => "DEADLOCK",
        Some((futex, _)) if is_mutex(futex) || rwlock(row).is_some() => "waiting",
        Some(_) if row.holds.is_empty() => "waiting for event",
        Some(_) | None => "holding",
    };
    let mutex = |row: &Row| Some(row.waits.as_ref().filter(|(futex, _)| is_mutex(futex))?.1.clone());
    let columns = [
        column("tree", |row: &Row| row.tree.map(|(root, _)| root)),
        column("depth", |row: &Row| row.tree.map(|(_, depth)| depth)),
        column("pid", |row: &Row| row.pid),
        column("tid", |row: &Row| row.tid),
        column("name", |row: &Row| row.name.clone()),
        column("state", state),
        column("mutex", mutex),
        column("waits_for", kind),
        column("address", |row: &Row| row.waits.as_ref().map(|(futex, _)| format!("{:#x}", futex.address))),
        column("memory", |row: &Row| told.looker.process.memory(row.waits.as_ref()?.0.address)),
        column("call", |row: &Row| row.call.clone()),
        column("at", |row: &Row| row.at.clone()),
        column("behind_tid", |row: &Row| tree.above(Sid::guest(row.tid)).and_then(Sid::guest_tid)),
        column("waiting_behind", |row: &Row| tree.behind(Sid::guest(row.tid))),
        column("holds", |row: &Row| row.holds.clone()),
        column("thread", |row: &Row| told.threads.get(&row.tid).map_or(Value::Null, Thread::json)),
    ];
    Table::of(&columns, rows)
}
