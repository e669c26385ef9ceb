//! Holding times seen from outside: bursts of looks at one mutex, and the distribution that they give.
//!
//! A burst sees some holds from their begin to their end, and loses sight of others. Those tell that they
//! were longer than what was seen of them: the estimate is that of E. L. Kaplan and P. Meier, *Nonparametric
//! estimation from incomplete observations* (1958).

use crate::output::whole;
use retrial::views::{Histogram, MutexState};
use retrial_model::{Distribution, Family};

/// Fewer say little of a distribution.
const ENOUGH: usize = 200;

/// Fewer say little of a mean.
const FEW: u64 = 5;

/// Values that stand for a distribution.
const VALUES: usize = 200;

/// Holds that were seen from their begin on, in ns: how long, and whether to their end.
#[derive(Clone, Debug, Default)]
pub struct Timed(Vec<(u64, bool)>);

/// What a burst knows of the hold under way.
#[derive(Clone, Copy)]
struct Hold {
    since_ns: u64,
    sid: u32,
    /// Gets of the mutex when this one has been counted. Another hold of the same session makes them more.
    gets: u64,
}

/// One burst of looks.
pub struct Burst<'a> {
    timed: &'a mut Timed,
    /// A longer pause between two looks than this loses sight of the hold.
    pause_ns: u64,
    last: Option<(u64, MutexState)>,
    hold: Option<Hold>,
}

impl<'a> Burst<'a> {
    pub fn new(timed: &'a mut Timed, pause_ns: u64) -> Self {
        Self { timed, pause_ns, last: None, hold: None }
    }

    /// What the mutex was at a time.
    pub fn look(&mut self, now_ns: u64, state: MutexState) {
        let holder = |state: &MutexState| state.word.kind().map(|_| state.word.sid().number());
        let Some((last_ns, last)) = self.last.replace((now_ns, state)) else { return };
        if now_ns.saturating_sub(last_ns) > self.pause_ns {
            self.lose(last_ns);
            return;
        }
        let between = u64::midpoint(last_ns, now_ns);
        let goes_on = |hold: &Hold| holder(&state) == Some(hold.sid) && state.gets <= hold.gets;
        let ended = self.hold.take_if(|hold| !goes_on(hold));
        if let Some(hold) = ended {
            self.timed.0.push((between - hold.since_ns, true));
        }
        // A hold that was there at the first look began before it.
        let is_new = ended.is_some() || holder(&last) != holder(&state) || state.gets > last.gets.saturating_add(1);
        if let (None, Some(sid), true) = (self.hold, holder(&state), is_new) {
            // The get is counted just after the word is taken: it may be either side of it.
            self.hold = Some(Hold { since_ns: between, sid, gets: state.gets.max(last.gets.saturating_add(1)) });
        }
    }

    /// Loses sight of the hold under way.
    fn lose(&mut self, at_ns: u64) {
        if let Some(hold) = self.hold.take() {
            self.timed.0.push((at_ns.saturating_sub(hold.since_ns), false));
        }
    }
}

impl Drop for Burst<'_> {
    fn drop(&mut self) {
        if let Some((last_ns, _)) = self.last {
            self.lose(last_ns);
        }
    }
}

impl Timed {
    /// Holds in ns, all of them seen to their end.
    #[cfg(test)]
    pub fn of(holds: impl IntoIterator<Item = u64>) -> Self {
        Self(holds.into_iter().map(|ns| (ns, true)).collect())
    }

    pub fn count(&self) -> u64 {
        self.0.iter().filter(|(_, ended)| *ended).count() as u64
    }

    /// Those that were lost sight of.
    pub fn lost(&self) -> u64 {
        self.0.len() as u64 - self.count()
    }

    /// The mean in s. `None`: too few were seen to their end.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count() >= FEW).then(|| mean_s(&self.quantiles()))
    }

    /// Estimated lengths in ns that these shares of the holds do not exceed, and how many of a round number
    /// are how long. `None`: too few were seen.
    pub fn estimate<const N: usize>(&self, shares: [f64; N]) -> Option<([f64; N], Histogram)> {
        let values = self.quantiles();
        let of = |share: f64| values[(whole(share * VALUES as f64) as usize).min(VALUES - 1)];
        let mut lengths = Histogram::default();
        for ns in &values {
            lengths.count(whole(*ns), 1);
        }
        (self.count() as usize >= ENOUGH).then(|| (shares.map(of), lengths))
    }

    /// The distribution, as values that are all as likely, with this mean in s; on a full machine, where that
    /// mean has the time in run queues in it, with the mean that was seen; in both cases times `own`. `None`: too
    /// few, or they do not fit the mean, which they cannot where holds are longer than bursts.
    pub fn distribution(&self, mean_s: f64, is_full: bool, own: f64) -> Option<Distribution> {
        if (self.count() as usize) < ENOUGH {
            return None;
        }
        let values = self.quantiles();
        let scale = mean_s / self::mean_s(&values);
        if !(0.5..=if is_full { 10.0 } else { 2.0 }).contains(&scale) {
            return None;
        }
        let scale = own * if is_full { 1.0 } else { scale };
        let values = values.into_iter().map(|ns| ns / 1e9 * scale).collect();
        Distribution::new(Family::Sample { values }).ok()
    }

    /// Quantiles in ns of the Kaplan-Meier estimate; what lies beyond the longest that was seen to its end is
    /// as long as that.
    fn quantiles(&self) -> Vec<f64> {
        let mut all = self.0.clone();
        // Of equal ones those that ended come first.
        all.sort_unstable_by_key(|(ns, ended)| (*ns, !*ended));
        let (mut survival, mut quantiles) = (1.0, Vec::with_capacity(VALUES));
        let mut longest = 0;
        for (i, (ns, ended)) in all.iter().enumerate() {
            if !*ended {
                continue;
            }
            longest = *ns;
            survival *= 1.0 - 1.0 / (all.len() - i) as f64;
            while quantiles.len() < VALUES && (quantiles.len() as f64 + 0.5) / VALUES as f64 <= 1.0 - survival {
                quantiles.push(*ns as f64);
            }
        }
        quantiles.resize(VALUES, longest as f64);
        quantiles
    }
}

/// The mean in s of lengths in ns.
fn mean_s(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::views::Word;

    fn held(sid: u32, gets: u64) -> MutexState {
        // The kind of X is 0.
        MutexState { word: Word(u64::from(sid) << 32), gets, parked: 0 }
    }

    fn free(gets: u64) -> MutexState {
        MutexState { word: Word::FREE, gets, parked: 0 }
    }

    fn seen(looks: &[(u64, MutexState)]) -> Vec<(u64, bool)> {
        let mut timed = Timed::default();
        let mut burst = Burst::new(&mut timed, 1000);
        for (at, state) in looks {
            burst.look(*at, *state);
        }
        drop(burst);
        timed.0
    }

    #[test]
    fn holds_are_told_apart() {
        // One from its begin to its end; the get is counted after the word is taken.
        assert_eq!(seen(&[(0, free(5)), (100, held(1, 5)), (200, held(1, 6)), (300, free(6))]), [(200, true)]);
        // From session to session, and the same session again.
        assert_eq!(
            seen(&[
                (0, free(5)),
                (100, held(1, 6)),
                (300, held(2, 6)),
                (400, held(2, 7)),
                (500, held(2, 8)),
                (600, free(8))
            ]),
            [(150, true), (250, true), (100, true)]
        );
        // The first hold of a burst began before it, the last one goes on.
        assert_eq!(seen(&[(0, held(1, 5)), (100, free(5)), (200, held(2, 6)), (300, held(2, 6))]), [(150, false)]);
        // Also where it is seen twice.
        assert_eq!(seen(&[(0, held(1, 6)), (100, held(1, 6)), (200, free(6))]), []);
        // Out of sight.
        assert_eq!(seen(&[(0, free(5)), (100, held(1, 6)), (200, held(1, 6)), (9000, free(6))]), [(150, false)]);
    }

    #[test]
    fn lost_sight_of_is_not_taken_for_short() {
        // Half of all are 1 us. Of the others, 4 us long, three of four are lost sight of after 2 us.
        let mut timed = Timed::default();
        for i in 0..2000 {
            timed.0.push(match i % 8 {
                0..4 => (1000, true),
                4 => (4000, true),
                _ => (2000, false),
            });
        }
        let distribution = timed.distribution(2.5e-6, false, 1.0).unwrap();
        assert!((distribution.survival(3e-6) - 0.5).abs() < 0.01, "{}", distribution.survival(3e-6));
        assert!((distribution.mean() - 2.5e-6).abs() < 1e-12);
        // Without them the mean does not fit.
        assert_eq!(timed.distribution(10e-6, false, 1.0), None);
        let full = timed.distribution(10e-6, true, 1.0).unwrap();
        assert!((full.mean() - 2.5e-6).abs() < 0.05e-6, "{}", full.mean());
        let ([half, most], lengths) = timed.estimate([0.25, 0.9]).unwrap();
        assert_eq!((half, most, timed.lost()), (1000.0, 4000.0, 750));
        let shares: Vec<_> = lengths.filled().map(|(begin_us, _, count)| (begin_us, count)).collect();
        assert_eq!(shares, [(1, 100), (4, 100)], "lost sight of, they were longer");
        timed.0.truncate(100);
        assert_eq!(timed.distribution(2.5e-6, false, 1.0), None);
        assert!(timed.estimate([0.5]).is_none());
    }
}
