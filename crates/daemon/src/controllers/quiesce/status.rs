//! The actions and the state, in figures.

use super::{EnergyStatus, Quiesce, Trigger};
use linux::freezer::FreezerWay;
use machine::{CpuList, Duration, Instant, LengthHistogram};
use policy::quiescence::{Edge, Outlook, Record, Verdict};
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct CriticalStatus {
    pub unit: String,
    /// As a person would call it.
    pub name: String,
    pub processes: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct BackgroundStatus {
    pub unit: String,
    /// As a person would call it.
    pub name: String,
    pub way: FreezerWay,
    pub processes: usize,
    pub is_frozen: bool,
    pub freezes: u64,
    pub frozen_s: f64,
    pub frozen_share: f64,
    pub longest_ms: f64,
    pub unconfirmed: u64,
    /// Left alone because another process had frozen it.
    pub foreign: u64,
    /// Not there when it was to be frozen.
    pub gone: u64,
    /// The cost of freezing and thawing when it was tried, until all threads had.
    pub cost_us: Option<f64>,
    /// Why it is not frozen at all.
    pub spared: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SiteStatus {
    pub unit: String,
    /// The cause of the wait, as far as can be told.
    pub nature: policy::quiescence::Nature,
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
    pub from: String,
    pub to: String,
    pub by: Edge,
    pub times: u64,
}

/// Whether freezing pays, as far as was found out.
#[derive(Clone, Debug, Serialize)]
pub struct PayoffStatus {
    /// Without its time of the next trial, which `again_s` tells.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Until it is tried again.
    pub again_s: Option<f64>,
}

impl PayoffStatus {
    fn of(verdict: Verdict, now: Instant) -> Self {
        Self {
            again_s: verdict.again.map(|again| again.since(now).as_secs_f64()),
            verdict: Verdict { again: None, ..verdict },
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct QuiesceStatus {
    pub at_ms: f64,
    pub outlook: Outlook,
    pub is_dry: bool,
    pub trigger: Option<Trigger>,
    pub critical: Vec<CriticalStatus>,
    pub background: Vec<BackgroundStatus>,
    pub domain: String,
    pub cpus: CpuList,
    /// All of them idle at once, altogether.
    pub all_idle_s: f64,
    pub all_idle_share: f64,
    pub all_idle_times: u64,
    /// Times in which they were, by length.
    #[serde(skip)]
    pub all_idle: LengthHistogram,
    pub cost_us: f64,
    /// As measured on these groups; else as taken from elsewhere.
    pub cost_is_measured: bool,
    /// Shorter waits are not worth it.
    pub min_wait_us: f64,
    /// From a critical thread's going on until the thaw was written: p50, p99, longest.
    pub thaw_us: Option<[f64; 3]>,
    pub record: Record,
    pub payoff: PayoffStatus,
    /// Mean power of the domain's CPUs with freezing and without.
    pub energy: EnergyStatus,
    pub requests: u64,
    /// Times that it looked, and that the program rang.
    pub looks: u64,
    pub rings: u64,
    /// Events for which there was no room.
    pub lost: u64,
    pub sites: Vec<SiteStatus>,
    pub graph: Vec<EdgeStatus>,
}

impl Quiesce {
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
            outlook: self.decider.outlook(now),
            is_dry: self.freezer.is_none(),
            trigger: self.trigger,
            critical: self
                .critical
                .iter()
                .map(|critical| CriticalStatus {
                    unit: critical.unit.clone(),
                    name: critical.name.clone(),
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
                        name: background.name.clone(),
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
                        spared: background.spared.as_ref().map(|spared| spared.why().to_owned()),
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
            min_wait_us: us(self.decider.min_wait()),
            thaw_us: (!delays.is_empty()).then(|| [delay(0.5), delay(0.99), delays.max() as f64 / 1e3]),
            record: self.decider.record(),
            payoff: PayoffStatus::of(self.decider.verdict(), now),
            energy: self.joules.status(),
            requests: self.tracker.requests,
            looks: self.tally.looks,
            rings: self.program.rings(),
            lost: self.program.lost(),
            sites: self
                .tracker
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
                .tracker
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_in_the_status_has_seconds_in_place_of_a_time() {
        let second = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let verdict = Verdict { pays: Some(true), again: Some(second(9)), ..Verdict::default() };
        let told = serde_json::to_value(PayoffStatus::of(verdict, second(2))).unwrap();
        assert_eq!(told["again_s"], 7.0);
        assert_eq!(told["pays"], true);
        assert!(told.get("again").is_none(), "{told}");
    }
}
