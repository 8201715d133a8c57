//! Policies that are written in Python.
//!
//! A call gives names to classes, and its lines of policies use them. Each run makes its own object of
//! a class, on the run's thread, and calls it once an epoch with the interpreter's lock.
//!
//! Invariants:
//! - A name stands for one class as long as a run uses it. An entry of a registry lives for ever, so
//!   a name's is made once.
//! - A call that lasts longer than its limit, or than the runs that it belongs to, is ended by an
//!   exception in its thread. Code that is not Python (`time.sleep`) is not: it returns first.

use crate::errors::wrong;
use machine::{Duration, Kilohertz};
use policy::kind::{CorePolicy, Make, Making};
use policy::own::{Decide, Orders, Own};
use policy::registry::{Entry, Registry, Word};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString};
use sim::policies;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The machine that a policy is made for, and its goal.
#[pyclass(frozen, get_all, module = "roost")]
pub struct Knobs {
    workers: u16,
    clocks_khz: Vec<u64>,
    idle_states: Vec<(String, u64)>,
    goal_ns: Option<u64>,
    goal_quantile: Option<f64>,
}

/// An epoch that has ended; `_roost.pyi` tells the fields.
#[pyclass(frozen, eq, get_all, module = "roost")]
#[derive(PartialEq)]
pub struct Reading {
    now_ns: u64,
    span_ns: u64,
    requests: u64,
    rate_per_s: f64,
    mean_ns: Option<u64>,
    tail_ns: Option<u64>,
    active: u16,
    working: Vec<f64>,
    core_watts: f64,
}

#[pymethods]
impl Reading {
    fn __repr__(&self) -> String {
        let length = |ns: Option<u64>| ns.map_or("None".to_owned(), |ns| ns.to_string());
        let Self { now_ns, span_ns, requests, rate_per_s, mean_ns, tail_ns, active, working, core_watts } =
            self;
        format!(
            "Reading(now_ns={now_ns}, span_ns={span_ns}, requests={requests}, rate_per_s={rate_per_s}, \
             mean_ns={}, tail_ns={}, active={active}, working={working:?}, core_watts={core_watts})",
            length(*mean_ns),
            length(*tail_ns)
        )
    }
}

/// Orders for the epochs that come.
#[pyclass(frozen, eq, module = "roost")]
#[derive(PartialEq)]
pub struct Commands(Orders);

#[pymethods]
impl Commands {
    #[new]
    #[pyo3(signature = (*, cores = None, idle_limit_ns = None, clock_khz = None))]
    fn new(cores: Option<i64>, idle_limit_ns: Option<f64>, clock_khz: Option<f64>) -> PyResult<Self> {
        let cores = cores.map(|cores| {
            u16::try_from(cores).ok().filter(|cores| *cores > 0).ok_or_else(|| {
                wrong(format!("cores = {cores}\n\nhint: from 1 to the machine's workers; None leaves it"))
            })
        });
        let idle_limit = idle_limit_ns.map(|ns| match ns {
            0.0.. => Ok(Duration::from_nanos(ns as u64)),
            _ => Err(wrong(format!(
                "idle_limit_ns = {ns}\n\nhint: an exit latency from 0 on, which is polling; math.inf for no \
                 limit"
            ))),
        });
        let clock = clock_khz.map(|khz| match khz {
            1.0..1e9 => Ok(Kilohertz(khz as u64)),
            _ => Err(wrong(format!("clock_khz = {khz}\n\nhint: such as 2_100_000 for 2.1 GHz"))),
        });
        let (cores, idle_limit, clock) = (cores.transpose()?, idle_limit.transpose()?, clock.transpose()?);
        Ok(Self(Orders { cores, idle_limit, clock }))
    }

    #[getter]
    fn cores(&self) -> Option<u16> {
        self.0.cores
    }

    #[getter]
    fn idle_limit_ns(&self) -> Option<f64> {
        self.0.idle_limit.map(|limit| match limit {
            Duration::MAX => f64::INFINITY,
            limit => limit.as_nanos() as f64,
        })
    }

    #[getter]
    fn clock_khz(&self) -> Option<u64> {
        self.0.clock.map(|clock| clock.0)
    }

    fn __repr__(&self) -> String {
        let number = |number: Option<f64>| number.map_or("None".to_owned(), |number| number.to_string());
        format!(
            "Commands(cores={}, idle_limit_ns={}, clock_khz={})",
            number(self.0.cores.map(f64::from)),
            number(self.idle_limit_ns()),
            number(self.0.clock.map(|clock| clock.0 as f64))
        )
    }
}

/// A class by its name, while runs use it.
struct Class {
    make: Py<PyAny>,
    users: usize,
    /// Calls that go on: the thread as Python numbers it, and when the call is to be over.
    calls: BTreeMap<u64, Instant>,
    /// The first exception, for the one that the caller gets.
    cause: Option<PyErr>,
}

static CLASSES: Mutex<BTreeMap<String, Class>> = Mutex::new(BTreeMap::new());

/// All classes by name. The lock is never held while Python runs.
fn classes() -> MutexGuard<'static, BTreeMap<String, Class>> {
    CLASSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names that lines of policies may use until it is dropped.
pub struct Names(Vec<String>);

impl Names {
    /// Of a mapping from names to classes.
    pub fn of(own: &Bound<'_, PyMapping>) -> PyResult<Self> {
        let mut names = Self::none();
        for item in own.items()?.iter() {
            let (name, make): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let Ok(name) = name.cast::<PyString>() else {
                return Err(PyTypeError::new_err("own: a name is a text, such as \"mine\""));
            };
            names.take(&name.to_string(), make)?;
        }
        Ok(names)
    }

    /// For runs that call no Python.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, name: &str, make: Bound<'_, PyAny>) -> PyResult<()> {
        let is_word = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c));
        if !is_word {
            return Err(wrong(format!(
                "own: `{name}` is no name\n\nhint: lowercase letters, digits and hyphens, such as `mine`"
            )));
        }
        if !make.is_callable() {
            return Err(wrong(format!(
                "own: {name} is of the type `{}`\n\nhint: give a class, or a function that makes an object \
                 with on_epoch",
                make.get_type().name()?
            )));
        }
        // Dropped after the lock: an object's end may be Python's.
        let _old;
        let mut classes = classes();
        if let Some(class) = classes.get_mut(name) {
            if class.users > 0 && !class.make.is(&make) {
                return Err(wrong(format!(
                    "own: {name} is another class's name in a run that goes on\n\nhint: give this one another \
                     name"
                )));
            }
            _old = std::mem::replace(&mut class.make, make.unbind());
            class.users += 1;
        } else {
            if policies::words().any(|word| word == name) {
                return Err(wrong(format!(
                    "own: {name} is a policy of roost\n\nhint: give yours another name"
                )));
            }
            policies::join(registry(name));
            let (calls, cause) = (BTreeMap::new(), None);
            classes.insert(name.to_owned(), Class { make: make.unbind(), users: 1, calls, cause });
        }
        self.0.push(name.to_owned());
        Ok(())
    }

    /// Ends the calls that last too long; with `all`, those that go on.
    pub fn end_calls(&self, py: Python<'_>, all: bool) -> PyResult<()> {
        let now = Instant::now();
        let late: Vec<u64> = {
            let classes = classes();
            let calls = self.0.iter().filter_map(|name| classes.get(name)).flat_map(|class| &class.calls);
            calls.filter(|(_, until)| all || **until <= now).map(|(thread, _)| *thread).collect()
        };
        if !late.is_empty() {
            py.import("roost._policy")?.getattr("end_calls")?.call1((late,))?;
        }
        Ok(())
    }

    /// The first exception of these classes.
    pub fn cause(&self, py: Python<'_>) -> Option<PyErr> {
        let classes = classes();
        self.0.iter().find_map(|name| classes.get(name)?.cause.as_ref()).map(|cause| cause.clone_ref(py))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // Dropped after the lock.
        let mut causes = Vec::new();
        let mut classes = classes();
        for name in &self.0 {
            if let Some(class) = classes.get_mut(name) {
                class.users -= 1;
                causes.extend(class.cause.take_if(|_| class.users == 0));
            }
        }
        drop(classes);
    }
}

/// A registry of this name alone.
fn registry(name: &str) -> &'static Registry {
    let word = Word::bare(Box::leak(name.to_owned().into_boxed_str()), "a policy in Python");
    let entry = Entry {
        words: Box::leak(Box::new([word])),
        origin: "the caller's own",
        make: Make::Cores(made),
        ..Entry::PLAIN
    };
    Box::leak(Box::new([&*Box::leak(Box::new(entry))]))
}

fn made(making: &Making<'_>) -> Box<dyn CorePolicy> {
    let own = Python::attach(|py| InPython::made(py, making));
    Box::new(own.unwrap_or_else(|problem| Own::failed(problem, making)))
}

/// The object that one run has made of a class.
struct InPython {
    name: String,
    object: Py<PyAny>,
    time_limit: std::time::Duration,
}

impl InPython {
    fn made(py: Python<'_>, making: &Making<'_>) -> Result<Own, String> {
        let name = making.word;
        let make = classes().get(name).filter(|class| class.users > 0).map(|class| class.make.clone_ref(py));
        let make =
            make.ok_or_else(|| format!("{name} was a name in another call: give it in own here, too"))?;
        let states = making.platform.cstates.0.iter();
        let points = making.points();
        let knobs = Knobs {
            workers: making.workers,
            clocks_khz: points.iter().map(|point| points.khz(point).0).collect(),
            idle_states: states.map(|state| (state.name.clone(), state.exit_latency.as_nanos())).collect(),
            goal_ns: making.goal.map(|goal| goal.latency.as_nanos()),
            goal_quantile: making.goal.map(|goal| goal.quantile),
        };
        let asked = || -> PyResult<(Py<PyAny>, Duration, f64, f64)> {
            let object = make.bind(py).call1((knobs,))?;
            let traits = py.import("roost._policy")?.getattr("traits_of")?.call1((&object,))?;
            let (epoch, quantile, limit): (String, f64, f64) = traits.extract()?;
            let epoch: Duration = epoch.parse().map_err(|problem| wrong(format!("epoch: {problem}")))?;
            if epoch < SHORTEST {
                return Err(wrong(format!("epoch = {epoch}\n\nhint: from {SHORTEST} on")));
            }
            Ok((object.unbind(), epoch, quantile, limit))
        };
        let (object, epoch, quantile, limit) = asked().map_err(|error| keep(py, name, error))?;
        let time_limit = std::time::Duration::from_secs_f64(limit);
        let policy = Self { name: name.to_owned(), object, time_limit };
        Ok(Own::new(Box::new(policy), making, epoch, quantile))
    }

    fn orders(&self, py: Python<'_>, reading: Reading) -> PyResult<Orders> {
        let answer = self.object.bind(py).call_method1("on_epoch", (reading,))?;
        if answer.is_none() {
            return Ok(Orders::default());
        }
        match answer.cast::<Commands>() {
            Ok(commands) => Ok(commands.get().0),
            Err(_) => Err(PyTypeError::new_err(format!(
                "on_epoch returned {}: return Commands, or None for no change",
                answer.repr()?
            ))),
        }
    }
}

/// Below it, a reading is a handful of requests.
const SHORTEST: Duration = Duration::from_micros(10);

impl Decide for InPython {
    fn on_epoch(&mut self, seen: &policy::own::Reading<'_>) -> Result<Orders, String> {
        let reading = Reading {
            now_ns: seen.now.as_nanos(),
            span_ns: seen.span.as_nanos(),
            requests: seen.responses.count,
            rate_per_s: machine::Rate::of(seen.responses.count, seen.span).as_per_second(),
            mean_ns: seen.responses.mean.map(Duration::as_nanos),
            tail_ns: seen.responses.tail.map(Duration::as_nanos),
            active: seen.active,
            core_watts: seen.core_watts,
            working: seen.working.to_vec(),
        };
        Python::attach(|py| {
            let call = Call::begin(py, &self.name, self.time_limit);
            let orders = call.and_then(|_call| self.orders(py, reading));
            orders.map_err(|error| {
                format!(
                    "{} at {}: {}",
                    self.name,
                    seen.now.since(machine::Instant::ZERO),
                    keep(py, &self.name, error)
                )
            })
        })
    }
}

/// Keeps the exception for the caller, and says it in a line.
fn keep(py: Python<'_>, name: &str, error: PyErr) -> String {
    // With its traceback.
    let value = error.clone_ref(py).into_value(py);
    let told = || py.import("roost._policy")?.getattr("told")?.call1((value,))?.extract();
    let told = told().unwrap_or_else(|_: PyErr| error.to_string());
    let mut error = Some(error);
    if let Some(class) = classes().get_mut(name)
        && class.cause.is_none()
    {
        class.cause = error.take();
    }
    told
}

/// A call of `on_epoch` that goes on, in its class's list.
struct Call<'a> {
    name: &'a str,
    thread: u64,
}

impl<'a> Call<'a> {
    fn begin(py: Python<'_>, name: &'a str, limit: std::time::Duration) -> PyResult<Self> {
        let thread = py.import("threading")?.getattr("get_ident")?.call0()?.extract()?;
        if let Some(class) = classes().get_mut(name) {
            class.calls.insert(thread, Instant::now() + limit);
        }
        Ok(Self { name, thread })
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(class) = classes().get_mut(self.name) {
            class.calls.remove(&self.thread);
        }
    }
}
