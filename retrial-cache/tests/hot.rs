//! Hot objects where there is no room for their copies.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{instance, key};
use retrial::Class;
use retrial_cache::{Cache, CacheError, Shape};
use std::time::Duration;

const SHAPE: Shape = Shape { bytes: 32 << 10, shards: 1 };

#[test]
fn an_object_is_executed_itself_where_its_copies_have_no_room() {
    let instance = instance(SHAPE, 4);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let sessions = [0, 1].map(|_| instance.session("s", Class::Normal).unwrap());
    let [reads, executes] = sessions.each_ref().map(|session| cache.join(session).unwrap());
    let mut pinned = vec![reads.get_or_insert(&key("HOT"), &[7; 2000]).unwrap()];
    let names: Vec<String> = (0..50).map(|i| format!("V{i}")).collect();
    let full = loop {
        match reads.get_or_insert(&key(&names[pinned.len()]), &[1; 1500]) {
            Ok(pin) => pinned.push(pin),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, CacheError::Full { .. }), "{full}");
    // A session on the first processor takes the object itself: it comes to others between two rounds.
    for copies in 2..=64 {
        executes.mark_hot(&key("HOT"), copies).unwrap();
        assert_eq!(executes.execute(&key("HOT"), <[u8]>::len).unwrap(), Some(2000), "{copies}");
        assert_eq!(executes.call(&key("HOT"), <[u8]>::len).unwrap(), Some(2000), "{copies}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_object_stays_hot_while_its_copies_are_executed() {
    let instance = instance(SHAPE, 4);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    // Between others that go: room comes about of neighbours.
    for name in ["BEFORE", "HOT", "BEHIND", "BEHIND THAT"] {
        drop(client.get_or_insert(&key(name), &[7; 400]).unwrap());
    }
    client.mark_hot(&key("HOT"), 200).unwrap();
    for i in 0..2000 {
        client.execute(&key("HOT"), <[u8]>::len).unwrap().expect("it is in use");
        drop(client.get_or_insert(&key(&format!("V{i}")), &[1; 500]).unwrap());
    }
    let objects = cache.objects(&session).unwrap();
    let hot = objects.iter().find(|object| object.name == "S.HOT").unwrap();
    assert_eq!(hot.copies, 200);
}

/// Objects of two lengths leave a gap, which the hand comes to.
#[test]
fn what_was_made_first_goes_first() {
    let instance = instance(SHAPE, 4);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    for i in 0..1000 {
        drop(client.get_or_insert(&key(&i.to_string()), [&[1; 500][..], &[1; 400]][usize::from(i < 4)]).unwrap());
    }
    let objects = cache.objects(&session).unwrap();
    let oldest = objects.iter().map(|object| object.name["S.".len()..].parse::<usize>().unwrap()).min().unwrap();
    // Once around takes some fifty.
    assert!(oldest >= 850, "{oldest} of 1000 is still there, of {}", objects.len());
}
