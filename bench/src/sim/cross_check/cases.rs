//! The queues of the cross-check: those of `sim-coverage`, which never sleep, and some that do.
//!
//! Times are in microseconds, powers in watts. The mean service takes 10 us.

use anyhow::Result;
use serde_json::{Value, json};
use sim::Document;
use sim::exact::{ResponseTime, SleepingServer};
use sim::scenario::Estimates;
use sim::statistics::coverage::{CELLS, Cell, Service};

pub const SERVICE_US: f64 = 10.0;
/// Of a core that works, wakes or polls.
const BUSY_WATTS: f64 = 6.0;

/// An idle state. Its residency is the one from which it pays with a wake-up at full power, so that
/// the power does not depend on which rule for waking is in force.
#[derive(Clone, Copy, Debug)]
pub struct State {
    exit_us: f64,
    residency_us: f64,
    watts: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// One queue for all of the cores.
    Shared,
    /// One for each core, drawn at random.
    Random,
}

/// A queue, and how its servers sleep.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    cell: Cell,
    queues: Queues,
    /// None if the cores poll when they are idle.
    states: &'static [State],
}

/// A figure by which a case is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    Mean,
    P99,
    Watts,
    Working,
    Waking,
}

impl Figure {
    pub const ALL: [Self; 5] = [Self::Mean, Self::P99, Self::Watts, Self::Working, Self::Waking];

    /// As the table and the other simulator call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P99 => "p99",
            Self::Watts => "watts",
            Self::Working => "working",
            Self::Waking => "waking",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Mean | Self::P99 => "us",
            Self::Watts => "W",
            Self::Working | Self::Waking => "%",
        }
    }
}

const FREE: [State; 1] = [State { exit_us: 0.0, residency_us: 0.0, watts: 1.0 }];
/// 6 W for 30 us are 5 W, saved, for 36 us.
const SLOW: [State; 1] = [State { exit_us: 30.0, residency_us: 36.0, watts: 1.0 }];
/// 6 W for 4 us are 4 W for 6 us; 6 W for 20 us more are 1.5 W for 80 us.
const TWO: [State; 2] = [
    State { exit_us: 4.0, residency_us: 6.0, watts: 2.0 },
    State { exit_us: 24.0, residency_us: 80.0, watts: 0.5 },
];

/// All of them, in the order of the table.
pub fn cases() -> Vec<Case> {
    let plain = CELLS.iter().map(|cell| Case {
        name: cell.name.to_owned(),
        cell: *cell,
        queues: Queues::Shared,
        states: &[],
    });
    let sleeping = [
        ("M/M/10 0.8, sleep that costs nothing", 10, 0.8, Queues::Shared, &FREE[..]),
        ("M/M/1 0.5, set-up 30 us", 1, 0.5, Queues::Shared, &SLOW),
        ("M/M/1 0.8, set-up 30 us", 1, 0.8, Queues::Shared, &SLOW),
        ("M/M/1 0.2, two states, foreseen", 1, 0.2, Queues::Random, &TWO),
        ("10 x M/M/1 0.3, set-up 30 us", 10, 0.3, Queues::Random, &SLOW),
        ("M/M/10 0.3, set-up 30 us", 10, 0.3, Queues::Shared, &SLOW),
        ("M/M/10 0.7, set-up 30 us", 10, 0.7, Queues::Shared, &SLOW),
    ];
    let sleeping = sleeping.into_iter().map(|(name, servers, load, queues, states)| Case {
        name: name.to_owned(),
        cell: Cell { name, servers, load, service: Service::Exponential },
        queues,
        states,
    });
    plain.chain(sleeping).collect()
}

impl Case {
    /// Requests that come per microsecond, to all servers.
    fn rate(&self) -> f64 {
        self.cell.arrival_rate() / SERVICE_US
    }

    /// A governor knows the length of each idle period.
    fn foresees(&self) -> bool {
        self.states.len() > 1
    }

    /// Each of the servers, if it is M/M/1 of its own and has to wake.
    fn server(&self) -> Option<SleepingServer> {
        let is_single = self.cell.servers == 1 || self.queues == Queues::Random;
        if !is_single || self.states.is_empty() {
            return None;
        }
        let states: Vec<(f64, f64)> =
            self.states.iter().map(|state| (state.residency_us, state.exit_us)).collect();
        let rate = self.rate() / f64::from(self.cell.servers);
        Some(SleepingServer::foreseeing(rate, 1.0 / SERVICE_US, &states))
    }

    /// True if waking takes no time: then sleep changes nothing of the queue.
    fn is_plain(&self) -> bool {
        self.states.iter().all(|state| state.exit_us == 0.0)
    }

    /// The figure in closed form; `None` where there is none.
    pub fn exact(&self, figure: Figure) -> Option<f64> {
        let servers = f64::from(self.cell.servers);
        let (server, load) = (self.server(), self.cell.load);
        let response = match &server {
            _ if self.is_plain() => Some((self.cell.exact(), SERVICE_US)),
            Some(server) => Some((ResponseTime::sleeping(server), 1.0)),
            None => None,
        };
        match figure {
            Figure::Mean => response.map(|(response, unit)| response.mean() * unit),
            Figure::P99 => response.map(|(response, unit)| response.quantile(0.99) * unit),
            Figure::Working => Some(load),
            Figure::Waking if self.is_plain() => None,
            Figure::Waking => server.map(|server| server.waking()),
            Figure::Watts if self.states.is_empty() => None,
            Figure::Watts if self.is_plain() => {
                Some(servers * (load * BUSY_WATTS + (1.0 - load) * self.states[0].watts))
            }
            Figure::Watts => server.map(|server| {
                let asleep: f64 =
                    server.asleep().iter().zip(self.states).map(|(share, state)| share * state.watts).sum();
                servers * ((server.working() + server.waking()) * BUSY_WATTS + asleep)
            }),
        }
    }

    /// The figures that are compared: polling cores have no power and no wake-ups of interest.
    pub fn figures(&self) -> &'static [Figure] {
        match self.states.is_empty() {
            true => &[Figure::Mean, Figure::P99, Figure::Working],
            false if self.is_plain() => &[Figure::Mean, Figure::P99, Figure::Watts, Figure::Working],
            false => &Figure::ALL,
        }
    }

    /// The line of policies under which Roost simulates it.
    pub fn policies(&self) -> &'static str {
        match self.states.len() {
            0 => "poll",
            1 => "shallow",
            _ => "clairvoyant",
        }
    }

    /// The case as a scenario of Roost.
    pub fn document(&self, requests: u64) -> Result<Document> {
        let service = match self.cell.service {
            Service::Exponential => "{ exponential = \"10us\" }",
            Service::Constant => "{ deterministic = \"10us\" }",
            Service::Erlang2 => "{ distribution = \"erlang\", mean = \"10us\", stages = 2 }",
            Service::Branches { .. } => "{ distribution = \"hyperexponential\", mean = \"10us\", scv = 4.0 }",
        };
        let queues = if self.queues == Queues::Shared { "shared" } else { "random" };
        let state = |(place, state): (usize, &State)| {
            let ns = |us: f64| (us * 1e3) as u64;
            format!(
                "{{ name = \"S{}\", kind = \"halting\", exit_latency = {}, target_residency = {}, \
                 power = {} }}",
                place + 1,
                ns(state.exit_us),
                ns(state.residency_us),
                (state.watts * 1e6) as u64
            )
        };
        let states: Vec<String> = self.states.iter().enumerate().map(state).collect();
        let states = match states.is_empty() {
            true => String::new(),
            false => format!("cstates = [{}]\n", states.join(", ")),
        };
        let busy = BUSY_WATTS * 1e6;
        let text = format!(
            "[machine]\npreset = \"xeon-silver-4116\"\nsockets = 1\ncores = {}\nthreads = 1\npackage = false\n\
             tick = \"never\"\ntimer = \"1000s\"\ntick_cost = \"0us\"\n{states}\
             frequencies = {{ points = [{{ frequency = 2100000, power = {busy:.0}, kind = \"pstate\" }}], \
             domain = \"core\", delay = \"0us\", stall = \"0s\" }}\n\
             [server]\ndispatch = \"{queues}\"\n\
             [workload]\nservice = {service}\n\
             [run]\nutilisation = {}\nrequests = {requests}\nhorizon = \"steady\"\n",
            self.cell.servers, self.cell.load
        );
        Ok(Document::parse("cross-check.toml".as_ref(), &text, &Estimates::default())?)
    }

    /// The case as `benches/references/sleeping.py` reads it.
    pub fn parameters(&self, requests: u64, seeds: &[u64]) -> Value {
        let service = match self.cell.service {
            Service::Exponential => json!({ "kind": "exponential", "mean": SERVICE_US }),
            Service::Constant => json!({ "kind": "constant", "mean": SERVICE_US }),
            Service::Erlang2 => json!({ "kind": "erlang2", "mean": SERVICE_US }),
            Service::Branches { first } => json!({ "kind": "branches", "mean": SERVICE_US, "first": first }),
        };
        let state = |state: &State| {
            json!({
                "exit": state.exit_us, "residency": state.residency_us, "watts": state.watts,
            })
        };
        json!({
            "servers": self.cell.servers,
            "rate": self.rate(),
            "service": service,
            "queue": if self.queues == Queues::Shared { "shared" } else { "random" },
            "states": self.states.iter().map(state).collect::<Vec<_>>(),
            "foresees": self.foresees(),
            "watts": BUSY_WATTS,
            "requests": requests,
            "seeds": seeds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_costs_the_same_by_both_rules() {
        for case in cases() {
            let (mut joules, mut above) = (0.0, BUSY_WATTS);
            for state in case.states {
                joules += (above - state.watts) * state.residency_us;
                above = state.watts;
                assert!((joules - BUSY_WATTS * state.exit_us).abs() < 1e-9, "{}: {state:?}", case.name);
            }
        }
    }

    #[test]
    fn closed_forms_are_those_of_the_textbook() {
        let cases = cases();
        let of = |name: &str, figure| {
            cases.iter().find(|case| case.name == name).and_then(|case| case.exact(figure)).unwrap()
        };
        // 20 us of M/M/1, and (2 D + lambda D^2) / (2 (1 + lambda D)) = 105 / 5 us of set-up.
        assert!((of("M/M/1 0.5, set-up 30 us", Figure::Mean) - 41.0).abs() < 1e-9);
        assert!((of("M/M/1 0.5, set-up 30 us", Figure::Waking) - 0.3).abs() < 1e-12);
        assert!((of("M/M/1 0.5, set-up 30 us", Figure::Watts) - 5.0).abs() < 1e-9);
        assert!((of("M/M/10 0.8, sleep that costs nothing", Figure::Watts) - 50.0).abs() < 1e-9);
        assert!((of("M/M/10 0.8", Figure::Mean) - 12.0459).abs() < 1e-4);
    }
}
