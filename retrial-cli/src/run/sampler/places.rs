//! Where mutexes lie: what is in memory of several processes is one mutex, though each of them has registered
//! it. The kernel says what their mappings are as long as they live.

use super::seen::{Identity, Seen};
use crate::run::variables::{Modules, Shared};
use retrial::views::{MutexInfo, TypeId};
use std::collections::HashMap;

/// What each mutex that may lie in memory of several processes was first seen as.
#[derive(Default)]
pub struct Places {
    /// Of each mutex that may lie in memory of several processes, in each of them, the one that it was first
    /// seen as.
    firsts: HashMap<Identity, Identity>,
    /// The same by where it lies.
    shared: HashMap<(TypeId, Shared), Identity>,
    /// And by type and address: `None` where processes have different things there.
    at: HashMap<(TypeId, u64), Option<Identity>>,
    /// Mutexes whose process had ended, or may not be read, when it was looked at first.
    unknown: Vec<(TypeId, Identity)>,
}

impl Places {
    /// Whether it may lie in memory of several processes.
    pub fn has(&self, identity: &Identity) -> bool {
        self.firsts.contains_key(identity)
    }

    /// What a known mutex was first seen as.
    pub fn first(&self, identity: &Identity) -> Identity {
        *self.firsts.get(identity).unwrap_or(identity)
    }

    /// What a mutex was first seen as, perhaps in another process.
    pub fn first_of(
        &mut self,
        info: &MutexInfo,
        processes: &mut HashMap<u32, Modules>,
        all: &mut HashMap<Identity, Seen>,
    ) -> Identity {
        let identity = Identity::of(info);
        if let Some(first) = self.firsts.get(&identity) {
            return *first;
        }
        let modules = processes.entry(info.pid).or_insert_with(|| Modules::of(info.pid));
        let found = modules.shared(info.address);
        let found = found.map(|shared| *self.shared.entry((info.mutex_type, shared)).or_insert(identity));
        if *modules == Modules::default() {
            self.unknown.push((info.mutex_type, identity));
        } else {
            let at = self.at.entry((info.mutex_type, info.address)).or_insert(found);
            *at = found.filter(|_| *at == found);
        }
        let first = found.unwrap_or(identity);
        if let Some(seen) = all.get_mut(&first) {
            seen.others.push(identity);
        }
        self.firsts.insert(identity, first);
        first
    }

    /// Takes what was not looked at in time for what other processes have at its address, if that is one
    /// thing in shared memory: children of a fork have their parent's mappings.
    pub fn presume(&mut self, all: &mut HashMap<Identity, Seen>) {
        for (mutex_type, identity) in std::mem::take(&mut self.unknown) {
            if let Some(Some(first)) = self.at.get(&(mutex_type, identity.address))
                && let Some(seen) = all.get_mut(first)
            {
                seen.others.push(identity);
                all.remove(&identity);
            }
        }
    }
}
