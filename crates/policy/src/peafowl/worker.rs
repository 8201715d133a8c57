//! What a worker decides by itself (Algorithm 1): after each request, whether its connection goes elsewhere.
//!
//! ```text
//!   driver                                   Worker
//!   a connection is handed to it    ---->    handle_arrival
//!   requests of one were served     ---->    handle_served    ----> Stay, or Send to a target
//!   the scheduler's order came      ---->    handle_order     ----> Accepted or Refused
//!   poll_timeout() fell due         ---->    handle_timeout; then poll_transfer ----> a silent connection to send
//!   the report period is over       ---->    handle_report    ----> a WorkerReading for the scheduler
//!   a connection closed or was sent ---->    handle_departure ----> what must travel with it
//! ```
//!
//! A decision names a connection by its *slot*, the driver's index of it: small numbers, reused. Nothing changes in
//! the books until the driver says so with `handle_departure`, so a refused or failed transfer needs no undoing.
//!
//! What always holds:
//! - `handle_served` is O(1), without allocation, lock or clock.
//! - Only guests are sent home, and never to this worker itself.
//! - An order is carried out at most once; one that finds no connection lapses with a timeout.
//! - Late, early and repeated timeouts do no harm.

use super::limit::LearnedLimit;
use super::overload::Detector;
use super::{ConnectionLoad, Params};
use crate::{Guidance, Movable, Why};
use machine::{ConnId, Duration, Instant, Pick, Rate, Ratio, WorkerId, WorkerReading};
use serde::{Deserialize, Serialize};

/// What shall become of the connection whose requests were just served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It stays.
    Stay,
    /// It goes.
    Send {
        /// To this worker.
        target: WorkerId,
        /// For this reason.
        why: Why,
    },
}

/// What the scheduler (through the driver) tells a worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Send one connection to `target`. A second order takes the place of the first.
    Move {
        /// The worker that shall have it.
        target: WorkerId,
        /// Which connection.
        pick: Pick,
    },
    /// Forget a pending move.
    Cancel,
    /// Figures of the whole store that this worker needs.
    Guidance(Guidance),
    /// Forget the learned limit (an operator's wish; section 3.3).
    ResetLimit,
    /// A connection that is home here closed at another worker. A driver that cannot tell may leave it out: the limit
    /// is then learned from fewer samples.
    ClosedAway,
}

/// A worker's answer to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It will be done.
    Accepted,
    /// It cannot be done: there is no such connection. Tell the scheduler with `handle_refused`.
    Refused,
}

/// A connection that shall be sent although it was not just served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The connection.
    pub slot: u32,
    /// The worker that shall have it.
    pub target: WorkerId,
    /// The reason.
    pub why: Why,
}

/// What travels with a connection that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Departure {
    /// Its number.
    pub conn: ConnId,
    /// Its home; a connection moved to relieve an imbalance has a new one.
    pub home: WorkerId,
    /// Its load's books.
    pub load: ConnectionLoad,
    /// Its load now.
    pub rate: Rate,
}

/// What the driver saw of a worker in the last report period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Share of the period in which it was working.
    pub busy: Ratio,
    /// 99th percentile of the time from ready to replied.
    pub tail: Option<Duration>,
    /// How many requests `tail` was computed from.
    pub requests: u32,
}

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

/// The policy of one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    id: WorkerId,
    params: Params,
    connections: Vec<Option<Connection>>,
    open: u32,
    residents: u32,
    /// Connections at home here that are served elsewhere.
    away: u32,
    /// The sum of the loads at the last report, corrected by what came and left since.
    load: Rate,
    learned: LearnedLimit,
    guidance: Guidance,
    /// The load above which guests go home.
    ceiling: Option<Rate>,
    /// Reports in a row with the tail above the goal.
    tail_missed: u32,
    detector: Detector,
    order: Option<Pending>,
    ready: Option<Transfer>,
    movable: Option<Movable>,
}

impl Worker {
    /// A worker without connections; `learned` is what an earlier run left, or nothing.
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
        self.load += load.rate(now, &self.params);
    }

    /// A connection left: it closed, or it was sent as this worker asked.
    ///
    /// # Panics
    /// If the slot is empty.
    pub fn handle_departure(&mut self, now: Instant, slot: u32, sent: bool) -> Departure {
        let connection =
            self.connections[slot as usize].take().expect("a connection in the slot that departs");
        let rate = connection.load.rate(now, &self.params);
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

    /// `requests` of the connection in `slot` were served: the request path.
    #[inline]
    pub fn handle_served(&mut self, now: Instant, slot: u32, requests: u32) -> Verdict {
        let burst = self.detector.record(now, requests);
        let Some(Some(connection)) = self.connections.get_mut(slot as usize) else {
            return Verdict::Stay;
        };
        connection.load.record(now, requests, &self.params);
        let home = connection.home;
        if let Some(order) = self.order
            && matches!(order.pick, Pick::NextServed)
            && (!order.homing || home == order.target)
        {
            self.order = None;
            if self.tail_missed > 0 {
                self.rehome(slot, order.target);
            }
            return Verdict::Send { target: order.target, why: Why::Ordered };
        }
        if home == self.id || !self.params.send_home {
            return Verdict::Stay;
        }
        let why = if burst {
            Why::Burst
        } else if self.ceiling.is_some_and(|ceiling| self.load > ceiling) {
            Why::Overload
        } else if self.tail_missed >= self.params.tail_reports.max(1) {
            Why::Tail
        } else {
            return Verdict::Stay;
        };
        Verdict::Send { target: home, why }
    }

    /// The scheduler's word.
    pub fn handle_order(&mut self, now: Instant, order: Order) -> Answer {
        match order {
            Order::Move { target, pick } => return self.begin_move(now, target, pick),
            Order::Cancel => self.order = None,
            Order::Guidance(guidance) => self.guidance = guidance,
            Order::ResetLimit => self.learned.reset(),
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

    /// When to call `handle_timeout`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.order.map(|order| order.due)
    }

    /// Time passed: an order whose patience ended takes the named or the quietest connection, or lapses if there is
    /// none. Follow with `poll_transfer`.
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
                    let (a_rate, b_rate) = (a.load.rate(now, &params), b.load.rate(now, &params));
                    a_rate.as_per_second().total_cmp(&b_rate.as_per_second()).then(a.id.cmp(&b.id))
                })
                .map(|(slot, _)| slot),
        };
        let Some(slot) = slot else { return };
        if matches!(order.pick, Pick::This(_)) || self.tail_missed > 0 {
            self.rehome(slot, order.target);
        }
        self.ready = Some(Transfer { slot, target: order.target, why: Why::Ordered });
    }

    /// A connection to send although it was not just served; `handle_departure` must follow.
    pub fn poll_transfer(&mut self) -> Option<Transfer> {
        self.ready.take()
    }

    /// A connection that is moved by name, or while this worker misses the latency goal, is moved because this worker
    /// has more than it should. If it lived here, it lives at the target from now on: as a guest there it would come
    /// back with the next burst, to where there is no room for it.
    fn rehome(&mut self, slot: u32, target: WorkerId) {
        if let Some(connection) = &mut self.connections[slot as usize]
            && connection.home == self.id
        {
            connection.home = target;
            self.residents -= 1;
        }
    }

    /// The report period is over: sums the loads, learns the limit, judges the load. O(connections).
    pub fn handle_report(&mut self, now: Instant, sample: &Sample) -> WorkerReading {
        let (mut load, mut resident_load, mut heaviest) = (Rate::ZERO, Rate::ZERO, Rate::ZERO);
        for connection in self.connections.iter().flatten() {
            let rate = connection.load.rate(now, &self.params);
            load += rate;
            heaviest = heaviest.max(rate);
            if connection.home == self.id {
                resident_load += rate;
            }
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
        if self.residents > 0 && resident_load > Rate::ZERO && !saturated {
            self.learned.observe(resident_load, self.away == 0, &self.params);
        }
        self.arm();
        WorkerReading {
            worker: self.id,
            connections: self.open,
            residents: self.residents,
            load,
            resident_load,
            limit: self.learned.limit(),
            heaviest,
            busy: sample.busy,
            tail,
        }
    }

    /// The connection whose move would bring this worker closest to its share, as of the last report.
    pub fn movable(&self) -> Option<Movable> {
        self.movable
    }

    /// Who this is.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Connections served here.
    pub fn connections(&self) -> u32 {
        self.open
    }

    /// What was learned, to be kept across restarts.
    pub fn learned(&self) -> &LearnedLimit {
        &self.learned
    }

    /// The limit in force: the learned one, else what the scheduler made of the others'.
    pub fn limit(&self) -> Option<Rate> {
        self.learned.limit().or(self.guidance.fallback_limit)
    }

    /// The sum of loads as last known.
    pub fn load(&self) -> Rate {
        self.load
    }

    /// The connection whose load is closest to `excess`. Half as much again still evens things out: it overshoots by
    /// less than it mends.
    fn closest_to(&self, excess: Rate, now: Instant) -> Option<Movable> {
        if excess <= self.load.scale(self.params.imbalance / 2.0) {
            return None;
        }
        let distance = |movable: &Movable| (movable.load.as_per_second() - excess.as_per_second()).abs();
        self.connections
            .iter()
            .flatten()
            .map(|c| Movable { conn: c.id, load: c.load.rate(now, &self.params) })
            .filter(|movable| movable.load <= excess.scale(1.5))
            .min_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.conn.cmp(&b.conn)))
    }

    fn slots(&self) -> impl Iterator<Item = (u32, &Connection)> {
        (0..).zip(&self.connections).filter_map(|(slot, c)| c.as_ref().map(|c| (slot, c)))
    }

    fn arm(&mut self) {
        let limit = self.limit();
        self.detector.arm(limit, self.load, &self.params);
        // The noise of the load's own measurement: a Poisson count over the window.
        let span_s = self.params.window_span.as_secs_f64();
        let noise = if span_s > 0.0 { (self.load.as_per_second() / span_s).sqrt() } else { 0.0 };
        self.ceiling = limit.map(|limit| {
            limit.scale(self.params.approach) + Rate::per_second(self.params.approach_z * noise)
        });
    }
}
