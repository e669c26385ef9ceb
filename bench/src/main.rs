//! Benchmarks of retrial against its peers: `cargo run --release -p bench -- contended`, and others, see
//! `--help`.
//!
//! All peers in one binary, measured by the engine of `retrial bench`, in rounds that go through all of them,
//! in an order that changes from round to round, so that whatever else the machine does falls on each alike.
//! A figure is a median over the rounds with its spread; a ratio is the median of the rounds' ratios. Rows
//! that we lose stay.

#![allow(missing_docs, unreachable_pub)]

mod all;
mod cache;
mod command;
mod contended;
mod gtm;
mod killed;
mod measurement;
mod page;
mod peers;
mod plan;
mod programs;
mod readers;
mod report;
mod row;
mod thinking;
mod uncontended;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Benchmarks of retrial against its peers", max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    output: report::Output,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Uncontended(uncontended::Args),
    Contended(contended::Args),
    Thinking(thinking::Args),
    Readers(readers::Args),
    Programs(programs::Args),
    Killed(killed::Args),
    Gtm(gtm::Args),
    Cache(cache::Args),
    CacheSize(cache::size::Args),
    CachePins(cache::pins::Args),
    All(all::Args),
}

fn main() -> ExitCode {
    // Commands to type are printed whole, to be copied.
    let _ = miette::set_hook(Box::new(|_| Box::new(miette::MietteHandlerOpts::new().wrap_lines(false).build())));
    let cli = Cli::parse();
    let result = match cli.command.unwrap_or(Command::Uncontended(uncontended::Args::default())) {
        Command::Uncontended(args) => uncontended::run(&args, &cli.output),
        Command::Contended(args) => contended::run(&args, &cli.output),
        Command::Thinking(args) => thinking::run(&args, &cli.output),
        Command::Readers(args) => readers::run(&args, &cli.output),
        Command::Programs(args) => programs::run(&args, &cli.output),
        Command::Killed(args) => killed::run(&args, &cli.output),
        Command::Gtm(args) => gtm::run(&args, &cli.output),
        Command::Cache(args) => cache::run(&args, &cli.output),
        Command::CacheSize(args) => cache::size::run(&args, &cli.output),
        Command::CachePins(args) => cache::pins::run(&args, &cli.output),
        Command::All(args) => all::run(&args, cli.output),
    };
    result.unwrap_or_else(|report| {
        eprintln!("{report:?}");
        ExitCode::from(2)
    })
}
