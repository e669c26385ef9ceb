//! How room is made: what was not got for longest goes, unless it is pinned.

use crate::error::CacheError;
use crate::layout::{Block, LEAVING, Leaving, Phase, UNIT};
use crate::point;
use crate::shard::{Shard, change_phase, count, phase};
use retrial::MutexId;
use retrial::views::Word;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

/// Most objects that one look at the rows decides about.
const BATCH: usize = 16;

/// Rounds of the hand before the last one. The first one may find all objects got since the one before, the
/// second one those in the way of a long block. From the third one on all goes that is not pinned, also what
/// other sessions get meanwhile; the last one begins at the first address, so that it sees whole what lies
/// around the hand.
const LAST_ROUND: u64 = 3;

impl Shard<'_> {
    /// A free block of so many units, for which others are evicted where none is free.
    pub(crate) fn room(&self, units: u32) -> Result<u32, CacheError> {
        let needed = units as usize * UNIT;
        // Each round frees something, or the hand comes on.
        let (mut walked, mut are_freed, mut is_asked, mut is_last) = (0, false, false, false);
        let (first, end) = self.memory.range();
        loop {
            if let Some(unit) = self.memory.take(units) {
                return Ok(unit);
            }
            if !are_freed && self.memory.head().leaving.count.load(Relaxed) != 0 {
                self.evict(&[]);
                are_freed = true;
                continue;
            }
            let mut round = walked / u64::from(end - first);
            if round >= LAST_ROUND && !is_last {
                // All of it, from the first address on: the hand may be amid the only room that there is.
                (round, is_last) = (LAST_ROUND, true);
                walked = LAST_ROUND * u64::from(end - first);
                self.memory.head().hand.store(first, Relaxed);
            }
            if round > LAST_ROUND {
                // The kernel marks no thread that has replaced its process without being the first one of it:
                // that thread's pins are in the way until the kernel is asked for the thread.
                if is_asked || !self.has_lost_pins() {
                    return Err(CacheError::Full { needed });
                }
                (walked, round, is_asked, is_last) = (0, 0, true, false);
            }
            walked += self.sweep(units, round);
        }
    }

    /// Whether some of the pins in this shard are those of threads that have gone without a mark.
    fn has_lost_pins(&self) -> bool {
        let before = self.seen().len();
        self.instance.look_for_threads();
        self.seen().len() < before
    }

    /// Evicts what was not got for longest, around the hand, until there is a block of so many units. How
    /// many units the hand has come on.
    ///
    /// The hand goes round over the addresses, so that what it frees lies together: CLOCK (Corbató 1968),
    /// with neighbours joined.
    fn sweep(&self, units: u32, round: u64) -> u64 {
        let head = self.memory.head();
        let (first, end) = self.memory.range();
        // A look at the rows for each batch, and not so much of a small shard that its objects are gone.
        let ahead = (end - first) / 64;
        let (mut walked, mut run, mut chosen) = (0, 0_u32, Vec::with_capacity(BATCH));
        let is_any = round > 1;
        let pinned = if is_any { self.seen() } else { Vec::new() };
        let pinned: BTreeSet<u32> = pinned.iter().map(|seen| seen.object.unit()).collect();
        let hand = head.hand.load(Relaxed);
        let mut unit = if self.memory.block(hand).is_some() { hand } else { first };
        while walked <= u64::from(end - first) {
            let Some(block) = self.memory.block(unit) else { break };
            let len = self.memory.after(unit, block) - unit;
            let goes = match phase(block) {
                _ if pinned.contains(&unit) => false,
                Some(Phase::Free | Phase::Building | Phase::Gone) => true,
                Some(Phase::Live) => block.visited.swap(0, Relaxed) == 0 || is_any,
                Some(Phase::Going) | None => false,
            };
            walked += u64::from(len);
            if goes {
                run += len;
                chosen.push(unit);
            }
            unit = self.memory.after_in_a_ring(unit, block);
            let ends = !goes || unit == first;
            if run >= units {
                if ends || chosen.len() >= BATCH || run - units >= ahead {
                    break;
                }
            } else if ends {
                run = 0;
                chosen.clear();
            }
        }
        head.hand.store(unit, Relaxed);
        if run >= units {
            self.evict(&chosen);
        }
        walked
    }

    /// Frees an object that was taken out of its chain together with others that were, unless they are many or
    /// take up much of the shard: a look at the rows costs more than all else.
    pub(crate) fn leave(&self, unit: u32, block: &Block) {
        let Leaving { count, units, .. } = &self.memory.head().leaving;
        let (first, end) = self.memory.range();
        let now = count.load(Relaxed);
        let all = units.load(Relaxed).saturating_add(self.memory.after(unit, block) - unit);
        // Its mutex has an entry of the instance, which has so many and no more.
        let has_entry = !matches!(block.mutex.bound(self.instance), Ok(None));
        if has_entry || all > (end - first) / 32 || now as usize >= LEAVING {
            return self.evict(&[unit]);
        }
        self.keep_leaving(unit, all, LEAVING);
    }

    /// Notes an object that waits to be freed, where fewer than so many do. They take up `all` units then.
    fn keep_leaving(&self, unit: u32, all: u32, most: usize) {
        let Leaving { count, units, blocks } = &self.memory.head().leaving;
        let now = count.load(Relaxed);
        if (now as usize) < most {
            blocks[now as usize].store(unit, Relaxed);
            point();
            units.store(all, Relaxed);
            count.store(now + 1, Relaxed);
            point();
        }
    }

    /// Forgets the objects that wait to be freed together: their units.
    pub(crate) fn forget_leaving(&self) -> Vec<u32> {
        let Leaving { count, units, blocks } = &self.memory.head().leaving;
        let known = (count.load(Relaxed) as usize).min(LEAVING);
        count.store(0, Relaxed);
        units.store(0, Relaxed);
        let has_gone = |unit: &u32| self.memory.block(*unit).is_some_and(|block| phase(block) == Some(Phase::Gone));
        blocks[..known].iter().map(|unit| unit.load(Relaxed)).filter(has_gone).collect()
    }

    /// Ends those of these blocks that no living session has pinned, and of those that wait to be freed.
    pub(crate) fn evict(&self, units: &[u32]) {
        let mut asked = self.forget_leaving();
        asked.extend(units);
        asked.sort_unstable();
        asked.dedup();
        point();
        let blocks: Vec<(u32, &Block)> =
            asked.iter().filter_map(|unit| Some((*unit, self.memory.block(*unit)?))).collect();
        for (_, block) in &blocks {
            change_phase(block, Phase::Live, Phase::Going);
            point();
        }
        let is_asked = |unit: u32| asked.binary_search(&unit).is_ok();
        let pinned = self.rows.seen(|object, _| object.shard() == self.number && is_asked(object.unit()));
        let mut pinned: Vec<u32> = pinned.iter().map(|seen| seen.object.unit()).collect();
        pinned.sort_unstable();
        let is_pinned = |unit: u32| pinned.binary_search(&unit).is_ok();
        // From behind, so that each finds the free ones behind it.
        for (unit, block) in blocks.into_iter().rev() {
            match phase(block) {
                Some(Phase::Free) => {
                    self.memory.unbin(block);
                    self.memory.merge(unit, block);
                    self.memory.bin(unit, block);
                }
                // It was being built when the others were marked, and is not marked: a session that has
                // pinned it since the rows were read found it live.
                Some(Phase::Live) => {}
                _ if is_pinned(unit) || !self.forget_mutex(block) => {
                    if !change_phase(block, Phase::Going, Phase::Live) && phase(block) == Some(Phase::Gone) {
                        // It is looked at again. Not so many that a look at the rows frees few.
                        let others = self.memory.head().leaving.units.load(Relaxed);
                        let all = others.saturating_add(self.memory.after(unit, block) - unit);
                        self.keep_leaving(unit, all, LEAVING / 2);
                    }
                }
                now => {
                    if now != Some(Phase::Gone) {
                        self.unlink(unit, block);
                        count(&self.memory.head().figures.evicted);
                    }
                    self.memory.free(unit, block);
                }
            }
            point();
        }
    }

    /// Whether a session that holds the object's mutex can be recovered if it dies. An evictor gives the entry
    /// back first, then the mutex.
    pub(crate) fn has_mutex(&self, block: &Block) -> bool {
        let Ok(bound) = block.mutex.bound(self.instance) else { return false };
        let has_entry = |id: MutexId| id.0 == 0 || self.instance.tables().mutex_info(id).is_some();
        bound.is_none_or(|raw| has_entry(raw.id()))
    }

    /// Gives back the entry of an object's mutex, which nobody can get any more. Not where a dead session
    /// still owes to it.
    fn forget_mutex(&self, block: &Block) -> bool {
        let Ok(Some(raw)) = block.mutex.bound(self.instance) else { return true };
        if raw.load() != Word::FREE {
            self.instance.recover_all();
        }
        // SAFETY: sessions that get it have the object pinned.
        unsafe { block.mutex.unbind(self.instance) }.unwrap_or(false)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::LAST_ROUND;
    use crate::cache::Cache;
    use crate::key::{Key, Namespace};
    use crate::layout::Shape;
    use crate::shard::visit;
    use retrial::{Capacity, Class, Instance, location};
    use std::sync::atomic::Ordering::Relaxed;

    const SHAPE: Shape = Shape { bytes: 16 << 10, shards: 1 };

    /// Other sessions get every object between two rounds, and one object is pinned: only that one is in the
    /// way in the end, wherever the hand is.
    #[test]
    fn what_is_not_pinned_makes_room_however_often_it_is_got() {
        let capacity = Capacity { arena: SHAPE.arena(8), sessions: 8, ..Capacity::default() };
        let instance = Instance::anonymous(capacity).unwrap();
        let cache = Cache::create(&instance, "c", SHAPE).unwrap();
        let session = instance.session("s", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        let (shard, memory) = (&cache.shards[0], cache.shards[0].memory);
        let (first, end) = memory.range();
        let names: Vec<String> = (0..13).map(|i| format!("HOT{i}")).collect();
        let key = |name| Key::new(Namespace::Object, "", name);
        for (pinned, hand) in names.iter().flat_map(|pinned| names.iter().map(move |hand| (pinned, hand))) {
            cache.flush(&session).unwrap();
            for name in &names {
                drop(client.get_or_insert(&key(name), &[1; 900]).unwrap());
            }
            let unit_of = |name| client.get(&key(name)).unwrap().unwrap().place.object.unit();
            memory.head().hand.store(unit_of(hand), Relaxed);
            let pin = client.get(&key(pinned)).unwrap().unwrap();
            let (before, behind) = (pin.place.object.unit(), memory.after(pin.place.object.unit(), pin.place.block));
            let needed = (before - first).max(end - behind);
            let held = shard.lock(&session, location!("test")).unwrap();
            for round in 0..=LAST_ROUND {
                memory.blocks().for_each(|(_, block)| visit(block));
                if round == LAST_ROUND {
                    // As `room` has it.
                    memory.head().hand.store(first, Relaxed);
                }
                shard.sweep(needed, round);
            }
            assert!(memory.take(needed).is_some(), "{pinned} is pinned, the hand at {hand}");
            shard.rebuild();
            drop(held);
        }
    }
}
