//! What is printed: lines, numbers, and figures as tables in text, JSON or CSV.

mod table;

use clap::Args;
use serde_json::Value;
use std::borrow::Cow;
use std::io::{self, Write};

pub use table::{Column, Stream, Table, cell, column, counter, measure, per, record};

/// How figures are printed.
#[derive(Args, Clone, Copy, Default)]
pub struct Format {
    /// Print figures as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Print figures as CSV
    #[arg(long, global = true)]
    pub csv: bool,
}

impl Format {
    /// Whether a person reads it: notes, hints and `Next:` lines are for them only.
    pub const fn is_text(self) -> bool {
        !self.json && !self.csv
    }

    /// Prints a line for people; nothing in JSON and CSV.
    pub fn say(self, text: &str) {
        if self.is_text() {
            line(text);
        }
    }
}

/// Whether a terminal or a reader would obey the character instead of showing it: C0, DEL and C1 controls,
/// line and paragraph separators, and what reorders the text beside it.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text with `\u001b` in the place of such characters, as JSON has them: names, actions and alerts are
/// other users' texts. Everything that is printed goes through here. Ends of lines stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_obeyed(c) && c != '\n')
}

/// The same of what is part of a line: ends of lines, too.
pub fn in_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

fn escaped(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return text.into();
    }
    let escape = |c: char| if is_bad(c) { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    text.chars().map(escape).collect::<String>().into()
}

/// A text to be put into HTML or SVG, also between quotes: what a reader would take for markup is shown as it is, and
/// what it would obey as [`printable`] shows it.
pub fn markup(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            c => shown.push(c),
        }
    }
    shown
}

/// Writes a line; see [`write()`].
pub fn line(text: &str) {
    write(&format!("{}\n", printable(text)));
}

/// Writes to standard output. A closed pipe ends the command quietly, by SIGPIPE as it ends other commands;
/// whatever else keeps it from being written is an error: exit code 2.
pub fn write(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            crate::signals::die_of(libc::SIGPIPE);
        }
        let help = "df -h; ls -l /proc/self/fd/1";
        let report = miette::miette!(code = "retrial::output", help = help, "cannot write to standard output: {error}");
        eprintln!("{report:?}");
        std::process::exit(2);
    }
}

/// A word of a command to type, quoted where a shell would take it for something else.
///
/// Crates for this (`shlex`) leave control characters as they are, which would then be printed as
/// [`printable`] shows them: what is copied would be another word. `$'…'` can be shown and typed.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else if word.chars().any(char::is_control) {
        let escaped = word.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n").replace('\t', "\\t");
        format!("$'{escaped}'").into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''")).into()
    }
}

/// A cell as it is, nothing for null. A text that is another user's cannot begin a line of its own.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => escaped(text, is_obeyed).into(),
        other => other.to_string(),
    }
}

/// The nearest whole number, 0 for what is below it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a cast saturates
pub const fn whole(x: f64) -> u64 {
    x.round() as u64
}

/// With so many digits after the point.
pub fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 mutex`, `1,234 mutexes`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// Three significant digits without an exponent: `1234`, `12.3`, `0.0123`.
pub fn short(x: f64) -> String {
    let magnitude = x.abs();
    if magnitude >= 100.0 || magnitude == 0.0 {
        format!("{x:.0}")
    } else if magnitude >= 10.0 {
        format!("{x:.1}")
    } else if magnitude >= 1.0 {
        format!("{x:.2}")
    } else if magnitude >= 0.1 {
        format!("{x:.3}")
    } else {
        format!("{x:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let controls =
            (0..0x20).chain(0x7f..0xa0).chain([0x61c, 0x200e, 0x200f]).chain(0x2028..=0x202e).chain(0x2066..=0x2069);
        for c in controls.filter_map(char::from_u32) {
            let shown = printable(&format!("a{c}b")).into_owned();
            assert_eq!(shown == format!("a{c}b"), c == '\n', "{c:?}");
            assert_eq!(plain(&format!("a{c}b").into()), format!("a\\u{:04x}b", u32::from(c)));
            // JSON stays what it says.
            let json = Value::from(format!("a{c}b"));
            assert_eq!(serde_json::from_str::<Value>(&printable(&json.to_string())).unwrap(), json);
        }
        assert_eq!(markup("<a b='\"'>&\u{1b}"), "&lt;a b=&#39;&quot;&#39;&gt;&amp;\\u001b");
        let fine = "Grüße, κ ≤ 1 😀 «x»";
        assert!(matches!(printable(fine), Cow::Borrowed(text) if text == fine));
    }
}
