//! `retrial run --profile`, by its executable, on programs whose calls are known.

mod kit;
#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;
#[path = "kit/preload.rs"]
mod preload;

use kit::directory::Directory;
use kit::{RETRIAL, stderr, words};
use not_tested::not_tested;
use preload::library;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Compiles a program, without frame pointers.
fn compile(directory: &Directory, name: &str, source: &str, options: &[&str]) -> String {
    let is_cpp = source.contains("std::");
    let (file, program) =
        (directory.path(&format!("{name}.{}", if is_cpp { "cc" } else { "c" })), directory.path(name));
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new(if is_cpp { "c++" } else { "cc" });
    compiler.args(["-O2", "-fomit-frame-pointer", "-pthread", "-o", &program, &file]).args(options);
    assert!(compiler.status().expect("a compiler").success(), "{name} compiles");
    program
}

/// Runs with a profile: the report.
fn run(directory: &Directory, program: &[&str]) -> Value {
    run_with(directory, &[], program)
}

fn run_with(directory: &Directory, options: &[&str], program: &[&str]) -> Value {
    let output = command(directory, &[&["--json"], options].concat(), program).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stderr).unwrap()
}

fn command(directory: &Directory, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(RETRIAL);
    command.arg("run").arg(format!("--profile={}", directory.path("out"))).args(options).arg("--").args(program);
    command.env("RETRIAL_PRELOAD_LIBRARY", library()).env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

/// The lock whose name has this in it.
fn lock<'r>(report: &'r Value, name: &str) -> &'r Value {
    let locks = report["profile"]["locks"].as_array().unwrap();
    let found = locks.iter().find(|lock| lock["lock"].as_str().unwrap().contains(name));
    found.unwrap_or_else(|| panic!("no lock `{name}` in {locks:#?}"))
}

fn calls(stack: &Value) -> Vec<&str> {
    stack["calls"].as_array().unwrap().iter().map(|call| call.as_str().unwrap()).collect()
}

/// A figure summed over the stacks on which these functions follow each other, innermost first.
fn sum(lock: &Value, expected: &[&str], figure: &str) -> f64 {
    let stacks = lock["stacks"].as_array().unwrap().iter();
    stacks
        .filter(|stack| calls(stack).windows(expected.len()).any(|calls| calls == expected))
        .map(|stack| stack[figure].as_f64().unwrap_or(0.0))
        .sum()
}

/// Two ways to one static lock, taken 3 : 1; and a lock on the heap. Each get of the second way holds `LONG`
/// times as long as one of the first, by work, not by time.
const TWO_WAYS: &str = r"
#include <pthread.h>
#include <stdlib.h>
static pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *heap;
volatile long sink;
static void __attribute__((noinline)) spend(int n) { for (int i = 0; i < n; i++) sink += i; }
void __attribute__((noinline)) inner(int n) { pthread_mutex_lock(&hot); spend(n); pthread_mutex_unlock(&hot); sink++; }
void __attribute__((noinline)) first(int n) { inner(n); sink++; }
void __attribute__((noinline)) second(int n) {
    volatile char room[n]; /* of a length that is not known, so that this one has a frame pointer */
    room[n - 1] = 1;
    inner(n);
    sink += room[n - 1];
}
void __attribute__((noinline)) on_heap(void) { pthread_mutex_lock(heap); pthread_mutex_unlock(heap); sink++; }
static void *work(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) { first(20); first(20); first(20); second(20 * LONG); on_heap(); }
    return 0;
}
int main(int count, char **arguments) {
    long rounds = atol(arguments[1]);
    pthread_t threads[THREADS];
    heap = malloc(sizeof *heap);
    pthread_mutex_init(heap, 0);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, (void *)rounds);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    return 0;
}
";

#[test]
fn gets_have_their_shares_by_stack() {
    let scratch = Directory::new();
    let program = compile(&scratch, "two", TWO_WAYS, &["-DLONG=20", "-DTHREADS=16"]);
    let report = run(&scratch, &[&program, "40000"]);
    let (hot, heap) = (lock(&report, "hot (two)"), lock(&report, "heap lock of on_heap < work"));
    assert_eq!((&hot["static"], &heap["static"]), (&Value::Bool(true), &Value::Bool(false)));
    let first = sum(hot, &["inner", "first", "work"], "gets");
    let second = sum(hot, &["inner", "second", "work"], "gets");
    let all = hot["gets"].as_f64().unwrap();
    assert!((first + second - all).abs() < all / 20.0, "all stacks are whole: {hot:#}");
    // 3 : 1, and 4 × 640,000 in all; each thread takes about a hundred samples however short it lives.
    assert!((1.5..6.0).contains(&(first / second)), "{first} to {second}");
    assert!((1.28e6..5.12e6).contains(&all), "{all} of 2,560,000");
    let on_heap = sum(heap, &["on_heap", "work"], "gets");
    assert!((0.32e6..1.28e6).contains(&on_heap), "{on_heap} of 640,000");
    let folded = fs::read_to_string(scratch.path("out/hold.folded")).unwrap();
    assert!(folded.lines().any(|line| line.contains(";work;first;inner;") && line.contains("hot (two) ")), "{folded}");
    let svg = fs::read_to_string(scratch.path("out/hold.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("<title>second: "), "{svg}");
}

#[test]
fn csv_has_a_row_for_each_mutex_and_one_for_each_stack() {
    let scratch = Directory::new();
    let program = compile(&scratch, "two", TWO_WAYS, &["-DLONG=20", "-DTHREADS=2"]);
    let file = scratch.path("report.csv");
    let output = command(&scratch, &["--report", &file], &[&program, "4000"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = fs::read_to_string(&file).unwrap();
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let header = rows.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|column| column == name).unwrap();
    let rows: Vec<_> = rows.records().map(|row| row.expect("as many cells as columns")).collect();
    let of = |group: &str| rows.iter().filter(|row| &row[at("group")] == group).collect::<Vec<_>>();
    let (mutexes, stacks) = (of("mutex"), of("profile"));
    // The heap lock has a row if a thread has ever waited for it.
    assert!(matches!(mutexes.len(), 1 | 2) && mutexes.len() + stacks.len() == rows.len(), "{text}");
    assert!(mutexes.iter().all(|row| row[at("calls")].is_empty() && !row[at("gets")].is_empty()), "{text}");
    for way in ["inner < first < work", "inner < second < work"] {
        let stack = stacks.iter().find(|row| row[at("calls")].starts_with(way)).unwrap_or_else(|| panic!("{text}"));
        assert!(stack[at("mutex")].ends_with("hot (two)") && &stack[at("mode")] == "X", "{text}");
        let figure = |name: &str| stack[at(name)].parse::<f64>().unwrap();
        let hold_ms = figure("gets") * figure("holding_us") / 1e3;
        assert!(hold_ms > 0.0 && (figure("hold_ms") - hold_ms).abs() <= hold_ms / 100.0, "{text}");
    }
}

#[test]
fn holds_have_their_length_by_stack() {
    let scratch = Directory::new();
    let program = compile(&scratch, "two", TWO_WAYS, &["-DLONG=300", "-DTHREADS=2"]);
    let mut found = Vec::new();
    // A holder that loses its processor holds for milliseconds, whichever way it came: then once more.
    for _ in 0..10 {
        let report = run(&scratch, &[&program, "40000"]);
        let hot = lock(&report, "hot (two)");
        let mean = |way: &str| sum(hot, &["inner", way], "hold_ms") / sum(hot, &["inner", way], "gets");
        let (shortest, longest) = (mean("first"), mean("second"));
        if longest > shortest * 3.0 {
            return;
        }
        found.push((longest, shortest));
    }
    panic!("a hold of the second way is 300 times as long: {found:?}");
}

#[test]
fn the_wait_time_of_the_samples_is_that_of_all_waits() {
    let scratch = Directory::new();
    // Each thread leaves the processor with the lock, so that there are waits on any machine.
    let source = r"
#include <pthread.h>
#include <time.h>
static pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER;
volatile long sink;
static struct timespec rest = { 0, 20000 };
void __attribute__((noinline)) slow(void) {
    pthread_mutex_lock(&hot); nanosleep(&rest, 0); pthread_mutex_unlock(&hot); sink++;
}
static void *work(void *unused) { for (int i = 0; i < 2000; i++) { slow(); sink++; } return unused; }
int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return 0;
}
";
    let program = compile(&scratch, "slow", source, &[]);
    // By this scheme they are many and short, so that most are not sampled.
    let report = run_with(&scratch, &["--scheme", "pthread"], &[&program]);
    let hot = lock(&report, "hot (slow)");
    let (sampled, counted) = (sum(hot, &["slow", "work"], "wait_ms"), report["wait_ms"].as_f64().unwrap());
    assert!(counted > 0.0 && (0.4..2.5).contains(&(sampled / counted)), "{sampled} of {counted} ms: {hot:#}");
    let (sampled, counted) = (hot["misses"].as_f64().unwrap(), report["misses"].as_f64().unwrap());
    assert!((0.4..2.5).contains(&(sampled / counted)), "{sampled} of {counted} misses: {hot:#}");
    let profile = &report["profile"];
    assert!(profile["cost_ms"].as_f64() > Some(0.0) && profile["cost_bytes"].as_u64() > Some(0), "{profile:#}");
    assert!(profile["cost_pct_of_cpu"].is_number());
    let folded = fs::read_to_string(scratch.path("out/wait.folded")).unwrap();
    assert!(folded.lines().any(|line| line.contains(";work;slow;")), "{folded}");
}

#[test]
fn a_lock_of_the_standard_library_of_cpp_has_its_callers() {
    let source = r"
#include <mutex>
static std::mutex table;
static volatile long sink;
namespace shop { struct Stock {
    __attribute__((noinline)) void sell() { std::lock_guard<std::mutex> guard(table); sink = sink + 1; }
}; }
__attribute__((noinline)) void serve(shop::Stock &stock) { stock.sell(); sink = sink + 1; }
int main() { shop::Stock stock; for (int i = 0; i < 20000; i++) serve(stock); }
";
    if Command::new("c++").arg("--version").output().is_err() {
        not_tested("no C++ compiler");
        return;
    }
    let scratch = Directory::new();
    for options in [&[][..], &["-g"]] {
        let program = compile(&scratch, "shop", source, options);
        let report = run(&scratch, &[&program]);
        let table = lock(&report, "table (shop)");
        assert!(sum(table, &["shop::Stock::sell", "serve", "main"], "gets") > 0.0, "{options:?}: {table:#}");
    }
}

/// Gets a lock in a library that it opens, until a file is there.
const OPENS: &str = r#"
#include <dlfcn.h>
#include <unistd.h>
volatile long sink;
int main(int count, char **arguments) {
    void *library = dlopen(arguments[1], RTLD_NOW);
    void (*enter)(void) = (void (*)(void))dlsym(library, "enter");
    while (access(arguments[2], F_OK) != 0) { for (int i = 0; i < 100; i++) { enter(); sink++; } usleep(1000); }
    return 0;
}
"#;
const OPENED: &str = r"
#include <pthread.h>
static pthread_mutex_t within = PTHREAD_MUTEX_INITIALIZER;
volatile long sink;
void __attribute__((noinline)) deep_within(void) { pthread_mutex_lock(&within); pthread_mutex_unlock(&within); sink++; }
void enter(void) { deep_within(); sink++; }
";

#[test]
fn a_library_that_was_opened_late_is_unwound_through() {
    let scratch = Directory::new();
    let (library, program) =
        (compile(&scratch, "late.so", OPENED, &["-shared", "-fPIC"]), compile(&scratch, "opens", OPENS, &["-ldl"]));
    // Who unwinds asks for new libraries now and then: how long that takes is up to the machine.
    for tenths in [5, 20, 80, 320] {
        let end = scratch.path(&format!("end-{tenths}"));
        let child = command(&scratch, &["--json"], &[&program, &library, &end]).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(tenths * 100));
        fs::write(&end, "").unwrap();
        let output = child.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stderr).unwrap_or_else(|_| panic!("{}", stderr(&output)));
        let locks = report["profile"]["locks"].as_array().unwrap();
        let within = locks.iter().find(|lock| lock["lock"].as_str().unwrap().contains("within (late.so)"));
        if within.is_some_and(|within| sum(within, &["deep_within", "enter", "main"], "gets") > 0.0) {
            return;
        }
    }
    panic!("never found");
}

#[test]
fn a_profiled_program_is_seen_from_outside_while_it_runs() {
    let scratch = Directory::new();
    let (library, program) =
        (compile(&scratch, "late.so", OPENED, &["-shared", "-fPIC"]), compile(&scratch, "opens", OPENS, &["-ldl"]));
    let end = scratch.path("end");
    let child = command(&scratch, &["--json"], &[&program, &library, &end]).stderr(Stdio::piped()).spawn().unwrap();
    let instance = format!("run-{}", child.id());
    let is_seen = (0..10_000).any(|_| {
        let shown = Command::new(RETRIAL).args(["ps", "--json", "-i", &instance]).output().unwrap();
        let rows: Value = serde_json::from_slice(&shown.stdout).unwrap_or(Value::Null);
        rows.as_array().is_some_and(|rows| !rows.is_empty())
    });
    fs::write(&end, "").unwrap();
    assert!(is_seen && child.wait_with_output().unwrap().status.success());
}

#[test]
fn children_and_other_programs_are_told_apart_and_named() {
    let source = r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static pthread_mutex_t shared_name = PTHREAD_MUTEX_INITIALIZER;
volatile long sink;
void __attribute__((noinline)) get(void) { pthread_mutex_lock(&shared_name); pthread_mutex_unlock(&shared_name); sink++; }
void __attribute__((noinline)) parent(void) { get(); sink++; }
void __attribute__((noinline)) child(void) { get(); sink++; }
void __attribute__((noinline)) other(void) { get(); sink++; }
int main(int count, char **arguments) {
    if (count > 1) { for (int i = 0; i < 300; i++) other(); return 0; }
    for (int i = 0; i < 300; i++) parent();
    if (fork() == 0) {
        for (int i = 0; i < 300; i++) child();
        execl(arguments[0], arguments[0], "again", (char *)0);
        _exit(1);
    }
    int status;
    wait(&status);
    return status;
}
"#;
    let scratch = Directory::new();
    let program = compile(&scratch, "forks", source, &[]);
    let report = run(&scratch, &[&program]);
    let name = lock(&report, "shared_name (forks)");
    for who in ["parent", "child", "other"] {
        let gets = sum(name, &["get", who, "main"], "gets");
        assert!((30.0..30_000.0).contains(&gets), "{who}: {gets} of 300: {name:#}");
    }
}

#[test]
fn a_stack_deeper_than_the_copy_is_cut_at_its_root() {
    let source = r"
#include <pthread.h>
static pthread_mutex_t bottom = PTHREAD_MUTEX_INITIALIZER;
volatile long sink;
__attribute__((noinline)) long dive(long depth) {
    volatile char room[4096];
    room[depth] = 1;
    if (depth == 0) { pthread_mutex_lock(&bottom); pthread_mutex_unlock(&bottom); return room[0]; }
    long found = dive(depth - 1);
    return found + room[depth];
}
static void *work(void *unused) { for (int i = 0; i < 100; i++) sink += dive(20); return unused; }
int main(void) { pthread_t thread; pthread_create(&thread, 0, work, 0); pthread_join(thread, 0); return 0; }
";
    let scratch = Directory::new();
    let program = compile(&scratch, "dives", source, &[]);
    let report = run(&scratch, &[&program]);
    let bottom = lock(&report, "bottom (dives)");
    let stack = &bottom["stacks"][0];
    assert_eq!(calls(stack).last(), Some(&"[truncated]"), "{stack:#}");
    assert!(calls(stack).iter().filter(|call| **call == "dive").count() >= 3, "{stack:#}");
    let folded = fs::read_to_string(scratch.path("out/hold.folded")).unwrap();
    assert!(folded.starts_with("[truncated];dive;"), "{folded}");
}

#[test]
fn read_write_and_spin_locks_are_profiled_too() {
    let source = r"
#include <pthread.h>
static pthread_rwlock_t catalogue = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
volatile long sink;
void __attribute__((noinline)) reads(void) { pthread_rwlock_rdlock(&catalogue); pthread_rwlock_unlock(&catalogue); sink++; }
void __attribute__((noinline)) writes(void) { pthread_rwlock_wrlock(&catalogue); pthread_rwlock_unlock(&catalogue); sink++; }
void __attribute__((noinline)) spins(void) { pthread_spin_lock(&spin); pthread_spin_unlock(&spin); sink++; }
static void *work(void *which) {
    switch ((long)which) { case 0: reads(); break; case 1: writes(); break; default: spins(); }
    return 0;
}
int main(void) {
    pthread_spin_init(&spin, 0);
    // The first get of a thread is always sampled.
    for (long i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, work, (void *)i);
        pthread_join(thread, 0);
    }
    return 0;
}
";
    let scratch = Directory::new();
    let program = compile(&scratch, "kinds", source, &[]);
    let report = run(&scratch, &[&program]);
    let catalogue = lock(&report, "catalogue (kinds)");
    assert_eq!(catalogue["type"], "pthread rwlock");
    for (call, mode) in [("reads", "S"), ("writes", "X")] {
        let stacks = catalogue["stacks"].as_array().unwrap();
        let stack = stacks.iter().find(|stack| calls(stack)[0] == call).unwrap_or_else(|| panic!("{catalogue:#}"));
        assert_eq!(stack["mode"], mode);
        assert!(stack["hold_ms"].as_f64() > Some(0.0), "{stack:#}");
    }
    assert!(lock(&report, "spin (kinds)")["hold_ms"].as_f64() > Some(0.0));
}

#[test]
fn a_recursive_lock_is_held_until_its_last_unlock() {
    let source = r"
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>
static pthread_mutex_t nested = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct timespec rest = { 0, 1000000 };
void __attribute__((noinline)) both(void) {
    pthread_mutex_lock(&nested);
    pthread_mutex_lock(&nested);
    pthread_mutex_unlock(&nested);
    nanosleep(&rest, 0);
    pthread_mutex_unlock(&nested);
}
int main(void) { for (int i = 0; i < 5; i++) both(); return 0; }
";
    let scratch = Directory::new();
    let program = compile(&scratch, "nests", source, &[]);
    let report = run(&scratch, &[&program]);
    let nested = lock(&report, "nested (nests)");
    assert!(nested["mean_hold_us"].as_f64() >= Some(1000.0), "{nested:#}");
}

#[test]
fn without_the_option_there_is_no_profile() {
    let scratch = Directory::new();
    let mut command = Command::new(RETRIAL);
    command.args(["run", "--json", "--", "sh", "-c", "echo ${RETRIAL_PROFILE-none}"]);
    // One of a run around this one is not ours to write to.
    command.env("RETRIAL_PRELOAD_LIBRARY", library()).env("RETRIAL_PROFILE", scratch.path("outer"));
    let output = command.env_remove("LD_PRELOAD").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "none\n");
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(report["profile"], Value::Null);
}

#[test]
fn a_directory_that_cannot_be_written_is_known_before_the_program_runs() {
    let scratch = Directory::new();
    fs::write(scratch.path("out"), "a file").unwrap();
    let output = command(&scratch, &[], &["echo", "ran"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let said = words(&output);
    assert!(said.contains("retrial::run::profile") && said.contains("--profile=DIRECTORY"), "{said}");
}

#[test]
fn nothing_is_left_in_shared_memory_and_the_text_has_the_files() {
    let scratch = Directory::new();
    let program = compile(&scratch, "two", TWO_WAYS, &["-DLONG=2", "-DTHREADS=1"]);
    let child = command(&scratch, &[], &[&program, "1000"]).stderr(Stdio::piped()).spawn().unwrap();
    let place = format!("/dev/shm/retrial-profile.{}", child.id());
    let output = child.wait_with_output().unwrap();
    assert!(!Path::new(&place).exists());
    let text = stderr(&output);
    for expected in
        ["hot (two)", "< first < work", "cost: taking samples ", "wait.folded,wait.svg,hold.folded,hold.svg"]
    {
        assert!(text.contains(expected), "no `{expected}` in {text}");
    }
}
