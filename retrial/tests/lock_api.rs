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

#[test]
fn locks_that_found_no_place_in_the_table_are_not_taken_for_each_other() {
    // More than the instance behind them has room for: the last ones are told by nothing but their address.
    let many: Vec<Mutex<u64>> = (0..17_000).map(|_| Mutex::new(0)).collect();
    for mutex in &many {
        *mutex.lock() += 1;
    }
    let [.., one, other] = many.as_slice() else { unreachable!() };
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let held = one.lock();
        scope.spawn(move || {
            let _held = other.lock();
            tell.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        });
        told.recv().unwrap();
        // Waits, beside what it holds: neither is the other.
        *other.lock() += 1;
        drop(held);
    });
    assert_eq!((*one.lock(), *other.lock()), (1, 2));
}
