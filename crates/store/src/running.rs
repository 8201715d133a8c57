//! A server from start to end: opening its parts in an order that fails early, and taking it down
//! in an order that answers every request which was already sent.
//!
//! ```text
//!   start: listeners -> store -> idle limits (locks, journal, or a daemon) -> network card
//!          -> workers -> items of the last run -> director
//!   stop:  listeners closed -> idle limits and network card put back, while the workers drain -> joined
//!          -> items written
//! ```

use crate::acceptor::{Acceptor, ListenError};
use crate::config::{Config, Policy};
use crate::director::Director;
use crate::inspect::Inspector;
use crate::kept::{Clock, Items, ItemsError};
use crate::learned::{Learned, StateError};
use crate::limits::Limits;
use crate::recording::{RecordedScheduler, RecordedWorker};
use crate::rests::Rests;
use crate::shared::{Mail, Notice, Published, Shared};
use crate::status::Status;
use crate::store::{OpenError, Store};
use crate::worker::Worker;
use linux::{LockError, NicError, NicSuspension};
use machine::{CpuId, CpuList, Kilohertz, OperatingPoint, PointKind, PowerModel, WorkerId};
use policy::active_idle::ActiveIdle;
use policy::{Scheduling, SleepState, joint};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listening place cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The state file cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The file of kept items cannot be used.
    #[error(transparent)]
    Items(#[from] ItemsError),
    /// The store cannot be made within the memory limit.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Another process holds a CPU's idle limit.
    #[error("{0}\nhint: --idle-actuator none leaves idle limits alone and needs no lock")]
    Held(LockError),
    /// The interrupts of the network card cannot be put off.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The kernel refuses something basic, such as an epoll set.
    #[error("cannot start: {0}")]
    Kernel(#[from] std::io::Error),
}

/// A running server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    inspector: Arc<Inspector>,
    workers: Vec<JoinHandle<std::io::Result<()>>>,
    director: Option<JoinHandle<()>>,
    items: Option<Items>,
}

impl Server {
    /// Opens everything and begins to serve. `on_broken` is called, from any thread, when one of
    /// the server's threads ends before it was told to; the server is to be stopped then, which
    /// puts the machine back.
    pub fn start(config: Config, on_broken: impl Fn() + Send + Sync + 'static) -> Result<Self, StartError> {
        let on_broken: Arc<dyn Fn() + Send + Sync> = Arc::new(on_broken);
        let acceptor = Acceptor::open(&config.listen)?;
        let addresses: Vec<SocketAddr> = acceptor.tcp_addresses().collect();
        let learned = Learned::load(config.state_file.as_deref(), &config.log)?;
        let store = Store::new(config.store)?;
        let kept = config.items.as_deref().map(Items::open).transpose()?;
        let (mut items, clock) =
            kept.map_or_else(|| (None, Clock::begun()), |(items, clock)| (Some(items), clock));

        let workers: Vec<(WorkerId, CpuId)> =
            (0..).map(WorkerId).zip(config.worker_cpus.iter().copied()).collect();
        let params = match &config.policy {
            Policy::Peafowl(params) => *params,
            Policy::AllAwake | Policy::Carb(_) | Policy::Joint(_) => policy::peafowl::Params::live(),
        };
        let scheduling = match &config.policy {
            Policy::AllAwake => Scheduling::all_awake(&workers),
            Policy::Peafowl(params) => Scheduling::peafowl(*params, &workers),
            Policy::Carb(carb) => Scheduling::carb(*carb, &workers),
            Policy::Joint(joint) => planned(*joint, &config, &workers),
        };
        let params = scheduling.worker_params(params);

        let cpus = CpuList(config.worker_cpus.iter().copied().collect());
        let open = |actuator| Limits::open(&config, actuator, &cpus, name(&addresses));
        let limits = config.idle_actuator.map(open).transpose().map_err(StartError::Held)?;
        let shallowest =
            cpus.0.iter().filter_map(|&cpu| Some((cpu, limits.as_ref()?.table(cpu).shallowest_halt()?)));
        let nic = config.nic.as_ref();
        let suspension =
            nic.map(|nic| NicSuspension::open(&config.root, &nic.device, nic.times, &name(&addresses), None));
        let suspension = suspension.transpose()?;
        if let (Some(nic), Some(held)) = (nic, &suspension) {
            let queues =
                if held.queues() == 1 { "1 queue".to_owned() } else { format!("{} queues", held.queues()) };
            config
                .log
                .say(&format!("interrupts of {} ({queues}) are put off while requests come", nic.device));
        }
        let active_idle = ActiveIdle::new(config.active_idle, &workers, shallowest);

        let inspector = Arc::new(Inspector::new(&config, &addresses));
        let shared =
            Arc::new(Shared::new(store, clock, &config, params.report_period, Arc::clone(&inspector))?);
        inspector.attach(&shared);

        let mut handles = Vec::new();
        for &(id, cpu) in &workers {
            let policy = policy::peafowl::Worker::new(params, id, learned.limit(id.index()));
            let remembered = Published { learned: *policy.learned(), ..Published::default() };
            shared.port(id).publish(remembered);
            let worker = Worker::new(
                id,
                Arc::clone(&shared),
                RecordedWorker::new(policy, &config)?,
                config.stage.as_ref(),
                nic.map(|nic| nic.busy_poll),
            )?;
            let thread = std::thread::Builder::new().name(id.to_string());
            let vigil = Vigil::new(&shared, &on_broken);
            handles.push(thread.spawn(move || {
                let _vigil = vigil;
                // Without the right to pin, the kernel places the thread: worse, not wrong.
                let _ = linux::pin_current_thread(cpu);
                worker.run()
            })?);
        }
        let scheduling = RecordedScheduler::new(scheduling, &config)?;
        if let Some(items) = &mut items {
            items.load(&shared.store, clock, &config.log)?;
        }
        let director =
            Director::new(Arc::clone(&shared), &config, acceptor, scheduling, active_idle, limits, learned);
        let vigil = Vigil::new(&shared, &on_broken);
        let spawned = std::thread::Builder::new().name("director".to_owned()).spawn(move || {
            let _vigil = vigil;
            // Its end puts the card back: requests under way are served by interrupts.
            let _suspension = suspension;
            director.run();
        });
        if let (Err(_), Some(items)) = (&spawned, &items) {
            shared.keep(items)?;
        }
        let director = spawned?;
        Ok(Self { shared, addresses, inspector, workers: handles, director: Some(director), items })
    }

    /// The TCP addresses listened at, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// A handle that tells how the server is, from any thread, also while it stops.
    pub fn inspector(&self) -> Arc<Inspector> {
        Arc::clone(&self.inspector)
    }

    /// Orders `source` to hand the connection that it serves next to `target`, as the scheduler
    /// would: for soak tests and measurements.
    pub fn order_move(&self, source: WorkerId, target: WorkerId) {
        let order = policy::peafowl::Order::Move { target, pick: machine::Pick::NextServed };
        self.shared.port(source).mailbox.post(Mail::Order(order));
    }

    /// Forgets all learned load limits and learns them as if the server had just started.
    pub fn reset_limits(&self) {
        self.shared.notify(Notice::ResetLimits);
    }

    pub fn status(&self) -> Status {
        self.inspector.status().expect("the server runs as long as this handle lives")
    }

    /// How long the workers left each CPU alone, since the start.
    pub fn rests(&self) -> Vec<Rests> {
        self.shared.rests()
    }

    /// Stops taking requests, answers those already sent, puts the machine back and ends all
    /// threads. The error is that of the first thread which failed, if one did.
    pub fn stop(mut self) -> std::io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> std::io::Result<()> {
        let items = self.items.take();
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.notify(Notice::Stop);
        let panicked = || std::io::Error::other("a thread of the server panicked; see above");
        let mut result = Ok(());
        if let Some(director) = self.director.take()
            && director.join().is_err()
        {
            result = Err(panicked());
            // It can no longer tell the workers.
            for port in self.shared.ports() {
                port.mailbox.post(Mail::Drain);
            }
        }
        for worker in self.workers.drain(..) {
            let ended = worker.join().unwrap_or_else(|_| Err(panicked()));
            result = result.and(ended);
        }
        let Some(items) = items else { return result };
        let lost = |cause: io::Error| {
            let path = items.path.display();
            io::Error::other(format!("{cause}; the items are not kept in {path}, and are lost"))
        };
        // A store in which a worker died is not to be trusted.
        result.and_then(|()| self.shared.keep(&items)).map_err(lost)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Notices the end of the thread that it lives in, by return or by panic, while the server is not
/// stopping.
struct Vigil {
    shared: Arc<Shared>,
    on_broken: Arc<dyn Fn() + Send + Sync>,
}

impl Vigil {
    fn new(shared: &Arc<Shared>, on_broken: &Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { shared: Arc::clone(shared), on_broken: Arc::clone(on_broken) }
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        if !self.shared.stopping.load(Ordering::Relaxed) {
            (self.on_broken)();
        }
    }
}

/// The policy for the machine as it is: its idle states, with the power that a table gives them.
fn planned(params: policy::joint::Params, config: &Config, workers: &[(WorkerId, CpuId)]) -> Scheduling {
    let model = config
        .power_model
        .clone()
        .unwrap_or_else(|| PowerModel::for_processor(&linux::processor(&config.root)));
    config.log.say(&format!("plans are made for the powers of {}, which are not measured", model.name));
    let cpus: BTreeSet<CpuId> = workers.iter().map(|&(_, cpu)| cpu).collect();
    let table = cpus.first().and_then(|&cpu| linux::idle_table(&config.root, cpu).ok()).unwrap_or_default();
    let point = OperatingPoint { frequency: Kilohertz(1), power: model.active, kind: PointKind::Pstate };
    // Workers that share a CPU get half of it each while both work.
    let is_shared = cpus.len() < workers.len();
    let params = policy::joint::Params {
        whole_cores: cpus.len() as u16,
        shared_speed: if is_shared { 0.5 } else { 1.0 },
        ..params
    };
    let scheduler = joint::Scheduler::new(params, workers, point, &SleepState::charged(&model, &table));
    Scheduling::Joint(Box::new(scheduler))
}

/// As other processes on the machine know us.
fn name(addresses: &[SocketAddr]) -> String {
    let place = addresses.first().map_or("a Unix socket".to_owned(), ToString::to_string);
    format!("roost serve on {place}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Rate;
    use std::io::{Read as _, Write as _};
    use std::time::{Duration, Instant};

    /// The effect of one worker's load on the sums is no reason to wake a CPU that rests.
    #[test]
    fn a_worker_without_connections_is_left_alone_while_another_learns() {
        let cpus: Vec<CpuId> = linux::allowed_cpus().unwrap().0.into_iter().take(2).collect();
        if cpus.len() < 2 {
            println!("SKIPPED: a single CPU, which no worker has to itself");
            return;
        }
        let policy = Policy::Peafowl(policy::peafowl::Params::live().scaled(30.0));
        let server = Server::start(Config::on_loopback(cpus, policy), || {}).unwrap();
        let mut client = std::net::TcpStream::connect(server.addresses()[0]).unwrap();
        let began = Instant::now();
        let mut limits: Vec<Rate> = Vec::new();
        let mut before = Vec::new();
        while limits.len() < 30 {
            assert!(began.elapsed() < Duration::from_secs(300), "{limits:?}");
            // Now many at once and now few, so that the worker's capacity changes.
            let requests = b"get key\r\n".repeat(1 + limits.len() % 3 * 20);
            client.write_all(&requests).unwrap();
            let mut answers = vec![0; requests.len() / 9 * 5];
            client.read_exact(&mut answers).unwrap();
            let status = server.status();
            if let Some(limit) =
                status.workers.iter().find(|worker| worker.residents > 0).and_then(|w| w.limit)
                && limits.last() != Some(&limit)
            {
                limits.push(limit);
                if limits.len() == 10 {
                    before = server.rests();
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let woken = server.rests().iter().zip(&before).map(|(now, before)| now.since(before).count()).min();
        assert!(woken.unwrap() <= 5, "woken {woken:?} times while another learned 20 limits");
        server.stop().unwrap();
    }
}
