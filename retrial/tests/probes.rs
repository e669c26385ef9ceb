//! Probes: they stand in the ELF notes of what retrial is linked into, and say what happens.

use retrial::{Capacity, Class, Instance, Mutex, P, location};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Each probe, and how many arguments it has. What `probes.rs` says of them is in its table.
const PROBES: [(&str, usize); 8] = [
    ("death", 4),
    ("miss", 5),
    ("park", 5),
    ("recovery", 3),
    ("step", 5),
    ("wait_begin", 6),
    ("wait_end", 6),
    ("wake", 3),
];

#[test]
fn every_probe_is_in_the_notes() {
    let myself = std::env::current_exe().unwrap();
    let output = Command::new("readelf").arg("-nW").arg(&myself).output().expect("readelf, of binutils");
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut found, mut name) = (BTreeMap::new(), None);
    for line in text.lines().map(str::trim) {
        match line.split_once(": ") {
            Some(("Provider", provider)) => assert_eq!(provider, "retrial"),
            Some(("Name", of)) => name = Some(of),
            Some(("Arguments", list)) => drop(name.take().map(|of| found.insert(of, list.split(' ').count()))),
            // bpftrace reads no more of them than six, and a probe without a semaphore needs no writable memory.
            Some(("Location", places)) => assert!(places.ends_with("Semaphore: 0x0000000000000000"), "{line}"),
            _ => {}
        }
    }
    assert_eq!(found, BTreeMap::from(PROBES), "{text}");
    let source = include_str!("../src/probes.rs");
    for (name, arguments) in PROBES {
        let row = source.lines().find_map(|line| line.strip_prefix(&format!("//! | `{name}` | "))).unwrap();
        assert_eq!(row.split(", ").count(), arguments, "{row}");
    }
}

fn scripts() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/bpftrace");
    let mut scripts: Vec<PathBuf> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    scripts
}

/// Waits of one session for another one, which holds a mutex for some sleeps of the scheme: what the scripts look at.
#[test]
#[ignore = "the scripts run it"]
fn load() {
    let capacity = Capacity { sessions: 8, mutexes: 16, locations: 16, rows: 16, arena: 1 << 16 };
    let instance = Instance::anonymous(capacity).unwrap();
    instance.set(P::Scheme, None, 0);
    let mutex: Mutex<u64> = instance.mutex("m", "test", || 0).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let waiter = instance.session("waiter", Class::Normal).unwrap();
            while !done.load(Ordering::Relaxed) {
                drop(mutex.shared(&waiter, location!("till of the bank")));
            }
        });
        let holder = instance.session("holder", Class::Normal).unwrap();
        for _ in 0..50 {
            let held = mutex.exclusive(&holder, location!("hold")).unwrap();
            std::thread::sleep(Duration::from_millis(10));
            drop(held);
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// What a script says of that load. Where bpftrace may not run it is said that it is left out.
fn says(script: &str, parts: &[&str]) {
    let works = Command::new("bpftrace").args(["-e", "BEGIN { exit(); }"]).output();
    let has_tracepoints = Path::new("/sys/kernel/tracing/events/sched").exists();
    if !works.is_ok_and(|output| output.status.success()) || !has_tracepoints && script == "holders_off_cpu.bt" {
        eprintln!("{script} left out: no bpftrace, not allowed to use it, or no tracepoints of the scheduler");
        return;
    }
    let script = scripts().into_iter().find(|path| path.ends_with(script)).unwrap();
    let myself = std::env::current_exe().unwrap();
    let load = format!("{} load --exact --ignored", myself.display());
    let output = Command::new("bpftrace").arg("-c").arg(load).arg(&script).arg(&myself).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for part in parts {
        assert!(text.contains(part), "no `{part}` of {} in\n{output:?}", script.display());
    }
}

#[test]
fn the_trace_of_the_source_is_what_the_probes_tell() {
    says(
        "wait_trace.bt",
        &[
            "gets S of mutex 1 at till of the bank",
            "  yield, 99 times in a row\n  sleep, timeout 1000 us",
            "ms: got it",
        ],
    );
}

#[test]
fn waits_are_told_by_place() {
    says("waits_by_place.bt", &["@wait_us[till of the bank, 0]:", "ms waited by place and mode"]);
}

#[test]
fn a_holder_that_sleeps_is_found() {
    says("holders_off_cpu.bt", &["@found_off_cpu: ", "@off_us[1]:"]);
}

#[test]
fn every_script_says_how_it_is_run() {
    let all = scripts();
    assert_eq!(all.len(), 3);
    for script in all {
        let text = std::fs::read_to_string(&script).unwrap();
        let name = script.file_name().unwrap().to_str().unwrap();
        assert!(text.starts_with("#!/usr/bin/env bpftrace\n") && text.contains(&format!("// Type: bpftrace {name} ")));
    }
}
