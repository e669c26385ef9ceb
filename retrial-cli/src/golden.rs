//! Texts of tests that are kept in files.

use std::path::Path;

/// That a text is the one in the file `name` of `tests/golden`; what is empty at its end is left out.
pub fn golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let text = format!("{}\n", text.trim_end());
    if std::env::var_os("RETRIAL_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&file).unwrap(), "RETRIAL_BLESS=1 writes {} anew", file.display());
}
