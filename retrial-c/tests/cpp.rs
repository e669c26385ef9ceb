//! Programs in C++ with the library as it is installed. A failure prints what the program printed.

#[path = "kit/mod.rs"]
mod kit;

use kit::{check, compiler, here, instance, is_there, not_tested, of_the_page, prefix, printed, shared};
use retrial::{Address, Capacity, Class, GetError, Instance, location};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command that compiles a program, and where the program is then.
fn command(by: &str, standard: &str, source: &str, flags: &[&str]) -> (Command, PathBuf) {
    let source = here(source);
    let name = source.file_stem().expect("a name").display();
    let binary = format!("{name}-{by}-{standard}{}", flags.concat());
    let (mut command, binary) = compiler(by, standard, &source, &binary);
    command.arg("-O2").args(flags).args(shared());
    (command, binary)
}

fn compiled(source: &str, flags: &[&str]) -> PathBuf {
    let (mut command, binary) = command("c++", "c++17", source, flags);
    check(&mut command);
    binary
}

#[test]
fn guards_release_and_the_survivor_of_a_killed_one_is_told() {
    if is_there("c++") {
        check(Command::new(compiled("tests/cpp/guards.cpp", &[])).arg(instance("guards")));
        check(Command::new(compiled("tests/cpp/guards.cpp", &["-DRETRIAL_DEBUG"])).arg(instance("guards-called")));
    }
}

#[test]
fn guards_do_the_same_by_each_compiler_and_standard() {
    for by in ["c++", "clang++"].into_iter().filter(|by| is_there(by)) {
        for standard in ["c++17", "c++20"] {
            let build = |source, flags: &[&str]| {
                let (mut command, binary) = command(by, standard, source, flags);
                check(&mut command);
                Command::new(binary)
            };
            check(build("tests/cpp/guards.cpp", &[]).arg(instance(&format!("guards-{by}-{standard}"))));
            check(&mut build("tests/cpp/codes.cpp", &["-fno-exceptions", "-fno-rtti"]));
            check(&mut build("tests/cpp/waits.cpp", &[]));
        }
    }
}

#[test]
fn the_program_of_the_page_counts() {
    if is_there("c++") {
        let source = prefix().join("page.cpp");
        std::fs::write(&source, of_the_page("```cpp\n")).expect("a file can be written");
        let binary = compiled(source.to_str().expect("a path"), &[]);
        let instance = instance("page-cpp");
        check(Command::new(&binary).arg(&instance));
        check(Command::new(&binary).arg(&instance));
        std::fs::remove_file(&instance).expect("the instance is there");
    }
}

#[test]
fn the_counters_of_the_page_count_with_boost_and_without() {
    if !is_there("c++") {
        return;
    }
    let add_twice =
        "\nint main(int, char **argv) {\n    add(argv[1], 3);\n    return add(argv[1], 4) == 7 ? 0 : 1;\n}\n";
    let counts = |name: &str, begins: &str, instance: &str| {
        let source = prefix().join(name);
        std::fs::write(&source, of_the_page(begins) + add_twice).expect("a file can be written");
        check(Command::new(compiled(source.to_str().expect("a path"), &[])).arg(instance));
    };
    let path = instance("moved");
    counts("moved.cpp", "```cpp after\n", &path);
    std::fs::remove_file(&path).expect("the instance is there");
    if Path::new("/usr/include/boost/interprocess").exists() {
        let name = format!("retrial-boost-{}", std::process::id());
        counts("boost.cpp", "```cpp boost\n", &name);
        std::fs::remove_file(Path::new("/dev/shm").join(name)).expect("the segment is there");
    } else {
        not_tested(format_args!("there is no Boost.Interprocess"));
    }
}

/// Of what a C program of the tests is compiled to.
fn compiled_as_c(source: &Path, name: &str) -> PathBuf {
    let (mut command, binary) = compiler("cc", "c11", source, name);
    check(command.arg("-O2").args(shared()));
    binary
}

#[test]
fn c_and_cpp_and_rust_count_in_one_mutex_and_are_told_of_each_others_death() {
    if !is_there("c++") {
        return;
    }
    let programs = ["three.c", "three.cpp"].map(|name| prefix().join(name));
    for (program, begins) in programs.iter().zip(["```c\n", "```cpp\n"]) {
        std::fs::write(program, of_the_page(begins)).expect("a file can be written");
    }
    let in_c = compiled_as_c(&programs[0], "three-in-c");
    let in_cpp = compiled(programs[1].to_str().expect("a path"), &[]);
    let dies = compiled_as_c(&here("tests/c/dies.c"), "dies");
    let path = instance("three");
    let killed = || Command::new(&dies).arg(&path).status().expect("it starts").signal();

    let instance = Instance::create(&Address::new(&path).expect("a path"), Capacity::default(), 0o600).expect("made");
    let mutex = instance.mutex("hits", "counters", || 0i64).expect("made");
    let session = instance.session("Rust", Class::Normal).expect("a session");
    *mutex.exclusive(&session, location!()).expect("free") += 1;
    check(Command::new(&in_c).arg(&path));
    check(Command::new(&in_cpp).arg(&path));
    assert_eq!(*mutex.shared(&session, location!()).expect("free"), 1 + 1 + 3);

    // Rust is told of C's death; C++ throws until it is made good.
    assert_eq!(killed(), Some(9));
    assert!(!Command::new(&in_cpp).arg(&path).output().expect("it starts").status.success());
    let Err(GetError::OwnerDied(mut died)) = mutex.exclusive(&session, location!()) else { panic!("not told") };
    assert_eq!(*died.guard, 6);
    *died.guard -= 1;
    died.guard.consistent();
    drop(died);
    check(Command::new(&in_cpp).arg(&path));
    // C is told of it and goes on.
    assert_eq!(killed(), Some(9));
    assert_eq!(printed(Command::new(&in_c).arg(&path)), "10\n");
    assert_eq!(*mutex.shared(&session, location!()).expect("free"), 10);
    std::fs::remove_file(&path).expect("the instance is there");
}

/// What an object file has: instructions, those with a lock, and the functions that it calls.
#[cfg(target_arch = "x86_64")]
fn instructions(object: &Path) -> (usize, usize, BTreeSet<String>) {
    let text = printed(Command::new("objdump").arg("-dr").arg("--no-show-raw-insn").arg(object));
    let is_instruction = |line: &&str| line.starts_with(' ') && line.contains(":\t") && !line.contains("R_X86_64");
    let code: Vec<_> = text.lines().filter(is_instruction).collect();
    let called = text.lines().filter_map(|line| line.split_once("R_X86_64_PLT32\t"));
    let called = called.map(|(_, name)| name.trim_end_matches("-0x4").to_owned()).collect();
    (code.len(), code.iter().filter(|line| line.contains("\tlock ")).count(), called)
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_pair_by_a_guard_is_compiled_to_what_it_is_in_c() {
    for (cc, cpp) in [("cc", "c++"), ("clang", "clang++")] {
        if !is_there(cc) || !is_there(cpp) {
            continue;
        }
        let object = |by, standard, source| {
            let (mut command, object) = compiler(by, standard, &here(source), &format!("pair-{by}.o"));
            check(command.args(["-O2", "-c"]));
            instructions(&object)
        };
        let (in_c, locked_in_c, called_in_c) = object(cc, "c11", "tests/c/pair.c");
        let (in_cpp, locked_in_cpp, called_in_cpp) = object(cpp, "c++17", "tests/cpp/pair.cpp");
        assert_eq!((locked_in_c, locked_in_cpp), (1, 1), "{cc}, {cpp}");
        assert_eq!(called_in_c.len(), 3, "{called_in_c:?}");
        assert_eq!(called_in_c, called_in_cpp, "{cc}, {cpp}");
        // The handles are loaded, and an empty guard is looked for where a call has answered.
        assert!(in_cpp <= in_c + 5, "{cpp}: {in_cpp} instructions, {cc}: {in_c}");
    }
}

#[test]
fn without_exceptions_there_are_codes() {
    if is_there("c++") {
        check(&mut Command::new(compiled("tests/cpp/codes.cpp", &["-fno-exceptions", "-fno-rtti"])));
    }
}

#[test]
fn guards_wait_for_conditions_with_exceptions_and_without() {
    if is_there("c++") {
        check(&mut Command::new(compiled("tests/cpp/waits.cpp", &[])));
        check(&mut Command::new(compiled("tests/cpp/waits.cpp", &["-fno-exceptions", "-fno-rtti"])));
    }
}

#[test]
fn a_guard_is_not_copied() {
    if is_there("c++") {
        let (mut command, _) = command("c++", "c++17", "tests/cpp/codes.cpp", &["-fno-exceptions", "-DCOPIED"]);
        let output = command.output().expect("it starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("use of deleted function"), "{stderr}");
    }
}

#[test]
fn cmake_finds_the_library() {
    if is_there("c++") && is_there("cmake") {
        let build = prefix().join("cmake-build");
        let prefix = format!("-DCMAKE_PREFIX_PATH={}", prefix().display());
        check(Command::new("cmake").arg("-S").arg(here("tests/cmake")).arg("-B").arg(&build).arg(prefix));
        check(Command::new("cmake").arg("--build").arg(&build));
        for linkage in ["retrial", "static"] {
            let path = build.join(format!("guards-{linkage}"));
            check(Command::new(path).arg(instance(&format!("guards-{linkage}"))));
        }
    }
}
