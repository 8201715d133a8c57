//! How fast the uncore of a governed service's sockets may run: the caches, the mesh and the memory
//! controllers.
//!
//! On a lightly loaded server the uncore takes about half of a socket's power (15.3 of 33 W in the
//! runs of the Hurry-up paper's authors), at the same clock whether or not a request needs it. Its
//! clock slows requests that wait for memory. Their share differs by service, so the tail decides
//! (`auto`), as it does for cores.
//!
//! **auto.** After an epoch with a tail X, with the goal T and the clocks of the hardware in steps:
//!
//! | | clock | wait |
//! |---|---|---|
//! | X above T, or an alarm | the fastest at once, without a limit | doubles, if it had been slowed |
//! | the cores have changed | as it is | begins anew |
//! | X at most 0.85 T, and the wait is over | one step slower | two epochs |
//! | else | as it is | goes on |
//!
//! The wait begins with three epochs and grows to 192; each ten waits without a miss halve it again.
//! Cores come first: they are taken while the uncore runs freely, and it slows only while their number
//! stands. So the two never answer the same epoch. 0.85 is Pegasus' bound of comfort; the rest is
//! ours.
//!
//! Invariants: a limit is asked for when it changes; it is a clock of the table, or the one
//! that a person wrote; while the goal is missed there is none.
//!
//! Where it fails: a step is judged after two epochs, so a service whose working set changes from
//! second to second meets a slow memory for that long.

mod server;

pub use server::{ENTRY, Params};

use super::CpuTopology;
use machine::{Command, FrequencyLimit, Goal, Kilohertz, ServiceReading};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How fast the uncore runs, as a person writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UncoreMode {
    /// As the firmware and the administrator have it.
    #[default]
    Stock,
    /// Any clock that the hardware chooses (efficiency latency control).
    Elc,
    /// As slow as keeps the goal.
    Auto,
    Fixed(Kilohertz),
}

impl FromStr for UncoreMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fixed = |text: &str| text.strip_prefix("fixed:")?.parse().ok().map(Self::Fixed);
        match text.trim() {
            "stock" => Ok(Self::Stock),
            "elc" => Ok(Self::Elc),
            "auto" => Ok(Self::Auto),
            other => fixed(other).ok_or_else(|| {
                format!("`{text}` is no uncore: write stock, elc, auto or a clock, such as fixed:1.6GHz")
            }),
        }
    }
}

impl fmt::Display for UncoreMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stock => f.write_str("stock"),
            Self::Elc => f.write_str("elc"),
            Self::Auto => f.write_str("auto"),
            Self::Fixed(clock) => write!(f, "fixed:{clock}"),
        }
    }
}

in_words!(UncoreMode);

/// Why the uncore is limited or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UncoreWhy {
    Configured,
    /// The tail leaves room for a slower memory.
    Room,
    /// The tail is over the goal.
    Missed,
    Alarm,
}

impl fmt::Display for UncoreWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configured => "configured",
            Self::Room => "the tail leaves room for a slower uncore",
            Self::Missed => "the tail is over its goal",
            Self::Alarm => "alarm: the full uncore at once",
        })
    }
}

/// The uncore of one service's sockets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceUncore {
    mode: UncoreMode,
    goal: Option<Goal>,
    slower: usize,
    /// Epochs until it may slow down again, and the wait that follows a change.
    left: u32,
    wait: u32,
    calm: u32,
    why: Option<UncoreWhy>,
    in_force: Option<FrequencyLimit>,
}

impl ServiceUncore {
    /// No limit yet. `auto` works towards `goal`.
    pub fn new(mode: UncoreMode, goal: Option<Goal>) -> Self {
        Self { mode, goal, left: WAIT_LEAST, wait: WAIT_LEAST, ..Self::default() }
    }

    /// The goal; none where the tail does not decide.
    pub fn goal(&self) -> Option<Goal> {
        self.goal.filter(|_| self.mode == UncoreMode::Auto)
    }

    pub fn set_goal(&mut self, goal: Goal) {
        self.goal = Some(goal);
    }

    /// Another mode from now on; the same again changes nothing.
    pub fn set_mode(&mut self, mode: UncoreMode, goal: Option<Goal>) {
        self.goal = goal;
        if self.mode != mode {
            *self = Self { in_force: self.in_force, ..Self::new(mode, goal) };
        }
    }

    /// The learned state belongs to the conditions that it was learned in.
    pub fn forget(&mut self) {
        *self = Self { in_force: self.in_force, ..Self::new(self.mode, self.goal) };
    }

    /// The limit in force now; `None` if the uncore is free.
    pub fn in_force(&self) -> FrequencyLimit {
        self.in_force.unwrap_or(FrequencyLimit::None)
    }

    /// An epoch is over; `is_settled`: the service keeps the cores that it had in it.
    pub fn handle_epoch(&mut self, topology: &CpuTopology, service: &ServiceReading, is_settled: bool) {
        let (UncoreMode::Auto, Some(goal)) = (self.mode, self.goal) else { return };
        self.left = if is_settled { self.left.saturating_sub(1) } else { self.wait };
        // Without requests nothing is learned, and none waited.
        let Some(tail) = service.tail else { return };
        if tail > goal.latency {
            return self.free(UncoreWhy::Missed);
        }
        self.calm += 1;
        if self.calm >= CALM_WAITS * self.wait {
            (self.calm, self.wait) = (0, (self.wait / 2).max(WAIT_LEAST));
        }
        let slowest = topology.uncore.len().saturating_sub(1);
        if self.left == 0 && tail <= goal.latency.scale(COMFORTABLE) && self.slower < slowest {
            (self.slower, self.left, self.why) = (self.slower + 1, WAIT_STEP, Some(UncoreWhy::Room));
        }
    }

    /// All of it is needed at once.
    pub fn handle_alarm(&mut self) {
        if self.mode == UncoreMode::Auto {
            self.free(UncoreWhy::Alarm);
        }
    }

    /// The command that is due after an epoch or an alarm, if one is.
    pub fn limit(&mut self, topology: &CpuTopology) -> Option<(Command, UncoreWhy)> {
        let clocks = &topology.uncore;
        let at = |slower: usize| clocks.len().checked_sub(slower + 1).map(|at| clocks[at]);
        let limit = match self.mode {
            UncoreMode::Stock => FrequencyLimit::None,
            UncoreMode::Elc => at(0).map_or(FrequencyLimit::None, FrequencyLimit::AtMost),
            UncoreMode::Fixed(clock) => FrequencyLimit::Exactly(clock),
            UncoreMode::Auto if self.slower == 0 => FrequencyLimit::None,
            UncoreMode::Auto => at(self.slower).map_or(FrequencyLimit::None, FrequencyLimit::AtMost),
        };
        let changes = limit != self.in_force();
        self.in_force = Some(limit).filter(|limit| *limit != FrequencyLimit::None);
        changes.then(|| (Command::SetUncore(limit), self.why.unwrap_or(UncoreWhy::Configured)))
    }

    /// The command that withdraws the limit in force.
    pub fn withdraw(&mut self) -> Option<Command> {
        self.in_force.take().map(|_| Command::SetUncore(FrequencyLimit::None))
    }

    fn free(&mut self, why: UncoreWhy) {
        if self.slower > 0 {
            (self.slower, self.why) = (0, Some(why));
            self.wait = (2 * self.wait).min(WAIT_MOST);
        }
        (self.left, self.calm) = (self.wait, 0);
    }
}

/// Pegasus steps down below this share of its target.
const COMFORTABLE: f64 = 0.85;

/// Epochs: the search for cores judges a number of cores in three.
const WAIT_LEAST: u32 = 3;
const WAIT_MOST: u32 = 64 * WAIT_LEAST;

/// The epoch in which the clock changes, and a whole one after it.
const WAIT_STEP: u32 = 2;

const CALM_WAITS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Duration, Rate};
    use proptest::prelude::*;

    fn topology(steps: u64) -> CpuTopology {
        let uncore = (0..steps).map(|step| Kilohertz(800_000 + 100_000 * step)).collect();
        CpuTopology { uncore, ..CpuTopology::default() }
    }

    fn auto() -> ServiceUncore {
        ServiceUncore::new(UncoreMode::Auto, Some("1ms@p99".parse().unwrap()))
    }

    fn tail(us: u64) -> ServiceReading {
        let tail = Some(Duration::from_micros(us));
        ServiceReading { rate: Some(Rate::per_second(1e3)), tail, ..ServiceReading::default() }
    }

    /// The epochs, each with its tail, until a limit changes; the limit.
    fn next(
        uncore: &mut ServiceUncore,
        topology: &CpuTopology,
        us: u64,
    ) -> Option<(u32, FrequencyLimit, UncoreWhy)> {
        (1..2_000).find_map(|epoch| {
            uncore.handle_epoch(topology, &tail(us), true);
            let (command, why) = uncore.limit(topology)?;
            let Command::SetUncore(limit) = command else { panic!("{command:?}") };
            Some((epoch, limit, why))
        })
    }

    fn at_most(mhz: u64) -> FrequencyLimit {
        FrequencyLimit::AtMost(Kilohertz(mhz * 1000))
    }

    #[test]
    fn it_slows_by_steps_while_there_is_room_and_is_free_at_once_when_the_goal_is_missed() {
        let (mut uncore, topology) = (auto(), topology(4));
        assert_eq!(next(&mut uncore, &topology, 500), Some((3, at_most(1000), UncoreWhy::Room)));
        assert_eq!(next(&mut uncore, &topology, 500), Some((2, at_most(900), UncoreWhy::Room)));
        assert_eq!(next(&mut uncore, &topology, 851), None, "beyond comfort it stays as it is");
        assert_eq!(next(&mut uncore, &topology, 1_001), Some((1, FrequencyLimit::None, UncoreWhy::Missed)));
        assert_eq!(next(&mut uncore, &topology, 500).map(|(epochs, ..)| epochs), Some(6), "twice the wait");
        assert_eq!(next(&mut uncore, &topology, 500), Some((2, at_most(900), UncoreWhy::Room)));
        assert_eq!(next(&mut uncore, &topology, 500), Some((2, at_most(800), UncoreWhy::Room)));
        assert_eq!(next(&mut uncore, &topology, 500), None, "the slowest there is");
        uncore.handle_alarm();
        let freed = (Command::SetUncore(FrequencyLimit::None), UncoreWhy::Alarm);
        assert_eq!(uncore.limit(&topology), Some(freed));
    }

    #[test]
    fn cores_that_change_come_first() {
        let (mut uncore, topology) = (auto(), topology(4));
        for _ in 0..50 {
            uncore.handle_epoch(&topology, &tail(100), false);
            assert_eq!(uncore.limit(&topology), None);
        }
        assert_eq!(next(&mut uncore, &topology, 100).map(|(epochs, ..)| epochs), Some(3));
    }

    #[test]
    fn without_requests_or_clocks_nothing_changes() {
        let mut uncore = auto();
        for _ in 0..50 {
            uncore.handle_epoch(&topology(4), &ServiceReading::default(), true);
            assert_eq!(uncore.limit(&topology(4)), None);
        }
        assert_eq!(next(&mut uncore, &topology(0), 100), None);
        assert_eq!(next(&mut uncore, &topology(1), 100), None);
    }

    #[test]
    fn a_persons_clock_and_elc_are_in_force_from_the_first_epoch_on() {
        let topology = topology(4);
        for (text, limit) in
            [("fixed:900MHz", FrequencyLimit::Exactly(Kilohertz(900_000))), ("elc", at_most(1100))]
        {
            let mut uncore = ServiceUncore::new(text.parse().unwrap(), None);
            assert_eq!(uncore.limit(&topology), Some((Command::SetUncore(limit), UncoreWhy::Configured)));
            assert_eq!(uncore.limit(&topology), None);
            uncore.handle_alarm();
            assert_eq!((uncore.limit(&topology), uncore.goal()), (None, None));
            assert_eq!(uncore.withdraw(), Some(Command::SetUncore(FrequencyLimit::None)));
            assert_eq!(uncore.withdraw(), None);
        }
    }

    #[test]
    fn modes_read_as_a_person_writes_them() {
        for text in ["stock", "elc", "auto", "fixed:1600MHz"] {
            assert_eq!(text.parse::<UncoreMode>().unwrap().to_string(), text);
        }
        for text in ["", "1.6GHz", "fixed:", "fixed:fast", "slow"] {
            assert!(text.parse::<UncoreMode>().unwrap_err().contains("such as fixed:1.6GHz"), "{text}");
        }
    }

    proptest! {
        /// Whatever the tails are: while the goal is missed nothing is limited, a limit is a clock of the
        /// table, and a command changes something.
        #[test]
        fn a_missed_goal_means_no_limit(
            epochs in prop::collection::vec((0..2_000u64, any::<bool>()), 1..400),
            steps in 0..6u64,
        ) {
            let (mut uncore, topology) = (auto(), topology(steps));
            let mut limit = FrequencyLimit::None;
            for (us, is_settled) in epochs {
                uncore.handle_epoch(&topology, &tail(us), is_settled);
                if let Some((Command::SetUncore(new), _)) = uncore.limit(&topology) {
                    prop_assert!(new != limit);
                    limit = new;
                }
                prop_assert_eq!(limit, uncore.in_force());
                match limit {
                    FrequencyLimit::None => {}
                    FrequencyLimit::AtMost(clock) => {
                        prop_assert!(us <= 1_000 && topology.uncore.contains(&clock));
                        prop_assert!(topology.uncore.last() != Some(&clock));
                    }
                    FrequencyLimit::Exactly(_) => prop_assert!(false, "auto fixes nothing"),
                }
            }
        }

        /// A memory that is too slow from some clock on costs one missed epoch for each attempt, and
        /// attempts become rare.
        #[test]
        fn attempts_that_fail_become_rare(too_slow in 1..5usize) {
            let (mut uncore, topology) = (auto(), topology(6));
            let mut missed = 0;
            for _ in 0..1_000 {
                let slow = uncore.slower >= too_slow;
                missed += u32::from(slow);
                uncore.handle_epoch(&topology, &tail(if slow { 1_500 } else { 400 }), true);
                uncore.limit(&topology);
            }
            prop_assert!((1..=20).contains(&missed), "{missed}");
        }
    }
}
