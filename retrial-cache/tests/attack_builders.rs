//! Objects whose builders need other objects: none waits for another one in a circle.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{instance, key};
use retrial::Class;
use retrial_cache::{Cache, Client, Shape};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const SESSIONS: u32 = 4;
const SHAPE: Shape = Shape { bytes: 64 << 10, shards: 1 };
const ROUNDS: u32 = 30;

/// Builds an object, and does something meanwhile.
fn build(client: &Client<'_>, name: &str, meanwhile: impl FnOnce()) {
    let built = client.get_or_create(&key(name), 8, |_| {
        meanwhile();
        Ok::<_, Infallible>(())
    });
    drop(built.unwrap());
}

/// `B` needs `A`, and `C` needs `B`. A session builds `A` and then `C`, another one `B`: the second one waits
/// for `A` until that is built, and not until the first one has built `C` too, which waits for `B`.
#[test]
fn a_builder_that_goes_on_to_another_object_is_not_waited_for() {
    let (done, watched) = mpsc::channel();
    let round = AtomicU32::new(0);
    let round: &'static AtomicU32 = Box::leak(Box::new(round));
    std::thread::spawn(move || {
        let instance = instance(SHAPE, SESSIONS);
        let cache = Cache::create(&instance, "c", SHAPE).unwrap();
        for number in 0..ROUNDS {
            round.store(number, Ordering::Relaxed);
            let [a, b, c] = ["A", "B", "C"].map(|name| format!("{name}{number}"));
            let (is_begun, waits) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let session = instance.session("A and C", Class::Normal).unwrap();
                    let client = cache.join(&session).unwrap();
                    build(&client, &a, || {
                        is_begun.store(true, Ordering::Release);
                        while !waits.load(Ordering::Acquire) {
                            std::thread::yield_now();
                        }
                        // Until the other one sleeps.
                        std::thread::sleep(Duration::from_millis(5));
                    });
                    build(&client, &c, || build(&client, &b, || ()));
                });
                let session = instance.session("B", Class::Normal).unwrap();
                let client = cache.join(&session).unwrap();
                build(&client, &b, || {
                    while !is_begun.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    waits.store(true, Ordering::Release);
                    build(&client, &a, || ());
                });
            });
        }
        done.send(()).unwrap();
    });
    let ended = watched.recv_timeout(Duration::from_secs(30));
    assert!(ended.is_ok(), "stuck in round {}", round.load(Ordering::Relaxed));
}
