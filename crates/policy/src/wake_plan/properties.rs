//! What always holds of the planner, tried with random requests and a driver that may come late.

use super::*;
use machine::{CpuId, Duration, Instant, Microwatts};
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;

const CPU: CpuId = CpuId(3);
const OTHER: CpuId = CpuId(5);

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn planner(params: Params) -> Planner {
    let costs =
        |cpu| CpuCosts { cpu, exit_latency: us(20), min_sleep: us(10), power: Microwatts::from_watts(5.7) };
    Planner::new(params, &[costs(OTHER), costs(CPU)])
}

/// What the driver of a machine would do and see.
struct Driver {
    planner: Planner,
    awake: BTreeMap<CpuId, Window>,
    slept: Vec<(CpuId, Window)>,
}

impl Driver {
    fn obey(&mut self, now: Instant) {
        while let Some(command) = self.planner.poll_command() {
            match command {
                WakeCommand::KeepAwake { cpu, from, until } => {
                    let known = self.awake.entry(cpu).or_insert(Window { from: now, until });
                    assert_eq!(known.from, from, "a window begins when it is said to");
                    known.until = until;
                }
                WakeCommand::MaySleep { cpu } => {
                    let window = self.awake.remove(&cpu).expect("only an open window ends");
                    self.slept.push((cpu, Window { until: now, ..window }));
                }
            }
        }
        for cpu in [CPU, OTHER] {
            let until = self.awake.get(&cpu).map(|window| window.until);
            assert_eq!(self.planner.awake_until(cpu), until);
            let windows: Vec<_> = self.planner.windows(cpu).collect();
            assert!(windows.iter().all(|window| window.from <= window.until), "{windows:?}");
            assert!(windows.windows(2).all(|pair| pair[0].until + us(10) < pair[1].from), "{windows:?}");
        }
    }

    /// Timeouts when they fall due, until `end`, each late by `lag`.
    fn run(&mut self, end: Instant, lag: Duration) {
        while let Some(due) = self.planner.poll_timeout().map(|due| due + lag).filter(|&due| due <= end) {
            self.planner.handle_timeout(due);
            self.obey(due);
            assert!(self.planner.poll_timeout().is_none_or(|next| next > due), "no timer spins");
        }
    }
}

#[derive(Clone, Debug)]
struct Step {
    wait: u64,
    cpu: CpuId,
    principal: u32,
    ahead: u64,
    stay: u64,
    ends: Option<(usize, bool)>,
}

fn any_step() -> impl Strategy<Value = Step> {
    let cpu = prop::sample::select(vec![CPU, OTHER]);
    let ends = prop::option::weighted(0.4, (0_usize..40, any::<bool>()));
    (0_u64..60, cpu, 0_u32..4, 0_u64..200, 0_u64..100, ends).prop_map(
        |(wait, cpu, principal, ahead, stay, ends)| Step { wait, cpu, principal, ahead, stay, ends },
    )
}

proptest! {
    #[test]
    fn accepted_requests_are_covered_and_paid_for(
        steps in prop::collection::vec(any_step(), 1..60),
        lag in prop::sample::select(vec![0_u64, 0, 1, 40]),
    ) {
        let params = Params { max_per_cpu: 12, max_per_principal: 10, ..Params::default() };
        let mut driver = Driver { planner: planner(params), awake: BTreeMap::new(), slept: Vec::new() };
        let mut accepted: Vec<(RequestId, Request, Instant, Instant)> = Vec::new();
        let mut now = Instant::ZERO;
        for step in steps {
            now += us(step.wait);
            driver.run(now, us(lag));
            let request = Request {
                principal: Principal(step.principal), cpu: step.cpu, ready: now + us(step.ahead), stay: us(step.stay),
            };
            if let Ok(id) = driver.planner.handle_request(now, &request) {
                accepted.push((id, request, now, request.ready + request.stay));
            }
            driver.obey(now);
            if let Some((which, came)) = step.ends && which < accepted.len() {
                let (id, _, _, needed_until) = &mut accepted[which];
                let stood = if came {
                    driver.planner.handle_came(now, *id)
                } else {
                    driver.planner.handle_withdrawn(now, *id)
                };
                prop_assert_eq!(stood, now < *needed_until);
                *needed_until = now.min(*needed_until);
                driver.obey(now);
            }
            // State that is written and read back is the same state.
            let text = serde_json::to_string(&driver.planner).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Planner>(&text).unwrap(), &driver.planner);
        }
        driver.run(Instant::ZERO + Duration::from_secs(1), us(lag));
        prop_assert!(driver.awake.is_empty() && driver.planner.poll_timeout().is_none());
        for (_, request, asked, needed_until) in &accepted {
            let begin = (request.ready - us(25)).max(*asked) + us(lag);
            let covers = |(cpu, window): &&(CpuId, Window)| {
                *cpu == request.cpu && window.from <= begin && *needed_until <= window.until
            };
            prop_assert!(begin >= *needed_until || driver.slept.iter().any(|slept| covers(&slept)), "{:?}", request);
        }
        let awake: u64 = driver.slept.iter().map(|(_, window)| window.until.since(window.from).as_nanos()).sum();
        let ledger = driver.planner.ledger();
        let charged = ledger.accounts().map(|(_, account)| account).chain([ledger.unowned()]);
        prop_assert_eq!(charged.map(|account| account.awake.as_nanos()).sum::<u64>(), awake);
        prop_assert!(lag > 0 || ledger.unowned().awake == Duration::ZERO);
        prop_assert!(ledger.accounts().all(|(_, account)| account.outstanding() == 0));
    }
}

#[test]
fn what_predictors_know_survives_being_written() {
    fn written<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(state: &T) {
        assert_eq!(&serde_json::from_str::<T>(&serde_json::to_string(state).unwrap()).unwrap(), state);
    }
    let mut device = Device::new(DeviceParams::default());
    let mut kernels = Kernels::new(KernelParams::default());
    let mut timers = Timers::new(TimerParams::default());
    let mut announcements = Announcements::new(RemoteParams::default());
    let mut now = Instant::ZERO;
    for n in 0..100_u64 {
        let issued = device.handle_issued(now, Operation::Write, 4096 << (n % 3));
        let launched = kernels.handle_launched(now, KernelId(n % 3));
        let armed = timers.handle_armed(now, now + us(100));
        let announced = announcements.handle_announced(now, ClientId(n % 3), us(100));
        now += us(95 + n * n % 17);
        device.handle_completed(now, &issued);
        kernels.handle_done(now, &launched);
        timers.handle_fired(now, &armed);
        announcements.handle_arrived(now, &announced);
        written(&(issued, launched, armed, announced));
    }
    written(&device);
    written(&kernels);
    written(&timers);
    written(&announcements);
}

#[test]
fn an_unknown_key_is_refused() {
    let refused = |error: serde_json::Error| error.to_string().contains("margins");
    assert!(serde_json::from_str::<Params>(r#"{"margins": "5us"}"#).is_err_and(refused));
    let params: Params = serde_json::from_str(r#"{"margin": "50us"}"#).unwrap();
    assert_eq!(params, Params { margin: us(50), ..Params::default() });
}
