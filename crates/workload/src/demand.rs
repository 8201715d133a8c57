//! The demand on a service, as a scenario describes it.
//!
//! A [`Demand`] joins the two halves of a workload for a simulator: *when* requests arrive (rate,
//! shape, kind of arrivals) and *how long* each takes (classes with their service times). Or it
//! names a trace that has both. [`Demand::jobs`] makes it a stream of [`Job`](crate::Job)s.
//!
//! Invariant: a description with a mistake is refused before the first job is made; the error names
//! the key and the fix.

use crate::either::{Either, either};
use crate::job_trace::{CLASSES_MAX, JobTrace};
use crate::{
    ArrivalKind, Arrivals, Autoregressive, Batch, Connections, Distribution, Jobs, Shape, SpecError,
};
use machine::{Duration, Rate, Ratio};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Requests that arrive at a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Demand {
    /// Everything random follows from this number.
    pub seed: u64,
    /// The highest rate of the shape; left out, the shape's own.
    #[serde(with = "crate::rate_text::optional")]
    pub rate: Option<Rate>,
    /// How the rate changes over time.
    pub shape: Load,
    /// By how much the times of shapes that have their own, and of a trace, are divided.
    pub compression: f64,
    /// How arrivals are spread around the rate.
    pub arrivals: ArrivalKind,
    /// How many arrive at a time.
    pub batch: Batch,
    /// The service time at the nominal clock, if all requests are of one class.
    pub service: Option<Distribution>,
    /// Share of a service time that a faster clock does not shorten, if all are of one class.
    pub memory: Ratio,
    /// When an answer is late, counted from its arrival, if all are of one class.
    #[serde(with = "machine::duration_text::optional")]
    pub deadline: Option<Duration>,
    /// A file of requests, instead of rate, shape, arrivals and service times.
    pub trace: Option<PathBuf>,
    pub connections: Connections,
    /// Classes of requests, instead of `service`, `memory` and `deadline`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class: Vec<Class>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    pub name: String,
    /// How many requests are of it, against the other classes' shares. A trace decides that by
    /// itself.
    #[serde(default = "one")]
    pub share: f64,
    /// A request's service time at the nominal clock. Only a trace has its own.
    pub service: Option<Distribution>,
    /// Share of a service time that a faster clock does not shorten.
    #[serde(default)]
    pub memory: Ratio,
    /// Instead of a share: of a service time x a faster clock does not shorten M (1 - exp(-x / M)), which
    /// is nearly all of a short one and hardly more than this M of a long one.
    #[serde(default, with = "machine::duration_text::optional")]
    pub memory_most: Option<Duration>,
    /// When an answer is late, counted from its arrival.
    #[serde(default, with = "machine::duration_text::optional")]
    pub deadline: Option<Duration>,
}

fn one() -> f64 {
    1.0
}

/// A load shape, or the process that makes one.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// As `roost load --shape` takes it.
    Shape(Shape),
    /// With all parameters of its own.
    Autoregressive(Autoregressive),
}

impl Load {
    /// The shape that it comes to.
    pub fn shape(&self) -> Result<Shape, SpecError> {
        match self {
            Self::Shape(shape) => Ok(shape.clone()),
            Self::Autoregressive(process) => Shape::autoregressive(process),
        }
    }
}

/// The table form in a scenario.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadTable<T> {
    autoregressive: T,
}

impl Serialize for Load {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Shape(shape) => serializer.collect_str(shape),
            Self::Autoregressive(process) => LoadTable { autoregressive: process }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Load {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a load shape such as \"ramp:50k..1M\", or { autoregressive = { .. } }";
        match either::<D, String, LoadTable<Autoregressive>>(deserializer, expected)? {
            Either::Plain(text) => text.parse().map(Self::Shape).map_err(D::Error::custom),
            Either::Table(LoadTable { autoregressive }) => {
                autoregressive.rates().map_err(D::Error::custom)?;
                Ok(Self::Autoregressive(autoregressive))
            }
        }
    }
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            seed: 1,
            rate: None,
            shape: Load::Shape(Shape::constant()),
            compression: 1.0,
            arrivals: ArrivalKind::Poisson,
            batch: Batch::default(),
            service: None,
            memory: Ratio::ZERO,
            deadline: None,
            trace: None,
            connections: Connections::default(),
            class: Vec::new(),
        }
    }
}

impl Demand {
    /// The jobs of a run of this length, which shapes without times of their own are stretched
    /// over.
    pub fn jobs(&self, run: Duration) -> Result<Jobs, SpecError> {
        if !(self.compression.is_finite() && self.compression > 0.0) {
            return Err(wrong("compression", "is out of range", "write a factor above zero, such as 60"));
        }
        self.batch.check()?;
        let classes = self.classes()?;
        match &self.trace {
            Some(path) => {
                let names: Vec<String> = self.class.iter().map(|class| class.name.clone()).collect();
                Jobs::replayed(JobTrace::open(path, &names)?, &classes, self)
            }
            None => {
                let shape = self.shape.shape()?;
                let profile =
                    shape.profile(self.rate, run, self.compression).map_err(|error| match error {
                        SpecError::RateMissing(shape) => {
                            let problem = format!("is missing, and the shape {shape} has none of its own");
                            wrong("rate", &problem, "write requests per second, such as rate = \"50k\"")
                        }
                        other => other,
                    })?;
                let arrivals = Arrivals::new(self.arrivals, profile, self.seed);
                Jobs::drawn(arrivals.in_batches(self.batch, self.seed), &classes, self)
            }
        }
    }

    /// The classes in force: those written, or the one that the keys above them stand for.
    fn classes(&self) -> Result<Vec<Class>, SpecError> {
        let single = self.service.is_some() || self.deadline.is_some() || self.memory != Ratio::ZERO;
        if single && !self.class.is_empty() {
            let fix = "give each class its own service, memory and deadline";
            return Err(wrong("service", "stands beside classes", fix));
        }
        if self.trace.is_some() && (self.rate.is_some() || self.shape != Self::default().shape) {
            return Err(wrong(
                "rate",
                "stands beside a trace",
                "leave rate and shape out: a trace has its own",
            ));
        }
        if self.trace.is_some() && self.batch != Batch::default() {
            let fix = "leave batch out: a trace says when each request comes";
            return Err(wrong("batch", "stands beside a trace", fix));
        }
        let alone = Class {
            name: "all".into(),
            share: 1.0,
            service: self.service.clone(),
            memory: self.memory,
            memory_most: None,
            deadline: self.deadline,
        };
        let classes = if self.class.is_empty() { vec![alone] } else { self.class.clone() };
        if classes.len() > CLASSES_MAX {
            return Err(wrong("class", "is there more than 256 times", "use fewer classes"));
        }
        let mut names = BTreeSet::new();
        for class in &classes {
            if class.name.is_empty() || !names.insert(&class.name) {
                let problem = format!("`{}` is empty or used twice", class.name);
                return Err(wrong("class.name", &problem, "give each class a name of its own"));
            }
            if !(class.share > 0.0 && class.share <= SHARE_MAX) {
                let problem = format!("of {} is out of range", class.name);
                return Err(wrong("class.share", &problem, "write a number above zero, such as 0.95"));
            }
            if !(0.0..=1.0).contains(&class.memory.as_f64()) {
                let problem = format!("of {} is out of range", class.name);
                return Err(wrong("memory", &problem, "write a share of the service time from 0 to 1"));
            }
            if class.memory_most.is_some_and(|most| most.is_zero() || class.memory != Ratio::ZERO) {
                let problem = format!("of {} is zero, or stands beside a share", class.name);
                return Err(wrong("memory_most", &problem, "write memory, or memory_most = \"30ms\""));
            }
            match (&class.service, &self.trace) {
                (Some(_), Some(_)) => {
                    let fix = "leave service out: a trace has its own times";
                    return Err(wrong("service", "stands beside a trace", fix));
                }
                (None, None) => {
                    let problem = format!("of {} is missing", class.name);
                    return Err(wrong("service", &problem, "write service = { exponential = \"10us\" }"));
                }
                _ => {}
            }
        }
        Ok(classes)
    }
}

fn wrong(key: &str, problem: &str, fix: &'static str) -> SpecError {
    SpecError::Key { key: key.to_owned(), problem: problem.to_owned(), fix }
}

const SHARE_MAX: f64 = 1e15;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Demand, toml::de::Error> {
        toml::from_str(text)
    }

    fn refusal(text: &str) -> String {
        match read(text) {
            Err(error) => error.to_string(),
            Ok(demand) => demand.jobs(Duration::from_secs(1)).unwrap_err().to_string(),
        }
    }

    #[test]
    fn a_demand_survives_being_written() {
        for text in [
            "rate = \"80k\"\nservice = { exponential = \"10us\" }",
            "rate = 5\nservice = \"memcached\"\nmemory = 0.3\ndeadline = \"300us\"\nconnections = 512\n\
             arrivals = \"h2:1.5\"\nbatch = { geometric = 3.0 }",
            "shape = \"carb-fast\"\nservice = \"carb\"",
            "service = \"carb\"\nshape = { autoregressive = { mean = \"20k\", weights = [0.9], step = \
             \"10s\", bursts = [{ at = 3, length = 1, height = 0.5 }] } }",
            "rate = 4\n[[class]]\nname = \"light\"\nshare = 0.95\nservice = \"hurry-up-light\"\ndeadline = \"1s\"\n\
             [[class]]\nname = \"heavy\"\nshare = 0.05\nservice = \"hurry-up-heavy\"\nmemory = 0.1",
        ] {
            let demand = read(text).unwrap();
            assert!(demand.jobs(Duration::from_secs(1)).is_ok(), "{text}");
            assert_eq!(read(&toml::to_string(&demand).unwrap()).unwrap(), demand, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_key_and_fix() {
        let service = "service = { exponential = \"10us\" }";
        for (text, parts) in [
            ("rate = 5".to_owned(), ["`service` of all is missing", "exponential"]),
            (service.to_owned(), ["`rate` is missing", "50k"]),
            (format!("rate = 0\n{service}"), ["rate", "above zero"]),
            (format!("rate = \"fast\"\n{service}"), ["rate", "50k"]),
            (format!("rate = nan\n{service}"), ["rate", "above zero"]),
            (format!("rate = 5\nmemory = 1.5\n{service}"), ["`memory` of all", "from 0 to 1"]),
            (format!("rate = 5\nmemory = nan\n{service}"), ["`memory` of all", "from 0 to 1"]),
            (format!("rate = 5\ncompression = 0\n{service}"), ["`compression`", "above zero"]),
            (format!("rate = 5\nshape = \"saw\"\n{service}"), ["shape", "write constant"]),
            (format!("rate = 5\narrivals = \"weibull\"\n{service}"), ["arrivals", "write poisson"]),
            (format!("rate = 5\ndeadline = 5\n{service}"), ["deadline", "string"]),
            (format!("rate = 5\nthreads = 5\n{service}"), ["unknown field `threads`", "expected one of"]),
            (
                format!("rate = 5\n{service}\n[[class]]\nname = \"a\"\n{service}"),
                ["beside classes", "its own"],
            ),
            (
                format!("rate = 5\n[[class]]\nname = \"a\"\nshare = 0\n{service}"),
                ["`class.share` of a", "above zero"],
            ),
            ("rate = 5\n[[class]]\nname = \"a\"".to_owned(), ["`service` of a", "exponential"]),
            (
                format!("rate = 5\n[[class]]\nname = \"a\"\n{service}\n[[class]]\nname = \"a\"\n{service}"),
                ["`a` is empty or used twice", "of its own"],
            ),
            (
                format!("trace = \"x.csv\"\n{service}"),
                ["`service` stands beside a trace", "leave service out"],
            ),
            ("trace = \"x.csv\"\nbatch = 4".to_owned(), ["`batch` stands beside a trace", "leave batch"]),
            (format!("rate = 5\nbatch = 0\n{service}"), ["`batch` is out of range", "geometric"]),
            ("trace = \"x.csv\"\nrate = 5".to_owned(), ["`rate` stands beside a trace", "leave rate"]),
            ("trace = \"/nonexistent/x.csv\"".to_owned(), ["/nonexistent/x.csv", "time,class,service"]),
            (
                format!("shape = {{ autoregressive = {{ phi = -1 }} }}\n{service}"),
                ["autoregressive.phi", "number of means"],
            ),
            (
                "rate = 5\nservice = { distribution = \"empirical\", file = \"/nonexistent/x.cdf\", unit = \
                 \"s\" }"
                    .to_owned(),
                ["/nonexistent/x.cdf", "`x F`"],
            ),
        ] {
            let message = refusal(&text);
            assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
        }
    }
}
