//! A soak: many processes for a long time, one of them killed every 50 ms, with the gets per second before,
//! meanwhile and after.

use crate::crew::{Aim, Crew, Plan, Stage, set_alarm};
use crate::outcome::Count;
use crate::{seed, setting};
use retrial::{P, wait};
use std::time::{Duration, Instant};

const KILL_EVERY: Duration = Duration::from_millis(50);
/// Longest time without kills before and after, in s.
const CALM_S: u64 = 10;

/// Gets per second, in windows of a second.
struct Phase(Vec<f64>);

impl Phase {
    /// The value below which this share of the windows is: the nearest one.
    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[allow(clippy::cast_sign_loss)] // a share of a length
        let at = (share * (sorted.len() - 1) as f64).round() as usize;
        sorted[at]
    }

    fn print(&self, name: &str) {
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| self.quantile(share));
        let windows = self.0.len();
        println!("{name:<12} {windows:>7} {low:>14.0} {median:>14.0} {high:>14.0}");
    }
}

/// Lets so many windows pass, with kills or without.
fn phase(crew: &mut Crew<'_>, seconds: u64, kills: bool) -> Phase {
    let mut windows = Vec::new();
    let (mut start, mut gets) = (Instant::now(), crew.gets());
    let mut next_kill = start + KILL_EVERY;
    while (windows.len() as u64) < seconds {
        let end = start + Duration::from_secs(1);
        let next = if kills { end.min(next_kill) } else { end };
        crew.pass(next.saturating_duration_since(Instant::now()));
        if kills && Instant::now() >= next_kill {
            // Among many workers few hold something: without aim, few deaths would owe anything.
            let aim = if crew.random.one_in(4) { Aim::Holder } else { Aim::Anybody };
            crew.replace(crew.aim(aim));
            // Those that a busy machine made us miss are not made up for.
            next_kill = Instant::now().max(next_kill + KILL_EVERY);
        }
        let now = Instant::now();
        if now >= end {
            let so_far = crew.gets();
            windows.push((so_far - gets) as f64 / (now - start).as_secs_f64());
            (start, gets) = (now, so_far);
        }
    }
    Phase(windows)
}

pub(crate) fn soak() {
    let seconds = setting::<u64>("RETRIAL_SOAK_SECONDS", 2).max(1);
    let workers = setting::<usize>("RETRIAL_SOAK_PROCESSES", 32).max(1);
    let scheme = setting::<String>("RETRIAL_SOAK_SCHEME", "orbit".into());
    let position = wait::named(&scheme).unwrap_or_else(|| panic!("RETRIAL_SOAK_SCHEME: no `{scheme}`"));
    let seed = seed();
    let again = format!(
        "RETRIAL_STORM_SEED={seed:#x} RETRIAL_SOAK_SECONDS={seconds} RETRIAL_SOAK_PROCESSES={workers} \
         RETRIAL_SOAK_SCHEME={scheme} cargo test -p retrial --test storm soak"
    );
    println!("seed {seed:#x}, {workers} processes, {scheme}, {seconds} s with a kill every {KILL_EVERY:?}");
    let plan = Plan { name: "soak", workers, mutexes: 1, seed, fair: position == wait::DEFAULT, again: &again };
    let calm = seconds.min(CALM_S);
    let stage = Stage::new(workers, &[(P::Scheme, position as u64)]);
    let mut crew = Crew::muster(&plan, &stage);
    set_alarm(u32::try_from(seconds + 2 * calm + 600).unwrap_or(u32::MAX));
    crew.until_everybody_works();
    let before = phase(&mut crew, calm, false);
    let during = phase(&mut crew, seconds, true);
    let after = phase(&mut crew, calm, false);
    let outcome = crew.dismiss();
    println!("{:<12} {:>7} {:>14} {:>14} {:>14}", "phase", "windows", "quartile, 1/s", "median, 1/s", "quartile, 1/s");
    before.print("before kills");
    during.print("with kills");
    after.print("after kills");
    let [kills, holding, gets, counted, in_data, told] =
        [Count::Kills, Count::Holding, Count::Gets, Count::Increments, Count::InData, Count::Told]
            .map(|n| outcome.get(n));
    println!("{gets} gets; {kills} kills, {holding} of them while holding X, LX or E; {told} deaths told");
    println!("{in_data} increments, {counted} of them counted: 0 lost");
}
