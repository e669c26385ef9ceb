//! A session that is asked whether to give up reads objects in its answer.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{fill, instance, key};
use retrial::{Class, Instance, Session};
use retrial_cache::{Cache, CacheError, Client, Pin, Shape};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SESSIONS: u32 = 4;
const SHAPE: Shape = Shape { bytes: 16 << 20, shards: 1 };

thread_local! {
    static CLIENT: Cell<Option<&'static Client<'static>>> = const { Cell::new(None) };
    static PIN: RefCell<Option<Pin<'static>>> = const { RefCell::new(None) };
}

fn read_meanwhile() -> bool {
    if let Some(client) = CLIENT.get() {
        PIN.with_borrow_mut(|pin| {
            if pin.is_none() {
                *pin = client.get(&key("V")).unwrap();
            }
        });
    }
    false
}

/// The session waits for a shard to build an object. What it pins in its answer to the question meanwhile
/// stays pinned when the build goes on.
#[test]
fn what_is_pinned_while_a_builder_waits_stays_pinned() {
    let instance: &'static Instance = Box::leak(Box::new(instance(SHAPE, SESSIONS)));
    let cache: &'static Cache<'_> = Box::leak(Box::new(Cache::create(instance, "c", SHAPE).unwrap()));
    let session: &'static Session<'_> = Box::leak(Box::new(instance.session("builds", Class::Normal).unwrap()));
    let client: &'static Client<'_> = Box::leak(Box::new(cache.join(session).unwrap()));
    // So many that an audit has the shard for some milliseconds.
    for i in 0..50_000 {
        drop(client.get_or_insert(&key(&format!("COLD{i}")), b"").unwrap());
    }
    session.ask_while_waiting(read_meanwhile);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = instance.session("audits", Class::Normal).unwrap();
            while !stop.load(Ordering::Relaxed) {
                cache.check(&session).unwrap();
            }
        });
        let start = Instant::now();
        let mut asked = 0;
        while asked < 5 && start.elapsed() < Duration::from_secs(20) {
            drop(client.get_or_insert(&key("V"), b"the value").unwrap());
            CLIENT.set(Some(client));
            let built = client.replace(&key("W"), 9, fill(1));
            CLIENT.set(None);
            if let Some(pin) = PIN.take() {
                asked += 1;
                drop(built);
                let pinned = cache.pins(session).unwrap();
                let is_changed = client.exclusive(&key("V")).map(|changed| changed.is_some());
                if !matches!(is_changed, Err(CacheError::Deadlock)) || pinned.len() != 1 {
                    stop.store(true, Ordering::Relaxed);
                    panic!("a session's pin of {:?} is not in its row: {pinned:?}, {is_changed:?}", &*pin);
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(asked > 0, "the session was never asked");
    });
}
