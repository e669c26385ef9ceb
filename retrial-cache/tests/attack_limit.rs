//! A process that has no room to map the slots of other processes' sessions.

#![allow(missing_docs)]

mod kit;

use kit::{capacity, key};
use retrial::{Address, Class, Instance};
use retrial_cache::{Cache, Shape};

const SHAPE: Shape = Shape { bytes: 64 << 10, shards: 1 };
const SESSIONS: u32 = 1024;

/// No test of its own: what the test below has a process of its own do.
#[test]
#[ignore = "sets a limit of the whole process"]
fn beside_a_limit() {
    let name = Address::new(&format!("limit-{}", std::process::id())).unwrap();
    let reading = Instance::create(&name, capacity(SHAPE, SESSIONS), 0o600).unwrap();
    let evicting = Instance::attach(&name).unwrap();
    retrial::remove(&name).unwrap();
    let cache = Cache::create(&reading, "c", SHAPE).unwrap();
    // It maps the first sessions.
    let limited = evicting.session("evicts", Class::Normal).unwrap();
    let other = Cache::open(&evicting, "c").unwrap();
    let client = other.join(&limited).unwrap();
    let sessions: Vec<_> = (1..SESSIONS).map_while(|_| reading.session("reads", Class::Normal).ok()).collect();
    let session = sessions.last().unwrap();
    let reader = cache.join(session).unwrap();
    // Evictors ask whether any log names their mutexes.
    for i in 0..20 {
        let name = format!("CHANGED{i}");
        drop(reader.get_or_insert(&key(&name), &[1; 64]).unwrap());
        drop(reader.exclusive(&key(&name)).unwrap());
    }
    let read = reader.get_or_insert(&key("READ"), &[7; 64]).unwrap();

    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let limit = libc::rlimit { rlim_cur: (pages << 12) + (256 << 10), rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is readable.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    assert!(evicting.tables().session_info(session.sid()).is_none(), "the limit has room for the session");
    assert!(client.invalidate(&key("READ")).unwrap());
    for i in 0..5000 {
        drop(client.get_or_insert(&key(&i.to_string()), &[9; 64]));
        assert_eq!(*read, [7; 64], "after {i} objects");
    }
    println!("what is read stays");
}

#[test]
fn what_a_session_reads_stays_also_where_its_slot_cannot_be_mapped() {
    let mut limited = std::process::Command::new(std::env::current_exe().unwrap());
    let limited = limited.args(["beside_a_limit", "--exact", "--ignored", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&limited.stdout).into_owned() + &String::from_utf8_lossy(&limited.stderr);
    assert!(text.contains("what is read stays"), "{text}");
}
