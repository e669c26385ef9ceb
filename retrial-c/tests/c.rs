//! Programs in C with the library as it is installed. A failure prints what the program printed.

#[path = "kit/mod.rs"]
mod kit;

use kit::{check, compiler, here, instance, is_there, not_tested, of_the_page, prefix, printed, shared};
use retrial::{Address, Class, Instance, location};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

const HEADERS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/include/retrial.h"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/include/retrial_cond.h"),
];

/// What of each header is generated.
fn generated() -> [String; 2] {
    [retrial_c::generated(), retrial_c::condition()]
}

/// How a program is compiled.
#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Shared,
    Static,
    Clang,
    /// Every get and release is a call.
    Debug,
    Unoptimised,
    /// With the sanitizers of addresses, undefined behaviour and leaks.
    Sanitized,
    /// With the sanitizer of threads.
    Threads,
}

/// A program, compiled with the installed library.
fn compiled(source: &str, how: How) -> PathBuf {
    let source = here(source);
    let name = source.file_stem().expect("a name").display();
    let cc = if how == How::Clang { "clang" } else { "cc" };
    let (mut command, binary) = compiler(cc, "c11", &source, &format!("{name}-{how:?}"));
    command.arg(if how == How::Unoptimised { "-O0" } else { "-O2" });
    if how == How::Debug {
        command.arg("-DRETRIAL_DEBUG");
    }
    if how == How::Sanitized {
        command.args(["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    }
    if how == How::Threads {
        command.args(["-g", "-fsanitize=thread"]);
    }
    if how == How::Static {
        command.arg(prefix().join("lib/libretrial.a")).args(["-ldl", "-lm"]);
    } else {
        command.args(shared());
    }
    check(&mut command);
    binary
}

/// Those of them for which there is a compiler.
fn can(hows: &[How]) -> impl Iterator<Item = How> {
    hows.iter().copied().filter(|how| *how != How::Clang || is_there("clang"))
}

#[test]
fn the_survivor_of_a_killed_holder_is_told_and_the_total_is_right() {
    for how in can(&[How::Shared, How::Static, How::Clang]) {
        check(Command::new(compiled("tests/c/died.c", how)).arg(instance(&format!("died-{how:?}"))));
    }
}

/// Inlined and not: what the two answer is the same.
fn check_inlined_and_called(source: &str) {
    for how in can(&[How::Shared, How::Static, How::Unoptimised, How::Debug, How::Clang]) {
        check(&mut Command::new(compiled(source, how)));
    }
}

#[test]
fn bad_input_is_answered_with_a_code() {
    check_inlined_and_called("tests/c/bad_input.c");
}

#[test]
fn what_comes_late_still_holds_and_frees() {
    check_inlined_and_called("tests/c/ends.c");
}

#[test]
fn modes_deadlines_conversions_and_parameters_work() {
    check_inlined_and_called("tests/c/calls.c");
}

#[test]
fn a_kill_at_each_instruction_of_an_inlined_get_and_release_is_recovered() {
    // A call alone takes more steps than these: the path is inlined.
    for how in can(&[How::Shared, How::Clang, How::Unoptimised]) {
        let expected = if how == How::Unoptimised { 100..600 } else { 40..160 };
        let text = printed(Command::new(compiled("tests/c/steps.c", how)).arg(instance(&format!("steps-{how:?}"))));
        let kills: Vec<u32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [steps, before, holding, after] = kills[..] else { panic!("{text}") };
        assert!(expected.contains(&steps) && steps == before + holding + after, "{how:?}: {text}");
        assert!(before > 0 && holding > 0 && after > 0, "{how:?}: {text}");
    }
}

#[test]
fn waits_are_signalled_and_what_is_wrong_with_one_is_answered_with_a_code() {
    check_inlined_and_called("tests/c/waits.c");
}

#[test]
fn the_mailbox_of_the_page_gives_the_letter_to_who_waits() {
    let source = prefix().join("mailbox.c");
    std::fs::write(&source, of_the_page("```c mailbox\n")).expect("a file can be written");
    let binary = compiled(source.to_str().expect("a path"), How::Shared);
    let instance = instance("mailbox");
    let run = |deed: &str| printed(Command::new(&binary).args([&instance, deed]));
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| run("read"));
        assert_eq!(run("7"), "");
        assert_eq!(reads.join().expect("it reads"), "7\n");
        // The same objects in Rust.
        let box_in_rust = Instance::attach(&Address::new(&instance).expect("a path")).expect("it is there");
        let letter = box_in_rust.mutex("letter", "mailboxes", || 0i64).expect("it is there");
        let changed = box_in_rust.condition("changed").expect("it is there");
        let session = box_in_rust.session("Rust", Class::Normal).expect("a session");
        let reads = scope.spawn(|| run("read"));
        while !box_in_rust.tables().sessions().iter().any(|session| session.wait.is_some()) {
            std::thread::yield_now();
        }
        *letter.exclusive(&session, location!()).expect("no holder died") = 9;
        changed.signal();
        assert_eq!(reads.join().expect("it reads"), "9\n");
    });
    std::fs::remove_file(&instance).expect("the instance is there");
}

#[test]
fn processes_that_get_and_release_without_calls_exclude_each_other() {
    for how in can(&[How::Shared, How::Clang]) {
        check(Command::new(compiled("tests/c/stress.c", how)).arg(instance(&format!("stress-{how:?}"))));
    }
}

#[test]
fn the_sanitizer_of_threads_knows_what_the_mutex_orders() {
    // It finds no room for its shadow where addresses are random.
    if !Command::new("setarch").args(["-R", "true"]).status().is_ok_and(|status| status.success()) {
        return not_tested(format_args!("setarch -R is refused"));
    }
    let binary = compiled("tests/c/stress.c", How::Threads);
    check(Command::new("setarch").arg("-R").arg(&binary).arg(instance("threads")));
}

#[test]
fn the_ring_buffer_of_the_examples_loses_nothing() {
    let text = printed(Command::new(compiled("examples/ring_buffer.c", How::Shared)).arg(instance("ring")));
    assert!(text.contains("2 producers put 20000 items, 2 consumers took 20000, sum right"), "{text}");
}

#[test]
fn a_page_latch_survives_its_holders_amid_a_split() {
    let text = printed(Command::new(compiled("examples/btree.c", How::Shared)).arg(instance("btree")));
    assert!(text.contains("640 keys in order, 40 holders killed, 40 pages made good"), "{text}");
}

#[test]
fn sanitizers_and_valgrind_find_nothing_in_the_examples() {
    for example in ["examples/ring_buffer.c", "examples/btree.c"] {
        let binary = compiled(example, How::Sanitized);
        check(Command::new(&binary).arg(instance("sanitized")));
        let binary = compiled(example, How::Unoptimised);
        if is_there("valgrind") {
            let mut command = Command::new("valgrind");
            command.args(["--quiet", "--error-exitcode=9", "--trace-children=yes"]);
            check(command.arg(&binary).arg(instance("valgrind")));
        }
    }
}

#[test]
fn the_pairs_of_the_examples_are_measured() {
    let text = printed(Command::new(compiled("examples/pair.c", How::Shared)).arg("1"));
    // Nine without Concurrency Kit.
    assert!((9..=10).contains(&text.lines().count()), "{text}");
}

#[test]
fn the_program_of_the_page_counts() {
    let source = prefix().join("counter.c");
    std::fs::write(&source, of_the_page("```c\n")).expect("a file can be written");
    let binary = compiled(source.to_str().expect("a path"), How::Shared);
    let instance = instance("page");
    let counts = || printed(Command::new(&binary).arg(&instance));
    assert_eq!([counts(), counts(), counts()], ["1\n", "2\n", "3\n"]);
    std::fs::remove_file(&instance).expect("the instance is there");
    // Where there is no /proc either, as in a chroot.
    let without_proc = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs none /proc && exec \"$@\"",
            "sh",
        ]);
        command.args(program);
        command
    };
    if without_proc(&["true"]).output().is_ok_and(|output| output.status.success()) {
        let counts = || printed(&mut without_proc(&[binary.to_str().expect("a path"), &instance]));
        assert_eq!([counts(), counts()], ["1\n", "2\n"]);
        std::fs::remove_file(&instance).expect("the instance is there");
    } else {
        not_tested(format_args!("no user namespace can be made"));
    }
}

#[test]
fn the_struct_of_the_page_is_repaired_after_its_holder() {
    let source = prefix().join("own.c");
    std::fs::write(&source, of_the_page("```c own\n")).expect("a file can be written");
    let binary = compiled(source.to_str().expect("a path"), How::Shared);
    assert_eq!(printed(&mut Command::new(&binary)), "repaired: 7, 0\n");
}

/// A block of the page with a program around it.
fn with_main(name: &str, begins: &str, main: &str) -> String {
    let source = prefix().join(name);
    std::fs::write(&source, of_the_page(begins) + main).expect("a file can be written");
    source.to_str().expect("a path").to_owned()
}

#[test]
fn the_counters_of_the_page_count_before_and_after() {
    const BEFORE: &str = "
static struct counter counter;
int main(void) { return counter_init(&counter) || counter_add(&counter, 7) || counter.value != 7; }
";
    const AFTER: &str = "
int main(void) {
    static struct counter counter;
    retrial_instance *instance;
    retrial_session *session;
    return retrial_instance_anonymous(NULL, &instance) || retrial_session_open(instance, NULL, &session) ||
           counter_add(session, &counter, 7) || counter.value != 7;
}
";
    let before = with_main("before.c", "```c pthread\n", BEFORE);
    check(&mut Command::new(compiled(&before, How::Shared)));
    let after = with_main("after.c", "```c retrial\n", AFTER);
    check(&mut Command::new(compiled(&after, How::Shared)));
}

#[test]
fn the_headers_are_those_of_the_source() {
    const FROM: &str = "/* Generated: RETRIAL_BLESS=1 cargo test -p retrial-c */\n";
    const TO: &str = "/* End of what is generated. */\n";
    for (path, generated) in HEADERS.iter().zip(generated()) {
        let header = std::fs::read_to_string(path).expect("the header can be read");
        let (before, rest) = header.split_once(FROM).expect("the generated part has a beginning");
        let (found, after) = rest.split_once(TO).expect("the generated part has an end");
        if std::env::var_os("RETRIAL_BLESS").is_some() {
            std::fs::write(path, format!("{before}{FROM}{generated}{TO}{after}")).expect("the header can be written");
        } else {
            assert_eq!(found, generated, "RETRIAL_BLESS=1 cargo test -p retrial-c");
        }
    }
}

/// The name of each call that the headers declare and do not inline, and how it is declared.
fn declared() -> Vec<(String, String)> {
    let header = HEADERS.map(|path| std::fs::read_to_string(path).expect("the header can be read")).concat();
    let starts = ["static inline", "RETRIAL_INLINE_", "#", " "];
    let mut lines = header.lines();
    let mut calls = Vec::new();
    while let Some(line) = lines.next() {
        let Some((before, _)) = line.split_once('(').filter(|_| !starts.iter().any(|start| line.starts_with(start)))
        else {
            continue;
        };
        let name = before.rsplit([' ', '*']).next().expect("a name").to_owned();
        if name.starts_with("retrial_") {
            let mut call = line.trim_start_matches("RETRIAL_NOTHROW_ ").to_owned();
            while !call.ends_with(';') {
                call += " ";
                call += lines.next().expect("a declaration ends").trim_start();
            }
            calls.push((name, call));
        }
    }
    calls.sort();
    calls
}

#[test]
fn the_abi_is_that_of_the_dump() {
    let listed = printed(Command::new("nm").args(["-D", "--defined-only"]).arg(prefix().join("lib/libretrial.so")));
    let mut exported: Vec<_> = listed.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.sort_unstable();
    let calls = declared();
    let expected: Vec<_> = calls.iter().map(|(name, _)| format!("{name}@@RETRIAL_0")).collect();
    assert_eq!(
        exported.iter().filter(|name| **name != "RETRIAL_0").collect::<Vec<_>>(),
        expected.iter().collect::<Vec<_>>()
    );
    let declarations: Vec<_> = calls.iter().map(|(_, call)| call.as_str()).collect();
    let found = format!("{}\n{}\n{}", exported.join("\n"), declarations.join("\n"), generated().concat());
    let dump = here("tests/abi.txt");
    if std::env::var_os("RETRIAL_BLESS").is_some() {
        std::fs::write(&dump, &found).expect("the dump can be written");
    }
    assert_eq!(
        std::fs::read_to_string(&dump).expect("the dump can be read"),
        found,
        "programs have to be compiled again"
    );
}

/// A library with the calls that the headers declare, which do nothing: its debug information has what a C compiler
/// makes of the headers, and nothing of Rust's types.
fn library_of_the_headers() -> PathBuf {
    let mut text = String::from("#include <retrial.h>\n#include <retrial_cond.h>\n");
    for (_, call) in declared() {
        let _ = writeln!(text, "{} {{ return 0; }}", call.trim_end_matches(';'));
    }
    let source = prefix().join("abi.c");
    std::fs::write(&source, text).expect("a file can be written");
    let (mut command, library) = compiler("cc", "c11", &source, "libretrial-abi.so");
    command.args(["-g", "-shared", "-fPIC", "-Wno-unused-parameter", "-Wl,-soname,libretrial.so.0"]);
    command.arg(format!("-ffile-prefix-map={}=.", prefix().display()));
    check(command.arg(format!("-Wl,--version-script={}", here("retrial.map").display())));
    library
}

#[test]
#[cfg(target_arch = "x86_64")]
fn abidiff_finds_the_abi_unchanged() {
    if !is_there("abidiff") {
        return;
    }
    let (library, dump) = (library_of_the_headers(), here("tests/abi.xml"));
    if std::env::var_os("RETRIAL_BLESS").is_some() {
        let mut command = Command::new("abidw");
        command.args(["--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--type-id-style", "hash"]);
        check(command.arg("--out-file").arg(&dump).arg(&library));
    }
    let output = Command::new("abidiff").args([&dump, &library]).output().expect("it starts");
    let report = String::from_utf8_lossy(&output.stdout);
    // 4 is a change, 8 one that programs do not survive.
    assert_eq!(
        output.status.code(),
        Some(0),
        "RETRIAL_BLESS=1 cargo test -p retrial-c --test c, if it is meant:\n{report}"
    );
}

#[test]
fn the_headers_compile_without_a_warning_by_each_standard() {
    const C: &str = "#include <retrial.h>\n#include <retrial_cond.h>\n";
    const CPP: &str = "#include <retrial.hpp>\n#include <retrial_cond.hpp>\n";
    const STRICT: [&str; 6] = ["conversion", "sign-conversion", "shadow", "cast-qual", "undef", "strict-aliasing=1"];
    const STRICT_CPP: [&str; 3] = ["old-style-cast", "zero-as-null-pointer-constant", "non-virtual-dtor"];
    const USE: &str = "
int get_and_release(retrial_session *session, retrial_mutex *mutex);
int get_and_release(retrial_session *session, retrial_mutex *mutex) {
    return retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE) + retrial_mutex_release(session, mutex);
}
";
    for (cc, standards, name, text, more) in [
        ("cc", ["c99", "c11", "c17"], "headers.c", format!("{C}{USE}"), [].as_slice()),
        ("clang", ["c99", "c11", "c17"], "headers.c", format!("{C}{USE}"), &[]),
        ("c++", ["c++17", "gnu++17", "c++20"], "headers.cpp", format!("{C}{CPP}{USE}"), &STRICT_CPP),
        ("clang++", ["c++17", "gnu++17", "c++20"], "headers.cpp", format!("{C}{CPP}{USE}"), &STRICT_CPP),
    ] {
        let source = prefix().join(name);
        std::fs::write(&source, text).expect("a file can be written");
        let strict: Vec<_> = STRICT.iter().chain(more).map(|warning| format!("-W{warning}")).collect();
        for standard in standards.into_iter().filter(|_| is_there(cc)) {
            check(compiler(cc, standard, &source, "headers").0.args(&strict).args(["-O2", "-S"]));
        }
    }
}
