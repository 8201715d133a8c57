//! The floor beside every schedule of small cases, tried one by one.

use super::*;
use machine::Duration;

/// Two clocks and one idle state of no power: the slower clock takes twice the time.
fn platform(cores: u16, slow_watts: f64, fast_watts: f64) -> Platform {
    let mut platform = Platform::presets().swap_remove(0);
    platform.sockets = 1;
    platform.cores_per_socket = cores;
    platform.threads_per_core = 1;
    platform.turbo.clear();
    platform.package = None;
    platform.uncore_clock = None;
    platform.memory_slowness = 1.0;
    platform.cstates.0.truncate(1);
    platform.cstates.0[0].power = Some(machine::Microwatts(500_000));
    let mut point = platform.frequencies.points[0];
    (point.frequency, point.power) =
        (machine::Kilohertz(1_000_000), machine::Microwatts::from_watts(slow_watts));
    let mut fast = point;
    (fast.frequency, fast.power) =
        (machine::Kilohertz(2_000_000), machine::Microwatts::from_watts(fast_watts));
    platform.frequencies.points = vec![point, fast];
    platform
}

/// A request of a small case: when it arrives, and its compute time at the fast clock, in seconds.
type Request = (f64, f64);

/// The least energy of all schedules: each request on a core, at a clock, in order of arrival. Of the
/// requests `late` may miss the goal.
fn by_trial(
    platform: &Platform,
    requests: &[Request],
    goal_s: f64,
    late: usize,
    until_s: f64,
) -> Option<f64> {
    let cores = usize::from(platform.cores_per_socket);
    let clocks = choices(platform, 0.5);
    let ways = cores * clocks.len();
    let mut least = None;
    for mut code in 0..ways.pow(requests.len() as u32) {
        let mut free = vec![0.0f64; cores];
        let (mut missed, mut joules) = (0, 0.5 * cores as f64 * until_s);
        for &(arrives, compute) in requests {
            let (core, clock) = (code % ways % cores, &clocks[code % ways / cores]);
            code /= ways;
            let time = compute * clock.slowness;
            free[core] = free[core].max(arrives) + time;
            missed += usize::from(free[core] - arrives > goal_s * (1.0 + 1e-9));
            joules += clock.watts * time;
        }
        let is_over = free.iter().all(|&end| end <= until_s);
        if missed <= late && is_over && least.is_none_or(|least| joules < least) {
            least = Some(joules);
        }
    }
    least
}

fn goal(seconds: f64, quantile: f64) -> Goal {
    Goal { latency: Duration::from_nanos((seconds * 1e9) as u64), quantile }
}

fn joules(platform: &Platform, goal: Option<Goal>, requests: &[Request], until_s: f64) -> f64 {
    let works: Vec<(f64, f64)> = requests.iter().map(|&(_, compute)| (compute, 0.0)).collect();
    Floor::of(platform, goal, &works, requests.len() as f64 / until_s).cores_watts * until_s
}

#[test]
fn no_schedule_of_a_small_case_is_below_the_floor_and_some_reach_it() {
    let mut random = workload::Random::new(7, 0);
    let (mut cases, mut reached) = (0, 0);
    for round in 0..400 {
        let machine = platform(1 + (round % 2) as u16, 1.0 + random.unit(), 3.0 + 2.0 * random.unit());
        let count = 2 + round % 3;
        let mut requests: Vec<Request> =
            (0..count).map(|_| (random.unit() * 4.0, 0.1 + random.unit())).collect();
        requests.sort_by(|one, other| one.0.total_cmp(&other.0));
        let quantile = if round % 4 < 2 { 0.99 } else { 0.6 };
        let late = ((1.0 - quantile) * count as f64) as usize;
        let goal_s = 0.3 + 1.5 * random.unit();
        let Some(least) = by_trial(&machine, &requests, goal_s, late, 20.0) else { continue };
        let floor = joules(&machine, Some(goal(goal_s, quantile)), &requests, 20.0);
        assert!(floor <= least * (1.0 + 1e-9), "{requests:?} {goal_s}: floor {floor}, best {least}");
        cases += 1;
        reached += usize::from(floor > least * (1.0 - 1e-9));
    }
    assert!(cases > 200 && reached > 30, "{cases} cases, {reached} of them at the floor");
}

#[test]
fn a_lone_request_pays_for_the_mixture_of_clocks_that_ends_at_the_goal() {
    // 1 s at the fast clock, 2 s at the slow one: beyond idle 3.5 J and 2 x 0.5 = 1 J. In 1.5 s half
    // of it runs at each.
    let machine = platform(1, 1.0, 4.0);
    let of = |goal_s: f64| joules(&machine, Some(goal(goal_s, 0.999)), &[(0.0, 1.0)], 10.0) - 5.0;
    for (goal_s, joules) in [(1.0, 3.5), (1.5, 2.25), (2.0, 1.0), (9.0, 1.0)] {
        assert!((of(goal_s) - joules).abs() < 1e-6, "{goal_s}: {} J", of(goal_s));
    }
    // No clock is fast enough: it is late in any case, and so as cheap as can be.
    assert!((of(0.5) - 1.0).abs() < 1e-6);
    assert!((joules(&machine, None, &[(0.0, 1.0)], 10.0) - 6.0).abs() < 1e-6);
}

#[test]
fn the_floor_falls_with_each_freedom_and_rises_with_the_load() {
    let machine = Platform::presets().swap_remove(0);
    let works: Vec<(f64, f64)> = (1..200).map(|part| (part as f64 * 1e-6, part as f64 * 2e-7)).collect();
    let of = |goal: Option<Goal>, rate: f64| Floor::of(&machine, goal, &works, rate);
    let free = of(None, 50_000.0);
    let mut last = free.cores_watts;
    for micros in [1_000.0, 400.0, 300.0, 250.0] {
        let watts = of(Some(goal(micros * 1e-6, 0.99)), 50_000.0).cores_watts;
        assert!(watts >= last - 1e-9, "{micros} us");
        last = watts;
    }
    assert!(of(Some(goal(250e-6, 0.9)), 50_000.0).cores_watts <= last);
    let busy = of(None, 100_000.0);
    assert!(busy.cores_watts > free.cores_watts && busy.server_watts > free.server_watts);
    assert!(free.cores_watts <= free.cpu_watts && free.cpu_watts <= free.server_watts);
}
