//! Changes that panic, and sessions that wait for each other's pins.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{instance, is_whole, key};
use retrial::{Class, GetFailure, Instance};
use retrial_cache::{Cache, CacheError, Client, Key, Namespace, Shape};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::Duration;

const SESSIONS: u32 = 16;
const SHAPE: Shape = Shape { bytes: 32 << 10, shards: 1 };

/// Runs it on a thread of its own, for half a minute at most.
fn with_cache(run: impl FnOnce(&Instance, &Cache<'_>) + Send + 'static) {
    let (done, watched) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let instance = instance(SHAPE, SESSIONS);
        let cache = Cache::create(&instance, "c", SHAPE).unwrap();
        run(&instance, &cache);
        is_whole(&cache, &instance);
        done.send(()).unwrap();
    });
    watched.recv_timeout(Duration::from_secs(30)).expect("it ends, without a panic");
}

fn change_half(client: &Client<'_>) {
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut held = client.exclusive(&key("V")).unwrap().unwrap();
        held[..4].fill(9);
        panic!("half of a change");
    }));
    panicked.unwrap_err();
}

#[test]
fn half_of_a_change_that_panicked_is_not_seen() {
    with_cache(|instance, cache| {
        let session = instance.session("s", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        let asks: [fn(&Client<'_>) -> bool; 3] = [
            |client| client.get(&key("V")).unwrap().is_some(),
            |client| client.exclusive(&key("V")).unwrap().is_some(),
            |client| client.execute(&key("V"), |_| ()).unwrap().is_some(),
        ];
        for ask in asks {
            drop(client.get_or_insert(&key("V"), &[1; 8]).unwrap());
            change_half(&client);
            assert!(!ask(&client));
            // It is built anew, and can be changed.
            assert_eq!(*client.get_or_insert(&key("V"), &[2; 8]).unwrap(), [2; 8]);
            client.exclusive(&key("V")).unwrap().unwrap().fill(3);
            assert_eq!(*client.get(&key("V")).unwrap().unwrap(), [3; 8]);
            assert!(client.invalidate(&key("V")).unwrap());
        }
    });
}

/// A change that a destructor makes while its thread panics for another reason is whole.
#[test]
fn a_change_within_a_panic_is_seen() {
    struct Changes<'c>(&'c Client<'c>);
    impl Drop for Changes<'_> {
        fn drop(&mut self) {
            self.0.exclusive(&key("V")).unwrap().unwrap().fill(9);
        }
    }
    with_cache(|instance, cache| {
        let session = instance.session("s", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        drop(client.get_or_insert(&key("V"), &[1; 8]).unwrap());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _changes = Changes(&client);
            panic!("for another reason");
        }));
        panicked.unwrap_err();
        assert_eq!(*client.get(&key("V")).unwrap().unwrap(), [9; 8]);
    });
}

/// Each of some sessions reads what the one before it wants to change: one gives up, and then all get what
/// they want.
#[test]
fn of_sessions_that_wait_for_each_others_pins_one_gives_up() {
    with_cache(|instance, cache| {
        for many in [2, 3] {
            let names: Vec<String> = (0..many).map(|i| format!("V{i}")).collect();
            let barrier = Barrier::new(many);
            let given_up = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..many)
                    .map(|i| {
                        let (names, barrier) = (&names, &barrier);
                        scope.spawn(move || {
                            let session = instance.session("s", Class::Normal).unwrap();
                            let client = cache.join(&session).unwrap();
                            let pinned = client.get_or_insert(&key(&names[i]), &[0; 8]).unwrap();
                            barrier.wait();
                            let wanted = key(&names[(i + 1) % many]);
                            let has_given_up = match client.exclusive(&wanted) {
                                Ok(held) => {
                                    held.unwrap()[0] += 1;
                                    false
                                }
                                Err(CacheError::Cycle) => true,
                                Err(other) => panic!("{other}"),
                            };
                            drop(pinned);
                            if has_given_up {
                                client.exclusive(&wanted).unwrap().unwrap()[0] += 1;
                            }
                            has_given_up
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum::<usize>()
            });
            assert_eq!(given_up, 1, "of {many}");
            let session = instance.session("s", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            for name in &names {
                assert_eq!(client.get(&key(name)).unwrap().unwrap()[0], 1, "{name}");
                assert!(client.invalidate(&key(name)).unwrap());
            }
        }
    });
}

#[test]
fn who_waits_for_readers_is_shown() {
    with_cache(|instance, cache| {
        let session = instance.session("reads", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        let pinned = client.get_or_insert(&key("V"), &[0; 8]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let session = instance.session("changes", Class::Normal).unwrap();
                cache.join(&session).unwrap().exclusive(&key("V")).unwrap().unwrap().fill(1);
            });
            let waits = || cache.pins(&session).unwrap().iter().any(|pin| pin.how == "waits for readers");
            while !waits() {
                std::thread::yield_now();
            }
            drop(pinned);
        });
        assert!(cache.pins(&session).unwrap().is_empty());
    });
}

#[test]
fn what_took_the_place_of_an_object_while_a_session_waited_for_its_readers_is_changed() {
    with_cache(|instance, cache| {
        let session = instance.session("reads", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        for (name, replaces) in [("V", true), ("W", false)] {
            let pinned = client.get_or_insert(&key(name), &[1; 8]).unwrap();
            std::thread::scope(|scope| {
                let changes = scope.spawn(|| {
                    let session = instance.session("changes", Class::Normal).unwrap();
                    let client = cache.join(&session).unwrap();
                    let held = client.exclusive(&key(name)).unwrap();
                    held.map(|mut held| held[0] += 1).is_some()
                });
                while !cache.pins(&session).unwrap().iter().any(|pin| pin.how == "waits for readers") {
                    std::thread::yield_now();
                }
                if replaces {
                    let two = |bytes: &mut [u8]| {
                        bytes.fill(2);
                        Ok::<_, std::convert::Infallible>(())
                    };
                    drop(client.replace(&key(name), 8, two).unwrap());
                } else {
                    assert!(client.invalidate(&key(name)).unwrap());
                }
                drop(pinned);
                assert_eq!(changes.join().unwrap(), replaces);
            });
            let value = client.get(&key(name)).unwrap().map(|pin| pin.to_vec());
            assert_eq!(value, replaces.then(|| vec![3, 2, 2, 2, 2, 2, 2, 2]));
        }
    });
}

#[test]
fn a_parent_takes_its_versions_along() {
    with_cache(|instance, cache| {
        let session = instance.session("s", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        let of = |namespace, version| Key::new(namespace, "S", "select 1").version(version);
        let make = |key: &Key<'_>| drop(client.get_or_insert(key, b"plan").unwrap());
        let is_there = |key: &Key<'_>| client.get(key).unwrap().is_some();
        let parent = of(Namespace::Cursor, 0);
        let children: Vec<Key<'_>> = (0..12).map(|version| of(Namespace::Child, version)).collect();
        let others = [of(Namespace::Object, 0), of(Namespace::Object, 3), Key::new(Namespace::Child, "S", "select 2")];
        children.iter().chain(&others).chain([&parent]).for_each(make);
        assert_eq!(client.versions(&parent).unwrap(), (0..12).collect::<Vec<_>>());
        // A child is no parent, and goes alone.
        for child in [0, 5] {
            assert!(client.invalidate(&children[child]).unwrap());
            assert_eq!(client.versions(&children[child]).unwrap(), []);
        }
        assert_eq!(client.versions(&parent).unwrap().len(), 10);
        let read = client.get(&children[3]).unwrap().unwrap();
        assert!(client.invalidate(&parent).unwrap());
        assert_eq!(*read, *b"plan");
        assert!(!is_there(&parent) && !children.iter().any(is_there));
        assert!(others.iter().all(is_there));
        assert_eq!(client.versions(&parent).unwrap(), []);
        // Versions whose parent is not there go too; that there was no parent is said.
        make(&children[1]);
        assert!(!client.invalidate(&parent).unwrap() && !is_there(&children[1]));
        // In other namespaces version 0 is the parent.
        assert_eq!(client.versions(&others[0]).unwrap(), [3]);
        assert!(client.invalidate(&others[0]).unwrap() && !is_there(&others[1]));
    });
}

#[test]
fn a_wait_for_readers_ends_when_the_session_gives_up() {
    with_cache(|instance, cache| {
        let sessions = ["reads", "changes"].map(|name| instance.session(name, Class::Normal).unwrap());
        let [reads, changes] = sessions.each_ref().map(|session| cache.join(session).unwrap());
        let pin = reads.get_or_insert(&key("V"), &[1; 8]).unwrap();
        sessions[1].ask_while_waiting(|| true);
        let refused = changes.exclusive(&key("V")).map(|changed| changed.is_some());
        assert!(matches!(refused, Err(CacheError::Get(GetFailure::TimedOut))), "{refused:?}");
        // Nothing of the wait is left.
        assert_eq!(*pin, [1; 8]);
        assert_eq!(cache.pins(&sessions[1]).unwrap().len(), 1);
        drop(pin);
        changes.exclusive(&key("V")).unwrap().unwrap().fill(2);
        assert_eq!(*reads.get(&key("V")).unwrap().unwrap(), [2; 8]);
    });
}

#[test]
fn a_wait_for_what_executes_an_object_that_this_session_reads_ends_when_it_gives_up() {
    with_cache(|instance, cache| {
        let ((has_begun, begins), (may_end, ends)) = (channel(), channel());
        std::thread::scope(|scope| {
            let session = instance.session("changes", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            let pin = client.get_or_insert(&key("V"), &[1; 8]).unwrap();
            scope.spawn(move || {
                let session = instance.session("executes", Class::Normal).unwrap();
                let client = cache.join(&session).unwrap();
                let run = |_: &[u8]| {
                    has_begun.send(()).unwrap();
                    ends.recv().unwrap();
                };
                client.execute(&key("V"), run).unwrap().unwrap();
            });
            begins.recv().unwrap();
            session.ask_while_waiting(|| true);
            let refused = client.exclusive(&key("V")).map(|changed| changed.is_some());
            assert!(matches!(refused, Err(CacheError::Get(GetFailure::TimedOut))), "{refused:?}");
            may_end.send(()).unwrap();
            drop(pin);
        });
    });
}

/// True when it is asked first, after longer than one of the waits that a wait for a builder consists of.
fn gives_up_late() -> bool {
    thread_local!(static IS_ASKED: Cell<bool> = const { Cell::new(false) });
    std::thread::sleep(Duration::from_millis(150));
    !IS_ASKED.replace(true)
}

#[test]
fn a_wait_for_a_builder_ends_when_the_session_gives_up() {
    with_cache(|instance, cache| {
        let ((has_begun, begins), (may_end, ends)) = (channel(), channel());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let session = instance.session("builds", Class::Normal).unwrap();
                let client = cache.join(&session).unwrap();
                let built = client.get_or_create(&key("V"), 8, |bytes| {
                    has_begun.send(()).unwrap();
                    bytes.fill(1);
                    ends.recv()
                });
                drop(built.unwrap());
            });
            begins.recv().unwrap();
            let session = instance.session("waits", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            session.ask_while_waiting(gives_up_late);
            let refused = client.get(&key("V")).map(|pin| pin.is_some());
            assert!(matches!(refused, Err(CacheError::Get(GetFailure::TimedOut))), "{refused:?}");
            may_end.send(()).unwrap();
            session.ask_while_waiting(|| false);
            assert_eq!(*client.get(&key("V")).unwrap().unwrap(), [1; 8]);
        });
    });
}
