//! Finding a service and taking hold of it; or why not.

use super::own::Own;
use super::{EpochReport, Governed};
use crate::clocks::{self, Pace};
use crate::config::{Config, ServiceConfig, Target};
use crate::controllers::cores::telemetry::Telemetry;
use linux::arbiter::ClockMeans;
use linux::service::{Service, ServiceError};
use linux::{
    ConfineError, ConfineOptions, Confiner, IdleMisprediction, Root, RotatingLog, SegmentBounds,
    UncoreDomain, UsageMeter,
};
use machine::{CpuId, CpuList, CstateKind, Duration, FrequencyLimit, Instant, ServiceReading};
use policy::governing::{
    CpuTopology, FrequencyMode, IdleMode, ServiceController, UncoreMode, cores_in_order,
};
use policy::log::state_line;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use thiserror::Error;

/// Why a service cannot be governed.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error(
        "the requests of {service} cannot be seen here: {reason}\nhint: `roost doctor` tells what is missing"
    )]
    Blind { service: String, reason: String },
    /// It does not tell of itself.
    #[error("{service} does not tell of itself: {reason}")]
    Unheard {
        service: String,
        /// The question, the answer, and the remedy.
        reason: String,
    },
    /// It cannot be kept on CPUs.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    #[error("{service}: cpus = \"{asked}\" leaves none: it may run on {allowed}")]
    NoCpu { service: String, asked: CpuList, allowed: CpuList },
    /// Its policy of one's own cannot decide here.
    #[error("{service}: {reason}")]
    Policy {
        service: String,
        /// The obstacle, and the remedy.
        reason: String,
    },
    /// Its clocks cannot be chosen here.
    #[error("{service}: {reason}")]
    Clocks {
        service: String,
        /// The missing feature, and the remedy.
        reason: String,
    },
    #[error(
        "cannot record into {folder}: {cause}\nhint: name another folder with `record` in the configuration"
    )]
    Record { folder: String, cause: std::io::Error },
}

/// The CPUs that a dry run would work on.
pub struct Prospect {
    pub service: Service,
    /// The CPUs that it may use.
    pub allowed: CpuList,
    /// Its cores and their idle states.
    pub topology: CpuTopology,
}

impl Prospect {
    pub fn of(root: &Root, config: &ServiceConfig, means: ClockMeans) -> Result<Self, OpenError> {
        let service = config.target.find(root)?;
        // Threads run on the CPUs of the machine that runs; a made-up one has CPUs of its own.
        let allowed = if *root == Root::system() {
            linux::cpus_of(&service)?
        } else {
            linux::online_cpus(root).map_err(ConfineError::from)?
        };
        let allowed = within(config, &allowed)?;
        if let Some(reason) = clocks::missing(root, config.frequency, &allowed, means) {
            return Err(OpenError::Clocks { service: config.name.clone(), reason });
        }
        if let Some(reason) = clocks::uncore_missing(root, config.uncore, &allowed) {
            return Err(OpenError::Clocks { service: config.name.clone(), reason });
        }
        let topology = topology(root, config, &allowed, means);
        Ok(Self { service, allowed, topology })
    }
}

/// The circumstances in which a service is opened.
pub struct Open<'a> {
    /// The folder below which `/sys`, `/proc` and `/run` lie.
    pub root: &'a Root,
    pub daemon: &'a Config,
    /// All processes of the service must be this user's.
    pub only_user: Option<u32>,
    pub dry_run: bool,
}

impl Governed {
    /// Finds the service, begins to watch it, and takes hold of its CPUs, all of which it keeps for
    /// now.
    pub fn open(
        open: &Open<'_>,
        config: &ServiceConfig,
        now: Instant,
        report: &mut EpochReport,
    ) -> Result<Self, OpenError> {
        let &Open { root, daemon, only_user, dry_run } = open;
        let (means, epoch) = (daemon.clock_means(), daemon.epoch);
        let prospect = Prospect::of(root, config, means)?;
        if let Some(user) = only_user
            && let Some(process) = linux::not_own(&prospect.service.processes, user)
        {
            return Err(ConfineError::NotOwn { process, user }.into());
        }
        let own = Own::open(root, config, &prospect.topology, epoch, now)?;
        let mut telemetry = Telemetry::open(root, &prospect.service, config, epoch, now)?;
        let notices = telemetry.drain_notices();
        report.notices.extend(notices.into_iter().map(|notice| format!("{}: {notice}", config.name)));
        let confiner = if dry_run {
            None
        } else {
            let options = ConfineOptions {
                actuator: config.actuator,
                only_user,
                ..ConfineOptions::new(format!("roost govern {}", config.name))
            };
            let mut confiner = Confiner::open(root, &prospect.service, options)?;
            report.notices.extend(
                confiner.drain_notices().into_iter().map(|notice| format!("{}: {notice}", config.name)),
            );
            Some(confiner)
        };
        let policy = ServiceController::new(config.params(epoch), prospect.topology);
        if policy.idle_has_no_effect() {
            report.notices.push(format!(
                "{}: idle = \"{}\" has no effect here: these CPUs have no second state that halts",
                config.name, config.idle
            ));
        }
        let recording = daemon.record.as_deref().map(|folder| {
            let instance = unused_instance(folder, &config.name);
            RotatingLog::begin(folder, &instance, BOUNDS, &state_line(&policy))
                .map_err(|cause| OpenError::Record { folder: folder.display().to_string(), cause })
        });
        let recording = recording.transpose()?;
        let premature = premature_sleeps(root, config, &prospect.allowed, report);
        let pace = pace(config, &prospect.allowed)?;
        let cpuset = cpuset(root, config, &prospect.service);
        let uncore_domains = uncore_domains(root, config, &prospect.allowed);
        let mut usage = UsageMeter::start(root, &prospect.allowed, now);
        let last_usage = usage.read(now);
        Ok(Self {
            root: root.clone(),
            config: config.clone(),
            service: prospect.service,
            cpus: policy.active(),
            policy,
            own,
            telemetry,
            confiner,
            usage,
            premature,
            pace,
            means,
            clocks: None,
            uncore: None,
            uncore_domains,
            park: None,
            last_usage,
            cpuset,
            recording,
            pending: None,
            pending_clocks: BTreeMap::new(),
            repaired: false,
            limits: BTreeMap::new(),
            yielded: BTreeSet::new(),
            limits_of_clocks: BTreeMap::new(),
            pending_uncore: None,
            limit_of_uncore: FrequencyLimit::None,
            last_uncore: None,
            last: ServiceReading::default(),
            last_cpus: Vec::new(),
            last_change: None,
            epochs: 0,
            missed: 0,
        })
    }
}

/// The uncore of its sockets, where that is to be chosen.
fn uncore_domains(root: &Root, config: &ServiceConfig, allowed: &CpuList) -> Vec<UncoreDomain> {
    if config.uncore == UncoreMode::Stock {
        return Vec::new();
    }
    let mut domains = linux::uncore_domains(root, &mut linux::Gaps::default());
    domains.retain(|domain| !domain.cpus.0.is_disjoint(&allowed.0));
    domains
}

/// The cpuset that another program may change while we govern: the file, and its CPUs.
fn cpuset(root: &Root, config: &ServiceConfig, service: &Service) -> Option<(String, CpuList)> {
    let Target::Cgroup(folder, _) = &config.target else { return None };
    let file = linux::service::cpuset_file(root, folder, *service.processes.first()?)?;
    let cpus = linux::service::cpus_in_force(root, &file)?;
    Some((file, cpus))
}

/// Counting costs an interrupt for each CPU and epoch, so only where it decides something.
fn pace(config: &ServiceConfig, cpus: &CpuList) -> Result<Option<Pace>, OpenError> {
    if config.frequency != FrequencyMode::Sensitivity {
        return Ok(None);
    }
    Pace::open(cpus).map(Some).map_err(|reason| OpenError::Clocks { service: config.name.clone(), reason })
}

/// A service that ended and came back, or a restarted daemon, must not overwrite an earlier
/// recording, nor go on with it: it begins with another state. `~` is in no service's name.
pub(super) fn unused_instance(folder: &Path, name: &str) -> String {
    unused_name(folder, &format!("service-{name}"))
}

/// `name`, or where a recording of that name is there, `name~2` and so on.
pub(crate) fn unused_name(folder: &Path, name: &str) -> String {
    let mut instances = (1u64..).map(|run| match run {
        1 => name.to_owned(),
        run => format!("{name}~{run}"),
    });
    // The first segments of a long run are gone, so any of them counts.
    let taken: Vec<String> = std::fs::read_dir(folder)
        .map(|entries| {
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    let is_taken = |instance: &String| taken.iter().any(|file| file.starts_with(&format!("{instance}.")));
    instances.find(|instance| !is_taken(instance)).expect("numbers do not end")
}

/// Only the loop on them asks for premature sleeps.
pub(super) fn premature_sleeps(
    root: &Root,
    config: &ServiceConfig,
    cpus: &CpuList,
    report: &mut EpochReport,
) -> IdleMisprediction {
    if !config.idle.any(|mode| mode == IdleMode::Feedback) {
        return IdleMisprediction::start(root, &CpuList::default());
    }
    let sleeps = IdleMisprediction::start(root, cpus);
    if sleeps.is_blind() {
        report.notices.push(format!(
            "{}: idle = \"feedback\" has no effect here: the kernel counts no premature sleeps \
             (`above`, since 5.1)",
            config.name
        ));
    }
    sleeps
}

/// The part of `allowed` that the configuration leaves.
fn within(config: &ServiceConfig, allowed: &CpuList) -> Result<CpuList, OpenError> {
    let Some(asked) = &config.cpus else { return Ok(allowed.clone()) };
    let left = CpuList(asked.0.intersection(&allowed.0).copied().collect());
    if left.0.is_empty() {
        let (asked, allowed) = (asked.clone(), allowed.clone());
        return Err(OpenError::NoCpu { service: config.name.clone(), asked, allowed });
    }
    Ok(left)
}

fn topology(root: &Root, config: &ServiceConfig, allowed: &CpuList, means: ClockMeans) -> CpuTopology {
    let topology = linux::topology_in_full(root, allowed);
    let halts = |&cpu: &CpuId| {
        let table = linux::idle_table(root, cpu).ok()?;
        let halting = table.0.iter().filter(|state| state.kind == CstateKind::Halting);
        let mut latencies: Vec<Duration> = halting.map(|state| state.exit_latency).collect();
        latencies.sort_unstable();
        latencies.dedup();
        Some((cpu, latencies))
    };
    let wants_points = config.frequency != FrequencyMode::Stock;
    let points = wants_points.then(|| clocks::points(root, allowed, means.actuator).ok()).flatten();
    CpuTopology {
        cores: cores_in_order(&topology, allowed),
        halts: allowed.0.iter().filter_map(halts).collect(),
        points,
        uncore: clocks::uncore_clocks(root, allowed, config.uncore),
    }
}

/// 256 MiB for each service.
const BOUNDS: SegmentBounds = SegmentBounds { size: 16 << 20, kept: 16 };
