//! The arguments of `roost govern hurry-up`.

use crate::setting::{self, Setting};
use ::daemon::Config;
use ::daemon::hurry_up::{HurryUpConfig, Preset, threshold};
use ::observe::functions::FunctionName;
use anyhow::Result;
use clap::ValueEnum;
use machine::Duration;
use std::path::PathBuf;

/// Give speed to the requests that need it: clocks by the threads in a hot function
///
/// Reads which threads are inside, from the slot file that the agent (or a native server) writes,
/// or from probes on a native program. A core runs at its lowest clock while it is idle, at the
/// middle one while anything runs, and at the highest while a thread has been inside for longer
/// than most calls take. Everything that is changed is journalled first and put back at the end, in
/// whatever way that comes; after a SIGKILL `roost restore` does it.
#[derive(clap::Args)]
#[command(after_long_help = include_str!("../../../help/hurry-up.txt"))]
pub struct Args {
    /// The slot file, as the agent's `file=` names it
    #[arg(long, value_name = "FILE")]
    pub slots: Option<PathBuf>,
    /// A function of a native program that cannot be changed, as `roost hot` names it; may be given
    /// up to 16 times
    ///
    /// The kernel stops the program at each enter and each way out of the function, which costs a
    /// call some 10 to 20 microseconds (`roost-bench uprobe` measures it); so it is for functions
    /// that are called once a request. The probes go with this process, and nothing on the
    /// program's stack is changed.
    #[arg(long, value_name = "BINARY:FUNCTION", conflicts_with = "slots", requires = "pid")]
    pub uprobe: Vec<FunctionName>,
    /// The service's process, as it is seen here [default: the writer of the file]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Which Hurry-up
    #[arg(long, value_enum, default_value_t = PresetName::Learned)]
    pub preset: PresetName,
    /// When a call is heavy: a time, such as 450ms, or a share of the calls seen, such as p75
    /// [default: p95; with --preset paper 450ms]
    #[arg(long, value_name = "TIME|pQ", value_parser = parse_threshold)]
    pub threshold: Option<String>,
    /// Set another key of a `[[hurry_up]]` (min, mid, max: clocks; cpus, realtime), or
    /// frequency_actuator, allow_msr or audit, as in roost.toml; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Advanced", hide_short_help = true)]
    pub settings: Vec<Setting>,
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Duration>,
    /// Show the threads inside and the decisions, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Govern beside another program that sets clocks
    #[arg(long, help_heading = "Advanced", hide_short_help = true)]
    pub take_over: bool,
    /// Record inputs and decisions into this folder, for `roost replay`
    #[arg(long, value_name = "DIR", help_heading = "Advanced", hide_short_help = true)]
    pub record: Option<PathBuf>,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH", help_heading = "Advanced", hide_short_help = true)]
    pub socket: Option<PathBuf>,
    /// Folder for the page and its numbers [default: runs/hurry-up-DATE-TIME, or none with --json]
    #[arg(long, value_name = "DIR", help_heading = "Advanced", hide_short_help = true)]
    pub out: Option<PathBuf>,
    /// Print a line of JSON for each change instead of the live view
    #[arg(long)]
    pub json: bool,
    /// The machine's files lie below this folder: for benches on machines that are not there
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PresetName {
    /// By events, the threshold learned, other work followed
    Learned,
    /// The paper's flowchart as it was tuned: threads alone, 450 ms, looked at every 50 ms
    Paper,
}

impl Args {
    /// The configuration that says the same.
    pub fn configuration(&self) -> Result<Config> {
        let table = HurryUpConfig {
            slots: self.slots.clone(),
            uprobe: self.uprobe.iter().map(ToString::to_string).collect(),
            pid: self.pid,
            preset: match self.preset {
                PresetName::Learned => Preset::Learned,
                PresetName::Paper => Preset::Paper,
            },
            threshold: self.threshold.clone(),
            ..HurryUpConfig::default()
        };
        let (whole, own): (Vec<_>, Vec<_>) =
            self.settings.iter().partition(|setting| WHOLE.contains(&setting.key.as_str()));
        let hurry_up = vec![setting::set(table, own, &WHOLE)?];
        let mut config = setting::set(Config { hurry_up, ..Config::default() }, whole, &[])?;
        config.record.clone_from(&self.record);
        Ok(config)
    }

    /// Options that a daemon which runs has decided for itself.
    pub fn whole(&self) -> Vec<String> {
        let given = [
            ("--record", self.record.is_some()),
            ("--out", self.out.is_some()),
            ("--root", self.root.is_some()),
        ];
        let flags = given.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag.to_owned());
        flags.chain(setting::given(&self.settings, &WHOLE)).collect()
    }
}

/// Keys of the daemon as a whole that a command with a daemon of its own sets as well.
const WHOLE: [&str; 3] = ["frequency_actuator", "allow_msr", "audit"];

/// Refuses a text that is no threshold, and keeps the text.
fn parse_threshold(text: &str) -> std::result::Result<String, String> {
    threshold(text).map(|_| text.to_owned())
}
