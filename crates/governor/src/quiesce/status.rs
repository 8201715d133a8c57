//! What was done and how things stand, in figures.

use super::{Quiesce, Trigger};
use hdrhistogram::Histogram;
use host::bpf::AllIdle;
use host::freezer::FreezerWay;
use machine::{CpuList, Duration, Instant, LengthHistogram};
use policy::quiescence::{Edge, Outlook, Record};
use serde::Serialize;
use std::fmt::Write as _;

/// Of one background group.
#[derive(Debug, Default)]
pub(super) struct GroupTally {
    pub(super) freezes: u64,
    /// Frozen since then, if it is.
    pub(super) since: Option<Instant>,
    pub(super) frozen: Duration,
    pub(super) longest: Duration,
    /// Thawed before everybody stood still.
    pub(super) unconfirmed: u64,
    /// Frozen by somebody else when it was to be.
    pub(super) foreign: u64,
    /// Not there when it was to be.
    pub(super) gone: u64,
    pub(super) cost: Option<Duration>,
}

/// What freezing and thawing take.
#[derive(Debug)]
pub(super) struct Cost {
    tried: Duration,
    is_measured: bool,
    freeze: Duration,
    lately: Vec<Duration>,
}

/// Of the run.
#[derive(Debug)]
pub struct Tally {
    pub(super) began: Instant,
    pub(super) looks: u64,
    pub(super) before: AllIdle,
    pub(super) cost: Cost,
    /// From a critical thread's going on until the thaw had been written, in nanoseconds.
    pub(super) delays: Histogram<u64>,
}

/// Cycles of which the median is taken.
const CYCLES: usize = 15;

impl Cost {
    pub(super) fn tried(tried: Duration) -> Self {
        Self { tried, is_measured: true, freeze: Duration::ZERO, lately: Vec::new() }
    }

    pub(super) fn untried(tried: Duration) -> Self {
        Self { is_measured: false, ..Self::tried(tried) }
    }

    /// Adds what a freeze or a thaw took. What both take lately, if that is more than when it was tried.
    pub(super) fn spent(&mut self, time: Duration, is_freeze: bool) -> Option<Duration> {
        if is_freeze {
            self.freeze = time;
            return None;
        }
        if self.lately.len() == CYCLES {
            self.lately.remove(0);
        }
        self.lately.push(std::mem::take(&mut self.freeze) + time);
        Some(self.now())
    }

    pub(super) fn now(&self) -> Duration {
        let mut sorted = self.lately.clone();
        sorted.sort();
        sorted.get(CYCLES / 2).copied().unwrap_or(Duration::ZERO).max(self.tried)
    }
}

impl Tally {
    pub(super) fn begin(now: Instant) -> Self {
        // From a microsecond to a minute, to a hundredth.
        let delays = Histogram::new_with_bounds(1_000, 60_000_000_000, 2).expect("bounds in order");
        Self { began: now, looks: 0, before: AllIdle::default(), cost: Cost::tried(Duration::ZERO), delays }
    }
}

/// A critical unit.
#[derive(Clone, Debug, Serialize)]
pub struct CriticalStatus {
    /// As it was named.
    pub unit: String,
    /// In it now.
    pub processes: usize,
}

/// A background unit.
#[derive(Clone, Debug, Serialize)]
pub struct BackgroundStatus {
    /// As it was named.
    pub unit: String,
    /// How it is frozen.
    pub way: FreezerWay,
    /// In it now.
    pub processes: usize,
    /// It stands still.
    pub is_frozen: bool,
    /// So often.
    pub freezes: u64,
    /// Altogether.
    pub frozen_s: f64,
    /// Of the time.
    pub frozen_share: f64,
    /// At a time.
    pub longest_ms: f64,
    /// Thawed before everybody stood still.
    pub unconfirmed: u64,
    /// Left alone because somebody else had frozen it.
    pub foreign: u64,
    /// Not there when it was to be frozen.
    pub gone: u64,
    /// What freezing and thawing it took when it was tried, until everybody had.
    pub cost_us: Option<f64>,
    /// Why it is not frozen at all.
    pub spared: Option<String>,
}

/// Waits that are alike.
#[derive(Clone, Debug, Serialize)]
pub struct SiteStatus {
    /// Of which unit.
    pub unit: String,
    /// For what, as far as can be told.
    pub nature: policy::quiescence::Nature,
    /// What tells it from others.
    pub place: u64,
    /// As long as it is expected to last at least.
    pub expected_ms: Option<f64>,
    /// Others may stand still for it.
    pub is_believed: bool,
}

/// How requests of one type went from unit to unit.
#[derive(Clone, Debug, Serialize)]
pub struct EdgeStatus {
    /// The port to which they came; 0 for input.
    pub request: u32,
    /// From there.
    pub from: String,
    /// To there.
    pub to: String,
    /// By that.
    pub by: Edge,
    /// So often.
    pub times: u64,
}

/// How things stand.
#[derive(Clone, Debug, Serialize)]
pub struct QuiesceStatus {
    /// Since the beginning.
    pub at_ms: f64,
    /// In a word.
    pub outlook: Outlook,
    /// Nothing is touched.
    pub is_dry: bool,
    /// What begins an interaction.
    pub trigger: Option<Trigger>,
    /// What matters.
    pub critical: Vec<CriticalStatus>,
    /// What stands still for it.
    pub background: Vec<BackgroundStatus>,
    /// As it was named.
    pub domain: String,
    /// Its CPUs.
    pub cpus: CpuList,
    /// All of them idle at once, altogether.
    pub all_idle_s: f64,
    /// Of the time.
    pub all_idle_share: f64,
    /// So often.
    pub all_idle_times: u64,
    /// Times in which they were, by length.
    #[serde(skip)]
    pub all_idle: LengthHistogram,
    /// Freezing and thawing take this.
    pub cost_us: f64,
    /// As measured on these groups; else as taken from elsewhere.
    pub cost_is_measured: bool,
    /// Shorter waits are not worth it.
    pub min_wait_us: f64,
    /// From a critical thread's going on until the thaw was written: p50, p99, longest.
    pub thaw_us: Option<[f64; 3]>,
    /// What the policy did.
    pub record: Record,
    /// Requests that were followed.
    pub requests: u64,
    /// Times that it looked, and that the program rang.
    pub looks: u64,
    /// The same.
    pub rings: u64,
    /// Events for which there was no room.
    pub lost: u64,
    /// What was learned of waits.
    pub sites: Vec<SiteStatus>,
    /// What was learned of requests.
    pub graph: Vec<EdgeStatus>,
}

impl Quiesce {
    /// How things stand.
    pub fn status(&self, now: Instant) -> QuiesceStatus {
        let length = now.since(self.tally.began);
        let seconds = length.as_secs_f64().max(1e-9);
        let idle = self.program.all_idle();
        let all_idle = idle.lengths.since(&self.tally.before.lengths);
        let all_idle_s = (idle.time - self.tally.before.time).as_secs_f64();
        let us = |duration: Duration| duration.as_nanos() as f64 / 1e3;
        let delays = &self.tally.delays;
        let delay = |quantile: f64| delays.value_at_quantile(quantile) as f64 / 1e3;
        QuiesceStatus {
            at_ms: length.as_secs_f64() * 1e3,
            outlook: self.policy.outlook(now),
            is_dry: self.freezer.is_none(),
            trigger: self.trigger,
            critical: self
                .critical
                .iter()
                .map(|critical| CriticalStatus {
                    unit: critical.unit.clone(),
                    processes: critical.processes.len(),
                })
                .collect(),
            background: self
                .background
                .iter()
                .map(|background| {
                    let tally = &background.tally;
                    let under_way = tally.since.map_or(Duration::ZERO, |since| now.since(since));
                    let frozen_s = (tally.frozen + under_way).as_secs_f64();
                    BackgroundStatus {
                        unit: background.unit.clone(),
                        way: background.way,
                        processes: background.processes.len(),
                        is_frozen: tally.since.is_some(),
                        freezes: tally.freezes,
                        frozen_s,
                        frozen_share: frozen_s / seconds,
                        longest_ms: tally.longest.max(under_way).as_secs_f64() * 1e3,
                        unconfirmed: tally.unconfirmed,
                        foreign: tally.foreign,
                        gone: tally.gone,
                        cost_us: tally.cost.map(us),
                        spared: background.spared.clone(),
                    }
                })
                .collect(),
            domain: self.domain.name.clone(),
            cpus: self.domain.cpus.clone(),
            all_idle_s,
            all_idle_share: all_idle_s / seconds,
            all_idle_times: idle.times - self.tally.before.times,
            all_idle,
            cost_us: us(self.tally.cost.now()),
            cost_is_measured: self.tally.cost.is_measured,
            min_wait_us: us(self.policy.min_wait()),
            thaw_us: (!delays.is_empty()).then(|| [delay(0.5), delay(0.99), delays.max() as f64 / 1e3]),
            record: self.policy.record(),
            requests: self.eyes.requests,
            looks: self.tally.looks,
            rings: self.program.rings(),
            lost: self.program.lost(),
            sites: self
                .eyes
                .waits
                .sites()
                .map(|(site, expected, is_believed)| SiteStatus {
                    unit: self.unit(site.group.0),
                    nature: site.nature,
                    place: site.place,
                    expected_ms: expected.map(|expected| expected.as_secs_f64() * 1e3),
                    is_believed,
                })
                .collect(),
            graph: self
                .eyes
                .graph
                .edges()
                .map(|(request, from, to, by, seen)| EdgeStatus {
                    request,
                    from: self.unit(from.0),
                    to: self.unit(to.0),
                    by,
                    times: seen.times,
                })
                .collect(),
        }
    }

    fn unit(&self, group: u32) -> String {
        let Some(number) = group.checked_sub(super::FIRST_GROUP) else { return "others".to_owned() };
        let units = self.critical.iter().map(|critical| &critical.unit);
        let mut units = units.chain(self.background.iter().map(|background| &background.unit));
        units.nth(number as usize).cloned().unwrap_or_default()
    }
}

impl QuiesceStatus {
    /// For a person, in a few lines.
    pub fn text(&self) -> String {
        let word = match self.outlook {
            Outlook::Busy => "critical work runs",
            Outlook::Waiting => "critical work waits",
            Outlook::Frozen => "all stand still",
            Outlook::Blind => "events were lost: nothing is frozen",
        };
        let mut text = format!(
            "{:8.1} s  {word:20} CPU {} all idle {:5.1} % of the time, {} times\n",
            self.at_ms / 1e3,
            self.cpus,
            self.all_idle_share * 100.0,
            self.all_idle_times
        );
        for critical in &self.critical {
            let _ = writeln!(text, "  critical    {:32} {} processes", critical.unit, critical.processes);
        }
        for background in &self.background {
            let state = match (&background.spared, background.is_frozen) {
                (Some(why), _) => why.as_str(),
                (None, true) => "frozen",
                (None, false) => "runs",
            };
            let _ = writeln!(
                text,
                "  background  {:32} {state:7} {:5.1} % of the time, {} times, at most {:.0} ms, by {}",
                background.unit,
                background.frozen_share * 100.0,
                background.freezes,
                background.longest_ms,
                background.way
            );
        }
        let measured = if self.cost_is_measured { "measured" } else { "not measured in a dry run" };
        let _ = write!(
            text,
            "  freeze + thaw {:.0} us ({measured}), so waits of {:.1} ms and longer count",
            self.cost_us,
            self.min_wait_us / 1e3
        );
        match self.thaw_us {
            Some([p50, p99, max]) => {
                let _ = writeln!(text, "; thawed after p50 {p50:.0}, p99 {p99:.0}, at most {max:.0} us");
            }
            None => text.push('\n'),
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_what_was_tried_until_most_cycles_take_longer() {
        let us = Duration::from_micros;
        let mut cost = Cost::tried(us(100));
        let mut cycle = |time: u64| {
            assert_eq!(cost.spent(us(time), true), None, "half a cycle says nothing");
            cost.spent(us(time), false).unwrap()
        };
        for _ in 0..CYCLES {
            assert_eq!(cycle(10), us(100));
        }
        // One that was slow, and a few, are no reason; most are.
        for _ in 0..CYCLES / 2 {
            assert_eq!(cycle(300), us(100));
        }
        assert_eq!(cycle(300), us(600));
        for _ in 0..CYCLES {
            cycle(10);
        }
        assert_eq!(cycle(10), us(100), "it forgets");
    }
}
