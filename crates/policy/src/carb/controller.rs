//! The search itself: one decision per epoch.

use super::Params;
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
        if rate - previous.rate > self.params.rate_jump.against(self.peak) {
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
        let epoch_s = self.params.epoch.as_secs_f64().max(1e-9);
        let chance = (2.0 * rate.as_per_second() / epoch_s).sqrt();
        self.params.rate_step.against(self.peak).max(Rate::per_second(self.params.noise_z * chance))
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
mod tests {
    use super::State::{Down, Hold, Up};
    use super::*;
    use proptest::prelude::*;

    /// Rate in kRPS, tail and mean in us.
    fn epoch(krps: f64, tail_us: u64) -> Epoch {
        let (tail, mean) = (Some(Duration::from_micros(tail_us)), Some(Duration::from_micros(100)));
        Epoch { rate: Some(Rate::per_second(krps * 1000.0)), tail, mean, busy: None }
    }

    /// Plays epochs and checks workers and state after each.
    fn play(controller: &mut Controller, table: &[(f64, u64, u16, State)]) {
        for (at, &(krps, tail_us, active, state)) in table.iter().enumerate() {
            controller.handle_epoch(&epoch(krps, tail_us));
            let got = (controller.active(), controller.state());
            assert_eq!(got, (active, state), "epoch {at}: {krps} kRPS, {tail_us} us");
        }
    }

    fn paper(max_active: u16) -> Controller {
        Controller::new(Params::paper(), max_active)
    }

    #[test]
    fn paper_starts_at_the_top_and_searches_down() {
        // dy = 10 us. Epoch 0 is measured only; then S2 until the tail rises, and one step back.
        let table = [
            (50.0, 200, 8, Down),
            (50.0, 190, 7, Down),
            (50.0, 199, 6, Down),
            (50.0, 208, 5, Down),
            (50.0, 218, 6, Hold),
            (50.0, 205, 6, Hold),
        ];
        play(&mut paper(8), &table);
    }

    #[test]
    fn paper_s0_answers_to_rate_first_and_then_to_the_tail() {
        let settled = || {
            let mut controller = paper(8);
            play(&mut controller, &[(50.0, 200, 8, Down), (50.0, 250, 8, Hold)]);
            // A fall brings it off the bound: S2, one step, then worse again.
            play(&mut controller, &[(44.0, 250, 7, Down), (44.0, 240, 6, Down), (44.0, 300, 7, Hold)]);
            controller
        };
        play(&mut settled(), &[(49.5, 100, 8, Up)]);
        play(&mut settled(), &[(49.0, 300, 7, Hold)]);
        play(&mut settled(), &[(38.9, 999, 6, Down)]);
        play(&mut settled(), &[(44.0, 310, 7, Hold)]);
        play(&mut settled(), &[(44.0, 311, 8, Up)]);
    }

    #[test]
    fn paper_s1_adds_while_the_tail_rises_by_less_than_dy() {
        let mut controller = paper(8);
        controller.active = 3;
        controller.state = Hold;
        let table = [
            (20.0, 200, 3, Hold),
            (26.0, 200, 4, Up),
            (26.0, 209, 5, Up),
            (26.0, 180, 6, Up),
            (26.0, 190, 5, Hold),
            (26.0, 190, 5, Hold),
        ];
        play(&mut controller, &table);
    }

    #[test]
    fn paper_jump_wakes_everybody_in_any_state_before_dr_is_looked_at() {
        for state in [Hold, Up, Down] {
            let mut controller = paper(8);
            play(&mut controller, &[(20.0, 200, 8, Down)]);
            controller.active = 3;
            controller.state = state;
            play(&mut controller, &[(40.1, 200, 8, Down), (40.1, 200, 7, Down)]);
        }
        let mut level = paper(8);
        level.active = 3;
        level.state = Hold;
        // 20 kRPS is a rise, not a level: a store that is always above it still sleeps.
        play(&mut level, &[(90.0, 200, 3, Hold), (94.0, 200, 3, Hold), (98.0, 200, 3, Hold)]);
    }

    #[test]
    fn paper_a_bound_reached_counts_as_settled() {
        let mut controller = paper(4);
        // c_min is 2. Flat tails: down to it, and then a later rise is seen.
        let table = [
            (50.0, 200, 4, Down),
            (50.0, 200, 3, Down),
            (50.0, 200, 2, Down),
            (50.0, 200, 2, Hold),
            (56.0, 200, 3, Up),
            (56.0, 200, 4, Up),
            (56.0, 200, 4, Hold),
            (50.0, 200, 3, Down),
        ];
        play(&mut controller, &table);
    }

    /// The three algorithms, written once more from the paper; `c` may not leave its bounds.
    fn as_in_the_paper(c: u16, s: State, r: [f64; 2], y: [f64; 2], dy: f64, c_max: u16) -> (u16, State) {
        let (up, down) = ((c < c_max).then_some(c + 1), (c > 2).then(|| c - 1));
        let moved = |to: Option<u16>, state| to.map_or((c, Hold), |c| (c, state));
        if r[1] - r[0] > 20e3 {
            return (c_max, Down);
        }
        match s {
            Hold if r[1] > r[0] + 5e3 => moved(up, Up),
            Hold if r[1] < r[0] - 5e3 => moved(down, Down),
            Hold if y[1] > y[0] + dy => moved(up, Up),
            Hold => (c, Hold),
            Up if y[1] < y[0] + dy => moved(up, Up),
            Up => (down.unwrap_or(c), Hold),
            Down if y[1] < y[0] + dy => moved(down, Down),
            Down => (up.unwrap_or(c), Hold),
        }
    }

    #[test]
    fn repaired_sees_a_ramp_that_is_slow_per_epoch() {
        let mut controller = Controller::new(Params::default(), 8);
        let settle =
            [(100.0, 200, 8, Down), (100.0, 200, 7, Down), (100.0, 300, 8, Hold), (100.0, 200, 8, Hold)];
        play(&mut controller, &settle);
        // 1 % per epoch, below dr = 5 % of the peak in each.
        let fell = (1..12).find(|&step| {
            controller.handle_epoch(&epoch(100.0 - f64::from(step), 200));
            controller.active() < 8
        });
        assert_eq!(fell, Some(6));
    }

    #[test]
    fn repaired_sees_a_tail_that_creeps() {
        let mut controller = Controller::new(Params { noise_z: 0.0, ..Params::default() }, 8);
        controller.active = 4;
        controller.state = Hold;
        let crept = (0..20).find(|step| {
            controller.handle_epoch(&epoch(100.0, 200 + 4 * step));
            controller.active() > 4
        });
        // The first two epochs are measured only: 200 and 204 us; then 10 us above them.
        assert_eq!(crept, Some(3));
    }

    #[test]
    fn repaired_gives_back_the_worker_that_did_not_help() {
        let mut controller = Controller::new(Params::default(), 8);
        controller.active = 4;
        controller.state = Hold;
        let table = [
            (100.0, 200, 4, Hold),
            (100.0, 200, 4, Hold),
            (112.0, 200, 5, Up),
            (112.0, 200, 4, Hold),
            (112.0, 400, 4, Hold),
        ];
        play(&mut controller, &table);
    }

    #[test]
    fn repaired_adds_workers_while_the_queue_grows() {
        // As printed, S1 would give a worker back exactly when the tail explodes.
        let mut controller = Controller::new(Params::default(), 8);
        controller.active = 3;
        controller.state = Hold;
        let table = [
            (100.0, 200, 3, Hold),
            (100.0, 200, 3, Hold),
            (112.0, 900, 4, Up),
            (112.0, 2_000, 5, Up),
            (112.0, 1_000, 6, Up),
            (112.0, 205, 7, Up),
            (112.0, 200, 6, Hold),
        ];
        play(&mut controller, &table);
    }

    #[test]
    fn noise_is_no_change() {
        // At 1 kRPS a count over one second scatters by 45: 4 sigma is above dr = 5 %.
        let mut controller = Controller::new(Params::default(), 8);
        controller.active = 4;
        controller.state = Hold;
        for krps in [1.0, 1.0, 1.09, 0.92, 1.1, 0.95, 1.08] {
            controller.handle_epoch(&epoch(krps, 200));
            assert_eq!((controller.active(), controller.state()), (4, Hold), "{krps}");
        }
    }

    #[test]
    fn a_blind_controller_wakes_everybody() {
        for params in [Params::paper(), Params::default()] {
            let mut controller = Controller::new(params, 8);
            controller.active = 2;
            controller.state = Hold;
            controller.handle_epoch(&epoch(50.0, 200));
            assert_eq!(controller.handle_epoch(&Epoch::default()), 8);
        }
    }

    #[test]
    fn it_looks_again_after_a_minute() {
        let mut controller = Controller::new(Params::default(), 8);
        controller.active = 4;
        controller.state = Hold;
        let probed = (0..200).find(|_| controller.handle_epoch(&epoch(100.0, 200)) < 4);
        assert_eq!(probed, Some(61));
    }

    fn any_epoch() -> impl Strategy<Value = Epoch> {
        let rate = prop::option::weighted(0.95, 0.0..120.0_f64);
        (rate, prop::option::weighted(0.9, 50_u64..900)).prop_map(|(krps, tail)| Epoch {
            rate: krps.map(|krps| Rate::per_second(krps * 1000.0)),
            tail: tail.map(Duration::from_micros),
            mean: tail.map(|_| Duration::from_micros(100)),
            busy: None,
        })
    }

    proptest! {
        #[test]
        fn the_paper_preset_is_the_paper(
            max_active in 2_u16..12,
            readings in prop::collection::vec((0.0..60.0_f64, 100_u64..300), 2..80),
        ) {
            let mut controller = paper(max_active);
            let (mut c, mut s) = (max_active, Down);
            for pair in readings.windows(2) {
                let [(r0, y0), (r1, y1)] = [pair[0], pair[1]];
                if controller.previous.is_none() {
                    controller.handle_epoch(&epoch(r0, y0));
                }
                controller.handle_epoch(&epoch(r1, y1));
                let (r, y) = ([r0 * 1000.0, r1 * 1000.0], [y0 as f64, y1 as f64]);
                (c, s) = as_in_the_paper(c, s, r, y, 10.0, max_active);
                prop_assert_eq!((controller.active(), controller.state()), (c, s));
            }
        }

        #[test]
        fn it_stays_within_its_bounds(
            repaired in any::<bool>(),
            max_active in 1_u16..10,
            steps in (1_u16..4, 1_u16..4),
            epochs in prop::collection::vec(any_epoch(), 0..200),
        ) {
            let params = if repaired { Params::default() } else { Params::paper() };
            let params = Params { step_up: steps.0, step_down: steps.1, ..params };
            let mut controller = Controller::new(params, max_active);
            for epoch in epochs {
                let active = controller.handle_epoch(&epoch);
                prop_assert!(active <= max_active && active >= params.min_active.min(max_active));
            }
        }

        #[test]
        fn the_repaired_controller_finds_the_bottom_of_a_valley(best in 1_u16..9, load in 1.0..100.0_f64) {
            // A tail that is least at `best` workers; from the top the search must end there.
            let tail = |active: u16| {
                let short = f64::from(best.saturating_sub(active));
                let long = f64::from(active.saturating_sub(best));
                (200.0 * (1.0 + short * 0.5 + long * 0.2)) as u64
            };
            let mut controller = Controller::new(Params::default(), 8);
            for _ in 0..30 {
                controller.handle_epoch(&epoch(load, tail(controller.active())));
            }
            prop_assert_eq!((controller.active(), controller.state()), (best.min(8), Hold));
        }
    }
}
