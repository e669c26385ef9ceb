//! Names the shared library, and keeps it from being unloaded: threads run its code when they end.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libretrial.so.0");
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
}
