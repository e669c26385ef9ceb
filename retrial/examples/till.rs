//! The program of README.md, which is tested: `tests/readme.rs` kills it.

use retrial::{Address, Capacity, Class, GetError, Instance, location};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let instance = Instance::create_or_attach(&Address::new("till")?, Capacity::default(), 0o600)?;
    let cash = instance.mutex("cash", "till", || 100u64)?; // found by its name from any process
    let session = instance.session("clerk", Class::Normal)?; // one for each thread
    let mut cash = match cash.exclusive(&session, location!("sell")) {
        Err(GetError::OwnerDied(mut died)) => {
            println!("{died}, in the middle of a sale: there are {}", *died.guard);
            died.guard.consistent(); // held: look at the data, repair them, and say so
            died.guard
        }
        got => got?,
    };
    *cash += 1;
    if std::env::args().any(|word| word == "die") {
        std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status()?;
    }
    println!("{} in the till", *cash);
    Ok(())
}
