//! The causes that still wake the parked CPUs.
//!
//! The daemon does not watch this all the time: that would be one more thing that wakes them. Who
//! asks watches for some seconds.

use crate::table::Table;
use anyhow::Result;
use daemon::Status;
use linux::{Root, UsageMeter};
use machine::{CpuId, CpuList, CstateIndex, Duration, LengthHistogram, Ratio};
use observe::sleep::{SleepWatch, Wakers, Without};
use serde::Serialize;
use std::collections::BTreeSet;

/// CPUs that a service might use and none has now.
fn parked(governed: &[Status]) -> CpuList {
    let of = |cpus: &dyn Fn(&Status) -> &CpuList| -> BTreeSet<CpuId> {
        governed.iter().flat_map(|service| cpus(service).0.iter().copied()).collect()
    };
    CpuList(&of(&|service| &service.allowed) - &of(&|service| &service.cpus))
}

/// The wake-ups of parked CPUs within a stretch of time.
#[derive(Serialize)]
pub struct Wakeups {
    elapsed: Duration,
    source: String,
    cpus: Vec<Parked>,
    notices: Vec<String>,
}

#[derive(Serialize)]
struct Parked {
    cpu: CpuId,
    sleeps: u64,
    wakers: Option<Wakers>,
    /// The state in which it was most of the time that it slept, or `offline`.
    mostly_in: Option<String>,
    busy: Option<Ratio>,
}

pub fn of(governed: &[Status], length: Duration) -> Result<Wakeups> {
    let parked = parked(governed);
    if parked.0.is_empty() {
        let (source, notices) = (String::new(), Vec::new());
        return Ok(Wakeups { elapsed: Duration::ZERO, source, cpus: Vec::new(), notices });
    }
    let root = Root::system();
    let (mut watch, notices) = SleepWatch::open(&root, Without::Nothing, linux::now());
    let before = watch.read(linux::now());
    let mut usage = UsageMeter::start(&root, &parked, linux::now());
    linux::sleep_until(linux::now() + length);
    let seen = watch.read(linux::now()).since(&before);
    let online = linux::online_cpus(&root)?;
    let cpus = usage.read(linux::now()).into_iter().map(|usage| {
        let slept = seen.cpus.iter().find(|slept| slept.cpu == usage.cpu);
        let idle = slept.map_or(&[][..], |slept| &slept.idle);
        let sleeps: u64 = idle.iter().map(LengthHistogram::count).sum();
        let most = (0u8..).zip(idle).max_by_key(|(_, lengths)| lengths.time());
        let name = most.filter(|(_, lengths)| lengths.count() > 0).map(|(state, _)| {
            let known = slept.and_then(|slept| slept.table.state(CstateIndex(state)));
            known.map_or_else(|| format!("state {state}"), |state| state.name.clone())
        });
        Parked {
            cpu: usage.cpu,
            sleeps,
            wakers: slept.and_then(|slept| slept.wakers).filter(|_| sleeps > 0),
            mostly_in: name.or_else(|| (!online.0.contains(&usage.cpu)).then(|| "offline".to_owned())),
            busy: usage.busy.map(|busy| Ratio::new(busy.as_secs_f64() / usage.elapsed.as_secs_f64())),
        }
    });
    let cpus = cpus.collect();
    let notices = notices.iter().map(ToString::to_string).collect();
    Ok(Wakeups { elapsed: seen.elapsed, source: seen.source.to_string(), cpus, notices })
}

impl Wakeups {
    pub fn text(&self) -> String {
        if self.cpus.is_empty() {
            return "no CPU is parked\n".to_owned();
        }
        let header =
            ["parked", "wake-ups/s", "timer", "device", "another CPU", "unseen", "mostly in", "busy"];
        let mut table = Table::new(1, header.map(str::to_owned).to_vec());
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        for cpu in &self.cpus {
            let cause = |count: &dyn Fn(&Wakers) -> u64| {
                or_dash(cpu.wakers.as_ref().map(|wakers| count(wakers).to_string()))
            };
            table.row(vec![
                cpu.cpu.to_string(),
                format!("{:.1}", cpu.sleeps as f64 / self.elapsed.as_secs_f64()),
                cause(&|wakers| wakers.timer),
                cause(&|wakers| wakers.device),
                cause(&|wakers| wakers.ipi),
                cause(&|wakers| wakers.unseen),
                or_dash(cpu.mostly_in.clone()),
                or_dash(cpu.busy.map(|busy| busy.to_string())),
            ]);
        }
        let mut text = table.text();
        text += &format!(
            "over {}, by {}; a sleep that lasted all the time is not counted: neither of its ends was seen\n",
            self.elapsed, self.source
        );
        text.extend(self.notices.iter().map(|notice| format!("{notice}\n")));
        text
    }
}
