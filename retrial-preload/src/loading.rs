//! `dlopen` without `RTLD_DEEPBIND`: a library loaded so would find libc's functions before ours, and what it
//! shares with the program would have two formats.

use crate::{process, real};
use libc::{c_int, c_void};

/// What is called in place of a call, in two registers.
#[repr(C)]
struct Call {
    function: *mut c_void,
    flags: c_int,
}

extern "C" fn prepare(flags: c_int) -> Call {
    let kept = if process::is_on() { !libc::RTLD_DEEPBIND } else { !0 };
    Call { function: real::dlopen(), flags: flags & kept }
}

/// `dlopen`: a jump, for libc looks at where the call returns to.
///
/// # Safety
///
/// That of the function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn dlopen() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "mov edi, esi",
        "call {prepare}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov esi, edx",
        "jmp rax",
        ".cfi_endproc",
        prepare = sym prepare,
    )
}

/// `dlopen`: a jump, for libc looks at where the call returns to.
///
/// # Safety
///
/// That of the function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn dlopen() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x0, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_offset x30, -8",
        "mov w0, w1",
        "bl {prepare}",
        "mov x16, x0",
        "ldp x0, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        prepare = sym prepare,
    )
}
