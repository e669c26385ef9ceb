//! The parameters of a type, or of the instance.

use super::{Line, Target, Tone, head};
use crate::top::grid::wrap;
use crate::top::seen::Seen;
use retrial::P;
use retrial::views::TypeId;

/// Width of the column of units.
const UNIT: usize = 9;
/// Width of all columns before the descriptions, and the least that a description gets beside them; with less
/// it has lines of its own.
const NAMED: usize = 73;
const ABOUT: usize = 40;
/// Of such a line.
const INDENT: &str = "    ";

/// Adds a section with them.
pub fn list(lines: &mut Vec<Line>, seen: &Seen, of: Option<TypeId>, room: u16) {
    let to = seen.to();
    let of_instance = of.map_or("of the instance".to_owned(), |of| format!("of type {}", to.type_name(of)));
    lines.push(Line::default());
    lines.push(head(&format!("Parameters {of_instance}; Enter changes one")));
    for p in P::ALL {
        let in_force = |of| to.params.iter().find(|found| found.parameter == *p && found.of == of);
        let own = in_force(of).filter(|found| found.is_set);
        let Some(found) = own.or_else(|| in_force(None)) else { continue };
        let from = match (own, of, found.is_set) {
            (Some(_), Some(_), _) => "own",
            (Some(_), None, _) => "set",
            (None, Some(_), true) => "of the instance",
            _ => "default",
        };
        // A long unit says in which schemes the parameter has which.
        let (unit, note) = match p.unit(scheme(seen, of)) {
            unit if unit.len() > UNIT => ("", format!(" In {unit}.")),
            unit => (unit, String::new()),
        };
        let (name, value, about) = (p.row().name, p.format(found.value), p.row().description);
        let (facts, about) = (format!("  {name:30} {value:>12} {unit:UNIT$} {from:16}"), format!("{about}{note}"));
        let texts = if usize::from(room) >= NAMED + ABOUT {
            wrap(&format!("{facts} {about}"), room, &" ".repeat(NAMED))
        } else {
            [wrap(&facts, room, INDENT), wrap(&format!("{INDENT}{about}"), room, INDENT)].concat()
        };
        let tone = if found.is_set { Tone::Plain } else { Tone::Dim };
        let target = Some(Target::Parameter(*p, of));
        lines.extend(texts.into_iter().map(|text| Line { text, tone, target }));
    }
}

/// The scheme in force.
pub fn scheme(seen: &Seen, of: Option<TypeId>) -> usize {
    crate::settings::scheme_of(seen.to().param(P::Scheme, of))
}
