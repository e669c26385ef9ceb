//! [`Parking`] and [`Parks`] against a specification written apart: a list of sessions, each with what it
//! does, and two releases whose steps come in any order. All schedules up to a length, with and without
//! deaths.

use super::{Announced, Found, Parked, Parking, Parks, Wakes};
use std::cell::Cell;
use std::collections::HashSet;

const SESSIONS: usize = 3;

/// What a session does.
#[derive(Clone, Debug)]
enum Doing {
    /// Not in a park: outside, or between two parks.
    Up,
    /// Has announced a park after so many wake-ups, and does not sleep yet.
    Announced(Announced, u8),
    Asleep(Announced),
    /// Is out of the kernel, and has not said so.
    Back(Announced, Parked<()>),
    Dead,
}

/// What a release does after it has found that it wakes a session.
#[derive(Clone, Debug)]
enum Waking {
    No,
    /// Has counted the session that it is about to wake.
    Counted(Parking),
    /// Has woken one.
    Woke(Parking),
    /// Has found nobody asleep.
    Nobody(Parking),
}

#[derive(Clone, Debug)]
struct World {
    /// By which releases wake them.
    rule: Wakes,
    parking: Parking,
    wakes: u8,
    sessions: [(Doing, Parks); SESSIONS],
    /// Sleepers in the order in which they fell asleep.
    queue: Vec<usize>,
    releases: [Waking; 2],
    /// Whether a session has died.
    mourns: bool,
}

impl World {
    fn new(rule: Wakes) -> Self {
        Self {
            rule,
            parking: Parking::default(),
            wakes: 0,
            sessions: std::array::from_fn(|_| (Doing::Up, Parks::default())),
            queue: Vec::new(),
            releases: [Waking::No, Waking::No],
            mourns: false,
        }
    }

    /// Has a session do something with the parking.
    fn with<R>(
        &mut self,
        session: usize,
        deed: impl FnOnce(&Parks, &dyn Fn(&dyn Fn(Parking) -> Parking) -> Parking) -> R,
    ) -> R {
        let cell = Cell::new(self.parking);
        let change = |to: &dyn Fn(Parking) -> Parking| {
            let before = cell.get();
            cell.set(to(before));
            before
        };
        let done = deed(&self.sessions[session].1, &change);
        self.parking = cell.get();
        done
    }

    /// Every world that one step of a session leads to.
    fn steps_of(&self, session: usize, may_die: bool, to: &mut Vec<Self>) {
        let then = |deed: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            deed(&mut next);
            next
        };
        let turn = |doing: Doing| then(&|world| world.sessions[session].0 = doing.clone());
        match &self.sessions[session].0 {
            Doing::Up => {
                to.push(then(&|world| {
                    let announced = world.with(session, |parks, change| parks.announce(self.rule, change));
                    world.sessions[session].0 = Doing::Announced(announced, world.wakes);
                }));
                to.push(then(&|world| {
                    world.with(session, |parks, change| parks.end(change));
                }));
            }
            Doing::Announced(announced, seen) => {
                to.push(turn(Doing::Back(*announced, Parked::Looked)));
                if *seen == self.wakes {
                    to.push(then(&|world| {
                        world.sessions[session].0 = Doing::Asleep(*announced);
                        world.queue.push(session);
                    }));
                }
            }
            Doing::Asleep(announced) => to.extend([false, true].map(|is_brief| {
                then(&|world| {
                    let mut announced = *announced;
                    announced.is_brief = is_brief;
                    world.sessions[session].0 = Doing::Back(announced, Parked::TimedOut);
                    world.queue.retain(|sleeper| *sleeper != session);
                })
            })),
            Doing::Back(announced, how) => to.extend([Found::Open, Found::Busy].map(|found| {
                then(&|world| {
                    world.with(session, |parks, change| parks.come_back(*announced, how, found, change));
                    world.sessions[session].0 = Doing::Up;
                })
            })),
            Doing::Dead => return,
        }
        if may_die {
            to.push(then(&|world| {
                world.sessions[session].0 = Doing::Dead;
                world.queue.retain(|sleeper| *sleeper != session);
                world.mourns = true;
            }));
        }
    }

    /// The world after the next step of a release, if it has one.
    fn step_of_release(&self, release: usize) -> Option<Self> {
        let mut next = self.clone();
        next.releases[release] = match self.releases[release] {
            Waking::No if self.parking.wakes() => {
                next.parking = self.parking.wake();
                Waking::Counted(self.parking)
            }
            Waking::No => return None,
            Waking::Counted(then) => {
                next.wakes += 1;
                if next.queue.is_empty() {
                    Waking::Nobody(then)
                } else {
                    let woken = next.queue.remove(0);
                    let Doing::Asleep(announced) = next.sessions[woken].0 else { unreachable!("it sleeps") };
                    next.sessions[woken].0 = Doing::Back(announced, Parked::Woken);
                    Waking::Woke(then)
                }
            }
            Waking::Woke(then) => {
                next.parking = self.parking.has_woken(then, 1);
                Waking::No
            }
            Waking::Nobody(then) => {
                next.parking = self.parking.has_woken_nobody(then);
                Waking::No
            }
        };
        Some(next)
    }

    fn check(&self) {
        let count = |of: &dyn Fn(&Doing, &Parks) -> bool| {
            self.sessions.iter().filter(|(doing, parks)| of(doing, parks)).count()
        };
        // What a release must not overlook: those that sleep, or will if nothing happens.
        let to_wake = count(&|doing, _| match doing {
            Doing::Asleep(_) => true,
            Doing::Announced(_, seen) => *seen == self.wakes,
            _ => false,
        });
        assert!(self.parking.parked() as usize >= to_wake, "{self:#?}");
        if self.mourns {
            return;
        }
        let waking = self.releases.iter().filter(|waking| !matches!(waking, Waking::No)).count();
        // Otherwise releases could leave the parked to sessions that are not there.
        let on_its_way =
            count(&|doing, parks| matches!(doing, Doing::Back(_, Parked::Woken)) || parks.on_its_way.get());
        assert!(self.parking.woken() as usize <= on_its_way + waking, "{self:#?}");
        let up = count(&|doing, _| matches!(doing, Doing::Up));
        if waking == 0 && up == SESSIONS {
            assert_eq!(self.parking.parked(), 0, "{self:#?}");
            assert!(!self.parking.is_watched(), "{self:#?}");
        }
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }
}

/// Checks every world that so many steps lead to. How many there are.
fn explore(steps: u32, deaths: u32) -> usize {
    let mut known = HashSet::new();
    let mut worlds = [Wakes::Enough, Wakes::One].map(|rule| (World::new(rule), deaths)).to_vec();
    for _ in 0..steps {
        let mut next = Vec::new();
        for (world, deaths) in worlds {
            let mut after = Vec::new();
            for session in 0..SESSIONS {
                world.steps_of(session, deaths > 0, &mut after);
            }
            after.extend((0..2).filter_map(|release| world.step_of_release(release)));
            let mourned = world.sessions.iter().filter(|(doing, _)| matches!(doing, Doing::Dead)).count();
            for after in after {
                let died = after.sessions.iter().filter(|(doing, _)| matches!(doing, Doing::Dead)).count() > mourned;
                if known.insert(after.key()) {
                    after.check();
                    next.push((after, deaths - u32::from(died)));
                }
            }
        }
        worlds = next;
    }
    known.len()
}

#[test]
fn the_counts_are_what_a_list_of_the_sessions_says_in_every_schedule() {
    assert!(explore(9, 0) > 10_000);
}

#[test]
fn a_death_at_any_step_leaves_the_count_too_high_or_right() {
    assert!(explore(8, 1) > 10_000);
}
