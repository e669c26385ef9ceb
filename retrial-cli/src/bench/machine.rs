//! The machine that figures were measured on.

use std::fs;

fn file(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Processor, cores, governor where there is one, kernel: one line.
pub fn line() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let governor = file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let governor = governor.map_or_else(String::new, |name| format!(", governor {name}"));
    let kernel = file("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    format!("{}, {cores} cores{governor}, Linux {kernel}", model.unwrap_or(std::env::consts::ARCH))
}
