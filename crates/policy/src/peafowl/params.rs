//! Every constant of the Peafowl policy, with its default and the reason for it.
//!
//! The paper prints few numbers: Z-score 2.5, a block of 30 s, limits that are compared as they
//! are, and that the first measured rate is the first limit. It leaves open the length of a
//! measuring window, the report period and the meaning of "approaches the limit". [`Params::paper`]
//! keeps to the printed rules and switches off ours; a value that the paper leaves open is the same
//! in both presets. [`Params::live`] is the store's preset: load is busy time, so that no count of
//! requests, however it came about, is ever taken for a worker's capacity.

use crate::Scheduling;
use crate::check::Check;
use crate::kind::{Make, Placed, Placement};
use crate::registry::{
    Entry, Maturity, Parameter, Runs, Word, count, flag, number, one_of, settings, share, time,
};
use machine::{Duration, Ratio};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[
        Word::new("peafowl", "connections packed on as few workers as the load needs", |around| {
            let latency_goal = around.goal.map(|goal| goal.latency);
            settings(Params { latency_goal, ..Params::default() })
        }),
        Word::new("peafowl-paper", "the same as printed", |_| settings(Params::paper())),
    ],
    help: "The load is packed onto few workers, which do not sleep deeply, so that the others sleep for \
           long. A worker may be as full as its residents have filled it at the peak; above that it sends \
           guests home by itself. Needs dispatch = \"connections\"; in the store it is the default.",
    runs: Runs::Live,
    maturity: Maturity::Production,
    origin: "Peafowl, section 3",
    make: Make::Placement(Placement {
        place: |making, workers| {
            let params = making.params();
            Placed { scheduling: Scheduling::peafowl(params, workers), params }
        },
        cores: None,
        is_counted: false,
    }),
    ..Entry::of::<Params>()
};

/// The unit of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Requests per second; the limit is the highest that was seen (the paper, section 3.3).
    #[default]
    Requests,
    /// Seconds of work per second; the limit is [`Params::full_busy`] of the time that the worker
    /// gets of its CPU.
    BusyTime,
}

/// The constants of one Peafowl instance. The scheduler and all its workers share one value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    pub window_requests: u32,
    #[serde(with = "machine::duration_text")]
    pub window_span: Duration,
    #[serde(with = "machine::duration_text")]
    pub report_period: Duration,
    pub load: Load,
    pub full_busy: Ratio,
    pub overload_busy: Ratio,
    #[serde(with = "machine::duration_text")]
    pub turn_most: Duration,
    #[serde(with = "machine::duration_text")]
    pub capacity_memory: Duration,
    pub outlier_z: f64,
    #[serde(with = "machine::duration_text")]
    pub learn_after: Duration,
    pub saturation_busy: Ratio,
    pub send_home: bool,
    pub approach: f64,
    pub approach_z: f64,
    pub burst_drain: f64,
    pub burst_depth: f64,
    pub swell_drain: f64,
    pub swell_depth: f64,
    #[serde(with = "machine::duration_text")]
    pub stall_memory: Duration,
    #[serde(with = "machine::duration_text")]
    pub block: Duration,
    pub headroom: f64,
    pub rerate: f64,
    #[serde(with = "machine::duration_text")]
    pub fit_patience: Duration,
    pub min_active: u16,
    #[serde(with = "machine::duration_text")]
    pub order_patience: Duration,
    pub prefer_home: bool,
    #[serde(with = "machine::duration_text")]
    pub order_deadline: Duration,
    #[serde(with = "machine::duration_text")]
    pub arrival_grace: Duration,
    #[serde(with = "machine::duration_text::optional")]
    pub imbalance_patience: Option<Duration>,
    pub imbalance: f64,
    #[serde(with = "machine::duration_text::optional")]
    pub latency_goal: Option<Duration>,
    pub tail_reports: u32,
    pub goal_readings: u32,
    pub tail_samples: u32,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        count("window_requests", "n: a connection's rate is n over the time in which n requests came")
            .above_zero()
            .source("not in the paper; a standard error of 1/8 per connection"),
        time("window_span", "a measuring window lasts at least this long")
            .source("ours: half a report; zero measures exactly n requests, as the paper prints"),
        time("report_period", "how often a worker sums its loads and reports")
            .above_zero()
            .source("not in the paper; short beside the block, long beside a request"),
        one_of("load", "what a load is counted in", &["requests", "busy_time"])
            .source("Peafowl, section 3.3; the live store counts busy time"),
        share("full_busy", "busy_time: a worker that works for this share of its time carries all it should")
            .above_zero_to(1.0)
            .source("ours: a request then waits for about four others"),
        share("overload_busy", "busy above this in two reports, a worker is overloaded whatever its limit")
            .source("ours; one switches it off"),
        time("turn_most", "no turn is charged for more: the rest is time taken away from the CPU")
            .above_zero()
            .source("ours: no turn works for longer"),
        time("capacity_memory", "after so long, half is forgotten of a request's cost and the CPU's share")
            .above_zero()
            .source("ours: after 2 s a hundredfold cost has left no trace"),
        number("outlier_z", "a sample with a higher Z-score is no new maximum")
            .above_zero()
            .source("Peafowl, section 3.3"),
        time("learn_after", "a rise that lasts this long is learned, however old the worker is")
            .above_zero()
            .source("ours: caps the sample count of mean and variance"),
        share("saturation_busy", "without a goal, a worker busier than this is saturated and learns nothing")
            .source("ours; one switches it off"),
        flag("send_home", "overloaded workers send guests home").source("Peafowl, section 3.2.2"),
        number("approach", "the share of its limit at which a load approaches it")
            .above_zero()
            .source("ours; 1 in the paper's Algorithm 1"),
        number("approach_z", "standard deviations of Poisson noise that a load must exceed that by")
            .source("ours: at 0.9 of the limit once in an hour of reports; zero is the paper"),
        number("burst_drain", "fast detector: its bucket drains at this multiple of the limit")
            .source("ours; zero switches it off"),
        number("burst_depth", "fast detector: requests above the drain that trip it")
            .source("ours: a chance of e^-26 per request at 0.9 of the limit"),
        number("swell_drain", "slow detector: its drain, of the limit").source("ours; zero switches it off"),
        number("swell_depth", "slow detector: its depth in requests")
            .source("ours: a chance of e^-31 per request at 0.9 of the limit"),
        time("stall_memory", "the longest stall that is credited, and how long the credit lasts")
            .source("ours: what a hypervisor takes at a time"),
        time("block", "after a connection was sent home, both workers are barred for this long")
            .source("Peafowl, section 3.2.2"),
        number("headroom", "a destination is filled up to this share of its limit")
            .above_zero()
            .source("ours: below `approach` by more than the noise; 1 in the paper and in its code"),
        number(
            "rerate",
            "a guest with this multiple of its rate in an open report period is re-rated at once",
        )
        .source("1.1 in the paper's published code; zero switches it off"),
        time("fit_patience", "a worker is emptied after it would have fitted elsewhere for this long")
            .source("ours: five reports; zero, as printed, believes the first"),
        count("min_active", "workers that are always awake").above_zero().source("ours"),
        time("order_patience", "if no connection is served for this long, the quietest is moved")
            .source("ours: silent connections would never move"),
        flag("prefer_home", "a connection whose home is the target moves first")
            .source("ours; the paper takes any"),
        time("order_deadline", "an order without an answer for this long is forgotten")
            .above_zero()
            .source("ours: a connection that closes in mid-transfer"),
        time("arrival_grace", "a worker without connections may have one under way for this long")
            .source("ours"),
        time("imbalance_patience", "an imbalance that lasts this long is relieved by one connection")
            .above_zero()
            .source("ours; `never` is the paper"),
        number("imbalance", "one worker so far above the mean load, another as far below")
            .above_zero()
            .source("ours"),
        time("latency_goal", "the 99th percentile of service time that shall hold")
            .above_zero()
            .given("the goal")
            .source("ours; `never` goes by load alone"),
        count("tail_reports", "reports in a row above the goal before guests go home")
            .above_zero()
            .source("ours: the first may count what waited elsewhere"),
        count("goal_readings", "readings in a row above the goal before one more worker wakes")
            .above_zero()
            .source("ours"),
        count("tail_samples", "requests that a tail must be computed from")
            .above_zero()
            .source("ours: two lie above the 99th percentile"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            window_requests: 64,
            window_span: Duration::from_millis(50),
            report_period: Duration::from_millis(100),
            load: Load::Requests,
            full_busy: Ratio::new(0.8),
            overload_busy: Ratio::ONE,
            turn_most: Duration::from_millis(1),
            capacity_memory: Duration::from_millis(150),
            outlier_z: 2.5,
            learn_after: Duration::from_secs(60),
            saturation_busy: Ratio::new(0.95),
            send_home: true,
            approach: 0.9,
            approach_z: 4.0,
            burst_drain: 1.25,
            burst_depth: 40.0,
            swell_drain: 1.0,
            swell_depth: 150.0,
            stall_memory: Duration::from_millis(20),
            block: Duration::from_secs(30),
            headroom: 0.8,
            rerate: 0.0,
            fit_patience: Duration::from_millis(500),
            min_active: 1,
            order_patience: Duration::from_millis(10),
            prefer_home: true,
            order_deadline: Duration::from_millis(200),
            arrival_grace: Duration::from_millis(50),
            imbalance_patience: Some(Duration::from_secs(5)),
            imbalance: 0.25,
            latency_goal: None,
            tail_reports: 2,
            goal_readings: 3,
            tail_samples: 200,
        }
    }
}

impl Params {
    /// The store's preset: load is busy time, and decisions are soon open to be revised, since a
    /// limit that needs no learning is not learned anew by mistakes.
    ///
    /// A worker cannot be busy for more than all the time, so the detector's drain lies at the
    /// limit and one depth serves: at 0.8 of the limit it trips by chance once in e^26 requests,
    /// and a saturated worker fills it within 300.
    pub fn live() -> Self {
        Self {
            load: Load::BusyTime,
            overload_busy: Ratio::new(0.9),
            burst_drain: 1.0,
            burst_depth: 60.0,
            swell_drain: 0.0,
            block: Duration::from_millis(500),
            fit_patience: Duration::from_millis(300),
            ..Self::default()
        }
    }

    /// The rules that the paper prints, and nothing else. A value that it leaves open keeps the
    /// default, and so do the rules that mend its published faults (silent connections move, orders
    /// expire).
    pub fn paper() -> Self {
        Self {
            window_span: Duration::ZERO,
            saturation_busy: Ratio::ONE,
            approach: 1.0,
            approach_z: 0.0,
            burst_drain: 0.0,
            swell_drain: 0.0,
            headroom: 1.0,
            fit_patience: Duration::ZERO,
            prefer_home: false,
            imbalance_patience: None,
            ..Self::default()
        }
    }

    /// The same policy for load that changes `factor` times as fast, as when a day is played in a
    /// minute.
    ///
    /// Divided are the times in which load changes: block, learning, report period and with it the
    /// measuring window, patience with a fit or an imbalance. A report period is not below 20 ms:
    /// requests come no faster in a compressed day, and a rate needs some to be measured from. The
    /// excess that re-rates a guest grows as the noise of a count over that shorter period. Not
    /// divided are the times of single requests and transfers: order patience and deadline, arrival
    /// grace, stall memory.
    pub fn scaled(self, factor: f64) -> Self {
        let divided = |length: Duration| length.scale(1.0 / factor);
        let report_period =
            divided(self.report_period).max(Duration::from_millis(20)).min(self.report_period);
        let period_ratio = report_period.as_nanos() as f64 / self.report_period.as_nanos().max(1) as f64;
        Self {
            report_period,
            rerate: if self.rerate > 0.0 { 1.0 + (self.rerate - 1.0) / period_ratio.sqrt() } else { 0.0 },
            window_span: self.window_span.scale(period_ratio),
            capacity_memory: self.capacity_memory.scale(period_ratio),
            learn_after: divided(self.learn_after),
            block: divided(self.block),
            fit_patience: self.fit_patience.scale(period_ratio),
            imbalance_patience: self.imbalance_patience.map(divided),
            ..self
        }
    }

    /// The sample count at which the online mean and variance stop growing older.
    ///
    /// With N samples of memory, a step that has lasted for k samples makes up p = 1 - (1 - 1/N)^k
    /// of it, and its Z-score is at most sqrt((1 - p) / p). That falls to z when (1 - 1/N)^k = z^2
    /// / (1 + z^2); solved for N with k = `learn_after` / `report_period`.
    pub fn sample_cap(&self) -> u64 {
        let samples = self.learn_after.as_nanos() as f64 / self.report_period.as_nanos().max(1) as f64;
        let forgetting = (1.0 + self.outlier_z.powi(-2)).ln();
        // Fewer than eight samples cannot have an outlier at all, and would forget too fast to mean
        // anything.
        ((samples / forgetting).floor() as u64).max(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_divides_the_days_times_and_not_the_requests() {
        let params = Params::default().scaled(5.0);
        assert_eq!(params.block, Duration::from_secs(6));
        assert_eq!(params.report_period, Duration::from_millis(20));
        assert_eq!(params.window_span, Duration::from_millis(10));
        assert_eq!(params.fit_patience, Duration::from_millis(100));
        assert_eq!(params.learn_after, Duration::from_secs(12));
        assert_eq!(params.imbalance_patience, Some(Duration::from_secs(1)));
        assert_eq!(params.order_patience, Params::default().order_patience);
        assert_eq!(Params::default().scaled(1.0), Params::default());
        let published = Params { report_period: Duration::from_secs(1), rerate: 1.1, ..Params::default() };
        // A period of 20 ms counts a fiftieth, with seven times the noise.
        assert!((published.scaled(50.0).rerate - (1.0 + 0.1 * 50_f64.sqrt())).abs() < 1e-12);
    }

    #[test]
    fn a_report_period_is_never_too_short_to_measure() {
        let params = Params::default().scaled(1440.0);
        assert_eq!(params.report_period, Duration::from_millis(20));
        assert!(params.sample_cap() >= 8);
    }

    #[test]
    fn unknown_keys_are_refused_and_missing_ones_have_defaults() {
        let read = serde_json::from_str::<Params>("{\"approach\":0.85}").unwrap();
        assert_eq!(read, Params { approach: 0.85, ..Params::default() });
        let error = serde_json::from_str::<Params>("{\"aproach\":0.85}").unwrap_err();
        assert!(error.to_string().contains("unknown field `aproach`"), "{error}");
    }

    #[test]
    fn packing_leaves_a_gap_below_the_limit_that_sends_guests_home() {
        let params = Params::default();
        assert!(params.headroom < params.approach && params.approach <= params.swell_drain);
    }
}
