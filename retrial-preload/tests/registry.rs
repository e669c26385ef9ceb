//! What an instance knows of the mutexes of a program: those that were waited for, by a number each.

mod kit;

use kit::{Named, check, program};
use retrial::views::Counter;
use retrial::{MutexId, P, interposer};
use std::collections::BTreeSet;

/// Runs a case of `registry.c`.
fn run(case: &str, count: u32) -> Named {
    let named = Named::new(case);
    named.instance.set(P::Scheme, None, retrial::wait::DEFAULT as u64);
    check(named.run(program("registry")).args([case, &count.to_string()]));
    named
}

/// The mutexes that were missed, and how often in all.
fn missed(named: &Named) -> (BTreeSet<MutexId>, u64) {
    let figures = named.instance.tables().figures();
    let misses = figures.iter().map(|(_, _, figures)| figures.get(Counter::Misses)).sum();
    (figures.iter().map(|(_, key, _)| key.mutex).collect(), misses)
}

#[test]
fn a_mutex_that_nobody_waits_for_is_in_no_table() {
    let named = run("unwaited", 100_000);
    assert_eq!(named.instance.tables().last_mutex(), MutexId(0));
    assert!(named.instance.tables().session_gets() >= 100_000, "they are counted all the same");
}

#[test]
fn one_that_is_waited_for_is_known_whatever_the_number_of_others() {
    let named = run("one-of", 100_000);
    let (ids, misses) = missed(&named);
    assert!(misses > 0 && ids.len() == 1 && !ids.contains(&MutexId(0)), "{misses} misses of {ids:?}");
    let found = named.instance.tables().mutex_info(*ids.first().unwrap()).unwrap();
    assert_eq!(found.gets, Some(3), "one before the first miss");
}

#[test]
fn as_many_as_were_missed_and_are_gone_do_not_fill_the_table() {
    let count = 40_000;
    let named = run("missed", count);
    assert!(count > named.instance.capacity().mutexes);
    let (ids, misses) = missed(&named);
    assert_eq!(misses, u64::from(count));
    // The thread has rows for some; those of the rest are all in one. Only of a full table it would be the only one.
    assert!(ids.len() > 50, "{ids:?}");
    let dead = named.instance.tables().mutexes().into_iter().all(|mutex| mutex.id != MutexId(0));
    assert!(dead && interposer::register_missed_mutex(&named.instance, retrial::views::TypeId(0), 64).is_some());
}

#[test]
fn those_that_follow_each_other_at_an_address_are_one_with_all_their_gets() {
    let named = run("again", 300);
    let (ids, _) = missed(&named);
    assert_eq!((named.instance.tables().mutexes().len(), ids.len()), (1, 1));
    assert_eq!(named.instance.tables().mutexes()[0].gets, Some(600));
}

#[test]
fn a_child_of_fork_has_a_mutex_of_its_own() {
    let named = run("fork", 5);
    let mut gets: Vec<_> = named.instance.tables().mutexes().iter().map(|mutex| (mutex.gets, mutex.pid)).collect();
    gets.sort_unstable();
    assert_eq!(gets.len(), 2, "{gets:?}");
    assert_ne!(gets[0].1, gets[1].1);
    // The child's first get is in one count with the parent's two.
    assert_eq!((gets[0].0, gets[1].0), (Some(2), Some(9)));
}

#[test]
fn processes_that_end_without_a_word_leave_no_entries_for_good() {
    let named = run("exit", 40);
    let capacity = named.instance.capacity().mutexes;
    assert_eq!(named.instance.tables().mutexes().len(), 40);
    for n in 0..capacity {
        assert!(
            interposer::register_missed_mutex(&named.instance, retrial::views::TypeId(0), u64::from(n)).is_some(),
            "{n} of {capacity}"
        );
    }
}
