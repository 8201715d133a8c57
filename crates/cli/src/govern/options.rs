//! The arguments of `roost govern`.

use crate::exit::usage;
use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use daemon::{Config, ServiceConfig};
use linux::FrequencyActuator;
use machine::{Duration, Goal};
use policy::governing::{FrequencyMode, IdleModes};
use std::path::{Path, PathBuf};

/// Govern unmodified services: few cores awake, the tail within its goal
///
/// Watches a service's requests, and keeps it on as few cores as its goal allows. The other cores
/// sleep. Everything that is changed is journalled first and put back at the end, in whatever way
/// that comes; after a SIGKILL `roost restore` does it.
#[derive(Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = include_str!("../../help/govern.txt")
)]
pub struct Args {
    #[command(subcommand)]
    pub subject: Option<Subject>,
    #[command(flatten)]
    pub governing: Governing,
}

/// The other subcommands.
#[derive(Subcommand)]
pub enum Subject {
    HurryUp(Box<super::hurry_up::Args>),
}

/// The service to govern.
#[derive(clap::Args)]
pub struct Governing {
    /// The service that listens on this TCP port
    #[arg(long, value_name = "PORT", group = "target")]
    pub port: Option<u16>,
    /// This process and its children
    #[arg(long, value_name = "PID", group = "target")]
    pub pid: Option<u32>,
    /// This cgroup
    #[arg(long, value_name = "DIR", group = "target")]
    pub cgroup: Option<String>,
    /// This systemd unit
    #[arg(long, value_name = "NAME", group = "target")]
    pub unit: Option<String>,
    /// The goal of the service, such as 500us@p99
    #[arg(long, value_name = "TIME@pQ")]
    pub goal: Option<Goal>,
    /// From where its rate and times are known: requests (the kernel's programs), memcached (its
    /// `stats`; no times), memcached+requests, or the address of a Prometheus page,
    /// http://HOST:PORT/metrics
    #[arg(long, value_name = "SOURCE")]
    pub telemetry: Option<String>,
    /// The counter of requests on that page
    #[arg(long, value_name = "NAME", requires = "telemetry")]
    pub telemetry_rate: Option<String>,
    /// The response times on that page, in seconds: a histogram, or a summary with the goal's
    /// quantile
    #[arg(long, value_name = "NAME", requires = "telemetry")]
    pub telemetry_tail: Option<String>,
    /// How the number of cores is found
    #[arg(long, value_enum, default_value_t = PolicyName::Carb)]
    pub policy: PolicyName,
    /// Cores of `--policy fixed`
    #[arg(long, value_name = "N")]
    pub cores: Option<u16>,
    /// It always has so many
    #[arg(long, value_name = "N")]
    pub min_cores: Option<u16>,
    /// It may use these CPUs, such as 0-3,8 [default: all that it has]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// How deeply active CPUs sleep: stock, shallow, deep, feedback, or the longest exit latency;
    /// some of them otherwise: "stock; 0-1=shallow"
    #[arg(long, value_name = "MODE")]
    pub idle: Option<IdleModes>,
    /// How fast its CPUs run: stock, sensitivity (each core by its own progress), pegasus (all by
    /// the goal; needs --policy fixed), or the highest clock, such as 1700MHz
    #[arg(long, value_name = "MODE")]
    pub frequency: Option<FrequencyMode>,
    /// The means of setting its clocks
    /// [default: scaling_setspeed under the governor userspace, else the bounds]
    #[arg(long, value_enum, value_name = "MEANS")]
    pub frequency_actuator: Option<ClockActuatorName>,
    /// Let `--frequency-actuator duty-cycle` write a model-specific register, which taints the
    /// kernel: the register is put back, the taint stays until the next boot
    #[arg(long)]
    pub allow_msr: bool,
    /// How much of its progress a core may lose to a slower clock, under `--frequency sensitivity`
    /// [default: 0.05]
    #[arg(long, value_name = "SHARE")]
    pub slack: Option<f64>,
    /// The means of keeping it on its CPUs [default: the best that works; never hotplug]
    #[arg(long, value_enum)]
    pub actuator: Option<ActuatorName>,
    /// Keep all other work off the parked CPUs, too: other cgroups or slices, unbound work queues,
    /// new interrupts
    #[arg(long)]
    pub park_all: bool,
    /// Move interrupts that are there, and network cards' packets, off the parked CPUs, too. Masks
    /// and tables are put back; on which of their CPUs they then land is the kernel's choice, so
    /// this cannot be undone whole
    #[arg(long)]
    pub move_interrupts: bool,
    /// Time between two decisions
    #[arg(long, value_name = "TIME")]
    pub epoch: Option<Duration>,
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Duration>,
    /// Say what would be governed, by which means and within which bounds, and end; change nothing
    #[arg(long)]
    pub plan: bool,
    /// Watch and decide, but touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Govern beside another program that sets the same knobs
    #[arg(long)]
    pub take_over: bool,
    /// Record readings and commands into this folder, for `roost replay`
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Folder for the page and its numbers [default: runs/govern-DATE-TIME, or none with --json]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Append a line for each change to this file
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    #[command(flatten)]
    pub names: crate::metrics::Names,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print the configuration in force as TOML, and end
    #[arg(long)]
    pub print_config: bool,
    /// Print a line of JSON for each epoch of each service
    #[arg(long)]
    pub json: bool,
    /// The machine's files lie below this folder: for benches on machines that are not there
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// CARB: with a goal the fewest cores that keep it, without one by the slope of the tail
    Carb,
    /// CARB as its paper prints it
    CarbPaper,
    /// So many cores, always
    Fixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ActuatorName {
    /// Each thread's affinity
    Affinity,
    /// The service's cgroup of version 2
    CpusetV2,
    /// Its cpuset of version 1
    CpusetV1,
    /// The unit's AllowedCPUs=, at run time
    Systemd,
    /// The best of these, and parked CPUs go offline. Destroys other owners' settings: version-1
    /// cpusets lose those CPUs, threads that chose them alone lose their affinity, interrupts move,
    /// settings of the CPUs themselves can go. All that is journalled and put back but for the CPUs
    /// of interrupts. The machine halts for moments at each change
    Hotplug,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClockActuatorName {
    /// scaling_min_freq and scaling_max_freq
    Bounds,
    /// scaling_setspeed; the governor is userspace meanwhile
    Speed,
    /// The energy-performance preference: a hint to hardware that chooses by itself (intel_pstate,
    /// amd-pstate in active mode)
    Epp,
    /// The clock stands still for part of the time (Intel; needs --allow-msr)
    DutyCycle,
    /// A cap on each socket's average power, for --frequency pegasus
    Rapl,
}

impl From<ClockActuatorName> for FrequencyActuator {
    fn from(name: ClockActuatorName) -> Self {
        match name {
            ClockActuatorName::Bounds => Self::Bounds,
            ClockActuatorName::Speed => Self::SetSpeed,
            ClockActuatorName::Epp => Self::Preference,
            ClockActuatorName::DutyCycle => Self::DutyCycle,
            ClockActuatorName::Rapl => Self::PowerCap,
        }
    }
}

impl Governing {
    /// True if a service is named here and not in a file.
    pub fn names_a_service(&self) -> bool {
        self.port.is_some() || self.pid.is_some() || self.cgroup.is_some() || self.unit.is_some()
    }

    /// Options that a daemon which runs has decided for itself.
    pub fn whole(&self) -> Vec<&'static str> {
        let given = [
            ("--epoch", self.epoch.is_some()),
            ("--metrics", self.names.address().is_some()),
            ("--record", self.record.is_some()),
            ("--audit", self.audit.is_some()),
            ("--root", self.root.is_some()),
            ("--out", self.out.is_some()),
            ("--park-all", self.park_all),
            ("--move-interrupts", self.move_interrupts),
            ("--frequency-actuator", self.frequency_actuator.is_some()),
            ("--allow-msr", self.allow_msr),
        ];
        given.into_iter().filter_map(|(flag, is_given)| is_given.then_some(flag)).collect()
    }

    /// The subcommand, or the service to govern.
    pub fn configuration(&self) -> Result<Config> {
        if !self.names_a_service() {
            return Err(usage(
                "name a service: --port 11211, --pid, --cgroup or --unit\nhint: `roost daemon` governs what \
                 /etc/roost/roost.toml says",
            ));
        }
        let mut config = Config { services: vec![self.service()?], ..Config::default() };
        config.epoch = self.epoch.unwrap_or(config.epoch);
        config.record = self.record.clone().or(config.record);
        config.audit = self.audit.clone().or(config.audit);
        config.metrics = self.names.address().or(config.metrics);
        config.move_interrupts |= self.move_interrupts;
        if self.park_all {
            config.park = daemon::Parking::All;
        }
        config.frequency_actuator =
            self.frequency_actuator.map(FrequencyActuator::from).or(config.frequency_actuator);
        config.allow_msr |= self.allow_msr;
        let root = self.root.clone().map_or_else(linux::Root::system, linux::Root::at);
        config.socket = crate::daemon::socket_or(self.socket.as_ref(), &root);
        config.check(Path::new("the command line")).map_err(usage)?;
        Ok(config)
    }

    /// The same words as in a file, so that the same rules hold.
    fn service(&self) -> Result<ServiceConfig> {
        let mut written = toml::Table::new();
        let mut put = |key: &str, value: Option<toml::Value>| {
            value.map(|value| written.insert(key.to_owned(), value));
        };
        put("port", self.port.map(|port| i64::from(port).into()));
        put("pid", self.pid.map(|pid| i64::from(pid).into()));
        put("cgroup", self.cgroup.clone().map(Into::into));
        put("unit", self.unit.clone().map(Into::into));
        put("telemetry", self.telemetry()?);
        put("goal", self.goal.map(toml::Value::try_from).transpose()?);
        put("policy", Some(named(self.policy)?));
        put("cores", self.cores.map(|cores| i64::from(cores).into()));
        put("min_cores", self.min_cores.map(|cores| i64::from(cores).into()));
        put("cpus", self.cpus.clone().map(Into::into));
        put("idle", self.idle.as_ref().map(|idle| idle.to_string().into()));
        put("frequency", self.frequency.map(|frequency| frequency.to_string().into()));
        put("slack", self.slack.map(Into::into));
        put("actuator", self.actuator.map(named).transpose()?);
        toml::Value::Table(written).try_into().map_err(|error: toml::de::Error| usage(error.message()))
    }
}

impl Governing {
    /// A page and its names are one value in a file.
    fn telemetry(&self) -> Result<Option<toml::Value>> {
        let Some(source) = &self.telemetry else { return Ok(None) };
        let names = [("rate", &self.telemetry_rate), ("tail", &self.telemetry_tail)];
        if !source.starts_with("http") {
            if let Some((name, _)) = names.iter().find(|(_, value)| value.is_some()) {
                return Err(usage(format!(
                    "--telemetry-{name} names a figure of a Prometheus page: leave it out, or name \
                     the page with \
                     --telemetry http://HOST:PORT/metrics"
                )));
            }
            return Ok(Some(source.clone().into()));
        }
        if self.telemetry_rate.is_none() {
            return Err(usage("a page has many counters: name that of requests with --telemetry-rate"));
        }
        let mut page = toml::Table::from_iter([("prometheus".to_owned(), source.clone().into())]);
        page.extend(names.iter().filter_map(|(name, value)| {
            Some(((*name).to_owned(), toml::Value::from(value.as_ref()?.clone())))
        }));
        Ok(Some(page.into()))
    }
}

/// Its name in a file and on the command line.
fn named(value: impl ValueEnum) -> Result<toml::Value> {
    let name = value.to_possible_value().ok_or_else(|| usage("a name that may not be typed"))?;
    Ok(name.get_name().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(words: &[&str]) -> Result<Config> {
        let line = ["govern"].iter().chain(words);
        Args::try_parse_from(line)?.governing.configuration()
    }

    #[test]
    fn the_command_line_says_what_a_file_would() {
        let config = configured(&[
            "--port",
            "11211",
            "--goal",
            "500us@p99",
            "--idle",
            "50us",
            "--cpus",
            "0-3",
            "--actuator",
            "cpuset-v2",
            "--epoch",
            "500ms",
        ])
        .unwrap();
        let text = toml::to_string(&config).unwrap();
        for line in ["epoch = \"500ms\"", "port = 11211", "goal = \"500us@p99\"", "actuator = \"cpuset-v2\""]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_fix() {
        for (words, told) in [
            (&["--port", "1", "--pid", "2"][..], "cannot be used with"),
            (&["--goal", "500us@p99"], "name a service: --port 11211"),
            (&["--port", "1", "--goal", "fast"], "such as 300us@p99"),
            (&["--port", "1", "--cores", "2"], "needs policy = \"fixed\""),
            (&["--port", "1", "--epoch", "1ms"], "the command line: epoch = 1.00ms: write 20ms to 1h"),
            (&["--port", "1", "--frequency", "1700"], "such as 1700MHz"),
            (&["--port", "1", "--goal", "1ms@p99", "--frequency", "pegasus"], "write policy = \"fixed\""),
            (&["--port", "1", "--slack", "0.1"], "leave slack out"),
            (&["--frequency", "pegasus"], "`roost daemon` governs"),
            (&["--port", "1", "--frequency-actuator", "msr"], "duty-cycle"),
            (&["--port", "1", "--frequency-actuator", "duty-cycle"], "--allow-msr"),
            (
                &["--port", "1", "--frequency", "1700MHz", "--frequency-actuator", "rapl"],
                "write frequency = \"pegasus\"",
            ),
            (&["--port", "1", "--telemetry", "memcached"], "memcached+requests"),
            (&["--port", "1", "--telemetry", "http://h/"], "--telemetry-rate"),
            (&["--port", "1", "--telemetry", "http://h/", "--telemetry-rate", "x"], "add tail"),
            (&["--port", "1", "--telemetry", "memcached", "--telemetry-tail", "x"], "leave it out"),
            (&["--config", "/nowhere.toml"], "unexpected argument"),
        ] {
            let error = format!("{:#}", configured(words).expect_err("it is wrong"));
            assert!(error.contains(told), "{words:?}: {error}");
        }
    }

    #[test]
    fn means_of_clocks_are_those_of_a_file() {
        for name in ClockActuatorName::value_variants() {
            let word = name.to_possible_value().unwrap().get_name().to_owned();
            let config = configured(&["--port", "1", "--allow-msr", "--frequency-actuator", &word]).unwrap();
            let text = toml::to_string(&config).unwrap();
            let line = format!("frequency_actuator = \"{word}\"");
            assert!(text.contains(&line) && text.contains("allow_msr = true"), "{text}");
        }
    }

    #[test]
    fn actuators_are_those_of_a_file() {
        for name in ActuatorName::value_variants() {
            let word = name.to_possible_value().unwrap().get_name().to_owned();
            let config = configured(&["--port", "1", "--actuator", &word]).unwrap();
            let text = toml::to_string(&config).unwrap();
            assert!(text.contains(&format!("actuator = \"{word}\"")), "{text}");
            assert_eq!(config.services[0].hotplug, *name == ActuatorName::Hotplug);
        }
    }
}
