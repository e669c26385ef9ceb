//! A process that the kernel refuses its barriers, in an instance that relies on them. Alone in its program:
//! what it limits is limited for all of it.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

use retrial::{Capacity, Class, Instance, interposer};
use retrial_cache::{Cache, CacheError, Key, Namespace, Shape};
use std::convert::Infallible;

const SHAPE: Shape = Shape { bytes: 32 << 10, shards: 1 };

#[test]
fn what_needs_no_barrier_is_done_and_the_rest_changes_nothing() {
    let capacity = Capacity { sessions: 4, arena: SHAPE.arena(4), ..Capacity::default() };
    let instance = Instance::anonymous(capacity).unwrap();
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    let key = |name| Key::new(Namespace::Object, "S", name);
    if !instance.tables().has_barrier() {
        println!("left out: this kernel has no membarrier");
        return;
    }
    for name in ["CHANGED", "REPLACED", "INVALIDATED"] {
        drop(client.get_or_insert(&key(name), &[1; 8]).unwrap());
    }
    interposer::limit_calls();
    assert!(matches!(client.exclusive(&key("CHANGED")), Err(CacheError::NoBarrier)));
    assert_eq!(*client.get(&key("CHANGED")).unwrap().unwrap(), [1; 8]);
    assert!(client.get(&key("CHANGED")).unwrap().unwrap().is_private());
    let replaced = client.replace(&key("REPLACED"), 8, |bytes| {
        bytes.fill(2);
        Ok::<_, Infallible>(())
    });
    assert_eq!(*replaced.unwrap(), [2; 8]);
    assert!(client.invalidate(&key("INVALIDATED")).unwrap());
    assert!(client.get(&key("INVALIDATED")).unwrap().is_none());
    assert!(matches!(cache.flush(&session), Err(CacheError::NoBarrier)));
    assert_eq!(*client.get(&key("REPLACED")).unwrap().unwrap(), [2; 8]);
    let audit = cache.check(&session).unwrap();
    assert_eq!((audit.wrong, audit.objects, audit.gone), (Vec::new(), 2, 2));
}
