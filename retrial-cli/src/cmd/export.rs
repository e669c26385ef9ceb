//! `retrial export`.

use crate::export::families::Exported;
use crate::export::otlp::Push;
use crate::export::serve::{listen, serve};
use crate::export::text::{Format as Metrics, render};
use crate::instances::Which;
use crate::output::{self, Format, NoFigures};
use crate::recording::Taker;
use crate::{duration, signals};
use miette::{Report, miette};
use std::process::ExitCode;
use std::time::Duration;

/// Give the figures of an instance to Prometheus and what speaks its formats
///
/// Counters of gets, misses, waits and their time by mutex, by place in the code and by event, over HTTP at
/// `/metrics`, in `OpenMetrics` where the client takes it. The number of series is bounded: those that are
/// waited for most have names, the rest is `other`. Only this machine is answered unless --listen says
/// otherwise.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial export -i bank
  retrial export -i bank --listen 0.0.0.0:9750         answers other machines, too
  retrial export -i bank --otlp http://127.0.0.1:4318  pushes to an OpenTelemetry collector
  retrial export -i bank --once > bank.prom            for node exporter's directory of text files")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Address and port; port 0 is any that is free
    #[arg(short, long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9750")]
    listen: String,
    /// Push them to an `OpenTelemetry` receiver at this URL instead: OTLP over HTTP, as JSON. Not by
    /// https: a collector on this machine passes it on by TLS
    #[arg(long, value_name = "URL", conflicts_with = "listen")]
    otlp: Option<String>,
    /// From one push to the next
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "otlp")]
    interval: String,
    /// So many mutexes, places and events have names of their own
    #[arg(long, value_name = "N", default_value_t = 50)]
    most: usize,
    /// Print the metrics and end, in the older text format; with --otlp push once
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    no_figures: NoFigures,
}

/// Shortest time between two pushes.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Maximum number of series: more would help no reader.
const MOST: usize = 1_000;

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    args.no_figures.check(format, "export")?;
    if args.most > MOST {
        return Err(miette!(
            code = "retrial::export::most",
            help = "retrial export --most 50",
            "--most {}, expected at most {MOST}: each name has some 43 series",
            args.most
        ));
    }
    let which = args.which.by_name()?;
    let observer = which.observe()?;
    if let Some(url) = &args.otlp {
        let every = duration::at_least("--interval", &args.interval, INTERVAL_MIN)?;
        let push = Push::new(url, every, args.once)?;
        signals::catch();
        push.serve(&which, observer, args.most, format)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.once {
        let families = Exported::new(args.most).families(&Taker::new(observer.tables()).snapshot());
        output::write(&render(&families, Metrics::Text));
        return Ok(ExitCode::SUCCESS);
    }
    let server = listen(&args.listen)?;
    signals::catch();
    format.say(&format!("Metrics are at http://{}/metrics", server.server_addr()));
    serve(&server, &which, observer, args.most);
    Ok(ExitCode::SUCCESS)
}
