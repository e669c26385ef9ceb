//! A database to be asked: the tables of a recording, the views, and nothing that could change either.

use super::memory;
use super::tables::{self, Sight};
use crate::ash;
use crate::clock::time;
use crate::recording::{Scene, history};
use miette::{Report, miette};
use retrial::views::{LocationId, WaitEvent};
use retrial::{MutexId, Observer};
use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::hooks::{AuthAction, Authorization};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A view that is SQL over the table of samples.
pub struct History {
    pub name: &'static str,
    pub doc: &'static str,
    /// Its name of a column.
    pub named: fn(&history::Column) -> &'static str,
}

/// The samples with the names of what is in them: as the sources call the columns, and in short.
pub static HISTORIES: [History; 2] = [
    History {
        name: "v$active_session_history",
        doc: "Samples of who held and who waited, in the period that is shown",
        named: |column| column.name,
    },
    History {
        name: ash::VIEW,
        doc: "The same under the names that retrial ash has for the columns",
        named: |column| column.short,
    },
];

impl History {
    fn create(&self) -> String {
        let columns =
            history::COLUMNS.iter().map(|column| format!("{} AS {}", column.expression, (self.named)(column)));
        let columns = columns.collect::<Vec<_>>().join(", ");
        format!(
            "CREATE TEMP VIEW \"{}\" AS SELECT {columns} FROM sample WHERE in_period(sample.instance, at_ns)",
            self.name
        )
    }
}

/// A database with what its statements see.
pub struct Database {
    connection: Connection,
    sight: Arc<Sight>,
    /// The tables that statements prepared so far read.
    read: Arc<Mutex<BTreeSet<String>>>,
}

impl Database {
    /// Of a recording that is open; of a live instance with its memory.
    pub fn new(connection: Connection, observer: Option<Arc<Observer>>) -> Result<Self, Report> {
        let sight = Arc::new(Sight::default());
        let mut database = Self { connection, sight, read: Arc::default() };
        database.prepare(observer).map_err(|error| {
            miette!(code = "retrial::sql::database", help = "retrial sql --help", "cannot make the views: {error}")
        })?;
        Ok(database)
    }

    fn prepare(&mut self, observer: Option<Arc<Observer>>) -> rusqlite::Result<()> {
        tables::register(&self.connection, &self.sight)?;
        memory::register(&self.connection, observer)?;
        self.functions()?;
        for history in &HISTORIES {
            self.connection.execute(&history.create(), [])?;
        }
        self.connection.pragma_update(None, "query_only", true)?;
        let read = Arc::clone(&self.read);
        self.connection.authorizer(Some(move |context: rusqlite::hooks::AuthContext<'_>| match context.action {
            AuthAction::Read { table_name, .. } => {
                read.lock().unwrap_or_else(PoisonError::into_inner).insert(table_name.to_lowercase());
                Authorization::Allow
            }
            AuthAction::Select | AuthAction::Function { .. } | AuthAction::Recursive => Authorization::Allow,
            AuthAction::Pragma { pragma_name, pragma_value: _ } if READ.contains(&pragma_name) => Authorization::Allow,
            _ => Authorization::Deny,
        }))
    }

    fn functions(&self) -> rusqlite::Result<()> {
        let flags = FunctionFlags::SQLITE_UTF8;
        let define = |name, arguments, answer: fn(&Scene, &Context<'_>) -> rusqlite::Result<Option<String>>| {
            let sight = Arc::clone(&self.sight);
            self.connection
                .create_scalar_function(name, arguments, flags, move |context| answer(&sight.scene(), context))
        };
        define("utc", 1, |_, context| Ok(context.get::<Option<i64>>(0)?.map(|at_ns| time(at_ns.cast_unsigned()))))?;
        define("instance_name", 1, |scene, context| {
            Ok(scene.span(context.get(0)?).map(|span| span.to.instance.name.clone()))
        })?;
        define("mutex_name", 2, |scene, context| {
            let mutex = MutexId(context.get(1)?);
            Ok(scene.span(context.get(0)?).map(|span| span.to.mutex_label(mutex)))
        })?;
        define("mutex_type", 2, |scene, context| {
            let mutex = MutexId(context.get(1)?);
            Ok(scene.span(context.get(0)?).map(|span| span.to.type_name_of(mutex).to_owned()))
        })?;
        define("location_name", 2, |scene, context| {
            let Some(location) = context.get::<Option<u16>>(1)? else { return Ok(None) };
            Ok(scene.span(context.get(0)?).map(|span| span.to.place(LocationId(location)).to_owned()))
        })?;
        define("event_name", 5, |scene, context| {
            let (Some(mode), Some(on_x), Some(for_event)) =
                (context.get::<Option<String>>(2)?, context.get(3)?, context.get(4)?)
            else {
                return Ok(None);
            };
            let (Some(span), Ok(mode)) = (scene.span(context.get(0)?), mode.parse()) else { return Ok(None) };
            let mutex_type = span.to.type_name_of(MutexId(context.get(1)?));
            Ok(Some(WaitEvent { mode, on_x, for_event }.name(mutex_type)))
        })?;
        let sight = Arc::clone(&self.sight);
        self.connection.create_scalar_function("in_period", 2, flags, move |context| {
            let (scene, at_ns) = (sight.scene(), context.get::<i64>(1)?.cast_unsigned());
            Ok(scene.span(context.get(0)?).is_some_and(|span| {
                let from_ns = span.period().from().map_or(0, |from| from.at.real_ns);
                (from_ns..=span.to.at.real_ns).contains(&at_ns)
            }))
        })
    }

    /// From now on statements see this.
    pub fn show(&self, scene: Scene) {
        self.sight.set(Arc::new(scene));
    }

    /// The tables that the statements prepared so far read, in lower case.
    pub fn tables_read(&self) -> BTreeSet<String> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub const fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Pragmas that only say something.
const READ: [&str; 5] = ["table_info", "table_xinfo", "table_list", "function_list", "data_version"];
