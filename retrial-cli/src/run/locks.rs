//! The tables of the locks of a run.

use super::outcome::{TOP, Used};
use super::report::percent;
use crate::output::{Table, column, counter, measure};
use retrial::views::{Counter, Figures};
use retrial_model::Measure;
use std::fmt::Write;

impl Used {
    /// What a person calls it.
    pub fn title(&self) -> String {
        match (self.id.0, self.name.as_str()) {
            (0, _) => "(without a row)".to_owned(),
            (id, "") => format!("#{id}"),
            (id, name) => format!("#{id} {name}"),
        }
    }

    /// Where it was busy most.
    pub fn place(&self) -> Option<&str> {
        self.places.first().map(|(place, _)| place.as_str())
    }

    /// The busiest mutexes; a person reads the columns that fit a terminal.
    pub fn table(mutexes: &[Self]) -> Table {
        let of = |used: &Used, measure: Measure| measure.of(&used.profile);
        let counted = |which| counter(which, |used: &Used| &used.profile);
        let columns = [
            column("mutex", |used: &Used| used.title()),
            column("type", |used: &Used| used.mutex_type.clone()).for_programs(),
            column("pid", |used: &Used| used.pid).for_programs(),
            column("address", |used: &Used| format!("{:#x}", used.address)).for_programs(),
            column("busy_at", |used: &Used| used.place().map(str::to_owned)).for_programs(),
            column("gets", |used: &Used| used.profile.gets),
            measure(Measure::Throughput, "", of).named("gets_per_s"),
            counted(Counter::Misses),
            measure(Measure::MissRatio, "", of).for_programs(),
            measure(Measure::MissRatio, "pct", of).titled("rho_pct").for_people(),
            counted(Counter::SpinGets).for_programs(),
            counted(Counter::Waits).for_programs(),
            counted(Counter::Yields).for_programs(),
            counted(Counter::Sleeps).for_programs(),
            counted(Counter::Parks).for_programs(),
            counted(Counter::GaveUp).for_programs(),
            measure(Measure::Utilization, "pct", of).titled("U_pct").for_people(),
            measure(Measure::SpinInefficiency, "", of).named("k"),
            measure(Measure::SleepRatio, "", of).named("kappa"),
            measure(Measure::Utilization, "", of).for_programs(),
            column("samples", |used: &Used| used.profile.samples.looks).for_programs(),
            measure(Measure::HoldingTime, "us", |used: &Used, measure| {
                // The report says what was sampled: what arrivals saw is in the other columns.
                Some(&used.profile)
                    .filter(|profile| profile.samples.time_s > 0.0)
                    .and_then(|profile| measure.of(profile))
            })
            .named("holding_us")
            .titled("S_us"),
            measure(Measure::Registered, "ms", of).named("wait_ms"),
            measure(Measure::RegisteredMean, "ms", of).named("avg_wait_ms").for_programs(),
            measure(Measure::RegisteredP50, "ms", of).named("p50_wait_ms").for_programs(),
            measure(Measure::RegisteredP90, "ms", of).named("p90_wait_ms").for_programs(),
            measure(Measure::RegisteredP99, "ms", of).named("p99_wait_ms").titled("p99_ms"),
            measure(Measure::RegisteredMax, "ms", of).named("max_wait_ms").titled("max_ms"),
            measure(Measure::SpinShare, "pct", of).named("spin_pct").for_programs(),
            measure(Measure::YieldShare, "pct", of).named("yield_pct").for_programs(),
            measure(Measure::SleptShare, "pct", of).named("slept_pct").for_programs(),
            measure(Measure::OverShare, "pct", of).named("oversleep_pct").for_programs(),
            column("places", |used: &Used| used.places_text()).titled("busy_at"),
            column("processes", |used: &Used| used.processes).for_programs(),
        ];
        Table::of(&columns, mutexes.iter().take(TOP))
    }

    /// Semaphores, barriers and conditions: what is waited for without being held.
    pub fn awaited(objects: &[Self]) -> Table {
        let of = |used: &Used, measure: Measure| measure.of(&used.profile);
        let columns = [
            column("event", |used: &Used| used.title()),
            column("type", |used: &Used| used.mutex_type.clone()),
            column("pid", |used: &Used| used.pid).for_programs(),
            column("address", |used: &Used| format!("{:#x}", used.address)).for_programs(),
            counter(Counter::Waits, |used: &Used| &used.profile),
            measure(Measure::Registered, "ms", of).named("wait_ms"),
            measure(Measure::RegisteredMean, "ms", of).named("avg_wait_ms"),
            measure(Measure::RegisteredMax, "ms", of).named("max_wait_ms"),
            column("at", |used: &Used| used.place().map(str::to_owned)),
        ];
        Table::of(&columns, objects.iter().take(TOP))
    }

    /// The places with their shares of the misses: `push+0x1a (queue) 80 %, pop+0x2c (queue) 20 %`.
    fn places_text(&self) -> String {
        let misses = self.profile.figures.get(Counter::Misses);
        let share = |figures: &Figures| percent(figures.get(Counter::Misses) as f64 / misses.max(1) as f64);
        if let [(place, _)] = self.places.as_slice() {
            return place.clone();
        }
        let shown = self.places.iter().take(2).filter(|(_, figures)| share(figures) >= 1.0);
        let shown: Vec<String> = shown.map(|(place, figures)| format!("{place} {:.0} %", share(figures))).collect();
        let mut text = shown.join(", ");
        if self.places.len() > shown.len() {
            let _ = write!(text, ", {} more", self.places.len() - shown.len());
        }
        text
    }
}
