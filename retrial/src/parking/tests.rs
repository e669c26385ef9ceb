use super::*;
use crate::params::{P, Params};
use std::cell::Cell;

/// Every state with up to three parked, up to two and up to 15 woken, every flag and crowd, two epochs.
fn states() -> impl Iterator<Item = Parking> {
    let flags = (0..128u64).map(|flags| flags << 22);
    flags.flat_map(|flags| {
        [0, 1, 2, 8, 15].into_iter().flat_map(move |woken| {
            (0..4).flat_map(move |parked| {
                [0, Parking::SEQUENCE, Parking::EPOCH, Parking::SEQUENCE | Parking::EPOCH]
                    .map(|rest| Parking(flags | parked | woken << Parking::WOKEN_SHIFT | rest))
            })
        })
    })
}

/// Changes the state, and gives what it was before.
fn changing(state: &Cell<Parking>) -> impl Fn(&dyn Fn(Parking) -> Parking) -> Parking + Copy + '_ {
    move |to| state.replace(to(state.get()))
}

#[test]
fn each_operation_changes_what_it_says_and_nothing_else() {
    for state in states() {
        let each = [Wakes::Each, Wakes::One, Wakes::Enough]
            .into_iter()
            .flat_map(|wakes| (0..4).map(move |n| (wakes, n & 1 != 0, n & 2 != 0)));
        for (wakes, woken, watch) in each {
            let after = state.announce(wakes, woken, watch);
            assert_eq!(after.parked(), state.parked() + 1);
            assert_eq!(after.woken(), state.woken().saturating_sub(u64::from(woken)));
            assert_eq!(after.is_watched(), state.is_watched() || watch);
            assert_eq!((after.is_fenced(), after.starving()), (state.is_fenced(), state.starving()));
            let fewer_than = match wakes {
                Wakes::Each => u64::MAX,
                Wakes::One => 1,
                Wakes::Enough => Parking::WOKEN_MAX >> ((after.0 & Parking::CROWD) >> Parking::CROWD_SHIFT),
            };
            assert_eq!(after.wakes(), after.woken() < fewer_than.max(1));
            let hands_over = wakes == Wakes::Enough && !after.starving().0;
            assert_eq!(after.may_be_due(LOOK_EVERY), hands_over, "{wakes:?}");
            let back = after.come_back(state, watch);
            assert_eq!((back.parked(), back.woken()), (state.parked(), after.woken()));
            assert_eq!(back.is_watched(), state.is_watched() && !watch);
        }
        let waking = state.wake();
        assert_eq!((waking.woken(), waking.parked()), ((state.woken() + 1).min(15), state.parked()));
        let woke = waking.has_woken(state, 1);
        assert_eq!((woke.woken(), woke.parked()), (waking.woken(), state.parked().saturating_sub(1)));
        let nobody = waking.has_woken_nobody(state);
        assert_eq!((nobody.parked(), nobody.woken()), (0, waking.woken() - 1));
        assert_eq!((nobody.is_fenced(), nobody.starving()), (state.is_fenced(), state.starving()));
        assert!(!nobody.is_watched());
        let asked = state.starve(1 << 40, true);
        assert_eq!((asked.starving(), asked.parked(), asked.woken()), ((true, true), state.parked(), state.woken()));
        assert_eq!(asked.fed().starving(), (false, false));
        assert_eq!(asked.not_for_x().starving(), (true, false));
        let handed = asked.handed_over(2 << 40);
        assert_eq!((handed.starving(), handed.wants_x(), handed.not_for_x().wants_x()), ((false, false), true, false));
        assert!(asked.concerns_releases());
    }
}

#[test]
fn a_woken_session_halves_what_is_enough_where_it_finds_the_mutex_busy_and_doubles_it_where_open() {
    let most = Parking::WOKEN_MAX;
    for state in states() {
        let six = |first: Parking, found| -> Vec<u64> {
            let all = std::iter::successors(Some(first), |all| Some(all.found(found, true)));
            all.take(6).map(Parking::enough).collect()
        };
        let open = (0..3).fold(state, |all, _| all.found(Found::Open, false));
        let busy = (0..3).fold(state, |all, _| all.found(Found::Busy, true));
        assert_eq!(six(open, Found::Busy), [most, most / 2, most / 4, 1, 1, 1].map(|enough| enough.max(1)));
        assert_eq!(six(busy, Found::Open), [1, most / 4, most / 2, most, most, most].map(|enough| enough.max(1)));
        for (found, woken) in [(Found::Busy, false), (Found::HandedOver, true), (Found::HandedOver, false)] {
            assert_eq!(state.found(found, woken), state);
        }
        let learnt = [state.found(Found::Busy, true), state.found(Found::Open, true)];
        assert!(learnt.iter().all(|after| (after.0 ^ state.0) & !Parking::CROWD == 0));
    }
}

#[test]
fn a_session_from_before_the_count_was_set_to_0_takes_nobody_off_it() {
    let announced = Parking::default().announce(Wakes::Enough, false, true);
    let waking = announced.wake();
    let nobody = waking.has_woken_nobody(announced);
    let next = nobody.announce(Wakes::Enough, false, true);
    assert_eq!(next.come_back(announced, false).parked(), 1);
    assert_eq!(next.come_back(nobody, false).parked(), 0);
}

#[test]
fn who_looks_by_itself_watches_next_whoever_was_to_watch() {
    let state = Cell::new(Parking::default());
    let change = changing(&state);
    let (dead, alive) = (Parks::default(), Parks::default());
    assert!(dead.announce(Wakes::Enough, change).watches);
    let parked = alive.announce(Wakes::Enough, change);
    assert!(!parked.watches);
    alive.come_back(parked, &Parked::<()>::TimedOut, Found::Busy, change);
    assert!(alive.announce(Wakes::Enough, change).watches);
}

#[test]
fn a_session_that_a_release_called_before_it_slept_is_on_its_way() {
    let state = Cell::new(Parking::default());
    let change = changing(&state);
    let parks = Parks::default();
    let announced = parks.announce(Wakes::Enough, change);
    parks.come_back(announced, &Parked::<()>::Looked, Found::Busy, change);
    assert_eq!((state.get().parked(), state.get().woken()), (0, 1));
    assert!(parks.announce(Wakes::Enough, change).answers, "it stands for releases that woke nobody");
    assert_eq!((state.get().parked(), state.get().woken()), (1, 0));
}

#[test]
fn a_session_needs_a_barrier_where_none_is_parked_and_not_because_it_was_woken() {
    let state = Cell::new(Parking::default());
    let change = changing(&state);
    let (first, second) = (Parks::default(), Parks::default());
    let announced = first.announce(Wakes::Enough, change);
    assert!(announced.needs_barrier());
    let beside = second.announce(Wakes::Enough, change);
    assert!(!beside.needs_barrier() && !beside.answers);
    change(&|all| all.wake().has_woken(all, 1));
    second.come_back(beside, &Parked::<()>::Woken, Found::Busy, change);
    let again = second.announce(Wakes::Enough, change);
    assert!(!again.needs_barrier() && again.answers, "releases beside the first one have a fence");
    first.come_back(announced, &Parked::<()>::TimedOut, Found::Busy, change);
    change(&|all| all.wake().has_woken(all, 1));
    second.come_back(again, &Parked::<()>::Woken, Found::Busy, change);
    assert!(second.announce(Wakes::Enough, change).needs_barrier());
}

#[test]
fn a_sleep_that_was_brief_says_nothing_of_the_dead() {
    let after = |is_brief| {
        let state = Cell::new(Parking::default());
        let change = changing(&state);
        let (watcher, other) = (Parks::default(), Parks::default());
        assert!(watcher.announce(Wakes::Enough, change).watches);
        change(&Parking::wake);
        let mut announced = other.announce(Wakes::Enough, change);
        announced.is_brief = is_brief;
        other.come_back(announced, &Parked::<()>::TimedOut, Found::Busy, change);
        (state.get().woken(), state.get().is_watched(), other.announce(Wakes::Enough, change).answers)
    };
    assert_eq!([true, false].map(after), [(1, true, false), (0, false, true)]);
}

#[test]
fn a_time_out_that_may_stand_for_a_dead_session_answers_for_it_in_the_next_park() {
    let answers = |before: Parking, found| {
        let state = Cell::new(before.announce(Wakes::One, false, true));
        let change = changing(&state);
        let parks = Parks::default();
        let announced = parks.announce(Wakes::One, change);
        assert!(!announced.answers);
        parks.come_back(announced, &Parked::<()>::TimedOut, found, change);
        parks.announce(Wakes::One, change).answers
    };
    let woken = Parking::default().wake();
    assert_eq!([woken, Parking::default()].map(|all| answers(all, Found::Busy)), [true, false]);
    assert!(answers(Parking::default(), Found::Open));
}

#[test]
fn a_session_that_announces_while_a_wake_up_finds_nobody_stays_counted() {
    let announced = Parking::default().announce(Wakes::Enough, false, true);
    let waking = announced.wake().announce(Wakes::Enough, false, false);
    assert_eq!(waking.has_woken_nobody(announced).parked(), 2);
    // Also where another one came back meanwhile, so that there are as many as before.
    let exchanged = waking.come_back(announced, false);
    assert_eq!(exchanged.has_woken_nobody(announced).parked(), 1);
}

#[test]
fn a_release_has_nothing_to_do_where_nobody_is_parked() {
    let state = Parking::default().announce(Wakes::Enough, false, true);
    let state = state.starve(77 << 30, false).fed().wake().has_woken(state, 1);
    assert_eq!((state.parked(), state.woken()), (0, 1));
    assert!(!state.concerns_releases() && !state.wakes());
}

#[test]
fn sessions_that_keep_asking_do_not_keep_a_handover_to_the_dead_binding() {
    let handed_ns = 5_000_000_000;
    let mut state = Parking::default().handed_over(handed_ns);
    let stale = (1..20).any(|n| {
        let now_ns = handed_ns + n * 100_000;
        state = state.starve_if_due(now_ns, Duration::ZERO, n % 2 == 0);
        state.handover_is_stale(now_ns + 99_000)
    });
    assert!(stale);
    assert_eq!(state.starving(), (true, true));
}

#[test]
fn the_time_since_a_handover_comes_round_after_two_seconds() {
    let state = Parking::default().starve(5_000_000_000, false);
    for (later, since) in [(0, 0), (1 << 17, 1 << 17), (1 << 20, 1 << 20), (1 << 30, 1 << 30), (1 << 31, 0)] {
        assert_eq!(state.since_handover_ns(5_000_000_000 + later), since);
    }
}

#[test]
fn a_release_hands_over_when_that_was_asked_for_or_twice_the_interval_after_the_last_one() {
    const AT: u64 = 5_000_000_000;
    let parked = Parking::default().handed_over(AT).announce(Wakes::Enough, false, false);
    let hands_over = |parking: Parking, params: Params, after: Duration, is_real_time| {
        let now_ns = AT + (after + Duration::from_micros(131)).as_nanos() as u64;
        let found = || (params, Circumstances { now_ns, is_real_time });
        super::hands_over(parking, LOOK_EVERY, found)
    };
    let ms = Duration::from_millis;
    for (interval, at) in [(1, 2), (400, 800), (800, 1000), (1500, 1500)] {
        let params = Params::default().with(P::HandoverInterval, interval * 1000);
        let found = |after| hands_over(parked, params, after, || false);
        assert_eq!([at - 1, at].map(|at| found(ms(at))), [false, true], "{interval} ms");
        assert!(hands_over(parked.starve(AT, false), params, ms(0), || false));
    }
    let due = |params, is_real_time| hands_over(parked, params, ms(2), is_real_time);
    assert!(due(Params::default(), || false) && !due(Params::default(), || true));
    assert!(![0, 2].iter().any(|fairness| due(Params::default().with(P::Fairness, *fairness), || false)));
}
