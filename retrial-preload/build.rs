//! Compiles the shim in C, and keeps the library from being unloaded: programs hold locks with it.

fn main() {
    println!("cargo:rerun-if-changed=src/condition.c");
    cc::Build::new()
        .file("src/condition.c")
        .pic(true)
        .warnings(true)
        .flag("-fasynchronous-unwind-tables")
        .compile("retrial_preload_condition");
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
}
