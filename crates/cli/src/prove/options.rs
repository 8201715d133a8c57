//! The arguments of `roost prove`, and their checks.

use crate::exit::usage;
use crate::govern::GovernArgs;
use crate::service_args::ServiceArgs;
use crate::tariff::TariffArgs;
use anyhow::Result;
use clap::Parser as _;
use machine::{Duration, Goal};
use std::path::PathBuf;
use study::prove::Until;

/// Prove the saving of governing: on the live service, in blocks, with intervals
///
/// Governed and ungoverned blocks take turns in random order. A governed block runs
/// `roost govern`; all of it is put back after each block, and at the end, in whatever way
/// that comes. Blocks are compared in pairs of like load.
#[derive(clap::Args)]
#[command(after_help = include_str!("../../help/prove.txt"))]
pub struct Args {
    #[command(flatten)]
    pub service: ServiceArgs,
    /// The goal of the service, such as 500us@p99
    #[arg(long, value_name = "TIME@pQ")]
    pub goal: Option<Goal>,
    /// At most so many blocks, an even number
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub blocks: u32,
    /// The length of a block, settling included
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub block: Duration,
    /// The beginning of each block that does not count
    /// [default: a third of it, at most 30s]
    #[arg(long, value_name = "TIME")]
    pub settle: Option<Duration>,
    /// Blocks are compared if their rates differ by at most this share
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share)]
    pub like: f64,
    /// End when half of the interval is so narrow: of power, energy, tail, cpu
    #[arg(long, value_name = "SHARE@FIGURE")]
    pub until: Option<Until>,
    /// A meter: this command prints watts; may be given again
    #[arg(long, value_name = "COMMAND")]
    pub meter: Vec<String>,
    /// The tail that clients see: a Prometheus query of one value in seconds
    ///
    /// As http://HOST:PORT/api/v1/query?query=..., evaluated at the end of each block.
    #[arg(long, value_name = "URL")]
    pub client_tail: Option<String>,
    #[command(flatten)]
    pub electricity: TariffArgs,
    /// All that this machine can show, in one archive: --out FILE
    ///
    /// For so long [default: 30m], with a service of its own. The archive has no names and no
    /// addresses; `roost report FILE` shows it.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "30m",
        requires = "out",
        hide_short_help = true,
        conflicts_with_all = [
            "service", "blocks", "block", "settle", "until", "seed", "json", "instead", "price", "carbon",
            "client_tail", "perfetto",
        ]
    )]
    pub kit: Option<Duration>,
    /// Of the order of the blocks [default: from the clock, and printed]
    #[arg(long, value_name = "N", help_heading = "Advanced", hide_short_help = true)]
    pub seed: Option<u64>,
    /// The run's folder [default: runs/prove-DATE-TIME, or none with --json]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write a trace of the blocks, their figures and the decisions into this file, for
    /// ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    pub perfetto: Option<PathBuf>,
    /// Print one JSON document at the end
    #[arg(long)]
    pub json: bool,
    /// For benches: governed blocks do this instead, `nothing` or `burn=0.05` of a CPU
    #[arg(long, value_name = "WHAT", hide = true, default_value = "govern", value_parser = instead)]
    pub instead: Instead,
    /// Other options of `roost govern`, for governed blocks
    #[arg(last = true, value_name = "OPTIONS OF GOVERN")]
    pub govern: Vec<String>,
}

/// The treatment of the blocks that are called governed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instead {
    Govern,
    Nothing,
    /// So many CPUs' worth of work without a use.
    Burn(f64),
}

fn instead(text: &str) -> Result<Instead, String> {
    match text {
        "govern" => Ok(Instead::Govern),
        "nothing" => Ok(Instead::Nothing),
        _ => text
            .strip_prefix("burn=")
            .and_then(|cpus| cpus.parse().ok())
            .filter(|cpus| (0.0..=1.0).contains(cpus))
            .map(Instead::Burn)
            .ok_or_else(|| format!("`{text}`: write govern, nothing or burn=0.05")),
    }
}

fn share(text: &str) -> Result<f64, String> {
    text.strip_suffix('%')
        .and_then(|percent| percent.trim().parse::<f64>().ok())
        .filter(|percent| (0.1..=1000.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("`{text}` is no share: write one from 0.1% to 1000%, such as 10%"))
}

impl Args {
    /// The number of pairs: half of the blocks.
    pub fn pairs(&self) -> Result<u32> {
        if !self.blocks.is_multiple_of(2) || !(8..=2000).contains(&self.blocks) {
            return Err(usage(format!(
                "--blocks {}: write an even number from 8 to 2000, since blocks are compared in pairs \
                 and four pairs are the fewest that have an interval",
                self.blocks
            )));
        }
        Ok(self.blocks / 2)
    }

    /// The settling time: it does not depend on any figure, so it cannot favour a treatment.
    pub fn settling(&self) -> Result<Duration> {
        if self.block < Duration::from_secs(1) || self.block > Duration::from_secs(86_400) {
            return Err(usage(format!("--block {}: write 1s to 24h", self.block)));
        }
        let settle = self.settle.unwrap_or_else(|| (self.block / 3).min(SETTLE_MAX));
        if settle * 10 > self.block * 9 {
            return Err(usage(format!(
                "--settle {settle} leaves less than a tenth of a block of {}: write a shorter time, or a \
                 longer --block",
                self.block
            )));
        }
        Ok(settle)
    }

    /// Refuses blocks in which no epoch could count: epochs begin with the block, and the first one to
    /// end after the settling time only begins the count.
    pub fn check_epochs(&self, settling: Duration, epoch: Duration) -> Result<()> {
        let whole = self.block.as_nanos() / epoch.as_nanos().max(1);
        let settled = settling.as_nanos().div_ceil(epoch.as_nanos().max(1));
        if whole > settled.max(1) {
            return Ok(());
        }
        Err(usage(format!(
            "--block {}: no epoch of {epoch} ends in the part that counts, after {settling}\nhint: write \
             --block {}, or a shorter epoch in --config FILE after --",
            self.block,
            settling.max(epoch) + epoch * 2
        )))
    }

    /// The words of `roost govern` that say the same, as it reads them.
    pub fn governing(&self) -> Result<GovernArgs> {
        let mut words = vec!["govern".to_owned()];
        let mut put = |flag: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
        };
        put("--port", self.service.port.map(|port| port.to_string()));
        put("--pid", self.service.pid.map(|pid| pid.to_string()));
        put("--cgroup", self.service.cgroup.clone());
        put("--unit", self.service.unit.clone());
        put("--goal", self.goal.map(|goal| goal.to_string()));
        words.extend(self.govern.iter().cloned());
        let parsed = crate::govern::Args::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            usage(format!("after --: {}", text.lines().next().unwrap_or_default()))
        })?;
        let governing = parsed.governing;
        let own = [
            ("a subcommand", parsed.subject.is_some()),
            ("--for", governing.length.is_some()),
            ("--dry-run", governing.dry_run),
            ("--perfetto", governing.perfetto.is_some()),
            ("--out", governing.out.is_some()),
            ("--print-config", governing.print_config),
            ("--json", governing.json),
            ("--metrics", governing.names.address().is_some()),
        ];
        match own.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(usage(format!(
                "after --: {flag} is nothing that a block can do\nhint: leave it out; `roost prove --help` \
                 lists its own options"
            ))),
            None => Ok(governing),
        }
    }
}

/// The longest default settling time: CARB needs one epoch a core and three at a change of load.
const SETTLE_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(words: &[&str]) -> Result<Args> {
        Ok(Cli::try_parse_from(["prove"].iter().chain(words))?.args)
    }

    #[test]
    fn it_is_governed_as_roost_govern_does_with_the_same_words() {
        let words = ["--port", "11211", "--goal", "500us@p99"];
        let args = parsed(&[&words[..], &["--", "--policy", "fixed", "--cores", "1"]].concat()).unwrap();
        let governing = args.governing().unwrap();
        assert_eq!((governing.service.port, governing.cores), (Some(11211), Some(1)));
        assert_eq!((args.pairs().unwrap(), args.settling().unwrap()), (20, Duration::from_secs(20)));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_fix() {
        for (words, told) in [
            (&["--blocks", "7"][..], "even number from 8"),
            (&["--blocks", "6"], "even number from 8"),
            (&["--block", "10ms"], "write 1s to 24h"),
            (&["--block", "10s", "--settle", "10s"], "longer --block"),
            (&["--like", "10"], "such as 10%"),
            (&["--until", "1%"], "such as 1%@power"),
            (&["--price", "cheap"], "0.30/kWh"),
            (&["--carbon", "350"], "350g/kWh"),
            (&["--port", "1", "--pid", "2"], "cannot be used with"),
            (&["--port", "1", "--", "--cpu", "0"], "after --: error: unexpected argument '--cpu'"),
            (&["--port", "1", "--", "--for", "1s"], "leave it out"),
            (&["--port", "1", "--", "--dry-run"], "leave it out"),
            (&["--port", "1", "--", "--perfetto", "x"], "leave it out"),
            (&["--servers", "0"], "invalid value '0'"),
        ] {
            let judged = parsed(words).and_then(|args| {
                args.pairs()?;
                args.settling()?;
                args.governing()
            });
            let error = format!("{:#}", judged.err().unwrap_or_else(|| panic!("{words:?} is wrong")));
            assert!(error.contains(told), "{words:?}: {error}");
        }
    }
}
