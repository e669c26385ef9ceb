//! The ledger of `retrial-c/examples/ledger.c` in Rust: what it is and what it does is said there.
//!
//! `cargo run --example ledger INSTANCE`

use retrial::{Address, Capacity, Class, GetError, Instance, location};
use std::io::Write;

const BEGUN: usize = 0;
const DONE: usize = 1;
/// Deaths of holders that were told in Rust; those in C, C++ and Python are before it.
const TOLD: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("usage: ledger INSTANCE")?;
    let instance = Instance::create_or_attach(&Address::new(&name)?, Capacity::default(), 0o600)?;
    let session = instance.session("Rust", Class::Normal)?;
    let ledger = instance.mutex("ledger", "ledgers", || [0u64; 6])?;
    loop {
        let mut book = match ledger.exclusive(&session, location!("entry")) {
            // In Rust a death is an error that has the guard.
            Err(GetError::OwnerDied(mut died)) => {
                died.guard[TOLD] += 1;
                died.guard[BEGUN] = died.guard[DONE]; // takes half an entry back
                died.guard.consistent();
                died.guard
            }
            got => got?,
        };
        if book[BEGUN] != book[DONE] {
            return Err("half an entry, and no death was told".into());
        }
        let entry = book[BEGUN] + 1;
        book[BEGUN] = entry;
        std::thread::yield_now(); // the others run while there is half an entry
        book[DONE] = entry;
        drop(book);
        // A line is one write: a kill leaves all of it or nothing.
        std::io::stdout().write_all(format!("{entry}\n").as_bytes())?;
    }
}
