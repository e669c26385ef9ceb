//! The symbols, unversioned: a program's reference to any version of libc's finds ours.
//!
//! Each is a jump to a function that takes two arguments more: where the call returns to, and the thread's
//! own record. Others are in [`crate::loading`] and [`crate::filter`].

macro_rules! exports {
    ($( $($name:ident)+ ($count:tt) => $target:path; )*) => { $( $(
        /// The function of this name, as POSIX, C11 or libc have it.
        ///
        /// # Safety
        ///
        /// That of the function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            jump!($count, $target)
        }
    )+ )* };
}

/// Registers of the two arguments after so many others.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    (1, $target:path) => { jump!("rsi", "rdx", $target) };
    (2, $target:path) => { jump!("rdx", "rcx", $target) };
    (3, $target:path) => { jump!("rcx", "r8", $target) };
    (4, $target:path) => { jump!("r8", "r9", $target) };
    ($caller:literal, $thread:literal, $target:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc", // a signal's handler may look at the stack from here
            concat!("mov ", $caller, ", qword ptr [rsp]"),
            concat!("mov ", $thread, ", qword ptr [rip + retrial_thread@GOTTPOFF]"),
            concat!("add ", $thread, ", qword ptr fs:[0]"),
            "jmp {target}",
            ".cfi_endproc",
            target = sym $target,
        )
    };
}

/// Registers of the two arguments after so many others.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    (1, $target:path) => { jump!("x1", "x2", $target) };
    (2, $target:path) => { jump!("x2", "x3", $target) };
    (3, $target:path) => { jump!("x3", "x4", $target) };
    (4, $target:path) => { jump!("x4", "x5", $target) };
    ($caller:literal, $thread:literal, $target:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc", // a signal's handler may look at the stack from here
            concat!("mov ", $caller, ", x30"),
            "adrp x16, :gottprel:retrial_thread",
            "ldr x16, [x16, :gottprel_lo12:retrial_thread]",
            "mrs x17, tpidr_el0",
            concat!("add ", $thread, ", x17, x16"),
            "b {target}",
            ".cfi_endproc",
            target = sym $target,
        )
    };
}

/// The waits of condition.c, which takes the same arguments.
mod shim {
    unsafe extern "C" {
        pub(super) fn retrial_cond_wait();
        pub(super) fn retrial_cond_timedwait();
        pub(super) fn retrial_cond_clockwait();
        pub(super) fn retrial_cnd_wait();
        pub(super) fn retrial_cnd_timedwait();
        pub(super) fn retrial_sem_wait();
        pub(super) fn retrial_sem_timedwait();
        pub(super) fn retrial_sem_clockwait();
    }
}

use crate::{c11, condition, event, mutex, real, rwlock, spin};

exports! {
    pthread_mutex_init __pthread_mutex_init (2) => mutex::init;
    pthread_mutex_destroy __pthread_mutex_destroy (1) => mutex::destroy;
    pthread_mutex_lock __pthread_mutex_lock (1) => mutex::lock;
    pthread_mutex_trylock __pthread_mutex_trylock (1) => mutex::trylock;
    pthread_mutex_timedlock (2) => mutex::timedlock;
    pthread_mutex_clocklock (3) => mutex::clocklock;
    pthread_mutex_unlock __pthread_mutex_unlock (1) => mutex::unlock;
    pthread_mutex_consistent pthread_mutex_consistent_np (1) => mutex::consistent;
    pthread_mutex_getprioceiling (2) => mutex::getprioceiling;
    pthread_mutex_setprioceiling (3) => mutex::setprioceiling;

    pthread_cond_init (2) => condition::init;
    pthread_cond_destroy (1) => condition::destroy;
    pthread_cond_signal (1) => condition::signal;
    pthread_cond_broadcast (1) => condition::broadcast;
    pthread_cond_wait (2) => shim::retrial_cond_wait;
    pthread_cond_timedwait (3) => shim::retrial_cond_timedwait;
    pthread_cond_clockwait (4) => shim::retrial_cond_clockwait;

    pthread_rwlock_init __pthread_rwlock_init (2) => real::rwlock_init;
    pthread_rwlock_destroy __pthread_rwlock_destroy (1) => real::rwlock_destroy;
    pthread_rwlock_rdlock __pthread_rwlock_rdlock (1) => rwlock::read_lock;
    pthread_rwlock_wrlock __pthread_rwlock_wrlock (1) => rwlock::write_lock;
    pthread_rwlock_tryrdlock __pthread_rwlock_tryrdlock (1) => rwlock::read_trylock;
    pthread_rwlock_trywrlock __pthread_rwlock_trywrlock (1) => rwlock::write_trylock;
    pthread_rwlock_timedrdlock (2) => rwlock::read_timedlock;
    pthread_rwlock_timedwrlock (2) => rwlock::write_timedlock;
    pthread_rwlock_clockrdlock (3) => rwlock::read_clocklock;
    pthread_rwlock_clockwrlock (3) => rwlock::write_clocklock;
    pthread_rwlock_unlock __pthread_rwlock_unlock (1) => rwlock::unlock;

    pthread_barrier_wait (1) => event::barrier_wait;

    sem_wait (1) => shim::retrial_sem_wait;
    sem_timedwait (2) => shim::retrial_sem_timedwait;
    sem_clockwait (3) => shim::retrial_sem_clockwait;

    pthread_spin_init (2) => real::spin_init;
    pthread_spin_destroy (1) => real::spin_destroy;
    pthread_spin_lock (1) => spin::lock;
    pthread_spin_trylock (1) => spin::trylock;
    pthread_spin_unlock (1) => spin::unlock;

    mtx_init (2) => c11::mtx_init;
    mtx_destroy (1) => c11::mtx_destroy;
    mtx_lock (1) => c11::mtx_lock;
    mtx_trylock (1) => c11::mtx_trylock;
    mtx_timedlock (2) => c11::mtx_timedlock;
    mtx_unlock (1) => c11::mtx_unlock;
    cnd_init (1) => c11::cnd_init;
    cnd_destroy (1) => c11::cnd_destroy;
    cnd_signal (1) => c11::cnd_signal;
    cnd_broadcast (1) => c11::cnd_broadcast;
    cnd_wait (2) => shim::retrial_cnd_wait;
    cnd_timedwait (3) => shim::retrial_cnd_timedwait;
}
