use super::*;
use crate::instance::Instance;
use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId};
use crate::session::Class;
use crate::stats::WaitEvent;

#[test]
fn a_row_has_all_of_its_memory_before_a_wait_counts_in_it() {
    let instance = Instance::anonymous(Capacity { rows: 64, ..Capacity::default() }).unwrap();
    let session = instance.session("a", Class::Normal).unwrap();
    let (segment, sid) = (&instance.tables.segment, session.sid().number() as usize);
    let event = WaitEvent { mode: Mode::Exclusive, on_x: true, for_event: false };
    let mut pages = std::collections::BTreeSet::new();
    for n in 1..=64 {
        let place = segment.place_of(sid, Key { mutex: MutexId(n), location: LocationId(0), event }).unwrap();
        let last = std::ptr::from_ref(&segment.rows(sid)[place]).addr() + size_of::<FiguresRow>() - 1;
        let mut resident = 0u8;
        // SAFETY: one page, and a byte for what is said of it.
        let said = unsafe { libc::mincore((last / PAGE * PAGE) as *mut _, PAGE, &raw mut resident) };
        assert_eq!((said, resident & 1), (0, 1), "row {place}");
        pages.insert(last / PAGE);
    }
    assert!(pages.len() > 4, "rows that begin in one page and end in the next are among them");
}

#[test]
fn capacities_out_of_their_ranges_are_as_long_as_can_be_said() {
    let most = u32::MAX;
    let all = Capacity { sessions: most, mutexes: most, locations: most, rows: most, arena: u64::MAX };
    for capacity in [Capacity { arena: u64::MAX, ..Capacity::default() }, all] {
        assert_eq!(Layout::of(capacity).len, usize::MAX);
        let within = capacity.within_limits();
        assert!(within.sessions >= 1 && within.sessions <= capacity.sessions, "{within:?}");
        assert!(Instance::anonymous(capacity).is_err());
    }
}
