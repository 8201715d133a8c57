//! `--config FILE` of a command that governs one thing: its other keys, in the words of
//! `roost.toml`.
//!
//! A command has options for daily work. Every other key has one name and one place, a file: keys
//! of the daemon as a whole, and one table of the command's kind. An option wins over the file.

use crate::exit::usage;
use ::daemon::Config;
use anyhow::Result;
use linux::Root;
use std::fs;
use std::path::{Path, PathBuf};
use study::options::with_nearest;
use toml::{Table, Value};

/// The tables of a configuration that each govern something, and whether there may be several.
const KINDS: [(&str, bool); 4] = [("service", true), ("quiesce", true), ("hurry_up", true), ("wake", false)];

/// The configuration of a command, from its file and its flags.
#[derive(Debug)]
pub struct Written {
    pub config: Config,
    /// Keys of the file that a daemon which runs has decided for itself.
    pub whole: Vec<String>,
}

/// The keys of `file`, with `own` in its table of `kind`. The control socket is `socket`, or that
/// of the file, or the usual one of the machine at `root`.
pub fn configuration(
    file: Option<&Path>,
    kind: &str,
    own: Table,
    socket: Option<&PathBuf>,
    root: &Root,
) -> Result<Written> {
    let mut table = file.map(read).transpose()?.unwrap_or_default();
    let place = || place(file).display();
    let several = |what: &str| {
        usage(format!(
            "{}: {what}\nhint: `roost daemon --config FILE` governs all that a file names",
            place()
        ))
    };
    if let Some((other, _)) = KINDS.iter().find(|(name, _)| *name != kind && table.contains_key(*name)) {
        return Err(several(&format!("this command governs no {other}")));
    }
    let whole: Vec<String> = table
        .keys()
        .filter(|key| ![kind, "socket"].contains(&key.as_str()))
        .map(|key| format!("{key} of {}", place()))
        .collect();
    let names_socket = table.contains_key("socket");
    let mut entry = match table.remove(kind) {
        None => Table::new(),
        Some(Value::Table(entry)) => entry,
        Some(Value::Array(mut entries)) if entries.len() == 1 => match entries.remove(0) {
            Value::Table(entry) => entry,
            _ => return Err(usage(format!("{}: write a table, [[{kind}]]", place()))),
        },
        Some(_) => return Err(several(&format!("this command governs one {kind}"))),
    };
    entry.extend(own);
    let is_list = KINDS.iter().any(|(name, is_list)| *name == kind && *is_list);
    let entry = Value::Table(entry);
    table.insert(kind.to_owned(), if is_list { vec![entry].into() } else { entry });
    let mut config: Config = Value::Table(table).try_into().map_err(|error: toml::de::Error| {
        let message = with_nearest(error.message().trim_end());
        usage(if file.is_some() { format!("{}: {message}", place()) } else { message })
    })?;
    if socket.is_some() || !names_socket {
        config.socket = crate::daemon::socket_or(socket, root);
    }
    Ok(Written { config, whole })
}

/// The place of a wrong value.
pub fn place(file: Option<&Path>) -> &Path {
    file.unwrap_or(Path::new("the command line"))
}

/// The names of those that are given.
pub fn given(flags: &[(&str, bool)]) -> impl Iterator<Item = String> {
    flags.iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| (*flag).to_owned())
}

fn read(file: &Path) -> Result<Table> {
    let text = fs::read_to_string(file)
        .map_err(|error| usage(format!("cannot read {}: {error}", file.display())))?;
    text.parse().map_err(|error| usage(format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;

    fn written(text: &str, kind: &str, own: &str) -> Result<Written> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("my.toml");
        fs::write(&path, text)?;
        configuration(Some(&path), kind, own.parse()?, None, &Root::system())
    }

    #[test]
    fn an_option_wins_over_the_file_and_leaves_its_other_keys() {
        let text = "epoch = \"2s\"\n[[service]]\nmin_cores = 2\ngoal = \"5ms@p99\"\n";
        let Written { config, whole } = written(text, "service", "port = 7\ngoal = \"1ms@p99\"").unwrap();
        assert_eq!(config.epoch, Duration::from_secs(2));
        let [service] = &config.services[..] else { panic!("{config:?}") };
        assert_eq!(
            (service.min_cores, service.goal.map(|goal| goal.to_string())),
            (2, Some("1.00ms@p99".into()))
        );
        assert!(whole.len() == 1 && whole[0].starts_with("epoch of "), "{whole:?}");
    }

    #[test]
    fn the_table_of_wake_is_one() {
        let config =
            written("[wake]\nusers = [7, 8]\nmargin = \"2us\"", "wake", "cpus = \"3\"").unwrap().config;
        let wake = config.wake.unwrap();
        assert_eq!((wake.cpus.as_deref(), wake.users), (Some("3"), vec![7, 8]));
        assert_eq!(wake.margin, Duration::from_micros(2));
    }

    #[test]
    fn the_socket_of_the_file_is_used() {
        let config = written("socket = \"/tmp/own.sock\"", "wake", "").unwrap().config;
        assert_eq!(config.socket, Path::new("/tmp/own.sock"));
    }

    #[test]
    fn a_wrong_file_is_told_with_its_fix() {
        for (text, told) in [
            ("[[quiesce]]\nmax_puase = \"1s\"", "did you mean `max_pause`?"),
            ("epok = \"1s\"", "did you mean `epoch`?"),
            ("[[quiesce]]\nmax_pause = \"soon\"", "my.toml: "),
            ("[[quiesce]]\nalways = \"perhaps\"", "expected a boolean"),
            ("[[quiesce]]\n[[quiesce]]", "governs one quiesce"),
            ("[[service]]\nport = 1", "governs no service"),
            ("quiesce = [1]", "write a table, [[quiesce]]"),
            ("epoch = ", "line 1, column"),
        ] {
            let error = written(text, "quiesce", "").unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
        let nowhere =
            configuration(Some(Path::new("/nowhere/a.toml")), "wake", Table::new(), None, &Root::system());
        assert!(nowhere.unwrap_err().to_string().contains("cannot read /nowhere/a.toml"));
    }
}
