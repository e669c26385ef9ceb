//! The screen: what the user has chosen of what was seen, into a buffer.

use super::columns::{self, Shown};
use super::grid::{cut, grid, width, wrap};
use super::head::{self, Part};
use super::pages::{self, Line, Page, Tone};
use super::panel::Panel;
use super::seen::Seen;
use super::state::{State, Typing};
use crate::output::{counted, grouped, plain};
use crate::recording;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use retrial::P;
use retrial::views::TypeId;
use std::sync::Arc;

/// The smallest screen that something is drawn on.
const LEAST: (u16, u16) = (60, 10);
/// Lines above the lists, and from how many lines for the lists on all three are shown.
const HEAD: u16 = 5;
const ALL: u16 = 28;
/// Rows of each list on the one screen of `--once`.
const ONCE: usize = 20;

/// What a list says that the filter has emptied.
const NONE_PASSES: &str = "None passes the filter; Esc takes it back.";

/// Which part of the screen is what.
pub struct Layout {
    pub body: Rect,
    panels: [Option<Rect>; 3],
}

impl Layout {
    pub const fn panel(&self, panel: Panel) -> Option<Rect> {
        self.panels[panel as usize]
    }
}

pub fn layout(state: &State) -> Layout {
    let (width, height) = state.size;
    let body = Rect::new(0, HEAD, width, height.saturating_sub(HEAD + 1));
    if state.once {
        return Layout { body, panels: stacked(state) };
    }
    let mut panels = [None; 3];
    if body.height < ALL {
        panels[state.focus as usize] = Some(body);
        return Layout { body, panels };
    }
    // Half for the mutexes; where there is room beside each other, sessions and waits share the other one.
    let top = body.height / 2;
    panels[0] = Some(Rect { height: top, ..body });
    let below = Rect { y: body.y + top, height: body.height - top, ..body };
    if width >= 180 {
        let left = width / 2;
        panels[1] = Some(Rect { width: left - 1, ..below });
        panels[2] = Some(Rect { x: left + 1, width: width - left - 1, ..below });
    } else {
        let half = below.height / 2;
        panels[1] = Some(Rect { height: half, ..below });
        panels[2] = Some(Rect { y: below.y + half, height: below.height - half, ..below });
    }
    Layout { body, panels }
}

/// One below the other, each as high as it needs to be.
fn stacked(state: &State) -> [Option<Rect>; 3] {
    let Some(seen) = &state.seen else { return [None; 3] };
    let counts = [state.mutexes(seen, 0).1, state.sessions(seen, 0).1, state.waits(seen).len()];
    let mut y = HEAD;
    counts.map(|count| {
        let area = Rect::new(0, y, state.size.0, count.min(ONCE) as u16 + 1);
        y += area.height + 1;
        Some(area)
    })
}

/// One screen as text.
pub fn once(seen: Arc<Seen>, name: String, width: u16) -> String {
    let mut state = State::new(name);
    state.once = true;
    state.size = (width.max(LEAST.0), 0);
    state.see(seen);
    let height = stacked(&state).into_iter().flatten().map(|area| area.y + area.height).max().unwrap_or(0);
    state.size.1 = height + 1;
    let mut buffer = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
    draw(&state, false, &mut buffer);
    text(&buffer)
}

/// Draws the screen. Without `colour` it is told by bold and reversed letters alone.
pub fn draw(state: &State, colour: bool, buffer: &mut Buffer) {
    let area = buffer.area;
    let mut canvas = Canvas { buffer, colour };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("retrial top needs {} x {}; here are {} x {}", LEAST.0, LEAST.1, area.width, area.height);
        return canvas.put(0, 0, area.width, &text, Tone::Warn);
    }
    let Some(seen) = &state.seen else {
        canvas.put(0, 0, area.width, &format!("retrial top {}: the first look …", state.name), Tone::Head);
        return;
    };
    for (parts, y) in head::lines(state, seen).iter().zip(0..) {
        canvas.parts(y, area.width, parts);
    }
    let layout = layout(state);
    if let Some(open) = state.pages.last() {
        let (title, lines) = open.page.lines(seen, area.width);
        canvas.parts(HEAD - 1, area.width, &[(format!("‹ {title}"), Tone::Head)]);
        let cursor = Some(open.list.cursor).filter(|_| open.page != Page::Help);
        canvas.lines(layout.body, &lines, open.list.offset, cursor);
    } else {
        let mut hidden = 0;
        for panel in Panel::ALL {
            let Some(area) = layout.panel(panel) else { continue };
            let columns = canvas.panel(state, seen, panel, area);
            if panel == state.focus {
                hidden = columns;
            }
        }
        canvas.tabs(state, seen, hidden);
    }
    if !state.once {
        canvas.foot(state, seen, area);
    }
}

/// What is on a buffer, line by line.
pub fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let line = |y| {
        let cells = (0..area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    let lines: Vec<String> = (0..area.height).map(line).collect();
    lines.join("\n").trim_end().to_owned()
}

struct Canvas<'b> {
    buffer: &'b mut Buffer,
    colour: bool,
}

impl Canvas<'_> {
    fn style(&self, tone: Tone) -> Style {
        let style = Style::new();
        match (tone, self.colour) {
            (Tone::Plain, _) => style,
            (Tone::Dim, _) => style.add_modifier(Modifier::DIM),
            (Tone::Warn, true) => style.fg(Color::Yellow),
            (Tone::Bad, true) => style.fg(Color::Red).add_modifier(Modifier::BOLD),
            (Tone::Head, _) | (Tone::Warn | Tone::Bad, false) => style.add_modifier(Modifier::BOLD),
        }
    }

    fn put(&mut self, x: u16, y: u16, room: u16, text: &str, tone: Tone) {
        let text = cut(&plain(&text.into()), room);
        let style = self.style(tone);
        self.buffer.set_string(x, y, text, style);
    }

    /// Parts with two spaces between them, as many as there is room for.
    fn parts(&mut self, y: u16, room: u16, parts: &[Part]) {
        let mut x = 0;
        let mut parts = parts.iter().filter(|(text, _)| !text.is_empty()).peekable();
        while let Some((text, tone)) = parts.next() {
            // The sign that something is left out needs room too.
            let sign = if parts.peek().is_some() { 3 } else { 0 };
            if x > 0 && x + width(text) + sign > room {
                return self.put(x, y, room - x, "…", Tone::Dim);
            }
            self.put(x, y, room - x, text, *tone);
            x = (x + width(text) + 2).min(room);
        }
    }

    fn tabs(&mut self, state: &State, seen: &Seen, hidden: usize) {
        let mut parts: Vec<Part> = Vec::new();
        for (panel, key) in Panel::ALL.into_iter().zip(1..) {
            let count = match panel {
                Panel::Mutexes => state.mutexes(seen, 0).1,
                Panel::Sessions => state.sessions(seen, 0).1,
                Panel::Waits => seen.tree.len(),
            };
            let count = grouped(count as u64);
            let (mark, tone) = if panel == state.focus { ("▸", Tone::Head) } else { (" ", Tone::Dim) };
            parts.push(if state.once {
                (format!("{count} {}", panel.name().to_lowercase()), Tone::Head)
            } else {
                (format!("{mark}{key} {} {count}", panel.name()), tone)
            });
        }
        if !state.filter.is_empty() {
            parts.push((format!("filter: {}", state.filter), Tone::Warn));
        }
        if hidden > 0 {
            let columns = if hidden == 1 { "column" } else { "columns" };
            parts.push((format!("+{hidden} {columns}"), Tone::Dim));
        }
        self.parts(HEAD - 1, self.buffer.area.width, &parts);
    }

    /// Draws a list; how many of its columns there was no room for.
    fn panel(&mut self, state: &State, seen: &Seen, panel: Panel, area: Rect) -> usize {
        let list = state.lists[panel as usize];
        let rows = usize::from(area.height.saturating_sub(1));
        let cursor = (panel == state.focus && !state.once).then_some(list.cursor);
        let is_filtered = !state.filter.is_empty();
        match panel {
            Panel::Mutexes => {
                let (order, _) = state.mutexes(seen, list.offset + rows);
                let rows: Vec<_> = order.iter().skip(list.offset).map(|at| seen.mutex_row(*at)).collect();
                let tone = |row: &super::seen::MutexRow<'_>| match () {
                    () if row.mutex.is_poisoned => Tone::Bad,
                    () if row.waiters > 0 => Tone::Warn,
                    () => Tone::Plain,
                };
                self.rows(area, &columns::mutexes(), &rows, list, (cursor, is_filtered), tone)
            }
            Panel::Sessions => {
                let (order, _) = state.sessions(seen, list.offset + rows);
                let rows: Vec<_> = order.iter().skip(list.offset).map(|at| seen.session_row(*at)).collect();
                let tone = |row: &super::seen::SessionRow<'_>| match row.session.state {
                    recording::State::Running => Tone::Plain,
                    recording::State::Waiting => Tone::Warn,
                    recording::State::Deadlocked | recording::State::Dead => Tone::Bad,
                };
                self.rows(area, &columns::sessions(), &rows, list, (cursor, is_filtered), tone)
            }
            Panel::Waits => {
                let lines = state.waits(seen);
                let nothing = if seen.tree.len() > 0 { NONE_PASSES } else { "Nobody waits for a mutex." };
                let says = if lines.is_empty() { nothing } else { "Who waits for whom: holders at the top" };
                self.put(area.x, area.y, area.width, says, Tone::Dim);
                let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
                self.scrolled(below, &lines, list.offset, cursor);
                0
            }
        }
    }

    fn rows<R>(
        &mut self,
        area: Rect,
        columns: &[Shown<'_, R>],
        rows: &[R],
        list: super::panel::List,
        (cursor, is_filtered): (Option<usize>, bool),
        tone: impl Fn(&R) -> Tone,
    ) -> usize {
        let grid = grid(columns, rows, Some(list.sort), area.width);
        for head in &grid.heads {
            let is_sort = head.column == list.sort;
            let mark = if list.ascending { "▲" } else { "▼" };
            let style = self.style(if is_sort { Tone::Head } else { Tone::Dim }).add_modifier(Modifier::UNDERLINED);
            self.buffer.set_string(area.x + head.x, area.y, &head.text, style);
            if is_sort {
                // Before a number's heading, behind a text's.
                let x =
                    if columns[head.column].is_number { head.x.saturating_sub(1) } else { head.x + width(&head.text) };
                self.put(area.x + x, area.y, 1, mark, Tone::Head);
            }
        }
        if rows.is_empty() && is_filtered {
            self.put(area.x, area.y + 1, area.width, NONE_PASSES, Tone::Dim);
        }
        for (i, (line, row)) in grid.lines.iter().zip(rows).enumerate() {
            let y = area.y + 1 + i as u16;
            self.put(area.x, y, area.width, line, tone(row));
            self.choose(area, y, cursor == Some(list.offset + i));
        }
        grid.hidden
    }

    fn choose(&mut self, area: Rect, y: u16, is_chosen: bool) {
        if is_chosen {
            let style = Style::new().add_modifier(Modifier::REVERSED);
            self.buffer.set_style(Rect { y, height: 1, ..area }, style);
        }
    }

    /// A page: below the heading, which has a line of its own above.
    fn lines(&mut self, area: Rect, lines: &[Line], offset: usize, cursor: Option<usize>) {
        let below = Rect { height: area.height.saturating_sub(1), ..area };
        self.scrolled(below, lines, offset, cursor);
        let seen = offset + usize::from(below.height);
        if lines.len() > seen {
            let more = format!("… {}", counted((lines.len() - seen) as u64, "more line", "more lines"));
            self.put(area.x, area.y + below.height, area.width, &more, Tone::Dim);
        }
    }

    fn scrolled(&mut self, area: Rect, lines: &[Line], offset: usize, cursor: Option<usize>) {
        for (i, line) in lines.iter().enumerate().skip(offset).take(usize::from(area.height)) {
            let y = area.y + (i - offset) as u16;
            self.put(area.x, y, area.width, &line.text, line.tone);
            self.choose(area, y, cursor.is_some_and(|at| at == i || lines[at].is_of(line)));
        }
    }

    /// A text over the lines above the last one, as many as it needs.
    fn above(&mut self, area: Rect, text: &str) {
        let lines = wrap(text, area.width, "");
        for (line, up) in lines.iter().rev().zip(2..area.height) {
            self.put(0, area.height - up, area.width, &format!("{line:0$}", usize::from(area.width)), Tone::Bad);
        }
    }

    fn foot(&mut self, state: &State, seen: &Seen, area: Rect) {
        let (y, room) = (area.height - 1, area.width);
        let (text, tone) = match (&state.typing, &state.message) {
            (Some(Typing::Filter(_)), _) => (format!("Filter: {}_", state.filter), Tone::Head),
            (Some(Typing::Value(change)), message) => {
                let wrong = message.as_ref().filter(|message| message.is_error);
                let p = change.parameter;
                let now = with_unit(seen, p, change.of, p.format(seen.to().param(p, change.of)));
                let ask = format!("{}{}, now {now}: {}_", p.row().name, of(seen, change.of), change.text);
                if let Some(wrong) = wrong {
                    self.above(area, &wrong.text);
                }
                (ask, if wrong.is_some() { Tone::Bad } else { Tone::Head })
            }
            (Some(Typing::Confirm(change)), _) => {
                let p = change.parameter;
                let now = p.format(seen.to().param(p, change.of));
                let what = format!("Set {}{} from {now} to {}?", p.row().name, of(seen, change.of), change.text);
                (format!("{what} y: yes, any other key: no"), Tone::Warn)
            }
            (None, Some(message)) => (message.text.clone(), if message.is_error { Tone::Bad } else { Tone::Head }),
            (None, None) => {
                let keys: &[&str] = if state.pages.is_empty() {
                    &["? help", "q quit", "Enter open", "/ filter", "< > sort", "r reverse", "f freeze", "p parameters"]
                } else {
                    &["Esc back", "q quit", "↑↓ choose", "Enter open or change", "f freeze", "u undo", "? help"]
                };
                let parts: Vec<Part> = keys.iter().map(|key| ((*key).to_owned(), Tone::Dim)).collect();
                return self.parts(y, room, &parts);
            }
        };
        self.put(0, y, room, &text, tone);
    }
}

fn of(seen: &Seen, of: Option<TypeId>) -> String {
    of.map_or_else(|| " of the instance".to_owned(), |of| format!(" of type {}", seen.to().type_name(of)))
}

/// A value of a parameter with its unit. A long one says in which schemes it has which, and is told on the
/// page.
fn with_unit(seen: &Seen, p: P, of: Option<TypeId>, value: String) -> String {
    match p.unit(pages::scheme(seen, of)) {
        "" => value,
        unit if unit.contains(' ') => value,
        unit => format!("{value} {unit}"),
    }
}
