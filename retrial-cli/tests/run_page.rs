//! The report of `retrial run` as a page, and the recording of a run as Parquet files.

#![allow(missing_docs)]

mod kit;
#[path = "kit/preload.rs"]
mod preload;

use kit::directory::Directory;
use kit::{RETRIAL, stderr, words};
use parquet::file::reader::{FileReader, SerializedFileReader};
use preload::library;
use retrial_bench::output::markup;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Two threads with one mutex, and a semaphore that is waited for.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t done;
static void *work(void *unused) {
    struct timespec time = { 0, 100000 };
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&mutex);
        nanosleep(&time, 0);
        pthread_mutex_unlock(&mutex);
    }
    sem_post(&done);
    return unused;
}
int main(void) {
    pthread_t threads[2];
    sem_init(&done, 0, 0);
    puts("ran");
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; i++) sem_wait(&done);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

/// A directory with the program.
fn compiled() -> Directory {
    let scratch = Directory::new();
    fs::write(scratch.path("program.c"), PROGRAM).unwrap();
    let program = ["-g", "-O1", "-pthread", "-o", &scratch.path("a<b>&c"), &scratch.path("program.c")];
    assert!(Command::new("cc").args(program).status().unwrap().success());
    scratch
}

/// `retrial run` of the program with these options.
fn run(scratch: &Directory, options: &[&str]) -> Output {
    let mut command = Command::new(RETRIAL);
    command.arg("run").args(options).args(["--", &scratch.path("a<b>&c")]);
    command.env("RETRIAL_PRELOAD_LIBRARY", library()).env("NO_COLOR", "1").output().unwrap()
}

/// That a page has every word of a text, in the same order.
fn has_every_word(page: &str, text: &str) {
    let mut rest = page;
    for word in text.split_whitespace() {
        let shown = markup(word);
        let found = rest.find(&shown).unwrap_or_else(|| panic!("no {shown} of\n{text}\nin {rest}"));
        // What has been passed is not looked at again.
        rest = &rest[found + shown.len()..];
    }
}

#[test]
fn a_page_has_every_figure_of_the_text() {
    let scratch = compiled();
    let (text, page, profile) = (scratch.path("r.txt"), scratch.path("r.html"), scratch.path("profile"));
    for more in [&[][..], &[&*format!("--profile={profile}")]] {
        let output = run(&scratch, &[&["--report", &text, "--html", &page], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stderr(&output), format!("retrial: report in {text}\nretrial: report in {page}\n"));
        let (text, page) = (fs::read_to_string(&text).unwrap(), fs::read_to_string(&page).unwrap());
        has_every_word(&page, &text);
        for section in ["MUTEXES, WAITED FOR MOST FIRST", "WAIT EVENTS", "WAITS FOR EVENTS, WHICH NOBODY HOLDS"] {
            assert!(text.contains(section), "{text}");
        }
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
        assert!(!page.contains("<script") && page.contains("content=\"default-src 'none'; style-src"), "{page}");
        // The wait time in shares, how long the waits were, and of a profile the flame graphs.
        assert_eq!(page.matches("<svg class=\"bar\"").count(), 1, "{page}");
        assert!(page.contains("<div class=\"lengths\">"), "{page}");
        let flames = ["time waited for locks: ", "time locks were held: "];
        assert!(flames.iter().all(|title| page.contains(title) != more.is_empty()), "{page}");
        let widths = page.split_once("<svg class=\"bar\"").unwrap().1.split_once("</svg>").unwrap().0;
        let widths = widths.split(" width=\"").skip(2).filter_map(|rest| Some(rest.split_once("%\" height")?.0));
        let sum = widths.fold(0.0, |sum, width| sum + width.parse::<f64>().unwrap());
        assert!((sum - 100.0).abs() < 0.01, "{sum}");
    }
}

#[test]
fn a_page_is_instead_of_the_text() {
    let scratch = compiled();
    let page = scratch.path("r.html");
    let output = run(&scratch, &["--html", &page]);
    assert_eq!(stderr(&output), format!("retrial: report in {page}\n"));
    let output = run(&scratch, &["--html", &page, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&stderr(&output)).unwrap();
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains(report["instance"].as_str().unwrap()), "both are of this run: {page}");
}

#[test]
fn a_page_that_cannot_be_written_is_said_before_the_program_runs() {
    let scratch = compiled();
    let said = |options: &[&str]| {
        let output = run(&scratch, options);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{}", stderr(&output));
        words(&output)
    };
    let absent = said(&["--html", "/no/such/directory/r.html"]);
    assert!(absent.contains("/no/such/directory/r.html: No such file") && absent.contains("mkdir -p"), "{absent}");
    // What is there and is no page is left as it is.
    let source = scratch.path("program.c");
    let no_page = said(&["--html", &source]);
    assert!(
        no_page.contains("expected a name that ends in .html") && no_page.contains("retrial run --html"),
        "{no_page}"
    );
    assert_eq!(fs::read_to_string(&source).unwrap(), PROGRAM);
    let no_directory = said(&["--record", &scratch.path("r.db"), "--parquet", &format!("{source}/below")]);
    assert!(no_directory.contains("Not a directory"), "{no_directory}");
    let no_recording = said(&["--parquet", &scratch.path("parquet")]);
    assert!(no_recording.contains("--record <FILE>"), "{no_recording}");
}

#[test]
fn the_recording_of_a_run_is_written_as_parquet_files_too() {
    let scratch = compiled();
    let (file, to) = (scratch.path("r.db"), scratch.path("parquet"));
    let output = run(&scratch, &["--record", &file, "--parquet", &to]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows = rusqlite::Connection::open(&file).unwrap();
    for table in ["snapshot", "wait", "mutex"] {
        let expected: i64 = rows.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        let found = parts(&Path::new(&to).join(table)).into_iter().map(|path| {
            SerializedFileReader::new(File::open(path).unwrap()).unwrap().metadata().file_metadata().num_rows()
        });
        assert!(expected > 0, "{table}");
        assert_eq!(found.sum::<i64>(), expected, "{table}");
    }
}

/// Every file below a directory.
fn parts(below: &Path) -> Vec<PathBuf> {
    let each = |path: PathBuf| if path.is_dir() { parts(&path) } else { vec![path] };
    fs::read_dir(below).unwrap().flat_map(|entry| each(entry.unwrap().path())).collect()
}
