//! Waits, as they are seen from outside: waits that a death cuts off, waits for events, and deadlocks.

use crate::blocking::{Deadlock, Look};
use crate::naming::Names;
use crate::run::variables::Modules;
use retrial::MutexId;
use retrial::sys::now_ns;
use retrial::views::{MutexInfo, Sid, Tables};
use std::collections::HashMap;

/// Semaphores, barriers and conditions whose variables are looked up.
const NAMED_EVENTS: usize = 256;
/// Length of a wait from which on it is looked at for a deadlock, and shortest time between two such looks.
const LONG_WAIT_NS: u64 = 200_000_000;

/// What was seen of the waits.
#[derive(Default, Debug)]
pub struct Waits {
    /// When a session was first seen dead in the wait that began then.
    pub cut_off_ns: HashMap<(Sid, u64), u64>,
    /// Static variables that were waited for as events.
    pub events: HashMap<MutexId, Option<String>>,
    /// Sessions that waited for each other.
    pub deadlocks: Vec<Deadlock>,
    /// When deadlocks are looked for next.
    ring_at_ns: u64,
}

impl Waits {
    /// Notes waits that a death has cut off, and looks for deadlocks among long ones.
    pub fn follow(&mut self, tables: &Tables) {
        self.name_events(tables);
        let now = now_ns();
        let mut is_long = false;
        for (sid, key, since_ns) in tables.waits() {
            if tables.is_dead(sid) {
                self.cut_off_ns.entry((sid, since_ns)).or_insert(now);
            } else if !key.event.for_event {
                is_long |= now.saturating_sub(since_ns) > LONG_WAIT_NS;
            }
        }
        for deadlock in self.deadlocks.iter_mut().filter(|deadlock| deadlock.ended_ns.is_none()) {
            deadlock.ended_ns = (!deadlock.lasts(tables)).then_some(now);
        }
        if is_long && now >= self.ring_at_ns {
            for links in Look::at_awaited(tables).deadlocks() {
                if !self.deadlocks.iter().any(|known| known.links == links) {
                    self.deadlocks.push(Deadlock::new(links, &mut Names::new(tables)));
                }
            }
            self.ring_at_ns = now + LONG_WAIT_NS;
        }
    }

    /// Finds out what static variables the first of the semaphores, barriers and conditions are that are
    /// waited for.
    fn name_events(&mut self, tables: &Tables) {
        let mut modules: HashMap<u32, Modules> = HashMap::new();
        let room = NAMED_EVENTS.saturating_sub(self.events.len());
        let is_new = |info: &MutexInfo| !self.events.contains_key(&info.id);
        let new: Vec<MutexInfo> = tables.events().into_iter().filter(is_new).take(room).collect();
        for info in new {
            let modules = modules.entry(info.pid).or_insert_with(|| Modules::of(info.pid));
            self.events.insert(info.id, modules.locate(info.address));
        }
    }
}
