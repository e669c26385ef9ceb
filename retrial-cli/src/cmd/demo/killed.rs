//! A holder that is killed while its data are half changed, and the next one, which is told.

use crate::output::line;
use miette::{IntoDiagnostic, Report, miette};
use retrial::{Capacity, Class, GetError, GetFailure, Instance, Mutex, OwnerDied, location};
use retrial_bench::process::Crew;
use std::time::{Duration, Instant};

/// Two accounts; what is moved from one to the other is nowhere in between.
type Accounts = [i64; 2];
const MOVED: i64 = 30;
/// What the session that is killed says of itself when it is in the middle of its change.
const HALFWAY: &str = "halfway through a transfer";
/// How long the other session waits until the holder is killed.
const WAIT: Duration = Duration::from_secs(1);
/// How long a process may take to come halfway.
const START_MAX: Duration = Duration::from_secs(10);

pub fn show() -> Result<(), Report> {
    let instance = Instance::anonymous(Capacity::default()).map_err(crate::instances::create_error)?;
    let accounts: Mutex<Accounts> = instance.mutex("accounts", "demo", || [100, 100]).into_diagnostic()?;
    let started = Instant::now();
    let say = |text: &str| line(&format!("{:>7.3} s  {text}", started.elapsed().as_secs_f64()));

    // No thread has been started yet.
    let mut doomed = Crew::default();
    doomed.fork(|| transfer(&instance, &accounts)).into_diagnostic()?;
    let holder = loop {
        let halfway = instance.tables().sessions().into_iter().find(|session| session.action == HALFWAY);
        match halfway {
            Some(session) => break session,
            None if started.elapsed() > START_MAX => return Err(miette!("the process to be killed did not start")),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    say(&format!(
        "process {} (session {}) has the mutex in X, and has taken {MOVED} from the first of two accounts of 100",
        holder.pid, holder.sid
    ));
    let session = instance.session("next", Class::Normal).into_diagnostic()?;
    say(&format!(
        "process {} (session {}) asks for the mutex, to look at both, and waits",
        session.pid(),
        session.sid()
    ));

    let (got, killed) = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            std::thread::sleep(WAIT);
            let killed = Instant::now();
            say(&format!("kill -9 {}", holder.pid));
            drop(doomed); // kills it
            killed
        });
        let got = accounts.exclusive(&session, location!("demo: audit"));
        ((got, Instant::now()), killer.join())
    });
    let (got, at) = got;
    let killed = killed.map_err(|_| miette!("the thread that kills panicked"))?;
    let Err(GetError::OwnerDied(OwnerDied { guard: mut accounts_held, death })) = got else {
        return Err(miette!("the next holder was not told of the death"));
    };
    let death = death.map_or_else(String::new, |death| {
        let place = instance.tables().location_name(death.location);
        format!("session {} died while it held {}, got at \"{place}\"", death.sid, death.mode)
    });
    let late = at.duration_since(killed).as_secs_f64() * 1e3;
    say(&format!("session {} has the mutex, {late:.0} ms after the kill, and is told: {death}", session.sid()));
    let [first, second] = *accounts_held;
    accounts_held[0] += MOVED;
    accounts_held.consistent();
    drop(accounts_held);
    line(&format!("           It finds {first} + {second}, puts the {MOVED} back, and declares the data consistent."));
    let [first, second] =
        *accounts.shared(&session, location!("demo: look")).map_err(GetFailure::from).into_diagnostic()?;
    say(&format!("the next get is told nothing: {first} + {second}"));
    Ok(())
}

/// What the process does that is killed: half of a transfer.
fn transfer(instance: &Instance, accounts: &Mutex<'_, Accounts>) {
    let Ok(session) = instance.session("doomed", Class::Normal) else { return };
    let Ok(mut held) = accounts.exclusive(&session, location!("demo: transfer")) else { return };
    held[0] -= MOVED;
    session.set_action(HALFWAY);
    loop {
        std::thread::sleep(START_MAX);
    }
}
