//! What the calls answer.

use retrial::{AttachError, BindError, ConvertError, CreateError, GetError, ObjectError, ParamError, SessionError};
use std::ffi::{CStr, c_char, c_int};

macro_rules! codes {
    ($( $name:ident $c_name:literal = $number:literal, $text:literal; )*) => {
        /// What a call answers: 0 or a negative number of `errno`, each its own.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(i32)]
        pub enum Code { $( #[doc = $text] $name = $number ),* }

        /// Name in C, number and text of every code.
        pub const CODES: &[(&str, c_int, &CStr)] = &[ $( ($c_name, $number, {
            // SAFETY: a literal with its 0 added, and none in it.
            unsafe { CStr::from_bytes_with_nul_unchecked(concat!($text, "\0").as_bytes()) }
        }) ),* ];
    };
}

codes! {
    Ok "OK" = 0, "done";
    OwnerDied "OWNER_DIED" = -130, "the mutex is held, and an earlier holder died with it: check the data, then declare them consistent";
    Busy "BUSY" = -16, "the mutex is held by another session, or the instance has open sessions";
    TimedOut "TIMED_OUT" = -110, "the deadline has passed";
    Deadlock "DEADLOCK" = -35, "this session holds the mutex and would wait for itself";
    Forked "FORKED" = -10, "the session belongs to the parent process; open one in the child";
    LogFull "LOG_FULL" = -37, "the session holds as many mutexes as its log has records";
    Invalid "INVALID" = -22, "an argument is NULL or out of its range";
    NotMySession "NOT_MY_SESSION" = -3, "the session is closed or belongs to another thread";
    OtherInstance "OTHER_INSTANCE" = -18, "the mutex or condition belongs to another instance than the session";
    NotHeld "NOT_HELD" = -1, "this session does not hold the mutex";
    WrongMode "WRONG_MODE" = -95, "the session holds the mutex in a mode that the call is not for";
    Gone "GONE" = -116, "the mutex or condition was destroyed, or the instance is closed";
    Reentered "REENTERED" = -114, "the session is in a call already: a signal handler may not use it";
    Exists "EXISTS" = -17, "an instance of this name exists";
    NotFound "NOT_FOUND" = -2, "there is no instance, type or parameter of this name";
    Permission "PERMISSION" = -13, "the instance's file belongs to another user";
    Format "FORMAT" = -71, "the file or the header is of another version of the library";
    Shape "SHAPE" = -90, "the named mutex exists with data of another size, or of another owner";
    Full "FULL" = -28, "a table of the instance is full, or no memory is left";
    System "SYSTEM" = -5, "the operating system refused";
}

/// An error whose message has been kept.
#[derive(Debug)]
#[must_use]
pub(crate) struct Failure(pub(crate) Code);

/// What a call does: nothing more to say, or why not.
pub(crate) type Answer = Result<(), Failure>;

macro_rules! failures {
    ($( $error:ident { $( $pattern:pat => $code:ident ),* $(,)? } )*) => { $(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                #[allow(unreachable_patterns)] // some are exhaustive
                let code = match &error { $( $pattern => Code::$code, )* _ => Code::System };
                crate::call::failure(code, error)
            }
        }
    )* };
}

failures! {
    CreateError {
        CreateError::Exists(_) => Exists,
        CreateError::Name(_) | CreateError::Capacity { .. } => Invalid,
        CreateError::NoSpace { .. } | CreateError::FileSize { .. } => Full,
    }
    AttachError {
        AttachError::NotFound(_) => NotFound,
        AttachError::Name(_) => Invalid,
        AttachError::Permission { .. } | AttachError::Owner { .. } => Permission,
        AttachError::FileKind { .. } | AttachError::Magic { .. } | AttachError::Format { .. }
            | AttachError::Capacity { .. } | AttachError::Truncated { .. } => Format,
    }
    SessionError {
        SessionError::Full { .. } | SessionError::NoSpace => Full,
        SessionError::Stuck => Busy,
        SessionError::NoKey => System,
    }
    ObjectError {
        ObjectError::Full(_) | ObjectError::TooLarge { .. } | ObjectError::NoSpace(_)
            | ObjectError::Session(SessionError::Full { .. }) => Full,
        ObjectError::Name { .. } => Invalid,
        ObjectError::Shape { .. } | ObjectError::Kind { .. } | ObjectError::Owned { .. } => Shape,
        ObjectError::Deadlock(_) => Deadlock,
        ObjectError::Session(SessionError::Stuck) => Busy,
    }
    BindError {
        BindError::OtherInstance => OtherInstance,
        BindError::Gone => Gone,
        BindError::Named => Invalid,
        BindError::Full(_) => Full,
    }
    ConvertError {
        ConvertError::TimedOut => TimedOut,
        ConvertError::Busy => Busy,
        ConvertError::Deadlock { .. } => Deadlock,
        ConvertError::Forked { .. } => Forked,
    }
    ParamError {
        ParamError::Unknown { .. } => NotFound,
        ParamError::Value { .. } | ParamError::Unit { .. } | ParamError::Form(_) => Invalid,
    }
}

impl<G> From<GetError<G>> for Failure {
    fn from(error: GetError<G>) -> Self {
        let code = match &error {
            GetError::OwnerDied(_) => Code::OwnerDied,
            GetError::TimedOut => Code::TimedOut,
            GetError::Busy => Code::Busy,
            GetError::Deadlock { .. } => Code::Deadlock,
            GetError::Forked { .. } => Code::Forked,
            GetError::LogFull { .. } => Code::LogFull,
            _ => Code::System,
        };
        crate::call::failure(code, &error)
    }
}

/// `retrial_strerror`: what a code means; never NULL.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_strerror(code: c_int) -> *const c_char {
    let text = CODES.iter().find(|(_, number, _)| *number == code).map_or(c"no code of retrial", |(_, _, text)| text);
    text.as_ptr()
}
