//! The pin protocol under every interleaving of two sessions, with every value that a load may see: the
//! crate's own code, on loom's atomics, with the library's own mutexes.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p retrial-cache --lib interleavings
//! ```
//!
//! A shard has room for one object here, a row for two pins. Not in the model: old values of what does not
//! change while an object is one (its name, hash and lengths), of bins and of figures, which are loaded as
//! they are last.

use crate::cache::Cache;
use crate::client::{Client, Look};
use crate::key::{Key, Namespace};
use crate::layout::{BUILDERS, Block, FORMAT, Head, LEAST, PINS, Pinned, Row, Shape, ShardHead, UNIT};
use crate::memory::Memory;
use crate::pin::Place;
use crate::rows::Rows;
use crate::shard::{Shard, is_biased};
use loom::cell::UnsafeCell;
use loom::thread;
use retrial::engine::EngineMutex;
use retrial::sys::protocol;
use retrial::{Capacity, Class, Instance, P, Session};
use std::convert::Infallible;
use std::sync::atomic::AtomicU64 as Count;
use std::sync::atomic::Ordering::{Relaxed, Release};

const SESSIONS: u32 = 3;
const VALUE: usize = 8;

const fn key(name: &str) -> Key<'_> {
    Key::new(Namespace::Object, "", name)
}

/// What the bytes of the one block stand for. Loom objects when two threads use it of which one writes.
struct Bytes(UnsafeCell<u8>);

// SAFETY: what this is there to find out.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn read(&self, value: &[u8]) {
        // SAFETY: pinned, says the cache.
        self.0.with(|now| assert_eq!(value, [unsafe { *now }; VALUE]));
    }

    fn write(&self, value: &mut [u8]) {
        self.0.with_mut(|now| {
            // SAFETY: this session's alone, says the cache.
            unsafe { *now += 1 };
            // SAFETY: as above.
            value.fill(unsafe { *now });
        });
    }
}

/// A cache of one object, made anew for every run.
#[derive(Clone, Copy)]
struct Stage {
    instance: &'static Instance,
    cache: &'static Cache<'static>,
    bytes: &'static Bytes,
    all: &'static [u128],
}

/// What a thread of the model is given: sessions belong to threads by rule, and a model has but one.
struct Given<T>(T);

// SAFETY: the threads of a model run in turn on one thread of the system.
unsafe impl<T> Send for Given<T> {}

impl<T> Given<T> {
    fn take(self) -> T {
        self.0
    }
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Frees what `leak` has leaked, once the run is over.
fn free<T: ?Sized>(leaked: &'static T) {
    // SAFETY: the model's own, and no thread is left.
    drop(unsafe { Box::from_raw(std::ptr::from_ref(leaked).cast_mut()) });
}

fn head() -> Head {
    Head {
        format: Count::new(FORMAT),
        bytes: Count::default(),
        shards: Count::new(1),
        rows_used: protocol::AtomicU64::default(),
        most_copies: Count::default(),
        copies_max: Count::default(),
        counted: Count::default(),
        spare: Default::default(),
        counted_until_ns: Count::default(),
    }
}

fn row() -> Row {
    Row {
        tag: protocol::AtomicU64::default(),
        pins: std::array::from_fn(|_: usize| protocol::AtomicU64::default()),
        deep: protocol::AtomicU64::default(),
        hits: Count::default(),
        misses: Count::default(),
        counted: Count::default(),
        revocations: Count::default(),
        spare: Default::default(),
    }
}

fn shard_head(first: u32) -> ShardHead {
    ShardHead {
        format: Count::new(FORMAT),
        changes: protocol::AtomicU64::default(),
        hand: first.into(),
        births: 0.into(),
        figures: Default::default(),
        leaving: Default::default(),
        filled: Default::default(),
        bins: std::array::from_fn(|_: usize| 0.into()),
    }
}

/// A shard's memory with one free block.
fn memory() -> (&'static [u128], Memory<'static>) {
    let first = (size_of::<ShardHead>() + size_of::<protocol::AtomicU32>()).div_ceil(UNIT) as u32;
    let units = Memory::units(1, VALUE);
    let all: &'static mut [u128] = Box::leak(vec![0; (first + units) as usize].into_boxed_slice());
    let base: *mut u8 = all.as_mut_ptr().cast();
    // SAFETY: as long as that, and so are the two below; nobody has it yet.
    unsafe { base.cast::<ShardHead>().write(shard_head(first)) };
    let chain = base.wrapping_add(size_of::<ShardHead>());
    // SAFETY: as above.
    unsafe { chain.cast::<protocol::AtomicU32>().write(protocol::AtomicU32::default()) };
    // SAFETY: as above.
    unsafe { base.wrapping_add(first as usize * UNIT).cast::<Block>().write(Block::default()) };
    // SAFETY: made above.
    let memory = unsafe { Memory::of_one_chain(base, first, units) };
    memory.format();
    memory.blocks().for_each(|(unit, block)| memory.bin(unit, block));
    (all, memory)
}

impl Stage {
    /// With an object `V`.
    fn new() -> Self {
        let capacity = Capacity { sessions: SESSIONS, mutexes: 16, locations: 32, rows: 2, arena: 0 };
        let instance = leak(Instance::anonymous(capacity).unwrap());
        // As little as a wait can be: one look, then the queue.
        let params = [(P::Scheme, 5), (P::LatchSpinCount, 0), (P::HardSpinCount, 0), (P::SoftSpinCount, 0)];
        params.into_iter().for_each(|(p, value)| instance.set(p, None, value));
        let (all, memory) = memory();
        let all_rows = Box::leak((0..=SESSIONS).map(|_| row()).collect());
        let rows = Rows { all: all_rows, head: leak(head()), tables: instance.tables() };
        let shard = Shard { number: 0, mutex: leak(EngineMutex::default()), memory, rows, instance };
        let cache = leak(Cache {
            instance,
            name: "c".to_owned(),
            mutex: leak(EngineMutex::default()),
            rows,
            builders: (0..BUILDERS).map(|_| leak(EngineMutex::default())).collect(),
            shards: vec![shard],
            shape: Shape { bytes: 0, shards: 1 },
        });
        let stage = Self { instance, cache, bytes: leak(Bytes(UnsafeCell::new(0))), all };
        let session = stage.session();
        let client = cache.join(&session.0).unwrap();
        drop(client.get_or_create(&key("V"), VALUE, stage.build()).unwrap());
        drop(client);
        stage
    }

    fn session(self) -> Given<Session<'static>> {
        Given(self.instance.session("", Class::Normal).unwrap())
    }

    fn build(self) -> impl FnOnce(&mut [u8]) -> Result<(), Infallible> {
        move |value| {
            self.bytes.write(value);
            Ok(())
        }
    }

    /// Changes the object in X.
    fn change(self, client: &Client<'_>) {
        if let Some(mut held) = client.exclusive(&key("V")).unwrap() {
            self.bytes.write(&mut held);
        }
    }

    /// Reads the object, whatever has to be waited for.
    fn read(self, client: &Client<'_>) {
        if let Some(pin) = client.get(&key("V")).unwrap() {
            self.bytes.read(&pin);
        }
    }

    /// Reads the object where that takes no mutex.
    fn read_privately(self, client: &Client<'_>) {
        let key = key("V");
        if let Some((place, state)) = looked(client, &key, 0)
            && is_biased(state)
        {
            self.bytes.read(place.bytes());
        }
    }

    /// Looks the object up, then reads it where it was.
    fn read_by_handle(self, client: &Client<'_>) {
        let handle = client.handle(&key("V")).unwrap();
        for _ in 0..2 {
            let _ = handle.read(|bytes| self.bytes.read(bytes)).unwrap();
        }
    }

    /// Has another session do that in a thread of its own.
    fn beside(self, deed: fn(Self, &Client<'_>)) -> thread::JoinHandle<()> {
        let session = self.session();
        thread::spawn(move || {
            let session = session.take();
            deed(self, &self.cache.join(&session).unwrap());
        })
    }

    /// Takes the stage down, once nobody is on it.
    fn end(self) {
        let Cache { mutex, rows, builders, shards, .. } = self.cache;
        let memory = shards[0].memory;
        for (_, block) in memory.blocks() {
            // SAFETY: written by `memory`, and no thread is left.
            unsafe { std::ptr::from_ref(block).cast_mut().drop_in_place() };
        }
        builders.iter().chain([mutex, &shards[0].mutex]).for_each(|mutex| free(*mutex));
        free(rows.head);
        free(rows.all);
        free(self.cache);
        free(self.instance);
        free(self.bytes);
        free(self.all);
    }
}

/// What a look without a lock found, pinned by that place of the row, and its state.
fn looked<'c>(client: &'c Client<'_>, key: &Key<'_>, at: usize) -> Option<(Place<'c>, u32)> {
    let Look::Found { object, block, state } = client.look(key, key.hash().halves(), at) else { return None };
    Some((Place { client, at, object, block }, state))
}

/// Runs all interleavings with at most so many preemptions, and says how many there were. Where a session has
/// to wait, another one goes on whatever the number.
fn explore(name: &str, preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let runs: &'static Count = leak(Count::default());
    let mut builder = loom::model::Builder::new();
    let more = std::env::var("RETRIAL_MORE_PREEMPTIONS").map_or(0, |more| more.parse().expect("a number"));
    builder.preemption_bound = Some(preemptions + more);
    builder.max_branches = 100_000;
    builder.check(move || {
        runs.fetch_add(1, Relaxed);
        run();
    });
    println!("{name}: {} interleavings", runs.load(Relaxed));
}

/// Two sessions, each at its deed. They leave the cache whole.
fn together(one: fn(Stage, &Client<'_>), other: fn(Stage, &Client<'_>)) {
    let stage = Stage::new();
    let mine = stage.session().take();
    let client = stage.cache.join(&mine).unwrap();
    let other = stage.beside(other);
    one(stage, &client);
    other.join().unwrap();
    assert_eq!(stage.cache.check(&mine).unwrap().wrong, [""; 0]);
    drop(client);
    drop(mine);
    stage.end();
}

/// Evicts `V` to build another object in its bytes.
fn evict(stage: Stage, client: &Client<'_>) {
    // `Full` where it is pinned.
    drop(client.get_or_create(&key("W"), VALUE, stage.build()));
}

#[test]
fn a_private_pin_and_a_change_exclude_each_other() {
    explore("a private pin beside a change", 3, || together(Stage::read_privately, Stage::change));
}

#[test]
fn a_second_pin_of_a_row_is_seen() {
    let read_again = |stage: Stage, client: &Client<'_>| {
        let key = key("V");
        let first = looked(client, &key, 0);
        let at = crate::rows::free_place(client.row).unwrap();
        let second = looked(client, &key, at);
        drop(first);
        if let Some((place, state)) = second
            && is_biased(state)
        {
            stage.bytes.read(place.bytes());
        }
    };
    explore("a second pin beside a change", 2, move || together(read_again, Stage::change));
}

#[test]
fn a_reader_waits_for_a_change_and_a_change_for_readers() {
    explore("a reader beside a change", 2, || together(Stage::read, Stage::change));
}

#[test]
fn what_is_private_again_is_revoked_again() {
    let twice = |stage: Stage, client: &Client<'_>| {
        stage.read(client);
        stage.read(client);
    };
    explore("two reads beside a change", 2, move || together(twice, Stage::change));
    let changes = |stage: Stage, client: &Client<'_>| {
        stage.change(client);
        stage.change(client);
    };
    explore("a read beside two changes", 2, move || together(Stage::read, changes));
}

#[test]
fn what_is_pinned_is_not_evicted() {
    explore("a private pin beside an eviction", 3, || together(Stage::read_privately, evict));
}

#[test]
fn what_a_handle_reads_is_not_changed_or_evicted() {
    explore("a handle beside a change", 2, || together(Stage::read_by_handle, Stage::change));
    explore("a handle beside an eviction", 2, || together(Stage::read_by_handle, evict));
}

#[test]
fn what_is_thrown_away_while_it_is_built_does_not_come_back() {
    explore("a build beside its end", 2, || together(evict, |_, client| _ = client.invalidate(&key("W")).unwrap()));
}

/// A stage, a session, when it began, and its part in the cache, whose row has what a dead session of its
/// number has left.
fn after_a_death() -> (Stage, &'static Session<'static>, u64, Client<'static>) {
    let stage = Stage::new();
    let tag_of = |sid| stage.instance.tables().session_info(sid).unwrap().claimed_ns;
    let dead = stage.session().take();
    let (sid, left) = (dead.sid(), tag_of(dead.sid()));
    drop(dead);
    let heir = leak(stage.session().take());
    assert_eq!(heir.sid(), sid);
    let (client, own) = (stage.cache.join(heir).unwrap(), tag_of(sid));
    let shard = &stage.cache.shards[0];
    client.row.pins[0].store(shard.object(shard.memory.range().0).pin(Pinned::Read), Relaxed);
    client.row.tag.store(left, Release);
    (stage, heir, own, client)
}

#[test]
fn a_dead_sessions_pins_are_not_waited_for() {
    explore("a dead session's pin beside a change", 2, || {
        let (stage, heir, _, client) = after_a_death();
        stage.beside(Stage::change).join().unwrap();
        drop(client);
        free(heir);
        stage.end();
    });
}

/// A session that takes a dead one's row while another one reads it.
#[test]
fn the_pins_of_a_dead_sessions_successor_are_seen() {
    explore("a dead session's row", 2, || {
        let (stage, heir, own, client) = after_a_death();
        let changes = stage.beside(Stage::change);
        stage.cache.rows.join(heir.sid(), own).unwrap();
        stage.read_privately(&client);
        drop(client);
        changes.join().unwrap();
        free(heir);
        stage.end();
    });
}

#[test]
fn the_stage_has_one_block_and_two_places() {
    loom::model(|| {
        let stage = Stage::new();
        assert_eq!(stage.cache.shards[0].memory.blocks().count(), 1);
        assert!(Memory::units(1, VALUE) >= LEAST && PINS == 2);
        stage.end();
    });
}
