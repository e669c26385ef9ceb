//! Mutexes of C and C++ behind the shims of `shims/`, as far as `build.rs` found them.
#![cfg(any(has_absl, has_nsync, has_ck))]

use super::Lock;
use std::cell::UnsafeCell;
use std::ffi::c_void;

/// As many bytes as any of them takes; 0 is a free one.
pub type Room = UnsafeCell<[u64; 5]>;

/// Implements [`Lock`] by a pair of functions of a shim.
macro_rules! lock {
    ($name:ident, $get:ident, $release:ident) => {
        unsafe extern "C" {
            fn $get(mutex: *mut c_void);
            fn $release(mutex: *mut c_void);
        }

        #[repr(transparent)]
        pub struct $name(Room);

        // SAFETY: made for many threads, and its bytes are not looked at from here.
        unsafe impl Sync for $name {}

        impl Lock for $name {
            fn new() -> Self {
                Self(Room::default())
            }

            #[inline]
            fn with(&self, section: impl FnOnce()) -> bool {
                // SAFETY: in its place since it was zeroed, large enough as the shim asserts, and not ours
                // already.
                unsafe { $get(self.0.get().cast()) };
                section();
                // SAFETY: ours.
                unsafe { $release(self.0.get().cast()) };
                true
            }
        }
    };
}

#[cfg(has_absl)]
lock!(Absl, bench_absl_get, bench_absl_release);
#[cfg(has_nsync)]
lock!(Nsync, bench_nsync_get, bench_nsync_release);
#[cfg(has_ck)]
lock!(CkFas, bench_ck_fas_get, bench_ck_fas_release);
#[cfg(has_ck)]
lock!(CkTicket, bench_ck_ticket_get, bench_ck_ticket_release);
