//! Builds the shims of peers in C and C++ whose development files are here. Whatever is missing only leaves
//! out its peers, so that a machine with Rust and a C compiler builds the rest.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Peers behind one shim.
struct Shim {
    /// Also the `cfg` that is set.
    name: &'static str,
    peers: &'static str,
    source: &'static str,
    /// What Debian has it in.
    packages: &'static str,
    libraries: Libraries,
}

enum Libraries {
    None,
    Named(&'static str),
    /// All that `pkg-config` has for this package.
    PkgConfig(&'static str),
}

const SHIMS: [Shim; 3] = [
    Shim {
        name: "has_absl",
        peers: "absl::Mutex",
        source: "shims/absl.cc",
        packages: "libabsl-dev g++ pkg-config",
        libraries: Libraries::PkgConfig("absl_synchronization"),
    },
    Shim {
        name: "has_ck",
        peers: "ck spin locks",
        source: "shims/ck.c",
        packages: "libck-dev",
        libraries: Libraries::None,
    },
    Shim {
        name: "has_nsync",
        peers: "nsync_mu",
        source: "shims/nsync.c",
        packages: "libnsync-dev",
        libraries: Libraries::Named("-lnsync"),
    },
];

fn main() {
    println!("cargo::rerun-if-changed=shims");
    let mut absent = Vec::new();
    for shim in &SHIMS {
        println!("cargo::rustc-check-cfg=cfg({})", shim.name);
        if shim.build().is_some() {
            println!("cargo::rustc-cfg={}", shim.name);
        } else {
            absent.push(format!("{} (apt-get install {}, then touch bench/build.rs)", shim.peers, shim.packages));
        }
    }
    println!("cargo::rustc-env=BENCH_ABSENT={}", absent.join(", "));
}

impl Shim {
    fn is_cpp(&self) -> bool {
        Path::new(self.source).extension() == Some("cc".as_ref())
    }

    /// Builds it, when a program of it links. `None` when something is missing.
    fn build(&self) -> Option<()> {
        let libraries = self.libraries()?;
        let probe = PathBuf::from(env::var_os("OUT_DIR")?).join(format!("{}.probe", self.name));
        let mut link = self.compiler().try_get_compiler().ok()?.to_command();
        link.args([self.source, "-DPROBE", "-o"]).arg(probe).args(&libraries);
        if !link.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?.success() {
            return None;
        }
        self.compiler().file(self.source).cargo_metadata(true).try_compile(self.name).ok()?;
        for library in &libraries {
            match library.split_at_checked(2)? {
                ("-L", path) => println!("cargo::rustc-link-search=native={path}"),
                ("-l", name) => println!("cargo::rustc-link-lib={name}"),
                _ => {}
            }
        }
        Some(())
    }

    fn compiler(&self) -> cc::Build {
        let mut build = cc::Build::new();
        build.cpp(self.is_cpp()).std(if self.is_cpp() { "c++17" } else { "c11" });
        build.opt_level(2).cargo_metadata(false).cargo_warnings(false);
        build
    }

    fn libraries(&self) -> Option<Vec<String>> {
        let package = match self.libraries {
            Libraries::None => return Some(Vec::new()),
            Libraries::Named(name) => return Some(vec![name.to_owned()]),
            Libraries::PkgConfig(package) => package,
        };
        let output = Command::new("pkg-config").args(["--libs", "--static", package]).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.split_whitespace().map(str::to_owned).collect())
    }
}
