//! The arguments of `roost govern hurry-up`.

use crate::config_file::{self, Written};
use ::daemon::hurry_up::threshold;
use ::observe::functions::FunctionName;
use anyhow::Result;
use linux::Root;
use machine::Duration;
use std::path::PathBuf;
use toml::{Table, Value};

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
    /// When a call is heavy: a time, such as 450ms, or a share of the calls seen, such as p75
    /// [default: p95; with preset = "paper" 450ms]
    #[arg(long, value_name = "TIME|pQ", value_parser = parse_threshold)]
    pub threshold: Option<String>,
    /// Its other keys, and those of the daemon, in the words of roost.toml
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    pub config: Option<PathBuf>,
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Duration>,
    /// Show the threads inside and the decisions, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Govern beside another program that sets clocks
    #[arg(long, help_heading = "Advanced", hide_short_help = true)]
    pub take_over: bool,
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

impl Args {
    /// The configuration that says the same, and the part of it that a daemon which runs has decided
    /// for itself.
    pub fn configuration(&self, root: &Root) -> Result<Written> {
        let mut own = Table::new();
        let mut put = |key: &str, value: Option<Value>| {
            value.map(|value| own.insert(key.to_owned(), value));
        };
        put("slots", self.slots.as_ref().map(Value::try_from).transpose()?);
        let functions: Vec<Value> = self.uprobe.iter().map(|name| name.to_string().into()).collect();
        put("uprobe", (!functions.is_empty()).then(|| functions.into()));
        put("pid", self.pid.map(|pid| i64::from(pid).into()));
        put("threshold", self.threshold.clone().map(Into::into));
        let (file, socket) = (self.config.as_deref(), self.socket.as_ref());
        let mut written = config_file::configuration(file, "hurry_up", own, socket, root)?;
        let given = [("--out", self.out.is_some()), ("--root", self.root.is_some())];
        written.whole.extend(config_file::given(&given));
        Ok(written)
    }
}

/// Refuses a text that is no threshold, and keeps the text.
fn parse_threshold(text: &str) -> std::result::Result<String, String> {
    threshold(text).map(|_| text.to_owned())
}
