//! The command `retrial`; everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    retrial_cli::main()
}
