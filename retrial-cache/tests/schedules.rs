//! Interleavings that a reader must not notice, provoked by threads in loops, and waits that must end.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{fill, instance, is_whole, key};
use retrial::{Class, Instance};
use retrial_cache::{Cache, CacheError, Client, Shape};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SESSIONS: u32 = 16;
const SHAPE: Shape = Shape { bytes: 32 << 10, shards: 1 };

fn with_cache(run: impl FnOnce(&Instance, &Cache<'_>)) {
    let instance = instance(SHAPE, SESSIONS);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    run(&instance, &cache);
    is_whole(&cache, &instance);
}

/// Runs each of these in a loop on a thread of its own, with a session of its own, for so long.
fn together(cache: &Cache<'_>, instance: &Instance, time: Duration, deeds: &[&(dyn Fn(&Client<'_>) + Sync)]) {
    let start = Instant::now();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for deed in deeds {
            let stop = &stop;
            scope.spawn(move || {
                let session = instance.session("s", Class::Normal).unwrap();
                let client = cache.join(&session).unwrap();
                while !stop.load(Ordering::Relaxed) && start.elapsed() < time {
                    let once = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| deed(&client)));
                    stop.fetch_or(once.is_err(), Ordering::Relaxed);
                    once.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
                }
            });
        }
    });
}

/// Looks for what is to stay for a while, without waiting.
fn stays(bytes: &[u8], with: u8, what: &str) {
    for _ in 0..30 {
        assert!(std::hint::black_box(bytes).iter().all(|byte| *byte == with), "{what}: {with} became {bytes:?}");
        std::thread::yield_now();
    }
}

/// An object that becomes live, and is let go, while an evictor looks at the rows is not free under its
/// readers.
#[test]
fn an_object_that_is_built_during_an_eviction_stays() {
    with_cache(|instance, cache| {
        let names: Vec<String> = (0..4).map(|i| format!("V{i}")).collect();
        let build = |client: &Client<'_>| {
            for (i, name) in names.iter().enumerate() {
                drop(client.get_or_create(&key(name), 64, fill(i as u8 + 1)).unwrap());
            }
        };
        let read = |client: &Client<'_>| {
            for (i, name) in names.iter().enumerate() {
                if let Some(object) = client.get(&key(name)).unwrap() {
                    stays(&object, i as u8 + 1, name);
                }
            }
        };
        let flush = |_: &Client<'_>| {
            let session = instance.session("flush", Class::Normal).unwrap();
            cache.flush(&session).unwrap();
        };
        together(cache, instance, Duration::from_secs(4), &[&build, &build, &read, &read, &flush]);
    });
}

/// What a session has built and reads is not changed in place by another one meanwhile.
#[test]
fn what_was_just_built_is_not_changed_under_its_builder() {
    with_cache(|instance, cache| {
        let replace = |client: &Client<'_>| stays(&client.replace(&key("V"), 64, fill(7)).unwrap(), 7, "replaced");
        let change = |client: &Client<'_>| {
            if let Some(mut held) = client.exclusive(&key("V")).unwrap() {
                held.fill(8);
            }
        };
        together(cache, instance, Duration::from_secs(2), &[&replace, &change, &change]);
    });
}

/// What a session calls is not changed in place meanwhile, and neither waits for the other for ever.
#[test]
fn what_is_called_is_not_changed_under_its_caller() {
    with_cache(|instance, cache| {
        let changes = std::sync::atomic::AtomicU64::new(0);
        let call = |client: &Client<'_>| {
            let called = client.call(&key("V"), |bytes| stays(bytes, bytes[0], "called")).unwrap();
            if called.is_none() {
                drop(client.get_or_create(&key("V"), 64, fill(1)).unwrap());
            }
        };
        let change = |client: &Client<'_>| {
            if let Some(mut held) = client.exclusive(&key("V")).unwrap() {
                let next = held[0].wrapping_add(1);
                held.fill(next);
                changes.fetch_add(1, Ordering::Relaxed);
            }
            // Longer than calls go by the mutex after a change.
            std::thread::sleep(Duration::from_millis(1));
        };
        together(cache, instance, Duration::from_secs(2), &[&call, &call, &change]);
        assert!(changes.into_inner() > 10);
    });
}

/// A call whose result is a further pin of what it called keeps that pin, also from a session that waits to
/// change it.
#[test]
fn what_a_call_gives_stays_pinned() {
    with_cache(|instance, cache| {
        let session = instance.session("s", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        drop(client.get_or_insert(&key("V"), b"first").unwrap());
        std::thread::scope(|scope| {
            let change = || {
                let session = instance.session("o", Class::Normal).unwrap();
                let writer = cache.join(&session).unwrap();
                writer.exclusive(&key("V")).unwrap().unwrap()[0] = b'F';
            };
            let called = client.call(&key("V"), |_| {
                scope.spawn(change);
                while cache.objects(&session).unwrap()[0].private {
                    std::thread::yield_now();
                }
                client.get(&key("V")).unwrap().unwrap()
            });
            let pin = called.unwrap().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(&*pin, b"first");
        });
        assert_eq!(&*client.get(&key("V")).unwrap().unwrap(), b"First");
    });
}

/// A session that reads an object and asks for it again does not wait for one that waits for the first pin.
#[test]
fn a_second_get_of_what_is_pinned_does_not_wait() {
    let (done, watched) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        with_cache(|instance, cache| {
            let session = instance.session("s", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            let first = client.get_or_insert(&key("V"), b"first").unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let session = instance.session("o", Class::Normal).unwrap();
                    let writer = cache.join(&session).unwrap();
                    writer.exclusive(&key("V")).unwrap().unwrap()[0] = b'F';
                });
                while cache.objects(&session).unwrap()[0].private {
                    std::thread::yield_now();
                }
                // The other session waits for `first` now.
                let second = client.get(&key("V")).unwrap().unwrap();
                drop(first);
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(&*second, b"first");
                assert!(matches!(client.exclusive(&key("V")), Err(CacheError::Deadlock)));
                assert!(matches!(client.execute(&key("V"), |_| ()), Err(CacheError::Deadlock)));
                drop(second);
            });
            assert_eq!(&*client.get(&key("V")).unwrap().unwrap(), b"First");
        });
        done.send(()).unwrap();
    });
    watched.recv_timeout(Duration::from_secs(20)).expect("it ends");
}
