//! The arguments of `roost govern hurry-up`.

use super::super::options::ClockActuatorName;
use ::daemon::hurry_up::{HurryUpConfig, Preset, threshold};
use ::observe::functions::FunctionName;
use clap::ValueEnum;
use machine::{CpuList, Duration, Kilohertz};
use std::path::PathBuf;

/// Give speed to the requests that need it: clocks by the threads in a hot function
///
/// Reads which threads are inside, from the slot file that the agent (or a native server) writes,
/// or from probes on a native program. A core runs at its lowest clock while it is idle, at the
/// middle one while anything runs, and at the highest while a thread has been inside for longer
/// than most calls take. Everything that is changed is journalled first and put back at the end, in
/// whatever way that comes; after a SIGKILL `roost restore` does it.
#[derive(clap::Args)]
#[command(after_help = include_str!("../../../help/hurry-up.txt"))]
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
    /// Clock of an idle core, such as 1000MHz [default: the lowest]
    #[arg(long, value_name = "CLOCK")]
    pub min: Option<Kilohertz>,
    /// Clock of a core that works, and of light calls
    /// [default: 10/13 of the highest, as 2.0 of 2.6 GHz in the paper]
    #[arg(long, value_name = "CLOCK")]
    pub mid: Option<Kilohertz>,
    /// Clock of heavy calls [default: the highest without turbo]
    #[arg(long, value_name = "CLOCK")]
    pub max: Option<Kilohertz>,
    /// Only these of the service's CPUs, such as 0-3,8 [default: all that it may run on]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuList>,
    /// The means of setting clocks
    /// [default: scaling_setspeed under the governor userspace, else the bounds]
    #[arg(long, value_enum, value_name = "MEANS")]
    pub frequency_actuator: Option<ClockActuatorName>,
    /// Let `--frequency-actuator duty-cycle` write a model-specific register, which taints the
    /// kernel until the next boot
    #[arg(long)]
    pub allow_msr: bool,
    /// Run as soon as it is woken, however busy the CPUs are: SCHED_FIFO at priority 1, at most 100
    /// ms at a stretch (RLIMIT_RTTIME)
    #[arg(long)]
    pub realtime: bool,
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Duration>,
    /// Show the threads inside and the decisions, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Govern beside another program that sets clocks
    #[arg(long)]
    pub take_over: bool,
    /// Record inputs and decisions into this folder, for `roost replay`
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Append a line for each change of the threshold, and for changes of clocks by other programs,
    /// to this file
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Folder for the page and its numbers [default: runs/hurry-up-DATE-TIME, or none with --json]
    #[arg(long, value_name = "DIR")]
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
    /// The table of the configuration that says the same.
    pub fn table(&self) -> HurryUpConfig {
        let text = |frequency: Option<Kilohertz>| frequency.map(|frequency| frequency.to_string());
        HurryUpConfig {
            name: None,
            slots: self.slots.clone(),
            uprobe: self.uprobe.iter().map(ToString::to_string).collect(),
            pid: self.pid,
            preset: match self.preset {
                PresetName::Learned => Preset::Learned,
                PresetName::Paper => Preset::Paper,
            },
            threshold: self.threshold.clone(),
            min: text(self.min),
            mid: text(self.mid),
            max: text(self.max),
            cpus: self.cpus.as_ref().map(ToString::to_string),
            realtime: self.realtime,
        }
    }

    /// Options that a daemon which runs has decided for itself.
    pub fn whole(&self) -> Vec<&'static str> {
        let given = [
            ("--frequency-actuator", self.frequency_actuator.is_some()),
            ("--allow-msr", self.allow_msr),
            ("--record", self.record.is_some()),
            ("--audit", self.audit.is_some()),
            ("--out", self.out.is_some()),
            ("--root", self.root.is_some()),
        ];
        given.into_iter().filter_map(|(flag, is_given)| is_given.then_some(flag)).collect()
    }
}

/// Refuses a text that is no threshold, and keeps the text.
fn parse_threshold(text: &str) -> Result<String, String> {
    threshold(text).map(|_| text.to_owned())
}
