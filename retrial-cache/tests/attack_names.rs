//! Names that no cache can have.

#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod kit;

use kit::instance;
use retrial::ObjectError;
use retrial_cache::{Cache, CacheError, Shape};

const SHAPE: Shape = Shape { bytes: 8 << 10, shards: 1 };

#[test]
fn a_name_that_is_too_long_leaves_nothing() {
    let instance = instance(SHAPE, 4);
    for name in [String::new(), "n".repeat(41), "n".repeat(60), "a\0b".to_owned()] {
        match Cache::create(&instance, &name, SHAPE) {
            Err(CacheError::Object(ObjectError::Name { found, .. })) => assert_eq!(found, name),
            other => panic!("{name:?}: {other:?}"),
        }
        assert_eq!(instance.tables().arena_used(), 0, "{name:?}");
    }
    Cache::create(&instance, &"n".repeat(40), SHAPE).unwrap();
}
