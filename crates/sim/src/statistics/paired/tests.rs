//! Differences whose truth is known: M/M/1 with the same arrivals and scaled services, and power
//! that follows one load at two prices.

use super::*;
use crate::exact::ResponseTime;
use crate::statistics::{Collector, Horizon, Quantile, Quantity, Replications};
use proptest::prelude::*;
use workload::Random;

const NS: f64 = 1e6;
const P99: Quantity = Quantity::Quantile(Quantile::P99);
const LOAD: f64 = 0.5;
const SCALE: f64 = 0.9;

/// M/M/1 with an offered load of `LOAD` whose services are all scaled: the seed gives the
/// arrivals and the services.
fn run(seed: u64, scale: f64, requests: u32) -> Collector {
    let (mut gaps, mut services) = (Random::new(seed, 1), Random::new(seed, 2));
    let exponential = |random: &mut Random| -(1.0 - random.unit()).ln();
    let mut collector = Collector::new([]);
    let mut left = 0.0f64;
    for _ in 0..requests {
        left = (left - exponential(&mut gaps) / LOAD).max(0.0) + scale * exponential(&mut services);
        collector.record((left * NS) as u64);
    }
    collector
}

fn portions(collector: &Collector) -> Portions {
    collector.portions(&[Quantity::Mean, P99]).expect("a settled run")
}

/// The true differences of mean and p99, in nanoseconds.
fn truths() -> [f64; 2] {
    let (fast, slow) = (ResponseTime::mm1(LOAD, 1.0 / SCALE), ResponseTime::mm1(LOAD, 1.0));
    [fast.mean() - slow.mean(), fast.quantile(0.99) - slow.quantile(0.99)].map(|time| time * NS)
}

#[test]
fn paired_intervals_hold_the_true_difference_as_often_as_they_say() {
    let seeds = 150;
    let (mut covered, mut shares) = ([0; 2], [0; 2]);
    for seed in 1..=seeds {
        let (fast, slow) = (run(seed, SCALE, 60_000), run(seed, 1.0, 60_000));
        let (fast, slow) = (portions(&fast), portions(&slow));
        for (at, (name, truth)) in ["mean", "p99"].into_iter().zip(truths()).enumerate() {
            let Some(found) = fast.difference(&slow, name) else { continue };
            covered[at] += u64::from(found.absolute.covers(truth));
            // Both figures are the mean times a constant, so the ratio is that of the means.
            let share = ResponseTime::mm1(LOAD, 1.0 / SCALE).mean() / 2.0 - 1.0;
            shares[at] += u64::from(found.relative.is_some_and(|found| found.covers(share)));
        }
    }
    let least = (0.93 * seeds as f64).ceil() as u64;
    assert!(covered.iter().chain(&shares).all(|&count| count >= least), "{covered:?} {shares:?}");
}

#[test]
fn replications_are_paired_by_seed_and_hold_the_truth() {
    let groups = 60;
    let mut covered = [0; 2];
    for group in 0..groups {
        let story = |scale: f64| {
            let mut runs = Replications::new(Horizon::Steady);
            (0..12).for_each(|seed| {
                runs.add(100 * group + seed, &run(100 * group + seed, scale, 20_000)).unwrap()
            });
            runs.portions(&[Quantity::Mean, P99])
        };
        let (fast, slow) = (story(SCALE), story(1.0));
        for (at, (name, truth)) in ["mean", "p99"].into_iter().zip(truths()).enumerate() {
            let found = fast.difference(&slow, name).expect("twelve pairs");
            assert_eq!((found.portion, found.pairs), (Portion::Replication, 12));
            covered[at] += u64::from(found.absolute.covers(truth));
        }
    }
    assert!(covered.iter().all(|&count| count >= 55), "{covered:?} of {groups}");
}

#[test]
fn a_pair_knows_more_than_two_intervals_do() {
    let (fast, slow) = (run(3, SCALE, 200_000), run(3, 1.0, 200_000));
    for (name, quantity) in [("mean", Quantity::Mean), ("p99", P99)] {
        let found = portions(&fast).difference(&portions(&slow), name).unwrap().absolute;
        let alone = [&fast, &slow].map(|run| run.interval(quantity).unwrap().half_width);
        let unpaired = (alone[0].powi(2) + alone[1].powi(2)).sqrt();
        assert!(found.half_width < 0.5 * unpaired, "{name}: {found:?} against +-{unpaired}");
    }
}

#[test]
fn a_run_against_itself_differs_by_nothing() {
    let portions = portions(&run(1, 1.0, 100_000));
    for name in ["mean", "p99"] {
        let found = portions.difference(&portions, name).unwrap();
        let nothing = Interval { estimate: 0.0, half_width: 0.0 };
        assert_eq!((found.absolute, found.relative), (nothing, Some(nothing)), "{name}");
        assert!(!found.is_below() && !found.is_above());
    }
}

#[test]
fn runs_of_different_lengths_are_paired_over_their_common_beginning() {
    let (short, long) = (portions(&run(5, SCALE, 70_000)), portions(&run(5, 1.0, 150_000)));
    let whole = portions(&run(5, 1.0, 70_000));
    let (common, same) =
        (short.difference(&long, "mean").unwrap(), short.difference(&whole, "mean").unwrap());
    let length = short.weights.iter().sum::<f64>() / long.weights[0];
    assert!(common.pairs <= length as usize && common.pairs + 2 >= length as usize, "{}", common.pairs);
    assert!((common.absolute.estimate / same.absolute.estimate - 1.0).abs() < 0.05, "{common:?} {same:?}");
}

#[test]
fn different_kinds_and_too_few_pairs_have_no_difference() {
    let batches = portions(&run(1, 1.0, 100_000));
    let mut runs = Replications::new(Horizon::Whole);
    (0..9).for_each(|seed| runs.add(seed, &run(seed, 1.0, 5_000)).unwrap());
    let few = runs.portions(&[Quantity::Mean]);
    assert_eq!(batches.difference(&few, "mean"), None);
    assert_eq!(few.difference(&few, "mean"), None);
    assert_eq!(batches.difference(&batches, "p50"), None, "not asked for");
}

/// A core whose load comes and goes, at a price for it: watts over 512 seconds.
fn power(seed: u64, price: f64, seconds: usize) -> Portions {
    let (mut random, mut busy) = (Random::new(seed, 4), 0.5);
    let joules = (0..seconds).map(|_| {
        busy = 0.7 * busy + 0.3 * random.unit();
        2.0 + price * busy
    });
    let totals = BTreeMap::from([("cpu_watts".to_owned(), joules.collect())]);
    Portions::of_stretches(vec![1.0; seconds], totals, "cpu_watts").unwrap()
}

#[test]
fn power_is_paired_over_the_same_time() {
    // Half of 9 - 10 watts, on average.
    let found = |seed| power(seed, 9.0, 512).difference(&power(seed, 10.0, 512), "cpu_watts").unwrap();
    let covered = (1..=200).filter(|&seed| found(seed).absolute.covers(-0.5)).count();
    assert!(covered >= 186, "{covered} of 200");
    assert!((1..=200).all(|seed| found(seed).is_below()));
    let server = |price| power(1, price, 512).with_constant("cpu_watts", 30.0, "server_watts");
    let [cpu, all] = ["cpu_watts", "server_watts"].map(|name| server(9.0).difference(&server(10.0), name));
    let (cpu, all) = (cpu.unwrap(), all.unwrap());
    assert!((cpu.absolute.estimate - all.absolute.estimate).abs() < 1e-9);
    assert!(cpu.relative.unwrap().estimate < 4.0 * all.relative.unwrap().estimate);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn exchanging_the_two_turns_the_sign(seed in 0u64..1000, price in 1.0f64..20.0) {
        let (a, b) = (power(seed, price, 300), power(seed, 10.0, 400));
        let (there, back) = (a.difference(&b, "cpu_watts"), b.difference(&a, "cpu_watts"));
        prop_assert_eq!(there.is_some(), back.is_some());
        if let (Some(there), Some(back)) = (there, back) {
            let (there, back) = (there.absolute, back.absolute);
            prop_assert!((there.estimate + back.estimate).abs() < 1e-9);
            prop_assert!((there.half_width - back.half_width).abs() <= 1e-6 * there.half_width + 1e-12);
        }
    }
}
