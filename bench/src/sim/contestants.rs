//! Who is measured, in which scenario, against which bar.

use anyhow::{Context as _, Result};
use machine::Platform;
use sim::scenario::{Document, Estimates};
use toml::Value;

/// Ten cores of a named machine, a load of 0.8, exponential services of 10 us.
const SCENARIO: &str = r#"
goal = "300us@p99"
[machine]
preset = "xeon-silver-4116"
sockets = 1
cores = 10
threads = 1
[workload]
service = { exponential = "10us" }
[run]
utilisation = 0.8
"#;

/// The references.
pub const SIMPY: &str = "SimPy";
pub const BY_HAND: &str = "by hand";

/// The mean service time of it.
pub const SERVICE_NS: f64 = 10_000.0;
pub const LOAD: f64 = 0.8;

/// How fast a contestant has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bars {
    /// As a multiple of SimPy's speed.
    pub simpy: f64,
    /// And of that of the loop by hand.
    pub by_hand: Option<f64>,
}

const IDLE: Bars = Bars { simpy: 60.0, by_hand: Some(0.8) };
const RUBIK: Bars = Bars { simpy: 30.0, by_hand: None };
const PACKING: Bars = Bars { simpy: 15.0, by_hand: None };

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contestant {
    pub name: &'static str,
    /// Its policies, as a scenario names them.
    pub policies: &'static str,
    pub queues: Queues,
    /// How fast it has to be.
    pub bars: Bars,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queues {
    /// In one queue for all cores.
    Shared,
    /// At a core drawn at random.
    Random,
    /// At the worker of their connection, of 512.
    Connections,
}

pub const CONTESTANTS: [Contestant; 12] = [
    Contestant { name: "poll", policies: "poll", queues: Queues::Shared, bars: IDLE },
    Contestant { name: "shallow", policies: "shallow", queues: Queues::Shared, bars: IDLE },
    Contestant { name: "deep", policies: "deep", queues: Queues::Shared, bars: IDLE },
    Contestant { name: "menu", policies: "menu", queues: Queues::Shared, bars: IDLE },
    Contestant { name: "teo", policies: "teo", queues: Queues::Shared, bars: IDLE },
    Contestant { name: "menu-feedback", policies: "menu-feedback", queues: Queues::Shared, bars: IDLE },
    Contestant { name: "teo-feedback", policies: "teo-feedback", queues: Queues::Shared, bars: IDLE },
    // One that knows the future must know which core a request will go to.
    Contestant {
        name: "clairvoyant, random queues",
        policies: "clairvoyant",
        queues: Queues::Random,
        bars: IDLE,
    },
    Contestant { name: "rubik", policies: "rubik", queues: Queues::Shared, bars: RUBIK },
    Contestant { name: "carb", policies: "carb", queues: Queues::Shared, bars: PACKING },
    Contestant {
        name: "carb, 512 connections",
        policies: "carb",
        queues: Queues::Connections,
        bars: PACKING,
    },
    Contestant {
        name: "peafowl + teo + pegasus, 512 connections",
        policies: "peafowl + teo + pegasus",
        queues: Queues::Connections,
        bars: PACKING,
    },
];

/// Modules beside the built-in policy of the same decisions, or of the same kind.
pub const MODULES: [(Contestant, &str, &[u8]); 2] = [
    (module("deepest.wasm"), "deep", include_bytes!("../../../crates/wasm/examples/deepest.wasm")),
    (module("ladder.wasm"), "menu", include_bytes!("../../../crates/wasm/examples/ladder.wasm")),
];

const fn module(name: &'static str) -> Contestant {
    Contestant { name, policies: name, queues: Queues::Shared, bars: IDLE }
}

/// A module is at least so fast, as a multiple of the built-in policy's speed.
pub const MODULE_BAR: f64 = 0.3;

/// Lines of policies may name the modules from now on.
pub fn load_modules() -> Result<()> {
    for (contestant, _, bytes) in MODULES {
        if let Some(registry) = wasm::register(contestant.name, wasm::Module::new(contestant.name, bytes)?)? {
            sim::policies::join(registry);
        }
    }
    Ok(())
}

impl Contestant {
    /// Its scenario for so many requests.
    pub fn document(&self, requests: u64) -> Result<Document> {
        let document = Document::parse("bench.toml".as_ref(), SCENARIO, &Estimates::default())?;
        let dispatch = match self.queues {
            Queues::Shared => "shared",
            Queues::Random => "random",
            Queues::Connections => "connections",
        };
        let document = document
            .with("run.requests", &Value::Integer(requests as i64))?
            .with("server.dispatch", &Value::String(dispatch.to_owned()))?;
        Ok(match self.queues {
            Queues::Connections => document.with("workload.connections", &Value::Integer(512))?,
            _ => document,
        })
    }

    /// The same on a machine that wakes in no time and has no timers: only the queue is left.
    pub fn without_latencies(&self, requests: u64) -> Result<Document> {
        let mut document = self
            .document(requests)?
            .with("machine.package", &Value::Boolean(false))?
            .with("machine.tick_cost", &Value::String("0us".to_owned()))?;
        for state in &platform()?.cstates.0 {
            for key in ["exit_latency", "true_exit_latency"] {
                let key = format!("machine.cstate.{}.{key}", state.name);
                document = document.with(&key, &Value::String("0us".to_owned()))?;
            }
        }
        Ok(document)
    }

    /// Without latencies its answers are those of a queue that is known: of so many servers.
    pub fn exact_servers(&self) -> Option<u32> {
        match (self.bars == IDLE, self.queues) {
            (true, Queues::Shared) => Some(10),
            (true, Queues::Random) => Some(1),
            _ => None,
        }
    }
}

pub fn platform() -> Result<Platform> {
    let document = Document::parse("bench.toml".as_ref(), SCENARIO, &Estimates::default())?;
    document.platform(&document.scenario()?).context("the scenario of the benchmark")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_runs_in_its_scenario() {
        load_modules().unwrap();
        let modules = MODULES.map(|(contestant, ..)| contestant);
        for contestant in CONTESTANTS.into_iter().chain(modules) {
            for document in [contestant.document(1000).unwrap(), contestant.without_latencies(1000).unwrap()]
            {
                let (setup, jobs) = document.setup(contestant.policies, 1).unwrap();
                let ended = sim::Engine::new(setup, jobs).run();
                assert_eq!(ended.metrics().left(), 1000, "{}", contestant.name);
            }
        }
    }

    #[test]
    fn the_load_by_hand_is_that_of_the_scenario() {
        let (setup, jobs) = CONTESTANTS[0].document(10).unwrap().setup("poll", 1).unwrap();
        assert_eq!(jobs.mean_service().as_nanos() as f64, SERVICE_NS);
        let load = jobs.mean_rate().as_per_second() * SERVICE_NS * 1e-9 / setup.workers as f64;
        assert!((load - LOAD).abs() < 1e-9, "{load}");
    }
}
