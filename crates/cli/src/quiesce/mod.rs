//! `roost quiesce`: background work stands still while critical work waits.
//!
//! ```text
//!   options.rs    the options
//!   page.rs       the page of a run
//! ```

mod options;
mod page;

pub use options::Args;

use crate::config_file::Written;
use crate::daemon::{Request, View, govern};
use crate::live::{Live, print_line};
use crate::run_folder::Ending;
use crate::thinned::Thinned;
use ::daemon::quiesce::Quiesce;
use ::daemon::{ControllerReport, Seen, Status};
use anyhow::Result;
use linux::Root;
use machine::{Duration, Instant};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

const DRAW_EVERY: Duration = Duration::from_millis(200);
/// A line of JSON, and a point of the page's figures.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

pub fn run(args: &Args) -> Result<ExitCode> {
    let Written { config, whole } = args.configuration()?;
    for table in config.part().tables() {
        table.check().map_err(crate::daemon::refused)?;
    }
    let ending = page::KIND.ending(args.out.as_deref(), args.json)?;
    let view = Frozen {
        json: args.json,
        live: Live::new(args.json, DRAW_EVERY),
        sampled: Instant::ZERO,
        samples: Thinned::new(page::SAMPLES_MAX),
        ending,
    };
    let request = Request {
        config,
        file: None,
        root: Root::system(),
        dry_run: args.dry_run,
        take_over: false,
        names: &args.names,
        length: args.length,
        whole,
    };
    govern(request, Arc::new(Mutex::new(view)))
}

/// The frozen units, live, and the page at the end.
struct Frozen {
    json: bool,
    live: Live,
    sampled: Instant,
    samples: Thinned<page::Sample>,
    ending: Ending,
}

impl Frozen {
    fn show(&mut self, quiesce: &Quiesce) {
        let now = linux::now();
        if now >= self.sampled + SAMPLE_EVERY {
            self.sampled = now;
            let status = quiesce.status(now);
            if self.json {
                print_line(&status);
            }
            self.samples.add(|| page::Sample::of(&status));
        }
        if self.live.is_due(now) {
            self.live.draw(&quiesce.status(now).text());
        }
    }

    fn end(&mut self, quiesce: &Quiesce) {
        let last = quiesce.status(linux::now());
        if self.json {
            print_line(&last);
        } else {
            self.live.draw(&last.text());
        }
        let samples = std::mem::replace(&mut self.samples, Thinned::new(1));
        self.ending.leave(|place, started| page::write(place, started, last, samples));
    }
}

impl View for Frozen {
    fn say(&mut self, line: &str) {
        self.live.say(line);
    }

    fn seen(&mut self, seen: Seen<'_>, is_last: bool) {
        match seen {
            Seen::Quiesce(quiesce) if is_last => self.end(quiesce),
            Seen::Quiesce(quiesce) => self.show(quiesce),
            _ => {}
        }
    }

    fn polled(&mut self, _governed: &[Status], controllers: &[ControllerReport]) {
        crate::daemon::show_reports(&mut self.live, self.json, controllers);
    }
}

#[cfg(test)]
mod tests {
    use daemon::quiesce::{BackgroundStatus, CriticalStatus, EnergyStatus, PayoffStatus, QuiesceStatus};
    use linux::freezer::FreezerWay;
    use machine::{CpuId, CpuList, LengthHistogram};
    use policy::quiescence::{Outlook, Reason, Record, Verdict};

    /// After a trial that found that freezing does not pay.
    pub fn status() -> QuiesceStatus {
        let background = BackgroundStatus {
            unit: "updater.service".to_owned(),
            name: "updater.service".to_owned(),
            way: FreezerWay::V2,
            processes: 12,
            is_frozen: false,
            freezes: 123_456,
            frozen_s: 1234.5,
            frozen_share: 0.75,
            longest_ms: 250.0,
            unconfirmed: 0,
            foreign: 0,
            gone: 0,
            cost_us: Some(31.0),
            spared: None,
        };
        QuiesceStatus {
            at_ms: 123_456_789.0,
            outlook: Outlook::LeftOff,
            is_dry: false,
            trigger: None,
            critical: vec![CriticalStatus {
                unit: "4711".to_owned(),
                name: "search".to_owned(),
                processes: 3,
            }],
            background: vec![background],
            domain: "all".to_owned(),
            cpus: CpuList([CpuId(0), CpuId(1)].into()),
            all_idle_s: 5.0,
            all_idle_share: 0.598,
            all_idle_times: 12_345_678,
            all_idle: LengthHistogram::default(),
            cost_us: 123.4,
            cost_is_measured: true,
            min_wait_us: 2468.0,
            thaw_us: Some([12.0, 345.0, 6789.0]),
            record: Record::default(),
            payoff: PayoffStatus {
                verdict: Verdict {
                    pays: Some(false),
                    gain: Some(0.201),
                    gain_at_most: Some(0.4),
                    why: Some(Reason::Longer),
                    slowdown: Some(0.0),
                    cycle: Some(1.623),
                    cycle_at_most: Some(1.701),
                    wait: Some(1.711),
                    wait_at_most: Some(1.8),
                    tail: Some(1.6),
                    cycles: [256, 128],
                    pairs: 12,
                    trials: 1,
                    ..Verdict::default()
                },
                again_s: Some(59.6),
            },
            energy: EnergyStatus { source: "modelled".to_owned(), watts_without: None, watts_with: None },
            requests: 0,
            looks: 7,
            rings: 7,
            lost: 0,
            sites: Vec::new(),
            graph: Vec::new(),
        }
    }

    #[test]
    fn no_line_is_wider_than_a_terminal_whatever_there_is_to_say() {
        let mut told = status();
        let long = "/sys/fs/cgroup/".to_owned() + &"a-long-slice.slice/".repeat(9) + "updater.service";
        told.cpus.0 = (0..256).step_by(2).map(machine::CpuId).collect();
        told.critical[0].unit.clone_from(&long);
        told.background[0].unit.clone_from(&long);
        for spared in [None, Some(format!("it holds sshd (812), {}", "x".repeat(100)))] {
            told.background[0].spared = spared;
            for outlook in
                [Outlook::Busy, Outlook::Waiting, Outlook::Frozen, Outlook::LeftOff, Outlook::Blind]
            {
                told.outlook = outlook;
                for why in [None, Some(Reason::NoGain), Some(Reason::LongerTail), Some(Reason::NotExcluded)] {
                    told.payoff.verdict.why = why;
                    for pays in [None, Some(true), Some(false)] {
                        told.payoff.verdict.pays = pays;
                        let text = told.text();
                        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                        assert!(widest <= 80, "{widest} columns:\n{text}");
                        assert!(text.contains("updater.service"), "{text}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_process_is_called_by_its_program() {
        let text = status().text();
        assert!(text.contains("critical    search (4711)"), "{text}");
        assert!(text.contains("background  updater.service"), "{text}");
    }
}
