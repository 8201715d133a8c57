//! A service as it would be governed: looked at, and not touched.

use super::options::GovernArgs;
use crate::exit::usage;
use crate::table::print;
use anyhow::Result;
use daemon::{Config, Prospect, ServiceConfig};
use linux::arbiter::ClockMeans;
use linux::{FrequencyActuator, Root};
use machine::{CpuList, Kilohertz};
use serde::{Serialize, Serializer};
use std::fmt::Write as _;
use std::process::ExitCode;

#[derive(Serialize)]
struct Plans<'a> {
    services: &'a [Plan],
    #[serde(skip_serializing_if = "Option::is_none")]
    lend: Option<Lend>,
}

/// The group that would have the CPUs which no service needs.
#[derive(Serialize)]
struct Lend {
    to: String,
    /// Why it cannot have them now.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_now: Option<String>,
}

#[derive(Serialize)]
struct Plan {
    name: String,
    policy: String,
    goal: Option<machine::Goal>,
    /// How many cores it is to have, where a person has said it.
    cores: Option<u16>,
    idle: policy::governing::IdleModes,
    frequency: policy::governing::FrequencyMode,
    /// The means of its clocks, where one is named.
    frequency_actuator: Option<FrequencyActuator>,
    uncore: policy::governing::UncoreMode,
    /// The service found, or the reason for its absence.
    #[serde(serialize_with = "found_or_not")]
    found: Result<Found, String>,
}

#[derive(Serialize)]
struct Found {
    command: String,
    processes: Vec<u32>,
    ports: Vec<u16>,
    /// Cores in the order in which they are given, each with its CPUs.
    cores: Vec<CpuList>,
    /// The fewest that it is left with.
    min_cores: u16,
    /// Parked CPUs go offline; or why they cannot.
    #[serde(serialize_with = "possible_or_not")]
    hotplug: Option<Result<(), String>>,
    /// The clocks that can be chosen, slow to fast; none where the kernel's choice stays.
    clocks: Vec<Kilohertz>,
    /// The same of its sockets' uncore.
    uncore_clocks: Vec<Kilohertz>,
}

fn found_or_not<S: Serializer>(found: &Result<Found, String>, serializer: S) -> Result<S::Ok, S::Error> {
    match found {
        Ok(found) => found.serialize(serializer),
        Err(why) => serializer.collect_map([("not_now", why)]),
    }
}

fn possible_or_not<S: Serializer>(
    hotplug: &Option<Result<(), String>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let text = hotplug.as_ref().map(|hotplug| hotplug.as_ref().map_or_else(String::as_str, |()| "possible"));
    text.serialize(serializer)
}

pub fn run(args: &GovernArgs) -> Result<ExitCode> {
    let config = args.configuration()?.config;
    warn_of_nothing(&config);
    let root = Root::system();
    let plans: Vec<Plan> =
        config.services.iter().map(|service| plan(&root, service, config.clock_means())).collect();
    let lend = config.lend.as_ref().map(|borrower| Lend {
        to: borrower.to_string(),
        not_now: linux::lendable(&root, borrower.group()).err().map(|error| error.to_string()),
    });
    if args.json {
        crate::json::print(1, &Plans { services: &plans, lend })?;
        return impossible(&plans);
    }
    let mut text = String::new();
    for plan in &plans {
        tell(&mut text, plan);
    }
    if let Some(Lend { to, not_now }) = &lend {
        let _ = match not_now {
            None => writeln!(
                text,
                "{to} has the CPUs that no service needs, and stands still while there are none"
            ),
            Some(reason) => writeln!(text, "{to}: not now: {reason}"),
        };
    }
    if plans.is_empty() {
        text.push_str("no service is configured, so nothing would be governed\n");
    }
    print(&text)?;
    impossible(&plans)
}

/// A fixed policy that fixes nothing is taken, since its service may be watched; it is not taken
/// silently.
pub fn warn_of_nothing(config: &Config) {
    for service in &config.services {
        if service.changes_nothing() {
            eprintln!(
                "{}: policy = \"fixed\" without cores, idle, frequency or uncore changes nothing; write \
                 cores = 1, say",
                service.name
            );
        }
    }
}

/// More cores than there are is no plan, whatever else there is to say.
fn impossible(plans: &[Plan]) -> Result<ExitCode> {
    let too_many = plans.iter().find_map(|plan| {
        let (asked, there) = (plan.cores?, plan.found.as_ref().ok()?.cores.len());
        (usize::from(asked) > there).then(|| {
            format!(
                "{}: cores = {asked} is more than the {there} that it may run on\nhint: write \
                     cores = {there} or fewer",
                plan.name
            )
        })
    });
    too_many.map_or(Ok(ExitCode::SUCCESS), |why| Err(usage(why)))
}

fn plan(root: &Root, config: &ServiceConfig, means: ClockMeans) -> Plan {
    let found = Prospect::of(root, config, means).map_err(|error| error.to_string()).map(|prospect| Found {
        command: prospect.service.name,
        processes: prospect.service.processes.into_iter().collect(),
        ports: prospect.service.ports.into_iter().collect(),
        cores: prospect
            .topology
            .cores
            .into_iter()
            .map(|threads| CpuList(threads.into_iter().collect()))
            .collect(),
        min_cores: config.min_cores,
        hotplug: config.hotplug.then(|| linux::Hotplug::supported(root).map_err(|error| error.to_string())),
        clocks: prospect
            .topology
            .points
            .map(|points| points.iter().map(|point| points.khz(point)).collect())
            .unwrap_or_default(),
        uncore_clocks: prospect.topology.uncore,
    });
    Plan {
        name: config.name.clone(),
        policy: config.policy_name(),
        goal: config.goal,
        cores: config.cores,
        idle: config.idle.clone(),
        frequency: config.frequency,
        frequency_actuator: means.actuator,
        uncore: config.uncore,
        found,
    }
}

fn tell(text: &mut String, plan: &Plan) {
    let goal = plan.goal.map_or_else(String::new, |goal| format!(", goal {goal}"));
    let _ = writeln!(
        text,
        "{}: {}{goal}, idle {}, frequency {}, uncore {}",
        plan.name, plan.policy, plan.idle, plan.frequency, plan.uncore
    );
    match &plan.found {
        Err(error) => {
            let _ = writeln!(text, "  not now: {error}");
        }
        Ok(found) => {
            let numbers: Vec<String> = found.processes.iter().map(ToString::to_string).collect();
            let ports: Vec<String> = found.ports.iter().map(ToString::to_string).collect();
            let cores: Vec<String> = found.cores.iter().map(ToString::to_string).collect();
            let _ = writeln!(
                text,
                "  {} (process {}), port {}",
                found.command,
                numbers.join(", "),
                ports.join(", ")
            );
            let _ = writeln!(
                text,
                "  {} to {} cores, given in this order: CPU {}",
                found.min_cores.min(found.cores.len() as u16),
                found.cores.len(),
                cores.join(" | ")
            );
            match &found.hotplug {
                None => {}
                Some(Ok(())) => {
                    text.push_str("  CPUs that it leaves, and no other service has, go offline\n")
                }
                Some(Err(reason)) => {
                    let _ = writeln!(text, "  not now: {reason}");
                }
            }
            if let (Some(slowest), Some(fastest)) = (found.clocks.first(), found.clocks.last()) {
                let count = found.clocks.len();
                let _ = writeln!(
                    text,
                    "  clocks capped between {slowest} and {fastest}, in {count} steps{}",
                    by_what(plan.frequency_actuator)
                );
            }
            if let [slowest, .., fastest] = found.uncore_clocks[..] {
                let count = found.uncore_clocks.len();
                let _ = writeln!(text, "  uncore between {slowest} and {fastest}, in {count} steps");
            }
            let _ = writeln!(text, "  nothing was touched; the same without --dry-run governs it");
        }
    }
}

/// The actuator of a cap, where that is no clock.
fn by_what(actuator: Option<FrequencyActuator>) -> &'static str {
    match actuator {
        None => "",
        Some(FrequencyActuator::SetSpeed) => ", by scaling_setspeed; the governor is userspace meanwhile",
        Some(FrequencyActuator::Bounds) => ", by the bounds",
        Some(FrequencyActuator::Preference) => {
            ", by the energy preference: a hint to the hardware, from what it is now to `power`"
        }
        Some(FrequencyActuator::DutyCycle) => {
            ", by duty cycle: writes an MSR, which taints the kernel until the next boot"
        }
        Some(FrequencyActuator::PowerCap) => {
            ", by a cap on each socket's power: 30 % (or the least that RAPL takes) to what it is now"
        }
        Some(FrequencyActuator::Uncore) => ", of the uncore",
    }
}
