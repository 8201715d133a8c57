//! Does it pay? Whether the machine sleeps more where background work is frozen than where it is
//! not, found out by trying both.
//!
//! Freezing gains the time that the background would have run while the critical waited, and no
//! other CPU was needed. It costs a freeze and a thaw each time, and the work that piled up runs
//! afterwards, perhaps for longer than the critical work that it runs beside. Of a background that
//! runs rarely, or of waits that are hardly longer than freezing takes, nothing is left, or less
//! than nothing. How much piles up depends on unknown programs, so it is measured: by the machine's
//! own account of the time in which all CPUs were idle.
//!
//! ```text
//!   look            try                                   settled
//!   off             on  on off off on ...                 on or off, for a minute, then two, four, ... an hour
//!    |              `- pairs, whose order turns about      |
//!    `- the greatest possible gain                         `- after a quarter of that
//!                                                             if the idle share changes by a tenth
//! ```
//!
//! *Turns* last for [`PayoffParams::turn`], and at least for [`TURN_WAITS`] waits that are worth
//! freezing for; they begin and end where a wait begins, so that each has whole cycles, and the
//! first cycle after a change belongs to none: work from before the change runs in it.
//!
//! **Look.** One turn without freezing bounds the gain: the share of the time in which all critical
//! threads waited, less that in which all CPUs were idle anyway, less the time of freezing and
//! thawing. Where that is not worth it, nothing is ever frozen.
//!
//! **Try.** Pairs of turns, one with and one without. After three pairs the mean difference decides
//! as soon as it is two standard errors from the bar; after [`PAIRS_MAX`] it decides anyway. The
//! bar is [`PayoffParams::min_gain`], twice that where freezing is off, half where it is on:
//! *hysteresis*.
//!
//! **Whatever the gain**, freezing is left off unless the evidence excludes that critical threads
//! are slowed by more than [`PayoffParams::max_slowdown`]: two standard errors above the mean,
//! neither their whole cycles (wait and work) nor their waits are longer than that with freezing.
//! Waits count because a third party that is waited for may itself wait for the background. It is
//! left off, too, where the longest cycles lie with freezing more often than chance explains, or
//! where the work between two waits takes clearly longer. Where the gain is clear and only this is
//! not, more pairs are tried, up to [`PAIRS_MORE`]. Waits whose lengths vary much are never known
//! well enough: freezing is left off for them ([`Reason::NotExcluded`]). `evidence.rs` names the
//! effects that are not seen.
//!
//! Invariants:
//! - Without readings of idle time nothing is judged, and freezing is never held back.
//! - Turns in which the other way is tried come ever more rarely while the answer stays the same,
//!   however restless the machine: work that a trial slows is slowed for a share of the time that
//!   goes to nothing.

mod evidence;
mod params;
mod turn;
mod verdict;

pub use params::PayoffParams;
pub use verdict::{Reason, Verdict};

use super::TaskId;
use evidence::{Compared, Evidence};
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};
use turn::{Pair, Sample, Turn};

/// Waits worth freezing for in a turn, at least.
pub const TURN_WAITS: u32 = 4;
/// With fewer pairs nothing is decided.
const PAIRS_MIN: usize = 3;
/// So many decide, however unclear they are: 16 turns.
pub const PAIRS_MAX: usize = 8;
/// And so many where the gain is clear, and only whether critical work is slowed is not.
pub const PAIRS_MORE: usize = 24;
/// A turn lasts for so many of the longest waits, so that whole ones are in it.
const TURN_LONGEST: u64 = 4;
/// But for no more than so many times [`PayoffParams::turn`].
const TURN_MAX: u64 = 8;
/// Standard errors from the bar: one decision in twenty is wrong.
const CLEAR: f64 = 2.0;
/// Standard errors above the bar, and so much of a cycle above it, that need no third pair: of few
/// lengths the error itself is not known well.
const PLAIN: f64 = 4.0;
const GROSS: f64 = 0.1;
/// The change of the idle time of all CPUs since it was settled, as a share of the time, for which
/// it is tried anew early.
const CHANGE: f64 = 0.1;

/// And then after this part of the time after which it would be tried anyway: on a machine whose
/// load changes all the time the change is no news.
const EARLY: u64 = 4;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Looking,
    Trying { pairs: Vec<Pair>, first: Option<Sample> },
    Settled { pays: bool, until: Instant, usual: Option<f64> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Payoff {
    params: PayoffParams,
    /// Time that freezing and thawing take.
    cost: Duration,
    /// As last read; without, nothing is judged.
    idle: Option<Duration>,
    /// In which all critical threads waited, up to `waiting_since`.
    waited: Duration,
    waiting_since: Option<Instant>,
    /// The present wait was counted as one worth freezing for.
    is_counted: bool,
    stage: Stage,
    turn: Turn,
    /// After the next verdict, if it is the same.
    retry: Duration,
    judged: Instant,
    evidence: Evidence,
    verdict: Verdict,
}

impl Payoff {
    pub fn new(params: PayoffParams) -> Self {
        Self {
            params,
            cost: Duration::ZERO,
            idle: None,
            waited: Duration::ZERO,
            waiting_since: None,
            is_counted: false,
            stage: Stage::Looking,
            turn: Turn::of(false),
            retry: params.retry_min,
            judged: Instant::ZERO,
            evidence: Evidence::default(),
            verdict: Verdict::default(),
        }
    }

    /// All CPUs have been idle at once for so long, since some beginning.
    pub fn handle_idle(&mut self, idle: Duration) {
        self.idle = Some(idle);
    }

    pub fn handle_cost(&mut self, cost: Duration) {
        self.cost = cost;
    }

    /// A critical thread begins to wait. Told before [`Self::handle_waiting`].
    pub fn handle_block(&mut self, now: Instant, task: TaskId) {
        self.evidence.blocks(now, task, self.turn.counts());
    }

    pub fn handle_unblock(&mut self, now: Instant, task: TaskId) {
        self.evidence.goes_on(now, task, self.turn.counts());
    }

    /// The thread is gone, or not critical any more.
    pub fn forget(&mut self, task: TaskId) {
        self.evidence.forget(task);
    }

    /// The state of the threads is unknown.
    pub fn forget_all(&mut self) {
        self.evidence.forget_all();
    }

    /// Whether all critical threads wait now.
    pub fn handle_waiting(&mut self, now: Instant, is_waiting: bool) {
        match (self.waiting_since, is_waiting) {
            (None, true) => {
                self.waiting_since = Some(now);
                self.is_counted = false;
                self.turn.waits += 1;
                if let Some(idle) = self.idle.filter(|_| self.params.is_tried) {
                    self.a_wait_begins(now, idle);
                }
            }
            (Some(since), false) => {
                self.waited += now.since(since);
                self.waiting_since = None;
            }
            _ => {}
        }
    }

    /// The present wait is worth freezing for. True if that shall be done.
    pub fn may_freeze(&mut self) -> bool {
        if self.idle.is_none() || !self.params.is_tried {
            return true;
        }
        if !self.is_counted {
            self.is_counted = true;
            self.turn.worthy += 1;
        }
        self.turn.is_on
    }

    /// False if nothing is frozen now because that does not pay, or because it is found out whether
    /// it does.
    pub fn is_on(&self) -> bool {
        self.idle.is_none() || !self.params.is_tried || self.turn.is_on
    }

    pub fn verdict(&self) -> Verdict {
        let again = match self.stage {
            Stage::Settled { until, .. } => Some(until),
            _ => None,
        };
        let is_trying = self.idle.is_some() && self.params.is_tried && again.is_none();
        Verdict { is_trying, again, ..self.verdict }
    }

    fn a_wait_begins(&mut self, now: Instant, idle: Duration) {
        let Some(began) = self.turn.began else {
            self.turn = Turn { began: Some(now), idle, waited: self.waited, ..Turn::of(self.turn.is_on) };
            return;
        };
        let length = now.since(began);
        let whole = (self.evidence.longest() * TURN_LONGEST).min(self.params.turn * TURN_MAX);
        if self.turn.worthy < TURN_WAITS || length < self.params.turn.max(whole) {
            return;
        }
        let share = |time: Duration| time.as_secs_f64() / length.as_secs_f64();
        let sample = Sample {
            idle: share(idle - self.turn.idle),
            waiting: share(self.waited - self.turn.waited),
            // The wait that begins now is of the next turn, and was counted already.
            cycle_s: length.as_secs_f64() / f64::from(self.turn.waits.max(1)),
            cost: share(self.cost * u64::from(self.turn.worthy)),
        };
        let was_on = self.turn.is_on;
        self.learn(now, sample);
        let is_on = self.next_is_on();
        self.turn = Turn::of(is_on);
        if is_on == was_on {
            self.a_wait_begins(now, idle);
        }
    }

    fn learn(&mut self, now: Instant, sample: Sample) {
        match &mut self.stage {
            Stage::Looking => {
                let at_most = sample.waiting - sample.idle - sample.cost;
                self.verdict.gain_at_most = Some(at_most);
                if at_most < self.bar() {
                    self.verdict = Verdict { gain_at_most: Some(at_most), ..self.verdict.without_trial() };
                    self.settle(now, false, Some(Reason::NothingToGain));
                } else {
                    self.stage = Stage::Trying { pairs: Vec::new(), first: Some(sample) };
                }
            }
            Stage::Trying { pairs, first } => {
                let Some(before) = first.take() else {
                    *first = Some(sample);
                    return;
                };
                let (off, on) = if self.turn.is_on { (before, sample) } else { (sample, before) };
                let work_s = |of: Sample| of.cycle_s * (1.0 - of.waiting);
                pairs.push(Pair {
                    gain: on.idle - off.idle,
                    slowdown: (work_s(on) - work_s(off)) / off.cycle_s,
                });
                self.verdict.pairs += 1;
                let pairs = pairs.clone();
                self.judge(now, &pairs);
            }
            Stage::Settled { until, usual, .. } => {
                let has_changed = usual.is_some_and(|usual| (sample.idle - usual).abs() > CHANGE);
                let early = Duration::from_nanos(self.retry.as_nanos() / EARLY).max(self.params.retry_min);
                if now >= *until || (has_changed && now >= self.judged + early) {
                    self.stage = Stage::Looking;
                    self.evidence.begin();
                } else {
                    usual.get_or_insert(sample.idle);
                }
            }
        }
    }

    fn judge(&mut self, now: Instant, pairs: &[Pair]) {
        let (gain, gain_error) = mean_and_error(pairs.iter().map(|pair| pair.gain));
        let (slowdown, slowdown_error) = mean_and_error(pairs.iter().map(|pair| pair.slowdown));
        (self.verdict.gain, self.verdict.slowdown) = (Some(gain), Some(slowdown));
        let compared = self.evidence.compared(self.params.max_slowdown.as_f64());
        if let Some(Compared { cycle, wait, tail, cycles, .. }) = compared {
            let verdict = &mut self.verdict;
            (verdict.cycle, verdict.cycle_at_most) = (Some(cycle.mean), Some(cycle.at_most(CLEAR)));
            (verdict.wait, verdict.wait_at_most) = (Some(wait.mean), Some(wait.at_most(CLEAR)));
            verdict.tail = Some(tail);
            verdict.cycles = cycles.map(|count| count as u64);
        }
        let max = self.params.max_slowdown.as_f64();
        // A result that is plain after the first pair is not tried at the expense of critical work
        // until the third.
        let least = |seen: Compared| seen.cycle.at_least(PLAIN).max(seen.wait.at_least(PLAIN));
        if compared.is_some_and(|seen| least(seen) > max + GROSS) {
            return self.settle(now, false, Some(Reason::Longer));
        }
        if pairs.len() < PAIRS_MIN {
            return;
        }
        let is_longer = slowdown - CLEAR * slowdown_error > max
            || compared.is_some_and(|seen| seen.cycle.at_least(CLEAR).max(seen.wait.at_least(CLEAR)) > max);
        let is_excluded =
            compared.is_some_and(|seen| seen.cycle.at_most(CLEAR).max(seen.wait.at_most(CLEAR)) <= max);
        if is_longer {
            return self.settle(now, false, Some(Reason::Longer));
        }
        if compared.is_some_and(|seen| seen.is_tail_longer) {
            return self.settle(now, false, Some(Reason::LongerTail));
        }
        if (gain - self.bar()).abs() <= CLEAR * gain_error && pairs.len() < PAIRS_MAX {
            return;
        }
        if gain <= self.bar() {
            self.settle(now, false, Some(Reason::NoGain));
        } else if is_excluded {
            self.settle(now, true, None);
        } else if pairs.len() >= PAIRS_MORE {
            self.settle(now, false, Some(Reason::NotExcluded));
        }
    }

    fn settle(&mut self, now: Instant, pays: bool, why: Option<Reason>) {
        self.retry = match self.verdict.pays {
            Some(before) if before == pays => (self.retry * 2).min(self.params.retry_max),
            _ => self.params.retry_min,
        };
        self.stage = Stage::Settled { pays, until: now + self.retry, usual: None };
        self.judged = now;
        self.verdict.pays = Some(pays);
        self.verdict.why = why;
        self.verdict.trials += 1;
    }

    /// The gain that freezing must bring.
    fn bar(&self) -> f64 {
        let min_gain = self.params.min_gain.as_f64();
        match self.verdict.pays {
            None => min_gain,
            Some(true) => min_gain / 2.0,
            Some(false) => min_gain * 2.0,
        }
    }

    /// Off on, on off, off on, ...: a drift of the machine's load cancels out.
    fn next_is_on(&self) -> bool {
        match &self.stage {
            Stage::Looking => false,
            Stage::Trying { pairs, first } => first.is_some() == pairs.len().is_multiple_of(2),
            Stage::Settled { pays, .. } => *pays,
        }
    }
}

/// The mean, and its standard error.
fn mean_and_error(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0) / count).sqrt())
}

#[cfg(test)]
mod tests;
