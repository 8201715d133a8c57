//! Adrenaline: a boost for requests that are on their way to become the tail (Hsu et al.,
//! HPCA 2015) \[R\].
//!
//! Requests come in classes that differ in how long they take (reads and writes, queries of few and
//! of many words). Each class k has a threshold b_k: a request runs at the cruising clock until b_k
//! after its arrival, and at the boost clock from then on. The thresholds come from an
//! offline search over a grid, evaluated by simulations or by runs on a machine.
//!
//! Invariants: a request's operating point never falls while it waits; a class that is not
//! configured is boosted from the start.

use super::{PointIndex, PointTable};
use machine::{CpuId, Duration, Instant, Kilohertz};
use policy::check::Check;
use policy::kind::{Decision, FrequencyPolicy, Make, Making, Policy, Request, Watch};
use policy::registry::{Entry, Parameter, Question, Word, clock, list, settings};
use serde::{Deserialize, Serialize};

/// The treatment of a class of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// b_k, from the arrival; `never` for no boost at all.
    #[serde(with = "machine::duration_text::optional")]
    pub boost_after: Option<Duration>,
}

pub static ENTRY: Entry = Entry {
    words: &[Word::new("adrenaline", "fast for a request of some age, by class", |_| {
        settings(Params::default())
    })],
    question: Question::Frequency,
    help: "A request runs at the cruising frequency until its class's threshold after its arrival, and at \
           the boost frequency from then on.",
    origin: "Adrenaline (Hsu et al., HPCA 2015), recalled",
    make: Make::Frequency(|making| Box::new(Boosts::new(making))),
    ..Entry::of::<Params>()
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    pub cruise: Kilohertz,
    pub boost: Kilohertz,
    pub classes: Vec<Class>,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        clock("cruise", "before the threshold").not_above("boost").source("as Hurry-up's f_min"),
        clock("boost", "after it").source("as Hurry-up's f_max"),
        list("classes", "by class, `{ boost_after = \"1ms\" }`: the age at which a request is boosted")
            .source("the paper searches them offline; none: all is boosted"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self { cruise: Kilohertz(1_000_000), boost: Kilohertz(2_600_000), classes: Vec::new() }
    }
}

/// The thresholds, and the operating points that they choose between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adrenaline {
    classes: Vec<Class>,
    cruise: PointIndex,
    boost: PointIndex,
}

impl Adrenaline {
    /// A boost clock below the cruising clock is taken as equal to it.
    pub fn new(params: &Params, points: &PointTable) -> Self {
        let nominal = points.khz(points.fastest()).0 as f64;
        let point = |clock: Kilohertz| points.at_least_speed(clock.0 as f64 / nominal);
        let cruise = point(params.cruise);
        Self { classes: params.classes.clone(), cruise, boost: point(params.boost).max(cruise) }
    }

    /// The operating point for a request of this class, so long after its arrival.
    pub fn choose(&self, class: usize, age: Duration) -> PointIndex {
        let boosted = self.boost_after(class).is_some_and(|after| age >= after);
        if boosted { self.boost } else { self.cruise }
    }

    /// When a request that is not boosted yet will be, unless it is done before.
    pub fn boost_at(&self, class: usize, arrived: Instant) -> Option<Instant> {
        self.boost_after(class).map(|after| arrived + after)
    }

    fn boost_after(&self, class: usize) -> Option<Duration> {
        self.classes.get(class).map_or(Some(Duration::ZERO), |class| class.boost_after)
    }
}

/// The policy of a server: requests on cores, and when they are boosted.
pub struct Boosts {
    policy: Adrenaline,
    /// By core, when its request is boosted.
    boosts: Vec<Option<Instant>>,
    decision: Option<Decision>,
}

impl Boosts {
    fn new(making: &Making<'_>) -> Self {
        let policy = Adrenaline::new(&making.params(), &making.points());
        Self { policy, boosts: vec![None; making.cpus()], decision: None }
    }
}

impl Policy for Boosts {
    fn poll_decision(&mut self) -> Option<Decision> {
        self.decision.take()
    }
}

impl FrequencyPolicy for Boosts {
    fn watches(&self) -> Watch {
        Watch::Work
    }

    fn handle_start(
        &mut self,
        now: Instant,
        cpu: usize,
        request: &Request,
        _: PointIndex,
    ) -> Option<PointIndex> {
        let at = self.policy.boost_at(request.class, request.arrived).filter(|&at| at > now);
        self.boosts[cpu] = at;
        self.decision = at.map(|at| Decision::Review { cpu: CpuId(cpu as u16), at });
        Some(self.policy.choose(request.class, now.since(request.arrived)))
    }

    fn handle_review(&mut self, now: Instant, cpu: usize) -> bool {
        self.boosts[cpu].take_if(|at| *at == now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::points_at;
    use proptest::prelude::*;

    fn after(micros: u64) -> Class {
        Class { boost_after: Some(Duration::from_micros(micros)) }
    }

    const NEVER: Class = Class { boost_after: None };

    fn adrenaline(classes: &[Class]) -> Adrenaline {
        let params = Params { classes: classes.to_vec(), ..Params::default() };
        Adrenaline::new(&params, &points_at(&[800, 1_200, 2_000, 2_400]))
    }

    #[test]
    fn a_request_is_boosted_from_its_threshold_on() {
        let adrenaline = adrenaline(&[after(50), NEVER]);
        let (cruise, boost) = (PointIndex(1), PointIndex(3));
        let us = Duration::from_micros;
        for (class, micros, point) in [
            (0, 0, cruise),
            (0, 49, cruise),
            (0, 50, boost),
            (0, 999, boost),
            (1, 999_999, cruise),
            (7, 0, boost),
        ] {
            assert_eq!(adrenaline.choose(class, us(micros)), point, "{class} {micros}");
        }
        let arrived = Instant::from_nanos(1_000);
        assert_eq!(adrenaline.boost_at(0, arrived), Some(arrived + us(50)));
        assert_eq!(adrenaline.boost_at(1, arrived), None);
    }

    #[test]
    fn parameters_are_written_as_people_write_them() {
        let json = r#"{"cruise":1200000,"classes":[{"boost_after":"50us"},{"boost_after":"never"}]}"#;
        let params: Params = serde_json::from_str(json).unwrap();
        assert_eq!(params.classes, [after(50), NEVER]);
        assert!(serde_json::from_str::<Params>(r#"{"classes":[{"boost":"50us"}]}"#).is_err());
        let read: Adrenaline =
            serde_json::from_str(&serde_json::to_string(&adrenaline(&params.classes)).unwrap()).unwrap();
        assert_eq!(read, adrenaline(&params.classes));
    }

    proptest! {
        #[test]
        fn waiting_never_lowers_the_point(
            thresholds in prop::collection::vec(prop::option::of(0_u64..1_000), 0..4),
            class in 0_usize..5,
            ages in (0_u64..2_000, 0_u64..2_000),
            clocks in (500_000_u64..4_000_000, 500_000_u64..4_000_000),
        ) {
            let classes = thresholds.iter().map(|us| Class { boost_after: us.map(Duration::from_micros) });
            let (cruise, boost) = (Kilohertz(clocks.0), Kilohertz(clocks.1));
            let params = Params { cruise, boost, classes: classes.collect() };
            let points = points_at(&[800, 1_200, 2_000, 2_400]);
            let adrenaline = Adrenaline::new(&params, &points);
            let (young, old) = (ages.0.min(ages.1), ages.0.max(ages.1));
            let point = |age| adrenaline.choose(class, Duration::from_micros(age));
            prop_assert!(point(young) <= point(old));
            prop_assert!(point(old) <= points.fastest());
        }
    }
}
