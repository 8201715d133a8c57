//! The events ahead, in order of time.

use machine::Instant;
use policy::Why;
use policy::log::SchedulingInput;
use policy::peafowl::{Departure, Order};

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Request { client: usize, epoch: u32 },
    Serve { worker: usize },
    Land { client: usize, source: usize, target: usize, why: Why, departure: Departure },
    Letter { worker: usize, order: Order },
    Notice(SchedulingInput),
    WorkerTimer { worker: usize },
    SchedulingTimer,
    Report,
}

/// Events are ordered by time, then by arrival; their kind does not matter.
pub struct Timed(pub Instant, pub u64, pub Event);

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}
