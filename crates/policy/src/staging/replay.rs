//! A stage as `crate::log` records and replays it: each call by name, and all that it lets go.

use super::{Release, StagedId, Stager, Verdict};
use crate::log::Recorded;
use machine::Instant;
use serde::{Deserialize, Serialize};

/// The inputs of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    Arrival { id: StagedId, deadline: Instant },
    Withdrawn(StagedId),
    Completed(Release),
    Failed(Release),
    GiveWay,
    Drain,
    Timeout,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Output {
    /// The answer to an arrival; none to other inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Of a withdrawal: whether it was staged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<bool>,
    /// All requests that go, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<Release>,
}

impl Recorded for Stager {
    type Input = Input;
    type Output = Output;

    fn apply(&mut self, now: Instant, input: &Input) -> Output {
        let mut output = Output::default();
        match input {
            Input::Arrival { id, deadline } => {
                output.verdict = Some(self.handle_arrival(now, *id, *deadline));
            }
            Input::Withdrawn(id) => output.withdrawn = Some(self.handle_withdrawn(now, *id)),
            Input::Completed(release) => self.handle_completed(now, release),
            Input::Failed(release) => self.handle_failed(now, release),
            Input::GiveWay => self.handle_give_way(now),
            Input::Drain => self.handle_drain(now),
            Input::Timeout => self.handle_timeout(now),
        }
        output.releases.extend(std::iter::from_fn(|| self.poll_release()));
        output
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Mode, Params};
    use super::*;
    use crate::log::{replay, state_line, step_line};
    use machine::Duration;

    #[test]
    fn what_was_recorded_replays_and_what_was_changed_does_not() {
        let mut stager = Stager::new(Params { mode: Mode::Guarded, max_staged: 4, ..Params::default() });
        let mut lines = vec![state_line(&stager)];
        let mut now = Instant::ZERO;
        let mut inputs = std::collections::VecDeque::new();
        for id in 0..200_u64 {
            now += Duration::from_millis(7 + id % 23);
            let deadline = now + Duration::from_millis(100 + 40 * (id % 11));
            inputs.push_back(Input::Arrival { id: StagedId(id), deadline });
            if id % 17 == 3 {
                inputs.push_back(Input::Withdrawn(StagedId(id - 1)));
            }
            inputs.push_back(if id % 29 == 5 { Input::GiveWay } else { Input::Timeout });
            while let Some(input) = inputs.pop_front() {
                let output = stager.apply(now, &input);
                lines.push(step_line::<Stager>(now, &input, &output));
                let ended = output.releases.iter().map(|release| match release.id.0 % 9 {
                    0 => Input::Failed(*release),
                    _ => Input::Completed(*release),
                });
                inputs.extend(ended);
                now += Duration::from_micros(900);
            }
        }
        let replayed = replay::<Stager>(&lines.join("\n")).unwrap();
        assert_eq!((replayed.steps, &replayed.state), (lines.len() - 1, &stager));
        let place = lines.iter().position(|line| line.contains("releases")).unwrap();
        lines[place] = lines[place].replace("\"burst\":", "\"burst\":1");
        assert!(replay::<Stager>(&lines.join("\n")).is_err());
    }
}
