//! The rows of the lists in their order, and what each of them leads to.

use super::columns;
use super::filter::Filter;
use super::pages::{Line, Target};
use super::panel::{Panel, first};
use super::seen::Seen;
use super::state::State;
use super::tree;
use crate::output::Column;

impl State {
    /// What the chosen row leads to.
    pub fn chosen(&self) -> Option<Target> {
        let at = self.front().cursor;
        *self.targets(self.seen.as_ref()?, at + 1).get(at)?
    }

    /// Where the row is that leads to this target: of several the one that is nearest to the chosen row.
    pub fn row_of(&self, target: Target) -> Option<usize> {
        let targets = self.targets(self.seen.as_ref()?, usize::MAX);
        let rows = targets.iter().enumerate().filter(|(_, found)| **found == Some(target));
        rows.map(|(at, _)| at).min_by_key(|at| at.abs_diff(self.front().cursor))
    }

    /// What the rows in front lead to, of the first so many at least.
    fn targets(&self, seen: &Seen, count: usize) -> Vec<Option<Target>> {
        if let Some(open) = self.pages.last() {
            return open.page.lines(seen, self.size.0).1.iter().map(|line| line.target).collect();
        }
        match self.focus {
            Panel::Mutexes => {
                let id = |at: &usize| Some(Target::Mutex(seen.mutex_row(*at).mutex.info.id));
                self.mutexes(seen, count).0.iter().map(id).collect()
            }
            Panel::Sessions => {
                let sid = |at: &usize| Some(Target::Session(seen.session_row(*at).session.info.sid));
                self.sessions(seen, count).0.iter().map(sid).collect()
            }
            Panel::Waits => self.waits(seen).iter().map(|line| line.target).collect(),
        }
    }

    /// The first mutexes as they are sorted and filtered, by position, and how many there are.
    pub fn mutexes(&self, seen: &Seen, count: usize) -> (Vec<usize>, usize) {
        let filter = Filter::new(&self.filter, seen);
        let is_shown = |at: &usize| {
            let row = seen.mutex_row(*at);
            (self.with_events || !row.mutex.is_event) && filter.has_mutex(&row)
        };
        let positions: Vec<usize> = (0..seen.mutexes.len()).filter(is_shown).collect();
        let (list, columns) = (self.lists[Panel::Mutexes as usize], columns::mutexes());
        let by: &Column<'_, _> = &columns[list.sort].column;
        let all = positions.len();
        (first(by, |at| seen.mutex_row(at), positions.into_iter(), list.ascending, count), all)
    }

    /// The same of sessions.
    pub fn sessions(&self, seen: &Seen, count: usize) -> (Vec<usize>, usize) {
        let filter = Filter::new(&self.filter, seen);
        let is_shown = |at: &usize| filter.has_session(&seen.session_row(*at));
        let positions: Vec<usize> = (0..seen.sessions.len()).filter(is_shown).collect();
        let (list, columns) = (self.lists[Panel::Sessions as usize], columns::sessions());
        let by: &Column<'_, _> = &columns[list.sort].column;
        let all = positions.len();
        (first(by, |at| seen.session_row(at), positions.into_iter(), list.ascending, count), all)
    }

    /// The lines of the tree that the filter lets pass.
    pub fn waits(&self, seen: &Seen) -> Vec<Line> {
        let mut lines = tree::lines(seen);
        let wanted = self.filter.to_lowercase();
        lines.retain(|line| line.text.to_lowercase().contains(&wanted));
        lines
    }
}
