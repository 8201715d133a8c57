//! How things are, for people, programs and Prometheus alike.

use super::{Act, Alarm, Calibration};
use machine::{CpuId, Duration, LengthHistogram};
use policy::wake_plan::Record;
use serde::{Deserialize, Serialize};

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WakeStatus {
    /// For so long.
    pub running: Duration,
    /// How CPUs are kept awake.
    pub act: Act,
    /// How they are woken.
    #[serde(default)]
    pub alarm: Alarm,
    /// What a request needs before its CPU is ready: doorbell, exit latency and margin.
    pub lead: Duration,
    /// What was measured at the start.
    pub calibration: Calibration,
    /// Each CPU.
    pub cpus: Vec<CpuStatus>,
    /// Each principal, the unowned and the idle last.
    pub accounts: Vec<AccountStatus>,
    /// The sum of the accounts beside cpuidle's own; `None` where cpuidle counts no residency.
    pub check: Option<BooksCheck>,
    /// How the predictors fared.
    pub predictors: Vec<PredictorStatus>,
    /// What was asked.
    pub asked: Asked,
    /// Whence joules are: measured or modelled, and by what.
    pub energy: String,
}

/// One CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Which.
    pub cpu: CpuId,
    /// It is kept awake now.
    pub is_awake: bool,
    /// What waking it takes: the 99th percentile of what was measured lately.
    pub exit_latency: Duration,
    /// Windows so far.
    pub windows: u64,
    /// How long after the times of their timers they were open, median.
    pub late_p50: Option<Duration>,
    /// The same, 99th percentile.
    pub late_p99: Option<Duration>,
    /// Who holds its idle limit, where that is another process.
    pub held_by: Option<String>,
}

/// One principal's account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountStatus {
    /// As it calls itself; `(gone)` is names that left long ago, `(unowned)` what CPUs did beside all windows, `(idle)` their sleep.
    pub name: String,
    /// Its user; `None` for remote ones and those in parentheses.
    pub user: Option<u32>,
    /// Time of CPUs on its account.
    pub time: Duration,
    /// Joules on its account.
    pub joules: f64,
    /// Requests that were accepted, one for each CPU.
    pub accepted: u64,
    /// Too late to be ready in time.
    pub late: u64,
    /// Whose event came.
    pub came: u64,
    /// That were taken back.
    pub withdrawn: u64,
    /// Whose event did not come.
    pub expired: u64,
}

/// The books and what cpuidle says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BooksCheck {
    /// Time awake, by the accounts: all principals and the unowned.
    pub accounts: Duration,
    /// Time awake, by cpuidle's own residency.
    pub cpuidle: Duration,
    /// The difference as a share of all time, in percent.
    pub percent: f64,
    /// False where the accounts had nothing but cpuidle's residency to go by, so that this proves nothing.
    pub is_independent: bool,
}

/// One predictor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictorStatus {
    /// Of what.
    pub name: String,
    /// How it fared.
    pub record: Record,
}

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Requests that were accepted.
    pub accepted: u64,
    /// That were refused: over, absurd, or too many.
    pub refused: u64,
    /// That clients found too near to be of use.
    pub too_late: u64,
    /// That found no room in their ring.
    pub full: u64,
    /// Doorbells that were rung.
    pub rung: u64,
    /// Entries and lines that said nothing known.
    pub nonsense: u64,
    /// Remote messages with a token that does not match.
    pub wrong_tokens: u64,
    /// Windows that could not be opened or closed.
    pub writes_failed: u64,
    /// Connections now.
    pub connections: u64,
    /// Connections that could not be accepted, for want of descriptors, say.
    #[serde(default)]
    pub accepts_failed: u64,
}

/// A quantile of a histogram, to its bucket's middle.
pub(super) fn quantile(lengths: &LengthHistogram, share: f64) -> Option<Duration> {
    let total = lengths.count();
    if total == 0 {
        return None;
    }
    let rank = ((total as f64 * share).ceil() as u64).clamp(1, total);
    let mut seen = 0;
    for (bucket, &count) in lengths.counts.iter().enumerate() {
        seen += count;
        if seen >= rank {
            let (from, until) = LengthHistogram::bounds(bucket);
            return Some(from + (until - from) / 2);
        }
    }
    None
}

impl WakeStatus {
    /// As a person reads it.
    pub fn text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = format!(
            "woken by {}, awake by {}; lead {}\n{} accepted, {} refused, {} too late, {} doorbells, {} connected\n",
            self.alarm,
            self.act,
            self.lead,
            self.asked.accepted,
            self.asked.refused,
            self.asked.too_late,
            self.asked.rung,
            self.asked.connections
        );
        for cpu in &self.cpus {
            let length =
                |length: Option<Duration>| length.map_or("-".to_owned(), |length| length.to_string());
            let _ = writeln!(
                text,
                "{:6} {:6} exit {:>8} {:>7} windows, open p50 {} p99 {} late{}",
                cpu.cpu.to_string(),
                if cpu.is_awake { "awake" } else { "-" },
                cpu.exit_latency.to_string(),
                cpu.windows,
                length(cpu.late_p50),
                length(cpu.late_p99),
                cpu.held_by.as_ref().map_or(String::new(), |by| format!("; held by {by}"))
            );
        }
        let _ = writeln!(
            text,
            "{:20} {:>9} {:>8} {:>9} {:>7} {:>7} {:>8}",
            "principal", "CPU time", "J", "accepted", "late", "came", "expired"
        );
        for account in &self.accounts {
            let _ = writeln!(
                text,
                "{:20} {:>9} {:>8.3} {:>9} {:>7} {:>7} {:>8}",
                account.name,
                account.time.to_string(),
                account.joules,
                account.accepted,
                account.late,
                account.came,
                account.expired
            );
        }
        let _ = writeln!(text, "joules: {}", self.energy);
        if let Some(check) = &self.check {
            let _ = writeln!(
                text,
                "accounts against cpuidle: {:.3} s and {:.3} s awake, {:.2} % apart{}",
                check.accounts.as_secs_f64(),
                check.cpuidle.as_secs_f64(),
                check.percent,
                if check.is_independent { "" } else { "\n(not independent: no cpu_idle events here)" }
            );
        }
        for PredictorStatus { name, record } in
            self.predictors.iter().filter(|one| one.record != Record::default())
        {
            let _ = writeln!(
                text,
                "{name}: {} of {} in the window, {} within a tenth, {} never came",
                record.hits,
                record.predicted(),
                record.within_tenth_rate(),
                record.absent
            );
        }
        text
    }
}
