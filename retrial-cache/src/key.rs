//! What an object is called.

use crate::error::CacheError;
use std::fmt;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// What kind of object it is, which says by what mutex type its mutex is known.
///
/// The types are those of the sources: sessions that wait for a cursor's mutex wait for *cursor: pin X*, for
/// a procedure's for *library cache: mutex X*.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Namespace {
    /// Anything of the user's own.
    Object = 0,
    /// A table, a view, a sequence, a procedure: what is defined in a schema.
    Procedure = 1,
    /// A statement: the parent of its versions.
    Cursor = 2,
    /// A version of a statement that can be executed.
    Child = 3,
}

impl Namespace {
    /// Every namespace, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Object, Self::Procedure, Self::Cursor, Self::Child];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["object", "procedure", "cursor", "child"][self as usize]
    }

    /// The namespace of this name or number.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|namespace| namespace.name() == text || (*namespace as u8).to_string() == text)
    }

    /// Type of its objects' mutexes.
    #[must_use]
    pub const fn mutex_type(self) -> &'static str {
        ["Library Cache", "Library Cache", "Cursor Parent", "Cursor Pin"][self as usize]
    }
}

/// Longest schema and name, in bytes.
pub const LONGEST: usize = 1000;

/// An object's name: a namespace, a schema, a name, and which version of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Key<'k> {
    pub(crate) namespace: Namespace,
    pub(crate) schema: &'k str,
    pub(crate) name: &'k str,
    pub(crate) version: u16,
    /// Which hot copy, and of which state of the object; 0 is the object itself.
    pub(crate) copy: u8,
    pub(crate) birth: u32,
}

impl<'k> Key<'k> {
    /// The object of this name.
    #[must_use]
    pub const fn new(namespace: Namespace, schema: &'k str, name: &'k str) -> Self {
        Self { namespace, schema, name, version: 0, copy: 0, birth: 0 }
    }

    /// What kind of object it names.
    #[must_use]
    pub const fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// One of the versions of it, each of which is an object of its own.
    #[must_use]
    pub const fn version(self, version: u16) -> Self {
        Self { version, ..self }
    }

    pub(crate) const fn copy(self, copy: u8, birth: u32) -> Self {
        Self { copy, birth, ..self }
    }

    /// Its full hash, which is the same in every process: XXH3 with 128 bits.
    #[must_use]
    pub fn hash(&self) -> Hash {
        let mut head = [0; 10];
        head[..4].copy_from_slice(&[self.namespace as u8, self.copy, self.version as u8, (self.version >> 8) as u8]);
        head[4..8].copy_from_slice(&self.birth.to_le_bytes());
        // The length keeps `a`.`bc` and `ab`.`c` apart.
        head[8..].copy_from_slice(&(self.schema.len() as u16).to_le_bytes());
        let parts = [&head[..], self.schema.as_bytes(), self.name.as_bytes()];
        // Most names are short, and a hash in parts begins with half a kilobyte of state.
        let (mut short, mut len) = ([0; 128], 0);
        if head.len() + self.len() > short.len() {
            let mut hasher = Xxh3::new();
            for part in parts {
                hasher.update(part);
            }
            return Hash(hasher.digest128());
        }
        for part in parts {
            short[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        Hash(xxh3_128(&short[..len]))
    }

    pub(crate) const fn len(&self) -> usize {
        self.schema.len() + self.name.len()
    }

    pub(crate) fn check(&self) -> Result<(), CacheError> {
        for (what, text) in [("schema", self.schema), ("name", self.name)] {
            if text.len() > LONGEST || text.contains('\0') || (what == "name" && text.is_empty()) {
                return Err(CacheError::Name { what, found: text.to_owned() });
            }
        }
        Ok(())
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.schema.is_empty() {
            write!(f, "{}.", self.schema)?;
        }
        f.write_str(self.name)?;
        if self.version != 0 {
            write!(f, " version {}", self.version)?;
        }
        if self.copy != 0 {
            write!(f, " copy {}", self.copy)?;
        }
        Ok(())
    }
}

/// Full hash of an object's name, written with 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Hash(pub u128);

impl Hash {
    pub(crate) const fn halves(self) -> [u64; 2] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }

    /// The hash that is written so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if digits.len() == 32 { u128::from_str_radix(digits, 16).ok().map(Self) } else { None }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_short_names_have_one_hash() {
        for len in 1..300 {
            let name = "n".repeat(len);
            let key = Key::new(Namespace::Child, "S", &name).version(3);
            let mut bytes = vec![3, 0, 3, 0, 0, 0, 0, 0, 1, 0, b'S'];
            bytes.extend(name.bytes());
            assert_eq!(key.hash(), Hash(xxh3_128(&bytes)), "{len}");
        }
    }
}
