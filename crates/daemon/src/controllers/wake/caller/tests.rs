use super::*;
use crate::controllers::wake::Act;
use crate::controllers::wake::helper::Helper;
use machine::Microwatts;
use policy::wake_plan::{CpuCosts, Params};
use slots::wake::Cpus;

const CPU: CpuId = CpuId(2);

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A plan without windows: the planner shows the decisions.
fn plan() -> Plan {
    let costs =
        CpuCosts { cpu: CPU, exit_latency: us(100), min_sleep: us(1), power: Microwatts::from_watts(1.0) };
    let params = Params { max_per_cpu: u16::MAX, max_per_principal: u16::MAX, ..Params::default() };
    let helper = Helper::new(CPU, Act::Polling, None);
    Plan::new(params, &[costs], vec![(CPU, None, helper)], Predictors::default())
}

fn wake(id: u64, ready: u64, stay: u64) -> Said {
    Said::Wake { id, cpus: Cpus::of([CPU]), ready: at(ready), stay: us(stay) }
}

fn outstanding(plan: &Plan) -> u64 {
    plan.planner().ledger().account(Principal(1)).unwrap().outstanding()
}

#[test]
fn a_name_used_twice_means_the_later() {
    let (mut plan, mut caller) = (plan(), Caller::new(Principal(1)));
    caller.hear(&mut plan, at(0), wake(5, 1_000, 50)).unwrap();
    caller.hear(&mut plan, at(0), wake(5, 9_000, 50)).unwrap();
    assert_eq!(outstanding(&plan), 1);
    assert_eq!(plan.planner().windows(CPU).next().unwrap().until, at(9_050));
    caller.hear(&mut plan, at(10), Said::Withdrawn { id: 5 }).unwrap();
    caller.hear(&mut plan, at(10), Said::Withdrawn { id: 5 }).unwrap();
    caller.hear(&mut plan, at(10), Said::Came { id: 77 }).unwrap();
    assert_eq!(outstanding(&plan), 0);
}

#[test]
fn what_was_never_ended_is_forgotten_when_there_is_more() {
    let (mut plan, mut caller) = (plan(), Caller::new(Principal(1)));
    for id in 1..=3 * OUTSTANDING_MAX as u64 {
        caller.hear(&mut plan, at(0), wake(id, 50_000, 50)).unwrap();
        caller
            .hear(
                &mut plan,
                at(0),
                Said::Began { id: id + 100_000, key: id, cpus: Cpus::of([CPU]), at: at(0) },
            )
            .unwrap();
    }
    assert!(caller.under_way.len() <= OUTSTANDING_MAX && caller.order.len() <= 2 * OUTSTANDING_MAX);
    assert!(outstanding(&plan) <= OUTSTANDING_MAX as u64);
    caller.depart(&mut plan, at(0));
    assert_eq!((outstanding(&plan), caller.under_way.len()), (0, 0));
}

#[test]
fn runs_like_those_before_are_foreseen_and_paid() {
    let (mut plan, mut caller) = (plan(), Caller::new(Principal(1)));
    let mut now = 0;
    for id in 1..20 {
        caller
            .hear(&mut plan, at(now), Said::Began { id, key: 3, cpus: Cpus::of([CPU]), at: at(now) })
            .unwrap();
        let window = plan.planner().windows(CPU).next();
        now += 500 + id % 7;
        // Stands in for its helper's timer.
        if let Some(window) = window {
            plan.attend(window.from, CPU, Some(window.from));
            assert!(plan.planner().awake_until(CPU).is_some_and(|until| until >= at(now)), "{id}");
        }
        caller.hear(&mut plan, at(now), Said::Ended { id, at: at(now) }).unwrap();
        assert_eq!(plan.planner().awake_until(CPU), None);
        now += 1_000;
    }
    let [(_, kernels), ..] = plan.predictors.records();
    assert!(kernels.hits >= 12, "{kernels:?}");
    let account = plan.planner().ledger().account(Principal(1)).unwrap();
    assert!(account.came >= 12 && account.awake > Duration::ZERO, "{account:?}");
}

#[test]
fn times_of_a_client_that_make_no_sense_do_no_harm() {
    let (mut plan, mut caller) = (plan(), Caller::new(Principal(1)));
    let cpus = Cpus::of([CPU]);
    let never = Instant::from_nanos(u64::MAX);
    for id in 0..40 {
        let _ = caller.hear(&mut plan, at(5), Said::Wake { id, cpus, ready: never, stay: Duration::MAX });
        for said in [
            Said::Began { id: id + 100, key: 1, cpus, at: never },
            Said::Ended { id: id + 100, at: Instant::ZERO },
            Said::Armed { id: id + 200, expiry: never, cpus, at: Instant::ZERO },
            Said::Ended { id: id + 200, at: never },
            Said::Follows { id: id + 300, key: 2, due: never, cpus, at: never },
            Said::Ended { id: id + 300, at: Instant::ZERO },
            Said::Arrived { key: id, cpus, at: never },
        ] {
            caller.hear(&mut plan, at(5), said).unwrap();
        }
    }
    let open = plan.planner().windows(CPU).next();
    assert!(open.is_none_or(|window| window.until <= at(200_005)), "{open:?}");
}
