//! Rows under columns, as many as the width has room for.

use super::columns::Shown;
use crate::output::cell;
use ratatui::text::Span;

/// Columns between two columns.
const GAP: u16 = 2;
/// The first column, the name, has so much of the room before others get any: a fifth.
const NAME_PART: u16 = 5;

/// A heading and where it stands.
pub struct Head {
    /// Position of its column in the whole list.
    pub column: usize,
    pub x: u16,
    pub text: String,
}

/// What was laid out.
pub struct Grid {
    /// Columns that there was no room for.
    pub hidden: usize,
    pub heads: Vec<Head>,
    pub lines: Vec<String>,
}

struct Laid {
    column: usize,
    width: u16,
    /// Width that its longest cell needs, up to the most that it gets while others need room, and at all.
    full: u16,
    whole: u16,
    title: String,
    cells: Vec<String>,
}

/// Width on a terminal.
pub fn width(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// A text that is no wider than this, with `…` where something was cut.
pub fn cut(text: &str, most: u16) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let (mut short, mut used) = (String::new(), 0);
    for c in text.chars() {
        let next = used + width(c.encode_utf8(&mut [0; 4]));
        if next >= most {
            break;
        }
        short.push(c);
        used = next;
    }
    if most > 0 { short + "…" } else { short }
}

/// A text in lines that are no wider than this, broken at spaces; all but the first begin with `indent`.
pub fn wrap(text: &str, room: u16, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut is_empty = true;
    for word in text.split_inclusive(' ') {
        if !is_empty && width(&line) + width(word.trim_end()) > room {
            lines.push(std::mem::replace(&mut line, indent.to_owned()).trim_end().to_owned());
            is_empty = true;
        }
        line += word;
        is_empty &= word.trim().is_empty();
    }
    lines.push(line.trim_end().to_owned());
    lines
}

/// Lays out these rows. `kept`: a column that is shown in any case, as the rows are sorted by it.
pub fn grid<R>(columns: &[Shown<'_, R>], rows: &[R], kept: Option<usize>, room: u16) -> Grid {
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|at| (*at != 0 && Some(*at) != kept, columns[*at].rank, *at));
    let mut laid: Vec<Laid> = Vec::new();
    let (mut left, mut hidden) = (room, 0);
    for at in by_rank {
        let shown = &columns[at];
        let cells: Vec<String> = rows.iter().map(|row| cell(&shown.column.value(row))).collect();
        let title = shown.column.title().into_owned();
        // What is empty in every row says nothing.
        if Some(at) != kept && at != 0 && !shown.is_live && !rows.is_empty() && cells.iter().all(String::is_empty) {
            continue;
        }
        let longest = cells.iter().map(|cell| width(cell)).max().unwrap_or(0);
        let least = shown.least.max(width(&title) + 1);
        let (full, whole) = (longest.min(shown.most).max(least), longest.max(least));
        let least = match at {
            0 => shown.least.max(room / NAME_PART),
            _ if shown.is_number => full,
            _ => least,
        };
        let least = least.min(full);
        let gap = if laid.is_empty() { 0 } else { GAP };
        // Once one has no room, those of a higher rank have none either.
        if hidden > 0 || least + gap > left {
            hidden += 1;
            continue;
        }
        left -= least + gap;
        laid.push(Laid { column: at, width: least, full, whole, title, cells });
    }
    for wanted in [|each: &Laid| each.full, |each: &Laid| each.whole] {
        for each in &mut laid {
            let more = (wanted(each) - each.width).min(left);
            each.width += more;
            left -= more;
        }
    }
    laid.sort_by_key(|laid| laid.column);
    arrange(columns, &laid, rows.len(), hidden)
}

fn arrange<R>(columns: &[Shown<'_, R>], laid: &[Laid], count: usize, hidden: usize) -> Grid {
    let (mut heads, mut x) = (Vec::new(), 0);
    for each in laid {
        let text = cut(&each.title, each.width);
        let to_right = if columns[each.column].is_number { each.width.saturating_sub(width(&text)) } else { 0 };
        heads.push(Head { column: each.column, x: x + to_right, text });
        x += each.width + GAP;
    }
    let line = |row: usize| {
        let mut line = String::new();
        for each in laid {
            let text = cut(&each.cells[row], each.width);
            let pad = " ".repeat(usize::from(each.width.saturating_sub(width(&text))));
            let gap = if line.is_empty() { "" } else { "  " };
            line += gap;
            line += &if columns[each.column].is_number { pad + &text } else { text + &pad };
        }
        line
    };
    Grid { hidden, heads, lines: (0..count).map(line).collect() }
}
