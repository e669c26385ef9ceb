//! Whatever bytes are in a segment's file: attaching and observing work, or are refused by a typed error.
//!
//! The cases run in a child, which is this test program again: a case that ends it by a signal, or never
//! ends, is a failed test that names the case. `corpus/mod.rs` has what a case is, `fuzz/` what finds new
//! ones.

mod corpus;

use corpus::exercise::{Outcome, exercise, observe};
use corpus::{ADMIN, CAPACITY, Case, Patch, ROBUST_SHARED, Scratch, Start, VALUES, fence, tables};
use retrial::layout::{Layout, MAGIC};
use retrial::{Address, AttachError, Capacity, Class, Instance, Mode, MutexId, Observer, SessionError, location};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a child does.
const DEED: &str = "RETRIAL_TEST_DEED";
/// Repeats a random round.
const SEED: &str = "RETRIAL_TEST_SEED";

/// Has a child that hangs in its next case killed.
fn watch() {
    const WATCHDOG_S: u32 = 300;
    // SAFETY: has no preconditions; the default of SIGALRM ends the process.
    unsafe { libc::alarm(WATCHDOG_S) };
}

/// `SplitMix64` (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

fn seed() -> u64 {
    std::env::var(SEED).map_or_else(|_| retrial::sys::now_ns(), |seed| seed.parse().unwrap())
}

/// How a child ended: by which signal, and what it said.
struct Ended {
    signal: Option<i32>,
    success: bool,
    lines: Vec<String>,
}

fn child(deed: &str) -> Ended {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child", "--nocapture", "--test-threads=1"])
        .env(DEED, deed)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    let files = format!("-{}", child.id());
    let status = child.wait().unwrap();
    for name in retrial::list().unwrap().iter().filter(|name| name.starts_with("segment-") && name.ends_with(&files)) {
        // A child that was killed leaves its files.
        std::fs::remove_file(Address::new(name).unwrap().path()).unwrap();
    }
    Ended { signal: status.signal(), success: status.success(), lines }
}

/// Runs a child that must come to its end, and gives the number of its cases.
fn run(deed: &str) -> usize {
    let ended = child(deed);
    let last = ended.lines.iter().rev().find(|line| line.starts_with("case ")).cloned().unwrap_or_default();
    let done = ended.lines.iter().find_map(|line| line.strip_prefix("done ")?.parse().ok());
    match done {
        Some(cases) if ended.success => cases,
        _ => panic!("{deed}: signal {:?} in {last}", ended.signal),
    }
}

/// Not a test of its own: what a child does.
#[test]
fn the_child() {
    let Ok(deed) = std::env::var(DEED) else { return };
    watch();
    // Ends the line that the name of the test is in.
    println!();
    let mut words = deed.split(' ');
    let (what, arguments) = (words.next().unwrap(), words.collect::<Vec<_>>());
    let number = |i: usize| arguments[i].parse::<u64>().unwrap();
    let scratch = Scratch::new("case");
    let cases = match what {
        "corpus" => each(corpus_cases(), &scratch),
        "random" => each(random_cases(number(0), number(1)), &scratch),
        "words" => each(word_cases(number(0), number(1)), &scratch),
        "lengths" => lengths(&scratch),
        "builds" => builds(&scratch),
        "capacities" => capacities(&scratch),
        "kinds" => kinds(&scratch),
        "written" => written_while_observed(number(0), &scratch),
        "truncated" => truncated_while_mapped(number(0), arguments[1] == "observer", &scratch),
        other => panic!("{other}"),
    };
    println!("done {cases}");
}

fn each(cases: impl Iterator<Item = Case>, scratch: &Scratch) -> usize {
    let mut count = 0;
    for case in cases {
        outcome(scratch, &case);
        count += 1;
    }
    count
}

fn corpus_cases() -> impl Iterator<Item = Case> {
    Scratch::corpus().into_iter().map(|file| Case::decode(&std::fs::read(file).unwrap()))
}

fn random_cases(seed: u64, count: u64) -> impl Iterator<Item = Case> {
    let mut random = Random(seed);
    (0..count).map(move |_| {
        let len = 1 + random.below(80);
        let mut data: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        // A new length is refused most of the time, and there is one among eight changes.
        if random.below(4) != 0 {
            data.iter_mut().filter(|byte| **byte & 7 == 7).for_each(|byte| *byte ^= 4);
        }
        Case::decode(&data)
    })
}

fn table(name: &str) -> std::ops::Range<usize> {
    tables().iter().find(|table| table.name == name).unwrap().bytes.clone()
}

/// The locks in a segment: of the tables, and of each session.
fn locks() -> Vec<usize> {
    let is_lock = |at: &usize| Start::Used.bytes()[*at + 16..*at + 20] == (ROBUST_SHARED as u32).to_le_bytes();
    std::iter::once(ADMIN).chain(table("sessions").step_by(64).filter(is_lock)).collect()
}

/// Words of the entries that are in use, and of one entry more.
fn words() -> Vec<usize> {
    let first = |name: &str, bytes: usize| table(name).step_by(8).take(bytes / 8);
    let is_used = |at: &usize| Start::Used.bytes()[*at..*at + 8] != [0; 8];
    let past = table("history").step_by(64).find(is_used).expect("somebody has waited");
    // What a session has: its slot, its steps, its rows.
    let (start, len) = (table("sessions").start, locks()[3] - locks()[1]);
    let (runs, rows) = (2560, 2560 + 64 * 64);
    let of = |sid: usize, at: usize, bytes: usize| (start + sid * len + at..).step_by(8).take(bytes / 8);
    first("header", ADMIN + 64)
        .chain(first("params", 512))
        .chain(first("types", 2 * 64))
        .chain(first("locations", 2 * 256))
        .chain(first("mutexes", 5 * 256))
        .chain((past..past + 64).step_by(8))
        .chain(first("alerts", 2 * 256))
        // Of the log the first quarter; behind it the keeper's lock.
        .chain((0..3).flat_map(|sid| of(sid, 0, 896).chain(of(sid, runs - 128, 128))))
        .chain((0..3).flat_map(|sid| of(sid, rows, 2 * 192)))
        // The second session is the one that has waited.
        .chain(of(2, runs, 4 * 64))
        .chain(first("arena", 256))
        .collect()
}

/// Each of those words with each of some values, one at a time; each `of`-th case from `first` on.
fn word_cases(first: u64, of: u64) -> impl Iterator<Item = Case> {
    let mut random = Random(1);
    let cases: Vec<Case> = words()
        .into_iter()
        .flat_map(|at| {
            let values = [0, 1, 1 << 63, u64::MAX, 1 << 32, random.next()];
            values.map(|value| Case::of(Start::Used, &[Patch::Word(at, value)]))
        })
        .collect();
    cases.into_iter().skip(first as usize).step_by(of as usize)
}

#[test]
fn what_was_found_once_is_not_found_again() {
    let files = Scratch::corpus().len();
    assert!(files > 0, "there is a corpus");
    assert_eq!(run("corpus"), files);
}

#[test]
fn thousands_of_random_changes_crash_nothing_and_hang_nothing() {
    let seed = seed();
    eprintln!("{SEED}={seed}");
    std::thread::scope(|scope| {
        let halves = [seed, !seed].map(|seed| scope.spawn(move || run(&format!("random {seed} 1500"))));
        assert_eq!(halves.map(|half| half.join().unwrap()), [1500; 2], "{SEED}={seed}");
    });
}

#[test]
fn each_word_may_have_any_value() {
    std::thread::scope(|scope| {
        let halves = [0, 1].map(|first| scope.spawn(move || run(&format!("words {first} 2"))));
        let cases: usize = halves.map(|half| half.join().unwrap()).iter().sum();
        assert_eq!(cases, words().len() * 6);
        eprintln!("{cases} cases");
    });
}

/// Says which case comes, and does it.
fn outcome(scratch: &Scratch, case: &Case) -> Outcome {
    watch();
    println!("case {case}");
    exercise(case, scratch)
}

fn refused(outcome: &Outcome, expected: impl Fn(&AttachError) -> bool) -> bool {
    outcome.observed.as_ref().is_err_and(&expected) && outcome.attached.as_ref().is_err_and(&expected)
}

fn works(outcome: &Outcome) -> bool {
    outcome.observed.is_ok() && outcome.attached.is_ok()
}

#[test]
fn a_segment_is_used_when_it_is_whole_and_refused_when_it_is_shorter() {
    assert!(run("lengths") > Start::Fresh.bytes().len() / 4096 * 3);
}

/// Around each page, and around each word of the header.
fn lengths(scratch: &Scratch) -> usize {
    let whole = Start::Fresh.bytes().len();
    let pages = (0..=whole).step_by(4096).flat_map(|len| [len.saturating_sub(1), len, len + 1]);
    let words = (0..=ADMIN + 64).step_by(8).flat_map(|len| [len, len + 1, len + 7]);
    let mut cases = 0;
    for len in pages.chain(words) {
        let outcome = outcome(scratch, &Case::of(Start::Fresh, &[Patch::Len(len)]));
        let short = |error: &AttachError| match error {
            AttachError::Magic { found, .. } => len < 8 && *found == 0,
            AttachError::Truncated { found, expected, .. } => *found == len as u64 && *expected > *found,
            _ => false,
        };
        assert!(if len < whole { refused(&outcome, short) } else { works(&outcome) }, "{outcome:?}");
        cases += 1;
    }
    assert!(fence::COUNT.load(Ordering::Relaxed) > 0, "the mappings are between pages that nobody may touch");
    cases
}

#[test]
fn a_segment_of_another_build_is_refused() {
    assert_eq!(run("builds"), 128);
}

fn builds(scratch: &Scratch) -> usize {
    for bit in 0..64 {
        let other = |error: &AttachError| matches!(error, AttachError::Format { .. });
        let case = Case::of(Start::Fresh, &[Patch::Word(8, Layout::fingerprint() ^ 1 << bit)]);
        assert!(refused(&outcome(scratch, &case), other), "bit {bit} of the fingerprint");
        let none = |error: &AttachError| matches!(error, AttachError::Magic { .. });
        let case = Case::of(Start::Fresh, &[Patch::Word(0, MAGIC ^ 1 << bit)]);
        assert!(refused(&outcome(scratch, &case), none), "bit {bit} of the magic");
    }
    128
}

#[test]
fn a_capacity_is_in_its_range_and_the_file_is_as_long_as_it_says() {
    assert_eq!(run("capacities"), 5 * (VALUES.len() + 4));
}

fn capacities(scratch: &Scratch) -> usize {
    let Capacity { sessions, mutexes, locations, rows, arena } = CAPACITY;
    let ours = [u64::from(sessions), u64::from(mutexes), u64::from(locations), u64::from(rows), arena];
    let ranges = [1..=1 << 20, 1..=16_000_000, 1..=65_535, 1..=4096, 0..=1 << 40];
    let mut cases = 0;
    for (i, range) in ranges.into_iter().enumerate() {
        let ends = [*range.start(), *range.end(), *range.end() + 1, ours[i] + 1];
        for value in VALUES.into_iter().chain(ends) {
            let outcome = outcome(scratch, &Case::of(Start::Fresh, &[Patch::Word(16 + 8 * i, value)]));
            let expected = |error: &AttachError| match error {
                AttachError::Capacity { found, .. } => *found == value && !range.contains(&value),
                AttachError::Truncated { .. } => value > ours[i] && range.contains(&value),
                _ => false,
            };
            // A few more may fit, since tables are whole pages.
            let fits = range.contains(&value) && value <= ours[i] + 16;
            assert!(refused(&outcome, expected) || fits && works(&outcome), "{outcome:?}");
            cases += 1;
        }
    }
    cases
}

#[test]
fn a_lock_that_is_none_of_ours_is_never_given_to_libc() {
    assert_eq!(locks().len(), 5, "of the tables, and two of each of two sessions");
    assert_eq!(run("kinds"), 5 * 259);
}

/// glibc follows the kind of a mutex: over some it ends the process, others it takes for the caller's.
fn kinds(scratch: &Scratch) -> usize {
    let others = (0..256).chain([256, 512, 256 | ROBUST_SHARED, 512 | ROBUST_SHARED]);
    let kinds: Vec<u64> = others.filter(|kind| *kind != ROBUST_SHARED).collect();
    for (i, at) in locks().into_iter().enumerate() {
        for kind in &kinds {
            let case = Case { operations: vec![1, 7], ..Case::of(Start::Used, &[Patch::Word(at + 16, *kind)]) };
            let outcome = outcome(scratch, &case);
            assert!(outcome.observed.is_ok(), "observers take no lock: {outcome:?}");
            match outcome.attached {
                Err(AttachError::Capacity { field: "lock kind", found, .. }) => assert!(i == 0 && found == *kind),
                attached => assert!(i > 0 && attached.is_ok(), "{attached:?}"),
            }
        }
    }
    locks().len() * kinds.len()
}

#[test]
fn a_new_object_is_where_64_divides_whatever_the_header_says() {
    /// Where the header has the end of the objects.
    const ARENA_NEXT: usize = 128;
    let scratch = Scratch::new("arena");
    for next in [0, 1, 63, 65, 4095, 4096, u64::MAX - 64, u64::MAX] {
        let case = Case::of(Start::Fresh, &[Patch::Word(ARENA_NEXT, next)]);
        std::fs::write(scratch.path(), case.bytes()).unwrap();
        let instance = Instance::attach(&scratch.0).unwrap();
        assert_eq!(instance.tables().arena_used(), next);
        match instance.mutex("new", "test", || 1u64) {
            Ok(mutex) => {
                assert!(next <= 65 && instance.tables().offset_of(mutex.id()).unwrap().is_multiple_of(64), "{next}");
            }
            Err(error) => {
                assert!(next > 65 && error.to_string().contains("`arena`"), "{next}: {error}");
                assert_eq!(instance.tables().last_mutex(), MutexId(0), "{next}: no entry was claimed for it");
            }
        }
    }
}

#[test]
fn a_lock_of_the_tables_that_somebody_else_seems_to_hold_is_a_typed_error() {
    let scratch = Scratch::new("stuck");
    let case = Case::of(Start::Fresh, &[Patch::Word(ADMIN, 1)]);
    std::fs::write(scratch.path(), case.bytes()).unwrap();
    let instance = Instance::attach(&scratch.0).unwrap();
    assert_eq!(instance.session("s", Class::Normal).map(drop), Err(SessionError::Stuck));
}

/// Says when it is over, also by a panic: the thread beside would go on for ever.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_file_that_is_replaced_while_others_attach_is_one_or_the_other() {
    let scratch = Scratch::new("replaced");
    let directory = scratch.path().parent().unwrap().to_owned();
    let other: PathBuf = directory.join(format!("retrial.segment-next-{}", std::process::id()));
    let contents: [&[u8]; 5] =
        [Start::Used.bytes(), b"", &Start::Used.bytes()[..4096], b"not a segment", Start::Fresh.bytes()];
    let done = AtomicBool::new(false);
    let replace = |round: usize| {
        std::fs::write(&other, contents[round % contents.len()]).unwrap();
        std::fs::rename(&other, scratch.path()).unwrap();
    };
    replace(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) {
                rounds += 1;
                replace(rounds);
            }
        });
        let _over = Over(&done);
        let (mut worked, mut refused, mut tries) = (0, 0, 0);
        while worked < 100 || refused < 100 {
            tries += 1;
            match Instance::attach(&scratch.0) {
                Ok(instance) => {
                    observe(instance.tables());
                    drop(instance.session("attached", Class::Normal));
                    worked += 1;
                }
                Err(AttachError::Magic { .. } | AttachError::Truncated { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(tries < 1_000_000, "{worked} worked, {refused} were refused");
        }
    });
}

#[test]
fn an_instance_that_was_removed_replaced_or_grown_goes_on_for_those_who_are_in_it() {
    let deeds: [fn(&Scratch); 4] = [
        |scratch| retrial::remove(&scratch.0).unwrap(),
        |scratch| {
            retrial::remove(&scratch.0).unwrap();
            drop(Instance::create(&scratch.0, Capacity::default(), 0o600).unwrap());
        },
        |scratch| {
            retrial::remove(&scratch.0).unwrap();
            std::fs::write(scratch.path(), "something else").unwrap();
        },
        |scratch| {
            std::fs::OpenOptions::new().write(true).open(scratch.path()).unwrap().set_len(1 << 30).unwrap();
        },
    ];
    for (i, deed) in deeds.into_iter().enumerate() {
        let scratch = Scratch::new(&format!("gone-{i}"));
        let instance = Instance::create(&scratch.0, CAPACITY, 0o600).unwrap();
        let mutex = instance.mutex("m", "test", || 1u64).unwrap();
        let before = instance.session("before", Class::Normal).unwrap();
        let mut guard = mutex.exclusive(&before, location!("before")).unwrap();
        let observer = Observer::open(&scratch.0).unwrap();
        deed(&scratch);
        *guard += 1;
        drop(guard);
        let after = instance.session("after", Class::Normal).unwrap();
        assert_eq!(
            *mutex.get(&after, Mode::Shared, location!("after"), retrial::Patience::None).unwrap(),
            2,
            "deed {i}"
        );
        assert_eq!(observer.tables().sessions().len(), 2, "deed {i}");
        drop((before, after));
        assert!(instance.mutex("another", "test", || 2u64).is_ok(), "deed {i}");
        observe(instance.tables());
        observe(observer.tables());
        let whole = Instance::attach(&scratch.0).is_ok();
        assert_eq!(whole, i == 1 || i == 3, "deed {i}");
    }
}

#[test]
fn an_observer_survives_a_writer_that_writes_anything_anywhere() {
    let seed = seed();
    eprintln!("{SEED}={seed}");
    assert!(run(&format!("written {seed}")) > 0, "{SEED}={seed}");
}

/// One thread looks at everything while another writes hostile words over it, the header's too.
fn written_while_observed(seed: u64, scratch: &Scratch) -> usize {
    std::fs::write(scratch.path(), Start::Used.bytes()).unwrap();
    let observer = Observer::open(&scratch.0).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(scratch.path()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(seed);
            while !done.load(Ordering::Relaxed) {
                let table = &tables()[random.below(tables().len())].bytes;
                let at = table.start + 8 * random.below((table.len() / 8).min(512));
                let value = if random.below(2) == 0 { VALUES[random.below(VALUES.len())] } else { random.next() };
                file.write_all_at(&value.to_le_bytes(), at as u64).unwrap();
            }
        });
        let _over = Over(&done);
        for _ in 0..200 {
            observe(observer.tables());
        }
    });
    200
}

#[test]
fn a_segment_that_is_truncated_while_it_is_mapped_raises_sigbus_and_nothing_else() {
    for len in [0, 4096] {
        for who in ["observer", "instance"] {
            let ended = child(&format!("truncated {len} {who}"));
            assert!(ended.lines.iter().any(|line| line == "case truncated"), "{who}, {len} bytes: got there");
            assert_eq!(ended.signal, Some(libc::SIGBUS), "{who}, {len} bytes");
        }
    }
}

fn truncated_while_mapped(len: u64, observes: bool, scratch: &Scratch) -> usize {
    std::fs::write(scratch.path(), Start::Used.bytes()).unwrap();
    let observer = Observer::open(&scratch.0).unwrap();
    let instance = Instance::attach(&scratch.0).unwrap();
    std::fs::OpenOptions::new().write(true).open(scratch.path()).unwrap().set_len(len).unwrap();
    println!("case truncated");
    if observes {
        observe(observer.tables());
    } else {
        drop(instance.session("too late", Class::Normal));
    }
    1
}
