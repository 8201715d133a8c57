//! Exit codes, the same for every subcommand.

use std::fmt;
use std::process::ExitCode;

/// Why a command did not do what was asked, as its exit code says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was tried and failed.
    Failed = 1,
    /// The flags or the configuration are wrong. Clap exits with the same code.
    Usage = 2,
    /// This machine lacks what it needs.
    Unsupported = 3,
    /// Somebody else holds the knob.
    Refused = 4,
    /// A goal or a bar was not met.
    GoalMissed = 5,
    /// The measurement is not valid: the generator could not keep up.
    Invalid = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that carries its exit code.
#[derive(Debug)]
pub struct Coded {
    exit: Exit,
    message: String,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for Coded {}

/// The flags or the configuration are wrong; `message` names the fix.
pub fn usage(message: impl fmt::Display) -> anyhow::Error {
    coded(Exit::Usage, message)
}

/// An error that ends the command with `exit`.
pub fn coded(exit: Exit, message: impl fmt::Display) -> anyhow::Error {
    Coded { exit, message: message.to_string() }.into()
}

/// The code that an error carries, or 1.
pub fn code_of(error: &anyhow::Error) -> ExitCode {
    error.downcast_ref::<Coded>().map_or(Exit::Failed, |coded| coded.exit).into()
}
