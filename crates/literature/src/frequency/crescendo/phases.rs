//! The phases of requests: how much each computes, and how long it takes from its end to the answer.

use super::schedule::{Ladder, Schedules};
use machine::Duration;
use policy::frequency::log_histogram::LogHistogram;
use policy::kind::{Ends, PHASES, Request};
use serde::{Deserialize, Serialize};

/// The phases of the requests that one window has seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Phases([Phase; PHASES]);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Phase {
    /// Computing times of its pieces at the nominal clock.
    compute: LogHistogram,
    ended: Ages,
    answered: Ages,
}

/// Of requests when a phase of theirs ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Ages {
    count: u64,
    sum_ns: f64,
}

impl Ages {
    fn mean_ns(self) -> f64 {
        self.sum_ns / self.count.max(1) as f64
    }
}

/// A phase, as the requests of a window had it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Learned {
    pub schedules: Schedules,
    /// Real time of a piece on its core.
    pub mean_ns: f64,
    /// From its end to the answer, on average.
    pub follows: Duration,
}

impl Phases {
    /// A core has done this; the request is so old.
    pub fn record(&mut self, request: &Request, age: Duration) {
        let phase = &mut self.0[usize::from(request.phase)];
        phase.compute.record(request.compute);
        let ages = match request.ends {
            Ends::Piece => return,
            Ends::Phase => &mut phase.ended,
            Ends::Request => &mut phase.answered,
        };
        ages.count += 1;
        ages.sum_ns += age.as_nanos() as f64;
    }

    pub fn pieces(&self) -> u64 {
        self.0.iter().map(|phase| phase.compute.total()).sum()
    }

    /// Computing of all pieces, at the nominal clock.
    pub fn computed_ns(&self) -> f64 {
        self.0.iter().map(|phase| phase.compute.mean_ns() * phase.compute.total() as f64).sum()
    }

    /// Each phase that there was, where a nanosecond of computing takes `slowness`, and a core's time costs
    /// `others_watts` beside it; the next window begins.
    pub fn take(
        &mut self,
        quantile: f64,
        least_part_ns: f64,
        slowness: f64,
        (others_watts, ladder): (f64, &Ladder),
    ) -> [Option<Learned>; PHASES] {
        let answered = self.0.iter().fold(Ages::default(), |all, phase| Ages {
            count: all.count + phase.answered.count,
            sum_ns: all.sum_ns + phase.answered.sum_ns,
        });
        std::mem::take(&mut self.0).map(|phase| {
            let schedules = Schedules::of(&phase.compute, quantile, least_part_ns, others_watts, ladder)?;
            let is_last = phase.ended.count == 0;
            let follows_ns = if is_last { 0.0 } else { answered.mean_ns() - phase.ended.mean_ns() };
            Some(Learned {
                schedules,
                mean_ns: phase.compute.mean_ns() * slowness,
                follows: Duration::from_nanos(follows_ns.max(0.0) as u64),
            })
        })
    }
}
