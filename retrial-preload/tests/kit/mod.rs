//! What the tests here share: the library, programs in C, instances to run them in.
#![allow(dead_code)] // each test binary uses its part of it

#[path = "../../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

pub(crate) use not_tested::not_tested;
use retrial::{Address, Capacity, Instance};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;

/// The library, built by cargo if it is not there: a test of a library that is loaded by name cannot depend on it.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // Of its own, since whoever runs us may have that of cargo locked.
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
    })
}

/// A program of `tests/c`, compiled.
pub(crate) fn program(name: &str) -> PathBuf {
    compiled(name, &[])
}

pub(crate) fn compiled(name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let is_cpp = !source.exists();
    let source = if is_cpp { source.with_extension("cc") } else { source };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let thread = std::thread::current().name().unwrap_or_default().replace("::", "-");
    let binary = directory.join(format!("{name}-{thread}"));
    assert!(compile(is_cpp, &source, &binary, options).success(), "{} compiles", source.display());
    binary
}

/// A program of `tests/c` with a sanitizer; `None`, and why is said, when there is none that runs.
pub(crate) fn sanitized(name: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let binary = directory.join(format!("{name}{}", options.concat().replace('=', "-")));
    let builds = compile(false, &source, &binary, options).success();
    let runs = builds && Command::new(&binary).output().expect("it starts").status.success();
    if !runs {
        not_tested(format_args!("the compiler has no {}, or it does not run on this kernel", options.join(" ")));
    }
    runs.then_some(binary)
}

/// Whether there is a compiler for C++, which only some tests need.
pub(crate) fn has_cpp() -> bool {
    Command::new(compiler(true)).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn compiler(is_cpp: bool) -> OsString {
    let (variable, usual) = if is_cpp { ("CXX", "c++") } else { ("CC", "cc") };
    std::env::var_os(variable).unwrap_or_else(|| usual.into())
}

pub(crate) fn compile(is_cpp: bool, source: &Path, binary: &Path, options: &[&str]) -> ExitStatus {
    let mut command = Command::new(compiler(is_cpp));
    command.args(["-O2", "-pthread"]).args(options).arg("-o").arg(binary).arg(source).arg("-ldl");
    command.status().expect("a compiler is there")
}

pub(crate) fn preloaded(program: impl AsRef<OsStr>, scheme: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("RETRIAL_SCHEME", scheme);
    command
}

/// An instance that observers find, gone when dropped.
pub(crate) struct Named {
    pub(crate) instance: Instance,
    address: Address,
}

impl Named {
    pub(crate) fn new(name: &str) -> Self {
        let address = Address::new(&format!("test-{}-{name}", std::process::id())).expect("a name");
        let capacity = Capacity { sessions: 4096, mutexes: 16_384, locations: 4096, rows: 64, arena: 0 };
        let instance = Instance::create(&address, capacity, 0o600).expect("an instance can be made");
        Self { instance, address }
    }

    pub(crate) fn run(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("RETRIAL_INSTANCE", self.address.path());
        command
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.address.path());
    }
}

pub(crate) fn check(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
