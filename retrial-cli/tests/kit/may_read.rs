//! Whether a test may look into processes.

use crate::not_tested::not_tested;

/// Whether the memory of processes that are no children may be read here.
pub(crate) fn may_read() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    // SAFETY: has no preconditions.
    let may = matches!(scope.trim(), "" | "0") || unsafe { libc::geteuid() } == 0;
    if !may {
        not_tested("this user may not read other processes' memory");
    }
    may
}
