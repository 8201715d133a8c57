//! The options of `roost wake`.

use ::daemon::wake::{Act, Alarm, WakeConfig};
use clap::ValueEnum;
use machine::{CpuList, Duration};
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
    /// Requests a second that one user may make, under whatever names, and all who know the token
    /// together
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    max_rate: u32,
    /// Percent of one CPU's time for which one user may keep CPUs awake, and all who know the token
    /// together
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    max_share: f64,
    /// Percent of all CPUs' time for which all callers together may keep them awake
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    max_share_of_all: f64,
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
    #[command(flatten)]
    pub names: crate::metrics::Names,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
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

impl Options {
    /// The table of the configuration that says the same.
    pub fn table(&self) -> WakeConfig {
        let text = |cpus: &Option<CpuList>| cpus.as_ref().map(ToString::to_string);
        WakeConfig {
            cpus: text(&self.cpus),
            exit_latency: self.exit_latency.map(|latency| format!("{}ns", latency.as_nanos())),
            margin: self.margin,
            act: self.act.map(Act::from),
            alarm: self.alarm.map(Alarm::from),
            max_stay: self.max_stay,
            max_rate: self.max_rate,
            max_share: self.max_share,
            max_share_of_all: self.max_share_of_all,
            users: self.users.clone(),
            udp: self.udp,
            http: self.http,
            token_file: self.token_file.clone(),
            remote: self.remote,
            remote_cpus: text(&self.remote_cpus),
            disks: self.disks,
            home: None,
            without_events: false,
        }
    }

    /// True if waking is measured at the start.
    pub fn measures(&self) -> bool {
        self.exit_latency.is_none()
    }

    /// Options that a daemon which runs has decided for itself.
    pub fn whole(&self) -> Vec<&'static str> {
        let given = [
            ("--metrics", self.names.address().is_some()),
            ("--out", self.out.is_some()),
            // The daemon's own page of HTTP is configured with it.
            ("--http", self.http.is_some()),
        ];
        given.into_iter().filter_map(|(flag, is_given)| is_given.then_some(flag)).collect()
    }
}
