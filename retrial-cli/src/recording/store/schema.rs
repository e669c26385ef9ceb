//! The tables of a recording as data: `CREATE TABLE`, inserts, what `.tables` says and the documentation come
//! from this list.

use retrial::views::Counter;
use std::fmt::Write;
use std::sync::LazyLock;

/// `PRAGMA application_id` of a recording: `rtrl`.
pub const APPLICATION: i32 = i32::from_be_bytes(*b"rtrl");
/// `PRAGMA user_version`: changes with the tables.
pub const FORMAT: i32 = 5;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Real,
    Text,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Integer => "INTEGER",
            Self::Real => "REAL",
            Self::Text => "TEXT",
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// Empty for a number without one, and for texts.
    pub unit: &'static str,
    pub doc: &'static str,
}

/// A table of a recording.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: &'static str,
    pub doc: &'static str,
    pub columns: Vec<Column>,
    /// How many of the first columns are its key.
    pub keys: usize,
    /// Whether a row is written at a snapshot only when it has changed since the one before, with a row of
    /// nulls for what has gone. The first column is the snapshot.
    pub is_state: bool,
}

impl Table {
    /// The statement that makes it.
    pub fn create(&self) -> String {
        let mut sql = format!("CREATE TABLE {} (", self.name);
        for column in &self.columns {
            let _ = write!(sql, "{} {}, ", column.name, column.kind.name());
        }
        let keys: Vec<&str> = self.columns[..self.keys].iter().map(|column| column.name).collect();
        let _ = write!(sql, "PRIMARY KEY ({})) WITHOUT ROWID", keys.join(", "));
        sql
    }

    /// The statement that writes a row.
    pub fn insert(&self) -> String {
        let places = vec!["?"; self.columns.len()].join(", ");
        format!("INSERT OR REPLACE INTO {} VALUES ({places})", self.name)
    }

    /// The statement that reads the rows of a state: the latest of each key in the snapshots `?2` to `?3` of
    /// instance `?1`.
    pub fn select(&self) -> String {
        let names = |columns: &[Column]| columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
        format!(
            "SELECT max(snapshot), {0} FROM {1} WHERE snapshot IN \
             (SELECT id FROM snapshot WHERE instance = ?1 AND id BETWEEN ?2 AND ?3) GROUP BY {2} ORDER BY {2}",
            names(&self.columns[1..]),
            self.name,
            names(&self.columns[1..self.keys]),
        )
    }
}

pub const fn int(name: &'static str, unit: &'static str, doc: &'static str) -> Column {
    Column { name, kind: Kind::Integer, unit, doc }
}

pub const fn text(name: &'static str, doc: &'static str) -> Column {
    Column { name, kind: Kind::Text, unit: "", doc }
}

const SNAPSHOT: Column = int("snapshot", "", "The snapshot at which it was seen so first");
const MUTEX: Column = int("mutex", "", "Number of the mutex");

fn state(name: &'static str, doc: &'static str, keys: &[Column], rest: &[Column]) -> Table {
    let columns: Vec<Column> = [&[SNAPSHOT], keys, rest].concat();
    Table { name, doc, columns, keys: keys.len() + 1, is_state: true }
}

fn table(name: &'static str, doc: &'static str, keys: usize, columns: &[Column]) -> Table {
    Table { name, doc, columns: columns.to_vec(), keys, is_state: false }
}

/// The tables of what was so at a snapshot.
pub fn states() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().filter(|table| table.is_state)
}

/// Every table.
pub static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let mut all = Vec::from(of_recording());
    all.extend(of_time());
    all.extend(of_sessions());
    all.extend(of_mutexes());
    all
});

/// The table of this name.
pub fn table_named(name: &str) -> &'static Table {
    TABLES.iter().find(|table| table.name == name).unwrap_or_else(|| panic!("no table `{name}` in the schema"))
}

fn of_recording() -> [Table; 2] {
    [
        table(
            "instance",
            "Instances that were recorded; one that came back under the same name is another one",
            1,
            &[
                int("id", "", "Number within the recording"),
                text("name", "As it was typed: a name, or a path"),
                int("created_ns", "ns", "When it was created, by the real-time clock"),
                int("device", "", "Device of its file"),
                int("inode", "", "Inode of its file"),
                text("host", "Name of the machine"),
                text("boot_id", "The kernel's id of the boot, within which monotonic times compare"),
                int("sessions_max", "", "Sessions that it has room for"),
                int("mutexes_max", "", "Mutexes that it has room for"),
                int("locations_max", "", "Locations that it has room for"),
                int("rows_max", "", "Rows of counters that it has room for, per session"),
                int("arena_bytes", "bytes", "Size of its arena"),
            ],
        ),
        table(
            "snapshot",
            "Snapshots, each of one instance, with the machine's load",
            1,
            &[
                int("id", "", "Number within the recording"),
                int("instance", "", "Which instance"),
                int("at_ns", "ns", "When, by the real-time clock"),
                int("monotonic_ns", "ns", "When, by the monotonic clock"),
                int(
                    "whole",
                    "",
                    "1 when every row was written at it, 0 when only those that had changed since the one before",
                ),
                int("deaths", "", "Deaths of holders so far"),
                int("session_gets", "", "Gets that sessions rather than mutexes have counted"),
                int("processors", "", "Processors that the recorder may use"),
                int("busy_ticks", "ticks", "Time of all processors with work so far"),
                int("all_ticks", "ticks", "Time of all processors so far"),
                int("steal_ticks", "ticks", "Time so far that a hypervisor gave to other machines"),
                int("runnable", "", "Threads that ran or were ready to"),
                int("pressure_us", "us", "Time so far in which a thread waited for a processor"),
                int("frequency_khz", "kHz", "Frequency of the first processor"),
                int("rounds", "", "Rounds of samples since the snapshot before"),
                int("rounds_ns", "ns", "Time that these rounds stand for"),
                int("sessions_ns", "ns", "Time of all sessions together in these rounds"),
                int("holding_ns", "ns", "Part of it in which they held something and did not wait"),
                int("spinning_ns", "ns", "Part of it in which they spun for the first time, before that is a wait"),
                int("recorder_ns", "ns", "Processor time of the recorder since the snapshot before"),
            ],
        ),
    ]
}

/// What happened at some moment.
fn of_time() -> [Table; 3] {
    [
        table(
            "sample",
            "Who held and who waited, looked at every few milliseconds; equal samples in a row are one",
            5,
            &[
                int("at_ns", "ns", "When the first of them was taken, by the real-time clock"),
                int("instance", "", "Which instance"),
                int("sid", "", "The session"),
                text("state", "`holds` or `waits`"),
                MUTEX,
                int("count", "", "Samples in a row"),
                int("length_ns", "ns", "Time that they stand for"),
                text("mode", "S, X, LX or E: held, or asked for"),
                int("location", "", "Where in the code; null where that is not known"),
                int("on_x", "", "Of a wait: 1 when the holder had X or LX and S or E was asked for"),
                int("for_event", "", "Of a wait: 1 when nobody can hold what is waited for"),
                int("since_ns", "ns", "Of a wait: its begin, by the monotonic clock"),
                text("step", "Of a wait: spin, yield, sleep or park"),
                int("blocker", "", "Of a wait: the session that held it, or one of several"),
                text("action", "What the session said it was at"),
                int(
                    "blocker_location",
                    "",
                    "Of a wait: where in the code the blocker had got it; null where that is not known",
                ),
                text("blocker_mode", "Of a wait: the blocker's mode; null where that is not known"),
                int(
                    "blocker_since_ns",
                    "ns",
                    "Of a wait: begin of the blocker's session, by the monotonic clock; successive sessions have one number",
                ),
                int("blocker_pid", "", "Of a wait: the blocker's process; 0 where that is not known"),
            ],
        ),
        table(
            "alert",
            "Alerts",
            2,
            &[
                int("instance", "", "Which instance"),
                int("number", "", "Number within the instance"),
                int("at_ns", "ns", "When, by the real-time clock"),
                text("text", "What"),
            ],
        ),
        state(
            "parameter",
            "Parameters in force; -1 as the type is the instance",
            &[int("type", "", "Number of the mutex type, -1 for the instance"), text("name", "The parameter")],
            &[
                int("value", "", "Its value; of one with names the position"),
                int("is_set", "", "1 when somebody has set it, 0 for the default"),
            ],
        ),
    ]
}

fn of_sessions() -> [Table; 3] {
    let sid = int("sid", "", "The session; 0 for those that have departed");
    let wait = [
        sid,
        int("mutex", "", "Number of the mutex; 0 for what found no row of its own"),
        int("location", "", "Where in the code it was asked for"),
        text("mode", "S, X, LX or E: asked for"),
        int("on_x", "", "1 when the holder had X or LX and S or E was asked for"),
        int("for_event", "", "1 when nobody can hold what is waited for"),
    ];
    let counters = Counter::NAMES.iter().zip(Counter::DESCRIPTIONS);
    let mut counters: Vec<Column> =
        counters.map(|(name, doc)| int(name, if name.ends_with("_ns") { "ns" } else { "" }, doc)).collect();
    counters.push(text(
        "lengths",
        "JSON: ended waits below 1 us, below 2, 4, 8 us and so on, up to the last that there are",
    ));
    [
        state(
            "session",
            "Sessions",
            &[sid],
            &[
                int("since_ns", "ns", "When it began, by the monotonic clock"),
                int("pid", "", "Its process"),
                int("tid", "", "Its thread"),
                text("name", "Its name"),
                int("high_priority", "", "1 for the high priority class"),
            ],
        ),
        state(
            "session_state",
            "What sessions were at",
            &[sid],
            &[
                text("state", "running, waiting, DEADLOCK or DEAD"),
                text("action", "What it said it was at"),
                int("kept", "", "1 when its thread has ended with a guard that was leaked"),
                int("gets", "", "Gets that it has counted itself"),
                text("holds", "JSON: mutex, mode and location of each mutex that it held"),
                text("blockers", "JSON: session and mode of each holder of what it waited for"),
                text("step", "Of a wait: spin, yield, sleep or park"),
                int("mutex", "", "What it waited for"),
                text("mode", "The mode asked for"),
                int("location", "", "Where"),
                int("on_x", "", "1 for a wait on X"),
                int("for_event", "", "1 when nobody can hold it"),
                int("wait_since_ns", "ns", "Begin of the wait, by the monotonic clock"),
                int("last_blocker", "", "The holder at its last step"),
                int("first_run", "", "Number of its first run of steps"),
                int("last_run", "", "Number of its latest run of steps"),
                int("cpu_ns", "ns", "Processor time of its thread so far; null where the kernel does not say it"),
                int("queued_ns", "ns", "Time of its thread in run queues so far"),
            ],
        ),
        state(
            "wait",
            "What each session has counted of each mutex, place and event since the instance was created",
            &wait,
            &counters,
        ),
    ]
}

fn of_mutexes() -> [Table; 5] {
    [
        state(
            "mutex",
            "Mutexes, and what else is waited for",
            &[MUTEX],
            &[
                int("type", "", "Number of its type"),
                text("name", "Its name, or that of the static variable which it is"),
                text("own_name", "Its name in the instance"),
                int("place", "", "0 in memory of the user's own, 1 in the arena, 2 in a process"),
                int("address", "", "Offset in the arena, or address in its process"),
                int("pid", "", "The process that registered it"),
                int("is_event", "", "1 when nobody can hold it"),
            ],
        ),
        state(
            "mutex_state",
            "What mutexes were at",
            &[MUTEX],
            &[
                int("gets", "", "Gets so far; null where they cannot be read"),
                int("noted_gets", "", "Gets that were noted when it went"),
                text("word", "Its word"),
                int("is_poisoned", "", "1 when a holder died and nobody has declared the data consistent"),
                int("parked", "", "Sessions parked"),
                text("holders", "JSON: session and mode of each holder"),
                int("pthread_in_use", "", "Under adaptive: 1 while pthread is in use"),
                int("switches", "", "Under adaptive: switches so far"),
                int("one_alone", "", "Under orbit: 1 while one session is active alone"),
                int("death_sid", "", "The last holder that died"),
                text("death_mode", "Its mode"),
                int("death_location", "", "Where it got the mutex"),
                int("looks", "", "Samples of its holder so far"),
                int("held", "", "Those that found one"),
                Column { name: "looked_s", kind: Kind::Real, unit: "s", doc: "Time that the samples stand for" },
                Column { name: "held_s", kind: Kind::Real, unit: "s", doc: "Part of it in which it was held" },
                int("looked_gets", "", "Gets in that time"),
            ],
        ),
        state("type", "Mutex types", &[int("number", "", "Number of the type")], &[text("name", "Its name")]),
        state(
            "location",
            "Places in the code",
            &[int("number", "", "Number of the location")],
            &[text("name", "Its name")],
        ),
        state(
            "sleep",
            "Mutex sleep history: the last sleep for each pair of mutex and blocking session",
            &[MUTEX, int("blocker", "", "The session that held it")],
            &[
                int("waiter", "", "The session that slept"),
                int("at_ns", "ns", "When, by the monotonic clock"),
                int("location", "", "Where in the code"),
                text("mode", "The mode asked for"),
                int("sleeps", "", "Steps of that wait so far"),
                int("gets", "", "Gets of the mutex by then"),
            ],
        ),
    ]
}
