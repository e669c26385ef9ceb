//! The table of the wait schemes: their numbers, names and units. What each does is in its file in
//! [`crate::wait`].

/// Calls a macro with the table: the number, the scheme's file and type, its name, and the unit that
/// `mutex_wait_time` has while it is in force, which is empty where it does not use it.
macro_rules! with_schemes {
    ($then:ident) => {
        $then! {
            0 => yielding::Yield, "yield", "";
            1 => sleeping::Sleep, "sleep", "ms";
            2 => backoff::Backoff, "backoff", "cs";
            3 => tengen::TenG, "10g", "";
            4 => patch::Patch, "patch6904068", "";
            5 => latch::Latch, "latch", "";
            6 => ydb::Ydb, "ydb", "";
            7 => pthread::Pthread, "pthread", "";
            8 => adaptive::Adaptive, "adaptive", "";
            9 => orbit::Orbit, "orbit", "";
        }
    };
}

macro_rules! table {
    ($( $number:literal => $module:ident::$scheme:ident, $name:literal, $unit:literal; )*) => {
        /// Names of the schemes; the position is the value of `mutex_wait_scheme`, and the sources' number
        /// for 0, 1 and 2.
        pub const NAMES: &[&str] = &[ $( $name ),* ];

        const WAIT_TIME_UNITS: &[&str] = &[ $( $unit ),* ];

        const _: () = {
            let numbers = [ $( $number ),* ];
            let mut position = 0;
            while position < numbers.len() {
                assert!(numbers[position] == position, "schemes are numbered in order");
                position += 1;
            }
        };
    };
}

with_schemes!(table);
pub(crate) use with_schemes;

/// Position of the scheme `sleep`.
pub const SLEEP: usize = 1;
/// Position of the scheme `backoff`.
pub const BACKOFF: usize = 2;
/// Position of the scheme `ydb`.
pub(crate) const YDB: usize = 6;
/// Position of the scheme `adaptive`.
pub const ADAPTIVE: usize = 8;
/// Position of the scheme that a new instance uses.
pub const DEFAULT: usize = 9;

/// The position of a scheme by its name or, for 0, 1 and 2, by the sources' number.
#[must_use]
pub fn named(name: &str) -> Option<usize> {
    match name {
        "0" => Some(0),
        "1" => Some(1),
        "2" => Some(2),
        _ => NAMES.iter().position(|known| *known == name),
    }
}

/// The unit of `mutex_wait_time` while the scheme at this position is in force; `None` where it is not used.
#[must_use]
pub fn wait_time_unit(position: usize) -> Option<&'static str> {
    WAIT_TIME_UNITS.get(position).copied().filter(|unit| !unit.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_positions_that_have_a_name_of_their_own_are_those_of_the_table() {
        assert_eq!(
            [NAMES[SLEEP], NAMES[BACKOFF], NAMES[YDB], NAMES[ADAPTIVE], NAMES[DEFAULT]],
            ["sleep", "backoff", "ydb", "adaptive", "orbit"]
        );
        assert_eq!((named("1"), named("backoff"), named("3")), (Some(SLEEP), Some(BACKOFF), None));
        assert_eq!([SLEEP, BACKOFF, DEFAULT].map(wait_time_unit), [Some("ms"), Some("cs"), None]);
    }
}
