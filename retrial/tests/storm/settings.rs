//! What the environment says of a storm.

use super::random::Random;

/// A variable of the environment, or what is used without it.
pub(crate) fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no value")),
        Err(_) => default,
    }
}

/// The seed that was asked for, or another at every run.
pub(crate) fn seed() -> u64 {
    match std::env::var("RETRIAL_STORM_SEED") {
        Ok(text) => {
            let digits = text.strip_prefix("0x");
            let number = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
            number.unwrap_or_else(|_| panic!("RETRIAL_STORM_SEED={text} is no number"))
        }
        Err(_) => Random::new(retrial::sys::now_ns() ^ u64::from(std::process::id()) << 40).next(),
    }
}
