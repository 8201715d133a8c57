//! Invariants of the planner, tried with random requests and a driver that may come late.

use super::*;
use machine::{CpuId, Duration, Instant, Microwatts, Ratio};
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

/// The acts and the view of a machine's driver.
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

/// A step of one caller among others: it asks under one of its names, which come and go.
#[derive(Clone, Debug)]
struct Said {
    step: Step,
    name: u32,
    leaves: Option<u32>,
}

fn any_said() -> impl Strategy<Value = Said> {
    (any_step(), 0_u32..8, prop::option::weighted(0.2, 0_u32..8)).prop_map(|(step, name, leaves)| Said {
        step,
        name,
        leaves,
    })
}

proptest! {
    /// One payer asks under as many names as it likes, or under one: it is allowed the same, pays
    /// the same, and the others do, too.
    #[test]
    fn names_that_a_payer_invents_change_nothing(
        steps in prop::collection::vec(any_said(), 1..80),
        rate in 1_u32..40,
        is_bounded_together in any::<bool>(),
    ) {
        // So small that both bounds are reached within the few milliseconds of a run.
        let share = |share| AllowanceParams { rate: rate * 1000, share: Ratio::new(share), over: us(400) };
        let params = Params {
            max_per_principal: 10,
            allowance: Some(share(0.3)),
            machine: is_bounded_together.then(|| share(0.4)),
            ..Params::default()
        };
        // The payer is 7; its names are 10 to 17, or 10 alone. Others have themselves alone.
        let one_name = |_: u32| Principal(10);
        let many_names = |name: u32| Principal(10 + name);
        let mut told = Vec::new();
        for name_of in [&one_name as &dyn Fn(u32) -> Principal, &many_names] {
            let (mut planner, mut now, mut answers) = (planner(params), Instant::ZERO, Vec::new());
            for Said { step, name, leaves } in &steps {
                now += us(step.wait);
                planner.handle_timeout(now);
                let principal = match step.principal {
                    0..2 => name_of(*name),
                    other => Principal(other),
                };
                if step.principal < 2 {
                    planner.handle_entered(principal, Payer::Shared(7));
                }
                let request = Request {
                    principal, cpu: step.cpu, ready: now + us(step.ahead), stay: us(step.stay),
                };
                answers.push(planner.handle_request(now, &request).map(|id| id.number));
                // A name that has nothing under way goes, and may come again, at no gain. A name
                // goes each time: that brings the books of all CPUs up to date.
                if let Some(name) = leaves {
                    let gone = many_names(*name);
                    let account = planner.ledger().account(gone);
                    let is_idle = account.is_none_or(|account| account.outstanding() == 0);
                    let goes = name_of(1) != name_of(2) && is_idle;
                    planner.handle_departed(now, if goes { gone } else { Principal(99) });
                }
            }
            let end = now + Duration::from_millis(5);
            planner.handle_timeout(end);
            planner.handle_entered(Principal(10), Payer::Shared(7));
            let ledger = planner.ledger();
            let others: Vec<_> =
                (2..4).map(|other| ledger.account(Principal(other)).map(|account| account.awake)).collect();
            let all = ledger.accounts().map(|(_, account)| account).chain([ledger.unowned(), ledger.closed()]);
            told.push((answers, others, all.map(|account| account.awake.as_nanos()).sum::<u64>()));
        }
        prop_assert_eq!(&told[0], &told[1]);
    }
}

#[test]
fn accounts_of_names_that_are_gone_keep_nobody_out_and_what_was_used_stays_used() {
    let allowance = AllowanceParams { rate: 4, ..AllowanceParams::default() };
    let params = Params { max_principals: 2, allowance: Some(allowance), ..Params::default() };
    let mut planner = planner(params);
    let ask = |planner: &mut Planner, name: u32, payer: u64, at: u64| {
        let principal = Principal(name);
        planner.handle_entered(principal, Payer::Shared(payer));
        let now = Instant::ZERO + us(at);
        let request = Request { principal, cpu: CPU, ready: now + us(100), stay: us(10) };
        let answer = planner.handle_request(now, &request).map(|_| ());
        planner.handle_departed(now, principal);
        answer
    };
    let answers: Vec<_> = (0..2000).map(|name| ask(&mut planner, name, 7, u64::from(name))).collect();
    assert!(!answers.contains(&Err(Refused::TooManyPrincipals(2))));
    assert_eq!(
        answers.iter().filter(|answer| answer.is_ok()).count(),
        4,
        "a second's worth, whatever it is called"
    );
    assert_eq!(ask(&mut planner, 5000, 8, 3000), Ok(()), "another has its own");
    assert_eq!(planner.ledger().accounts().count(), 0);
    assert_eq!(planner.ledger().closed().accepted, 5);
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
