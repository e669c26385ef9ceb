//! A value whose bytes look like an object: no reader takes it for one.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::instance;
use retrial::Class;
use retrial_cache::{Cache, Key, Namespace, OVERHEAD, Shape};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SESSIONS: u32 = 8;
const SHAPE: Shape = Shape { bytes: 8 << 10, shards: 1 };
const REAL: &[u8; 8] = b"the real";
const FORGED: &[u8; 8] = b"a forged";
/// Bytes of a small object.
const SMALL: usize = 128;

fn key(name: &str) -> Key<'_> {
    Key::new(Namespace::Object, "", name)
}

/// What the block of a live object `V` looks like, whose place it is to take.
fn forged() -> Vec<u8> {
    let hash = key("V").hash().0.to_le_bytes();
    let mut block = vec![0; OVERHEAD];
    block[0] = 8; // units
    block[8..10].copy_from_slice(&0x102_u16.to_le_bytes()); // live, and private
    block[16..32].copy_from_slice(&hash);
    block[80] = FORGED.len() as u8; // length of the value
    block[98] = 1; // length of the name
    block.extend(FORGED);
    block.push(b'V');
    block
}

/// The reader has loaded from the chain where `V` is. Before it looks there, `V` goes, its memory becomes part
/// of a longer block, and the bytes there those of a value.
#[test]
fn a_value_is_not_taken_for_an_object() {
    let instance = instance(SHAPE, SESSIONS);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let (stop, gets, forged) = (AtomicBool::new(false), AtomicU64::new(0), forged());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let session = instance.session("reads", Class::Normal).unwrap();
                let client = cache.join(&session).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let found = client.get(&key("V")).unwrap();
                    gets.fetch_add(1, Ordering::Relaxed);
                    if found.is_some_and(|value| *value != *REAL) {
                        stop.store(true, Ordering::Relaxed);
                        panic!("after {} gets bytes of another object are read", gets.load(Ordering::Relaxed));
                    }
                }
            });
        }
        let session = instance.session("forges", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        let (start, mut rounds, mut fit) = (Instant::now(), 0, 0);
        while start.elapsed() < Duration::from_secs(4) && !stop.load(Ordering::Relaxed) {
            rounds += 1;
            drop(client.get_or_insert(&key("before"), &[0; 8]).unwrap());
            let real = client.get_or_insert(&key("V"), REAL).unwrap().as_ptr().addr();
            client.invalidate(&key("V")).unwrap();
            client.invalidate(&key("before")).unwrap();
            let value = [&[0; SMALL - OVERHEAD], &forged[..], &[0; 500]].concat();
            let long = client.get_or_insert(&key("long"), &value).unwrap();
            // Where the forged block begins, and where `V` did.
            fit += u64::from(long.as_ptr().addr() + SMALL == real);
            for _ in 0..rounds % 50 {
                std::hint::spin_loop();
            }
            drop(long);
            client.invalidate(&key("long")).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        println!("{rounds} rounds, {fit} of them with the forged block in its place");
    });
    println!("{} gets", gets.load(Ordering::Relaxed));
}
