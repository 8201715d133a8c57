//! From a tick's figures to the terminal.

use ::observe::requests::{RequestPattern, percentile};
use ::observe::sleep::{CpuPattern, SleepPattern};
use machine::{Duration, LengthHistogram, Ratio};
use observe::scrape::Now;
use report::terminal::{CpuSleeps, LengthBar, OwnWord, RequestNow, SleepView};

pub struct View {
    shown: SleepView,
    /// All idle periods since the beginning, for the histogram.
    idle: LengthHistogram,
    active: LengthHistogram,
}

impl View {
    pub fn new(title: &str, length: Duration) -> Self {
        let shown = SleepView { title: title.to_owned(), length, ..SleepView::default() };
        Self { shown, idle: LengthHistogram::default(), active: LengthHistogram::default() }
    }

    pub fn shown(&self) -> &SleepView {
        &self.shown
    }

    pub fn tick(
        &mut self,
        at: Duration,
        step: &SleepPattern,
        requests: Option<&RequestPattern>,
        own: Option<Now>,
        watts: Option<f64>,
    ) {
        let view = &mut self.shown;
        view.at = at;
        view.source = step.source.to_string();
        view.lost += step.lost;
        view.watts = watts;
        view.own = own.map(|now| OwnWord {
            source: now.source,
            rate: now.step.map(|step| step.rate),
            p99: now.step.and_then(|step| step.p99),
            connections: now.step.and_then(|step| step.connections),
        });
        for cpu in &step.cpus {
            cpu.idle.iter().for_each(|lengths| self.idle.add(lengths));
            self.active.add(&cpu.active);
            let sleeps = sleeps(cpu);
            match view.cpus.iter_mut().find(|known| known.cpu == cpu.cpu) {
                Some(known) => {
                    let history = std::mem::take(&mut known.busy);
                    *known = sleeps;
                    let now = std::mem::take(&mut known.busy);
                    known.busy = history.into_iter().chain(now).collect();
                }
                None => {
                    view.cpus.push(sleeps);
                    view.cpus.sort_by_key(|cpu| cpu.cpu);
                }
            }
        }
        view.lengths = bars(&self.idle, &self.active);
        view.requests = requests.map(|seen| {
            let p = |times: &Option<hdrhistogram::Histogram<u64>>, percent| {
                times.as_ref().and_then(|times| percentile(times, percent))
            };
            RequestNow {
                way: seen.way.to_string(),
                rate: seen.rate(),
                response: p(&seen.response, 50.0).zip(p(&seen.response, 99.0)),
                waiting: p(&seen.waiting, 50.0).zip(p(&seen.waiting, 99.0)),
                service: p(&seen.service, 50.0).zip(p(&seen.service, 99.0)),
            }
        });
    }
}

fn sleeps(cpu: &CpuPattern) -> CpuSleeps {
    let idle: Vec<Duration> = cpu.idle.iter().map(LengthHistogram::time).collect();
    let all = idle.iter().fold(cpu.active.time(), |sum, &time| sum + time);
    let name = |state: usize| {
        cpu.table.0.get(state).map_or_else(|| format!("state{state}"), |known| known.name.clone())
    };
    // A tick without an event tells nothing: the CPU was busy, or asleep, all the time.
    let busy = if all.is_zero() { None } else { Some(Ratio::of(cpu.active.time(), all)) };
    CpuSleeps {
        cpu: cpu.cpu,
        busy: vec![busy],
        states: idle.iter().enumerate().map(|(state, &time)| (name(state), Ratio::of(time, all))).collect(),
        sleeps: cpu.idle.iter().map(LengthHistogram::count).sum(),
    }
}

/// One bar for each doubling that holds anything.
fn bars(idle: &LengthHistogram, active: &LengthHistogram) -> Vec<LengthBar> {
    let all = idle.time() + active.time();
    let last = LengthHistogram::BUCKETS - 1;
    let groups = std::iter::once(0..1)
        .chain((1..last).step_by(4).map(|first| first..first + 4))
        .chain(std::iter::once(last..last + 1));
    let bar = |group: std::ops::Range<usize>| {
        let share = |lengths: &LengthHistogram| {
            Ratio::of(lengths.times[group.clone()].iter().fold(Duration::ZERO, |sum, &time| sum + time), all)
        };
        LengthBar { from: LengthHistogram::bounds(group.start).0, idle: share(idle), active: share(active) }
    };
    let bars: Vec<LengthBar> = groups.map(bar).collect();
    let shown = |bar: &LengthBar| bar.idle.as_f64() + bar.active.as_f64() > 0.0005;
    let (first, last) = (bars.iter().position(shown), bars.iter().rposition(shown));
    first.zip(last).map_or_else(Vec::new, |(first, last)| bars[first..=last].to_vec())
}
