//! The terminal: keys in, screens out, and given back as it was, however this program ends.

use super::draw::draw;
use super::live::{Told, Wish};
use super::state::{Change, Effect, State, Undo};
use crate::instances::Which;
use crate::settings;
use crate::signals;
use miette::{Report, miette};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::crossterm::{cursor, execute};
use retrial::views::Sid;
use std::io::{self, IsTerminal, Stdout};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// How often a signal and a new look are looked for.
const PAUSE: Duration = Duration::from_millis(50);
/// The first look is waited for this long before the screen says that it is under way.
const FIRST: Duration = Duration::from_millis(120);

/// A terminal that is given back at the end.
pub struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    pub fn new() -> io::Result<Self> {
        take()?;
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        Ok(Self(Terminal::new(CrosstermBackend::new(io::stdout()))?))
    }

    /// After somebody else has had the terminal.
    fn again(&mut self) -> io::Result<()> {
        // What is known of its mode may not be so any more.
        give_back();
        take()?;
        self.0.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
}

/// What fails here has nobody to be told.
fn give_back() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

fn failed(error: io::Error) -> Report {
    miette!(
        code = "retrial::top::terminal",
        help = "retrial top --once",
        "cannot use the terminal: {error}; expected one that keys can be read from"
    )
}

/// Columns of the terminal that standard output is, if it is one.
pub fn width() -> Option<u16> {
    let (width, _) = io::stdout().is_terminal().then(size)?.ok()?;
    Some(width)
}

/// Draws what is told and does what keys say, until the user or a signal ends it.
pub fn interact(state: &mut State, which: &Which, told: &Receiver<Told>, wish: &Wish) -> Result<(), Report> {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut screen = Screen::new().map_err(failed)?;
    signals::catch_stops();
    if let Ok(first) = told.recv_timeout(FIRST) {
        take_in(state, first);
    }
    let mut changed = true;
    while signals::received().is_none() {
        if signals::stop_asked() {
            give_back();
            signals::stop();
            signals::send(libc::SIGCONT);
        }
        if signals::continued() {
            screen.again().map_err(failed)?;
            changed = true;
        }
        loop {
            match told.try_recv() {
                Ok(news) => take_in(state, news),
                Err(TryRecvError::Empty) => break,
                // The thread that looks has panicked, and its panic has given the terminal back.
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            changed = true;
        }
        if changed {
            let drawn = screen.0.draw(|frame| {
                // The terminal may have another size before its event is read.
                let area = frame.area();
                state.resize(area.width, area.height);
                draw(state, colour, frame.buffer_mut());
            });
            drawn.map_err(failed)?;
            changed = false;
        }
        // Of a terminal that has gone, crossterm would read the end for ever.
        if signals::hung_up(PAUSE) {
            signals::send(libc::SIGHUP);
            break;
        }
        if !event::poll(Duration::ZERO).map_err(failed)? {
            continue;
        }
        changed = true;
        match event::read().map_err(failed)? {
            Event::Key(key) if key.kind != KeyEventKind::Release => match state.key(key) {
                Some(Effect::Quit) => break,
                Some(Effect::Interrupt) => signals::send(libc::SIGINT),
                Some(Effect::Stop) => signals::send(libc::SIGTSTP),
                Some(Effect::Set(change)) => set(state, which, &change),
                Some(Effect::Undo(undo)) => take_back(state, which, undo),
                None => {}
            },
            _ => {}
        }
        wish.session.store(state.asked().map_or(0, Sid::number), Ordering::Relaxed);
    }
    Ok(())
}

fn take_in(state: &mut State, news: Told) {
    match news {
        Told::Seen(seen) => state.see(seen),
        Told::Gone => state.gone = true,
    }
}

/// Sets a parameter, as `retrial set` does.
fn set(state: &mut State, which: &Which, change: &Change) {
    let (p, of) = (change.parameter, change.of);
    let done = || -> Result<(Undo, String), Report> {
        let instance = which.attach()?;
        let tables = instance.tables();
        let settings = settings::checked(tables, of, vec![(p, Some(change.text.trim()))])?;
        let (before, scheme) = (tables.param_set(p, of), settings::scheme(tables, of));
        let old = tables.params(of).get(p);
        settings::apply(&instance, of, &settings);
        let mut told = format!("{}: {} -> {}", p.row().name, p.format(old), p.format(tables.params(of).get(p)));
        for note in settings::notes(tables, of, &settings, scheme) {
            told = format!("{told}; {note}");
        }
        Ok((Undo { setting: (p, before), of }, told))
    };
    match done() {
        Ok((undo, told)) => state.was_set(undo, told),
        Err(error) => state.tell(error.to_string(), true),
    }
}

fn take_back(state: &mut State, which: &Which, undo: Undo) {
    let (p, of) = (undo.setting.0, undo.of);
    match which.attach() {
        Ok(instance) => {
            let old = instance.params(of).get(p);
            settings::apply(&instance, of, &[undo.setting]);
            let now = instance.params(of).get(p);
            state.tell(format!("undone: {}: {} -> {}", p.row().name, p.format(old), p.format(now)), false);
        }
        Err(error) => state.tell(error.to_string(), true),
    }
}
