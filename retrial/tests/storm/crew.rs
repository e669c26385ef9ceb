//! A crew: workers at one instance, killed, stopped and replaced by the parent, which looks at what they leave.

use crate::board::{Board, MUTEXES, Tally, WORKERS, add};
use crate::outcome::{Count, Outcome};
use crate::random::Random;
use crate::worker::{self, A, B, Data, OWNER};
use retrial::views::{Sid, Word};
use retrial::{
    Address, Capacity, Class, GetError, Guard, Instance, Mutex, Observer, P, Patience, Recovery, Session, location,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A crew that comes to no end in this time, in s, has failed. Far beyond what the slowest machine needs.
const PATIENCE_S: u32 = 300;

/// Looks for somebody to kill before anybody will do.
const LOOKS: u32 = 10_000;

/// Whether that time has passed.
static LATE: AtomicBool = AtomicBool::new(false);

/// Has the crew fail that is not done in time: by what the parent looks at, and if it is not looking, by a signal.
pub(crate) fn set_alarm(seconds: u32) {
    extern "C" fn late(_: libc::c_int) {
        LATE.store(true, Ordering::SeqCst);
        // SAFETY: may be called in a handler. What comes next ends the process.
        unsafe { libc::signal(libc::SIGALRM, libc::SIG_DFL) };
        // SAFETY: may be called in a handler.
        unsafe { libc::alarm(30) };
    }
    // SAFETY: the handler only stores, and calls what may be called there.
    unsafe { libc::signal(libc::SIGALRM, late as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    // SAFETY: has no preconditions.
    unsafe { libc::alarm(seconds) };
}

/// The instance of a crew; its file is removed when dropped.
pub(crate) struct Stage {
    address: Address,
    instance: Instance,
}

impl Stage {
    /// An instance for so many workers, with these parameters.
    pub(crate) fn new(workers: usize, params: &[(P, u64)]) -> Self {
        let address = Address::new(&format!("storm-{}", std::process::id())).unwrap();
        // The dead have their slots until somebody recovers them.
        let sessions = workers as u32 + 256;
        let capacity = Capacity { sessions, mutexes: 16, locations: 64, rows: 8, arena: 1 << 12 };
        let instance = Instance::create(&address, capacity, 0o600).unwrap();
        for &(param, value) in params {
            instance.set(param, None, value);
        }
        Self { address, instance }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.address.path());
    }
}

/// Whom a kill is for.
#[derive(Clone, Copy)]
pub(crate) enum Aim {
    Anybody,
    Recoverer,
    Holder,
}

/// How a crew is made up.
pub(crate) struct Plan<'a> {
    pub(crate) name: &'a str,
    pub(crate) workers: usize,
    pub(crate) mutexes: usize,
    pub(crate) seed: u64,
    /// Whether everybody gets mutexes however many others go on to get them.
    pub(crate) fair: bool,
    /// The command that does the same again.
    pub(crate) again: &'a str,
}

pub(crate) struct Crew<'a> {
    plan: &'a Plan<'a>,
    address: &'a Address,
    board: &'static Board,
    instance: &'a Instance,
    mutexes: Vec<Mutex<'a, Data>>,
    /// Gets of each mutex before there was a worker.
    gets_before: Vec<u64>,
    session: Session<'a>,
    pub(crate) random: Random,
    pids: Vec<libc::pid_t>,
    stopped: Vec<usize>,
    /// Workers so far.
    names: u64,
    /// Deaths that must be told, by mutex.
    to_be_told: [u64; MUTEXES],
    so_far: Outcome,
}

impl<'a> Crew<'a> {
    /// A worker in every place.
    pub(crate) fn muster(plan: &'a Plan<'a>, stage: &'a Stage) -> Self {
        assert!(plan.workers <= WORKERS && plan.mutexes <= MUTEXES, "as many as the board has room for");
        let board = Board::get();
        board.clear();
        set_alarm(PATIENCE_S);
        let Stage { address, instance } = stage;
        let mutexes: Vec<_> = (0..plan.mutexes).map(|number| worker::mutex(instance, number)).collect();
        let mut crew = Self {
            plan,
            address,
            board,
            instance,
            gets_before: mutexes.iter().map(retrial::Mutex::gets).collect(),
            mutexes,
            session: instance.session("parent", Class::Normal).unwrap(),
            random: Random::of(plan.seed, plan.name, plan.workers as u64),
            pids: vec![0; plan.workers],
            stopped: Vec::new(),
            names: 0,
            to_be_told: [0; MUTEXES],
            so_far: Outcome::default(),
        };
        (0..plan.workers).for_each(|place| crew.start(place));
        crew
    }

    pub(crate) fn set(&self, param: P, value: u64) {
        self.instance.set(param, None, value);
    }

    pub(crate) fn kills(&self) -> u64 {
        self.so_far.get(Count::Kills)
    }

    /// Gets of all workers so far.
    pub(crate) fn gets(&self) -> u64 {
        self.tallies().iter().map(Tally::gets).sum()
    }

    fn tallies(&self) -> &'static [Tally] {
        &self.board.tallies[..self.plan.workers]
    }

    fn start(&mut self, place: usize) {
        self.names += 1;
        let random = Random::of(self.plan.seed, self.plan.name, (place as u64) << 32 | self.names);
        let parent = std::process::id();
        // SAFETY: this process has one thread.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: has no preconditions; a parent that ends takes its workers with it.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            if std::os::unix::process::parent_id() == parent {
                worker::live(place, self.names, random, self.address, self.instance, self.plan.mutexes);
            }
            // SAFETY: ends this process, whose parent has ended before it could be told so.
            unsafe { libc::_exit(1) };
        }
        self.check(pid > 0, || format!("no more processes: {}", std::io::Error::last_os_error()));
        self.pids[place] = pid;
    }

    fn signal(&self, place: usize, signal: libc::c_int) {
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(self.pids[place], signal) };
    }

    /// Waits for a worker; its status, or `None` while it goes on and `flags` say not to wait.
    fn wait(&self, place: usize, flags: libc::c_int) -> Option<libc::c_int> {
        loop {
            let mut status = 0;
            // SAFETY: our own child, which has not been waited for; `status` is writable.
            let pid = unsafe { libc::waitpid(self.pids[place], &raw mut status, flags) };
            self.look();
            match pid {
                0 => return None,
                // The alarm, at which we have looked.
                -1 => {}
                _ => return Some(status),
            }
        }
    }

    /// A place whose worker is in a `recover_all` now, or has a mutex in X, LX or E; any place if none is
    /// seen there soon.
    pub(crate) fn aim(&self, at: Aim) -> usize {
        let is_there = |tally: &Tally| match at {
            Aim::Anybody => true,
            Aim::Recoverer => tally.recovering.load(Ordering::Relaxed) != 0,
            Aim::Holder => tally.inside.iter().any(|inside| inside.load(Ordering::Relaxed) != 0),
        };
        let place = || self.random.below(self.plan.workers as u64) as usize;
        (0..LOOKS).map(|_| place()).find(|place| is_there(&self.tallies()[*place])).unwrap_or_else(place)
    }

    /// Kills the worker in a place, notes what it was at, and starts another.
    pub(crate) fn replace(&mut self, place: usize) {
        self.signal(place, libc::SIGKILL);
        let status = self.wait(place, 0).unwrap_or_default();
        let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        self.check(killed, || format!("the worker in place {place} ended by itself with status {status:#x}"));
        self.stopped.retain(|stopped| *stopped != place);
        let tally = &self.board.tallies[place];
        let sid = tally.sid.swap(0, Ordering::Relaxed);
        let info = self.instance.tables().session_info(Sid::new(sid));
        let amid = info.is_some_and(|info| sid != 0 && info.dead && !info.log.is_empty());
        let mut holding = false;
        for (owed, inside) in self.to_be_told.iter_mut().zip(&tally.inside) {
            let inside = inside.swap(0, Ordering::Relaxed);
            *owed += u64::from(inside);
            holding |= inside != 0;
        }
        self.so_far.add(Count::Kills, 1);
        self.so_far.add(Count::Amid, amid.into());
        self.so_far.add(Count::Recoverers, tally.recovering.swap(0, Ordering::Relaxed).into());
        self.so_far.add(Count::Holding, holding.into());
        self.so_far.add(Count::Recovered, u64::from(sid != 0));
        self.start(place);
    }

    /// Stops a worker, which nobody may take for dead.
    pub(crate) fn stop(&mut self, place: usize) {
        if self.stopped.contains(&place) {
            return;
        }
        self.signal(place, libc::SIGSTOP);
        let status = self.wait(place, libc::WUNTRACED).unwrap_or_default();
        self.check(libc::WIFSTOPPED(status), || format!("the worker in place {place} ended by itself: {status:#x}"));
        self.stopped.push(place);
        self.so_far.add(Count::Stops, 1);
        let sid = Sid::new(self.board.tallies[place].sid.load(Ordering::Relaxed));
        if !sid.is_none() {
            let info = self.instance.tables().session_info(sid);
            self.check(info.is_some_and(|info| !info.dead), || format!("session {sid} is stopped and taken for dead"));
            let recovery = self.instance.recover(sid);
            self.check(recovery == Recovery::NotDead, || format!("session {sid} is stopped and recovered"));
        }
    }

    /// Lets the worker go on that was stopped first.
    pub(crate) fn let_go_on(&mut self) {
        if !self.stopped.is_empty() {
            let place = self.stopped.remove(0);
            self.signal(place, libc::SIGCONT);
        }
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            self.look();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets this time pass, while the workers do what they do.
    pub(crate) fn pass(&self, time: Duration) {
        self.look();
        std::thread::sleep(time);
    }

    /// Waits until every worker has begun.
    pub(crate) fn until_everybody_works(&self) {
        self.until(|| self.tallies().iter().all(|tally| tally.sid.load(Ordering::Relaxed) != 0 || tally.gets() != 0));
    }

    /// Everybody goes on, gets mutexes again, and ends; then nobody holds anything, and nothing was lost.
    pub(crate) fn dismiss(mut self) -> Outcome {
        while !self.stopped.is_empty() {
            self.let_go_on();
        }
        if self.plan.fair {
            let marks: Vec<u64> = self.tallies().iter().map(Tally::gets).collect();
            self.until(|| self.tallies().iter().zip(&marks).all(|(tally, mark)| tally.gets() >= mark + 3));
        }
        self.board.stop.store(1, Ordering::SeqCst);
        for place in 0..self.plan.workers {
            self.until(|| {
                let status = self.wait(place, libc::WNOHANG);
                let fits = status.is_none_or(|status| libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
                self.check(fits, || format!("the worker in place {place} ended badly: {status:?}"));
                status.is_some()
            });
            self.pids[place] = 0;
        }
        let (swept, owing) = self.instance.recover_all();
        self.check(owing == 0, || format!("{owing} dead sessions owe something that nobody has"));
        let sessions = self.instance.tables().sessions();
        self.check(sessions.len() == 1, || format!("{} sessions are left, expected the parent's", sessions.len()));
        for number in 0..self.plan.mutexes {
            self.look_at_mutex(number);
        }
        let mut outcome = self.so_far;
        outcome.add(Count::Gets, self.gets());
        outcome.add(Count::Conversions, self.board.sum(|tally| &tally.conversions));
        outcome.add(Count::Swept, u64::from(swept) + self.board.sum(|tally| &tally.recovered));
        for number in 0..self.plan.mutexes {
            outcome.add(Count::Increments, self.board.sum(|tally| &tally.increments[number]));
            outcome.add(Count::Told, self.board.sum(|tally| &tally.told[number]));
        }
        // SAFETY: has no preconditions.
        unsafe { libc::alarm(0) };
        outcome
    }

    /// What the workers left in a mutex.
    fn look_at_mutex(&mut self, number: usize) {
        let kills = self.kills();
        let mutex = self.mutexes[number];
        let word = mutex.word();
        let free = word.sid().is_none() && word.references() == 0 && !word.has(Word::DRAINING);
        self.check(free, || format!("mutex {number} is left as {word}"));
        let parked = mutex.parked();
        self.check(u64::from(parked) <= kills, || format!("{parked} sessions are parked after the last has gone"));
        let gets = mutex.gets() - self.gets_before[number];
        let counted = self.board.sum(|tally| &tally.gets[number]);
        let fits = (counted..=counted + kills).contains(&gets);
        self.check(fits, || format!("mutex {number} counts {gets} gets, its workers {counted}, {kills} were killed"));

        let data = self.repaired(number, word.has(Word::POISONED));
        let increments = self.board.sum(|tally| &tally.increments[number]);
        let fits = (increments..=increments + kills).contains(&data[A]);
        let found = format!("{} of {increments} increments, {kills} were killed", data[A]);
        self.check(fits, || format!("mutex {number} has {found}"));
        let (told, owed) = (self.board.sum(|tally| &tally.told[number]), self.to_be_told[number]);
        self.check(told >= owed, || format!("of {owed} deaths in mutex {number}, {told} were told"));
        let repairs = self.board.sum(|tally| &tally.repairs[number]);
        self.check(repairs <= kills, || format!("mutex {number} was poisoned {repairs} times by {kills} kills"));
        let left = mutex.word().without(Word::ATTENTION);
        self.check(left == Word::FREE, || format!("mutex {number} is left as {left} by an ordinary release"));
        self.so_far.add(Count::Miscounted, parked.into());
        self.so_far.add(Count::InData, data[A]);
    }

    /// The data, after the last death if there is one to be told.
    fn repaired(&self, number: usize, poisoned: bool) -> Data {
        let place = &self.board.tallies[0];
        let long = Duration::from_secs(60);
        let got = self.mutexes[number].get(
            &self.session,
            retrial::Mode::Exclusive,
            location!("parent"),
            Patience::within(long),
        );
        let mut guard: Guard<'_, Data> = match got {
            Ok(guard) if !poisoned => guard,
            Err(GetError::OwnerDied(died)) if poisoned => {
                add(&place.told[number], 1);
                died.guard
            }
            other => self.fail(&format!("mutex {number}, poisoned {poisoned}, gave {:?}", other.map(|_| "a guard"))),
        };
        let data = *guard;
        if poisoned {
            self.check(data[A] - data[B] <= 1, || format!("mutex {number} is left with {data:?}"));
            guard.consistent();
            add(&place.repairs[number], 1);
        } else {
            self.check(data[A] == data[B] && data[OWNER] == 0, || format!("mutex {number} is left with {data:?}"));
        }
        data
    }

    /// Fails if a worker has, or if this takes too long.
    fn look(&self) {
        if let Some(why) = self.board.failure() {
            self.fail(&why);
        }
        if LATE.load(Ordering::SeqCst) {
            let missing =
                self.tallies().iter().enumerate().filter(|(_, tally)| tally.gets() == 0).map(|(place, _)| place);
            self.fail(&format!("too late; without a get: {:?}", missing.collect::<Vec<_>>()));
        }
    }

    fn check(&self, fits: bool, why: impl Fn() -> String) {
        if !fits {
            self.fail(&why());
        }
    }

    /// Prints everything that is known, and ends.
    fn fail(&self, why: &str) -> ! {
        println!(
            "\nFAILED: {why}\n\nin {} with {} workers after {} kills",
            self.plan.name,
            self.plan.workers,
            self.kills()
        );
        if let Ok(observer) = Observer::open(self.address) {
            for mutex in &self.mutexes {
                println!("{mutex:?}: {:?}, {} parked, {} gets", mutex.word(), mutex.parked(), mutex.gets());
            }
            for session in observer.tables().sessions() {
                println!("{session:?}");
            }
            for (_, _, line) in observer.tables().alerts(observer.tables().alerts_written().saturating_sub(20)) {
                println!("{line}");
            }
        }
        for (place, pid) in self.pids.iter().enumerate().filter(|(_, pid)| **pid != 0) {
            let tally = &self.board.tallies[place];
            println!("place {place}: pid {pid}, session {}, {} gets", tally.sid.load(Ordering::Relaxed), tally.gets());
        }
        println!("\nagain: {}", self.plan.again);
        for pid in self.pids.iter().filter(|pid| **pid != 0) {
            // SAFETY: our own child, which has not been waited for.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        let _ = std::fs::remove_file(self.address.path());
        std::process::exit(101)
    }
}
