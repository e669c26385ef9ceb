//! `retrial sql`.

use super::period::TIME_MIN;
use crate::duration;
use crate::instances::Which;
use crate::output::{Format, Table, column, line};
use crate::signals;
use crate::sql::{self, Source};
use miette::{Report, miette};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Ask an instance or a recording in SQL: views with Oracle's names (v$mutex, v$session), read-only
///
/// Of a live instance each statement sees one moment, and of a recording its latest snapshot; with --over
/// what has happened in that time, else since the instance was created. The SQL is `SQLite`'s. Without a
/// statement it is read from standard input, on a terminal with history and completion. `.views` describes
/// the views, their columns and units; `.views NAME` one of them. With --json there is one result, in which
/// each column has another name; with --csv an empty line is between two results.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial sql 'SELECT name, gets, misses, wait_time_ms FROM v$mutex ORDER BY wait_time_ms DESC LIMIT 5'
  retrial sql -i demo --over 10s 'SELECT * FROM v$system_event'
  retrial sql retrial.db 'SELECT location, sum(time_s) FROM v$active_session_history GROUP BY 1 ORDER BY 2 DESC'
  retrial sql .views")]
pub struct Args {
    /// A recording, a statement, or both in this order
    #[arg(value_name = "FILE] [STATEMENT")]
    words: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// Figures of so long: a live instance is watched meanwhile, of a recording it is the last part, from
    /// a snapshot on
    #[arg(long, value_name = "TIME")]
    over: Option<String>,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let over = args.over.as_deref().map(|text| duration::at_least("--over", text, TIME_MIN)).transpose()?;
    let (file, statement) = words(&args)?;
    // What says what there is needs no instance.
    let command = statement.as_deref().filter(|statement| !statement.trim().contains('\n'));
    if let Some(described) = command.and_then(|command| described(command, format)) {
        return described.map(|()| ExitCode::SUCCESS);
    }
    let source = match file {
        Some(file) => Source::Recording(file),
        None => Source::Live(args.which.address()?),
    };
    if over.is_some() {
        signals::catch();
    }
    match statement {
        Some(statement) => script(&source, over, &statement, format)?,
        None if std::io::stdin().is_terminal() => shell(&source, over, format)?,
        None => script(&source, over, &standard_input()?, format)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The file and the statement among what was typed.
fn words(args: &Args) -> Result<(Option<PathBuf>, Option<String>), Report> {
    let is_live = args.which.is_named();
    let is_statement = |word: &str| word.starts_with('.') && !word.contains('/') || word.contains(char::is_whitespace);
    match args.words.as_slice() {
        [] => Ok((None, None)),
        [word] if is_live || is_statement(word) && !Path::new(word).exists() => Ok((None, Some(word.clone()))),
        [file] => Ok((Some(file.into()), None)),
        [file, statement] if !is_live => Ok((Some(file.into()), Some(statement.clone()))),
        many => Err(miette!(
            code = "retrial::sql::words",
            help = "retrial sql retrial.db 'SELECT * FROM v$mutex'; retrial sql -i demo 'SELECT * FROM v$mutex'",
            "{} words{}, expected a recording or an instance, and one statement in quotes",
            many.len(),
            if is_live { " beside an instance" } else { "" }
        )),
    }
}

/// Prints what `.views` says; `None` of what is no such command.
fn described(text: &str, format: Format) -> Option<Result<(), Report>> {
    let text = text.trim().trim_end_matches(';').trim();
    let rest = text.strip_prefix('.')?;
    let (command, name) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let name = Some(name.trim()).filter(|name| !name.is_empty());
    Some(match command {
        "views" if !format.is_text() && sql::describe(name).is_some() => {
            let heads = ["name", "description", "column", "type", "unit", "meaning"];
            let columns: [_; 6] = std::array::from_fn(|i| column(heads[i], move |row: &sql::Column| row[i]));
            Table::of(&columns, sql::columns(name)).print(format);
            Ok(())
        }
        "views" => sql::describe(name).map(|text| line(&text)).ok_or_else(|| {
            let known = sql::names().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
            miette!(
                code = "retrial::sql::view",
                help = "retrial sql .views",
                "no view `{}`, expected one of: {known}",
                name.unwrap_or_default()
            )
        }),
        "tables" if !format.is_text() => {
            let columns = [column("name", |row: &(&'static str, Vec<&'static str>)| row.0)];
            Table::of(&columns, sql::names()).print(format);
            Ok(())
        }
        "tables" => {
            line(&sql::names().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join("\n"));
            Ok(())
        }
        "help" => {
            line(HELP);
            Ok(())
        }
        other => Err(miette!(
            code = "retrial::sql::command",
            help = ".help",
            "command `.{other}`, expected one of .views [NAME], .tables, .help, .quit"
        )),
    })
}

const HELP: &str = "STATEMENT;      run it, on one or several lines
.views [NAME]   the views and tables with their columns and units, or one of them
.tables         their names
.quit           end; Ctrl-D too";

fn standard_input() -> Result<String, Report> {
    std::io::read_to_string(std::io::stdin()).map_err(|error| {
        miette!(code = "retrial::sql::input", help = "retrial sql 'SELECT 1'", "standard input: {error}")
    })
}

/// The commands of a script, each a line, and the statements between them.
fn parts(script: &str) -> Vec<&str> {
    let (mut parts, mut start, mut end) = (Vec::new(), 0, 0);
    for line in script.split_inclusive('\n') {
        let before = script[start..end].trim();
        let next = end + line.len();
        if line.trim_start().starts_with('.') && (before.is_empty() || before.ends_with(';')) {
            parts.extend([before, line.trim()]);
            start = next;
        }
        end = next;
    }
    parts.push(script[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Runs a script; all its statements see one moment.
fn script(source: &Source, over: Option<Duration>, script: &str, format: Format) -> Result<(), Report> {
    let parts = parts(script);
    let (commands, statements): (Vec<&str>, Vec<&str>) = parts.iter().partition(|part| part.starts_with('.'));
    if format.json && !commands.is_empty() && parts.len() > 1 {
        return Err(sql::several(parts.len()));
    }
    if statements.is_empty() && !commands.is_empty() {
        for (earlier, command) in commands.into_iter().enumerate() {
            sql::separate(earlier, format);
            described(command, format).transpose()?;
        }
        return Ok(());
    }
    let database = source.open(over, &statements.join("\n"))?;
    if commands.is_empty() {
        return sql::print(&database, script, format);
    }
    for (earlier, part) in parts.into_iter().enumerate() {
        sql::separate(earlier, format);
        described(part, format).unwrap_or_else(|| sql::print(&database, part, format))?;
    }
    Ok(())
}

/// Reads statements from a terminal. Each sees its own moment.
fn shell(source: &Source, over: Option<Duration>, format: Format) -> Result<(), Report> {
    let failed =
        |error: ReadlineError| miette!(code = "retrial::sql::terminal", help = "retrial sql 'SELECT 1'", "{error}");
    // Wrong input is known before the first statement.
    source.open(None, "")?;
    let mut editor: Editor<Completion, _> = Editor::new().map_err(failed)?;
    editor.set_helper(Some(Completion::new()));
    let history = history();
    if let Some(history) = &history {
        let _ = editor.load_history(history);
    }
    format.say("SQLite's SQL, read-only. .views says what there is, .help what else can be typed.");
    let mut statement = String::new();
    loop {
        let read = editor.readline(if statement.is_empty() { "retrial> " } else { "    ...> " });
        let typed = match read {
            Ok(typed) => typed,
            Err(ReadlineError::Interrupted) => {
                statement.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        };
        if statement.is_empty() && typed.trim().is_empty() {
            continue;
        }
        if statement.is_empty() && matches!(typed.trim().trim_end_matches(';'), ".quit" | ".exit") {
            break;
        }
        statement.push_str(&typed);
        statement.push('\n');
        let is_command = statement.starts_with('.');
        if !is_command && !typed.trim_end().ends_with(';') {
            continue;
        }
        let whole = std::mem::take(&mut statement);
        let _ = editor.add_history_entry(whole.trim());
        let answered = match described(&whole, format) {
            Some(described) => described,
            None => source.open(over, &whole).and_then(|database| sql::print(&database, &whole, format)),
        };
        if let Err(error) = answered {
            eprintln!("{error:?}");
        }
    }
    if let Some(history) = &history {
        let _ = history.parent().map(std::fs::create_dir_all);
        let _ = editor.save_history(history);
    }
    Ok(())
}

/// Where what was typed is kept.
fn history() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(state.join("retrial/sql_history"))
}

/// Completes names of tables, columns, and the words of a SELECT.
struct Completion {
    words: Vec<String>,
}

const WORDS: [&str; 22] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "HAVING",
    "LIMIT",
    "JOIN",
    "LEFT JOIN",
    "USING",
    "DISTINCT",
    "DESC",
    "AND",
    "OR",
    "NOT",
    "NULL",
    "BETWEEN",
    "LIKE",
    "count(",
    "sum(",
    "max(",
    "round(",
];

impl Completion {
    fn new() -> Self {
        let names = sql::names();
        let all = names.iter().flat_map(|(table, columns)| std::iter::once(table).chain(columns));
        let mut words: Vec<String> = all.map(|name| (*name).to_owned()).collect();
        words.extend(WORDS.map(str::to_owned));
        words.extend([".views", ".tables", ".help", ".quit"].map(str::to_owned));
        words.sort();
        words.dedup();
        Self { words }
    }
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(&self, typed: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let is_word = |c: char| c.is_alphanumeric() || "$_.".contains(c);
        let start = typed[..at].rfind(|c| !is_word(c)).map_or(0, |end| end + 1);
        let begun = typed[start..at].to_lowercase();
        let found = self.words.iter().filter(|word| word.to_lowercase().starts_with(&begun));
        Ok((start, found.cloned().collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}
