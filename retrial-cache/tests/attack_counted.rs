//! A cache that counts its readers in the objects' mutexes: what a session has built is read by it as well.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{fill, instance, is_whole, key};
use retrial::Class;
use retrial_cache::{Cache, CacheError, Client, Pin, Shape};
use std::sync::mpsc;
use std::time::Duration;

const SESSIONS: u32 = 4;
const SHAPE: Shape = Shape { bytes: 32 << 10, shards: 1 };

/// Another session changes the object while this one has what `build` gave. The change waits for this pin.
fn is_not_changed_under_its_builder(build: for<'c> fn(&'c Client<'_>) -> Pin<'c>) {
    let instance = instance(SHAPE, SESSIONS);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    cache.set_counted(true);
    let session = instance.session("builds", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    let built = build(&client);
    std::thread::scope(|scope| {
        let (done, changed) = mpsc::channel();
        let (instance, cache) = (&instance, &cache);
        scope.spawn(move || {
            let session = instance.session("changes", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            client.exclusive(&key("V")).unwrap().unwrap().fill(8);
            done.send(()).unwrap();
        });
        let is_changed = changed.recv_timeout(Duration::from_millis(200)).is_ok();
        let seen = built.to_vec();
        // A second pin of it is lent while a session waits for the first one, and it cannot be changed here.
        let again = client.get(&key("V")).map(|found| found.map(|pin| pin.to_vec()));
        let refused = client.exclusive(&key("V")).map(drop);
        drop(built);
        assert!(!is_changed, "changed while its builder had it pinned: {seen:?}");
        assert_eq!(seen, [7; 64]);
        assert!(matches!(again, Ok(Some(_)) | Err(CacheError::Deadlock)), "{again:?}");
        assert!(matches!(refused, Err(CacheError::Deadlock)), "{refused:?}");
        changed.recv_timeout(Duration::from_secs(20)).expect("the change ends when the pin has gone");
    });
    assert_eq!(&*client.get(&key("V")).unwrap().unwrap(), [8; 64]);
    is_whole(&cache, &instance);
}

#[test]
fn what_was_created_is_not_changed_under_its_builder() {
    is_not_changed_under_its_builder(|client| client.get_or_create(&key("V"), 64, fill(7)).unwrap());
}

#[test]
fn what_was_replaced_is_not_changed_under_its_builder() {
    is_not_changed_under_its_builder(|client| client.replace(&key("V"), 64, fill(7)).unwrap());
}

#[test]
fn a_call_leaves_its_readers_counted() {
    let instance = instance(SHAPE, SESSIONS);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    cache.set_counted(true);
    let session = instance.session("calls", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    drop(client.get_or_create(&key("V"), 64, fill(7)).unwrap());
    assert_eq!(client.call(&key("V"), |bytes| bytes[0]).unwrap(), Some(7));
    assert!(!client.get(&key("V")).unwrap().unwrap().is_private());
}
