//! The state of a running daemon's services, and changes to it.

use super::wakeups;
use crate::exit::{Exit, coded, usage};
use crate::table::{Table, print};
use ::daemon::{Answer, Ask, ControlError, ControllerReport, ControllerState, ask};
use anyhow::Result;
use linux::arbiter::Asked;
use machine::{CpuList, Duration, FrequencyLimit};
use policy::governing::{Failure, FrequencyMode, Mode};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

/// The services and controllers of a running daemon, or the state of a running proxy
#[derive(clap::Args)]
#[command(after_help = include_str!("../../help/status.txt"))]
pub struct Status {
    /// The metrics of a running `roost stage`: show that proxy in the daemon's place
    #[arg(value_name = "ADDRESS:PORT", conflicts_with_all = ["socket", "wakeups"])]
    proxy: Option<String>,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Watch the parked CPUs for this long, and count their wake-ups by cause
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s")]
    wakeups: Option<Duration>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Change the goal of a service that is governed
#[derive(clap::Args)]
#[command(after_help = include_str!("../../help/set.txt"))]
pub struct Set {
    #[command(flatten)]
    named: Named,
    /// goal=TIME@pQ
    #[arg(value_parser = parse_set)]
    change: ::daemon::Set,
}

/// Pause a service or a controller: its changes are put back
#[derive(clap::Args)]
#[command(after_help = include_str!("../../help/pause.txt"))]
pub struct Pause {
    #[command(flatten)]
    named: Named,
}

/// Resume a service or a controller that was paused
#[derive(clap::Args)]
#[command(after_help = include_str!("../../help/resume.txt"))]
pub struct Resume {
    #[command(flatten)]
    named: Named,
}

#[derive(clap::Args)]
struct Named {
    /// The service or controller, as `roost status` names it
    name: String,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Whole {
    governed: Vec<::daemon::Status>,
    waiting: Vec<(String, String)>,
    controllers: Vec<ControllerReport>,
    asked: Vec<Asked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lent: Option<::daemon::Lent>,
    dry_run: bool,
    wakeups: Option<wakeups::Wakeups>,
}

/// The document of `set`, `pause` and `resume`.
#[derive(Serialize)]
struct Changed<'a> {
    name: &'a str,
    changed: String,
}

fn parse_set(text: &str) -> Result<::daemon::Set, String> {
    match text.split_once('=') {
        Some(("goal", goal)) => goal.parse().map(::daemon::Set::Goal),
        _ => Err("write goal=500us@p99; see also `roost pause` and `roost resume`".to_owned()),
    }
}

fn place(socket: Option<&PathBuf>) -> PathBuf {
    super::socket_or(socket, &linux::Root::system())
}

/// Pauses a service or a controller: its changes are put back until it is resumed.
pub fn pause(args: &Pause) -> Result<ExitCode> {
    change_of(&args.named, ::daemon::Set::Pause)
}

pub fn resume(args: &Resume) -> Result<ExitCode> {
    change_of(&args.named, ::daemon::Set::Resume)
}

pub fn set(args: &Set) -> Result<ExitCode> {
    change_of(&args.named, args.change)
}

pub fn show(args: &Status) -> Result<ExitCode> {
    if let Some(address) = &args.proxy {
        return crate::stage::status(address, args.json);
    }
    let answer = ask(&place(args.socket.as_ref()), &Ask::Status).map_err(unheard)?;
    let Answer::Status { governed, waiting, asked, controllers, lent, dry_run } = answer else {
        return Err(coded(Exit::Failed, format!("the daemon answers {answer:?}")));
    };
    if args.json {
        let wakeups = args.wakeups.map(|length| wakeups::of(&governed, length)).transpose()?;
        crate::json::print(2, &Whole { governed, waiting, controllers, asked, lent, dry_run, wakeups })?;
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
                let again = match failure {
                    Failure::Policy { .. } => "until it is governed anew".to_owned(),
                    _ => format!("again in {left} epochs"),
                };
                notes += &format!("{}: all cores, no limits: {failure}; {again}\n", service.name);
            }
            Mode::Paused => notes += &format!("{}: paused; `roost resume {}`\n", service.name, service.name),
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
    if let Some(lent) = &lent {
        notes += &told_of(lent);
    }
    if dry_run {
        notes += "a dry run: nothing is touched\n";
    }
    let table = if table.is_empty() { String::new() } else { table.text() };
    let controllers: String = controllers.iter().map(controller).collect();
    print(&format!("{table}{notes}{controllers}{}", asked_for(&asked)))?;
    if let Some(length) = args.wakeups {
        print(&wakeups::of(&governed, length)?.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The CPUs of the group of batch work, and its CPU time so far.
fn told_of(lent: &::daemon::Lent) -> String {
    let now = match lent.cpus.0.is_empty() {
        true => "stands still, since no CPU is free".to_owned(),
        false => format!("has CPU {} lent", lent.cpus),
    };
    let used = lent.used.map_or_else(String::new, |used| format!("; {used} of CPU time so far"));
    format!("{}: {now}{used}\n", lent.to)
}

/// Which of its CPUs run how fast at the most, the slowest first.
fn clocks(service: &::daemon::Status) -> String {
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

fn change_of(named: &Named, set: ::daemon::Set) -> Result<ExitCode> {
    let (name, socket) = (named.name.as_str(), place(named.socket.as_ref()));
    let found = || match ask(&socket, &Ask::Status) {
        Ok(Answer::Status { governed, .. }) => governed.into_iter().find(|service| service.name == name),
        _ => None,
    };
    let old = found();
    match ask(&socket, &Ask::Set { service: name.to_owned(), set }).map_err(unheard)? {
        Answer::Done => {
            let changed = match (old, found(), set) {
                (Some(old), Some(new), _) => change(&set, &old, &new),
                (_, _, ::daemon::Set::Pause) => "paused".to_owned(),
                (_, _, ::daemon::Set::Resume) => "resumed".to_owned(),
                // It has ended meanwhile.
                _ => "set".to_owned(),
            };
            if named.json {
                crate::json::print(1, &Changed { name, changed })?;
            } else {
                print(&format!("{name}: {changed}\n"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Answer::Refused(why) => Err(usage(why)),
        Answer::Denied(why) => Err(coded(Exit::Refused, why)),
        other => Err(coded(Exit::Failed, format!("the daemon answers {other:?}"))),
    }
}

/// A controller's name and where it stands, then its own lines.
fn controller(report: &ControllerReport) -> String {
    let state = match report.state {
        ControllerState::Opening => "takes hold",
        ControllerState::Running => "runs",
        ControllerState::Waiting => "waits",
        ControllerState::Paused => "paused",
        ControllerState::Withdrawn => "withdrawn",
    };
    let why = report
        .why
        .as_ref()
        .map_or_else(String::new, |why| format!(": {}", why.lines().next().unwrap_or_default()));
    let text: String = report.text.lines().map(|line| format!("  {line}\n")).collect();
    format!("\n{} ({}) {state}{why}\n{text}", report.name, report.owner)
}

/// The result of a change: old and new.
fn change(set: &::daemon::Set, old: &::daemon::Status, new: &::daemon::Status) -> String {
    let goal =
        |status: &::daemon::Status| status.goal.map_or_else(|| "none".to_owned(), |goal| goal.to_string());
    let mode = |status: &::daemon::Status| match status.mode {
        Mode::Searching => "governed",
        Mode::Open { .. } => "open: all cores, no limits",
        Mode::Paused => "paused: all cores, no limits",
    };
    match set {
        ::daemon::Set::Goal(_) => format!("goal {} -> {}", goal(old), goal(new)),
        ::daemon::Set::Pause | ::daemon::Set::Resume => format!("{} -> {}", mode(old), mode(new)),
    }
}

/// The requests for CPU settings by process, and the values in force for all of them.
fn asked_for(asked: &[Asked]) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut table = Table::new(5, ["cpus", "asked", "together", "by", "for"].map(str::to_owned).to_vec());
    for asked in asked {
        let together = asked.together.map_or_else(
            || "its holder is about to let go of it".to_owned(),
            |together| together.to_string(),
        );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_goal() {
        assert_eq!(parse_set("goal=1ms@p95"), Ok(::daemon::Set::Goal("1ms@p95".parse().unwrap())));
        for wrong in ["", "goal", "goal=", "pause", "goal=fast"] {
            assert!(parse_set(wrong).is_err(), "{wrong}");
        }
    }
}
