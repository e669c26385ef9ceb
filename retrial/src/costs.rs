//! What the steps of a wait cost on a machine: measured by [`Costs::measure`], kept in an instance, read by
//! `orbit`.

#[cfg(not(any(loom, shuttle)))]
mod measuring;

use std::fmt;
use thiserror::Error;

macro_rules! costs {
    ($( $id:ident $name:literal $description:literal; )*) => {
        /// Something that takes time, as an index of [`Cost::ALL`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(usize)]
        pub enum Cost { $( #[doc = $description] $id ),* }

        impl Cost {
            /// Every cost, in the order of the table.
            pub const ALL: &'static [Cost] = &[ $( Cost::$id ),* ];
            /// Its name in the views.
            #[must_use]
            pub const fn name(self) -> &'static str { [ $( $name ),* ][self as usize] }
            /// What is measured.
            #[must_use]
            pub const fn description(self) -> &'static str { [ $( $description ),* ][self as usize] }
        }
    };
}

costs! {
    Poll "poll" "One poll of a word with the processor's pause.";
    ClockRead "clock_read" "One look at the monotonic clock.";
    Exchange "exchange" "One compare-exchange on a word in the own cache.";
    Line "line" "A cache line's way to another processor and back.";
    YieldAlone "yield_alone" "A yield with nobody else ready to run.";
    YieldSwitch "yield_switch" "A yield that switches to another thread.";
    WakeCall "wake_call" "The waker's own call, for a thread that sleeps on an idle processor.";
    WakeFar "wake_far" "From that call until the woken thread runs.";
    WakeNear "wake_near" "The same for a thread of the waker's processor, which the waker leaves.";
    Barrier "barrier" "membarrier beside another processor that runs this program.";
    Interrupt "interrupt" "How long a busy processor is interrupted at a time: by its tick, devices, other programs.";
    InterruptInterval "interrupt_interval" "From one such interruption to the next.";
    SleepCall "sleep_call" "Processor time of one of many sleeps that end together, without the switch to its thread.";
    Timer "timer" "Processor time of the interrupt that ends them.";
    Sleep1us "sleep_1us" "What a sleep of 1 us takes.";
    Sleep100us "sleep_100us" "What a sleep of 100 us takes.";
    Sleep1ms "sleep_1ms" "What a sleep of 1 ms takes.";
    Sleep10ms "sleep_10ms" "What a sleep of 10 ms takes.";
}

/// Number of costs.
pub const COSTS: usize = Cost::ALL.len();

/// What each step of a wait costs, in ns; 0 is "not measured".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Costs(pub [u64; COSTS]);

/// Why a text is no [`Costs`].
#[derive(Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostError {
    /// A line that is not a known name and a whole number.
    #[error("line `{found}`, expected the name of a cost and its time in ns")]
    Line {
        /// The line.
        found: String,
    },
}

impl Costs {
    /// A cost in ns, `None` where it was not measured.
    #[must_use]
    pub fn get(&self, cost: Cost) -> Option<u64> {
        Some(self.0[cost as usize]).filter(|ns| *ns != 0)
    }
}

impl fmt::Display for Costs {
    /// One line for each cost: its name and its time in ns. Read back by `parse`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Cost::ALL.iter().try_for_each(|cost| writeln!(f, "{} {}", cost.name(), self.0[*cost as usize]))
    }
}

impl std::str::FromStr for Costs {
    type Err = CostError;

    /// Reads what `Display` writes; costs that are not named count as not measured.
    fn from_str(text: &str) -> Result<Self, CostError> {
        let mut costs = Self::default();
        for line in text.lines() {
            let read = || {
                let (name, ns) = line.split_once(' ')?;
                let cost = Cost::ALL.iter().find(|cost| cost.name() == name)?;
                Some((*cost, ns.parse().ok()?))
            };
            let (cost, ns) = read().ok_or_else(|| CostError::Line { found: line.to_owned() })?;
            costs.0[cost as usize] = ns;
        }
        Ok(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_back() {
        let costs = Costs(std::array::from_fn(|i| 7 * i as u64));
        assert_eq!(costs.to_string().parse(), Ok(costs));
        assert_eq!("".parse(), Ok(Costs::default()));
    }

    #[test]
    fn a_line_that_is_no_cost_is_refused() {
        for found in ["poll", "poll x", "pool 1", "poll -1", "poll 1 2"] {
            assert_eq!(found.parse::<Costs>(), Err(CostError::Line { found: found.to_owned() }));
        }
    }
}
