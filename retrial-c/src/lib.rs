//! retrial for C: the calls of `include/retrial.h` and `retrial_cond.h`, which say what each of them does; `docs/C.md` is the
//! introduction.
//!
//! Every call checks what it is given and answers with a [`Code`]; a message in words is kept for the thread.
//! What C cannot be checked for is said in the header: a pointer that this library did not give, and memory
//! that was freed. A closed session or instance is recognised: the memory of its handle is not freed.
//!
//! A panic ends the process at the boundary (`extern "C"`); its sessions are recovered as after any death.

mod call;
mod code;
mod condition;
mod figures;
mod header;
mod instance;
mod location;
mod mutex;
mod params;
mod private;
mod session;

pub use code::{CODES, Code};
pub use header::{abi, condition, generated};
