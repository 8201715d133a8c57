//! The arguments of `roost govern`.

use crate::exit::usage;
use crate::setting::{self, Setting};
use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use daemon::{Config, ServiceConfig};
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
    after_long_help = include_str!("../../help/govern.txt")
)]
pub struct Args {
    #[command(subcommand)]
    pub subject: Option<Subject>,
    #[command(flatten)]
    pub governing: GovernArgs,
}

#[derive(Subcommand)]
pub enum Subject {
    HurryUp(Box<super::hurry_up::Args>),
}

#[derive(clap::Args)]
pub struct GovernArgs {
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
    /// How the number of cores is found
    #[arg(long, value_enum, default_value_t = PolicyName::Carb)]
    pub policy: PolicyName,
    /// Cores of `--policy fixed`
    #[arg(long, value_name = "N")]
    pub cores: Option<u16>,
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
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Duration>,
    /// Set another key of a `[[service]]`, or epoch, park, move_interrupts, frequency_actuator, allow_msr
    /// or audit, as in roost.toml; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Advanced", hide_short_help = true)]
    pub settings: Vec<Setting>,
    /// Say the plan: the service found, the means and their bounds; change nothing
    #[arg(long)]
    pub plan: bool,
    /// Watch and decide, but touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Govern beside another program that sets the same knobs
    #[arg(long, help_heading = "Advanced", hide_short_help = true)]
    pub take_over: bool,
    /// Record readings and commands into this folder, for `roost replay`
    #[arg(long, value_name = "DIR", help_heading = "Advanced", hide_short_help = true)]
    pub record: Option<PathBuf>,
    /// Folder for the page and its numbers [default: runs/govern-DATE-TIME, or none with --json]
    #[arg(long, value_name = "DIR", help_heading = "Advanced", hide_short_help = true)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub names: crate::metrics::Names,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH", help_heading = "Advanced", hide_short_help = true)]
    pub socket: Option<PathBuf>,
    /// Print the configuration in force as TOML, and end
    #[arg(long, help_heading = "Advanced", hide_short_help = true)]
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

impl GovernArgs {
    /// True if a service is named here and not in a file.
    pub fn names_a_service(&self) -> bool {
        self.port.is_some() || self.pid.is_some() || self.cgroup.is_some() || self.unit.is_some()
    }

    /// Options that a daemon which runs has decided for itself.
    pub fn whole(&self) -> Vec<String> {
        let given = [
            ("--metrics", self.names.address().is_some()),
            ("--record", self.record.is_some()),
            ("--root", self.root.is_some()),
            ("--out", self.out.is_some()),
        ];
        let flags = given.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag.to_owned());
        flags.chain(setting::given(&self.settings, &WHOLE)).collect()
    }

    /// The subcommand, or the service to govern.
    pub fn configuration(&self) -> Result<Config> {
        if !self.names_a_service() {
            return Err(usage(
                "name a service: --port 11211, --pid, --cgroup or --unit\nhint: `roost daemon` governs what \
                 /etc/roost/roost.toml says",
            ));
        }
        let (whole, own): (Vec<_>, Vec<_>) =
            self.settings.iter().partition(|setting| WHOLE.contains(&setting.key.as_str()));
        let service = setting::set(self.service()?, own, &WHOLE)?;
        let mut config = setting::set(Config { services: vec![service], ..Config::default() }, whole, &[])?;
        config.record = self.record.clone().or(config.record);
        config.metrics = self.names.address().or(config.metrics);
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
        put("goal", self.goal.map(toml::Value::try_from).transpose()?);
        put("policy", Some(named(self.policy)?));
        put("cores", self.cores.map(|cores| i64::from(cores).into()));
        put("cpus", self.cpus.clone().map(Into::into));
        put("idle", self.idle.as_ref().map(|idle| idle.to_string().into()));
        put("frequency", self.frequency.map(|frequency| frequency.to_string().into()));
        toml::Value::Table(written).try_into().map_err(|error: toml::de::Error| usage(error.message()))
    }
}

/// Keys of the daemon as a whole that a command with a daemon of its own sets as well.
const WHOLE: [&str; 6] = ["epoch", "park", "move_interrupts", "frequency_actuator", "allow_msr", "audit"];

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
            "--set",
            "actuator=cpuset-v2",
            "--set",
            "epoch=500ms",
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
            (&["--port", "1", "--set", "epoch=1ms"], "the command line: epoch = 1.00ms: write 20ms to 1h"),
            (&["--port", "1", "--frequency", "1700"], "such as 1700MHz"),
            (&["--port", "1", "--goal", "1ms@p99", "--frequency", "pegasus"], "write policy = \"fixed\""),
            (&["--port", "1", "--set", "slack=0.1"], "leave slack out"),
            (&["--frequency", "pegasus"], "`roost daemon` governs"),
            (&["--port", "1", "--set", "frequency_actuator=msr"], "duty-cycle"),
            (&["--port", "1", "--set", "frequency_actuator=duty-cycle"], "allow_msr = true"),
            (
                &["--port", "1", "--frequency", "1700MHz", "--set", "frequency_actuator=rapl"],
                "write frequency = \"pegasus\"",
            ),
            (&["--port", "1", "--set", "telemetry=memcached"], "memcached+requests"),
            (&["--port", "1", "--set", "telemetry={ prometheus = \"http://h/\", rate = \"x\" }"], "add tail"),
            (&["--port", "1", "--set", "min_core=2"], "did you mean `min_cores`?"),
            (&["--port", "1", "--set", "parc=all"], "did you mean `park`?"),
            (&["--config", "/nowhere.toml"], "unexpected argument"),
        ] {
            let error = format!("{:#}", configured(words).expect_err("it is wrong"));
            assert!(error.contains(told), "{words:?}: {error}");
        }
    }

    #[test]
    fn means_of_clocks_are_those_of_a_file() {
        for word in ["bounds", "speed", "epp", "duty-cycle", "rapl"] {
            let means = format!("frequency_actuator={word}");
            let config = configured(&["--port", "1", "--set", "allow_msr=true", "--set", &means]).unwrap();
            let text = toml::to_string(&config).unwrap();
            let line = format!("frequency_actuator = \"{word}\"");
            assert!(text.contains(&line) && text.contains("allow_msr = true"), "{text}");
        }
    }

    #[test]
    fn actuators_are_those_of_a_file() {
        for word in ["affinity", "cpuset-v2", "cpuset-v1", "systemd", "hotplug"] {
            let actuator = format!("actuator={word}");
            let config = configured(&["--port", "1", "--set", &actuator]).unwrap();
            let text = toml::to_string(&config).unwrap();
            assert!(text.contains(&format!("actuator = \"{word}\"")), "{text}");
            assert_eq!(config.services[0].hotplug, word == "hotplug");
        }
    }

    #[test]
    fn a_daemon_that_runs_decides_for_itself() {
        let words = ["govern", "--port", "1", "--set", "epoch=2s", "--set", "min_cores=2", "--record", "r"];
        let args = Args::try_parse_from(words).unwrap();
        assert_eq!(args.governing.whole(), ["--record", "--set epoch"]);
    }
}
