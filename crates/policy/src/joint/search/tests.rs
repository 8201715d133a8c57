//! The search against all plans, asked one by one.

use super::super::accuracy::{exponential, hyperexponential, lognormal, shape};
use super::super::correction::{CLASSES, Correction};
use super::super::device::Device;
use super::super::model::{STABLE, Siblings};
use super::super::package::Package;
use super::super::params::Queueing;
use super::super::simulated::{points, states};
use super::*;
use proptest::prelude::*;

/// By idle state, the least power of all steady plans, and of graded ones from the same lowest
/// operating points, asked one by one.
fn exhaustive(search: &mut Search<'_>, goal: &Goal<'_>) -> Vec<(f64, Option<Base>)> {
    let mut all = Vec::new();
    for idle in 0..search.model.states.len() {
        let mut best = (f64::INFINITY, None);
        for active in 1..=search.model.cores {
            let steady = search.model.points.iter().map(Speed::Steady);
            let room_ns = goal.of(Kind::Graded, active) - search.dvfs_ns - search.exit_ns(idle);
            let lowest = search.lowest_point(search.model.frugal_point(idle), room_ns);
            let patience = |step| room_ns * PATIENCE_STEP.powi(step);
            let patient = |patience_ns: &f64| *patience_ns >= QUICK_CLOCK * search.dvfs_ns;
            let graded = (0..PATIENCES).map(patience).filter(patient);
            let speeds: Vec<Speed> =
                steady.chain(graded.map(|patience_ns| Speed::Graded(lowest, patience_ns))).collect();
            for speed in speeds {
                let Some(rated) = search.rate(Base { active, speed, idle: CstateIndex(idle as u8) }) else {
                    continue;
                };
                let keeps = match speed {
                    Speed::Steady(_) => rated.tail_ns <= goal.of(Kind::Steady, active),
                    // As the search asks: a tail is solved to a five-hundredth.
                    Speed::Graded(_, patience_ns) => {
                        let links = Links::new(&search.model, active).expect("it is stable");
                        let chain = search.chain(&links, active, lowest, patience_ns);
                        search.keeps(&chain, active, lowest, room_ns)
                    }
                };
                if keeps && rated.power < best.0 {
                    best = (rated.power, Some(rated.base));
                }
            }
        }
        all.push(best);
    }
    all
}

/// The plan found is stable, keeps the goal, and is hardly worse than the best of all.
fn is_found(
    (load, goal_us, scv): (f64, f64, f64),
    service: usize,
    queueing: Queueing,
    factors: [[f64; CLASSES]; 2],
    package: Option<Package>,
) -> Result<(), TestCaseError> {
    let shape = shape([exponential, lognormal, hyperexponential][service], 0.99);
    let (rate, cores) = (load * 10.0 / shape.mean_ns, 10);
    let (points, states, shape, siblings) = (&points(), &states(), &shape, Siblings::NONE);
    let model =
        Model { shape, rate, scv, quantile: 0.99, queueing, cores, siblings, points, states, package };
    let goal = Goal {
        tail_ns: goal_us * 1e3,
        correction: &Correction::with(factors),
        is_graded: true,
        device: Device::default(),
    };
    let found = Search::new(model, 10e3).best(&goal);
    let mut search = Search::new(model, 10e3);
    let best = exhaustive(&mut search, &goal);
    prop_assert_eq!(found.is_some(), best.iter().any(|(_, base)| base.is_some()));
    let Some(found) = found else { return Ok(()) };
    let goal_ns = goal.of(found.base.speed.kind(), found.base.active);
    // Tails are solved to a five-hundredth.
    prop_assert!(found.tail_ns <= goal_ns * 1.003, "{:?}", found);
    let busy_most = match found.base.speed {
        Speed::Steady(point) => rate * model.service_ns(point),
        Speed::Graded(..) => rate * model.service_ns(points.fastest()),
    };
    prop_assert!(busy_most <= STABLE * f64::from(found.base.active), "{:?}", found);
    // A deeper sleep may draw less, by the worth of its longer exit.
    for (idle, (best, base)) in best.into_iter().enumerate() {
        let longer_ns = search.exit_ns(idle) - search.exit_ns(found.base.idle.index());
        let worth = 1.0 - WORTH_OF_GOAL * longer_ns.max(0.0) / goal_ns;
        prop_assert!(
            found.power * worth <= best * 1.02,
            "{:?}, where {} is possible with {:?}",
            found,
            best,
            base
        );
    }
    Ok(())
}

/// Of ten cores on one socket or two.
fn any_package() -> impl Strategy<Value = Package> {
    (1_u16..=2, 0_u8..4, 0.0..60e6_f64).prop_map(|(sockets, from_state, awake)| Package {
        sockets,
        cores: 10 / sockets,
        from_state,
        awake,
    })
}

#[test]
fn a_plan_that_only_the_chain_finds_at_the_fastest_clock_is_found() {
    let numbers = (0.084_498_656_525_337_42, 159.145_240_785_868_14, 0.2);
    is_found(numbers, 2, Queueing::PerCore, [[1.0; CLASSES]; 2], None).unwrap();
}

#[test]
fn a_correction_that_changes_among_few_cores_hides_no_plan() {
    let mut factors = [[0.7; CLASSES]; 2];
    (factors[0][4], factors[1][4]) = (1.145_886_938_511_515_8, 0.782_931_116_129_743);
    let numbers = (0.754_233_373_141_224_3, 120.659_594_781_427_39, 2.811_110_623_413_117_3);
    is_found(numbers, 2, Queueing::Shared, factors, None).unwrap();
}

type Factors = [[f64; CLASSES]; 2];

/// Numbers as `is_found` takes them, the service, factors and package.
fn any_case() -> impl Strategy<Value = ((f64, f64, f64), usize, Factors, Option<Package>)> {
    let factors =
        prop_oneof![Just([[1.0; CLASSES]; 2]), prop::array::uniform2(prop::array::uniform17(0.7..2.5_f64)),];
    let numbers = (0.001..0.97_f64, 40.0..2_000.0_f64, 0.2..3.0_f64);
    (numbers, 0_usize..3, factors, prop::option::of(any_package()))
}

#[test]
fn a_second_package_that_begins_dear_hides_no_plan() {
    for (numbers, awake) in [
        ((0.397_200_844_600_854_8, 697.879_809_959_010_9, 2.918_119_096_407_482), 1_801_567.852_947_669_8),
        ((0.449_988_167_698_587_24, 662.476_272_361_486_7, 2.299_656_193_596_276), 3_165_780.594_840_455),
    ] {
        let package = Package { sockets: 2, cores: 5, from_state: 0, awake };
        is_found(numbers, 0, Queueing::PerCore, [[1.0; CLASSES]; 2], Some(package)).unwrap();
    }
}

#[test]
fn less_patience_that_lets_a_package_sleep_is_found() {
    let mut factors = [[0.7; CLASSES]; 2];
    (factors[0][3], factors[1][3]) = (1.936_017_381_863_062_2, 1.362_850_885_525_669_1);
    let numbers = (0.390_553_755_211_210_05, 717.189_798_604_985, 2.851_726_118_816_666);
    let package = Package { sockets: 2, cores: 5, from_state: 0, awake: 57_302_854.968_386_39 };
    is_found(numbers, 2, Queueing::PerCore, factors, Some(package)).unwrap();
}

// Two tests: each takes minutes, and they run side by side.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(7500))]

    #[test]
    fn the_plan_found_for_one_queue_is_hardly_worse_than_the_best_of_all(case in any_case()) {
        let (numbers, service, factors, package) = case;
        is_found(numbers, service, Queueing::Shared, factors, package)?;
    }

    #[test]
    fn the_plan_found_for_a_queue_per_core_is_hardly_worse_than_the_best_of_all(case in any_case()) {
        let (numbers, service, factors, package) = case;
        is_found(numbers, service, Queueing::PerCore, factors, package)?;
    }
}
