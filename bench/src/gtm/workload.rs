//! What the processes do, and what the database must have afterwards.

/// A load: a routine with the labels `setup`, `block` and `check`.
#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    pub routine: &'static str,
    pub operation: &'static str,
    /// What is wrong with what `check` found after so many operations.
    pub wrong: fn(&[u64], u64) -> Option<String>,
}

pub static WORKLOADS: [Workload; 2] = [
    Workload { name: "3n+1", routine: "stopping", operation: "integers", wrong: wrong_stopping },
    Workload { name: "interest", routine: "interest", operation: "postings", wrong: wrong_interest },
];

pub fn workload(text: &str) -> Result<&'static Workload, String> {
    let names = || WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ");
    WORKLOADS.iter().find(|w| w.name == text).ok_or_else(|| format!("`{text}`, expected one of {}", names()))
}

/// Steps to 1 of the integers up to a limit: their sum, the first integer with the most, and how many those
/// are.
fn stopping_times(limit: u64) -> (u64, u64, u64) {
    let mut steps: Vec<u64> = vec![0, 0];
    let (mut sum, mut longest, mut most) = (0, 0, 0);
    for n in 2..=limit {
        let (mut at, mut count) = (n, 0);
        while at >= n {
            at = if at % 2 == 1 { 3 * at + 1 } else { at / 2 };
            count += 1;
        }
        count += usize::try_from(at).ok().and_then(|at| steps.get(at)).copied().unwrap_or(0);
        steps.push(count);
        sum += count;
        if count > most {
            (longest, most) = (n, count);
        }
    }
    (sum, longest, most)
}

/// `check^stopping`: integers, the sum of their steps, the first with the most, how many.
fn wrong_stopping(found: &[u64], operations: u64) -> Option<String> {
    let (sum, longest, most) = stopping_times(operations);
    let expected = [operations, sum, longest, most];
    (found != expected)
        .then(|| format!("integers, sum of steps, longest run, its steps: {found:?}, expected {expected:?}"))
}

/// `check^interest`: postings, the sum of balances, what was there at first and was posted, accounts with
/// another balance than their postings give.
fn wrong_interest(found: &[u64], operations: u64) -> Option<String> {
    let paid = found.get(2).copied().unwrap_or(0);
    let expected = [operations, paid, paid, 0];
    (found != expected)
        .then(|| format!("postings, balances, opened and posted, wrong accounts: {found:?}, expected {expected:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_to_1_are_the_known_ones() {
        // 27 takes 111 steps; the longest below a million is that of 837,799.
        assert_eq!(stopping_times(27), (387, 27, 111));
        // 18 and 19 both take 20: the first counts.
        let (_, longest, most) = stopping_times(19);
        assert_eq!((longest, most), (18, 20));
        let (_, longest, most) = stopping_times(999_999);
        assert_eq!((longest, most), (837_799, 524));
    }

    #[test]
    fn results_that_are_not_right_are_found() {
        let (sum, longest, most) = stopping_times(100);
        assert_eq!(wrong_stopping(&[100, sum, longest, most], 100), None);
        for found in
            [[80, sum, longest, most], [100, sum + 1, longest, most], [100, sum, 98, most], [100, sum, longest, 0]]
        {
            assert!(wrong_stopping(&found, 100).is_some(), "{found:?}");
        }
        assert!(wrong_stopping(&[], 100).is_some());
        assert_eq!(wrong_interest(&[40, 1234, 1234, 0], 40), None);
        for found in [[39, 1234, 1234, 0], [40, 1233, 1234, 0], [40, 1234, 1234, 1]] {
            assert!(wrong_interest(&found, 40).is_some(), "{found:?}");
        }
        assert!(wrong_interest(&[], 40).is_some());
    }
}
