//! A profile's end: locks with their names and stacks, as text, JSON and files.

use super::recording::{Cost, FILES, unwritable};
use super::stacks::{Location, Locations};
use super::tallies::{About, By, Lock, Tallies, Tally};
use crate::flame;
use crate::output::{Table, column, counted, short};
use crate::page::{Part, Picture};
use crate::run::symbols::Symbols;
use miette::Report;
use retrial::MutexId;
use retrial::views::{Tables, TypeId};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Locks, and stacks of each, that the text has; JSON and the files have all.
const LOCKS: usize = 8;
const STACKS: usize = 3;
/// Calls of a stack that a line of text has.
const CALLS: usize = 6;
/// Calls that name a lock on the heap.
const NAMING: usize = 2;

/// A profile that has ended: estimates from samples.
#[derive(Debug)]
pub struct Profile {
    /// Most wait time first, then most gets.
    pub locks: Vec<Profiled>,
    /// Samples taken.
    pub gets: u64,
    pub waits: u64,
    pub cost: Cost,
    output: PathBuf,
}

/// A lock, or static ones of the same name in several processes.
#[derive(Debug)]
pub struct Profiled {
    pub title: String,
    kind: String,
    is_static: bool,
    about: About,
    pub tally: Tally,
    /// Most wait time first, then most holding time.
    pub stacks: Vec<Stack>,
}

/// Where a lock was got from.
#[derive(Debug)]
pub struct Stack {
    mode: &'static str,
    /// The innermost call with its line, where that is known.
    place: String,
    /// Functions, innermost first.
    pub calls: Vec<String>,
    pub tally: Tally,
}

impl Tally {
    /// What more of comes first.
    fn rank(&self) -> (u64, u64, u64) {
        (self.wait_ns, self.hold_ns().unwrap_or(0), self.gets)
    }
}

/// Names of locations, looked up once.
struct Names<'l> {
    symbols: Symbols,
    locations: &'l Locations,
    functions: HashMap<Location, Vec<String>>,
}

impl Names<'_> {
    /// The functions of a stack, innermost first.
    fn calls(&mut self, stack: &[Location]) -> Vec<String> {
        let mut calls = Vec::new();
        for location in stack {
            let (symbols, locations) = (&mut self.symbols, self.locations);
            let known = self.functions.entry(*location).or_insert_with(|| symbols.functions(locations.name(*location)));
            calls.extend_from_slice(known);
        }
        calls
    }

    fn place(&mut self, stack: &[Location]) -> String {
        stack.first().map_or_else(String::new, |location| self.symbols.text(self.locations.name(*location)))
    }
}

impl Profile {
    /// Names what was sampled and writes the files.
    pub fn new(
        tallies: Tallies,
        cost: Cost,
        tables: &Tables,
        firsts: &HashMap<MutexId, MutexId>,
        output: &Path,
    ) -> Result<Self, Report> {
        let (gets, waits) = (tallies.gets, tallies.waits);
        let (rows, mut about, locations) = tallies.finish();
        // The number by which the whole report calls it.
        for about in about.values_mut() {
            about.mutex = firsts.get(&MutexId(about.mutex)).map_or(about.mutex, |first| first.0);
        }
        let mut names = Names { symbols: Symbols::default(), locations: &locations, functions: HashMap::new() };
        let mut by_lock: BTreeMap<Lock, Vec<(By, Tally)>> = BTreeMap::new();
        for (by, tally) in rows {
            by_lock.entry(by.lock).or_default().push((by, tally));
        }
        let mut locks: Vec<Profiled> = by_lock
            .into_iter()
            .filter_map(|(lock, rows)| Some(profiled(lock, *about.get(&lock)?, rows, &mut names, tables)))
            .collect();
        locks.sort_by_key(|lock| Reverse(lock.tally.rank()));
        let profile = Self { locks, gets, waits, cost, output: output.to_owned() };
        profile.write()?;
        Ok(profile)
    }

    /// Where time was waited, and where locks were held.
    fn stacks(&self) -> [flame::Stacks; 2] {
        let (mut waits, mut holds) = (flame::Stacks::new(), flame::Stacks::new());
        for lock in &self.locks {
            for stack in &lock.stacks {
                let calls: Vec<String> = stack.calls.iter().rev().chain([&lock.title]).cloned().collect();
                *holds.entry(calls.clone()).or_default() += stack.tally.hold_ns().unwrap_or(0);
                *waits.entry(calls).or_default() += stack.tally.wait_ns;
            }
        }
        [waits, holds]
    }

    fn flames(&self) -> [String; 2] {
        let [waits, holds] = self.stacks();
        [flame::svg("time waited for locks", &waits), flame::svg("time locks were held", &holds)]
    }

    fn write(&self) -> Result<(), Report> {
        let ([waits, holds], [waits_svg, holds_svg]) =
            (self.stacks().map(|stacks| flame::folded(&stacks)), self.flames());
        let texts = [waits, waits_svg, holds, holds_svg];
        for (name, text) in FILES.iter().zip(texts) {
            let path = self.output.join(name);
            fs::write(&path, text).map_err(|error| unwritable(&path, &error))?;
        }
        Ok(())
    }

    /// All of it; `cpu_s` is the program's processor time.
    pub fn json(&self, cpu_s: f64) -> Value {
        let locks: Vec<Value> = self.locks.iter().map(Profiled::json).collect();
        let files: Vec<String> = FILES.iter().map(|name| self.output.join(name).display().to_string()).collect();
        json!({
            "locks": locks,
            "samples_gets": self.gets,
            "samples_waits": self.waits,
            "samples_dropped": self.cost.dropped,
            "dropped_gets": self.cost.dropped_gets,
            "dropped_wait_ms": ms(self.cost.dropped_wait_ns),
            "cost_ms": ms(self.cost.spent_ns),
            "cost_pct_of_cpu": self.cost_pct(cpu_s),
            "cost_bytes": self.cost.bytes,
            "observer_ms": ms(self.cost.observer_ns),
            "files": files,
        })
    }

    /// A row for each lock and stack, by the names of the report's columns.
    pub fn rows(&self) -> Vec<Value> {
        let row = |lock: &Profiled, stack: &Stack| {
            let mut row = lock.json_of(stack.tally);
            row["mutex"] = row["lock"].take();
            row["holding_us"] = row["mean_hold_us"].take();
            row["busy_at"] = stack.place.as_str().into();
            row["mode"] = stack.mode.into();
            row["calls"] = stack.calls.join(" < ").into();
            row
        };
        self.locks.iter().flat_map(|lock| lock.stacks.iter().map(move |stack| row(lock, stack))).collect()
    }

    fn cost_pct(&self, cpu_s: f64) -> f64 {
        if cpu_s > 0.0 { self.cost.spent_ns as f64 / 1e7 / cpu_s } else { 0.0 }
    }

    /// What a report says of it.
    pub fn parts(&self, cpu_s: f64) -> Vec<Part> {
        let mut parts = vec![Part::Lines(format!(
            "profile: {}; estimates from {} and {}, most wait time first",
            counted(self.locks.len() as u64, "lock", "locks"),
            counted(self.gets, "get", "gets"),
            counted(self.waits, "wait", "waits"),
        ))];
        if !self.locks.is_empty() {
            let columns = [
                column("lock", |lock: &Profiled| lock.title.clone()),
                column("type", |lock: &Profiled| lock.kind.clone()),
                column("gets", |lock: &Profiled| lock.tally.gets),
                column("misses", |lock: &Profiled| lock.tally.misses()),
                column("wait_ms", |lock: &Profiled| ms(lock.tally.wait_ns)),
                column("hold_ms", |lock: &Profiled| lock.tally.hold_ns().map(ms)),
                column("S_us", |lock: &Profiled| lock.tally.mean_hold_ns().map(|ns| ns / 1e3)),
            ];
            let table = Table::of(&columns, self.locks.iter().take(LOCKS));
            parts.push(Part::pictured("LOCKS BY THEIR CALLS", Picture::Flames(self.flames()), table));
        }
        parts.extend(self.locks.iter().take(LOCKS).map(|lock| Part::Lines(lock.stacks_text())));
        parts.push(Part::Lines(self.cost_text(cpu_s)));
        parts
    }

    fn cost_text(&self, cpu_s: f64) -> String {
        let cost = &self.cost;
        let mut text = format!(
            "cost: taking samples {} ms, {} % of the program's CPU, {} KiB; unwinding them {} ms of another process\n",
            short(ms(cost.spent_ns)),
            short(self.cost_pct(cpu_s)),
            cost.bytes >> 10,
            short(ms(cost.observer_ns)),
        );
        if cost.dropped > 0 {
            let _ = writeln!(
                text,
                "{} found no room: about {} and {} ms of waiting are missing above",
                counted(cost.dropped, "sample", "samples"),
                counted(cost.dropped_gets, "get", "gets"),
                short(ms(cost.dropped_wait_ns)),
            );
        }
        text + &format!("stacks: {}/{{{}}}", self.output.display(), FILES.join(","))
    }
}

fn profiled(lock: Lock, about: About, rows: Vec<(By, Tally)>, names: &mut Names<'_>, tables: &Tables) -> Profiled {
    let mut tally = Tally::default();
    // Places that differ in what is shown of them alone are one.
    let mut by_calls: HashMap<(bool, Vec<String>), Stack> = HashMap::new();
    for (by, row) in rows {
        tally += row;
        let (calls, place) = (names.calls(&by.stack), names.place(&by.stack));
        let stack = by_calls.entry((by.is_shared, calls.clone())).or_insert_with(|| Stack {
            mode: if by.is_shared { "S" } else { "X" },
            place,
            calls,
            tally: Tally::default(),
        });
        stack.tally += row;
    }
    let mut stacks: Vec<Stack> = by_calls.into_values().collect();
    stacks.sort_by(|a, b| (b.tally.rank(), &a.calls).cmp(&(a.tally.rank(), &b.calls)));
    let variable = match lock {
        Lock::Static(location) => names.symbols.variable(names.locations.name(location)),
        Lock::Heap { .. } => None,
    };
    let is_static = variable.is_some();
    let title = variable.unwrap_or_else(|| {
        let taken_most = stacks.iter().max_by_key(|stack| stack.tally.gets);
        let calls = taken_most.map_or(&[][..], |stack| &stack.calls);
        format!("heap lock of {}", calls[..calls.len().min(NAMING)].join(" < "))
    });
    let title = if about.mutex == 0 { title } else { format!("#{} {title}", about.mutex) };
    let kind = tables.type_name(TypeId(about.mutex_type as u8));
    Profiled { title, kind, is_static, about, tally, stacks }
}

impl Profiled {
    fn json(&self) -> Value {
        let mut value = self.json_of(self.tally);
        value["stacks"] = self.stacks.iter().map(Stack::json).collect();
        value
    }

    /// What it is, with these figures.
    fn json_of(&self, tally: Tally) -> Value {
        let mut value = json!({
            "lock": self.title,
            "type": self.kind,
            "static": self.is_static,
            "pid": self.about.pid,
            "address": format!("{:#x}", self.about.address),
        });
        add(&mut value, &tally);
        value
    }

    /// The lock, and a line for each of its first stacks.
    fn stacks_text(&self) -> String {
        let mut text = self.title.clone();
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
        for stack in self.stacks.iter().take(STACKS) {
            let (own, all) = (&stack.tally, &self.tally);
            let _ = write!(text, "\n  gets {:.0} %", share(own.gets, all.gets));
            if all.wait_ns > 0 {
                let _ = write!(text, ", waiting {:.0} %", share(own.wait_ns, all.wait_ns));
            }
            if let (Some(own), Some(all)) = (own.hold_ns(), all.hold_ns()) {
                let _ = write!(text, ", holding {:.0} %", share(own, all));
            }
            let _ = write!(text, ": {}", stack.line());
        }
        if self.stacks.len() > STACKS {
            let more = (self.stacks.len() - STACKS) as u64;
            let _ = write!(text, "\n  and {}", counted(more, "more stack", "more stacks"));
        }
        text
    }
}

impl Stack {
    fn json(&self) -> Value {
        let mut value = json!({ "mode": self.mode, "place": self.place, "calls": self.calls });
        add(&mut value, &self.tally);
        value
    }

    /// `push (queue.c:12) < work < start_thread`.
    fn line(&self) -> String {
        let mut calls: Vec<&str> = self.calls.iter().skip(1).map(String::as_str).collect();
        calls.insert(0, &self.place);
        if calls.len() > CALLS {
            calls.truncate(CALLS);
            calls.push("…");
        }
        calls.join(" < ")
    }
}

/// Adds a tally's figures to an object.
fn add(value: &mut Value, tally: &Tally) {
    value["gets"] = tally.gets.into();
    value["misses"] = tally.misses().into();
    value["wait_ms"] = ms(tally.wait_ns).into();
    value["hold_ms"] = tally.hold_ns().map(ms).into();
    value["mean_hold_us"] = tally.mean_hold_ns().map(|ns| ns / 1e3).into();
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
