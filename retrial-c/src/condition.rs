//! `retrial_cond`: waits and signals.

use crate::call::{Out, Text, Uncancelled, code, failure, out};
use crate::code::{Answer, Code, Failure};
use crate::instance::Open;
use crate::mutex::{At, Object, OfInstance, OfSession, expect, held, patience};
use crate::session::InUse;
use retrial::engine::EngineCondition;
use retrial::{Condition, GetError, Mode, Waited};
use std::ffi::c_int;
use std::mem::{self, ManuallyDrop};

impl Object for EngineCondition {
    const NAME: &str = "condition";
}

/// `retrial_cond_named`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_cond_named(at: OfInstance, name: Text, to: Out<&'static EngineCondition>) -> c_int {
    let _uncancelled = Uncancelled::new();
    code(out("condition", to, || {
        let condition = Open::new(at)?.instance().condition(name.get("name")?)?;
        Ok(condition.engine())
    }))
}

/// `retrial_cond_init`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_cond_init(at: OfInstance, condition: At<EngineCondition>, name: Text) -> c_int {
    let _uncancelled = Uncancelled::new();
    code(init(at, condition, name))
}

fn init(at: OfInstance, condition: At<EngineCondition>, name: Text) -> Answer {
    let (open, name) = (Open::new(at)?, name.or_empty("name")?);
    condition.clear()?.bind(open.instance(), name)?;
    Ok(())
}

/// `retrial_cond_destroy`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_cond_destroy(at: OfInstance, condition: At<EngineCondition>) -> c_int {
    code(destroy(at, condition))
}

fn destroy(at: OfInstance, condition: At<EngineCondition>) -> Answer {
    let (open, condition) = (Open::new(at)?, condition.get()?);
    // SAFETY: no session uses it any more, as the header says.
    let is_free = unsafe { condition.unbind(open.instance()) }?;
    let waited_for = || failure(Code::Busy, "a session waits for the condition; signal all and let them return first");
    is_free.then_some(()).ok_or_else(waited_for)
}

/// `retrial_cond_wait_until`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_cond_wait_until(
    session: OfSession,
    condition: At<EngineCondition>,
    mutex: At,
    deadline_ns: u64,
) -> c_int {
    code(wait(session, condition, mutex, deadline_ns))
}

fn wait(session: OfSession, condition: At<EngineCondition>, mutex: At, deadline_ns: u64) -> Answer {
    let (session, condition) = (InUse::new(session)?, condition.get()?);
    let mutex = mutex.get()?;
    let hold = held(&session, mutex)?;
    expect(hold.mode(), &[Mode::Exclusive, Mode::LongExclusive])?;
    // Last: it binds a new condition, and what is refused changes nothing.
    let condition = condition.bind(session.instance(), "")?;
    match ManuallyDrop::into_inner(hold).wait(&condition, patience(deadline_ns)) {
        Ok((hold, waited)) => {
            session.has_got(mutex, hold.mutex());
            mem::forget(hold);
            match waited {
                Waited::Signalled => Ok(()),
                Waited::TimedOut => Err(failure(Code::TimedOut, "no signal before the deadline; the mutex is held")),
            }
        }
        Err(GetError::OwnerDied(died)) => Err(Failure::from(GetError::OwnerDied(died).map(ManuallyDrop::new))),
        Err(error) => Err(Failure::from(error)),
    }
}

/// `retrial_cond_signal`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_cond_signal(session: OfSession, condition: At<EngineCondition>) -> c_int {
    code(InUse::new(session).and_then(|session| {
        bound(&session, condition)?.signal();
        Ok(())
    }))
}

/// `retrial_cond_broadcast`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_cond_broadcast(session: OfSession, condition: At<EngineCondition>) -> c_int {
    code(InUse::new(session).and_then(|session| {
        bound(&session, condition)?.broadcast();
        Ok(())
    }))
}

fn bound(session: &InUse, condition: At<EngineCondition>) -> Result<Condition<'_>, Failure> {
    let condition = condition.get()?;
    Ok(condition.bind(session.instance(), "")?)
}
