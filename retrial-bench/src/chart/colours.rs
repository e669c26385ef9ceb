//! The palette of all charts.

use plotters::prelude::*;

/// Colour-blind people can tell these colours apart: *muted* by P. Tol (Colour schemes, SRON/EPS/TN/09-002, 2021),
/// with black for the last.
const PALETTE: [RGBColor; 10] = [
    RGBColor(51, 34, 136),
    RGBColor(204, 102, 119),
    RGBColor(17, 119, 51),
    RGBColor(136, 204, 238),
    RGBColor(221, 204, 119),
    RGBColor(136, 34, 85),
    RGBColor(68, 170, 153),
    RGBColor(153, 153, 51),
    RGBColor(170, 68, 153),
    RGBColor(0, 0, 0),
];

/// A colour of the palette; those after its end are between two of it.
pub(super) fn colour(index: usize) -> RGBColor {
    let at = |index: usize| PALETTE[index % PALETTE.len()];
    let (a, b) = (at(index), at(index + 1 + index / PALETTE.len()));
    if index < PALETTE.len() {
        return a;
    }
    RGBColor(a.0.midpoint(b.0), a.1.midpoint(b.1), a.2.midpoint(b.2))
}

/// The same for a legend elsewhere: red, green, blue.
pub fn rgb(index: usize) -> (u8, u8, u8) {
    let RGBColor(red, green, blue) = colour(index);
    (red, green, blue)
}

/// Colours for series of these names: a wait scheme has its own in every chart, after `retrial` or at the begin.
pub fn colours<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<usize> {
    let scheme = |name: &str| {
        let word = name.strip_prefix("retrial ").unwrap_or(name).split([' ', ',', ':']).next().unwrap_or_default();
        retrial::wait::NAMES.iter().position(|known| *known == word)
    };
    let mut next = if names.clone().any(|name| scheme(name).is_some()) { PALETTE.len() } else { 0 };
    let mut other = || {
        next += 1;
        next - 1
    };
    names.map(|name| scheme(name).unwrap_or_else(&mut other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_has_one_colour_everywhere_and_no_two_have_the_same() {
        let schemes = || retrial::wait::NAMES.iter().copied();
        let all = colours(schemes());
        let alone = |name: &str| colours([name].into_iter())[0];
        for (scheme, colour) in schemes().zip(&all) {
            assert_eq!((alone(scheme), alone(&format!("retrial {scheme}"))), (*colour, *colour));
        }
        assert_eq!(colours(["ydb", "TTAS", "one", "orbit"].into_iter())[1..3], [PALETTE.len(), PALETTE.len() + 1]);
        assert_eq!(colours(["before", "after"].into_iter()), [0, 1]);
        let mut seen: Vec<_> = (0..30).map(rgb).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 30);
    }
}
