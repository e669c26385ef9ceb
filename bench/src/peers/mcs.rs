//! The MCS lock of Concurrency Kit, whose sessions wait each at a place of its own.
#![cfg(has_ck)]

use super::foreign::Room;
use super::{Made, Setup};
use miette::Report;
use retrial::sys::Deadline;
use retrial_bench::check::{Guarded, Protected};
use retrial_bench::ours::no_memory;
use retrial_bench::peer::{Miss, Peer};
use retrial_bench::process::{Shared, Zeroed};
use std::cell::UnsafeCell;
use std::ffi::c_void;

unsafe extern "C" {
    fn bench_ck_mcs_get(lock: *mut c_void, node: *mut c_void);
    fn bench_ck_mcs_release(lock: *mut c_void, node: *mut c_void);
}

/// The end of the queue.
struct Queue(Room);

// SAFETY: made for many threads, and its bytes are not looked at from here.
unsafe impl Sync for Queue {}

/// Where a session waits: a flag and a pointer, that other sessions write.
#[repr(C, align(64))]
pub struct Node(UnsafeCell<[u64; 8]>);

// SAFETY: as above.
unsafe impl Sync for Node {}
// SAFETY: integers; nothing to drop, and not looked at from here.
unsafe impl Zeroed for Node {}

/// Its sessions point at each other: forked processes have the nodes at the same addresses.
pub struct CkMcs {
    place: Shared<Guarded<Queue>>,
    nodes: Shared<Node>,
}

impl Made for CkMcs {
    fn new(setup: &Setup) -> Result<Self, Report> {
        let place = Shared::of(Guarded::new(Queue(Room::default()))).map_err(|e| no_memory(&e))?;
        Ok(Self { place, nodes: Shared::zeroed(setup.sessions as usize).map_err(|e| no_memory(&e))? })
    }
}

impl Peer for CkMcs {
    type Session<'a> = &'a Node;

    fn session(&self, index: u32) -> Option<&Node> {
        self.nodes.get(index as usize)
    }

    fn protected(&self) -> &Protected {
        &self.place[0].data
    }

    #[inline]
    fn with(&self, node: &&Node, _: bool, _: Deadline, section: impl FnOnce()) -> Result<(), Miss> {
        let (queue, node) = (self.place[0].mutex.0.get().cast(), node.0.get().cast());
        // SAFETY: both zeroed and large enough, as the shim asserts; the node is this session's and in no
        // queue.
        unsafe { bench_ck_mcs_get(queue, node) };
        section();
        // SAFETY: got with this node.
        unsafe { bench_ck_mcs_release(queue, node) };
        Ok(())
    }
}
