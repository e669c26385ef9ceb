//! What is said of a statement that cannot be answered: where, and what may have been meant.

use super::tables::names;
use crate::output::quoted;
use miette::{Report, miette};
use rusqlite::{Error, ErrorCode};

/// Letters that may be wrong in a name of so many.
const LETTERS_PER_SLIP: usize = 3;

/// Of an expression over the columns of a table that began so many bytes into a statement.
pub fn of_expression(expression: &str, table: &str, before: usize, error: &Error) -> Report {
    if is_refused(error) {
        return report(expression, error);
    }
    let (said, offset) = said(error);
    let offset = offset.and_then(|offset| offset.checked_sub(before)).map(|offset| offset.min(expression.len()));
    let views = || format!("retrial sql {}", quoted(&format!(".views {table}")));
    let help = unknown(&said).map_or_else(views, |(what, name)| help(what, name, &format!("{expression} {table}")));
    let shown = shown(expression, offset);
    miette!(
        code = "retrial::sql::expression",
        help = help,
        "{said}, expected a condition over the columns of {table}\n{}",
        shown.trim_end()
    )
}

/// Of a condition without anything in it.
pub fn no_expression(table: &str) -> Report {
    let help = format!("--where \"mutex = 'accounts'\"; retrial sql {}", quoted(&format!(".views {table}")));
    miette!(
        code = "retrial::sql::expression",
        help = help,
        "an empty condition, expected one over the columns of {table}, or none"
    )
}

/// Of a script without a statement in it.
pub fn no_statement() -> Report {
    miette!(
        code = "retrial::sql::statement",
        help = "retrial sql 'SELECT * FROM v$mutex'; retrial sql .views",
        "no statement, expected one in SQL"
    )
}

/// Of several results as JSON.
pub fn several(results: usize) -> Report {
    miette!(
        code = "retrial::sql::json",
        help = "retrial sql --json 'SELECT 1', once for each statement; or --csv",
        "{results} results, expected one with --json: together they are no JSON document"
    )
}

/// Of two columns of a name as JSON.
pub fn named_twice(name: &str) -> Report {
    miette!(
        code = "retrial::sql::json",
        help = "retrial sql --json 'SELECT 1 AS a, 2 AS b'; or --csv",
        "two columns are named {}, expected another name for each with --json",
        quoted(name)
    )
}

/// Of a script, or of that one of its statements that the error has.
pub fn report(script: &str, error: &Error) -> Report {
    let sql = if let Error::SqlInputError { sql, .. } = error { sql } else { script };
    if is_refused(error) {
        return miette!(
            code = "retrial::sql::read_only",
            help = "retrial sql 'SELECT * FROM v$mutex'",
            "a statement that would change something, expected one that only reads\n{}",
            shown(sql, None).trim_end()
        );
    }
    let (said, offset) = said(error);
    // Of a table `SQLite` does not say where it is.
    let offset = offset.or_else(|| sql.find(unknown(&said)?.1));
    let help = unknown(&said).map_or_else(|| "retrial sql .views".to_owned(), |(what, name)| help(what, name, sql));
    miette!(code = "retrial::sql::statement", help = help, "{said}\n{}", shown(sql, offset).trim_end())
}

/// Whether it would change something.
fn is_refused(error: &Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::AuthorizationForStatementDenied | ErrorCode::ReadOnly))
}

/// What `SQLite` says, and where in the statement.
fn said(error: &Error) -> (String, Option<usize>) {
    match error {
        Error::SqlInputError { msg, offset, .. } => (msg.clone(), usize::try_from(*offset).ok()),
        other => (other.to_string(), None),
    }
}

/// The line that the error is in, with a caret below where it is.
fn shown(sql: &str, offset: Option<usize>) -> String {
    let offset = offset.filter(|offset| sql.is_char_boundary(*offset));
    let start = sql[..offset.unwrap_or(0)].rfind('\n').map_or(0, |end| end + 1);
    let line = sql[start..].lines().next().unwrap_or_default();
    let caret = offset.map(|offset| format!("  {}^\n", " ".repeat(sql[start..offset].chars().count())));
    format!("  {line}\n{}", caret.unwrap_or_default())
}

/// Which kind of name is not known, and the name.
fn unknown(said: &str) -> Option<(&'static str, &str)> {
    let of = |prefix| said.strip_prefix(prefix).map(|name: &str| name.rsplit_once('.').map_or(name, |(_, name)| name));
    of("no such table: ").map(|name| ("table", name)).or_else(|| of("no such column: ").map(|name| ("column", name)))
}

fn help(what: &str, name: &str, sql: &str) -> String {
    let name = name.trim_matches('"').to_lowercase();
    let all = names();
    let lower = sql.to_lowercase();
    let candidates: Vec<&str> = if what == "table" {
        all.iter().map(|(table, _)| *table).collect()
    } else {
        // Those of the tables that the statement is about.
        let meant = all.iter().filter(|(table, _)| mentions(&lower, table));
        meant.flat_map(|(_, columns)| columns.iter().copied()).collect()
    };
    match nearest(&name, candidates) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None if what == "table" => "retrial sql .views".to_owned(),
        None => {
            let table = all.iter().find(|(table, _)| mentions(&lower, table)).map_or("", |(table, _)| *table);
            format!("retrial sql {}", quoted(format!(".views {table}").trim_end()))
        }
    }
}

/// The name that was probably meant.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let slips = |candidate: &str| strsim::damerau_levenshtein(candidate, name);
    let nearest = candidates
        .into_iter()
        .min_by_key(|candidate| (!candidate.contains(name) && !name.contains(*candidate), slips(candidate)))?;
    let is_near = nearest.contains(name) || slips(nearest) <= name.len() / LETTERS_PER_SLIP;
    is_near.then_some(nearest)
}

/// Whether a statement has this word in it.
fn mentions(sql: &str, word: &str) -> bool {
    sql.split(|c: char| !c.is_alphanumeric() && !"$_".contains(c)).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_is_below_the_place() {
        assert_eq!(shown("SELECT gest\nFROM t", Some(7)), "  SELECT gest\n         ^\n");
        assert_eq!(shown("SELECT 'ä',\n  x\nFROM t", Some(15)), "    x\n    ^\n");
        assert_eq!(shown("SELECT 1", None), "  SELECT 1\n");
    }

    #[test]
    fn what_may_have_been_meant_is_said() {
        assert_eq!(help("table", "v$mutexes", "SELECT * FROM v$mutexes"), "did you mean v$mutex?");
        assert_eq!(help("table", "mutex_sleep_history", ""), "did you mean v$mutex_sleep_history?");
        let (what, name) = unknown("no such column: m.gest").unwrap();
        assert_eq!(help(what, name, "SELECT m.gest FROM v$mutex m"), "did you mean gets?");
        assert_eq!(help("column", "qqqqqq", "SELECT qqqqqq FROM v$mutex"), "retrial sql '.views v$mutex'");
        assert_eq!(help("table", "zzzzzz", ""), "retrial sql .views");
    }
}
