//! `retrial cache`: made, worked on, looked at, checked by an operator.

#![allow(missing_docs)]

mod kit;

use kit::directory::File;
use kit::{Scratch, failed};
use retrial::{Class, MutexId, P};
use retrial_cache::{Cache, Key, Namespace};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const HOT: &str = "select 1 from dual where 1=2=200";

fn figure(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"))
}

#[test]
fn a_cache_is_made_worked_on_and_checked() {
    let scratch = Scratch::unborn();
    let said = scratch.run(&["cache", "create", "--bytes", "1M", "--sessions", "16"]);
    assert!(said.contains("1048576 bytes in 1 shards") && said.contains("Next: retrial cache work"), "{said}");
    let rows = scratch.rows(&["cache", "work", "--sessions", "2", "--for", "300ms", "--mark-hot", HOT]);
    assert!(figure(&rows[0], "executed") > 10, "{rows:?}");
    let objects = scratch.rows(&["cache", "ls", "--by", "name"]);
    assert_eq!(objects[0]["object"], "select 1 from dual where 1=2");
    assert_eq!((figure(&objects[0], "copies"), &objects[0]["namespace"]), (200, &Value::from("child")));
    assert_eq!(scratch.rows(&["cache", "hot"]).len(), 1);
    let hash = objects[0]["hash"].as_str().unwrap();
    scratch.run(&["cache", "unmark-hot", hash]);
    assert!(scratch.rows(&["cache", "hot"]).is_empty());
    let show = &scratch.rows(&["cache", "show"])[0];
    assert!(figure(show, "objects") >= 1 && figure(show, "taken_bytes") >= 112, "{show}");
    assert!(scratch.run(&["cache", "check"]).contains("The cache is whole."));
    scratch.run(&["cache", "flush"]);
    assert!(scratch.run(&["cache", "ls"]).contains("No objects."));
}

#[test]
fn a_cache_that_the_memory_has_no_room_for_is_refused_before_it_is_taken() {
    let scratch = Scratch::unborn();
    let refused = scratch.fail(&["cache", "create", "--bytes", "1000G"]);
    assert!(refused.contains("no space for object") && refused.contains("free -m"), "{refused}");
    // No instance is left.
    assert!(scratch.fail(&["cache", "ls"]).contains("no instance"));
}

#[test]
fn sessions_read_change_and_think_as_they_are_told() {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "--bytes", "64K", "--sessions", "16"]);
    let work = |more: &[&str]| {
        scratch.rows(&[&["cache", "work", "reads", "--sessions", "2", "--for", "300ms", "--run", "0s"], more].concat())
    };
    let instance = scratch.instance();
    let value = || {
        let cache = Cache::open(&instance, "objects").unwrap();
        let session = instance.session("reads", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        let pin = client.get(&Key::new(Namespace::Child, "", "select 1 from dual where 1=2")).unwrap().unwrap();
        pin.to_vec()
    };
    assert!(figure(&work(&[])[0], "executed") > 100);
    assert_eq!(value(), b"a plan");
    assert!(figure(&work(&["--change-after", "10"])[0], "executed") > 100);
    assert_eq!(value(), b"A plan");
    let thought = work(&["--think", "10ms"]);
    let most = 2.0 * (thought[0]["elapsed_s"].as_f64().unwrap() / 0.010 + 1.0);
    // The calibrated work may be done in half its time.
    assert!((figure(&thought[0], "executed") as f64) < 2.0 * most, "{thought:?}");
    let refused = scratch.fail(&["cache", "work", "tpcc", "--change-after", "10"]);
    assert!(refused.contains("--change-after with tpcc, expected cursor-pin, library-cache or reads"), "{refused}");
}

/// The object that each load gets first, and by which event and where its sessions wait for it: *… wait on X* if they
/// came when the holder had X already.
const FIRST: [(&str, Key<'_>, &str, &str); 3] = [
    (
        "cursor-pin",
        Key::new(Namespace::Child, "", "select 1 from dual where 1=2"),
        "cursor: pin E",
        "kksfbc [KKSCHLFSP2]",
    ),
    ("library-cache", Key::new(Namespace::Procedure, "SCOTT", "DEMO_PROC"), "library cache: mutex X", "kglpin1 4"),
    (
        "hash-table",
        Key::new(Namespace::Cursor, "", "select name from customers where id = :1"),
        "Cursor Parent: mutex S",
        "kglpndl1 95",
    ),
];

#[test]
fn loads_wait_as_those_of_the_sources() {
    for (load, key, event, location) in FIRST {
        let scratch = Scratch::unborn();
        scratch.run(&["cache", "create", "--bytes", "64K", "--sessions", "16"]);
        let instance = scratch.instance();
        let cache = Cache::open(&instance, "objects").unwrap();
        let session = instance.session("changes", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        drop(client.get_or_insert(&key, b"a plan").unwrap());
        let kind = if load == "library-cache" { "threads" } else { "processes" };
        let arguments = ["cache", "work", load, "--for", "1s", "--kind", kind, "--sessions", "3", "--json"];
        let run = scratch.start(&arguments);
        let at_work = || instance.tables().sessions().into_iter().filter(|session| session.action == load);
        kit::until("all sessions are there", || at_work().count() == 3);
        let held = client.exclusive(&key).unwrap().unwrap();
        let waiting = || at_work().filter(|session| session.wait.is_some()).count();
        kit::until("all sessions wait", || waiting() == 3);
        drop(held);
        let (code, said) = run.end();
        let rows: Vec<Value> = serde_json::from_str(&said).unwrap();
        let is_it = |row: &&Value| {
            let name = row["event"].as_str().unwrap();
            name.strip_suffix(" wait on X").unwrap_or(name) == event && row["location"] == location
        };
        let waits: u64 =
            rows[0]["waits"].as_array().unwrap().iter().filter(is_it).map(|row| figure(row, "waits")).sum();
        assert!(code == Some(0) && waits >= 3, "{load}: {said}");
        assert!(figure(&rows[0], "executed") >= 3, "{load}: {said}");
        assert!(rows[0]["cpu_s"].as_f64().is_some_and(|cpu_s| cpu_s > 0.0), "{load}: {said}");
        assert_eq!(figure(&rows[0], "sessions"), 3);
    }
}

#[test]
fn a_scheme_is_set_for_the_time_of_a_run() {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "--bytes", "64K", "--sessions", "16"]);
    let instance = scratch.instance();
    let named = |name| retrial::wait::named(name).unwrap() as u64;
    let [pin, library] = ["Cursor Pin", "Library Cache"].map(|name| instance.register_type(name).unwrap());
    instance.set(P::Scheme, Some(pin), named("ydb"));
    let run = scratch.start(&["cache", "work", "--for", "500ms", "--scheme", "sleep"]);
    let now = |of| instance.tables().param_set(P::Scheme, Some(of));
    kit::until("the scheme is set", || now(pin) == Some(named("sleep")) && now(library) == Some(named("sleep")));
    assert_eq!(run.end().0, Some(0));
    assert_eq!((now(pin), now(library)), (Some(named("ydb")), None));

    // However it ends.
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let run = scratch.start(&["cache", "work", "--for", "1h", "--scheme", "sleep"]);
        kit::until("the scheme is set", || now(pin) == Some(named("sleep")) && now(library) == Some(named("sleep")));
        let said = scratch.fail(&["cache", "work", "--for", "1h", "--scheme", "backoff"]);
        assert!(said.contains("expected one at a time"), "{said}");
        // Not what others set meanwhile.
        instance.set(P::Scheme, Some(library), named("latch"));
        run.die_of(signal);
        kit::until("it has its own again", || now(pin) == Some(named("ydb")));
        assert_eq!(now(library), Some(named("latch")));
        instance.unset(P::Scheme, Some(library));
    }
    assert_eq!(scratch.start(&["cache", "work", "--for", "1ms", "--scheme", "sleep"]).end().0, Some(0));
}

#[test]
fn killed_processes_have_successors() {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "--bytes", "64K", "--sessions", "16"]);
    let arguments = ["cache", "work", "library-cache", "--for", "400ms", "--kind", "processes", "--kill", "12"];
    let rows = scratch.rows(&arguments);
    assert!(figure(&rows[0], "killed") == 12 && figure(&rows[0], "executed") > 10, "{rows:?}");
    assert!(scratch.run(&["cache", "check"]).contains("The cache is whole."));
    assert!(scratch.fail(&["cache", "work", "--kill", "1"]).contains("expected processes"));
}

#[test]
fn tpcc_is_consistent_after_kills_and_says_when_it_is_not() {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "--bytes", "256K", "--sessions", "32"]);
    let work = ["cache", "work", "tpcc", "--kind", "processes", "--for", "1s", "--kill", "30", "--run", "100us"];
    let rows = scratch.rows(&work);
    let (figures, wrong) = (["neword", "payment", "owner_died", "undone"], &rows[0]["wrong"]);
    assert!(figures.iter().all(|name| figure(&rows[0], name) > 0) && wrong == "", "{rows:?}");
    assert!(scratch.run(&["cache", "check"]).contains("The cache is whole."));
    // The payments of a warehouse, in both of its rows.
    let instance = scratch.instance();
    let tables = instance.tables();
    let warehouse = tables.object_of(tables.mutex_named("tpcc warehouse 1").unwrap()).unwrap();
    for at in [16, 24] {
        // SAFETY: nobody else uses the instance.
        assert!(unsafe { instance.poke(warehouse.start + 48 + at, 1) });
    }
    let output = scratch.output(&["cache", "work", "tpcc", "--for", "50ms"]);
    let said = kit::both(&output);
    assert!(output.status.code() == Some(1) && said.contains("WRONG: condition 1: warehouse 1 has "), "{said}");
}

#[test]
fn results_of_the_engines_are_verified() {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "--bytes", "64K", "--sessions", "32"]);
    let instance = scratch.instance();
    for load in ["critical-section", "three-n-plus-one", "interest-posting"] {
        let work = ["cache", "work", load, "--kind", "processes", "--run", "50us"];
        let rows = scratch.rows(&[&work[..], &["--for", "500ms", "--kill", "15"]].concat());
        assert!(figure(&rows[0], "executed") > 10 && rows[0]["wrong"] == "", "{rows:?}");
        // A value that no session has written, while they work.
        let gets = || {
            let tables = instance.tables();
            tables.mutexes().iter().filter_map(|mutex| Some(tables.mutex_state(mutex.id)?.gets)).sum::<u64>()
        };
        let before = gets();
        let run = scratch.start(&[&work[..], &["--for", "1s"]].concat());
        kit::until("sessions work", || gets() > before + 200);
        let tables = instance.tables();
        let cells = tables.object_of(tables.mutex_named(&format!("{load} cells")).unwrap()).unwrap();
        // SAFETY: nobody follows what is written there.
        assert!(unsafe { instance.poke(cells.start + 48 + 32 + 16_000 * 8, 7) });
        let (code, said) = run.end();
        assert!(code == Some(1) && said.contains("WRONG: the cells come to "), "{load}: {said}");
    }
}

#[test]
fn pins_are_seen_while_they_last() {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "--bytes", "64K", "--sessions", "16"]);
    let instance = scratch.instance();
    let cache = Cache::open(&instance, "objects").unwrap();
    let session = instance.session("reads", Class::Normal).unwrap();
    let client = cache.join(&session).unwrap();
    let key = Key::new(Namespace::Procedure, "SCOTT", "P");
    let pin = client.get_or_insert(&key, b"text").unwrap();
    let seen = scratch.rows(&["cache", "pins"]);
    assert_eq!((&seen[0]["object"], &seen[0]["how"]), (&Value::from("SCOTT.P"), &Value::from("reads")));
    assert_eq!(figure(&seen[0], "sid"), u64::from(session.sid().number()));
    scratch.run(&["cache", "flush"]);
    assert_eq!(&*pin, b"text");
    drop(pin);
    assert!(scratch.run(&["cache", "pins"]).contains("Nothing is pinned."));
    scratch.run(&["cache", "mark-hot", "SCOTT.P", "4", "--namespace", "procedure"]);
    assert!(scratch.run(&["cache", "check", "--repair"]).contains("The cache is whole."));
}

#[test]
fn an_audit_finds_what_is_wrong_and_repair_mends_the_lists() {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "my objects", "--bytes", "64K", "--sessions", "16"]);
    scratch.run(&["cache", "work", "-c", "my objects", "--for", "50ms"]);
    let instance = scratch.instance();
    let tables = instance.tables();
    let shard = tables.object_of(tables.mutex_named("my objects shard 0").unwrap()).unwrap();
    // The chains: all heads are forgotten.
    let heads = shard.start + 48 + 648;
    // SAFETY: nobody else uses the instance.
    (heads..heads + 1024).step_by(8).for_each(|at| assert!(unsafe { instance.poke(at, 0) }));
    let output = scratch.output(&["cache", "check", "-c", "my objects"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("not in a chain"), "{said}");
    assert!(said.contains("Next: retrial cache check --repair --cache 'my objects'"), "{said}");
    assert!(scratch.run(&["cache", "check", "--repair", "-c", "my objects"]).contains("The cache is whole."));
}

#[test]
fn what_is_not_there_is_told_with_what_can_be_typed() {
    let scratch = Scratch::new();
    assert!(scratch.fail(&["cache", "ls"]).contains("no cache `objects` in this instance"));
    let full = scratch.fail(&["cache", "create", "--bytes", "1G"]);
    assert!(full.contains("bytes of the instance's arena") && full.contains("retrial create NEW --arena"), "{full}");
    assert!(scratch.fail(&["cache", "create", "--bytes", "100"]).contains("4,096 to 2^36 - 64 bytes"));
    assert!(failed(&kit::command(&["cache", "create", "--bytes", "soon"]).output().unwrap()).contains("soon"));
    let made = Scratch::unborn();
    made.run(&["cache", "create", "--bytes", "64K", "--sessions", "8"]);
    assert!(made.fail(&["cache", "mark-hot", "NONE", "4"]).contains("no object `NONE`"));
    let hash = "0123456789abcdef0123456789abcdef";
    assert!(made.fail(&["cache", "mark-hot", hash, "4"]).contains(hash));
    assert!(made.fail(&["cache", "mark-hot", "NONE", "4", "--namespace", "x"]).contains("expected one of object"));
    let unknown = made.fail(&["cache", "work", "library-cache", "--mark-hot", "SCOTT.NONE=4"]);
    assert!(
        unknown.contains("no object `SCOTT.NONE`") && unknown.contains("--mark-hot SCOTT.DEMO_PROC=4"),
        "{unknown}"
    );
    for wrong in ["SCOTT.DEMO_PROC", "SCOTT.DEMO_PROC=1", "SCOTT.DEMO_PROC=300"] {
        let said = made.fail(&["cache", "work", "library-cache", "--mark-hot", wrong]);
        assert!(said.contains("expected OBJECT=COPIES with 2 to 255 copies"), "{said}");
    }
    assert!(made.fail(&["cache", "work", "--scheme", "none"]).contains("orbit"));
    let kills = ["cache", "work", "--kind", "processes", "--kill", "4000000000", "--for", "1ms"];
    assert!(failed(&kit::command(&kills).output().unwrap()).contains("1000000"), "{kills:?}");
    made.instance().mutex_bytes("theirs shard 0", "a program's", 8).unwrap();
    let taken = made.fail(&["cache", "create", "theirs", "--bytes", "8K"]);
    assert!(
        taken.contains("object `theirs shard 0` belongs to any program") && taken.contains("create OTHER"),
        "{taken}"
    );
    assert!(made.fail(&["cache", "create", "--bytes", "128K"]).contains("bytes in 1 shards was asked for"));
}

/// A cache with an object that was executed and one that was only read.
fn two_objects() -> (Scratch, retrial::Instance) {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "--bytes", "64K", "--sessions", "16"]);
    let instance = scratch.instance();
    {
        let cache = Cache::open(&instance, "objects").unwrap();
        let session = instance.session("executes", Class::Normal).unwrap();
        let client = cache.join(&session).unwrap();
        let child =
            Key::new(Namespace::Child, "SCOTT", "select 'a name that is longer than what a mutex can have'").version(3);
        drop(client.get_or_insert(&child, b"a plan").unwrap());
        (0..7).for_each(|_| assert!(client.execute(&child, |_| ()).unwrap().is_some()));
        drop(client.get_or_insert(&Key::new(Namespace::Procedure, "SCOTT", "P"), b"text").unwrap());
    }
    (scratch, instance)
}

#[test]
fn sql_shows_the_objects_of_a_cache_and_leads_from_a_mutex_to_one() {
    let (scratch, instance) = two_objects();
    let bytes = std::fs::read(scratch.path()).unwrap();
    let rows = scratch.rows(&["sql", "SELECT * FROM v$db_object_cache ORDER BY name"]);
    assert_eq!(rows.len(), 2, "{rows:?}");
    let (read, executed) = (&rows[0], &rows[1]);
    assert_eq!(
        (&read["owner"], &read["name"], &read["namespace"]),
        (&"SCOTT".into(), &"P".into(), &"procedure".into())
    );
    assert_eq!((&read["mutex"], &read["gets"], &read["type"]), (&Value::Null, &Value::Null, &"Library Cache".into()));
    assert_eq!(
        (figure(executed, "gets"), figure(executed, "version"), &executed["type"]),
        (14, 3, &"Cursor Pin".into())
    );
    assert_eq!((figure(executed, "value_bytes"), figure(executed, "hot_copies"), figure(executed, "pins")), (6, 1, 0));
    assert_eq!(read["state"], "read privately");
    // The same by mutex, in the words that name it.
    let mutex = figure(executed, "mutex");
    assert_eq!(instance.tables().mutex_info(MutexId(mutex as u32)).map(|info| info.gets), Some(None));
    let joined = "SELECT c.name FROM v$object o JOIN v$db_object_cache c USING (mutex)";
    assert_eq!(scratch.rows(&["sql", joined])[0]["name"], executed["name"]);
    let said = scratch.run(&["who", "--mutex", &format!("#{mutex}")]);
    assert!(
        said.contains(
            "of object `SCOTT.select 'a name that is longer than what a mutex can have' version 3` of cache objects"
        ),
        "{said}"
    );
    // An address in its block is its as well, and the shard's where no object is.
    let blocks = scratch.rows(&["sql", "SELECT * FROM x$kglob"]);
    let of = |name: &str| blocks.iter().find(|block| block["name"] == name || block["phase"] == name).unwrap();
    let at =
        |block: &Value| format!("{:#x}", u64::from_str_radix(&block["addr"].as_str().unwrap()[2..], 16).unwrap() + 8);
    let said = scratch.run(&["who", "--mutex", &at(of(executed["name"].as_str().unwrap()))]);
    assert!(said.contains("of cache objects"), "{said}");
    assert!(scratch.run(&["who", "--mutex", &at(of("free"))]).contains("objects shard 0"));
    let all: u64 = blocks.iter().map(|block| figure(block, "bytes")).sum();
    assert!(all > 60_000 && all <= 65_536, "{all} bytes in blocks");
    assert!(std::fs::read(scratch.path()).unwrap() == bytes, "looking has changed the instance");
}

#[test]
fn a_recording_has_the_mutexes_of_objects_and_a_file_that_cannot_be_read_is_told() {
    let (scratch, _instance) = two_objects();
    let file = File::new("r.db");
    scratch.run(&["record", &file, "--for", "300ms"]);
    let ask = |statement: &str| {
        String::from_utf8(kit::command(&["sql", &file, statement, "--csv"]).output().unwrap().stdout).unwrap()
    };
    assert_eq!(ask("SELECT count(*) AS n FROM v$db_object_cache").trim(), "n\n0");
    assert_eq!(ask("SELECT count(*) AS n FROM x$kglob").trim(), "n\n0");
    assert!(ask("SELECT name FROM v$mutex").contains("SCOTT.select 'a name"));
    std::fs::write(scratch.path(), b"none").unwrap();
    assert!(!scratch.fail(&["sql", "SELECT * FROM v$db_object_cache"]).is_empty());
}

#[test]
fn copies_are_limited_and_the_error_says_how_to_change_that() {
    let (scratch, _instance) = two_objects();
    scratch.run(&["cache", "limit-copies", "4"]);
    assert_eq!(figure(&scratch.rows(&["cache", "show"])[0], "copies_max"), 4);
    let said = scratch.fail(&["cache", "mark-hot", "SCOTT.P", "5", "--namespace", "procedure"]);
    assert!(said.contains("5 copies of an object, this cache allows 4") && said.contains("limit-copies"), "{said}");
    scratch.run(&["cache", "mark-hot", "SCOTT.P", "4", "--namespace", "procedure"]);
    scratch.run(&["cache", "limit-copies", "255"]);
    scratch.run(&["cache", "mark-hot", "SCOTT.P", "200", "--namespace", "procedure"]);
}

const CURSOR: Key<'_> = Key::new(Namespace::Child, "SCOTT", "select 1");

/// Says that others are to stop, at its end.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Executions per second by four sessions for so long, while `deed` is done; each changes the object after so many
/// executions, if it is to change.
fn executing(instance: &retrial::Instance, changes_after: Option<u64>, time: Duration, deed: impl FnOnce()) -> f64 {
    let cache = Cache::open(instance, "objects").unwrap();
    let (stop, executed) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let session = instance.session("executes", Class::Normal).unwrap();
                let client = cache.join(&session).unwrap();
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    drop(client.get_or_insert(&CURSOR, b"a plan").unwrap());
                    assert!(client.execute(&CURSOR, |plan| assert_eq!(plan, b"a plan")).unwrap().is_some());
                    count += 1;
                    if changes_after.is_some_and(|after| count % after == 0) {
                        drop(client.exclusive(&CURSOR).unwrap());
                    }
                }
                executed.fetch_add(count, Ordering::Relaxed);
            });
        }
        // The others end also where `deed` panics.
        let _stop = Stop(&stop);
        deed();
        std::thread::sleep(time.saturating_sub(start.elapsed()));
    });
    executed.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

fn suggested(scratch: &Scratch, changes_after: Option<u64>) -> Value {
    let mut rows = Vec::new();
    executing(&scratch.instance(), changes_after, Duration::ZERO, || {
        std::thread::sleep(Duration::from_millis(100));
        rows = scratch.rows(&["cache", "suggest-hot", "--for", "1500ms"]);
    });
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["object"], "SCOTT.select 1");
    rows.remove(0)
}

#[test]
fn what_is_suggested_can_be_typed_and_is_measured() {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "--bytes", "1M", "--sessions", "16"]);
    let idle = scratch.run(&["cache", "suggest-hot", "--for", "10ms"]);
    assert!(
        idle.contains("No session waited for an object. 0 gets of objects' mutexes were seen in 10.0 ms."),
        "{idle}"
    );
    // On a machine that other tests fill, sessions may meet too seldom within a second.
    let mut tries = (0..5).map(|_| suggested(&scratch, None));
    let row = tries.find(|row| row["command"].is_string()).expect("a command within five times");
    assert!(row["gets_per_s"].as_f64() > Some(1000.0) && row["utilization"].as_f64() > Some(0.0), "{row}");
    assert_eq!(row["births_per_s"].as_f64(), Some(0.0), "{row}");
    let command = row["command"].as_str().unwrap();
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    assert!(kit::command(&words).output().unwrap().status.success(), "{command}");
    let hot = suggested(&scratch, None);
    assert_eq!(hot["copies_now"], row["copies"]);
    assert!(hot["why"].is_string(), "{hot}");
}

#[test]
fn a_suggestion_ends_when_the_instance_has_gone() {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "--bytes", "1M", "--sessions", "16"]);
    let mut suggest = kit::command(&["cache", "suggest-hot", "--for", "60s", "-i", &scratch.name]);
    let suggest = suggest.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let maps = format!("/proc/{}/maps", suggest.id());
    kit::until("it looks", || std::fs::read_to_string(&maps).is_ok_and(|maps| maps.contains(&scratch.name)));
    let began = Instant::now();
    std::fs::remove_file(scratch.path()).unwrap();
    let said = kit::failed(&suggest.wait_with_output().unwrap());
    assert!(said.contains("has gone after") && began.elapsed() < Duration::from_secs(30), "{said}");
}

#[test]
#[ignore = "measures: for a machine that does nothing else"]
fn an_object_that_changes_all_the_time_loses_with_copies_and_the_advice_said_so() {
    let scratch = Scratch::unborn();
    scratch.run(&["cache", "create", "--bytes", "1M", "--sessions", "16"]);
    let row = suggested(&scratch, Some(2));
    assert!(row["command"].is_null(), "{row}");
    let hash = row["hash"].as_str().unwrap();
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..14 {
        let copies = ["1", "2"][round % 2];
        scratch.run(&["cache", "mark-hot", hash, "2"]);
        if copies == "1" {
            scratch.run(&["cache", "unmark-hot", hash]);
        }
        rates[round % 2].push(executing(&scratch.instance(), Some(2), Duration::from_millis(300), || {}));
    }
    let [alone, copied] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    assert!(copied < alone, "{alone} executions/s, {copied} with a copy more");
}

#[test]
fn a_cache_that_cannot_be_is_answered_and_makes_no_instance() {
    let scratch = Scratch::unborn();
    for (options, says) in [
        (&["--shards", "0"][..], "1 to 4,096 shards"),
        (&["--shards", "4294967295"], "1 to 4,096 shards"),
        (&["--bytes", "0"], "bytes / shards"),
        (&["--bytes", "18446744073709551615", "--shards", "1"], "bytes / shards"),
        (&["--bytes", "many"], "--bytes `many`"),
    ] {
        let said = scratch.fail(&[&["cache", "create"], options].concat());
        assert!(said.contains(says) && said.contains("retrial::"), "{options:?}: {said}");
        assert!(!scratch.path().exists(), "{options:?}");
    }
    scratch.run(&["cache", "create", "--bytes", "64K", "--sessions", "16"]);
    scratch.run(&["cache", "limit-copies", "1"]);
    let said = scratch.fail(&["cache", "mark-hot", "V", "4"]);
    // A number of copies that the command takes.
    assert!(said.contains("retrial cache limit-copies N") && !said.contains("mark-hot OBJECT 1"), "{said}");
}
