//! The part of `retrial.h` that follows from this crate's source, and the number that says which it is.

use crate::code::CODES;
use crate::location::{self, CLocation};
use crate::mutex::{FOREVER, NOW};
use crate::session;
use retrial::Mode;
use retrial::engine::{CONDITION, EngineCondition, EngineMutex, Field, MUTEX, NUMBERS};
use std::fmt::Write as _;

/// Raised with every change of what a call or the header's inlined code means that leaves [`layout`] as it is.
const MEANING: u64 = 2;

/// What the header and the library agree on, as a number: calls, codes, layouts. A program that was compiled
/// with the header of another library is refused when it opens an instance.
#[must_use]
pub fn abi() -> u64 {
    // FNV-1a.
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    (layout() + &condition()).as_bytes().iter().fold(0xcbf2_9ce4_8422_2325 ^ MEANING, hash)
}

/// The generated part of the header.
#[must_use]
pub fn generated() -> String {
    format!("#define RETRIAL_ABI {:#x}u\n\n{}", abi(), layout())
}

/// The generated part of `retrial_cond.h`.
#[must_use]
pub fn condition() -> String {
    let mut text = CONDITION_IS.trim_start().to_owned();
    structure(&mut text, "retrial_cond", &CONDITION, size_of::<EngineCondition>());
    text + "\n#define RETRIAL_COND_INIT {" + &vec!["0"; CONDITION.len()].join(", ") + "}\n"
}

fn layout() -> String {
    let mut text = "/* What calls answer; retrial_strerror has the same texts. */\nenum {\n".to_owned();
    // Writing to a string never fails.
    for (name, number, meaning) in CODES {
        let _ = writeln!(text, "    RETRIAL_{name} = {number}, /* {} */", meaning.to_string_lossy());
    }
    text += "};\n\n/* Modes of a get. */\nenum {\n";
    for mode in Mode::ALL {
        let _ = writeln!(text, "    RETRIAL_{} = {},", mode.name(), mode as u32);
    }
    let _ = write!(text, "}};\n\n#define RETRIAL_NOW {NOW}u\n#define RETRIAL_FOREVER {FOREVER}u\n");
    text += "\n/* For the inlined calls below alone, as all that ends with '_'. */\n";
    for (name, value, meaning) in NUMBERS {
        let _ = writeln!(text, "#define RETRIAL_{name}_ {value:#x}u /* {meaning} */");
    }
    text += MUTEX_IS;
    structure(&mut text, "retrial_mutex", &MUTEX, size_of::<EngineMutex>());
    let zeros = vec!["0"; MUTEX.len()].join(", ");
    let _ = write!(text, "\n#define RETRIAL_MUTEX_INIT {{{zeros}}}\n{LOCATION_IS}");
    structure(&mut text, "retrial_location", &location::FIELDS, size_of::<CLocation>());
    text += SESSION_IS;
    structure(&mut text, "retrial_session", &session::fields(), session::PUBLIC);
    text
}

const MUTEX_IS: &str = "
/* A mutex, for a struct of your own in memory that processes share. All bytes 0 is a free mutex: it belongs to the
 * instance of the first session that gets it, also when several get it at once. Never copied; used by no code but the
 * calls here. The memory of a mutex has to be cleared when it outlives its instance. */
";

const CONDITION_IS: &str = "
/* A condition, for a struct of your own in memory that processes share. All bytes 0 is one that nobody waits for: it
 * belongs to the instance of the first session that uses it. Never copied; used by no code but the calls here. The
 * memory of a condition has to be cleared when it outlives its instance. */
";

const LOCATION_IS: &str = "
/* A place in the code, registered by its name when it is first passed. `resolved` is 0 at first. */
";

const SESSION_IS: &str = "
/* What the inlined calls read of a session; the library has more behind it. */
";

/// A struct in C with these fields, which are all that it has.
fn structure(text: &mut String, name: &str, fields: &[Field], size: usize) {
    let _ = writeln!(text, "typedef struct {name} {{");
    let mut end = 0;
    for (field, offset, c_type, meaning) in fields {
        assert_eq!(*offset, end, "{name}.{field} follows the field before it");
        end += match *c_type {
            "uint32_t " => 4,
            "retrial_location " => size_of::<CLocation>(),
            _ => 8,
        };
        let _ = writeln!(text, "    {c_type}{field}; /* {meaning} */");
    }
    assert_eq!(end, size, "{name} has fields of {size} bytes");
    let _ = writeln!(text, "}} {name};");
}
