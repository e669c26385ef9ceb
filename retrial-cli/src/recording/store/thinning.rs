//! Thins out a recording: the older, the less of it is kept.
//!
//! What is thinned out is added to what stays, so that averages over a period stay as they were.

use rusqlite::{Connection, Transaction};
use std::time::Duration;

/// What is older than this part of the time to keep has only snapshots that were written whole, and of the
/// samples the sums of equal ones within a minute.
const FINE: u32 = 8;
const SLOT_NS: i64 = 60_000_000_000;

/// From one snapshot that was written whole to the next one of the instance.
struct Stretch {
    instance: i64,
    first: i64,
    last: i64,
    first_ns: i64,
    last_ns: i64,
}

/// Rids the recording of what is older than `keep` at `now_ns`, and thins out what is older than an eighth of
/// it.
pub(super) fn thin(connection: &mut Connection, keep: Duration, now_ns: u64) -> rusqlite::Result<()> {
    let before = |age: Duration| {
        let age_ns = crate::duration::nanos(age);
        now_ns.saturating_sub(age_ns).cast_signed()
    };
    let (old, coarse) = (before(keep), before(keep / FINE));
    let transaction = connection.transaction()?;
    // Snapshots from an old one that was written whole up to the next such one go together, for these need
    // it.
    let gone = transaction.execute(
        "DELETE FROM snapshot WHERE at_ns < ?1 AND EXISTS (SELECT 1 FROM snapshot later \
         WHERE later.instance = snapshot.instance AND later.whole = 1 AND later.id > snapshot.id AND later.at_ns < ?1)",
        [old],
    )?;
    let stretches = stretches(&transaction, coarse)?;
    for stretch in &stretches {
        stretch.thin(&transaction)?;
    }
    if gone + stretches.len() > 0 {
        for table in super::schema::states() {
            transaction
                .execute(&format!("DELETE FROM {} WHERE snapshot NOT IN (SELECT id FROM snapshot)", table.name), [])?;
        }
    }
    // Those of the first snapshot that stays, and later ones, are what its successors say that they have
    // looked at.
    transaction.execute(
        "DELETE FROM sample WHERE at_ns < ?1 AND \
         at_ns < (SELECT min(at_ns) FROM snapshot WHERE snapshot.instance = sample.instance)",
        [old],
    )?;
    transaction.execute("DELETE FROM alert WHERE at_ns < ?1", [old])?;
    transaction.commit()?;
    if gone + stretches.len() > 0 {
        connection.prepare("PRAGMA incremental_vacuum")?.query([])?.next()?;
    }
    Ok(())
}

/// Those that are older than a moment and have not been thinned out: snapshots lie in them.
fn stretches(transaction: &Transaction<'_>, coarse: i64) -> rusqlite::Result<Vec<Stretch>> {
    let mut statement = transaction.prepare(
        "SELECT instance, first, last, (SELECT at_ns FROM snapshot WHERE id = first), last_ns FROM \
         (SELECT instance, id AS last, at_ns AS last_ns, (SELECT max(id) FROM snapshot earlier \
          WHERE earlier.instance = snapshot.instance AND earlier.whole = 1 AND earlier.id < snapshot.id) AS first \
          FROM snapshot WHERE whole = 1 AND at_ns < ?1) AS stretch \
         WHERE EXISTS (SELECT 1 FROM snapshot part WHERE part.instance = stretch.instance AND part.id > first AND part.id < last)",
    )?;
    let stretch = |row: &rusqlite::Row<'_>| {
        Ok(Stretch {
            instance: row.get(0)?,
            first: row.get(1)?,
            last: row.get(2)?,
            first_ns: row.get(3)?,
            last_ns: row.get(4)?,
        })
    };
    statement.query_map([coarse], stretch)?.collect()
}

impl Stretch {
    fn thin(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        // Each snapshot has the rounds since the one before.
        let ends = [self.instance, self.first, self.last];
        transaction.execute(
            "UPDATE snapshot SET (rounds, rounds_ns, sessions_ns, holding_ns, spinning_ns, recorder_ns) = \
             (SELECT sum(rounds), sum(rounds_ns), sum(sessions_ns), sum(holding_ns), sum(spinning_ns), sum(recorder_ns) FROM snapshot part \
              WHERE part.instance = ?1 AND part.id > ?2 AND part.id <= ?3) WHERE id = ?3",
            ends,
        )?;
        transaction.execute("DELETE FROM snapshot WHERE instance = ?1 AND id > ?2 AND id < ?3", ends)?;
        self.add_up_samples(transaction)
    }

    /// Makes one sample of those that say the same within a minute.
    fn add_up_samples(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        const SAME: &str = "sid, state, mutex, mode, location, on_x, for_event, step, blocker, action, blocker_location, \
                            blocker_mode, blocker_since_ns, blocker_pid";
        let these = "instance = ?1 AND at_ns > ?2 AND at_ns <= ?3";
        let bounds = [self.instance, self.first_ns, self.last_ns];
        transaction.execute(
            &format!(
                "CREATE TEMP TABLE sums AS SELECT min(at_ns) AS first_ns, sum(count) AS count, \
                 sum(length_ns) AS length_ns, min(since_ns) AS since_ns, {SAME} FROM sample WHERE {these} \
                 GROUP BY at_ns / {SLOT_NS}, {SAME}"
            ),
            bounds,
        )?;
        transaction.execute(&format!("DELETE FROM sample WHERE {these}"), bounds)?;
        transaction.execute(
            &format!(
                "INSERT INTO sample (at_ns, instance, count, length_ns, since_ns, {SAME}) \
                 SELECT first_ns, ?1, count, length_ns, since_ns, {SAME} FROM sums"
            ),
            [self.instance],
        )?;
        transaction.execute("DROP TABLE sums", [])?;
        Ok(())
    }
}
