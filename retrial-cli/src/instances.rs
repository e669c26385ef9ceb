//! From what the user typed to an instance, and from the library's errors to ones with a command to type
//! next.

use crate::attach::process;
use crate::naming::Names;
use crate::output::{Format, quoted};
use clap::Args;
use miette::{Report, miette};
use retrial::views::{Tables, TypeId};
use retrial::{Address, AttachError, Instance, MutexId, ObjectError, Observer, SessionError, wait};
pub use retrial_bench::errors::{create_error, name_error, param_error, shown};
use retrial_cache::CacheError;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// The instance that a command is about, by its name or by a process that takes part in it.
#[derive(Args, Clone, Default, Debug)]
pub struct Which {
    /// Name of the instance, or a path with `/`; may be left out when there is just one
    #[arg(short, long, value_name = "NAME")]
    pub instance: Option<String>,
    /// The instance that this process takes part in, or created: a program under `retrial run`, or
    /// `retrial run` itself
    #[arg(short, long, value_name = "PID", conflicts_with = "instance")]
    pub pid: Option<u32>,
}

impl Which {
    /// The option as the user typed it, for the commands that are suggested next.
    pub fn flag(&self) -> String {
        match (&self.instance, self.pid) {
            (Some(name), _) => format!(" -i {}", quoted(name)),
            (None, Some(pid)) => format!(" -p {pid}"),
            (None, None) => String::new(),
        }
    }

    /// Whether the user said which.
    pub const fn is_named(&self) -> bool {
        self.instance.is_some() || self.pid.is_some()
    }

    /// By name: it can be found again when the process has ended.
    pub fn by_name(&self) -> Result<Self, Report> {
        let instance = self.pid.map_or_else(|| Ok(self.instance.clone()), |pid| of_process(pid).map(Some))?;
        Ok(Self { instance, pid: None })
    }

    pub fn address(&self) -> Result<Address, Report> {
        if let Some(text) = self.by_name()?.instance {
            return address(&text);
        }
        let names = retrial::list().unwrap_or_default();
        match names.as_slice() {
            [name] => address(name),
            [] => Err(miette!(
                code = "retrial::instance::none",
                help = "retrial create demo",
                "no instance under {}, expected one",
                retrial::layout::DIRECTORY
            )),
            many => Err(miette!(
                code = "retrial::instance::which",
                help =
                    readable(many).first().map_or_else(
                        || "retrial list".to_owned(),
                        |name| format!("retrial … --instance {}", quoted(name)),
                    ),
                "{} instances ({}), expected one to be named",
                many.len(),
                many.join(", ")
            )),
        }
    }

    /// Maps it read-only.
    pub fn observe(&self) -> Result<Observer, Report> {
        Observer::open(&self.address()?).map_err(attach_error)
    }

    /// Takes part in it.
    pub fn attach(&self) -> Result<Instance, Report> {
        Instance::attach(&self.address()?).map_err(attach_error)
    }
}

/// The instance that a process takes part in, or created: a program under `retrial run`, or `retrial run`
/// itself.
fn of_process(pid: u32) -> Result<String, Report> {
    let environment = std::fs::read(format!("/proc/{pid}/environ"));
    let denied = environment.as_ref().err().filter(|error| error.kind() == ErrorKind::PermissionDenied);
    let denied = denied.map(|error| process::denied(pid, "environ", error, &format!("… -p {pid}")));
    let environment = environment.unwrap_or_default();
    let variable = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"RETRIAL_INSTANCE="));
    if let Some(path) = variable.and_then(|path| std::str::from_utf8(path).ok()) {
        return Ok(named(Path::new(path)).unwrap_or_else(|| path.to_owned()));
    }
    let takes_part = |name: &String| {
        let observer = Address::new(name).ok().and_then(|address| Observer::open(&address).ok());
        observer.is_some_and(|observer| {
            let tables = observer.tables();
            tables.creator_pid() == pid || tables.sessions().iter().any(|session| session.pid == pid)
        })
    };
    let mut found: Vec<String> = names()?.into_iter().filter(takes_part).collect();
    match (found.pop(), found.as_slice()) {
        (Some(name), []) => Ok(name),
        (Some(last), others) => Err(miette!(
            code = "retrial::instance::which",
            help = format!("retrial … --instance {}", quoted(&last)),
            "process {pid} takes part in {} instances ({}, {last}), expected one to be named",
            others.len() + 1,
            others.join(", ")
        )),
        (None, _) => Err(denied.unwrap_or_else(|| no_process(pid))),
    }
}

/// Whether an instance that is mapped is still there, under its name. Its file may have been removed, as
/// `retrial run` does at the end: what is mapped stays, and says nothing new.
pub fn is_there(tables: &Tables) -> bool {
    let again = |at| Observer::open(at).is_ok_and(|again| again.tables().created_ns() == tables.created_ns());
    tables.address().is_none_or(again)
}

/// Asks four times a second whether an instance is still there, for a command that looks for long.
pub struct Presence<'t> {
    tables: &'t Tables,
    asked: Instant,
}

impl<'t> Presence<'t> {
    pub fn of(tables: &'t Tables) -> Self {
        Self { tables, asked: Instant::now() }
    }

    /// Whether it was gone when it was asked for last.
    pub fn has_gone(&mut self) -> bool {
        if self.asked.elapsed() < Duration::from_millis(250) {
            return false;
        }
        self.asked = Instant::now();
        !is_there(self.tables)
    }

    /// Says so and answers true when it has gone.
    pub fn has_ended(&mut self, format: Format) -> bool {
        let has_gone = self.has_gone();
        if has_gone {
            format.say(&format!("{}.", self::has_gone(self.tables)));
        }
        has_gone
    }
}

/// What is said of an instance that has gone.
pub fn has_gone(tables: &Tables) -> String {
    let at = tables.address().map_or_else(String::new, |at| format!(" {at}"));
    format!("instance{at} has gone")
}

fn no_process(pid: u32) -> Report {
    let is_there = Path::new(&format!("/proc/{pid}")).exists();
    let found = if is_there { "takes part in no instance" } else { "is not there" };
    miette!(
        code = "retrial::instance::process",
        help = "retrial list; retrial run -- PROGRAM",
        "process {pid} {found}, expected one that takes part in an instance"
    )
}

/// Names of all instances of this machine.
pub fn names() -> Result<Vec<String>, Report> {
    retrial::list().map_err(|error| {
        miette!(
            code = "retrial::list",
            help = format!("ls -ld {}", retrial::layout::DIRECTORY),
            "cannot read {}: {error}; expected a directory with the instances",
            retrial::layout::DIRECTORY
        )
    })
}

/// Those of these instances that this user and this build can read.
fn readable(names: &[String]) -> Vec<String> {
    let is_readable = |name: &&String| Address::new(name).is_ok_and(|address| Observer::open(&address).is_ok());
    names.iter().filter(is_readable).cloned().collect()
}

pub fn address(text: &str) -> Result<Address, Report> {
    Address::new(text).map_err(name_error)
}

/// What a user would type for the instance at `path`.
fn typed(path: &Path) -> String {
    quoted(&named(path).unwrap_or_else(|| path.display().to_string())).into_owned()
}

/// The name of the instance at a path, where it has one.
fn named(path: &Path) -> Option<String> {
    path.parent().filter(|parent| *parent == Path::new(retrial::layout::DIRECTORY))?;
    path.file_name()?.to_str()?.strip_prefix("retrial.").map(str::to_owned)
}

pub fn attach_error(error: AttachError) -> Report {
    let (code, help) = match &error {
        AttachError::NotFound(name) => {
            let names = readable(&retrial::list().unwrap_or_default());
            let known = if names.is_empty() {
                "one that is there; none can be read now".to_owned()
            } else {
                format!("one of: {}", names.join(", "))
            };
            return miette!(
                code = "retrial::attach::not_found",
                help = format!("retrial list, or: retrial create {}", quoted(name)),
                "{error}, expected {known}"
            );
        }
        AttachError::Name(name) => return name_error(name.clone()),
        AttachError::Permission { owner, .. } => ("permission", as_owner(*owner)),
        AttachError::Owner { found, .. } => ("owner", as_owner(*found)),
        AttachError::FileKind { path, .. } => ("file", format!("ls -ld {}", shown(path))),
        AttachError::Magic { path, .. } => ("magic", format!("file {}", shown(path))),
        AttachError::Format { path, .. } => {
            let name = typed(path);
            ("format", format!("use the build of retrial that created it, or: retrial rm {name} --force"))
        }
        AttachError::Capacity { path, .. } | AttachError::Truncated { path, .. } => {
            let name = typed(path);
            ("damaged", format!("retrial rm {name} && retrial create {name}"))
        }
        _ => ("io", "retrial list".to_owned()),
    };
    miette!(code = format!("retrial::attach::{code}"), help = help, "{error}")
}

/// What a cache says, with what to type next.
pub fn cache_error(error: CacheError) -> Report {
    let (code, help) = match &error {
        CacheError::NotFound(name) => ("not_found", format!("retrial cache create {}", quoted(name))),
        CacheError::Arena { needed, .. } => {
            let arena = needed + (1 << 20);
            (
                "arena",
                format!("retrial cache create -i NEW, with an instance of its own; retrial create NEW --arena {arena}"),
            )
        }
        CacheError::Copies { limit: 0..2, .. } => ("copies", "retrial cache limit-copies N".to_owned()),
        CacheError::Copies { limit, .. } => {
            ("copies", format!("retrial cache limit-copies N, or retrial cache mark-hot OBJECT {limit}"))
        }
        CacheError::Unknown(_) | CacheError::UnknownName(_) => ("unknown", "retrial cache ls --by name".to_owned()),
        CacheError::Format { .. } => ("format", "retrial rm NAME; retrial cache create -i NAME".to_owned()),
        CacheError::Shape { .. } => ("shape", "retrial cache show".to_owned()),
        CacheError::BadShape(_) => ("shape", "retrial cache create --bytes 16M --shards 16".to_owned()),
        CacheError::Object(ObjectError::NoSpace(_)) => {
            ("no_space", format!("free -m; df -h {}; retrial cache create --bytes 16M", retrial::layout::DIRECTORY))
        }
        CacheError::Object(ObjectError::Owned { .. }) => ("name", "retrial cache create OTHER".to_owned()),
        _ => ("failed", "retrial cache check".to_owned()),
    };
    miette!(code = format!("retrial::cache::{code}"), help = help, "{error}")
}

/// The option that names this instance, for the commands that are suggested next.
fn flag(tables: &Tables) -> String {
    tables.address().map_or_else(String::new, |address| format!(" -i {}", quoted(&address.to_string())))
}

/// The mutex of this name, of this id with `#`, or of what the tools print for it: `cash`, `cash (program)`,
/// `#1 cash (program)`.
pub fn mutex(tables: &Tables, text: &str) -> Result<MutexId, Report> {
    find_mutex(tables, text).ok_or_else(|| {
        miette!(
            code = "retrial::mutex::not_found",
            help = format!("retrial show mutexes{}", flag(tables)),
            "no mutex `{text}` in this instance, expected one of: {}",
            known_mutexes(tables)
        )
    })
}

/// The same for `hold`, which makes one where it is asked to.
pub fn mutex_to_hold(tables: &Tables, text: &str) -> Result<MutexId, Report> {
    if text.starts_with('#') {
        // None is made by a number.
        return mutex(tables, text);
    }
    let flag = flag(tables);
    find_mutex(tables, text).ok_or_else(|| {
        miette!(
            code = "retrial::mutex::not_found",
            help = format!(
                "retrial hold {} --create{flag}; names and ids like #1: retrial show mutexes{flag}",
                quoted(text)
            ),
            "no mutex `{text}` in this instance, expected one of: {}",
            known_mutexes(tables)
        )
    })
}

fn find_mutex(tables: &Tables, text: &str) -> Option<MutexId> {
    let mut names = Names::new(tables);
    let word = text.split(' ').next().unwrap_or_default();
    let by_id = word.strip_prefix('#').and_then(|digits| digits.parse().ok()).map(MutexId);
    let by_id = by_id.filter(|id| tables.mutex_info(*id).is_some() && (word == text || names.mutex(*id) == text));
    // A name that was found out later is in no index.
    let noted = || tables.mutexes().into_iter().find(|info| is_called(&names.name(info), text)).map(|info| info.id);
    by_id.or_else(|| tables.mutex_named(text)).or_else(noted)
}

fn known_mutexes(tables: &Tables) -> String {
    let mut names = Names::new(tables);
    let known: Vec<String> = tables.mutexes().iter().take(8).map(|info| names.mutex(info.id)).collect();
    if known.is_empty() { "there is none".to_owned() } else { known.join(", ") }
}

/// Whether a mutex of this name goes by a text: the name, or without the module of a static variable.
pub fn is_called(name: &str, text: &str) -> bool {
    !text.is_empty() && (name == text || name.split_once(" (").is_some_and(|(variable, _)| variable == text))
}

/// The mutex type of this name.
pub fn mutex_type(tables: &Tables, text: &str) -> Result<TypeId, Report> {
    tables.type_named(text).ok_or_else(|| {
        let known: Vec<String> = tables.types().into_iter().map(|(_, name)| name).collect();
        miette!(
            code = "retrial::type::not_found",
            help = format!("retrial show types{}", flag(tables)),
            "no mutex type `{text}` in this instance, expected one of: {}",
            known.join(", ")
        )
    })
}

pub fn session_error(error: SessionError) -> Report {
    let (code, help) = match error {
        SessionError::Full { capacity, .. } => {
            ("full", format!("retrial ps shows them; retrial create NAME --sessions {}", u64::from(capacity) * 2))
        }
        SessionError::NoSpace => ("no_space", format!("df -h {}; retrial list", retrial::layout::DIRECTORY)),
        _ => ("stuck", "retrial ps".to_owned()),
    };
    miette!(code = format!("retrial::session::{code}"), help = help, "{error}; expected a free one")
}

pub fn object_error(error: ObjectError) -> Report {
    let mut expected = "a free one";
    let (code, help) = match error {
        ObjectError::Session(error) => return session_error(error),
        ObjectError::Full(full) => ("full", format!("retrial create NAME --{} {}", full.table, full.capacity * 2)),
        ObjectError::TooLarge { capacity, found, .. } => {
            let enough = capacity.saturating_mul(2).max(capacity.saturating_add(found));
            let help = format!("retrial create NAME --arena {enough}");
            return miette!(code = "retrial::mutex::full", help = help, "{error}");
        }
        ObjectError::Shape { .. } | ObjectError::Kind { .. } | ObjectError::Owned { .. } => {
            return miette!(code = "retrial::mutex::shape", help = "retrial show mutexes", "{error}");
        }
        ObjectError::Name { .. } => {
            return miette!(code = "retrial::mutex::name", help = "retrial hold m --create", "{error}");
        }
        _ => {
            expected = "free memory";
            ("no_space", format!("df -h {}; retrial list", retrial::layout::DIRECTORY))
        }
    };
    miette!(code = format!("retrial::mutex::{code}"), help = help, "{error}; expected {expected}")
}

/// A process that takes part trusts all processes that can write there, with its own rights: so it takes part
/// as the owner.
fn as_owner(uid: u32) -> String {
    format!("take part as its owner: sudo -u '#{uid}' retrial …")
}

/// Positions of schemes in [`wait::NAMES`]; `option` takes them.
pub fn schemes(names: &[String], option: &str) -> Result<Vec<usize>, Report> {
    let mut schemes = Vec::new();
    for name in names {
        if name.eq_ignore_ascii_case("all") {
            schemes.extend(0..wait::NAMES.len());
            continue;
        }
        schemes.push(wait::named(&name.to_ascii_lowercase()).ok_or_else(|| {
            miette!(
                code = "retrial::scheme",
                help = format!("{option} {}", wait::NAMES.join(",")),
                "no scheme `{name}`, expected `all` or some of {}",
                wait::NAMES.join(", ")
            )
        })?);
    }
    Ok(schemes)
}
