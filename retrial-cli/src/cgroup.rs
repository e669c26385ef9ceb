//! The control group of a process and the groups above it: a limit of each of them binds the process.

use std::path::{Path, PathBuf};

/// The text of a file of the kernel's; `None` where there is none, or it may not be read.
pub type Read<'f> = dyn Fn(&str) -> Option<String> + 'f;

/// A file of each of the groups that have it, with the group's directory; `process` is an id or `self`.
pub fn files(read: &Read<'_>, process: &str, name: &str) -> Vec<(PathBuf, String)> {
    let groups = read(&format!("/proc/{process}/cgroup")).unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let directories = Path::new(own).ancestors().map(|group| Path::new("/sys/fs/cgroup").join(group));
    directories.filter_map(|directory| Some((directory.clone(), read(directory.join(name).to_str()?)?))).collect()
}

/// Processors that each of the groups with a quota may use at a time, with the group's directory.
pub fn quotas(read: &Read<'_>, process: &str) -> Vec<(PathBuf, f64)> {
    let files = files(read, process, "cpu.max").into_iter();
    files.filter_map(|(group, max)| Some((group, in_processors(&max)?))).collect()
}

/// Processors that a process may use at a time: the least that one of its groups may.
pub fn least(quotas: &[(PathBuf, f64)]) -> Option<f64> {
    quotas.iter().map(|(_, quota)| *quota).reduce(f64::min)
}

/// The quota that `cpu.max` has, in processors.
fn in_processors(max: &str) -> Option<f64> {
    let (quota, period) = max.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_in_processors() {
        assert_eq!(in_processors("150000 100000\n"), Some(1.5));
        assert_eq!(in_processors("max 100000\n"), None);
    }
}
