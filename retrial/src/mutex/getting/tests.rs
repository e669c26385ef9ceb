use super::*;
use crate::entries::TypeId;
use crate::instance::Instance;
use crate::params::P;
use crate::parking::Wakes;
use crate::segment::Capacity;
use crate::session::Class;
use crate::waiter::Waiter;
use crate::{Patience, location};
use std::sync::atomic::{AtomicI32, AtomicU64};

/// A mutex and a session that wants it in a mode.
fn staged(test: impl Fn(&RawMutex, &dyn Fn(Mode) -> Getting<'static>)) {
    let instance = Box::leak(Box::new(Instance::anonymous(Capacity::default()).unwrap()));
    let session = Box::leak(Box::new(instance.session("waiting", Class::Normal).unwrap()));
    let mutex = Box::leak(Box::new(RawMutex::new()));
    // SAFETY: one session of this instance only.
    unsafe { mutex.register(instance, TypeId(0), "m").unwrap() };
    let mutex = &*mutex;
    test(mutex, &|mode| Getting::new(mutex, session, mode, Aim::Get));
}

#[test]
fn what_was_handed_to_the_dead_is_anybodys_after_a_while() {
    staged(|mutex, getting| {
        let handed = |since: Duration, references| {
            let asked_ns = sys::now_ns() - since.as_nanos() as u64;
            mutex.change(Ordering::Relaxed, |_| Parking::default().starve(asked_ns, false).fed());
            mutex.fake(Word(Word::HANDOVER | references), Sid::NONE);
            [Mode::Shared, Mode::Exclusive].map(|mode| getting(mode).is_open(false))
        };
        // A thread that is off its processor meanwhile looks late.
        assert!((0..100).any(|_| handed(Duration::from_micros(10), 0) == [false, false]));
        assert_eq!(handed(Duration::from_millis(5), 0), [true, true]);
        // It keeps readers out for a writer, until the references have left.
        assert_eq!(handed(Duration::from_millis(100), 1), [false, false]);
    });
}

#[test]
fn a_session_that_sleeps_until_a_handover_is_stale_takes_no_woken_one_for_dead() {
    staged(|mutex, getting| {
        mutex.fake(Word(Word::HANDOVER), Sid::NONE);
        // A thread that is off its processor meanwhile finds it stale, and does not sleep.
        let slept = (0..100).any(|_| {
            mutex.change(Ordering::Relaxed, |_| Parking::default().handed_over(sys::now_ns()).wake());
            let long = Park { handed: false, ..Park::lasting(Duration::from_secs(60)) };
            getting(Mode::Exclusive).park(long) == Parked::TimedOut
        });
        assert_eq!((slept, mutex.parking().woken()), (true, 1));
    });
}

#[test]
fn a_session_that_gives_up_leaves_others_the_handover_that_they_asked_for() {
    staged(|mutex, getting| {
        let readers_kept_out = Word(Word::HANDOVER | 1);
        let asked = Parking::default().starve(sys::now_ns(), true);
        mutex.fake(readers_kept_out, Sid::NONE);
        mutex.change(Ordering::Relaxed, |_| asked);
        let polls = getting(Mode::Exclusive);
        polls.ask_for_handover(sys::now_ns(), Duration::from_secs(1));
        polls.ended(false);
        assert_eq!((mutex.load(), mutex.parking()), (readers_kept_out, asked));
        // Its own it takes back.
        mutex.change(Ordering::Relaxed, |_| Parking::default());
        polls.ask_for_handover(sys::now_ns(), Duration::ZERO);
        polls.ended(false);
        assert_eq!((mutex.load(), mutex.parking().starving()), (Word(1), (true, false)));
    });
}

#[test]
fn a_handover_to_a_session_that_asked_for_x_awake_stays_until_that_one_gives_up() {
    staged(|mutex, getting| {
        for (mode, handed) in [(Mode::Exclusive, Word(Word::HANDOVER)), (Mode::Examine, Word::FREE)] {
            let awake = getting(mode);
            mutex.fake(Word::FREE, Sid::NONE);
            mutex.change(Ordering::Relaxed, |_| Parking::default());
            assert!(awake.ask_for_handover(sys::now_ns(), Duration::from_millis(1)));
            mutex.give_back(awake.session, Word::FREE);
            assert_eq!(mutex.load(), handed, "{mode:?}");
            awake.ended(false);
            assert_eq!((mutex.load(), mutex.parking().wants_x()), (Word::FREE, false), "{mode:?}");
        }
    });
}

/// On its way, beside so many parked ones that nobody will find asleep.
fn is_woken(mutex: &RawMutex, getting: &Getting<'_>, others: u32) {
    mutex.fake(Word::FREE, Sid::NONE);
    mutex.change(Ordering::Relaxed, |_| Parking::default().wake());
    let announced = getting.parks.announce(Wakes::One, |to| mutex.change(Ordering::Relaxed, to));
    let parked = Parked::<Word>::Woken;
    getting.parks.come_back(announced, &parked, Found::Busy, |to| mutex.change(Ordering::Relaxed, to));
    mutex.change(Ordering::Relaxed, |all| Parking(all.0 - 1));
    for _ in 0..others {
        mutex.change(Ordering::Relaxed, |all| all.announce(Wakes::One, false, false));
    }
    assert_eq!((mutex.parking().woken(), mutex.parked()), (1, others));
}

#[test]
fn a_session_that_steps_aside_is_on_its_way_no_longer_and_wakes_one_in_its_place() {
    staged(|mutex, getting| {
        for others in [0, 1] {
            let getting = getting(Mode::Exclusive);
            is_woken(mutex, &getting, others);
            let before = mutex.wakes.load(Ordering::Relaxed);
            getting.steps_aside();
            assert_eq!(mutex.parking().woken(), 0);
            getting.steps_aside();
            assert_eq!(mutex.wakes.load(Ordering::Relaxed) - before, others, "once");
        }
    });
}

#[test]
fn a_release_beside_parked_sessions_without_a_watcher_wakes_one_more_at_every_sixteenth_get() {
    staged(|mutex, getting| {
        let session = getting(Mode::Exclusive).session;
        let wakes_of_release = |gets: u64, wakes, watched| {
            mutex.gets.store(gets, Ordering::Relaxed);
            let two = Parking::default().wake().announce(wakes, false, watched).announce(wakes, false, false);
            mutex.change(Ordering::Relaxed, |_| two);
            let before = mutex.wakes.load(Ordering::Relaxed);
            mutex.give_back(session, Word::FREE);
            mutex.wakes.load(Ordering::Relaxed) - before
        };
        let each = [(32, false), (32, true), (33, false)];
        assert_eq!(each.map(|(gets, watched)| wakes_of_release(gets, Wakes::Each, watched)), [2, 1, 1]);
        assert_eq!(wakes_of_release(32, Wakes::One, false), 0, "enough are on their way");
    });
}

#[test]
fn a_waiter_looks_after_the_holder_only_where_the_mutex_has_not_passed_since_its_last_look() {
    staged(|mutex, getting| {
        let instance = getting(Mode::Exclusive).session.instance();
        let sessions = ["a", "b"].map(|name| instance.session(name, Class::Normal).unwrap());
        let [a, b] = sessions.each_ref().map(Session::sid);
        let waits = getting(Mode::Exclusive);
        let looks = |always| {
            let slots = [a, b].map(|sid| instance.tables.slot(sid).unwrap());
            waits.look_after_blocker(sys::now_ns(), always);
            slots.map(|slot| slot.asked_ns.swap(0, Ordering::Relaxed) != 0)
        };
        let asked = || looks(false);
        let held = |mode, sid| Word::FREE.grant(sid, mode, false).unwrap();
        mutex.fake(held(Mode::Exclusive, a), Sid::NONE);
        assert_eq!([asked(), asked()], [[false, false], [true, false]]);
        mutex.count_get();
        assert_eq!([asked(), asked()], [[false, false], [true, false]]);
        mutex.fake(held(Mode::LongExclusive, b), Sid::NONE);
        assert_eq!([asked(), asked()], [[false, false], [false, true]]);
        mutex.count_get();
        assert_eq!(looks(true), [false, true]);
        // Beside E others get S.
        mutex.fake(held(Mode::Examine, b), Sid::NONE);
        mutex.count_get();
        assert_eq!(asked(), [false, true]);
        assert_eq!(waits.seen.get(), (b, 3));
        mutex.fake(Word::FREE, Sid::NONE);
    });
}

#[test]
fn each_check_of_adaptive_sets_the_flag_that_a_dead_session_may_have_left() {
    staged(|mutex, getting| {
        let session = getting(Mode::Exclusive).session;
        for (p, value) in [(P::Scheme, crate::wait::ADAPTIVE as u64), (P::CheckEvery, 1)] {
            session.instance().set(p, None, value);
        }
        for _ in 0..3 {
            mutex.fake(Word(Word::ATTENTION), session.sid());
            mutex.count_get();
            let waiter = Waiter::of(session);
            waiter.adapt(&getting(Mode::Exclusive), mutex.id(), mutex.mutex_type());
        }
        assert!(!mutex.load().has(Word::ATTENTION), "ydb is in use");
    });
}

/// 0 in the child.
static CHILD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn fork_and_wait(_: libc::c_int) {
    // SAFETY: the child ends by `_exit`, and takes no lock that another thread may hold.
    let child = unsafe { libc::fork() };
    if child != 0 {
        // SAFETY: a child of ours; its status is not asked for.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
    CHILD.store(child, Ordering::Release);
}

#[test]
fn a_child_that_a_handler_forks_leaves_its_parents_sleep_alone() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let mutex = instance.mutex("m", "t", || 0u64).unwrap();
    let holder = instance.session("h", Class::Normal).unwrap();
    // SAFETY: the handler has the type of one, and lives for ever.
    unsafe { libc::signal(libc::SIGURG, fork_and_wait as *const () as usize) };
    let thread = AtomicU64::new(0);
    let both_are_parked = || {
        (0..5_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            mutex.raw().parking().parked() == 2
        })
    };
    let wait = |name| {
        let waiter = instance.session(name, Class::Normal).unwrap();
        drop(mutex.get(&waiter, Mode::Exclusive, location!(), Patience::Endless));
        if CHILD.load(Ordering::Acquire) == 0 {
            // SAFETY: no handler of the parent's runs.
            unsafe { libc::_exit(0) };
        }
    };
    std::thread::scope(|scope| {
        let hold = mutex.exclusive(&holder, location!()).unwrap();
        scope.spawn(|| wait("other"));
        scope.spawn(|| {
            // SAFETY: only asks.
            thread.store(unsafe { libc::pthread_self() }, Ordering::Release);
            wait("forks");
        });
        assert!(both_are_parked());
        // SAFETY: the thread waits for what this one holds.
        unsafe { libc::pthread_kill(thread.load(Ordering::Acquire), libc::SIGURG) };
        while CHILD.load(Ordering::Acquire) < 0 {
            std::thread::yield_now();
        }
        let counted = both_are_parked();
        drop(hold);
        assert!(counted);
    });
    assert_eq!((mutex.raw().parking().parked(), mutex.raw().load()), (0, Word::FREE));
}
