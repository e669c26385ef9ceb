//! A session dies at each point of each protocol: the cache is whole, nothing is pinned by the dead, nothing
//! half built or half changed is seen.

#![allow(missing_docs)]

mod kit;

use kit::{fill, instance, key};
use retrial::{Class, Instance, fail};
use retrial_cache::{Cache, CacheError, Client, Shape};
use std::cell::Cell;
use std::time::{Duration, Instant};

const SHAPE: Shape = Shape { bytes: 8 << 10, shards: 1 };
const SESSIONS: u32 = 8;

/// What a session does, and may die of.
type Deed = (&'static str, fn(&Client<'_>));

/// Of an object that has two versions.
const PURGE: &str = "invalidate";

const DEEDS: &[Deed] = &[
    ("create", |client| drop(client.get_or_create(&key("NEW"), 40, fill(1)).unwrap())),
    ("create a long one, for which others go", |client| {
        drop(client.get_or_create(&key("LONG"), 5000, fill(1)).unwrap());
    }),
    ("replace", |client| drop(client.replace(&key("OBJECT"), 64, fill(2)).unwrap())),
    ("replace, until what was replaced is freed", |client| {
        (0..2).for_each(|_| drop(client.replace(&key("OBJECT"), 64, fill(2)).unwrap()));
    }),
    ("replace, and have it freed for a long one", |client| {
        drop(client.replace(&key("OBJECT"), 64, fill(2)).unwrap());
        drop(client.get_or_create(&key("LONG"), 5000, fill(1)).unwrap());
    }),
    (PURGE, |client| assert!(client.invalidate(&key("OBJECT")).unwrap())),
    ("change", |client| {
        let mut held = client.exclusive(&key("OBJECT")).unwrap().unwrap();
        held[..32].fill(3);
        retrial::fail::point();
        held[32..].fill(3);
    }),
    ("execute", |client| {
        client.execute(&key("OBJECT"), |bytes| assert_eq!(bytes.len(), 64)).unwrap().unwrap();
    }),
    ("call", |client| {
        let call = |bytes: &[u8]| {
            retrial::fail::point();
            assert_eq!(bytes.len(), 64);
        };
        client.call(&key("OBJECT"), call).unwrap().unwrap();
    }),
    ("get by mutexes", |client| drop(client.get_by_mutex(&key("OBJECT")).unwrap().unwrap())),
    ("mark hot and execute", |client| {
        client.mark_hot(&key("OBJECT"), 255).unwrap();
        client.execute(&key("OBJECT"), |bytes| assert_eq!(bytes.len(), 64)).unwrap().unwrap();
    }),
    ("read", |client| drop(client.get(&key("OBJECT")).unwrap().unwrap())),
    ("fail to build", |client| assert!(client.get_or_create(&key("NEW"), 40, |_| Err("no")).is_err())),
];

/// Dies at the `n`-th point of a deed, if it has so many; whether it did.
fn die(instance: &Instance, cache: &Cache<'_>, deed: impl FnOnce(&Client<'_>) + Send, n: u64) -> bool {
    // What a dead thread has stays where it is.
    let prepare = || {
        let session: &_ = Box::leak(Box::new(instance.session("mortal", Class::Normal).unwrap()));
        &*Box::leak(Box::new(cache.join(session).unwrap()))
    };
    fail::die_at(n, prepare, deed).is_none()
}

#[test]
fn a_death_at_any_point_leaves_the_cache_whole() {
    for (name, deed) in DEEDS {
        let mut points = 0;
        for n in 1.. {
            let instance = instance(SHAPE, SESSIONS);
            let cache = Cache::create(&instance, "c", SHAPE).unwrap();
            let session = instance.session("survivor", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            for i in 0..12 {
                drop(client.get_or_insert(&key(&format!("COLD{i}")), &[i; 200]).unwrap());
            }
            let old = client.get_or_insert(&key("OBJECT"), &[9; 64]).unwrap();
            let shown = old.to_vec();
            drop(old);
            for version in [1, 2] {
                drop(client.get_or_insert(&key("OBJECT").version(version), &[version as u8; 64]).unwrap());
            }
            if !die(&instance, &cache, *deed, n) {
                break;
            }
            points += 1;
            let at = format!("{name}, point {n}");
            let audit = cache.check(&session).unwrap();
            assert!(audit.wrong.is_empty(), "{at}: {:#?}", audit.wrong);
            assert!(cache.pins(&session).unwrap().is_empty(), "{at}: {:?}", cache.pins(&session).unwrap());
            assert_eq!(shown, [9; 64]);
            // What is found is whole, whichever of the two it is.
            if let Some(found) = client.get(&key("OBJECT")).unwrap() {
                assert!(found.iter().all(|byte| *byte == found[0]), "{at}: {:?}", &*found);
                assert!([2, 3, 9].contains(&found[0]) && found.len() == 64, "{at}");
            }
            if *name == PURGE && client.get(&key("OBJECT")).unwrap().is_none() {
                assert_eq!(client.versions(&key("OBJECT")).unwrap(), [], "{at}");
            }
            for (what, len) in [("NEW", 40), ("LONG", 5000)] {
                let found = client.get_or_create(&key(what), len, fill(1)).unwrap();
                assert!(found.len() == len && found.iter().all(|byte| *byte == 1), "{at}: {what}");
            }
            drop(client.get_or_insert(&key("OBJECT"), &[9; 64]).unwrap());
            client.execute(&key("OBJECT"), |bytes| assert_eq!(bytes.len(), 64)).unwrap().expect(&at);
            client.exclusive(&key("OBJECT")).unwrap().unwrap().fill(5);
            // Nothing that the dead session had is in the way of a value that needs the whole shard.
            cache.flush(&session).unwrap();
            let audit = cache.check(&session).unwrap();
            assert!(audit.wrong.is_empty() && audit.building == 0, "{at}: {audit:?}");
            drop(client.get_or_insert(&key("ALL"), &[1; 4000]).unwrap());
            let audit = cache.check(&session).unwrap();
            assert!(audit.wrong.is_empty(), "{at}: {audit:?}");
        }
        println!("{name}: {points} points");
        assert!(points > 0, "{name}: {points}");
    }
}

fn with_cache(sessions: u32, run: impl FnOnce(&Instance, &Cache<'_>)) {
    let instance = instance(SHAPE, sessions);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    run(&instance, &cache);
}

/// A session dies while it changes an object, and the next one that gets the mutex dies while it executes.
#[test]
fn half_a_change_is_not_seen_after_a_second_death() {
    let change: fn(&Client<'_>) = |client| {
        let mut held = client.exclusive(&key("OBJECT")).unwrap().unwrap();
        held[..32].fill(3);
        fail::point();
        held[32..].fill(3);
    };
    let execute: fn(&Client<'_>) = |client| {
        let whole = |bytes: &[u8]| assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{bytes:?}");
        client.execute(&key("OBJECT"), whole).unwrap();
    };
    let mut half = 0;
    for first in 1.. {
        let mut is_over = false;
        for second in 1.. {
            let mut died = false;
            with_cache(SESSIONS, |instance, cache| {
                let session = instance.session("survivor", Class::Normal).unwrap();
                let client = cache.join(&session).unwrap();
                drop(client.get_or_insert(&key("OBJECT"), &[9; 64]).unwrap());
                is_over = !die(instance, cache, change, first);
                died = !is_over && die(instance, cache, execute, second);
                if let Some(found) = client.get(&key("OBJECT")).unwrap() {
                    let at = format!("points {first} and {second}");
                    assert!(found.iter().all(|byte| *byte == found[0]), "{at}: {:?}", &*found);
                } else {
                    half += 1;
                }
            });
            if !died {
                break;
            }
        }
        if is_over {
            break;
        }
    }
    assert!(half > 0);
}

/// The session that has the SID of a dead builder builds what that one was building.
#[test]
fn a_dead_builders_successor_does_not_take_itself_for_it() {
    let mut unbuilt = 0;
    // One of two sessions is the successor.
    for (n, which, is_inside) in (1..20).flat_map(|n| [(n, 0, false), (n, 1, false), (n, 0, true), (n, 1, true)]) {
        with_cache(2, |instance, cache| {
            die(instance, cache, |client| drop(client.get_or_create(&key("V"), 8, fill(1)).unwrap()), n);
            instance.recover_all();
            let sessions = [0, 1].map(|_| instance.session("heir", Class::Normal).unwrap());
            let client = cache.join(&sessions[which]).unwrap();
            unbuilt += cache.objects(&sessions[which]).unwrap().iter().filter(|object| object.building).count();
            let build = || client.get_or_create(&key("V"), 8, fill(2)).map(drop);
            // From inside of a build it holds the mutex that the dead builder held.
            let built = if is_inside { client.get_or_create(&key("W"), 8, |_| build()).map(drop) } else { build() };
            built.unwrap_or_else(|why| panic!("point {n}, session {which}, inside: {is_inside}: {why}"));
        });
    }
    assert!(unbuilt > 0);
}

thread_local! {
    /// When this session began a wait that has to end.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

fn waits_too_long() -> bool {
    BEGAN.get().is_some_and(|began| began.elapsed() > Duration::from_secs(10))
}

/// An evictor dies: what it left can be read, executed and changed, also when the next session dies while it
/// executes that.
#[test]
fn an_object_whose_mutex_has_gone_does_not_come_back() {
    for n in 1.. {
        let mut died = false;
        with_cache(SESSIONS, |instance, cache| {
            let session = instance.session("survivor", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            let names: Vec<String> = (0..12).map(|i| format!("COLD{i}")).collect();
            for name in &names {
                drop(client.get_or_insert(&key(name), &[1; 200]).unwrap());
                client.execute(&key(name), |_| ()).unwrap().unwrap();
            }
            let evict = |client: &Client<'_>| drop(client.get_or_create(&key("LONG"), 5000, fill(1)).unwrap());
            died = die(instance, cache, evict, n);
            let audit = cache.check(&session).unwrap();
            assert!(audit.wrong.is_empty(), "point {n}: {:#?}", audit.wrong);
            BEGAN.set(Some(Instant::now()));
            session.ask_while_waiting(waits_too_long);
            for name in &names {
                if client.get(&key(name)).unwrap().is_none() {
                    continue;
                }
                // By the eighth point it has the mutex.
                let dies = |_: &[u8]| (0..8).for_each(|_| fail::point());
                let execute = |client: &Client<'_>| drop(client.execute(&key(name), dies));
                assert!(die(instance, cache, execute, 8));
                let changed = client.exclusive(&key(name));
                drop(changed.unwrap_or_else(|why| panic!("point {n}: {name}: {why}")));
                let executed = client.execute(&key(name), |bytes| assert_eq!(bytes, [1; 200]));
                executed.unwrap_or_else(|why| panic!("point {n}: {name}: {why}"));
            }
        });
        if !died {
            break;
        }
    }
}

/// A session dies while it waits for readers to change what they read: the next change waits for them too.
#[test]
fn readers_stay_pinned_when_the_session_that_waits_for_them_dies() {
    for n in 1.. {
        let mut died = false;
        with_cache(SESSIONS, |instance, cache| {
            let session = instance.session("survivor", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            let read = client.get_or_insert(&key("OBJECT"), &[9; 64]).unwrap();
            // A pin of its own ends its wait.
            let change = |client: &Client<'_>| {
                let own = client.get(&key("OBJECT")).unwrap().unwrap();
                let refused = client.exclusive(&key("OBJECT")).map(drop);
                assert!(matches!(refused, Err(CacheError::Deadlock)), "{refused:?}");
                drop(own);
            };
            died = die(instance, cache, change, n);
            assert!(read.is_private());
            let refused = client.exclusive(&key("OBJECT")).map(drop);
            assert!(matches!(refused, Err(CacheError::Deadlock)), "point {n}: {refused:?}");
        });
        if !died {
            break;
        }
    }
}
