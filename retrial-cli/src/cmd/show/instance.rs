//! `show instance`, `types`, `locations` and `machine`.

use crate::clock::time;
use crate::naming::Names;
use crate::output::{Table, column};
use retrial::layout::Layout;
use retrial::sys::{Clock, clock_ns};
use retrial::views::{Cost, LocationId, Tables, TypeId};
use retrial::{Observer, P};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;

#[derive(Default)]
struct Rows(Vec<(String, Value, String)>);

impl Rows {
    fn add(&mut self, name: &str, value: impl Into<Value>, unit: &str) {
        self.0.push((name.to_owned(), value.into(), unit.to_owned()));
    }

    fn table(self) -> Table {
        let columns = [
            column("name", |row: &(String, Value, String)| row.0.clone()),
            column("value", |row: &(String, Value, String)| row.1.clone()),
            column("unit", |row: &(String, Value, String)| row.2.clone()),
        ];
        Table::of(&columns, self.0)
    }
}

pub fn instance(observer: &Observer) -> Table {
    let mut rows = Rows::default();
    let capacity = observer.tables().capacity();
    let sessions = observer.tables().sessions();
    let dead = sessions.iter().filter(|s| s.dead).count();
    let waiting = sessions.iter().filter(|s| !s.dead && s.wait.is_some()).count();
    if let Some(at) = observer.tables().address() {
        rows.add("instance", at.to_string(), "");
        rows.add("path", at.path().display().to_string(), "");
        if let Ok(metadata) = std::fs::symlink_metadata(at.path()) {
            rows.add("permissions", format!("{:04o}", metadata.mode() & 0o7777), "octal");
            rows.add("owner", metadata.uid(), "user id");
            rows.add("disk_used", metadata.blocks() * 512, "bytes");
        }
    }
    rows.add("size", observer.tables().len_bytes(), "bytes");
    rows.add("format", format!("{:#018x}", Layout::fingerprint()), "");
    rows.add("created", time(observer.tables().created_ns()), "");
    let age_s = clock_ns(Clock::Realtime).saturating_sub(observer.tables().created_ns()) / 1_000_000_000;
    rows.add("age", age_s, "s");
    rows.add("creator_pid", observer.tables().creator_pid(), "");
    rows.add("scheme", P::Scheme.format(observer.tables().params(None).get(P::Scheme)), "");
    rows.add("sessions_living", sessions.len() - dead, "");
    rows.add("sessions_waiting", waiting, "");
    rows.add("sessions_dead", dead, "");
    rows.add("sessions_capacity", capacity.sessions, "");
    rows.add("mutexes", observer.tables().mutexes().len(), "");
    rows.add("mutexes_capacity", capacity.mutexes, "");
    rows.add("types", observer.tables().types().len(), "");
    rows.add("locations_capacity", capacity.locations, "");
    rows.add("rows_capacity", capacity.rows, "per session");
    rows.add("arena_used", observer.tables().arena_used(), "bytes");
    rows.add("arena_capacity", capacity.arena, "bytes");
    rows.add("owner_deaths", observer.tables().recoveries(), "");
    rows.add("alerts", observer.tables().alerts_written(), "");
    rows.add("release", release(observer.tables()), "");
    rows.table()
}

/// How a release finds out whether a session is parked.
fn release(tables: &Tables) -> &'static str {
    if tables.has_barrier() { "one store; parking sessions do a barrier" } else { "store and fence" }
}

pub fn types(observer: &Observer) -> Table {
    let mutexes = observer.tables().mutexes();
    let columns = [
        column("id", |(id, _): &(TypeId, String)| id.0),
        column("name", |(_, name): &(TypeId, String)| name.clone()),
        column("mutexes", |(id, _): &(TypeId, String)| mutexes.iter().filter(|mutex| mutex.mutex_type == *id).count()),
        column("scheme", |(id, _): &(TypeId, String)| {
            P::Scheme.format(observer.tables().params(Some(*id)).get(P::Scheme))
        }),
        column("own_parameters", |(id, _): &(TypeId, String)| {
            let own = P::ALL.iter().filter(|p| observer.tables().param_set(**p, Some(*id)).is_some());
            own.map(|p| p.row().name).collect::<Vec<_>>().join(", ")
        }),
    ];
    Table::of(&columns, observer.tables().types())
}

pub fn locations(observer: &Observer) -> Table {
    let mut names = Names::new(observer.tables());
    let places = observer.tables().locations().into_iter().map(|(id, _)| (id, names.place(id)));
    let columns = [
        column("id", |(id, _): &(LocationId, String)| id.0),
        column("name", |(_, name): &(LocationId, String)| name.clone()),
    ];
    Table::of(&columns, places.collect::<Vec<_>>())
}

pub fn machine(observer: &Observer) -> Table {
    let mut rows = Rows::default();
    let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    rows.add("processors", std::thread::available_parallelism().map_or(0, usize::from), "");
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).and_then(|line| line.split_once(':'));
    rows.add("model", model.map_or("", |(_, model)| model.trim()), "");
    rows.add("governor", read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"), "");
    rows.add("kernel", read("/proc/sys/kernel/osrelease"), "");
    rows.add("load_1min", read("/proc/loadavg").split(' ').next().and_then(|load| load.parse::<f64>().ok()), "");
    rows.add("release", release(observer.tables()), "");
    let machine = observer.tables().costs();
    for cost in Cost::ALL {
        rows.add(cost.name(), machine.get(*cost), "ns");
    }
    rows.table()
}
