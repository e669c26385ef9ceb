//! Benchmarks of retrial against its peers.
fn main() {}
