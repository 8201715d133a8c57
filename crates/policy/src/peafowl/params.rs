//! Every constant of the Peafowl policy, with its default and the reason for it.
//!
//! The paper prints few numbers: Z-score 2.5, a block of 30 s, limits that are compared as they are, and that the
//! first measured rate is the first limit. It leaves open the length of a measuring window, the report period and
//! what "approaches the limit" means. [`Params::paper`] keeps to what is printed and switches off what is ours;
//! what the paper leaves open has the same value in both presets. [`Params::live`] is what the store runs by: load is
//! busy time, so that no count of requests, however it came about, is ever taken for what a worker can carry.

use machine::{Duration, Ratio};
use serde::{Deserialize, Serialize};

/// What a load is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Requests per second; the limit is the highest that was seen (the paper, section 3.3).
    #[default]
    Requests,
    /// Seconds of work per second; the limit is [`Params::full_busy`] of the time that the worker gets of its CPU.
    BusyTime,
}

/// The constants of one Peafowl instance. The scheduler and all its workers share one value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    // --- Measuring a connection's load (section 3.3) ---
    /// n: a connection's rate is n divided by the time in which n requests came. 64: the estimate's standard error
    /// is 1/8 per connection, and sums over connections are better. Not given in the paper.
    pub window_requests: u32,
    /// A measuring window lasts at least this long, so that a fast connection is not judged by a few milliseconds.
    /// 50 ms: half a report. Zero measures exactly n requests, as the paper prints.
    #[serde(with = "machine::duration_text")]
    pub window_span: Duration,
    /// How often a worker sums its loads and reports. 100 ms: short beside the block, long beside a request.
    #[serde(with = "machine::duration_text")]
    pub report_period: Duration,

    /// What a load is counted in. Requests, as the paper prints; the live store counts busy time.
    pub load: Load,

    // --- The limit, where load is busy time ---
    /// A worker that works for this share of the time carries all that it should. 0.8: at that share a request waits
    /// for about four others on average, and a fifth of the time is left for what comes before anybody can act.
    pub full_busy: Ratio,
    /// A worker that worked for more than this share in two reports is overloaded whatever its limit: its guests go
    /// home, and if it has none, the scheduler wakes another worker for a share of its connections. 0.9; one switches
    /// it off.
    pub overload_busy: Ratio,
    /// No turn is charged for more than this, since none works for longer: the rest is time in which the CPU was
    /// taken away. It counts against the worker, as less capacity, and not against the connection. 1 ms.
    #[serde(with = "machine::duration_text")]
    pub turn_most: Duration,
    /// How long ago is half forgotten of what a request costs and of what the worker gets of its CPU. 150 ms: after
    /// two seconds a hundredfold cost has left no trace.
    #[serde(with = "machine::duration_text")]
    pub capacity_memory: Duration,

    // --- Learning the limit (section 3.3), where load is requests ---
    /// A sample with a Z-score above this is an outlier and no new maximum. 2.5 in the paper.
    pub outlier_z: f64,
    /// A rise that lasts this long is learned, however long the worker has lived: it caps the sample count of the
    /// online mean and variance (see [`Params::sample_cap`]). 60 s.
    #[serde(with = "machine::duration_text")]
    pub learn_after: Duration,
    /// Without a latency goal, a worker that worked for more than this share of the report period is saturated, and
    /// what it served is no load that it served well. 0.95. One switches the test off.
    pub saturation_busy: Ratio,

    // --- Scale up (section 3.2.2) ---
    /// Guests go home when this is true. False under policies that place connections themselves.
    pub send_home: bool,
    /// The fraction of its limit at which a worker's load "approaches" it. 0.9; the paper's Algorithm 1 says 1.
    pub approach: f64,
    /// A reported load counts as too high only if it is so by this many standard deviations of its own Poisson noise.
    /// 4: at 0.9 of the limit once in an hour of reports. Zero takes the figure as it is.
    pub approach_z: f64,
    /// Fast detector: a bucket that drains at this multiple of the limit. 1.25; zero switches the detector off.
    pub burst_drain: f64,
    /// Fast detector: how many requests above its drain trip it. 40: under a Poisson load of 0.9 times the limit the
    /// chance is about e^-26 per request, and twice the limit trips it after 107 requests.
    pub burst_depth: f64,
    /// Slow detector: drain as a multiple of the limit. 1.0; zero switches it off. It sees what the fast one cannot: an
    /// overload of a worker whose limit is close to all that it can serve.
    pub swell_drain: f64,
    /// Slow detector: depth in requests. 150: about e^-31 per request at 0.9 times the limit.
    pub swell_depth: f64,
    /// The longest stall that is credited, and how long the credit lasts (see `overload`). 20 ms: what a hypervisor or
    /// another task takes at a time.
    #[serde(with = "machine::duration_text")]
    pub stall_memory: Duration,
    /// After sending a connection home, both workers are barred as scale-down worker and as destination. 30 s in the
    /// paper, which found the policy insensitive to it.
    #[serde(with = "machine::duration_text")]
    pub block: Duration,

    // --- Scale down (section 3.2.1) ---
    /// A destination is filled up to this fraction of its limit. 0.8: below `approach` by more than the noise, so that
    /// what was packed is not sent home again. The paper packs up to the limit.
    pub headroom: f64,
    /// A worker is emptied only after it would have fitted on the others for this long: of many noisy readings one is
    /// always low. 500 ms: five reports. Zero, as printed, believes the first.
    #[serde(with = "machine::duration_text")]
    pub fit_patience: Duration,
    /// Workers that stay active whatever the load. 1.
    pub min_active: u16,
    /// A move order takes the connection served next; if none is served for this long, the quietest goes. 10 ms.
    #[serde(with = "machine::duration_text")]
    pub order_patience: Duration,
    /// A connection whose home is the target goes first when a move is ordered. True; the paper takes any.
    pub prefer_home: bool,
    /// An order without an answer for this long is forgotten, so that a connection that closes in mid-transfer costs a
    /// moment and not the scheduler. 200 ms.
    #[serde(with = "machine::duration_text")]
    pub order_deadline: Duration,
    /// An active worker without connections may still have one under way to it for this long after one was sent. 50 ms.
    #[serde(with = "machine::duration_text")]
    pub arrival_grace: Duration,

    // --- Beyond the paper ---
    /// Relieve an imbalance that lasts this long by moving one connection. 5 s; `None` never does.
    #[serde(with = "machine::duration_text::optional")]
    pub imbalance_patience: Option<Duration>,
    /// An imbalance: one worker this fraction above the mean load of the active ones, another as much below. 0.25.
    pub imbalance: f64,
    /// The 99th percentile of service time that shall not be exceeded. `None`: only the load decides.
    #[serde(with = "machine::duration_text::optional")]
    pub latency_goal: Option<Duration>,
    /// Reports in a row above the goal before a worker sends its guests home. 2: the first may still count what
    /// connections waited at the worker that they came from.
    pub tail_reports: u32,
    /// Readings in a row above the goal before the scheduler wakes one more worker. 3.
    pub goal_readings: u32,
    /// Requests that a tail must be computed from to count. 200: two lie above the 99th percentile.
    pub tail_samples: u32,
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
    /// What the store runs by: load is busy time, and what was decided is soon open to be decided again, since a limit
    /// that needs no learning is not learned anew by mistakes.
    ///
    /// A worker cannot be busy for more than all the time, so the detector's drain lies at the limit and one depth
    /// serves: at 0.8 of the limit it trips by chance once in e^26 requests, and a saturated worker fills it within 300.
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

    /// The rules that the paper prints, and nothing else. What it leaves open keeps the default, and so does what
    /// mends its published faults (silent connections move, orders expire).
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

    /// The same policy for load that changes `factor` times as fast, as when a day is played in a minute.
    ///
    /// Divided are the times in which load changes: block, learning, report period and with it the measuring window,
    /// patience with a fit or an imbalance. A report period is not below 20 ms: requests come no faster in a compressed
    /// day, and a rate needs some to be measured from. Not divided are the times of single requests and transfers:
    /// order patience and deadline, arrival grace, stall memory.
    pub fn scaled(self, factor: f64) -> Self {
        let divided = |length: Duration| length.scale(1.0 / factor);
        let report_period =
            divided(self.report_period).max(Duration::from_millis(20)).min(self.report_period);
        let period_ratio = report_period.as_nanos() as f64 / self.report_period.as_nanos().max(1) as f64;
        Self {
            report_period,
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
    /// With N samples of memory, a step that has lasted for k samples makes up p = 1 - (1 - 1/N)^k of it, and its
    /// Z-score is at most sqrt((1 - p) / p). That falls to z when (1 - 1/N)^k = z^2 / (1 + z^2); solved for N with
    /// k = `learn_after` / `report_period`.
    pub fn sample_cap(&self) -> u64 {
        let samples = self.learn_after.as_nanos() as f64 / self.report_period.as_nanos().max(1) as f64;
        let forgetting = (1.0 + self.outlier_z.powi(-2)).ln();
        // Fewer than eight samples cannot have an outlier at all, and would forget too fast to mean anything.
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
