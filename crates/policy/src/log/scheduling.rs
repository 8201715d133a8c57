//! A scheduling policy as the log records it: each call by name, with all that follows from it.

use super::Recorded;
use crate::joint::Answered;
use crate::{Guidance, Movable, Moved, Placement, Scheduling};
use machine::{Command, Instant, Reading, WorkerId};
use serde::{Deserialize, Serialize};

/// The inputs of a scheduling policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulingInput {
    Reading(Reading),
    Answered(Answered),
    Movable { worker: WorkerId, movable: Option<Movable> },
    Moved(Moved),
    Refused(WorkerId),
    Released(WorkerId),
    Timeout,
    Place,
    Wanted { workers: u16 },
}

/// The answer of a scheduling policy: all commands that the input led to, and a placement if asked
/// for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulingOutput {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Command>,
    /// The answer to `Place`; none to other inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// After a reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guidance: Option<Guidance>,
}

impl Recorded for Scheduling {
    type Input = SchedulingInput;
    type Output = SchedulingOutput;

    fn apply(&mut self, now: Instant, input: &SchedulingInput) -> SchedulingOutput {
        let mut output = SchedulingOutput::default();
        match input {
            SchedulingInput::Reading(reading) => {
                self.handle_reading(now, reading);
                output.guidance = Some(self.guidance());
            }
            SchedulingInput::Answered(answered) => self.handle_answered(now, answered),
            SchedulingInput::Movable { worker, movable } => self.handle_movable(*worker, *movable),
            SchedulingInput::Moved(moved) => self.handle_moved(now, moved),
            SchedulingInput::Refused(worker) => self.handle_refused(*worker),
            SchedulingInput::Released(worker) => self.handle_released(now, *worker),
            SchedulingInput::Timeout => self.handle_timeout(now),
            SchedulingInput::Wanted { workers } => self.set_wanted(now, *workers),
            SchedulingInput::Place => output.placement = Some(self.place(now)),
        }
        output.commands.extend(std::iter::from_fn(|| self.poll_command()));
        output
    }
}
