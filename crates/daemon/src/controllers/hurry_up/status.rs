//! How it is now, for people and programs.

use super::{Hurry, level_word};
use machine::{CpuId, Duration, Instant, Kilohertz};
use policy::frequency::hurry_up::Level;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HurryStatus {
    /// Milliseconds since the beginning.
    pub at_ms: u64,
    pub process: u32,
    /// After how long a call is heavy, in us.
    pub threshold_us: u64,
    pub hot: Vec<HotThread>,
    /// The level of each CPU.
    pub cpus: Vec<CpuLevel>,
    pub dry_run: bool,
    /// Enters that were seen, calls that were seen to end, looks, clocks that were set.
    pub enters: u64,
    /// Calls of which the length is known.
    pub calls: u64,
    pub looks: u64,
    pub writes: u64,
    /// From an enter until the write that it led to had returned: the median and the 99th
    /// percentile, in us; `None` where none led to one.
    pub delay_us: Option<(f64, f64)>,
    pub delays: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotThread {
    /// Its number, as we see it.
    pub thread: u32,
    pub name: Option<String>,
    /// Where it is; `None`: not on a CPU of ours.
    pub cpu: Option<CpuId>,
    /// It runs, or waits for its turn to.
    pub runs: bool,
    /// For so long, in us.
    pub for_us: u64,
    pub level: Level,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuLevel {
    pub cpu: CpuId,
    pub level: Level,
    pub clock: Kilohertz,
}

impl Hurry {
    pub fn status(&self, now: Instant) -> HurryStatus {
        let hot = self.policy.hot().map(|hot| HotThread {
            thread: hot.thread.0,
            name: self.tracker.threads.command(hot.thread.0),
            cpu: hot.cpu,
            runs: hot.runs,
            for_us: now.since(hot.entered).as_micros(),
            level: hot.level,
        });
        let cpus = self.policy.levels();
        let delays = &self.tally.delays;
        let us = |quantile: f64| delays.value_at_quantile(quantile) as f64 / 1e3;
        HurryStatus {
            at_ms: self.tally.length(now).as_millis(),
            process: self.process,
            threshold_us: self.policy.threshold().as_micros(),
            hot: hot.collect(),
            cpus: cpus.map(|(cpu, level)| CpuLevel { cpu, level, clock: self.policy.clock(level) }).collect(),
            dry_run: self.clocks.is_none(),
            enters: self.tally.enters,
            calls: self.tally.calls.len(),
            looks: self.tally.looks,
            writes: self.tally.writes,
            delay_us: (!delays.is_empty()).then(|| (us(0.5), us(0.99))),
            delays: delays.len(),
        }
    }

    pub fn clocks(&self) -> [Kilohertz; 3] {
        [Level::Min, Level::Mid, Level::Max].map(|level| self.policy.clock(level))
    }
}

impl HurryStatus {
    /// For a terminal: the threads inside and their levels; then CPUs.
    pub fn text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "process {}: {} inside, {} calls seen, a call is heavy after {}{}",
            self.process,
            self.hot.len(),
            self.calls,
            Duration::from_micros(self.threshold_us),
            if self.dry_run { " (dry run: nothing is touched)" } else { "" }
        );
        let cpus =
            self.cpus.iter().map(|cpu| format!("{} {} ({})", cpu.cpu, level_word(cpu.level), cpu.clock));
        let _ = writeln!(text, "  {}", cpus.collect::<Vec<_>>().join("   "));
        for hot in self.hot.iter().take(THREADS_SHOWN) {
            let place = hot.cpu.map_or_else(|| "elsewhere".to_owned(), |cpu| cpu.to_string());
            let _ = writeln!(
                text,
                "  {:>8} {:16} {:9} {:7} {:>9} {}",
                hot.thread,
                hot.name.as_deref().unwrap_or("-"),
                place,
                if hot.runs { "runs" } else { "waits" },
                Duration::from_micros(hot.for_us).to_string(),
                level_word(hot.level)
            );
        }
        if let Some(more) = self.hot.len().checked_sub(THREADS_SHOWN + 1) {
            let _ = writeln!(text, "  and {} more", more + 1);
        }
        text
    }
}

const THREADS_SHOWN: usize = 16;
