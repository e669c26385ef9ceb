//! The `lock_api` traits on retrial mutexes.
#![cfg(feature = "lock_api")]

use retrial::lock_api::{Mutex, RwLock};
use std::sync::Arc;
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

/// Sessions of the calling thread.
fn sessions() -> usize {
    retrial::lock_api::instance()
        .tables()
        .sessions()
        .iter()
        .filter(|session| session.tid == retrial::sys::tid())
        .count()
}

#[test]
fn a_thread_holds_as_many_locks_as_it_likes() {
    let locks: Vec<RwLock<u32>> = (0..1000).map(RwLock::new).collect();
    let writers: Vec<_> = locks.iter().map(|lock| lock.write()).collect();
    assert_eq!(sessions(), 4, "256 locks each");
    for lock in [&locks[0], &locks[999]] {
        assert!(lock.try_read().is_none() && lock.try_write_for(Duration::from_millis(1)).is_none());
        std::thread::scope(|scope| scope.spawn(|| assert!(lock.try_read().is_none())).join().unwrap());
    }
    let readers: Vec<_> = writers.into_iter().map(lock_api::RwLockWriteGuard::downgrade).collect();
    assert!(locks[0].try_write().is_none() && locks[0].try_read().is_some() && locks[999].try_read().is_some());
    // The oldest first: the sessions beside the first one outlive it with what they have.
    let mut readers = readers.into_iter();
    readers.by_ref().take(500).for_each(drop);
    assert!(locks[499].try_write().is_some() && locks[500].try_write().is_none());
    drop(readers);
    assert_eq!(sessions(), 1);
    assert!(locks.iter().all(|lock| lock.try_write().is_some()));
}

#[test]
fn a_lock_that_one_holds_is_busy_until_the_deadline() {
    let (mutex, lock) = (Mutex::new(()), RwLock::new(()));
    let (guard, reader) = (mutex.lock(), lock.read());
    let start = std::time::Instant::now();
    assert!(mutex.try_lock_for(Duration::from_millis(5)).is_none());
    assert!(lock.try_write_for(Duration::from_millis(5)).is_none());
    assert!(start.elapsed() >= Duration::from_millis(10));
    drop((guard, reader));
    assert!(mutex.try_lock().is_some() && lock.try_write().is_some());
}

/// What a child of fork says.
fn in_child(f: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls nothing that another thread's lock could keep it from, and ends without handlers.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = i32::from(!std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or(false));
        // SAFETY: always callable.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: our child, and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}

#[test]
fn a_child_of_fork_gives_up_its_copies_of_what_the_forking_thread_held() {
    let (mutex, lock, other) = (Mutex::new(1), RwLock::new(2), RwLock::new(3));
    let (guard, readers, writer) = (mutex.lock(), [lock.read(), lock.read()], other.write());
    assert!(in_child(|| {
        drop(guard);
        let [one, two] = readers;
        drop(one);
        let shared = lock.try_write().is_none();
        drop(two);
        let reader = lock_api::RwLockWriteGuard::downgrade(writer);
        let downgraded = other.try_read().is_some() && other.try_write().is_none();
        drop(reader);
        shared && downgraded && mutex.try_lock().is_some() && lock.try_write().is_some() && other.try_write().is_some()
    }));
    // Those of the parent were not touched: it has moved its guards into the closure, and dropped them there.
    assert!(mutex.try_lock().is_some() && lock.try_write().is_some() && other.try_write().is_some());
}

#[test]
fn a_lock_that_is_dropped_in_a_child_stays_registered_in_its_parent() {
    let mutex = Box::new(Mutex::new(0));
    *mutex.lock() += 1;
    let address = std::ptr::from_ref(&*mutex).addr() as u64;
    let is_registered = || retrial::lock_api::instance().tables().mutexes().iter().any(|info| info.address == address);
    assert!(is_registered());
    let mut mutex = Some(mutex);
    assert!(in_child(|| {
        drop(mutex.take());
        is_registered()
    }));
    assert!(is_registered());
    *mutex.as_ref().unwrap().lock() += 1;
    drop(mutex);
    assert!(!is_registered());
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

/// Has threads lock what they hold, in each way.
fn locks_twice(many: &Arc<[RwLock<u64>]>, index: usize) {
    let lock = &many[index];
    let twice: [fn(&RwLock<u64>); 5] = [
        |lock| drop((lock.write(), lock.write())),
        |lock| drop((lock.write(), lock.read())),
        |lock| drop((lock.read(), lock.write())),
        |lock| drop((lock.read(), lock.upgradable_read())),
        |lock| drop((lock_api::RwLockWriteGuard::downgrade(lock.write()), lock.write())),
    ];
    for (case, twice) in twice.into_iter().enumerate() {
        let (tell, told) = std::sync::mpsc::channel();
        let many = Arc::clone(many);
        std::thread::spawn(move || {
            let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| twice(&many[index])));
            tell.send((again.is_err(), many[index].is_locked())).unwrap();
        });
        let told = told.recv_timeout(Duration::from_secs(10));
        assert_eq!(told, Ok((true, false)), "lock {index}, case {case}");
    }
    // What was read twice, and by others too, is not held once each reader has left.
    let reads = (lock.read(), lock.read());
    assert!(lock.try_write().is_none() && lock.try_write_for(Duration::from_millis(1)).is_none());
    drop(reads);
    std::thread::scope(|scope| {
        let reader = lock.read();
        scope.spawn(|| assert!(lock.try_read().is_some() && lock.try_write().is_none())).join().unwrap();
        drop(reader);
    });
    *lock.write() += 1;
}

#[test]
fn locks_that_found_no_place_in_the_table_are_not_taken_for_each_other() {
    // More than the instance behind them has room for: the last ones are told by nothing but their address.
    let many: Arc<[RwLock<u64>]> = (0..17_000).map(|_| RwLock::new(0)).collect();
    for lock in &*many {
        *lock.write() += 1;
    }
    locks_twice(&many, 0);
    locks_twice(&many, 16_999);
    let [.., one, other] = &*many else { unreachable!() };
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let held = one.write();
        scope.spawn(move || {
            let _held = other.write();
            tell.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        });
        told.recv().unwrap();
        // Waits, beside what it holds: neither is the other.
        *other.write() += 1;
        drop(held);
    });
    assert_eq!((*one.read(), *other.read()), (1, 3));
}

#[test]
fn what_a_lock_costs_does_not_grow_with_the_locks_that_are_held() {
    let locks: Vec<Mutex<usize>> = (0..6000).map(Mutex::new).collect();
    for lock in &locks {
        drop(lock.lock());
    }
    let start = std::time::Instant::now();
    let held: Vec<_> = locks.iter().map(|lock| lock.lock()).collect();
    drop(held);
    // A look through all that is held, at each lock and for each session, takes four times as long.
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(sessions(), 1);
}

/// What upgradable locks do, in either version of `lock_api`.
macro_rules! upgradable {
    ($version:ident, $api:ident, $locks:path) => {
        mod $version {
            use std::sync::mpsc::channel;
            use std::time::Duration;
            use $api::{RwLockUpgradableReadGuard as Upgradable, RwLockWriteGuard};
            use $locks as locks;

            #[test]
            fn an_upgradable_reader_keeps_out_all_that_come_later() {
                let lock = locks::RwLock::new(1);
                let upgradable = lock.upgradable_read();
                assert!(*upgradable == 1 && lock.is_locked() && !lock.is_locked_exclusive());
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        assert!(lock.try_read().is_none());
                        assert!(lock.try_upgradable_read().is_none() && lock.try_write().is_none());
                        assert!(lock.try_upgradable_read_for(Duration::from_millis(1)).is_none());
                    });
                });
                let mut writer = Upgradable::upgrade(upgradable);
                *writer += 1;
                assert!(lock.is_locked_exclusive());
                let reader = RwLockWriteGuard::downgrade(writer);
                assert!(*reader == 2 && !lock.is_locked_exclusive());
                drop(reader);
                assert!(!lock.is_locked());
                drop(lock.upgradable_read());
                assert!(!lock.is_locked());
            }

            #[test]
            fn an_upgrade_waits_for_the_readers() {
                let lock = locks::RwLock::new(1);
                let ((reads, is_read), (end, ends)) = (channel(), channel());
                let locked = &lock;
                // What it has is dropped when a check fails: the reader ends then.
                std::thread::scope(move |scope| {
                    let reader = scope.spawn(move || {
                        let reader = locked.read();
                        reads.send(()).unwrap();
                        ends.recv().unwrap();
                        assert_eq!(*reader, 1);
                    });
                    is_read.recv().unwrap();
                    let upgradable = locked.upgradable_read();
                    let Err(upgradable) = Upgradable::try_upgrade(upgradable) else { panic!("beside a reader") };
                    let Err(upgradable) = Upgradable::try_upgrade_for(upgradable, Duration::from_millis(1)) else {
                        panic!("beside a reader")
                    };
                    // It is what it was.
                    assert!(locked.is_locked() && !locked.is_locked_exclusive() && *upgradable == 1);
                    end.send(()).unwrap();
                    *Upgradable::upgrade(upgradable) = 2;
                    reader.join().unwrap();
                });
                let Ok(mut writer) = Upgradable::try_upgrade(lock.upgradable_read()) else { panic!("nobody reads") };
                *writer += 1;
                drop(writer);
                assert!(lock.into_inner() == 3);
            }

            #[test]
            fn two_that_read_and_then_write_lose_nothing() {
                let lock = locks::RwLock::new(0);
                std::thread::scope(|scope| {
                    for _ in 0..4 {
                        scope.spawn(|| {
                            for _ in 0..500 {
                                let upgradable = lock.upgradable_read();
                                let read = *upgradable;
                                *Upgradable::upgrade(upgradable) = read + 1;
                                assert!(*lock.read() > read);
                            }
                        });
                    }
                });
                assert_eq!(lock.into_inner(), 2000);
            }

            #[test]
            fn a_child_of_fork_drops_a_read_guard_beside_an_upgradable_one_of_its_parent() {
                let lock = locks::RwLock::new(1);
                let mut reader = Some(lock.read());
                let [ready, done] = [0, 1].map(|_| std::sync::Barrier::new(2));
                std::thread::scope(|threads| {
                    threads.spawn(|| {
                        let _upgradable = lock.upgradable_read();
                        ready.wait();
                        done.wait();
                    });
                    ready.wait();
                    let is_dropped = super::in_child(|| {
                        // SAFETY: it ends the child where the drop does not come back.
                        unsafe { libc::alarm(10) };
                        drop(reader.take());
                        true
                    });
                    done.wait();
                    assert!(is_dropped);
                });
                assert!(reader.is_some() && lock.try_write().is_none());
            }

            #[test]
            fn a_child_of_fork_upgrades_its_copy() {
                let lock = locks::RwLock::new(1);
                let upgradable = lock.upgradable_read();
                assert!(super::in_child(|| {
                    let mut writer = Upgradable::upgrade(upgradable);
                    *writer += 1;
                    let alone = lock.is_locked_exclusive();
                    drop(writer);
                    alone && lock.try_write().is_some_and(|writer| *writer == 2)
                }));
                assert!(*lock.upgradable_read() == 1);
            }
        }
    };
}

upgradable!(with_0_4, lock_api, retrial::lock_api);
#[cfg(feature = "lock_api_05")]
upgradable!(with_0_5, lock_api_05, retrial::lock_api::v0_5);
#[cfg(feature = "lock_api_05")]
#[test]
fn a_mutex_of_the_newer_version_excludes_and_times_out() {
    let mutex = retrial::lock_api::v0_5::Mutex::new(0);
    let guard = mutex.lock();
    assert!(mutex.is_locked() && mutex.try_lock().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none()));
    });
    drop(guard);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| *mutex.lock() += 1));
        }
    });
    assert_eq!(mutex.into_inner(), 4000);
}
