//! The configuration: `/etc/roost/roost.toml`, then each file of `conf.d` beside it in order of
//! name.
//!
//! Parsed and not merely checked: a [`Config`] holds goals, idle modes and CPU lists, no texts. So
//! no value can be wrong after loading. An unknown key is an error that names the nearest known
//! one. Two services of one name are an error, and so is a service without a place.
//!
//! Without a service it governs nothing: a package installs it so.

mod borrower;
mod target;

pub use borrower::Borrower;
pub use target::Target;

use crate::controllers::cores::TelemetrySource;
use crate::controllers::hurry_up::HurryUpConfig;
use crate::controllers::quiesce::QuiesceConfig;
use crate::controllers::wake::WakeConfig;
use crate::controllers::{Refusal, Table};
use crate::own_policy::Policy;
use crate::park::Parking;
use linux::arbiter::ClockMeans;
use linux::{ConfineActuator, FrequencyActuator, Root};
use machine::{CpuList, Duration, Goal, Ratio};
use policy::carb;
use policy::frequency::{pegasus, sensitivity};
use policy::governing::{Cores, Frequency, FrequencyMode, IdleMode, IdleModes, Params, UncoreMode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time between two decisions. Shorter ones follow faster changes and cost more: a decision
    /// needs requests to judge by.
    #[serde(with = "machine::duration_text")]
    pub epoch: Duration,
    /// The control socket. All users may ask for the state; root and the daemon's user change it.
    pub socket: PathBuf,
    /// Prometheus metrics at this address; loopback unless you know the other users of the network.
    pub metrics: Option<SocketAddr>,
    /// Readings and commands are recorded below this folder, for `roost replay`.
    pub record: Option<PathBuf>,
    /// One line per change is appended to this file.
    pub audit: Option<PathBuf>,
    /// Who leaves the CPUs that a service has left.
    pub park: Parking,
    /// Interrupts that are there leave those CPUs, too, and network cards give no packets to their
    /// queues (RSS). All that is put back in the end, and yet not all is as it was: to which CPU of
    /// its mask an interrupt goes, the kernel then chooses anew. So it is asked for by name.
    pub move_interrupts: bool,
    /// A control group of batch work that has the CPUs which no service needs, and gives them back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lend: Option<Borrower>,
    /// The means of setting the clocks of services that have a `frequency`; the clock itself by
    /// default.
    pub frequency_actuator: Option<FrequencyActuator>,
    /// Model-specific registers may be written, which taints the kernel until it is booted again.
    pub allow_msr: bool,
    /// Users that may have their own processes governed, by a command that stays connected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<u32>,
    /// The services. None: nothing is governed.
    #[serde(rename = "service", skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceConfig>,
    /// Background work that is frozen while critical work waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quiesce: Vec<QuiesceConfig>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hurry_up: Vec<HurryUpConfig>,
    /// CPUs that are woken ahead of events.
    pub wake: Option<WakeConfig>,
}

/// The governable part: a file of `conf.d`, or a command's addition to a daemon for as long as the
/// command stays connected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Part {
    #[serde(rename = "service", skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceConfig>,
    /// Background work that is frozen while critical work waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quiesce: Vec<QuiesceConfig>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hurry_up: Vec<HurryUpConfig>,
    /// CPUs that are woken ahead of events.
    pub wake: Option<WakeConfig>,
}

impl Part {
    /// The tables of controllers with a thread.
    pub fn tables(&self) -> Vec<Table> {
        let quiesce = self.quiesce.iter().cloned().map(Table::Quiesce);
        let hurry_up = self.hurry_up.iter().cloned().map(Table::HurryUp);
        quiesce.chain(hurry_up).chain(self.wake.iter().cloned().map(Table::Wake)).collect()
    }

    /// The names of all that it holds.
    pub fn names(&self) -> Vec<String> {
        let services = self.services.iter().map(|service| service.name.clone());
        services.chain(self.tables().iter().map(Table::name)).collect()
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The files of policies of one's own, in the order of their services.
    pub(crate) fn files(&self) -> impl Iterator<Item = &fs::File> {
        self.services.iter().filter_map(|service| service.policy.file())
    }

    /// Takes the files that came with it.
    pub(crate) fn take_files(&mut self, files: Vec<fs::File>) -> Result<(), String> {
        let policies = self.services.iter_mut().map(|service| &mut service.policy);
        policies.filter(|policy| policy.is_own()).zip(files).try_for_each(|(policy, file)| policy.take(file))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            epoch: Duration::from_secs(1),
            socket: linux::run_place(&Root::system()).join("roost.sock"),
            metrics: None,
            record: None,
            audit: None,
            park: Parking::Service,
            move_interrupts: false,
            lend: None,
            frequency_actuator: None,
            allow_msr: false,
            users: Vec::new(),
            services: Vec::new(),
            quiesce: Vec::new(),
            hurry_up: Vec::new(),
            wake: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct ServiceConfig {
    /// Its name in `status`, in the audit and in metrics.
    pub name: String,
    pub target: Target,
    /// From where its rate and times are known.
    pub telemetry: TelemetrySource,
    pub policy: Policy,
    pub goal: Option<Goal>,
    pub cores: Option<u16>,
    pub min_cores: u16,
    /// It may use these CPUs; all that it has where this says nothing.
    pub cpus: Option<CpuList>,
    /// How deeply its active CPUs sleep.
    pub idle: IdleModes,
    pub frequency: FrequencyMode,
    /// How much of its progress a core may lose to a slower clock, under `sensitivity`.
    pub slack: Option<Ratio>,
    /// How fast the uncore of its sockets runs.
    pub uncore: UncoreMode,
    /// The means of keeping it on its CPUs; by default the best that works.
    pub actuator: Option<ConfineActuator>,
    /// The CPUs that it has left go offline, too: `actuator = "hotplug"`. That destroys other
    /// owners' settings, which are put back (`linux::Hotplug` lists the exceptions), and it is
    /// slow. So it has to be asked for by name.
    pub hotplug: bool,
}

/// A service as it is written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    name: Option<String>,
    port: Option<u16>,
    pid: Option<u32>,
    cgroup: Option<String>,
    unit: Option<String>,
    policy: Policy,
    goal: Option<Goal>,
    cores: Option<u16>,
    min_cores: Option<u16>,
    cpus: Option<String>,
    idle: IdleModes,
    frequency: FrequencyMode,
    slack: Option<f64>,
    uncore: UncoreMode,
    actuator: Option<Actuator>,
    telemetry: TelemetrySource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Actuator {
    Affinity,
    CpusetV2,
    CpusetV1,
    Systemd,
    Hotplug,
}

impl Actuator {
    /// The named confiner. Offline CPUs alone keep no process off CPUs that other services have.
    fn confines(self) -> Option<ConfineActuator> {
        match self {
            Self::Affinity => Some(ConfineActuator::Affinity),
            Self::CpusetV2 => Some(ConfineActuator::CpusetV2),
            Self::CpusetV1 => Some(ConfineActuator::CpusetV1),
            Self::Systemd => Some(ConfineActuator::Systemd),
            Self::Hotplug => None,
        }
    }
}

impl TryFrom<Written> for ServiceConfig {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let targets = [
            written.port.filter(|_| written.cgroup.is_none()).map(Target::Port),
            written.pid.map(Target::Pid),
            written.cgroup.map(|cgroup| Target::Cgroup(cgroup, written.port)),
            written.unit.map(Target::Unit),
        ];
        let mut targets = targets.into_iter().flatten();
        let target = match (targets.next(), targets.next()) {
            (Some(target), None) => target,
            (None, _) => return Err("a service needs a port, pid, cgroup or unit: write port = 11211".into()),
            (Some(_), Some(_)) => {
                return Err(
                    "a service has one of port, pid, cgroup and unit, or a cgroup and the port of it: \
                            leave the others out"
                        .into(),
                );
            }
        };
        let name = written.name.unwrap_or_else(|| target.to_string());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
        if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(is_plain) {
            return Err(format!(
                "name = {name:?}: write letters, digits and -_.@: only, such as name = \"cache\""
            ));
        }
        let fix = |wrong: bool, told: &str| if wrong { Err(format!("{name}: {told}")) } else { Ok(()) };
        let is_pegasus = written.frequency == FrequencyMode::Pegasus;
        let is_auto = written.uncore == UncoreMode::Auto;
        let has_use = match written.policy {
            Policy::CarbPaper => false,
            Policy::Fixed => is_pegasus || is_auto,
            Policy::Carb | Policy::Own(_) => true,
        };
        fix(
            written.goal.is_some() && !has_use,
            "a goal needs policy = \"carb\", or one of your own: leave one of them out",
        )?;
        fix(
            written.cores.is_some() && written.policy != Policy::Fixed,
            "cores needs policy = \"fixed\"; min_cores is a bound for the others",
        )?;
        fix(
            written.cores == Some(0) || written.min_cores == Some(0),
            "a service runs on at least one core: write 1",
        )?;
        fix(
            is_pegasus && written.goal.is_none(),
            "frequency = \"pegasus\" keeps a goal: add one, such as goal = \"500us@p99\"",
        )?;
        // Two that steer by one tail would chase each other.
        fix(
            is_pegasus && written.policy != Policy::Fixed,
            "frequency = \"pegasus\" and carb would both steer by the tail: write policy = \
             \"fixed\", or another frequency",
        )?;
        fix(
            is_auto && written.goal.is_none(),
            "uncore = \"auto\" keeps a goal: add one, such as goal = \"500us@p99\"",
        )?;
        fix(
            is_auto && is_pegasus,
            "uncore = \"auto\" and frequency = \"pegasus\" would both steer by the tail: choose one",
        )?;
        fix(
            written.slack.is_some() && written.frequency != FrequencyMode::Sensitivity,
            "slack is a word of frequency = \"sensitivity\": add that, or leave slack out",
        )?;
        fix(
            written.slack.is_some_and(|slack| !(0.0..1.0).contains(&slack)),
            "slack is the share of its progress that a core may lose: write 0 to 0.99, such as slack = 0.05",
        )?;
        let source = &written.telemetry;
        fix(
            !source.tells_times() && (written.policy != Policy::Fixed || is_auto),
            &format!("telemetry = \"{source}\" tells no response times: {}", source.fix()),
        )?;
        fix(
            matches!(source, TelemetrySource::Own { address: None, .. })
                && !matches!(target, Target::Port(_)),
            &format!(
                "telemetry = \"{source}\" asks at the service's port = ...: say where, as in \
                 \"memcached:HOST:PORT\""
            ),
        )?;
        let cpus = written.cpus.map(|cpus| cpus.parse()).transpose();
        let cpus = cpus.map_err(|error: machine::ParseCpuListError| format!("{name}: cpus: {error}"))?;
        Ok(Self {
            target,
            telemetry: written.telemetry,
            policy: written.policy,
            goal: written.goal,
            cores: written.cores,
            min_cores: written.min_cores.unwrap_or(1),
            cpus,
            idle: written.idle,
            frequency: written.frequency,
            slack: written.slack.map(Ratio::new),
            uncore: written.uncore,
            actuator: written.actuator.and_then(Actuator::confines),
            hotplug: written.actuator == Some(Actuator::Hotplug),
            name,
        })
    }
}

impl From<ServiceConfig> for Written {
    fn from(config: ServiceConfig) -> Self {
        let mut written = Self {
            name: Some(config.name),
            telemetry: config.telemetry,
            policy: config.policy,
            goal: config.goal,
            cores: config.cores,
            min_cores: Some(config.min_cores),
            cpus: config.cpus.map(|cpus| cpus.to_string()),
            idle: config.idle.clone(),
            frequency: config.frequency,
            slack: config.slack.map(Ratio::as_f64),
            uncore: config.uncore,
            actuator: match config.actuator {
                _ if config.hotplug => Some(Actuator::Hotplug),
                None => None,
                Some(ConfineActuator::Affinity) => Some(Actuator::Affinity),
                Some(ConfineActuator::CpusetV2) => Some(Actuator::CpusetV2),
                Some(ConfineActuator::CpusetV1) => Some(Actuator::CpusetV1),
                Some(ConfineActuator::Systemd) => Some(Actuator::Systemd),
            },
            ..Self::default()
        };
        match config.target {
            Target::Port(port) => written.port = Some(port),
            Target::Pid(pid) => written.pid = Some(pid),
            Target::Cgroup(cgroup, port) => (written.cgroup, written.port) = (Some(cgroup), port),
            Target::Unit(unit) => written.unit = Some(unit),
        }
        written
    }
}

impl ServiceConfig {
    /// The parameters of its policy, with this much time between decisions.
    pub fn params(&self, epoch: Duration) -> Params {
        let cores = match (&self.policy, self.goal, self.cores) {
            (Policy::Fixed, _, Some(cores)) => Cores::Fixed(cores),
            (Policy::Fixed, _, None) => Cores::All,
            (Policy::CarbPaper, _, _) => {
                let paper = carb::Params::paper();
                Cores::Slope(carb::Params {
                    epoch,
                    min_active: self.min_cores.max(paper.min_active),
                    ..paper
                })
            }
            (Policy::Carb, None, _) => {
                Cores::Slope(carb::Params { epoch, min_active: self.min_cores, ..carb::Params::default() })
            }
            (Policy::Own(_), goal, _) => Cores::Ordered(goal),
            (Policy::Carb, Some(goal), _) => {
                let min_active = self.min_cores;
                Cores::Goal(goal, carb::GoalParams { epoch, min_active, ..carb::GoalParams::default() })
            }
        };
        let uncore_goal = self.goal.filter(|_| self.uncore == UncoreMode::Auto);
        Params {
            frequency: self.frequency(epoch),
            uncore: self.uncore,
            uncore_goal,
            ..Params::new(cores, self.idle.clone())
        }
    }

    fn frequency(&self, epoch: Duration) -> Frequency {
        match (self.frequency, self.goal) {
            (FrequencyMode::Cap(clock), _) => Frequency::Cap(clock),
            (FrequencyMode::Sensitivity, _) => Frequency::Sensitivity(sensitivity::Params {
                step: epoch,
                slack: self.slack.unwrap_or(Ratio::new(SLACK)),
                ..sensitivity::Params::default()
            }),
            (FrequencyMode::Pegasus, Some(goal)) => {
                Frequency::Pegasus(goal, pegasus::Params { epoch, ..pegasus::Params::default() })
            }
            // A goal is required when it is loaded.
            (FrequencyMode::Stock, _) | (FrequencyMode::Pegasus, None) => Frequency::Stock,
        }
    }

    /// True if its policy leaves it all its cores, and its idle states and clocks to the kernel.
    pub fn changes_nothing(&self) -> bool {
        self.policy == Policy::Fixed
            && self.cores.is_none()
            && self.frequency == FrequencyMode::Stock
            && self.uncore == UncoreMode::Stock
            && !self.idle.any(|mode| mode != IdleMode::Stock)
    }

    pub fn policy_name(&self) -> String {
        match (&self.policy, self.goal) {
            (Policy::Carb, Some(_)) => "carb with a goal".to_owned(),
            (policy, _) => policy.to_string(),
        }
    }
}

/// Of a core's progress, where nothing is written: between the paper's zero tolerance and its
/// relaxed 20 %.
const SLACK: f64 = 0.05;

#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {cause}\nhint: name a service, such as --port 11211, or another \
             file with --config", path = path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{path}: {cause}", path = path.display())]
    Wrong { path: PathBuf, cause: String },
    #[error("{path}: there is a {name} already\nhint: give it another name", path = path.display())]
    Twice {
        /// The file of the second.
        path: PathBuf,
        name: String,
    },
    /// Clocks by a register, and no leave to write it.
    #[error(
        "{path}: frequency_actuator = \"duty-cycle\" writes a model-specific register, which \
         taints the kernel: what is written is \
         put back, and the taint stays until the next boot\nhint: allow it with allow_msr = true", path = path.display()
    )]
    MsrNotAllowed { path: PathBuf },
    /// A power cap for a policy that limits single cores.
    #[error(
        "{path}: {service}: frequency = \"{frequency}\" limits cores, and frequency_actuator = \
         \"rapl\" caps the power of a whole \
         socket\nhint: write frequency = \"pegasus\", or another actuator", path = path.display()
    )]
    PowerCap { path: PathBuf, service: String, frequency: FrequencyMode },
    /// A table of a controller that can mean nothing.
    #[error("{path}: {table}: {refusal}", path = path.display())]
    Table { path: PathBuf, table: String, refusal: Refusal },
    /// A policy of one's own that cannot be had.
    #[error("{path}: policy: {reason}", path = path.display())]
    Policy { path: PathBuf, reason: String },
    /// CPUs cannot be lent beside another key.
    #[error("{path}: lend = \"{lend}\": {reason}", path = path.display())]
    Lend { path: PathBuf, lend: String, reason: &'static str },
    /// An epoch that is no use.
    #[error("{path}: epoch = {epoch}: write 20ms to 1h\nhint: 1s is a good start", path = path.display())]
    Epoch { path: PathBuf, epoch: Duration },
    #[error("{path}: of park = \"isolated\" and actuator = \"hotplug\" leave one out", path = path.display())]
    Isolated { path: PathBuf },
}

impl Config {
    /// Reads `file` and the files of `conf.d` beside it. A file of `conf.d` may hold services and
    /// nothing else: two values for one key would leave a reader guessing.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let mut config: Self = parse(file, &read(file)?)?;
        config.read_policies(file)?;
        let mut names = BTreeSet::new();
        for name in config.part().names() {
            note(&mut names, file, name)?;
        }
        let beside = file.parent().unwrap_or(Path::new(".")).join("conf.d");
        for path in parts(&beside)? {
            let mut part: Part = parse(&path, &read(&path)?)?;
            for service in &mut part.services {
                service.policy.read_trusted(&path)?;
            }
            for name in part.names() {
                note(&mut names, &path, name)?;
            }
            config.extend(part);
        }
        config.check(file)?;
        Ok(config)
    }

    /// Reads the files of policies that services have, which lie where only root and the daemon's
    /// user can write; relative ones beside `file`.
    fn read_policies(&mut self, file: &Path) -> Result<(), ConfigError> {
        self.services.iter_mut().try_for_each(|service| service.policy.read_trusted(file))
    }

    /// Refuses values that are wrong in any file; `file` is the place of the value.
    pub fn check(&self, file: &Path) -> Result<(), ConfigError> {
        let path = || file.to_owned();
        if !(Duration::from_millis(20)..=Duration::from_secs(3600)).contains(&self.epoch) {
            return Err(ConfigError::Epoch { path: path(), epoch: self.epoch });
        }
        if self.frequency_actuator == Some(FrequencyActuator::DutyCycle) && !self.allow_msr {
            return Err(ConfigError::MsrNotAllowed { path: path() });
        }
        for table in self.part().tables() {
            let wrong = |refusal| ConfigError::Table { path: path(), table: table.name(), refusal };
            table.check().map_err(wrong)?;
        }
        if self.park == Parking::Isolated && self.services.iter().any(|service| service.hotplug) {
            return Err(ConfigError::Isolated { path: path() });
        }
        if let Some(borrower) = &self.lend {
            let wrong = |reason| Err(ConfigError::Lend { path: path(), lend: borrower.to_string(), reason });
            if self.services.iter().any(|service| service.hotplug) {
                return wrong(
                    "actuator = \"hotplug\" takes the CPUs offline that it would have: leave one out",
                );
            }
            if self.park == Parking::Isolated {
                return wrong("park = \"isolated\" keeps all tasks off parked CPUs: leave one out");
            }
            if self.park == Parking::All && borrower.group().contains('/') {
                return wrong(
                    "with park = \"all\" the group above it leaves the parked CPUs, and it with that: \
                     name a group at the top of the tree",
                );
            }
        }
        let limits_cores = |service: &&ServiceConfig| {
            !matches!(service.frequency, FrequencyMode::Stock | FrequencyMode::Pegasus)
        };
        match self.services.iter().find(limits_cores) {
            Some(service) if self.frequency_actuator == Some(FrequencyActuator::PowerCap) => {
                let (service, frequency) = (service.name.clone(), service.frequency);
                Err(ConfigError::PowerCap { path: path(), service, frequency })
            }
            _ => Ok(()),
        }
    }

    /// The governed services and controllers, without the options of the daemon as a whole.
    pub fn part(&self) -> Part {
        Part {
            services: self.services.clone(),
            quiesce: self.quiesce.clone(),
            hurry_up: self.hurry_up.clone(),
            wake: self.wake.clone(),
        }
    }

    pub fn extend(&mut self, part: Part) {
        self.services.extend(part.services);
        self.quiesce.extend(part.quiesce);
        self.hurry_up.extend(part.hurry_up);
        self.wake = part.wake.or_else(|| self.wake.take());
    }

    pub fn clock_means(&self) -> ClockMeans {
        ClockMeans { actuator: self.frequency_actuator, allow_msr: self.allow_msr }
    }
}

fn note(names: &mut BTreeSet<String>, path: &Path, name: String) -> Result<(), ConfigError> {
    if names.contains(&name) {
        return Err(ConfigError::Twice { path: path.to_owned(), name });
    }
    names.insert(name);
    Ok(())
}

fn read(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|cause| ConfigError::Unreadable { path: path.to_owned(), cause })
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text)
        .map_err(|error| ConfigError::Wrong { path: path.to_owned(), cause: error.to_string() })
}

/// The `.toml` files of a folder, in order of name; none where there is no folder.
fn parts(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let unreadable = |cause| ConfigError::Unreadable { path: folder.to_owned(), cause };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(unreadable(cause)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(files: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Config::load(&folder.path().join("roost.toml"))
    }

    #[test]
    fn an_empty_file_governs_nothing() {
        assert_eq!(loaded(&[("roost.toml", "")]).unwrap(), Config::default());
    }

    #[test]
    fn a_cgroup_may_name_one_of_its_ports_and_a_unit_may_not() {
        let text = "[[service]]\ncgroup = \"/shop\"\nport = 80\n";
        let config = loaded(&[("roost.toml", text)]).unwrap();
        assert_eq!(config.services[0].target, Target::Cgroup("/shop".to_owned(), Some(80)));
        let written = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<Config>(&written).unwrap().services, config.services);
        let error = loaded(&[("roost.toml", &text.replace("cgroup", "unit"))]).unwrap_err().to_string();
        assert!(error.contains("leave the others out"), "{error}");
    }

    #[test]
    fn services_of_all_files_come_in_order_of_name() {
        let config = loaded(&[
            ("roost.toml", "epoch = \"500ms\"\n[[service]]\nport = 11211\ngoal = \"500us@p99\"\n"),
            ("conf.d/20-b.toml", "[[service]]\nunit = \"search.service\"\npolicy = \"carb-paper\"\n"),
            ("conf.d/10-a.toml", "[[service]]\nname = \"api\"\npid = 7\nidle = \"50us\"\ncpus = \"0-3\"\n"),
            ("conf.d/README", "no configuration"),
        ])
        .unwrap();
        let names: Vec<&str> = config.services.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(names, ["port-11211", "api", "search"]);
        assert_eq!(config.epoch, Duration::from_millis(500));
        assert_eq!(config.services[1].idle, "50us".parse().unwrap());
        let Cores::Goal(goal, params) = config.services[0].params(config.epoch).cores else { panic!() };
        assert_eq!((goal.to_string(), params.epoch), ("500us@p99".to_owned(), Duration::from_millis(500)));
    }

    #[test]
    fn what_is_printed_reads_back() {
        let text = "[[service]]\nname = \"cache\"\nport = 11211\ngoal = \"1500us@p99.9\"\nidle = \
                    \"feedback\"\nactuator = \"cpuset-v2\"\n";
        let config = loaded(&[("roost.toml", text)]).unwrap();
        let printed = toml::to_string(&config).unwrap();
        assert_eq!(loaded(&[("roost.toml", &printed)]).unwrap(), config, "{printed}");
    }

    #[test]
    fn hotplug_is_a_word_and_never_the_default() {
        let of = |text: &str| loaded(&[("roost.toml", &format!("[[service]]\nport = 1\n{text}"))]).unwrap();
        assert!(!of("").services[0].hotplug && !of("actuator = \"cpuset-v1\"").services[0].hotplug);
        let config = of("actuator = \"hotplug\"");
        assert!(config.services[0].hotplug && config.services[0].actuator.is_none());
        let printed = toml::to_string(&config).unwrap();
        assert!(printed.contains("actuator = \"hotplug\""), "{printed}");
        assert_eq!(loaded(&[("roost.toml", &printed)]).unwrap(), config, "{printed}");
    }

    #[test]
    fn the_uncore_is_written_and_read_back_and_auto_keeps_a_goal() {
        let text = "[[service]]\nport = 1\npolicy = \"fixed\"\ngoal = \"1ms@p99\"\nuncore = \"auto\"\n\
                    [[service]]\nport = 2\nuncore = \"fixed:1.6GHz\"\n";
        let config = loaded(&[("roost.toml", text)]).unwrap();
        let printed = toml::to_string(&config).unwrap();
        assert_eq!(loaded(&[("roost.toml", &printed)]).unwrap(), config, "{printed}");
        assert!(printed.contains("uncore = \"fixed:1600MHz\""), "{printed}");
        let [auto, fixed] = [0, 1].map(|at| config.services[at].params(config.epoch));
        assert_eq!((auto.uncore, auto.uncore_goal), (UncoreMode::Auto, config.services[0].goal));
        assert_eq!((fixed.uncore_goal, config.services[0].changes_nothing()), (None, false));
    }

    #[test]
    fn clocks_are_written_and_read_back() {
        let text = "[[service]]\nport = 1\npolicy = \"fixed\"\ngoal = \"1ms@p99\"\nfrequency = \"pegasus\"\n\
                    [[service]]\nport = 2\nfrequency = \"sensitivity\"\nslack = 0.2\n\
                    [[service]]\nport = 3\nfrequency = \"1.7GHz\"\n";
        let config = loaded(&[("roost.toml", text)]).unwrap();
        let printed = toml::to_string(&config).unwrap();
        assert_eq!(loaded(&[("roost.toml", &printed)]).unwrap(), config, "{printed}");
        let of = |at: usize| config.services[at].params(config.epoch).frequency;
        assert!(matches!(of(0), Frequency::Pegasus(goal, _) if goal.to_string() == "1.00ms@p99"));
        assert!(matches!(of(1), Frequency::Sensitivity(params)
                if params.slack == Ratio::new(0.2) && params.step == config.epoch));
        assert_eq!(of(2), Frequency::Cap(machine::Kilohertz(1_700_000)));
    }

    #[test]
    fn means_are_words_that_read_back() {
        assert_eq!(loaded(&[("roost.toml", "")]).unwrap().clock_means(), ClockMeans::default());
        for word in ["bounds", "speed", "epp", "duty-cycle", "rapl"] {
            let text = format!(
                "frequency_actuator = \"{word}\"\nallow_msr = true\n[[service]]\nport = 1\npolicy \
                 = \"fixed\"\n\
                 goal = \"1ms@p99\"\nfrequency = \"pegasus\"\n"
            );
            let config = loaded(&[("roost.toml", &text)]).unwrap();
            assert_eq!(config.frequency_actuator.map(FrequencyActuator::word), Some(word));
            assert!(config.clock_means().allow_msr);
            let printed = toml::to_string(&config).unwrap();
            assert_eq!(loaded(&[("roost.toml", &printed)]).unwrap(), config, "{printed}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_fix() {
        for (text, told) in [
            ("epock = \"1s\"", "unknown field `epock`"),
            ("[[service]]\nport = 1\nidle = \"deepest\"", "write stock, shallow, deep, feedback or"),
            ("[[service]]\nport = 1\ngoal = \"fast\"", "such as 300us@p99"),
            ("[[service]]\nname = \"x\"", "write port = 11211"),
            ("[[service]]\nport = 1\npid = 2", "leave the others out"),
            ("[[service]]\nport = 1\nmin_cores = 0", "write 1"),
            ("[[service]]\nport = 1\ncores = 2", "needs policy = \"fixed\""),
            ("[[service]]\nport = 1\ngoal = \"1ms@p99\"\npolicy = \"fixed\"", "a goal needs policy"),
            ("[[service]]\nport = 1\nfrequency = \"1700\"", "such as 1700MHz"),
            ("[[service]]\nport = 1\nfrequency = \"pegasus\"", "keeps a goal: add one"),
            (
                "[[service]]\nport = 1\nfrequency = \"pegasus\"\ngoal = \"1ms@p99\"",
                "write policy = \"fixed\"",
            ),
            ("[[service]]\nport = 1\nuncore = \"1.6GHz\"", "such as fixed:1.6GHz"),
            ("[[service]]\nport = 1\nuncore = \"auto\"", "keeps a goal: add one"),
            (
                "[[service]]\nport = 1\npolicy = \"carb-paper\"\ngoal = \"1ms@p99\"\nuncore = \"auto\"",
                "a goal needs policy",
            ),
            (
                "[[service]]\nport = 1\npolicy = \"fixed\"\nuncore = \"auto\"\nfrequency = \"pegasus\"\n\
                 goal = \"1ms@p99\"",
                "choose one",
            ),
            ("frequency_actuator = \"uncore\"", "expected one of `speed`"),
            ("[[service]]\nport = 1\nslack = 0.1", "add that, or leave slack out"),
            ("[[service]]\nport = 1\nfrequency = \"sensitivity\"\nslack = 5", "such as slack = 0.05"),
            ("[[service]]\nport = 1\nfrequency = \"sensitivity\"\nslack = nan", "such as slack = 0.05"),
            (
                "[[service]]\nport = 1\ntelemetry = \"memcached\"",
                "telemetry = \"memcached+requests\" for the",
            ),
            ("[[service]]\nport = 1\ntelemetry = { prometheus = \"http://h/\", rate = \"x\" }", "add tail"),
            (
                "[[service]]\npid = 1\npolicy = \"fixed\"\ntelemetry = \"memcached\"",
                "\"memcached:HOST:PORT\"",
            ),
            ("[[service]]\nport = 1\ntelemetry = \"x\"", "telemetry = \"x\": write \"requests\""),
            ("[[service]]\nport = 1\ncpus = \"3-1\"", "ranges such as 0-3,8"),
            ("[[service]]\nport = 1\nname = \"../x\"", "letters, digits"),
            ("[[service]]\nport = 1\n[[service]]\nport = 1", "give it another name"),
            ("epoch = \"1ms\"", "write 20ms to 1h"),
            ("lend = \"batch.slice\"", "such as cgroup:batch.slice"),
            ("lend = \"cgroup:\"", "such as cgroup:batch.slice"),
            ("lend = \"cgroup:../batch\"", "such as cgroup:batch.slice"),
            ("park = \"all\"\nlend = \"cgroup:a/b\"", "at the top of the tree"),
            ("lend = \"cgroup:a\"\n[[service]]\nport = 1\nactuator = \"hotplug\"", "takes the CPUs offline"),
            ("park = \"isolated\"\nlend = \"cgroup:a\"", "leave one out"),
            ("park = \"isolated\"\n[[service]]\nport = 1\nactuator = \"hotplug\"", "leave one out"),
            ("epoch = 1", "expected"),
            (
                "frequency_actuator = \"msr\"",
                "expected one of `speed`, `bounds`, `epp`, `duty-cycle`, `rapl`",
            ),
            (
                "frequency_actuator = \"duty-cycle\"",
                "the taint stays until the next boot\nhint: allow it with allow_msr = true",
            ),
            (
                "frequency_actuator = \"rapl\"\n[[service]]\nport = 1\nfrequency = \"sensitivity\"",
                "port-1: frequency = \"sensitivity\" limits cores",
            ),
        ] {
            let error = loaded(&[("roost.toml", text)]).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("roost.toml"), "{text}: {error}");
        }
        let error =
            loaded(&[("roost.toml", ""), ("conf.d/a.toml", "epoch = \"1s\"")]).unwrap_err().to_string();
        assert!(error.contains("a.toml") && error.contains("unknown field `epoch`"), "{error}");
        assert!(Config::load(Path::new("/nowhere/roost.toml")).unwrap_err().to_string().contains("--config"));
    }
}
