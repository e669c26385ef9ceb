//! What a mutex and a place in a program are called: a name in the instance where there is one, else what the
//! program's files say.

use crate::run::symbols::Symbols;
use crate::run::variables::Modules;
use retrial::MutexId;
use retrial::views::{LocationId, MutexInfo, Place, Tables, WaitEvent};
use std::collections::HashMap;

/// Names of an instance's mutexes and places. Files and mappings are read once, when a name needs them.
pub struct Names<'t> {
    tables: &'t Tables,
    symbols: Symbols,
    modules: HashMap<u32, Modules>,
}

impl<'t> Names<'t> {
    pub fn new(tables: &'t Tables) -> Self {
        Self { tables, symbols: Symbols::default(), modules: HashMap::new() }
    }

    /// Its name, or that of the static variable which it is, while its process lives; else nothing.
    pub fn name(&mut self, mutex: &MutexInfo) -> String {
        if !mutex.name.is_empty() || mutex.place == Place::Arena {
            return self.symbols.variable(&mutex.name).unwrap_or_else(|| mutex.name.clone());
        }
        let modules = self.modules.entry(mutex.pid).or_insert_with(|| Modules::of(mutex.pid));
        let variable = modules.locate(mutex.address);
        variable.and_then(|variable| self.symbols.variable(&variable)).unwrap_or_default()
    }

    /// `accounts`, `#7 lock (memcached)`, `#7`: what commands take it by, and what it is.
    pub fn mutex(&mut self, id: MutexId) -> String {
        let known = self.tables.mutex_info(id).map(|info| (self.name(&info), info.place));
        known.map_or_else(|| format!("#{}", id.0), |(name, place)| label(id, &name, place))
    }

    /// The name of a wait event.
    pub fn event(&self, mutex: MutexId, event: WaitEvent) -> String {
        let info = self.tables.mutex_info(mutex);
        event.name(&info.map_or_else(String::new, |info| self.tables.type_name(info.mutex_type)))
    }

    /// Function and line, where the location is a place in a program.
    pub fn place(&mut self, location: LocationId) -> String {
        self.symbols.text(&self.tables.location_name(location))
    }

    /// What names the places in the program's files.
    pub fn symbols(&mut self) -> &mut Symbols {
        &mut self.symbols
    }
}

/// What commands take a mutex of this name by, and what it is.
pub fn label(id: MutexId, name: &str, place: Place) -> String {
    match place {
        _ if name.is_empty() => format!("#{}", id.0),
        Place::Process => format!("#{} {name}", id.0),
        _ => name.to_owned(),
    }
}
