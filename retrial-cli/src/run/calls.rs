//! Calls handled and fallen back, by kind of pthread object.

use super::outcome::Calls;
use retrial::interposer::CALLS;
use retrial::views::Tables;

/// What the interposer counted, of the kinds that were called.
pub fn of(tables: &Tables) -> Vec<Calls> {
    let counted = CALLS.iter().zip(tables.calls()).filter(|(_, calls)| *calls > 0);
    counted
        .map(|((kind, is_ours), calls)| {
            let (handled, fallback) = if *is_ours { (calls, 0) } else { (0, calls) };
            Calls { kind, handled, fallback }
        })
        .collect()
}
