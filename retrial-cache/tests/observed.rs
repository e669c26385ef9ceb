//! What a process sees of a cache that only reads the instance.

#![allow(missing_docs)]

mod kit;

use kit::{capacity, fill, key};
use retrial::{Address, Capacity, Class, Instance, Observer};
use retrial_cache::{Cache, Key, Namespace, Observed, Shape};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// An instance in a file that is removed at the end.
struct Scratch(Address, Instance);

impl Scratch {
    fn new(name: &str, shape: Shape) -> Self {
        let path = std::env::temp_dir().join(format!("retrial-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let address = Address::new(path.to_str().unwrap()).unwrap();
        let capacity = Capacity { mutexes: 4096, arena: shape.arena(16) + (1 << 16), ..capacity(shape, 16) };
        let instance = Instance::create(&address, capacity, 0o600).unwrap();
        Self(address, instance)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.path());
    }
}

/// The caches that an observer sees.
fn seen(observer: &Observer) -> Vec<Observed<'_>> {
    // SAFETY: nobody changes an object while the test looks, unless a test says that it does: then what is
    // compared are words that are read and written as atomics.
    unsafe { Observed::all(observer.tables()) }
}

#[test]
fn an_observer_sees_every_object_as_a_session_does_and_changes_nothing() {
    let shape = Shape { bytes: 256 << 10, shards: 3 };
    let scratch = Scratch::new("objects", shape);
    let instance = &scratch.1;
    let (cache, empty) =
        (Cache::create(instance, "c", shape).unwrap(), seen(&Observer::open(&scratch.0).unwrap()).len());
    assert_eq!(empty, 1);
    // A mutex of as many bytes is no cache.
    instance.mutex("none", "Library Cache", || [0_u64; 16]).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    for i in 0..300_u16 {
        let name = format!("P{i}");
        let key =
            Key::new(Namespace::ALL[usize::from(i % 4)], ["", "SCOTT", "Ä"][usize::from(i % 3)], &name).version(i % 5);
        drop(client.get_or_insert(&key, &vec![7; usize::from(i)]).unwrap());
    }
    let hot = Key::new(Namespace::Child, "S", "select 1 from dual where 1=2");
    drop(client.get_or_insert(&hot, b"plan").unwrap());
    for copies in [1, 200] {
        client.mark_hot(&hot, copies).unwrap();
        (0..10).for_each(|_| assert!(client.execute(&hot, |_| ()).unwrap().is_some()));
    }
    assert!(client.invalidate(&Key::new(Namespace::Object, "", "P0")).unwrap());
    let before = std::fs::read(scratch.0.path()).unwrap();
    let observer = Observer::open(&scratch.0).unwrap();
    let observed = seen(&observer);
    assert_eq!((observed.len(), observed[0].name(), observed[0].shards()), (1, "c", 3));
    let blocks = observed[0].blocks();
    let pins = observed[0].pins();
    assert_eq!(observed[0].find(hot.hash()).unwrap().object.unwrap().copies, 200);
    assert!(observed[0].find(Key::new(Namespace::Object, "", "P0").hash()).is_none());
    assert!(std::fs::read(scratch.0.path()).unwrap() == before, "the instance has changed");
    // As the sessions find that take the shards' mutexes.
    let objects = cache.objects(&session).unwrap();
    let live = |block: &retrial_cache::BlockInfo| block.phase == "live";
    let labels: Vec<_> = blocks.iter().filter(|b| live(b)).map(|b| b.object.as_ref().unwrap().label()).collect();
    assert_eq!(labels, objects.iter().map(|object| object.name.clone()).collect::<Vec<_>>());
    for (block, object) in blocks.iter().filter(|block| live(block)).zip(&objects) {
        let it = block.object.as_ref().unwrap();
        let told = (Some(it.namespace), it.hash, block.shard, it.bytes, block.taken, it.copies, block.private);
        let known =
            (object.namespace, object.hash, object.shard, object.bytes, object.taken, object.copies, object.private);
        assert_eq!(told, known);
    }
    let totals = cache.totals(&session).unwrap();
    assert_eq!(blocks.iter().filter(|b| b.phase == "free").map(|b| b.taken).sum::<u64>(), totals.free);
    assert!(pins.is_empty(), "{pins:?}");
    let pin = client.get(&hot).unwrap().unwrap();
    let pins = observed[0].pins();
    assert_eq!(pins.len(), 1);
    let at = observed[0].find(hot.hash()).unwrap();
    assert_eq!((pins[0].sid, pins[0].shard, pins[0].unit), (session.sid(), at.shard, at.unit));
    drop(pin);
    let births = || observed[0].births(hot.hash()).unwrap();
    let before = births();
    (0..3).for_each(|_| drop(client.exclusive(&hot).unwrap().unwrap()));
    assert_eq!((births().0, births().1), (before.1 + 3, before.1 + 3), "from {before:?}");
    // The mutex by which it was executed, and its gets: two for each execution of the object itself.
    let it = at.object.unwrap();
    assert_eq!(observer.tables().mutex_name(it.mutex.unwrap()), "S.select 1 from dual where 1=2");
    assert!(it.gets >= 20, "{}", it.gets);
    // They stand in the mutex, which is in the bytes of the object; the three changes since are three more.
    assert_eq!(observer.tables().mutex_state(it.mutex.unwrap()).map(|state| state.gets), Some(it.gets + 3));
}

#[test]
fn what_is_seen_of_a_cache_that_changes_all_the_time_was_there() {
    let shape = Shape { bytes: 64 << 10, shards: 1 };
    let scratch = Scratch::new("changes", shape);
    let instance = &scratch.1;
    let cache = Cache::create(instance, "c", shape).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = instance.session("s", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            let mut i = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                i += 1;
                let name = format!("{}-{i}", "N".repeat(i % 90));
                drop(client.get_or_create(&key(&name), i % 500, fill(0xff)).unwrap());
            }
        });
        let observer = Observer::open(&scratch.0).unwrap();
        let (start, mut objects, mut wrong) = (Instant::now(), 0, Vec::new());
        while start.elapsed() < Duration::from_millis(1500) {
            for object in seen(&observer)[0].blocks().into_iter().filter_map(|block| block.object) {
                let number = object.name.split_once('-').and_then(|(_, number)| number.parse::<usize>().ok());
                let is_right = number.is_some_and(|number| {
                    let name = format!("{}-{number}", "N".repeat(number % 90));
                    let bytes = (number % 500) as u64;
                    (object.schema.as_str(), &object.name, object.bytes) == ("S", &name, bytes)
                });
                objects += 1;
                wrong.extend((!is_right).then_some(object));
            }
        }
        // Before anything that panics: the other thread would go on.
        stop.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(objects > 100, "{objects} objects seen");
    });
}

#[test]
fn bytes_that_no_cache_wrote_are_no_cache_and_no_object() {
    let shape = Shape { bytes: 64 << 10, shards: 1 };
    let scratch = Scratch::new("bytes", shape);
    let instance = &scratch.1;
    let cache = Cache::create(instance, "c", shape).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    drop(client.get_or_insert(&key("N"), &[1; 64]).unwrap());
    drop(client);
    let observer = Observer::open(&scratch.0).unwrap();
    let shard = observer.tables().object_of(seen(&observer)[0].shard_mutexes().next().unwrap()).unwrap();
    // Another name than the one that the block has the hash of: half of a name that is being written.
    let block = seen(&observer)[0].blocks().into_iter().find(|block| block.object.is_some()).unwrap();
    let name = block.address + 112 + 64;
    // SAFETY: no session uses the cache any more.
    let known = unsafe { observer.tables().peek(name, 1) }.unwrap()[0];
    assert_eq!(known.to_ne_bytes()[..2], *b"SN");
    for (word, shown) in [(u64::from_ne_bytes(*b"SXSXSXSX"), 0), (known, 1)] {
        // SAFETY: as above.
        assert!(unsafe { instance.poke(name, word) });
        assert_eq!(seen(&observer)[0].blocks().iter().filter(|block| block.object.is_some()).count(), shown);
    }
    let mut random = 1_u64;
    for _ in 0..300 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = shard.start + 48 + 584 + (random >> 33) % (shard.end - shard.start - 48 - 584) / 8 * 8;
        // SAFETY: no session uses the cache any more.
        assert!(unsafe { instance.poke(at, random) });
        for object in seen(&observer)[0].blocks().into_iter().filter_map(|block| block.object) {
            assert_eq!((object.schema.as_str(), object.name.as_str()), ("S", "N"));
        }
        assert!(seen(&observer)[0].pins().is_empty());
    }
    let head = observer.tables().object_of(observer.tables().mutex_named("c").unwrap()).unwrap();
    // SAFETY: as above.
    assert!(unsafe { instance.poke(head.start + 48, 1) });
    assert!(seen(&observer).is_empty());
}

/// A call keeps its object by two places of the session's row.
#[test]
fn a_session_that_calls_an_object_has_it_pinned_once() {
    let shape = Shape { bytes: 64 << 10, shards: 1 };
    let scratch = Scratch::new("pins", shape);
    let cache = Cache::create(&scratch.1, "c", shape).unwrap();
    let session = scratch.1.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    let [called, read] = ["CALLED", "READ"].map(|name| Key::new(Namespace::Procedure, "S", name));
    drop(client.get_or_insert(&called, b"code").unwrap());
    let pinned = client.get_or_insert(&read, b"text").unwrap();
    let observer = Observer::open(&scratch.0).unwrap();
    let pins = client.call(&called, |_| seen(&observer)[0].pins()).unwrap().unwrap();
    drop(pinned);
    assert_eq!(pins.len(), 2, "{pins:?}");
    assert!(pins.iter().all(|pin| pin.sid == session.sid()) && pins[0] != pins[1], "{pins:?}");
}
