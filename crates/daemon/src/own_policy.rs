//! The policy of a service by its name, or one of one's own by its file.
//!
//! Invariants: root reads a file that a configuration names only where no other user could
//! have put it. A file that a command names is opened by the command, with the caller's rights, and
//! a daemon that runs gets the descriptor.

use crate::config::ConfigError;
use linux::SafeFolder;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf, absolute};
use std::str::FromStr;
use std::sync::Arc;
use wasm::Module;

/// How the number of cores is found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Policy {
    /// CARB: with a goal the fewest cores that keep it, without one by the slope of the tail.
    #[default]
    Carb,
    /// CARB's three algorithms as its paper prints them.
    CarbPaper,
    /// As many as `cores` says; all of them where it says nothing.
    Fixed,
    /// A WebAssembly module that its user has written.
    Own(OwnPolicy),
}

/// The file of a policy of one's own.
#[derive(Clone, Debug)]
pub struct OwnPolicy {
    path: PathBuf,
    /// Read once it is known by whose rights.
    module: Option<Module>,
    /// The same file, to be handed to a daemon that runs.
    file: Option<Arc<File>>,
}

impl PartialEq for OwnPolicy {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.module) == (&other.path, &other.module)
    }
}

impl OwnPolicy {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn module(&self) -> Option<&Module> {
        self.module.as_ref()
    }
}

impl Policy {
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    pub(crate) fn file(&self) -> Option<&File> {
        match self {
            Self::Own(own) => own.file.as_deref(),
            Self::Carb | Self::CarbPaper | Self::Fixed => None,
        }
    }

    /// Takes the module out of a file that came with it.
    pub(crate) fn take(&mut self, file: File) -> Result<(), String> {
        let Self::Own(own) = self else { return Ok(()) };
        // A pipe would be waited for.
        if !file.metadata().is_ok_and(|about| about.is_file()) {
            return Err(format!("{} is no regular file", own.path.display()));
        }
        own.module = Some(Module::of_file(&own.path, file).map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Reads the file of a policy of one's own with the rights of this process; a relative one lies
    /// in `folder`.
    pub fn read(&mut self, folder: &Path) -> Result<(), String> {
        let Self::Own(own) = self else { return Ok(()) };
        own.path = absolute(folder.join(&own.path)).map_err(|error| error.to_string())?;
        own.module = Some(Module::read(&own.path).map_err(|error| error.to_string())?);
        own.file = File::open(&own.path).ok().map(Arc::new);
        Ok(())
    }

    /// The same for a configuration, beside which relative files lie.
    pub(crate) fn read_trusted(&mut self, config: &Path) -> Result<(), ConfigError> {
        let Self::Own(own) = self else { return Ok(()) };
        own.path = config.parent().unwrap_or(Path::new("")).join(&own.path);
        let read = || -> Result<Module, String> {
            let (folder, name) = SafeFolder::of_file(&own.path, None).map_err(|error| error.to_string())?;
            let folder = folder.trusted().map_err(|error| error.to_string())?;
            let user = rustix::process::geteuid().as_raw();
            let bytes = folder.read_of(name, user, wasm::MOST_BYTES).map_err(|error| error.to_string())?;
            Module::new(&own.path.display().to_string(), &bytes).map_err(|error| error.to_string())
        };
        let module = read().map_err(|reason| ConfigError::Policy { path: config.to_owned(), reason })?;
        own.module = Some(module);
        Ok(())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "carb" => Ok(Self::Carb),
            "carb-paper" => Ok(Self::CarbPaper),
            "fixed" => Ok(Self::Fixed),
            _ if text.ends_with(".wasm") => {
                Ok(Self::Own(OwnPolicy { path: text.into(), module: None, file: None }))
            }
            _ => Err(format!(
                "no policy is called `{text}`: write carb, carb-paper, fixed, or the file of your own, \
                 such as mine.wasm"
            )),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Carb => f.write_str("carb"),
            Self::CarbPaper => f.write_str("carb-paper"),
            Self::Fixed => f.write_str("fixed"),
            Self::Own(own) => own.path.display().fmt(f),
        }
    }
}

impl TryFrom<String> for Policy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> Self {
        policy.to_string()
    }
}
