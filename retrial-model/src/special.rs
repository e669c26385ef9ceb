//! Special functions: what a crate has accurately is taken from there, the rest is here.

use std::f64::consts::SQRT_2;

/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;
/// From here on e^x E(x) is summed by its asymptotic series.
const FAR: f64 = 40.0;

/// P(a, x): share of a gamma(a) time up to x. `a` positive, up to 10,000 with an error of 3e-11.
pub(crate) fn gamma_lower(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        0.0
    } else if x.is_infinite() {
        1.0
    } else {
        statrs::function::gamma::gamma_lr(a, x)
    }
}

/// Q(a, x) = 1 - P(a, x), accurate where it is small.
pub(crate) fn gamma_upper(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        1.0
    } else if x.is_infinite() {
        0.0
    } else {
        statrs::function::gamma::gamma_ur(a, x)
    }
}

/// ln Γ(x).
pub(crate) fn ln_gamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// ln n!
pub(crate) fn ln_factorial(n: usize) -> f64 {
    libm::lgamma(n as f64 + 1.0)
}

/// Φ(x): the normal distribution function, accurate where it is small.
pub(crate) fn normal(x: f64) -> f64 {
    libm::erfc(-x / SQRT_2) / 2.0
}

/// (e^x - 1)/x, which is 1 at 0.
pub(crate) fn growth(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { x.exp_m1() / x }
}

/// (e^-x - 1 + x)/x² = ∫₀¹ (1 - s) e^(-xs) ds, which is 1/2 at 0.
pub(crate) fn ramp(x: f64) -> f64 {
    if x > 1.0 {
        return ((-x).exp_m1() + x) / (x * x);
    }
    let (mut sum, mut term) = (0.5, 0.5);
    for n in 3..30 {
        term *= -x / f64::from(n);
        sum += term;
    }
    sum
}

/// 1/2 - ramp(x) = ∫₀¹ (1 - s) (1 - e^(-xs)) ds, without the difference.
pub(crate) fn lag(x: f64) -> f64 {
    if x > 1.0 {
        return 0.5 - ramp(x);
    }
    let (mut sum, mut term) = (x / 6.0, x / 6.0);
    for n in 4..30 {
        term *= -x / f64::from(n);
        sum += term;
    }
    sum
}

/// The form factor of a tagged request, `F₁(x) = (1 - e^-x)/x`: its chance against Poisson(x) others at a
/// release.
///
/// `x` is the mean number of the others, from 0. MODEL.md, Form factors; exact for Poisson attempts.
#[must_use]
pub fn form_factor(x: f64) -> f64 {
    growth(-x)
}

/// The paper's form factor, `F_c(x) = -Ein(-x)/(e^x - 1)` (eq. 7): the mean over intervals with at least one
/// request.
///
/// `x` as in [`form_factor`]. Relative error below 2e-15 up to 1000. It is an average over intervals where
/// one over requests is needed, and so too large; here for comparison with the paper.
#[must_use]
pub fn form_factor_paper(x: f64) -> f64 {
    if x == 0.0 {
        1.0
    } else if x <= FAR {
        ein_near(x) / x.exp_m1()
    } else {
        ein_far(x) / -(-x).exp_m1()
    }
}

/// `-Ein(-x) = ∫₀ˣ (e^u - 1)/u du` as Σ xⁿ/(n n!): all terms are positive.
fn ein_near(x: f64) -> f64 {
    let (mut sum, mut power, mut n) = (x, x, 1.0);
    loop {
        n += 1.0;
        power *= x / n;
        sum += power / n;
        if n > x && power / n <= 1e-17 * sum {
            return sum;
        }
    }
}

/// `-e^-x Ein(-x)`: the series of Ei up to its smallest term, without ln x + γ.
fn ein_far(x: f64) -> f64 {
    let (mut sum, mut term, mut m) = (1.0 / x, 1.0 / x, 1.0);
    loop {
        let next = term * m / x;
        if next >= term || next < 1e-18 * sum {
            return sum - (-x).exp() * (x.ln() + EULER);
        }
        term = next;
        sum += term;
        m += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, error: f64) {
        assert!((found / expected - 1.0).abs() <= error, "{found:e}, expected {expected:e}");
    }

    #[test]
    fn the_papers_form_factor_meets_its_series_and_its_asymptotes() {
        for x in [1e-12, 1e-6, 1e-3, 0.02_f64] {
            let series = 1.0 - x / 4.0 + x * x / 72.0 + x.powi(3) / 288.0 - 13.0 * x.powi(4) / 43200.0;
            close(form_factor_paper(x), series, 1e-11);
        }
        close(form_factor_paper(1000.0), 1e-3 + 1e-6 + 2e-9 + 6e-12, 1e-10);
        // The two ways of summation meet.
        close(form_factor_paper(FAR), ein_far(FAR) / -(-FAR).exp_m1(), 1e-14);
        assert_eq!((form_factor(0.0), form_factor_paper(0.0)), (1.0, 1.0));
    }

    #[test]
    fn the_two_branches_of_the_ramp_meet() {
        close(ramp(1.0), (-1.0_f64).exp(), 1e-15);
        close(ramp(1.000_000_1), ramp(1.0) * (1.0 - 1e-7 * 0.282), 1e-8);
        assert_eq!(ramp(0.0), 0.5);
    }
}
