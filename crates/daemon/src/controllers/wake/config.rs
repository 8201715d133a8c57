//! The `[wake]` table of the configuration.

use super::{Act, Alarm, Token, WakeOptions};
use crate::controllers::Refusal;
use machine::{CpuId, CpuList, Duration, Ratio};
use policy::wake_plan::{AllowanceParams, Params};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The callers that are heard, their allowances, and how CPUs are woken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WakeConfig {
    /// CPUs that may be kept awake, such as `0-3`; all that the daemon may use where it is left out.
    pub cpus: Option<String>,
    /// The time that waking takes; measured at the start where it is left out.
    pub exit_latency: Option<String>,
    /// A window begins earlier than waking takes, by this margin.
    #[serde(with = "machine::duration_text")]
    pub margin: Duration,
    /// How CPUs are kept awake; the way that measured quicker where it is left out.
    pub act: Option<Act>,
    /// How CPUs are woken; the way that measured quicker where it is left out.
    pub alarm: Option<Alarm>,
    /// The longest window that a request may ask for.
    #[serde(with = "machine::duration_text")]
    pub max_stay: Duration,
    /// Requests a second of one user, under all its names, and of all callers that know the token.
    pub max_rate: u32,
    /// Percent of one CPU's time for which one user may keep CPUs awake.
    pub max_share: f64,
    /// Percent of all CPUs' time for which all callers together may keep them awake.
    pub max_share_of_all: f64,
    /// Users that may ask, beside the daemon's own and root.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<u32>,
    /// Announcements come in datagrams here; needs `token_file`.
    pub udp: Option<SocketAddr>,
    /// Announcements come over HTTP here; needs `token_file`.
    pub http: Option<SocketAddr>,
    /// The token that remote callers show; readable by its owner alone.
    pub token_file: Option<PathBuf>,
    /// Listen at addresses other than the loopback.
    pub remote: bool,
    /// CPUs of a caller that names none, up to four; the last where it is left out.
    pub remote_cpus: Option<String>,
    /// Foresee the answers of disks from the kernel's events.
    pub disks: bool,
    /// The CPU on which callers are heard; the first where it is left out.
    pub home: Option<u16>,
    /// Leave the kernel's idle events alone: accounts then rest on cpuidle's residency.
    pub without_events: bool,
}

impl Default for WakeConfig {
    fn default() -> Self {
        Self {
            cpus: None,
            exit_latency: None,
            margin: Duration::from_micros(5),
            act: None,
            alarm: None,
            max_stay: Duration::from_millis(100),
            max_rate: 20_000,
            max_share: 50.0,
            max_share_of_all: 50.0,
            users: Vec::new(),
            udp: None,
            http: None,
            token_file: None,
            remote: false,
            remote_cpus: None,
            disks: false,
            home: None,
            without_events: false,
        }
    }
}

/// The number of users that can all ask at their full rate.
const CALLERS_AT_FULL_RATE: u32 = 4;

impl WakeConfig {
    /// Refuses meaningless values, and remote callers without a token.
    pub fn check(&self) -> Result<(), Refusal> {
        for (name, address) in [("udp", self.udp), ("http", self.http)] {
            let Some(address) = address else { continue };
            if self.token_file.is_none() {
                return Err(Refusal::usage(format!(
                    "{name} needs token_file: `head -c 24 /dev/urandom \
                     | base64 > token; chmod 600 token`"
                )));
            }
            if !address.ip().is_loopback() && !self.remote {
                return Err(Refusal::usage(format!(
                    "{address} can be reached from elsewhere: add remote = true if it shall be"
                )));
            }
        }
        if !(0.0..=100.0).contains(&self.max_share) || self.max_rate == 0 {
            return Err(Refusal::usage("max_share is 0 to 100 percent, and max_rate at least 1"));
        }
        if !(0.0..=100.0).contains(&self.max_share_of_all) {
            return Err(Refusal::usage("max_share_of_all is 0 to 100 percent"));
        }
        self.latency()?;
        list(&self.cpus)?;
        list(&self.remote_cpus).map(drop)
    }

    fn latency(&self) -> Result<Option<Duration>, Refusal> {
        let parse = |text: &String| text.parse::<Duration>().map_err(Refusal::usage);
        self.exit_latency.as_ref().map(parse).transpose()
    }

    /// The planner's options on this machine.
    pub fn options(&self) -> Result<WakeOptions, Refusal> {
        self.check()?;
        let allowed = linux::allowed_cpus().map_err(Refusal::usage)?;
        let cpus = list(&self.cpus)?.unwrap_or_else(|| allowed.clone());
        linux::check_allowed(&cpus, &allowed).map_err(Refusal::usage)?;
        let token = self.token_file.as_deref().map(Token::read).transpose().map_err(Refusal::usage)?;
        let last = CpuList(cpus.0.last().copied().into_iter().collect());
        let remote_cpus = list(&self.remote_cpus)?.unwrap_or(last);
        linux::check_allowed(&remote_cpus, &cpus).map_err(Refusal::usage)?;
        let allowance = |rate: u32, percent: f64| AllowanceParams {
            rate,
            share: Ratio::new(percent / 100.0),
            ..AllowanceParams::default()
        };
        let params = Params {
            margin: self.margin,
            max_stay: self.max_stay,
            // More than one principal may have, so that none can fill a CPU's places alone.
            max_per_cpu: 256,
            max_per_principal: 64,
            allowance: Some(allowance(self.max_rate, self.max_share)),
            machine: Some(allowance(
                self.max_rate.saturating_mul(CALLERS_AT_FULL_RATE),
                self.max_share_of_all,
            )),
            ..Params::default()
        };
        Ok(WakeOptions {
            cpus,
            params,
            exit_latency: self.latency()?,
            act: self.act,
            alarm: self.alarm,
            users: self.users.clone(),
            udp: self.udp,
            token,
            remote_cpus,
            events: !self.without_events,
            disks: self.disks,
            home: self.home.map(CpuId).or(allowed.0.first().copied()),
        })
    }
}

fn list(text: &Option<String>) -> Result<Option<CpuList>, Refusal> {
    text.as_ref().map(|text| text.parse::<CpuList>().map_err(Refusal::usage)).transpose()
}
