//! Exit codes, the same for every subcommand.

use std::fmt;
use std::process::ExitCode;

/// The reason why a command failed, as its exit code says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Failed = 1,
    /// The flags or the configuration are wrong. Clap exits with the same code.
    Usage = 2,
    /// This machine lacks a needed feature.
    Unsupported = 3,
    /// Another process holds the knob.
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

/// An address and a port, or how one is written.
pub fn parse_address(text: &str) -> Result<std::net::SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is no address with a port: write one such as 127.0.0.1:9464 (port 0 lets the system choose)")
    })
}

/// An error with its causes on one line. One that its error has told already is not told again.
pub fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The code that an error carries, or 1.
pub fn code_of(error: &anyhow::Error) -> ExitCode {
    error.downcast_ref::<Coded>().map_or(Exit::Failed, |coded| coded.exit).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn a_cause_is_told_once() {
        let denied = || std::io::Error::from_raw_os_error(13);
        let error = anyhow::Error::from(denied()).context(format!("cannot read x: {}", denied()));
        assert_eq!(told(&error), "cannot read x: Permission denied (os error 13)");
        let error = Err::<(), _>(denied()).context("cannot read x").unwrap_err();
        assert_eq!(told(&error), "cannot read x: Permission denied (os error 13)");
    }

    #[test]
    fn an_address_has_a_port() {
        assert!(parse_address("127.0.0.1:9464").is_ok() && parse_address("[::1]:0").is_ok());
        for wrong in ["127.0.0.1", "11299", "localhost:80", ""] {
            assert!(parse_address(wrong).unwrap_err().contains("such as 127.0.0.1:9464"), "{wrong}");
        }
    }
}
