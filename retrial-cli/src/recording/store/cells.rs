//! From rows to a snapshot: what `rows.rs` has written.

use super::schema::Table;
use crate::recording::snapshot::{Held, Mutex, Parameter, Session, Snapshot, State};
use crate::recording::state::Spent;
use retrial::views::{Figures, Key, LocationId, MutexInfo, PastSleep, Place, SessionInfo, Sid, TypeId, WaitEvent};
use retrial::{Death, Mode, MutexId, P};
use retrial_model::profile::Samples;

/// Reads the cells of a row from left to right.
pub struct Cells<'r> {
    row: &'r rusqlite::Row<'r>,
    next: usize,
}

impl<'r> Cells<'r> {
    /// From this column on.
    pub const fn new(row: &'r rusqlite::Row<'r>, first: usize) -> Self {
        Self { row, next: first }
    }

    fn next<T: rusqlite::types::FromSql>(&mut self) -> rusqlite::Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    pub fn whole(&mut self) -> rusqlite::Result<u64> {
        Ok(self.next::<i64>()?.cast_unsigned())
    }

    pub fn maybe_whole(&mut self) -> rusqlite::Result<Option<u64>> {
        Ok(self.next::<Option<i64>>()?.map(i64::cast_unsigned))
    }

    pub fn real(&mut self) -> rusqlite::Result<f64> {
        self.next()
    }

    pub fn text(&mut self) -> rusqlite::Result<String> {
        self.next()
    }

    pub fn maybe_text(&mut self) -> rusqlite::Result<Option<String>> {
        self.next()
    }

    pub fn small(&mut self) -> rusqlite::Result<u32> {
        self.next()
    }

    pub fn flag(&mut self) -> rusqlite::Result<bool> {
        self.next()
    }

    pub fn mode(&mut self) -> rusqlite::Result<Mode> {
        Ok(mode(&self.text()?))
    }

    fn sid(&mut self) -> rusqlite::Result<Sid> {
        Ok(Sid::new(self.small()?))
    }

    fn mutex(&mut self) -> rusqlite::Result<MutexId> {
        Ok(MutexId(self.small()?))
    }

    fn location(&mut self) -> rusqlite::Result<LocationId> {
        Ok(LocationId(self.small()? as u16))
    }
}

/// A mode by its name; X for what is none.
fn mode(name: &str) -> Mode {
    name.parse().unwrap_or(Mode::Exclusive)
}

/// Puts a row of a table into a snapshot; one of nulls says that its key has gone.
pub fn put(table: &Table, row: &rusqlite::Row<'_>, snapshot: &mut Snapshot) -> rusqlite::Result<()> {
    // Keys come first, the snapshot before them.
    if row.get_ref(table.keys)?.data_type() == rusqlite::types::Type::Null && is_gone(table, row)? {
        return Ok(());
    }
    let cells = Cells::new(row, 1);
    match table.name {
        "session" => snapshot.sessions.push(session(cells)?),
        "session_state" => put_session_state(cells, snapshot)?,
        "wait" => snapshot.rows.push(wait(cells)?),
        "mutex" => snapshot.mutexes.push(mutex(cells)?),
        "mutex_state" => put_mutex_state(cells, snapshot)?,
        "parameter" => snapshot.params.extend(parameter(cells)?),
        "type" => put_name(cells, |id, name| snapshot.types.insert(TypeId(id as u8), name))?,
        "location" => put_name(cells, |id, name| snapshot.places.insert(LocationId(id as u16), name))?,
        "sleep" => snapshot.history.push(sleep(cells)?),
        _ => {}
    }
    Ok(())
}

fn is_gone(table: &Table, row: &rusqlite::Row<'_>) -> rusqlite::Result<bool> {
    for column in table.keys..table.columns.len() {
        if row.get_ref(column)?.data_type() != rusqlite::types::Type::Null {
            return Ok(false);
        }
    }
    Ok(true)
}

fn session(mut cells: Cells<'_>) -> rusqlite::Result<Session> {
    let info = SessionInfo {
        sid: cells.sid()?,
        claimed_ns: cells.whole()?,
        pid: cells.small()?,
        tid: cells.small()?,
        name: cells.text()?,
        high_priority: cells.flag()?,
        dead: false,
        kept: false,
        action: String::new(),
        log: Vec::new(),
        wait: None,
        step: None,
        first_run: 0,
        last_run: 0,
    };
    Ok(Session { info, state: State::Running, holds: Vec::new(), blockers: Vec::new(), gets: 0, spent: None })
}

/// `[[1, "X", 2], …]`, as it was written.
fn lists(text: &str) -> Vec<[serde_json::Value; 3]> {
    let lists: Vec<Vec<serde_json::Value>> = serde_json::from_str(text).unwrap_or_default();
    let of = |list: Vec<serde_json::Value>| std::array::from_fn(|i| list.get(i).cloned().unwrap_or_default());
    lists.into_iter().map(of).collect()
}

fn number(value: &serde_json::Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

fn put_session_state(mut cells: Cells<'_>, snapshot: &mut Snapshot) -> rusqlite::Result<()> {
    let sid = cells.sid()?;
    // They were read in the order of their numbers.
    let position = snapshot.sessions.binary_search_by_key(&sid, |session| session.info.sid);
    let Some(session) = position.ok().map(|position| &mut snapshot.sessions[position]) else { return Ok(()) };
    let state = cells.text()?;
    session.state = State::ALL.into_iter().find(|known| known.name() == state).unwrap_or(State::Running);
    session.info.dead = session.state == State::Dead;
    session.info.action = cells.text()?;
    session.info.kept = cells.flag()?;
    session.gets = cells.whole()?;
    session.holds = lists(&cells.text()?)
        .iter()
        .map(|[mutex, name, at]| Held {
            mutex: MutexId(number(mutex).unwrap_or(0)),
            mode: mode(name.as_str().unwrap_or_default()),
            location: number(at).map(|at| LocationId(at as u16)),
        })
        .collect();
    session.blockers = lists(&cells.text()?)
        .iter()
        .map(|[sid, name, _]| (Sid::new(number(sid).unwrap_or(0)), name.as_str().map(mode)))
        .collect();
    let step = cells.maybe_text()?;
    session.info.step = step.and_then(|step| retrial::views::STEPS.into_iter().find(|known| *known == step));
    let mutex = cells.maybe_whole()?;
    let Some(mutex) = mutex else {
        let mut cells = Cells::new(cells.row, cells.next + 6);
        return put_session_end(&mut cells, session);
    };
    let (mode, location) = (cells.mode()?, cells.location()?);
    let event = WaitEvent { mode, on_x: cells.flag()?, for_event: cells.flag()? };
    let key = Key { mutex: MutexId(mutex as u32), location, event };
    session.info.wait = Some((key, cells.whole()?, cells.sid()?));
    put_session_end(&mut cells, session)
}

fn put_session_end(cells: &mut Cells<'_>, session: &mut Session) -> rusqlite::Result<()> {
    (session.info.first_run, session.info.last_run) = (cells.whole()?, cells.whole()?);
    let spent = cells.maybe_whole()?.zip(cells.maybe_whole()?);
    session.spent = spent.map(|(cpu_ns, queued_ns)| Spent { cpu_ns, queued_ns });
    Ok(())
}

fn wait(mut cells: Cells<'_>) -> rusqlite::Result<(Sid, Key, Figures)> {
    let (sid, mutex, location, mode) = (cells.sid()?, cells.mutex()?, cells.location()?, cells.mode()?);
    let event = WaitEvent { mode, on_x: cells.flag()?, for_event: cells.flag()? };
    let mut figures = Figures::default();
    for count in &mut figures.counters {
        *count = cells.whole()?;
    }
    let lengths: Vec<u64> = serde_json::from_str(&cells.text()?).unwrap_or_default();
    for (count, written) in figures.lengths.0.iter_mut().zip(lengths) {
        *count = written;
    }
    Ok((sid, Key { mutex, location, event }, figures))
}

fn mutex(mut cells: Cells<'_>) -> rusqlite::Result<Mutex> {
    let (id, mutex_type, name, own_name) = (cells.mutex()?, cells.small()?, cells.text()?, cells.text()?);
    let place = match cells.small()? {
        1 => Place::Arena,
        2 => Place::Process,
        _ => Place::Elsewhere,
    };
    let info = MutexInfo {
        id,
        name: own_name,
        mutex_type: TypeId(mutex_type as u8),
        place,
        address: cells.whole()?,
        pid: cells.small()?,
        gets: None,
        death: None,
        pthread_in_use: false,
        switches: 0,
        one_alone: false,
    };
    Ok(Mutex {
        info,
        name,
        is_event: cells.flag()?,
        gets: None,
        word: String::new(),
        is_poisoned: false,
        parked: None,
        holders: Vec::new(),
        samples: Samples::default(),
    })
}

fn put_mutex_state(mut cells: Cells<'_>, snapshot: &mut Snapshot) -> rusqlite::Result<()> {
    let id = cells.mutex()?;
    // They were read in the order of their numbers.
    let Ok(position) = snapshot.mutexes.binary_search_by_key(&id, |mutex| mutex.info.id) else { return Ok(()) };
    let mutex = &mut snapshot.mutexes[position];
    mutex.gets = cells.maybe_whole()?;
    mutex.info.gets = cells.maybe_whole()?;
    mutex.word = cells.text()?;
    mutex.is_poisoned = cells.flag()?;
    mutex.parked = cells.maybe_whole()?.map(|parked| parked as u32);
    mutex.holders = lists(&cells.text()?)
        .iter()
        .map(|[sid, name, _]| (Sid::new(number(sid).unwrap_or(0)), mode(name.as_str().unwrap_or_default())))
        .collect();
    mutex.info.pthread_in_use = cells.flag()?;
    mutex.info.switches = cells.whole()?;
    mutex.info.one_alone = cells.flag()?;
    let death = (cells.maybe_whole()?, cells.maybe_text()?, cells.maybe_whole()?);
    if let (Some(sid), Some(name), Some(location)) = death {
        let location = LocationId(location as u16);
        mutex.info.death = Some(Death { sid: Sid::new(sid as u32), mode: mode(&name), location });
    }
    mutex.samples = Samples {
        looks: cells.whole()?,
        held: cells.whole()?,
        time_s: cells.real()?,
        held_s: cells.real()?,
        gets: cells.whole()?,
    };
    Ok(())
}

/// `None` of a parameter that this build does not know.
fn parameter(mut cells: Cells<'_>) -> rusqlite::Result<Option<Parameter>> {
    let of: i64 = cells.next()?;
    let Ok(parameter) = P::named(&cells.text()?) else { return Ok(None) };
    let of = u8::try_from(of).ok().map(TypeId);
    Ok(Some(Parameter { parameter, of, value: cells.whole()?, is_set: cells.flag()? }))
}

fn put_name<T>(mut cells: Cells<'_>, put: impl FnOnce(u32, String) -> T) -> rusqlite::Result<()> {
    let (id, name) = (cells.small()?, cells.text()?);
    put(id, name);
    Ok(())
}

fn sleep(mut cells: Cells<'_>) -> rusqlite::Result<PastSleep> {
    Ok(PastSleep {
        mutex: cells.mutex()?,
        blocker: cells.sid()?,
        waiter: cells.sid()?,
        at_ns: cells.whole()?,
        location: cells.location()?,
        mode: cells.mode()?,
        sleeps: cells.whole()?,
        gets: cells.whole()?,
    })
}
