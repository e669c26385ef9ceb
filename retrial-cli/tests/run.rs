//! `retrial run`, by its executable and on real programs.

mod kit;
#[path = "kit/may_read.rs"]
mod may_read;
#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;
#[path = "kit/preload.rs"]
mod preload;
#[path = "kit/terminal.rs"]
mod terminal;

use kit::directory::Directory;
use kit::{RETRIAL, stderr, words};
use may_read::may_read;
use not_tested::not_tested;
use preload::library;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use terminal::Terminal;

/// `retrial run` with these arguments.
fn retrial_run(arguments: &[&str]) -> Command {
    let mut command = Command::new(RETRIAL);
    command.arg("run").args(arguments).env("RETRIAL_PRELOAD_LIBRARY", library()).env_remove("LD_PRELOAD");
    command
}

fn run(arguments: &[&str]) -> Output {
    retrial_run(arguments).output().unwrap()
}

/// Compiles a C program; `None` when the compiler cannot with these options.
fn compile(directory: &Directory, source: &str, options: &[&str]) -> Option<String> {
    let (file, program) = (directory.path("program.c"), directory.path("program"));
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O1", "-pthread", "-o", &program, &file]).args(options).stderr(Stdio::null());
    compiler.status().expect("a C compiler").success().then_some(program)
}

/// Runs with a JSON report and reads it.
fn report(scratch: &Directory, options: &[&str], program: &[&str]) -> Value {
    let file = scratch.path("report.json");
    let output = run(&[options, &["--report", &file, "--"], program].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// An instance name that no other test has.
fn unused_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-run-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn exists(instance: &str) -> bool {
    Path::new("/dev/shm").join(format!("retrial.{instance}")).exists()
}

/// Four threads get one mutex in `bump`, and leave the processor while they hold it.
const CONTENDED: &str = r"
#include <pthread.h>
#include <sched.h>
#include <time.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counter;
__attribute__((noinline)) void bump(void) {
    struct timespec time = { 0, 100000 };
    pthread_mutex_lock(&mutex);
    counter++;
    nanosleep(&time, 0);
    pthread_mutex_unlock(&mutex);
}
static void *work(void *unused) {
    for (int i = 0; i < 500; i++) bump();
    return unused;
}
int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return counter != 2000;
}
";

/// Waits for SIGTERM.
const SIGNALLED: &str = r#"
#include <signal.h>
#include <stdio.h>
int main(void) {
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, 0);
    puts("ready");
    fflush(stdout);
    sigwait(&set, &signal);
    return signal == SIGTERM ? 42 : 1;
}
"#;

/// One thread gets one mutex 1000 times.
const UNCONTENDED: &str = r"
#include <pthread.h>
int main(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 1000; i++) { pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); }
    return 0;
}
";

#[test]
fn the_exit_code_is_the_programs() {
    for code in [0, 1, 7, 255] {
        let output = run(&["--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    }
}

#[test]
fn a_program_killed_by_a_signal_has_us_die_of_it() {
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGABRT, libc::SIGSEGV] {
        let output = run(&["--", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(output.status.signal(), Some(signal), "{}", stderr(&output));
        assert!(stderr(&output).contains(&format!("killed by signal {signal}")), "{}", stderr(&output));
    }
}

#[test]
fn a_signal_to_us_is_passed_on_and_the_instance_is_removed() {
    let name = unused_name();
    let scratch = Directory::new();
    let program = compile(&scratch, SIGNALLED, &[]).unwrap();
    let mut child = retrial_run(&["--instance", &name, "--", &program]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert!(exists(&name));
    // SAFETY: our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(i32::try_from(child.id()).unwrap(), libc::SIGTERM) }, 0);
    assert_eq!(child.wait().unwrap().code(), Some(42));
    assert!(!exists(&name));
}

/// Counts SIGUSR1, and sends it to its group ten times.
const SENDS_TO_ITS_GROUP: &str = r"
#include <signal.h>
#include <unistd.h>
static volatile int count;
static void counts(int signal) { count += signal == SIGUSR1; }
int main(void) {
    signal(SIGUSR1, counts);
    for (int i = 0; i < 10; i++) {
        kill(0, SIGUSR1);
        /* By which time the other process of the group has had it too. A signal ends a sleep. */
        usleep(20000), usleep(20000);
    }
    return count;
}
";

#[test]
fn what_a_program_sends_to_its_group_reaches_it_once() {
    let scratch = Directory::new();
    let program = compile(&scratch, SENDS_TO_ITS_GROUP, &[]).unwrap();
    for arguments in [&[&*program][..], &["sh", "-c", &format!("trap : USR1; {program}; exit $?")]] {
        let output = retrial_run(&[&["--"], arguments].concat()).process_group(0).output().unwrap();
        assert_eq!(output.status.code(), Some(10), "{}", stderr(&output));
    }
}

#[test]
fn every_signal_that_can_be_held_is_passed_on() {
    let fixed = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGURG, libc::SIGWINCH, libc::SIGIO, libc::SIGABRT];
    for signal in fixed.into_iter().chain([libc::SIGRTMIN(), libc::SIGRTMAX()]) {
        let script = format!("trap 'exit 42' {signal}; echo ready; while :; do sleep 0.05; done");
        let mut child = retrial_run(&["--", "bash", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        // SAFETY: our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(i32::try_from(child.id()).unwrap(), signal) }, 0);
        assert_eq!(child.wait().unwrap().code(), Some(42), "signal {signal}");
    }
}

/// The state of a process: `S` sleeps, `T` is stopped.
fn state(pid: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn we_stop_when_the_program_has_stopped_and_only_then() {
    for (script, stops) in [("trap '' TSTP", false), (":", true)] {
        let script = format!("{script}; echo \"pid $$.\"; while :; do sleep 0.05; done");
        let mut command = retrial_run(&["--", "bash", "-c", &script]);
        // Not in front of a terminal, if this has one.
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (ours, program) = (child.id().to_string(), line.trim_start_matches("pid ").trim_end_matches(".\n"));
        let send =
            |signal: &str, pid: &str| assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
        send("-TSTP", &ours);
        if stops {
            while state(&ours) != "T" || state(program) != "T" {}
            send("-CONT", &ours);
            while state(&ours) == "T" || state(program) == "T" {}
        } else {
            std::thread::sleep(Duration::from_millis(200));
            assert_ne!(state(&ours), "T");
        }
        // Another process stops the program, and continues it: that is none of ours.
        send("-STOP", program);
        while state(program) != "T" {}
        send("-CONT", program);
        send("-TERM", &ours);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM), "{script}");
    }
}

#[test]
fn a_program_finds_sigpipe_as_we_did() {
    // What is ignored, by number, from 1: SIGPIPE is 13.
    const SHOW: &str = "retrial=$1; shift; trap '' PIPE; exec \"$retrial\" run -- \"$@\"";
    let is_ignored = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mask = text.split_whitespace().nth(1).expect("SigIgn: and a mask");
        u64::from_str_radix(mask, 16).unwrap() >> (libc::SIGPIPE - 1) & 1 == 1
    };
    let program = ["grep", "SigIgn", "/proc/self/status"];
    assert!(!is_ignored(&run(&[&["--"], &program[..]].concat())));
    let mut command = Command::new("sh");
    command.args(["-c", SHOW, "sh", RETRIAL]).args(program).env("RETRIAL_PRELOAD_LIBRARY", library());
    assert!(is_ignored(&command.output().unwrap()));
}

#[test]
fn as_process_1_we_reap_those_whose_parents_have_ended() {
    const LEAVES: &str = "(sleep 0.1 & sleep 0.1 &); sleep 0.2
        for i in $(seq 100); do grep -qs 'State:.Z' /proc/[0-9]*/status || exit 42; sleep 0.1; done";
    let unshare = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--pid", "--fork", "--mount-proc"]).args(program);
        command.env("RETRIAL_PRELOAD_LIBRARY", library()).output()
    };
    if !unshare(&["true"]).is_ok_and(|output| output.status.success()) {
        not_tested("no unshare, or it may not make namespaces");
        return;
    }
    let output = unshare(&[RETRIAL, "run", "--", "sh", "-c", LEAVES]).unwrap();
    assert_eq!(output.status.code(), Some(42), "{}", stderr(&output));
}

#[test]
fn no_program_is_127_and_no_executable_126() {
    let missing = run(&["--", "no-such-program-anywhere"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(words(&missing).contains("no program `no-such-program-anywhere`"), "{}", stderr(&missing));
    let blocked = run(&["--", "/etc/passwd"]);
    assert_eq!(blocked.status.code(), Some(126));
    assert!(words(&blocked).contains("/etc/passwd: no file that may be executed"), "{}", stderr(&blocked));
    let scratch = Directory::new();
    let script = scratch.path("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    assert!(Command::new("chmod").args(["+x", &script]).status().unwrap().success());
    let dangling = run(&["--", &script]);
    assert_eq!(dangling.status.code(), Some(126));
    assert!(words(&dangling).contains("its interpreter"), "{}", stderr(&dangling));
}

#[test]
fn bad_settings_run_nothing_and_say_what_is_expected() {
    let cases: [(&[&str], &str); 7] = [
        (&["--scheme", "backof"], "value `backof` of mutex_wait_scheme, expected one of yield, sleep, backoff"),
        (&["--set", "mutex_spin_cnt=1"], "no parameter `mutex_spin_cnt`, "),
        (&["--set", "mutex_spin_count"], "setting `mutex_spin_count`, expected NAME=VALUE"),
        (&["--scheme", "sleep", "--set", "mutex_wait_time=30cs"], "unit `cs` of mutex_wait_time, expected ms"),
        (&["--set", "mutex_spin_count=-1"], "value `-1` of mutex_spin_count, expected a whole number from 0 to"),
        (&["--instance", "x y"], "retrial::instance::name"),
        (&["--report", "/no/such/directory/report.json"], "cannot write /no/such/directory/report.json"),
    ];
    for (options, expected) in cases {
        let output = run(&[options, &["--", "echo", "ran"]].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(words(&output).contains(expected), "{options:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{options:?} ran the program");
    }
    let good = run(&["--scheme", "backoff", "--set", "mutex_wait_time=30cs", "--", "true"]);
    assert_eq!(good.status.code(), Some(0), "{}", stderr(&good));
}

#[test]
fn a_missing_library_is_named_with_what_can_be_typed() {
    let output = retrial_run(&["--", "true"]).env("RETRIAL_PRELOAD_LIBRARY", "/no/such.so").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = words(&output);
    assert!(said.contains("no file /no/such.so") && said.contains("the command has the library with it"), "{said}");
}

#[test]
fn standard_output_is_the_programs_alone() {
    let scratch = Directory::new();
    let (file, temporary) = (scratch.path("text"), scratch.path("."));
    let mut text = String::new();
    let mut random: u64 = 1;
    for _ in 0..200_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        writeln!(text, "{random:x}").unwrap();
    }
    fs::write(&file, text).unwrap();
    let program = ["sort", "--parallel=4", "-T", &temporary, &file];
    let plain = Command::new(program[0]).args(&program[1..]).output().unwrap();
    let ours = run(&[&["--"], &program[..]].concat());
    assert_eq!(ours.status.code(), Some(0), "{}", stderr(&ours));
    assert!(plain.stdout == ours.stdout, "the same bytes");
    assert!(stderr(&ours).contains("Next: "), "{}", stderr(&ours));
}

#[test]
fn what_follows_the_program_is_the_programs() {
    for arguments in [&["--", "echo", "--json", "--", "-x"][..], &["echo", "--json", "--", "-x"]] {
        let output = run(arguments);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "--json -- -x\n");
        assert!(stderr(&output).contains("Next: "), "a report in text");
    }
}

#[test]
fn an_instance_is_kept_only_when_asked_for() {
    let name = unused_name();
    assert!(run(&["--instance", &name, "--", "true"]).status.success());
    assert!(!exists(&name));
    let kept = run(&["--instance", &name, "--keep", "--", "true"]);
    assert!(exists(&name), "{}", stderr(&kept));
    let again = run(&["--instance", &name, "--", "echo", "ran"]);
    assert_eq!((again.status.code(), again.stdout.len()), (Some(2), 0));
    assert!(exists(&name), "what was there is left as it was");
    assert!(Command::new(RETRIAL).args(["rm", &name]).stdout(Stdio::null()).status().unwrap().success());
    assert!(!exists(&name));
}

#[test]
fn another_preloaded_library_stays() {
    let output = retrial_run(&["--", "sh", "-c", "echo $LD_PRELOAD"]).env("LD_PRELOAD", "libm.so.6").output().unwrap();
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(list.trim(), format!("{}:libm.so.6", library().canonicalize().unwrap().display()));
}

#[test]
fn a_contended_lock_is_reported_with_its_place_and_a_split_that_adds_up() {
    let scratch = Directory::new();
    let program = compile(&scratch, CONTENDED, &[]).unwrap();
    for scheme in ["orbit", "backoff", "pthread", "yield"] {
        let report = report(&scratch, &["--scheme", scheme], &[&program]);
        assert_eq!(report["scheme"], scheme);
        let busiest = &report["busiest"][0];
        assert!(report["misses"].as_u64() > Some(0), "{report:#}");
        assert!(busiest["gets"].as_u64() >= Some(2000), "{busiest:#}");
        assert!(busiest["busy_at"].as_str().unwrap().contains("bump"), "{busiest:#}");
        let columns = ["miss_ratio", "k", "kappa", "gets_per_s", "wait_ms", "avg_wait_ms", "max_wait_ms"];
        assert!(columns.iter().all(|column| busiest[*column].is_number()), "{busiest:#}");
        let parts = ["spin", "yield", "slept", "oversleep"];
        let sum: f64 = parts.iter().map(|part| report["time_split_pct"][*part].as_f64().unwrap()).sum();
        assert!((sum - 100.0).abs() < 1e-9, "{:#}", report["time_split_pct"]);
        let waits =
            |rows: &Value| rows.as_array().unwrap().iter().map(|row| row["waits"].as_u64().unwrap()).sum::<u64>();
        assert_eq!(waits(&report["events"]), report["waits"].as_u64().unwrap());
        assert!(report["observer"]["cpu_pct"].is_number());
        assert_eq!(report["nothing_handled"], Value::Null);
    }
}

/// Three processes get two robust mutexes in a file, which each has mapped for itself, and leave the
/// processor while they hold them, as long as the file is there.
const SEVERAL: &str = r"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t *map(char *file) {
    return mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, open(file, O_RDWR), 0);
}
int main(int count, char **arguments) {
    struct timespec time = { 0, 100000 };
    pthread_mutexattr_t attr;
    pthread_mutex_t *mutexes = map(arguments[1]);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutexes[0], &attr);
    pthread_mutex_init(&mutexes[3], &attr);
    for (int child = 0; child < 3; child++) {
        if (fork() != 0) continue;
        for (int i = 0; i < child; i++) mutexes = map(arguments[1]);
        for (int i = 0; i < atoi(arguments[2]) && access(arguments[1], F_OK) == 0; i++) {
            pthread_mutex_t *mutex = &mutexes[i % 2 * 3];
            pthread_mutex_lock(mutex);
            nanosleep(&time, 0);
            pthread_mutex_unlock(mutex);
        }
        _exit(0);
    }
    while (wait(0) > 0) {}
    return 0;
}
";

#[test]
fn a_mutex_of_several_processes_is_one_whatever_its_address() {
    let scratch = Directory::new();
    let program = compile(&scratch, SEVERAL, &[]).unwrap();
    let file = scratch.path("memory");
    let mut found = Value::Null;
    // What the observer has not looked at before, or not often enough, is not known: then the processes live
    // for longer.
    for rounds in [1000, 4000, 16_000] {
        fs::write(&file, [0; 8192]).unwrap();
        found = report(&scratch, &[], &[&program, &file, &rounds.to_string()]);
        let rows = found["busiest"].as_array().unwrap();
        let gets_of_one = 3 * rounds / 2;
        let is_known = |row: &Value| {
            row["processes"] == 3 && row["holding_us"].is_number() && row["gets"].as_u64() >= Some(gets_of_one / 2)
        };
        if rows.len() != 2 || !rows.iter().all(is_known) {
            continue;
        }
        let sum = |column: &str| rows.iter().map(|row| row[column].as_u64().unwrap()).sum::<u64>();
        assert_eq!(
            (sum("misses"), sum("waits")),
            (found["misses"].as_u64().unwrap(), found["waits"].as_u64().unwrap())
        );
        assert!(found["gets"] == 2 * gets_of_one && rows.iter().all(|row| row["gets"].as_u64() <= Some(gets_of_one)));
        for name in ["memory+0x0", "memory+0x78"] {
            let row = rows.iter().find(|row| row["mutex"].as_str().unwrap().ends_with(name)).unwrap();
            let (utilization, holding_us) = (row["utilization"].as_f64().unwrap(), row["holding_us"].as_f64().unwrap());
            // The holds come one after the other, each of 100 us or more.
            assert!(utilization > 0.0 && holding_us >= 90.0 * utilization, "{row:#}");
        }
        return;
    }
    panic!("{found:#}");
}

/// Children that live for some milliseconds, one after the other, and their parent meet at a mutex in memory
/// that they inherit.
const SHORT_LIVED: &str = r"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **arguments) {
    struct timespec time = { 0, 2000000 };
    pthread_mutexattr_t attr;
    volatile int *turn = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutex_t *mutex = (pthread_mutex_t *)turn + 1;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(mutex, &attr);
    for (int child = 1; child <= atoi(arguments[1]); child++) {
        pthread_mutex_lock(mutex);
        if (fork() == 0) {
            pthread_mutex_lock(mutex);
            *turn = child;
            nanosleep(&time, 0);
            pthread_mutex_unlock(mutex);
            _exit(0);
        }
        nanosleep(&time, 0);
        pthread_mutex_unlock(mutex);
        while (*turn != child) sched_yield();
        pthread_mutex_lock(mutex);
        pthread_mutex_unlock(mutex);
        wait(0);
    }
    return 0;
}
";

#[test]
fn processes_that_end_too_soon_to_be_looked_at_are_known_by_the_address() {
    let scratch = Directory::new();
    let program = compile(&scratch, SHORT_LIVED, &[]).unwrap();
    let mut seen = Vec::new();
    // Their parent has to be looked at, and their rows to have room: neither is sure on a busy machine.
    for children in ["30", "100", "200", "300"].into_iter().cycle().take(12) {
        let report = report(&scratch, &[], &[&program, children]);
        let (row, contended) = (&report["busiest"][0], &report["mutexes_contended"]);
        if *contended == 1 && row["processes"].as_u64() > Some(10) && row["misses"] == report["misses"] {
            return;
        }
        seen.push(format!("{contended} contended, {} misses, the first {row:#}", report["misses"]));
    }
    panic!("{}", seen.join("\n"));
}

#[test]
fn a_mutex_of_several_processes_is_measured_as_one_while_they_run() {
    let scratch = Directory::new();
    let program = compile(&scratch, SEVERAL, &[]).unwrap();
    let (file, name) = (scratch.path("memory"), unused_name());
    fs::write(&file, [0; 8192]).unwrap();
    let arguments = ["--instance", &name, "--", &program, &file, "2000000000"];
    let mut child = retrial_run(&arguments).stderr(Stdio::null()).spawn().unwrap();
    let what_if = |interval: &str| {
        let arguments = ["what-if", "--json", "--instance", &name, "--interval", interval];
        let output = Command::new(RETRIAL).args(arguments).output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        found["workload"]["arrivals"]["sessions"].as_u64()
    };
    // At first there may be no instance yet, and on a busy machine not all get the mutex in so short a time.
    let is_one = ["100ms", "300ms", "1s", "3s", "10s"].into_iter().any(|interval| what_if(interval) == Some(3));
    fs::remove_file(&file).unwrap();
    assert!(child.wait().unwrap().success() && is_one);
}

/// Four threads that hold a mutex for a millisecond, and do something else as long.
const SHARED: &str = r"
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *unused) {
    for (int i = 0; i < 400; i++) {
        pthread_mutex_lock(&m);
        usleep(1000);
        pthread_mutex_unlock(&m);
        usleep(1000);
    }
    return unused;
}
int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
}
";

#[test]
fn what_if_need_not_guess_what_a_run_was() {
    let scratch = Directory::new();
    let program = compile(&scratch, SHARED, &[]).unwrap();
    let options = ["--scheme", "sleep", "--set", "mutex_wait_time=20", "--set", "mutex_spin_count=77"];
    let path = scratch.path("report.json");
    let output = run(&[&options[..], &["--report", &path, "--", &program]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let arguments = ["what-if", "--json", "--quick", "--from", &path, "--scheme", "orbit"];
    let output = Command::new(RETRIAL).args(arguments).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let workload = &found["workload"];
    let params = ["mutex_wait_scheme", "mutex_wait_time", "mutex_spin_count"].map(|name| &workload["params"][name]);
    assert_eq!(params, [&json!("sleep"), &json!("20"), &json!("77")], "{found}");
    assert_eq!(workload["arrivals"]["sessions"], 4, "{found}");
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(workload["machine"]["processors"].as_u64().is_some_and(|n| n as usize >= cpus), "{found}");
    // The present is compared with the gets of the run.
    let report: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let [check, busiest] = [&found["check"][0]["measured"], &report["busiest"][0]["gets_per_s"]].map(Value::as_f64);
    let of_busiest = check.unwrap() / busiest.unwrap();
    assert!((0.999..1.001).contains(&of_busiest), "{found}\n{report}");
}

/// Two threads ask for a mutex that somebody else has for good, until their time has passed.
const GIVES_UP: &str = r"
#include <pthread.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *unused) {
    struct timespec past = { 0, 0 };
    for (int i = 0; i < 500; i++) pthread_mutex_timedlock(&m, &past);
    return unused;
}
int main(void) {
    pthread_t threads[2];
    pthread_mutex_lock(&m);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
";

#[test]
fn every_miss_is_a_first_spin_or_a_wait_and_rho_counts_those_that_gave_up() {
    let scratch = Directory::new();
    for source in [CONTENDED, GIVES_UP] {
        let program = compile(&scratch, source, &[]).unwrap();
        let report = report(&scratch, &[], &[&program]);
        let row = &report["busiest"][0];
        for figures in [&report, row] {
            let of = |name: &str| figures[name].as_u64().unwrap();
            assert_eq!(of("misses"), of("spin_gets") + of("waits"), "{report:#}");
            assert!(of("gets") + of("gave_up") >= of("misses"), "{report:#}");
            assert_eq!(of("gave_up"), if source == GIVES_UP { 1000 } else { 0 });
        }
        let requests = (row["gets"].as_u64().unwrap() + row["gave_up"].as_u64().unwrap()) as f64;
        let expected = row["misses"].as_u64().unwrap() as f64 / requests;
        assert!((row["miss_ratio"].as_f64().unwrap() - expected).abs() < 1e-9, "{row:#}");
    }
    let program = compile(&scratch, GIVES_UP, &[]).unwrap();
    let text = stderr(&run(&["--", &program]));
    assert!(text.contains("1,000 waits, of which 1,000 gave up") && text.contains("busiest: #1 "), "{text}");
}

#[test]
fn an_uncontended_run_says_so_and_lists_no_lock() {
    let scratch = Directory::new();
    let program = compile(&scratch, UNCONTENDED, &[]).unwrap();
    let output = run(&["--", &program]);
    assert!(stderr(&output).contains("no lock was contended: "), "{}", stderr(&output));
    let report = report(&scratch, &[], &[&program]);
    assert_eq!((report["misses"].as_u64(), report["mutexes_contended"].as_u64()), (Some(0), Some(0)));
    assert!(report["gets"].as_u64() >= Some(1000), "{report:#}");
    assert_eq!(report["time_split_pct"]["spin"], 0.0);
    assert_eq!(report["busiest"].as_array().unwrap().len(), 0);
}

/// As C++ does with `std::mutex`: memory of a mutex becomes something else without `pthread_mutex_destroy`.
const REUSED: &str = r"
#include <pthread.h>
#include <string.h>
#include <time.h>
int main(void) {
    static _Alignas(8) char memory[sizeof(pthread_mutex_t)];
    pthread_mutex_t *mutex = (pthread_mutex_t *)memory;
    for (int i = 0; i < 1000; i++) { pthread_mutex_lock(mutex); pthread_mutex_unlock(mutex); }
    struct timespec past = { 0, 0 };
    pthread_mutex_lock(mutex);
    pthread_mutex_timedlock(mutex, &past);
    pthread_mutex_unlock(mutex);
    double number = 0.63;
    memcpy(memory + 24, &number, sizeof number);
    return 0;
}
";

#[test]
fn memory_that_was_a_mutex_is_not_counted() {
    let scratch = Directory::new();
    let program = compile(&scratch, REUSED, &[]).unwrap();
    let report = report(&scratch, &[], &[&program]);
    let gets = report["gets"].as_u64().unwrap();
    assert!((1000..10_000).contains(&gets), "{report:#}");
    let all = report["busiest"].as_array().unwrap();
    assert_eq!(all.len(), 1, "{report:#}");
    assert!(all[0]["gets"].as_u64().is_none_or(|found| found <= gets), "{report:#}");
}

/// Contended for a moment, then given back and used again, by what has no number of a mutex.
const FREED: &str = r"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *contend(void *mutex) {
    for (int i = 0; i < 3; i++) {
        pthread_mutex_lock(mutex);
        usleep(100);
        pthread_mutex_unlock(mutex);
    }
    return 0;
}
int main(void) {
    for (int i = 0; i < 5; i++) {
        unsigned *words = calloc(64, sizeof *words);
        pthread_t threads[3];
        for (int n = 0; n < 3; n++) pthread_create(&threads[n], 0, contend, words);
        for (int n = 0; n < 3; n++) pthread_join(threads[n], 0);
        for (int n = 0; n < 64; n++) words[n] = n % 2 ? 0 : 1000000007u + n;
        if (i % 2) words[4] = words[0] = 0;
        usleep(150000);
    }
    return 0;
}
";

#[test]
fn memory_that_is_no_mutex_any_more_gives_no_gets() {
    let scratch = Directory::new();
    let program = compile(&scratch, FREED, &[]).unwrap();
    let report = report(&scratch, &[], &[&program]);
    assert_eq!(report["gets"], 45);
    let gets: Vec<Option<u64>> =
        report["busiest"].as_array().unwrap().iter().map(|mutex| mutex["gets"].as_u64()).collect();
    assert!(!gets.is_empty() && gets.iter().flatten().all(|gets| *gets <= 9), "{gets:?}");
}

#[test]
fn a_place_behind_a_gap_between_segments_has_its_function() {
    for options in [["-no-pie", "-Wl,--section-start=.text=0x500000"], ["-pie", "-Wl,--section-start=.text=0x100000"]] {
        let scratch = Directory::new();
        let Some(program) = compile(&scratch, CONTENDED, &options) else {
            return not_tested("the linker leaves no gap");
        };
        let report = report(&scratch, &[], &[&program]);
        let place = report["busiest"][0]["busy_at"].as_str().unwrap_or_default().to_owned();
        assert!(place.starts_with("bump (program.c:"), "{options:?}: {place}");
    }
}

/// Four threads wait for the first one.
const WAIT: &str = r"
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *get(void *no) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return no;
}
int main(void) {
    pthread_t threads[4];
#ifdef INHERIT
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&mutex, &attributes);
#endif
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, get, 0);
    usleep(200000);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return 0;
}
";

#[test]
fn threads_without_a_session_are_told() {
    let scratch = Directory::new();
    let program = compile(&scratch, WAIT, &[]).unwrap();
    let output = run(&["--sessions", "1", "--", &program]);
    let said = words(&output);
    assert!(said.contains("4 threads had no session: the instance has room for 1 thread at a time."), "{said}");
    assert!(said.contains("Their waits are not in these figures; type --sessions 5"), "{said}");
    assert!(said.contains("Next: retrial run --sessions 5 -- "), "{said}");
    let few = report(&scratch, &["--sessions", "1"], &[&program]);
    assert_eq!((&few["threads_without_session"], &few["gets"]), (&json!(4), &json!(5)), "{few:#}");
    let enough = report(&scratch, &["--sessions", "5"], &[&program]);
    assert_eq!((&enough["threads_without_session"], &enough["waits"]), (&json!(0), &json!(4)), "{enough:#}");
}

/// Leaves a process behind, which gets no lock.
const LEAVES: &str = r"
#include <pthread.h>
#include <unistd.h>
int main(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    if (fork()) return 0;
    for (int i = 0; i < 3; i++) close(i);
    sleep(1);
    return 0;
}
";

#[test]
fn a_process_that_is_left_behind_is_told() {
    let scratch = Directory::new();
    let program = compile(&scratch, LEAVES, &[]).unwrap();
    let said = words(&run(&["--", &program]));
    assert!(said.contains("a process that the program left behind still runs (pid "), "{said}");
    assert!(said.contains("--keep keeps the instance"), "{said}");
    let report = report(&scratch, &[], &[&program]);
    assert_eq!(report["processes_living"].as_array().map(Vec::len), Some(1), "{report:#}");
}

#[test]
fn too_few_files_are_a_limit() {
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", "ulimit -n 4; exec \"$0\" run -- true", RETRIAL]).output().unwrap();
    let said = words(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("Too many open files") && said.contains("ulimit -a"), "{said}");
}

#[test]
fn mutexes_that_are_left_to_libc_are_told() {
    let scratch = Directory::new();
    let program = compile(&scratch, WAIT, &["-DINHERIT"]).unwrap();
    let said = words(&run(&["--", &program]));
    let left =
        "mutexes with priority inheritance or a ceiling are left to libc (fallback): waits for these are not seen";
    assert!(said.contains("calls of ") && said.contains(left), "{said}");
    assert!(said.contains("no other lock was contended") && said.contains("& retrial attach $!"), "{said}");
}

#[test]
fn a_program_without_pthread_locks_is_told_apart() {
    let output = run(&["--", "true"]);
    assert!(stderr(&output).contains("no pthread lock was handled: "), "{}", stderr(&output));
    let scratch = Directory::new();
    if let Some(program) = compile(&scratch, "int main(void) { return 0; }", &["-static"]) {
        let output = run(&["--", &program]);
        assert!(stderr(&output).contains("statically linked"), "{}", stderr(&output));
    }
}

/// Its loader is ours by another name: it runs, but nothing is preloaded.
#[test]
fn a_program_of_another_c_library_runs_without_us() {
    let scratch = Directory::new();
    let own = interpreter(Path::new(RETRIAL));
    let (same, other) = (scratch.path("ld-linux-other-place.so"), scratch.path("ld-musl-here.so.1"));
    let same = Path::new(&same).with_file_name(Path::new(&own).file_name().unwrap()).display().to_string();
    for (loader, preloads) in [(&same, true), (&other, false)] {
        fs::copy(&own, loader).unwrap();
        let option = format!("-Wl,--dynamic-linker={loader}");
        let program = compile(&scratch, UNCONTENDED, &[&option]).unwrap();
        let output = run(&["--", &program]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let said = format!("{program} is of another C library, whose loader is {loader}: it was started without ours");
        assert_eq!(words(&output).contains(&said), !preloads, "{}", stderr(&output));
    }
}

/// The loader that a program asks for.
fn interpreter(program: &Path) -> String {
    let output = Command::new("readelf").arg("-lW").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("[Requesting program interpreter: "));
    line.unwrap().trim_end_matches(']').to_owned()
}

#[test]
fn a_large_program_is_not_read_as_a_whole() {
    let scratch = Directory::new();
    let program = compile(&scratch, "int main(void) { return 0; }", &[]).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&program).unwrap();
    if file.set_len(1 << 40).is_err() {
        not_tested("the file system has no such large files");
        return;
    }
    drop(file);
    let output = run(&["--", &program]);
    assert!(words(&output).contains("itself calls no pthread lock"), "{}", stderr(&output));
}

#[test]
fn a_program_with_thread_sanitizer_is_refused() {
    let scratch = Directory::new();
    let Some(program) = compile(&scratch, UNCONTENDED, &["-fsanitize=thread"]) else {
        not_tested("the compiler has no ThreadSanitizer");
        return;
    };
    let script = scratch.path("script");
    fs::write(&script, format!("#!{program}\n")).unwrap();
    assert!(Command::new("chmod").args(["+x", &script]).status().unwrap().success());
    for started in [&program, &script] {
        let output = run(&["--", started]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(words(&output).contains("has ThreadSanitizer in it"), "{}", stderr(&output));
        assert!(words(&output).contains("help: "), "{}", stderr(&output));
    }
}

#[test]
fn a_program_with_address_sanitizer_runs_alone_or_started_by_another() {
    let scratch = Directory::new();
    let Some(program) = compile(&scratch, UNCONTENDED, &["-fsanitize=address"]) else {
        not_tested("the compiler has no AddressSanitizer");
        return;
    };
    for started in [&[&*program][..], &["sh", "-c", &program]] {
        let report = report(&scratch, &[], started);
        assert!(report["gets"].as_u64() >= Some(1000), "{report:#}");
    }
    let output = retrial_run(&["--", "sh", "-c", "echo $ASAN_OPTIONS"]).env("ASAN_OPTIONS", "a=1").output().unwrap();
    assert_eq!(output.stdout, b"a=1:verify_asan_link_order=0\n");
}

#[test]
fn programs_are_excluded_by_name() {
    let scratch = Directory::new();
    let program = compile(&scratch, UNCONTENDED, &[]).unwrap();
    let gets = |options: &[&str], command: &[&str]| report(&scratch, options, command)["gets"].as_u64().unwrap();
    assert!(gets(&["--exclude", "other", "--exclude", "sh*"], &["sh", "-c", &program]) >= 1000);
    assert_eq!(gets(&["--exclude", "other", "--exclude", "prog*"], &["sh", "-c", &program]), 0);
    let output = run(&["--exclude", "program", "--", &program]);
    assert!(stderr(&output).contains("; excluded are: program"), "{}", stderr(&output));
    let output = retrial_run(&["--exclude", "b*", "--", "sh", "-c", "echo $RETRIAL_EXCLUDE"])
        .env("RETRIAL_EXCLUDE", "a")
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"a,b*\n");
}

#[test]
fn a_set_user_id_program_is_told_in_a_line() {
    const NOBODY: u32 = 65_534;
    let scratch = Directory::new();
    let program = compile(&scratch, UNCONTENDED, &[]).unwrap();
    if std::os::unix::fs::chown(&program, Some(NOBODY), None).is_err() {
        not_tested("only root gives files away");
        return;
    }
    assert!(Command::new("chmod").args(["4755", &program]).status().unwrap().success());
    let output = run(&["--", &program]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = format!("{program} is set-user-ID: the loader preloads nothing into it");
    assert_eq!(words(&output).matches(&expected).count(), 1, "{}", stderr(&output));
}

#[test]
fn what_a_program_left_behind_starts_is_told_nothing() {
    let late = r#"(while [ -e "$RETRIAL_INSTANCE" ]; do :; done; /bin/echo late) & exit 0"#;
    let output = run(&["--", "sh", "-c", late]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "late\n");
    assert!(!stderr(&output).contains("left to libc"), "{}", stderr(&output));
}

#[test]
fn a_report_has_the_form_that_its_file_asks_for() {
    let scratch = Directory::new();
    let program = compile(&scratch, CONTENDED, &[]).unwrap();
    let (csv, text) = (scratch.path("report.csv"), scratch.path("report.txt"));
    assert!(run(&["--report", &csv, "--", &program]).status.success());
    let rows = fs::read_to_string(&csv).unwrap();
    let header = rows.lines().next().unwrap();
    assert!(header.starts_with("mutex,type,pid,address,busy_at,gets,gets_per_s,misses,"), "{header}");
    assert!(rows.lines().count() >= 2, "{rows}");
    assert!(run(&["--report", &text, "--", &program]).status.success());
    assert!(fs::read_to_string(&text).unwrap().contains("observer: "));
    let output = run(&["--json", "--", &program]);
    let report: Value = serde_json::from_str(&stderr(&output)).unwrap();
    assert_eq!(report["exit_code"], 0);
}

/// 70,000 mutexes are used; then two threads get one of them, and leave the processor while they hold it.
const MANY: &str = r"
#include <pthread.h>
#include <time.h>
static pthread_mutex_t mutexes[70000];
static void *work(void *unused) {
    struct timespec time = { 0, 100000 };
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&mutexes[69999]);
        nanosleep(&time, 0);
        pthread_mutex_unlock(&mutexes[69999]);
    }
    return unused;
}
int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 70000; i++) { pthread_mutex_lock(&mutexes[i]); pthread_mutex_unlock(&mutexes[i]); }
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
";

#[test]
fn the_one_that_was_contended_is_found_among_many() {
    let scratch = Directory::new();
    let program = compile(&scratch, MANY, &[]).unwrap();
    let report = report(&scratch, &[], &[&program]);
    let row = &report["busiest"][0];
    assert_eq!((report["mutexes_contended"].as_u64(), row["misses"].as_u64()), (Some(1), report["misses"].as_u64()));
    assert!(row["mutex"].as_str().unwrap().starts_with('#') && row["gets"].as_u64() == Some(401), "{row:#}");
}

/// Children use a mutex each and end without a word, as servers' processes do.
const WITHOUT_A_WORD: &str = r"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
int main(void) {
    for (int child = 0; child < 8; child++) {
        if (fork() != 0) continue;
        for (int i = 0; i < 1000; i++) { pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); }
        _exit(0);
    }
    while (wait(0) > 0) {}
    return 0;
}
";

#[test]
fn gets_of_processes_that_end_without_a_word_do_not_contradict_the_number_of_mutexes() {
    let scratch = Directory::new();
    let program = compile(&scratch, WITHOUT_A_WORD, &[]).unwrap();
    let text = stderr(&run(&["--", &program]));
    assert!(text.contains("mutexes: 0 contended; 8,0") && !text.contains(" used"), "{text}");
}

/// Two threads get a mutex in memory that was mapped right behind the program's zeroed variables.
const BEHIND: &str = r"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
extern char end;
static pthread_mutex_t *mutex;
static void *work(void *unused) {
    struct timespec time = { 0, 100000 };
    for (int i = 0; i < 1000; i++) { pthread_mutex_lock(mutex); nanosleep(&time, 0); pthread_mutex_unlock(mutex); }
    return unused;
}
int main(void) {
    void *behind = (void *)(((uintptr_t)&end + 4095) & -4096);
    mutex = mmap(behind, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mutex != behind) return 1;
    mutex = (pthread_mutex_t *)((char *)behind + 64);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
";

#[test]
fn memory_behind_a_programs_variables_is_not_named_after_it() {
    let scratch = Directory::new();
    let program = compile(&scratch, BEHIND, &[]).unwrap();
    let report = report(&scratch, &[], &[&program]);
    let mutex = &report["busiest"][0]["mutex"];
    assert!(report["misses"].as_u64() > Some(0) && mutex.as_str().is_some_and(|title| !title.contains(' ')), "{mutex}");
}

/// One mutex is held for long at first, and for a moment later, when others are used more than it.
const CHANGES: &str = r"
#include <pthread.h>
#include <time.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, others[300];
static void hold(long us) {
    struct timespec time = { 0, us * 1000 };
    pthread_mutex_lock(&mutex);
    if (us) nanosleep(&time, 0);
    pthread_mutex_unlock(&mutex);
}
static void *work(void *unused) {
    for (int i = 0; i < 600; i++) hold(300);
    return unused;
}
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}
int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    for (double end = now() + 1.5; now() < end;) {
        for (int i = 0; i < 100; i++) hold(0);
        for (int i = 0; i < 300 * 200; i++) { pthread_mutex_lock(&others[i % 300]); pthread_mutex_unlock(&others[i % 300]); }
    }
    return 0;
}
";

#[test]
fn the_holding_time_is_the_utilization_over_the_rate_of_gets() {
    let scratch = Directory::new();
    let program = compile(&scratch, CHANGES, &[]).unwrap();
    let report = report(&scratch, &[], &[&program]);
    let row = &report["busiest"][0];
    let of = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row:#}"));
    let ratio = of("holding_us") * 1e-6 * of("gets_per_s") / of("utilization");
    assert!((0.5..2.0).contains(&ratio), "{ratio}: {row:#}");
}

/// Two threads contend for a mutex until a file is gone.
const UNTIL: &str = r"
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *file) {
    struct timespec time = { 0, 100000 };
    while (access(file, F_OK) == 0) { pthread_mutex_lock(&mutex); nanosleep(&time, 0); pthread_mutex_unlock(&mutex); }
    return 0;
}
int main(int count, char **arguments) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, arguments[1]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
";

#[test]
fn a_recording_of_a_short_run_says_how_long_its_mutex_was_held() {
    if !may_read() {
        return;
    }
    let scratch = Directory::new();
    let (program, file, until) =
        (compile(&scratch, UNTIL, &[]).unwrap(), scratch.path("run.db"), scratch.path("until"));
    fs::write(&until, "").unwrap();
    let mut run = Under::new(&mut retrial_run(&["--record", &file, "--", &program, &until]));
    // Samples are written every second, the next snapshot is ten seconds away.
    kit::until("samples of its holders", || {
        let statement = "SELECT coalesce(sum(count), 0) AS n FROM sample WHERE state = 'holds'";
        let asked = kit::command(&["sql", &file, statement, "--json"]).output().unwrap();
        let rows: Value = serde_json::from_slice(&asked.stdout).unwrap_or_default();
        rows[0]["n"].as_u64() > Some(10)
    });
    fs::remove_file(&until).unwrap();
    assert!(run.0.wait().unwrap().success());
    let recorded = kit::command(&["report", &file, "--json"]).output().unwrap();
    let recorded: Value = serde_json::from_slice(&recorded.stdout).unwrap();
    let row = &recorded["mutexes"][0];
    let of = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} of {recorded:#}"));
    // Each hold lasts for 100 us at least.
    assert!(of("utilization") > 0.0 && of("holding_time_us") > 50.0, "{row:#}");
}

#[test]
fn gets_of_a_lock_in_a_process_are_shown_when_they_are_known() {
    if !may_read() {
        return;
    }
    let scratch = Directory::new();
    let program = compile(&scratch, UNTIL, &[]).unwrap();
    let (file, name) = (scratch.path("here"), unused_name());
    fs::write(&file, "").unwrap();
    let mut child = retrial_run(&["--instance", &name, "--keep", "--", &program, &file]);
    let mut child = child.stderr(Stdio::null()).spawn().unwrap();
    let missed = || {
        let arguments = ["show", "mutexes", "--json", "--instance", &name];
        let output = Command::new(RETRIAL).args(arguments).output().unwrap();
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        rows.as_array().and_then(|rows| rows.iter().find(|row| row["misses"].as_u64() > Some(0)).cloned())
    };
    let living = loop {
        if let Some(row) = missed() {
            break row;
        }
    };
    fs::remove_file(&file).unwrap();
    assert!(child.wait().unwrap().success());
    let gone = missed().unwrap();
    assert!(Command::new(RETRIAL).args(["rm", &name]).stdout(Stdio::null()).status().unwrap().success());
    assert!(living["gets"].as_u64() > Some(0), "{living:#}");
    for row in [&living, &gone] {
        assert!(row["miss_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0 && ratio <= 1.0), "{row:#}");
    }
    assert!(gone["gets"].as_u64() >= gone["misses"].as_u64() && gone["miss_ratio"].is_number(), "{gone:#}");
}

/// `retrial run` itself takes no more than it is allowed, and what it makes leaves room to programs.
#[test]
fn limits_are_asked_first() {
    let scratch = Directory::new();
    let source =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../retrial-preload/tests/c/limits.c")).unwrap();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../retrial-preload/tests/c/check.h"), scratch.path("check.h"))
        .unwrap();
    let program = compile(&scratch, &source, &[]).expect("a C compiler");
    let run = |resource, limit: u64| {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        let set = move || {
            // SAFETY: the limit is readable.
            let rc = unsafe { libc::setrlimit(resource, &raw const limit) };
            if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        let mut command = retrial_run(&["--", &program]);
        // SAFETY: the call is one that may be made between fork and exec.
        unsafe { command.pre_exec(set) };
        command.output().unwrap()
    };
    for (resource, limit) in
        [(libc::RLIMIT_FSIZE, 100_000 << 10), (libc::RLIMIT_AS, 1 << 30), (libc::RLIMIT_MEMLOCK, 8 << 20)]
    {
        let output = run(resource, limit);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(words(&output).contains("gets"), "{}", stderr(&output));
    }
    let output = run(libc::RLIMIT_FSIZE, 64 << 10);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(words(&output).contains("limit of this process for the size of a file is 65536"), "{}", stderr(&output));
}

/// A run under way, in a process group of its own; killed at the end with its program, which may be stuck.
struct Under(Child);

impl Under {
    fn new(command: &mut Command) -> Self {
        Self(command.process_group(0).spawn().unwrap())
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            // SAFETY: the group of our own child, which has not been waited for.
            unsafe { libc::kill(-i32::try_from(self.0.id()).unwrap(), libc::SIGKILL) };
        }
        let _ = self.0.wait();
    }
}

/// What a command about an instance prints as JSON; nothing while there is no such instance.
fn rows(name: &str, arguments: &[&str]) -> Vec<Value> {
    let output = Command::new(RETRIAL).args(arguments).args(["-i", name, "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// The same as text.
fn said(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(RETRIAL).args(arguments).args(["-i", name]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Looks until the text is so.
fn until_said(name: &str, arguments: &[&str], so: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    for _ in 0..600 {
        text = said(name, arguments);
        if so(&text) {
            return text;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("not in 600 looks: {text}");
}

/// Looks until the sessions are so.
fn until_sessions(name: &str, so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    for _ in 0..6000 {
        let sessions = rows(name, &["ps"]);
        if so(&sessions) {
            return sessions;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("not within a minute: {:?}", rows(name, &["ps"]));
}

/// Two threads get two locks, each in another order, and wait for each other.
const DEADLOCKED: &str = r"
#include <pthread.h>
static pthread_mutex_t lock_a = INITIALIZER, lock_b = INITIALIZER;
static pthread_barrier_t both;
__attribute__((noinline)) static void *first(void *unused) {
    pthread_mutex_lock(&lock_a);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&lock_b);
    return unused;
}
__attribute__((noinline)) static void *second(void *unused) {
    pthread_mutex_lock(&lock_b);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&lock_a);
    return unused;
}
int main(void) {
    pthread_t threads[2];
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, ROBUST);
    pthread_mutex_init(&lock_a, &attr);
    pthread_mutex_init(&lock_b, &attr);
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&threads[0], 0, first, 0);
    pthread_create(&threads[1], 0, second, 0);
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    return 0;
}
";

#[test]
fn threads_that_wait_for_each_other_are_a_deadlock_and_their_waits_count_before_they_end() {
    if !may_read() {
        return;
    }
    // Ours and libc's format.
    for robust in ["PTHREAD_MUTEX_STALLED", "PTHREAD_MUTEX_ROBUST"] {
        let (name, scratch) = (unused_name(), Directory::new());
        let source = DEADLOCKED.replace("ROBUST", robust).replace("INITIALIZER", "PTHREAD_MUTEX_INITIALIZER");
        let program = compile(&scratch, &source, &[]).unwrap();
        let (file, page) = (scratch.path("report.json"), scratch.path("report.html"));
        let recording = scratch.path("run.db");
        let mut run = Under::new(&mut retrial_run(&[
            "--scheme",
            "pthread",
            "--record",
            &recording,
            "--instance",
            &name,
            "--report",
            &file,
            "--html",
            &page,
            "--",
            &program,
        ]));
        let long = |row: &Value| row["state"] == "DEADLOCK" && row["waited_s"].as_f64().unwrap() > 2.0;
        let sessions = until_sessions(&name, |rows| rows.iter().filter(|row| long(row)).count() == 2);
        let pair: Vec<&Value> = sessions.iter().filter(|row| row["state"] == "DEADLOCK").collect();
        let [a, b] = [pair[0], pair[1]];
        for (waiter, holder) in [(a, b), (b, a)] {
            assert_eq!(waiter["held_by"], format!("{} X", holder["sid"]), "{sessions:?}");
            assert!(holder["holds"].as_str().unwrap().contains(waiter["mutex"].as_str().unwrap()), "{sessions:?}");
            assert!(waiter["mutex"].as_str().unwrap().contains(" lock_"), "{sessions:?}");
        }
        for view in [&["ps"][..], &["show"], &["show", "mutexes"], &["show", "events"]] {
            let text = said(&name, view);
            assert!(text.contains("DEADLOCK: 2 sessions wait for each other"), "{view:?}: {text}");
            assert!(text.contains(" at first (program.c:") && text.contains(" at second (program.c:"), "{text}");
        }
        // A waiter is awake for a moment at times, and has no stack to read then.
        let parts = ["   calls: first (program.c:", "   calls: second (program.c:", "\nNext: gdb -p "];
        let who = until_said(&name, &["who"], |who| parts.iter().all(|part| who.contains(part)));
        let order = who.lines().find(|line| line.contains("if all get these in one order, such as #"));
        assert!(order.is_some_and(|line| line.contains(" lock_a ") && line.contains(" lock_b ")), "{who}");
        let event = &rows(&name, &["show", "events"])[0];
        assert!(event["time_s"].as_f64().unwrap() > 4.0 && event["max_ms"].as_f64().unwrap() > 2000.0, "{event}");
        // SAFETY: our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(i32::try_from(run.0.id()).unwrap(), libc::SIGTERM) }, 0);
        assert_eq!(run.0.wait().unwrap().signal(), Some(libc::SIGTERM));
        let report: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains("; while it hangs: retrial who -i deadlock</code>"), "{page}");
        assert!(report["wait_ms"].as_f64().unwrap() > 4000.0, "{report}");
        assert!(report["max_wait_ms"].as_f64().unwrap() > 2000.0, "{report}");
        let deadlock = &report["deadlocks"][0];
        assert_eq!((&report["deadlocks"][1], &deadlock["ended"]), (&Value::Null, &false.into()), "{report}");
        assert!(deadlock["for_s"].as_f64().unwrap() > 2.0, "{report}");
        for link in deadlock["sessions"].as_array().unwrap() {
            let (mutex, place) = (link["mutex"].as_str().unwrap(), link["at"].as_str().unwrap());
            let expected = if place.starts_with("first (") { " lock_b (program)" } else { " lock_a (program)" };
            assert!(mutex.ends_with(expected), "{report}");
        }
        // The sessions have ended at the last snapshot.
        let recorded = kit::command(&["report", &recording, "--json"]).output().unwrap();
        let recorded: Value = serde_json::from_slice(&recorded.stdout).unwrap();
        let (deadlock, found) = (&recorded["deadlocks"][0], recorded["findings"].as_array().unwrap());
        assert!(deadlock["for_s"].as_f64().unwrap() > 2.0 && deadlock["ended"] == true, "{recorded}");
        assert_eq!(found[0]["rule"], "deadlock", "{recorded}");
        assert!(found.iter().all(|finding| finding["rule"] != "long_holder"), "{recorded}");
    }
}

/// Four threads come and go; at a line of input the program ends.
const COMES_AND_GOES: &str = r"
#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static void *uses(void *none) { pthread_mutex_lock(&m); pthread_mutex_unlock(&m); return none; }
int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, uses, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    pthread_mutex_lock(&m);
    getchar();
    return 0;
}
";

#[test]
fn threads_that_have_ended_are_not_shown_as_dead() {
    let (name, scratch) = (unused_name(), Directory::new());
    let program = compile(&scratch, COMES_AND_GOES, &[]).unwrap();
    let mut command = retrial_run(&["--instance", &name, "--", &program]);
    let mut run = Under::new(command.stdin(Stdio::piped()));
    // For a moment the only one may be a thread that is about to end.
    until_sessions(&name, |rows| rows.len() == 1 && rows[0]["state"] == "running");
    drop(run.0.stdin.take());
    assert_eq!(run.0.wait().unwrap().code(), Some(0));
}

/// One thread has a lock and five wait for it; at a line of input it lets go, and whoever gets it keeps it.
const HELD_ON: &str = r"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *unused) {
    pthread_mutex_lock(&gate);
    pause();
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 5; i++) pthread_create(&thread, 0, work, 0);
    getchar();
    pthread_mutex_unlock(&gate);
    getchar();
    return 0;
}
";

#[test]
fn ps_and_show_say_who_has_a_programs_lock_now() {
    if !may_read() {
        return;
    }
    let (name, scratch) = (unused_name(), Directory::new());
    let program = compile(&scratch, HELD_ON, &[]).unwrap();
    let file = scratch.path("report.json");
    let mut command = retrial_run(&["--keep", "--instance", &name, "--report", &file, "--", &program]);
    let mut run = Under::new(command.stdin(Stdio::piped()));
    let held_by = |rows: &[Value], holder: &Value| {
        let waiters = rows.iter().filter(|row| row["state"] == "waiting");
        waiters.filter(|row| row["held_by"] == format!("{} X", holder["sid"])).count()
    };
    let rows_now = until_sessions(&name, |rows| rows.first().is_some_and(|main| held_by(rows, main) == 5));
    let gate = rows_now[1]["mutex"].as_str().unwrap();
    assert!(gate.ends_with(" gate (program)"), "{rows_now:?}");
    assert_eq!(rows_now[0]["holds"], format!("{gate} X"));
    for text in [gate, "gate", "gate (program)", gate.split(' ').next().unwrap()] {
        let traced = said(&name, &["trace", "--mutex", text, "--for", "20ms"]);
        assert!(traced.contains(&format!("on \"{gate}\"")) && traced.contains(" (program.c:"), "{text}: {traced}");
    }
    let watched = said(&name, &["watch", "--when", "waiters('gate') > 0", "--once", "--every", "20ms"]);
    assert!(watched.contains("waiters('gate') = 5"), "{watched}");
    let output = Command::new(RETRIAL).args(["peek", "nope", "-i", &name]).output().unwrap();
    assert!(words(&output).contains(&format!("expected one of: {gate}")), "{}", stderr(&output));
    assert!(said(&name, &["show", "locations"]).contains(" (program.c:"));
    let mut input = run.0.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    let holds = |row: &&Value| row["holds"] == format!("{gate} X");
    let now = until_sessions(&name, |rows| {
        rows.iter().find(holds).is_some_and(|holder| holder["sid"] != 1 && held_by(rows, holder) == 4)
    });
    let holder = now.iter().find(holds).unwrap()["sid"].clone();
    let mutex = &rows(&name, &["show", "mutexes"])[0];
    assert_eq!((&mutex["word"], &mutex["name"]), (&format!("sid {holder} X").into(), &"gate (program)".into()));
    assert_eq!((&mutex["gets"], &mutex["misses"]), (&2.into(), &5.into()));
    let text = said(&name, &["show", "mutexes"]);
    assert!(text.contains("Next: retrial show sleeps") && !text.contains("peek"), "{text}");
    input.write_all(b"\n").unwrap();
    assert_eq!(run.0.wait().unwrap().code(), Some(0));
    // Kept: nobody is left in it, and what was known is there still.
    assert!(rows(&name, &["ps"]).is_empty());
    let kept = &rows(&name, &["show", "mutexes"])[0];
    // Its name is known if the observer's census of mutexes has come before the end, which follows at once.
    assert!(["", "gate (program)"].contains(&kept["name"].as_str().unwrap()), "{kept}");
    assert_eq!((&kept["gets"], &kept["misses"]), (&2.into(), &5.into()));
    let report: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let (all_ms, kept_ms) = (report["wait_ms"].as_f64().unwrap(), kept["wait_ms"].as_f64().unwrap());
    assert!(
        (all_ms - kept_ms).abs() < 1.0,
        "waits that the end cut off count as the report has it: {all_ms} and {kept_ms} ms"
    );
    assert!(Command::new(RETRIAL).args(["rm", &name]).output().unwrap().status.success());
}

/// Three threads wait for a semaphore, then at a barrier, then on a condition: at each line of input main
/// lets them go on.
const AWAITING: &str = r"
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
static sem_t items;
static pthread_barrier_t start;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int goes_on;
__attribute__((noinline)) static void take(void) { while (sem_wait(&items)); }
static void *work(void *unused) {
    take();
    pthread_barrier_wait(&start);
    pthread_mutex_lock(&mutex);
    while (!goes_on) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    return unused;
}
int main(void) {
    pthread_t threads[3];
    sem_init(&items, 0, 0);
    pthread_barrier_init(&start, 0, 4);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
    getchar();
    for (int i = 0; i < 3; i++) sem_post(&items);
    getchar();
    pthread_barrier_wait(&start);
    getchar();
    pthread_mutex_lock(&mutex);
    goes_on = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    return 0;
}
";

#[test]
fn waits_for_what_nobody_holds_are_timed_apart_from_contention() {
    let (name, scratch) = (unused_name(), Directory::new());
    let program = compile(&scratch, AWAITING, &[]).unwrap();
    let file = scratch.path("report.json");
    let mut command = retrial_run(&["--instance", &name, "--report", &file, "--", &program]);
    let mut run = Under::new(command.stdin(Stdio::piped()));
    let mut input = run.0.stdin.take().unwrap();
    let kinds = ["pthread semaphore", "pthread barrier", "pthread condition"];
    for (i, kind) in kinds.into_iter().enumerate() {
        let waits = |row: &&Value| {
            row["state"] == "waiting" && row["waits_for"] == kind && row["waited_s"].as_f64().unwrap() > 0.15
        };
        let sessions = until_sessions(&name, |rows| rows.iter().filter(waits).count() == 3);
        assert!(sessions.iter().filter(waits).all(|row| row["held_by"] == ""), "{sessions:?}");
        let events = rows(&name, &["show", "events"]);
        let event = events.iter().find(|row| row["event"] == kind).unwrap();
        assert_eq!((&event["wait_class"], &event["pct_time"]), (&"Event".into(), &Value::Null), "{events:?}");
        assert!(event["time_s"].as_f64().unwrap() > 0.45, "{i}: {events:?}");
        input.write_all(b"\n").unwrap();
    }
    assert_eq!(run.0.wait().unwrap().code(), Some(0));
    let report: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let of = |kind: &str| {
        let objects = report["waits_for_events"].as_array().unwrap();
        objects.iter().find(|object| object["type"] == kind).unwrap().clone()
    };
    for (kind, waits) in kinds.into_iter().zip([3, 4, 3]) {
        let object = of(kind);
        // A wait on a semaphore may have been interrupted, one on a condition spurious.
        assert!(object["waits"].as_u64().unwrap() >= waits, "{report}");
        assert!(object["wait_ms"].as_f64().unwrap() > 450.0, "{report}");
        assert!(object["max_wait_ms"].as_f64().unwrap() > 150.0, "{report}");
    }
    assert!(of(kinds[0])["at"].as_str().unwrap().starts_with("take ("), "{report}");
    assert!(report["wait_ms"].as_f64().unwrap() < 150.0, "no contention: {report}");
    assert!(report["deadlocks"].as_array().unwrap().is_empty(), "{report}");
}

#[test]
fn a_terminal_that_hangs_up_ends_the_program_too() {
    let mut command = retrial_run(&["--", "sh", "-c", "echo \"pid $$.\"; exec sleep 1000"]);
    let terminal = Terminal::new(&mut command, (80, 24));
    let shown = terminal.until(".");
    let pid = shown.split("pid ").nth(1).unwrap().split('.').next().unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(terminal.hang_up().signal(), Some(libc::SIGHUP));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}
