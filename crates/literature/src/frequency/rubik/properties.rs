//! Invariants, whatever the requests and the queue.

use super::tests::{NOW, head, taught, us, waiting};
use super::*;
use crate::frequency::points::tests::nine_points;
use proptest::prelude::*;

fn requests() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let compute = prop_oneof![0.1..100.0_f64, 5.0..6.0_f64, Just(0.0)];
    let memory = prop_oneof![0.0..30.0_f64, Just(0.0)];
    prop::collection::vec((compute, memory), 1..40)
        .prop_map(|some| some.iter().copied().cycle().take(1_000).collect())
}

fn queue() -> impl Strategy<Value = (Option<Head>, Vec<f64>)> {
    let began = prop::option::of((0.0..400.0_f64, 0.0..150.0_f64));
    let ages = prop::collection::vec(0.0..400.0_f64, 0..25);
    (began, ages).prop_map(|(began, ages)| (began.and_then(|(age, done)| head(age, done)), ages))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn age_and_company_never_lower_the_point(
        requests in requests(),
        (head, mut ages) in queue(),
        older in (0_usize..25, 0.0..300.0_f64),
    ) {
        let rubik = taught(requests);
        let chosen = rubik.choose(NOW, head, waiting(&ages));
        prop_assert!(chosen <= nine_points().fastest());
        let later = NOW + us(older.1);
        prop_assert!(rubik.choose(later, head, waiting(&ages)) >= chosen);
        if older.0 < ages.len() {
            let mut ages = ages.clone();
            ages[older.0] += older.1;
            prop_assert!(rubik.choose(NOW, head, waiting(&ages)) >= chosen);
        }
        ages.push(0.0);
        prop_assert!(rubik.choose(NOW, head, waiting(&ages)) >= chosen);
    }

    #[test]
    fn completions_at_one_instant_may_come_in_any_order(
        requests in requests(),
        turn in 0_usize..1_000,
    ) {
        let mut turned = requests.clone();
        turned.rotate_left(turn);
        turned.reverse();
        prop_assert_eq!(taught(requests), taught(turned));
    }

    #[test]
    fn what_is_written_and_read_back_decides_alike(requests in requests(), (head, ages) in queue()) {
        let mut rubik = taught(requests.clone());
        rubik.handle_completion(NOW, us(7.0), us(1.0), us(800.0));
        let text = serde_json::to_string(&rubik).unwrap();
        let mut read: Rubik = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&read, &rubik);
        // And goes on to learn alike.
        for rubik in [&mut rubik, &mut read] {
            for (compute, memory) in &requests {
                rubik.handle_completion(NOW, us(*compute), us(*memory), us(500.0));
            }
            rubik.handle_timeout(NOW + Duration::from_secs(2));
        }
        prop_assert_eq!(read.choose(NOW, head, waiting(&ages)), rubik.choose(NOW, head, waiting(&ages)));
        prop_assert_eq!(read, rubik);
    }
}
