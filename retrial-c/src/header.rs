//! The part of `retrial.h` that follows from this crate's source, and the number that says which it is.

use crate::code::CODES;
use crate::mutex::{FOREVER, NOW};
use retrial::Mode;
use retrial::engine::EngineMutex;
use std::fmt::Write as _;

/// Version of what the header and the library agree on: calls, codes, layouts. A program that was compiled
/// with the header of another one is refused when it opens an instance. Raised by hand with every change of
/// what [`generated`] gives, as its test says, or of what a call means.
pub const ABI: u64 = 1;

/// The generated part of the header.
#[must_use]
pub fn generated() -> String {
    let mut text = format!(
        "#define RETRIAL_ABI {ABI}\n\n/* What calls answer; retrial_strerror has the same texts. */\nenum {{\n"
    );
    // Writing to a string never fails.
    for (name, number, meaning) in CODES {
        let _ = writeln!(text, "    RETRIAL_{name} = {number}, /* {} */", meaning.to_string_lossy());
    }
    text += "};\n\n/* Modes of a get. */\nenum {\n";
    for mode in Mode::ALL {
        let _ = writeln!(text, "    RETRIAL_{} = {},", mode.name(), mode as u32);
    }
    let _ = write!(text, "}};\n\n#define RETRIAL_NOW {NOW}u\n#define RETRIAL_FOREVER {FOREVER}u\n");
    let words = size_of::<EngineMutex>() / 8;
    let _ = write!(text, "\n/* Words of 8 bytes in a retrial_mutex. */\n#define RETRIAL_MUTEX_WORDS {words}\n");
    text
}
