//! What a crew went through, in numbers.

/// What is counted of a crew, as an index of [`Outcome`].
#[derive(Clone, Copy)]
pub(crate) enum Count {
    Kills,
    /// Kills of a worker that surely held X, LX or E.
    Holding,
    /// Kills of a worker whose log was not empty.
    Amid,
    /// Kills of a worker that was in a `recover_all`.
    Recoverers,
    Stops,
    Gets,
    Conversions,
    /// Increments that a worker finished and lived to count.
    Increments,
    /// Increments in the data.
    InData,
    /// Times that X, LX or E was had with the flag *poisoned*.
    Told,
    /// Sessions that died, which were all recovered.
    Recovered,
    /// Those of them by a `recover_all`; the others by who waited for them or claimed their slot.
    Swept,
    /// Parked sessions that are counted although nobody is parked.
    Miscounted,
}

/// What a crew went through, by [`Count`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcome([u64; 13]);

impl Outcome {
    /// In the order of [`Count`].
    const COLUMNS: [&str; 13] = [
        "kills",
        "holding",
        "amid",
        "recoverers",
        "stops",
        "gets",
        "converted",
        "increments",
        "in data",
        "told",
        "recovered",
        "swept",
        "parked",
    ];

    pub(crate) const fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    pub(crate) fn add(&mut self, count: Count, n: u64) {
        self.0[count as usize] += n;
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    /// The heads, as wide as the cells below them.
    pub(crate) fn heads() -> String {
        Self::COLUMNS.map(|head| format!(" {head:>10}")).concat()
    }

    /// The cells.
    pub(crate) fn row(&self) -> String {
        self.0.map(|n| format!(" {n:>10}")).concat()
    }
}
