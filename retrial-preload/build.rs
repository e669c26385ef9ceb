//! Compiles the shim in C, and keeps the library from being unloaded: programs hold locks with it.

fn main() {
    println!("cargo:rerun-if-changed=src/condition.c");
    // No exceptions: clean-up handlers are then found by libc's own list, not by unwinding tables.
    cc::Build::new()
        .file("src/condition.c")
        .pic(true)
        .warnings(true)
        .flag("-fno-exceptions")
        .flag("-fasynchronous-unwind-tables")
        .compile("retrial_preload_condition");
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
}
