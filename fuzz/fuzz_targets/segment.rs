//! Whatever bytes are in a segment's file: attaching and observing work, or are refused by a typed error.
#![no_main]

#[path = "../../retrial/tests/corpus/mod.rs"]
#[allow(dead_code, unreachable_pub)] // the tests use more of it
mod corpus;

use corpus::{ADMIN, Case, Patch, Scratch, exercise::exercise};
use libfuzzer_sys::fuzz_target;

thread_local! {
    static SCRATCH: Scratch = {
        // A sleep of a few microseconds is not to take 50 more.
        // SAFETY: takes a number.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
        Scratch::new("fuzz")
    };
}

fuzz_target!(|data: &[u8]| {
    let mut case = Case::decode(data);
    // Whoever finds the lock of the tables held waits for it for a second, which `tests/segments.rs` has the time for.
    case.patches.extend([Patch::Word(ADMIN, 0), Patch::Word(ADMIN + 8, 0)]);
    SCRATCH.with(|scratch| exercise(&case, scratch));
});
