//! Segments with some bytes changed: what the tests and the fuzzer have in common.
//!
//! A [`Case`] is a valid segment, a few changes and a few operations. It is decoded from a few bytes, so that
//! a fuzzer gets behind the header and a corpus stays small; any bytes are some case.

pub(crate) mod exercise;
pub(crate) mod fence;

use retrial::layout::Layout;
use retrial::views::Word;
use retrial::{Address, Capacity, Class, GetError, Instance, Mode, Patience, location};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// Small, so that a case is soon written and most words mean something.
pub(crate) const CAPACITY: Capacity = Capacity { sessions: 2, mutexes: 4, locations: 4, rows: 2, arena: 4096 };

/// Where the header has the lock of the tables: a pthread mutex, whose kind is at 16.
pub(crate) const ADMIN: usize = 192;
/// The kind of a robust process-shared mutex in glibc's format.
pub(crate) const ROBUST_SHARED: u64 = 16 | 128;

/// What a hostile byte is most likely to have an effect as. Numbers at the ends of ranges, SIDs and flags of
/// a word, marks of the kernel and of glibc in a lock.
pub(crate) const VALUES: [u64; 40] = [
    0,
    1,
    2,
    3,
    63,
    64,
    255,
    4095,
    4096,
    4097,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x2_0000_0000,
    0x3_0000_0001,
    0x00ff_ffff_0000_0000,
    0x0080_0001_0000_0000,
    1 << 62,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
    Word::POISONED | 1,
    Word::ATTENTION,
    Word::HANDOVER | 1,
    Word::DRAINING | 1,
    Word::DRAINING | u32::MAX as u64,
    3 << 56 | 1 << 32 | 1,
    2 << 56 | 2 << 32 | 0xffff_ffff,
    0x4000_0000,
    0xc000_0001,
    0x7ffe_ffff_7fff_fffe,
    0x7fff_fffe_0000_0000,
    0x7fff_ffff_0000_0000,
    ROBUST_SHARED,
    17,
    32,
    64,
    256,
    0x0101_0001_0000_0001,
];

/// A valid segment to start from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// As it was created.
    Fresh,
    /// With objects, waits, figures, alerts, and a session that died with two mutexes.
    Used,
}

/// A table of the segment, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) bytes: Range<usize>,
}

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patch {
    /// A word, at an offset in bytes.
    Word(usize, u64),
    /// The length of the file.
    Len(usize),
}

/// A segment and what is done with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    pub(crate) start: Start,
    pub(crate) patches: Vec<Patch>,
    /// Positions in [`exercise::OPERATIONS`]; none of them means all.
    pub(crate) operations: Vec<u8>,
}

/// Where the tables are, which the layout tells nobody but who prints it.
pub(crate) fn tables() -> &'static [Table] {
    static TABLES: OnceLock<Vec<Table>> = OnceLock::new();
    TABLES.get_or_init(|| {
        let text = format!("{:?}", Layout::of(CAPACITY));
        let (_, fields) = text.split_once("}, ").expect("the tables follow the capacities");
        let fields =
            fields.trim_end_matches(" }").split(", ").map(|field| field.split_once(": ").expect("name and start"));
        let starts: Vec<(&str, usize)> = std::iter::once(("header", 0))
            .chain(fields.map(|(name, at)| (name, at.parse().expect("a number"))))
            .collect();
        starts.windows(2).map(|pair| Table { name: pair[0].0.to_owned(), bytes: pair[0].1..pair[1].1 }).collect()
    })
}

impl Start {
    /// The bytes of the segment, made once for each process.
    pub(crate) fn bytes(self) -> &'static [u8] {
        static FRESH: OnceLock<Vec<u8>> = OnceLock::new();
        static USED: OnceLock<Vec<u8>> = OnceLock::new();
        match self {
            Self::Fresh => FRESH.get_or_init(|| make("fresh", |_| {})),
            Self::Used => USED.get_or_init(|| make("used", use_it)),
        }
    }
}

fn make(what: &str, with: impl FnOnce(&Instance)) -> Vec<u8> {
    let address = Address::new(&format!("segment-{what}-{}", std::process::id())).unwrap();
    let instance = Instance::create(&address, CAPACITY, 0o600).unwrap();
    with(&instance);
    let bytes = std::fs::read(address.path());
    retrial::remove(&address).unwrap();
    let bytes = bytes.unwrap();
    assert_eq!(bytes.len(), Layout::of(CAPACITY).len);
    let kind = u32::from_le_bytes(bytes[ADMIN + 16..ADMIN + 20].try_into().unwrap());
    assert_eq!(u64::from(kind), ROBUST_SHARED, "the lock of the tables is where the header is expected to have it");
    bytes
}

/// Leaves something in every table.
fn use_it(instance: &Instance) {
    let a = instance.mutex("a", "test", || 1u64).unwrap();
    let b = instance.mutex("b", "Cursor Pin", || [2u64; 9]).unwrap();
    let mutex_type = instance.tables().type_named("test").unwrap();
    instance.register_mutex(mutex_type, 4096, "elsewhere").unwrap();
    instance.set(retrial::P::YieldMode, Some(mutex_type), 1);
    instance.alert("somebody used it");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let dying = instance.session("dying", Class::High).unwrap();
            let x = a.exclusive(&dying, location!("held to the end")).unwrap();
            let s = b.shared(&dying, location!("held to the end")).unwrap();
            let waiter = instance.session("waiter", Class::Normal).unwrap();
            let waited =
                a.get(&waiter, Mode::Examine, location!("waited for"), Patience::within(Duration::from_millis(2)));
            assert!(matches!(waited, Err(GetError::TimedOut)));
            drop(waited);
            std::mem::forget((x, s));
            std::mem::forget(dying);
        });
    });
}

impl Case {
    /// Everything done to a segment with these changes.
    pub(crate) fn of(start: Start, patches: &[Patch]) -> Self {
        Self { start, patches: patches.to_vec(), operations: Vec::new() }
    }

    /// The case that some bytes mean.
    pub(crate) fn decode(data: &[u8]) -> Self {
        let mut data = data.iter().copied();
        let mut byte = || data.next();
        let first = byte().unwrap_or(0);
        let start = if first & 1 == 0 { Start::Used } else { Start::Fresh };
        let operations = (0..first >> 1 & 7).map_while(|_| byte()).collect();
        let mut patches: Vec<Patch> = Vec::new();
        while let Some(patch) = decode_patch(start, &patches, &mut byte) {
            patches.push(patch);
        }
        Self { start, patches, operations }
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.start.bytes().to_vec();
        for patch in &self.patches {
            match *patch {
                Patch::Word(at, value) => {
                    if let Some(word) = bytes.get_mut(at..at + 8) {
                        word.copy_from_slice(&value.to_le_bytes());
                    }
                }
                Patch::Len(len) => bytes.resize(len, 0),
            }
        }
        bytes
    }
}

/// One change: which table, which word of it, and what becomes of that word.
fn decode_patch(start: Start, before: &[Patch], byte: &mut impl FnMut() -> Option<u8>) -> Option<Patch> {
    fn number<const N: usize>(byte: &mut impl FnMut() -> Option<u8>) -> Option<u64> {
        (0..N).try_fold(0, |sum, i| Some(sum | u64::from(byte()?) << (8 * i)))
    }
    let (table, how) = (byte()?, byte()?);
    let table = &tables()[usize::from(table) % tables().len()].bytes;
    let word = number::<2>(byte)? as usize;
    // Half of the changes are in the first entries of a table, which are those in use.
    let at = table.start + word / 2 * 8 % if word & 1 == 0 { table.len().min(4096) } else { table.len() };
    let now = |at: usize| {
        let written = before.iter().rev().find_map(|patch| match *patch {
            Patch::Word(there, value) if there == at => Some(value),
            _ => None,
        });
        written.unwrap_or_else(|| u64::from_le_bytes(start.bytes()[at..at + 8].try_into().unwrap()))
    };
    let value = match how % 8 {
        0 => number::<8>(byte)?,
        1 => VALUES[usize::from(byte()?) % VALUES.len()],
        2 => now(at) & !0xffff_ffff | number::<4>(byte)?,
        3 => now(at) & 0xffff_ffff | number::<4>(byte)? << 32,
        4 => now(at) ^ 1 << (byte()? & 63),
        5 => now(at).wrapping_add_signed(i64::from(byte()?.cast_signed())),
        6 => now(number::<2>(byte)? as usize * 8 % start.bytes().len()),
        _ => return Some(Patch::Len(number::<2>(byte)? as usize * 8)),
    };
    Some(Patch::Word(at, value))
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.start)?;
        for patch in &self.patches {
            match *patch {
                Patch::Word(at, value) => {
                    let table =
                        tables().iter().rev().find(|table| table.bytes.start <= at).expect("the header is at 0");
                    write!(f, ", {} + {} = {value:#x}", table.name, at - table.bytes.start)?;
                }
                Patch::Len(len) => write!(f, ", {len} bytes")?,
            }
        }
        if !self.operations.is_empty() {
            write!(f, ", operations {:?}", self.operations)?;
        }
        Ok(())
    }
}

/// A file of this process's own for one case after the other, removed at the end.
pub(crate) struct Scratch(pub(crate) Address);

impl Scratch {
    /// `name` is unique within the process.
    pub(crate) fn new(name: &str) -> Self {
        Self(Address::new(&format!("segment-{name}-{}", std::process::id())).unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The inputs that are kept: one file for each.
    pub(crate) fn corpus() -> Vec<PathBuf> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/segment");
        let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.path());
    }
}
