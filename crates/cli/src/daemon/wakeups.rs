//! What still wakes the CPUs that are parked.
//!
//! The daemon does not watch this all the time: that would be one more thing that wakes them. Who asks watches for some seconds.

use crate::table::Table;
use anyhow::Result;
use daemon::Status;
use linux::{Root, UsageMeter};
use machine::{CpuId, CpuList, CstateIndex, Duration, LengthHistogram, Ratio};
use observe::sleep::{SleepWatch, Wakers, Without};
use std::collections::BTreeSet;

/// CPUs that a service might use and none has now.
fn parked(governed: &[Status]) -> CpuList {
    let of = |cpus: &dyn Fn(&Status) -> &CpuList| -> BTreeSet<CpuId> {
        governed.iter().flat_map(|service| cpus(service).0.iter().copied()).collect()
    };
    CpuList(&of(&|service| &service.allowed) - &of(&|service| &service.cpus))
}

/// Watches them for `length`, and tells.
pub fn of(governed: &[Status], length: Duration) -> Result<String> {
    let parked = parked(governed);
    if parked.0.is_empty() {
        return Ok("no CPU is parked\n".to_owned());
    }
    let root = Root::system();
    let (mut watch, notices) = SleepWatch::open(&root, Without::Nothing, linux::now());
    let before = watch.read(linux::now());
    let mut usage = UsageMeter::start(&root, &parked, linux::now());
    linux::sleep_until(linux::now() + length);
    let seen = watch.read(linux::now()).since(&before);
    let header = ["parked", "wake-ups/s", "timer", "device", "another CPU", "unseen", "mostly in", "busy"];
    let mut table = Table::new(1, header.map(str::to_owned).to_vec());
    let online = linux::online_cpus(&root)?;
    for usage in usage.read(linux::now()) {
        let slept = seen.cpus.iter().find(|slept| slept.cpu == usage.cpu);
        let idle = slept.map_or(&[][..], |slept| &slept.idle);
        let sleeps: u64 = idle.iter().map(LengthHistogram::count).sum();
        // The state in which it was most of the time that it slept.
        let most = (0u8..).zip(idle).max_by_key(|(_, lengths)| lengths.time());
        let name = most.filter(|(_, lengths)| lengths.count() > 0).map(|(state, _)| {
            let known = slept.and_then(|slept| slept.table.state(CstateIndex(state)));
            known.map_or_else(|| format!("state {state}"), |state| state.name.clone())
        });
        let wakers = slept.and_then(|slept| slept.wakers).filter(|_| sleeps > 0);
        let cause = |count: &dyn Fn(&Wakers) -> u64| {
            wakers.as_ref().map_or_else(|| "-".to_owned(), |wakers| count(wakers).to_string())
        };
        let busy = usage.busy.map(|busy| Ratio::new(busy.as_secs_f64() / usage.elapsed.as_secs_f64()));
        table.row(vec![
            usage.cpu.to_string(),
            format!("{:.1}", sleeps as f64 / seen.elapsed.as_secs_f64()),
            cause(&|wakers| wakers.timer),
            cause(&|wakers| wakers.device),
            cause(&|wakers| wakers.ipi),
            cause(&|wakers| wakers.unseen),
            name.unwrap_or_else(|| if online.0.contains(&usage.cpu) { "-" } else { "offline" }.to_owned()),
            busy.map_or_else(|| "-".to_owned(), |busy| busy.to_string()),
        ]);
    }
    let mut text = table.text();
    text += &format!(
        "over {length}, by {}; a sleep that lasted all the time is not counted, since neither of its ends was seen\n",
        seen.source
    );
    text.extend(notices.iter().map(|notice| format!("{notice}\n")));
    Ok(text)
}
