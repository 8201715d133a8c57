//! The generator against a real memcached and a real Redis, and against servers that misbehave.

mod http;
mod memcached;
mod misbehaving;
mod realtime;
mod redis;

use loadgen::{Interval, Items, Pace, Plan, Target};
use machine::{Duration, Rate};
use std::ops::ControlFlow;
use workload::{ArrivalKind, Profile, Workload};

/// A short run against `target`, without a warm-up and with little patience.
fn short(target: Target, pace: Pace) -> Plan {
    Plan {
        connections: 4,
        length: Duration::from_millis(300),
        warmup: Duration::ZERO,
        interval: Duration::from_millis(50),
        drain: Duration::from_secs(5),
        patience: Duration::from_secs(5),
        asks: Items::of(Workload { keys: 500, ..Workload::default() }),
        ..Plan::new(target, pace)
    }
}

fn open(rate: f64) -> Pace {
    let profile = Profile::constant(Rate::per_second(rate)).unwrap();
    Pace::Open { arrivals: ArrivalKind::Poisson, profile }
}

fn unobserved(_: &Interval<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
