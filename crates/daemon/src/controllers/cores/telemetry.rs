//! The activity of a service, epoch by epoch.
//!
//! The kernel's programs of `linux::probes` count requests and their times; a server may count its
//! own ([`TelemetrySource`]). An epoch of a quiet service holds few requests, and a percentile of
//! few is chance: a p99 wants a thousand (ten beyond it). So the tail is taken over as many of the
//! last epochs as it needs, and is *missing* where even a minute holds too few. A missing tail
//! holds the policy; it is never zero.
//!
//! ```text
//!   observe::requests  heartbeat, counts, times -----+--> Telemetry --> ServiceReading, once an epoch
//!   observe::scrape    its own count, its own times -+        |
//!   alarms between two epochs <-------------------------------+--> policy's LoadSpikeDetector: how much may arrive
//! ```
//!
//! What always holds:
//! - No tail spans a change of the service's CPUs: [`Window::forget`] begins anew. A summary on a
//!   page, which has a memory of its own, is the exception, and is marked as one.
//! - A service that is alive and asked nothing has a rate of zero. One that cannot be seen has
//!   none: the kernel's programs miss their heartbeat, or the server does not answer. Programs that
//!   miss it are loaded again.
//! - To each response the mean delay of the CPU that took the interrupt is added, since it lies
//!   before the socket. Percentiles of two parts do not add up; the mean of the smaller part is the
//!   closest that can be said.
//! - Nothing here waits for a server, but for the first answer, a fifth of a second.

use crate::config::{ServiceConfig, Target};
use crate::controllers::cores::OpenError;
use crate::controllers::cores::service_telemetry::ServiceTelemetry;
use crate::controllers::cores::sources::TelemetrySource;
use hdrhistogram::Histogram;
use linux::Root;
use linux::probes::{BpfError, Notifier, RequestAlarm};
use linux::service::Service;
use machine::{CpuList, Duration, Goal, Instant, ServiceReading};
use observe::requests::{RequestPattern, RequestWatch, percentile};
use policy::governing::LoadSpikeDetector;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Is called at each alarm, on a thread of its own.
pub type AlarmSink = Arc<dyn Fn(RequestAlarm) + Send + Sync>;

pub struct Telemetry {
    requests: Option<Requests>,
    own: Option<ServiceTelemetry>,
    notices: Vec<String>,
}

struct Requests {
    root: Root,
    service: Service,
    watch: RequestWatch,
    window: Window,
    spikes: LoadSpikeDetector,
    /// The payload of an alarm in this epoch; `None`: no alarm is wanted.
    epoch: Option<u64>,
    /// The highest window of the last epoch.
    peak: u64,
    /// Readings in a row without a heartbeat.
    silent: u32,
    heard: Option<AlarmSink>,
    bell: Option<Notifier>,
}

impl Telemetry {
    pub fn open(
        root: &Root,
        service: &Service,
        config: &ServiceConfig,
        epoch: Duration,
        now: Instant,
    ) -> Result<Self, OpenError> {
        let mut notices = Vec::new();
        let own = match &config.telemetry {
            TelemetrySource::Requests => None,
            source => {
                let port = match config.target {
                    Target::Port(port) | Target::Cgroup(_, Some(port)) => Some(port),
                    Target::Pid(_) | Target::Cgroup(_, None) | Target::Unit(_) => None,
                };
                let own = ServiceTelemetry::open(source, port, config.goal, epoch, now, &mut notices);
                Some(own.map_err(|reason| OpenError::Unheard { service: config.name.clone(), reason })?)
            }
        };
        let requests = if config.telemetry.needs_requests() {
            let (watch, refused) = RequestWatch::open(root, service, now);
            let reasons: Vec<String> = refused.iter().map(|(way, error)| format!("{way}: {error}")).collect();
            let watch = watch.map_err(|error| OpenError::Blind {
                service: config.name.clone(),
                reason: if reasons.is_empty() { error.to_string() } else { reasons.join("; ") },
            })?;
            notices.extend(reasons.into_iter().map(|reason| format!("not seen by {reason}")));
            Some(Requests {
                root: root.clone(),
                service: service.clone(),
                watch,
                window: Window::new(config.goal),
                spikes: LoadSpikeDetector::default(),
                epoch: None,
                peak: 0,
                silent: 0,
                heard: None,
                bell: None,
            })
        } else {
            None
        };
        Ok(Self { requests, own, notices })
    }

    pub fn set_goal(&mut self, goal: Option<Goal>) {
        if let Some(requests) = &mut self.requests {
            requests.window.goal = goal;
        }
        if let Some(own) = &mut self.own {
            own.set_goal(goal);
        }
    }

    /// Epochs are so long from now on.
    pub fn set_epoch(&mut self, epoch: Duration) {
        if let Some(own) = &mut self.own {
            own.set_epoch(epoch);
        }
    }

    /// The events since the last call, as a policy takes them.
    pub fn read(&mut self, now: Instant) -> ServiceReading {
        let seen = self.requests.as_mut().map(|requests| requests.read(now, &mut self.notices));
        let told = self.own.as_mut().map(|own| own.read(now, &mut self.notices));
        match (seen, told) {
            // The server's own count, the kernel's times: and where one of them is silent, nothing
            // is known of the service.
            (Some(seen), Some(told)) => ServiceReading { rate: seen.rate.and(told.rate), ..seen },
            (Some(reading), None) | (None, Some(reading)) => reading,
            (None, None) => ServiceReading::default(),
        }
    }

    /// Events until now belong to the state before: the next reading begins here.
    pub fn forget(&mut self, now: Instant) {
        if let Some(requests) = &mut self.requests {
            requests.watch.read(now);
            requests.window.forget();
        }
        if let Some(own) = &mut self.own {
            own.forget(now);
        }
    }

    /// Calls `heard` at each alarm from now on.
    pub fn hear(&mut self, heard: AlarmSink) {
        if let Some(requests) = &mut self.requests {
            requests.heard = Some(heard);
            requests.hang(&mut self.notices);
        }
    }

    /// After each reading: an alarm is wanted until the next one, or not.
    pub fn arm(&mut self, wanted: bool) {
        if let Some(requests) = &mut self.requests {
            requests.arm(wanted);
        }
    }

    /// True for an alarm of this epoch, once.
    pub fn takes(&mut self, alarm: &RequestAlarm) -> bool {
        let epoch =
            self.requests.as_mut().and_then(|requests| requests.epoch.take_if(|epoch| *epoch == alarm.epoch));
        epoch.is_some()
    }

    /// Helpers keep to the CPUs that are awake.
    pub fn stay_on(&self, cpus: &CpuList) {
        if let Some(own) = &self.own {
            own.stay_on(cpus);
        }
    }

    /// The response times of the last epoch, and the delay before each; nothing where the kernel's
    /// programs do not see them.
    pub fn last_times(&self) -> Option<(&Histogram<u64>, Duration)> {
        self.requests.as_ref().filter(|requests| requests.silent == 0)?.window.last_times()
    }

    /// The notices since the last call.
    pub fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    #[cfg(test)]
    pub(crate) fn sever(&mut self) {
        if let Some(requests) = &mut self.requests {
            requests.watch.sever();
        }
    }
}

impl fmt::Display for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, requests) = (&self.own, &self.requests);
        match (own, requests) {
            (Some(own), Some(requests)) => write!(f, "{own} and {}", requests.watch.total().way),
            (Some(own), None) => own.fmt(f),
            (None, Some(requests)) => requests.watch.total().way.fmt(f),
            (None, None) => f.write_str("nothing"),
        }
    }
}

impl Requests {
    fn read(&mut self, now: Instant, notices: &mut Vec<String>) -> ServiceReading {
        let pulse = self.watch.pulse();
        let pattern = self.watch.read(now);
        self.peak = pulse.peak;
        // A request that went all the way through the programs proves as much as a beat of ours.
        if pulse.is_alive == Some(false) && pattern.requests == 0 {
            self.silent += 1;
            if self.silent.is_multiple_of(SILENT_MIN) && (self.silent / SILENT_MIN).is_power_of_two() {
                self.load_again(now, notices);
            }
            return ServiceReading::default();
        }
        self.silent = 0;
        self.window.take(&pattern)
    }

    /// Another process detached the programs, or their event is gone.
    fn load_again(&mut self, now: Instant, notices: &mut Vec<String>) {
        match RequestWatch::open(&self.root, &self.service, now).0 {
            Ok(watch) => {
                notices.push(format!(
                    "the kernel's programs missed their heartbeat {} times and were loaded again",
                    self.silent
                ));
                self.watch = watch;
                self.window.forget();
                self.spikes = LoadSpikeDetector::default();
                self.epoch = None;
                self.hang(notices);
            }
            Err(error) => notices.push(format!("the kernel's programs miss their heartbeat: {error}")),
        }
    }

    fn hang(&mut self, notices: &mut Vec<String>) {
        let Some(heard) = self.heard.clone() else { return };
        match self.watch.notifier(move |alarm| heard(alarm)) {
            Ok(bell) => self.bell = Some(bell),
            Err(error) => notices.push(format!("no alarm between epochs: {error}")),
        }
    }

    fn arm(&mut self, wanted: bool) {
        let expected = self.spikes.handle_epoch(self.peak, wanted && self.bell.is_some());
        // Who cannot set it has no alarm; the epochs go on.
        let epoch: Result<u64, BpfError> = self.watch.expect(expected.arrivals, expected.batch);
        self.epoch = epoch.ok().filter(|_| expected.arrivals.is_some());
    }
}

/// The response times of the last epochs.
#[derive(Debug)]
pub struct Window {
    goal: Option<Goal>,
    /// Their times, and how many were timed: where requests are many, one stands for several.
    epochs: VecDeque<(Histogram<u64>, u64)>,
    /// The delay before each response of the last epoch.
    before: Duration,
}

impl Window {
    pub fn new(goal: Option<Goal>) -> Self {
        Self { goal, epochs: VecDeque::new(), before: Duration::ZERO }
    }

    /// Takes in an epoch, and tells it.
    pub fn take(&mut self, pattern: &RequestPattern) -> ServiceReading {
        let rate = Some(pattern.rate());
        // Where only the server's own work can be seen, the reading is that; `Telemetry::way` says
        // so.
        let Some(times) = pattern.response.as_ref().or(pattern.service.as_ref()) else {
            return ServiceReading { rate, ..ServiceReading::default() };
        };
        self.epochs.push_back((times.clone(), pattern.timed));
        if self.epochs.len() > EPOCHS {
            self.epochs.pop_front();
        }
        let before = pattern.interrupt.as_ref().filter(|times| !times.is_empty());
        let before = before.map_or(Duration::ZERO, |times| Duration::from_nanos(times.mean() as u64));
        self.before = before;
        let at = |quantile: f64, samples: u64| {
            let enough = self.enough(samples)?;
            Some(percentile(&enough, quantile * 100.0)? + before)
        };
        ServiceReading {
            rate,
            mean: (!times.is_empty()).then(|| Duration::from_nanos(times.mean() as u64) + before),
            p95: at(0.95, 200),
            p99: at(0.99, 1_000),
            tail: self.goal.and_then(|goal| at(goal.quantile, goal.samples())),
        }
    }

    pub fn forget(&mut self) {
        self.epochs.clear();
    }

    fn last_times(&self) -> Option<(&Histogram<u64>, Duration)> {
        self.epochs.back().map(|(times, _)| (times, self.before))
    }

    /// The times of as many of the last epochs as hold so many of them.
    fn enough(&self, samples: u64) -> Option<Histogram<u64>> {
        let mut timed = 0;
        let enough = self.epochs.iter().rev().position(|(_, epoch)| {
            timed += epoch;
            timed >= samples
        })?;
        let mut epochs = self.epochs.iter().rev().take(enough + 1).map(|(times, _)| times);
        let mut together = epochs.next()?.clone();
        epochs.for_each(|times| together.add(times).expect("all have the same bounds"));
        Some(together)
    }
}

/// After so many readings without a heartbeat the programs are loaded again, then after twice as
/// many, and so on.
const SILENT_MIN: u32 = 3;

/// The number of epochs kept: a reading of a minute ago says nothing about now.
const EPOCHS: usize = 60;

#[cfg(test)]
mod tests;
