//! What `roost wake` is asked for.

use crate::exit::usage;
use anyhow::Result;
use clap::ValueEnum;
use daemon::wake::{Act, Alarm, Token, WakeOptions};
use machine::{CpuId, CpuList, Duration, Ratio};
use policy::wake_plan::{AllowanceParams, Params};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The planner's own options.
#[derive(clap::Args)]
pub struct Options {
    /// Which CPUs may be kept awake, such as 0-3 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    /// Measure what waking takes, say it, and end
    #[arg(long)]
    pub calibrate: bool,
    /// What waking takes, instead of measuring it
    #[arg(long, value_name = "TIME")]
    exit_latency: Option<Duration>,
    /// Begin so much earlier than that
    #[arg(long, value_name = "TIME", default_value = "5us")]
    margin: Duration,
    /// By what CPUs are kept awake [default: what was measured to be quicker]
    #[arg(long, value_enum, value_name = "MEANS")]
    act: Option<ActName>,
    /// By what they are woken [default: what was measured to be quicker]
    #[arg(long, value_enum, value_name = "MEANS")]
    alarm: Option<AlarmName>,
    /// The longest that a request may ask to stay ready
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    max_stay: Duration,
    /// Requests a second that one user may make, under whatever names, and all who know the token together
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    max_rate: u32,
    /// Percent of one CPU's time for which one user may keep CPUs awake, and all who know the token together
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    max_share: f64,
    /// Percent of all CPUs' time for which all callers together may keep them awake
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    max_share_of_all: f64,
    /// Where local callers connect
    #[arg(long, value_name = "FILE", default_value = super::at::SOCKET)]
    socket: PathBuf,
    /// Users who may ask, beside this one and root
    #[arg(long = "user", value_name = "UID")]
    users: Vec<u32>,
    /// Hear announcements in datagrams here; needs --token-file
    #[arg(long, value_name = "ADDR", value_parser = crate::exit::parse_address)]
    udp: Option<SocketAddr>,
    /// Hear announcements over HTTP here (POST /wake); needs --token-file
    #[arg(long, value_name = "ADDR", value_parser = crate::exit::parse_address)]
    pub http: Option<SocketAddr>,
    /// The token that remote callers must show; readable by its owner alone
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Listen for remote callers at other addresses than the loopback
    #[arg(long)]
    remote: bool,
    /// CPUs that callers mean who name none, up to four [default: the last]
    #[arg(long, value_name = "LIST")]
    remote_cpus: Option<CpuList>,
    /// Foresee what disks will answer, from the kernel's own events: no program need say anything
    #[arg(long)]
    disks: bool,
    /// The CPU on which callers are heard, and which what they say wakes [default: the first]
    #[arg(long, value_name = "CPU")]
    home: Option<u16>,
    /// Serve metrics for Prometheus here
    #[arg(long, value_name = "ADDR", value_parser = crate::exit::parse_address)]
    pub metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub names: crate::metrics::Names,
    /// Do not count sleep by events in the kernel: the accounts then rest on cpuidle's residency alone
    #[arg(long)]
    without_events: bool,
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Duration>,
    /// Folder for the page and its numbers [default: runs/wake-DATE-TIME, or none with --json]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the last status as JSON instead of the live view
    #[arg(long)]
    pub json: bool,
}

/// [`Act`], as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ActName {
    /// The CPU's idle limit is zero, so that it polls
    Polling,
    /// A thread spins on it
    Spin,
}

impl ActName {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Spin => "spin",
        }
    }
}

impl From<ActName> for Act {
    fn from(name: ActName) -> Self {
        match name {
            ActName::Polling => Self::Polling,
            ActName::Spin => Self::Spin,
        }
    }
}

impl From<Act> for ActName {
    fn from(act: Act) -> Self {
        match act {
            Act::Polling => Self::Polling,
            Act::Spin => Self::Spin,
        }
    }
}

/// [`Alarm`], as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AlarmName {
    /// A thread on the CPU has a timer of its own
    Thread,
    /// The kernel sets a timer as the CPU goes idle (BPF, Linux 6.7)
    Kernel,
}

impl AlarmName {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Kernel => "kernel",
        }
    }
}

impl From<AlarmName> for Alarm {
    fn from(name: AlarmName) -> Self {
        match name {
            AlarmName::Thread => Self::Thread,
            AlarmName::Kernel => Self::Kernel,
        }
    }
}

impl From<Alarm> for AlarmName {
    fn from(alarm: Alarm) -> Self {
        match alarm {
            Alarm::Thread => Self::Thread,
            Alarm::Kernel => Self::Kernel,
        }
    }
}

/// So many users may make as many requests as each may.
const CALLERS_AT_FULL_RATE: u32 = 4;

impl Options {
    /// What the planner is asked.
    pub fn options(&self) -> Result<WakeOptions> {
        let allowed = linux::allowed_cpus().map_err(usage)?;
        let cpus = self.cpus.clone().unwrap_or_else(|| allowed.clone());
        linux::check_allowed(&cpus, &allowed).map_err(usage)?;
        let token = self.token_file.as_deref().map(Token::read).transpose().map_err(usage)?;
        for (name, address) in [("--udp", self.udp), ("--http", self.http)] {
            let Some(address) = address else { continue };
            if token.is_none() {
                return Err(usage(format!(
                    "{name} needs --token-file: `head -c 24 /dev/urandom | base64 > token; chmod 600 token`"
                )));
            }
            if !address.ip().is_loopback() && !self.remote {
                return Err(usage(format!(
                    "{address} can be reached from elsewhere: add --remote if it shall be"
                )));
            }
        }
        let last = CpuList(cpus.0.last().copied().into_iter().collect());
        let remote_cpus = self.remote_cpus.clone().unwrap_or(last);
        linux::check_allowed(&remote_cpus, &cpus).map_err(usage)?;
        if !(0.0..=100.0).contains(&self.max_share) || self.max_rate == 0 {
            return Err(usage("--max-share is 0 to 100 percent, and --max-rate at least 1"));
        }
        if !(0.0..=100.0).contains(&self.max_share_of_all) {
            return Err(usage("--max-share-of-all is 0 to 100 percent"));
        }
        let allowance = AllowanceParams {
            rate: self.max_rate,
            share: Ratio::new(self.max_share / 100.0),
            ..AllowanceParams::default()
        };
        let machine = AllowanceParams {
            rate: self.max_rate.saturating_mul(CALLERS_AT_FULL_RATE),
            share: Ratio::new(self.max_share_of_all / 100.0),
            ..AllowanceParams::default()
        };
        let params = Params {
            margin: self.margin,
            max_stay: self.max_stay,
            // More than one principal may have: none can fill a CPU's places alone.
            max_per_cpu: 256,
            max_per_principal: 64,
            allowance: Some(allowance),
            machine: Some(machine),
            ..Params::default()
        };
        Ok(WakeOptions {
            cpus,
            params,
            exit_latency: self.exit_latency,
            act: self.act.map(Act::from),
            alarm: self.alarm.map(Alarm::from),
            socket: self.socket.clone(),
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
