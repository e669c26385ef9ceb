//! The samples of a profile, in a file that the program and its observer have mapped: `retrial run --profile`
//! makes it, the interposer fills it, and both know it from here.
//!
//! A slot has one writer, which claims it, and then one reader. A writer that is killed in between keeps its
//! slot: it is one of many, and the time from claim to end is some microseconds.

use crate::sys::{AtomicU32, AtomicU64};
use std::cell::UnsafeCell;

/// The variable that names the directory with the files.
pub const VARIABLE: &str = "RETRIAL_PROFILE";
/// The file with the samples.
pub const FILE: &str = "samples";
/// The beginning of the names of the files with the mappings of each program.
pub const MAPS: &str = "maps.";

/// Changes with the layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rtprof01");

/// Samples that can wait to be read.
pub const SLOTS: usize = 256;
/// Bytes of a stack that are copied, from its top on.
pub const STACK: usize = 32 * 1024;

/// Time between two samples of one kind of a thread, in ns, while there are few in all.
pub const GAP_NS: u64 = 10_000_000;

/// State of a slot that the next writer can claim.
pub const FREE: u32 = 0;
/// State of a slot that its writer fills.
pub const CLAIMED: u32 = 1;
/// State of a slot that waits for the reader.
pub const FULL: u32 = 2;

/// Kind of a sample: a get.
pub const GET: u32 = 1;
/// Kind of a sample: a wait.
pub const WAIT: u32 = 2;
/// Kind of a sample: the end of the hold that a sampled get began.
pub const HOLD: u32 = 3;

/// The whole file. All zeros but for the magic and the gap is an empty file.
#[repr(C)]
pub struct Ring {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// A thread adapts its rates so that about this many ns lie between two of its samples of one kind,
    /// [`GAP_NS`] or more.
    pub gap_ns: AtomicU64,
    /// Where the next writer looks for a slot.
    pub next: AtomicU32,
    /// Programs so far: each `exec` is another one.
    pub images: AtomicU32,
    /// Samples that found no slot.
    pub dropped: AtomicU64,
    /// Gets that these stood for.
    pub dropped_gets: AtomicU64,
    /// Wait time that these stood for, in ns.
    pub dropped_wait_ns: AtomicU64,
    /// Time that taking samples has cost the program, in ns.
    pub spent_ns: AtomicU64,
    /// Bytes written for samples.
    pub bytes: AtomicU64,
    /// State of each slot.
    pub states: [AtomicU32; SLOTS],
    /// A slot per sample.
    pub slots: [UnsafeCell<Slot>; SLOTS],
}

// SAFETY: a slot is touched by the writer that has claimed it, then by the reader, and its state says which.
unsafe impl Sync for Ring {}

/// A sample with its stack.
#[repr(C)]
pub struct Slot {
    /// What is known besides the stack.
    pub sample: Sample,
    /// Bytes from the top of the stack on.
    pub stack: [u8; STACK],
}

/// What is known of a sample besides its stack.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Sample {
    /// [`GET`], [`WAIT`] or [`HOLD`].
    pub kind: u32,
    /// The process.
    pub pid: u32,
    /// The program, by its number in [`Ring::images`]; forked children have their parent's.
    pub image: u32,
    /// The lock's number in the instance, 0 when it has none.
    pub mutex: u32,
    /// The lock's type there.
    pub mutex_type: u32,
    /// 1 for a get in S, 0 for one in X.
    pub is_shared: u32,
    /// The lock's address in the process.
    pub address: u64,
    /// How many gets, or ns of waiting, it stands for.
    pub weight: u64,
    /// How long a wait or a hold was, in ns.
    pub value_ns: u64,
    /// The same for a get and the end of its hold.
    pub key: u64,
    /// Where the thread was.
    pub registers: Registers,
    /// Bytes of the stack that could be copied.
    pub stack_len: u64,
}

/// Where a thread is, in the function that copies its stack.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub fp: u64,
    /// Link register; 0 where return addresses are on the stack only.
    pub lr: u64,
}
