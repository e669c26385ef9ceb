//! The settings near those in force, for a search by simulation.

use super::rules::{Change, Finding};
use retrial::views::Domain;
use retrial::{P, wait};
use retrial_model::sim::Workload;

/// What the waits of a scheme depend on.
const DEPENDS_ON: [(&str, &[P]); 9] = [
    ("yield", &[P::SpinCount, P::YieldSleepFreq, P::YieldSleepTime]),
    ("sleep", &[P::SpinCount, P::WaitTime]),
    ("backoff", &[P::SpinCount, P::WaitTime]),
    ("10g", &[P::SpinCount]),
    ("patch6904068", &[P::SpinCount, P::FirstSpare]),
    ("latch", &[P::LatchSpinCount]),
    ("ydb", &[P::HardSpinCount, P::SoftSpinCount]),
    ("adaptive", &[P::HardSpinCount, P::SoftSpinCount, P::YdbThreshold, P::PthreadThreshold]),
    ("orbit", &[P::OrbitSpinTime, P::OrbitYields, P::HandoverInterval, P::Fairness]),
];

/// The rule that its findings name.
pub const SEARCH: &str = "search";

/// A number is tried at this share and multiple of its value, and once more so.
const STEP: u64 = 8;

/// A finding for every setting one step away from those in force: another scheme, or another value of a
/// parameter that the scheme depends on.
pub fn neighbours(workload: &Workload) -> Vec<Finding> {
    let scheme = workload.params.get(P::Scheme);
    let depends_on = DEPENDS_ON.iter().find(|(name, _)| wait::named(name).is_some_and(|n| n as u64 == scheme));
    let parameters = std::iter::once(&P::Scheme).chain(depends_on.iter().flat_map(|(_, all)| all.iter()));
    let changes = parameters.flat_map(|p| values(*p, workload.params.get(*p)).into_iter().map(|value| (*p, value)));
    let finding = |(p, value)| Finding {
        rule: SEARCH,
        title: "by simulation",
        evidence: Vec::new(),
        change: Change::Set(p, value),
        price: None,
        risk: None,
    };
    changes.map(finding).collect()
}

/// Other values of a parameter: each name, or the default, and down and up in two steps each.
fn values(p: P, now: u64) -> Vec<u64> {
    let row = p.row();
    let mut all = match row.domain {
        Domain::Names(names) => (0..names.len() as u64).collect(),
        Domain::Number(low, high) => {
            let from = if now == 0 { row.default.max(1) } else { now };
            let up = from.saturating_mul(STEP);
            let near = [from / STEP / STEP, from / STEP, from, up, up.saturating_mul(STEP), row.default];
            near.map(|value| value.clamp(low, high)).to_vec()
        }
    };
    all.sort_unstable();
    all.dedup();
    all.retain(|value| *value != now);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::views::Params;
    use retrial_model::Distribution;
    use retrial_model::sim::Arrivals;

    fn changes(settings: &[(P, u64)]) -> Vec<Change> {
        let hold = Distribution::exponential(1e-6).unwrap();
        let mut workload = Workload::new(Arrivals::Open { rate: 1.0 }, hold, 1.0);
        workload.params = settings.iter().fold(Params::default(), |params, (p, value)| params.with(*p, *value));
        neighbours(&workload).into_iter().map(|finding| finding.change).collect()
    }

    #[test]
    fn each_other_scheme_and_values_near_those_in_force_are_tried() {
        let latch = wait::named("latch").unwrap() as u64;
        let all = changes(&[(P::Scheme, latch), (P::LatchSpinCount, 20_000)]);
        let schemes = all.iter().filter(|change| matches!(change, Change::Set(P::Scheme, _))).count();
        assert_eq!(schemes, wait::NAMES.len() - 1);
        let counts = [312, 2500, 160_000, 1_280_000].map(|n| Change::Set(P::LatchSpinCount, n));
        assert_eq!(all[schemes..], counts);
        assert!(!all.contains(&Change::Set(P::Scheme, latch)));
    }

    #[test]
    fn values_stay_in_their_domain_and_nothing_is_tried_twice() {
        assert_eq!(values(P::LatchSpinCount, 0), [312, 2500, 20_000, 160_000, 1_280_000]);
        assert_eq!(values(P::OrbitYields, 1_000_000), [512, 15_625, 125_000]);
        assert_eq!(values(P::HandoverInterval, 1), [8, 64, 1000]);
        assert_eq!(values(P::Fairness, 1), [0, 2]);
    }

    #[test]
    fn every_parameter_that_a_scheme_spins_by_is_known() {
        assert!(DEPENDS_ON.iter().all(|(name, _)| wait::NAMES.contains(name)));
        for (scheme, name) in wait::NAMES.iter().enumerate() {
            let known = DEPENDS_ON.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, all)| all);
            let spins = |params: &Params| wait::scheme(scheme as u64).spins(&wait::Attempt::first(params));
            let plain = Params::default();
            let depends = |p: &&P| match p.row().domain {
                Domain::Number(_, high) => spins(&plain.with(**p, high)) != spins(&plain),
                Domain::Names(_) => false,
            };
            for p in P::ALL.iter().filter(depends) {
                assert!(known.contains(p), "{name}: {}", p.row().name);
            }
        }
    }
}
