//! Stacks as text, one to a line, and as a picture: a flame graph (B. Gregg, *The Flame Graph*, CACM 2016),
//! in SVG that needs no script. The usual crate for these, inferno, is under the CDDL.

use crate::duration;
use crate::output::{in_line, markup};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
/// Room for the heading.
const TOP: f64 = 40.0;
/// Of a letter.
const LETTER: f64 = 6.6;
/// Narrower boxes are left out, and have no name in them.
const NARROWEST: f64 = 0.2;
const NARROWEST_NAMED: f64 = 26.0;

/// Stacks, outermost call first, with their time in ns.
pub type Stacks = BTreeMap<Vec<String>, u64>;

/// One line for each: the calls from the outermost on, separated by semicolons, and the time in ns.
pub fn folded(stacks: &Stacks) -> String {
    let mut text = String::new();
    for (stack, ns) in stacks.iter().filter(|(_, ns)| **ns > 0) {
        let calls: Vec<String> =
            stack.iter().map(|call| in_line(&call.replace([';', '\n'], ":")).into_owned()).collect();
        let _ = writeln!(text, "{} {ns}", calls.join(";"));
    }
    text
}

/// The same as a picture.
pub fn svg(title: &str, stacks: &Stacks) -> String {
    let mut root = Node::default();
    for (stack, ns) in stacks {
        root.add(stack, *ns);
    }
    let height = TOP + ROW * root.depth() as f64 + ROW;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"22\" font-size=\"15\">{}: {} in all</text>\n",
        markup(title),
        time(root.ns),
    );
    let mut left = 0.0;
    for (name, node) in &root.calls {
        left += node.draw(name, &Frame { left, floor: height - ROW, total: root.ns }, &mut text);
    }
    text + "</svg>\n"
}

/// A call, with those that it made.
#[derive(Default)]
struct Node<'s> {
    ns: u64,
    calls: BTreeMap<&'s str, Node<'s>>,
}

/// Where a box goes, and what is 100 %.
struct Frame {
    left: f64,
    /// Its lower edge.
    floor: f64,
    total: u64,
}

impl<'s> Node<'s> {
    fn add(&mut self, stack: &'s [String], ns: u64) {
        self.ns += ns;
        if let Some((call, rest)) = stack.split_first() {
            self.calls.entry(call).or_default().add(rest, ns);
        }
    }

    fn depth(&self) -> usize {
        self.calls.values().map(|node| 1 + node.depth()).max().unwrap_or(0)
    }

    /// Draws a call, and above it those that it made: its width.
    fn draw(&self, name: &str, frame: &Frame, text: &mut String) -> f64 {
        let share = self.ns as f64 / frame.total.max(1) as f64;
        let width = WIDTH * share;
        if width < NARROWEST {
            return width;
        }
        let (left, top) = (frame.left, frame.floor - ROW);
        let _ = write!(
            text,
            "<g><title>{}: {}, {:.1} %</title><rect x=\"{left:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{}\" fill=\"{}\"/>",
            markup(name),
            time(self.ns),
            share * 100.0,
            (width - 0.5).max(NARROWEST),
            ROW - 1.0,
            colour(name),
        );
        if width >= NARROWEST_NAMED {
            let fits = |letters: usize| letters as f64 * LETTER < width;
            let shown: String = if fits(name.chars().count() + 1) {
                name.to_owned()
            } else {
                name.chars().enumerate().take_while(|(i, _)| fits(i + 3)).map(|(_, c)| c).chain(['…']).collect()
            };
            let _ = write!(text, "<text x=\"{:.2}\" y=\"{}\">{}</text>", left + 2.0, top + 12.0, markup(&shown));
        }
        text.push_str("</g>\n");
        let mut inner = left;
        for (name, node) in &self.calls {
            inner += node.draw(name, &Frame { left: inner, floor: top, ..*frame }, text);
        }
        width
    }
}

fn time(ns: u64) -> String {
    duration::text(Duration::from_nanos(ns))
}

/// A warm colour, of a name always the same.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("hsl({},{}%,{}%)", 12 + hash % 40, 70 + hash / 64 % 20, 62 + hash / 4096 % 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> Stacks {
        let stack = |calls: &[&str]| calls.iter().map(|call| (*call).to_owned()).collect::<Vec<_>>();
        Stacks::from([
            (stack(&["main", "push", "lock"]), 3_000_000),
            (stack(&["main", "op<a;b>", "lock"]), 1_000_000),
            (stack(&["main", "free"]), 0),
        ])
    }

    #[test]
    fn a_line_has_the_calls_and_the_time() {
        assert_eq!(folded(&stacks()), "main;op<a:b>;lock 1000000\nmain;push;lock 3000000\n");
    }

    #[test]
    fn boxes_are_as_wide_as_their_share_and_stand_on_their_callers() {
        let svg = svg("wait time", &stacks());
        assert!(svg.contains("wait time: 4.00 ms in all"), "{svg}");
        let line = |name: &str| svg.lines().find(|line| line.contains(&format!("<title>{name}: "))).unwrap();
        let number = |name: &str, what: &str| -> f64 {
            let rest = line(name).split_once("<rect").unwrap().1;
            rest.split_once(&format!(" {what}=\"")).unwrap().1.split('"').next().unwrap().parse().unwrap()
        };
        assert!(line("push").contains("75.0 %") && line("main").contains("100.0 %"));
        assert!((number("push", "width") - 899.5).abs() < 0.01);
        assert!((number("push", "x") - 300.0).abs() < 0.01, "after the other one");
        assert!(number("push", "y") < number("main", "y"));
        assert!(line("op&lt;a;b&gt;").contains("25.0 %"));
    }
}
