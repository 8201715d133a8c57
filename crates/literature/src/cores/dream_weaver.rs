//! DreamWeaver: the whole machine sleeps whenever any core is without work [R Meisner and Wenisch,
//! ASPLOS 2012; C].
//!
//! The more cores, the rarer all of them are idle at once, and the rarer a sleep of everything
//! (PowerNap's). This rule makes idle times coincide: as soon as fewer than k cores have work it
//! stops them all and naps, and it wakes when k have. Requests that were stopped, or that came
//! meanwhile, are *stalled*. Each may be stalled for D in all; when the first of them is about to
//! reach it, the machine wakes, and stays awake until that request is done.
//!
//! Two things need care. How long a request has been stalled is the sum over several naps; but each
//! of them stalls all requests that are there, so one clock that runs while the machine does not
//! ([`DreamWeaver::mark`]) serves all: a request carries its reading at arrival, and the first to
//! come has been stalled longest. And the wake-up itself takes time, in which no request is served:
//! it must begin one exit latency before D is reached, and a nap begins only if D leaves more than
//! that. A D below the exit latency cannot be kept by any machine that naps at all; then D is the
//! exit latency.
//!
//! Invariants: no request is stalled for longer than D; the machine never naps while k cores
//! have work; every order changes something. D counts from when the machine is told to nap, so the
//! driver's wake-up must not take longer than the exit latency that was handed in, which therefore
//! covers entry and exit together, as Linux's does.

use super::Order;
use machine::{Duration, Instant};
use policy::check::Check;
pub use policy::kind::StallMark;
use policy::kind::{Make, NapPolicy};
use policy::registry::{Entry, Parameter, Word, count, settings, time};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[Word::new("dreamweaver", "the whole machine stops until enough requests wait", |_| {
        settings(Params::default())
    })],
    help: "As soon as fewer than k cores have work, all are stopped and the machine naps; it wakes when k \
           have, or when a request has been stalled for long enough.",
    origin: "DreamWeaver (Meisner and Wenisch, ASPLOS 2012), recalled",
    make: Make::Nap(|making| {
        let exit_latency = making.platform.cstates.0.last().map_or(Duration::ZERO, |state| {
            let exit = state.real_exit_latency();
            exit + state.entry_latency.unwrap_or_default()
        });
        Box::new(DreamWeaver::new(making.params(), making.workers, exit_latency))
    }),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_cores: Option<u16>,
    #[serde(with = "machine::duration_text")]
    pub max_stall: Duration,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        count("busy_cores", "k: awake with so many cores at work")
            .above_zero()
            .absent("all")
            .source("DreamWeaver, recalled"),
        time("max_stall", "D: how long a request may be stalled in all")
            .source("the strictest goal of Peafowl, section 4.3"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self { busy_cores: None, max_stall: Duration::from_micros(300) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DreamWeaver {
    busy_cores: u16,
    max_stall: Duration,
    exit_latency: Duration,
    state: State,
    /// Of all naps that are over.
    stalled: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Awake,
    Napping { since: Instant, wake: Option<Instant> },
    Waking { since: Instant },
}

impl DreamWeaver {
    /// An awake machine with so many cores, which takes `exit_latency` to wake up.
    pub fn new(params: Params, cores: u16, exit_latency: Duration) -> Self {
        let busy_cores = params.busy_cores.unwrap_or(cores).clamp(1, cores.max(1));
        let max_stall = params.max_stall.max(exit_latency);
        Self { busy_cores, max_stall, exit_latency, state: State::Awake, stalled: Duration::ZERO }
    }

    /// The order for a request that comes now.
    pub fn mark(&self, now: Instant) -> StallMark {
        let running = match self.state {
            State::Awake => Duration::ZERO,
            State::Napping { since, .. } | State::Waking { since } => now.since(since),
        };
        StallMark(self.stalled + running)
    }

    /// A request came or is done. `busy` cores have work now, or had it if the machine were awake,
    /// and `oldest` is the least of the marks of all requests in the system.
    pub fn handle_change(&mut self, now: Instant, busy: u16, oldest: Option<StallMark>) -> Option<Order> {
        let enough = busy >= self.busy_cores;
        let left = oldest.map(|mark| self.max_stall - (self.mark(now).0 - mark.0));
        match self.state {
            State::Awake if !enough && left.is_none_or(|left| left > self.exit_latency) => {
                self.state = State::Napping { since: now, wake: self.wake(now, left) };
                Some(Order::Nap)
            }
            State::Napping { since, .. } if enough => {
                self.state = State::Waking { since };
                Some(Order::Wake)
            }
            State::Napping { since, .. } => {
                self.state = State::Napping { since, wake: self.wake(now, left) };
                self.handle_timeout(now)
            }
            _ => None,
        }
    }

    /// The machine is up. It may be told to nap again at once.
    pub fn handle_awake(&mut self, now: Instant, busy: u16, oldest: Option<StallMark>) -> Option<Order> {
        self.stalled = self.mark(now).0;
        self.state = State::Awake;
        self.handle_change(now, busy, oldest)
    }

    /// When the machine must begin to wake up for the request that was stalled longest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Napping { wake, .. } => wake,
            _ => None,
        }
    }

    /// Wakes the machine, if it is time.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Order> {
        match self.state {
            State::Napping { since, wake: Some(wake) } if wake <= now => {
                self.state = State::Waking { since };
                Some(Order::Wake)
            }
            _ => None,
        }
    }

    fn wake(&self, now: Instant, left: Option<Duration>) -> Option<Instant> {
        left.map(|left| now + (left - self.exit_latency))
    }
}

impl NapPolicy for DreamWeaver {
    fn mark(&self, now: Instant) -> Option<StallMark> {
        Some(self.mark(now))
    }

    fn handle_change(
        &mut self,
        now: Instant,
        awake: bool,
        _: u32,
        busy: u16,
        oldest: Option<StallMark>,
    ) -> Option<Order> {
        if awake { self.handle_awake(now, busy, oldest) } else { self.handle_change(now, busy, oldest) }
    }

    fn handle_timeout(&mut self, now: Instant) -> Option<Order> {
        self.handle_timeout(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Order::{Nap, Wake};
    use proptest::prelude::*;

    const EXIT: Duration = Duration::from_micros(100);

    fn us(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    fn machine(cores: u16) -> DreamWeaver {
        DreamWeaver::new(Params::default(), cores, EXIT)
    }

    #[test]
    fn it_naps_while_any_core_is_idle_and_wakes_when_none_would_be() {
        let mut policy = machine(2);
        assert_eq!((policy.handle_change(us(0), 0, None), policy.poll_timeout()), (Some(Nap), None));
        let first = policy.mark(us(50));
        assert_eq!(policy.handle_change(us(50), 1, Some(first)), None);
        // Stalled since 50, for 300 at most, and 100 of that for the way out.
        assert_eq!(policy.poll_timeout(), Some(us(250)));
        assert_eq!(policy.handle_change(us(120), 2, Some(first)), Some(Wake));
        assert_eq!((policy.poll_timeout(), policy.handle_timeout(us(250))), (None, None));
        assert_eq!(policy.handle_awake(us(220), 2, Some(first)), None);
        // The second is done: the first was stalled for 170, and 130 leave 30 beside the way out.
        assert_eq!(policy.handle_change(us(240), 1, Some(first)), Some(Nap));
        assert_eq!(policy.poll_timeout(), Some(us(270)));
        assert_eq!((policy.handle_timeout(us(269)), policy.handle_timeout(us(270))), (None, Some(Wake)));
        // Up, with one core idle: but the first has been stalled for all of 300.
        assert_eq!(policy.handle_awake(us(370), 1, Some(first)), None);
        let later = policy.mark(us(380));
        assert_eq!(policy.handle_change(us(390), 1, Some(first)), None);
        assert_eq!(policy.handle_change(us(400), 1, Some(later)), Some(Nap), "the first is done");
        assert_eq!(policy.poll_timeout(), Some(us(600)));
    }

    #[test]
    fn a_stall_shorter_than_the_way_out_cannot_be_had() {
        let params = Params { max_stall: Duration::from_micros(20), ..Params::default() };
        let mut policy = DreamWeaver::new(params, 4, EXIT);
        assert_eq!(policy.handle_change(us(0), 0, None), Some(Nap));
        let mark = policy.mark(us(70));
        assert_eq!(policy.handle_change(us(70), 1, Some(mark)), Some(Wake));
        assert_eq!(policy.handle_awake(us(170), 1, Some(mark)), None);
    }

    #[test]
    fn parameters_are_written_as_people_write_them() {
        let text = r#"{"max_stall":"1ms"}"#;
        let params: Params = serde_json::from_str(text).unwrap();
        assert_eq!(params, Params { busy_cores: None, max_stall: Duration::from_millis(1) });
        assert_eq!(serde_json::to_string(&params).unwrap(), text);
        assert!(serde_json::from_str::<Params>(r#"{"stall":"1ms"}"#).is_err());
    }

    struct Request {
        mark: StallMark,
        left: Duration,
        stalled: Duration,
    }

    proptest! {
        #[test]
        fn no_request_is_stalled_for_longer_than_allowed(
            arrivals in prop::collection::vec((0_u64..300_000, 1_u64..200_000), 1..60),
            cores in 1_usize..6,
            busy_cores in prop::option::of(1_u16..6),
            max_stall_us in 0_u64..900,
        ) {
            let max_stall = Duration::from_micros(max_stall_us);
            let mut policy = DreamWeaver::new(Params { busy_cores, max_stall }, cores as u16, EXIT);
            let threshold = usize::from(busy_cores.unwrap_or(cores as u16)).min(cores);
            let (mut now, mut awake, mut up_at) = (Instant::ZERO, true, None);
            let mut present: Vec<Request> = Vec::new();
            let mut arriving = Instant::ZERO;
            let mut arrivals = arrivals.into_iter().map(|(gap, needs)| {
                arriving += Duration::from_nanos(gap);
                (arriving, Duration::from_nanos(needs))
            }).peekable();
            let mut done = 0;
            loop {
                // The first `cores` requests are served, unless the machine stands still.
                let served = present.iter().take(cores);
                let completion = served.map(|request| now + request.left).min().filter(|_| awake);
                let next = [arrivals.peek().map(|&(at, _)| at), completion, up_at, policy.poll_timeout()];
                let Some(then) = next.into_iter().flatten().min() else { break };
                let passed = then.since(now);
                now = then;
                for (place, request) in present.iter_mut().enumerate() {
                    if !awake {
                        request.stalled += passed;
                    } else if place < cores {
                        request.left -= passed;
                    }
                }
                let before = present.len();
                if awake {
                    let mut place = 0;
                    present.retain(|request| {
                        place += 1;
                        place > cores || !request.left.is_zero()
                    });
                }
                done += before - present.len();
                if arrivals.peek().is_some_and(|&(at, _)| at == now) {
                    let (_, left) = arrivals.next().unwrap();
                    present.push(Request { mark: policy.mark(now), left, stalled: Duration::ZERO });
                }
                for request in &present {
                    prop_assert!(request.stalled <= max_stall.max(EXIT), "{} at {}", request.stalled, now.as_nanos());
                }
                let busy = present.len().min(cores) as u16;
                let oldest = present.iter().map(|request| request.mark).min();
                let order = if up_at == Some(now) {
                    (awake, up_at) = (true, None);
                    policy.handle_awake(now, busy, oldest)
                } else {
                    policy.handle_timeout(now).or_else(|| policy.handle_change(now, busy, oldest))
                };
                match order {
                    Some(Nap) => {
                        prop_assert!(awake && usize::from(busy) < threshold);
                        awake = false;
                    }
                    Some(Wake) => {
                        prop_assert!(!awake && up_at.is_none());
                        up_at = Some(now + EXIT);
                    }
                    None => {}
                }
                // No request waits for nothing.
                prop_assert!(awake || up_at.is_some() || usize::from(busy) < threshold);
                let text = serde_json::to_string(&policy).unwrap();
                prop_assert_eq!(serde_json::from_str::<DreamWeaver>(&text).unwrap(), policy);
            }
            prop_assert!(present.is_empty() && arrivals.peek().is_none() && done > 0);
        }
    }
}
