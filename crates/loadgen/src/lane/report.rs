//! The reports of a lane to the run, interval by interval.

use crate::system::thread_cpu_time;
use crate::tally::Tally;
use machine::{Duration, Instant};
use std::sync::mpsc::{Receiver, Sender};

/// The counts of a lane between two boundaries of the run.
pub(crate) struct LaneInterval {
    pub lane: usize,
    pub number: usize,
    pub tally: Box<Tally>,
    pub cpu_time: Duration,
}

/// Where a lane reports its intervals to, and gets their emptied tallies back from: allocating in
/// mid-run would make the next requests late.
pub(crate) struct Reporter {
    pub lane: usize,
    pub reports: Sender<LaneInterval>,
    pub emptied: Receiver<Box<Tally>>,
    /// Ends of the intervals, in order.
    pub boundaries: Vec<Instant>,
    pub sent: usize,
    pub cpu_before: Duration,
}

impl Reporter {
    pub fn due(&self) -> Option<Instant> {
        self.boundaries.get(self.sent).copied()
    }

    pub fn report(&mut self, interval: &mut Box<Tally>) {
        let empty = self.emptied.try_recv().unwrap_or_else(|_| Box::new(Tally::new()));
        let cpu = thread_cpu_time();
        let report = LaneInterval {
            lane: self.lane,
            number: self.sent,
            tally: std::mem::replace(interval, empty),
            cpu_time: cpu - self.cpu_before,
        };
        self.cpu_before = cpu;
        self.sent += 1;
        // The receiver is gone when the run was given up.
        let _ = self.reports.send(report);
    }
}
