//! The inputs and the commands of quiescence, for the replay log.

use super::{Event, GroupId, Quiescence, QuiescenceCommand};
use crate::log::Recorded;
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// Its inputs: its `handle_*` and `poll_*` by name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuiescenceInput {
    Event(Event),
    /// `handle_idle`, nanoseconds
    Idle(Duration),
    /// `handle_cost`, nanoseconds
    Cost(Duration),
    LeaveAlone(GroupId),
    Lost,
    Timeout,
    Stop,
    /// Drains `poll_command` until there is none.
    Poll,
}

impl Recorded for Quiescence {
    type Input = QuiescenceInput;
    /// The answer to [`QuiescenceInput::Poll`]; empty for all others.
    type Output = Vec<QuiescenceCommand>;

    fn apply(&mut self, now: Instant, input: &QuiescenceInput) -> Vec<QuiescenceCommand> {
        match *input {
            QuiescenceInput::Event(event) => self.handle_event(now, &event),
            QuiescenceInput::Idle(idle) => self.handle_idle(idle),
            QuiescenceInput::Cost(cost) => self.handle_cost(now, cost),
            QuiescenceInput::LeaveAlone(group) => self.leave_alone(now, group),
            QuiescenceInput::Lost => self.handle_lost(now),
            QuiescenceInput::Timeout => self.handle_timeout(now),
            QuiescenceInput::Stop => self.handle_stop(now),
            QuiescenceInput::Poll => return std::iter::from_fn(|| self.poll_command()).collect(),
        }
        Vec::new()
    }
}
