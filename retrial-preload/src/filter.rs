//! `prctl` and `syscall`, to know of a filter of system calls (seccomp) before it is in force: such a filter
//! may kill at each call that the program itself does not make. From then on this library makes no other call
//! than libc's own locks do.
//!
//! A filter that is installed by an instruction of the program's own is not seen. One that was there when the
//! program started is not looked for: most of them answer with an error, and then this library does without
//! the call.

use crate::process;
use crate::thread::Thread;
use libc::{c_int, c_long, c_void};
use retrial::interposer;
use retrial::sys::{Errno, errno};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What our `prctl` and our `syscall` go on to: the next ones of these names, and before these are looked up
/// the kernel.
static PRCTL: AtomicPtr<c_void> = AtomicPtr::new(raw_prctl as *mut c_void);
static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(raw_syscall as *mut c_void);

/// Finds the functions behind ours.
pub(crate) fn resolve(look_up: impl Fn(&CStr) -> *mut c_void) {
    for (next, name) in [(&PRCTL, c"prctl"), (&SYSCALL, c"syscall")] {
        let found = look_up(name);
        if !found.is_null() {
            next.store(found, Ordering::Release);
        }
    }
}

/// Modes of a filter.
const STRICT: c_long = libc::SECCOMP_MODE_STRICT as c_long;
const FILTER: c_long = libc::SECCOMP_MODE_FILTER as c_long;

/// Called before a system call that may install a filter, with its number and its first arguments.
extern "C" fn before(number: c_long, first: c_long, second: c_long, third: c_long) {
    let filter = match number {
        libc::SYS_prctl if first as c_int == libc::PR_SET_SECCOMP => (second, third),
        // The operations are one less than the modes.
        libc::SYS_seccomp => (first + 1, third),
        _ => return,
    };
    let is_one = match filter {
        (STRICT, _) => true,
        // Without a program it asks whether the kernel has filters.
        (FILTER, program) => program != 0,
        _ => false,
    };
    if !is_one || interposer::calls_are_limited() || !process::is_on() {
        return;
    }
    let _errno = Errno::keep();
    // Has its session while that may still be made by any call, and has entered the process.
    Thread::current().me();
    process::limit_calls();
}

/// The result of a system call that has failed.
extern "C" fn failed(result: c_long) -> c_long {
    // SAFETY: this thread's own, always valid.
    unsafe { *errno() = -result as c_int };
    -1
}

/// `syscall`.
///
/// # Safety
///
/// That of the function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {prctl}",
        "je 2f",
        "3: jmp qword ptr [rip + {next}]",
        "2: push rdi; .cfi_adjust_cfa_offset 8",
        "push rsi; .cfi_adjust_cfa_offset 8",
        "push rdx; .cfi_adjust_cfa_offset 8",
        "push rcx; .cfi_adjust_cfa_offset 8",
        "push r8; .cfi_adjust_cfa_offset 8",
        "push r9; .cfi_adjust_cfa_offset 8",
        "push rax; .cfi_adjust_cfa_offset 8",
        "call {before}",
        "pop rax; .cfi_adjust_cfa_offset -8",
        "pop r9; .cfi_adjust_cfa_offset -8",
        "pop r8; .cfi_adjust_cfa_offset -8",
        "pop rcx; .cfi_adjust_cfa_offset -8",
        "pop rdx; .cfi_adjust_cfa_offset -8",
        "pop rsi; .cfi_adjust_cfa_offset -8",
        "pop rdi; .cfi_adjust_cfa_offset -8",
        "jmp 3b",
        ".cfi_endproc",
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        next = sym SYSCALL,
        before = sym before,
    )
}

/// The kernel's call, with the arguments of `syscall`.
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn raw_syscall() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, qword ptr [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2: mov rdi, rax",
        "jmp {failed}",
        ".cfi_endproc",
        failed = sym failed,
    )
}

/// `prctl`.
///
/// # Safety
///
/// That of the function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn prctl() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp edi, {set}",
        "je 2f",
        "3: jmp qword ptr [rip + {next}]",
        "2: push rdi; .cfi_adjust_cfa_offset 8",
        "push rsi; .cfi_adjust_cfa_offset 8",
        "push rdx; .cfi_adjust_cfa_offset 8",
        "push rcx; .cfi_adjust_cfa_offset 8",
        "push r8; .cfi_adjust_cfa_offset 8",
        "mov rcx, rdx",
        "mov rdx, rsi",
        "mov rsi, rdi",
        "mov edi, {prctl}",
        "call {before}",
        "pop r8; .cfi_adjust_cfa_offset -8",
        "pop rcx; .cfi_adjust_cfa_offset -8",
        "pop rdx; .cfi_adjust_cfa_offset -8",
        "pop rsi; .cfi_adjust_cfa_offset -8",
        "pop rdi; .cfi_adjust_cfa_offset -8",
        "jmp 3b",
        ".cfi_endproc",
        set = const libc::PR_SET_SECCOMP,
        prctl = const libc::SYS_prctl,
        next = sym PRCTL,
        before = sym before,
    )
}

/// The kernel's call.
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn raw_prctl() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov eax, {prctl}",
        "mov r10, rcx",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2: mov rdi, rax",
        "jmp {failed}",
        ".cfi_endproc",
        prctl = const libc::SYS_prctl,
        failed = sym failed,
    )
}

/// `syscall`.
///
/// # Safety
///
/// That of the function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp x0, #{seccomp}",
        "b.eq 2f",
        "cmp x0, #{prctl}",
        "b.eq 2f",
        "3: adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "br x16",
        "2: stp x0, x30, [sp, #-64]!",
        ".cfi_adjust_cfa_offset 64",
        ".cfi_offset x30, -56",
        "stp x1, x2, [sp, #16]",
        "stp x3, x4, [sp, #32]",
        "stp x5, x6, [sp, #48]",
        "bl {before}",
        "ldp x5, x6, [sp, #48]",
        "ldp x3, x4, [sp, #32]",
        "ldp x1, x2, [sp, #16]",
        "ldp x0, x30, [sp], #64",
        ".cfi_adjust_cfa_offset -64",
        ".cfi_restore x30",
        "b 3b",
        ".cfi_endproc",
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        next = sym SYSCALL,
        before = sym before,
    )
}

/// The kernel's call, with the arguments of `syscall`.
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn raw_syscall() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc #0",
        "cmn x0, #4095",
        "b.cs 2f",
        "ret",
        "2: b {failed}",
        ".cfi_endproc",
        failed = sym failed,
    )
}

/// `prctl`.
///
/// # Safety
///
/// That of the function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn prctl() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp w0, #{set}",
        "b.eq 2f",
        "3: adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "br x16",
        "2: stp x0, x30, [sp, #-48]!",
        ".cfi_adjust_cfa_offset 48",
        ".cfi_offset x30, -40",
        "stp x1, x2, [sp, #16]",
        "stp x3, x4, [sp, #32]",
        "mov x3, x2",
        "mov x2, x1",
        "mov x1, x0",
        "mov x0, #{prctl}",
        "bl {before}",
        "ldp x3, x4, [sp, #32]",
        "ldp x1, x2, [sp, #16]",
        "ldp x0, x30, [sp], #48",
        ".cfi_adjust_cfa_offset -48",
        ".cfi_restore x30",
        "b 3b",
        ".cfi_endproc",
        set = const libc::PR_SET_SECCOMP,
        prctl = const libc::SYS_prctl,
        next = sym PRCTL,
        before = sym before,
    )
}

/// The kernel's call.
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn raw_prctl() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov x8, #{prctl}",
        "svc #0",
        "cmn x0, #4095",
        "b.cs 2f",
        "ret",
        "2: b {failed}",
        ".cfi_endproc",
        prctl = const libc::SYS_prctl,
        failed = sym failed,
    )
}
