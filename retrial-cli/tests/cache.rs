//! `retrial cache`: made, worked on, looked at, checked by an operator.

#![allow(missing_docs)]

mod kit;

use kit::{Scratch, failed};
use retrial::{Class, MutexId};
use retrial_cache::{Cache, Key, Namespace};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn figure(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"))
}

#[test]
fn a_cache_is_made_worked_on_and_checked() {
    let scratch = Scratch::unborn();
    let said = scratch.run(&["cache", "create", "--bytes", "1M", "--sessions", "16"]);
    assert!(said.contains("1048576 bytes in 1 shards") && said.contains("Next: retrial cache work"), "{said}");
    let rows = scratch.rows(&["cache", "work", "--sessions", "2", "--for", "300ms", "--copies", "200"]);
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
    scratch.run(&["cache", "create", "--bytes", "64K", "--sessions", "16"]);
    scratch.run(&["cache", "work", "--for", "50ms"]);
    let instance = scratch.instance();
    let tables = instance.tables();
    let shard = tables.object_of(tables.mutex_named("objects shard 0").unwrap()).unwrap();
    // The chains: all heads are forgotten.
    let heads = shard.start + 48 + 584;
    // SAFETY: nobody else uses the instance.
    (heads..heads + 1024).step_by(8).for_each(|at| assert!(unsafe { instance.poke(at, 0) }));
    let output = scratch.output(&["cache", "check"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("not in a chain"), "{said}");
    assert!(scratch.run(&["cache", "check", "--repair"]).contains("The cache is whole."));
}

#[test]
fn what_is_not_there_is_told_with_what_can_be_typed() {
    let scratch = Scratch::new();
    assert!(scratch.fail(&["cache", "ls"]).contains("no cache `objects` in this instance"));
    let full = scratch.fail(&["cache", "create", "--bytes", "1G"]);
    assert!(full.contains("bytes of the instance's arena") && full.contains("retrial create NAME --arena"), "{full}");
    assert!(scratch.fail(&["cache", "create", "--bytes", "100"]).contains("4,096 to 2^36 - 64 bytes"));
    assert!(failed(&kit::command(&["cache", "create", "--bytes", "soon"]).output().unwrap()).contains("soon"));
    let made = Scratch::unborn();
    made.run(&["cache", "create", "--bytes", "64K", "--sessions", "8"]);
    assert!(made.fail(&["cache", "mark-hot", "NONE", "4"]).contains("no object `NONE`"));
    let hash = "0123456789abcdef0123456789abcdef";
    assert!(made.fail(&["cache", "mark-hot", hash, "4"]).contains(hash));
    assert!(made.fail(&["cache", "mark-hot", "NONE", "4", "--namespace", "x"]).contains("expected one of object"));
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
    let path = std::env::temp_dir().join(format!("retrial-cache-recording-{}.db", std::process::id()));
    let file = path.to_str().unwrap();
    scratch.run(&["record", file, "--for", "300ms"]);
    let ask = |statement: &str| {
        String::from_utf8(kit::command(&["sql", file, statement, "--csv"]).output().unwrap().stdout).unwrap()
    };
    assert_eq!(ask("SELECT count(*) AS n FROM v$db_object_cache").trim(), "n\n0");
    assert_eq!(ask("SELECT count(*) AS n FROM x$kglob").trim(), "n\n0");
    assert!(ask("SELECT name FROM v$mutex").contains("SCOTT.select 'a name"));
    std::fs::remove_file(path).unwrap();
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
    assert!(scratch.run(&["cache", "suggest-hot", "--for", "10ms"]).contains("No session waited for an object."));
    let row = suggested(&scratch, None);
    assert!(row["gets_per_s"].as_f64() > Some(1000.0) && row["utilization"].as_f64() > Some(0.0), "{row}");
    assert_eq!(row["births_per_s"].as_f64(), Some(0.0), "{row}");
    // With as many copies as processors no session that runs meets another one.
    let command = row["command"].as_str().unwrap_or_else(|| panic!("{row}"));
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    assert!(kit::command(&words).output().unwrap().status.success(), "{command}");
    let hot = suggested(&scratch, None);
    assert_eq!(hot["copies_now"], row["copies"]);
    let (before, after) = (row["utilization"].as_f64().unwrap(), hot["utilization"].as_f64().unwrap());
    assert!(after < before / 2.0, "the share of gets that miss was {before}, and is {after}");
    assert!(hot["command"].is_null() && hot["why"].is_string(), "{hot}");
}

#[test]
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
