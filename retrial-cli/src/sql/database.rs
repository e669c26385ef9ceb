//! A database to be asked: the tables of a recording, the views, and nothing that could change either.

use super::memory;
use super::tables::{self, Sight};
use crate::cmd::alerts::time;
use crate::recording::Scene;
use miette::{Report, miette};
use retrial::views::LocationId;
use retrial::{MutexId, Observer};
use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::hooks::{AuthAction, Authorization};
use std::sync::Arc;

/// A view that is SQL over the tables of a recording.
pub struct Sql {
    pub name: &'static str,
    pub doc: &'static str,
    /// Name, type, unit, expression, and what it is.
    pub columns: &'static [(&'static str, &'static str, &'static str, &'static str, &'static str)],
    from: &'static str,
}

/// The samples with the names of what is in them.
pub static HISTORY: Sql = Sql {
    name: "v$active_session_history",
    doc: "Samples of who held and who waited, in the period that is shown",
    columns: &[
        ("instance", "TEXT", "", "instance_name(sample.instance)", "The instance"),
        ("sample_time", "TEXT", "", "utc(at_ns)", "When the first of them was taken, in UTC"),
        ("sid", "INTEGER", "", "sid", "The session"),
        ("session_state", "TEXT", "", "state", "holds or waits"),
        ("samples", "INTEGER", "", "count", "Samples in a row that said the same"),
        ("time_s", "REAL", "s", "length_ns / 1e9", "Time that they stand for"),
        ("mutex", "INTEGER", "", "mutex", "Number of the mutex"),
        ("name", "TEXT", "", "mutex_name(sample.instance, mutex)", "What it is called"),
        ("mutex_type", "TEXT", "", "mutex_type(sample.instance, mutex)", "Its type"),
        ("mode", "TEXT", "", "mode", "Held, or asked for"),
        ("location", "TEXT", "", "location_name(sample.instance, location)", "Where in the code"),
        ("action", "TEXT", "", "action", "What the session said it was at"),
        ("step", "TEXT", "", "step", "Of a wait: spin, yield, sleep or park"),
        ("blocking_session", "INTEGER", "", "blocker", "Of a wait: the session that held the mutex, or one of them"),
        ("wait_class", "TEXT", "", "CASE for_event WHEN 0 THEN 'Concurrency' WHEN 1 THEN 'Event' END", "Of a wait"),
    ],
    from: "sample WHERE in_period(sample.instance, at_ns)",
};

impl Sql {
    fn create(&self) -> String {
        let columns = self.columns.iter().map(|(name, _, _, expression, _)| format!("{expression} AS {name}"));
        let columns = columns.collect::<Vec<_>>().join(", ");
        format!("CREATE TEMP VIEW \"{}\" AS SELECT {columns} FROM {}", self.name, self.from)
    }
}

/// A database with what its statements see.
pub struct Database {
    connection: Connection,
    sight: Arc<Sight>,
}

impl Database {
    /// Of a recording that is open; of a live instance with its memory.
    pub fn new(connection: Connection, observer: Option<Arc<Observer>>) -> Result<Self, Report> {
        let sight = Arc::new(Sight::default());
        let mut database = Self { connection, sight };
        database.prepare(observer).map_err(|error| {
            miette!(code = "retrial::sql::database", help = "retrial sql --help", "cannot make the views: {error}")
        })?;
        Ok(database)
    }

    fn prepare(&mut self, observer: Option<Arc<Observer>>) -> rusqlite::Result<()> {
        tables::register(&self.connection, &self.sight)?;
        memory::register(&self.connection, observer)?;
        self.functions()?;
        self.connection.execute(&HISTORY.create(), [])?;
        self.connection.pragma_update(None, "query_only", true)?;
        self.connection.authorizer(Some(|context: rusqlite::hooks::AuthContext<'_>| match context.action {
            AuthAction::Select | AuthAction::Read { .. } | AuthAction::Function { .. } | AuthAction::Recursive => {
                Authorization::Allow
            }
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

    pub const fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Pragmas that only say something.
const READ: [&str; 5] = ["table_info", "table_xinfo", "table_list", "function_list", "data_version"];
