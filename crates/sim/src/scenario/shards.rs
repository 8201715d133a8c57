//! Turns the keys of requests that fork into their shards.

use super::{Document, ScenarioError, Server};
use crate::engine::{Dispatch, Onto, ShardWork, Shards};
use machine::Duration;
use workload::{Distribution, Jobs};

impl Server {
    /// The work of a request over all cores, in services.
    pub(super) fn pieces(&self, workers: usize) -> f64 {
        match (self.dispatch, self.shards) {
            (Dispatch::ForkJoin, None) => workers as f64,
            (Dispatch::ForkJoin, Some(shards)) if shards.work != ShardWork::Divided => {
                f64::from(shards.count.max(1))
            }
            _ => 1.0,
        }
    }
}

impl Document {
    /// The shards of a request, checked.
    pub(super) fn shards(
        &self,
        server: &Server,
        workers: usize,
        jobs: &Jobs,
    ) -> Result<Shards, ScenarioError> {
        let wrong = |key: &str, problem: String, fix: &str| Err(self.wrong(key, problem, fix));
        if !(server.shard_cv >= 0.0 && server.shard_cv.is_finite()) {
            return wrong("server.shard_cv", server.shard_cv.to_string(), "zero or more");
        }
        let factor = match server.shard_cv {
            0.0 => None,
            cv => {
                let distribution = Distribution::Lognormal { mean: Duration::from_secs(1), cv };
                Some(self.sampler("server.shard_cv", &distribution)?)
            }
        };
        let Some(table) = server.shards else { return Ok(Shards { factor, ..Shards::default() }) };
        if server.dispatch != Dispatch::ForkJoin {
            let fix = "set server.dispatch = \"fork-join\", or leave the table out";
            return wrong("server.shards", "without a request that forks".into(), fix);
        }
        let most = if table.onto == Onto::Random { workers } else { usize::from(SHARDS_MAX) };
        if table.count == 0 || usize::from(table.count) > most {
            let fix = format!("from 1 to {most}; more than workers only with onto = \"idle\"");
            return wrong("server.shards.count", table.count.to_string(), &fix);
        }
        if table.work == ShardWork::Drawn && jobs.classes().iter().any(|class| class.service.is_none()) {
            let fix = "use \"whole\" or \"divided\": a trace has no law to draw from";
            return wrong("server.shards.work", "`drawn` beside a trace".into(), fix);
        }
        if table.fetch.is_some() && table.onto != Onto::Idle {
            let fix = "set onto = \"idle\": the second round goes into the queue for all";
            return wrong("server.shards.fetch", "without a queue for all".into(), fix);
        }
        let fetch = table.fetch.map(|time| time.0).filter(|time| !time.is_zero());
        Ok(Shards { count: Some(table.count), onto: table.onto, work: table.work, factor, fetch })
    }
}

/// A search engine's largest index has some hundreds.
const SHARDS_MAX: u16 = 1000;
