//! `--set KEY=VALUE`: keys of the configuration file on the command line.
//!
//! A command has options for daily work. All else that its table in `roost.toml` may hold is set by
//! the key's name, so that a value has one name in the file and in the shell.

use crate::exit::usage;
use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::str::FromStr;
use study::options::with_nearest;
use toml::{Table, Value};

/// A key and the text of its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    pub key: String,
    text: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').unwrap_or(("", ""));
        if key.trim().is_empty() {
            return Err("write KEY=VALUE, with a key of roost.toml".to_owned());
        }
        Ok(Self { key: key.trim().to_owned(), text: value.trim().to_owned() })
    }
}

/// `table` with all of `settings` in it. `others` are keys that the command takes besides.
pub fn set<'a, T: Serialize + DeserializeOwned>(
    table: T,
    settings: impl IntoIterator<Item = &'a Setting>,
    others: &[&str],
) -> Result<T> {
    let mut written = Table::try_from(table)?;
    for setting in settings {
        // A text first: a CPU list may look like a number.
        written.insert(setting.key.clone(), Value::String(setting.text.clone()));
        let value = format!("value = {}", setting.text).parse::<Table>().ok();
        if let Some(value) = value.and_then(|mut table| table.remove("value"))
            && written.clone().try_into::<T>().is_err()
        {
            written.insert(setting.key.clone(), value);
        }
        if let Err(error) = written.clone().try_into::<T>() {
            return Err(refused(setting, error.message(), others));
        }
    }
    Ok(written.try_into()?)
}

/// Those of `settings` that are among `keys`, as they are typed.
pub fn given(settings: &[Setting], keys: &[&str]) -> impl Iterator<Item = String> {
    let among = settings.iter().filter(|setting| keys.contains(&setting.key.as_str()));
    among.map(|setting| format!("--set {}", setting.key))
}

fn refused(setting: &Setting, message: &str, others: &[&str]) -> anyhow::Error {
    let also: String = others.iter().map(|key| format!(", `{key}`")).collect();
    let message = match message.trim_end() {
        message if message.contains("unknown field") => with_nearest(&format!("{message}{also}")),
        message => message.to_owned(),
    };
    usage(format!("--set {}={}: {message}", setting.key, setting.text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::quiesce::QuiesceConfig;
    use daemon::wake::WakeConfig;

    fn settings(texts: &[&str]) -> Vec<Setting> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_setting_is_the_key_of_the_file() {
        let words = ["max_pause=100ms", "max_share=0.5", "trigger=accept", "always=true", "domain=socket:1"];
        let set = set(QuiesceConfig::default(), &settings(&words), &[]).unwrap();
        let file = "max_pause = \"100ms\"\nmax_share = 0.5\ntrigger = \"accept\"\nalways = true\ndomain = \
                    \"socket:1\"";
        assert_eq!(set, toml::from_str(file).unwrap());
    }

    #[test]
    fn lists_of_cpus_are_texts_and_lists_of_users_are_numbers() {
        let set =
            set(WakeConfig::default(), &settings(&["cpus=3", "users=[7, 8]", "margin=2us"]), &[]).unwrap();
        assert_eq!((set.cpus.as_deref(), set.users), (Some("3"), vec![7, 8]));
    }

    #[test]
    fn a_wrong_setting_is_told_with_its_fix() {
        for (text, told) in [
            ("max_puase=1s", "did you mean `max_pause`?"),
            ("epok=1s", "did you mean `epoch`?"),
            ("max_pause=soon", "--set max_pause=soon: "),
            ("always=perhaps", "expected a boolean"),
        ] {
            let error = set(QuiesceConfig::default(), &settings(&[text]), &["epoch"]).unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
        }
        for text in ["max_pause", "=1", ""] {
            assert!(text.parse::<Setting>().unwrap_err().contains("KEY=VALUE"));
        }
    }
}
