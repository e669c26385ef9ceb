//! Handles: what they find where an object was, and what they do not take for it.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{instance, key};
use retrial::Class;
use retrial_cache::{Cache, CacheError, Client, OVERHEAD, Shape};
use std::convert::Infallible;
use std::time::{Duration, Instant};

const SESSIONS: u32 = 8;
const SHAPE: Shape = Shape { bytes: 16 << 10, shards: 1 };

fn with_client(run: impl FnOnce(&Cache<'_>, &Client<'_>)) {
    let instance = instance(SHAPE, SESSIONS);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    run(&cache, &cache.join(&session).unwrap());
}

#[test]
fn a_handle_finds_what_has_its_name_now() {
    with_client(|cache, client| {
        let handle = client.handle(&key("V")).unwrap();
        assert!(handle.get().unwrap().is_none() && handle.read(<[u8]>::len).unwrap().is_none());
        let is = |value: &[u8]| {
            // Looked up, then where it was.
            for _ in 0..3 {
                assert_eq!(&*handle.get().unwrap().unwrap(), value);
                assert_eq!(handle.read(<[u8]>::to_vec).unwrap().unwrap(), value);
            }
        };
        drop(client.get_or_insert(&key("V"), b"first").unwrap());
        is(b"first");
        client.exclusive(&key("V")).unwrap().unwrap().copy_from_slice(b"again");
        is(b"again");
        let old = handle.get().unwrap().unwrap();
        let new = |bytes: &mut [u8]| {
            bytes.copy_from_slice(b"new");
            Ok::<_, Infallible>(())
        };
        drop(client.replace(&key("V"), 3, new).unwrap());
        is(b"new");
        assert_eq!(&*old, b"again");
        assert!(client.invalidate(&key("V")).unwrap());
        assert!(handle.get().unwrap().is_none());
        drop(client.get_or_insert(&key("V"), b"reborn").unwrap());
        is(b"reborn");
        let session = cache.pins(client.session()).unwrap();
        assert_eq!(session.len(), 1, "{session:?}");
    });
}

#[test]
fn gets_by_a_handle_are_counted_as_others_are() {
    with_client(|cache, client| {
        let handle = client.handle(&key("V")).unwrap();
        assert!(handle.get().unwrap().is_none());
        drop(client.get_or_insert(&key("V"), b"v").unwrap());
        let before = cache.totals(client.session()).unwrap();
        for _ in 0..5 {
            assert!(handle.get().unwrap().is_some());
        }
        let now = cache.totals(client.session()).unwrap();
        assert_eq!((now.gets - before.gets, now.hits - before.hits), (5, 5));
    });
}

#[test]
fn what_a_handle_has_pinned_stays_and_is_not_changed() {
    with_client(|cache, client| {
        drop(client.get_or_insert(&key("V"), b"value").unwrap());
        let handle = client.handle(&key("V")).unwrap();
        drop(handle.get().unwrap());
        let pin = handle.get().unwrap().unwrap();
        assert!(pin.is_private());
        assert_eq!(cache.flush(client.session()).unwrap(), 0);
        assert!(matches!(client.exclusive(&key("V")), Err(CacheError::Deadlock)));
        assert_eq!(&*pin, b"value");
        drop(pin);
        assert_eq!(cache.flush(client.session()).unwrap(), 1);
        assert!(handle.get().unwrap().is_none());
    });
}

/// The object has gone, and where it was lie the bytes of another one's value, which look like it.
#[test]
fn a_value_is_not_taken_for_the_object_of_a_handle() {
    with_client(|_, client| {
        const SMALL: usize = 128;
        let mut block = vec![0; OVERHEAD];
        block[0] = 8; // units
        block[8..10].copy_from_slice(&0x102_u16.to_le_bytes()); // live, and private
        block[16..32].copy_from_slice(&key("V").hash().0.to_le_bytes());
        block[80] = 8; // length of the value
        block[96] = 1; // lengths of schema and name
        block[98] = 1;
        block.extend(b"a forgedSV");
        drop(client.get_or_insert(&key("before"), &[0; 8]).unwrap());
        let real = client.get_or_insert(&key("V"), b"the real").unwrap().as_ptr().addr();
        let handle = client.handle(&key("V")).unwrap();
        assert_eq!(&*handle.get().unwrap().unwrap(), b"the real");
        client.invalidate(&key("V")).unwrap();
        client.invalidate(&key("before")).unwrap();
        let value = [&[0; SMALL - OVERHEAD], &block[..], &[0; 500]].concat();
        let long = client.get_or_insert(&key("long"), &value).unwrap();
        assert_eq!(long.as_ptr().addr() + SMALL, real, "the forged object is where the real one was");
        assert!(handle.get().unwrap().is_none());
        assert!(handle.read(<[u8]>::to_vec).unwrap().is_none());
    });
}

#[test]
fn a_name_that_none_can_have_has_no_handle() {
    with_client(|_, client| {
        for name in ["", "a\0b", &"n".repeat(1001)] {
            assert!(matches!(client.handle(&key(name)), Err(CacheError::Name { .. })), "{name:?}");
            assert!(matches!(client.get(&key(name)), Err(CacheError::Name { .. })), "{name:?}");
        }
    });
}

/// Each object by itself would be private again: other objects were changed for many times as long as its change
/// took.
#[test]
fn all_revocations_together_delay_when_readers_pin_in_their_rows_again() {
    with_client(|_, client| {
        let names: Vec<String> = (0..100).map(|i| format!("V{i}")).collect();
        let is_private = |name: &str| client.get(&key(name)).unwrap().unwrap().is_private();
        // Not at once on a machine that has no time for this process.
        let are_counted = || {
            for name in &names {
                drop(client.get_or_insert(&key(name), b"value").unwrap());
            }
            let start = Instant::now();
            while !names.iter().all(|name| is_private(name)) {
                assert!(start.elapsed() < Duration::from_mins(1), "readers pin in their rows again");
            }
            let start = Instant::now();
            for name in &names {
                client.exclusive(&key(name)).unwrap().unwrap().fill(1);
            }
            // Many times as long as one of the changes took, and not as long as all of them have readers counted.
            let all = start.elapsed();
            while start.elapsed() < all + all / 2 {}
            // The first read goes by the mutex always, and lets later ones do without.
            !is_private(&names[0]) && !is_private(&names[0])
        };
        assert!((0..100).any(|_| are_counted()));
    });
}
