//! Verdicts of patterns made by hand, and rules that hold for any.

use super::*;
use crate::sleep::{CpuPattern, Known, LatencySource, MeasuredWake, SleepPattern, SleepSource};
use machine::{CpuId, Cstate, CstateIndex, CstateKind, CstateTable, LengthHistogram};
use proptest::prelude::*;

/// The paper's SandyBridge, with its C7 as the deepest.
fn sandybridge() -> CstateTable {
    let state = |name: &str, kind, exit, target| Cstate {
        name: name.into(),
        kind,
        exit_latency: Duration::from_micros(exit),
        true_exit_latency: None,
        entry_latency: None,
        target_residency: Duration::from_micros(target),
        power: None,
    };
    CstateTable(vec![
        state("POLL", CstateKind::Polling, 0, 0),
        state("C1", CstateKind::Halting, 1, 1),
        state("C3", CstateKind::Halting, 80, 106),
        state("C6", CstateKind::Halting, 104, 345),
        state("C7", CstateKind::Halting, 109, 345),
    ])
}

/// Periods of one length: the state, how many, how long (us).
type Sleeps<'a> = &'a [(usize, u64, u64)];

/// CPUs that all slept so and were active so (how many times, how long in us).
fn pattern(table: CstateTable, cpus: u16, sleeps: Sleeps<'_>, active: &[(u64, u64)]) -> SleepPattern {
    let record = |lengths: &mut LengthHistogram, count: u64, micros: u64| {
        (0..count).for_each(|_| lengths.record(Duration::from_micros(micros)));
    };
    let mut idle = vec![LengthHistogram::default(); 5];
    sleeps.iter().for_each(|&(state, count, micros)| record(&mut idle[state], count, micros));
    let mut busy = LengthHistogram::default();
    active.iter().for_each(|&(count, micros)| record(&mut busy, count, micros));
    let elapsed = idle.iter().map(LengthHistogram::time).sum::<Duration>() + busy.time();
    let cpu = |cpu| CpuPattern {
        cpu: CpuId(cpu),
        table: table.clone(),
        idle: idle.clone(),
        active: busy.clone(),
        wakers: None,
    };
    SleepPattern { elapsed, source: SleepSource::Bpf, cpus: (0..cpus).map(cpu).collect(), lost: 0 }
}

fn evidence(pattern: &SleepPattern) -> Evidence {
    let power =
        PowerEvidence { model: PowerModel::by_name("tradeoffs"), threads_per_core: 2, measured: None };
    Evidence { power, ..Evidence::of(Findings::of(pattern, &Known::default())) }
}

fn requests(p99_us: u64) -> Option<RequestEvidence> {
    let p99 = Duration::from_micros(p99_us);
    Some(RequestEvidence { rate: Rate::per_second(1e3), p50: p99 / 2, p99, queue_p99: None, wakes: 1 })
}

fn class(evidence: &Evidence) -> Class {
    Verdict::of(evidence).judged.class
}

#[test]
fn the_papers_three_kinds_are_told_apart_by_their_slices() {
    // As bigtable: most of the time in slices of less than a millisecond.
    let bigtable = pattern(sandybridge(), 4, &[(1, 4_000, 300), (3, 20, 4_000)], &[(4_000, 150)]);
    assert_eq!(class(&evidence(&bigtable)), Class::BurstyIo);
    // As saw: long work, long sleeps, some ticks.
    let saw = pattern(sandybridge(), 4, &[(4, 400, 8_000), (1, 400, 90)], &[(400, 5_000), (400, 20)]);
    assert_eq!(class(&evidence(&saw)), Class::LatencyInsensitive);
    // As search1 at full load.
    let search = pattern(sandybridge(), 4, &[(1, 300, 100)], &[(300, 9_000)]);
    assert_eq!(class(&evidence(&search)), Class::CpuBoundNow);
    // As Figure 6 at 100 requests a second: long sleeps, bursts of 60 us.
    let sparse = pattern(sandybridge(), 2, &[(4, 600, 3_000)], &[(600, 120)]);
    let verdict = Verdict::of(&Evidence { requests: requests(260), ..evidence(&sparse) });
    assert_eq!(verdict.judged.class, Class::BurstyIo);
    assert!(verdict.judged.because.contains("Figure 6"), "{verdict:?}");
}

#[test]
fn idle_cpus_beside_those_that_work_change_no_kind() {
    let mut some = pattern(sandybridge(), 2, &[(1, 4_000, 300)], &[(4_000, 150)]);
    let alone = class(&evidence(&some));
    let mut ticking = pattern(sandybridge(), 16, &[(4, 900, 4_000)], &[(900, 10)]).cpus;
    ticking.iter_mut().zip(2..).for_each(|(cpu, id)| cpu.cpu = CpuId(id));
    some.cpus.extend(ticking);
    assert_eq!(class(&evidence(&some)), alone);
    assert_eq!(Verdict::of(&evidence(&some)).judged.working_cpus, 2);
}

#[test]
fn too_little_is_said_to_be_too_little() {
    let enough = pattern(sandybridge(), 2, &[(1, 4_000, 400)], &[(4_000, 300)]);
    let said = |pattern: &SleepPattern| {
        let verdict = Verdict::of(&evidence(pattern));
        assert_eq!((verdict.judged.class, verdict.advice.policy), (Class::CannotTell, Policy::Nothing));
        verdict.judged.because
    };
    assert!(said(&SleepPattern { lost: 900, ..enough.clone() }).contains("900 events were lost"));
    assert!(said(&SleepPattern { source: SleepSource::Counts, ..enough.clone() }).contains("counts"));
    assert!(said(&SleepPattern { cpus: Vec::new(), ..enough }).contains("Watch for longer"));
    assert!(said(&pattern(sandybridge(), 2, &[(1, 90, 20_000)], &[(90, 900)])).contains("180 sleeps in"));
    let ticks = pattern(sandybridge(), 2, &[(4, 4_000, 4_000)], &[(4_000, 9)]);
    assert!(said(&ticks).contains("nothing ran"));
}

#[test]
fn requests_that_take_long_do_not_mind_a_wake_up() {
    let bursty = evidence(&pattern(sandybridge(), 2, &[(4, 4_000, 400)], &[(4_000, 300)]));
    assert_eq!(class(&Evidence { requests: requests(500), ..bursty.clone() }), Class::BurstyIo);
    assert_eq!(class(&Evidence { requests: requests(500_000), ..bursty }), Class::LatencyInsensitive);
}

#[test]
fn the_tail_can_move_by_one_wake_up_for_each_cpu_on_the_path() {
    let used = pattern(sandybridge(), 2, &[(1, 4_000, 300), (2, 50, 700)], &[(2_050, 150)]);
    let mut evidence = evidence(&used);
    evidence.requests = requests(790).map(|requests| RequestEvidence { wakes: 2, ..requests });
    let tail = Verdict::of(&evidence).tail.unwrap();
    assert_eq!((tail.per_wake, tail.range), (Duration::from_micros(79), Duration::from_micros(108)));
    assert_eq!(
        (tail.deepest_used.as_str(), tail.deepest.as_str(), tail.shallowest.as_str()),
        ("C3", "C7", "C1")
    );
    assert_eq!((tail.of_p99, tail.source), (Some(Ratio::new(0.2)), LatencySource::Advertised));
    assert_eq!(Verdict::of(&evidence).prediction().tail, Some(Duration::from_micros(216)));
}

#[test]
fn measured_wake_ups_bound_the_tail_by_their_own_tail() {
    let used = pattern(sandybridge(), 2, &[(4, 4_000, 700)], &[(4_000, 150)]);
    let [fast, slow] = [(3, 9), (40, 70)]
        .map(|(p50, p99)| MeasuredWake { p50: Duration::from_micros(p50), p99: Duration::from_micros(p99) });
    let wake = (1..5).map(|state| (CstateIndex(state), if state == 1 { fast } else { slow }));
    let known = Known { wake: wake.collect(), ..Known::default() };
    let tail = Verdict::of(&Evidence::of(Findings::of(&used, &known))).tail.unwrap();
    assert_eq!((tail.per_wake, tail.source), (Duration::from_micros(67), LatencySource::Measured));
}

fn one_halting_state() -> CstateTable {
    CstateTable(sandybridge().0.into_iter().take(2).collect())
}

#[test]
fn a_service_whose_tail_is_waiting_on_busy_cpus_waits_for_a_cpu() {
    // CPUs that are active 74 % of the time; of a p99 of 2.69 ms, 2.65 ms are waiting.
    let busy = evidence(&pattern(one_halting_state(), 2, &[(1, 4_000, 260)], &[(4_000, 740)]));
    let with = |queue_us: u64, p99_us: u64| {
        let queue = Some(Duration::from_micros(queue_us));
        let requests = requests(p99_us).map(|requests| RequestEvidence { queue_p99: queue, ..requests });
        Verdict::of(&Evidence { requests, ..busy.clone() })
    };
    let verdict = with(2_650, 2_690);
    assert_eq!((verdict.judged.class, verdict.advice.policy), (Class::WaitsForCpu, Policy::OwnCpus));
    let words = verdict.words().join(" ");
    for told in
        ["Waits for a CPU", "wait 2.65ms before they run", "active 74", "others' work", "CPUs of its own"]
    {
        assert!(words.contains(told), "{told}: {words}");
    }
    // Waiting that a wake-up explains, and waiting that is little of the whole, are no such thing.
    assert_ne!(with(4, 7).judged.class, Class::WaitsForCpu);
    assert_ne!(with(600, 2_690).judged.class, Class::WaitsForCpu);
    // CPUs that mostly sleep are not in each other's way.
    let quiet = evidence(&pattern(one_halting_state(), 2, &[(1, 4_000, 900)], &[(4_000, 100)]));
    let requests =
        requests(2_690).map(|requests| RequestEvidence { queue_p99: Some(requests.p99), ..requests });
    assert_ne!(Verdict::of(&Evidence { requests, ..quiet }).judged.class, Class::WaitsForCpu);
}

#[test]
fn what_a_wake_up_takes_is_told_apart_from_what_choosing_could_change() {
    let short = pattern(one_halting_state(), 2, &[(1, 4_000, 700)], &[(4_000, 150)]);
    let p99_of_39_us = requests(39);
    // Advertised, one microsecond; a table that a hypervisor made up.
    let advertised = Verdict::of(&Evidence { requests: p99_of_39_us, ..evidence(&short) });
    let words = advertised.words()[1].clone();
    assert!(words.contains("as advertised; on a VM that says nothing: `roost doctor --probe`"), "{words}");
    // Measured, 27: most of the tail, though there is nothing to choose.
    let wake = MeasuredWake { p50: Duration::from_micros(12), p99: Duration::from_micros(27) };
    let known = Known { wake: [(CstateIndex(1), wake)].into(), ..Known::default() };
    let measured = Evidence { requests: p99_of_39_us, ..Evidence::of(Findings::of(&short, &known)) };
    let verdict = Verdict::of(&measured);
    let tail = verdict.tail.clone().unwrap();
    assert_eq!((tail.wake, tail.advertised), (Duration::from_micros(27), Some(Duration::from_micros(1))));
    assert_eq!((tail.range, tail.of_p99), (Duration::ZERO, Some(Ratio::ZERO)));
    assert!((tail.wake_of_p99.unwrap().as_f64() - 27.0 / 39.0).abs() < 1e-6);
    let words = verdict.words().join(" ");
    assert!(words.contains("up to 27.0us (measured here; its table says 1.00us)"), "{words}");
    assert!(words.contains("69.2% of the p99") && !words.contains("at most 0.0"), "{words}");
    // Only where a wake-up itself is little is it said to be.
    assert_ne!(verdict.judged.class, Class::LatencyInsensitive);
}

#[test]
fn no_more_is_still_to_be_saved_than_is_at_stake() {
    // CPUs that poll draw more than in any state that halts, and one such state leaves nothing to
    // choose.
    let polled = pattern(one_halting_state(), 2, &[(0, 4_000, 700), (1, 100, 700)], &[(4_100, 150)]);
    let verdict = Verdict::of(&evidence(&polled));
    let power = verdict.power.clone().unwrap();
    assert_eq!((power.at_stake, power.still_to_save), (Microwatts(0), Microwatts(0)));
    let words = verdict.words().join(" ");
    assert!(
        words.contains("The CPUs polled for 97.6% of their idle time") && words.contains("a limit"),
        "{words}"
    );
    let halted = pattern(one_halting_state(), 2, &[(0, 4_000, 3), (1, 4_000, 700)], &[(4_000, 150)]);
    assert_eq!(Verdict::of(&evidence(&halted)).limits, None);
    // Switched off, all that halt.
    let off =
        Known { disabled: (0..2).map(|cpu| (CpuId(cpu), CstateIndex(1))).collect(), ..Known::default() };
    let said = Verdict::of(&Evidence::of(Findings::of(&polled, &off))).limits.unwrap();
    assert!(said.contains("every state that halts was switched off"), "{said}");
}

#[test]
fn one_state_that_halts_leaves_nothing_to_choose() {
    let table = CstateTable(sandybridge().0.into_iter().take(2).collect());
    let bursty = pattern(table, 2, &[(1, 4_000, 700)], &[(4_000, 150)]);
    let verdict = Verdict::of(&evidence(&bursty));
    assert_eq!(verdict.prediction(), Change { tail: Some(Duration::ZERO), power: Some(Microwatts(0)) });
    assert_eq!(verdict.advice.policy, Policy::Nothing);
    assert!(verdict.words()[1].contains("only state that halts"), "{:?}", verdict.words());
}

#[test]
fn power_lies_between_the_extremes_and_says_that_it_is_modelled() {
    // Half idle, all of it in C1: everything that is at stake is still to be saved.
    let shallow = pattern(sandybridge(), 4, &[(1, 4_000, 500)], &[(4_000, 500)]);
    let power = Verdict::of(&evidence(&shallow)).power.unwrap();
    let model = PowerModel::by_name("tradeoffs").unwrap();
    let watts = |place: usize| model.idle_power(&sandybridge().0[place]).as_watts();
    let expected = 4.0 / 2.0 * 0.5 * (watts(1) - watts(4));
    assert!((power.at_stake.as_watts() - expected).abs() < 1e-5, "{power:?} {expected}");
    assert_eq!(power.still_to_save, power.at_stake);
    assert!(power.to_string().contains("modelled ("), "{power}");
    // All of it in the deepest: nothing is.
    let deep = pattern(sandybridge(), 4, &[(4, 4_000, 500)], &[(4_000, 500)]);
    assert_eq!(Verdict::of(&evidence(&deep)).power.unwrap().still_to_save, Microwatts(0));
    let mut metered = evidence(&deep);
    metered.power.measured = Some((Microwatts::from_watts(50.0), "rapl:package-0".into()));
    let power = Verdict::of(&metered).power.unwrap();
    assert!(power.to_string().contains("takes 50.00 W, measured (rapl:package-0)"), "{power}");
}

#[test]
fn without_a_table_the_bounds_are_missing_and_their_reasons_are_there() {
    let unknown = pattern(CstateTable::default(), 2, &[(1, 4_000, 500)], &[(4_000, 500)]);
    let verdict = Verdict::of(&Evidence::of(Findings::of(&unknown, &Known::default())));
    assert_eq!((verdict.tail.clone(), verdict.power.clone()), (None, None));
    assert_eq!(verdict.unknown.len(), 2);
    assert_eq!(verdict.judged.class, Class::BurstyIo);
}

#[test]
fn what_to_try_first_follows_from_what_goes_wrong() {
    let policy = |evidence: &Evidence| Verdict::of(evidence).advice.policy;
    let premature = evidence(&pattern(sandybridge(), 4, &[(4, 4_000, 200)], &[(4_000, 150)]));
    assert_eq!(policy(&premature), Policy::IdleFeedback);
    let scattered = evidence(&pattern(sandybridge(), 4, &[(4, 4_000, 700)], &[(4_000, 150)]));
    assert_eq!(policy(&scattered), Policy::Packing);
    assert_eq!(policy(&Evidence { requests: requests(800), ..scattered }), Policy::Carb);
    let alone = evidence(&pattern(sandybridge(), 1, &[(4, 4_000, 700)], &[(4_000, 150)]));
    assert_eq!(policy(&alone), Policy::Nothing);
    let busy = evidence(&pattern(sandybridge(), 4, &[(1, 300, 100)], &[(300, 9_000)]));
    assert_eq!(policy(&busy), Policy::Nothing);
    assert_eq!(policy(&Evidence { stalled: Some(Ratio::new(0.7)), ..busy }), Policy::Sensitivity);
    let batch = evidence(&pattern(sandybridge(), 4, &[(4, 700, 4_000), (3, 4_000, 400)], &[(2_700, 1_500)]));
    assert_eq!(policy(&batch), Policy::StagedBursts);
    let coarse = evidence(&pattern(sandybridge(), 4, &[(4, 900, 9_000)], &[(900, 9_000)]));
    assert_eq!(policy(&coarse), Policy::Nothing);
}

#[test]
fn an_ab_run_is_beyond_the_prediction_only_if_surely_so() {
    let side = |p99_us: u64, watts: f64| Side {
        p99: Duration::from_micros(p99_us),
        p99_half_width: Duration::from_micros(3),
        power: Some((Microwatts::from_watts(watts), Microwatts::from_watts(0.1))),
    };
    let predicted =
        Change { tail: Some(Duration::from_micros(100)), power: Some(Microwatts::from_watts(5.0)) };
    let run = |deep: Side| compare(&predicted, &side(500, 40.0), &deep);
    let within = run(side(603, 36.0));
    assert!(within.is_within(), "{within}");
    assert!(within.to_string().starts_with("Tail under deep sleep: longer by 103.0 us, within the 100.0 us"));
    let beyond = run(side(610, 36.0));
    assert!(!beyond.is_within() && beyond.to_string().contains("BEYOND"), "{beyond}");
    assert!(!run(side(520, 34.0)).is_within());
    let opposite = run(side(450, 41.0));
    assert!(opposite.is_within() && opposite.to_string().contains("shorter by 50.0 us"), "{opposite}");
    let nothing = compare(&Change { tail: None, power: None }, &side(1, 1.0), &side(9, 9.0));
    assert!(nothing.is_within() && nothing.tail.is_none());
}

#[test]
fn a_verdict_reads_as_sentences_and_as_json() {
    let bursty = evidence(&pattern(sandybridge(), 4, &[(4, 4_000, 200)], &[(4_000, 150)]));
    let verdict = Verdict::of(&Evidence { requests: requests(900), ..bursty });
    let words = verdict.words();
    assert_eq!(words.len(), 4, "{words:?}");
    assert!(words[0].starts_with("Bursty: on the 4 CPUs that work"), "{words:?}");
    assert!(words[1].contains("12.0% of the p99 of 900us"), "{words:?}");
    assert!(words[3].starts_with("Try first: idle feedback. 100.0% of the sleeps"), "{words:?}");
    let json = serde_json::to_value(&verdict).unwrap();
    assert_eq!(json["class"], "bursty_io");
    assert_eq!(json["advice"]["policy"], "idle_feedback");
    assert_eq!(json["tail"]["per_wake_ns"], 108_000);
}

/// Any pattern of one CPU, with any table of rising latencies.
fn any_pattern() -> impl Strategy<Value = SleepPattern> {
    let table = proptest::collection::vec((1u64..300, 1u64..800), 0..4);
    let sleeps = proptest::collection::vec((0usize..5, 0u64..400, 1u64..5_000), 0..6);
    let active = proptest::collection::vec((0u64..400, 1u64..5_000), 0..4);
    (table, 1u16..6, sleeps, active, 0u64..200).prop_map(|(steps, cpus, sleeps, active, lost)| {
        let mut table = sandybridge();
        table.0.truncate(steps.len() + 1);
        let mut exit = 0;
        for (state, (latency, target)) in table.0.iter_mut().skip(1).zip(steps) {
            exit += latency;
            (state.exit_latency, state.target_residency) =
                (Duration::from_micros(exit), Duration::from_micros(exit + target));
        }
        SleepPattern { lost, ..pattern(table, cpus, &sleeps, &active) }
    })
}

proptest! {
    #[test]
    fn bounds_stay_within_their_own_bounds_and_equal_evidence_gives_equal_verdicts(pattern in any_pattern()) {
        let evidence = Evidence { requests: requests(700), ..evidence(&pattern) };
        let verdict = Verdict::of(&evidence);
        prop_assert_eq!(&verdict, &Verdict::of(&evidence));
        if let Some(tail) = &verdict.tail {
            prop_assert!(tail.per_wake <= tail.range);
        }
        if let Some(power) = &verdict.power {
            let polling: f64 = evidence.findings.cpus.iter().map(|cpu| cpu.slept.idle().as_f64()).sum::<f64>()
                * PowerModel::by_name("tradeoffs").unwrap().active.as_watts() / 2.0;
            prop_assert!(power.at_stake.as_watts() <= polling + 1e-5);
            prop_assert!(power.still_to_save.as_watts() <= polling + 1e-5);
            prop_assert!(power.still_to_save <= power.at_stake);
        }
        for sentence in verdict.words() {
            prop_assert!(!sentence.contains("NaN") && !sentence.contains('\n'), "{}", sentence);
        }
    }

    #[test]
    fn more_idle_time_puts_no_less_power_at_stake(
        sleeps in 1u64..400, length in 1u64..5_000, more in 0u64..400, active in 1u64..500_000,
    ) {
        let at_stake = |count: u64| {
            // The same time watched, more of it asleep.
            let idle = count * length;
            let mut pattern = pattern(sandybridge(), 2, &[(1, count, length)], &[(1, active + (800 * 5_000) - idle)]);
            pattern.elapsed = Duration::from_secs(10);
            Verdict::of(&evidence(&pattern)).power.unwrap().at_stake
        };
        prop_assert!(at_stake(sleeps) <= at_stake(sleeps + more));
    }
}
