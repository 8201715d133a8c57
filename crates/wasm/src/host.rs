//! The functions that a module imports, and the data behind them.

use crate::MOST_MEMORY;
use machine::{Duration, Goal, Kilohertz};
use policy::kind::Making;
use policy::own::{Orders, Reading};
use wasmi::{Caller, Engine, Error, Linker, StoreLimits, StoreLimitsBuilder};

/// A machine as a module may ask about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Knobs {
    /// So many cores may serve requests.
    pub workers: u16,
    pub cpus: usize,
    /// Exit latency and target residency of each idle state, shallow to deep.
    pub idle_states: Vec<(Duration, Duration)>,
    /// From slow to fast; none where clocks cannot be ordered.
    pub clocks: Vec<Kilohertz>,
    pub goal: Option<Goal>,
}

impl From<&Making<'_>> for Knobs {
    fn from(making: &Making<'_>) -> Self {
        let states = making.platform.cstates.0.iter();
        let points = making.points();
        Self {
            workers: making.workers,
            cpus: making.cpus(),
            idle_states: states.map(|state| (state.exit_latency, state.target_residency)).collect(),
            clocks: points.iter().map(|point| points.khz(point)).collect(),
            goal: making.goal,
        }
    }
}

/// The data of one instance: its questions' answers, and its orders.
pub(crate) struct Host {
    pub limits: StoreLimits,
    pub knobs: Knobs,
    last: Last,
    pub orders: Orders,
}

/// The last epoch in the units of the interface.
#[derive(Default)]
struct Last {
    now_ns: i64,
    span_ns: i64,
    requests: i64,
    mean_ns: i64,
    tail_ns: i64,
    active: i32,
    working: Vec<f64>,
    core_watts: f64,
}

impl Host {
    pub fn new(knobs: Knobs) -> Self {
        let limits = StoreLimitsBuilder::new().memory_size(MOST_MEMORY).table_elements(TABLE).build();
        let last = Last {
            mean_ns: MISSING,
            tail_ns: MISSING,
            active: knobs.workers.into(),
            core_watts: f64::NAN,
            working: vec![0.0; knobs.cpus],
            ..Last::default()
        };
        Self { limits, knobs, last, orders: Orders::default() }
    }

    pub fn see(&mut self, seen: &Reading<'_>) {
        let or_missing = |time: Option<Duration>| time.map_or(MISSING, ns);
        let last = &mut self.last;
        last.now_ns = ns(seen.now.since(machine::Instant::ZERO));
        last.span_ns = ns(seen.span);
        last.requests = i64::try_from(seen.responses.count).unwrap_or(i64::MAX);
        last.mean_ns = or_missing(seen.responses.mean);
        last.tail_ns = or_missing(seen.responses.tail);
        last.active = seen.active.into();
        last.core_watts = seen.core_watts;
        last.working.clear();
        last.working.extend(seen.working);
    }
}

/// Every function of the interface, in the module `roost`.
pub(crate) fn linker(engine: &Engine) -> Linker<Host> {
    let mut linker = Linker::new(engine);
    macro_rules! give {
        ($($name:literal: $call:expr;)*) => {
            $(linker.func_wrap("roost", $name, $call).expect("each name is given once");)*
        };
    }
    give! {
        "workers": |host: Caller<'_, Host>| i32::from(host.data().knobs.workers);
        "cpus": |host: Caller<'_, Host>| host.data().knobs.cpus as i32;
        "goal_ns": |host: Caller<'_, Host>| host.data().knobs.goal.map_or(MISSING, |goal| ns(goal.latency));
        "goal_quantile": |host: Caller<'_, Host>| host.data().knobs.goal.map_or(f64::NAN, |goal| goal.quantile);
        "idle_states": |host: Caller<'_, Host>| host.data().knobs.idle_states.len() as i32;
        "exit_latency_ns": |host: Caller<'_, Host>, state: i32| -> Result<i64, Error> {
            Ok(ns(at(&host.data().knobs.idle_states, state, "exit_latency_ns")?.0))
        };
        "target_residency_ns": |host: Caller<'_, Host>, state: i32| -> Result<i64, Error> {
            Ok(ns(at(&host.data().knobs.idle_states, state, "target_residency_ns")?.1))
        };
        "clocks": |host: Caller<'_, Host>| host.data().knobs.clocks.len() as i32;
        "clock_khz": |host: Caller<'_, Host>, clock: i32| -> Result<i64, Error> {
            Ok(at(&host.data().knobs.clocks, clock, "clock_khz")?.0 as i64)
        };
        "now_ns": |host: Caller<'_, Host>| host.data().last.now_ns;
        "span_ns": |host: Caller<'_, Host>| host.data().last.span_ns;
        "requests": |host: Caller<'_, Host>| host.data().last.requests;
        "mean_ns": |host: Caller<'_, Host>| host.data().last.mean_ns;
        "tail_ns": |host: Caller<'_, Host>| host.data().last.tail_ns;
        "active": |host: Caller<'_, Host>| host.data().last.active;
        "working": |host: Caller<'_, Host>, cpu: i32| at(&host.data().last.working, cpu, "working");
        "core_watts": |host: Caller<'_, Host>| host.data().last.core_watts;
        "set_cores": |mut host: Caller<'_, Host>, cores: i32| -> Result<(), Error> {
            let all = host.data().knobs.workers;
            let ordered = u16::try_from(cores).ok().filter(|cores| (1..=all).contains(cores));
            let wrong = || Error::new(format!("set_cores({cores}): order 1 to {all}"));
            host.data_mut().orders.cores = Some(ordered.ok_or_else(wrong)?);
            Ok(())
        };
        "set_idle_limit_ns": |mut host: Caller<'_, Host>, ns: i64| {
            host.data_mut().orders.idle_limit =
                Some(u64::try_from(ns).map_or(Duration::MAX, Duration::from_nanos));
        };
        "set_clock_khz": |mut host: Caller<'_, Host>, khz: i64| -> Result<(), Error> {
            let ordered = u64::try_from(khz).ok().filter(|khz| *khz > 0);
            let wrong = || Error::new(format!("set_clock_khz({khz}): such as 2100000 for 2.1 GHz"));
            host.data_mut().orders.clock = Some(Kilohertz(ordered.ok_or_else(wrong)?));
            Ok(())
        };
    }
    linker
}

fn at<T: Copy>(list: &[T], index: i32, call: &str) -> Result<T, Error> {
    let found = usize::try_from(index).ok().and_then(|index| list.get(index).copied());
    found.ok_or_else(|| Error::new(format!("{call}({index}): there are {}", list.len())))
}

/// A time in the interface; [`Duration::MAX`] and all that is as long is the greatest number.
pub(crate) fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// A reading that is not there.
const MISSING: i64 = -1;

/// Entries of a table of functions.
const TABLE: usize = 1000;
