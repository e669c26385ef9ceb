//! Parameters set for a while: taken back when the command ends, however it ends.

use super::apply;
use crate::instances::{attach_error, mutex_type};
use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial::views::{Tables, TypeId};
use retrial::{Address, Instance, P};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

/// The word that ends a trial whose settings are to stay.
const KEEP: &str = "keep";

/// A parameter of a type of mutexes while it is tried.
#[derive(Serialize, Deserialize)]
pub struct Tried {
    #[serde(rename = "type")]
    pub mutex_type: String,
    /// Its name.
    pub parameter: String,
    /// The value before; none where the type followed the instance.
    before: Option<u64>,
    pub value: u64,
}

impl Tried {
    pub fn new(mutex_type: &str, p: P, value: u64) -> Self {
        Self { mutex_type: mutex_type.to_owned(), parameter: p.row().name.to_owned(), before: None, value }
    }

    /// The parameter, and the type's row.
    fn place(&self, instance: &Instance) -> Result<(P, Option<TypeId>), Report> {
        let of = mutex_type(instance.tables(), &self.mutex_type)?;
        Ok((P::named(&self.parameter).into_diagnostic()?, Some(of)))
    }

    /// As it was before, unless somebody else has set it meanwhile.
    fn take_back(&self, instance: &Instance) -> Result<(), Report> {
        let (p, of) = self.place(instance)?;
        if instance.tables().param_set(p, of) == Some(self.value) {
            apply(instance, of, &[(p, self.before)]);
        }
        Ok(())
    }
}

/// Settings that are in force as long as this is there.
///
/// A process of its own takes them back: this command may be killed, too. While one of the two lives, no
/// other trial of the instance begins.
pub struct Trial<'i> {
    instance: &'i Instance,
    settings: Vec<Tried>,
    keeper: Child,
    _only_one: File,
}

impl<'i> Trial<'i> {
    pub fn begin(instance: &'i Instance, mut settings: Vec<Tried>) -> Result<Self, Report> {
        let address = instance.tables().address().ok_or_else(|| miette!("the instance has no name, expected one"))?;
        still_there(instance.tables())?;
        let only_one = File::open(address.path()).into_diagnostic()?;
        only_one.try_lock().map_err(|error| {
            miette!(
                code = "retrial::trial",
                help = format!("fuser -v {} tells its process; wait for its end, or end it", address.path().display()),
                "{address}: settings are being tried there by another command ({error}), expected one at a time"
            )
        })?;
        // Only now: another trial may have ended meanwhile.
        for tried in &mut settings {
            let (p, of) = tried.place(instance)?;
            tried.before = instance.tables().param_set(p, of);
        }
        let keeper = Command::new(std::env::current_exe().into_diagnostic()?)
            .arg("take-back")
            .arg(address.to_string())
            .stdin(Stdio::piped())
            .stdout(only_one.try_clone().into_diagnostic()?) // locked as long as it lives
            .process_group(0) // no signal of a terminal reaches it
            .spawn()
            .into_diagnostic()
            .wrap_err("cannot start the process that takes the settings back")?;
        let mut trial = Self { instance, settings, keeper, _only_one: only_one };
        let line = serde_json::to_string(&trial.settings).into_diagnostic()?;
        trial.tell(&line).into_diagnostic().wrap_err("the process that takes the settings back has ended")?;
        for tried in &trial.settings {
            let (p, of) = tried.place(instance)?;
            instance.set(p, of, tried.value);
        }
        Ok(trial)
    }

    fn tell(&mut self, line: &str) -> std::io::Result<()> {
        let input = self.keeper.stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{line}")
    }

    /// A parameter that another command has changed meanwhile, and of which type: it stays as it is.
    pub fn changed_by_another(&self) -> Option<String> {
        let is_changed = |tried: &&Tried| {
            let place = tried.place(self.instance);
            place.is_ok_and(|(p, of)| self.instance.tables().param_set(p, of) != Some(tried.value))
        };
        self.settings.iter().find(is_changed).map(|tried| format!("{} for type {}", tried.parameter, tried.mutex_type))
    }

    /// Ends the trial: the settings stay.
    pub fn keep(mut self) {
        self.settings.clear();
        let _ = self.tell(KEEP);
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        if !self.keeper.wait().is_ok_and(|status| status.success()) {
            for tried in &self.settings {
                let _ = tried.take_back(self.instance);
            }
        }
    }
}

/// Refuses an instance that is gone, as at the end of a program under `retrial run`: nothing can be tried there.
pub fn still_there(tables: &Tables) -> Result<(), Report> {
    match tables.address() {
        Some(address) if !address.path().exists() => Err(miette!(
            code = "retrial::trial::gone",
            help = "retrial list",
            "{address}: the instance is there no longer: its program has ended"
        )),
        _ => Ok(()),
    }
}

/// What the process of a trial does: the first line of its input are the settings, and at the end of the
/// input it takes them back, unless the next line says that they stay.
pub fn take_back(address: &str) -> Result<ExitCode, Report> {
    let input = std::io::read_to_string(std::io::stdin()).into_diagnostic()?;
    let (settings, rest) = input.split_once('\n').unwrap_or_default();
    if settings.is_empty() || rest.trim() == KEEP {
        return Ok(ExitCode::SUCCESS);
    }
    let settings: Vec<Tried> = serde_json::from_str(settings).into_diagnostic()?;
    let address = Address::new(address).into_diagnostic()?;
    if !address.path().exists() {
        return Ok(ExitCode::SUCCESS); // and the settings with it
    }
    let instance = Instance::attach(&address).map_err(attach_error)?;
    settings.iter().try_for_each(|tried| tried.take_back(&instance))?;
    Ok(ExitCode::SUCCESS)
}
