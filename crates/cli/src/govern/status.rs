//! How a running daemon's services are, and what to change.

use super::options::{Set, Status};
use super::wakeups;
use crate::exit::{Exit, coded, usage};
use crate::table::{Table, print};
use anyhow::Result;
use daemon::{Answer, Ask, ControlError, ask};
use linux::holder::Asked;
use machine::{CpuList, Duration, FrequencyLimit};
use policy::governing::{FrequencyMode, Mode};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::SystemTime;

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
        if service.frequency != FrequencyMode::Stock {
            let by = service.frequency_actuator.map_or_else(String::new, |by| format!(" by {by}"));
            notes += &format!("{}: frequency {}{by}: {}\n", service.name, service.frequency, clocks(service));
        }
        if service.missed > 3 {
            notes += &format!("{}: the goal is missed for {} epochs\n", service.name, service.missed);
        }
    }
    for (name, why) in &waiting {
        let why = why.lines().next().unwrap_or_default();
        notes += &format!("{name}: not governed now: {why}\n");
    }
    if dry_run {
        notes += "a dry run: nothing is touched\n";
    }
    let table = if table.is_empty() { String::new() } else { table.text() };
    print(&format!("{table}{notes}{}", asked_for(&asked)))?;
    if let Some(length) = args.wakeups {
        print(&wakeups::of(&governed, length)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Which of its CPUs run how fast at the most, the slowest first.
fn clocks(service: &daemon::Status) -> String {
    let mut by_cap: BTreeMap<u64, (CpuList, String)> = BTreeMap::new();
    for &cpu in &service.allowed.0 {
        let (order, told) = match service.clocks.get(&cpu) {
            None | Some(FrequencyLimit::None) => (u64::MAX, "free".to_owned()),
            Some(FrequencyLimit::AtMost(clock)) => (clock.0, format!("at most {clock}")),
            Some(FrequencyLimit::Exactly(clock)) => (clock.0, clock.to_string()),
        };
        by_cap.entry(order).or_insert_with(|| (CpuList::default(), told)).0.0.insert(cpu);
    }
    let parts: Vec<String> = by_cap.into_values().map(|(cpus, told)| format!("CPU {cpus} {told}")).collect();
    parts.join(", ")
}

/// Changes it.
pub fn set(args: &Set) -> Result<ExitCode> {
    let what = Ask::Set { service: args.service.clone(), set: args.change };
    let old = found(args);
    match ask(&args.socket, &what).map_err(unheard)? {
        Answer::Done => {
            let changed = match (old, found(args)) {
                (Some(old), Some(new)) => format!("{}: {}\n", args.service, change(&args.change, &old, &new)),
                // It has ended meanwhile.
                _ => format!("{}: set\n", args.service),
            };
            print(&changed)?;
            Ok(ExitCode::SUCCESS)
        }
        Answer::Refused(why) => Err(usage(why)),
        Answer::Denied(why) => Err(coded(Exit::Refused, why)),
        other => Err(coded(Exit::Failed, format!("the daemon answers {other:?}"))),
    }
}

/// How the service is now, if the daemon tells.
fn found(args: &Set) -> Option<daemon::Status> {
    match ask(&args.socket, &Ask::Status) {
        Ok(Answer::Status { governed, .. }) => {
            governed.into_iter().find(|service| service.name == args.service)
        }
        _ => None,
    }
}

/// What a change made of it: old and new.
fn change(set: &daemon::Set, old: &daemon::Status, new: &daemon::Status) -> String {
    let goal =
        |status: &daemon::Status| status.goal.map_or_else(|| "none".to_owned(), |goal| goal.to_string());
    let mode = |status: &daemon::Status| match status.mode {
        Mode::Searching => "governed",
        Mode::Open { .. } => "open: all cores, no limits",
        Mode::Paused => "paused: all cores, no limits",
    };
    match set {
        daemon::Set::Goal(_) => format!("goal {} -> {}", goal(old), goal(new)),
        daemon::Set::Pause | daemon::Set::Resume => format!("{} -> {}", mode(old), mode(new)),
    }
}

/// Who asks for what of the CPUs, and what holds for all who ask.
fn asked_for(asked: &[Asked]) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut table = Table::new(5, ["cpus", "asked", "together", "by", "for"].map(str::to_owned).to_vec());
    for asked in asked {
        let together = match (&asked.together, &asked.held_by) {
            (Some(together), _) => together.to_string(),
            (None, Some(holder)) => format!("as {holder} has it"),
            (None, None) => "nobody holds it just now".to_owned(),
        };
        table.row(vec![
            asked.cpus.to_string(),
            asked.wish.to_string(),
            together,
            format!("{} ({})", asked.asker, asked.process),
            Duration::from_secs(now.saturating_sub(asked.since_unix_s)).to_string(),
        ]);
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.text()) }
}

fn unheard(error: ControlError) -> anyhow::Error {
    match error {
        ControlError::Denied { .. } => coded(Exit::Refused, error),
        other => coded(Exit::Failed, other),
    }
}
