//! Thins out a recording: the older, the less of it is kept.

use rusqlite::Connection;
use std::time::Duration;

/// What is older than this part of the time to keep has only snapshots that were written whole, and one sample of ten.
const FINE: u32 = 8;
const TENTH: i64 = 10;
/// Samples are chosen by the hundredths of a second in which they were taken.
const SLOT_NS: i64 = 10_000_000;

/// Rids the recording of what is older than `keep` at `now_ns`, and thins out what is older than an eighth of it.
pub(super) fn thin(connection: &mut Connection, keep: Duration, now_ns: u64) -> rusqlite::Result<()> {
    let before = |age: Duration| {
        let age_ns = crate::duration::nanos(age);
        now_ns.saturating_sub(age_ns).cast_signed()
    };
    let (old, coarse) = (before(keep), before(keep / FINE));
    let transaction = connection.transaction()?;
    // Snapshots from an old one that was written whole up to the next such one go together, for these need it.
    let is_needed = "EXISTS (SELECT 1 FROM snapshot later WHERE later.instance = snapshot.instance AND later.whole = 1 \
                     AND later.id > snapshot.id AND later.at_ns < ?1)";
    let gone = transaction.execute(&format!("DELETE FROM snapshot WHERE at_ns < ?1 AND {is_needed}"), [old])?;
    // Within each span between whole ones the others go once all of them are older.
    let fine = transaction
        .execute(&format!("DELETE FROM snapshot WHERE whole = 0 AND at_ns < ?1 AND {is_needed}"), [coarse])?;
    if gone + fine > 0 {
        for table in super::schema::TABLES.iter().filter(|table| table.is_state) {
            transaction
                .execute(&format!("DELETE FROM {} WHERE snapshot NOT IN (SELECT id FROM snapshot)", table.name), [])?;
        }
    }
    transaction.execute("DELETE FROM sample WHERE at_ns < ?1", [old])?;
    // Those that were thinned out already are in slots that stay.
    let thinned = transaction
        .execute("DELETE FROM sample WHERE at_ns < ?1 AND (at_ns / ?2) % ?3 <> 0", [coarse, SLOT_NS, TENTH])?;
    transaction.execute("DELETE FROM alert WHERE at_ns < ?1", [old])?;
    transaction.commit()?;
    if gone + fine + thinned > 0 {
        connection.prepare("PRAGMA incremental_vacuum")?.query([])?.next()?;
    }
    Ok(())
}
