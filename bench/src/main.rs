//! Benchmarks of retrial against its peers: `cargo run --release -p bench`, and `-- contended`.
//!
//! All peers in one binary behind one trait, in rounds that go through all of them, so that whatever else the machine does
//! falls on each alike. A figure is a median over the rounds with its spread; a ratio is the median of the rounds' ratios.

#![allow(missing_docs, unreachable_pub)]

mod contended;
mod machine;
mod peers;
mod report;
mod uncontended;
#[path = "../../retrial-cli/src/bench/work.rs"]
mod work;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Benchmarks of retrial against its peers")]
struct Cli {
    #[command(flatten)]
    output: report::Output,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// One thread gets and releases (the default)
    Uncontended(uncontended::Args),
    /// Many threads and one mutex
    Contended(contended::Args),
}

fn main() {
    let cli = Cli::parse();
    // glibc takes a short cut while a process has a single thread; no program that needs a mutex has one.
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    match cli.command.unwrap_or(Command::Uncontended(uncontended::Args::default())) {
        Command::Uncontended(args) => uncontended::run(&args, cli.output),
        Command::Contended(args) => contended::run(&args, cli.output),
    }
}
