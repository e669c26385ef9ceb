//! Roots of monotone functions in a bracket.

/// Steps of a search; each halves the bracket at worst in three.
const STEPS: usize = 200;

/// Where `f` changes its sign between `low` and `high`, to the last bits of a double (Brent's method).
///
/// An end is the answer where `f` has the same sign at both: the nearer to 0.
pub(crate) fn root(low: f64, high: f64, f: impl Fn(f64) -> f64) -> f64 {
    let (mut a, mut b) = (low, high);
    let (mut fa, mut fb) = (f(a), f(b));
    if fa.signum() == fb.signum() || fa == 0.0 || fb == 0.0 {
        return if fa.abs() < fb.abs() { a } else { b };
    }
    let (mut c, mut fc) = (a, fa);
    let (mut step, mut before) = (b - a, b - a);
    for _ in 0..STEPS {
        if fb.signum() == fc.signum() {
            (c, fc) = (a, fa);
            step = b - a;
            before = step;
        }
        if fc.abs() < fb.abs() {
            (a, b, c) = (b, c, b);
            (fa, fb, fc) = (fb, fc, fb);
        }
        let exact = 2.0 * f64::EPSILON * b.abs() + f64::MIN_POSITIVE;
        let half = (c - b) / 2.0;
        if half.abs() <= exact || fb == 0.0 {
            return b;
        }
        let guess = interpolated((a, fa), (b, fb), (c, fc));
        let bisect = before.abs() < exact || fa.abs() <= fb.abs();
        match guess {
            Some(guess)
                if !bisect && 2.0 * guess.abs() < (3.0 * half).abs().min(before.abs()) && guess * half > 0.0 =>
            {
                before = step;
                step = guess;
            }
            _ => {
                step = half;
                before = half;
            }
        }
        (a, fa) = (b, fb);
        b += if step.abs() > exact { step } else { exact.copysign(half) };
        fb = f(b);
    }
    b
}

/// The step from b by inverse quadratic interpolation, or by the secant.
fn interpolated(a: (f64, f64), b: (f64, f64), c: (f64, f64)) -> Option<f64> {
    let s = b.1 / a.1;
    let (p, q) = if a.0 == c.0 {
        ((c.0 - b.0) * s, 1.0 - s)
    } else {
        let (q, r) = (a.1 / c.1, b.1 / c.1);
        (s * ((c.0 - b.0) * q * (q - r) - (b.0 - a.0) * (r - 1.0)), (q - 1.0) * (r - 1.0) * (s - 1.0))
    };
    let step = -p / q;
    step.is_finite().then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_to_the_last_bits() {
        for (low, high, f, expected) in [
            (0.0, 2.0, (|x| x * x - 2.0) as fn(f64) -> f64, std::f64::consts::SQRT_2),
            (0.0, 10.0, |x| x.exp() - 1e3, 1e3_f64.ln()),
            (1e-9, 1e9, |x| 1.0 - 1.0 / x, 1.0),
            (-1.0, 4.0, |x| x.powi(9), 0.0),
        ] {
            let found = root(low, high, f);
            assert!((found - expected).abs() <= 4e-16 * expected.abs() + 1e-2 * f64::from(expected == 0.0), "{found}");
        }
        assert_eq!(root(1.0, 2.0, |x| x), 1.0);
    }
}
