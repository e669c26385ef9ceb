//! A second look at a mutex that was found held: whether its holder waits for a processor.

use super::record::{Owner, Record};
use super::{Identity, Sampler, read_process};
use crate::who::thread::{State, Thread};
use retrial::views::Sid;
use std::time::Duration;

/// The second look comes after so many holding times: of exponential ones one in 55 is as long.
const HOLDS: u64 = 4;
/// The same in ns, at least, and at most: turns on a full machine are longer.
const AFTER_NS: std::ops::RangeInclusive<u64> = 50_000..=1_000_000;

/// A mutex that a sample found held.
pub struct Held {
    pub identity: Identity,
    pub gets: u64,
    pub sid: Sid,
}

impl Held {
    /// What a sample found, if the record says which session has it.
    pub fn of(identity: Identity, gets: u64, record: &Record) -> Option<Self> {
        let Some(Owner::Session(sid)) = record.owner() else { return None };
        Some(Self { identity, gets, sid })
    }

    /// Whether this is still the same hold.
    fn goes_on(&self, record: &Record) -> bool {
        let now = record.ours(self.identity.id, self.gets, true);
        now == Some((true, self.gets)) && record.owner() == Some(Owner::Session(self.sid))
    }
}

impl Sampler<'_> {
    /// Looks again at one of the mutexes that the latest sample found held, after a few of its holding times. A
    /// holder that still has it in the same hold, and is no thread that sleeps, is in a run queue.
    pub(super) fn look_again(&mut self) {
        let looks = |held: &Held| self.seen.get(&held.identity).map_or(0, |seen| seen.again);
        let Some(held) = self.held.drain(..).min_by_key(looks) else { return };
        let Some(hold_ns) = self.seen.get(&held.identity).and_then(super::Seen::hold_ns) else { return };
        std::thread::sleep(Duration::from_nanos((HOLDS * hold_ns).clamp(*AFTER_NS.start(), *AFTER_NS.end())));
        let pid = held.identity.pid;
        let Ok(1) = read_process(pid, &[held.identity], &mut self.buffer) else { return };
        let Some(seen) = self.seen.get_mut(&held.identity) else { return };
        let record = Record::parse(&self.buffer[0], self.formats.format(seen.info.mutex_type));
        let is_ready = || {
            let tid = self.tables.session_info(held.sid)?.tid;
            Some(Thread::state_of(pid, tid)? == State::Running)
        };
        seen.looked_again(held.goes_on(&record) && is_ready() == Some(true));
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Format, RECORD};
    use super::*;
    use retrial::MutexId;

    /// A mutex that was got so often, and that this session has, if any.
    fn record(sid: u32, gets: u64) -> Record {
        let mut bytes = [0; RECORD];
        let first_process: [u8; 8] = [0, 0, 0, 0, 1, 0, 0, 0];
        bytes[..4].copy_from_slice(&u32::from(sid != 0).to_ne_bytes());
        bytes[4..8].copy_from_slice(&sid.to_ne_bytes());
        bytes[20..24].copy_from_slice(&1u32.to_ne_bytes());
        bytes[24..32].copy_from_slice(&gets.to_ne_bytes());
        bytes[32..40].copy_from_slice(&first_process);
        Record::parse(&bytes, Format::Private)
    }

    #[test]
    fn another_hold_is_told_from_the_same_one() {
        let identity = Identity { id: MutexId(1), pid: 1, address: 8 };
        assert!(Held::of(identity, 7, &record(0, 7)).is_none());
        let held = Held::of(identity, 7, &record(5, 7)).unwrap();
        let later = [record(5, 7), record(5, 8), record(6, 8), record(0, 7), record(5, 3)];
        assert_eq!(later.map(|record| held.goes_on(&record)), [true, false, false, false, false]);
    }
}
