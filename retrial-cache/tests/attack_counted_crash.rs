//! A session dies at each point of a build in a cache that counts its readers in the objects' mutexes.

#![allow(missing_docs)]
#![cfg(feature = "fail_points")]

mod kit;

use kit::{fill, instance, key};
use retrial::{Class, fail};
use retrial_cache::{Cache, Client, Shape};

const SHAPE: Shape = Shape { bytes: 8 << 10, shards: 1 };
const SESSIONS: u32 = 8;

#[test]
fn a_death_of_a_counted_builder_leaves_the_cache_whole() {
    let deeds: [fn(&Client<'_>); 3] = [
        |client| drop(client.get_or_create(&key("NEW"), 64, fill(1)).unwrap()),
        |client| drop(client.replace(&key("OBJECT"), 64, fill(2)).unwrap()),
        |client| {
            (0..2).for_each(|_| drop(client.replace(&key("OBJECT"), 64, fill(2)).unwrap()));
            drop(client.get_or_create(&key("LONG"), 6000, fill(1)).unwrap());
        },
    ];
    for deed in deeds {
        for n in 1.. {
            let instance = instance(SHAPE, SESSIONS);
            let cache = Cache::create(&instance, "c", SHAPE).unwrap();
            cache.set_counted(true);
            let session = instance.session("survivor", Class::Normal).unwrap();
            let client = cache.join(&session).unwrap();
            drop(client.get_or_insert(&key("OBJECT"), &[9; 64]).unwrap());
            let prepare = || {
                let session: &_ = Box::leak(Box::new(instance.session("mortal", Class::Normal).unwrap()));
                &*Box::leak(Box::new(cache.join(session).unwrap()))
            };
            if fail::die_at(n, prepare, |client| deed(client)).is_some() {
                assert!(n > 10);
                break;
            }
            let audit = cache.check(&session).unwrap();
            assert!(audit.wrong.is_empty(), "point {n}: {:#?}", audit.wrong);
            for name in ["OBJECT", "NEW"] {
                let found = client.get_or_create(&key(name), 64, fill(5)).unwrap();
                assert!(found.iter().all(|byte| *byte == found[0]), "point {n}: {:?}", &*found);
                drop(found);
                client.exclusive(&key(name)).unwrap().unwrap().fill(7);
                assert!(client.execute(&key(name), |_| ()).unwrap().is_some(), "point {n}");
            }
            cache.flush(&session).unwrap();
            drop(client.get_or_insert(&key("ALL"), &[1; 7000]).unwrap());
            let audit = cache.check(&session).unwrap();
            assert!(audit.wrong.is_empty() && (audit.objects, audit.building) == (1, 0), "point {n}: {audit:?}");
        }
    }
}
