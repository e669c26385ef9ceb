//! What `retrial-c/install` does and says.

#[path = "kit/mod.rs"]
mod kit;

use kit::{check, compiler, here, instance, not_tested, of_the_page, options, prefix, printed};
use std::path::Path;
use std::process::{Command, Output};

fn install() -> Command {
    let mut command = Command::new(here("install"));
    command.current_dir(env!("CARGO_TARGET_TMPDIR")).env_remove("DESTDIR");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_word_that_is_no_prefix_is_answered_with_the_usage() {
    let output = |word: &[&str]| -> Output { install().args(word).output().expect("it starts") };
    for help in ["--help", "-h"] {
        let said = output(&[help]);
        assert!(said.status.success() && text(&said.stdout).starts_with("usage: "), "{said:?}");
    }
    for (words, found) in [(&["--prefix=/usr"][..], "`--prefix=/usr`"), (&[], "``")] {
        let said = output(words);
        let why = text(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{said:?}");
        assert!(why.starts_with(&format!("found {found}, expected a PREFIX")) && why.contains("\nusage: "), "{why}");
    }
    let made = ["--help", "-h", "--prefix=/usr"].map(|word| Path::new(env!("CARGO_TARGET_TMPDIR")).join(word).exists());
    assert_eq!(made, [false; 3]);
}

#[test]
fn what_cargo_built_elsewhere_is_found_and_what_it_did_not_build_is_told() {
    let target = prefix().join("target");
    let release = target.join("release");
    std::fs::create_dir_all(&release).expect("a directory can be made");
    let to = prefix().join("elsewhere");
    let from_target = || {
        let mut command = install();
        command.arg(&to).env("CARGO_TARGET_DIR", &target);
        command
    };
    let library = release.join("libretrial_c.a");
    let _ = std::fs::remove_file(&library);
    let said = from_target().output().expect("it starts");
    assert!(!said.status.success() && text(&said.stderr).contains("; type: cargo build "), "{said:?}");
    std::fs::copy(prefix().join("lib/libretrial.a"), &library).expect("it can be copied");
    let said = printed(&mut from_target());
    assert!(to.join("lib/libretrial.so.0").exists());
    // In no directory of the loader's.
    let lib = to.join("lib");
    assert!(said.contains(&format!("Link programs with -Wl,-rpath,{}", lib.display())), "{said}");
}

/// A program without shared libraries, by what `retrial.pc` says.
#[test]
fn a_program_is_linked_without_shared_libraries() {
    let empty = prefix().join("empty.c");
    std::fs::write(&empty, "int main(void) { return 0; }\n").expect("a file can be written");
    let (mut without, _) = compiler("cc", "c11", &empty, "empty");
    if !without.arg("-static").status().is_ok_and(|status| status.success()) {
        return not_tested("there is no static libc");
    }
    let source = prefix().join("static.c");
    std::fs::write(&source, of_the_page("```c\n")).expect("a file can be written");
    let (mut command, binary) = compiler("cc", "c11", &source, "static");
    check(command.arg("-static").args(options(&["--static", "--libs"])));
    let instance = instance("static");
    let counts = || printed(Command::new(&binary).arg(&instance));
    assert_eq!([counts(), counts()], ["1\n", "2\n"]);
    std::fs::remove_file(&instance).expect("the instance is there");
}
