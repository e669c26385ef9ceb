//! Takes snapshots of a live instance.

use super::snapshot::{Alert, Held, Identity, Moment, Mutex, Parameter, Session, Snapshot, State};
use super::state::{Load, Spent};
use crate::blocking::Look;
use crate::naming::Names;
use retrial::sys::{Clock, clock_ns, now_ns};
use retrial::views::{Counter, Figures, Key, LocationId, MutexInfo, SessionInfo, Sid, Tables, Word};
use retrial::{MutexId, P};
use retrial_model::profile::Samples;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;

/// Takes snapshots of one instance. Keeps what need not be looked up twice: names of mutexes and places.
pub struct Taker<'t> {
    tables: &'t Tables,
    instance: Identity,
    names: Names<'t>,
    /// Names of mutexes in processes' memory, each with the name that the instance had for it then.
    found: HashMap<(MutexId, u32, u64), (String, String)>,
    places: BTreeMap<LocationId, String>,
}

impl<'t> Taker<'t> {
    pub fn new(tables: &'t Tables) -> Self {
        let metadata = tables.address().and_then(|address| std::fs::symlink_metadata(address.path()).ok());
        let (device, inode) = metadata.map_or((0, 0), |metadata| (metadata.dev(), metadata.ino()));
        let name = tables.address().map_or_else(String::new, ToString::to_string);
        let instance = Identity { name, created_ns: tables.created_ns(), device, inode };
        Self { tables, instance, names: Names::new(tables), found: HashMap::new(), places: BTreeMap::new() }
    }

    pub const fn instance(&self) -> &Identity {
        &self.instance
    }

    /// The instance as it is now.
    pub fn snapshot(&mut self) -> Snapshot {
        let tables = self.tables;
        let at = Moment { real_ns: clock_ns(Clock::Realtime), monotonic_ns: now_ns() };
        let (held, awaited) = (tables.mutexes(), tables.events());
        let mut look = Look::at(tables, &held, |_| true);
        let until_ns = now_ns();
        let rows = tables.rows_until(|sid, _| (!tables.is_dead(sid)).then_some(until_ns));
        look.sessions.retain(|session| !tables.is_followed(session));
        // Fewer gets than the spins that led to one: the record was another mutex's before.
        let mut spin_gets: HashMap<MutexId, u64> = HashMap::new();
        for (_, key, figures) in &rows {
            *spin_gets.entry(key.mutex).or_default() += figures.get(Counter::SpinGets);
        }
        let mut mutexes: Vec<Mutex> = Vec::with_capacity(held.len() + awaited.len());
        for (info, is_event) in
            held.into_iter().map(|info| (info, false)).chain(awaited.into_iter().map(|info| (info, true)))
        {
            let least = spin_gets.get(&info.id).copied().unwrap_or(0);
            mutexes.push(self.mutex(info, is_event, &look, least));
        }
        mutexes.sort_by_key(|mutex| mutex.info.id);
        let sessions = self.sessions(&look);
        self.name_places(&rows, &sessions);
        Snapshot {
            at,
            instance: self.instance.clone(),
            capacity: tables.capacity(),
            sessions,
            mutexes,
            types: tables.types().into_iter().collect(),
            places: self.places.clone(),
            rows,
            params: params(tables),
            alerts: tables.alerts(0).into_iter().map(|(number, at_ns, text)| Alert { number, at_ns, text }).collect(),
            history: tables.history(),
            recoveries: tables.recoveries(),
            session_gets: tables.session_gets(),
            load: Load::now(),
        }
    }

    fn mutex(&mut self, info: MutexInfo, is_event: bool, look: &Look<'_>, spin_gets: u64) -> Mutex {
        let state = self.tables.mutex_state(info.id);
        let read = look.read.get(&info.id);
        let word = state.map(|state| state.word).or_else(|| read?.word);
        Mutex {
            name: self.name(&info),
            is_event,
            gets: look.gets(&info, spin_gets),
            word: look.word_text(info.id),
            is_poisoned: word.is_some_and(|word| word.has(Word::POISONED)),
            parked: state.map(|state| state.parked),
            holders: look.holders(info.id).to_vec(),
            samples: Samples::default(),
            info,
        }
    }

    fn name(&mut self, info: &MutexInfo) -> String {
        let known = self.found.get(&(info.id, info.pid, info.address));
        if let Some((_, found)) = known.filter(|(name, _)| *name == info.name) {
            return found.clone();
        }
        let found = self.names.name(info);
        self.found.insert((info.id, info.pid, info.address), (info.name.clone(), found.clone()));
        found
    }

    fn sessions(&self, look: &Look<'_>) -> Vec<Session> {
        let rings = look.deadlocks();
        let deadlocked: BTreeSet<Sid> = rings.iter().flatten().map(|link| link.sid).collect();
        let gets: HashMap<Sid, u64> = self.tables.gets_by_session().collect();
        let held = |sid| {
            let each = look.held(sid).iter();
            each.map(|(mutex, mode)| Held { mutex: *mutex, mode: *mode, location: look.held_at(sid, *mutex) }).collect()
        };
        let of = |info: &SessionInfo| Session {
            state: State::of(info, deadlocked.contains(&info.sid)),
            holds: held(info.sid),
            blockers: look.blockers(info),
            gets: gets.get(&info.sid).copied().unwrap_or(0),
            spent: (!info.dead).then(|| Spent::of(info.pid, info.tid)).flatten(),
            info: info.clone(),
        };
        look.sessions.iter().map(of).collect()
    }

    /// Looks up what the places are called that have not been seen before.
    fn name_places(&mut self, rows: &[(Sid, Key, Figures)], sessions: &[Session]) {
        let of_rows = rows.iter().map(|(_, key, _)| key.location);
        let of_waits = sessions.iter().filter_map(|session| Some(session.info.wait?.0.location));
        let of_holds = sessions.iter().flat_map(|session| session.holds.iter().filter_map(|held| held.location));
        let registered = self.tables.locations().into_iter().map(|(id, _)| id);
        for location in of_rows.chain(of_waits).chain(of_holds).chain(registered) {
            if !self.places.contains_key(&location) {
                let name = self.names.place(location);
                self.places.insert(location, name);
            }
        }
    }
}

fn params(tables: &Tables) -> Vec<Parameter> {
    let of_instance = tables.params(None);
    let of_types: Vec<_> = tables.types().into_iter().map(|(id, _)| (id, tables.params(Some(id)))).collect();
    let mut all = Vec::new();
    for &p in P::ALL {
        let is_set = tables.param_set(p, None).is_some();
        all.push(Parameter { parameter: p, of: None, value: of_instance.get(p), is_set });
        let own = of_types.iter().filter(|(id, _)| tables.param_set(p, Some(*id)).is_some());
        all.extend(own.map(|(id, params)| Parameter {
            parameter: p,
            of: Some(*id),
            value: params.get(p),
            is_set: true,
        }));
    }
    all
}
