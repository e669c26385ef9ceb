//! Integrals by Gauss and Legendre, on panels that are given or found.

use std::sync::LazyLock;

/// Points of one panel.
const ORDER: usize = 20;
/// Bisections of one panel: as many as a double has bits, and some.
const DEPTH: u32 = 60;

/// Nodes in (0, 1) and weights with the sum 1.
static RULE: LazyLock<[(f64, f64); ORDER]> = LazyLock::new(|| {
    std::array::from_fn(|i| {
        let n = ORDER as f64;
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (n + 0.5)).cos();
        let mut slope = 0.0;
        for _ in 0..8 {
            let (mut before, mut value) = (1.0, x);
            for k in 2..=ORDER {
                let k = k as f64;
                (before, value) = (value, ((2.0 * k - 1.0) * x * value - (k - 1.0) * before) / k);
            }
            slope = n * (x * value - before) / (x * x - 1.0);
            x -= value / slope;
        }
        (f64::midpoint(1.0, x), 1.0 / ((1.0 - x * x) * slope * slope))
    })
});

/// The ends of panels from `from` to `to`: those of `breaks` between them.
pub(crate) fn panels(from: f64, to: f64, breaks: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut ends = vec![from, to];
    ends.extend(breaks.into_iter().filter(|x| from < *x && *x < to));
    ends.sort_by(f64::total_cmp);
    ends.dedup();
    ends
}

/// Nodes and weights on the panels between `ends`.
pub(crate) fn nodes(ends: &[f64]) -> impl Iterator<Item = (f64, f64)> {
    ends.windows(2).flat_map(|ends| {
        let (from, width) = (ends[0], ends[1] - ends[0]);
        RULE.iter().map(move |(x, weight)| (from + width * x, width * weight))
    })
}

/// ∫ f over the panels between `ends`, each halved until that changes nothing any more. For integrands that
/// are not negative.
pub(crate) fn integral(ends: &[f64], f: impl Fn(f64) -> f64) -> f64 {
    let whole: Vec<f64> = ends.windows(2).map(|ends| panel(ends[0], ends[1], &f)).collect();
    let allowed = 1e-14 * whole.iter().sum::<f64>().abs();
    ends.windows(2).zip(whole).map(|(ends, whole)| refined(ends[0], ends[1], whole, allowed, DEPTH, &f)).sum()
}

fn panel(from: f64, to: f64, f: &impl Fn(f64) -> f64) -> f64 {
    RULE.iter().map(|(x, weight)| weight * f(from + (to - from) * x)).sum::<f64>() * (to - from)
}

fn refined(from: f64, to: f64, whole: f64, allowed: f64, depth: u32, f: &impl Fn(f64) -> f64) -> f64 {
    let middle = f64::midpoint(from, to);
    let (left, right) = (panel(from, middle, f), panel(middle, to, f));
    let error = (left + right - whole).abs();
    if error <= allowed || error <= 1e-15 * (left + right).abs() || depth == 0 {
        return left + right;
    }
    refined(from, middle, left, allowed, depth - 1, f) + refined(middle, to, right, allowed, depth - 1, f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smooth_and_singular_integrands() {
        let close = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 2e-14, "{found} {expected}");
        close(integral(&[0.0, 1.0], f64::exp), std::f64::consts::E - 1.0);
        close(integral(&[0.0, 1.0, 9.0], f64::sqrt), 18.0);
        close(integral(&[0.0, 1.0], |x| x.powf(-0.3)), 1.0 / 0.7);
        close(integral(&[0.0, 1.0, 100.0, 1e6], |x| (-x).exp()), 1.0);
        close(nodes(&[0.0, 2.0]).map(|(x, weight)| weight * x.powi(39)).sum(), 2.0_f64.powi(40) / 40.0);
    }
}
