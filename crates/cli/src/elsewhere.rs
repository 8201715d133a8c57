//! Windows and macOS: the answer to commands that are not there.

use crate::exit::{Exit, coded, usage};
use anyhow::Result;
use std::ffi::OsString;
use std::process::ExitCode;

pub const HELP: &str = include_str!("../help/roost-elsewhere.txt");

/// The commands of the module `on_linux`, which are not built here.
pub const ON_LINUX: [&str; 19] = [
    "observe", "plan", "govern", "prove", "daemon", "status", "set", "pause", "resume", "restore", "quiesce",
    "wake", "hot", "serve", "top", "stage", "replay", "demo", "doctor",
];

/// The answer to a command that is none here.
pub fn refuse(words: &[OsString]) -> Result<ExitCode> {
    let name = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    if ON_LINUX.contains(&name.as_ref()) {
        return Err(coded(
            Exit::Unsupported,
            format!(
                "`roost {name}` needs Linux: it works with its kernel\n\nhint: roost sim, load, policies, \
                 report and generate are here"
            ),
        ));
    }
    Err(usage(format!("there is no command `{name}`\n\nhint: roost --help names them")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(name: &str) -> ExitCode {
        crate::exit::code_of(&refuse(&[name.into()]).unwrap_err())
    }

    #[test]
    fn each_command_is_here_or_says_that_it_needs_linux() {
        let here = ["load", "sim", "policies", "report", "generate"];
        for command in crate::manual::command().get_subcommands() {
            let name = command.get_name();
            assert!(here.contains(&name) || ON_LINUX.contains(&name), "{name}");
        }
        for line in HELP.lines().filter_map(|line| line.trim().strip_prefix("roost ")) {
            assert!(here.contains(&line.split(' ').next().unwrap()), "{line}");
        }
        assert_eq!(code_of("govern"), Exit::Unsupported.into());
        assert_eq!(code_of("gvern"), Exit::Usage.into());
    }
}
