//! The part of a recording that a command is about.

use crate::duration;
use crate::output::quoted;
use crate::recording::Span;
use crate::recording::store::{Recorded, Recording};
use miette::{Report as Failure, miette};
use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

/// Shortest time that a live instance is watched for.
pub const TIME_MIN: Duration = Duration::from_millis(1);

/// From when to when; for commands with a `file`.
#[derive(clap::Args)]
pub struct PeriodArgs {
    /// Of a recording: from the first snapshot at or after this moment in UTC, or so long before the last one
    #[arg(long, value_name = "TIME", requires = "file")]
    pub from: Option<String>,
    /// Of a recording: to the last snapshot at or before this moment, all of the minute or second that is named
    /// in it
    #[arg(long, value_name = "TIME", requires = "file")]
    pub to: Option<String>,
}

/// A part of a recording: its first and its last snapshot, and which instance it is of where several have the
/// name.
pub struct Part {
    pub from: Recorded,
    pub to: Recorded,
    pub span: Span,
    pub note: String,
}

impl PeriodArgs {
    /// This part of what was recorded of the instance of this name, or of the only one. `command` is the
    /// subcommand that errors suggest.
    pub fn of(&self, recording: &Recording, file: &Path, name: Option<&str>, command: &str) -> Result<Part, Failure> {
        let instances = of_instance(recording, file, name, command)?;
        let latest = &instances[0];
        // A moment may be one of an earlier instance of the name.
        let ends_before = |of: &[Recorded]| {
            let to = self.to.as_deref().filter(|text| duration::parse(text).is_err())?;
            Some(!Bound::parse("--to", to, 0).ok()?.is_at_or_after(of[0].at_ns))
        };
        let of = instances.iter().find(|of| ends_before(of) != Some(true)).unwrap_or(latest);
        let (first, last) = (of[0], of[of.len() - 1]);
        let from = self.from.as_deref().map(|text| Bound::parse("--from", text, last.at_ns)).transpose()?;
        let to = self.to.as_deref().map(|text| Bound::parse("--to", text, last.at_ns)).transpose()?;
        if let (Some(begin), Some(end)) = (&from, &to)
            && begin.is_after(end)
        {
            let [from, to] = [&self.from, &self.to].map(|text| text.as_deref().unwrap_or_default());
            return Err(miette!(
                code = "retrial::recording::period",
                help = format!("--from {} --to {}", quoted(to), quoted(from)),
                "--from {from} is after --to {to}, expected the earlier moment as --from"
            ));
        }
        let nothing = || {
            miette!(
                code = "retrial::recording::period",
                help = format!("retrial {command} {}", quoted(&file.to_string_lossy())),
                "no two snapshots in this period, expected one between {} and {}",
                crate::clock::time(first.at_ns),
                crate::clock::time(last.at_ns)
            )
        };
        let end =
            of.iter().rev().find(|at| to.as_ref().is_none_or(|to| to.is_at_or_after(at.at_ns))).ok_or_else(nothing)?;
        let begin =
            of.iter().find(|at| from.as_ref().is_none_or(|from| from.is_at_or_before(at.at_ns))).ok_or_else(nothing)?;
        // Of a recording with one snapshot, since the instance was created.
        let is_one = of.len() == 1 && from.is_none() && to.is_none();
        if begin.id >= end.id && !is_one {
            return Err(nothing());
        }
        let begin_at = (!is_one).then(|| recording.snapshot(begin.id)).transpose()?;
        let span = Span { from: begin_at, to: recording.snapshot(end.id)? };
        let note = match instances.len() {
            1 => String::new(),
            count if of[0] == latest[0] => {
                format!(" (the latest of {count} instances of this name; --to TIME for one before)")
            }
            count => format!(" (one of {count} instances of this name, not the latest)"),
        };
        Ok(Part { from: *begin, to: *end, span, note })
    }
}

/// The snapshots of each instance of this name, or of the only name that there is: the latest instance first,
/// and one at least.
fn of_instance(
    recording: &Recording,
    file: &Path,
    name: Option<&str>,
    command: &str,
) -> Result<Vec<Vec<Recorded>>, Failure> {
    let all = recording.instances()?;
    let mut names: Vec<&str> = all.iter().map(|(_, name)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let shown = quoted(&file.to_string_lossy()).into_owned();
    let name = match (name, names.as_slice()) {
        (Some(name), names) if names.contains(&name) => name,
        (None, [name]) => name,
        (_, []) => {
            let help = format!("retrial record {shown}");
            return Err(miette!(
                code = "retrial::recording::empty",
                help = help,
                "nothing has been recorded in {shown}"
            ));
        }
        (wanted, names) => {
            return Err(miette!(
                code = "retrial::recording::which",
                help = format!("retrial {command} {shown} -i {}", quoted(names[0])),
                "{}, expected one of: {}",
                wanted.map_or("several instances in it".to_owned(), |name| format!("no instance `{name}` in it")),
                names.join(", ")
            ));
        }
    };
    let snapshots = recording.snapshots()?;
    let of = |id: i64| snapshots.iter().filter(|recorded| recorded.instance == id).copied().collect::<Vec<_>>();
    let mut found: Vec<_> = all.iter().rev().filter(|(_, of)| of == name).map(|(id, _)| of(*id)).collect();
    found.retain(|of| !of.is_empty());
    if found.is_empty() {
        let code = "retrial::recording::empty";
        return Err(miette!(code = code, help = "retrial record", "no snapshot of {name} is left in {shown}"));
    }
    Ok(found)
}

/// A moment as people give it.
enum Bound {
    /// The beginning of a time as it is shown: `2026-11-22T14:10`.
    Text(String),
    At(u64),
}

impl Bound {
    fn parse(option: &str, text: &str, last_ns: u64) -> Result<Self, Failure> {
        if let Ok(ago) = duration::parse(text) {
            return Ok(Self::At(last_ns.saturating_sub(duration::nanos(ago))));
        }
        let shape = "0000-00-00T00:00:00.000Z";
        // Times are printed with it.
        let second = "0000-00-00T00:00:00Z";
        let text = if text.len() == second.len() { text.strip_suffix('Z').unwrap_or(text) } else { text };
        let fits = text.len() >= 10
            && text.len() <= shape.len()
            && text
                .chars()
                .zip(shape.chars())
                .all(|(c, like)| if like == '0' { c.is_ascii_digit() } else { c == like });
        if !fits {
            return Err(miette!(
                code = "retrial::recording::time",
                help = format!("{option} {}", crate::clock::time(last_ns)),
                "{option} `{text}`, expected a moment in UTC as {}, or a time before the last snapshot as 10min",
                &crate::clock::time(last_ns)[..16]
            ));
        }
        Ok(Self::Text(text.to_owned()))
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => text.into(),
            Self::At(at_ns) => crate::clock::time(*at_ns).into(),
        }
    }

    /// Whether all of a minute or second that it names is after another one.
    fn is_after(&self, other: &Self) -> bool {
        let (text, other) = (self.text(), other.text());
        text > other && !text.starts_with(&*other)
    }

    /// Whether this moment is not after another one.
    fn is_at_or_before(&self, at_ns: u64) -> bool {
        match self {
            Self::At(bound_ns) => *bound_ns <= at_ns,
            Self::Text(text) => *text <= crate::clock::time(at_ns),
        }
    }

    /// Whether it is not before another one: all of the minute or second that it names is it.
    fn is_at_or_after(&self, at_ns: u64) -> bool {
        match self {
            Self::At(bound_ns) => *bound_ns >= at_ns,
            Self::Text(text) => text[..] >= crate::clock::time(at_ns)[..text.len()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_or_an_age() {
        let noon_ns = 1_709_208_000_000_000_000; // 2024-02-29T12:00:00Z
        let minute = Bound::parse("--to", "2024-02-29T12:00", 0).unwrap();
        assert!(minute.is_at_or_before(noon_ns) && !minute.is_at_or_before(noon_ns - 1_000_000));
        assert!(minute.is_at_or_after(noon_ns + 59_000_000_000) && !minute.is_at_or_after(noon_ns + 60_000_000_000));
        let ago = Bound::parse("--from", "1min", noon_ns).unwrap();
        assert!(ago.is_at_or_before(noon_ns - 60_000_000_000) && !ago.is_at_or_before(noon_ns - 60_000_000_001));
        assert!(!ago.is_after(&minute) && Bound::parse("--from", "1s", noon_ns).unwrap().is_after(&ago));
        let second = Bound::parse("--to", "2024-02-29T12:00:00Z", 0).unwrap();
        assert!(second.is_at_or_before(noon_ns) && second.is_at_or_after(noon_ns + 999_000_000));
        assert!(!second.is_at_or_after(noon_ns + 1_000_000_000));
        let hour = Bound::parse("--to", "2024-02-29T12", 0).unwrap();
        assert!(!minute.is_after(&hour) && !hour.is_after(&minute), "a minute of that hour");
        for wrong in ["yesterday", "2024-02-29 12:00", "12:00", "2024-02-29T12:00:00.000ZZ"] {
            assert!(Bound::parse("--from", wrong, noon_ns).is_err(), "{wrong}");
        }
    }
}
