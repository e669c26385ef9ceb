//! A program on a terminal of its own: what it shows, keys, and whether it gives the terminal back.

#![allow(dead_code, missing_docs, unreachable_pub)] // each test file uses a part

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use vt100::Parser;

pub struct Terminal {
    /// The side of the user, until that hangs up, and what reads from it.
    user: Option<File>,
    reader: Option<JoinHandle<()>>,
    closed: Arc<AtomicBool>,
    /// Kept open, so that the mode can be asked for when the program has ended.
    program: OwnedFd,
    child: Child,
    shown: Arc<Mutex<Parser>>,
    before: String,
}

impl Terminal {
    pub fn new(command: &mut Command, (width, height): (u16, u16)) -> Self {
        // Both closed on exec: a program that another test starts meanwhile would keep the terminal alive.
        // SAFETY: it takes a number.
        let user = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
        // SAFETY: it was opened just now, and nobody else has it.
        let user = unsafe { File::from_raw_fd(user) };
        // SAFETY: it takes a descriptor.
        assert_eq!(unsafe { libc::unlockpt(user.as_raw_fd()) }, 0);
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: it takes a number.
        let program = unsafe { libc::ioctl(user.as_raw_fd(), libc::TIOCGPTPEER, flags) };
        // SAFETY: as above.
        let program = unsafe { OwnedFd::from_raw_fd(program) };
        set_size(&user, (width, height));
        let before = mode(&program);
        let end = || program.try_clone().unwrap();
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        // SAFETY: its calls are allowed between fork and exec.
        unsafe { command.pre_exec(lead) };
        let child = command.spawn().unwrap();
        let shown = Arc::new(Mutex::new(Parser::new(cells(height), cells(width), 0)));
        let (mut from, to) = (user.try_clone().unwrap(), Arc::clone(&shown));
        let closed = Arc::new(AtomicBool::new(false));
        let is_closed = Arc::clone(&closed);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !is_closed.load(Ordering::Relaxed) {
                if !is_readable(&from) {
                    continue;
                }
                match from.read(&mut bytes) {
                    Ok(length @ 1..) => to.lock().unwrap().process(&bytes[..length]),
                    // At the end of both sides it fails.
                    _ => return,
                }
            }
        });
        Self { user: Some(user), reader: Some(reader), closed, program, child, shown, before }
    }

    pub fn text(&self) -> String {
        self.shown.lock().unwrap().screen().contents()
    }

    /// Waits until this is shown.
    pub fn until(&self, text: &str) -> String {
        for _ in 0..60_000 {
            let shown = self.text();
            if shown.contains(text) {
                return shown;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("`{text}` is not shown:\n{}", self.text());
    }

    pub fn keys(&mut self, keys: &str) {
        self.user.as_ref().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&self, (width, height): (u16, u16)) {
        self.shown.lock().unwrap().screen_mut().set_size(cells(height), cells(width));
        set_size(self.user.as_ref().unwrap(), (width, height));
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id().cast_signed(), signal) }, 0);
    }

    /// Goes away, as a window that is closed; how the program ends.
    pub fn hang_up(mut self) -> ExitStatus {
        self.close();
        self.ended()
    }

    fn ended(&mut self) -> ExitStatus {
        for _ in 0..60_000 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it does not end: {}", self.text());
    }

    fn close(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        self.user = None;
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
    }

    /// Waits for the end, after which the terminal has to be as it was; what is left on it.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = self.ended();
        assert_eq!(mode(&self.program), self.before, "the mode of the terminal is as it was");
        // What it wrote last may be under way to the thread that reads.
        for _ in 0..10_000 {
            let shown = self.shown.lock().unwrap();
            let screen = shown.screen();
            if !screen.alternate_screen() && !screen.hide_cursor() {
                return (status, screen.contents());
            }
            drop(shown);
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the screen and the cursor were not given back: {}", self.text());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.close();
    }
}

/// Waits a moment for something to read.
fn is_readable(from: &File) -> bool {
    let mut input = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one writable entry.
    unsafe { libc::poll(&raw mut input, 1, 20) > 0 }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

/// The kernel tells the program.
fn set_size(of: &File, (width, height): (u16, u16)) {
    let size = libc::winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the size is readable.
    assert_eq!(unsafe { libc::ioctl(of.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
}

/// Has the child be the leader of a session with this terminal.
fn lead() -> std::io::Result<()> {
    // SAFETY: it takes no argument.
    if unsafe { libc::setsid() } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: it takes a number.
    if unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // Tests that `nohup` has started ignore it, and so would the program.
    // SAFETY: the default action runs none of our code.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    Ok(())
}

fn mode(of: &OwnedFd) -> String {
    // SAFETY: numbers, of which 0 is one.
    let mut mode: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: `mode` is writable.
    assert_eq!(unsafe { libc::tcgetattr(of.as_raw_fd(), &raw mut mode) }, 0);
    let flags = [mode.c_iflag, mode.c_oflag, mode.c_cflag, mode.c_lflag];
    format!("{flags:?} {:?}", mode.c_cc)
}
