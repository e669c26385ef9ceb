//! What an object is called.

use crate::error::CacheError;
use std::fmt;
use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

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

    /// Its full hash, which is the same in every process: XXH3 with 128 bits of the schema and of the name, and
    /// in the 64 bits in the middle namespace and version. The others choose shard and chain, so that a parent has its
    /// versions beside it. Hot copies have a hash of all of it, and lie anywhere.
    #[must_use]
    pub fn hash(&self) -> Hash {
        let of_name = self.hash_of_name();
        let kind = u64::from(self.namespace as u8)
            | u64::from(self.copy) << 8
            | u64::from(self.version) << 16
            | u64::from(self.birth) << 32;
        if self.copy != 0 {
            let mut both = [0; 24];
            both[..16].copy_from_slice(&of_name.to_le_bytes());
            both[16..].copy_from_slice(&kind.to_le_bytes());
            return Hash(xxh3_128(&both));
        }
        Hash(of_name ^ u128::from(mixed(kind)) << 32)
    }

    fn hash_of_name(&self) -> u128 {
        let of_name = xxh3_128(self.name.as_bytes());
        // With a seed, so that `a`.`a` is not `b`.`b`.
        if self.schema.is_empty() { of_name } else { of_name ^ xxh3_128_with_seed(self.schema.as_bytes(), 1) }
    }

    /// Whether an object of this namespace and version is one of this one's versions: those of a *cursor* are
    /// its *children*, those of another object have its namespace and a version beside 0.
    pub(crate) fn has_version(&self, namespace: u8, version: u16) -> bool {
        match self.namespace {
            _ if self.version != 0 => false,
            Namespace::Cursor => namespace == Namespace::Child as u8,
            Namespace::Child => false,
            own => version != 0 && namespace == own as u8,
        }
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

/// A number of which each bit depends on all of these, another one for each (the end of `SplitMix64`, Steele,
/// Lea and Flood 2014).
const fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
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
    fn what_is_the_schema_and_what_the_name_is_in_the_hash() {
        let names = ["", "a", "b", "ab", "bc", "abc", "long enough for the hash of long names, 1"];
        let keys = names.iter().flat_map(|schema| names.map(|name| Key::new(Namespace::Object, schema, name)));
        let all: std::collections::HashSet<Hash> = keys.map(|key| key.hash()).collect();
        assert_eq!(all.len(), names.len() * names.len());
    }

    #[test]
    fn versions_and_namespaces_of_a_name_have_hashes_of_their_own_in_one_chain() {
        let shape = crate::layout::Shape { bytes: 1 << 30, shards: 4096 };
        let mut all = std::collections::HashSet::new();
        let parent = Key::new(Namespace::Cursor, "S", "select 1").hash().halves();
        for namespace in Namespace::ALL {
            for version in 0..=u16::MAX {
                let hash = Key::new(namespace, "S", "select 1").version(version).hash();
                assert!(all.insert(hash), "{namespace:?} {version}");
                let [chain, shard] = hash.halves();
                assert_eq!(chain as u32, parent[0] as u32);
                assert_eq!(shape.shard_of([chain, shard]), shape.shard_of(parent));
            }
        }
        let copy = Key::new(Namespace::Cursor, "S", "select 1").copy(1, 7).hash();
        assert!(all.insert(copy));
        assert_ne!(copy.halves()[0] as u32, parent[0] as u32);
    }
}
