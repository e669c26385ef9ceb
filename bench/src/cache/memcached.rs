//! memcached over a Unix socket: one request at a time for each session.

use super::gate::Load;
use super::stores::{Store, look};
use crate::command::ends_with_this_thread;
use miette::{IntoDiagnostic, Report, WrapErr};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct Memcached {
    server: Child,
    directory: tempfile::TempDir,
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Memcached {
    pub fn new(names: &[String], bytes: usize) -> Result<Self, Report> {
        let directory = tempfile::tempdir().into_diagnostic()?;
        let socket = directory.path().join("socket");
        // Its items lie in chunks of certain lengths, up to a quarter longer.
        let mib = (names.len() * (bytes + 200) * 3 / 2) / (1 << 20) + 64;
        let mut command = Command::new("memcached");
        command.arg("-s").arg(&socket).args(["-a", "0700", "-m", &mib.to_string(), "-u", "root"]);
        // A panic aborts a release build, and drops nothing.
        ends_with_this_thread(&mut command);
        let server = command.stdin(Stdio::null()).spawn().into_diagnostic().wrap_err("memcached: is it installed?")?;
        let memcached = Self { server, directory };
        let mut tries = 0;
        while let Err(error) = UnixStream::connect(&socket) {
            tries += 1;
            if tries == 200 {
                return Err(error).into_diagnostic().wrap_err("memcached does not listen");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        memcached.fill(names, &vec![1; bytes]).into_diagnostic()?;
        Ok(memcached)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn fill(&self, names: &[String], value: &[u8]) -> io::Result<()> {
        let mut session = Session::new(UnixStream::connect(self.socket())?);
        let mut many = BufWriter::new(session.stream.try_clone()?);
        for name in names {
            write!(many, "set {name} 0 0 {} noreply\r\n", value.len())?;
            many.write_all(value)?;
            many.write_all(b"\r\n")?;
        }
        many.flush()?;
        drop(many);
        session.request.extend_from_slice(b"version\r\n");
        session.ask(b"\r\n").map(drop)
    }
}

/// A connection.
struct Session {
    stream: UnixStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Session {
    fn new(stream: UnixStream) -> Self {
        Self { stream, request: Vec::new(), answer: vec![0; 1 << 16] }
    }

    /// Sends the request, and gives the answer, which ends so.
    fn ask(&mut self, end: &[u8]) -> io::Result<&[u8]> {
        self.stream.write_all(&self.request)?;
        self.request.clear();
        let mut len = 0;
        while !self.answer[..len].ends_with(end) {
            if len == self.answer.len() {
                self.answer.resize(2 * len, 0);
            }
            match self.stream.read(&mut self.answer[len..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => len += more,
            }
        }
        Ok(&self.answer[..len])
    }

    fn get(&mut self, name: &str) -> io::Result<bool> {
        write!(self.request, "get {name}\r\n")?;
        // No value is `END` and a line's end: all bytes of one are the same.
        let answer = self.ask(b"END\r\n")?;
        let begin = answer.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let value = answer.get(begin..answer.len().saturating_sub(b"\r\nEND\r\n".len()));
        Ok(value.inspect(|value| look(value)).is_some())
    }

    fn set(&mut self, name: &str, value: &[u8]) -> io::Result<()> {
        write!(self.request, "set {name} 0 0 {}\r\n", value.len())?;
        self.request.extend_from_slice(value);
        self.request.extend_from_slice(b"\r\n");
        let answer = self.ask(b"\r\n")?;
        assert_eq!(answer, b"STORED\r\n");
        Ok(())
    }
}

impl Store for Memcached {
    fn work(&self, load: &Load<'_>) {
        let session = Session::new(UnixStream::connect(self.socket()).expect("a connection"));
        let session = std::cell::RefCell::new(session);
        let get = |name: &str| session.borrow_mut().get(name).expect("an answer");
        let put = |name: &str, with| session.borrow_mut().set(name, &vec![with; load.bytes]).expect("stored");
        load.run(get, put);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_be_longer_than_the_first_buffer() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut session = Session::new(ours);
        let long = [vec![b'x'; 3 * session.answer.len()], b"END\r\n".to_vec()].concat();
        std::thread::scope(|scope| {
            scope.spawn(|| theirs.write_all(&long).unwrap());
            assert_eq!(session.ask(b"END\r\n").unwrap(), long);
        });
    }
}
