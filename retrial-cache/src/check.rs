//! An audit: whether every byte of a cache belongs to one thing, and every pin to a living session.

use crate::cache::Cache;
use crate::error::CacheError;
use crate::layout::{BINS, Block, LEAVING, Phase};
use crate::rows::Seen;
use crate::shard::{Shard, is_apart, phase};
use retrial::{Session, location, sys};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Looks at the rows, a millisecond apart, after which a pin of nothing is wrong.
const LOOKS: u32 = 1000;

/// What an audit found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// Objects that can be found.
    pub objects: u64,
    /// Free blocks.
    pub free: u64,
    /// Objects that were thrown away and are pinned still, or wait for the hand.
    pub gone: u64,
    /// Objects that are being built.
    pub building: u64,
    /// Pins of living sessions.
    pub pins: u64,
    /// What is wrong, one sentence each; empty for a cache that is whole.
    pub wrong: Vec<String>,
}

impl Cache<'_> {
    /// Audits one shard after the other, under its mutex: the blocks add up, every object is in its chain and
    /// every free block in its bin, once; nothing else is; pins are of objects. After the death of a holder
    /// the shard was put in order before.
    ///
    /// # Errors
    ///
    /// [`CacheError`], when a shard's mutex was not got.
    pub fn check(&self, session: &Session<'_>) -> Result<Audit, CacheError> {
        let mut audit = Audit::default();
        for shard in &self.shards {
            let held = shard.lock(session, location!("cache check"))?;
            audit.add(shard);
            audit.add_pins(shard);
            drop(held);
        }
        Ok(audit)
    }
}

impl<'i> Shard<'i> {
    /// Every pin in this shard.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.rows.seen(|object, _| object.shard() == self.number)
    }

    /// The same with its object, under the shard's mutex. A session that looks for an object
    /// without a lock names what it has found, and then asks whether that is one still: for a moment it may be
    /// none.
    pub(crate) fn pinned(&self) -> Vec<(Seen, Option<&'i Block>)> {
        let seen = self.seen();
        let units: BTreeSet<u32> = seen.iter().map(|pin| pin.object.unit()).collect();
        let is_object = |block: &Block| phase(block).is_some_and(|phase| phase != Phase::Free);
        let all = self.memory.blocks().filter(|(unit, block)| units.contains(unit) && is_object(block));
        let objects: BTreeMap<u32, &Block> = all.collect();
        let with_object = |pin: Seen| {
            let block = objects.get(&pin.object.unit()).copied();
            (pin, block)
        };
        seen.into_iter().map(with_object).collect()
    }
}

impl Audit {
    fn add(&mut self, shard: &Shard<'_>) {
        let number = shard.number;
        let mut wrong = |text: String| self.wrong.push(format!("shard {number}: {text}"));
        let (memory, head) = (shard.memory, shard.memory.head());
        let blocks: BTreeMap<u32, _> = memory.blocks().collect();
        let (first, end) = memory.range();
        let units: u64 = blocks.values().map(|block| u64::from(block.units.load(Relaxed))).sum();
        if units != u64::from(end - first) {
            wrong(format!("its blocks have {units} units together, and there are {}", end - first));
        }
        // What can be found by the chains, and what lies in the bins.
        let mut lists = [BTreeSet::new(), BTreeSet::new()];
        let mut walk = |list: usize, start: u32, name: &str, wrong: &mut dyn FnMut(String)| {
            let mut unit = start;
            while unit != 0 {
                let Some(block) = blocks.get(&unit) else {
                    return wrong(format!("{name} leads to unit {unit}, where no block begins"));
                };
                if !lists[list].insert(unit) {
                    return wrong(format!("{name} leads to unit {unit}, which a list had already"));
                }
                unit = block.next.load(Relaxed);
            }
        };
        for (number, chain) in memory.chains().iter().enumerate() {
            walk(0, chain.load(Relaxed), &format!("chain {number}"), &mut wrong);
        }
        for bin in 0..BINS {
            let start = head.bins[bin].load(Relaxed);
            if (head.filled[bin / 64].load(Relaxed) >> (bin % 64) & 1 == 1) != (start != 0) {
                wrong(format!("bin {bin} is said to be filled or empty, and is not"));
            }
            walk(1, start, &format!("bin {bin}"), &mut wrong);
        }
        if !blocks.contains_key(&head.hand.load(Relaxed)) {
            wrong(format!("the hand is at unit {}, where no block begins", head.hand.load(Relaxed)));
        }
        leaving(shard, &blocks, &mut wrong);
        for (unit, block) in &blocks {
            let (in_chain, in_bin) = (lists[0].contains(unit), lists[1].contains(unit));
            let fits = match phase(block) {
                Some(Phase::Free) => (in_chain, in_bin) == (false, true),
                Some(Phase::Building) => (in_chain, in_bin) == (!is_apart(block), false),
                Some(Phase::Live) => (in_chain, in_bin) == (true, false),
                Some(Phase::Gone) => (in_chain, in_bin) == (false, false),
                Some(Phase::Going) | None => false,
            };
            if !fits {
                let (state, chain) = (phase(block), if in_chain { "in" } else { "not in" });
                let bin = if in_bin { "in" } else { "not in" };
                wrong(format!("unit {unit} is {state:?}, {chain} a chain, {bin} a bin"));
            }
            if phase(block) == Some(Phase::Live) && shard.has_twin(*unit, block) {
                wrong(format!("unit {unit} is a second object of its name"));
            }
            if phase(block) == Some(Phase::Live) && !shard.has_mutex(block) {
                wrong(format!("unit {unit} is live, and its mutex is none of the instance"));
            }
            match phase(block) {
                Some(Phase::Free) => self.free += 1,
                Some(Phase::Live) => self.objects += 1,
                Some(Phase::Gone) => self.gone += 1,
                Some(Phase::Building) => self.building += 1,
                Some(Phase::Going) | None => {}
            }
        }
    }

    /// Whether each pin is of an object.
    fn add_pins(&mut self, shard: &Shard<'_>) {
        let mut pins = Vec::new();
        for look in 0..LOOKS {
            pins = shard.pinned();
            if look == LOOKS - 1 || pins.iter().all(|(_, block)| block.is_some()) {
                break;
            }
            sys::sleep(Duration::from_millis(1));
        }
        self.pins += pins.len() as u64;
        for (pin, _) in pins.iter().filter(|(_, block)| block.is_none()) {
            let text = format!("session {} has unit {} pinned, which is no object", pin.sid, pin.object.unit());
            self.wrong.push(format!("shard {}: {text}", shard.number));
        }
    }
}

/// Whether what is noted to be freed is objects that have gone, once each.
fn leaving(shard: &Shard<'_>, blocks: &BTreeMap<u32, &Block>, wrong: &mut dyn FnMut(String)) {
    let leaving = &shard.memory.head().leaving;
    let known = leaving.count.load(Relaxed) as usize;
    let mut seen = BTreeSet::new();
    let mut units = 0;
    for unit in leaving.blocks[..known.min(LEAVING)].iter().map(|unit| unit.load(Relaxed)) {
        let block = blocks.get(&unit).filter(|block| phase(block) == Some(Phase::Gone));
        units += block.map_or(0, |block| block.units.load(Relaxed));
        if block.is_none() || !seen.insert(unit) {
            wrong(format!("unit {unit} waits to be freed, and is no object that has gone, or waits twice"));
        }
    }
    if known > LEAVING || units != leaving.units.load(Relaxed) {
        wrong(format!("{known} objects with {units} units wait to be freed, which is not what is said"));
    }
}
