//! The table of mutexes: what is claimed, given back, used again, and what the dead leave in it.

use retrial::engine::{EngineCondition, EngineMutex};
use retrial::views::TypeId;
use retrial::{BindError, Capacity, Instance, MutexId, ObjectError, interposer};
use std::collections::HashSet;

const MUTEXES: u32 = 40;

fn instance() -> Instance {
    Instance::anonymous(Capacity { sessions: 4, mutexes: MUTEXES, arena: 4096, ..Capacity::default() }).unwrap()
}

#[test]
fn an_entry_that_is_used_again_has_another_id_each_time() {
    let instance = instance();
    let ids: HashSet<MutexId> = (0..u64::from(MUTEXES) * 256)
        .map(|address| {
            let id = interposer::register_missed_mutex(&instance, TypeId(0), address).unwrap();
            assert_eq!(instance.tables().mutex_info(id).unwrap().address, address);
            // SAFETY: nobody has ever held it.
            unsafe { interposer::retire_mutex(&instance, id, None) };
            id
        })
        .collect();
    assert_eq!(ids.len(), MUTEXES as usize * 256, "none comes again before the generations are through");
}

#[test]
fn what_was_retired_is_read_until_its_entry_is_needed() {
    let instance = instance();
    let ids: Vec<MutexId> = (1..=u64::from(MUTEXES) * 2)
        .map(|n| {
            let id = interposer::register_missed_mutex(&instance, TypeId(0), n).unwrap();
            assert_eq!(instance.tables().mutex_info(id).unwrap().gets, None, "in use, perhaps");
            // SAFETY: nobody has ever held it.
            unsafe { interposer::retire_mutex(&instance, id, Some(n * 10)) };
            id
        })
        .collect();
    let (first, last) = ids.split_at(MUTEXES as usize);
    assert!(first.iter().all(|id| instance.tables().mutex_info(*id).is_none()), "each of their entries is another's");
    for (id, n) in last.iter().zip(u64::from(MUTEXES) + 1..) {
        let info = instance.tables().mutex_info(*id).unwrap();
        assert_eq!((info.address, info.gets), (n, Some(n * 10)));
    }
    assert_eq!(instance.tables().mutexes().len(), MUTEXES as usize);
}

#[test]
fn a_mutex_at_the_same_address_has_the_id_again() {
    let instance = instance();
    let id = interposer::register_missed_mutex(&instance, TypeId(3), 4096).unwrap();
    // SAFETY: nobody has ever held it.
    unsafe { interposer::retire_mutex(&instance, id, Some(7)) };
    assert!(
        !interposer::resume_mutex(&instance, id, TypeId(3), 8192)
            && !interposer::resume_mutex(&instance, id, TypeId(2), 4096)
    );
    assert!(interposer::resume_mutex(&instance, id, TypeId(3), 4096));
    assert_eq!((interposer::noted_gets(&instance, id), instance.tables().mutexes()[0].gets), (7, None));
    // In use, it is no other's.
    for n in 1..MUTEXES {
        assert_ne!(interposer::register_missed_mutex(&instance, TypeId(3), u64::from(n)), None);
    }
    assert_eq!(interposer::register_missed_mutex(&instance, TypeId(3), 1), None);
    // SAFETY: nobody has ever held it.
    unsafe { instance.unregister_mutex(id) };
    assert!(
        !interposer::resume_mutex(&instance, id, TypeId(3), 4096),
        "nothing of what was given back altogether is left"
    );
    assert_ne!(interposer::register_missed_mutex(&instance, TypeId(3), 1).unwrap(), id);
}

#[test]
fn whoever_needs_any_entry_finds_the_only_free_one() {
    let instance = instance();
    let ids: Vec<MutexId> = (1..=MUTEXES).map(|_| instance.register_mutex(TypeId(0), 0, "").unwrap()).collect();
    for free in [ids[17], ids[2]] {
        assert!(instance.register_mutex(TypeId(0), 0, "").is_err());
        // SAFETY: nobody has ever held it.
        unsafe { instance.unregister_mutex(free) };
        instance.register_mutex(TypeId(0), 0, "").unwrap();
    }
}

#[test]
fn entries_of_a_killed_process_are_used_again_but_not_those_of_shared_memory() {
    let instance = instance();
    instance.register_mutex(TypeId(0), 0, "shared").unwrap();
    // SAFETY: the child makes system calls and writes to shared memory only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        instance.register_mutex(TypeId(0), 0, "of the dead").unwrap();
        while interposer::register_missed_mutex(&instance, TypeId(0), 64).is_some() {}
        // SAFETY: ends the child, and nothing is done at its end.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: a child of our own; `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(instance.tables().mutexes().len(), MUTEXES as usize);
    for _ in 2..MUTEXES {
        assert_ne!(interposer::register_missed_mutex(&instance, TypeId(0), 64), None);
    }
    assert_eq!(interposer::register_missed_mutex(&instance, TypeId(0), 64), None, "those of the living stay");
    let names: Vec<String> = instance.tables().mutexes().into_iter().map(|mutex| mutex.name).collect();
    assert!(["shared", "of the dead"].into_iter().all(|name| names.iter().any(|found| found == name)), "{names:?}");
}

/// A process killed at each step of a claim.
#[cfg(feature = "fail_points")]
#[test]
fn a_kill_in_a_claim_leaks_one_entry_at_most() {
    for used in [false, true] {
        for fatal in 1..=3 {
            let instance = instance();
            for n in 0..if used { MUTEXES } else { 0 } {
                let id = interposer::register_missed_mutex(&instance, TypeId(0), u64::from(n)).unwrap();
                // SAFETY: nobody has ever held it.
                unsafe { interposer::retire_mutex(&instance, id, None) };
            }
            let claim = |()| interposer::register_missed_mutex(&instance, TypeId(0), 64);
            let died = retrial::fail::die_at(fatal, || (), claim).is_none();
            assert_eq!(died, fatal <= 1 + u64::from(used), "point {fatal}");
            let left = (0..MUTEXES)
                .map_while(|n| interposer::register_missed_mutex(&instance, TypeId(0), u64::from(n)))
                .count();
            assert_eq!(left, MUTEXES as usize - 1);
        }
    }
}

#[test]
fn what_is_refused_registers_no_type_and_joins_no_instance() {
    let capacity = Capacity { mutexes: 1, ..Capacity::default() };
    let [instance, other] = [capacity, Capacity::default()].map(|capacity| Instance::anonymous(capacity).unwrap());
    for n in 0..100 {
        let found = instance.mutex_bytes("", &format!("of no name {n}"), 8).unwrap_err();
        assert!(matches!(found, ObjectError::Name { .. }), "{found}");
    }
    instance.mutex_bytes("m", "right", 8).unwrap();
    let found = instance.mutex_bytes("m", "of another size", 16).unwrap_err();
    assert!(matches!(found, ObjectError::Shape { .. }), "{found}");
    assert!(matches!(instance.mutex_bytes("n", "full", 8), Err(ObjectError::Full(_))));
    assert_eq!(instance.tables().types().len(), other.tables().types().len() + 1, "`right`");

    let (mutex, condition) = (EngineMutex::default(), EngineCondition::default());
    assert!(matches!(mutex.record(&instance), Err(BindError::Full(_))));
    assert!(matches!(condition.bind(&instance, ""), Err(BindError::Full(_))));
    mutex.record(&other).unwrap();
    condition.bind(&other, "").unwrap();
    assert_eq!(mutex.record(&instance).unwrap_err(), BindError::OtherInstance);
    assert_eq!(condition.bind(&instance, "").unwrap_err(), BindError::OtherInstance);
}

#[test]
fn a_65th_type_is_refused_with_what_can_be_done() {
    let instance = instance();
    let found = (0..65).map(|n| instance.register_type(&n.to_string())).last().unwrap().unwrap_err();
    assert_eq!(
        found.to_string(),
        "all 64 entries of the types table are taken; give the mutex one of the types that are there"
    );
}
