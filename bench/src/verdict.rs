//! Medians, spreads, ratios and bars; the table, and the folder of raw data.

use super::contestant::Who;
use super::serve::Idle;
use crate::exit::Exit;
use crate::run_folder;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Server CPU time per request with one request under way per connection, microseconds.
    CpuDepth1,
    CpuDepth16,
    RateDepth1,
    RateDepth16,
    /// 99th percentile in the open loop, microseconds.
    TailOpen,
    /// Memory that each further item takes, bytes.
    BytesPerItem,
    /// Times per second that the server's threads sleep and wake without clients.
    IdleWakeups,
}

enum Bar {
    /// This share of the peer's, at the most.
    Share(f64),
    Limit(f64),
}

impl Figure {
    const ALL: [Self; 7] = [
        Self::CpuDepth1,
        Self::CpuDepth16,
        Self::RateDepth1,
        Self::RateDepth16,
        Self::TailOpen,
        Self::BytesPerItem,
        Self::IdleWakeups,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::CpuDepth1 => "CPU us/request, depth 1",
            Self::CpuDepth16 => "CPU us/request, depth 16",
            Self::RateDepth1 => "requests/s, depth 1",
            Self::RateDepth16 => "requests/s, depth 16",
            Self::TailOpen => "p99 us, open loop",
            Self::BytesPerItem => "bytes per item",
            Self::IdleWakeups => "idle wake-ups/s",
        }
    }

    /// The bars hold at stock idle; elsewhere the figures are reported.
    fn bar(self, idle: Idle, who: Who) -> Option<Bar> {
        if idle != Idle::Stock {
            return None;
        }
        match (self, who) {
            (Self::CpuDepth1, Who::AllAwake) => Some(Bar::Share(0.85)),
            (Self::CpuDepth16, Who::AllAwake) => Some(Bar::Share(0.80)),
            (Self::TailOpen, Who::AllAwake) => Some(Bar::Share(1.0)),
            (Self::TailOpen, Who::Peafowl) => Some(Bar::Share(1.25)),
            (Self::BytesPerItem, Who::AllAwake) => Some(Bar::Limit(160.0)),
            (Self::IdleWakeups, Who::AllAwake | Who::Peafowl) => Some(Bar::Limit(3.0)),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measurement {
    round: u32,
    idle: Idle,
    who: Who,
    figure: Figure,
    value: f64,
    valid: bool,
}

/// All measurements, in a file as they come.
pub struct Record {
    file: File,
    measurements: Vec<Measurement>,
}

impl Record {
    pub fn create(folder: &Path) -> Result<Self> {
        let file = run_folder::begin(folder, "raw.jsonl")?;
        Ok(Self { file, measurements: Vec::new() })
    }

    /// Adds a measurement. One that is not valid is kept and not used.
    pub fn add(
        &mut self,
        round: u32,
        idle: Idle,
        who: Who,
        figure: Figure,
        value: f64,
        valid: bool,
    ) -> Result<()> {
        let measurement = Measurement { round, idle, who, figure, value, valid };
        writeln!(self.file, "{}", serde_json::to_string(&measurement)?).context("writing raw data")?;
        self.measurements.push(measurement);
        Ok(())
    }

    pub fn figures(&self) -> &[Measurement] {
        &self.measurements
    }
}

/// Middle and ends of some measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
    valid: usize,
    all: usize,
}

impl Spread {
    fn of(all: &[&Measurement]) -> Option<Self> {
        let mut values: Vec<f64> = all.iter().filter(|m| m.valid).map(|m| m.value).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
        Some(Self { median, min, max, valid: values.len(), all: all.len() })
    }

    /// Half of the measurements at least are valid.
    fn is_trusted(&self) -> bool {
        2 * self.valid >= self.all
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: f64| match value {
            value if value >= 10_000.0 => format!("{:.1}k", value / 1e3),
            value if value >= 100.0 => format!("{value:.0}"),
            value => format!("{value:.2}"),
        };
        let mut text = format!("{} ({}..{})", number(self.median), number(self.min), number(self.max));
        if self.valid < self.all {
            let _ = write!(text, " {}/{} valid", self.valid, self.all);
        }
        f.pad(&text)
    }
}

/// Ours against the peer in one figure.
#[derive(Clone, Debug, Serialize)]
struct Row {
    idle: Idle,
    figure: Figure,
    who: Who,
    peer: Option<Spread>,
    ours: Option<Spread>,
    /// Ours as a multiple of the peer's, medians.
    ratio: Option<f64>,
    bar: Option<String>,
    /// None if there is no bar, or too few valid runs to tell.
    met: Option<bool>,
}

#[derive(Debug, Serialize)]
pub struct Summary {
    /// Under which conditions it was measured.
    pub conditions: Vec<String>,
    rows: Vec<Row>,
}

impl Summary {
    pub fn of(measurements: &[Measurement]) -> Self {
        let spread = |idle, who, figure| {
            let all: Vec<&Measurement> = measurements
                .iter()
                .filter(|m| m.idle == idle && m.who == who && m.figure == figure)
                .collect();
            Spread::of(&all)
        };
        let mut rows = Vec::new();
        for idle in [Idle::Stock, Idle::Limited, Idle::Poll] {
            for figure in Figure::ALL {
                for who in [Who::AllAwake, Who::Peafowl] {
                    if !measurements.iter().any(|m| m.idle == idle && m.who == who && m.figure == figure) {
                        continue;
                    }
                    let (peer, ours) = (spread(idle, Who::Peer, figure), spread(idle, who, figure));
                    rows.push(Row::new(idle, figure, who, peer, ours));
                }
            }
        }
        Self { conditions: Vec::new(), rows }
    }

    /// Done, bar missed, or no verdict.
    pub fn exit_code(&self) -> ExitCode {
        let bars = || self.rows.iter().filter(|row| row.bar.is_some());
        if bars().any(|row| row.met.is_none()) {
            Exit::Invalid.into()
        } else if bars().any(|row| row.met == Some(false)) {
            Exit::GoalMissed.into()
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Writes `summary.json` and `README.md` beside the raw data.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let command: Vec<String> = std::env::args().skip(1).collect();
        let readme = format!(
            "# roost-bench serve\n\nOurs beside memcached: medians with (min..max); ratios are of \
             medians, ours over the peer's.\n\n\
             Command: `roost {}`\n\n```text\n{self}```\n\n`raw.jsonl` holds every measurement, \
             `summary.json` this table.\n",
            command.join(" ")
        );
        run_folder::write(folder, "README.md", |file| file.write_all(readme.as_bytes()))?;
        let json = serde_json::to_string_pretty(self)?;
        run_folder::write(folder, "summary.json", |file| writeln!(file, "{json}"))
    }
}

impl Row {
    fn new(idle: Idle, figure: Figure, who: Who, peer: Option<Spread>, ours: Option<Spread>) -> Self {
        let ratio = match (&peer, &ours) {
            (Some(peer), Some(ours)) if peer.median > 0.0 => Some(ours.median / peer.median),
            _ => None,
        };
        let bar = figure.bar(idle, who);
        let trusted = |spread: &Option<Spread>| spread.as_ref().is_some_and(Spread::is_trusted);
        let met = match &bar {
            Some(Bar::Share(share)) if trusted(&peer) && trusted(&ours) => ratio.map(|ratio| ratio <= *share),
            Some(Bar::Limit(limit)) if trusted(&ours) => ours.as_ref().map(|ours| ours.median <= *limit),
            _ => None,
        };
        let bar = bar.map(|bar| match bar {
            Bar::Share(share) => format!("<= {share:.2}x"),
            Bar::Limit(limit) => format!("<= {limit}"),
        });
        Self { idle, figure, who, peer, ours, ratio, bar, met }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for condition in &self.conditions {
            writeln!(f, "{condition}")?;
        }
        let mut idle = None;
        for row in &self.rows {
            if idle != Some(row.idle) {
                idle = Some(row.idle);
                let name = format!("{:?} idle", row.idle);
                writeln!(
                    f,
                    "\n{name:<26} {:<17} {:<26} {:<26} {:>6}  {:<9}",
                    "", "peer", "ours", "ratio", "bar"
                )?;
            }
            let text = |spread: &Option<Spread>| spread.as_ref().map_or("-".to_owned(), Spread::to_string);
            let ratio = row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}x"));
            let met = match (&row.bar, row.met) {
                (None, _) => "",
                (Some(_), Some(true)) => "met",
                (Some(_), Some(false)) => "MISSED",
                (Some(_), None) => "too few valid runs",
            };
            writeln!(
                f,
                "{:<26} {:<17} {:<26} {:<26} {:>6}  {:<9} {met}",
                row.figure.name(),
                row.who.name(),
                text(&row.peer),
                text(&row.ours),
                ratio,
                row.bar.as_deref().unwrap_or(""),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(who: Who, figure: Figure, values: &[(f64, bool)]) -> Vec<Measurement> {
        let one = |(round, (value, valid)): (usize, &(f64, bool))| Measurement {
            round: round as u32,
            idle: Idle::Stock,
            who,
            figure,
            value: *value,
            valid: *valid,
        };
        values.iter().enumerate().map(one).collect()
    }

    fn valid(values: &[f64]) -> Vec<(f64, bool)> {
        values.iter().map(|value| (*value, true)).collect()
    }

    #[test]
    fn a_bar_is_judged_by_the_ratio_of_medians() {
        let peer = measured(Who::Peer, Figure::CpuDepth1, &valid(&[10.0, 11.0, 50.0]));
        let good = measured(Who::AllAwake, Figure::CpuDepth1, &valid(&[9.0, 90.0, 9.1]));
        let summary = Summary::of(&[peer.clone(), good].concat());
        assert_eq!(summary.rows[0].met, Some(true), "9.1 / 11 is below 0.85");
        assert_eq!(summary.exit_code(), ExitCode::SUCCESS);
        let bad = measured(Who::AllAwake, Figure::CpuDepth1, &valid(&[9.5, 9.5, 9.5]));
        let summary = Summary::of(&[peer, bad].concat());
        assert_eq!(summary.rows[0].met, Some(false));
        assert_eq!(summary.exit_code(), Exit::GoalMissed.into());
        assert!(summary.to_string().contains("MISSED"), "{summary}");
    }

    #[test]
    fn invalid_runs_do_not_count_and_too_many_of_them_leave_no_verdict() {
        let peer = measured(Who::Peer, Figure::TailOpen, &valid(&[100.0, 100.0, 100.0]));
        let ours = [(90.0, true), (1.0, false), (95.0, true)];
        let summary = Summary::of(&[peer.clone(), measured(Who::AllAwake, Figure::TailOpen, &ours)].concat());
        assert_eq!(summary.rows[0].met, Some(true));
        assert!((summary.rows[0].ratio.unwrap() - 0.925).abs() < 1e-9);
        let ours = [(90.0, true), (1.0, false), (95.0, false)];
        let summary = Summary::of(&[peer, measured(Who::AllAwake, Figure::TailOpen, &ours)].concat());
        assert_eq!((summary.rows[0].met, summary.exit_code()), (None, Exit::Invalid.into()));
    }

    #[test]
    fn limits_hold_without_a_peer() {
        let ours = measured(Who::AllAwake, Figure::BytesPerItem, &valid(&[150.0]));
        assert_eq!(Summary::of(&ours).rows[0].met, Some(true));
        let ours = measured(Who::Peafowl, Figure::IdleWakeups, &valid(&[3.5]));
        assert_eq!(Summary::of(&ours).rows[0].met, Some(false));
    }
}
