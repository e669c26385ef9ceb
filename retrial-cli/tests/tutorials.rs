//! The tutorials of the book: every command is run, in the order of the page, and prints what the page says.
//!
//! * A block `c NAME` or `diff NAME` is a file of that name.
//! * A block `console` has commands behind `$ `, and below each what it prints, on standard error as well. `…`
//!   stands for any text, on a line of its own for any number of lines. Blanks count as one.
//! * In a block `console figures` a number, or several in a row, stand for any numbers, and a unit of time for
//!   any unit. Signs are compared.
//!
//! Instances begin with `tutorial-` in the pages, and with a word of this process here.

#![allow(missing_docs)]

mod kit;
#[path = "kit/may_read.rs"]
mod may_read;
#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

use kit::RETRIAL;
use may_read::may_read;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A command of a page, and what it is to print.
struct Step {
    command: String,
    expected: String,
    figures_vary: bool,
}

/// A page's files by name, and its commands.
#[derive(Default)]
struct Tutorial {
    files: Vec<(String, String)>,
    steps: Vec<Step>,
}

impl Tutorial {
    fn of(page: &str) -> Self {
        let mut tutorial = Self::default();
        let mut block: Option<(String, String)> = None;
        for event in Parser::new(page) {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    block = Some((info.into_string(), String::new()));
                }
                Event::Text(text) if let Some((_, code)) = &mut block => code.push_str(&text),
                Event::End(TagEnd::CodeBlock) => {
                    let (info, code) = block.take().unwrap();
                    tutorial.add(&info, code);
                }
                _ => {}
            }
        }
        assert!(tutorial.steps.len() > 5, "a tutorial has commands");
        tutorial
    }

    fn add(&mut self, info: &str, code: String) {
        match info.split_once(' ') {
            Some(("c" | "diff", name)) => self.files.push((name.to_owned(), code)),
            Some(("console", "figures")) => self.add_steps(&code, true),
            None if info == "console" => self.add_steps(&code, false),
            _ => panic!("a block `{info}` that nobody runs"),
        }
    }

    fn add_steps(&mut self, code: &str, figures_vary: bool) {
        for line in code.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                self.steps.push(Step { command: command.to_owned(), expected: String::new(), figures_vary });
            } else {
                let step = self.steps.last_mut().expect("a command is first");
                if step.command.ends_with('\\') {
                    let _ = write!(step.command, "\n{line}");
                } else {
                    let _ = writeln!(step.expected, "{line}");
                }
            }
        }
    }
}

/// A directory for a page, and the instances that its commands make, which are removed at the end.
struct Place {
    directory: PathBuf,
    prefix: String,
}

impl Place {
    fn new(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tutorial-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Self { directory, prefix: format!("test-{name}-{}-", std::process::id()) }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::write(&path, text.replace("tutorial-", &self.prefix)).unwrap();
        path
    }

    /// Runs all commands in one shell; what each of them has printed.
    fn run(&self, steps: &[Step]) -> Vec<String> {
        let mut script = String::from("exec 2>&1\n");
        for step in steps {
            let _ = writeln!(script, "{}\nprintf '{END}'", step.command);
        }
        let script = self.write("script", &script);
        let printed = self.directory.join("printed");
        let c = c_library();
        let path = format!("{}:{}", Path::new(RETRIAL).parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("timeout")
            // Of its own group, with all that the page has left in the background.
            .args(["--signal=KILL", "300", "bash"])
            .arg(script)
            .current_dir(&self.directory)
            .env("PATH", path)
            .env("PKG_CONFIG_PATH", c.join("lib/pkgconfig"))
            .env("LD_LIBRARY_PATH", c.join("lib"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&printed).unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        let group = libc::pid_t::try_from(shell.id()).unwrap();
        let status = shell.wait().unwrap();
        // SAFETY: the group was made above; what is left in it belongs to the page.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        let text = std::fs::read_to_string(printed).unwrap();
        assert!(status.success(), "{status} after\n{text}");
        let parts: Vec<String> = text.split(END).map(str::to_owned).collect();
        assert_eq!(parts.len(), steps.len() + 1, "{text}");
        parts
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("retrial.{}", self.prefix)) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Behind what each command prints.
const END: &str = "<end of a command>";

/// Where `retrial-c/install` has put the C library, which cargo has built with this test.
fn c_library() -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("retrial-tutorials");
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("../retrial-c/install");
    let test = std::env::current_exe().unwrap();
    let output = Command::new(install).arg(&prefix).arg(test.parent().unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", kit::both(&output));
    prefix
}

/// A text's lines in one form of blanks and with the page's names of instances; without what a shell without a
/// terminal says of a job that was killed.
fn lines(text: &str, prefix: &str, figures_vary: bool) -> Vec<String> {
    let line = |line: &str| {
        let line = line.replace(prefix, "tutorial-").split_whitespace().collect::<Vec<_>>().join(" ");
        let line = if figures_vary { without_figures(&line) } else { line };
        let mut words: Vec<&str> = line.split(' ').collect();
        words.dedup_by(|word, before| figures_vary && *word == "0" && before == word);
        words.join(" ")
    };
    text.lines().filter(|line| !(line.contains(": line ") && line.contains(" Killed "))).map(line).collect()
}

/// With `0` for each number, and `0 s` for each time.
fn without_figures(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        masked += &rest[..start];
        let end = rest[start..].find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
        let (_, after) = rest[start..].split_at(end.unwrap_or(rest.len() - start));
        masked.push('0');
        let unit = ["ns", "us", "ms", "min"].iter().find_map(|unit| {
            let after = after.strip_prefix(' ')?.strip_prefix(unit)?;
            (!after.starts_with(char::is_alphanumeric)).then_some(after)
        });
        if unit.is_some() {
            masked += " s";
        }
        rest = unit.unwrap_or(after);
    }
    masked + rest
}

/// Whether something is as the pattern says, in which some parts stand for any number of parts.
fn fits<T>(pattern: &[T], found: &[T], is_any: &impl Fn(&T) -> bool, same: &impl Fn(&T, &T) -> bool) -> bool {
    match pattern.split_first() {
        None => found.is_empty(),
        Some((first, rest)) if is_any(first) => (0..=found.len()).any(|n| fits(rest, &found[n..], is_any, same)),
        Some((first, rest)) => {
            found.split_first().is_some_and(|(next, more)| same(first, next) && fits(rest, more, is_any, same))
        }
    }
}

/// Whether a command has printed what the page says.
fn is_right(expected: &str, printed: &str, prefix: &str, figures_vary: bool) -> bool {
    let of = |text: &str| lines(text, prefix, figures_vary);
    fits(&of(expected), &of(printed), &|line| line == "…", &|a, b| line_fits(a, b))
}

fn line_fits(expected: &str, found: &str) -> bool {
    let characters = |text: &str| text.chars().collect::<Vec<_>>();
    fits(&characters(expected), &characters(found), &|c| *c == '…', &|a, b| a == b)
}

fn follow(name: &str, page: &str) {
    // One at a time: each fills the machine.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let tutorial = Tutorial::of(page);
    let place = Place::new(name);
    for (name, text) in &tutorial.files {
        place.write(name, text);
    }
    let mut wrong = String::new();
    for (step, printed) in tutorial.steps.iter().zip(place.run(&tutorial.steps)) {
        if !is_right(&step.expected, &printed, &place.prefix, step.figures_vary) {
            let _ = write!(wrong, "$ {}\nexpected:\n{}found:\n{printed}\n", step.command, step.expected);
        }
    }
    assert!(wrong.is_empty(), "docs/tutorials/{name}.md\n{wrong}");
}

#[test]
fn an_engine_in_c_counts_on_after_kill_9() {
    if may_read() {
        follow("engine", include_str!("../../docs/tutorials/engine.md"));
    }
}

#[test]
fn an_operator_finds_the_cause() {
    if may_read() {
        follow("operator", include_str!("../../docs/tutorials/operator.md"));
    }
}

#[test]
fn a_change_is_predicted_made_and_verified() {
    follow("tuning", include_str!("../../docs/tutorials/tuning.md"));
}

#[test]
fn a_page_that_is_wrong_is_noticed() {
    let wrong = |expected: &str, found: &str, figures_vary| !is_right(expected, found, "test-", figures_vary);
    assert!(!wrong("a…c\n…\nend\n", "abbc\n1\n2\nend\n", false));
    assert!(wrong("a…c\nend\n", "abbd\nend\n", false));
    assert!(wrong("1 of 2\n", "1 of 3\n", false));
    assert!(!wrong("1 of 2.5  ms, x\n", "100 of 3 us, x\n", true));
    assert!(!wrong("cpus  1 2  3\n", "cpus 4  5\n", true) && wrong("cpus 1\n", "cpus -1\n", true));
    assert!(wrong("1 of 2.5 ms, x\n", "1 of 3 us, y\n", true));
    assert!(!wrong("tutorial-a\n", "script: line 3: 77 Killed    ./a\ntest-a\n", false));
}
