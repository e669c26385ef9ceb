//! The book (`mdbook build docs`): every page is in its table of contents once, every link leads somewhere, and the
//! pages of reference say what the tables in the code say.

#![allow(missing_docs)]

#[path = "kit/declared.rs"]
mod declared;
mod kit;

use declared::Errors;
use kit::command;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use retrial::P;
use retrial::views::Domain;
use retrial_model::Measure;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The pages of `docs`, by their path from there.
fn pages() -> BTreeSet<String> {
    let docs = root().join("docs");
    let mut pages = BTreeSet::new();
    for directory in ["", "reference", "tutorials"].map(|name| docs.join(name)) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("SUMMARY.md") {
                pages.insert(path.strip_prefix(&docs).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    pages
}

/// Where a page's links and pictures lead, and the anchors that it has.
fn links_and_anchors(text: &str) -> (Vec<String>, BTreeSet<String>) {
    let (mut links, mut anchors) = (Vec::new(), BTreeSet::new());
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) if let Some(heading) = &mut heading => heading.push_str(&text),
            Event::End(TagEnd::Heading(_)) => {
                let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
                let title = heading.take().unwrap().to_lowercase();
                anchors.insert(title.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect());
            }
            _ => {}
        }
    }
    (links, anchors)
}

#[test]
fn the_table_of_contents_has_every_page_once() {
    let (mut listed, _) = links_and_anchors(&std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap());
    listed.sort();
    assert_eq!(listed, pages().into_iter().collect::<Vec<_>>());
}

#[test]
fn every_link_leads_somewhere() {
    let docs = root().join("docs");
    let mut sources: Vec<PathBuf> = pages().iter().map(|page| docs.join(page)).collect();
    sources.extend([root().join("README.md"), root().join("CHANGELOG.md")]);
    let read = |path: &Path| links_and_anchors(&std::fs::read_to_string(path).unwrap());
    let mut broken = Vec::new();
    for page in sources {
        for link in read(&page).0.into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_right = target.canonicalize().is_ok_and(|target| {
                // The book has what is in `docs` alone.
                let is_in_book = target.starts_with(&docs) || !page.starts_with(&docs);
                is_in_book && (anchor.is_empty() || read(&target).1.contains(anchor))
            });
            if !is_right {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// What a page of `docs/reference` has is what the code says.
fn check_reference(name: &str, title: &str, begin: &str, body: &str) {
    let path = root().join("docs/reference").join(name);
    let text =
        format!("# {title}\n\n{begin}\n\nGenerated: `RETRIAL_BLESS=1 cargo test -p retrial-cli --test book`\n{body}");
    if std::env::var_os("RETRIAL_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = text.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    assert!(text == expected, "RETRIAL_BLESS=1 writes {} anew: {differs:?}", path.display());
}

/// A table of Markdown; `|` is no end of a cell, and `<` no tag.
fn table<const N: usize>(heads: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("\n{}|{}\n", line(&heads.map(str::to_owned)), "---|".repeat(N));
    for row in rows {
        text += &line(&row.map(|cell| cell.replace('|', "\\|").replace('<', "&lt;")));
    }
    text
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

#[test]
fn the_parameters_are_those_of_the_table() {
    let rows = P::ALL.iter().map(|p| {
        let row = p.row();
        let values = match row.domain {
            Domain::Number(low, high) => format!("{low} to {high}"),
            Domain::Names(names) => names.iter().map(|name| code(name)).collect::<Vec<_>>().join(", "),
        };
        [code(row.name), p.format(row.default), values, row.unit.to_owned(), row.description.to_owned()]
    });
    let begin = "`retrial set -i NAME PARAMETER=VALUE` sets one for an instance, with `--type TYPE` for the mutexes of one type.\n\
         A change takes effect at the next step of every wait, also of those under way. `retrial show params` has the\n\
         values in force.";
    check_reference(
        "parameters.md",
        "Parameters",
        begin,
        &table(["parameter", "default", "values", "unit", "what it is"], rows),
    );
}

#[test]
fn the_measures_are_those_of_the_table() {
    let described = String::from_utf8(command(&["sql", ".views", "--csv"]).output().unwrap().stdout).unwrap();
    let columns: BTreeSet<String> =
        csv::Reader::from_reader(described.as_bytes()).into_records().map(|row| row.unwrap()[2].to_owned()).collect();
    let rows = Measure::ALL.iter().map(|measure| {
        let name = measure.name();
        let ends = ["", "_s", "_ms", "_us", "_pct"].map(|unit| format!("{name}{unit}"));
        let column =
            ends.iter().find(|column| columns.contains(*column)).map_or_else(String::new, |column| code(column));
        [code(name), measure.symbol().into(), measure.unit().into(), column, measure.description().into()]
    });
    let begin = "What follows from the counters of a mutex, a session or an instance, measured or simulated. The same names are\n\
         figures of `retrial watch` and results of `retrial model`; `report` and `run` have some of them under shorter\n\
         names. A measure is absent where there is nothing to compute it from. [Words and symbols](../GLOSSARY.md)\n\
         explains the most important ones.";
    let heads = ["measure", "symbol", "unit", "column of the views", "what it is"];
    check_reference("measures.md", "Measures", begin, &table(heads, rows));
}

#[test]
fn the_views_are_those_that_sql_describes() {
    // No instance is needed for it.
    let output = command(&["sql", ".views"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", kit::both(&output));
    let mut body = String::new();
    for view in String::from_utf8(output.stdout).unwrap().trim_end().split("\n\n") {
        let (head, columns) = view.split_once('\n').unwrap();
        let (name, doc) = head.split_once(": ").unwrap();
        let rows = columns.lines().map(|column| {
            let mut rest = column.trim_start();
            let cells = [(); 3].map(|()| {
                let (cell, more) = rest.split_once(' ').unwrap();
                rest = more.trim_start();
                cell
            });
            let unit = if cells[2] == "-" { "" } else { cells[2] };
            [code(cells[0]), cells[1].to_owned(), unit.to_owned(), rest.to_owned()]
        });
        let _ = write!(body, "\n## `{name}`\n\n{doc}.\n{}", table(["column", "type", "unit", "what it is"], rows));
    }
    let begin = "What `retrial sql` can be asked, of a live instance or a recording; the tables of the recording's file are the\n\
         last ones. `retrial sql .views` prints the same.";
    check_reference("views.md", "Views of `sql`", begin, &body);
}

#[test]
fn the_errors_are_those_that_the_code_declares() {
    let errors = |sources: &str| Errors::of(&root().join(sources));
    let rows = retrial_c::CODES.iter().map(|(name, number, text)| {
        [code(&format!("RETRIAL_{name}")), number.to_string(), text.to_str().unwrap().to_owned()]
    });
    let mut body = String::from("\n## Of C calls\n");
    body += &table(["answer", "number", "what it means"], rows);
    body += "\nA get of X that finds the mutex free, and its release, make no call: `RETRIAL_NOT_MY_SESSION` for the session of\n\
             another thread and `RETRIAL_REENTERED` in a signal handler are answered there only with `-DRETRIAL_DEBUG`, as is\n\
             `RETRIAL_INVALID` for a mutex in private memory.\n";
    body += "\n## Of the library\n";
    for (name, doc, rows) in ["retrial/src", "retrial-cache/src"].map(errors).into_iter().flat_map(|all| all.declared) {
        let _ = write!(body, "\n### `{name}`\n\n{doc}\n{}", table(["", "message", "what it means"], rows));
    }
    body += "\n## Of the command\n\n\
             Errors of the library, of a cache and of the models have a code of their kind besides, as\n\
             `retrial::attach::permission`, with the message above and what to type.\n";
    let of_commands = ["retrial-bench/src", "retrial-cli/src"].map(errors).into_iter().flat_map(|all| all.of_commands);
    let rows: BTreeSet<_> = of_commands.collect();
    body += &table(["code", "message", "what to type"], rows);
    let begin = "Each message says what was found, what was expected, and what to do; `…` is what differs.\n\
         [C](../C.md), *Answers*, says what a C program does with an answer, [Use the library and the\n\
         command](../USING.md) how commands end.";
    check_reference("errors.md", "Errors", begin, &body);
}
