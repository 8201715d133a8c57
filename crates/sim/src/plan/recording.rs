//! A recorded run of a service: `recording.json`.
//!
//! Every value says how it came: *measured* on the machine, *derived* by a formula from measured
//! ones, or an *ESTIMATE*. A value that could not be had is absent, never zero, and `gaps` says
//! why. Lengths are microseconds and rates are per second, as the names say.

use crate::engine::MAX_CPUS;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a value came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Measured,
    Derived,
    #[serde(rename = "ESTIMATE")]
    Estimate,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Estimate => "ESTIMATE",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known<T> {
    pub value: T,
    pub source: Source,
    /// The meter, the formula or the reason.
    pub by: String,
}

impl<T> Known<T> {
    pub fn measured(value: T, by: impl Into<String>) -> Self {
        Self { value, source: Source::Measured, by: by.into() }
    }

    pub fn derived(value: T, by: impl Into<String>) -> Self {
        Self { value, source: Source::Derived, by: by.into() }
    }

    pub fn estimate(value: T, by: impl Into<String>) -> Self {
        Self { value, source: Source::Estimate, by: by.into() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// Version of this format; see [`Recording::FORMAT`].
    pub format: u32,
    /// The beginning of the recording, in UTC.
    pub began: String,
    pub length_s: f64,
    pub machine: Machine,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    pub arrivals: Arrivals,
    pub responses: Responses,
    /// All work on the machine that is not the service's.
    pub others: Vec<Other>,
    pub sleeps: Sleeps,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator: Option<Generator>,
    /// Sentences on each thing that could not be recorded.
    pub gaps: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// The preset that the tables of power are taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Known<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine: Option<bool>,
    /// How sockets, cores and threads are known [default: measured].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Source>,
    pub sockets: u16,
    pub cores: u16,
    pub threads: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// How long the governor haltpoll polls before it halts, where it is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt_poll_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_driver: Option<String>,
    /// As the kernel numbers them, shallow to deep.
    pub states: Vec<State>,
    /// The clocks that can be chosen, slow to fast, in kHz; empty where none can be.
    pub clocks_khz: Vec<u64>,
}

/// An idle state of the machine's CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub name: String,
    /// True if the CPU spins in it.
    pub polls: bool,
    pub exit_us: f64,
    pub residency_us: f64,
    /// From the waker's call until the woken thread reads the clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_us: Option<Known<f64>>,
    /// The same, of all but one in a hundred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_p99_us: Option<Known<f64>>,
    /// By the power table of the preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<Known<f64>>,
    /// Share of all CPU time asked for in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    pub name: String,
    pub ports: Vec<u16>,
    /// Threads that were on a CPU at least once a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Known<u32>>,
    /// CPUs that it may run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// CPU time of its threads by request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<Known<f64>>,
    /// From a request taken to its reply, the mean: wall-clock time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_us: Option<Known<f64>>,
    /// The coefficient of variation of CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_cv: Option<Known<f64>>,
    /// Times a second that one of its threads was put on a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_per_s: Option<Known<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_a_turn: Option<Known<f64>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    pub requests: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<Known<f64>>,
    pub each_second: Vec<f64>,
    /// Squared coefficient of variation of the gaps between arrivals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scv: Option<Known<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<Known<u64>>,
    /// Times a second that data came while a request of its connection was under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_per_s: Option<Known<f64>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Responses {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<Known<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<Known<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<Known<f64>>,
    /// The middle of the seconds' p99: no few seconds of trouble make it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_steady_us: Option<Known<f64>>,
    /// From ready to taken, the middle: the queue and the wake-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_p50_us: Option<Known<f64>>,
    /// The same, ninetieth percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_p90_us: Option<Known<f64>>,
    pub histogram: Vec<Bucket>,
}

impl Responses {
    /// The tail to go by: that of most seconds, where it is known.
    pub fn tail_us(&self) -> Option<f64> {
        self.p99_steady_us.as_ref().or(self.p99_us.as_ref()).map(|tail| tail.value)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// The longest that is counted here.
    pub to_us: f64,
    pub count: u64,
}

/// Work that wakes CPUs and is not the service's.
/// The service's clients on this machine.
pub const GENERATOR: &str = "generator";
/// They belong to a CPU, and go before a service.
pub const KERNEL_THREADS: &str = "kernel threads";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// [`GENERATOR`], [`KERNEL_THREADS`], `other programs` or `this watcher`.
    pub name: String,
    pub per_s: Known<f64>,
    /// CPU time each time, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_us: Option<Known<f64>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sleeps {
    /// Mean number of CPUs that were not idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_cpus: Option<Known<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakes_per_s: Option<Known<f64>>,
    /// Busy time that no thread's count holds, in CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beyond_threads_cpus: Option<Known<f64>>,
    /// Sleeps that ended by their cause: timer, device, another CPU's interrupt, unseen.
    pub causes_per_s: Vec<(String, f64)>,
    pub idle_lengths: Vec<Length>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Length {
    pub from_ns: u64,
    pub to_ns: u64,
    pub per_s: f64,
    pub time_share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    pub names: Vec<String>,
    /// `closed`: clients wait for replies; `open`: they keep a schedule.
    #[serde(rename = "loop")]
    pub kind: Known<Loop>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    Open,
    Closed,
}

/// Of fewer, the rate itself is wrong by a tenth or more: its standard error is one in the root of them.
const FEWEST: u64 = 100;

/// Why a recording is of no use.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum RecordingError {
    #[error("it is no whole recording: {0}\nhint: a recording that was cut off cannot be used; record again")]
    Malformed(String),
    #[error("it has format {0}, and this version reads {known}\nhint: record again", known = Recording::FORMAT)]
    Format(u64),
    #[error("it has no service\nhint: record with --port, --pid, --cgroup or --unit")]
    NoService,
    #[error(
        "it has {0} requests, and a model needs {FEWEST} or more\nhint: record while the service is under its load"
    )]
    FewRequests(u64),
    #[error("{key} is {value}: {fix}")]
    Impossible { key: String, value: String, fix: String },
}

impl Recording {
    pub const FORMAT: u32 = 1;

    pub fn read(text: &str) -> Result<Self, RecordingError> {
        let malformed = |cause: serde_json::Error| RecordingError::Malformed(cause.to_string());
        let any: serde_json::Value = serde_json::from_str(text).map_err(malformed)?;
        let format = any.get("format").and_then(serde_json::Value::as_u64);
        match format {
            Some(format) if format == u64::from(Self::FORMAT) => {}
            Some(other) => return Err(RecordingError::Format(other)),
            None => return Err(RecordingError::Malformed("there is no number `format`".to_owned())),
        }
        let recording = Self::deserialize(&any).map_err(malformed)?;
        recording.check()?;
        check_numbers("", &any)?;
        Ok(recording)
    }

    fn check(&self) -> Result<(), RecordingError> {
        let impossible = |key: &str, value: String, fix: String| {
            Err(RecordingError::Impossible { key: key.to_owned(), value, fix })
        };
        let positive = |key: &str, value: f64| {
            if value > 0.0 && value.is_finite() {
                return Ok(());
            }
            impossible(key, value.to_string(), "a number above 0 is possible; record again".to_owned())
        };
        positive("length_s", self.length_s)?;
        let service = self.service.as_ref().ok_or(RecordingError::NoService)?;
        if self.arrivals.requests < FEWEST {
            return Err(RecordingError::FewRequests(self.arrivals.requests));
        }
        let known = [
            ("arrivals.rate_per_s", &self.arrivals.rate_per_s),
            ("service.cpu_us", &service.cpu_us),
            ("service.work_us", &service.work_us),
            ("responses.p50_us", &self.responses.p50_us),
            ("responses.p99_us", &self.responses.p99_us),
            ("responses.p99_steady_us", &self.responses.p99_steady_us),
        ];
        for (key, value) in known {
            value.as_ref().map_or(Ok(()), |known| positive(key, known.value))?;
        }
        let machine = &self.machine;
        let cpus = [machine.sockets, machine.cores, machine.threads].map(u64::from).iter().product::<u64>();
        match usize::try_from(cpus) {
            Ok(0) => {
                let fix = "a machine has at least one CPU; record again";
                impossible("machine", "without CPUs".to_owned(), fix.to_owned())
            }
            Ok(cpus) if cpus <= MAX_CPUS => Ok(()),
            _ => {
                let fix = format!("the simulator has at most {MAX_CPUS}");
                impossible("machine", format!("one of {cpus} CPUs"), fix)
            }
        }
    }

    pub fn cpus(&self) -> u32 {
        let machine = &self.machine;
        u32::from(machine.sockets) * u32::from(machine.cores) * u32::from(machine.threads)
    }
}

/// Every number is a length, a rate, a count, a share or a power: none is negative, and none so large
/// that its unit loses its sense. The greatest is eleven days in nanoseconds.
fn check_numbers(key: &str, value: &serde_json::Value) -> Result<(), RecordingError> {
    const MOST: f64 = 1e15;
    let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match value {
        serde_json::Value::Object(fields) => {
            fields.iter().try_for_each(|(name, value)| check_numbers(&below(name), value))
        }
        serde_json::Value::Array(values) => values
            .iter()
            .enumerate()
            .try_for_each(|(place, value)| check_numbers(&below(&place.to_string()), value)),
        serde_json::Value::Number(number) => match number.as_f64() {
            Some(found) if (0.0..=MOST).contains(&found) => Ok(()),
            _ => Err(RecordingError::Impossible {
                key: key.to_owned(),
                value: number.to_string(),
                fix: format!("a number from 0 to {MOST:e} is possible; record again"),
            }),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn sample() -> Recording {
        let state = |name: &str, polls, exit_us, wake_us: Option<f64>, watts| State {
            name: name.to_owned(),
            polls,
            exit_us,
            residency_us: exit_us,
            wake_us: wake_us.map(|wake| Known::measured(wake, "a probe")),
            wake_p99_us: None,
            watts: Some(Known::estimate(watts, "a table")),
            share: Some(0.4),
        };
        Recording {
            format: Recording::FORMAT,
            began: "2026-11-25 20:00:00 UTC".to_owned(),
            length_s: 60.0,
            machine: Machine {
                kernel: Some("6.18".to_owned()),
                processor: Some("Xeon".to_owned()),
                preset: Some(Known::estimate("xeon-silver-4116".to_owned(), "unlisted")),
                virtual_machine: Some(true),
                topology: None,
                sockets: 1,
                cores: 2,
                threads: 1,
                governor: Some("menu".to_owned()),
                halt_poll_us: None,
                idle_driver: Some("haltpoll".to_owned()),
                states: vec![state("POLL", true, 0.0, None, 5.0), state("C1", false, 1.0, Some(40.0), 1.0)],
                clocks_khz: Vec::new(),
            },
            service: Some(Service {
                name: "memcached".to_owned(),
                ports: vec![11211],
                threads: Some(Known::measured(4, "schedstat")),
                cpus: Some(2),
                cpu_us: Some(Known::derived(12.0, "CPU time over requests")),
                work_us: Some(Known::measured(8.0, "probes")),
                work_cv: Some(Known::measured(0.5, "probes")),
                turns_per_s: None,
                requests_a_turn: None,
            }),
            arrivals: Arrivals {
                requests: 600_000,
                rate_per_s: Some(Known::measured(10_000.0, "probes")),
                each_second: vec![10_000.0; 60],
                scv: Some(Known::derived(1.0, "dispersion")),
                connections: Some(Known::measured(32, "/proc/net/tcp")),
                merged_per_s: None,
            },
            responses: Responses {
                mean_us: Some(Known::measured(55.0, "probes")),
                p50_us: Some(Known::measured(50.0, "probes")),
                p99_us: Some(Known::measured(110.0, "probes")),
                ..Responses::default()
            },
            others: vec![Other {
                name: "other programs".to_owned(),
                per_s: Known::measured(500.0, "schedstat"),
                length_us: Some(Known::derived(20.0, "time over turns")),
            }],
            sleeps: Sleeps {
                busy_cpus: Some(Known::measured(0.6, "cpu_idle")),
                wakes_per_s: Some(Known::measured(9_000.0, "cpu_idle")),
                ..Sleeps::default()
            },
            generator: None,
            gaps: Vec::new(),
        }
    }

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let text = serde_json::to_string_pretty(&sample()).unwrap();
        assert_eq!(Recording::read(&text).unwrap(), sample());
        assert!(text.contains("\"ESTIMATE\"") && !text.contains("null"), "{text}");
    }

    #[test]
    fn a_recording_cut_anywhere_is_refused() {
        let text = serde_json::to_string(&sample()).unwrap();
        for cut in (0..text.len() - 1).step_by(37) {
            assert!(Recording::read(&text[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn bad_recordings_are_told_with_their_fix() {
        let told = |change: &dyn Fn(&mut Recording)| {
            let mut bad = sample();
            change(&mut bad);
            Recording::read(&serde_json::to_string(&bad).unwrap()).unwrap_err().to_string()
        };
        assert!(told(&|bad| bad.format = 9).contains("format 9"));
        assert!(told(&|bad| bad.service = None).contains("--port"));
        assert!(told(&|bad| bad.arrivals.requests = 0).contains("under its load"));
        assert!(told(&|bad| bad.arrivals.requests = 99).contains("it has 99 requests"));
        assert!(told(&|bad| bad.length_s = 0.0).contains("length_s is 0"));
        assert!(told(&|bad| bad.machine.cores = 0).contains("without CPUs"));
        let negative = |bad: &mut Recording| bad.responses.p50_us = Some(Known::measured(-1.0, "x"));
        assert!(told(&negative).contains("responses.p50_us is -1"));
        let many = |bad: &mut Recording| (bad.machine.sockets, bad.machine.cores) = (65_535, 65_535);
        assert!(told(&many).contains("at most 256"), "{}", told(&many));
        let never = |bad: &mut Recording| bad.machine.states[0].exit_us = 1e300;
        assert!(told(&never).contains("machine.states.0.exit_us is 1e+300"), "{}", told(&never));
        let less = |bad: &mut Recording| bad.others[0].per_s.value = -5.0;
        assert!(told(&less).contains("others.0.per_s.value is -5"), "{}", told(&less));
    }
}
