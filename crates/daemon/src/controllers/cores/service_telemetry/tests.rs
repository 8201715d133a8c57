use super::*;
use proptest::prelude::*;

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn goal() -> Option<Goal> {
    Some("2ms@p99".parse().unwrap())
}

/// So many requests until now, all but a share of which took at most a millisecond, the others
/// up to `worst` seconds.
fn page(requests: f64, slow: f64, worst: f64) -> Answer {
    let tail = Tail::Buckets(vec![(0.001, requests - slow), (worst, requests), (f64::INFINITY, requests)]);
    Ok(Reading { requests, tail: Some(tail), ..Reading::default() })
}

#[test]
fn an_epoch_is_what_came_between_two_answers() {
    let mut told = Told::default();
    told.take(at(1), page(500.0, 0.0, 0.004));
    assert_eq!(told.reading(goal()), ServiceReading::default(), "one answer is no rate");
    told.take(at(2), page(2_500.0, 0.0, 0.004));
    let reading = told.reading(goal());
    assert_eq!(reading.rate, Some(Rate::per_second(2_000.0)));
    assert!(reading.tail.unwrap() <= Duration::from_millis(1));
    assert_eq!(told.reading(goal()).rate, None, "nothing came since");
    told.take(at(3), page(2_500.0, 0.0, 0.004));
    assert_eq!(told.reading(goal()).rate, Some(Rate::ZERO), "silence is a rate of zero");
}

#[test]
fn an_answer_that_is_missing_is_no_rate_and_the_next_one_is_of_all_the_time() {
    let mut told = Told::default();
    told.take(at(1), page(0.0, 0.0, 0.004));
    told.take(at(2), Err("no whole answer within 1s".into()));
    assert_eq!(told.reading(goal()).rate, None);
    told.take(at(3), page(400.0, 0.0, 0.004));
    assert_eq!(told.reading(goal()).rate, Some(Rate::per_second(200.0)));
    // A restart.
    told.take(at(4), page(7.0, 0.0, 0.004));
    assert_eq!(told.reading(goal()).rate, None);
    told.take(at(5), page(9.0, 0.0, 0.004));
    assert_eq!(told.reading(goal()).rate, Some(Rate::per_second(2.0)));
}

#[test]
fn nothing_spans_a_change() {
    let mut told = Told::default();
    told.take(at(1), page(0.0, 0.0, 0.004));
    told.forget(at(2));
    // Slow requests were slow before the change.
    told.take(at(3), page(5_000.0, 5_000.0, 0.004));
    told.take(at(4), page(7_000.0, 5_000.0, 0.004));
    let reading = told.reading(goal());
    assert_eq!(reading.rate, Some(Rate::per_second(2_000.0)));
    assert!(reading.tail.unwrap() <= Duration::from_millis(1), "{reading:?}");
}

#[test]
fn a_goal_inside_of_a_bucket_is_never_said_to_be_kept() {
    // The percentile lies between 1 and 4 ms, and so does the goal.
    let buckets = [(0.001, 980.0), (0.004, 1_000.0), (f64::INFINITY, 1_000.0)];
    let at = |goal_us| tail(&buckets, 0.985, Some(Duration::from_micros(goal_us))).unwrap();
    assert_eq!(at(3_000), Duration::from_millis(4));
    assert!(at(1_000) > Duration::from_millis(1), "missed is missed");
    assert!(at(4_000) < Duration::from_millis(4), "kept whatever it was");
    // Beyond the last bucket.
    let beyond = [(0.001, 10.0), (f64::INFINITY, 1_000.0)];
    assert_eq!(tail(&beyond, 0.99, None), None);
    assert_eq!(tail(&beyond, 0.99, Some(Duration::from_millis(5))), Some(Duration::from_millis(10)));
}

#[test]
fn a_summary_tells_nothing_of_an_epoch_without_requests() {
    let recent = |requests| {
        let tail = Some(Tail::Recent(Duration::from_millis(3)));
        Ok(Reading { requests, tail, ..Reading::default() })
    };
    let mut told = Told::default();
    told.take(at(1), recent(5.0));
    told.take(at(2), recent(9.0));
    assert_eq!(told.reading(goal()).tail, Some(Duration::from_millis(3)));
    told.take(at(3), recent(9.0));
    assert_eq!(told.reading(goal()).tail, None);
}

proptest! {
    /// Whatever a server answers, a rate is finite and not negative, and a tail that keeps the
    /// goal lies in buckets that do.
    #[test]
    fn no_answers_make_it_panic_or_lie(
        answers in prop::collection::vec(
            (0_u64..100, 0.0..1e9_f64, prop::collection::vec(0.0..1e6_f64, 3), 0_u8..5),
            0..40,
        ),
    ) {
        let mut told = Told::default();
        for (seconds, requests, counts, kind) in answers {
            let bounds = [0.001, 0.01, f64::INFINITY];
            let answer = match kind {
                0 => Err("silent".to_owned()),
                1 => Ok(Reading { requests, ..Reading::default() }),
                _ => {
                    let tail = Some(Tail::Buckets(bounds.into_iter().zip(counts).collect()));
                    Ok(Reading { requests, tail, ..Reading::default() })
                }
            };
            if kind == 4 {
                told.forget(at(seconds));
            }
            told.take(at(seconds), answer);
            let reading = told.reading(goal());
            if let Some(rate) = reading.rate {
                prop_assert!(rate.as_per_second().is_finite() && rate >= Rate::ZERO);
            }
            if let Some(tail) = reading.tail {
                prop_assert!(tail <= Duration::from_millis(1) || tail > Duration::from_millis(2), "{tail}");
            }
        }
    }
}
