//! The stores of one process, and ours.

use super::gate::Load;
use retrial::{Capacity, Class, Instance};
use retrial_cache::{Cache, Key, Namespace, Shape};
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;

/// A store of objects, as a session uses it.
pub trait Store: Sync {
    /// Takes part in each round until told to end.
    fn work(&self, load: &Load<'_>);
}

/// Reads the first and the last byte.
pub fn look(bytes: &[u8]) {
    black_box((bytes[0], bytes[bytes.len() - 1]));
}

pub fn key(name: &str) -> Key<'_> {
    Key::new(Namespace::Object, "", name)
}

/// What gives a new value its bytes.
pub fn fill(with: u8) -> impl Fn(&mut [u8]) -> Result<(), Infallible> {
    move |bytes| {
        bytes.fill(with);
        Ok(())
    }
}

/// An instance with a cache `bench`, which a session opens in its own process.
pub struct Ours(pub Instance);

impl Ours {
    /// Sessions that the instance has room for: those of a measurement, and those that make it ready.
    pub const SESSIONS: u32 = 96;

    /// With room for so many more bytes of objects than these take.
    pub fn new(names: &[String], bytes: usize) -> Self {
        let room = names.len() as u64 * (bytes as u64 + 160) * 5 / 4;
        let shape = Shape::of(room.max(1 << 20));
        let arena = shape.arena(Self::SESSIONS);
        let capacity = Capacity { sessions: Self::SESSIONS, arena, ..Capacity::default() };
        let ours = Self(Instance::anonymous(capacity).expect("memory"));
        let cache = Cache::create(&ours.0, "bench", shape).expect("a cache");
        let session = ours.0.session("fill", Class::Normal).expect("a session");
        let client = cache.join(&session).expect("a client");
        for name in names {
            drop(client.get_or_insert(&key(name), &vec![1; bytes]).expect("room"));
        }
        drop(client);
        drop(session);
        drop(cache);
        ours
    }
}

impl Store for Ours {
    fn work(&self, load: &Load<'_>) {
        let cache = Cache::open(&self.0, "bench").expect("a cache");
        let session = self.0.session("bench", Class::Normal).expect("a session");
        let client = cache.join(&session).expect("a client");
        let get = |name: &str| client.get(&key(name)).expect("a get").inspect(|pin| look(pin)).is_some();
        let put = |name: &str, with| drop(client.replace(&key(name), load.bytes, fill(with)).expect("replaced"));
        load.warm(get);
        load.run(get, put);
    }
}

pub type QuickCache = quick_cache::sync::Cache<String, Arc<[u8]>>;

impl Store for QuickCache {
    fn work(&self, load: &Load<'_>) {
        let get = |name: &str| Self::get(self, name).inspect(|value| look(value)).is_some();
        load.run(get, |name, with| self.insert(name.to_owned(), vec![with; load.bytes].into()));
    }
}

pub type Moka = moka::sync::Cache<String, Arc<[u8]>>;

impl Store for Moka {
    fn work(&self, load: &Load<'_>) {
        let get = |name: &str| Self::get(self, name).inspect(|value| look(value)).is_some();
        load.run(get, |name, with| self.insert(name.to_owned(), vec![with; load.bytes].into()));
    }
}

pub type DashMap = dashmap::DashMap<String, Box<[u8]>>;

impl Store for DashMap {
    fn work(&self, load: &Load<'_>) {
        let get = |name: &str| Self::get(self, name).inspect(|value| look(value.value())).is_some();
        load.run(get, |name, with| drop(self.insert(name.to_owned(), vec![with; load.bytes].into())));
    }
}
