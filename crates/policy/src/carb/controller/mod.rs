//! The search itself: one decision per epoch.

use super::{Params, chance};
use machine::{Duration, Rate, Ratio};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Epoch {
    /// Requests per second; `None` if it could not be measured.
    pub rate: Option<Rate>,
    /// The tail of the response time (the paper takes the 95th percentile); `None` if there was no
    /// request.
    pub tail: Option<Duration>,
    /// The mean response time of the epoch.
    pub mean: Option<Duration>,
    /// How busy the awake workers were on average; `None` if that is not known. The search by slope
    /// does not ask.
    pub busy: Option<Ratio>,
}

/// The paper's S0, S1 and S2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// S0: wait for a change.
    Hold,
    /// S1: add workers.
    Up,
    /// S2: take workers away.
    Down,
}

/// An epoch to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Mark {
    rate: Rate,
    tail: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Controller {
    params: Params,
    max_active: u16,
    active: u16,
    state: State,
    previous: Option<Mark>,
    /// The last settled epoch; while searching, the one that the search is judged by. Just after
    /// settling its tail is not measured yet.
    anchor: Mark,
    /// Number of epochs so far in S0.
    held: u32,
    peak: Rate,
    /// Mean square of the tail's change from epoch to epoch while nothing is done, in ns^2.
    scatter: f64,
}

impl Controller {
    /// Begins with all workers awake, scaling down.
    pub fn new(params: Params, max_active: u16) -> Self {
        Self {
            params,
            max_active,
            active: max_active,
            state: State::Down,
            previous: None,
            anchor: Mark { rate: Rate::ZERO, tail: None },
            held: 0,
            peak: Rate::ZERO,
            scatter: 0.0,
        }
    }

    /// How many workers shall be awake.
    pub fn active(&self) -> u16 {
        self.active
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// An epoch is over; returns how many workers shall be awake in the next.
    pub fn handle_epoch(&mut self, epoch: &Epoch) -> u16 {
        let Some(rate) = epoch.rate else {
            // Blind: all workers awake, and begin anew when sight returns.
            self.begin_at_the_top();
            self.previous = None;
            return self.active;
        };
        self.peak = self.peak.max(rate);
        let mark = Mark { rate, tail: epoch.tail };
        let Some(previous) = self.previous.replace(mark) else {
            // Epoch 0 is measured only.
            self.anchor = mark;
            return self.active;
        };
        let chance = chance(previous.rate + rate, self.params.epoch).scale(self.params.noise_z);
        if rate - previous.rate > self.params.rate_jump.against(self.peak).max(chance) {
            self.begin_at_the_top();
        } else if self.params.repaired {
            self.repaired(mark, previous, epoch.mean);
        } else {
            self.as_printed(mark, previous, epoch.mean);
        }
        self.active
    }

    /// Something between two epochs says that all workers are needed now; they are, and the search
    /// begins anew.
    pub fn handle_alarm(&mut self) -> u16 {
        self.begin_at_the_top();
        self.active
    }

    /// The paper's Algorithms 1, 2 and 3.
    fn as_printed(&mut self, now: Mark, before: Mark, mean: Option<Duration>) {
        let rate_step = self.params.rate_step.against(self.peak);
        let rose = self.tail_rose(now.tail, before.tail, mean);
        match self.state {
            State::Hold if now.rate > before.rate + rate_step => self.step(State::Up),
            // Not `before - step`, which would saturate at zero.
            State::Hold if now.rate + rate_step < before.rate => self.step(State::Down),
            State::Hold if self.tail_exceeds(now.tail, before.tail, mean) => self.step(State::Up),
            State::Hold => {}
            State::Up if !rose => self.step(State::Up),
            State::Up => self.settle_after(State::Down),
            State::Down if !rose => self.step(State::Down),
            State::Down => self.settle_after(State::Up),
        }
    }

    /// The same with the repairs that the module's header names.
    fn repaired(&mut self, now: Mark, before: Mark, mean: Option<Duration>) {
        let anchor = self.anchor;
        let rate_rose = now.rate > anchor.rate + self.rate_step(anchor.rate);
        let rate_fell = now.rate + self.rate_step(anchor.rate) < anchor.rate;
        let worse = self.tail_exceeds(now.tail, anchor.tail, mean);
        match self.state {
            // A store with no requests has no tail that could tell: no request waits.
            State::Hold if rate_fell || (now.rate == Rate::ZERO && self.active > self.min_active()) => {
                self.anchor = now;
                self.step(State::Down);
            }
            State::Hold if rate_rose || worse => {
                // The tail that was bearable before is the measure, at the new rate.
                self.anchor.rate = now.rate;
                self.step(State::Up);
            }
            State::Hold if self.params.probe_epochs > 0 && self.held >= self.params.probe_epochs => {
                self.held = 0;
                self.anchor = now;
                self.step(State::Down);
            }
            State::Hold => {
                self.held += 1;
                self.anchor.tail = anchor.tail.or(now.tail);
                self.learn_scatter(now.tail, before.tail);
            }
            State::Up if rate_fell => {
                self.anchor = now;
                self.step(State::Down);
            }
            State::Up if worse && self.active == self.max_active => {
                // Workers are not lacking; perhaps there are too many. Search from here.
                self.anchor = now;
                self.step(State::Down);
            }
            State::Up if worse => self.step(State::Up),
            State::Up if self.tail_exceeds(before.tail, now.tail, mean) => self.step(State::Up),
            State::Up => self.settle_after(State::Down),
            State::Down if rate_rose || worse => self.settle_after(State::Up),
            State::Down => {
                // A tail that fell on the way becomes the measure, so that it cannot creep back
                // unseen.
                self.anchor.tail = match (anchor.tail, now.tail) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                self.step(State::Down);
            }
        }
    }

    /// One step, after which the controller is in `towards`; a step that the bounds forbid settles
    /// instead.
    fn step(&mut self, towards: State) {
        let next = match towards {
            State::Up => self.active.saturating_add(self.params.step_up),
            State::Down => self.active.saturating_sub(self.params.step_down),
            State::Hold => self.active,
        };
        if (self.min_active()..=self.max_active).contains(&next) {
            self.active = next;
            self.state = towards;
        } else {
            self.settle();
        }
    }

    /// The last step did not help: takes it back, and settles.
    fn settle_after(&mut self, last_step_back: State) {
        self.step(last_step_back);
        self.settle();
    }

    fn settle(&mut self) {
        self.state = State::Hold;
        self.held = 0;
        // The rate is that of now, so that no change is missed; the tail is that of the next epoch,
        // the first that is measured with the workers settled upon.
        let rate = self.previous.map_or(Rate::ZERO, |previous| previous.rate);
        self.anchor = Mark { rate, tail: None };
    }

    fn begin_at_the_top(&mut self) {
        self.active = self.max_active;
        self.state = State::Down;
        self.anchor = self.previous.unwrap_or(self.anchor);
    }

    fn min_active(&self) -> u16 {
        self.params.min_active.clamp(1, self.max_active)
    }

    /// A change of rate beyond the threshold and beyond the chance of two Poisson counts.
    fn rate_step(&self, rate: Rate) -> Rate {
        let chance = chance(rate + rate, self.params.epoch).scale(self.params.noise_z);
        self.params.rate_step.against(self.peak).max(chance)
    }

    /// Not y(k) < y(k-1) + dy, in the paper's words.
    fn tail_rose(&self, now: Option<Duration>, before: Option<Duration>, mean: Option<Duration>) -> bool {
        match (now, before) {
            (Some(now), Some(before)) => now >= before + self.tail_step(before, mean),
            _ => false,
        }
    }

    /// y(k) > y(k-1) + dy.
    fn tail_exceeds(&self, now: Option<Duration>, before: Option<Duration>, mean: Option<Duration>) -> bool {
        match (now, before) {
            (Some(now), Some(before)) => now > before + self.tail_step(before, mean),
            _ => false,
        }
    }

    fn tail_step(&self, before: Duration, mean: Option<Duration>) -> Duration {
        let step = mean.unwrap_or(before).scale(self.params.tail_step);
        step.max(Duration::from_nanos((self.params.noise_z * self.scatter.sqrt()) as u64))
    }

    /// Nothing was done between these two epochs: their difference is chance.
    fn learn_scatter(&mut self, now: Option<Duration>, before: Option<Duration>) {
        if let (Some(now), Some(before)) = (now, before) {
            let change = now.as_nanos() as f64 - before.as_nanos() as f64;
            // An average over about 16 epochs; the first is taken as it is.
            let weight = if self.scatter == 0.0 { 1.0 } else { 1.0 / 16.0 };
            self.scatter += (change * change - self.scatter) * weight;
        }
    }
}

#[cfg(test)]
mod tests;
