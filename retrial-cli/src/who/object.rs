//! From a mutex to the object that it protects, and back.

use crate::instances;
use crate::naming::Names;
use miette::{Report, miette};
use retrial::MutexId;
use retrial::engine::RawMutex;
use retrial::views::{MutexInfo, Place, Tables};
use retrial_cache::{BlockInfo, Observed};
use serde_json::{Value, json};

/// Bytes of a record in the arena before the data: the mutex and a word that says whether the data were
/// written.
const HEAD: u64 = size_of::<RawMutex>() as u64 + 8;

/// The object that a mutex protects, as far as the instance and the program's files know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    pub id: MutexId,
    pub name: String,
    pub mutex_type: String,
    pub place: At,
}

/// Where an object is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum At {
    /// In the instance's arena: offset of the mutex in the segment, bytes of data behind it.
    Arena { offset: u64, bytes: u64 },
    /// In a block of a cache: offset of the block in the segment, its bytes, and the object's whole name.
    Cache { cache: String, object: String, offset: u64, bytes: u64 },
    /// In a process, at a static variable or anywhere else.
    Process { pid: u32, address: u64 },
    /// In memory that the instance does not know.
    Unknown,
}

impl At {
    fn in_cache(tables: &Tables, id: MutexId) -> Option<Self> {
        let (cache, block) = cached_by(tables, id)?;
        let object = block.object?.label();
        Some(Self::Cache { cache, object, offset: block.address, bytes: block.taken })
    }
}

/// The cache that a mutex's object is in, if it is in one.
pub fn cache_of(tables: &Tables, mutex: &MutexInfo) -> Option<String> {
    if mutex.place != Place::Elsewhere {
        return None;
    }
    cached_by(tables, mutex.id).map(|(cache, _)| cache)
}

/// The block of the object that a mutex protects, and the name of its cache.
fn cached_by(tables: &Tables, id: MutexId) -> Option<(String, BlockInfo)> {
    cached(tables, |block| block.object.as_ref().is_some_and(|object| object.mutex == Some(id)))
}

/// The first block of the instance's caches that is asked for, and the name of its cache.
fn cached(tables: &Tables, is_asked: impl Fn(&BlockInfo) -> bool) -> Option<(String, BlockInfo)> {
    // SAFETY: a process that looks from outside takes part in no cache.
    let caches = unsafe { Observed::all(tables) };
    caches.iter().find_map(|cache| Some((cache.name().to_owned(), cache.blocks().into_iter().find(&is_asked)?)))
}

impl Object {
    pub fn of(tables: &Tables, info: &MutexInfo, names: &mut Names<'_>) -> Self {
        let place = match tables.object_of(info.id) {
            Some(range) => At::Arena { offset: range.start, bytes: (range.end - range.start).saturating_sub(HEAD) },
            None if info.place == Place::Elsewhere
                && let Some(at) = At::in_cache(tables, info.id) =>
            {
                at
            }
            None if info.address != 0 => At::Process { pid: info.pid, address: info.address },
            None => At::Unknown,
        };
        let mutex_type = tables.type_name(info.mutex_type);
        Self { id: info.id, name: names.name(info), mutex_type, place }
    }

    pub fn text(&self, flag: &str) -> String {
        let name = if self.name.is_empty() { String::new() } else { format!(" {}", self.name) };
        let is = format!("mutex #{}{name}, type {}", self.id.0, self.mutex_type);
        match &self.place {
            At::Cache { cache, object, offset, bytes } => format!(
                "{is}: of object `{object}` of cache {cache}, at {offset:#x} of the instance: \
                 retrial peek{flag} {offset:#x} {}",
                bytes / 8
            ),
            At::Arena { offset, bytes: 0 } => format!("{is}: at {offset:#x} of the instance, without data of its own"),
            At::Arena { offset, bytes } => {
                let (data, words) = (offset + HEAD, bytes.div_ceil(8));
                format!(
                    "{is}: at {offset:#x} of the instance, before the {bytes} bytes that it protects: \
                     retrial peek{flag} {data:#x} {words}"
                )
            }
            At::Process { pid, address } if self.name.is_empty() => {
                format!("{is}: at {address:#x} of process {pid}, in memory without a name: heap or stack")
            }
            At::Process { pid, address } => format!("{is}: at {address:#x} of process {pid}"),
            At::Unknown => format!("{is}: in memory of its users' own"),
        }
    }

    pub fn json(&self) -> Value {
        let (pid, address, bytes) = match &self.place {
            At::Arena { offset, bytes } | At::Cache { offset, bytes, .. } => (None, Some(offset), Some(bytes)),
            At::Process { pid, address } => (Some(pid), Some(address), None),
            At::Unknown => (None, None, None),
        };
        json!({
            "id": self.id.0,
            "name": self.name,
            "type": self.mutex_type,
            "pid": pid,
            "address": address.map(|address| format!("{address:#x}")),
            "data_bytes": bytes,
            "cache": match &self.place {
                At::Cache { cache, .. } => Some(cache),
                _ => None,
            },
        })
    }
}

/// The mutex of a name or a number; of a static variable of a program; of the object at an address: an offset
/// in the instance, or in a process.
pub fn find(tables: &Tables, text: &str) -> Result<MutexId, Report> {
    if let Some(digits) = text.strip_prefix("0x") {
        let address = u64::from_str_radix(digits, 16).ok();
        let in_cache = address.and_then(|at| {
            let covers = |block: &BlockInfo| (block.address..block.address + block.taken).contains(&at);
            cached(tables, covers)?.1.object?.mutex
        });
        if let Some(id) = in_cache {
            return Ok(id);
        }
        let found = address.and_then(|at| tables.mutexes().into_iter().find(|info| covers(tables, info, at)));
        return found.map(|info| info.id).ok_or_else(|| {
            miette!(
                code = "retrial::who::address",
                help = "retrial who --mutex NAME, which says where its object is",
                "no mutex at {text}, expected an offset in the instance's arena, or the address of a mutex in a process"
            )
        });
    }
    instances::mutex(tables, text)
}

fn covers(tables: &Tables, info: &MutexInfo, address: u64) -> bool {
    match tables.object_of(info.id) {
        Some(range) => range.contains(&address),
        None if info.place == Place::Arena || info.address == 0 => false,
        None => (info.address..info.address + size_of::<RawMutex>() as u64).contains(&address),
    }
}
