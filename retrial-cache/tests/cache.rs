//! What a cache does for its users, in one process.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{fill, is_whole};
use retrial::{Capacity, Class, Instance};
use retrial_cache::{Cache, CacheError, Hash, Key, Namespace, OVERHEAD, PINS, Shape};
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SESSIONS: u32 = 32;

fn instance(shape: Shape) -> Instance {
    kit::instance(shape, SESSIONS)
}

fn small() -> Shape {
    Shape { bytes: 256 << 10, shards: 2 }
}

fn key(name: &str) -> Key<'_> {
    Key::new(Namespace::Procedure, "SCOTT", name)
}

#[test]
fn an_object_is_built_once_and_found_by_its_whole_name() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    assert!(client.get(&key("EMP")).unwrap().is_none());
    let made = client.get_or_insert(&key("EMP"), b"employees").unwrap();
    let found = client.get_or_create(&key("EMP"), 5, |_| Err("built already")).unwrap();
    assert_eq!((&*made, &*found, found.is_private()), (&b"employees"[..], &b"employees"[..], true));
    assert_eq!(found.as_ptr().addr() % 16, 0);
    for other in [
        key("EMP2"),
        key("EM"),
        Key::new(Namespace::Cursor, "SCOTT", "EMP"),
        Key::new(Namespace::Procedure, "SCOT", "TEMP"),
        key("EMP").version(1),
    ] {
        assert!(client.get(&other).unwrap().is_none(), "{other}");
    }
    let names: Vec<String> = cache.objects(&session).unwrap().into_iter().map(|object| object.name).collect();
    assert_eq!(names, ["SCOTT.EMP"]);
    drop((made, found));
    drop(client);
    is_whole(&cache, &instance);
}

#[test]
fn what_was_replaced_while_it_was_read_does_not_fill_the_cache() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let [one, other] = [0, 1].map(|_| instance.session("s", Class::Normal).unwrap());
    let (reader, writer) = (cache.join(&one).unwrap(), cache.join(&other).unwrap());
    drop(writer.get_or_insert(&key("EMP"), &[0; 64]).unwrap());
    let mut read = None;
    for round in 0..10_000_u32 {
        let next = reader.get(&key("EMP")).unwrap().expect("it is replaced and not thrown away");
        drop(writer.replace(&key("EMP"), 64, |_| Ok::<_, Infallible>(())).unwrap());
        // The one before it goes while this one stays.
        drop(read.replace(next));
        let gone = cache.check(&other).unwrap().gone;
        assert!(gone <= 16, "round {round}: {gone} wait to be freed");
    }
    drop(read);
    assert_eq!(cache.totals(&other).unwrap().evicted, 0);
    drop((reader, writer));
    is_whole(&cache, &instance);
}

#[test]
fn readers_are_counted_where_the_cache_says_so() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    let is_private = |name: &str| client.get(&key(name)).unwrap().unwrap().is_private();
    cache.set_counted(true);
    drop(client.get_or_insert(&key("EMP"), b"employees").unwrap());
    drop(client.replace(&key("DEPT"), 4, |_| Ok::<_, Infallible>(())).unwrap());
    assert!(!is_private("EMP") && !is_private("EMP") && !is_private("DEPT"));
    cache.set_counted(false);
    // The first one by the mutex has later ones go without.
    assert!(!is_private("EMP") && is_private("EMP"));
    drop(client);
    is_whole(&cache, &instance);
}

#[test]
fn values_have_any_length_and_the_largest_is_told() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    for len in [0, 1, 15, 16, 17, 4096, 60_000] {
        let value: Vec<u8> = (0..=250).cycle().take(len).collect();
        assert_eq!(&*client.get_or_insert(&key(&format!("V{len}")), &value).unwrap(), value);
    }
    let Err(CacheError::TooLarge { found: 1_000_000, largest }) =
        client.get_or_insert(&key("BIG"), &vec![7; 1_000_000])
    else {
        panic!("refused")
    };
    // A value of that length needs all of its shard, and gets it.
    let value = vec![9; largest];
    assert_eq!(&*client.get_or_insert(&key("BIG"), &value).unwrap(), value);
    drop(client);
    is_whole(&cache, &instance);
}

#[test]
fn a_builder_that_fails_or_panics_leaves_nothing() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    let failed = client.get_or_create(&key("P"), 8, |_| Err(io::Error::other("no such table"))).unwrap_err();
    assert_eq!(failed.to_string(), "the object was not built: no such table");
    let panics = || client.get_or_create(&key("P"), 8, |_| -> Result<(), Infallible> { panic!("a bug") }).map(drop);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert!(client.get(&key("P")).unwrap().is_none());
    let inner = |_: &mut [u8]| client.get_or_insert(&key("P"), b"").map(drop);
    let own = client.get_or_create(&key("P"), 8, inner).unwrap_err();
    assert!(own.to_string().contains("would wait for itself"), "{own}");
    assert_eq!(&*client.get_or_insert(&key("P"), b"at last").unwrap(), b"at last");
    drop(client);
    is_whole(&cache, &instance);
}

#[test]
fn those_who_ask_meanwhile_wait_for_the_builder() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let built = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let session = instance.session("s", Class::Normal).unwrap();
                let client = cache.join(&session).unwrap();
                for round in 0..20 {
                    let name = format!("P{round}");
                    let object = client.get_or_create(&key(&name), 8, |bytes| {
                        std::thread::sleep(Duration::from_millis(2));
                        bytes.copy_from_slice(&built.fetch_add(1, Ordering::Relaxed).to_le_bytes());
                        Ok::<_, Infallible>(())
                    });
                    assert_eq!(object.unwrap().len(), 8);
                }
            });
        }
    });
    assert_eq!(built.load(Ordering::Relaxed), 20);
    is_whole(&cache, &instance);
}

#[test]
fn what_was_not_got_for_longest_goes_and_what_is_pinned_stays() {
    let shape = Shape { bytes: 64 << 10, shards: 1 };
    let instance = instance(shape);
    let cache = Cache::create(&instance, "c", shape).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    let pinned = client.get_or_insert(&key("PINNED"), b"stays").unwrap();
    for i in 0..5000 {
        drop(client.get_or_insert(&key(&format!("COLD{i}")), &[0; 100]).unwrap());
        assert!(i == 0 || client.get(&key("HOT")).unwrap().is_some() || i % 50 != 0, "{i}");
        drop(client.get_or_insert(&key("HOT"), b"got again and again").unwrap());
    }
    assert_eq!(&*pinned, b"stays");
    let totals = cache.totals(&session).unwrap();
    assert!(totals.evicted > 4000 && totals.objects > 100, "{totals:?}");
    // Where everything is pinned, that is said.
    let mut pins = vec![pinned];
    let mut full =
        (0..PINS).map(|i| client.get_or_insert(&key(&format!("P{i}")), &[0; 1200]).map(|pin| pins.push(pin)));
    let why = full.find_map(Result::err).unwrap();
    assert!(matches!(why, CacheError::Full { .. } | CacheError::Pins { .. }), "{why}");
    pins.clear();
    drop(pins);
    drop(client);
    is_whole(&cache, &instance);
}

#[test]
fn a_replaced_or_invalidated_object_is_read_on_by_who_has_it() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    let old = client.get_or_insert(&key("V"), b"old").unwrap();
    let fill = |bytes: &mut [u8]| {
        bytes.copy_from_slice(b"newer");
        Ok::<_, Infallible>(())
    };
    let new = client.replace(&key("V"), 5, fill).unwrap();
    let found = client.get(&key("V")).unwrap().unwrap();
    assert_eq!((&*old, &*new, &*found), (&b"old"[..], &b"newer"[..], &b"newer"[..]));
    assert!(client.replace(&key("V"), 5, |_| Err("fails")).is_err());
    assert_eq!(client.get(&key("V")).unwrap().as_deref(), Some(&b"newer"[..]));
    assert!(client.invalidate(&key("V")).unwrap() && !client.invalidate(&key("V")).unwrap());
    assert!(client.get(&key("V")).unwrap().is_none());
    assert_eq!((&*old, &*new), (&b"old"[..], &b"newer"[..]));
    drop((old, new, found));
    let flushed = cache.flush(&session).unwrap();
    assert_eq!(flushed, 0);
    drop(client);
    is_whole(&cache, &instance);
}

#[test]
fn a_writer_waits_for_readers_and_readers_go_private_again() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let (session, other) =
        (instance.session("s", Class::Normal).unwrap(), instance.session("o", Class::Normal).unwrap());
    let (client, reader) = (cache.join(&session).unwrap(), cache.join(&other).unwrap());
    let object = client.get_or_insert(&key("V"), b"1").unwrap();
    assert!(matches!(client.exclusive(&key("V")), Err(CacheError::Deadlock)));
    assert!(object.is_private() && client.get(&key("V")).unwrap().unwrap().is_private());
    drop(object);
    client.exclusive(&key("V")).unwrap().unwrap()[0] = b'2';
    let counted = reader.get(&key("V")).unwrap().unwrap();
    assert_eq!(&*counted, b"2");
    drop(counted);
    let start = Instant::now();
    while !reader.get(&key("V")).unwrap().unwrap().is_private() {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    drop((client, reader));
    is_whole(&cache, &instance);
}

/// Each value is eight equal bytes: a reader that sees others has seen half of a change.
#[test]
fn no_reader_sees_half_of_a_change() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let changes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..6_u8 {
            let (instance, cache, changes) = (&instance, &cache, &changes);
            scope.spawn(move || {
                let session = instance.session("s", Class::Normal).unwrap();
                let client = cache.join(&session).unwrap();
                let start = Instant::now();
                let mut round = 0_u64;
                while start.elapsed() < Duration::from_millis(800) {
                    round += 1;
                    let name = format!("V{}", round % 3);
                    if number < 2 && round.is_multiple_of(20) {
                        if let Some(mut held) = client.exclusive(&key(&name)).unwrap() {
                            held.iter_mut().for_each(|byte| *byte = byte.wrapping_add(number + 1));
                            changes.fetch_add(1, Ordering::Relaxed);
                        }
                    } else if number == 2 && round.is_multiple_of(50) {
                        client.invalidate(&key(&name)).unwrap();
                    } else if number == 3 && round.is_multiple_of(30) {
                        drop(client.replace(&key(&name), 64, fill(round as u8)).unwrap());
                    } else {
                        let object = client.get_or_insert(&key(&name), &[number; 64]).unwrap();
                        assert!(object.iter().all(|byte| *byte == object[0]), "{object:?} {:?}", &*object);
                    }
                }
            });
        }
    });
    assert!(changes.load(Ordering::Relaxed) > 10);
    is_whole(&cache, &instance);
}

/// One reads without a pause and one changes it: a pin that a revocation does not see, and a session that
/// does not see the revocation either, would show in what is read.
#[test]
fn a_pin_and_a_revocation_never_miss_each_other() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let stop = AtomicU64::new(0);
    let (private, changes) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let session = instance.session("reads", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            drop(client.get_or_insert(&key("V"), &[0; 8]).unwrap());
            let mut private = 0_u64;
            while stop.load(Ordering::Relaxed) == 0 {
                let pin = client.get(&key("V")).unwrap().unwrap();
                let first = std::hint::black_box(&pin)[0];
                for _ in 0..20 {
                    assert_eq!(std::hint::black_box(&pin)[7], first);
                }
                private += u64::from(pin.is_private());
            }
            private
        });
        let session = instance.session("changes", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        let (start, mut changes) = (Instant::now(), 0_u64);
        while start.elapsed() < Duration::from_secs(1) && !reader.is_finished() {
            if let Some(mut value) = client.exclusive(&key("V")).unwrap() {
                value.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                changes += 1;
            }
            // Long enough for the reader to be private again.
            let quiet = Instant::now();
            while quiet.elapsed() < Duration::from_micros(100) {
                std::hint::spin_loop();
            }
        }
        stop.store(1, Ordering::Relaxed);
        (reader.join().unwrap(), changes)
    });
    assert!(private > 100 && changes > 100, "{private} private reads, {changes} changes");
}

#[test]
fn a_mixed_load_with_evictions_leaves_it_whole() {
    let shape = Shape { bytes: 128 << 10, shards: 4 };
    let instance = instance(shape);
    let cache = Cache::create(&instance, "c", shape).unwrap();
    std::thread::scope(|scope| {
        for number in 0..6_u64 {
            let (instance, cache) = (&instance, &cache);
            scope.spawn(move || {
                let session = instance.session("s", Class::Normal).unwrap();
                let client = cache.join(&session).unwrap();
                let mut random = number + 1;
                for _ in 0..20_000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let which = random >> 33;
                    let (name, len) = (format!("V{}", which % 600), (which % 600 % 7 * 100) as usize);
                    let object = client.get_or_insert(&key(&name), &vec![which as u8; len]).unwrap();
                    assert_eq!(object.len(), len);
                    if which.is_multiple_of(97) {
                        client.invalidate(&key(&name)).unwrap();
                    }
                }
            });
        }
    });
    is_whole(&cache, &instance);
}

#[test]
fn hot_copies_are_one_object() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    drop(client.get_or_insert(&key("P"), b"plan 1").unwrap());
    assert!(matches!(client.mark_hot_by_hash(Hash(77), 4), Err(CacheError::Unknown(Hash(77)))));
    assert!(matches!(client.mark_hot(&key("Q"), 4), Err(CacheError::UnknownName(_))));
    client.mark_hot_by_hash(key("P").hash(), 200).unwrap();
    let run = |expected: &[u8]| {
        let seen = client.execute(&key("P"), <[u8]>::to_vec).unwrap();
        assert_eq!(seen.as_deref(), Some(expected));
        let called = client.call(&key("P"), <[u8]>::to_vec).unwrap();
        assert_eq!(called.as_deref(), Some(expected));
    };
    run(b"plan 1");
    client.exclusive(&key("P")).unwrap().unwrap().copy_from_slice(b"plan 2");
    run(b"plan 2");
    let fill = |bytes: &mut [u8]| {
        bytes.copy_from_slice(b"plan 3");
        Ok::<_, Infallible>(())
    };
    drop(client.replace(&key("P"), 6, fill).unwrap());
    run(b"plan 3");
    assert!(client.invalidate(&key("P")).unwrap());
    assert!(client.execute(&key("P"), |_| ()).unwrap().is_none());
    assert!(client.call(&key("P"), |_| ()).unwrap().is_none() && client.get_by_mutex(&key("P")).unwrap().is_none());
    drop(client);
    is_whole(&cache, &instance);
}

#[test]
fn bad_input_is_told_and_loses_nothing() {
    let instance = instance(small());
    assert!(matches!(Cache::open(&instance, "none"), Err(CacheError::NotFound(_))));
    assert!(matches!(Cache::create(&instance, "c", Shape { bytes: 10, shards: 1 }), Err(CacheError::BadShape(_))));
    assert!(matches!(
        Cache::create(&instance, "c", Shape { bytes: 1 << 40, shards: 4096 }),
        Err(CacheError::Arena { .. })
    ));
    let cache = Cache::create(&instance, "d", small()).unwrap();
    assert!(matches!(Cache::create(&instance, "d", Shape { shards: 1, ..small() }), Err(CacheError::Shape { .. })));
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    assert!(matches!(cache.join(&session), Err(CacheError::Joined)));
    for name in ["", &"x".repeat(2000), "a\0b"] {
        assert!(matches!(client.get(&key(name)), Err(CacheError::Name { what: "name", .. })), "{name:?}");
    }
    let elsewhere = Instance::anonymous(Capacity::default()).unwrap();
    let stranger = elsewhere.session("s", Class::Normal).unwrap();
    assert!(matches!(cache.join(&stranger), Err(CacheError::OtherInstance)));
    // Sessions that only look hold mutexes too.
    assert!(matches!(cache.objects(&stranger), Err(CacheError::OtherInstance)));
    assert!(matches!(cache.check(&stranger), Err(CacheError::OtherInstance)));
    drop(client);
    is_whole(&cache, &instance);
}

#[test]
fn an_object_has_at_most_128_bytes_beside_its_name_and_value() {
    let shape = Shape { bytes: 1 << 20, shards: 1 };
    let instance = instance(shape);
    let cache = Cache::create(&instance, "c", shape).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    for len in 0..400 {
        let name = format!("V{len:03}");
        drop(client.get_or_insert(&key(&name), &vec![1; len]).unwrap());
    }
    for object in cache.objects(&session).unwrap() {
        let beside = object.taken - object.bytes - object.name.len() as u64 + 1;
        assert!((OVERHEAD as u64..=128).contains(&beside), "{object:?}: {beside}");
    }
}

#[test]
fn the_gets_of_sessions_that_have_left_stay_in_the_totals() {
    let instance = instance(small());
    let cache = Cache::create(&instance, "c", small()).unwrap();
    let looks = instance.session("looks", Class::Normal).unwrap();
    let counted = || {
        let totals = cache.totals(&looks).unwrap();
        (totals.gets, totals.hits)
    };
    for round in 1..4 {
        let session = instance.session("gets", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        assert_eq!(counted(), ((round - 1) * 11, (round - 1) * 10));
        assert!(client.get(&key("NONE")).unwrap().is_none());
        client.replace(&key("V"), 4, |_| Ok::<_, Infallible>(())).map(drop).unwrap();
        (0..10).for_each(|_| drop(client.get(&key("V")).unwrap().unwrap()));
        assert_eq!(counted(), (round * 11, round * 10));
        drop(client);
        assert_eq!(counted(), (round * 11, round * 10));
    }
}
