//! `retrial attach`: on programs that were not started under `retrial run`.

#![allow(missing_docs)]

mod kit;
#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;
#[path = "kit/preload.rs"]
mod preload;

use kit::directory::Directory;
use kit::{RETRIAL, Running, Scratch, both, command, failed, until};
use not_tested::not_tested;
use preload::library;
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// What the program of [`WAITING`] does is said by its letters: `h` a holder that sleeps and three threads that wait for it,
/// `d` two threads that wait for each other, `c` a thread that waits on a condition, `s` one at a semaphore, `l` one of two that
/// takes a lock of Rust's layout beside which a thread's number lies, `r` a robust shared mutex, `i` one with priority
/// inheritance, `e` a thread that has ended with a mutex, `j` a thread that waits for another's end, `o` one that
/// does so and has the mutex that the other one waits for, `f` a process that fork has
/// made while a thread had a mutex, `b` a thread that is busy with and without a mutex.
const WAITING: &str = r#"
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER, first = PTHREAD_MUTEX_INITIALIZER,
    second = PTHREAD_MUTEX_INITIALIZER, latch = PTHREAD_MUTEX_INITIALIZER, lost = PTHREAD_MUTEX_INITIALIZER,
    busy = PTHREAD_MUTEX_INITIALIZER, robust, inherit;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t both;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static sem_t posts;
static struct { atomic_int word; int count, owner, users, kind, rest; } other = { .word = 2, .users = 1 };
__attribute__((noinline)) void doze(void) { for (;;) sleep(100); }
static void *named(const char *name) { pthread_setname_np(pthread_self(), name); return 0; }
static void *waits(void *mutex) { named("waiter"); pthread_mutex_lock(mutex); return 0; }
static void *holds(void *mutex) { named("holder"); pthread_mutex_lock(mutex); pthread_barrier_wait(&both); doze(); return 0; }
static void *ends(void *mutex) { pthread_mutex_lock(mutex); return 0; }
static void *forth(void *unused) {
    named("forth"); pthread_mutex_lock(&first); pthread_barrier_wait(&both); pthread_mutex_lock(&second); return unused;
}
static void *back(void *unused) {
    named("back"); pthread_mutex_lock(&second); pthread_barrier_wait(&both); pthread_mutex_lock(&first); return unused;
}
static void *waits_for_event(void *unused) {
    named("idler"); pthread_mutex_lock(&latch); for (;;) pthread_cond_wait(&ready, &latch); return unused;
}
static void *takes(void *unused) { named("taker"); sem_wait(&posts); return unused; }
static void *rusts(void *unused) {
    named("ruster"); other.owner = getpid();
    syscall(SYS_futex, &other.word, FUTEX_WAIT_BITSET_PRIVATE, 2, 0, 0, -1); return unused;
}
static void *works(void *unused) {
    named("worker");
    for (;;) { pthread_mutex_lock(&busy); usleep(3000); pthread_mutex_unlock(&busy); sched_yield(); }
    return unused;
}
static void *joins(void *mutex) {
    pthread_t thread; named("joiner"); pthread_mutex_lock(mutex);
    pthread_create(&thread, 0, waits, mutex); pthread_join(thread, 0); return 0;
}
static void *writes(void *unused) {
    named("scribe"); pthread_rwlock_wrlock(&table); pthread_barrier_wait(&both); doze(); return unused;
}
static void *reads(void *unused) { named("reader"); pthread_rwlock_rdlock(&table); return unused; }
static void start(void *(*run)(void *), void *with) { pthread_t thread; pthread_create(&thread, 0, run, with); }
static void held_by_one(pthread_mutex_t *mutex, int waiters) {
    start(holds, mutex); pthread_barrier_wait(&both);
    for (int i = 0; i < waiters; i++) start(waits, mutex);
}
static void mutex(pthread_mutex_t *mutex, int robust, int shared, int protocol) {
    pthread_mutexattr_t how; pthread_mutexattr_init(&how);
    if (robust) pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    if (shared) pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setprotocol(&how, protocol); pthread_mutex_init(mutex, &how);
}
int main(int count, char **words) {
    pthread_barrier_init(&both, 0, 2);
    for (const char *letter = words[1]; *letter; letter++) {
        pthread_t thread;
        switch (*letter) {
        case 'h': held_by_one(&gate, 3); break;
        case 'd': start(forth, 0); start(back, 0); break;
        case 'c': start(waits_for_event, 0); break;
        case 's': start(takes, 0); break;
        case 'w': start(writes, 0); pthread_barrier_wait(&both); start(reads, 0); break;
        case 'l': start(rusts, 0); break;
        case 'r': mutex(&robust, 1, 1, PTHREAD_PRIO_NONE); held_by_one(&robust, 1); break;
        case 'i': mutex(&inherit, 0, 0, PTHREAD_PRIO_INHERIT); held_by_one(&inherit, 1); break;
        case 'e': pthread_create(&thread, 0, ends, &lost); pthread_join(thread, 0); start(waits, &lost); break;
        case 'j': pthread_create(&thread, 0, takes, 0); pthread_join(thread, 0); break;
        case 'o': start(joins, &gate); break;
        case 'f':
            held_by_one(&gate, 0);
            if (fork() == 0) { prctl(PR_SET_PDEATHSIG, SIGKILL); printf("%d\n", getpid()); fflush(stdout); waits(&gate); }
            break;
        case 'b': for (int i = 0; i < 3; i++) start(works, 0); break;
        }
    }
    named("main");
    puts("started"); fflush(stdout);
    doze();
}
"#;

/// The program, compiled once.
fn compiled() -> Directory {
    let directory = Directory::new();
    let (source, program) = (directory.join("waiting.c"), directory.join("waiting"));
    fs::write(&source, WAITING).unwrap();
    let compiled = Command::new("cc").args(["-g", "-O1", "-pthread", "-o"]).args([&program, &source]).status().unwrap();
    assert!(compiled.success());
    directory
}

/// The program under way; `None` where this user may not look into it.
fn started(letters: &str) -> Option<(Running, Directory)> {
    let directory = compiled();
    let mut program = Command::new(directory.join("waiting"));
    let program = Running::new(program.arg(letters).stdin(Stdio::null()));
    if !may_look(program.pid()) {
        return None;
    }
    Some((program, directory))
}

/// Whether this user may look into processes of its own.
fn may_look(pid: u32) -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let may = fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok();
        if !may {
            not_tested("this user may not look into other processes");
        }
        may
    })
}

fn attach(pid: u32, options: &[&str]) -> String {
    let output = command(&[&["attach", &pid.to_string()], options].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn rows(pid: u32, options: &[&str]) -> Vec<Value> {
    serde_json::from_str(&attach(pid, &[options, &["--json"]].concat())).unwrap()
}

/// Looks until so many threads wait for mutexes and for events.
fn until_waiting(pid: u32, mutexes: usize, events: usize) -> Vec<Value> {
    let mut found = Vec::new();
    for _ in 0..TRIES {
        found = rows(pid, &[]);
        let waiting = found.iter().filter(|row| row["mutex"].is_string()).count();
        let all = found.iter().filter(|row| row["waits_for"].is_string()).count();
        if (waiting, all - waiting) == (mutexes, events) {
            return found;
        }
    }
    panic!("not {mutexes} waits for mutexes and {events} for events after {TRIES} looks: {found:?}");
}

/// Number of looks until threads wait; each starts a command.
const TRIES: usize = 1000;

fn named<'r>(rows: &'r [Value], name: &str) -> Vec<&'r Value> {
    rows.iter().filter(|row| row["name"] == name).collect()
}

#[test]
fn the_thread_that_has_a_mutex_stands_above_those_that_wait_for_it() {
    let Some((program, _directory)) = started("h") else { return };
    let pid = program.pid();
    let found = until_waiting(pid, 3, 0);
    assert_eq!(found.len(), 4, "{found:?}");
    let holder = &found[0];
    assert_eq!((&holder["name"], &holder["state"], &holder["depth"]), (&"holder".into(), &"holding".into(), &0.into()));
    assert_eq!((&holder["pid"], &holder["waiting_behind"]), (&pid.into(), &3.into()));
    let held = &holder["holds"][0];
    assert_eq!((&held["mutex"], &held["kind"]), (&"gate (waiting)".into(), &"pthread mutex".into()));
    for waiter in named(&found, "waiter") {
        assert_eq!((&waiter["behind_tid"], &waiter["mutex"]), (&holder["tid"], &"gate (waiting)".into()));
        assert_eq!((&waiter["state"], &waiter["depth"]), (&"waiting".into(), &1.into()));
    }
    until("it sleeps", || rows(pid, &[])[0]["thread"]["system_call"] == "clock_nanosleep");
    let text = attach(pid, &[]);
    let first = format!("thread {} (holder): asleep in ", holder["tid"]);
    assert!(text.starts_with(&first) && text.contains("\n└─ gate (waiting), held: 3 wait\n"), "{text}");
    assert!(text.contains("3 threads wait for a mutex, 0 for an event, of 5 threads.\n"), "{text}");
    assert!(text.contains("Not seen from outside: threads that spin"), "{text}");
    if cfg!(target_arch = "x86_64") {
        assert!(text.contains("in pthread_mutex_lock at waits (waiting.c:"), "{text}");
        assert!(text.contains("calls: ") && text.contains("doze (waiting.c:"), "{text}");
    }
    // A thread's number leads to its process; a stopped holder is said to be.
    assert_eq!(rows(u32::try_from(holder["tid"].as_u64().unwrap()).unwrap(), &[]).len(), 4);
    // SAFETY: our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(i32::try_from(pid).unwrap(), libc::SIGSTOP) }, 0);
    until("the stop", || rows(pid, &[])[0]["thread"]["state"] == "stopped");
    let text = attach(pid, &[]);
    assert!(text.contains("(holder): stopped") && text.contains(&format!("Next: kill -CONT {pid}\n")), "{text}");
    assert!(attach(pid, &["--csv"]).starts_with("tree,depth,pid,tid,name,state,mutex,"));
}

#[test]
fn threads_that_wait_for_each_other_are_a_deadlock() {
    let Some((program, _directory)) = started("d") else { return };
    let found = until_waiting(program.pid(), 2, 0);
    assert!(found.len() == 2 && found.iter().all(|row| row["state"] == "DEADLOCK"), "{found:?}");
    let text = attach(program.pid(), &[]);
    assert!(text.contains("DEADLOCK: 2 threads wait for each other, and go on only if"), "{text}");
    let (forth, back) = (&named(&found, "forth")[0]["tid"], &named(&found, "back")[0]["tid"]);
    for (waiter, name, mutex, holder) in [(forth, "forth", "second", back), (back, "back", "first", forth)] {
        let said =
            text.lines().find(|line| line.starts_with(&format!("  thread {waiter} ({name}) waits for {mutex} ")));
        assert!(said.is_some_and(|line| line.ends_with(&format!(", held by thread {holder}"))), "{text}");
    }
    assert!(attach(program.pid(), &["--for", "20ms"]).contains("DEADLOCK: 2 threads"));
}

#[test]
fn a_thread_that_joins_one_that_waits_for_its_mutex_is_in_a_deadlock() {
    let Some((program, _directory)) = started("o") else { return };
    let found = until_waiting(program.pid(), 1, 1);
    assert!(found.len() == 2 && found.iter().all(|row| row["state"] == "DEADLOCK"), "{found:?}");
    let (joiner, waiter) = (&named(&found, "joiner")[0], &named(&found, "waiter")[0]);
    assert_eq!((&joiner["behind_tid"], &waiter["behind_tid"]), (&waiter["tid"], &joiner["tid"]), "{found:?}");
    assert_eq!((joiner["holds"].as_array().unwrap().len(), waiter["holds"].as_array().unwrap().len()), (1, 0));
    let text = attach(program.pid(), &[]);
    assert!(text.contains("1 thread waits for a mutex, 1 for an event, of 3 threads.\n"), "{text}");
    for line in [
        "DEADLOCK: 2 threads wait for each other",
        &format!("(joiner) waits for the end of thread {} (waiter)", waiter["tid"]),
        &format!("held by thread {}\n", joiner["tid"]),
        "its end: 1 waits\n",
        "it does not happen if gate (waiting) is released before the thread is joined\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    if cfg!(target_arch = "x86_64") {
        assert!(text.contains("   calls: joins (waiting.c:"), "{text}");
    }
}

#[test]
fn conditions_semaphores_and_other_locks_are_not_called_mutexes() {
    let Some((program, _directory)) = started("csl") else { return };
    let found = until_waiting(program.pid(), 0, 3);
    assert!(found.iter().all(|row| row["state"] == "waiting for event" && row["waits_for"] == "event"), "{found:?}");
    let text = attach(program.pid(), &[]);
    assert!(text.starts_with("No thread waits for a mutex.\n") && !text.contains("held"), "{text}");
    let idler = text.lines().find(|line| line.contains("(idler) waits for an event at ready+0x")).unwrap_or_default();
    if cfg!(target_arch = "x86_64") {
        assert!(idler.contains("in pthread_cond_wait at waits_for_event (waiting.c:"), "{text}");
    }
    assert!(text.contains("(ruster) waits for an event at other (waiting)"), "{text}");
    assert!(text.contains("0 threads wait for a mutex, 3 for an event, of 4 threads.\n"), "{text}");
}

#[test]
fn a_rwlock_is_named_with_the_writer_that_has_it() {
    let Some((program, _directory)) = started("w") else { return };
    let pid = program.pid();
    // Before it is there, the first thread may wait for the scribe, at the barrier.
    until("the reader waits", || named(&rows(pid, &[]), "reader").iter().any(|row| row["waits_for"].is_string()));
    let found = until_waiting(pid, 0, 1);
    let text = attach(pid, &[]);
    if cfg!(target_arch = "x86_64") {
        let reader =
            text.lines().find(|line| line.contains("(reader) waits for the rwlock table (waiting), held by thread "));
        assert!(reader.is_some_and(|line| line.contains(" (scribe) in pthread_rwlock_rdlock at reads (")), "{text}");
        let reader = &named(&found, "reader")[0];
        assert_eq!((&reader["state"], &reader["waits_for"]), (&json!("waiting"), &json!("pthread rwlock, read")));
    }
}

#[test]
fn robust_mutexes_and_those_with_priority_inheritance_say_who_has_them() {
    let Some((program, _directory)) = started("ri") else { return };
    let found = until_waiting(program.pid(), 2, 0);
    let kind = |mutex: &str| {
        let held = named(&found, "holder").into_iter().map(|row| &row["holds"][0]);
        held.into_iter().find(|held| held["mutex"] == format!("{mutex} (waiting)")).map(|held| held["kind"].clone())
    };
    assert_eq!(kind("robust"), Some("pthread mutex, robust, shared".into()), "{found:?}");
    assert_eq!(kind("inherit"), Some("pthread mutex, priority inheritance".into()), "{found:?}");
}

#[test]
fn a_thread_that_has_ended_with_a_mutex_and_one_that_is_joined_are_told() {
    let Some((program, _directory)) = started("ej") else { return };
    let found = until_waiting(program.pid(), 1, 2);
    let taker = &named(&found, "taker")[0]["tid"];
    assert!(found.iter().any(|row| row["waits_for"] == format!("end of thread {taker}")), "{found:?}");
    let text = attach(program.pid(), &[]);
    assert!(
        text.contains(": is not there: it has ENDED with the mutex\n")
            && text.contains("lost (waiting), held: 1 waits"),
        "{text}"
    );
    assert!(text.contains(&format!("waits for the end of thread {taker} (taker)")), "{text}");
}

#[test]
fn a_mutex_that_fork_has_copied_while_it_was_held_is_one_that_nobody_can_give_back() {
    let Some((mut program, _directory)) = started("f") else { return };
    let mut line = program.line();
    if line.starts_with("started") {
        line = program.line();
    }
    let copy: u32 = line.trim().parse().unwrap();
    let found = until_waiting(copy, 1, 0);
    assert_eq!((&found[0]["pid"], &found[1]["pid"]), (&program.pid().into(), &copy.into()), "{found:?}");
    let text = attach(copy, &[]);
    assert!(text.contains(&format!("from process {}: NOBODY can give this copy back", program.pid())), "{text}");
}

#[test]
fn looks_are_counted_by_mutex() {
    let Some((program, _directory)) = started("hbc") else { return };
    until("all wait", || attach(program.pid(), &[]).contains("(idler) waits"));
    let found = rows(program.pid(), &["--for", "300ms", "--every", "2ms"]);
    let row = |mutex: &str| found.iter().find(|row| row["mutex"] == format!("{mutex} (waiting)")).unwrap().clone();
    let gate = row("gate");
    assert_eq!((gate["waiting_avg"].as_f64(), gate["waiting_max"].as_u64()), (Some(3.0), Some(3)), "{found:?}");
    assert_eq!((gate["held_pct"].as_f64(), gate["held_most_pct"].as_f64()), (Some(100.0), Some(100.0)), "{found:?}");
    assert!(
        gate["held_most_by"].as_str().unwrap().contains("(holder)")
            && gate["looks"].as_u64().unwrap() > 1
            && gate["looked_s"].as_f64() >= Some(0.3),
        "{gate}"
    );
    // One of three has it nearly always, and no one of them always.
    let busy = row("busy");
    assert!(
        (0.1..2.9).contains(&busy["waiting_avg"].as_f64().unwrap()) && busy["held_pct"].as_f64() > Some(20.0),
        "{busy}"
    );
    let event = found.last().unwrap();
    assert_eq!((&event["kind"], &event["held_pct"]), (&"event".into(), &Value::Null), "{found:?}");
    let text = attach(program.pid(), &["--for", "50ms"]);
    assert!(text.contains("mutex ") && text.contains("gate (waiting)") && text.contains(" looks in "), "{text}");
    assert!(text.contains("waiting for an event: 1 on average") && text.contains("Not seen"), "{text}");
}

#[test]
fn what_cannot_be_looked_at_is_an_error_with_something_to_type() {
    let nobody = failed(&command(&["attach", "999999999"]).output().unwrap());
    assert!(nobody.contains("process 999999999 is not there") && nobody.contains("help:"), "{nobody}");
    let kernel = failed(&command(&["attach", "2"]).output().unwrap());
    assert!(kernel.contains("retrial::process::"), "{kernel}");
    assert!(failed(&command(&["attach", "1", "--for", "0s"]).output().unwrap()).contains("--for 0s, expected"));
    for wrong in [
        &["attach"][..],
        &["attach", "x"],
        &["attach", "1", "--every", "1ms"],
        &["attach", "1", "--all", "--for", "1s"],
    ] {
        assert_eq!(command(wrong).output().unwrap().status.code(), Some(2), "{wrong:?}");
    }
    let mut ended = Command::new("true").spawn().unwrap();
    let pid = ended.id();
    until("its end", || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z "));
    let error = failed(&command(&["attach", &pid.to_string()]).output().unwrap());
    assert!(error.contains("has ended") && error.contains("retrial run"), "{error}");
    ended.wait().unwrap();
}

#[test]
fn a_program_that_ends_meanwhile_leaves_what_was_seen() {
    let Some((program, _directory)) = started("h") else { return };
    let pid = program.pid();
    until_waiting(pid, 3, 0);
    let mut looking = command(&["attach", &pid.to_string(), "--for", "60s"]);
    let looking = looking.stdout(Stdio::piped()).spawn().unwrap();
    // Until it has looked: its processor time is more than nothing then.
    until("looks", || reads(looking.id()) > 200);
    program.signal(libc::SIGKILL);
    let output = looking.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("gate (waiting)") && text.contains(&format!("process {pid} has ended")), "{text}");
    assert!(text.contains("Next: retrial run") && !text.contains("retrial attach"), "{text}");
}

/// Number of reads of a process so far.
fn reads(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_program_under_retrial_run_is_left_to_the_commands_that_know_more() {
    let directory = compiled();
    let scratch = Scratch::unborn();
    let mut run = Command::new(RETRIAL);
    run.args(["run", "--instance", &scratch.name, "--"]).arg(directory.join("waiting")).arg("h");
    let run = Running::new(run.env("RETRIAL_PRELOAD_LIBRARY", library()).stderr(Stdio::null()));
    until("the instance", || scratch.path().exists() && scratch.output(&["who"]).status.success());
    until("its threads", || !scratch.observer().tables().sessions().is_empty());
    let pid = scratch.observer().tables().sessions()[0].pid;
    let error = failed(&command(&["attach", &pid.to_string()]).output().unwrap());
    let said = error.contains(&format!("process {pid} is under `retrial run`"));
    assert!(said && error.contains(&format!("retrial who -p {pid}")), "{error}");
    // SAFETY: a process of our own child's.
    unsafe { libc::kill(i32::try_from(pid).unwrap(), libc::SIGKILL) };
    run.end();
}
