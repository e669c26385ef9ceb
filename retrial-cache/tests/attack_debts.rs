//! Sessions die while they execute an object that nobody changes: those who come after them have sessions.

#![allow(missing_docs)]
#![cfg(feature = "fail_points")]

use retrial::{Capacity, Class, Instance, fail};
use retrial_cache::{Cache, Client, Key, Namespace, Shape};

const SHAPE: Shape = Shape { bytes: 8 << 10, shards: 2 };
const SESSIONS: u32 = 6;

fn key(name: &str) -> Key<'_> {
    Key::new(Namespace::Child, "S", name)
}

fn execute(client: &Client<'_>) {
    client.execute(&key("OBJECT"), |bytes| assert_eq!(bytes.len(), 64)).unwrap();
}

/// Each of the dead has the mutex in S, which no other session waits for.
#[test]
fn what_the_dead_owe_to_objects_is_paid_by_those_who_join() {
    let capacity = Capacity { sessions: SESSIONS, arena: SHAPE.arena(SESSIONS), ..Capacity::default() };
    let instance = Instance::anonymous(capacity).unwrap();
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    {
        let session = instance.session("builds", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        drop(client.get_or_insert(&key("OBJECT"), &[9; 64]).unwrap());
    }
    let mut deaths = 0;
    // More at each point than there are sessions.
    for n in (1..).flat_map(|n| [n; SESSIONS as usize + 1]) {
        let prepare = || {
            let session = instance.session("mortal", Class::Normal);
            let session = session.unwrap_or_else(|why| panic!("after {deaths} deaths: {why}"));
            let session: &_ = Box::leak(Box::new(session));
            &*Box::leak(Box::new(cache.join(session).unwrap()))
        };
        if fail::die_at(n, prepare, execute).is_some() {
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
