//! What a session remembers from one park to the next of one wait.

use super::{Found, Parked, Parking, Wakes};
use std::cell::Cell;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Parks {
    /// Whether a release has woken it, or came before it slept and [counts it](Wakes::Enough). Most are counted
    /// as on their way; where one is not, `woken` may be too low, which only wakes more.
    pub(super) on_its_way: Cell<bool>,
    /// Whether it answered in its last park, did not sleep, and so still does, or stands for one that may have
    /// died: see [`Announced::answers`].
    pub(super) answers: Cell<bool>,
    /// Whether it was the watcher in its last park, until the time-out.
    pub(super) watched: Cell<bool>,
}

/// A park that has been announced.
#[allow(clippy::struct_excessive_bools)] // facts, each true or not
#[derive(Clone, Copy, Debug, Default)]
pub struct Announced {
    before: Parking,
    /// Whether the session is the watcher.
    pub watches: bool,
    /// Whether it answers for releases that woke no session: it passes on a mutex that it finds free for other
    /// modes only. The first session that parks answers. So does a woken session: releases may have woken no
    /// other because it was on its way.
    pub answers: bool,
    /// Whether it is on its way where it does not sleep.
    is_counted: bool,
    /// Whether it sleeps until something passes by itself, a handover or a move of a reference: its time-out
    /// says nothing of the dead then. Set by the session.
    pub is_brief: bool,
}

impl Announced {
    /// Whether no session was parked or on its way.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.before.parked() == 0 && self.before.woken() == 0
    }

    /// Whether it passes a barrier on all processors between this and its last look. Where no session was
    /// parked, releases do not look closer. Beside parked sessions they have a fence.
    #[must_use]
    pub const fn needs_barrier(&self) -> bool {
        self.before.parked() == 0
    }
}

impl Parks {
    /// Announces a park, by one `change` that gives what was known before.
    pub fn announce(&self, wakes: Wakes, change: impl FnOnce(&dyn Fn(Parking) -> Parking) -> Parking) -> Announced {
        let was_woken = self.on_its_way.take();
        // Not the same session twice in a row if others are parked: a look costs it its place in the queue.
        let may_watch = !self.watched.take();
        let may = |all: Parking| may_watch || all.parked() == 0;
        let before = change(&|all| all.announce(wakes, was_woken, may(all)));
        let answers = before.parked() == 0 || was_woken || self.answers.take();
        let is_counted = wakes == Wakes::Enough;
        Announced { before, watches: may(before) && !before.is_watched(), answers, is_counted, is_brief: false }
    }

    /// Comes back from a park, and finds the mutex as it is now.
    pub fn come_back<G>(
        &self,
        announced: Announced,
        how: &Parked<G>,
        found: Found,
        change: impl FnOnce(&dyn Fn(Parking) -> Parking) -> Parking,
    ) {
        let Announced { before, watches, answers, is_counted, is_brief } = announced;
        let looked_for_dead = matches!(how, Parked::TimedOut) && !is_brief;
        let did_not_sleep = matches!(how, Parked::Looked);
        self.on_its_way.set(matches!(how, Parked::Woken) || did_not_sleep && is_counted);
        self.watched.set(looked_for_dead && watches);
        self.answers.set(did_not_sleep && answers);
        match how {
            // The release that woke it has taken it off the count.
            Parked::Woken => change(&|all| all.unwatched(watches).found(found, true)),
            // The release that came first found nobody asleep, and counts nobody.
            Parked::Looked if is_counted => change(&|all| all.come_back(before, watches).wake()),
            Parked::TimedOut if is_brief => {
                self.answers.set(found == Found::Open);
                change(&|all| all.come_back(before, watches).found(found, false))
            }
            // A session on its way may have died, and so may the watcher. It answers for the dead one.
            Parked::TimedOut => {
                let known = change(&|all| all.come_back(before, true).arrived().found(found, false));
                self.answers.set(known.woken() != 0 || found == Found::Open);
                known
            }
            _ => change(&|all| all.come_back(before, watches)),
        };
    }

    /// The session has the mutex, or gives up. Whether releases may have left a wake-up to it: a session that
    /// gives up then passes it on.
    pub fn end(&self, change: impl FnOnce(&dyn Fn(Parking) -> Parking) -> Parking) -> bool {
        let on_its_way = self.on_its_way.take();
        if on_its_way {
            change(&Parking::arrived);
        }
        self.answers.take() || on_its_way
    }
}
