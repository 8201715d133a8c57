//! A run simulated from its own log of queries: when each came and how many keywords it had.
//!
//! A query is five pieces in the queue of twelve search threads, one a core (the paper, II-C and
//! V-A; Elasticsearch 6 makes five shards of an index), then five short ones at its end (query then
//! fetch); its work is drawn by its number of keywords. Cores without work go to C6 at once, and
//! nothing else wakes them: the power of a sleeping socket was measured with all that wakes it. A
//! core that polls takes the power of work, because the baselines say nothing else of it. At most
//! as many queries are outstanding as there are clients: one that the log has earlier waits, as its
//! client would. The same seeds are used for every run, so two runs of one log differ by their
//! treatment alone.

use super::Arrival;
use super::constants::{Constants, KEYWORDS_MAX, TURBO_KHZ};
use super::treatment::Treatment;
use anyhow::{Context as _, Result};
use serde::Serialize;
use sim::engine::{Ended, Engine};
use sim::scenario::Estimates;
use sim::{Document, Outcome};
use std::fmt::Write as _;
use std::path::Path;
use workload::Random;

/// A run's figures, as its meters and its clients would show them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    pub watts: f64,
    /// The 99th percentile of the clients' response times, in seconds.
    pub p99_s: f64,
    /// Share of time that each clock was set, in kHz.
    pub clocks: Vec<(u64, f64)>,
}

pub(super) struct Simulated {
    pub ended: Ended,
    pub outcome: Outcome,
    pub counted_s: f64,
}

/// Simulations of each run: work and shards are drawn anew in each.
const SEEDS: u64 = 5;
/// Clients begin to count after so many seconds: RAMP_UP in the authors' `faban.sh`.
pub(super) const RAMP_UP_S: f64 = 60.0;
/// Shards of the index: the default of Elasticsearch 6.
const SHARDS: u32 = 5;
/// The second round of a query, which gets the documents found (query then fetch, Elasticsearch's
/// reference): below the 2 ms of the fastest whole queries \[D\].
const FETCH: &str = "500us";
/// Thermal design power of the Xeon Gold 6126, and the window of its first limit \[D\].
const CAP: &str = "{ watts = 125.0, window = \"1s\" }";
/// The stream of the work's random numbers.
const STREAM: u64 = 0x776f_726b;

/// The prediction for these arrivals under this treatment. Nothing else of the run is needed.
pub fn predicted(constants: &Constants, treatment: &Treatment, arrivals: &[Arrival]) -> Result<Predicted> {
    let (mut watts, mut p99_s) = (0.0, 0.0);
    let mut clocks: Vec<(u64, f64)> = Vec::new();
    for seed in 1..=SEEDS {
        let run = simulated(constants, treatment, arrivals, seed)?;
        watts += run.watts(constants);
        p99_s += run.p99_s();
        if clocks.is_empty() {
            clocks = run.outcome.clocks.iter().map(|clock| (clock.0, 0.0)).collect();
        }
        clocks.iter_mut().zip(&run.outcome.clocks).for_each(|(sum, clock)| sum.1 += clock.1 / SEEDS as f64);
    }
    Ok(Predicted { watts: watts / SEEDS as f64, p99_s: p99_s / SEEDS as f64, clocks })
}

pub(super) fn simulated(
    constants: &Constants,
    treatment: &Treatment,
    arrivals: &[Arrival],
    seed: u64,
) -> Result<Simulated> {
    let folder = tempfile::tempdir().context("a folder for the log")?;
    let trace = folder.path().join("log.csv");
    std::fs::write(&trace, log(constants, treatment, arrivals, seed)).context("the log as a trace")?;
    let text = scenario(constants, treatment, &trace);
    let document = Document::parse(&folder.path().join("run.toml"), &text, &Estimates::default())?;
    let (setup, jobs) = document.setup(&treatment.policies, seed)?;
    let ended = Engine::new(setup, jobs).with_visits().run();
    let outcome = Outcome::new("run", &ended);
    let last_s = arrivals.iter().map(|arrival| arrival.start_ms).max().unwrap_or(0) as f64 / 1e3;
    let counted_s = outcome.length_s.max(last_s + constants.beyond_log_s);
    Ok(Simulated { ended, outcome, counted_s })
}

/// The log as a trace: one line a query, on one connection that all clients share.
fn log(constants: &Constants, treatment: &Treatment, arrivals: &[Arrival], seed: u64) -> String {
    let mut random = Random::new(seed, STREAM);
    let mut sorted: Vec<&Arrival> = arrivals.iter().collect();
    sorted.sort_by_key(|arrival| arrival.start_ms);
    let mut text = String::new();
    for arrival in sorted {
        let keywords = arrival.keywords.clamp(1, KEYWORDS_MAX);
        // At the last operating point's nominal clock, which the engine's service times are of.
        let ms = constants.work(keywords).draw(&mut random) * treatment.agent;
        let _ = writeln!(text, "{}ms,{keywords},{ms:.4}ms,0", arrival.start_ms);
    }
    text
}

fn scenario(constants: &Constants, treatment: &Treatment, trace: &Path) -> String {
    let mut text = String::new();
    let turbo = |bin: &super::constants::Bin| {
        format!("{{ cores = {}, khz = {}, watts = {:.6} }}", bin.cores, bin.khz, bin.watts)
    };
    let turbo: Vec<String> = constants.turbo.iter().map(turbo).collect();
    let _ = write!(
        text,
        "[machine]\npreset = \"xeon-gold-6126\"\nsockets = 1\nrest_watts = 0.0\nuncore_watts = {:.6}\n\
         package_watts = {:.6}\nwarming = {:.6}\ncap = {CAP}\n\
         waking = \"full-power\"\npoll_share = 1.0\ntick = \"never\"\ntimer = \"1h\"\nturbo = [{}]\n\
         cstate.C1.watts = 0.0\ncstate.C1E.watts = 0.0\ncstate.C6.watts = 0.0\n",
        constants.awake_watts,
        constants.asleep_watts,
        constants.warming,
        turbo.join(", "),
    );
    text += "[machine.frequencies]\ndomain = \"core\"\ndelay = \"270us\"\nstall = \"0s\"\n";
    for point in &constants.point {
        let _ = write!(
            text,
            "[[machine.frequencies.points]]\nfrequency = {}\npower = {:.0}\n",
            point.khz,
            point.watts * 1e6
        );
    }
    let base = constants.point.last().map_or(0.0, |point| point.watts);
    let _ = write!(
        text,
        "[[machine.frequencies.points]]\nfrequency = {TURBO_KHZ}\npower = {:.0}\n\
         [server]\ndispatch = \"fork-join\"\n\
         shards = {{ count = {SHARDS}, onto = \"idle\", fetch = \"{FETCH}\" }}\n\
         shard_cv = {:.4}\nclients = {{ depth = {} }}\n\
         [workload]\ntrace = {:?}\n",
        base * 1e6,
        constants.shard_cv,
        treatment.clients,
        trace.display().to_string(),
    );
    for keywords in 1..=KEYWORDS_MAX {
        let most = constants.work(keywords).memory_ms;
        let _ = write!(text, "[[workload.class]]\nname = \"{keywords}\"\nmemory_most = \"{most:.4}ms\"\n");
    }
    text + &treatment.params + "[run]\nrequests = 1_000_000\nhorizon = \"whole\"\n"
}

impl Simulated {
    /// Share of the counted time that is simulated; in the rest the socket sleeps.
    pub fn covered(&self) -> f64 {
        self.outcome.length_s / self.counted_s
    }

    pub fn watts(&self, constants: &Constants) -> f64 {
        let covered = self.covered();
        self.outcome.power.cpu_watts * covered + constants.asleep_watts * (1.0 - covered)
    }

    /// Response times of queries that came after the ramp-up, by the number of keywords, in
    /// milliseconds.
    pub fn counted(&self, from_s: f64) -> impl Iterator<Item = (u32, f64)> + '_ {
        let is_counted =
            move |visit: &&sim::engine::Visit| (visit.left_ns - visit.response_ns) as f64 * 1e-9 >= from_s;
        let visits = self.ended.visits().iter().filter(is_counted);
        visits.map(|visit| (u32::from(visit.class) + 1, visit.response_ns as f64 * 1e-6))
    }

    fn p99_s(&self) -> f64 {
        let mut times: Vec<f64> = self.counted(RAMP_UP_S).map(|(_, ms)| ms).collect();
        if times.is_empty() {
            times = self.counted(0.0).map(|(_, ms)| ms).collect();
        }
        times.sort_by(f64::total_cmp);
        quantile(&times, 0.99) / 1e3
    }
}

/// A quantile of sorted values, on a straight line between neighbours; NaN of none.
pub(super) fn quantile(sorted: &[f64], probability: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = probability * last as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    sorted[low] + (sorted[(low + 1).min(last)] - sorted[low]) * part
}
