//! LAVD's core compaction: as many cores as keep each half busy (scx_lavd 1.1.2, `power.bpf.c` and
//! `sys_stat.bpf.c`; a scheduler of sched_ext).
//!
//! Each 10 ms the utilization of the machine is taken: work done, at the fastest clock, over the time of
//! all cores. A core that was more than 90 % busy may have had more to do, so its work counts one and a half
//! times. The average follows a rise by three quarters and a fall by an eighth. Active are the fewest
//! cores whose halves hold it with a quarter to spare:
//!
//! ```text
//!   active = ceil(cores x utilization x 1.25 / 0.5), at least one
//! ```
//!
//! From 40 % utilization on that is all of them. No latency is looked at.
//!
//! Not here: its energy model, which fills cores of one kind first (here all are alike), the overflow set
//! of tasks that are bound elsewhere (no request is), and the order of tasks by how latency-critical they
//! are. The modes of its autopilot change the order of cores alone below 40 %.
//!
//! Invariants: one core to all; without work, one; more work never means fewer cores at once.

use machine::{Duration, Instant};
use policy::check::Check;
use policy::kind::{CorePolicy, CpuTotals, Decision, Make, Policy, Readings, Seen};
use policy::registry::{Entry, Parameter, Word, settings, share, time};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[Word::new("lavd-compaction", "as many as are half busy", |_| settings(Params::default()))],
    help: "The core compaction of scx_lavd, a scheduler of sched_ext: the fewest cores that the machine's \
           utilization keeps half busy, with a quarter to spare, each 10 ms. It looks at no latency.",
    origin: "scx_lavd 1.1.2 (power.bpf.c, sys_stat.bpf.c)",
    make: Make::Cores(|making| Box::new(Server::new(making.params(), making.workers))),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub interval: Duration,
    pub headroom: f64,
    pub core_share: f64,
    pub spike: f64,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("interval", "from one count to the next")
            .above_zero()
            .source("scx_lavd, LAVD_SYS_STAT_INTERVAL_NS"),
        share("headroom", "capacity to spare").source("scx_lavd, LAVD_CC_REQ_CAPACITY_HEADROOM"),
        share("core_share", "how busy a core may be")
            .above_zero_to(1.0)
            .source("scx_lavd, LAVD_CC_PER_CPU_UTIL"),
        share("spike", "the work of a core that is busier counts one and a half times")
            .source("scx_lavd, LAVD_CC_UTIL_SPIKE"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self { interval: Duration::from_millis(10), headroom: 0.25, core_share: 0.5, spike: 0.9 }
    }
}

/// A core at the last count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counted {
    work_ns: f64,
    working_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compaction {
    params: Params,
    counted: Vec<Counted>,
    at: Instant,
    /// Average utilization of the machine, a share.
    utilization: f64,
}

impl Compaction {
    pub fn new(params: Params, cores: u16) -> Self {
        Self {
            params,
            counted: vec![Counted::default(); usize::from(cores)],
            at: Instant::ZERO,
            utilization: 0.0,
        }
    }

    /// When the next count is due.
    pub fn due(&self) -> Instant {
        self.at + self.params.interval
    }

    /// Counts the cores' work until `now`. Returns how many are to be active.
    pub fn count(&mut self, now: Instant, cpus: &[CpuTotals]) -> u16 {
        let length_ns = now.since(self.at).as_nanos() as f64;
        if length_ns > 0.0 {
            let (mut work, mut spikes) = (0.0, 0.0);
            for (counted, cpu) in self.counted.iter_mut().zip(cpus) {
                let now = Counted { work_ns: cpu.work_done, working_ns: cpu.working.as_nanos() };
                let busy = now.working_ns.saturating_sub(counted.working_ns) as f64;
                let done = (now.work_ns - counted.work_ns).max(0.0).min(busy);
                work += done;
                if busy > self.params.spike * length_ns {
                    spikes += done / 2.0;
                }
                *counted = now;
            }
            let all_ns = length_ns * self.counted.len().max(1) as f64;
            let new = ((work + spikes) / all_ns).min(1.0);
            let kept = if self.utilization < new { 0.25 } else { 0.875 };
            self.utilization = kept * self.utilization + (1.0 - kept) * new;
            self.at = now;
        }
        self.active()
    }

    fn active(&self) -> u16 {
        let cores = self.counted.len().max(1) as f64;
        let needed = cores * self.utilization * (1.0 + self.params.headroom) / self.params.core_share;
        needed.ceil().clamp(1.0, cores) as u16
    }
}

/// The policy of a server, and the number that its driver was told.
pub struct Server {
    policy: Compaction,
    wanted: u16,
    told: Option<u16>,
}

impl Server {
    fn new(params: Params, cores: u16) -> Self {
        // The scheduler begins with all of them.
        Self { policy: Compaction::new(params, cores), wanted: cores, told: None }
    }
}

impl Policy for Server {
    fn readings(&self) -> Readings {
        Readings { cpus: true, ..Readings::default() }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        if now >= self.policy.due() {
            self.wanted = self.policy.count(now, seen.cpus);
        }
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        (self.told.replace(self.wanted) != Some(self.wanted)).then_some(Decision::Active(self.wanted))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.policy.due())
    }
}

impl CorePolicy for Server {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(intervals: u64) -> Instant {
        Instant::ZERO + Params::default().interval * intervals
    }

    /// Totals of cores that have worked for these shares of so many intervals.
    fn totals(shares: &[f64], intervals: u64) -> Vec<CpuTotals> {
        let all_ns = (after(intervals).since(Instant::ZERO)).as_nanos() as f64;
        let total = |share: &f64| CpuTotals {
            working: Duration::from_nanos((share * all_ns) as u64),
            work_done: share * all_ns,
            ..CpuTotals::default()
        };
        shares.iter().map(total).collect()
    }

    fn settled(shares: &[f64]) -> u16 {
        let mut policy = Compaction::new(Params::default(), shares.len() as u16);
        (1..200).map(|interval| policy.count(after(interval), &totals(shares, interval))).last().unwrap()
    }

    #[test]
    fn cores_are_half_busy_with_a_quarter_to_spare() {
        assert_eq!(settled(&[0.0; 8]), 1);
        // 8 x 0.2 x 2.5.
        assert_eq!(settled(&[0.199; 8]), 4);
        assert_eq!(settled(&[0.202; 8]), 5);
        assert_eq!(settled(&[0.4; 8]), 8);
        // The same work on two cores that are nearly full counts one and a half times: 1.9 x 1.5 x 2.5.
        assert_eq!(settled(&[0.95, 0.95, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]), 8);
        assert_eq!(settled(&[0.85, 0.85, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0]), 5);
    }

    #[test]
    fn it_follows_a_rise_by_three_quarters_and_a_fall_by_an_eighth() {
        let mut policy = Compaction::new(Params::default(), 10);
        policy.count(after(1), &totals(&[0.0; 10], 1));
        // Half of one interval in two is a quarter of both.
        assert_eq!(policy.count(after(2), &totals(&[0.2; 10], 2)), 8, "10 x 0.4 x 0.75 x 2.5 = 7.5");
        let quiet = totals(&[0.2], 2)[0];
        assert_eq!(policy.count(after(3), &[quiet; 10]), 7, "7.5 x 7/8 = 6.6");
        assert_eq!(policy.count(after(3), &[quiet; 10]), 7, "twice does no harm");
    }

    proptest! {
        #[test]
        fn more_work_is_never_fewer_cores(
            shares in prop::collection::vec((0.0..1.0_f64, 0.0..1.0_f64), 1..16),
        ) {
            let less: Vec<f64> = shares.iter().map(|(share, part)| share * part).collect();
            let more: Vec<f64> = shares.iter().map(|(share, _)| *share).collect();
            let (less, more) = (settled(&less), settled(&more));
            prop_assert!(less <= more && less >= 1 && usize::from(more) <= shares.len());
        }
    }
}
