//! Every constant of roost that somebody may want to change.

use machine::Duration;
use serde::{Deserialize, Serialize};

/// How requests get to cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queueing {
    /// One queue for all active cores.
    #[default]
    Shared,
    /// Each active core has its own, and a request goes to one of them whatever is queued there.
    PerCore,
}

/// What one roost aims at, and how it learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// The goal: what response times shall stay within. 300 us \[P Peafowl 4.3, the strictest\].
    #[serde(with = "machine::duration_text")]
    pub target: Duration,
    /// What share of requests shall; held between 0.5 and 0.9999. 0.99 \[P Peafowl 4.3\].
    pub quantile: f64,
    /// How requests get to cores.
    pub queueing: Queueing,
    /// Gears may follow the number of requests at each event. With a queue per core the driver then asks
    /// [`Roost::gear`](super::Roost::gear) at each change of a core's queue. False where it does not.
    pub graded: bool,
    /// Plans are made for so much of the target. 0.95 \[D\]: what remains is for what a model cannot know before it
    /// has been corrected.
    pub aim: f64,
    /// Time between two plans, at least 100 us. 100 ms \[D\], as Rubik's tables: some thousand requests at the
    /// papers' rates.
    #[serde(with = "machine::duration_text")]
    pub epoch: Duration,
    /// So soon after a jump of the load, or after a pause, the next plan is made, and the first one looked for. 5 ms
    /// \[D\]: four hundred requests at 80 kRPS, and one exit from the deepest state in forty.
    #[serde(with = "machine::duration_text")]
    pub epoch_after_jump: Duration,
    /// Somebody else chooses gears request by request and spends what the plan leaves of the goal: a measured tail that is
    /// longer than the plan's then says nothing of its model, and only one beyond the goal does.
    pub paced_elsewhere: bool,
    /// The first plan is made from no fewer requests. 500 \[D\]: five beyond a 99th percentile.
    pub samples_min: u32,
    /// From asking for a gear until it works. 10 us \[P Peafowl 4.3\]; set it to the machine's delay and stall
    /// together.
    #[serde(with = "machine::duration_text")]
    pub dvfs_delay: Duration,
    /// Plans are made for the measured rate and so many standard deviations of its estimate. 2 \[D\].
    pub rate_z: f64,
    /// How much of the difference between measured and predicted tail is believed at once: where the tail is longer,
    /// and where it is shorter. 0.3 and 0.1 \[D\]: quick to give up savings, slow to take them. Zeros switch it off.
    pub correction_gains: [f64; 2],
    /// Least and most that the measured tail may be, in predicted ones; beyond, it is not the model that errs. 0.7
    /// and 2.5 \[D\].
    pub correction_bounds: [f64; 2],
    /// For how long a peak of the load counts by half, if the goal is missed again and again for such peaks. 10 s
    /// \[D\].
    #[serde(with = "machine::duration_text")]
    pub peak_half_life: Duration,
    /// Another plan must save so much of the power. 0.01 \[D\].
    pub worth_changing: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target: Duration::from_micros(300),
            quantile: 0.99,
            queueing: Queueing::Shared,
            graded: true,
            aim: 0.95,
            epoch: Duration::from_millis(100),
            epoch_after_jump: Duration::from_millis(5),
            paced_elsewhere: false,
            samples_min: 500,
            dvfs_delay: Duration::from_micros(10),
            rate_z: 2.0,
            correction_gains: [0.3, 0.1],
            correction_bounds: [0.7, 2.5],
            peak_half_life: Duration::from_secs(10),
            worth_changing: 0.01,
        }
    }
}

impl Params {
    /// The quantile, where a tail can be measured.
    pub(super) fn quantile(&self) -> f64 {
        // What is no number asks for the most.
        if self.quantile.is_nan() { MOST_QUANTILE } else { self.quantile.clamp(0.5, MOST_QUANTILE) }
    }

    pub(super) fn epoch(&self) -> Duration {
        self.epoch.max(LEAST_EPOCH)
    }

    pub(super) fn epoch_after_jump(&self) -> Duration {
        self.epoch_after_jump.min(self.epoch).max(LEAST_EPOCH)
    }

    /// The tail to be expected where the model says this one: somebody else who chooses gears spends what is left of the
    /// goal.
    pub(super) fn expected_ns(&self, modelled_ns: f64) -> f64 {
        if self.paced_elsewhere { modelled_ns.max(self.target_ns()) } else { modelled_ns }
    }

    pub(super) fn target_ns(&self) -> f64 {
        self.target.as_nanos() as f64
    }
}

/// Beyond it, no window of reasonable length has misses to speak of.
const MOST_QUANTILE: f64 = 0.9999;

/// A timer that is due at once would leave no time for anything else.
const LEAST_EPOCH: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_paces_elsewhere_is_expected_to_spend_the_goal_and_no_more() {
        let params = Params { target: Duration::from_micros(300), ..Params::default() };
        assert_eq!([100e3, 400e3].map(|modelled_ns| params.expected_ns(modelled_ns)), [100e3, 400e3]);
        let paced = Params { paced_elsewhere: true, ..params };
        assert_eq!([100e3, 400e3].map(|modelled_ns| paced.expected_ns(modelled_ns)), [300e3, 400e3]);
    }
}
