//! Values of a type: built, read and changed in place.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::{instance, key};
use retrial::Class;
use retrial::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use retrial_cache::{Cache, CacheError, Shape};
use std::convert::Infallible;

const SHAPE: Shape = Shape { bytes: 32 << 10, shards: 1 };

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Debug, PartialEq, Eq)]
#[zerocopy(crate = "retrial::zerocopy")]
#[repr(C)]
struct Plan {
    cost: u64,
    steps: [u32; 6],
}

#[test]
fn a_value_is_built_read_and_changed_as_its_type() {
    let instance = instance(SHAPE, 4);
    let cache = Cache::create(&instance, "c", SHAPE).unwrap();
    let session = instance.session("s", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();

    let built = client.get_or_create_value(&key("PLAN"), |plan: &mut Plan| {
        assert_eq!(*plan, Plan { cost: 0, steps: [0; 6] });
        *plan = Plan { cost: 7, steps: [1, 2, 3, 4, 5, 6] };
        Ok::<_, Infallible>(())
    });
    let built = built.unwrap();
    assert_eq!(built.value::<Plan>().unwrap().steps, [1, 2, 3, 4, 5, 6]);
    assert_eq!(built.value::<[u32]>().unwrap(), [7, 0, 1, 2, 3, 4, 5, 6]);
    drop(built);
    client.exclusive(&key("PLAN")).unwrap().unwrap().value_mut::<Plan>().unwrap().cost = 8;
    assert_eq!(client.get(&key("PLAN")).unwrap().unwrap().value::<Plan>().unwrap().cost, 8);

    // Another type, by its length.
    let pinned = client.get_or_create_value(&key("PLAN"), |_: &mut u64| Err("is there")).unwrap();
    let error = pinned.value::<u64>().unwrap_err();
    assert!(matches!(error, CacheError::Type { found: 32, expected: "u64" }), "{error}");
    assert_eq!(error.to_string(), "a value of 32 bytes is no `u64`; read it as the type that it was built as");
    drop(pinned);
    assert!(client.exclusive(&key("PLAN")).unwrap().unwrap().value_mut::<[u64; 5]>().is_err());
}
