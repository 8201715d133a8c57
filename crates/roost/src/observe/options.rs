//! What `roost observe` is asked for.

use std::path::PathBuf;

/// See how a service sleeps: lengths, states, wrong choices, what it costs, and what to try first
///
/// Exit code 2: the recording, or a flag, is of no use.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  perf record -e power:cpu_idle -a -- sleep 10; perf script > rec.txt      on the machine in question, as root
  roost observe --from rec.txt                                           read it anywhere
  roost observe --from rec.txt --machine xeon-gold-6126                  it says which states that machine has
  roost observe --from rec.txt --machine here --json > sleeps.json

With -e irq_vectors:local_timer_entry,irq_vectors:reschedule_entry,irq:irq_handler_entry beside it, a recording also tells
what woke the CPUs.")]
pub struct Args {
    /// Read this recording: text of `perf script`, `trace-cmd report` or /sys/kernel/tracing/trace; `-` for standard input
    #[arg(long, value_name = "FILE", required = true)]
    pub from: Option<PathBuf>,

    /// The machine it comes from: `here`, or the name of one that Roost knows; a recording does not tell its idle states
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Folder for the run [default: runs/observe-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print everything as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}
