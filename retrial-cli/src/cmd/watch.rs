//! `retrial watch`.

use crate::clock::time;
use crate::instances::{Which, has_gone, is_there};
use crate::output::{Column, Format, Stream, Table, column};
use crate::recording::{Pauses, Period, Sampler, Snapshot, Taker};
use crate::watch::action::Action;
use crate::watch::expression::Expression;
use crate::watch::rate::Rate;
use crate::watch::trigger::{Change, Trigger};
use crate::watch::values::{self, Ages, Name};
use crate::watch::waiting::Waiting;
use crate::{duration, signals};
use miette::{Report, miette};
use retrial::Observer;
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Do something when a condition over the figures holds
///
/// Looks at the instance every second. When the expression has held for the time of --for, the event is
/// printed and the command run by the shell, with the event as JSON on its standard input; then not again
/// before the condition is over. A command that fails is told and ends nothing.
#[derive(clap::Args)]
#[command(
    after_help = "Expressions: figures, numbers (5s, 20%), + - * /, < <= > >= == !=, and or not. In brackets a mutex or a mutex type, in quotes.
Without brackets the whole instance. Figures are those of --names, of the time since the last look, in SI units; names in seconds
also with _ms, _us or _ns, shares also with _pct.

Examples:
  retrial watch --when 'wait_ms_per_s(\"Cursor Pin\") > 500' --for 10s --do 'mail -s contention dba'
  retrial watch --when 'holder_age(\"accounts\") > 5s' --once --do 'retrial who --mutex accounts'
  retrial watch --when 'miss_ratio > 20% and pressure < 5%' --until 'miss_ratio < 10%' --at-most 3/min
  retrial watch --when 'deaths > 0 or deadlocked > 0' --json"
)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// The condition
    #[arg(long, value_name = "EXPRESSION", required_unless_present = "names")]
    when: Option<String>,
    /// It must have held so long, at every look
    #[arg(long = "for", value_name = "TIME", default_value = "0s")]
    hold: String,
    /// What ends it, so that it can begin again; otherwise that the condition does not hold
    #[arg(long, value_name = "EXPRESSION")]
    until: Option<String>,
    /// The command to run; without it the event is printed only
    #[arg(long = "do", value_name = "COMMAND")]
    command: Option<String>,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: String,
    /// Run the command so often at most: 3/min, 1/10s
    #[arg(long, value_name = "N/TIME")]
    at_most: Option<String>,
    /// End the command after this time
    #[arg(long, value_name = "TIME", default_value = "1min")]
    timeout: String,
    /// End after the first event and its command; exit code 1 if that failed
    #[arg(long)]
    once: bool,
    /// Print the figures that expressions may name, and nothing else
    #[arg(long)]
    names: bool,
}

/// Shortest time between two looks.
const EVERY_MIN: Duration = Duration::from_millis(10);
/// How often a command under way is looked at.
const POLL: Duration = Duration::from_millis(20);

/// What is printed: what happened when, about what.
struct Told {
    at_ns: u64,
    what: &'static str,
    event: Value,
    text: String,
}

fn columns() -> [Column<'static, Told>; 4] {
    [
        column("time", |told: &Told| time(told.at_ns)),
        column("what", |told: &Told| told.what),
        column("text", |told: &Told| told.text.clone()),
        column("event", |told: &Told| told.event.clone()),
    ]
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    if args.names {
        type Row = (&'static str, &'static str, &'static str);
        let columns = [
            column("name", |row: &Row| row.0),
            column("unit", |row: &Row| row.1),
            column("description", |row: &Row| row.2),
        ];
        Table::of(&columns, values::names().collect::<Vec<Row>>()).print(format);
        return Ok(ExitCode::SUCCESS);
    }
    let text = args.when.clone().unwrap_or_default();
    let when = parse("--when", &text)?;
    let until = args.until.as_deref().map(|text| Ok::<_, Report>((parse("--until", text)?, text))).transpose()?;
    let every = duration::at_least("--every", &args.every, EVERY_MIN)?;
    let hold = duration::argument("--for", &args.hold)?;
    let timeout = duration::argument("--timeout", &args.timeout)?;
    let rate = args
        .at_most
        .as_deref()
        .map(Rate::parse)
        .transpose()
        .map_err(|error| miette!(code = "retrial::watch::rate", help = "--at-most 3/min", "--at-most: {error}"))?;
    let which = args.which.by_name()?;
    let observer = which.observe()?;
    let mut taker = Taker::new(observer.tables());
    let mut first = taker.snapshot();
    for (text, expression) in [(text.as_str(), &when)].into_iter().chain(until.as_ref().map(|(x, text)| (*text, x))) {
        values::check(text, &expression.values(), &first).map_err(|wrong| {
            miette!(code = "retrial::watch::name", help = format!("retrial show mutexes{}", which.flag()), "{wrong}")
        })?;
    }
    signals::catch();
    let expressions = [Some(&when), until.as_ref().map(|(until, _)| until)].into_iter().flatten();
    let is_measured = expressions.flat_map(Expression::values).any(|value| matches!(value.name, Name::Measure(..)));
    let mut sampler = is_measured.then(|| Sampler::new(observer.tables()));
    if let Some(sampler) = &mut sampler {
        sampler.complete(&mut first);
    }
    let columns = columns();
    let mut watch = Watch {
        observer: &observer,
        format,
        stream: Stream::new(&columns, format),
        text,
        when,
        until: until.map(|(until, _)| until),
        trigger: Trigger::new(hold),
        ages: Ages::default(),
        sampler,
        pauses: Pauses::default(),
        waiting: Waiting::default(),
        command: args.command,
        rate,
        timeout,
        action: None,
        begun: None,
        failed: false,
    };
    watch.ages.see(&first);
    watch.go_on(taker, first, every, args.once)
}

fn parse(option: &str, text: &str) -> Result<Expression, Report> {
    Expression::parse(text).map_err(|wrong| {
        miette!(
            code = "retrial::watch::expression",
            help = "retrial watch --names; retrial watch --when 'wait_ms_per_s(\"m\") > 500'",
            "{option}: {wrong}"
        )
    })
}

struct Watch<'a> {
    observer: &'a Observer,
    format: Format,
    stream: Stream<'a, Told>,
    text: String,
    when: Expression,
    until: Option<Expression>,
    trigger: Trigger,
    ages: Ages,
    /// Where a measure is asked for: some are of what samples see.
    sampler: Option<Sampler<'a>>,
    pauses: Pauses,
    waiting: Waiting,
    command: Option<String>,
    rate: Option<Rate>,
    timeout: Duration,
    action: Option<Action>,
    /// The event under way.
    begun: Option<Value>,
    failed: bool,
}

impl Watch<'_> {
    fn go_on(
        &mut self,
        mut taker: Taker<'_>,
        mut last: Snapshot,
        every: Duration,
        once: bool,
    ) -> Result<ExitCode, Report> {
        let mut had_one = false;
        loop {
            self.pass(every);
            if signals::received().is_some() {
                break;
            }
            if once && had_one {
                if self.action.is_none() {
                    break;
                }
                continue;
            }
            self.still_there()?;
            let now = self.snapshot(&mut taker);
            had_one |= self.look(&last, &now);
            last = now;
            if once && had_one && self.action.is_none() {
                break;
            }
        }
        if let Some(action) = &mut self.action {
            action.ask_to_end();
        }
        Ok(if once && self.failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }

    fn snapshot(&mut self, taker: &mut Taker<'_>) -> Snapshot {
        let mut snapshot = taker.snapshot();
        if let Some(sampler) = &mut self.sampler {
            let (samples, rounds) = sampler.complete(&mut snapshot);
            self.waiting = Waiting::of(&samples, rounds);
        }
        snapshot
    }

    /// Lets time pass, samples, and looks after the command meanwhile.
    fn pass(&mut self, every: Duration) {
        let end = Instant::now() + every;
        while let left = end.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && signals::received().is_none()
        {
            let mut pause = if self.action.is_some() { POLL } else { Duration::from_millis(100) };
            if let Some(sampler) = &mut self.sampler {
                let sampled = self.pauses.after_live(|| sampler.round());
                pause = if self.action.is_some() { pause.min(sampled) } else { sampled };
            }
            retrial::sys::sleep(pause.min(left));
            self.attend();
        }
    }

    fn attend(&mut self) {
        let Some(ended) = self.action.as_mut().and_then(Action::ended) else { return };
        self.action = None;
        self.failed |= !Action::is_well(&ended);
        self.tell("command", format!("command {ended}"), Value::Null);
    }

    fn still_there(&self) -> Result<(), Report> {
        let tables = self.observer.tables();
        if is_there(tables) {
            return Ok(());
        }
        Err(miette!(
            code = "retrial::watch::gone",
            help = "retrial list",
            "{}, expected it to stay while it is watched",
            has_gone(tables)
        ))
    }

    /// Whether an event began.
    fn look(&mut self, last: &Snapshot, now: &Snapshot) -> bool {
        self.ages.see(now);
        let period = Period::between(last, now);
        let mut seen = Map::new();
        let mut value = |of: &crate::watch::expression::Value| {
            let value = values::value(of, period, &self.ages, &self.waiting);
            seen.insert(of.text.clone(), value.into());
            value
        };
        let holds = self.when.holds(&mut value) == Some(true);
        let is_over = self.until.as_ref().map_or(!holds, |until| until.holds(&mut value) == Some(true));
        let at = Instant::now();
        let change = self.trigger.see(at, holds, is_over);
        let values =
            seen.iter().map(|(name, value)| format!("{name} = {}", shown(value))).collect::<Vec<_>>().join(", ");
        match change {
            Change::None => return false,
            Change::Began => {
                let event = self.event(now, seen, self.trigger.held(at));
                self.tell("began", values, event.clone());
                self.begun = Some(event.clone());
                self.act(&event);
            }
            Change::Ended => {
                let event = self.begun.take().unwrap_or_default();
                self.tell("ended", values, event);
            }
        }
        change == Change::Began
    }

    fn event(&self, now: &Snapshot, values: Map<String, Value>, held: Duration) -> Value {
        let waits =
            |session: &&crate::recording::Session| session.info.wait.is_some_and(|(key, ..)| !key.event.for_event);
        json!({
            "instance": now.instance.name,
            "time": time(now.at.real_ns),
            "when": self.text,
            "held_s": held.as_secs_f64(),
            "values": values,
            "sessions": now.sessions.len(),
            "waiting": now.sessions.iter().filter(waits).count(),
        })
    }

    fn act(&mut self, event: &Value) {
        let Some(command) = self.command.clone() else { return };
        if self.action.is_some() {
            return self.tell("command", "command not run: the last one runs still".to_owned(), Value::Null);
        }
        if self.rate.as_mut().is_some_and(|rate| !rate.may(Instant::now())) {
            return self.tell("command", "command not run: as often as --at-most allows".to_owned(), Value::Null);
        }
        match Action::start(&command, &format!("{event}\n"), self.timeout) {
            Ok(action) => self.action = Some(action),
            Err(error) => {
                self.failed = true;
                self.tell("command", format!("command failed: {error}"), Value::Null);
            }
        }
    }

    fn tell(&self, what: &'static str, text: String, event: Value) {
        let at_ns = retrial::sys::clock_ns(retrial::sys::Clock::Realtime);
        self.format.say(&format!("{}  {what:7}  {text}", time(at_ns)));
        self.stream.row(&Told { at_ns, what, event, text });
    }
}

fn shown(value: &Value) -> String {
    value.as_f64().map_or_else(|| "unknown".to_owned(), crate::output::short)
}
