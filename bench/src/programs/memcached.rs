//! Connections that load memcached, each answer checked.

use super::pace::Pace;
use miette::{Report, miette};
use retrial_bench::cell::Stopped;
use std::io::{self, BufRead, BufReader, Error, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CONNECTIONS: u64 = 8;
const KEYS: u64 = 10_000;
const GETS_TO_A_SET: u64 = 9;
/// Commands that are sent before their answers are read.
const AT_A_TIME: usize = 32;
/// An answer that takes longer will not come.
const SILENCE: Duration = Duration::from_mins(1);

/// Operations per second of all connections.
pub fn load(socket: &Path, duration: Duration, pace: &mut Pace) -> Result<f64, Stopped> {
    Connection::open(socket, 0).and_then(|mut connection| connection.fill()).map_err(|error| failed(&error))?;
    let stop = AtomicBool::new(false);
    let work = |seed| Connection::open(socket, seed)?.work(&stop);
    let work = &work;
    thread::scope(|scope| {
        let started = Instant::now();
        let threads: Vec<_> = (1..=CONNECTIONS).map(|seed| scope.spawn(move || work(seed))).collect();
        let mut waited = Ok(true);
        while waited.is_ok()
            && started.elapsed() < duration
            && !threads.iter().any(thread::ScopedJoinHandle::is_finished)
        {
            waited = pace.step();
        }
        stop.store(true, Ordering::Relaxed);
        let elapsed = started.elapsed();
        let done = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(Error::other("a panic"))));
        let done: io::Result<u64> = done.sum();
        waited?;
        Ok(done.map_err(|error| failed(&error))? as f64 / elapsed.as_secs_f64())
    })
}

fn failed(error: &Error) -> Report {
    miette!(code = "bench::programs", "memcached does not answer as it should: {error}")
}

struct Connection {
    answers: BufReader<UnixStream>,
    random: u64,
    line: Vec<u8>,
}

impl Connection {
    fn open(socket: &Path, seed: u64) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Self { answers: BufReader::new(stream), random: seed, line: Vec::new() })
    }

    fn fill(&mut self) -> io::Result<()> {
        for number in 0..KEYS {
            self.send(set(number).as_bytes())?;
            self.expect("STORED")?;
        }
        Ok(())
    }

    fn work(mut self, stop: &AtomicBool) -> io::Result<u64> {
        let mut done = 0;
        let mut sent = Vec::with_capacity(AT_A_TIME);
        while !stop.load(Ordering::Relaxed) {
            sent.clear();
            let mut commands = String::new();
            for _ in 0..AT_A_TIME {
                let (number, is_set) = (self.next() % KEYS, self.next().is_multiple_of(GETS_TO_A_SET + 1));
                let command = if is_set { set(number) } else { format!("get {}\r\n", key(number)) };
                commands += &command;
                sent.push((number, is_set));
            }
            self.send(commands.as_bytes())?;
            for (number, is_set) in &sent {
                if *is_set {
                    self.expect("STORED")?;
                } else {
                    let value = value(*number);
                    self.expect(&format!("VALUE {} 0 {}", key(*number), value.len()))?;
                    self.expect(&value)?;
                    self.expect("END")?;
                }
            }
            done += AT_A_TIME as u64;
        }
        Ok(done)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.answers.get_mut().write_all(bytes)
    }

    fn expect(&mut self, expected: &str) -> io::Result<()> {
        self.line.clear();
        self.answers.read_until(b'\n', &mut self.line)?;
        let found = String::from_utf8_lossy(&self.line);
        if found.trim_end() == expected {
            Ok(())
        } else {
            Err(Error::other(format!("`{}`, expected `{expected}`", found.trim_end())))
        }
    }

    /// Knuth's generator; its upper half.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 32
    }
}

fn key(number: u64) -> String {
    format!("key-{number:08}")
}

/// Tells of which key it is.
fn value(number: u64) -> String {
    key(number).repeat(8)
}

fn set(number: u64) -> String {
    let value = value(number);
    format!("set {} 0 0 {}\r\n{value}\r\n", key(number), value.len())
}
