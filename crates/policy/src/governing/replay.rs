//! A service's policy as `crate::log` records and replays it.

use super::{Decided, Governing, Input};
use crate::log::Recorded;
use machine::Instant;

impl Recorded for Governing {
    type Input = Input;
    type Output = Vec<Decided>;

    fn apply(&mut self, now: Instant, input: &Input) -> Vec<Decided> {
        self.handle(now, input);
        std::iter::from_fn(|| self.poll_command()).collect()
    }
}
