//! The state that the threads of one server share, and the letters between them.
//!
//! The store locks for itself; each worker's counters have one writer; everything else here is
//! touched when a connection moves, a period ends or a person asks, never for a request.

use crate::config::{Config, Limits, Log, Policy};
use crate::connection::{Connection, Socket, TurnContext};
use crate::inspect::Inspector;
use crate::kept::{Clock, Items};
use crate::mailbox::Mailbox;
use crate::offers::{Offers, Returned};
use crate::registry::Registry;
use crate::rests::{Rest, Rests};
use crate::session::{Context, Counters, Ending, Users};
use crate::status::{ArrivalStatus, TransferStatus};
use crate::store::{Event, Store};
use crate::tally::Tally;
use crate::view::View;
use hdrhistogram::Histogram;
use machine::{ConnId, CpuId, Duration, Instant, Rate, WorkerId, WorkerReading};
use memcache::Topics;
use policy::peafowl::{ConnectionLoad, LearnedLimit, Order};
use policy::stealing::Stealing;
use policy::{Guidance, Movable, Moved, Why};
use rustix::fd::OwnedFd;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The letters in a worker's mailbox.
pub(crate) enum Mail {
    /// A connection is yours from now on; `transfer` tells where it came from, unless it is new.
    Adopt {
        connection: Box<Connection>,
        load: ConnectionLoad,
        transfer: Option<Transfer>,
    },
    Order(Order),
    /// Report now: nothing was heard from you for a while.
    Report,
    Drain,
    /// A connection of yours, of which another worker has taken a turn.
    Returned(Returned),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) source: WorkerId,
    pub(crate) why: Why,
    /// When it left the source's epoll set.
    pub(crate) left_at: Instant,
    pub(crate) rate: Rate,
    /// Whether the target's thread had to be woken for it.
    pub(crate) to_sleeper: bool,
}

/// The letters in the director's mailbox.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice {
    /// A connection has arrived at its new worker.
    Moved { at: Instant, moved: Moved },
    /// A worker has no connection that it could move as ordered.
    Refused { at: Instant, worker: WorkerId },
    /// A worker has no connection left.
    Emptied { at: Instant, worker: WorkerId },
    /// A connection slot is free again, after accepting had to stop.
    Room,
    /// Load has come after silence: look at the reports again.
    Roused,
    /// Forget all learned limits.
    ResetLimits,
    /// A client asked for the meters.
    MetersAsked,
    /// Shut down in order.
    Stop,
}

/// The public state of one worker.
pub(crate) struct Port {
    pub(crate) mailbox: Mailbox<Mail>,
    pub(crate) counters: Counters,
    /// Where the policy plans from counts.
    pub(crate) tally: Option<Tally>,
    /// Set once, when its thread begins.
    pub(crate) has_ring: AtomicBool,
    published: Mutex<Published>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    pub(crate) at: Instant,
    pub(crate) reading: Option<WorkerReading>,
    pub(crate) movable: Option<Movable>,
    pub(crate) learned: LearnedLimit,
    /// Of the last report period, where enough requests were seen.
    pub(crate) response: Option<Response>,
    pub(crate) busy: Duration,
    pub(crate) requests: u64,
}

/// The time from ready to replied, inside the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    pub(crate) samples: u32,
    pub(crate) mean: Duration,
    pub(crate) p95: Duration,
    pub(crate) p99: Duration,
}

pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) limits: Limits,
    users: Option<Arc<Users>>,
    tls: Option<Arc<tls::Server>>,
    pub(crate) log: Log,
    pub(crate) inspector: Arc<Inspector>,
    pub(crate) started: Instant,
    /// Set before the threads are told to end.
    pub(crate) stopping: AtomicBool,
    clock: Clock,
    ports: Vec<Port>,
    /// One per CPU, by the worker's number.
    rests: Vec<Rest>,
    rest_of: Vec<usize>,
    pub(crate) offers: Offers,
    /// So long a turn waits before it is offered; `None` offers none.
    steal_after: Option<Duration>,
    director: Mailbox<Notice>,
    director_idle: AtomicBool,
    guidance: Mutex<Guidance>,
    guidance_changes: AtomicU64,
    report_period: Duration,
    connections: AtomicU32,
    connections_total: AtomicU64,
    /// Since when accepting pauses, in nanoseconds; zero while it does not.
    accept_paused_at: AtomicU64,
    accept_paused_us: AtomicU64,
    transfers: Mutex<Transfers>,
    scale_ups: Mutex<ScaleUps>,
    view: Mutex<View>,
    registry: Mutex<Registry>,
    accept_pauses: AtomicU64,
    rejected: AtomicU64,
    /// Whether a line was logged for a client of the wrong kind, by the kind's place in
    /// [`Ending::FAULTS`].
    complained: [AtomicBool; Ending::FAULTS.len()],
}

impl Shared {
    pub(crate) fn new(
        store: Store,
        clock: Clock,
        config: &Config,
        report_period: Duration,
        inspector: Arc<Inspector>,
    ) -> io::Result<Self> {
        let workers = config.worker_cpus.len();
        let port = |_| {
            Ok(Port {
                mailbox: Mailbox::new()?,
                counters: Counters::default(),
                tally: matches!(config.policy, Policy::Joint(_)).then(Tally::new),
                has_ring: AtomicBool::new(false),
                published: Mutex::new(Published::default()),
            })
        };
        let cpus: Vec<CpuId> =
            config.worker_cpus.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let rest_of = config.worker_cpus.iter().filter_map(|cpu| cpus.binary_search(cpu).ok()).collect();
        Ok(Self {
            store,
            limits: config.limits.clone(),
            users: config.users.clone(),
            tls: config.tls.clone(),
            log: config.log.clone(),
            inspector,
            started: linux::now(),
            stopping: AtomicBool::new(false),
            clock,
            ports: (0..workers).map(port).collect::<io::Result<_>>()?,
            rests: cpus.into_iter().map(Rest::new).collect(),
            rest_of,
            offers: Offers::new(workers),
            steal_after: config.steal_after,
            director: Mailbox::new()?,
            director_idle: AtomicBool::new(false),
            guidance: Mutex::default(),
            guidance_changes: AtomicU64::new(0),
            report_period,
            connections: AtomicU32::new(0),
            connections_total: AtomicU64::new(0),
            accept_paused_at: AtomicU64::new(0),
            accept_paused_us: AtomicU64::new(0),
            transfers: Mutex::new(Transfers::new(workers)),
            scale_ups: Mutex::new(ScaleUps::default()),
            view: Mutex::new(View::new(workers, linux::now())),
            registry: Mutex::default(),
            accept_pauses: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            complained: Default::default(),
        })
    }

    /// Writes all items into their file, when no worker is left.
    pub(crate) fn keep(&self, items: &Items) -> io::Result<()> {
        let count = items.save(&self.store, self.seconds(linux::now()))?;
        self.log.say(&format!("{count} items are kept in {}", items.path.display()));
        Ok(())
    }

    pub(crate) fn now(&self) -> Instant {
        linux::now()
    }

    /// Seconds on the server's own clock.
    pub(crate) fn seconds(&self, now: Instant) -> u32 {
        self.clock.first.saturating_add(now.since(self.started).as_secs_f64() as u32)
    }

    /// A worker's parts for a turn of this client that begins now.
    pub(crate) fn turn_context(&self, worker: WorkerId, client: ConnId, now: Instant) -> TurnContext<'_> {
        let session = Context {
            store: &self.store,
            counters: &self.port(worker).counters,
            all: &*self.inspector,
            now: self.seconds(now),
            unix_offset: self.clock.unix_offset,
            limits: &self.limits.session,
            client: client.0,
            users: self.users.as_deref(),
        };
        TurnContext { session, began: now, clock: &linux::now }
    }

    pub(crate) fn port(&self, worker: WorkerId) -> &Port {
        &self.ports[worker.index()]
    }

    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Of the CPU that this worker is pinned to.
    pub(crate) fn rest(&self, worker: WorkerId) -> &Rest {
        &self.rests[self.rest_of[worker.index()]]
    }

    /// Of each CPU, in order of number.
    pub(crate) fn rests(&self) -> Vec<Rests> {
        let now = self.now();
        self.rests.iter().map(|rest| rest.read(now)).collect()
    }

    /// A worker's rule of which turns it offers, if workers steal.
    pub(crate) fn stealing(&self) -> Option<Stealing> {
        self.steal_after.map(Stealing::new)
    }

    pub(crate) fn share_a_cpu(&self, one: WorkerId, other: WorkerId) -> bool {
        self.rest_of[one.index()] == self.rest_of[other.index()]
    }

    /// Active workers that sleep, on other CPUs than this one; the next by number first.
    pub(crate) fn idle_thieves(&self, owner: WorkerId) -> impl Iterator<Item = WorkerId> {
        let count = self.ports.len();
        (1..count).map(move |step| WorkerId(((owner.index() + step) % count) as u16)).filter(move |&thief| {
            self.offers.may_steal(thief)
                && self.port(thief).mailbox.is_asleep()
                && !self.share_a_cpu(owner, thief)
        })
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn report_period(&self) -> Duration {
        self.report_period
    }

    pub(crate) fn director(&self) -> &Mailbox<Notice> {
        &self.director
    }

    pub(crate) fn notify(&self, notice: Notice) {
        self.director.post(notice);
    }

    /// The director sleeps longer while nothing happens; the first worker with load wakes it.
    pub(crate) fn rouse_director(&self) {
        if self.director_idle.load(Ordering::Relaxed) && self.director_idle.swap(false, Ordering::Relaxed) {
            self.notify(Notice::Roused);
        }
    }

    pub(crate) fn director_dozes(&self, idle: bool) {
        self.director_idle.store(idle, Ordering::Relaxed);
    }

    /// Figures of the whole store, for every worker. Each takes them when it wakes for something
    /// else: they change with nearly every reading, and a worker that rests has no use for them.
    pub(crate) fn guide(&self, guidance: Guidance) {
        *lock(&self.guidance) = guidance;
        self.guidance_changes.fetch_add(1, Ordering::Release);
    }

    /// The guidance, if it has changed since it was taken last; `seen` is how often it had changed
    /// then.
    pub(crate) fn new_guidance(&self, seen: &mut u64) -> Option<Guidance> {
        let changes = self.guidance_changes.load(Ordering::Acquire);
        (changes != std::mem::replace(seen, changes)).then(|| *lock(&self.guidance))
    }

    /// Puts a connection into another worker's mailbox.
    pub(crate) fn hand_over(
        &self,
        target: WorkerId,
        connection: Box<Connection>,
        load: ConnectionLoad,
        mut transfer: Transfer,
    ) {
        transfer.to_sleeper = self.port(target).mailbox.is_asleep();
        self.registry().moved(connection.id, connection.home, target);
        if transfer.why != Why::Ordered {
            self.scale_ups().sent_home(transfer.left_at);
        }
        self.port(target).mailbox.post(Mail::Adopt { connection, load, transfer: Some(transfer) });
    }

    /// Books the time from leaving one epoll set to the first read by the other.
    pub(crate) fn transferred(&self, target: WorkerId, transfer: &Transfer, read_at: Instant) {
        lock(&self.transfers).record(target, transfer, read_at.since(transfer.left_at));
    }

    /// Moves to one worker while it was awake.
    pub(crate) fn arrivals(&self, target: WorkerId) -> ArrivalStatus {
        lock(&self.transfers).arrivals(target)
    }

    pub(crate) fn first_served(&self, worker: WorkerId, at: Instant) {
        self.scale_ups().served(worker, at);
    }

    pub(crate) fn transfers(&self) -> TransferStatus {
        let mut status = lock(&self.transfers).status();
        let bursts = self.scale_ups();
        status.last_sent_home = bursts.kept.back().map(|_| bursts.last_sent);
        status.scale_ups = bursts.kept.iter().map(|burst| burst.took).collect();
        status.scale_ups_began = bursts.kept.iter().map(|burst| burst.began).collect();
        status
    }

    /// The carrier of a new client's bytes; `None`, and the client is gone, if TLS cannot be had.
    pub(crate) fn carrier(&self, socket: OwnedFd, is_tls: bool) -> Option<Socket> {
        if !is_tls {
            return Some(Socket::Plain(socket));
        }
        match self.tls.as_ref()?.accept(socket) {
            Ok(socket) => Some(socket.into()),
            Err(error) => {
                self.log.say(&format!("a client is refused: TLS cannot be begun: {error}"));
                None
            }
        }
    }

    pub(crate) fn connection_opened(&self, id: ConnId, peer: String, home: WorkerId, worker: WorkerId) {
        if self.store.events().are_wanted(Topics::CONNEVENTS) {
            self.store.events().tell(&Event::Opened { peer: &peer, client: id.0 });
        }
        self.registry().opened(id, peer, home, worker);
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.connections_total.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self, id: ConnId, reason: &'static str) {
        let peer = self.registry().closed(id);
        if self.store.events().are_wanted(Topics::CONNEVENTS) {
            let peer = peer.as_deref().unwrap_or_default();
            self.store.events().tell(&Event::Closed { peer, reason, client: id.0 });
        }
        self.connections.fetch_sub(1, Ordering::Relaxed);
        if self.resume_accepting() {
            self.notify(Notice::Room);
        }
    }

    /// The acceptor has stopped; the next connection that closes shall say so.
    pub(crate) fn pause_accepting(&self) {
        self.accept_pauses.fetch_add(1, Ordering::Relaxed);
        let now = self.now().as_nanos().max(1);
        // A pause that goes on began when it began.
        let _ = self.accept_paused_at.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// A pause is over, because a connection has closed or one could be accepted. True: there was one.
    pub(crate) fn resume_accepting(&self) -> bool {
        let began = self.accept_paused_at.swap(0, Ordering::AcqRel);
        let was_paused = began > 0;
        if was_paused {
            let took_us = self.now().as_nanos().saturating_sub(began) / 1000;
            self.accept_paused_us.fetch_add(took_us, Ordering::Relaxed);
        }
        was_paused
    }

    /// Time in which accepting paused, a pause that goes on included.
    pub(crate) fn accept_paused_us(&self) -> u64 {
        let since = match self.accept_paused_at.load(Ordering::Relaxed) {
            0 => 0,
            began => self.now().as_nanos().saturating_sub(began) / 1000,
        };
        self.accept_paused_us.load(Ordering::Relaxed) + since
    }

    /// A client was refused, since there were too many.
    pub(crate) fn connection_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connections_rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(crate) fn accept_pauses(&self) -> u64 {
        self.accept_pauses.load(Ordering::Relaxed)
    }

    pub(crate) fn is_accepting_paused(&self) -> bool {
        self.accept_paused_at.load(Ordering::Relaxed) > 0
    }

    /// Says why a client was closed, if it is of the wrong kind. Once for each kind: a client that
    /// is misconfigured tries again and again, and one kind must not hide another.
    pub(crate) fn log_ending(&self, ending: Ending) {
        let kind = Ending::FAULTS.iter().position(|&fault| fault == ending);
        if kind.is_some_and(|kind| !self.complained[kind].swap(true, Ordering::Relaxed)) {
            self.log.say(&format!("closed a connection: {ending} (said once)"));
        }
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn connections_total(&self) -> u64 {
        self.connections_total.load(Ordering::Relaxed)
    }

    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        lock(&self.view)
    }

    fn scale_ups(&self) -> MutexGuard<'_, ScaleUps> {
        lock(&self.scale_ups)
    }
}

impl Port {
    pub(crate) fn publish(&self, published: Published) {
        *lock(&self.published) = published;
    }

    pub(crate) fn published(&self) -> Published {
        lock(&self.published).clone()
    }
}

/// A poisoned lock guards plain figures that are still good to read.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

struct Transfers {
    ordered: u64,
    send_home: u64,
    to_awake: Vec<Histogram<u32>>,
    to_sleeper: Histogram<u32>,
    /// Time that all moves took together.
    total: Duration,
}

/// Bounds of the histogram that is shown, microseconds: three per decade.
const BOUNDS_US: [u64; 13] = [2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 100_000];

impl Transfers {
    fn new(workers: usize) -> Self {
        let histogram = || Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("constant bounds");
        Self {
            ordered: 0,
            send_home: 0,
            to_awake: (0..workers).map(|_| histogram()).collect(),
            to_sleeper: histogram(),
            total: Duration::ZERO,
        }
    }

    fn record(&mut self, target: WorkerId, transfer: &Transfer, took: Duration) {
        match transfer.why {
            Why::Ordered => self.ordered += 1,
            Why::Burst | Why::Overload | Why::Tail => self.send_home += 1,
        }
        let awake = &mut self.to_awake[target.index()];
        let histogram = if transfer.to_sleeper { &mut self.to_sleeper } else { awake };
        histogram.saturating_record(took.as_nanos());
        self.total += took;
    }

    fn arrivals(&self, target: WorkerId) -> ArrivalStatus {
        let histogram = &self.to_awake[target.index()];
        ArrivalStatus {
            count: histogram.len(),
            p50: quantile(histogram, 0.5),
            p99: quantile(histogram, 0.99),
            max: quantile(histogram, 1.0),
        }
    }

    fn status(&self) -> TransferStatus {
        let mut to_awake = self.to_awake[0].clone();
        for histogram in &self.to_awake[1..] {
            to_awake.add(histogram).expect("histograms of the same bounds");
        }
        let at_most = |bound: Duration| {
            to_awake.count_between(0, bound.as_nanos()) + self.to_sleeper.count_between(0, bound.as_nanos())
        };
        TransferStatus {
            histogram: BOUNDS_US.map(Duration::from_micros).map(|bound| (bound, at_most(bound))).to_vec(),
            total: self.total,
            ordered: self.ordered,
            send_home: self.send_home,
            to_awake: to_awake.len(),
            to_sleeper: self.to_sleeper.len(),
            p50: quantile(&to_awake, 0.5),
            p99: quantile(&to_awake, 0.99),
            max: quantile(&to_awake, 1.0),
            sleeper_p50: quantile(&self.to_sleeper, 0.5),
            sleeper_p99: quantile(&self.to_sleeper, 0.99),
            ..TransferStatus::default()
        }
    }
}

/// A quantile of nanoseconds; nothing of nothing.
fn quantile(histogram: &Histogram<u32>, share: f64) -> Option<Duration> {
    (!histogram.is_empty()).then(|| Duration::from_nanos(histogram.value_at_quantile(share)))
}

/// How long it takes from the first guest sent home in a burst until every worker that got one back
/// serves.
#[derive(Default)]
struct ScaleUps {
    last_sent: Instant,
    /// Workers that serve again in the burst that is going on.
    serving: Vec<WorkerId>,
    /// The last bursts, oldest first.
    kept: VecDeque<ScaleUp>,
}

struct ScaleUp {
    began: Instant,
    /// Until the last of the workers had answered its first request.
    took: Duration,
}

impl ScaleUps {
    /// Guests sent home after this much calm begin another burst.
    const CALM: Duration = Duration::from_millis(500);
    const KEPT: usize = 64;

    fn sent_home(&mut self, at: Instant) {
        if self.kept.is_empty() || at.since(self.last_sent) > Self::CALM {
            self.serving.clear();
            if self.kept.len() == Self::KEPT {
                self.kept.pop_front();
            }
            self.kept.push_back(ScaleUp { began: at, took: Duration::ZERO });
        }
        self.last_sent = self.last_sent.max(at);
    }

    fn served(&mut self, worker: WorkerId, at: Instant) {
        if let Some(burst) = self.kept.back_mut()
            && !self.serving.contains(&worker)
        {
            self.serving.push(worker);
            burst.took = at.since(burst.began);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    /// The reason for the end of one client's conversation tells nothing about another kind's, and
    /// each kind is said once.
    #[test]
    fn each_kind_of_protocol_ending_is_logged_once() {
        let (heard, lines) = std::sync::mpsc::channel();
        let mut config = Config::on_loopback(
            linux::allowed_cpus().unwrap().0.into_iter().take(1).collect(),
            crate::Policy::AllAwake,
        );
        config.log = Log::new(move |line| {
            let _ = heard.send(line.to_owned());
        });
        let server = crate::Server::start(config, || {}).unwrap();
        let patience = std::time::Duration::from_secs(60);
        let end_with = |bytes: &[u8]| {
            let mut client = std::net::TcpStream::connect(server.addresses()[0]).unwrap();
            client.set_read_timeout(Some(patience)).unwrap();
            client.write_all(bytes).unwrap();
            // The close of the socket may be a reset, as not all was read.
            let _ = client.read_to_end(&mut Vec::new());
        };
        let long = [b'x'; 4096];
        for (bytes, word) in [
            (&long[..], "without a newline"),
            (&[memcache::line::BINARY_MAGIC; 24][..], "binary protocol"),
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "HTTP"),
        ] {
            end_with(bytes);
            end_with(bytes);
            let line = lines.recv_timeout(patience).unwrap();
            assert!(line.contains(word), "{word}: {line}");
        }
        server.stop().unwrap();
        assert_eq!(lines.try_iter().filter(|line| line.contains("closed a connection")).count(), 0);
    }

    #[test]
    fn a_scale_up_ends_with_the_last_worker_that_serves() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut bursts = ScaleUps::default();
        bursts.sent_home(at(1000));
        bursts.served(WorkerId(1), at(1001));
        bursts.sent_home(at(1001));
        bursts.served(WorkerId(2), at(1003));
        bursts.served(WorkerId(1), at(1009));
        assert_eq!(bursts.kept[0].took, Duration::from_millis(3));
        bursts.sent_home(at(5000));
        bursts.served(WorkerId(1), at(5002));
        assert_eq!(bursts.kept.len(), 2);
        assert_eq!(bursts.kept[1].took, Duration::from_millis(2));
    }
}
