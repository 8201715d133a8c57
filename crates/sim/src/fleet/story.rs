//! The root's response times, in the order in which its requests came.

use super::Fleet;
use super::answers::steps;
use super::leaf::Root;
use crate::engine::histogram;
use crate::outcome::ClassCount;
use crate::statistics::Collector;
use hdrhistogram::Histogram;
use workload::Jobs;

/// The response times of the root and its leaves.
pub(super) struct Story {
    /// Response times by number of leaves waited for: first those of one leaf, last the root's.
    pub waited: Vec<Collector>,
    /// Response times of one leaf, by group of the leaf.
    pub groups: Vec<Collector>,
    /// Requests that the root answered, by class.
    pub classes: Vec<ClassCount>,
    /// The root's response times over time.
    pub stretches: Vec<Stretch>,
}

/// The root's response times of a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Stretch {
    pub requests: u64,
    pub mean_ns: Option<f64>,
    pub p99_ns: Option<f64>,
}

impl Story {
    /// `jobs` is the root's stream from its beginning.
    pub fn tell(fleet: &Fleet, root: &Root, jobs: Jobs) -> Self {
        let collectors = |count: usize| (0..count).map(|_| Collector::new([])).collect::<Vec<_>>();
        let mut waited = collectors(steps(fleet.fanout).len());
        let mut groups = collectors(fleet.setups.len());
        let deadlines_ns: Vec<Option<u64>> =
            jobs.classes().iter().map(|class| class.deadline.map(|due| due.as_nanos())).collect();
        let mut classes: Vec<ClassCount> = (jobs.classes().iter())
            .map(|class| ClassCount {
                name: class.name.clone(),
                requests: 0,
                missed: class.deadline.map(|_| 0),
            })
            .collect();
        let points = fleet.points() as usize;
        let every_ns = (root.until_ns / points as u64).max(1);
        let mut stretches = Vec::with_capacity(points);
        let mut open = Open::new();
        let (mut keys, mut thinning) = (root.keys(), root.thinning.clone());
        let asked = (0..root.requests).zip(jobs).filter_map(|(_, job)| {
            let key = keys.bits();
            thinning.keeps().then_some((key, job))
        });
        for (request, (key, job)) in (0..).zip(asked).take_while(|_| !fleet.stop.is_set()) {
            let place = (job.at.as_nanos() / every_ns) as usize;
            while stretches.len() < place.min(points - 1) {
                stretches.push(open.close());
            }
            let mut root_ns = 0;
            for (step, (collector, response_ns)) in
                waited.iter_mut().zip(root.answers.responses_ns(request)).enumerate()
            {
                collector.record(response_ns);
                if step == 0 {
                    groups[fleet.group_of(root.choice.server(key, 0))].record(response_ns);
                }
                root_ns = response_ns;
            }
            open.record(root_ns);
            let class = usize::from(job.class);
            classes[class].requests += 1;
            if let (Some(missed), Some(due)) = (&mut classes[class].missed, deadlines_ns[class]) {
                *missed += u64::from(root_ns > due);
            }
        }
        stretches.resize_with(points, || open.close());
        Self { waited, groups, classes, stretches }
    }
}

/// The stretch that requests fall into now.
struct Open {
    responses: Histogram<u64>,
    sum_ns: u128,
}

impl Open {
    fn new() -> Self {
        // Two digits do for a plot.
        Self { responses: histogram(2), sum_ns: 0 }
    }

    fn record(&mut self, response_ns: u64) {
        self.responses.saturating_record(response_ns);
        self.sum_ns += u128::from(response_ns);
    }

    /// The story so far; the next one begins.
    fn close(&mut self) -> Stretch {
        let requests = self.responses.len();
        let some = requests > 0;
        let stretch = Stretch {
            requests,
            mean_ns: some.then(|| self.sum_ns as f64 / requests as f64),
            p99_ns: some.then(|| self.responses.value_at_quantile(0.99) as f64),
        };
        self.responses.reset();
        self.sum_ns = 0;
        stretch
    }
}
