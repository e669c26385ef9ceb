//! The machine that figures were measured on.

use std::fs;

/// Processor, cores, governor where there is one, kernel, and what the figures are of: one line.
pub fn line() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let governor = governor.map_or_else(String::new, |name| format!(", governor {name}"));
    let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = read("/proc/loadavg").and_then(|text| text.split(' ').next().map(str::to_owned)).unwrap_or_default();
    format!(
        "{}, {} cores{governor}, Linux {kernel}, load {load}; {} build",
        model.unwrap_or(std::env::consts::ARCH),
        cores(),
        if cfg!(debug_assertions) { "DEBUG" } else { "release" }
    )
}

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
