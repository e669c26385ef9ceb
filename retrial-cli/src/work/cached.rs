//! The loads of 003 and of the paper on one object each, or on the versions of one statement.

use super::{Load, Seat};
use crate::instances::cache_error;
use miette::Report;
use retrial_cache::{Cache, CacheError, Client, Key, Namespace};

/// What cached objects have for a value.
pub const PLAN: &[u8] = b"a plan";

/// Its first letter once a session has changed it.
const CHANGED: u8 = b'A';

/// Types of the mutexes of a cache.
pub const TYPES: &[&str] = &["Library Cache", "Cursor Parent", "Cursor Pin", "hash table"];

/// `select 1 from dual where 1=2` a million times.
pub struct CursorPin<'i>(pub Cache<'i>);

/// `begin demo_proc(); end;` a million times.
pub struct LibraryCache<'i>(pub Cache<'i>);

/// The same cursor, read and not executed.
pub struct Reads<'i>(pub Cache<'i>);

/// A statement with a dozen versions, of which no session keeps any.
pub struct HashTable<'i>(pub Cache<'i>);

const CURSOR: Key<'_> = Key::new(Namespace::Child, "", "select 1 from dual where 1=2");
const PROCEDURE: Key<'_> = Key::new(Namespace::Procedure, "SCOTT", "DEMO_PROC");
const STATEMENT: &str = "select name from customers where id = :1";
const PARENT: Key<'_> = Key::new(Namespace::Cursor, "", STATEMENT);
const VERSIONS: u16 = 12;

const fn version(number: u16) -> Key<'static> {
    Key::new(Namespace::Child, "", STATEMENT).version(number)
}

/// Does something with an object, and makes it first where it was evicted.
pub fn with<T>(
    client: &Client<'_>,
    key: &Key<'_>,
    mut deed: impl FnMut() -> Result<Option<T>, CacheError>,
) -> Result<T, Report> {
    loop {
        if let Some(done) = deed().map_err(cache_error)? {
            return Ok(done);
        }
        drop(client.get_or_insert(key, PLAN).map_err(cache_error)?);
    }
}

/// An execution of a load on one object, and what is between it and the next one.
fn executed(seat: &Seat<'_>, client: &Client<'_>, key: &Key<'_>) -> Result<(), Report> {
    seat.executed();
    if seat.is_to_change() {
        with(client, key, || {
            let changed = client.exclusive(key)?;
            Ok(changed.map(|mut plan| plan[0] = CHANGED))
        })?;
    }
    seat.think();
    Ok(())
}

impl Load for CursorPin<'_> {
    fn objects(&self) -> Vec<Key<'static>> {
        vec![CURSOR]
    }

    fn work(&self, seat: &Seat<'_>) -> Result<(), Report> {
        let client = self.0.join(&seat.session).map_err(cache_error)?;
        while seat.goes_on() {
            with(&client, &CURSOR, || client.execute(&CURSOR, |_| seat.run()))?;
            executed(seat, &client, &CURSOR)?;
        }
        Ok(())
    }
}

impl Load for LibraryCache<'_> {
    fn objects(&self) -> Vec<Key<'static>> {
        vec![PROCEDURE]
    }

    fn work(&self, seat: &Seat<'_>) -> Result<(), Report> {
        let client = self.0.join(&seat.session).map_err(cache_error)?;
        while seat.goes_on() {
            with(&client, &PROCEDURE, || client.call(&PROCEDURE, |_| seat.run()))?;
            executed(seat, &client, &PROCEDURE)?;
        }
        Ok(())
    }
}

impl Load for Reads<'_> {
    fn objects(&self) -> Vec<Key<'static>> {
        vec![CURSOR]
    }

    fn work(&self, seat: &Seat<'_>) -> Result<(), Report> {
        let client = self.0.join(&seat.session).map_err(cache_error)?;
        while seat.goes_on() {
            let pin = with(&client, &CURSOR, || client.get(&CURSOR))?;
            seat.run();
            drop(pin);
            executed(seat, &client, &CURSOR)?;
        }
        Ok(())
    }
}

impl Load for HashTable<'_> {
    fn objects(&self) -> Vec<Key<'static>> {
        (1..=VERSIONS).map(version).collect()
    }

    fn work(&self, seat: &Seat<'_>) -> Result<(), Report> {
        let client = self.0.join(&seat.session).map_err(cache_error)?;
        // The session's environment fits one of the versions, which it finds behind those before it.
        let own = (seat.index % u32::from(VERSIONS)) as u16 + 1;
        while seat.goes_on() {
            let parent = with(&client, &PARENT, || client.get_by_mutex(&PARENT))?;
            for key in (1..=own).map(version) {
                drop(with(&client, &key, || client.get_by_mutex(&key))?);
            }
            drop(parent);
            let key = version(own);
            with(&client, &key, || client.execute(&key, |_| seat.run()))?;
            seat.executed();
            seat.think();
        }
        Ok(())
    }
}
