//! The samples of a profile, in a file that the program and its observer have mapped: `retrial run --profile`
//! makes it, the interposer fills it, and both are built from this text.
//!
//! A slot has one writer, which claims it, and then one reader. A writer that is killed in between keeps its
//! slot: it is one of many, and the time from claim to end is some microseconds.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The file with the samples, and the beginning of the names of those with the mappings of each program, both
/// in the directory that the variable names.
pub(crate) const VARIABLE: &str = "RETRIAL_PROFILE";
pub(crate) const FILE: &str = "samples";
pub(crate) const MAPS: &str = "maps.";

/// Changes with the layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"rtprof01");

/// Samples that can wait to be read.
pub(crate) const SLOTS: usize = 256;
/// Bytes of a stack that are copied, from its top on.
pub(crate) const STACK: usize = 32 * 1024;

/// Time between two samples of one kind of a thread, in ns, while there are few in all.
pub(crate) const GAP_NS: u64 = 10_000_000;

/// States of a slot.
pub(crate) const FREE: u32 = 0;
pub(crate) const CLAIMED: u32 = 1;
pub(crate) const FULL: u32 = 2;

/// Kinds of a sample: a get, a wait, and the end of the hold that a sampled get began.
pub(crate) const GET: u32 = 1;
pub(crate) const WAIT: u32 = 2;
pub(crate) const HOLD: u32 = 3;

/// The whole file. All zeros but for the magic and the gap is an empty file.
#[repr(C)]
pub(crate) struct Ring {
    pub(crate) magic: AtomicU64,
    /// A thread adapts its rates so that about this many ns lie between two of its samples of one kind,
    /// [`GAP_NS`] or more.
    pub(crate) gap_ns: AtomicU64,
    /// Where the next writer looks for a slot.
    pub(crate) next: AtomicU32,
    /// Programs so far: each `exec` is another one.
    pub(crate) images: AtomicU32,
    /// Samples that found no slot, and what they stood for.
    pub(crate) dropped: AtomicU64,
    pub(crate) dropped_gets: AtomicU64,
    pub(crate) dropped_wait_ns: AtomicU64,
    /// What taking samples has cost the program: time, and bytes written.
    pub(crate) spent_ns: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) states: [AtomicU32; SLOTS],
    pub(crate) slots: [UnsafeCell<Slot>; SLOTS],
}

// SAFETY: a slot is touched by the writer that has claimed it, then by the reader, and its state says which.
unsafe impl Sync for Ring {}

#[repr(C)]
pub(crate) struct Slot {
    pub(crate) sample: Sample,
    pub(crate) stack: [u8; STACK],
}

/// What is known of a sample besides its stack.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Sample {
    pub(crate) kind: u32,
    pub(crate) pid: u32,
    /// The program, by its number in [`Ring::images`]; forked children have their parent's.
    pub(crate) image: u32,
    /// The lock: its number in the instance, 0 when it has none, its type there, its address.
    pub(crate) mutex: u32,
    pub(crate) mutex_type: u32,
    pub(crate) is_shared: u32,
    pub(crate) address: u64,
    /// How many gets, or ns of waiting, it stands for.
    pub(crate) weight: u64,
    /// How long a wait or a hold was, in ns.
    pub(crate) value_ns: u64,
    /// The same for a get and the end of its hold.
    pub(crate) key: u64,
    pub(crate) registers: Registers,
    /// Bytes of the stack that could be copied.
    pub(crate) stack_len: u64,
}

/// Where a thread is, in the function that copies its stack.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Registers {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// 0 where return addresses are on the stack only.
    pub(crate) lr: u64,
}
