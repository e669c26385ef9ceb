//! Views of caches: their objects, and the blocks that these are in. Of a live instance, as it is when a
//! query asks.

use super::{View, column, counter, measure, view_of_scene};
use crate::recording::scene::{Scene, Span};
use retrial::MutexId;
use retrial::views::Counter;
use retrial_cache::{BlockInfo, BlockObject, Observed};
use retrial_model::{Measure, Profile};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) fn views() -> Vec<View> {
    vec![cached(), blocks()]
}

/// The caches of the live instance.
fn caches(scene: &Scene) -> Vec<Observed<'_>> {
    // SAFETY: a process that asks in SQL takes part in no cache.
    scene.observer.iter().flat_map(|observer| unsafe { Observed::all(observer.tables()) }).collect()
}

/// An object of a cache.
struct Cached {
    cache: Arc<str>,
    block: BlockInfo,
    object: BlockObject,
    /// Sessions that have it pinned.
    pins: usize,
    /// What was counted of its mutex, where it has one.
    counted: Option<Profile>,
}

/// What nobody counted.
static NOTHING: std::sync::LazyLock<Profile> = std::sync::LazyLock::new(Profile::default);

fn of_cached(row: &Cached) -> &Profile {
    row.counted.as_ref().unwrap_or(&NOTHING)
}

/// Every object that can be found, with what the instance counted of its mutex.
fn all_cached(scene: &Scene) -> Vec<(usize, Cached)> {
    let Some((_, span)) = scene.spans.first() else { return Vec::new() };
    let mut counted: HashMap<MutexId, Profile> =
        span.period().mutexes().into_iter().map(|(mutex, profile)| (mutex.info.id, profile)).collect();
    let mut all = Vec::new();
    for cache in caches(scene) {
        let name: Arc<str> = cache.name().into();
        let mut pins: HashMap<(u32, u32), usize> = HashMap::new();
        cache.pins().iter().for_each(|pin| *pins.entry((pin.shard, pin.unit)).or_default() += 1);
        for mut block in cache.blocks().into_iter().filter(|block| matches!(block.phase, "building" | "live" | "going"))
        {
            let Some(object) = block.object.take() else { continue };
            let pins = pins.get(&(block.shard, block.unit)).copied().unwrap_or(0);
            let mut profile = object.mutex.and_then(|mutex| counted.remove(&mutex));
            // Its record says them, whichever process has registered it.
            if let Some(profile) = profile.as_mut().filter(|_| span.from.is_none()) {
                profile.gets = Some(object.gets);
            }
            all.push((0, Cached { cache: Arc::clone(&name), block, object, pins, counted: profile }));
        }
    }
    all
}

fn cached() -> View {
    view_of_scene(
        "v$db_object_cache",
        "Objects of the caches of a live instance, and what was counted of their mutexes; nothing of a recording",
        all_cached,
        vec![
            column("cache", "", "Name of the cache", |_: &Span, row: &Cached| row.cache.to_string()),
            column("owner", "", "Its schema", |_: &Span, row: &Cached| row.object.schema.clone()),
            column("name", "", "Its name", |_: &Span, row: &Cached| row.object.name.clone()),
            column("version", "", "Which version of it", |_: &Span, row: &Cached| u32::from(row.object.version)),
            column("copy", "", "Which hot copy; 0 is the object itself", |_: &Span, row: &Cached| row.object.copy),
            column("namespace", "", "Its kind: object, procedure, cursor, child", |_: &Span, row: &Cached| {
                row.object.namespace.name()
            }),
            column("type", "", "Type of its mutex", |_: &Span, row: &Cached| row.object.namespace.mutex_type()),
            column(
                "hash_value",
                "",
                "Its full hash, by which retrial cache mark-hot takes it",
                |_: &Span, row: &Cached| row.object.hash.to_string(),
            ),
            column("sharable_mem", "bytes", "Bytes that it takes up", |_: &Span, row: &Cached| row.block.taken),
            column("value_bytes", "bytes", "Bytes of its value", |_: &Span, row: &Cached| row.object.bytes),
            column(
                "mutex",
                "",
                "Number of its mutex; null while no session has executed or changed it",
                |_: &Span, row: &Cached| row.object.mutex.map(|mutex| mutex.0),
            ),
            column(
                "gets",
                "",
                "First requests of its mutex granted, two for each execution; null without one, and where of a period they cannot be read",
                |_: &Span, row: &Cached| of_cached(row).gets,
            ),
            counter(Counter::Misses, of_cached),
            counter(Counter::Waits, of_cached),
            measure("wait_time_ms", Measure::Registered, "ms", of_cached),
            measure("miss_ratio", Measure::MissRatio, "", of_cached),
            column(
                "hot_copies",
                "",
                "Copies of it that sessions execute, itself among them; 1 when it is not hot",
                |_: &Span, row: &Cached| row.object.copies,
            ),
            column("state", "", "being built, read privately, or read by its mutex", |_: &Span, row: &Cached| {
                crate::cmd::cache::state(row.block.phase == "building", row.block.private)
            }),
            column("pins", "", "Sessions that have it pinned", |_: &Span, row: &Cached| row.pins),
        ],
    )
}

/// A block and the cache that it is in.
type Block = (Arc<str>, BlockInfo);

fn blocks() -> View {
    fn of<T>(row: &Block, value: impl FnOnce(&BlockObject) -> T) -> Option<T> {
        row.1.object.as_ref().map(value)
    }
    let rows = |scene: &Scene| {
        let of_cache = |cache: Observed<'_>| {
            let name: Arc<str> = cache.name().into();
            cache.blocks().into_iter().map(move |block| (0, (Arc::clone(&name), block)))
        };
        caches(scene).into_iter().flat_map(of_cache).collect()
    };
    view_of_scene(
        "x$kglob",
        "The blocks of a live instance's caches as they are, free ones and those that wait to be free too; nothing of a recording",
        rows,
        vec![
            column("cache", "", "Name of the cache", |_: &Span, row: &Block| row.0.to_string()),
            column("shard", "", "The shard", |_: &Span, row: &Block| row.1.shard),
            column("unit", "", "First unit of 16 bytes in the shard", |_: &Span, row: &Block| row.1.unit),
            column("addr", "", "Offset in the instance, in hex, for retrial peek", |_: &Span, row: &Block| {
                format!("{:#x}", row.1.address)
            }),
            column("bytes", "bytes", "Bytes that it takes up", |_: &Span, row: &Block| row.1.taken),
            column("phase", "", "free, building, live, going, gone", |_: &Span, row: &Block| row.1.phase),
            column("private", "", "1 while readers pin it in their rows alone", |_: &Span, row: &Block| row.1.private),
            column("apart", "", "1 while it is built to take another one's place", |_: &Span, row: &Block| row.1.apart),
            column("changing", "", "1 while a session changes it", |_: &Span, row: &Block| row.1.changing),
            column("visited", "", "1 when it was got since the hand came by", |_: &Span, row: &Block| row.1.visited),
            column("owner", "", "Schema of the object", |_: &Span, row: &Block| of(row, |it| it.schema.clone())),
            column(
                "name",
                "",
                "Its name; null of a free block, and of one that became another while it was read",
                |_: &Span, row: &Block| of(row, |it| it.name.clone()),
            ),
            column("version", "", "Which version of it", |_: &Span, row: &Block| of(row, |it| u32::from(it.version))),
            column("copy", "", "Which hot copy; 0 is the object itself", |_: &Span, row: &Block| of(row, |it| it.copy)),
            column("hot_copies", "", "Copies, itself among them; 1 when it is not hot", |_: &Span, row: &Block| {
                of(row, |it| it.copies)
            }),
            column(
                "birth",
                "",
                "Number that its shard gave it when it was made or changed",
                |_: &Span, row: &Block| of(row, |it| it.birth),
            ),
            column("namespace", "", "Its kind", |_: &Span, row: &Block| of(row, |it| it.namespace.name())),
            column("hash_value", "", "Its full hash", |_: &Span, row: &Block| of(row, |it| it.hash.to_string())),
            column("value_bytes", "bytes", "Bytes of its value", |_: &Span, row: &Block| of(row, |it| it.bytes)),
            column("mutex", "", "Number of its mutex", |_: &Span, row: &Block| {
                row.1.object.as_ref().and_then(|it| it.mutex).map(|mutex| mutex.0)
            }),
        ],
    )
}
