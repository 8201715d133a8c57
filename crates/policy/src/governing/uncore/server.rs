//! The uncore's clock by the goal as the policy of a server whose driver measures response times.

use super::{ServiceUncore, UncoreMode};
use crate::check::Check;
use crate::governing::CpuTopology;
use crate::kind::{Decision, Make, Making, Policy, Readings, Seen};
use crate::registry::{Entry, Maturity, Parameter, Question, Runs, Word, settings, time};
use machine::{Command, Duration, Goal, Instant, ServiceReading};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[Word::new("uncore", "as slow as keeps the goal", |_| settings(Params::default()))],
    question: Question::Uncore,
    help: "Once an epoch it looks at the tail: while that is well within the goal and the number of cores \
           stands, the caches, the mesh and the memory controllers get one step slower; when the goal is \
           missed they are as fast as they can be at once. `roost govern --uncore auto`.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "ours; the bound of comfort is Pegasus'",
    needs_goal: true,
    make: Make::Uncore(|making| Box::new(Server::new(making))),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub epoch: Duration,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] =
        &[time("epoch", "from one look at the tail to the next").above_zero().source("ours, as carb's")];
}

impl Default for Params {
    fn default() -> Self {
        Self { epoch: Duration::from_secs(1) }
    }
}

struct Server {
    uncore: ServiceUncore,
    goal: Goal,
    topology: CpuTopology,
    epoch: Duration,
    due: Instant,
    active: Option<u16>,
}

impl Server {
    fn new(making: &Making<'_>) -> Self {
        let (params, goal): (Params, _) = (making.params(), making.goal());
        let clocks = making.platform.uncore_clock.map(|of| of.clocks()).unwrap_or_default();
        Self {
            uncore: ServiceUncore::new(UncoreMode::Auto, Some(goal)),
            goal,
            topology: CpuTopology { uncore: clocks, ..CpuTopology::default() },
            epoch: params.epoch,
            due: Instant::ZERO + params.epoch,
            active: None,
        }
    }
}

impl Policy for Server {
    fn readings(&self) -> Readings {
        Readings { quantile: Some(self.goal.quantile), ..Readings::default() }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        if now < self.due {
            return;
        }
        self.due = now + self.epoch;
        let responses = seen.responses;
        let tail = responses.tail.filter(|_| responses.count >= self.goal.samples());
        let reading = ServiceReading { tail, ..ServiceReading::default() };
        let is_settled = self.active.replace(seen.active) == Some(seen.active);
        self.uncore.handle_epoch(&self.topology, &reading, is_settled);
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        match self.uncore.limit(&self.topology)? {
            (Command::SetUncore(limit), _) => Some(Decision::Uncore(limit)),
            _ => None,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.due)
    }
}
