//! A load, as data: how many sessions get the mutex how often and for how long. One description for the
//! bench, the simulator and theory.

use super::machine::Machine;
use crate::instances::{param_error, schemes};
use miette::Report;
use retrial::views::Params;
use retrial::{P, wait};
use retrial_bench::cell::{Cell, Conditions, Ending};
use retrial_bench::clock::Clock;
use retrial_bench::load::{Distribution, Start};
use retrial_bench::outcome::Kind;
use retrial_bench::work::Work;
use retrial_model::Distribution as Times;
use retrial_model::sim::{Arrivals, Spread, Workload};
use std::time::Duration;

/// What sessions do between two gets.
#[derive(Clone, Copy, Debug)]
pub enum Think {
    /// For this long: as busy work, from 1 ms on asleep.
    Time(Duration),
    /// As busy work of so many holding times for each processor of the machine: with 0.4 a mutex is all that
    /// many machines of different size have in common, saturated by as many sessions as 0.4 of the processors
    /// run, and one.
    PerProcessor(f64),
}

/// What is done with the mutex.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The name of its charts; empty where an experiment has one load.
    pub name: &'static str,
    /// Mean holding time.
    pub hold: Duration,
    pub think: Think,
    /// How both spread about their means.
    pub spread: Distribution,
    /// Where they are not varied.
    pub sessions: u32,
    pub kind: Kind,
    /// The spin limit as a time: the spin count is then this by the time of a poll on the machine. 0: as the
    /// parameters say.
    pub spin: Duration,
    /// Which copy of the mutex a simulated session gets, where there are several. A measured one gets that of
    /// its own number.
    pub copy: Spread,
}

impl Load {
    /// Exponential times, threads, the parameters' spin count.
    pub const fn new(hold: Duration, think: Think) -> Self {
        let (spread, kind) = (Distribution::Exponential, Kind::Threads);
        Self { name: "", hold, think, spread, sessions: 1, kind, spin: Duration::ZERO, copy: Spread::Random }
    }
}

/// What the x axis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vary {
    Sessions,
    SpinCount,
    /// Spin limit over mean holding time.
    SpinTime,
    Copies,
    /// Utilization that the think time is chosen for, if waits were nothing; the figure's place is the miss
    /// ratio found.
    Utilization,
}

/// How sessions wait: a line of a chart.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub name: &'static str,
    pub scheme: &'static str,
    /// `parameter=value`, as `retrial set` takes them.
    pub set: &'static [&'static str],
}

/// A line with the defaults of its scheme.
pub const fn line(scheme: &'static str) -> Line {
    Line { name: scheme, scheme, set: &[] }
}

/// A load with everything decided: what is measured, simulated or predicted.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Position in [`wait::NAMES`].
    pub scheme: usize,
    pub settings: Vec<(P, String)>,
    pub sessions: u32,
    pub hold: Duration,
    pub think: Duration,
    pub spread: Distribution,
    pub kind: Kind,
    pub copies: u32,
    pub copy: Spread,
}

impl Setup {
    /// A point of a line, on a machine.
    ///
    /// # Errors
    ///
    /// A scheme or parameter that is not known: a mistake in an experiment's data.
    pub fn new(load: &Load, line: &Line, vary: Vary, x: f64, machine: &Machine) -> Result<Self, Report> {
        let name = line.scheme.to_owned();
        let scheme = *schemes(&[name], "an experiment of")?.first().unwrap_or(&wait::DEFAULT);
        let setting = |text: &&str| {
            let (p, value) = retrial_bench::arguments::setting(text).map_err(|error| param_error(&error))?;
            Ok::<_, Report>((p, value.to_owned()))
        };
        let mut settings = line.set.iter().map(setting).collect::<Result<Vec<_>, _>>()?;
        let (hold_s, mut sessions) = (load.hold.as_secs_f64(), load.sessions);
        let mut think = match load.think {
            Think::Time(time) => time,
            Think::PerProcessor(share) => load.hold.mul_f64(share * f64::from(machine.processors)),
        };
        let (mut spin, mut copies) = (load.spin, 1);
        match vary {
            Vary::Sessions => sessions = whole(x),
            Vary::Copies => copies = whole(x),
            Vary::SpinCount => settings.push((P::SpinCount, whole(x).to_string())),
            Vary::SpinTime => spin = load.hold.mul_f64(x),
            Vary::Utilization => think = Duration::from_secs_f64(f64::from(sessions) * hold_s / x - hold_s),
        }
        if !spin.is_zero() {
            let polls = spin.as_nanos() as f64 / machine.costs.poll_ns as f64;
            settings.push((P::SpinCount, whole(polls).to_string()));
        }
        let Load { hold, spread, kind, copy, .. } = *load;
        Ok(Self { scheme, settings, sessions, hold, think, spread, kind, copies, copy })
    }

    fn params(&self) -> Result<Params, Report> {
        let params = Params::default().with(P::Scheme, self.scheme as u64);
        self.settings.iter().try_fold(params, |params, (p, text)| {
            Ok(params.with(*p, p.parse(text, self.scheme).map_err(|error| param_error(&error))?))
        })
    }

    /// For the simulator and theory. What takes no time takes 1 ns there.
    ///
    /// # Errors
    ///
    /// As [`Setup::new`].
    pub fn workload(&self, machine: &Machine, duration_s: f64) -> Result<Workload, Report> {
        let times = |mean: Duration| {
            let mean_s = mean.as_secs_f64().max(1e-9);
            let times = match self.spread {
                Distribution::Fixed => Times::deterministic(mean_s),
                Distribution::Exponential => Times::exponential(mean_s),
            };
            times.map_err(|error| miette::miette!(code = "retrial::experiment::time", "{error}"))
        };
        let on_processor = self.think < ASLEEP;
        let arrivals = Arrivals::Closed { sessions: self.sessions, think: times(self.think)?, on_processor };
        let mut workload = Workload::new(arrivals, times(self.hold)?, duration_s);
        workload.copies = self.copies;
        workload.spread = self.copy;
        workload.params = self.params()?;
        workload.machine = machine.costs.clone().with_processors(machine.processors);
        workload.warm_up = duration_s / 3.0;
        Ok(workload)
    }

    /// For the bench.
    pub const fn cell(&self) -> Cell {
        let Self { sessions, kind, hold, think, .. } = *self;
        Cell { sessions, kind, cs: hold, think, writes: 0, hogs: 0, start: Start::Together }
    }

    pub const fn conditions(&self, duration: Duration, work: Work, clock: Clock) -> Conditions {
        let (section, think) = (self.spread, self.spread);
        let (window, stuck_after, ending) = (duration, None, Ending::Proper);
        Conditions { reads: false, section, think, duration, window, stuck_after, ending, work, clock }
    }
}

/// From here on the bench's sessions think asleep.
const ASLEEP: Duration = Duration::from_millis(1);

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts of an experiment's data
fn whole(x: f64) -> u32 {
    x.round().max(1.0) as u32
}
