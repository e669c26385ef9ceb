//! A thread that has objects pinned replaces its process by another program.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{capacity, key};
use retrial::{Address, Class, Instance};
use retrial_cache::{Cache, Shape};
use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

const SESSIONS: u32 = 24;
/// Mutexes that builders hold, so that others can wait for them.
const BUILDERS: usize = 16;
const SHAPE: Shape = Shape { bytes: 8 << 10, shards: 1 };
/// Says to a child which instance it is to use, and what it does there.
const DEED: &str = "RETRIAL_CACHE_TEST_DEED";

/// No test of its own, but what a child of one does: in a thread that is not its process's first.
#[test]
fn child() {
    let Ok(deed) = std::env::var(DEED) else { return };
    let (deed, address) = deed.split_once(' ').unwrap();
    let instance = Instance::attach(&Address::new(address).unwrap()).unwrap();
    let builders = if deed == "build-beside-many" { BUILDERS } else { 0 };
    let all_build = Barrier::new(builders + 1);
    std::thread::scope(|scope| {
        for i in 0..builders {
            let (instance, all_build) = (&instance, &all_build);
            scope.spawn(move || {
                let session = instance.session("builds", Class::Normal).unwrap();
                let cache = Cache::open(instance, "c").unwrap();
                let client = cache.join(&session).unwrap();
                let build = |_: &mut [u8]| -> Result<(), Infallible> {
                    all_build.wait();
                    loop {
                        std::thread::park();
                    }
                };
                drop(client.get_or_create(&key(&format!("W{i}")), 8, build));
            });
        }
        scope.spawn(|| {
            all_build.wait();
            let session = instance.session("execs", Class::Normal).unwrap();
            let cache = Cache::open(&instance, "c").unwrap();
            let client = cache.join(&session).unwrap();
            let exec = || -> Result<(), std::io::Error> { Err(Command::new("sleep").arg("60").exec()) };
            if deed.starts_with("build") {
                drop(client.get_or_create(&key("V"), 8, |_| exec()));
            } else {
                let _pinned = client.get_or_insert(&key("V"), &[1; 8]).unwrap();
                exec().unwrap();
            }
        });
    });
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has a child do that and become another program. What this process does then ends.
fn after(deed: &str, then: fn(&Cache<'_>, &Instance)) {
    let address = Address::new(&format!("test-cache-exec-{}-{deed}", std::process::id())).unwrap();
    let instance = Instance::create(&address, capacity(SHAPE, SESSIONS), 0o600).unwrap();
    Cache::create(&instance, "c", SHAPE).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env(DEED, format!("{deed} {address}"))
        .stdout(Stdio::null())
        .spawn();
    let child = Killed(child.unwrap());
    let program = format!("/proc/{}/comm", child.0.id());
    let start = Instant::now();
    while std::fs::read_to_string(&program).unwrap().trim() != "sleep" {
        assert!(start.elapsed() < Duration::from_secs(20), "the child becomes another program");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (done, watched) = mpsc::channel();
    std::thread::spawn(move || {
        let cache = Cache::open(&instance, "c").unwrap();
        then(&cache, &instance);
        done.send(()).unwrap();
    });
    let ended = watched.recv_timeout(Duration::from_secs(20));
    drop(child);
    retrial::remove(&address).unwrap();
    ended.expect("it ends while the other program runs");
}

#[test]
fn what_it_read_can_be_changed() {
    after("read", |cache, instance| {
        let session = instance.session("changes", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        client.exclusive(&key("V")).unwrap().unwrap().fill(2);
        assert_eq!(*client.get(&key("V")).unwrap().unwrap(), [2; 8]);
    });
}

#[test]
fn what_it_read_can_be_evicted() {
    after("read-and-evict", |cache, instance| {
        let session = instance.session("evicts", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        // Needs the whole shard.
        drop(client.get_or_insert(&key("W"), &[3; 7200]).unwrap());
    });
}

fn build(cache: &Cache<'_>, instance: &Instance) {
    let session = instance.session("builds", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    assert_eq!(*client.get_or_insert(&key("V"), &[2; 8]).unwrap(), [2; 8]);
}

#[test]
fn what_it_built_is_built_by_another_session() {
    after("build", build);
}

#[test]
fn what_it_built_without_a_builders_mutex_is_built_by_another_session() {
    after("build-beside-many", build);
}
