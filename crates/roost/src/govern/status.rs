//! How a running daemon's services are, and what to change.

use super::options::{Set, Status};
use crate::exit::{Exit, coded, usage};
use crate::table::{Table, print};
use anyhow::Result;
use governor::{Answer, Ask, ControlError, ask};
use host::{Root, UsageMeter};
use machine::{CpuId, CpuList, CstateIndex, Duration, LengthHistogram, Ratio};
use observe::sleep::{SleepWatch, Wakers, Without};
use policy::governing::Mode;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Tells it.
pub fn show(args: &Status) -> Result<ExitCode> {
    let answer = ask(&args.socket, &Ask::Status).map_err(unheard)?;
    let Answer::Status { governed, waiting, asked, dry_run } = answer else {
        return Err(coded(Exit::Failed, format!("the daemon answers {answer:?}")));
    };
    if args.json {
        let whole = serde_json::json!({ "governed": governed, "waiting": waiting, "asked": asked, "dry_run": dry_run });
        print(&format!("{}\n", serde_json::to_string_pretty(&whole)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let header = ["service", "policy", "cores", "cpus", "rate", "tail", "goal"];
    let mut table = Table::new(2, header.map(str::to_owned).to_vec());
    let mut notes = String::new();
    for service in &governed {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.row(vec![
            service.name.clone(),
            service.policy.clone(),
            format!("{}/{}", service.cores.0, service.cores.1),
            service.cpus.to_string(),
            or_dash(service.service.rate.map(|rate| format!("{:.0}/s", rate.as_per_second()))),
            or_dash(service.service.tail.or(service.service.p95).map(|tail| tail.to_string())),
            or_dash(service.goal.map(|goal| goal.to_string())),
        ]);
        match &service.mode {
            Mode::Searching => {}
            Mode::Open { failure, left } => {
                notes +=
                    &format!("{}: all cores, no limits: {failure}; again in {left} epochs\n", service.name);
            }
            Mode::Paused => {
                notes += &format!("{}: paused; `roost govern set {} resume`\n", service.name, service.name)
            }
        }
        if service.missed > 3 {
            notes += &format!("{}: the goal is missed for {} epochs\n", service.name, service.missed);
        }
    }
    for (name, why) in &waiting {
        let why = why.lines().next().unwrap_or_default();
        notes += &format!("{name}: not governed now: {why}\n");
    }
    for asked in &asked {
        notes +=
            &format!("{}: {} asks for an exit latency of at most {}\n", asked.cpu, asked.asker, asked.limit);
    }
    if dry_run {
        notes += "a dry run: nothing is touched\n";
    }
    let table = if table.is_empty() { String::new() } else { table.text() };
    print(&format!("{table}{notes}"))?;
    if let Some(length) = args.wakeups {
        print(&wakeups(&parked(&governed), length)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// CPUs that a service might use and none has now.
fn parked(governed: &[governor::Status]) -> CpuList {
    let of = |cpus: &dyn Fn(&governor::Status) -> &CpuList| -> BTreeSet<CpuId> {
        governed.iter().flat_map(|service| cpus(service).0.iter().copied()).collect()
    };
    CpuList(&of(&|service| &service.allowed) - &of(&|service| &service.cpus))
}

/// What still wakes the CPUs that are parked: a daemon that did this all the time would be one more thing that does.
fn wakeups(parked: &CpuList, length: Duration) -> Result<String> {
    if parked.0.is_empty() {
        return Ok("no CPU is parked\n".to_owned());
    }
    let root = Root::system();
    let (mut watch, notices) = SleepWatch::open(&root, Without::Nothing, host::now());
    let before = watch.read(host::now());
    let mut usage = UsageMeter::start(&root, parked, host::now());
    host::sleep_until(host::now() + length);
    let seen = watch.read(host::now()).since(&before);
    let header = ["parked", "wake-ups/s", "timer", "device", "another CPU", "unseen", "mostly in", "busy"];
    let mut table = Table::new(1, header.map(str::to_owned).to_vec());
    for usage in usage.read(host::now()) {
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
            name.unwrap_or_else(|| "-".to_owned()),
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

/// Changes it.
pub fn set(args: &Set) -> Result<ExitCode> {
    let what = Ask::Set { service: args.service.clone(), set: args.change };
    match ask(&args.socket, &what).map_err(unheard)? {
        Answer::Done => Ok(ExitCode::SUCCESS),
        Answer::Refused(why) => Err(usage(why)),
        other => Err(coded(Exit::Failed, format!("the daemon answers {other:?}"))),
    }
}

fn unheard(error: ControlError) -> anyhow::Error {
    coded(Exit::Failed, error)
}
