//! Who holds what: the sessions' logs and the mutexes' words read together.

use retrial::views::{Phase, Record, SessionInfo, Sid, Tables};
use retrial::{Mode, MutexId};

/// What a session holds, by its log and the words.
///
/// The log says *getting* until X, LX or E is given back: the word tells the get from the hold.
pub fn held(tables: &Tables, session: &SessionInfo) -> Vec<Record> {
    let holds = |record: &&Record| match record.phase {
        Phase::Granted | Phase::Held | Phase::Leaving | Phase::Promoting | Phase::Demoting | Phase::Draining => true,
        Phase::Left => false,
        Phase::Getting => match tables.mutex_state(record.mutex) {
            Some(state) => state.word.sid() == session.sid,
            None => session.wait.is_none_or(|(key, _, _)| key.mutex != record.mutex),
        },
    };
    session.log.iter().filter(holds).copied().collect()
}

/// `m X, n S`.
pub fn list(tables: &Tables, records: &[Record]) -> String {
    let each: Vec<_> = records.iter().map(|r| format!("{} {}", tables.mutex_name(r.mutex), r.mode)).collect();
    each.join(", ")
}

/// Who holds a mutex now, and how.
pub fn of(tables: &Tables, sessions: &[SessionInfo], mutex: MutexId) -> Vec<(Sid, Mode)> {
    let here = |session: &SessionInfo| {
        held(tables, session).into_iter().find(|r| r.mutex == mutex).map(|r| (session.sid, r.mode))
    };
    let mut all: Vec<_> = sessions.iter().filter_map(here).collect();
    if let Some(word) = tables.mutex_state(mutex).map(|state| state.word)
        && let Some(mode) = word.kind().and_then(retrial::views::Kind::mode)
        && !all.iter().any(|(sid, _)| *sid == word.sid())
    {
        // In the word, but in no log: somebody has poked.
        all.push((word.sid(), mode));
    }
    all
}

/// `session 1 X`, `sessions 2 S, 3 S`, or nothing.
pub fn text(holders: &[(Sid, Mode)]) -> String {
    let each: Vec<_> = holders.iter().map(|(sid, mode)| format!("{sid} {mode}")).collect();
    each.join(", ")
}
