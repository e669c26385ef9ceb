//! The loads of 004 on a small engine: cells in the instance's memory behind one mutex, its critical section.
//! A change of a cell is all or nothing: its old value is noted first, and the next holder puts it back where
//! the session that changed it has died.

use super::{Done, Load, Seat, then};
use crate::instances::{object_error, session_error};
use miette::{Report, miette};
use retrial::zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};
use retrial::{Class, CodeLocation, GetError, GetFailure, Guard, Instance, Mutex, Session, location};
use retrial_bench::load::Random;

/// Cells of an engine.
const CELLS: usize = 16_384;
pub const TYPE: &str = "critical section";
/// What each account has at first.
const DEPOSIT: u64 = 1_000_000;
/// What is counted beside executions, by position.
pub const COUNTS: [&str; 2] = ["owner_died", "undone"];
const OWNER_DIED: usize = 0;
const UNDONE: usize = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "retrial::zerocopy")]
#[repr(C)]
struct Cells {
    /// The cell that is being changed, from 1, and what it and the total were before; 0 when none is.
    changing: u64,
    before: [u64; 2],
    /// What was added to the cells since the run began.
    total: u64,
    values: [u64; CELLS],
}

impl Cells {
    /// Gives a cell another value.
    fn set(&mut self, cell: usize, value: u64) {
        self.before = [self.values[cell], self.total];
        then();
        self.changing = cell as u64 + 1;
        then();
        self.total = self.total.wrapping_add(value.wrapping_sub(self.values[cell]));
        then();
        self.values[cell] = value;
        then();
        self.changing = 0;
    }

    /// Takes a change back that was cut short. Whether there was one.
    fn undo(&mut self) -> bool {
        let Some(cell) = self.changing.checked_sub(1) else { return false };
        self.values[cell as usize % CELLS] = self.before[0];
        self.total = self.before[1];
        then();
        self.changing = 0;
        true
    }
}

/// The engine of a run.
struct Engine<'i>(Mutex<'i, Cells>);

impl<'i> Engine<'i> {
    /// The engine of this name, with all its cells as they are to be at first.
    fn new(instance: &'i Instance, name: &str, first: u64) -> Result<Self, Report> {
        let mutex = instance.mutex(name, TYPE, Cells::new_zeroed).map_err(object_error)?;
        let session = instance.session("retrial cache", Class::Normal).map_err(session_error)?;
        let engine = Self(mutex);
        let mut cells = engine.enter_as(&session, location!("cells: reset"), &mut |_| ())?;
        cells.total = 0;
        cells.values.fill(first);
        drop(cells);
        Ok(engine)
    }

    /// Gets the critical section.
    fn enter<'a>(&self, seat: &'a Seat<'a>, at: &CodeLocation) -> Result<Guard<'a, Cells>, Report>
    where
        'i: 'a,
    {
        self.enter_as(&seat.session, at, &mut |what| seat.count(what))
    }

    fn enter_as<'a>(
        &self,
        session: &'a Session<'a>,
        at: &CodeLocation,
        count: &mut dyn FnMut(usize),
    ) -> Result<Guard<'a, Cells>, Report>
    where
        'i: 'a,
    {
        match self.0.exclusive(session, at) {
            Ok(cells) => Ok(cells),
            Err(GetError::OwnerDied(mut died)) => {
                count(OWNER_DIED);
                if died.guard.undo() {
                    count(UNDONE);
                }
                died.guard.consistent();
                Ok(died.guard)
            }
            Err(error) => Err(miette!(code = "retrial::cache::engine", "{}", GetFailure::from(error))),
        }
    }
}

/// What the cells come to together, beside what was added to them.
fn sum(cells: &Cells, first: u64) -> Option<String> {
    let found = cells.values.iter().fold(0_u64, |sum, cell| sum.wrapping_add(*cell));
    let expected = (CELLS as u64 * first).wrapping_add(cells.total);
    (found != expected).then(|| format!("the cells come to {found}, their first values and all changes to {expected}"))
}

/// Nothing but the critical section: each session adds one to a cell.
pub struct CriticalSection<'i>(Engine<'i>);

/// Numbers of steps until 3n + 1, and n / 2 for an even n, comes to 1, kept for all n below the number of
/// cells.
pub struct ThreeNPlusOne<'i>(Engine<'i>);

/// Interest for the accounts at the end of a day.
pub struct InterestPosting<'i>(Engine<'i>);

macro_rules! engines {
    ($( $type:ident, $name:literal, $first:expr; )*) => { $(
        impl<'i> $type<'i> {
            pub fn new(instance: &'i Instance) -> Result<Self, Report> {
                Engine::new(instance, $name, $first).map(Self)
            }
        }
    )* };
}

engines! {
    CriticalSection, "critical-section cells", 0;
    ThreeNPlusOne, "three-n-plus-one cells", 0;
    InterestPosting, "interest-posting cells", DEPOSIT;
}

impl Load for CriticalSection<'_> {
    fn work(&self, seat: &Seat<'_>) -> Result<(), Report> {
        while seat.goes_on() {
            let mut cells = self.0.enter(seat, location!("critical section"))?;
            seat.run();
            let next = cells.values[0] + 1;
            cells.set(0, next);
            drop(cells);
            seat.executed();
            seat.think();
        }
        Ok(())
    }

    fn check(&self, seat: &Seat<'_>, done: Done) -> Result<Vec<String>, Report> {
        let cells = self.0.enter(seat, location!("cells: check"))?;
        let (found, executed) = (cells.values[0], done.executed);
        let is_counted = (executed..=executed + u64::from(done.killed)).contains(&found);
        let lost = format!("the cell counts {found} sections, the sessions {executed}, with {} killed", done.killed);
        Ok(sum(&cells, 0).into_iter().chain((!is_counted).then_some(lost)).collect())
    }
}

/// Steps from `n` to 1; a look at a known number ends it early.
fn steps(n: u64, mut known: impl FnMut(u64) -> Result<u64, Report>) -> Result<u64, Report> {
    let (mut at, mut steps) = (n, 0);
    while at != 1 {
        at = if at.is_multiple_of(2) { at / 2 } else { 3 * at + 1 };
        steps += 1;
        if at < n {
            let rest = known(at)?;
            if rest > 0 {
                return Ok(steps + rest);
            }
        }
    }
    Ok(steps)
}

impl Load for ThreeNPlusOne<'_> {
    fn work(&self, seat: &Seat<'_>) -> Result<(), Report> {
        while seat.goes_on() {
            // The first cell is the last number that a session has taken.
            let mut cells = self.0.enter(seat, location!("3n+1: take"))?;
            let n = cells.values[0] + 1;
            if n >= CELLS as u64 {
                return Ok(());
            }
            cells.set(0, n);
            drop(cells);
            let known = |at: u64| Ok(self.0.enter(seat, location!("3n+1: look"))?.values[at as usize]);
            let steps = steps(n, known)?;
            seat.run();
            self.0.enter(seat, location!("3n+1: store"))?.set(n as usize, steps);
            seat.executed();
            seat.think();
        }
        Ok(())
    }

    fn check(&self, seat: &Seat<'_>, done: Done) -> Result<Vec<String>, Report> {
        let cells = self.0.enter(seat, location!("cells: check"))?;
        let mut wrong: Vec<String> = sum(&cells, 0).into_iter().collect();
        let mut missing = 0;
        for (n, found) in (1..=cells.values[0]).zip(&cells.values[1..]) {
            let expected = steps(n, |_| Ok(0))?;
            // A session that was killed may have taken a number and not stored its steps.
            missing += u64::from(*found == 0 && expected > 0);
            if *found != 0 && *found != expected {
                wrong.push(format!("{n} comes to 1 in {expected} steps, {found} are stored"));
            }
        }
        if missing > u64::from(done.killed) {
            wrong.push(format!("{missing} numbers were taken and not stored, with {} killed", done.killed));
        }
        Ok(wrong)
    }
}

impl Load for InterestPosting<'_> {
    fn work(&self, seat: &Seat<'_>) -> Result<(), Report> {
        let mut random = Random::new(retrial::sys::now_ns() + u64::from(seat.index));
        while seat.goes_on() {
            let account = random.below(CELLS as u64) as usize;
            let mut cells = self.0.enter(seat, location!("interest: post"))?;
            let balance = cells.values[account];
            seat.run();
            // A hundredth of a percent, so that it goes on for long.
            cells.set(account, balance + balance / 10_000);
            drop(cells);
            seat.executed();
            seat.think();
        }
        Ok(())
    }

    fn check(&self, seat: &Seat<'_>, _done: Done) -> Result<Vec<String>, Report> {
        let cells = self.0.enter(seat, location!("cells: check"))?;
        Ok(sum(&cells, DEPOSIT).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::Capacity;

    #[test]
    fn a_change_that_was_cut_short_is_taken_back() {
        let mut cells = Cells::new_zeroed();
        cells.set(3, 5);
        assert!(!cells.undo() && cells.values[3] == 5 && cells.total == 5);
        (cells.before, cells.changing) = ([5, 5], 4);
        (cells.values[3], cells.total) = (9, 5);
        assert!(sum(&cells, 0).is_some());
        assert!(cells.undo() && cells.values[3] == 5 && sum(&cells, 0).is_none());
    }

    #[test]
    fn wrong_results_are_found() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let load = ThreeNPlusOne::new(&instance).unwrap();
        super::super::crew::at_a_seat(&instance, |seat| {
            let set = |cell: usize, value| load.0.enter(seat, location!("test")).unwrap().set(cell, value);
            let done = |killed| Done { executed: 0, killed };
            for (cell, value) in [(0, 7), (2, 1), (3, 7), (4, 2), (5, 5), (6, 8)] {
                set(cell, value);
            }
            assert_eq!(load.check(seat, done(1)).unwrap(), [""; 0]);
            let wrong = load.check(seat, done(0)).unwrap();
            assert_eq!(wrong, ["1 numbers were taken and not stored, with 0 killed"]);
            set(7, 15);
            assert_eq!(load.check(seat, done(0)).unwrap(), ["7 comes to 1 in 16 steps, 15 are stored"]);
        });
    }
}
