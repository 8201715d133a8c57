//! AutoScale's rule for the cores of one server [R Gandhi et al., TOCS 2012, where servers are
//! switched].
//!
//! With `n` requests in the system, k = ceil(n / p) cores are needed, where p is the number of
//! requests that one core can be given at a time. A core that is needed is switched on at once. One
//! that is needed no longer stays on for `t_wait`, in case load returns, because switching it on
//! again takes time. The rule works by *index packing* ([`AutoScale::route`]): an arriving request
//! goes to the first core that has room, so that the load concentrates on the first cores and the
//! last ones are left alone for long enough to be switched off. Spare capacity then is in
//! proportion to how much the load varied within the last `t_wait`.
//!
//! Cores are numbered from 0 in the order in which they are switched on. With that packing, core i
//! has been without need since `n` was last above i p; the rule switches it off then, without
//! asking whether a straggler still runs on it.
//!
//! Invariants: at least as many cores are on as are needed, up to all; a core goes off no
//! sooner than `t_wait` after it was last needed; never fewer than `min_on`.

use machine::{Duration, Instant};
use policy::check::Check;
use policy::kind::{Completion, CorePolicy, Decision, Make, Policy, Seen};
use policy::registry::{Entry, Parameter, Word, count, settings, time};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[Word::new("autoscale", "as many as the requests in the system need, for a while", |_| {
        settings(Params::default())
    })],
    help: "AutoScale's rule for the cores of one server: so many requests in the system for each core. A \
           core is on at once when needed, and off after a while without need; requests are packed on the \
           first cores that have room.",
    origin: "AutoScale (Gandhi et al., TOCS 2012), recalled",
    make: Make::Cores(|making| {
        let policy = AutoScale::new(making.params(), making.workers);
        Box::new(Server { policy, cores: usize::from(making.workers), told: None })
    }),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    pub requests_per_core: u32,
    #[serde(with = "machine::duration_text")]
    pub t_wait: Duration,
    pub min_on: u16,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        count("requests_per_core", "p: requests in the system for each core")
            .above_zero()
            .source("ours: one served and one waiting; the paper measures it"),
        time("t_wait", "how long a core stays on without need")
            .source("ours, chosen as the authors do: idling in C1 as costly as one exit from C6"),
        count("min_on", "cores that are always on").above_zero().source("ours"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self { requests_per_core: 2, t_wait: Duration::from_micros(400), min_on: 1 }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutoScale {
    params: Params,
    needed: u16,
    on: u16,
    /// When each core was last needed; of those that are not needed. Never rises from one core to
    /// the next.
    last_needed: Vec<Instant>,
}

impl AutoScale {
    /// `cores` of them, of which the least number is on.
    pub fn new(params: Params, cores: u16) -> Self {
        let needed = params.min_on.min(cores);
        Self { params, needed, on: needed, last_needed: vec![Instant::ZERO; usize::from(cores)] }
    }

    /// How many cores are on: these, from the first.
    pub fn on(&self) -> u16 {
        self.on
    }

    /// A request has come; there are `in_system` with it. Returns how many cores shall be on.
    pub fn handle_arrival(&mut self, now: Instant, in_system: u32) -> u16 {
        self.count(now, in_system)
    }

    /// A request is done; `in_system` are left. Returns how many cores shall be on.
    pub fn handle_completion(&mut self, now: Instant, in_system: u32) -> u16 {
        self.count(now, in_system)
    }

    /// When the last core that is on may go off; `None` while all of them are needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.on > self.needed).then(|| self.last_needed[usize::from(self.on) - 1] + self.params.t_wait)
    }

    /// Switches off the cores that were not needed for long. Returns how many cores shall be on.
    pub fn handle_timeout(&mut self, now: Instant) -> u16 {
        while self.poll_timeout().is_some_and(|due| due <= now) {
            self.on -= 1;
        }
        self.on
    }

    /// The core that an arriving request goes to: the first that is on and has fewer than p
    /// requests; if all are full, the one with the fewest. `loads` are the requests of each core
    /// that is on, from the first.
    pub fn route(&self, loads: impl Iterator<Item = u32> + Clone) -> usize {
        let loads = loads.take(usize::from(self.on)).enumerate();
        let room = loads.clone().find(|&(_, load)| load < self.params.requests_per_core);
        room.or_else(|| loads.min_by_key(|&(_, load)| load)).map_or(0, |(core, _)| core)
    }

    fn count(&mut self, now: Instant, in_system: u32) -> u16 {
        let cores = self.last_needed.len() as u16;
        let wanted = in_system.div_ceil(self.params.requests_per_core.max(1)).min(u32::from(cores)) as u16;
        let needed = wanted.max(self.params.min_on).min(cores);
        for core in needed..self.needed {
            self.last_needed[usize::from(core)] = now;
        }
        self.needed = needed;
        self.on = self.on.max(needed);
        self.handle_timeout(now)
    }
}

/// The policy of a server, with the number of cores that the driver knows.
pub struct Server {
    policy: AutoScale,
    cores: usize,
    told: Option<u16>,
}

impl Policy for Server {
    fn handle_timeout(&mut self, now: Instant, _: &Seen<'_>) {
        self.policy.handle_timeout(now);
    }

    #[inline]
    fn poll_decision(&mut self) -> Option<Decision> {
        let on = self.policy.on();
        (self.told.replace(on) != Some(on)).then_some(Decision::Active(on))
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.policy.poll_timeout()
    }
}

impl CorePolicy for Server {
    #[inline]
    fn handle_arrival(&mut self, now: Instant, in_system: u32) {
        self.policy.handle_arrival(now, in_system);
    }

    #[inline]
    fn handle_completion(&mut self, now: Instant, _: &Completion, in_system: u32) {
        self.policy.handle_completion(now, in_system);
    }

    #[inline]
    fn route(&self, load: &dyn Fn(usize) -> u32) -> Option<usize> {
        Some(self.policy.route((0..self.cores).map(load)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    #[test]
    fn cores_go_on_at_once_and_off_after_a_while() {
        // Two requests a core; off after 400 us.
        let mut policy = AutoScale::new(Params::default(), 4);
        let plays = [
            // (at, in system, on, next timeout)
            (10, 1, 1, None),
            (20, 2, 1, None),
            (30, 3, 2, None),
            (40, 9, 4, None),
            (50, 6, 4, Some(450)),
            (60, 1, 4, Some(450)),
            // Needed again before its time.
            (440, 5, 4, Some(450)),
            (460, 5, 3, None),
            (470, 1, 3, Some(870)),
            (869, 1, 3, Some(870)),
            (870, 1, 1, None),
        ];
        for (at, in_system, on, timeout) in plays {
            assert_eq!(policy.handle_completion(us(at), in_system), on, "at {at}");
            assert_eq!(policy.poll_timeout(), timeout.map(us), "at {at}");
        }
    }

    #[test]
    fn requests_are_packed_on_the_first_cores_with_room() {
        let mut policy = AutoScale::new(Params::default(), 4);
        policy.handle_arrival(us(0), 6);
        for (loads, core) in [([0, 0, 0, 0], 0), ([2, 1, 0, 0], 1), ([2, 2, 1, 0], 2), ([3, 4, 2, 0], 2)] {
            assert_eq!(policy.route(loads.into_iter()), core, "{loads:?}: core 3 is off");
        }
    }

    #[test]
    fn timeouts_early_late_or_twice_do_no_harm() {
        let mut policy = AutoScale::new(Params { min_on: 2, ..Params::default() }, 4);
        policy.handle_arrival(us(0), 8);
        policy.handle_completion(us(10), 0);
        assert_eq!(policy.handle_timeout(us(409)), 4);
        assert_eq!(policy.handle_timeout(us(410)), 2);
        assert_eq!((policy.handle_timeout(us(9_999)), policy.poll_timeout()), (2, None));
    }

    proptest! {
        #[test]
        fn on_are_those_needed_within_the_last_t_wait(
            changes in prop::collection::vec((0_u64..200, 0_u32..30), 1..100),
            cores in 1_u16..12,
            min_on in 1_u16..4,
        ) {
            let params = Params { min_on, ..Params::default() };
            let mut policy = AutoScale::new(params, cores);
            let (mut now, mut history) = (us(1_000), vec![(us(1_000), min_on.min(cores))]);
            for (gap, in_system) in changes {
                now += Duration::from_micros(gap);
                let need = (in_system.div_ceil(2) as u16).max(min_on).min(cores);
                history.push((now, need));
                // A need lasts until the next change: a need that ended less than t_wait ago still
                // counts.
                let ends = history.iter().skip(1).map(|&(at, _)| at).chain([now + Duration::from_nanos(1)]);
                let recent = history.iter().zip(ends).filter(|&(_, end)| end + params.t_wait > now);
                let expected = recent.map(|(&(_, need), _)| need).max().unwrap();
                let on = policy.handle_arrival(now, in_system);
                prop_assert!(on >= need);
                prop_assert_eq!(on, expected);
            }
        }
    }
}
