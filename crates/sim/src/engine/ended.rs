//! A run that is over, and its figures.

use super::chronicle::Chronicle;
use super::metrics::{Metrics, Sample, Visit};
use super::running::End;
use super::{Engine, Residency, Setup};
use crate::outcome::ClassCount;
use crate::scenario::{Document, ScenarioError};
use workload::JobClass;

pub struct Ended {
    pub(crate) engine: Engine,
    pub end: End,
    /// Time of all CPUs by mode.
    pub residency: Residency,
}

impl Ended {
    pub fn metrics(&self) -> &Metrics {
        &self.engine.metrics
    }
    /// Why a policy could not decide any more.
    pub fn fault(&self) -> Option<&str> {
        self.engine.core_policy.fault.as_deref()
    }
    /// The stretches that began under load. A later one, while the last requests are served,
    /// is a sample of no load.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        let engine = &self.engine;
        let ends = if engine.is_stopped { engine.stop_at } else { engine.sent_at };
        engine.metrics.samples.iter().filter(move |sample| {
            let begins = sample.until_ns - sample.length_ns;
            begins == 0 || begins < ends
        })
    }
    /// Every answer, in the order in which they came; none unless the engine was to keep them.
    pub fn visits(&self) -> &[Visit] {
        self.engine.metrics.visits.as_deref().unwrap_or_default()
    }
    /// The run's first requests one by one, if the engine was to tell of them.
    pub fn chronicle(&self) -> Option<&Chronicle> {
        self.engine.chronicle.as_deref()
    }
    pub fn length_ns(&self) -> u64 {
        self.engine.now
    }
    pub fn core_joules(&self) -> f64 {
        self.engine.hardware.core_joules(self.engine.now) * self.warmth()
    }
    /// Joules of the cores in a stretch of it.
    pub fn core_joules_of(&self, sample: &Sample) -> f64 {
        sample.core_joules * self.warmth()
    }
    /// Joules of the sockets beside their cores.
    pub fn uncore_joules(&self) -> f64 {
        let (now, hardware) = (self.engine.now, &self.engine.hardware);
        let spared = hardware.uncore_spared_joules(now);
        self.uncore(now, hardware.package_asleep_ns(now), spared, self.warmth())
    }
    /// The same of a stretch of it.
    pub fn uncore_joules_of(&self, sample: &Sample) -> f64 {
        self.uncore(sample.length_ns, sample.package_asleep_ns, sample.uncore_spared_joules, self.warmth())
    }
    fn uncore(&self, length_ns: u64, asleep_ns: u64, spared_joules: f64, warmth: f64) -> f64 {
        let platform = &self.engine.setup.platform;
        let asleep_s = asleep_ns as f64 * 1e-9;
        let all_s = length_ns as f64 * 1e-9 * f64::from(platform.sockets);
        let deep = platform.package.map_or(0.0, |package| package.power.as_watts());
        let beyond = platform.uncore.as_watts() - platform.asleep_watts();
        let awake = (all_s - asleep_s) * (platform.asleep_watts() + beyond * warmth);
        awake - spared_joules * warmth + asleep_s * deep
    }
    /// The factor on the power beyond sleep that the run's warmth makes. A heat sink takes minutes
    /// to warm up: the run's mean power decides, for all of its stretches.
    fn warmth(&self) -> f64 {
        let platform = &self.engine.setup.platform;
        if platform.warming == 0.0 || self.engine.now == 0 {
            return 1.0;
        }
        let (now, sockets) = (self.engine.now, f64::from(platform.sockets));
        let asleep_ns = self.engine.hardware.package_asleep_ns(now);
        let spared = self.engine.hardware.uncore_spared_joules(now);
        let joules = self.engine.hardware.core_joules(now) + self.uncore(now, asleep_ns, spared, 1.0);
        platform.warmth(joules / (now as f64 * 1e-9) / sockets - platform.asleep_watts())
    }
    /// Share of all cores' time for which they asked for each operating point, at work or not: as
    /// cpufreq's `time_in_state` counts, which does not see a bound on power.
    pub fn clocks(&self) -> Vec<f64> {
        let asked_ns = self.engine.hardware.asked_ns(self.engine.now);
        let all = asked_ns.iter().sum::<u64>().max(1) as f64;
        asked_ns.into_iter().map(|ns| ns as f64 / all).collect()
    }
    /// Share of socket time in the package's sleep.
    pub fn package_asleep(&self) -> f64 {
        let all_ns = self.engine.now * self.engine.hardware.sockets() as u64;
        self.engine.hardware.package_asleep_ns(self.engine.now) as f64 / all_ns.max(1) as f64
    }
    pub fn class_counts(&self) -> Vec<ClassCount> {
        let metrics = &self.engine.metrics;
        let classes = self.engine.jobs.classes().iter().zip(metrics.by_class());
        let count = |class: &JobClass, requests, missed: u64| ClassCount {
            name: class.name.clone(),
            requests,
            missed: class.deadline.map(|_| missed),
        };
        classes.map(|(class, (requests, missed))| count(class, requests, missed)).collect()
    }
    /// Connections moved, and how many of them a worker sent home by itself; `None` if nothing
    /// places them.
    pub fn transfers(&self) -> Option<(u64, u64)> {
        self.engine.transfers()
    }
    /// Share of the device's answers that were foreseen; `None` without a predictor.
    pub fn foreseen(&self) -> Option<f64> {
        self.engine.prediction_record().map(|record| record.hit_rate().as_f64())
    }
    /// A fault of the load that only its end could show: a trace that broke off.
    pub fn check_load(&mut self, document: &Document) -> Result<(), ScenarioError> {
        self.engine.jobs.check().map_err(|error| document.wrong_load(&error))
    }
    /// Joules of the rest of the server.
    pub fn rest_joules(&self) -> f64 {
        self.engine.setup.platform.rest.as_watts() * self.engine.now as f64 * 1e-9
    }
    /// Number of sleeps begun by all CPUs.
    pub fn transitions(&self) -> u64 {
        self.engine.hardware.transitions()
    }
    pub fn setup(&self) -> &Setup {
        &self.engine.setup
    }
}
