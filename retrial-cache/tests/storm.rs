//! A storm of kills: processes that create, read, change, replace, execute and throw away objects of one
//! small cache, killed by SIGKILL at any moment and replaced. The cache is audited after every so many.
//!
//! Without the harness of the other tests: this process has one thread, so that a child of fork is a process
//! like any other. `RETRIAL_STORM_KILLS` says how many are killed (200), `RETRIAL_STORM_SEED` of whom and
//! when.

#![allow(missing_docs)]

mod kit;

use kit::{Random, capacity};
use retrial::{Address, Class, Instance};
use retrial_cache::{Cache, CacheError, Client, Handle, Key, Namespace, Shape};
use std::convert::Infallible;
use std::time::{Duration, Instant};

const WORKERS: usize = 6;
const SESSIONS: u32 = 16;
const SHAPE: Shape = Shape { bytes: 96 << 10, shards: 2 };
const OBJECTS: usize = 400;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Which object, how long it is, and that all its bytes are the same: half of a change would show.
fn whole(which: usize, bytes: &[u8]) {
    assert_eq!(bytes.len(), length(which), "object {which}");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "half of a change in object {which}: {bytes:?}");
}

fn length(which: usize) -> usize {
    [8, 64, 200, 1500][which % 4]
}

/// Three versions of a name in each namespace.
fn key(name: &str, which: usize) -> Key<'_> {
    Key::new(Namespace::ALL[which % 4], "STORM", name).version((which / 4 % 3) as u16)
}

fn name(which: usize) -> String {
    format!("OBJECT{}", which / 12)
}

/// Objects that a session has handles of.
const HANDLES: usize = 16;

fn deed(client: &Client<'_>, handles: &[Handle<'_>], random: &mut Random) -> Result<(), CacheError> {
    let which = random.below(OBJECTS);
    let name = name(which);
    let key = key(&name, which);
    let (len, with) = (length(which), random.below(256) as u8);
    let fill = |bytes: &mut [u8]| {
        // Byte by byte: to be killed in between.
        for byte in bytes.iter_mut() {
            *byte = with;
        }
        Ok::<_, Infallible>(())
    };
    match random.below(100) {
        0..40 => whole(which, &client.get_or_create(&key, len, fill)?),
        40..60 => {
            let which = random.below(HANDLES);
            let handle = &handles[which];
            if handle.read(|bytes| whole(which, bytes))?.is_none() {
                whole(which, &client.get_or_create(handle.key(), length(which), fill)?);
            }
        }
        60..70 => whole(which, &client.replace(&key, len, fill)?),
        70..80 => {
            if let Some(mut held) = client.exclusive(&key)? {
                whole(which, &held);
                held.iter_mut().for_each(|byte| *byte = with);
            }
        }
        80..85 => {
            client.execute(&key, |bytes| whole(which, bytes))?;
        }
        85..90 => {
            client.call(&key, |bytes| whole(which, bytes))?;
        }
        90..93 => {
            client.invalidate(&key)?;
        }
        93..95 => match client.mark_hot(&key, 3) {
            Err(CacheError::UnknownName(_)) => {}
            other => other?,
        },
        95..97 => match client.get_or_create(&key, len, |_| Err("not now")) {
            Err(CacheError::Build(_)) => {}
            other => whole(which, &other?),
        },
        // Two at a time, kept for a moment.
        _ => {
            let first = client.get_or_create(&key, len, fill)?;
            let second = random.below(OBJECTS);
            let name = self::name(second);
            let other = self::key(&name, second);
            let second_one = client.get_or_create(&other, length(second), fill)?;
            std::thread::yield_now();
            whole(which, &first);
            whole(second, &second_one);
        }
    }
    Ok(())
}

fn work(address: &Address, seed: u64) -> Result<(), Box<dyn std::error::Error>> {
    let instance = Instance::attach(address)?;
    let session = instance.session("storm", Class::Normal)?;
    let cache = Cache::open(&instance, "storm")?;
    let client = cache.join(&session)?;
    let names: Vec<String> = (0..HANDLES).map(name).collect();
    let handles = names.iter().zip(0..).map(|(name, which)| client.handle(&key(name, which)));
    let handles = handles.collect::<Result<Vec<_>, _>>()?;
    let mut random = Random(seed);
    loop {
        deed(&client, &handles, &mut random)?;
    }
}

fn start(address: &Address, seed: u64) -> libc::pid_t {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a process can be made");
    if pid == 0 {
        // A test that fails leaves no workers behind.
        // SAFETY: takes no memory.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let why = work(address, seed).expect_err("it works until it is killed");
        eprintln!("a worker has failed: {why}");
        // SAFETY: ends this process.
        unsafe { libc::_exit(1) };
    }
    pid
}

fn end(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: a child of this process.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: as above; the status is writable.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL,
        "a worker has ended by itself: {status}"
    );
}

fn main() {
    let (kills, seed) = (setting("RETRIAL_STORM_KILLS", 200), setting("RETRIAL_STORM_SEED", 1));
    let address = Address::new(&format!("test-cache-storm-{}", std::process::id())).unwrap();
    let instance = Instance::create(&address, capacity(SHAPE, SESSIONS), 0o600).unwrap();
    let cache = Cache::create(&instance, "storm", SHAPE).unwrap();
    let mut random = Random(seed);
    let mut workers: Vec<_> = (0..WORKERS as u64).map(|number| start(&address, seed + number)).collect();
    let (mut pinned, start_of_all) = (0, Instant::now());
    for kill in 1..=kills {
        std::thread::sleep(Duration::from_micros(500 + random.below(8000) as u64));
        let which = random.below(WORKERS);
        end(workers[which]);
        workers[which] = start(&address, seed + kill * 100);
        if kill.is_multiple_of(50) || kill == kills {
            let session = instance.session("audit", Class::Normal).unwrap();
            let audit = cache.check(&session).unwrap();
            assert!(audit.wrong.is_empty(), "after {kill} kills: {:#?}", audit.wrong);
            pinned += audit.pins;
            if kill.is_multiple_of(1000) {
                println!("{kill} kills: {audit:?} {:?}", cache.totals(&session).unwrap());
            }
        }
    }
    workers.into_iter().for_each(end);
    // Without workers nothing is pinned, nothing is built, and all can go.
    instance.recover_all();
    let session = instance.session("audit", Class::Normal).unwrap();
    assert_eq!(cache.pins(&session).unwrap(), []);
    let totals = cache.totals(&session).unwrap();
    cache.flush(&session).unwrap();
    let audit = cache.check(&session).unwrap();
    assert!(audit.wrong.is_empty() && (audit.objects, audit.building, audit.gone) == (0, 0, 0), "{audit:?}");
    assert!(totals.evicted > 0 && totals.created > OBJECTS as u64, "{totals:?}");
    println!("cache storm: {kills} kills in {:.1?}, {pinned} pins seen, {totals:?}: whole", start_of_all.elapsed());
    drop((session, cache));
    retrial::remove(&address).unwrap();
}
