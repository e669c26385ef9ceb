//! The bytes of a cache are lent by pins alone: no other safe call gives them out.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{capacity, key};
use retrial::engine::{EngineMutex, Owner};
use retrial::views::MutexInfo;
use retrial::{Capacity, Class, Instance, ObjectError, Shareable, location};
use retrial_cache::{Cache, CacheError, Shape};

const SESSIONS: u32 = 4;
const SHAPE: Shape = Shape { bytes: 8 << 10, shards: 1 };
/// Bytes behind the mutexes of the head, the rows, a builder and a shard.
const HEAD: usize = 128;
const ROWS: usize = (SESSIONS as usize + 1) * 512 + 64;
const SHARD: usize = SHAPE.bytes as usize;

fn instance() -> Instance {
    // Room for an object in the way.
    let arena = 2 * SHAPE.arena(SESSIONS);
    Instance::anonymous(Capacity { arena, ..capacity(SHAPE, SESSIONS) }).unwrap()
}

/// Overwrites what the mutex of this name protects; how many bytes.
fn overwrite<T: Shareable + AsMut<[u8]>>(instance: &Instance, name: &str, zeros: T) -> Result<usize, ObjectError> {
    let mutex = instance.mutex(name, "of the user's", || zeros)?;
    let session = instance.session("user", Class::Normal).unwrap();
    // Another session may hold it.
    if let Ok(mut held) = mutex.try_exclusive(&session, location!("overwrite")) {
        held.as_mut().fill(b'X');
    }
    Ok(size_of::<T>())
}

#[test]
fn no_other_safe_call_lends_the_bytes_of_a_cache() {
    let instance = instance();
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let session = instance.session("reader", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    let pinned = client.get_or_insert(&key("V"), &[7; 64]).unwrap();
    let mut objects = 0;
    for MutexInfo { id, name, .. } in instance.tables().mutexes() {
        let Some(at) = instance.tables().object_of(id) else { continue };
        objects += 1;
        let len = (at.end - at.start) as usize - size_of::<EngineMutex>();
        let refusals = [
            match len {
                0 => overwrite(&instance, &name, [0; 0]),
                HEAD => overwrite(&instance, &name, [0; HEAD]),
                ROWS => overwrite(&instance, &name, [0; ROWS]),
                SHARD => overwrite(&instance, &name, [0; SHARD]),
                other => panic!("{name} has {other} bytes"),
            }
            .map(drop),
            instance.mutex_bytes(&name, "of the user's", len).map(drop),
            instance.owned_bytes(Owner(*b"another1"), &name, "of the user's", len).map(drop),
            instance.condition(&name).map(drop),
        ];
        assert_eq!(*pinned, [7; 64], "{name} lends them");
        for refusal in refusals {
            let Err(ObjectError::Owned { found: Owner(found), .. }) = refusal else { panic!("{name}: {refusal:?}") };
            assert_eq!(&found, b"rtcache4");
        }
    }
    // Head, rows, builders, shard.
    assert_eq!(objects, 1 + 1 + 16 + 1);
    let error = instance.mutex("c shard 0", "t", || [0u8; SHARD]).unwrap_err().to_string();
    assert_eq!(error, "object `c shard 0` belongs to `rtcache4`, expected any program: take another name");
}

/// A cache does not take for its own what a program has made under one of its names, and may write at any
/// time.
#[test]
fn a_cache_takes_no_bytes_that_another_program_lends() {
    for (taken, len) in [("c", HEAD), ("c rows", ROWS), ("c builder 3", 0), ("c shard 0", SHARD)] {
        let instance = instance();
        instance.mutex_bytes(taken, "of the user's", len).unwrap();
        match Cache::create(&instance, "c", SHAPE) {
            Err(CacheError::Object(ObjectError::Owned { name, found, .. })) => {
                assert_eq!((name.as_str(), found), (taken, Owner::NONE));
            }
            other => panic!("{taken}: {other:?}"),
        }
    }
}

/// What sessions register by a name that a cache has, as by that of an object in it, is another mutex.
#[test]
fn a_cache_is_found_beside_other_mutexes_of_its_names() {
    for taken in ["c", "c rows", "c builder 3", "c shard 0"] {
        let instance = instance();
        let of = instance.register_type("of the user's").unwrap();
        instance.register_mutex(of, 0, taken).unwrap();
        assert!(matches!(Cache::open(&instance, "c"), Err(CacheError::NotFound(_))), "{taken}");
        let cache = Cache::create(&instance, "c", SHAPE).unwrap_or_else(|why| panic!("{taken}: {why}"));
        let session = instance.session("reader", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        drop(client.get_or_insert(&key("V"), &[7; 64]).unwrap());
        let other = Cache::open(&instance, "c").unwrap();
        assert_eq!(other.objects(&session).unwrap().len(), 1, "{taken}");
    }
}
