//! The stores of one process, and ours.

use super::gate::Load;
use miette::{IntoDiagnostic, Report};
use retrial::{Capacity, Class, Instance};
use retrial_cache::{Cache, Client, Key, Namespace, Shape};
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

pub fn get(client: &Client<'_>, name: &str) -> bool {
    client.get(&key(name)).expect("a get").inspect(|pin| look(pin)).is_some()
}

pub fn replace(client: &Client<'_>, name: &str, bytes: usize, with: u8) {
    drop(client.replace(&key(name), bytes, fill(with)).expect("replaced"));
}

/// An instance with a cache `bench`, which a session opens in its own process.
pub struct Ours(pub Instance);

impl Ours {
    /// Sessions that the instance has room for: those of a measurement, and those that make it ready.
    const SESSIONS: u32 = 96;

    /// With room for so many more bytes of objects than these take.
    pub fn new(names: &[String], bytes: usize) -> Result<Self, Report> {
        let room = names.len() as u64 * (bytes as u64 + 160) * 5 / 4;
        let ours = Self::empty(Shape::of(room.max(1 << 20)))?;
        ours.fill(names, bytes)?;
        Ok(ours)
    }

    pub fn empty(shape: Shape) -> Result<Self, Report> {
        let arena = shape.arena(Self::SESSIONS);
        let capacity = Capacity { sessions: Self::SESSIONS, arena, ..Capacity::default() };
        let ours = Self(Instance::anonymous(capacity).into_diagnostic()?);
        Cache::create(&ours.0, "bench", shape).into_diagnostic()?;
        Ok(ours)
    }

    pub fn fill(&self, names: &[String], bytes: usize) -> Result<(), Report> {
        let value = vec![1; bytes];
        let insert = |client: &Client<'_>, name| client.get_or_insert(&key(name), &value).map(drop).into_diagnostic();
        self.joined(|_, client| names.iter().try_for_each(|name| insert(client, name)))?
    }

    /// Has a session of its own do this.
    pub fn joined<T>(&self, work: impl FnOnce(&Cache<'_>, &Client<'_>) -> T) -> Result<T, Report> {
        let cache = Cache::open(&self.0, "bench").into_diagnostic()?;
        let session = self.0.session("bench", Class::Normal).into_diagnostic()?;
        Ok(work(&cache, &cache.join(&session).into_diagnostic()?))
    }
}

impl Store for Ours {
    fn work(&self, load: &Load<'_>) {
        let work = |client: &Client<'_>| {
            load.warm(|name| get(client, name));
            load.run(|name| get(client, name), |name, with| replace(client, name, load.bytes, with));
        };
        self.joined(|_, client| work(client)).expect("a session");
    }
}

/// Stores within one process.
macro_rules! stores {
    ($($name:ident = $store:ty;)+) => {$(
        pub type $name = $store;

        impl Store for $name {
            fn work(&self, load: &Load<'_>) {
                let get = |name: &str| Self::get(self, name).inspect(|value| look(value)).is_some();
                let put = |name: &str, with| {
                    self.insert(name.to_owned(), vec![with; load.bytes].into());
                };
                load.run(get, put);
            }
        }
    )+};
}

stores! {
    QuickCache = quick_cache::sync::Cache<String, Arc<[u8]>>;
    Moka = moka::sync::Cache<String, Arc<[u8]>>;
    DashMap = dashmap::DashMap<String, Box<[u8]>>;
}
