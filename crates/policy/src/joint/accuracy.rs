//! How wrong the predicted tail is: against exact values where there are any, and against Kiefer
//! and Wolfowitz's recursion, a simulation of nothing but the queue, where there are none.

use super::chain::{Chain, Links};
use super::model::{Running, Siblings};
use super::pace::Pace;
use super::random::Random;
use super::service::Shape;
use super::simulated::{CORES, Server, points, states};
use super::*;
use crate::frequency::points::tests::points_at;
use machine::Duration;
use std::collections::VecDeque;

const MEAN_NS: f64 = 10_000.0;

/// A distribution of service times with mean 1, by how to draw from it.
pub(super) type Draw = fn(&mut Random) -> f64;

pub(super) fn exponential(random: &mut Random) -> f64 {
    random.exponential()
}
fn constant(_: &mut Random) -> f64 {
    1.0
}
fn erlang_2(random: &mut Random) -> f64 {
    (random.exponential() + random.exponential()) / 2.0
}
/// Squared coefficient of variation 4, balanced means.
pub(super) fn hyperexponential(random: &mut Random) -> f64 {
    let often = 0.5 * (1.0 + (3.0_f64 / 5.0).sqrt());
    let share = if random.uniform() < often { often } else { 1.0 - often };
    random.exponential() / (2.0 * share)
}
/// Standard deviation equal to the mean.
pub(super) fn lognormal(random: &mut Random) -> f64 {
    let sigma = 2.0_f64.ln().sqrt();
    (sigma * random.normal() - sigma * sigma / 2.0).exp()
}

pub(super) fn shape(draw: Draw, quantile: f64) -> Shape {
    let mut random = Random::new(7);
    let mut service = Service::new();
    for _ in 0..400_000 {
        service.record(Duration::from_nanos((MEAN_NS * draw(&mut random)) as u64), Duration::ZERO);
    }
    service.shape(quantile).unwrap()
}

/// The predicted tail in mean services: `cores` cores, each busy for the share `load`.
fn predicted(shape: &Shape, queueing: Queueing, cores: u16, load: f64, scv: f64, quantile: f64) -> f64 {
    let points = points_at(&[1_000]);
    let rate = load * f64::from(cores) / shape.mean_ns;
    let (states, siblings, package) = (&states(), Siblings::NONE, None);
    let model =
        Model { shape, rate, scv, quantile, queueing, cores, siblings, points: &points, states, package };
    model.steady(cores, points.fastest()).unwrap().1 / shape.mean_ns
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

/// The tail, and the power of working cores, of one queue whose operating point follows its length
/// at once.
fn simulated_graded(draw: Draw, servers: usize, load: f64, patience: f64, count: usize) -> (f64, f64) {
    let points = points();
    let pace =
        Pace::graded(PointIndex(1), servers as f64, patience, &points, |point| 1.0 / points.speed(point));
    let mut random = Random::new(5);
    let mut working: Vec<(f64, f64)> = Vec::new();
    let mut queue = VecDeque::new();
    let (mut now, mut arrives, mut energy) = (0.0, 0.0, 0.0);
    let mut responses = Vec::with_capacity(count);
    while responses.len() < count {
        let point = pace.point((working.len() + queue.len()) as u32);
        let speed = points.speed(point);
        let first = (0..working.len()).min_by(|&a, &b| working[a].1.total_cmp(&working[b].1));
        let done = first.map_or(f64::INFINITY, |first| now + working[first].1 / speed);
        let next = done.min(arrives);
        working.iter_mut().for_each(|work| work.1 -= (next - now) * speed);
        energy += (next - now) * working.len() as f64 * points.power(point).as_watts();
        now = next;
        if next == done {
            responses.push(now - working.swap_remove(first.unwrap()).0);
        } else {
            queue.push_back(now);
            arrives = now + random.exponential() / (load * servers as f64);
        }
        if working.len() < servers
            && let Some(arrived) = queue.pop_front()
        {
            working.push((arrived, draw(&mut random)));
        }
    }
    let rank = (0.99 * count as f64) as usize;
    (*responses.select_nth_unstable_by(rank, f64::total_cmp).1, energy / now)
}

fn predicted_graded(shape: &Shape, servers: u16, load: f64, patience: f64) -> (f64, f64) {
    let points = points();
    let (states, siblings, package) = (&states(), Siblings::NONE, None);
    let rate = load * f64::from(servers) / shape.mean_ns;
    let (queueing, cores, scv, quantile) = (Queueing::Shared, servers, 1.0, 0.99);
    let model =
        Model { shape, rate, scv, quantile, queueing, cores, siblings, points: &points, states, package };
    let service_ns = |point| model.service_ns(point);
    let pace = Pace::graded(PointIndex(1), f64::from(servers), patience * shape.mean_ns, &points, service_ns);
    let chain = Chain::new(model, &Links::new(&model, servers).unwrap(), &pace);
    (chain.tail_ns() / shape.mean_ns, chain.running().work_power / 1e6)
}

/// P(at most n in the system) of M/D/1, by the chain at departures. In it as much probability goes
/// up across each n as down, which gives one from those before without a subtraction.
fn md1_number(load: f64, most: usize) -> f64 {
    // P(more than so many arrivals in a service).
    let mut more = vec![1.0 - (-load).exp()];
    let mut exactly = (-load).exp();
    for n in 1..=most + 1 {
        exactly *= load / n as f64;
        more.push(more[n - 1] - exactly);
    }
    let mut number = vec![1.0 - load];
    for n in 0..most {
        let up = number[0] * more[n] + (1..=n).map(|from| number[from] * more[n + 1 - from]).sum::<f64>();
        number.push(up / (-load).exp());
    }
    number.iter().sum()
}

#[test]
fn one_point_with_exponential_service_is_as_exact_as_the_formula() {
    for quantile in [0.95, 0.99, 0.999] {
        let shape = shape(exponential, quantile);
        for cores in [1, 2, 4, 10, 32] {
            for load in [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95] {
                let found = predicted(&shape, Queueing::Shared, cores, load, 1.0, quantile);
                let exact = mmk(cores, load, quantile);
                assert!(
                    (found / exact - 1.0).abs() < 0.02,
                    "{cores} cores, {load}, {quantile}: {found} for {exact}"
                );
            }
        }
    }
}

#[test]
fn one_point_with_constant_service_is_exact_on_one_core() {
    for load in [0.3, 0.5, 0.7, 0.8, 0.9] {
        for most in 1..40 {
            // A request that finds n before it is done within n + 1 services.
            let quantile = md1_number(load, most);
            if (0.95..0.9995).contains(&quantile) {
                let found = predicted(&shape(constant, quantile), Queueing::Shared, 1, load, 1.0, quantile);
                let exact = most as f64 + 1.0;
                assert!((found / exact - 1.0).abs() < 0.04, "{load}, {quantile}: {found} for {exact}");
            }
        }
    }
}

#[test]
fn one_point_with_any_service_is_within_a_tenth() {
    for draw in [constant, erlang_2, hyperexponential, lognormal] {
        let shape = shape(draw, 0.99);
        for cores in [1, 4, 10] {
            for load in [0.3, 0.6, 0.8] {
                let found = predicted(&shape, Queueing::Shared, cores, load, 1.0, 0.99);
                let seen = simulated(draw, usize::from(cores), load, 0.99, 400_000);
                let scv = shape.scv;
                assert!((found / seen - 1.0).abs() < 0.1, "scv {scv}, {cores}, {load}: {found} for {seen}");
            }
        }
    }
}

#[test]
fn a_graded_pace_is_predicted_within_a_fifth_and_its_power_within_a_tenth() {
    for draw in [exponential, erlang_2, hyperexponential, lognormal] {
        let shape = shape(draw, 0.99);
        for servers in [1, 2, 10] {
            for (patience, load) in [(8.0, 0.4), (16.0, 0.3), (16.0, 0.6), (16.0, 0.8), (40.0, 0.7)] {
                let (tail, watts) = predicted_graded(&shape, servers, load, patience);
                let (tail_seen, watts_seen) =
                    simulated_graded(draw, usize::from(servers), load, patience, 250_000);
                let case = format!("scv {:.1}, {servers} cores, patience {patience}, load {load}", shape.scv);
                let (by, watts_by) = (tail / tail_seen - 1.0, watts / watts_seen - 1.0);
                assert!((-0.15..0.2).contains(&by), "{case}: {tail} for {tail_seen}");
                assert!(watts_by.abs() < 0.1, "{case}: {watts} W for {watts_seen}");
            }
        }
    }
}

/// The whole of it: fixed plans on the simulated server, exit latencies and all.
#[test]
fn tail_and_power_of_a_plan_are_what_the_server_measures() {
    let (points, states) = (points(), states());
    let shape = shape(exponential, 0.99);
    for (queueing, active, point, idle, kilo) in [
        (Queueing::Shared, 1, 1, 2, 1.0),
        (Queueing::Shared, 1, 1, 2, 5.0),
        (Queueing::Shared, 1, 5, 1, 40.0),
        (Queueing::Shared, 4, 3, 1, 160.0),
        (Queueing::Shared, 4, 6, 0, 160.0),
        (Queueing::Shared, 8, 4, 2, 300.0),
        (Queueing::PerCore, 1, 3, 2, 5.0),
        (Queueing::PerCore, 4, 6, 2, 20.0),
        (Queueing::PerCore, 5, 8, 1, 240.0),
        (Queueing::PerCore, 10, 13, 0, 500.0),
    ] {
        let plan = Plan { active, point: PointIndex(point), idle: CstateIndex(idle) };
        for package in [None, Some(package(1)), Some(package(2))] {
            let mut server = Server::new(Params { queueing, ..Params::default() }, Some(plan), 11);
            server.package = package;
            server.run(400e3 / kilo, 1, |_| kilo * 1e3);
            let seen = server.take();
            let model = Model {
                shape: &shape,
                rate: kilo / 1e6,
                scv: 1.0,
                quantile: 0.99,
                queueing,
                cores: CORES,
                siblings: Siblings::NONE,
                points: &points,
                states: &states,
                package,
            };
            let base = Base { active, speed: Speed::Steady(plan.point), idle: plan.idle };
            let rated = Search::new(model, 0.0).rate(base).unwrap();
            let (tail, watts) = (rated.tail_ns / 1e3 / seen.p99_us, rated.power / 1e6 / seen.watts);
            // Every request is said to pay the whole exit latency. Of a shared queue that is far too
            // much: others are free before.
            let most = if queueing == Queueing::Shared && active > 1 { 1.7 } else { 1.3 };
            assert!((0.95..most).contains(&tail), "{plan:?}: {} us for {seen:?}", rated.tail_ns / 1e3);
            let case = format!("{plan:?}, {package:?}: {} W for {seen:?}", rated.power / 1e6);
            assert!((0.97..1.05).contains(&watts), "{case}");
        }
    }
}

/// A package of twelve watts that sleeps from C1E on.
fn package(sockets: u16) -> Package {
    Package { sockets, cores: CORES / sockets, from_state: 1, awake: 12e6 }
}

#[test]
fn a_state_breaks_even_at_the_target_residency_of_the_table() {
    let shape = shape(exponential, 0.99);
    for platform in machine::Platform::presets() {
        let points = PointTable::new(&platform.frequencies).unwrap();
        let table = &platform.cstates.0;
        let state = |(state, wake_joules): (&machine::Cstate, f64)| SleepState {
            exit_latency: state.real_exit_latency(),
            power: state.power.unwrap_or_default(),
            wake_joules,
        };
        let states: Vec<SleepState> = table.iter().zip(platform.wake_joules()).map(state).collect();
        for deeper in 1..states.len() {
            if platform.waking == machine::Waking::FullPower
                || states[deeper].power >= states[deeper - 1].power
            {
                continue;
            }
            let residency_ns = table[deeper].target_residency.as_nanos() as f64;
            // One core that works next to never, by the energy of a sleep that lasts so long.
            let of_a_sleep = |idle: usize, gap_ns: f64| {
                let running = Running { busy: 0.0, work_power: 0.0, waits: 0.0, number: 0.0, deviation: 0.0 };
                let (rate, queueing) = (1.0 / gap_ns, Queueing::PerCore);
                let (scv, quantile, cores, siblings, package) = (1.0, 0.99, 1, Siblings::NONE, None);
                let (shape, points, states) = (&shape, &points, &states[..]);
                let model =
                    Model { shape, rate, scv, quantile, queueing, cores, siblings, points, states, package };
                let exit_ns = states[idle].exit_latency.as_nanos() as f64;
                model.power(1, idle, &running) * (gap_ns + exit_ns)
            };
            let saved = |share: f64| {
                let [shallow, deep] = [deeper - 1, deeper].map(|idle| of_a_sleep(idle, share * residency_ns));
                1.0 - deep / shallow
            };
            let case = format!("{}: {}", platform.name, table[deeper].name);
            assert!(saved(1.0).abs() < 1e-4, "{case}: {}", saved(1.0));
            assert!(saved(0.5) < 0.0 && saved(2.0) > 0.0, "{case}: {} {}", saved(0.5), saved(2.0));
        }
    }
}
