//! The arguments of `roost plan`: a recording, or a service that is recorded first.

use super::layers::Form;
use crate::service_args::ServiceArgs;
use crate::tariff::TariffArgs;
use machine::{Duration, Goal};
use std::path::PathBuf;

/// See the effect of each policy on a service before anything is touched: power, tail, cost
///
/// From a recording of `roost observe`, or from one that is made first. Nothing is changed. The
/// recorded run itself is simulated first, beside the measurement, so that the error of the model
/// is known.
#[derive(clap::Args, Debug)]
#[command(after_long_help = include_str!("../../help/plan.txt"))]
pub struct Args {
    /// The folder of an observation; a scenario.toml there that was changed is taken as it is. Or a
    /// file of `perf record` or `trace-cmd record`, or the text of `perf script`, with the recorded
    /// service's --pid. Else name a service: it is recorded first
    #[arg(
        value_name = "DIR|FILE",
        required_unless_present_any = ["port", "pid", "cgroup", "unit"],
        conflicts_with_all = ["port", "cgroup", "unit", "length", "wake_latency"]
    )]
    pub recording: Option<PathBuf>,

    #[command(flatten)]
    pub service: ServiceArgs,

    /// How long to record [default: 60s]
    #[arg(long = "for", value_name = "TIME", requires = "service")]
    pub length: Option<Duration>,

    /// The goal of the service, such as 500us@p99
    #[arg(long, value_name = "TIME@pQ")]
    pub goal: Option<Goal>,

    #[command(flatten)]
    pub electricity: TariffArgs,

    /// Take wake latencies as measured on that machine: the JSON of `roost doctor --json --probe`
    #[arg(
        long,
        value_name = "FILE",
        requires = "service",
        help_heading = "Advanced",
        hide_short_help = true
    )]
    pub wake_latency: Option<PathBuf>,

    /// Write the best for another scheduler as well: layers.json beside plan.json
    #[arg(long = "as", value_name = "NAME", value_enum, help_heading = "Advanced", hide_short_help = true)]
    pub form: Option<Form>,

    /// Other loads, as multiples of the scenario's
    #[arg(
        long,
        value_name = "FACTOR,...",
        value_delimiter = ',',
        default_value = "0.5,2",
        value_parser = factor,
        help_heading = "Advanced",
        hide_short_help = true
    )]
    pub loads: Vec<f64>,

    /// Simulate so many requests of each policy [default: as scenario.toml says]
    #[arg(long, value_name = "N", help_heading = "Advanced", hide_short_help = true)]
    pub requests: Option<u64>,

    /// Folder for the plan [default: DIR/plan, DIR the recording's; of a FILE runs/plan-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print everything as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| *factor > 0.0 && *factor <= 1000.0);
    factor.ok_or_else(|| format!("`{text}` is no load: write a factor above 0 such as 1.5"))
}
