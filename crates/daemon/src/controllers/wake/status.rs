//! The status for people, programs and Prometheus.

use super::{Act, Alarm, Calibration};
use machine::{CpuId, Duration, LengthHistogram};
use policy::wake_plan::Record;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WakeStatus {
    /// The time since the start.
    pub running: Duration,
    /// How CPUs are kept awake.
    pub act: Act,
    /// How they are woken.
    #[serde(default)]
    pub alarm: Alarm,
    /// The time that a request needs before its CPU is ready: doorbell, exit latency and margin.
    pub lead: Duration,
    /// The measurements at the start.
    pub calibration: Calibration,
    pub cpus: Vec<CpuStatus>,
    /// Each principal; the unowned and the idle are last.
    pub accounts: Vec<AccountStatus>,
    /// The sum of the accounts beside cpuidle's own count; `None` where cpuidle counts no
    /// residency.
    pub check: Option<BooksCheck>,
    pub predictors: Vec<PredictorStatus>,
    pub asked: Asked,
    /// The source of the energy figures: measured or modelled, and by which means.
    pub energy: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    pub cpu: CpuId,
    pub is_awake: bool,
    /// The time that waking takes: the 99th percentile of recent measurements.
    pub exit_latency: Duration,
    /// The number of windows so far.
    pub windows: u64,
    /// The time from the helper's timer to the open window, median.
    pub late_p50: Option<Duration>,
    /// The same, 99th percentile.
    pub late_p99: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountStatus {
    /// The principal's own name; `(gone)` stands for names that left long ago, `(unowned)` for work
    /// outside all windows, `(idle)` for sleep.
    pub name: String,
    /// Its user; `None` for remote principals and those in parentheses.
    pub user: Option<u32>,
    /// CPU time on its account.
    pub time: Duration,
    pub joules: f64,
    /// Requests that were accepted, one for each CPU.
    pub accepted: u64,
    /// Requests that were too late to be ready in time.
    pub late: u64,
    /// Requests whose event came.
    pub came: u64,
    /// Requests that were withdrawn.
    pub withdrawn: u64,
    /// Requests whose event did not come.
    pub expired: u64,
}

/// The accounts compared with cpuidle's residency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BooksCheck {
    /// Time awake by the accounts: all principals and the unowned.
    pub accounts: Duration,
    /// Time awake by cpuidle's own residency.
    pub cpuidle: Duration,
    /// The difference as a share of all time, in percent.
    pub percent: f64,
    /// False if the accounts rest on cpuidle's residency alone, so that the comparison proves
    /// nothing.
    pub is_independent: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictorStatus {
    pub name: String,
    pub record: Record,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub accepted: u64,
    /// Requests that were refused: ended, absurd or too many.
    pub refused: u64,
    /// Requests that clients found too near to be of use.
    pub too_late: u64,
    /// Requests that found no room in their ring.
    pub full: u64,
    pub rung: u64,
    /// Unknown entries and lines.
    pub nonsense: u64,
    /// Remote messages with a token that does not match.
    pub wrong_tokens: u64,
    /// Windows that could not be opened or closed.
    pub writes_failed: u64,
    pub connections: u64,
}

/// A quantile of a histogram, as the middle of its bucket.
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
    pub fn text(&self) -> String {
        use std::fmt::Write as _;
        let Asked { accepted, refused, too_late, rung, connections, .. } = self.asked;
        let mut text =
            wrapped(&format!("woken by {}, awake by {}; lead {}", self.alarm, self.act, self.lead));
        text += &wrapped(&format!(
            "{accepted} accepted, {refused} refused, {too_late} too late, {rung} doorbells, \
             {connections} connected"
        ));
        for cpu in &self.cpus {
            let length =
                |length: Option<Duration>| length.map_or("-".to_owned(), |length| length.to_string());
            text += &wrapped(&format!(
                "{:6} {:6} exit {:>8} {:>7} windows, open p50 {} p99 {} late",
                cpu.cpu.to_string(),
                if cpu.is_awake { "awake" } else { "-" },
                cpu.exit_latency.to_string(),
                cpu.windows,
                length(cpu.late_p50),
                length(cpu.late_p99)
            ));
        }
        let _ = writeln!(
            text,
            "{:20} {:>9} {:>8} {:>9} {:>7} {:>7} {:>8}",
            "principal", "CPU time", "J", "accepted", "late", "came", "expired"
        );
        for account in &self.accounts {
            let mut name = account.name.as_str();
            if name.chars().count() > 20 {
                text += &wrapped(name);
                name = "";
            }
            let _ = writeln!(
                text,
                "{:20} {:>9} {:>8.3} {:>9} {:>7} {:>7} {:>8}",
                name,
                account.time.to_string(),
                account.joules,
                account.accepted,
                account.late,
                account.came,
                account.expired
            );
        }
        text += &wrapped(&format!("joules: {}", self.energy));
        if let Some(check) = &self.check {
            text += &wrapped(&format!(
                "accounts against cpuidle: {:.3} s and {:.3} s awake, {:.2} % apart{}",
                check.accounts.as_secs_f64(),
                check.cpuidle.as_secs_f64(),
                check.percent,
                if check.is_independent { "" } else { " (not independent: no cpu_idle events here)" }
            ));
        }
        for PredictorStatus { name, record } in
            self.predictors.iter().filter(|one| one.record != Record::default())
        {
            text += &wrapped(&format!(
                "{name}: {} of {} in the window, {} within a tenth, {} never came",
                record.hits,
                record.predicted(),
                record.within_tenth_rate(),
                record.absent
            ));
        }
        text
    }
}

/// Breaks a line to fit a terminal and indents the rest. Blanks that align columns stay.
fn wrapped(line: &str) -> String {
    let (mut text, mut used) = (String::new(), 0);
    for word in line.split_inclusive(' ') {
        let width = word.chars().count();
        if used > 0 && used + word.trim_end().chars().count() > COLUMNS {
            text.truncate(text.trim_end().len());
            text += "\n  ";
            used = 2;
        }
        text += word;
        used += width;
    }
    text + "\n"
}

/// The width of a plain terminal.
const COLUMNS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_fits_a_terminal() {
        let long = Duration::from_nanos(123_456_789);
        let count = 12_345_678;
        let cpu = CpuStatus {
            cpu: CpuId(255),
            is_awake: true,
            exit_latency: long,
            windows: count,
            late_p50: Some(long),
            late_p99: Some(long),
        };
        let account = |name: &str| AccountStatus {
            name: name.to_owned(),
            user: None,
            time: long,
            joules: 1234.567,
            accepted: count / 10,
            late: count / 10,
            came: count / 10,
            withdrawn: 0,
            expired: count / 10,
        };
        let status = WakeStatus {
            running: long,
            act: Act::Polling,
            alarm: Alarm::Kernel,
            lead: long,
            calibration: Calibration::default(),
            cpus: vec![cpu],
            accounts: vec![account("(idle)"), account("a-name-that-is-longer-than-its-column")],
            check: Some(BooksCheck {
                accounts: Duration::from_secs(123_456),
                cpuidle: Duration::from_secs(123_456),
                percent: 12.34,
                is_independent: false,
            }),
            predictors: Vec::new(),
            asked: Asked {
                accepted: count,
                refused: count,
                too_late: count,
                rung: count,
                connections: count,
                ..Asked::default()
            },
            energy: "modelled (xeon-silver-4116-no-pc6, an ESTIMATE for this unlisted processor)".to_owned(),
        };
        let text = status.text();
        let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= COLUMNS, "{widest}");
        for word in ["12345678 connected", "processor)", "longer-than-its-column"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
