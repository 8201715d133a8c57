//! Patterns made by hand, and sums that hold for any pattern.

use super::*;
use crate::sleep::CpuPattern;
use machine::{Cstate, CstateTable, LengthHistogram};
use proptest::prelude::*;

fn state(name: &str, kind: CstateKind, exit_us: u64, target_us: u64) -> Cstate {
    Cstate {
        name: name.into(),
        kind,
        exit_latency: Duration::from_micros(exit_us),
        true_exit_latency: None,
        entry_latency: None,
        target_residency: Duration::from_micros(target_us),
        power: None,
    }
}

/// The paper's SandyBridge with a spinning state in front, as Linux has it.
fn sandybridge() -> CstateTable {
    CstateTable(vec![
        state("POLL", CstateKind::Polling, 0, 0),
        state("C1", CstateKind::Halting, 1, 1),
        state("C3", CstateKind::Halting, 80, 106),
        state("C6", CstateKind::Halting, 104, 345),
    ])
}

fn lengths(micros: &[u64]) -> LengthHistogram {
    let mut lengths = LengthHistogram::default();
    micros.iter().for_each(|&micros| lengths.record(Duration::from_micros(micros)));
    lengths
}

fn pattern(table: CstateTable, idle: &[&[u64]], active: &[u64]) -> SleepPattern {
    let cpu = CpuPattern {
        cpu: CpuId(0),
        table,
        idle: idle.iter().map(|idle| lengths(idle)).collect(),
        active: lengths(active),
        wakers: None,
    };
    let elapsed = cpu.idle.iter().map(LengthHistogram::time).sum::<Duration>() + cpu.active.time();
    SleepPattern { elapsed, source: SleepSource::Bpf, cpus: vec![cpu], lost: 0 }
}

#[test]
fn sleeps_are_judged_by_their_own_target_and_by_the_next_deeper_one() {
    // C1: 20 right, 2 long enough for C3. C3: one premature, one right. C6: one premature, one
    // right.
    let c1 = [&[20; 20][..], &[200, 5_000]].concat();
    let pattern = pattern(sandybridge(), &[&[], &c1, &[40, 150], &[80, 900]], &[100; 24]);
    let found = Findings::of(&pattern, &Known::default()).all;
    let counts = |of: fn(&StateSlept) -> Option<Part>| -> Vec<u64> {
        found.states.iter().map(|state| of(state).unwrap().count).collect()
    };
    assert_eq!(counts(|state| state.premature), [0, 0, 1, 1]);
    assert_eq!(counts(|state| state.missed_deep), [0, 2, 0, 0]);
    assert_eq!((found.premature.unwrap().count, found.missed_deep.unwrap().count), (2, 2));
    assert_eq!(found.sleeps, 26);
}

#[test]
fn a_forbidden_state_cannot_be_missed() {
    let pattern = pattern(sandybridge(), &[&[], &[200; 9], &[], &[]], &[100]);
    let known = |states: &[u8]| Known {
        disabled: states.iter().map(|&index| (CpuId(0), CstateIndex(index))).collect(),
        ..Known::default()
    };
    let missed = |known: &Known| Findings::of(&pattern, known).all.missed_deep.unwrap().count;
    assert_eq!((missed(&known(&[])), missed(&known(&[2])), missed(&known(&[2, 3]))), (9, 0, 0));
}

#[test]
fn waking_costs_what_was_measured_or_else_what_is_advertised() {
    let pattern = pattern(sandybridge(), &[&[], &[99; 10], &[], &[9_901; 10]], &[]);
    let cost = |known: &Known| Findings::of(&pattern, known).all.wake_cost.unwrap();
    let advertised = cost(&Known::default());
    assert_eq!(advertised.source, LatencySource::Advertised);
    assert!((advertised.share.as_f64() - 0.0105).abs() < 1e-9, "{advertised:?}");
    let wake = [(1, 3), (3, 47)].map(|(state, micros)| {
        let [p50, p99] = [micros, 9 * micros].map(Duration::from_micros);
        (CstateIndex(state), MeasuredWake { p50, p99 })
    });
    let measured = cost(&Known { wake: wake.into(), ..Known::default() });
    assert_eq!((measured.source, measured.share), (LatencySource::Measured, Ratio::new(0.005)));
    // Spinning costs no wake-up, and its latency is not an advertised one.
    let mut spun = pattern.clone();
    spun.cpus[0].idle[0] = lengths(&[10; 10]);
    let spun = Findings::of(&spun, &Known { wake: wake.into(), ..Known::default() }).all.wake_cost.unwrap();
    assert_eq!(spun.source, LatencySource::Measured);
    let half = cost(&Known { wake: wake[1..].iter().copied().collect(), ..Known::default() });
    assert_eq!(half.source, LatencySource::Advertised);
}

#[test]
fn without_a_table_states_are_numbers_and_nothing_is_judged() {
    let pattern = pattern(CstateTable::default(), &[&[], &[500; 4]], &[500; 4]);
    let found = Findings::of(&pattern, &Known::default());
    let state = &found.all.states[1];
    assert_eq!((state.name.as_str(), state.share, state.sleeps), ("state 1", Ratio::new(0.5), 4));
    assert_eq!((state.premature, state.missed_deep, state.wake), (None, None, None));
    assert_eq!((found.all.premature, found.all.wake_cost), (None, None));
    assert!(found.all.slices.is_some());
    assert_eq!(found.unknown.len(), 2, "{:?}", found.unknown);
    assert!(found.unknown[0].contains("This kernel offers none"), "{:?}", found.unknown);
    let json = serde_json::to_value(&found).unwrap();
    assert!(json["all"].get("premature").is_none(), "{json}");
    assert_eq!(json["cpus"][0]["seen_ns"], 4_000_000);
}

#[test]
fn counts_tell_residency_and_nothing_of_lengths() {
    let mut pattern = pattern(sandybridge(), &[&[], &[250; 1_000]], &[]);
    (pattern.source, pattern.elapsed) = (SleepSource::Counts, Duration::from_secs(1));
    let found = Findings::of(&pattern, &Known::default());
    assert_eq!((found.all.active, found.all.states[1].share), (Ratio::new(0.75), Ratio::new(0.25)));
    assert_eq!((found.all.premature, found.all.slices, found.all.idle_lengths), (None, None, None));
    assert!(found.all.wake_cost.is_some());
    assert!(found.unknown[0].contains("no lengths"));
}

#[test]
fn short_slices_are_those_below_a_millisecond_by_time_not_by_number() {
    let pattern = pattern(sandybridge(), &[&[], &[100; 100], &[], &[10_000; 3]], &[100; 50]);
    let slices = Findings::of(&pattern, &Known::default()).all.slices.unwrap();
    assert_eq!((slices.short_of_idle, slices.short_of_active), (Ratio::new(0.25), Ratio::ONE));
    assert!((slices.short_of_all.as_f64() - 15.0 / 45.0).abs() < 1e-9);
}

#[test]
fn cpus_with_different_tables_are_told_apart_in_the_sum() {
    let mut both = pattern(sandybridge(), &[&[], &[50; 3]], &[50]);
    let little =
        CstateTable(vec![state("POLL", CstateKind::Polling, 0, 0), state("C1E", CstateKind::Halting, 2, 4)]);
    both.cpus.push(CpuPattern { cpu: CpuId(1), ..pattern(little, &[&[], &[50; 5]], &[50]).cpus[0].clone() });
    let names: Vec<(String, u64)> = Findings::of(&both, &Known::default())
        .all
        .states
        .into_iter()
        .map(|state| (state.name, state.sleeps))
        .collect();
    let expected = [("POLL", 0), ("C1", 3), ("C1E", 5), ("C3", 0), ("C6", 0)];
    assert_eq!(names, expected.map(|(name, sleeps)| (name.to_owned(), sleeps)));
}

proptest! {
    #[test]
    fn shares_add_up_to_one_and_no_count_exceeds_the_sleeps(
        idle in proptest::collection::vec(proptest::collection::vec(1u64..2_000_000, 0..30), 4),
        active in proptest::collection::vec(1u64..2_000_000, 1..60),
    ) {
        let idle: Vec<&[u64]> = idle.iter().map(Vec::as_slice).collect();
        let found = Findings::of(&pattern(sandybridge(), &idle, &active), &Known::default()).all;
        let shares = found.active.as_f64() + found.states.iter().map(|state| state.share.as_f64()).sum::<f64>();
        prop_assert!((shares - 1.0).abs() < 1e-9);
        let of = |lengths: &Option<Vec<LengthShare>>| -> f64 {
            lengths.iter().flatten().map(|entry| entry.share.as_f64()).sum()
        };
        prop_assert!((of(&found.idle_lengths) + of(&found.active_lengths) - 1.0).abs() < 1e-9);
        for state in &found.states {
            let (premature, missed) = (state.premature.unwrap(), state.missed_deep.unwrap());
            prop_assert!(premature.count + missed.count <= state.sleeps + 1);
        }
        let slices = found.slices.unwrap();
        prop_assert!(slices.short_idle_of_all <= slices.short_of_all);
    }
}
