//! Samples of the sessions that hold and that wait, and their rows.

use super::rows::{Row, int, maybe, text, whole};
use crate::recording::snapshot::{Session, Snapshot};
use retrial::views::{LocationId, Sid};
use retrial::{Mode, MutexId};

/// A session that held or waited for something, at one or several samples in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// By the real-time clock, in ns.
    pub at_ns: u64,
    pub sid: Sid,
    pub waits: bool,
    pub mutex: MutexId,
    pub count: u64,
    pub length_ns: u64,
    pub mode: Option<Mode>,
    pub location: Option<LocationId>,
    pub on_x: bool,
    pub for_event: bool,
    /// Of a wait: its begin, by the monotonic clock, in ns.
    pub since_ns: Option<u64>,
    pub step: Option<&'static str>,
    /// Of a wait: the holder of the mutex, or one of several.
    pub blocker: Option<Holder>,
    pub action: String,
}

/// Which session held a mutex, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub sid: Sid,
    /// Begin of the session by the monotonic clock, in ns: successive sessions have one SID. 0 where it is
    /// not known.
    pub claimed_ns: u64,
    /// Its process; 0 where it is not known.
    pub pid: u32,
    pub mode: Option<Mode>,
    /// Where it had got the mutex.
    pub location: Option<LocationId>,
}

impl Holder {
    /// Its session, if that is the one which has the SID in a snapshot.
    pub fn session<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s Session> {
        snapshot.session_begun(self.sid, self.claimed_ns)
    }
}

impl Sample {
    /// Its row, of this instance.
    pub(super) fn row(&self, instance: i64) -> Row {
        let of_wait = |value: bool| maybe(self.waits.then(|| int(value)));
        let of_blocker =
            |value: fn(&Holder) -> Option<rusqlite::types::Value>| maybe(self.blocker.as_ref().and_then(value));
        vec![
            whole(self.at_ns),
            instance.into(),
            int(self.sid.number()),
            text(if self.waits { "waits" } else { "holds" }),
            int(self.mutex.0),
            whole(self.count),
            whole(self.length_ns),
            maybe(self.mode.map(|mode| text(mode.name()))),
            maybe(self.location.map(|at| int(at.0))),
            of_wait(self.on_x),
            of_wait(self.for_event),
            maybe(self.since_ns.map(whole)),
            maybe(self.step.map(text)),
            of_blocker(|holder| Some(int(holder.sid.number()))),
            text(&self.action),
            of_blocker(|holder| Some(int(holder.location?.0))),
            of_blocker(|holder| Some(text(holder.mode?.name()))),
            of_blocker(|holder| Some(whole(holder.claimed_ns))),
            of_blocker(|holder| Some(int(holder.pid))),
        ]
    }
}
