//! What the user has chosen: changed by keys, drawn by [`draw`](super::draw()).

use super::columns;
use super::draw::layout;
use super::pages::{self, Page, Target};
use super::panel::{List, Panel};
use super::seen::Seen;
use crate::settings::Setting;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use retrial::P;
use retrial::views::{Sid, TypeId};
use std::sync::Arc;

/// What a key asks for that is more than another picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    Quit,
    /// Ctrl-C: end as by that signal.
    Interrupt,
    /// Ctrl-Z.
    Stop,
    Set(Change),
    Undo(Undo),
}

/// A parameter that is to have the value that a text means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub parameter: P,
    pub of: Option<TypeId>,
    pub text: String,
}

/// A setting as it was before a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undo {
    pub setting: Setting,
    pub of: Option<TypeId>,
}

/// What is typed at the bottom of the screen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Typing {
    /// The filter as it was before.
    Filter(String),
    Value(Change),
    /// The change waits for `y`.
    Confirm(Change),
}

/// A page that is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    pub page: Page,
    pub list: List,
}

/// What was told last, and whether it is an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub text: String,
    pub is_error: bool,
}

#[allow(clippy::struct_excessive_bools)] // each is a switch of its own
pub struct State {
    /// As the user says it.
    pub name: String,
    pub size: (u16, u16),
    /// Whether there is one screen only, for which no key is typed.
    pub once: bool,
    /// What is drawn; nothing before the first look.
    pub seen: Option<Arc<Seen>>,
    /// While the screen is frozen: what was seen since.
    latest: Option<Arc<Seen>>,
    pub frozen: bool,
    /// Whether the instance is not there any more.
    pub gone: bool,
    pub focus: Panel,
    pub lists: [List; 3],
    pub pages: Vec<Open>,
    pub filter: String,
    pub with_events: bool,
    pub typing: Option<Typing>,
    pub message: Option<Message>,
    undo: Vec<Undo>,
}

impl State {
    pub fn new(name: String) -> Self {
        let mut lists = [List::default(); 3];
        let at = |names: Vec<String>, name| names.iter().position(|known| known == name).unwrap_or(0);
        lists[0].sort = at(headers(&columns::mutexes()), columns::MUTEX_SORT);
        lists[1].sort = at(headers(&columns::sessions()), columns::SESSION_SORT);
        Self {
            name,
            size: (80, 24),
            once: false,
            seen: None,
            latest: None,
            frozen: false,
            gone: false,
            focus: Panel::Mutexes,
            lists,
            pages: Vec::new(),
            filter: String::new(),
            with_events: false,
            typing: None,
            message: None,
            undo: Vec::new(),
        }
    }

    /// Takes a look into account. A frozen screen stays as it is.
    pub fn see(&mut self, seen: Arc<Seen>) {
        if self.gone {
            self.gone = false;
            self.tell(format!("{} is there again", self.name), false);
        }
        if self.frozen {
            self.latest = Some(seen);
        } else {
            self.follow(seen);
        }
        self.settle();
    }

    pub fn resize(&mut self, width: u16, height: u16) {
        if self.size != (width, height) {
            self.size = (width, height);
            self.settle();
        }
    }

    pub fn tell(&mut self, text: String, is_error: bool) {
        self.message = Some(Message { text, is_error });
    }

    /// A parameter was set that can be set back.
    pub fn was_set(&mut self, before: Undo, text: String) {
        self.undo.push(before);
        self.tell(format!("{text}; u undoes it"), false);
    }

    /// The session that the kernel is to be asked about.
    pub fn asked(&self) -> Option<Sid> {
        match self.pages.last()?.page {
            Page::Session(sid) => Some(sid),
            _ => None,
        }
    }

    /// Shows a look. The choice stays with what is chosen, wherever its row is now; at the top it stays at
    /// the top.
    fn follow(&mut self, seen: Arc<Seen>) {
        let chosen = if self.front().cursor > 0 { self.chosen() } else { None };
        self.seen = Some(seen);
        if let Some(row) = chosen.and_then(|chosen| self.row_of(chosen)) {
            self.list().cursor = row;
        }
    }

    /// The list or page that keys go to.
    pub fn front(&self) -> List {
        self.pages.last().map_or(self.lists[self.focus as usize], |open| open.list)
    }

    fn list(&mut self) -> &mut List {
        match self.pages.last_mut() {
            Some(open) => &mut open.list,
            None => &mut self.lists[self.focus as usize],
        }
    }

    /// What a key does.
    pub fn key(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Effect::Interrupt),
                KeyCode::Char('z') => Some(Effect::Stop),
                _ => None,
            };
        }
        let effect = match self.typing.take() {
            Some(typing) => self.typed(typing, key.code),
            None => self.command(key.code),
        };
        self.settle();
        effect
    }

    fn typed(&mut self, typing: Typing, code: KeyCode) -> Option<Effect> {
        match (typing, code) {
            (Typing::Filter(before), KeyCode::Esc) => self.filter = before,
            (Typing::Filter(_), KeyCode::Enter) | (Typing::Value(_), KeyCode::Esc) => {}
            (Typing::Filter(before), code) => {
                edit(&mut self.filter, code);
                self.typing = Some(Typing::Filter(before));
            }
            (Typing::Value(change), KeyCode::Enter) => self.check(change),
            (Typing::Value(mut change), code) => {
                edit(&mut change.text, code);
                self.typing = Some(Typing::Value(change));
            }
            (Typing::Confirm(change), KeyCode::Char('y' | 'Y')) => return Some(Effect::Set(change)),
            (Typing::Confirm(_), _) => self.tell("nothing was changed".to_owned(), false),
        }
        None
    }

    /// Asks whether the value is to be set, if it can be.
    fn check(&mut self, change: Change) {
        let Some(seen) = &self.seen else { return };
        match change.parameter.parse(change.text.trim(), pages::scheme(seen, change.of)) {
            Ok(_) => self.typing = Some(Typing::Confirm(change)),
            Err(error) => {
                self.tell(error.to_string(), true);
                self.typing = Some(Typing::Value(change));
            }
        }
    }

    fn command(&mut self, code: KeyCode) -> Option<Effect> {
        let page = isize::try_from(self.height().max(2) - 1).unwrap_or(isize::MAX);
        self.message = None;
        match code {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Char('u') => return self.take_back(),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.list().turn(-page),
            KeyCode::PageDown => self.list().turn(page),
            KeyCode::Home => self.list().step(isize::MIN),
            KeyCode::End => self.list().step(isize::MAX),
            KeyCode::Enter => self.open(),
            KeyCode::Esc | KeyCode::Backspace => self.back(code),
            KeyCode::Char('1') => self.show(Panel::Mutexes),
            KeyCode::Char('2') => self.show(Panel::Sessions),
            KeyCode::Char('3') => self.show(Panel::Waits),
            KeyCode::Tab => self.show(Panel::ALL[(self.focus as usize + 1) % 3]),
            KeyCode::BackTab => self.show(Panel::ALL[(self.focus as usize + 2) % 3]),
            KeyCode::Char('<') | KeyCode::Left if self.pages.is_empty() => self.sort(-1),
            KeyCode::Char('>') | KeyCode::Right if self.pages.is_empty() => self.sort(1),
            KeyCode::Char('r') if self.pages.is_empty() => self.lists[self.focus as usize].ascending ^= true,
            KeyCode::Char('/') => {
                self.pages.clear();
                self.typing = Some(Typing::Filter(self.filter.clone()));
            }
            KeyCode::Char('e') => self.with_events ^= true,
            KeyCode::Char('f' | ' ') => self.freeze(),
            KeyCode::Char('p') => self.push(Page::Parameters),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.push(Page::Help),
            _ => {}
        }
        None
    }

    /// Moves the choice by a row; a text in which nothing can be chosen is scrolled.
    fn step(&mut self, by: isize) {
        match self.pages.last_mut() {
            Some(Open { page: Page::Help, list }) => {
                list.cursor = list.offset;
                list.turn(by);
            }
            Some(Open { page, list }) if let Some(seen) = &self.seen => {
                list.cursor = pages::next(&page.lines(seen, self.size.0).1, list.cursor, by);
            }
            _ => self.list().step(by),
        }
    }

    fn take_back(&mut self) -> Option<Effect> {
        let last = self.undo.pop();
        if last.is_none() {
            self.tell("nothing to undo: no parameter was changed from here".to_owned(), false);
        }
        last.map(Effect::Undo)
    }

    fn back(&mut self, code: KeyCode) {
        if self.pages.pop().is_none() && code == KeyCode::Esc {
            self.filter.clear();
        }
    }

    fn show(&mut self, panel: Panel) {
        self.pages.clear();
        self.focus = panel;
    }

    fn push(&mut self, page: Page) {
        if self.pages.last().is_none_or(|open| open.page != page) {
            self.pages.push(Open { page, list: List::default() });
        }
    }

    fn freeze(&mut self) {
        self.frozen ^= true;
        if let Some(latest) = self.latest.take() {
            self.follow(latest);
        }
    }

    fn sort(&mut self, by: isize) {
        let count = match self.focus {
            Panel::Mutexes => columns::mutexes().len(),
            Panel::Sessions => columns::sessions().len(),
            // The tree has an order of its own.
            Panel::Waits => return,
        };
        let list = &mut self.lists[self.focus as usize];
        list.sort = (list.sort + count).saturating_add_signed(by) % count;
    }

    fn open(&mut self) {
        match self.chosen() {
            Some(Target::Mutex(id)) => self.push(Page::Mutex(id)),
            Some(Target::Session(sid)) => self.push(Page::Session(sid)),
            Some(Target::Parameter(parameter, of)) => {
                self.typing = Some(Typing::Value(Change { parameter, of, text: String::new() }));
            }
            None => {}
        }
    }

    /// Lines of what is in front.
    fn height(&self) -> usize {
        let layout = layout(self);
        let area = if self.pages.is_empty() { layout.panel(self.focus) } else { Some(layout.body) };
        usize::from(area.map_or(1, |area| area.height.saturating_sub(1)).max(1))
    }

    /// Has what is chosen be there, and on the screen.
    fn settle(&mut self) {
        let Some(seen) = self.seen.clone() else { return };
        let layout = layout(self);
        let height = |height: u16| usize::from(height.saturating_sub(1).max(1));
        let body = height(layout.body.height);
        if let Some(open) = self.pages.last_mut() {
            let (_, lines) = open.page.lines(&seen, self.size.0);
            open.list.settle(lines.len(), body);
        }
        for panel in Panel::ALL {
            let Some(area) = layout.panel(panel) else { continue };
            let count = match panel {
                Panel::Mutexes => self.mutexes(&seen, 0).1,
                Panel::Sessions => self.sessions(&seen, 0).1,
                Panel::Waits => self.waits(&seen).len(),
            };
            self.lists[panel as usize].settle(count, height(area.height));
        }
    }
}

fn headers<R>(columns: &[columns::Shown<'_, R>]) -> Vec<String> {
    columns.iter().map(|shown| shown.column.header().into_owned()).collect()
}

fn edit(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Char(c) => text.push(c),
        KeyCode::Backspace => {
            text.pop();
        }
        _ => {}
    }
}
