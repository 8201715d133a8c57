//! A service's policy as `crate::log` records and replays it.

use super::{Decision, Input, ServiceController};
use crate::log::Recorded;
use machine::Instant;

impl Recorded for ServiceController {
    type Input = Input;
    type Output = Vec<Decision>;

    fn apply(&mut self, now: Instant, input: &Input) -> Vec<Decision> {
        self.handle(now, input);
        std::iter::from_fn(|| self.poll_command()).collect()
    }
}
