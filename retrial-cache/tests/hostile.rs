//! Bytes of a shard that no cache wrote: an error or some object's bytes, but no panic, no loop without an
//! end and nothing touched outside of the shard.

#![allow(missing_docs)]

mod kit;

use kit::{Random, fill, instance, key};
use retrial::engine::Owner;
use retrial::{Class, Instance, Session};
use retrial_cache::{Cache, Client, OVERHEAD, Shape};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const SHAPE: Shape = Shape { bytes: 16 << 10, shards: 2 };
const SESSIONS: u32 = 4;
/// Words of a shard's head, of its chains, and of a block before and behind its mutex.
const HEAD: usize = 648 / 4;
const CHAINS: usize = 32;
const FIELDS: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 20, 21, 22, 23, 24, 25, 26, 27];

/// A shard's words.
fn words(instance: &Instance, shard: u32) -> &[AtomicU32] {
    let each = (SHAPE.bytes / u64::from(SHAPE.shards)) as usize;
    let owner = Owner(*b"rtcache4");
    let (_, bytes) = instance.owned_bytes(owner, &format!("c shard {shard}"), "hash table", each).unwrap();
    // SAFETY: so many, aligned to 16, mapped as long as the instance.
    unsafe { std::slice::from_raw_parts(bytes.cast(), each / 4) }
}

/// The words of a session's row behind the time at which the session began: its pins.
fn pins<'i>(instance: &'i Instance, session: &Session<'_>) -> &'i [AtomicU64] {
    let (len, owner) = ((SESSIONS as usize + 1) * 512 + 64, Owner(*b"rtcache4"));
    let (_, bytes) = instance.owned_bytes(owner, "c rows", "Library Cache", len).unwrap();
    let rows = bytes.map_addr(|at| at.next_multiple_of(64));
    let row = rows.wrapping_add(session.sid().number() as usize * 512 + 8);
    // SAFETY: inside of the rows, aligned to 8, mapped as long as the instance.
    unsafe { std::slice::from_raw_parts(row.cast(), 56) }
}

/// Names of objects in the first shard.
fn names() -> Vec<String> {
    let all = (0..200).map(|i| format!("OBJECT{i}"));
    all.filter(|name| key(name).hash().0 >> 127 == 0).take(12).collect()
}

fn use_all(cache: &Cache<'_>, client: &Client<'_>, session: &Session<'_>, names: &[String], hot: bool) {
    for (i, name) in names.iter().enumerate() {
        let key = key(name);
        let _ = client.get(&key).map(|pin| pin.map(|pin| pin.iter().map(|byte| u64::from(*byte)).sum::<u64>()));
        let _ = client.get_or_create(&key, [10, 300, 2000][i % 3], fill(7)).map(drop);
        let _ = client.replace(&key, 40, fill(7)).map(drop);
        let _ = client.exclusive(&key).map(|held| held.map(|mut held| held.fill(1)));
        if hot {
            let _ = client.mark_hot(&key, 3);
        }
        let _ = client.execute(&key, <[u8]>::to_vec);
        if i % 4 == 0 {
            let _ = client.invalidate(&key);
        }
    }
    let _ = (cache.objects(session), cache.totals(session), cache.pins(session), cache.check(session));
    let _ = (cache.flush(session), cache.repair(session), cache.check(session));
}

#[test]
fn any_bytes_of_a_shard_are_an_error_or_an_object() {
    let (told, rounds) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let names = names();
        for seed in 0..1500 {
            let mut random = Random(seed);
            told.send(seed).unwrap();
            let instance = instance(SHAPE, SESSIONS);
            let cache = Cache::create(&instance, "c", SHAPE).unwrap();
            let session = instance.session("s", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            for (i, name) in names.iter().enumerate() {
                drop(client.get_or_insert(&key(name), &vec![i as u8; i * 20]).unwrap());
            }
            let (shard, next) = (words(&instance, 0), words(&instance, 1));
            let other: Vec<u32> = next.iter().map(|word| word.load(Ordering::Relaxed)).collect();
            // Where its blocks begin: the first one behind the chains.
            let mut blocks = vec![(HEAD + CHAINS).next_multiple_of(4)];
            while let Some(after) = blocks.last().map(|at| at + shard[*at].load(Ordering::Relaxed) as usize * 4)
                && after < shard.len()
            {
                blocks.push(after);
            }
            for _ in 0..=random.below(6) {
                let block = blocks[random.below(blocks.len())];
                let at = match random.below(4) {
                    0 => random.below(HEAD + CHAINS),
                    // Its figure of changes, the hand, the last birth.
                    1 => 2 + random.below(4),
                    _ => block + FIELDS[random.below(FIELDS.len())],
                };
                let values = [0, 1, 3, 4, 7, 0x102, 0x8000_0000, u32::MAX - 3, u32::MAX, shard.len() as u32 / 4 - 8];
                let value = if random.below(3) == 0 { block as u32 / 4 } else { values[random.below(values.len())] };
                shard[at].store(value, Ordering::Relaxed);
            }
            if seed % 3 == 0 {
                let _ = cache.repair(&session);
            }
            // Hot copies are in the other shard as well.
            let hot = seed % 2 == 1;
            use_all(&cache, &client, &session, &names, hot);
            let changed = (HEAD..next.len()).find(|at| next[*at].load(Ordering::Relaxed) != other[*at]);
            assert!(hot || changed.is_none(), "seed {seed}: word {changed:?} of the next shard");
        }
    });
    let mut last = None;
    loop {
        match rounds.recv_timeout(Duration::from_secs(20)) {
            Ok(seed) => last = Some(seed),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("seed {last:?} has no end"),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    assert_eq!(last, Some(1499), "the thread has panicked");
}

#[test]
fn a_block_that_says_it_is_longer_than_its_shard_is_not() {
    let instance = instance(SHAPE, SESSIONS);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    let (shard, next) = (words(&instance, 0), words(&instance, 1));
    let other: Vec<u32> = next.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    // An object up to the last 128 bytes, and a free block there.
    let (first, last) = ((HEAD + CHAINS).next_multiple_of(4), shard.len() - 8 * 4);
    for (at, value) in [(first, (last - first) as u32 / 4), (first + 2, 2), (last, u32::MAX), (last + 2, 0)] {
        shard[at].store(value, Ordering::Relaxed);
    }
    cache.repair(&session).unwrap();
    let name = &names()[0];
    let made = client.get_or_create(&key(name), 2000, fill(7));
    assert_eq!(made.unwrap().len(), 2000);
    let changed = (HEAD..next.len()).find(|at| next[*at].load(Ordering::Relaxed) != other[*at]);
    assert_eq!(changed, None, "a word of the next shard");
}

/// A session that finds an object without a lock names its unit before it looks whether it is one still. By
/// then these may be bytes of a value, which another session writes while this one reads them.
#[test]
fn a_pin_of_what_is_no_object_is_not_shown() {
    let instance = instance(SHAPE, SESSIONS);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    // The block of a live object whose name is not UTF-8, 16 bytes behind the beginning of a value.
    let mut value = [0xff; 400];
    value[16..16 + OVERHEAD].fill(0);
    for (at, byte) in [(0, 20), (8, 2), (98, 50)] {
        value[16 + at] = byte;
    }
    let name = &names()[0];
    let pinned = client.get_or_insert(&key(name), &value).unwrap();
    let row = pins(&instance, &session);
    let known = row.iter().position(|pin| pin.load(Ordering::Relaxed) != 0).unwrap();
    let unit = row[known].load(Ordering::Relaxed) >> 2;
    let forged = unit + (OVERHEAD as u64 + 16) / 16;
    // Behind the only object.
    let free = unit + u64::from(words(&instance, 0)[unit as usize * 4].load(Ordering::Relaxed));
    for none in [forged, free] {
        row[known + 1].store(none << 2 | 1, Ordering::Relaxed);
        let shown: Vec<String> = cache.pins(&session).unwrap().into_iter().map(|pin| pin.name).collect();
        assert_eq!(shown, [format!("S.{name}")]);
    }
    row[known + 1].store(0, Ordering::Relaxed);
    drop(pinned);
}
