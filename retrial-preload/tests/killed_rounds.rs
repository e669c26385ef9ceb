//! Half of the exec'ed processes that contend for a robust process-shared mutex are killed: a few of the rounds that
//! `cargo run --release -p bench -- killed` has by the thousand. Under libc alone some of them hang.

use retrial::interposer::CALLS;
use retrial::{Address, Capacity, Instance, P};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROUNDS: usize = 20;
/// Gets of each survivor.
const GETS: usize = 50;
const HOLDS_NS: [u32; 2] = [20_000, 200_000];
const SCHEMES: [&str; 2] = ["orbit", "pthread"];

/// The library, built as in `conformance.rs`.
fn library() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--lib", "--target-dir"])
        .arg(&target)
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the library builds");
    target.join("release/libretrial_preload.so")
}

/// The program, compiled.
fn program() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/programs/killed.c");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("killed-rounds");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler).args(["-O2", "-pthread", "-o"]).arg(&binary).arg(&source).status();
    assert!(status.expect("a C compiler is there").success(), "{} compiles", source.display());
    binary
}

/// Gone when dropped.
struct File(Address);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.path());
    }
}

#[test]
fn survivors_of_the_killed_go_on() {
    let (library, program) = (library(), program());
    let file = File(Address::new(&format!("test-{}-killed", std::process::id())).expect("a name"));
    let capacity = Capacity { sessions: 1024, mutexes: 64, locations: 64, rows: 64, arena: 0 };
    let instance = Instance::create(&file.0, capacity, 0o600).expect("an instance can be made");
    let mut deaths = 0;
    for (scheme, hold_ns) in SCHEMES.into_iter().flat_map(|scheme| HOLDS_NS.map(|hold_ns| (scheme, hold_ns))) {
        instance.set(P::Scheme, None, P::Scheme.parse(scheme, 0).expect("a scheme"));
        let mut command = Command::new(&program);
        command.arg("rounds").args([ROUNDS, hold_ns as usize, GETS, 1].map(|number| number.to_string()));
        command.env("LD_PRELOAD", &library).env("RETRIAL_INSTANCE", file.0.path());
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{scheme}: {command:?} ended with {}", output.status);
        assert_eq!(text.lines().count(), ROUNDS, "{scheme}: {text}");
        for line in text.lines() {
            for part in ["hung\":false", "violations\":0", "not_recoverable\":0", "errors\":0", "kills\":3"] {
                assert!(line.contains(&format!("\"{part},")), "{scheme}, {hold_ns} ns: {line}");
            }
            deaths += usize::from(!line.contains("\"owner_deaths\":0,"));
        }
    }
    let robust = CALLS.iter().position(|(name, _)| *name == "robust mutex").expect("it is counted");
    // Those that were killed have got it too, and whoever survived a round has said so often.
    let gets = instance.tables().calls()[robust];
    let expected = SCHEMES.len() * HOLDS_NS.len() * ROUNDS * 3 * GETS;
    assert!(gets >= expected as u64, "{gets} of {expected} gets or more were ours");
    assert!(deaths > 0, "some were killed in the critical section");
}
