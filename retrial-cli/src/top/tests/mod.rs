//! Keys in, a screen out: no terminal, no instance.

mod panic;
pub mod scene;

use super::columns;
use super::draw::{draw, text};
use super::seen::Seen;
use super::state::{Change, Effect, State, Undo};
use crate::golden::golden;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use retrial::P;
use retrial::views::{Sid, TypeId};
use scene::{deadlocked, seen};
use std::sync::Arc;

fn state(seen: Seen, (width, height): (u16, u16)) -> State {
    let mut state = State::new("bank".to_owned());
    state.resize(width, height);
    state.see(Arc::new(seen));
    state
}

fn drawn(state: &State, colour: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(state.size.0, state.size.1)).unwrap();
    terminal.draw(|frame| draw(state, colour, frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn screen(state: &State) -> String {
    text(&drawn(state, true))
}

/// Keys as they are typed: letters, and in angle brackets what has a name.
fn keys(state: &mut State, typed: &str) -> Option<Effect> {
    let mut effect = None;
    let mut rest = typed;
    while let Some(c) = rest.chars().next() {
        let named = [
            ("<enter>", KeyCode::Enter),
            ("<esc>", KeyCode::Esc),
            ("<down>", KeyCode::Down),
            ("<up>", KeyCode::Up),
            ("<end>", KeyCode::End),
            ("<pgdn>", KeyCode::PageDown),
            ("<pgup>", KeyCode::PageUp),
            ("<tab>", KeyCode::Tab),
            ("<back>", KeyCode::Backspace),
        ];
        let found = named.iter().find(|(name, _)| rest.starts_with(name));
        let (code, length) = found.map_or((KeyCode::Char(c), c.len_utf8()), |(name, code)| (*code, name.len()));
        effect = state.key(KeyEvent::new(code, KeyModifiers::NONE));
        rest = &rest[length..];
    }
    effect
}

/// The names of the mutexes in the order of the screen.
fn mutexes(state: &State) -> Vec<String> {
    let seen = state.seen.as_ref().unwrap();
    let (order, _) = state.mutexes(seen, usize::MAX);
    order.iter().map(|at| seen.mutex_row(*at).mutex.label()).collect()
}

#[test]
fn screens_of_all_sizes_are_as_they_were() {
    for size in [(60, 20), (80, 24), (200, 60), (300, 80)] {
        golden(&format!("top-{}x{}.txt", size.0, size.1), &screen(&state(seen(2), size)));
    }
    let mut small = state(seen(1), (80, 24));
    golden("top-creation.txt", &screen(&small));
    keys(&mut small, "2");
    golden("top-sessions.txt", &screen(&small));
    let mut tree = state(deadlocked(), (80, 24));
    keys(&mut tree, "3");
    golden("top-deadlock.txt", &screen(&tree));
    golden("top-once.txt", &super::once(Arc::new(seen(2)), "bank".to_owned(), 120));
}

#[test]
fn pages_are_as_they_were() {
    for size in [(80, 24), (200, 60)] {
        let mut state = state(seen(2), size);
        keys(&mut state, "<enter>");
        golden(&format!("top-mutex-{}.txt", size.0), &screen(&state));
        keys(&mut state, "<esc>2<down><enter>");
        golden(&format!("top-session-{}.txt", size.0), &screen(&state));
        keys(&mut state, "?");
        golden(&format!("top-help-{}.txt", size.0), &screen(&state));
    }
}

#[test]
fn what_has_no_room_is_marked() {
    let mut state = state(seen(2), (60, 20));
    let shown = screen(&state);
    assert!(shown.contains("+10 columns"), "{shown}");
    let last = shown.lines().last().unwrap();
    assert!(last.contains("q quit") && last.ends_with('…'), "{last}");
    state.resize(300, 80);
    assert!(!screen(&state).contains("column"), "{}", screen(&state));
}

#[test]
fn nothing_is_cut_where_there_is_room() {
    let mut state = state(seen(2), (300, 24));
    keys(&mut state, "2");
    assert!(!screen(&state).contains('…'), "{}", screen(&state));
}

#[test]
fn columns_that_come_and_go_keep_their_place() {
    let mut look = seen(2);
    for mutex in &mut look.span.to.mutexes {
        mutex.holders.clear();
    }
    let shown = screen(&state(look, (120, 20)));
    assert!(shown.contains("held by"), "{shown}");
}

#[test]
fn utilization_is_not_told_of_a_few_looks() {
    let accounts = |looks: u64| {
        let mut look = seen(2);
        look.mutexes[0].samples.looks = looks;
        let row = look.mutex_row(0);
        let columns = columns::mutexes();
        let told = columns.iter().find(|shown| shown.column.title() == "U %").map(|shown| shown.column.value(&row));
        told.unwrap()
    };
    assert!(accounts(9).is_null());
    assert_eq!(accounts(10), accounts(0), "0: every hold was timed");
    assert!(accounts(10).is_number());
}

#[test]
fn every_column_is_in_the_help_with_what_it_is() {
    let shown = columns::mutexes().into_iter().map(|shown| (shown.column.title().into_owned(), shown.about));
    let of_sessions = columns::sessions().into_iter().map(|shown| (shown.column.title().into_owned(), shown.about));
    let mut state = state(seen(2), (200, 80));
    keys(&mut state, "?");
    let help = screen(&state);
    for (title, about) in shown.chain(of_sessions) {
        assert!(!about.is_empty() && help.contains(&format!("{title:10} {about}")), "{title}: {about}: {help}");
    }
}

#[test]
fn what_is_too_small_is_said() {
    for size in [(59, 20), (80, 9), (1, 1), (20, 1)] {
        let mut small = state(seen(2), size);
        keys(&mut small, "<enter><esc>3<down>2<end>");
        let expected = format!("retrial top needs 60 x 10; here are {} x {}", size.0, size.1);
        let says = screen(&small);
        assert!(says == expected || says.ends_with('…') && expected.starts_with(says.trim_end_matches('…')), "{says}");
    }
}

#[test]
fn any_column_sorts_in_both_directions() {
    let mut state = state(seen(2), (200, 60));
    let by_wait = ["accounts", "ledger", "archive", "index of the branch in the old town", "#5"];
    assert_eq!(mutexes(&state), by_wait);
    keys(&mut state, "r");
    assert_eq!(mutexes(&state)[4], "accounts");
    // The first column is the name.
    keys(&mut state, "<<<<<");
    assert_eq!(mutexes(&state), ["#5", "accounts", "archive", "index of the branch in the old town", "ledger"]);
    assert!(screen(&state).contains("mutex▲"), "{}", screen(&state));
    keys(&mut state, "r");
    assert_eq!(mutexes(&state)[0], "ledger");
    keys(&mut state, ">>");
    assert_eq!(mutexes(&state)[..3], ["accounts", "ledger", "#5"], "by gets");
    for _ in 0..40 {
        keys(&mut state, ">");
        assert!(screen(&state).contains('▼'), "the column that sorts is on the screen");
    }
}

#[test]
fn a_filter_is_a_text_in_names_and_places() {
    let mut state = state(seen(2), (200, 60));
    keys(&mut state, "/LED");
    assert_eq!(mutexes(&state), ["ledger"]);
    keys(&mut state, "<back><back><back>transfer");
    assert_eq!(mutexes(&state), ["accounts"], "by a place where it was waited for");
    keys(&mut state, "<enter>");
    assert!(screen(&state).contains("filter: transfer"));
    keys(&mut state, "/xyz");
    let says = screen(&state);
    assert_eq!(says.matches("None passes the filter; Esc takes it back.").count(), 3, "of each list: {says}");
    keys(&mut state, "<esc>");
    assert_eq!((state.filter.as_str(), mutexes(&state).len()), ("transfer", 1), "Esc leaves the filter as it was");
    keys(&mut state, "<esc>");
    assert_eq!(mutexes(&state).len(), 5);
    keys(&mut state, "e");
    assert_eq!(mutexes(&state)[0], "end of day", "conditions are shown when they are asked for");
}

#[test]
fn a_frozen_screen_stays_and_goes_on_with_the_latest_look() {
    let mut state = state(seen(2), (80, 24));
    let before = screen(&state);
    keys(&mut state, "f");
    for looks in 3..6 {
        state.see(Arc::new(seen(looks)));
    }
    let frozen = screen(&state);
    assert!(frozen.contains("FROZEN") && frozen.contains("14:02:13Z"), "{frozen}");
    assert_eq!(frozen.lines().skip(1).collect::<Vec<_>>(), before.lines().skip(1).collect::<Vec<_>>());
    keys(&mut state, "f");
    assert!(screen(&state).contains("14:02:16Z") && !screen(&state).contains("FROZEN"));
}

#[test]
fn what_is_chosen_is_opened_and_leads_further() {
    let mut state = state(seen(2), (80, 24));
    keys(&mut state, "<down><enter>");
    assert!(screen(&state).contains("‹ Mutex ledger"));
    let to = |state: &mut State, wanted: &str| {
        for _ in 0..200 {
            let shown = screen(state);
            let chosen = drawn(state, true);
            let is_chosen = |y: u16| chosen[(0, y)].modifier.contains(Modifier::REVERSED);
            if shown.lines().zip(0..).any(|(line, y)| is_chosen(y) && line.contains(wanted)) {
                return;
            }
            keys(state, "<down>");
        }
        panic!("{wanted} cannot be chosen: {}", screen(state));
    };
    to(&mut state, "teller");
    keys(&mut state, "<enter>");
    assert!(screen(&state).contains("‹ Session 4 teller"));
    assert_eq!(state.asked().map(Sid::number), Some(4));
    to(&mut state, "held by session 3");
    keys(&mut state, "<enter>");
    assert!(screen(&state).contains("‹ Session 3 clerk"));
    to(&mut state, "accounts");
    keys(&mut state, "<enter>");
    assert!(screen(&state).contains("‹ Mutex accounts"));
    keys(&mut state, "<esc><esc><esc>");
    assert!(screen(&state).contains("‹ Mutex ledger"));
    keys(&mut state, "<esc>3<end><enter>");
    assert!(screen(&state).contains("‹ Session"), "from the tree: {}", screen(&state));
}

#[test]
fn a_text_is_scrolled_by_each_key() {
    let mut state = state(seen(2), (80, 24));
    keys(&mut state, "?");
    let line = |state: &State, y| screen(state).lines().nth(y).unwrap().to_owned();
    let (second, last) = (line(&state, 6), line(&state, 21));
    keys(&mut state, "<down>");
    assert_eq!(line(&state, 5), second);
    keys(&mut state, "<up><pgdn>");
    assert!(screen(&state).contains(&last) && !screen(&state).contains(&second), "{}", screen(&state));
    keys(&mut state, "<end><up>");
    assert!(screen(&state).contains("… 1 more line\n"), "{}", screen(&state));
    // Of a page on which something can be chosen, too.
    keys(&mut state, "<esc><enter><pgdn>");
    assert!(!screen(&state).contains("Held by"), "{}", screen(&state));
    keys(&mut state, "<pgup>");
    assert!(screen(&state).contains("Held by"));
}

#[test]
fn the_choice_stays_with_what_is_chosen() {
    let mut state = state(seen(2), (80, 24));
    keys(&mut state, "<down>");
    // Now the other way round: the ledger is the last but three.
    let mut look = seen(3);
    for profile in &mut look.mutexes[..1] {
        *profile = retrial_model::Profile::default();
    }
    state.see(Arc::new(look));
    assert_eq!(mutexes(&state)[0], "ledger");
    keys(&mut state, "<enter>");
    assert!(screen(&state).contains("‹ Mutex ledger"), "{}", screen(&state));
    keys(&mut state, "<esc>");
    // At the top the choice is the top.
    state.see(Arc::new(seen(4)));
    keys(&mut state, "<enter>");
    assert!(screen(&state).contains("‹ Mutex accounts"), "{}", screen(&state));
}

#[test]
fn a_parameter_is_set_after_a_confirmation_only_and_set_back() {
    let mut state = state(seen(2), (200, 60));
    keys(&mut state, "p<down><down><enter>");
    assert!(screen(&state).contains("mutex_spin_count of the instance, now 300 polls: _"), "{}", screen(&state));
    assert_eq!(keys(&mut state, "9x<enter>"), None);
    assert!(screen(&state).contains("expected"), "a wrong value is said: {}", screen(&state));
    state.resize(60, 20);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let wrong = state.message.as_ref().unwrap().text.clone();
    assert!(words(&screen(&state)).contains(&words(&wrong)), "all of it: {wrong} in {}", screen(&state));
    state.resize(200, 60);
    keys(&mut state, "<back>0<enter>");
    let asks = "Set mutex_spin_count of the instance from 300 to 90? y: yes, any other key: no";
    assert!(screen(&state).contains(asks), "{}", screen(&state));
    assert_eq!(keys(&mut state, "n"), None);
    assert!(screen(&state).contains("nothing was changed"));
    let change = Change { parameter: P::SpinCount, of: None, text: "90".to_owned() };
    assert_eq!(keys(&mut state, "<enter>90<enter>y"), Some(Effect::Set(change)));
    assert_eq!(keys(&mut state, "u"), None, "what was not set is not undone");
    let undo = Undo { setting: (P::SpinCount, Some(300)), of: None };
    state.was_set(undo, "mutex_spin_count: 300 -> 90".to_owned());
    assert!(screen(&state).contains("300 -> 90; u undoes it"));
    assert_eq!(keys(&mut state, "u"), Some(Effect::Undo(undo)));
    assert_eq!(keys(&mut state, "u"), None, "once");
    // Of a mutex's page: for its type.
    keys(&mut state, "<esc>1<enter><end><enter>15000<enter>");
    let change = Change { parameter: P::AlertThreshold, of: Some(TypeId(1)), text: "15000".to_owned() };
    assert_eq!(keys(&mut state, "y"), Some(Effect::Set(change)));
}

#[test]
fn a_parameter_is_described_whole_and_chosen_whole() {
    let mut state = state(seen(2), (80, 24));
    keys(&mut state, "p");
    golden("top-parameters-80.txt", &screen(&state));
    for size in [(60, 200), (80, 200), (120, 200), (200, 200)] {
        state.resize(size.0, size.1);
        let words: Vec<String> = screen(&state).split_whitespace().map(str::to_owned).collect();
        let shown = words.join(" ");
        for p in P::ALL {
            assert!(shown.contains(p.row().description), "{} at {size:?}: {shown}", p.row().name);
        }
    }
    // A step leads to the next parameter, and one back to the first line of the one before.
    state.resize(80, 200);
    let reversed = |state: &State| -> Vec<String> {
        let buffer = drawn(state, true);
        let is = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::REVERSED);
        (0..200).filter(is).map(|y| text(&buffer).lines().nth(usize::from(y)).unwrap_or_default().to_owned()).collect()
    };
    for (typed, name) in [("jjjj", 3), ("k", 2), ("<end>", P::ALL.len() - 1), ("k", P::ALL.len() - 2)] {
        keys(&mut state, typed);
        let (chosen, row) = (reversed(&state), P::ALL[name].row());
        assert!(chosen[0].contains(row.name), "{typed}: {chosen:?}");
        let about = chosen[1..].iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        assert!(about.contains(row.description), "{typed}: {chosen:?}");
    }
}

#[test]
fn an_instance_that_goes_leaves_its_last_screen_until_it_is_there_again() {
    let mut state = state(seen(2), (80, 24));
    state.gone = true;
    let says = screen(&state);
    assert!(says.contains("GONE: the last screen; waits for it") && says.contains("accounts"), "{says}");
    state.see(Arc::new(seen(1)));
    assert!(screen(&state).contains("bank is there again") && !screen(&state).contains("GONE"));
}

#[test]
fn without_colour_there_is_none() {
    let mut state = state(deadlocked(), (200, 60));
    let has_colour =
        |buffer: &Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
    for page in ["", "<enter>", "<esc>?"] {
        keys(&mut state, page);
        assert!(!has_colour(&drawn(&state, false)));
    }
    keys(&mut state, "<esc>");
    assert!(has_colour(&drawn(&state, true)));
}
