//! Fast is easy for who computes something else: all contestants against the queue that they all
//! simulate.
//!
//! On a machine that wakes in no time every idle policy leaves the queue as it is: M/M/10, or ten
//! times M/M/1 where requests are spread at random. Its mean and p99 are known. A contestant's mean
//! over some seeds has to be within four of its own standard errors of that.

use super::by_hand;
use super::contestants::{BY_HAND, CONTESTANTS, LOAD, SERVICE_NS, SIMPY, platform};
use super::simpy::SimPy;
use anyhow::Result;
use machine::Duration;
use sim::Engine;
use sim::exact::ResponseTime;
use sim::statistics::{Quantile, Quantity};
use std::fmt;

#[derive(Clone, Debug)]
pub struct Check {
    pub who: String,
    pub figure: &'static str,
    /// Its mean over the seeds, in mean service times.
    pub found: f64,
    /// The standard error of that.
    pub error: f64,
    pub exact: f64,
}

impl Check {
    fn of(who: &str, figure: &'static str, exact: f64, found: &[f64]) -> Self {
        let count = found.len() as f64;
        let mean = found.iter().sum::<f64>() / count;
        let squares: f64 = found.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / (count - 1.0).max(1.0) / count).sqrt();
        Self { who: who.to_owned(), figure, found: mean, error, exact }
    }

    pub fn holds(&self) -> bool {
        (self.found - self.exact).abs() <= 4.0 * self.error
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, figure, found, error, exact } = self;
        let verdict = if self.holds() { "agrees" } else { "DIFFERS" };
        write!(f, "{who:<40} {figure:<5} {found:.4} +-{error:.4}, exactly {exact:.4}: {verdict}")
    }
}

/// So many seeds each, from 1.
const SEEDS: u64 = 8;

/// Checks every contestant that simulates a known queue.
pub fn check(simpy: Option<&SimPy>, requests: u64) -> Result<Vec<Check>> {
    let ten = ResponseTime::mmk(10, 10.0 * LOAD, 1.0);
    let one = ResponseTime::mm1(LOAD, 1.0);
    let mut checks = Vec::new();
    if let Some(simpy) = simpy {
        let run = |seed| simpy.run(requests / 10, seed).map(|outcome| outcome.mean);
        let means = (1..=SEEDS).map(run).collect::<Result<Vec<f64>>>()?;
        checks.push(Check::of(SIMPY, "mean", ten.mean(), &means));
    }
    let mut machine = platform()?;
    for state in &mut machine.cstates.0 {
        (state.exit_latency, state.true_exit_latency) = (Duration::ZERO, None);
    }
    let run = |seed| {
        let outcome = by_hand::simulate(&machine, LOAD, SERVICE_NS, requests, seed);
        (outcome.mean_ns / SERVICE_NS, outcome.p99_ns / SERVICE_NS)
    };
    let found: Vec<(f64, f64)> = (1..=SEEDS).map(run).collect();
    both(&mut checks, BY_HAND, &ten, &found);
    for contestant in CONTESTANTS {
        let exact = match contestant.exact_servers() {
            Some(1) => &one,
            Some(_) => &ten,
            None => continue,
        };
        let document = contestant.without_latencies(requests)?;
        let run = |seed| -> Result<Option<(f64, f64)>> {
            let (setup, jobs) = document.setup(contestant.policies, seed)?;
            let ended = Engine::new(setup, jobs).run();
            let Ok(sample) = ended.metrics().responses.sample() else { return Ok(None) };
            let at = |quantity| sample.estimate(quantity).map(|ns| ns / SERVICE_NS);
            Ok(at(Quantity::Mean).zip(at(Quantity::Quantile(Quantile::P99))))
        };
        let found = (1..=SEEDS).map(run).collect::<Result<Vec<_>>>()?;
        both(&mut checks, contestant.name, exact, &found.into_iter().flatten().collect::<Vec<_>>());
    }
    Ok(checks)
}

fn both(checks: &mut Vec<Check>, who: &str, exact: &ResponseTime, found: &[(f64, f64)]) {
    let (means, tails): (Vec<f64>, Vec<f64>) = found.iter().copied().unzip();
    checks.push(Check::of(who, "mean", exact.mean(), &means));
    checks.push(Check::of(who, "p99", exact.quantile(0.99), &tails));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_four_standard_errors_is_chance_and_more_is_not() {
        // Mean 2, deviation 1, four values: a standard error of 0.577.
        let found = [1.0, 1.0, 3.0, 3.0];
        assert!(Check::of("a", "mean", 4.3, &found).holds());
        assert!(!Check::of("a", "mean", 4.4, &found).holds());
        assert!(!Check::of("a", "mean", 1.0, &[]).holds(), "nothing proves nothing");
    }

    #[test]
    fn everybody_agrees_with_erlang() {
        for check in check(None, 20_000).unwrap() {
            assert!(check.holds(), "{check}");
        }
    }
}
