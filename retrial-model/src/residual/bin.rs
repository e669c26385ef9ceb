//! A bin of a distribution by itself, with weight 1.

use super::part;
use crate::distribution::Bin;
use crate::special::{form_factor, lag, ramp};

impl Bin {
    fn width(self) -> f64 {
        self.high - self.low
    }

    /// P(X > t).
    pub(super) fn above(self, t: f64) -> f64 {
        if t < self.low {
            1.0
        } else if t < self.high {
            (self.high - t) / self.width()
        } else {
            0.0
        }
    }

    /// The place of t within the bin, and the shares below and above it.
    fn cut(self, t: f64) -> (f64, f64, f64) {
        let above = self.above(t);
        let place = t.clamp(self.low, self.high);
        let below = if above == 0.0 {
            1.0
        } else if above == 1.0 {
            0.0
        } else {
            (place - self.low) / self.width()
        };
        (place, below, above)
    }

    pub(super) fn minimum(self, t: f64) -> f64 {
        let (place, below, above) = self.cut(t);
        below * f64::midpoint(self.low, place) + part(t, above)
    }

    pub(super) fn minimum_squared(self, t: f64) -> f64 {
        let (place, below, above) = self.cut(t);
        below * (self.low * self.low + self.low * place + place * place) / 3.0 + part(t * t, above)
    }

    pub(super) fn excess(self, t: f64) -> f64 {
        let (low, high) = ((self.low - t).max(0.0), (self.high - t).max(0.0));
        self.above(t) * f64::midpoint(low, high)
    }

    pub(super) fn excess_squared(self, t: f64) -> f64 {
        let (low, high) = ((self.low - t).max(0.0), (self.high - t).max(0.0));
        self.above(t) * (low * low + low * high + high * high) / 3.0
    }

    pub(super) fn transform(self, rate: f64, limit: f64) -> f64 {
        let flat = limit.min(self.low);
        let sloped = limit.min(self.high) - self.low;
        let mut sum = flat * form_factor(rate * flat);
        if sloped > 0.0 {
            let (x, share) = (rate * sloped, sloped / self.width());
            sum += (-rate * self.low).exp() * sloped * ((1.0 - share) * form_factor(x) + share * ramp(x));
        }
        sum
    }

    pub(super) fn contended(self, rate: f64, limit: f64) -> f64 {
        let flat = limit.min(self.low);
        let sloped = limit.min(self.high) - self.low;
        let mut sum = flat * rate * flat * ramp(rate * flat);
        if sloped > 0.0 {
            let (x, share) = (rate * sloped, sloped / self.width());
            let late = -(-rate * self.low).exp_m1();
            let early = (1.0 - share) * x * ramp(x) + share * lag(x);
            sum += sloped * (late * (1.0 - share / 2.0) + (1.0 - late) * early);
        }
        sum
    }
}
