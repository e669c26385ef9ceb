//! The `lock_api` traits on retrial mutexes.
#![cfg(feature = "lock_api")]

use retrial::raw::{Mutex, RwLock};
use std::time::Duration;

#[test]
fn a_mutex_excludes() {
    let mutex = Mutex::new([0u64; 2]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let mut guard = mutex.lock();
                    guard[0] += 1;
                    std::hint::black_box(&mut guard);
                    guard[1] += 1;
                }
            });
        }
    });
    assert_eq!(mutex.into_inner(), [8000; 2]);
}

#[test]
fn a_lock_refuses_and_times_out() {
    let mutex = Mutex::new(());
    let guard = mutex.lock();
    assert!(mutex.try_lock().is_none(), "held by this thread");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(mutex.try_lock().is_none());
            assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none());
        });
    });
    drop(guard);
    assert!(mutex.try_lock().is_some());
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let lock = RwLock::new(1);
    let (a, b) = (lock.read(), lock.read());
    assert_eq!(*a + *b, 2);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_write().is_none()));
    });
    drop((a, b));
    let mut writer = lock.write();
    *writer += 1;
    let reader = lock_api::RwLockWriteGuard::downgrade(writer);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(*lock.read(), 2));
    });
    drop(reader);
}

#[test]
fn locks_outlive_threads_that_ended() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    for _ in 0..200 {
        std::thread::spawn(|| *LOCK.lock() += 1).join().unwrap();
    }
    assert_eq!(*LOCK.lock(), 200);
}
