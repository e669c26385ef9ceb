//! The bytes of the shared library that a dependency is built as.
//!
//! Cargo has no stable way to depend on a `cdylib` (RFC 3028), and `cargo install` installs executables only.
//! But it builds a dependency with the crate types `cdylib` and `rlib` as both, by one call of rustc into one
//! directory, before what depends on it; and it tells rustc where the `rlib` is: `--extern NAME=…/libNAME.rlib`.
//! A macro is expanded in the process of rustc, whose arguments it can read.

use proc_macro::TokenStream;
use std::env::args_os;
use std::path::{Path, PathBuf};

/// `cdylib!(NAME)`: a `&'static [u8]` of the bytes of `libNAME.so`, for the dependency `NAME` of the crate types
/// `cdylib` and `rlib`.
///
/// Empty where nothing is built: `cargo check`, Clippy and rustdoc have only the metadata of dependencies.
#[proc_macro]
pub fn cdylib(name: TokenStream) -> TokenStream {
    let code = expand(&name.to_string()).unwrap_or_else(|error| format!("::core::compile_error!({error:?})"));
    // Empty only if what is written below were no Rust, and then the caller does not compile.
    code.parse().unwrap_or_default()
}

fn expand(name: &str) -> Result<String, String> {
    let mut externs = args_os().skip_while(|word| word != "--extern").filter_map(|word| word.into_string().ok());
    let rlib = externs
        .find_map(|word| path_of(name, &word))
        .ok_or_else(|| format!("no `--extern {name}=PATH` among the arguments of rustc: is {name} a dependency?"))?;
    if rlib.extension().is_some_and(|extension| extension == "rmeta") {
        return Ok("&[] as &[u8]".to_owned());
    }
    let library = rlib.with_extension("so");
    if !library.is_file() {
        return Err(format!("no {} beside {}: is {name} a cdylib?", library.display(), rlib.display()));
    }
    let library = library.display().to_string();
    // Not the bytes themselves: rustc notes which file is included, and cargo builds anew when it has changed.
    Ok(format!("::core::include_bytes!({library:?}) as &[u8]"))
}

/// The path in `NAME=PATH`, before which options may stand: `noprelude:NAME=PATH`.
fn path_of(name: &str, word: &str) -> Option<PathBuf> {
    let (left, path) = word.split_once('=')?;
    (left.rsplit(':').next() == Some(name)).then(|| Path::new(path).to_owned())
}
