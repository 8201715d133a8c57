//! The arguments of `roost plan`: a folder, or a service that is recorded first.

use machine::{Duration, Goal};
use report::money::{Carbon, Price, Tariff};
use std::path::PathBuf;

/// See the effect of each policy on a service before anything is touched: power, tail, cost
///
/// From a recording of `roost observe`, or from one that is made first. Nothing is changed. The
/// recorded run itself is simulated first, beside the measurement, so that the error of the model is
/// known.
#[derive(clap::Args, Debug)]
#[command(after_long_help = include_str!("../../help/plan.txt"))]
pub struct Args {
    /// The folder of an observation; a scenario.toml there that was changed is taken as it is
    #[arg(value_name = "DIR", required_unless_present_any = ["port", "pid", "cgroup", "unit"])]
    pub folder: Option<PathBuf>,

    /// Record the service on this TCP port first
    #[arg(long, value_name = "PORT", group = "service", conflicts_with = "folder")]
    pub port: Option<u16>,

    /// Record this process and its children first
    #[arg(long, value_name = "PID", group = "service", conflicts_with = "folder")]
    pub pid: Option<u32>,

    /// Record the processes of this cgroup first
    #[arg(long, value_name = "DIR", group = "service", conflicts_with = "folder")]
    pub cgroup: Option<String>,

    /// Record the service of this systemd unit first
    #[arg(long, value_name = "NAME", group = "service", conflicts_with = "folder")]
    pub unit: Option<String>,

    /// How long to record [default: 60s]
    #[arg(long = "for", value_name = "TIME", requires = "service")]
    pub length: Option<Duration>,

    /// The goal of the service, such as 500us@p99
    #[arg(long, value_name = "TIME@pQ")]
    pub goal: Option<Goal>,

    /// Price of electricity: with it, a year's cost is told
    #[arg(long, value_name = "PRICE/kWh")]
    pub price: Option<Price>,

    /// Emissions of electricity: with it, a year's carbon is told
    #[arg(long, value_name = "GRAMS/kWh")]
    pub carbon: Option<Carbon>,

    /// Servers that do the same, for the year's sums
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub servers: u32,

    /// Take wake latencies as measured on that machine: the JSON of `roost doctor --json --probe`
    #[arg(
        long,
        value_name = "FILE",
        requires = "service",
        help_heading = "Advanced",
        hide_short_help = true
    )]
    pub wake_latency: Option<PathBuf>,

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

    /// Folder for the plan [default: DIR/plan, DIR the recording's]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print everything as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub fn tariff(&self) -> Tariff {
        Tariff { price: self.price.clone(), carbon: self.carbon, servers: self.servers }
    }
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| *factor > 0.0 && *factor <= 1000.0);
    factor.ok_or_else(|| format!("`{text}` is no load: write a factor above 0 such as 1.5"))
}
