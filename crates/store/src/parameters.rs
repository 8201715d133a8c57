//! The store's configuration file: limits of its connections, and parameters of its policies and
//! of its stage.

use policy::check::{Check as _, Wrong};
use serde::{Deserialize, Serialize};

/// A file's parameters. As in a live store where it has none.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    pub limits: ConnectionLimits,
    /// Of `--policy peafowl`, and of how every policy's workers measure.
    pub peafowl: policy::peafowl::Params,
    pub carb: policy::carb::Params,
    pub stage: StageParameters,
    pub stealing: StealingParameters,
    pub unix: UnixParameters,
    pub nic: NicParameters,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectionLimits {
    /// Clients at the most; others are refused at once.
    pub connections: u32,
    /// A client that takes none of its answers, or sends no more of a request, is closed after this
    /// time; after less, down to 5 s, as the memory of connections (an eighth of the store's limit)
    /// runs out.
    #[serde(with = "machine::duration_text")]
    pub stall: machine::Duration,
    /// Whether a client may list all items: `lru_crawler metadump` and `mgdump`.
    pub dump: bool,
    /// Whether a client may watch the keys and connections of other clients: `watch`.
    pub watch: bool,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { connections: 10_000, stall: machine::Duration::from_secs(30), dump: true, watch: true }
    }
}

impl ConnectionLimits {
    fn check(&self) -> Result<(), Wrong> {
        let key = match self {
            Self { connections: 0, .. } => "connections",
            Self { stall: machine::Duration::ZERO, .. } => "stall",
            _ => return Ok(()),
        };
        let fix = if key == "stall" { "30s, say" } else { "10000, say" };
        Err(Wrong {
            key: key.to_owned(),
            problem: "is 0, so no client is served".to_owned(),
            fix: fix.to_owned(),
        })
    }
}

/// Of `--stage`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StageParameters {
    /// Requests are served this often at the least; `None`: only when the goal is in danger.
    #[serde(with = "machine::duration_text::optional")]
    pub period: Option<machine::Duration>,
}

/// Idle workers serve requests of busy ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StealingParameters {
    /// Requests that would wait for longer than this; `None`: none.
    #[serde(with = "machine::duration_text::optional")]
    pub after: Option<machine::Duration>,
}

/// Of the sockets of `--listen unix:PATH`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct UnixParameters {
    /// Permissions of their files, in octal, such as 0660.
    pub mode: String,
}

impl Default for UnixParameters {
    fn default() -> Self {
        Self { mode: "0600".to_owned() }
    }
}

impl UnixParameters {
    /// The permissions as a number; `None`: the text is no such number.
    pub fn permissions(&self) -> Option<u32> {
        u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o777)
    }

    fn check(&self) -> Result<(), Wrong> {
        let wrong = || Wrong {
            key: "mode".to_owned(),
            problem: "is no permissions in octal".to_owned(),
            fix: "\"0660\", say".to_owned(),
        };
        self.permissions().map(drop).ok_or_else(wrong)
    }
}

/// Of `--nic-suspend`: when the card's queues interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NicParameters {
    /// For so long a worker that serves may stay away from its queue without an interrupt.
    #[serde(with = "machine::duration_text")]
    pub suspend: machine::Duration,
    /// So long after a look that found packets the kernel looks again by itself.
    #[serde(with = "machine::duration_text")]
    pub flush: machine::Duration,
    /// So many looks that find nothing, and the interrupt is on.
    pub looks: u32,
    /// So long a worker looks for packets before it sleeps; zero: once.
    #[serde(with = "machine::duration_text")]
    pub busy_poll: machine::Duration,
}

impl Default for NicParameters {
    /// The times that the kernel's documentation and the method's paper use; no busy polling.
    fn default() -> Self {
        Self {
            suspend: machine::Duration::from_millis(20),
            flush: machine::Duration::from_micros(20),
            looks: 100,
            busy_poll: machine::Duration::ZERO,
        }
    }
}

impl NicParameters {
    fn check(&self) -> Result<(), Wrong> {
        let (key, problem, fix) = match self {
            Self { suspend: machine::Duration::ZERO, busy_poll: machine::Duration::ZERO, .. } => {
                ("suspend", "is 0, and busy_poll too, so no interrupt is put off", "20ms, say")
            }
            Self { looks: 0, .. } | Self { looks: 0x8000_0000.., .. } => {
                ("looks", "is no number of looks that the kernel takes", "100, say")
            }
            Self { flush: machine::Duration::ZERO, .. } => (
                "flush",
                "is 0, so packets that come after a worker's last look are never looked for",
                "20us, say",
            ),
            _ => return Ok(()),
        };
        Err(Wrong { key: key.to_owned(), problem: problem.to_owned(), fix: fix.to_owned() })
    }
}

/// Why a text is no such file.
#[derive(Debug, thiserror::Error)]
pub enum ParametersError {
    /// It is no TOML, or has a key that is not known.
    #[error(transparent)]
    Malformed(#[from] toml::de::Error),
    /// A figure that no policy can go by.
    #[error("{0}\n")]
    Impossible(Wrong),
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            limits: ConnectionLimits::default(),
            peafowl: policy::peafowl::Params::live(),
            carb: policy::carb::Params::default(),
            stage: StageParameters::default(),
            stealing: StealingParameters::default(),
            unix: UnixParameters::default(),
            nic: NicParameters::default(),
        }
    }
}

impl Parameters {
    /// The rules that the policies' papers print, and nothing of ours.
    pub fn paper() -> Self {
        Self {
            limits: ConnectionLimits::default(),
            peafowl: policy::peafowl::Params::paper(),
            carb: policy::carb::Params::paper(),
            stage: StageParameters::default(),
            stealing: StealingParameters::default(),
            unix: UnixParameters::default(),
            nic: NicParameters::default(),
        }
    }

    /// A parameter that a file leaves out of a table is as in a live store, not as in the policy's
    /// own defaults.
    pub fn parse(text: &str) -> Result<Self, ParametersError> {
        // First as it stands: this reading knows the line of the fault.
        let mut file: Self = toml::from_str(text)?;
        let mut all: toml::Table = toml::from_str(text)?;
        if let Some(toml::Value::Table(given)) = all.remove("peafowl") {
            let live = toml::to_string(&policy::peafowl::Params::live()).expect("plain figures");
            let mut table: toml::Table = toml::from_str(&live)?;
            table.extend(given);
            file.peafowl = table.try_into()?;
        }
        let wrong = |table| move |wrong: Wrong| ParametersError::Impossible(wrong.below(table));
        file.peafowl.check().map_err(wrong("peafowl"))?;
        file.carb.check().map_err(wrong("carb"))?;
        file.limits.check().map_err(wrong("limits"))?;
        file.unix.check().map_err(wrong("unix"))?;
        file.nic.check().map_err(wrong("nic"))?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commented file shows the defaults, all of them: it cannot fall behind the code.
    #[test]
    fn the_shipped_configuration_is_the_default_one() {
        let shipped = include_str!("../../../config/serve.toml");
        let table: toml::Table = toml::from_str(shipped).unwrap();
        let defaults: toml::Table =
            toml::from_str(&toml::to_string(&Parameters::default()).unwrap()).unwrap();
        assert_eq!(table, defaults);
    }

    #[test]
    fn what_a_file_leaves_out_is_as_in_a_live_store() {
        let file = Parameters::parse("[peafowl]\nheadroom = 0.5\n").unwrap();
        assert_eq!(
            file.peafowl,
            policy::peafowl::Params { headroom: 0.5, ..policy::peafowl::Params::live() }
        );
        assert_eq!(Parameters::parse("").unwrap(), Parameters::default());
        let old = Parameters::parse("[peafowl]\nload = \"requests\"\n").unwrap();
        assert_eq!(old.peafowl.load, policy::peafowl::Load::Requests);
    }

    #[test]
    fn unknown_keys_and_figures_that_cannot_be_are_refused_by_name() {
        for (text, named) in [
            ("[peafowl]\nblok = \"1s\"\n", "blok"),
            ("[peafowl]\nwindow_requests = 0\n", "peafowl.window_requests"),
            ("[peafowl]\nheadroom = nan\n", "peafowl.headroom"),
            ("[carb]\nepoch = \"0s\"\n", "carb.epoch"),
            ("[limits]\nconnections = 0\n", "limits.connections"),
            ("[limits]\nstall = \"0s\"\n", "limits.stall"),
            ("[unix]\nmode = \"rw\"\n", "unix.mode"),
            ("[unix]\nmode = \"1777\"\n", "unix.mode"),
            ("[nic]\nsuspend = \"0s\"\n", "nic.suspend"),
            ("[nic]\nflush = \"0us\"\n", "nic.flush"),
            ("[nic]\nlooks = 0\n", "nic.looks"),
        ] {
            let error = Parameters::parse(text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn what_the_papers_print_can_be() {
        let text = toml::to_string(&Parameters::paper()).unwrap();
        assert_eq!(Parameters::parse(&text).unwrap(), Parameters::paper());
    }
}
