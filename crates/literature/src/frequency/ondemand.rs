//! ondemand: the kernel's governor that looks at how busy a core was (Hurry-up, sections II-D and
//! V-B).
//!
//! Once a period it takes the load, the share of time that the core was not idle, in whole percent.
//! Above a threshold the core goes to the fastest operating point at once; below it the clock
//! follows the load on a straight line, f = f_min + load * (f_max - f_min), and the nearest
//! operating point is taken (`od_update`, `CPUFREQ_RELATION_C`). (Kernels of some years before had
//! load * f_max, which left a dead band at the bottom.) The load is not scaled by the clock it was
//! measured at: a core that works as much at half the clock is twice as busy, and that is the
//! feedback.
//!
//! A sample is taken when the core executes, not while it sleeps. So the operating point stays
//! during a long sleep, and the first sample after it would find the core almost idle; ondemand
//! then uses the load of before the sleep, once (`dbs_update`).
//!
//! Where it settles. Work that only computes and keeps a core busy for the share u at full speed
//! has the load u / f at speed f (the share of f_max). It settles at f^2 - f_min f = u (1 - f_min).
//! That point is stable: with each sample an error changes its sign and shrinks to 1 - f_min / f of
//! itself. Between two operating points it feels nothing: of nine, each takes 12 points of load.
//! And it is blind to latency: a burst waits for the end of the period, whatever its deadline.
//!
//! Invariants: in the same situation more load never gives a slower operating point; a load above
//! the threshold gives the fastest.
//!
//! Not here: `powersave_bias`, `ignore_nice_load`. Whether waiting for I/O counts as busy
//! (`io_is_busy`) is for the driver to say. Of cores that share a clock the kernel takes the
//! highest load, which is the same as the fastest answer.

use super::{PointIndex, PointTable};
use machine::{CpuId, Duration, Instant, Kilohertz};
use policy::check::Check;
use policy::kind::{Decision, FrequencyPolicy, Make, Making, Policy, Readings, Seen};
use policy::registry::{Entry, Parameter, Question, Word, count, percent, settings, time};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

pub static ENTRY: Entry = Entry {
    words: &[Word::new("ondemand", "Linux's: by how busy each core was", |_| settings(Params::default()))],
    question: Question::Frequency,
    help: "Once a period it looks at the share of time that a core was not idle. Above a threshold the core \
           goes to the fastest frequency at once; below it the frequency follows the load.",
    origin: "Linux; Hurry-up, sections II-D and V-B",
    make: Make::Frequency(|making| Box::new(PerCore::new(making))),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub period: Duration,
    pub up_threshold_percent: u8,
    pub sampling_down_factor: u32,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("period", "sampling_rate")
            .above_zero()
            .source("Linux: a thousand times acpi-cpufreq's 10 us; 8 ms from 6.9 on with 250 ticks a second"),
        percent("up_threshold_percent", "a load above this goes to the fastest frequency")
            .source("Linux, MICRO_FREQUENCY_UP_THRESHOLD"),
        count("sampling_down_factor", "periods until the next sample after a jump to the fastest")
            .above_zero()
            .source("Linux"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self { period: Duration::from_millis(10), up_threshold_percent: 95, sampling_down_factor: 1 }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ondemand {
    params: Params,
    /// `prev_load`; zero when it was used up.
    load_percent: u64,
    at_fastest: bool,
    /// `rate_mult`.
    periods: u32,
}

impl Ondemand {
    pub fn new(params: Params) -> Self {
        Self { params, load_percent: 0, at_fastest: false, periods: 1 }
    }

    /// How long after this sample the next one is due; if the core sleeps then, when it wakes.
    pub fn period(&self) -> Duration {
        self.params.period * u64::from(self.periods)
    }

    /// Of the time since the last sample, `span`, the core was not idle for `busy`: its operating
    /// point from now on.
    pub fn handle_sample(&mut self, points: &PointTable, span: Duration, busy: Duration) -> PointIndex {
        let load = self.load(span, busy.min(span));
        if load > u64::from(self.params.up_threshold_percent) {
            if !self.at_fastest {
                self.periods = self.params.sampling_down_factor.max(1);
            }
            self.at_fastest = true;
            return points.fastest();
        }
        self.periods = 1;
        let (low, high) = (points.khz(points.slowest()).0, points.khz(points.fastest()).0);
        let point = points.nearest(Kilohertz(low + load * (high - low) / 100));
        self.at_fastest = point == points.fastest();
        point
    }

    fn load(&mut self, span: Duration, busy: Duration) -> u64 {
        if span.is_zero() {
            return self.load_percent;
        }
        if span - busy > self.period() * 2 && self.load_percent > 0 {
            return std::mem::take(&mut self.load_percent);
        }
        self.load_percent = busy.as_nanos().saturating_mul(100) / span.as_nanos();
        self.load_percent
    }
}

/// The governors of all physical cores, each looked at in turn.
pub struct PerCore {
    points: PointTable,
    cores: Vec<Core>,
    /// Of each CPU, at its core's last look.
    busy: Vec<Duration>,
    decisions: VecDeque<Decision>,
}

#[derive(Clone)]
struct Core {
    governor: Ondemand,
    looked: Instant,
    due: Instant,
}

impl PerCore {
    fn new(making: &Making<'_>) -> Self {
        Self::of(making.params(), making.points(), making.cores(), making.cpus())
    }

    pub(super) fn of(params: Params, points: PointTable, cores: usize, cpus: usize) -> Self {
        let governor = Ondemand::new(params);
        let core = Core { due: Instant::ZERO + governor.period(), governor, looked: Instant::ZERO };
        let (cores, busy) = (vec![core; cores], vec![Duration::ZERO; cpus]);
        Self { points, cores, busy, decisions: VecDeque::new() }
    }
}

impl Policy for PerCore {
    fn readings(&self) -> Readings {
        Readings { cpus: true, quantile: None }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        let count = self.cores.len();
        for (index, core) in self.cores.iter_mut().enumerate().filter(|(_, core)| core.due <= now) {
            let threads = || (index..seen.cpus.len()).step_by(count);
            // The load of threads that share a clock is the highest of them (`dbs_update`).
            let busy = threads().map(|cpu| seen.cpus[cpu].busy - self.busy[cpu]).max();
            let span = now.since(core.looked);
            let point = core.governor.handle_sample(&self.points, span, busy.unwrap_or_default());
            threads().for_each(|cpu| {
                self.busy[cpu] = seen.cpus[cpu].busy;
                self.decisions.push_back(Decision::OperatingPoint { cpu: CpuId(cpu as u16), point });
            });
            (core.looked, core.due) = (now, now + core.governor.period());
        }
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.cores.iter().map(|core| core.due).min()
    }
}

impl FrequencyPolicy for PerCore {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::{nine_points, points_at};
    use policy::kind::CpuTotals;
    use proptest::prelude::*;

    const PERIOD: Duration = Duration::from_millis(10);

    fn sample(governor: &mut Ondemand, points: &PointTable, percent: u64) -> u8 {
        governor.handle_sample(points, PERIOD, PERIOD * percent / 100).0
    }

    #[test]
    fn the_point_follows_the_load_on_a_straight_line() {
        // 1.0 GHz + load * 1.6 GHz, to the nearest 200 MHz; by hand.
        let points = nine_points();
        for (percent, point) in
            [(0, 0), (6, 0), (7, 1), (25, 2), (50, 4), (80, 6), (82, 7), (94, 8), (95, 8), (96, 8), (100, 8)]
        {
            assert_eq!(sample(&mut Ondemand::new(Params::default()), &points, percent), point, "{percent}");
        }
    }

    #[test]
    fn above_the_threshold_it_jumps() {
        let points = points_at(&[1_000, 10_000]);
        let params = Params { up_threshold_percent: 40, ..Params::default() };
        assert_eq!(sample(&mut Ondemand::new(params), &points, 40), 0);
        assert_eq!(sample(&mut Ondemand::new(params), &points, 41), 1);
    }

    #[test]
    fn after_a_jump_it_stays_for_the_sampling_down_factor() {
        let points = nine_points();
        let mut governor = Ondemand::new(Params { sampling_down_factor: 10, ..Params::default() });
        assert_eq!(governor.period(), PERIOD);
        sample(&mut governor, &points, 100);
        assert_eq!(governor.period(), PERIOD * 10);
        sample(&mut governor, &points, 100);
        assert_eq!(governor.period(), PERIOD * 10);
        sample(&mut governor, &points, 50);
        assert_eq!(governor.period(), PERIOD);
        // Come to the fastest operating point on the line, it has not jumped.
        assert_eq!(sample(&mut governor, &points, 95), 8);
        assert_eq!(sample(&mut governor, &points, 100), 8);
        assert_eq!(governor.period(), PERIOD);
    }

    #[test]
    fn after_a_long_sleep_it_remembers_the_load_once() {
        let points = nine_points();
        let mut governor = Ondemand::new(Params::default());
        assert_eq!(sample(&mut governor, &points, 90), 7);
        let busy = Duration::from_millis(1);
        assert_eq!(
            governor.handle_sample(&points, Duration::from_millis(21), busy).0,
            0,
            "idle for two periods"
        );
        assert_eq!(sample(&mut governor, &points, 90), 7);
        assert_eq!(
            governor.handle_sample(&points, Duration::from_millis(22), busy).0,
            7,
            "for more than two"
        );
        assert_eq!(governor.handle_sample(&points, Duration::from_millis(22), busy).0, 0, "once");
    }

    #[test]
    fn the_threads_of_a_core_get_one_point_by_the_busier_of_them() {
        let points = nine_points();
        let mut governors = PerCore::of(Params::default(), points, 2, 4);
        let seen =
            [9, 0, 2, 1].map(|tenths| CpuTotals { busy: PERIOD * tenths / 10, ..CpuTotals::default() });
        governors.handle_timeout(Instant::ZERO + PERIOD, &Seen { cpus: &seen, ..Seen::default() });
        let mut chosen = [None; 4];
        while let Some(Decision::OperatingPoint { cpu, point }) = governors.poll_decision() {
            chosen[cpu.index()] = Some(point.0);
        }
        // By hand as above: 90 % is operating point 7; 10 % is 1.16 GHz, operating point 1.
        assert_eq!(chosen, [Some(7), Some(1), Some(7), Some(1)]);
    }

    #[test]
    fn no_time_at_all_is_the_load_of_before() {
        let points = nine_points();
        let mut governor = Ondemand::new(Params::default());
        sample(&mut governor, &points, 50);
        assert_eq!(governor.handle_sample(&points, Duration::ZERO, Duration::ZERO).0, 4);
    }

    #[test]
    fn it_settles_where_the_algebra_says() {
        // 30 operating points from 0.4 to 1 of the nominal clock.
        let points = points_at(&(0..=30).map(|step| 1_000 + step * 50).collect::<Vec<_>>());
        let low = points.speed(points.slowest());
        for share in [0.05, 0.2, 0.4, 0.6, 0.8] {
            let mut governor = Ondemand::new(Params::default());
            let mut point = points.fastest();
            for _ in 0..60 {
                let load = (share / points.speed(point)).min(1.0);
                point = governor.handle_sample(&points, PERIOD, PERIOD.scale(load));
            }
            let settled = (low + (low * low + 4.0 * share * (1.0 - low)).sqrt()) / 2.0;
            let off = points.speed(point) - settled;
            // An operating point is 0.02 from the next, and whole percents cost up to 0.01 / (1 -
            // gain).
            assert!(off.abs() < 0.03, "{share}: {} for {settled}", points.speed(point));
        }
    }

    proptest! {
        #[test]
        fn more_load_never_gives_a_slower_point(
            before in prop::collection::vec(0_u64..=100, 0..5),
            loads in (0_u64..=100, 0_u64..=100),
            up_threshold_percent in 1_u8..=100,
        ) {
            let points = nine_points();
            let mut governor = Ondemand::new(Params { up_threshold_percent, ..Params::default() });
            for percent in before {
                prop_assert!(usize::from(sample(&mut governor, &points, percent)) < points.count());
            }
            let low = sample(&mut governor.clone(), &points, loads.0.min(loads.1));
            let high = sample(&mut governor, &points, loads.0.max(loads.1));
            prop_assert!(low <= high);
        }
    }
}
