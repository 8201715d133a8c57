//! The arguments of `roost govern`.

use crate::config_file::{self, Written};
use crate::exit::usage;
use crate::service_args::ServiceArgs;
use anyhow::Result;
use clap::{Parser, Subcommand};
use daemon::{Borrower, Policy};
use machine::{Duration, Goal};
use policy::governing::{FrequencyMode, IdleModes, UncoreMode};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

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
    #[command(flatten)]
    pub service: ServiceArgs,
    /// The goal of the service, such as 500us@p99
    #[arg(long, value_name = "TIME@pQ")]
    pub goal: Option<Goal>,
    /// How the number of cores is found: carb (with a goal the fewest cores that keep it, without
    /// one by the slope of the tail), carb-paper (CARB as its paper prints it), fixed (so many
    /// cores, always), or your own, such as mine.wasm [default: carb]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<Policy>,
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
    /// How fast the uncore of its sockets runs: stock, auto (as slow as keeps the goal), elc (the
    /// hardware chooses), or a clock, such as fixed:1.6GHz
    #[arg(long, value_name = "MODE")]
    pub uncore: Option<UncoreMode>,
    /// Lend the CPUs that no service needs to this batch work, which yields to a service at once and
    /// stands still while there are none, such as cgroup:batch.slice
    #[arg(long, value_name = "GROUP")]
    pub lend: Option<Borrower>,
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Duration>,
    /// Its other keys, and those of the daemon, in the words of roost.toml
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    pub config: Option<PathBuf>,
    /// Touch nothing: say the service found, the means and their bounds, and end; with --for, watch
    /// and decide for so long as well
    #[arg(long)]
    pub dry_run: bool,
    /// Govern beside another program that sets the same knobs
    #[arg(long, help_heading = "Advanced", hide_short_help = true)]
    pub take_over: bool,
    /// Write a trace of the CPUs, counters and decisions into this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    pub perfetto: Option<PathBuf>,
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

impl GovernArgs {
    /// A dry run without a length says its findings and ends.
    pub fn only_says(&self) -> bool {
        self.dry_run && self.length.is_none() && !self.print_config
    }

    /// The configuration that says the same, and the part of it that a daemon which runs has
    /// decided for itself.
    pub fn configuration(&self) -> Result<Written> {
        if !self.service.is_given() && self.config.is_none() {
            return Err(usage(
                "name a service: --port 11211, --pid, --cgroup or --unit\nhint: `roost daemon` governs what \
                 /etc/roost/roost.toml says",
            ));
        }
        let root = self.root.clone().map_or_else(linux::Root::system, linux::Root::at);
        let file = self.config.as_deref();
        let (own, socket) = (self.own()?, self.socket.as_ref());
        let mut written = config_file::configuration(file, "service", own, socket, &root)?;
        let config = &mut written.config;
        let beside = file.filter(|_| self.policy.is_none()).and_then(Path::parent);
        for service in &mut config.services {
            service.policy.read(beside.unwrap_or(Path::new(""))).map_err(usage)?;
        }
        config.metrics = self.names.address().or(config.metrics);
        config.lend = self.lend.clone().or(config.lend.take());
        config.check(config_file::place(file)).map_err(usage)?;
        let given = [
            ("--metrics", self.names.address().is_some()),
            ("--lend", self.lend.is_some()),
            ("--root", self.root.is_some()),
            ("--out", self.out.is_some()),
            ("--perfetto", self.perfetto.is_some()),
        ];
        written.whole.extend(config_file::given(&given));
        Ok(written)
    }

    /// The same words as in a file, so that the same rules hold.
    fn own(&self) -> Result<Table> {
        let mut written = Table::new();
        let mut put = |key: &str, value: Option<Value>| {
            value.map(|value| written.insert(key.to_owned(), value));
        };
        put("port", self.service.port.map(|port| i64::from(port).into()));
        put("pid", self.service.pid.map(|pid| i64::from(pid).into()));
        put("cgroup", self.service.cgroup.clone().map(Into::into));
        put("unit", self.service.unit.clone().map(Into::into));
        put("goal", self.goal.map(Value::try_from).transpose()?);
        put("policy", self.policy.as_ref().map(|policy| policy.to_string().into()));
        put("cores", self.cores.map(|cores| i64::from(cores).into()));
        put("cpus", self.cpus.clone().map(Into::into));
        put("idle", self.idle.as_ref().map(|idle| idle.to_string().into()));
        put("frequency", self.frequency.map(|frequency| frequency.to_string().into()));
        put("uncore", self.uncore.map(|uncore| uncore.to_string().into()));
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Config;

    /// The configuration by `words` and a file with `text`, which stands in the place of FILE.
    fn written(words: &[&str], text: &str) -> Result<Written> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("my.toml");
        std::fs::write(&path, text)?;
        let path = path.to_string_lossy();
        let line = ["govern"].iter().chain(words).map(|word| if *word == "FILE" { &*path } else { word });
        Args::try_parse_from(line)?.governing.configuration()
    }

    fn configured(words: &[&str], text: &str) -> Result<Config> {
        let file = if text.is_empty() { &[][..] } else { &["--config", "FILE"] };
        Ok(written(&[words, file].concat(), text)?.config)
    }

    #[test]
    fn the_command_line_says_what_a_file_would() {
        let words = ["--port", "11211", "--goal", "500us@p99", "--idle", "50us", "--cpus", "0-3"];
        let file = "epoch = \"500ms\"\n[[service]]\nactuator = \"cpuset-v2\"\npolicy = \"carb\"";
        let text = toml::to_string(&configured(&words, file).unwrap()).unwrap();
        for line in ["epoch = \"500ms\"", "port = 11211", "goal = \"500us@p99\"", "actuator = \"cpuset-v2\""]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
        let of_file = configured(&[], "[[service]]\nport = 11211\npolicy = \"fixed\"").unwrap();
        assert_eq!(of_file.services[0].policy, daemon::Policy::Fixed, "no option sets another");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_fix() {
        for (words, told) in [
            (&["--port", "1", "--pid", "2"][..], "cannot be used with"),
            (&["--goal", "500us@p99"], "name a service: --port 11211"),
            (&["--port", "1", "--goal", "fast"], "such as 300us@p99"),
            (&["--port", "1", "--cores", "2"], "needs policy = \"fixed\""),
            (&["--port", "1", "--frequency", "1700"], "such as 1700MHz"),
            (&["--port", "1", "--goal", "1ms@p99", "--frequency", "pegasus"], "write policy = \"fixed\""),
            (&["--frequency", "pegasus"], "`roost daemon` governs"),
            (&["--port", "1", "--uncore", "1.6GHz"], "such as fixed:1.6GHz"),
            (&["--port", "1", "--uncore", "auto"], "keeps a goal: add one"),
            (&["--port", "1", "--config", "/nowhere.toml"], "cannot read /nowhere.toml"),
        ] {
            let error = format!("{:#}", configured(words, "").expect_err("it is wrong"));
            assert!(error.contains(told), "{words:?}: {error}");
        }
        for (words, text, told) in [
            (&["--port", "1"][..], "epoch = \"1ms\"", "my.toml: epoch = 1.00ms: write 20ms to 1h"),
            (&["--port", "1"], "[[service]]\nslack = 0.1", "leave slack out"),
            (&["--port", "1"], "frequency_actuator = \"msr\"", "duty-cycle"),
            (&["--port", "1"], "frequency_actuator = \"duty-cycle\"", "allow_msr = true"),
            (
                &["--port", "1", "--frequency", "1700MHz"],
                "frequency_actuator = \"rapl\"",
                "write frequency = \"pegasus\"",
            ),
            (&["--port", "1"], "[[service]]\ntelemetry = \"memcached\"", "memcached+requests"),
            (
                &["--port", "1"],
                "[[service]]\ntelemetry = { prometheus = \"http://h/\", rate = \"x\" }",
                "add tail",
            ),
            (&["--port", "1"], "[[service]]\npolicy = \"none.wasm\"", "/.tmp"),
            (&["--port", "1"], "[[service]]\nmin_core = 2", "did you mean `min_cores`?"),
            (&["--port", "1"], "parc = \"all\"", "did you mean `park`?"),
            (&["--port", "1"], "[[service]]\npid = 1", "leave the others out"),
            (&["--goal", "1ms@p99"], "epoch = \"2s\"", "write port = 11211"),
        ] {
            let error = format!("{:#}", configured(words, text).expect_err("it is wrong"));
            assert!(error.contains(told), "{words:?} {text}: {error}");
        }
    }

    #[test]
    fn means_of_clocks_are_those_of_a_file() {
        for word in ["bounds", "speed", "epp", "duty-cycle", "rapl"] {
            let line = format!("frequency_actuator = \"{word}\"");
            let config = configured(&["--port", "1"], &format!("allow_msr = true\n{line}")).unwrap();
            let text = toml::to_string(&config).unwrap();
            assert!(text.contains(&line) && text.contains("allow_msr = true"), "{text}");
        }
    }

    #[test]
    fn actuators_are_those_of_a_file() {
        for word in ["affinity", "cpuset-v2", "cpuset-v1", "systemd", "hotplug"] {
            let line = format!("actuator = \"{word}\"");
            let config = configured(&["--port", "1"], &format!("[[service]]\n{line}")).unwrap();
            let text = toml::to_string(&config).unwrap();
            assert!(text.contains(&line), "{text}");
            assert_eq!(config.services[0].hotplug, word == "hotplug");
        }
    }

    #[test]
    fn a_daemon_that_runs_decides_for_itself() {
        let words = ["--port", "1", "--config", "FILE", "--out", "r"];
        let whole = written(&words, "epoch = \"2s\"\n[[service]]\nmin_cores = 2").unwrap().whole;
        assert!(whole[0].starts_with("epoch of /") && whole[1..] == ["--out"], "{whole:?}");
    }
}
