//! How wrong the predicted tail is: against exact values where there are any, and against Kiefer and Wolfowitz's
//! recursion, a simulation of nothing but the queue, where there are none.

use super::chain::{Chain, Links};
use super::model::Model;
use super::pace::Pace;
use super::params::Queueing;
use super::service::{Service, Shape};
use super::tests::{Random, states};
use crate::frequency::GearIndex;
use crate::frequency::gears::tests::gears_at;
use machine::Duration;

const MEAN_NS: f64 = 10_000.0;

/// A distribution of service times with mean 1, by how to draw from it.
type Draw = fn(&mut Random) -> f64;

fn exponential(random: &mut Random) -> f64 {
    random.exponential()
}
fn constant(_: &mut Random) -> f64 {
    1.0
}
fn erlang_2(random: &mut Random) -> f64 {
    (random.exponential() + random.exponential()) / 2.0
}
/// Squared coefficient of variation 4, balanced means.
fn hyperexponential(random: &mut Random) -> f64 {
    let often = 0.5 * (1.0 + (3.0_f64 / 5.0).sqrt());
    let share = if random.uniform() < often { often } else { 1.0 - often };
    random.exponential() / (2.0 * share)
}
/// Standard deviation equal to the mean.
fn lognormal(random: &mut Random) -> f64 {
    let sigma = 2.0_f64.ln().sqrt();
    (sigma * random.normal() - sigma * sigma / 2.0).exp()
}

fn shape(draw: Draw, quantile: f64) -> Shape {
    let mut random = Random::new(7);
    let mut service = Service::new();
    for _ in 0..400_000 {
        service.record(Duration::from_nanos((MEAN_NS * draw(&mut random)) as u64), Duration::ZERO);
    }
    service.shape(quantile).unwrap()
}

/// The predicted tail in mean services: `cores` cores, each busy for the share `load`.
fn predicted(shape: &Shape, queueing: Queueing, cores: u16, load: f64, scv: f64, quantile: f64) -> f64 {
    let gears = gears_at(&[1_000]);
    let rate = load * f64::from(cores) / shape.mean_ns;
    let states = states();
    let model = Model { shape, rate, scv, quantile, queueing, cores, gears: &gears, states: &states };
    model.steady(cores, gears.fastest()).unwrap().1 / shape.mean_ns
}

/// The same by simulation of `count` requests.
fn simulated(draw: Draw, cores: usize, load: f64, quantile: f64, count: usize) -> f64 {
    let mut random = Random::new(99);
    let mut free = vec![0.0_f64; cores];
    let mut now = 0.0;
    let mut responses = Vec::with_capacity(count);
    for _ in 0..count {
        now += random.exponential() / (load * cores as f64);
        let first = (0..cores).min_by(|&a, &b| free[a].total_cmp(&free[b])).unwrap();
        free[first] = free[first].max(now) + draw(&mut random);
        responses.push(free[first] - now);
    }
    let rank = (quantile * count as f64) as usize;
    *responses.select_nth_unstable_by(rank, f64::total_cmp).1
}

/// M/M/k exactly.
fn mmk(cores: u16, load: f64, quantile: f64) -> f64 {
    let k = f64::from(cores);
    let blocked = (1..=cores).fold(1.0, |b, n| load * k * b / (f64::from(n) + load * k * b));
    let waits = blocked / (1.0 - load * (1.0 - blocked));
    // The wait of those that wait is exponential with rate k - busy, the service with rate 1.
    let drain = k * (1.0 - load);
    let beyond = |t: f64| {
        let both = if (drain - 1.0_f64).abs() < 1e-9 {
            (1.0 + t) * (-t).exp()
        } else {
            (drain * (-t).exp() - (-drain * t).exp()) / (drain - 1.0)
        };
        (1.0 - waits) * (-t).exp() + waits * both
    };
    let (mut low, mut high) = (0.0, 1e4);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if beyond(middle) > 1.0 - quantile { low = middle } else { high = middle }
    }
    high
}

/// The tail, and the power of working cores, of one queue whose gear follows its length, without delays.
fn simulated_graded(draw: Draw, servers: usize, load: f64, patience: f64, quantile: f64, count: usize) -> (f64, f64) {
    let gears = super::closed_loop::gears();
    let pace = Pace::graded(GearIndex(1), servers as f64, patience, &gears, |gear| 1.0 / gears.speed(gear));
    let mut random = Random::new(5);
    let mut working: Vec<(f64, f64)> = Vec::new();
    let mut queue = std::collections::VecDeque::new();
    let (mut now, mut arrives, mut energy) = (0.0, 0.0, 0.0);
    let mut responses = Vec::with_capacity(count);
    while responses.len() < count {
        let gear = pace.gear((working.len() + queue.len()) as u32);
        let speed = gears.speed(gear);
        let first = (0..working.len()).min_by(|&a, &b| working[a].1.total_cmp(&working[b].1));
        let done = first.map_or(f64::INFINITY, |first| now + working[first].1 / speed);
        let next = done.min(arrives);
        working.iter_mut().for_each(|work| work.1 -= (next - now) * speed);
        energy += (next - now) * working.len() as f64 * gears.power(gear).as_watts();
        now = next;
        if next == done {
            responses.push(now - working.swap_remove(first.unwrap()).0);
        } else {
            queue.push_back(now);
            arrives = now + random.exponential() / (load * servers as f64);
        }
        if working.len() < servers && let Some(arrived) = queue.pop_front() {
            working.push((arrived, draw(&mut random)));
        }
    }
    let rank = (quantile * count as f64) as usize;
    (*responses.select_nth_unstable_by(rank, f64::total_cmp).1, energy / now)
}

fn predicted_graded(shape: &Shape, servers: u16, load: f64, patience: f64, quantile: f64) -> (f64, f64) {
    let gears = super::closed_loop::gears();
    let states = states();
    let rate = load * f64::from(servers) / shape.mean_ns;
    let model = Model { shape, rate, scv: 1.0, quantile, queueing: Queueing::Shared, cores: servers, gears: &gears, states: &states };
    let pace = Pace::graded(GearIndex(1), f64::from(servers), patience * shape.mean_ns, &gears, |gear| model.service_ns(gear));
    let chain = Chain::new(model, &Links::new(&model, servers).unwrap(), &pace);
    (chain.tail_ns() / shape.mean_ns, chain.running().work_power / 1e6)
}

#[test]
fn explore_graded() {
    for (name, draw) in [("M", exponential as Draw), ("D", constant), ("E2", erlang_2), ("H2", hyperexponential), ("LN", lognormal)] {
        for quantile in [0.95, 0.99] {
            let shape = shape(draw, quantile);
            println!("{name} {quantile}");
            for servers in [1_u16, 2, 10] {
                for patience in [8.0, 16.0, 40.0] {
                    print!("  {servers} patience {patience}: ");
                    for load in [0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9] {
                        let (tail, power) = predicted_graded(&shape, servers, load, patience, quantile);
                        let (true_tail, true_power) = simulated_graded(draw, servers as usize, load, patience, quantile, 300_000);
                        print!("{:+.0}({:.1}) {:+.1}  ", 100.0 * (tail / true_tail - 1.0), true_tail, 100.0 * (power / true_power - 1.0));
                    }
                    println!();
                }
            }
        }
    }
}
