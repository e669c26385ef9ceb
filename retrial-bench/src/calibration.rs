//! What `retrial calibrate` found out, kept in the user's cache directory for every instance that is made
//! later.

use crate::machine::Machine;
use retrial::Instance;
use retrial::views::Costs;
use std::io;
use std::path::{Path, PathBuf};

/// What the command keeps for the user: `retrial` in `$XDG_CACHE_HOME`, or in `~/.cache`.
pub fn cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("retrial"))
}

/// Where it is kept: `machine` in [`cache`].
pub fn path() -> Option<PathBuf> {
    Some(cache()?.join("machine"))
}

/// The first line of the file: a home directory may be seen by many machines, and a machine gets other
/// kernels. Without the number of processors, since a process may use some of them only.
fn title() -> String {
    let Machine { cpu, kernel, .. } = Machine::here();
    format!("# {cpu}, Linux {kernel}")
}

/// What was measured on this very machine.
pub fn load() -> Option<Costs> {
    let text = std::fs::read_to_string(path()?).ok()?;
    text.strip_prefix(&title())?.strip_prefix('\n')?.parse().ok()
}

/// Keeps it: the file is complete or as it was.
pub fn store(path: &Path, costs: &Costs) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory)?;
    let beside = directory.join(format!("machine.{}", std::process::id()));
    std::fs::write(&beside, format!("{}\n{costs}", title()))?;
    std::fs::rename(&beside, path)
}

/// Tells a new instance.
pub fn apply(instance: &Instance) {
    if let Some(costs) = load() {
        instance.set_costs(&costs);
    }
}
