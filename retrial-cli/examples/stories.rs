//! The loads of `docs/STORIES.md`: `stories NAME [SECONDS [INSTANCE]]` makes an instance, named as the story, and
//! removes it at the end.

use retrial::{Address, Capacity, Class, Instance, Mode, P, Patience, Session, location};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Has one session do its work again and again until told to stop.
struct Story {
    name: &'static str,
    sessions: usize,
    /// What the story sets beforehand.
    set: &'static [(P, u64)],
    /// One round of a session; the first session has number 0.
    round: fn(&Instance, &Session<'_>, usize),
}

fn busy(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// An open cursor is executed again and again: pinned in E, shared while it runs, in E again to be given back.
fn execute(instance: &Instance, session: &Session<'_>, _: usize) {
    let cursor = instance.mutex("select 1 from dual where 1=2", "Cursor Pin", || 0u64).expect("a cursor");
    for _ in 0..1000 {
        let mut pin = cursor.examine(session, location!("kksfbc [KKSCHLFSP2]")).expect("pinned");
        busy(us(3)); // the handle is looked up
        pin.share();
        busy(us(3)); // it runs
        pin.examine(Patience::Endless).expect("pinned");
        busy(us(3)); // and is given back
    }
}

/// The first session compiles for 0.4 s at a time what the others want to look at.
fn compile(instance: &Instance, session: &Session<'_>, number: usize) {
    let object = instance.mutex("DEMO_PROC", "Library Cache", || 0u64).expect("an object");
    let (mode, at) = match number {
        0 => (Mode::Exclusive, location!("kglpin1 4")),
        _ => (Mode::Shared, location!("kglpnal1 90")),
    };
    session.set_action(if number == 0 { "alter procedure compile" } else { "begin demo_proc; end" });
    let held = object.get(session, mode, at, Patience::Endless).expect("held");
    if number == 0 {
        std::thread::sleep(Duration::from_millis(400));
    }
    drop(held);
    std::thread::sleep(Duration::from_millis(1));
}

/// Few sessions with short sections, among threads that fill the processors.
fn beside_others(instance: &Instance, session: &Session<'_>, number: usize) {
    if number >= 4 {
        return busy(us(1000));
    }
    let mutex = instance.mutex("orders", "Library Cache", || 0u64).expect("a mutex");
    let held = mutex.exclusive(session, location!("kglhdgn2 106")).expect("held");
    busy(us(20));
    drop(held);
    busy(us(80));
}

/// Sections of 50 us, and a wait time that is far from them.
fn with_wrong_wait_time(instance: &Instance, session: &Session<'_>, _: usize) {
    let mutex = instance.mutex("bucket 4711", "hash table", || 0u64).expect("a mutex");
    let held = mutex.exclusive(session, location!("kglhbh1 63")).expect("held");
    busy(us(50));
    drop(held);
    std::thread::sleep(us(1000));
}

const STORIES: &[Story] = &[
    Story { name: "cursor-pin", sessions: 2, set: &[], round: execute },
    Story { name: "long-holder", sessions: 9, set: &[], round: compile },
    Story { name: "full-processors", sessions: 16, set: &[], round: beside_others },
    Story {
        name: "wait-time",
        sessions: 12,
        set: &[(P::Scheme, 2 /* backoff */), (P::WaitTime, 30 /* cs */)],
        round: with_wrong_wait_time,
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let names = STORIES.iter().map(|story| story.name).collect::<Vec<_>>().join(", ");
    let name = words.next().ok_or_else(|| format!("expected the name of a story: {names}"))?;
    let story = STORIES
        .iter()
        .find(|story| story.name == name)
        .ok_or_else(|| format!("no story `{name}`, expected one of {names}"))?;
    let seconds: u64 = words.next().map_or(Ok(60), |word| word.parse())?;
    let address = Address::new(&words.next().unwrap_or(name))?;
    let instance = Instance::create(&address, Capacity::default(), 0o600)?;
    for (p, value) in story.set {
        instance.set(*p, None, *value);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..story.sessions {
            let (instance, stop) = (&instance, &stop);
            scope.spawn(move || {
                let session = instance.session(story.name, Class::Normal).expect("a session");
                while !stop.load(Ordering::Relaxed) {
                    (story.round)(instance, &session, number);
                }
            });
        }
        std::thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
    });
    drop(instance);
    Ok(retrial::remove(&address)?)
}
