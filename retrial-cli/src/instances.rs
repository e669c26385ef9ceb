//! From what the user typed to an instance, and from the library's errors to ones with a command to type next.

use clap::Args;
use miette::{Report, miette};
use retrial::{Address, AttachError, CreateError, Instance, MutexId, NameError, Observer, ParamError, Tables};

/// The instance that a command is about.
#[derive(Args, Clone, Debug)]
pub struct Which {
    /// Name of the instance, or a path with `/`; may be left out when there is just one
    #[arg(short, long, value_name = "NAME")]
    pub instance: Option<String>,
}

impl Which {
    fn address(&self) -> Result<Address, Report> {
        if let Some(text) = &self.instance {
            return address(text);
        }
        let names = retrial::list().unwrap_or_default();
        match names.as_slice() {
            [name] => address(name),
            [] => Err(miette!(
                code = "retrial::instance::none",
                help = "retrial create demo",
                "no instance under {}",
                retrial::DIRECTORY
            )),
            many => Err(miette!(
                code = "retrial::instance::which",
                help = format!("retrial … --instance {}", many[0]),
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

pub fn address(text: &str) -> Result<Address, Report> {
    Address::new(text).map_err(name_error)
}

fn name_error(error: NameError) -> Report {
    miette!(code = "retrial::instance::name", help = "retrial create demo", "{error}")
}

pub fn attach_error(error: AttachError) -> Report {
    let (code, help) = match &error {
        AttachError::NotFound(name) => ("not_found", format!("retrial list, or: retrial create {name}")),
        AttachError::Name(name) => return name_error(name.clone()),
        AttachError::Permission { path, .. } => {
            ("permission", format!("run as the owner of the instance, or as root: ls -l {}", path.display()))
        }
        AttachError::FileKind { path, .. } | AttachError::Owner { path, .. } => {
            ("file", format!("ls -l {}", path.display()))
        }
        AttachError::Magic { path, .. } => ("magic", format!("file {}", path.display())),
        AttachError::Format { .. } => {
            ("format", "use the build of retrial that created it, or: retrial rm NAME".to_owned())
        }
        AttachError::Capacity { .. } | AttachError::Truncated { .. } => {
            ("damaged", "retrial rm NAME, then create it again".to_owned())
        }
        _ => ("io", "retrial list".to_owned()),
    };
    miette!(code = format!("retrial::attach::{code}"), help = help, "{error}")
}

pub fn create_error(error: CreateError) -> Report {
    let (code, help) = match &error {
        CreateError::Exists(name) => ("exists", format!("retrial show --instance {name}, or: retrial rm {name}")),
        CreateError::Name(name) => return name_error(name.clone()),
        CreateError::Capacity { .. } => ("capacity", "retrial create --help".to_owned()),
        CreateError::NoSpace { .. } => ("no_space", format!("df -h {}, retrial list", retrial::DIRECTORY)),
        _ => ("io", format!("ls -ld {}", retrial::DIRECTORY)),
    };
    miette!(code = format!("retrial::create::{code}"), help = help, "{error}")
}

pub fn param_error(error: &ParamError) -> Report {
    let (code, help) = match error {
        ParamError::Unknown { .. } => ("unknown", "retrial show params".to_owned()),
        ParamError::Form(_) => ("form", "retrial set mutex_spin_count=255".to_owned()),
        ParamError::Value { name, .. } | ParamError::Unit { name, .. } => {
            ("value", format!("retrial show params {name}"))
        }
        _ => ("value", "retrial show params".to_owned()),
    };
    miette!(code = format!("retrial::param::{code}"), help = help, "{error}")
}

/// The mutex of this name, or of this id with `#`.
pub fn mutex(tables: &Tables, text: &str) -> Result<MutexId, Report> {
    let by_id = text.strip_prefix('#').and_then(|digits| digits.parse().ok()).map(MutexId);
    by_id.filter(|id| tables.mutex(*id).is_some()).or_else(|| tables.mutex_named(text)).ok_or_else(|| {
        let names: Vec<String> =
            tables.mutexes().into_iter().map(|m| m.name).filter(|n| !n.is_empty()).take(8).collect();
        let known = if names.is_empty() { "none has a name".to_owned() } else { names.join(", ") };
        miette!(
            code = "retrial::mutex::not_found",
            help = format!("retrial hold {text} --create"),
            "no mutex `{text}` in this instance; there are: {known}"
        )
    })
}
