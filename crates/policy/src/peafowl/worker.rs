//! A worker's own decisions (Algorithm 1): after each request, whether its connection goes
//! elsewhere.
//!
//! ```text
//!   driver                                   Worker
//!   a connection is handed to it    ---->    handle_arrival
//!   requests of one were served     ---->    handle_served    ----> Stay, or Send to a target
//!   the scheduler's order came      ---->    handle_order     ----> Accepted or Refused
//!   poll_timeout() fell due         ---->    handle_timeout; then poll_transfer
//!                                                             ----> a silent connection to send
//!   the report period is over       ---->    handle_report    ----> a WorkerReading for the scheduler
//!   a connection closed or was sent ---->    handle_departure ----> the books that travel with it
//! ```
//!
//! A decision names a connection by its *slot*, the driver's index of it: small numbers, reused.
//! Nothing changes in the books until the driver says so with `handle_departure`, so a refused or
//! failed transfer needs no undoing.
//!
//! Invariants:
//! - `handle_served` is O(1), without allocation, lock or clock.
//! - Only guests are sent home, and never to this worker itself.
//! - An order is carried out at most once; one that finds no connection lapses with a timeout.
//! - Late, early and repeated timeouts do no harm.

use super::capacity::Capacity;
use super::limit::LearnedLimit;
use super::overload::Detector;
use super::{Answer, ConnectionLoad, Departure, Load, Order, Params, Sample, Transfer, Verdict};
use crate::{Guidance, Movable, Why};
use machine::{ConnId, Duration, Instant, Pick, Rate, WorkerId, WorkerReading};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Connection {
    id: ConnId,
    home: WorkerId,
    load: ConnectionLoad,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Pending {
    target: WorkerId,
    pick: Pick,
    /// Only a connection whose home is the target, until patience ends.
    homing: bool,
    due: Instant,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    id: WorkerId,
    params: Params,
    connections: Vec<Option<Connection>>,
    open: u32,
    residents: u32,
    /// Connections at home here that are served elsewhere.
    away: u32,
    /// The sum of the loads at the last report, corrected by arrivals and departures since.
    load: Rate,
    learned: LearnedLimit,
    guidance: Guidance,
    /// The load above which guests go home.
    ceiling: Option<Rate>,
    /// Reports in a row with the tail above the goal.
    tail_missed: u32,
    /// Its capacity, where load is busy time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity: Option<Capacity>,
    /// Turns since the last report, and when that was.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    turns: u32,
    #[serde(default, skip_serializing_if = "crate::is_default")]
    reported: Option<Instant>,
    /// The uncertainty of one of its loads, as a share of it.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    noise: f64,
    /// Reports in a row in which it worked for too much of the time.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    swamped: u32,
    detector: Detector,
    order: Option<Pending>,
    ready: Option<Transfer>,
    movable: Option<Movable>,
}

impl Worker {
    /// A worker without connections; `learned` is the limit of an earlier run, or nothing.
    pub fn new(params: Params, id: WorkerId, learned: Option<LearnedLimit>) -> Self {
        let mut worker = Self {
            id,
            params,
            connections: Vec::new(),
            open: 0,
            residents: 0,
            away: 0,
            load: Rate::ZERO,
            learned: learned.unwrap_or_default(),
            guidance: Guidance::default(),
            ceiling: None,
            tail_missed: 0,
            capacity: (params.load == Load::BusyTime).then(Capacity::default),
            turns: 0,
            reported: None,
            noise: 0.0,
            swamped: 0,
            detector: Detector::default(),
            order: None,
            ready: None,
            movable: None,
        };
        worker.arm();
        worker
    }

    /// A connection is served here from now on: a new one, or one sent by another worker.
    ///
    /// # Panics
    /// If the slot is taken: the driver would lose a connection.
    pub fn handle_arrival(
        &mut self,
        now: Instant,
        slot: u32,
        conn: ConnId,
        home: WorkerId,
        load: ConnectionLoad,
    ) {
        let index = slot as usize;
        if index >= self.connections.len() {
            self.connections.resize(index + 1, None);
        }
        assert!(self.connections[index].is_none(), "slot {slot} of {} is taken", self.id);
        self.connections[index] = Some(Connection { id: conn, home, load });
        self.open += 1;
        if home == self.id {
            self.residents += 1;
            self.away = self.away.saturating_sub(1);
        }
        self.load += load.load(now, &self.params);
    }

    /// A connection left: it closed, or it was sent as this worker asked.
    ///
    /// # Panics
    /// If the slot is empty.
    pub fn handle_departure(&mut self, now: Instant, slot: u32, sent: bool) -> Departure {
        let connection =
            self.connections[slot as usize].take().expect("a connection in the slot that departs");
        let rate = connection.load.load(now, &self.params);
        self.open -= 1;
        if connection.home == self.id {
            self.residents -= 1;
            self.away += u32::from(sent);
        }
        self.load = self.load - rate;
        if self.ready.is_some_and(|ready| ready.slot == slot) {
            self.ready = None;
        }
        if self.movable.is_some_and(|movable| movable.conn == connection.id) {
            self.movable = None;
        }
        Departure { conn: connection.id, home: connection.home, load: connection.load, rate }
    }

    /// `requests` of the connection in `slot` were served in a turn that took `busy`: the request
    /// path. Where load is requests, `busy` means nothing.
    #[inline]
    pub fn handle_served(&mut self, now: Instant, slot: u32, requests: u32, busy: Duration) -> Verdict {
        let work = match &mut self.capacity {
            Some(capacity) => {
                self.turns = self.turns.saturating_add(1);
                capacity.charge(requests, busy, &self.params)
            }
            None => Duration::ZERO,
        };
        let burst = self.detector.record(now, requests);
        let Some(Some(connection)) = self.connections.get_mut(slot as usize) else {
            return Verdict::Stay;
        };
        connection.load.record(now, requests, work, &self.params);
        let home = connection.home;
        if let Some(order) = self.order
            && matches!(order.pick, Pick::NextServed)
            && (!order.homing || home == order.target)
        {
            self.order = None;
            if self.has_too_much() {
                self.rehome(slot, order.target);
            }
            return Verdict::Send { target: order.target, why: Why::Ordered };
        }
        if home == self.id || !self.params.send_home {
            return Verdict::Stay;
        }
        let why = if burst {
            Why::Burst
        } else if self.ceiling.is_some_and(|ceiling| self.load > ceiling) || self.swamped >= SWAMPED_REPORTS {
            Why::Overload
        } else if self.tail_missed >= self.params.tail_reports.max(1) {
            Why::Tail
        } else {
            return Verdict::Stay;
        };
        Verdict::Send { target: home, why }
    }

    pub fn handle_order(&mut self, now: Instant, order: Order) -> Answer {
        match order {
            Order::Move { target, pick } => return self.begin_move(now, target, pick),
            Order::Cancel => self.order = None,
            Order::Guidance(guidance) => self.guidance = guidance,
            Order::ResetLimit => {
                self.learned.reset();
                self.capacity = self.capacity.map(|_| Capacity::default());
            }
            Order::ClosedAway => self.away = self.away.saturating_sub(1),
        }
        self.arm();
        Answer::Accepted
    }

    fn begin_move(&mut self, now: Instant, target: WorkerId, pick: Pick) -> Answer {
        let found = match pick {
            Pick::NextServed => self.open > 0,
            Pick::This(conn) => self.connections.iter().flatten().any(|connection| connection.id == conn),
        };
        if !found || target == self.id {
            return Answer::Refused;
        }
        let homing = self.params.prefer_home
            && pick == Pick::NextServed
            && self.connections.iter().flatten().any(|connection| connection.home == target);
        // A named connection is taken at once: a transfer carries whatever is half done.
        let due = if pick == Pick::NextServed { now + self.params.order_patience } else { now };
        self.order = Some(Pending { target, pick, homing, due });
        Answer::Accepted
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.order.map(|order| order.due)
    }

    /// Time passed: an order whose patience ended takes the named or the quietest connection, or
    /// lapses if there is none. Follow with `poll_transfer`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(order) = self.order.filter(|order| order.due <= now) else {
            return;
        };
        self.order = None;
        let params = self.params;
        let slot = match order.pick {
            Pick::This(conn) => self.slots().find(|(_, c)| c.id == conn).map(|(slot, _)| slot),
            Pick::NextServed => self
                .slots()
                .filter(|(_, c)| !order.homing || c.home == order.target)
                .min_by(|(_, a), (_, b)| {
                    let (a_rate, b_rate) = (a.load.load(now, &params), b.load.load(now, &params));
                    a_rate.as_per_second().total_cmp(&b_rate.as_per_second()).then(a.id.cmp(&b.id))
                })
                .map(|(slot, _)| slot),
        };
        let Some(slot) = slot else { return };
        if matches!(order.pick, Pick::This(_)) || self.has_too_much() {
            self.rehome(slot, order.target);
        }
        self.ready = Some(Transfer { slot, target: order.target, why: Why::Ordered });
    }

    /// A connection to send although it was not just served; `handle_departure` must follow.
    pub fn poll_transfer(&mut self) -> Option<Transfer> {
        self.ready.take()
    }

    /// It misses the latency goal, or works for too much of the time.
    fn has_too_much(&self) -> bool {
        self.tail_missed > 0 || self.swamped > 0
    }

    /// A connection that is moved by name, or while this worker has too much to do, is moved
    /// because this worker has more than it should. If it lived here, it lives at the target from
    /// now on: as a guest there it would come back with the next burst, to where there is no room
    /// for it.
    fn rehome(&mut self, slot: u32, target: WorkerId) {
        if let Some(connection) = &mut self.connections[slot as usize]
            && connection.home == self.id
        {
            connection.home = target;
            self.residents -= 1;
        }
    }

    /// The report period is over: sums the loads, learns the limit, judges the load.
    /// O(connections).
    pub fn handle_report(&mut self, now: Instant, sample: &Sample) -> WorkerReading {
        let (mut load, mut resident_load, mut heaviest) = (Rate::ZERO, Rate::ZERO, Rate::ZERO);
        let mut requests = Rate::ZERO;
        for connection in self.connections.iter().flatten() {
            let rate = connection.load.load(now, &self.params);
            requests += connection.load.rate(now, &self.params);
            load += rate;
            heaviest = heaviest.max(rate);
            if connection.home == self.id {
                resident_load += rate;
            }
        }
        let is_swamped = sample.busy > self.params.overload_busy;
        if let Some(capacity) = self.capacity.filter(|_| is_swamped) {
            // With a queue, turns are long and far apart, and the silence between them makes
            // connections look lighter than they are. A worker that never waits carries all that it
            // can.
            load = load.max(capacity.got_of(sample.busy));
        }
        self.load = load;
        self.movable = self.guidance.share.and_then(|share| self.closest_to(load - share, now));
        let tail = sample.tail.filter(|_| sample.requests >= self.params.tail_samples);
        self.tail_missed = match (tail, self.params.latency_goal) {
            (Some(tail), Some(goal)) if tail > goal => self.tail_missed.saturating_add(1),
            _ => 0,
        };
        let saturated = match self.params.latency_goal {
            Some(_) => self.tail_missed > 0,
            None => sample.busy > self.params.saturation_busy,
        };
        let before = self.capacity.and(self.reported.replace(now));
        let elapsed = before.map_or(self.params.report_period, |before| now.since(before));
        if let Some(capacity) = &mut self.capacity {
            let worked = elapsed.scale(sample.busy.as_f64());
            capacity.report(now, worked, &self.params);
            self.learned.set(capacity.limit_in_requests(&self.params));
            let turns = f64::from(std::mem::take(&mut self.turns))
                * self.params.window_span.as_nanos() as f64
                / elapsed.as_nanos().max(1) as f64;
            self.noise = turns.max(1.0).sqrt().recip();
        } else if self.residents > 0 && resident_load > Rate::ZERO && !saturated {
            self.learned.observe(resident_load, self.away == 0, &self.params);
        }
        self.swamped = if is_swamped { self.swamped.saturating_add(1) } else { 0 };
        self.arm();
        WorkerReading {
            worker: self.id,
            connections: self.open,
            residents: self.residents,
            load,
            resident_load,
            limit: self.own_limit(),
            rate: self.capacity.map(|_| requests),
            heaviest,
            busy: sample.busy,
            tail,
        }
    }

    /// The connection whose move would bring this worker closest to its share, as of the last
    /// report.
    pub fn movable(&self) -> Option<Movable> {
        self.movable
    }

    pub fn id(&self) -> WorkerId {
        self.id
    }

    pub fn connections(&self) -> u32 {
        self.open
    }

    /// The learned limit, to be kept across restarts: in requests per second, whatever the policy
    /// counts.
    pub fn learned(&self) -> &LearnedLimit {
        &self.learned
    }

    /// The limit in force, in the unit that the policy counts in: this worker's own, else the one
    /// that the scheduler made of the others'.
    pub fn limit(&self) -> Option<Rate> {
        self.own_limit().or(self.guidance.fallback_limit)
    }

    fn own_limit(&self) -> Option<Rate> {
        match &self.capacity {
            Some(capacity) => Some(capacity.limit(&self.params)),
            None => self.learned.limit(),
        }
    }

    /// The sum of loads as last known.
    pub fn load(&self) -> Rate {
        self.load
    }

    /// The connection whose load is closest to `excess`. Half as much again still evens things out:
    /// it overshoots by less than it mends.
    fn closest_to(&self, excess: Rate, now: Instant) -> Option<Movable> {
        if excess <= self.load.scale(self.params.imbalance / 2.0) {
            return None;
        }
        let distance = |movable: &Movable| (movable.load.as_per_second() - excess.as_per_second()).abs();
        self.connections
            .iter()
            .flatten()
            .map(|c| Movable { conn: c.id, load: c.load.load(now, &self.params) })
            .filter(|movable| movable.load <= excess.scale(1.5))
            .min_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.conn.cmp(&b.conn)))
    }

    fn slots(&self) -> impl Iterator<Item = (u32, &Connection)> {
        (0..).zip(&self.connections).filter_map(|(slot, c)| c.as_ref().map(|c| (slot, c)))
    }

    fn arm(&mut self) {
        let limit = self.limit();
        if self.capacity.is_some() {
            self.arm_by_busy_time();
            return;
        }
        self.detector.arm(limit, self.load, &self.params);
        // The noise of the load's own measurement: a Poisson count over the window.
        let span_s = self.params.window_span.as_secs_f64();
        let noise = if span_s > 0.0 { (self.load.as_per_second() / span_s).sqrt() } else { 0.0 };
        self.ceiling = limit.map(|limit| {
            limit.scale(self.params.approach) + Rate::per_second(self.params.approach_z * noise)
        });
    }
}

impl Worker {
    /// The detector counts requests, so its drain is the limit at the cost of a request of late.
    fn arm_by_busy_time(&mut self) {
        let limit = self.limit();
        let in_requests = self.learned.limit();
        let load_in_requests = match (limit, in_requests) {
            (Some(limit), Some(requests)) if limit > Rate::ZERO => {
                requests.scale(self.load.as_per_second() / limit.as_per_second())
            }
            _ => Rate::ZERO,
        };
        self.detector.arm(in_requests, load_in_requests, &self.params);
        let noisy = self.params.approach * (1.0 + self.params.approach_z * self.noise.min(NOISE_MOST));
        // However uncertain it is: no worker's load is higher than all the time.
        let most = self.params.overload_busy.as_f64() / self.params.full_busy.as_f64();
        self.ceiling = limit.map(|limit| limit.scale(noisy.min(most.max(self.params.approach))));
    }
}

/// Reports in a row with too much work, before guests go home for that: one may be the
/// hypervisor's.
const SWAMPED_REPORTS: u32 = 2;

/// A load that is more uncertain than this is no ground to wait for.
const NOISE_MOST: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Ratio;

    const HERE: WorkerId = WorkerId(0);
    const THERE: WorkerId = WorkerId(1);
    const ELSEWHERE: WorkerId = WorkerId(2);

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn limited(limit: f64, params: Params) -> Worker {
        let mut learned = LearnedLimit::default();
        learned.observe(Rate::per_second(limit), true, &params);
        Worker::new(params, HERE, Some(learned))
    }

    /// A worker with connections of these homes, in slots 0, 1, ...
    fn with_homes(mut worker: Worker, homes: &[WorkerId]) -> Worker {
        for (slot, &home) in (0..).zip(homes) {
            worker.handle_arrival(
                at_ms(0),
                slot,
                ConnId(100 + u64::from(slot)),
                home,
                ConnectionLoad::new(at_ms(0)),
            );
        }
        worker
    }

    fn fresh(homes: &[WorkerId]) -> Worker {
        with_homes(Worker::new(Params::default(), HERE, None), homes)
    }

    fn next_to(target: WorkerId) -> Order {
        Order::Move { target, pick: Pick::NextServed }
    }

    fn sent(target: WorkerId, why: Why) -> Verdict {
        Verdict::Send { target, why }
    }

    #[test]
    fn an_order_takes_the_connection_just_served_and_only_that() {
        let mut worker = fresh(&[HERE, HERE]);
        assert_eq!(worker.handle_order(at_ms(1), next_to(THERE)), Answer::Accepted);
        assert_eq!(worker.handle_served(at_ms(2), 1, 1, Duration::ZERO), sent(THERE, Why::Ordered));
        assert_eq!(worker.handle_served(at_ms(2), 0, 1, Duration::ZERO), Verdict::Stay);
        assert_eq!(worker.poll_timeout(), None);
    }

    #[test]
    fn a_connection_whose_home_is_the_target_goes_first() {
        let mut worker = fresh(&[HERE, THERE]);
        worker.handle_order(at_ms(1), next_to(THERE));
        assert_eq!(worker.handle_served(at_ms(2), 0, 1, Duration::ZERO), Verdict::Stay);
        assert_eq!(worker.handle_served(at_ms(2), 1, 1, Duration::ZERO), sent(THERE, Why::Ordered));
        let mut paper = with_homes(Worker::new(Params::paper(), HERE, None), &[HERE, THERE]);
        paper.handle_order(at_ms(1), next_to(THERE));
        assert_eq!(paper.handle_served(at_ms(2), 0, 1, Duration::ZERO), sent(THERE, Why::Ordered));
    }

    #[test]
    fn after_patience_the_quietest_goes() {
        let mut worker = fresh(&[HERE, HERE, HERE]);
        for ms in 1..200 {
            for slot in [0, 0, 2] {
                worker.handle_served(at_ms(ms), slot, 1, Duration::ZERO);
            }
            worker.handle_served(at_ms(ms), 1, if ms % 10 == 0 { 1 } else { 0 }, Duration::ZERO);
        }
        worker.handle_order(at_ms(200), next_to(THERE));
        assert_eq!(worker.poll_timeout(), Some(at_ms(210)));
        worker.handle_timeout(at_ms(209));
        assert_eq!(worker.poll_transfer(), None, "too early is harmless");
        worker.handle_timeout(at_ms(210));
        worker.handle_timeout(at_ms(210));
        assert_eq!(worker.poll_transfer(), Some(Transfer { slot: 1, target: THERE, why: Why::Ordered }));
        assert_eq!(worker.poll_transfer(), None);
    }

    #[test]
    fn an_order_that_cannot_be_obeyed_is_refused() {
        let mut worker = fresh(&[]);
        assert_eq!(worker.handle_order(at_ms(1), next_to(THERE)), Answer::Refused);
        let mut worker = fresh(&[HERE]);
        assert_eq!(worker.handle_order(at_ms(1), next_to(HERE)), Answer::Refused);
        let this = Order::Move { target: THERE, pick: Pick::This(ConnId(7)) };
        assert_eq!(worker.handle_order(at_ms(1), this), Answer::Refused);
    }

    #[test]
    fn a_close_while_a_transfer_is_ready_takes_it_back() {
        let mut worker = fresh(&[HERE]);
        worker.handle_order(at_ms(1), next_to(THERE));
        worker.handle_timeout(at_ms(20));
        worker.handle_departure(at_ms(20), 0, false);
        assert_eq!(worker.poll_transfer(), None);
        worker.handle_order(at_ms(30), next_to(THERE));
        worker.handle_timeout(at_ms(99));
        assert_eq!((worker.poll_transfer(), worker.poll_timeout()), (None, None));
    }

    #[test]
    fn a_named_connection_goes_at_once_and_moves_house() {
        let mut worker = fresh(&[HERE, ELSEWHERE]);
        worker.handle_order(at_ms(1), Order::Move { target: THERE, pick: Pick::This(ConnId(100)) });
        assert_eq!(worker.poll_timeout(), Some(at_ms(1)));
        worker.handle_timeout(at_ms(1));
        assert_eq!(worker.poll_transfer().map(|transfer| transfer.slot), Some(0));
        assert_eq!(worker.handle_departure(at_ms(1), 0, true).home, THERE);
        // A guest keeps its home: it never lived here.
        worker.handle_order(at_ms(2), Order::Move { target: THERE, pick: Pick::This(ConnId(101)) });
        worker.handle_timeout(at_ms(2));
        assert_eq!(worker.poll_transfer().map(|transfer| transfer.slot), Some(1));
        assert_eq!(worker.handle_departure(at_ms(2), 1, true).home, ELSEWHERE);
        let reading = worker.handle_report(at_ms(100), &Sample::default());
        assert_eq!((reading.connections, reading.residents), (0, 0));
    }

    #[test]
    fn what_a_worker_gives_away_while_it_misses_the_goal_moves_house() {
        let goal = Params { latency_goal: Some(Duration::from_micros(500)), ..Params::default() };
        let tail =
            |us| Sample { tail: Some(Duration::from_micros(us)), requests: 1_000, ..Sample::default() };
        for (us, home) in [(501, THERE), (499, HERE)] {
            let mut worker = with_homes(Worker::new(goal, HERE, None), &[HERE]);
            worker.handle_report(at_ms(100), &tail(us));
            worker.handle_order(at_ms(101), next_to(THERE));
            assert_eq!(worker.handle_served(at_ms(102), 0, 1, Duration::ZERO), sent(THERE, Why::Ordered));
            assert_eq!(worker.handle_departure(at_ms(102), 0, true).home, home, "tail {us} us");
        }
    }

    #[test]
    fn one_bad_tail_sends_nobody_home_and_two_do() {
        let goal = Params { latency_goal: Some(Duration::from_micros(500)), ..Params::default() };
        let mut worker = with_homes(Worker::new(goal, HERE, None), &[THERE]);
        let bad = Sample { tail: Some(Duration::from_millis(9)), requests: 1_000, ..Sample::default() };
        worker.handle_report(at_ms(100), &bad);
        assert_eq!(worker.handle_served(at_ms(101), 0, 1, Duration::ZERO), Verdict::Stay);
        worker.handle_report(at_ms(200), &bad);
        assert_eq!(worker.handle_served(at_ms(201), 0, 1, Duration::ZERO), sent(THERE, Why::Tail));
    }

    #[test]
    fn guests_go_home_when_the_reported_load_is_above_the_limit_and_residents_stay() {
        let printed = Params { burst_drain: 0.0, ..Params::paper() };
        let mut worker = with_homes(limited(1_000.0, printed), &[HERE, THERE]);
        for ms in 1..=100 {
            worker.handle_served(at_ms(ms), 0, 1, Duration::ZERO);
            worker.handle_served(at_ms(ms), 1, 1, Duration::ZERO);
        }
        assert_eq!(worker.handle_served(at_ms(100), 1, 1, Duration::ZERO), Verdict::Stay, "not reported yet");
        let reading = worker.handle_report(at_ms(100), &Sample::default());
        assert!(reading.load.as_per_second() > 1_900.0 && reading.resident_load.as_per_second() < 1_100.0);
        assert_eq!(worker.handle_served(at_ms(101), 0, 1, Duration::ZERO), Verdict::Stay);
        assert_eq!(worker.handle_served(at_ms(101), 1, 1, Duration::ZERO), sent(THERE, Why::Overload));
        worker.handle_departure(at_ms(101), 1, true);
        worker.handle_arrival(at_ms(101), 1, ConnId(9), ELSEWHERE, ConnectionLoad::new(at_ms(101)));
        assert_eq!(
            worker.handle_served(at_ms(102), 1, 1, Duration::ZERO),
            Verdict::Stay,
            "what left has lightened the load"
        );
    }

    #[test]
    fn without_send_home_guests_stay() {
        let kept = Params { send_home: false, ..Params::default() };
        let mut worker = with_homes(limited(100.0, kept), &[THERE]);
        for us in 0..5_000 {
            let now = at_ms(1) + Duration::from_micros(us);
            assert_eq!(worker.handle_served(now, 0, 1, Duration::ZERO), Verdict::Stay);
        }
    }

    #[test]
    fn a_burst_is_seen_between_two_reports() {
        let mut worker = with_homes(limited(1_000.0, Params::default()), &[THERE]);
        let burst = (0..1_000).find(|us| {
            worker.handle_served(at_ms(1) + Duration::from_micros(*us * 10), 0, 1, Duration::ZERO)
                != Verdict::Stay
        });
        assert!(burst.is_some_and(|requests| requests < 50), "{burst:?}");
    }

    #[test]
    fn a_worker_that_has_learned_nothing_takes_the_fallback() {
        let mut worker = fresh(&[THERE]);
        assert_eq!(worker.limit(), None);
        let fallback_limit = Some(Rate::per_second(500.0));
        worker.handle_order(at_ms(1), Order::Guidance(Guidance { fallback_limit, share: None }));
        assert_eq!(worker.limit(), fallback_limit);
        let tripped = (0..200).any(|us| {
            worker.handle_served(at_ms(2) + Duration::from_micros(us), 0, 1, Duration::ZERO)
                == sent(THERE, Why::Burst)
        });
        assert!(tripped);
        assert_eq!(worker.learned().limit(), None, "guests teach nothing");
    }

    fn load_up(worker: &mut Worker, from_ms: u64, to_ms: u64, per_ms: u32) {
        for ms in from_ms..to_ms {
            worker.handle_served(at_ms(ms), 0, per_ms, Duration::ZERO);
        }
    }

    #[test]
    fn a_saturated_peak_is_not_learned() {
        let goal = Some(Duration::from_micros(500));
        let with_goal = Params { latency_goal: goal, ..Params::default() };
        let tail =
            |us, requests| Sample { busy: Ratio::new(0.99), tail: Some(Duration::from_micros(us)), requests };
        for (params, sample, learns) in [
            (with_goal, tail(501, 5_000), false),
            (with_goal, tail(499, 5_000), true),
            (with_goal, tail(5_000, 3), true),
            (Params::default(), tail(9_000, 5_000), false),
            (Params::default(), Sample { busy: Ratio::new(0.9), ..Sample::default() }, true),
            (Params::paper(), tail(9_000, 5_000), true),
        ] {
            let mut worker = with_homes(Worker::new(params, HERE, None), &[HERE]);
            load_up(&mut worker, 1, 100, 50);
            let reading = worker.handle_report(at_ms(100), &sample);
            assert_eq!(reading.limit.is_some(), learns, "{sample:?}");
        }
    }

    #[test]
    fn residents_away_do_not_teach_that_the_load_is_low() {
        let mut worker = fresh(&[HERE, HERE]);
        let mut now_ms = 1;
        for _ in 0..50 {
            load_up(&mut worker, now_ms, now_ms + 100, 5);
            now_ms += 100;
            worker.handle_report(at_ms(now_ms), &Sample::default());
        }
        let learned = *worker.learned();
        worker.handle_departure(at_ms(now_ms), 0, true);
        for _ in 0..500 {
            worker.handle_served(at_ms(now_ms), 1, 1, Duration::ZERO);
            now_ms += 100;
            worker.handle_report(at_ms(now_ms), &Sample::default());
        }
        assert_eq!(*worker.learned(), learned);
        // It closes at the other worker: from now on the requests that are here are all.
        worker.handle_order(at_ms(now_ms), Order::ClosedAway);
        worker.handle_report(at_ms(now_ms + 100), &Sample::default());
        assert_ne!(*worker.learned(), learned);
    }

    #[test]
    fn a_reset_begins_to_learn_anew() {
        let mut worker = with_homes(limited(9_999.0, Params::default()), &[HERE]);
        worker.handle_order(at_ms(1), Order::ResetLimit);
        assert_eq!(worker.limit(), None);
        load_up(&mut worker, 1, 100, 1);
        let reading = worker.handle_report(at_ms(100), &Sample::default());
        assert!(reading.limit.is_some_and(|limit| limit < Rate::per_second(1_100.0)));
    }

    #[test]
    fn the_movable_connection_is_the_one_that_fits_the_excess() {
        let mut worker = fresh(&[HERE, HERE, HERE]);
        for ms in 1..=200 {
            for (slot, requests) in [(0, 8), (1, 3), (2, 1)] {
                worker.handle_served(at_ms(ms), slot, requests, Duration::ZERO);
            }
        }
        let guide = |share| {
            let share = Some(Rate::per_second(share));
            Order::Guidance(Guidance { fallback_limit: None, share })
        };
        assert_eq!(worker.movable(), None, "no report was asked for");
        for (share, conn) in
            [(4_000.0, Some(100)), (9_000.0, Some(101)), (10_200.0, Some(102)), (12_000.0, None)]
        {
            worker.handle_order(at_ms(200), guide(share));
            worker.handle_report(at_ms(200), &Sample::default());
            assert_eq!(worker.movable().map(|movable| movable.conn), conn.map(ConnId), "share {share}");
        }
    }

    #[test]
    #[should_panic(expected = "is taken")]
    fn a_slot_cannot_be_taken_twice() {
        let mut worker = fresh(&[HERE]);
        worker.handle_arrival(at_ms(1), 0, ConnId(5), HERE, ConnectionLoad::new(at_ms(1)));
    }
}
