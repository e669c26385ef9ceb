//! The command has the interposer's library with it, wherever it is put.

#![allow(missing_docs)]

#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

use not_tested::not_tested;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RETRIAL: &str = env!("CARGO_BIN_EXE_retrial");

/// A directory with the command and a home, gone when dropped.
struct Place(PathBuf);

/// Where tests have their directories. For root not below a directory such as `/tmp`, where the command unpacks
/// nothing for it.
fn base() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let is_sticky = |directory: &Path| directory.metadata().is_ok_and(|about| about.mode() & 0o1000 != 0);
    if target.metadata().is_ok_and(|about| about.uid() == 0) && target.ancestors().any(is_sticky) {
        PathBuf::from(std::env::var_os("HOME").expect("root's home"))
    } else {
        target.to_path_buf()
    }
}

impl Place {
    fn new(name: &str) -> Self {
        let place = Self(base().join(format!(".retrial-test-install-{name}")));
        let _ = fs::remove_dir_all(&place.0);
        for directory in ["bin", "home", "tmp"] {
            fs::create_dir_all(place.0.join(directory)).unwrap();
        }
        place
    }

    /// With a copy of the command alone.
    fn with_copy(name: &str) -> Self {
        let place = Self::new(name);
        fs::copy(RETRIAL, place.command()).unwrap();
        place
    }

    fn command(&self) -> PathBuf {
        self.0.join("bin/retrial")
    }

    /// What `retrial run` says of a program that shows what it has mapped.
    fn run(&self) -> Output {
        self.run_by(&[])
    }

    /// The same, by a command that runs another.
    fn run_by(&self, by: &[&str]) -> Output {
        let own = self.command();
        let words = [by, &[own.to_str().unwrap(), "run", "--", "cat", "/proc/self/maps"]].concat();
        Command::new(words[0])
            .args(&words[1..])
            .current_dir("/")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.0.join("home"))
            .env("TMPDIR", self.0.join("tmp"))
            .output()
            .unwrap()
    }

    /// The library that a program had preloaded.
    fn preloaded(&self) -> PathBuf {
        self.preloaded_by(&[])
    }

    fn preloaded_by(&self, by: &[&str]) -> PathBuf {
        let output = self.run_by(by);
        let maps = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let line = maps.lines().find(|line| line.ends_with("/libretrial_preload.so"));
        PathBuf::from(line.and_then(|line| line.split_whitespace().last()).expect("it is preloaded"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn cargo_install_gives_a_command_that_runs_programs() {
    let place = Place::new("cargo");
    let target = Path::new(RETRIAL).parent().and_then(Path::parent).unwrap();
    let mut install = Command::new(env!("CARGO"));
    install.args(["install", "--quiet", "--locked", "--offline", "--no-track", "--path", env!("CARGO_MANIFEST_DIR")]);
    install.args(cfg!(debug_assertions).then_some("--debug"));
    install.arg("--target-dir").arg(target).arg("--root").arg(&place.0);
    assert!(install.status().unwrap().success());
    assert_eq!(fs::read_dir(place.0.join("bin")).unwrap().count(), 1, "the command alone");
    assert!(place.preloaded().starts_with(place.0.join("home/.cache/retrial")));
}

#[test]
fn the_library_is_unpacked_once_and_mended() {
    let place = Place::with_copy("once");
    let library = place.preloaded();
    let inode = library.metadata().unwrap().ino();
    assert_eq!(place.preloaded(), library);
    assert_eq!(library.metadata().unwrap().ino(), inode, "written again");
    let whole = fs::read(&library).unwrap();
    fs::write(&library, &whole[..1000]).unwrap();
    place.preloaded();
    assert_eq!(fs::read(&library).unwrap(), whole);
    assert_eq!(fs::read_dir(library.parent().unwrap()).unwrap().count(), 1, "something is left");
}

#[test]
fn nothing_is_preloaded_from_where_others_can_put_something_else() {
    let place = Place::with_copy("others");
    let everybody =
        |directory: &str| fs::set_permissions(place.0.join(directory), Permissions::from_mode(0o777)).unwrap();
    everybody("home");
    assert!(place.preloaded().starts_with(place.0.join("tmp")));
    everybody("tmp");
    let output = place.run();
    let report = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{report}");
    assert!(report.contains("retrial::run::unpack") && report.contains("XDG_CACHE_HOME="), "{report}");
    assert!(output.stdout.is_empty(), "the program ran");
}

#[test]
fn the_library_is_unpacked_where_it_can_be_executed() {
    let place = Place::with_copy("noexec");
    let mount = format!("mount -t tmpfs -o noexec,mode=755 none {} && exec \"$@\"", place.0.join("home").display());
    let by = ["unshare", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"];
    if !Command::new(by[0]).args(&by[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        not_tested("no unshare, or it may not mount");
        return;
    }
    assert!(place.preloaded_by(&by).starts_with(place.0.join("tmp")));
}

#[test]
fn roots_library_is_not_unpacked_where_its_name_may_become_anybodys() {
    let place = Place::with_copy("root");
    if place.0.metadata().unwrap().uid() != 0 {
        not_tested("only of root's command");
        return;
    }
    let home = format!("HOME=/tmp/retrial-install-{}", std::process::id());
    assert!(place.preloaded_by(&["env", &home]).starts_with(place.0.join("tmp")));
    fs::remove_dir_all(home.strip_prefix("HOME=").unwrap()).unwrap();
}

#[test]
fn a_library_that_others_can_change_is_unpacked_anew() {
    let place = Place::with_copy("mode");
    let by = ["sh", "-c", "umask 0 && exec \"$@\"", "sh"];
    let mode = || place.preloaded_by(&by).metadata().unwrap().mode() & 0o777;
    assert_eq!(mode(), 0o644);
    fs::set_permissions(place.preloaded(), Permissions::from_mode(0o666)).unwrap();
    assert_eq!(mode(), 0o644);
}
