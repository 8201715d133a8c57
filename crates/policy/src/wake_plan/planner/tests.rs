use super::*;
use machine::Microwatts;

const CPU: CpuId = CpuId(3);
const OTHER: CpuId = CpuId(5);

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn costs(cpu: CpuId) -> CpuCosts {
    CpuCosts { cpu, exit_latency: us(20), min_sleep: us(10), power: Microwatts::from_watts(5.7) }
}

fn planner(params: Params) -> Planner {
    Planner::new(params, &[costs(OTHER), costs(CPU)])
}

fn request(principal: u32, ready: u64, stay: u64) -> Request {
    Request { principal: Principal(principal), cpu: CPU, ready: at(ready), stay: us(stay) }
}

fn commands(planner: &mut Planner) -> Vec<WakeCommand> {
    std::iter::from_fn(|| planner.poll_command()).collect()
}

fn keep(from: u64, until: u64) -> WakeCommand {
    WakeCommand::KeepAwake { cpu: CPU, from: at(from), until: at(until) }
}

fn sleep() -> WakeCommand {
    WakeCommand::MaySleep { cpu: CPU }
}

fn awake_us(planner: &Planner, principal: u32) -> u64 {
    planner.ledger().account(Principal(principal)).unwrap().awake.as_micros()
}

#[test]
fn the_papers_read_wakes_in_80_us_for_20() {
    let mut planner = planner(Params::paper());
    planner.handle_request(at(0), &request(1, 100, 0)).unwrap();
    assert_eq!((commands(&mut planner), planner.poll_timeout()), (vec![], Some(at(80))));
    planner.handle_timeout(at(80));
    assert_eq!(commands(&mut planner), [keep(80, 100)]);
    assert_eq!((planner.awake_until(CPU), planner.awake_until(OTHER)), (Some(at(100)), None));
    planner.handle_timeout(at(100));
    assert_eq!((commands(&mut planner), planner.poll_timeout()), (vec![sleep()], None));
    assert_eq!((awake_us(&planner, 1), planner.awake_until(CPU)), (20, None));
}

#[test]
fn the_margin_begins_earlier_and_the_event_ends_it() {
    let mut planner = planner(Params::default());
    let id = planner.handle_request(at(0), &request(1, 100, 50)).unwrap();
    planner.handle_timeout(at(75));
    assert_eq!(commands(&mut planner), [keep(75, 150)]);
    assert!(planner.handle_came(at(103), id));
    assert_eq!((commands(&mut planner), awake_us(&planner, 1)), (vec![sleep()], 28));
    assert!(!planner.handle_came(at(104), id) && !planner.handle_withdrawn(at(104), id));
    let account = planner.ledger().account(Principal(1)).unwrap();
    assert_eq!((account.came, account.withdrawn, account.expired, account.outstanding()), (1, 0, 0, 0));
}

#[test]
fn overlapping_requests_are_one_window_that_both_pay_for() {
    let mut planner = planner(Params::paper());
    planner.handle_request(at(0), &request(1, 100, 100)).unwrap();
    planner.handle_request(at(0), &request(2, 160, 100)).unwrap();
    assert_eq!(planner.windows(CPU).collect::<Vec<_>>(), [Window { from: at(80), until: at(260) }]);
    for now in [80, 260] {
        planner.handle_timeout(at(now));
    }
    // 80-140 the first alone, 140-200 both, 200-260 the second alone.
    assert_eq!((awake_us(&planner, 1), awake_us(&planner, 2)), (90, 90));
}

#[test]
fn asking_twice_does_not_pay_twice_for_the_others() {
    let mut planner = planner(Params::paper());
    planner.handle_request(at(0), &request(1, 100, 100)).unwrap();
    planner.handle_request(at(0), &request(1, 100, 100)).unwrap();
    planner.handle_request(at(0), &request(2, 100, 100)).unwrap();
    for now in [80, 200] {
        planner.handle_timeout(at(now));
    }
    assert_eq!((awake_us(&planner, 1), awake_us(&planner, 2)), (60, 60));
}

#[test]
fn of_equal_requests_the_earlier_pays_what_is_left_over() {
    let mut planner = planner(Params::paper());
    for principal in [2, 1] {
        let odd = Request { stay: Duration::from_nanos(1), ..request(principal, 100, 0) };
        planner.handle_request(at(0), &odd).unwrap();
    }
    planner.handle_timeout(at(80));
    planner.handle_timeout(at(100) + Duration::from_nanos(1));
    let awake = |principal| planner.ledger().account(Principal(principal)).unwrap().awake.as_nanos();
    assert_eq!((awake(1), awake(2)), (10_000, 10_001));
}

#[test]
fn a_gap_too_short_to_sleep_in_is_bridged_and_the_later_request_pays() {
    let mut planner = planner(Params::paper());
    planner.handle_request(at(0), &request(1, 100, 10)).unwrap();
    planner.handle_request(at(0), &request(2, 140, 10)).unwrap();
    planner.handle_timeout(at(80));
    assert_eq!(commands(&mut planner), [keep(80, 150)]);
    planner.handle_timeout(at(150));
    assert_eq!((awake_us(&planner, 1), awake_us(&planner, 2)), (30, 40));
    // One microsecond more, and it sleeps.
    planner.handle_request(at(1000), &request(1, 1100, 10)).unwrap();
    planner.handle_request(at(1000), &request(2, 1141, 10)).unwrap();
    assert_eq!(planner.windows(CPU).count(), 2);
}

#[test]
fn late_requests_begin_at_once_and_are_counted() {
    let mut planner = planner(Params::paper());
    planner.handle_request(at(90), &request(1, 100, 30)).unwrap();
    assert_eq!(commands(&mut planner), [keep(90, 130)]);
    assert_eq!(planner.windows(CPU).next(), Some(Window { from: at(90), until: at(130) }));
    // Ready since 20 us; 10 are left.
    planner.handle_request(at(100), &request(2, 80, 60)).unwrap();
    assert_eq!(commands(&mut planner), [keep(90, 140)]);
    assert_eq!(planner.ledger().account(Principal(1)).unwrap().late, 1);
    assert_eq!(planner.ledger().account(Principal(2)).unwrap().late, 1);
    // Just in time.
    planner.handle_request(at(200), &request(3, 220, 60)).unwrap();
    assert_eq!(planner.ledger().account(Principal(3)).unwrap().late, 0);
}

#[test]
fn a_withdrawn_request_leaves_what_the_others_need() {
    let mut planner = planner(Params::paper());
    let first = planner.handle_request(at(0), &request(1, 100, 100)).unwrap();
    planner.handle_request(at(0), &request(2, 110, 20)).unwrap();
    assert_eq!(planner.windows(CPU).collect::<Vec<_>>(), [Window { from: at(80), until: at(200) }]);
    planner.handle_timeout(at(80));
    assert_eq!(commands(&mut planner), [keep(80, 200)]);
    assert!(planner.handle_withdrawn(at(100), first));
    assert_eq!((commands(&mut planner), planner.poll_timeout()), (vec![keep(80, 130)], Some(at(130))));
}

#[test]
fn absurd_requests_are_refused_and_change_nothing() {
    let params = Params { max_per_cpu: 2, max_per_principal: 3, max_principals: 2, ..Params::paper() };
    let mut planner = planner(params);
    let before = planner.clone();
    let foreign = Request { cpu: CpuId(4), ..request(1, 100, 1) };
    assert_eq!(planner.handle_request(at(0), &foreign), Err(Refused::UnknownCpu(CpuId(4))));
    assert_eq!(planner.handle_request(at(100), &request(1, 50, 50)), Err(Refused::Past));
    let hour = request(1, 3_600_000_000, 1);
    assert_eq!(planner.handle_request(at(0), &hour), Err(Refused::TooFar(params.max_ahead)));
    let long = request(1, 100, 100_001);
    assert_eq!(planner.handle_request(at(0), &long), Err(Refused::TooLong(params.max_stay)));
    let longest = Request { stay: Duration::MAX, ..request(1, 100, 0) };
    assert_eq!(planner.handle_request(at(0), &longest), Err(Refused::TooLong(params.max_stay)));
    assert_eq!(planner, before);
    planner.handle_request(at(0), &request(1, 100, 10)).unwrap();
    planner.handle_request(at(0), &request(1, 100, 10)).unwrap();
    assert_eq!(planner.handle_request(at(0), &request(1, 100, 10)), Err(Refused::CpuFull(2)));
    let elsewhere = |principal| Request { cpu: OTHER, ..request(principal, 200, 10) };
    planner.handle_request(at(0), &elsewhere(1)).unwrap();
    assert_eq!(planner.handle_request(at(0), &elsewhere(1)), Err(Refused::PrincipalFull(3)));
    planner.handle_request(at(0), &elsewhere(2)).unwrap();
    assert_eq!(planner.handle_request(at(120), &request(3, 300, 10)), Err(Refused::TooManyPrincipals(2)));
    // Requests that are over make room, though no timeout has been handled.
    planner.handle_request(at(120), &request(1, 300, 10)).unwrap();
    let account = planner.handle_departed(at(120), Principal(1)).unwrap();
    assert_eq!((account.expired, account.withdrawn), (2, 2));
    planner.handle_request(at(120), &request(3, 300, 10)).unwrap();
}

#[test]
fn a_late_driver_pays_for_nobody() {
    let mut planner = planner(Params::paper());
    planner.handle_request(at(0), &request(1, 100, 50)).unwrap();
    // 12 us late to begin, 7 us late to end.
    planner.handle_timeout(at(92));
    planner.handle_timeout(at(157));
    assert_eq!(commands(&mut planner), []);
    assert_eq!(awake_us(&planner, 1), 58);
    assert_eq!(planner.ledger().unowned().awake, us(7));
    // So late that all is over: the CPU never woke.
    planner.handle_request(at(200), &request(1, 300, 50)).unwrap();
    planner.handle_timeout(at(900));
    assert_eq!((commands(&mut planner), awake_us(&planner, 1)), (vec![], 58));
}

#[test]
fn a_newly_measured_exit_latency_is_for_later_requests() {
    let mut planner = planner(Params::paper());
    planner.handle_request(at(0), &request(1, 100, 1)).unwrap();
    planner.handle_exit_latency(CPU, us(50));
    planner.handle_request(at(0), &request(1, 500, 1)).unwrap();
    let from: Vec<_> = planner.windows(CPU).map(|window| window.from).collect();
    assert_eq!(from, [at(80), at(450)]);
}
