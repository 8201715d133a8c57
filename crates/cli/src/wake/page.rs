//! `report.html` of a planner's run: who asked, who paid, how late the timers were.
//!
//! Pure but for [`write()`]. Time is measured; joules are as the status says.

use crate::run_folder::{self, Kind, Place};
use crate::thinned::Thinned;
use anyhow::Result;
use daemon::wake::WakeStatus;
use report::figures::{Card, Lines, Page, Point, Quantity, Row, Section, Style, Table, Unit};
use report::run::RunInfo;
use serde::Serialize;
use std::io::Write as _;

/// How the figures are got.
const METHOD: [&str; 4] = [
    "A window's time is from the moment at which the CPU's own helper thread ran until the CPU \
     might sleep again, on the kernel's monotonic clock.",
    "Sleep is counted from the kernel's cpu_idle events where it lets programs watch them, else \
     taken from cpuidle's residency; what is left of all time is unowned.",
    "An instant that several principals asked for is paid by them in equal parts.",
    "Joules are measured only where the page says so; else they are time, multiplied by the \
     powers of this processor's table.",
];

pub const KIND: Kind = Kind { name: "wake", mark: "wake.json" };
const READINGS: &str = "readings.jsonl";
/// Readings of longer runs are thinned.
const READINGS_MAX: usize = 4096;

/// The run second by second, thinned as it grows.
#[derive(Debug)]
pub struct History {
    readings: Thinned<Reading>,
}

impl Default for History {
    fn default() -> Self {
        Self { readings: Thinned::new(READINGS_MAX) }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Reading {
    at_s: f64,
    accepted: u64,
    refused: u64,
    too_late: u64,
    windows: u64,
    awake_s: f64,
}

impl History {
    /// Half a second has passed.
    pub fn add(&mut self, status: &WakeStatus) {
        let owned = status.accounts.iter().filter(|account| !account.name.starts_with('('));
        self.readings.add(|| Reading {
            at_s: status.running.as_secs_f64(),
            accepted: status.asked.accepted,
            refused: status.asked.refused,
            too_late: status.asked.too_late,
            windows: status.cpus.iter().map(|cpu| cpu.windows).sum(),
            awake_s: owned.map(|account| account.time.as_secs_f64()).sum(),
        });
    }
}

/// Writes the run's folder, and says where its page is.
pub fn write(place: &Place, started: String, last: &WakeStatus, history: &History) -> Result<String> {
    let place = &place.make()?;
    run_folder::clear(place, &[])?;
    run_folder::write(place, READINGS, |file| {
        history.readings.kept().iter().try_for_each(|reading| {
            let line = serde_json::to_string(reading)?;
            writeln!(file, "{line}")
        })
    })?;
    let info = KIND.info(started, "CPUs woken just before the event".to_owned(), &METHOD);
    KIND.write(place, &info, last, &page(&info, last, history))
}

fn page(info: &RunInfo, last: &WakeStatus, history: &History) -> Page {
    let mut page = Page {
        summary: format!(
            "In {} the planner was asked {} times and refused {}; CPUs were woken by {} and kept \
             awake by {}. Joules are {}.",
            Unit::Seconds.text(last.running.as_secs_f64()),
            last.asked.accepted + last.asked.refused,
            last.asked.refused,
            last.alarm,
            last.act,
            last.energy
        ),
        cards: cards(last),
        sections: vec![accounts(last), cpus(last), foreseen(last), over_time(history)],
        ..Page::of(info)
    };
    if last.asked.writes_failed > 0 {
        page.alarms.push(format!("{} windows could not be opened or closed.", last.asked.writes_failed));
    }
    page
}

fn cards(last: &WakeStatus) -> Vec<Card> {
    let owned = last.accounts.iter().filter(|account| !account.name.starts_with('('));
    let (came, expired) = owned
        .clone()
        .fold((0, 0), |(came, expired), account| (came + account.came, expired + account.expired));
    let time: f64 = owned.map(|account| account.time.as_secs_f64()).sum();
    let mut cards = vec![
        Card::new("kept awake", Unit::Seconds.text(time), "CPU time, of all principals"),
        Card::new("events that came", came.to_string(), format!("{expired} windows ended without theirs")),
        Card::new("too late", last.asked.too_late.to_string(), format!("nearer than {}", last.lead)),
    ];
    if let Some(check) = &last.check {
        cards.push(Card {
            what: "accounts against cpuidle".to_owned(),
            figure: format!("{:.2} %", check.percent),
            remark: if check.is_independent { "of all time; bar 1 %" } else { "not independent" }.to_owned(),
            met: check.is_independent.then_some(check.percent <= 1.0),
        });
    }
    cards
}

fn accounts(last: &WakeStatus) -> Section {
    let row = |account: &daemon::wake::AccountStatus| Row {
        name: account.name.clone(),
        cells: vec![
            Unit::Seconds.text(account.time.as_secs_f64()),
            format!("{:.3} J", account.joules),
            account.accepted.to_string(),
            account.late.to_string(),
            account.came.to_string(),
            account.expired.to_string(),
        ],
        ..Row::default()
    };
    let head = ["principal", "CPU time", "energy", "accepted", "late", "came", "expired"];
    Section::new(
        "Who paid",
        format!("Energy is {}.", last.energy),
        vec![Table::new("", head, last.accounts.iter().map(row)).part()],
    )
}

fn cpus(last: &WakeStatus) -> Section {
    let row = |cpu: &daemon::wake::CpuStatus| {
        let late = |late: Option<machine::Duration>| late.map_or("-".to_owned(), |late| late.to_string());
        Row::new(
            cpu.cpu.to_string(),
            vec![
                cpu.windows.to_string(),
                cpu.exit_latency.to_string(),
                late(cpu.late_p50),
                late(cpu.late_p99),
            ],
        )
    };
    let head = ["CPU", "windows", "exit latency", "open after its timer, p50", "p99"];
    Section::new(
        "What waking took",
        last.calibration.text(),
        vec![Table::new("", head, last.cpus.iter().map(row)).part()],
    )
}

fn foreseen(last: &WakeStatus) -> Section {
    let predictors = last.predictors.iter().filter(|one| one.record.predicted() > 0);
    let row = |one: &daemon::wake::PredictorStatus| Row {
        name: one.name.clone(),
        cells: vec![
            one.record.predicted().to_string(),
            one.record.hit_rate().to_string(),
            one.record.within_tenth_rate().to_string(),
            one.record.accuracy().to_string(),
            one.record.absent.to_string(),
        ],
        ..Row::default()
    };
    let rows: Vec<Row> = predictors.map(row).collect();
    let head = [
        "predictor",
        "predicted",
        "in the window",
        "within a tenth",
        "one less the mean error",
        "never came",
    ];
    Section::new("What was foreseen", "", vec![Table::new("", head, rows).part()])
}

fn over_time(history: &History) -> Section {
    let mut lines = Lines::new(
        "Kept awake over time",
        "CPU time in windows per second, all CPUs together.",
        Quantity::new("time", Unit::Seconds),
        Quantity::new("CPUs kept awake", Unit::Share),
    );
    let points = history.readings.kept().windows(2).map(|pair| {
        let length = pair[1].at_s - pair[0].at_s;
        Point::new(pair[1].at_s, (length > 0.0).then(|| (pair[1].awake_s - pair[0].awake_s) / length))
    });
    lines.add("windows", Style::Line, points);
    Section::new("When", "", vec![lines.part()])
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use daemon::wake::{AccountStatus, Act, Alarm, Asked, BooksCheck, Calibration, CpuStatus};
    use machine::{CpuId, Duration};

    pub fn status(at_s: u64, awake_ms: u64) -> WakeStatus {
        let account = |name: &str, time| AccountStatus {
            name: name.to_owned(),
            user: None,
            time,
            joules: 0.25,
            accepted: 7,
            late: 1,
            came: 4,
            withdrawn: 1,
            expired: 2,
        };
        WakeStatus {
            running: Duration::from_secs(at_s),
            act: Act::Polling,
            alarm: Alarm::Kernel,
            lead: Duration::from_micros(240),
            calibration: Calibration::default(),
            cpus: vec![CpuStatus {
                cpu: CpuId(3),
                is_awake: false,
                exit_latency: Duration::from_micros(130),
                windows: 7,
                late_p50: Some(Duration::from_micros(40)),
                late_p99: None,
            }],
            accounts: vec![
                account("<search>", Duration::from_millis(awake_ms)),
                account("(idle)", Duration::from_secs(at_s)),
            ],
            check: Some(BooksCheck {
                accounts: Duration::from_secs(1),
                cpuidle: Duration::from_secs(1),
                percent: 0.04,
                is_independent: true,
            }),
            predictors: Vec::new(),
            asked: Asked { accepted: 7, too_late: 3, ..Asked::default() },
            energy: "modelled (a table)".to_owned(),
        }
    }

    #[test]
    fn the_page_tells_who_paid_and_that_it_is_modelled() {
        let info = KIND.info("2026-11-22".into(), "test".into(), &METHOD);
        let mut history = History::default();
        (1..4).for_each(|at| history.add(&status(at, 10 * at)));
        let json = page(&info, &status(4, 40), &history).json();
        for words in
            ["<search>", "(idle)", "modelled (a table)", "bar 1 %", "nearer than 240us", "CPUs kept awake"]
        {
            assert!(json.contains(words), "{words}: {json}");
        }
    }

    #[test]
    fn the_view_fits_a_terminal_of_eighty_columns() {
        let text = WakeStatus {
            asked: Asked {
                accepted: 1_234_567,
                refused: 12_345,
                too_late: 12_345,
                rung: 1_234_567,
                ..Asked::default()
            },
            ..status(3_600, 123_456_000)
        }
        .text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("1234567 accepted") && text.contains("modelled (a table)"), "{text}");
    }

    #[test]
    fn a_long_run_keeps_a_bounded_number_of_readings_from_its_whole_length() {
        let mut history = History::default();
        (0..50_000).for_each(|at| history.add(&status(at, at)));
        let readings = history.readings.kept();
        assert!(readings.len() < READINGS_MAX);
        assert!(readings.first().is_some_and(|first| first.at_s < 100.0));
        assert!(readings.last().is_some_and(|last| last.at_s > 49_000.0));
    }
}
