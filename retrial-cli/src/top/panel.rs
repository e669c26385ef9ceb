//! A list that is sorted, filtered and scrolled: only what is seen of it is sorted.

use crate::output::Column;
use serde_json::Value;
use std::cmp::Ordering;

/// One of the three lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Panel {
    Mutexes,
    Sessions,
    Waits,
}

impl Panel {
    pub const ALL: [Self; 3] = [Self::Mutexes, Self::Sessions, Self::Waits];

    pub const fn name(self) -> &'static str {
        ["Mutexes", "Sessions", "Waits"][self as usize]
    }
}

/// How a list is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct List {
    /// Position of the chosen row, and of the first one that is seen.
    pub cursor: usize,
    pub offset: usize,
    /// Position of the column that it is sorted by.
    pub sort: usize,
    pub ascending: bool,
}

impl List {
    /// Has the chosen row be one of `count`, and seen in `height` lines.
    pub fn settle(&mut self, count: usize, height: usize) {
        self.cursor = self.cursor.min(count.saturating_sub(1));
        let lowest = (self.cursor + 1).saturating_sub(height);
        self.offset = self.offset.clamp(lowest, self.cursor.max(lowest)).min(count.saturating_sub(height));
    }

    /// Moves what is seen by so many rows, and the choice with it.
    pub fn turn(&mut self, by: isize) {
        self.offset = self.offset.saturating_add_signed(by);
        self.step(by);
    }

    /// Moves the choice by so many rows.
    pub fn step(&mut self, by: isize) {
        self.cursor = self.cursor.saturating_add_signed(by);
    }
}

enum Key {
    Number(f64),
    Text(String),
    Nothing,
}

impl Key {
    fn of(value: Value) -> Self {
        match value {
            Value::Number(number) => number.as_f64().map_or(Self::Nothing, Self::Number),
            Value::String(text) if !text.is_empty() => Self::Text(text),
            _ => Self::Nothing,
        }
    }

    /// What is not known comes last in both directions.
    fn compare(&self, other: &Self, ascending: bool) -> Ordering {
        let order = match (self, other) {
            (Self::Nothing, Self::Nothing) => return Ordering::Equal,
            (Self::Nothing, _) => return Ordering::Greater,
            (_, Self::Nothing) => return Ordering::Less,
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        };
        if ascending { order } else { order.reverse() }
    }
}

/// The first `count` of these positions, by a column of their rows; equal ones by position.
pub fn first<R>(
    column: &Column<'_, R>,
    row: impl Fn(usize) -> R,
    positions: impl Iterator<Item = usize>,
    ascending: bool,
    count: usize,
) -> Vec<usize> {
    let mut keys: Vec<(Key, usize)> = positions.map(|at| (Key::of(column.value(&row(at))), at)).collect();
    let order = |a: &(Key, usize), b: &(Key, usize)| a.0.compare(&b.0, ascending).then(a.1.cmp(&b.1));
    if count < keys.len() {
        keys.select_nth_unstable_by(count, order);
        keys.truncate(count);
    }
    keys.sort_unstable_by(order);
    keys.into_iter().map(|(_, at)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::column;

    #[test]
    fn the_first_are_those_of_the_whole_order() {
        let values = [Some(3.0), None, Some(-1.0), Some(7.0), Some(3.0), Some(0.5)];
        let by_value = column("v", |row: &Option<f64>| *row);
        let of = |ascending, count| first(&by_value, |at| values[at], 0..values.len(), ascending, count);
        assert_eq!(of(false, 6), [3, 0, 4, 5, 2, 1]);
        assert_eq!(of(true, 6), [2, 5, 0, 4, 3, 1], "what is not known is last again");
        for count in 0..6 {
            assert_eq!(
                (of(false, count), of(true, count)),
                (of(false, 6)[..count].into(), of(true, 6)[..count].into())
            );
        }
        let by_text = column("v", |row: &Option<f64>| row.map(|value| format!("{value}")));
        assert_eq!(first(&by_text, |at| values[at], 0..6, true, 2), [2, 5]);
    }

    #[test]
    fn the_chosen_row_is_seen() {
        let mut list = List { cursor: 50, ..List::default() };
        list.settle(100, 10);
        assert_eq!((list.cursor, list.offset), (50, 41));
        list.step(-5);
        list.settle(100, 10);
        assert_eq!((list.cursor, list.offset), (45, 41), "it scrolls only when it has to");
        list.step(-10);
        list.settle(100, 10);
        assert_eq!(list.offset, 35);
        list.settle(3, 10);
        assert_eq!((list.cursor, list.offset), (2, 0), "rows have gone");
        list.step(isize::MIN);
        list.settle(0, 10);
        assert_eq!((list.cursor, list.offset), (0, 0));
        list.step(isize::MAX);
        list.settle(100, 10);
        assert_eq!((list.cursor, list.offset), (99, 90));
    }
}
