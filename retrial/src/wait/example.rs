//! A wait that tests begin with, and what it sees.

use super::{First, Seen, Wanted};
use crate::mode::Mode;
use crate::params::Params;

pub(super) const WANTED: Wanted =
    Wanted { mode: Mode::Exclusive, high_priority: false, first: First::Spin, halvings: 0, poll_ns: 30, soft_spins: 0 };

pub(super) fn seen(params: &Params) -> Seen<'_> {
    Seen {
        params,
        now_ns: 0,
        parked: 0,
        gets: 0,
        soft_spins: 0,
        on_x: true,
        restricted: false,
        pthread_in_use: false,
        random: 499,
    }
}
