//! Sessions die while they execute an object that nobody changes: those who come after them have sessions.

#![allow(missing_docs)]
#![cfg(feature = "fail_points")]

mod kit;

use kit::key;
use retrial::{Class, Instance, fail};
use retrial_cache::{Cache, Client, Shape};
use std::sync::atomic::{AtomicU32, Ordering};

const SHAPE: Shape = Shape { bytes: 8 << 10, shards: 2 };
const SESSIONS: u32 = 6;

fn execute(client: &Client<'_>) {
    client.execute(&key("OBJECT"), |bytes| assert_eq!(bytes.len(), 64)).unwrap();
}

fn instance() -> Instance {
    let instance = kit::instance(SHAPE, SESSIONS);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let session = instance.session("builds", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    drop(client.get_or_insert(&key("OBJECT"), &[9; 64]).unwrap());
    drop(client);
    drop(session);
    drop(cache);
    instance
}

/// A session that its thread leaves behind, after so many deaths.
fn mortal<'c>(instance: &'c Instance, cache: &'c Cache<'c>, deaths: u32) -> &'c Client<'c> {
    let session = instance.session("mortal", Class::Normal);
    let session = session.unwrap_or_else(|why| panic!("after {deaths} deaths: {why}"));
    Box::leak(Box::new(cache.join(Box::leak(Box::new(session))).unwrap()))
}

/// Each of the dead has the mutex in S, which no other session waits for.
#[test]
fn what_the_dead_owe_to_objects_is_paid_by_those_who_join() {
    let instance = instance();
    let cache = Cache::open(&instance, "c").unwrap();
    let mut deaths = 0;
    // More at each point than there are sessions.
    for n in (1..).flat_map(|n| [n; SESSIONS as usize + 1]) {
        if fail::die_at(n, || mortal(&instance, &cache, deaths), execute).is_some() {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > SESSIONS);
    // Also of an object that has gone.
    let session = instance.session("survivor", Class::Normal).unwrap();
    cache.flush(&session).unwrap();
    let audit = cache.check(&session).unwrap();
    assert!(audit.wrong.is_empty() && (audit.objects, audit.gone) == (0, 0), "{audit:?}");
}

/// Has the object executed by the first session while it is executed by the others.
fn execute_within(clients: &[&Client<'_>], all: &AtomicU32) {
    match clients {
        [first, others @ ..] => {
            first.execute(&key("OBJECT"), |_| execute_within(others, all)).unwrap();
        }
        [] => drop(all.fetch_add(1, Ordering::Relaxed)),
    }
}

/// No slot is free, and no session is left that waits or joins.
#[test]
fn what_all_sessions_of_an_instance_owe_is_paid_by_the_next_one() {
    let instance = instance();
    let cache = Cache::open(&instance, "c").unwrap();
    let (all, mut deaths) = (AtomicU32::new(0), 0);
    // At each point until all have the object in S, and at the first ones after it: a crew that lived would stay.
    for n in (1..).take_while(|_| all.load(Ordering::Relaxed) < 20) {
        let crew =
            || -> [&Client<'_>; SESSIONS as usize] { std::array::from_fn(|_| mortal(&instance, &cache, deaths)) };
        assert!(fail::die_at(n, crew, |crew| execute_within(&crew, &all)).is_none(), "a whole deed has more points");
        deaths += SESSIONS;
    }
    let session = instance.session("survivor", Class::Normal).unwrap();
    cache.flush(&session).unwrap();
    let audit = cache.check(&session).unwrap();
    assert!(audit.wrong.is_empty() && (audit.objects, audit.gone) == (0, 0), "{audit:?}");
}
