//! How a running server tells about itself: gathering its [`Status`], and answering `stats`.
//!
//! Meters are read in turn under a lock of their own, because a counter that wraps or is reset by
//! the kernel needs one reader that remembers its last value. A reading costs some 50 us a CPU, so
//! no worker makes one: `stats` answers from the last reading, and asks the director for the next.

use crate::config::{Config, Listen};
use crate::session::{Introspection, ServerFacts, Totals};
use crate::shared::{Notice, Shared};
use crate::status::{CpuStatus, Status, WorkerStatus};
use linux::{CpuUsage, EnergyMeter, UsageMeter};
use machine::{CpuId, CpuList, Duration, EnergyReading, IdleLimit, Instant, Rate, WorkerId};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Looks into a running server. It does not keep it alive: once the server has ended there is
/// nothing to tell.
pub struct Inspector {
    shared: OnceLock<Weak<Shared>>,
    policy: &'static str,
    worker_cpus: Vec<CpuId>,
    settings: Vec<(&'static str, String)>,
    /// The names of each CPU's idle states.
    states: Vec<(CpuId, Vec<String>)>,
    meters: Mutex<Meters>,
    last_reading: Mutex<Arc<Reading>>,
    energy_basis: Vec<String>,
    /// The counters at the last `stats reset`.
    forgotten: Mutex<Totals>,
}

struct Meters {
    usage: UsageMeter,
    energy: EnergyMeter,
}

struct Reading {
    at: Instant,
    usage: Vec<CpuUsage>,
    energy: Option<EnergyReading>,
}

impl Meters {
    fn read(&mut self, now: Instant) -> Arc<Reading> {
        Arc::new(Reading { at: now, usage: self.usage.read(now), energy: self.energy.read(now) })
    }
}

impl Inspector {
    pub(crate) fn new(config: &Config, addresses: &[SocketAddr]) -> Self {
        let now = linux::now();
        let cpus = CpuList(config.worker_cpus.iter().copied().collect());
        let usage = UsageMeter::start(&config.root, &cpus, now);
        let states = usage
            .tables()
            .map(|(cpu, table)| (cpu, table.0.iter().map(|state| state.name.clone()).collect()))
            .collect();
        let energy = match &config.power_model {
            Some(model) => EnergyMeter::modelled(&config.root, &cpus, model.clone(), now),
            None => EnergyMeter::open(&config.root, &cpus, now),
        };
        let energy_basis = energy.describe();
        let mut meters = Meters { usage, energy };
        let reading = meters.read(now);
        Self {
            shared: OnceLock::new(),
            policy: config.policy.name(),
            worker_cpus: config.worker_cpus.clone(),
            settings: settings(config, addresses),
            states,
            meters: Mutex::new(meters),
            last_reading: Mutex::new(reading),
            energy_basis,
            forgotten: Mutex::default(),
        }
    }

    pub(crate) fn attach(&self, shared: &Arc<Shared>) {
        assert!(self.shared.set(Arc::downgrade(shared)).is_ok(), "attached once");
    }

    /// How energy is accounted for here, a line each: the source, and which power each idle state
    /// is charged with.
    pub fn energy_basis(&self) -> &[String] {
        &self.energy_basis
    }

    /// How the server is now; `None` once it has ended. Reads the meters.
    pub fn status(&self) -> Option<Status> {
        self.read_meters(linux::now());
        self.status_of_last_reading()
    }

    /// Reads the meters unless the last reading is as young as `age`.
    pub(crate) fn refresh(&self, now: Instant, age: Duration) {
        if now.since(self.last_reading().at) > age {
            self.read_meters(now);
        }
    }

    fn read_meters(&self, now: Instant) {
        let reading = self.meters().read(now);
        *self.last_reading.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    }

    fn last_reading(&self) -> Arc<Reading> {
        Arc::clone(&self.last_reading.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The status for a client: the worker does not read the meters for it.
    fn status_on_worker(&self) -> Option<Status> {
        let status = self.status_of_last_reading();
        if let Some(shared) = self.shared() {
            shared.notify(Notice::MetersAsked);
        }
        status
    }

    /// How the server is now, its meters as they were read last.
    fn status_of_last_reading(&self) -> Option<Status> {
        let shared = self.shared()?;
        let now = shared.now();
        let reading = self.last_reading();
        let workers: Vec<WorkerStatus> =
            (0..).map(WorkerId).take(shared.worker_count()).map(|id| self.worker(&shared, id)).collect();
        let store = shared.store.stats();
        let cpus = self.cpus(&shared, &reading);
        Some(Status {
            uptime: now.since(shared.started),
            policy: self.policy.to_owned(),
            requests: workers.iter().map(|worker| worker.requests).sum(),
            connections: shared.connections(),
            transfers: shared.transfers(),
            items: store.items,
            memory_used: store.used_bytes,
            memory_limit: store.limit_bytes,
            meters_read: now.since(reading.at),
            energy: reading.energy.clone(),
            workers,
            cpus,
        })
    }

    fn worker(&self, shared: &Shared, id: WorkerId) -> WorkerStatus {
        let published = shared.port(id).published();
        let reading = published.reading;
        let (residents, connections) =
            reading.as_ref().map_or((0, 0), |reading| (reading.residents, reading.connections));
        let view = shared.view();
        WorkerStatus {
            worker: id,
            cpu: self.worker_cpus[id.index()],
            active: view.is_active(id),
            load: reading.as_ref().map_or(Rate::ZERO, |reading| reading.requests_per_second()),
            limit: published.learned.limit(),
            residents,
            guests: connections.saturating_sub(residents),
            requests: published.requests,
            stolen: shared.offers.stolen(id),
            io_uring: shared.port(id).has_ring.load(Ordering::Relaxed),
            busy: published.busy,
            awake: view.awake(id, shared.now()),
            tail: reading.and_then(|reading| reading.tail),
            arrivals: shared.arrivals(id),
        }
    }

    fn cpus(&self, shared: &Shared, reading: &Reading) -> Vec<CpuStatus> {
        reading
            .usage
            .iter()
            .map(|usage| {
                let names = self.states.iter().find(|(cpu, _)| *cpu == usage.cpu);
                let names = names.map_or(&[][..], |(_, names)| names);
                let asked = shared.view().limit(usage.cpu);
                CpuStatus {
                    cpu: usage.cpu,
                    limit: asked.map_or(IdleLimit::None, |(limit, _)| limit),
                    in_force: asked.map(|(_, in_force)| in_force),
                    residency: names.iter().cloned().zip(usage.residency.iter().flatten().copied()).collect(),
                    busy: usage.busy,
                }
            })
            .collect()
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.get()?.upgrade()
    }

    fn meters(&self) -> std::sync::MutexGuard<'_, Meters> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forgotten(&self) -> std::sync::MutexGuard<'_, Totals> {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_totals(&self) -> Totals {
        let mut totals = Totals::default();
        if let Some(shared) = self.shared() {
            shared.ports().iter().for_each(|port| totals.add(&port.counters));
        }
        totals
    }
}

impl Introspection for Inspector {
    fn totals(&self) -> Totals {
        self.all_totals().since(&self.forgotten())
    }

    fn reset(&self) {
        *self.forgotten() = self.all_totals();
    }

    fn facts(&self) -> ServerFacts {
        let Some(shared) = self.shared() else { return ServerFacts::default() };
        ServerFacts {
            max_connections: shared.limits.max_connections,
            connections: shared.connections(),
            connections_total: shared.connections_total(),
            connections_rejected: shared.connections_rejected(),
            accept_pauses: shared.accept_pauses(),
            accept_paused_us: shared.accept_paused_us(),
            accepting: !shared.is_accepting_paused(),
            workers: shared.worker_count() as u32,
        }
    }

    fn stats_group(&self, group: &[u8], emit: &mut dyn FnMut(&str, &str)) -> bool {
        match group {
            b"settings" => self.settings.iter().for_each(|(name, value)| emit(name, value)),
            b"conns" => {
                if let Some(shared) = self.shared() {
                    shared.registry().describe(emit);
                }
            }
            b"roost" => {
                if let Some(status) = self.status_on_worker() {
                    describe(&status, emit);
                    for (n, line) in self.energy_basis.iter().enumerate() {
                        emit(&format!("energy_basis:{n}"), line);
                    }
                }
            }
            b"roost-json" => {
                if let Some(status) = self.status_on_worker() {
                    emit("status", &serde_json::to_string(&status).expect("plain figures"));
                }
            }
            b"roost-reset-limits" => {
                if let Some(shared) = self.shared() {
                    shared.notify(Notice::ResetLimits);
                    emit("limits", "reset");
                }
            }
            _ => return false,
        }
        true
    }
}

/// `stats roost`: the status as names and values, units at the end of the names.
fn describe(status: &Status, emit: &mut dyn FnMut(&str, &str)) {
    let mut say = |name: &str, value: &dyn std::fmt::Display| emit(name, &value.to_string());
    say("policy", &status.policy);
    say("workers_active", &status.workers.iter().filter(|worker| worker.active).count());
    say("requests", &status.requests);
    say("meters_read_us_ago", &status.meters_read.as_micros());
    for worker in &status.workers {
        let mut about =
            |what: &str, value: &dyn std::fmt::Display| say(&format!("{}:{what}", worker.worker), value);
        about("cpu", &worker.cpu.0);
        about("active", &u8::from(worker.active));
        about("load_per_s", &worker.load.as_per_second().round());
        about("limit_per_s", &optional(worker.limit.map(|limit| limit.as_per_second().round())));
        about("residents", &worker.residents);
        about("guests", &worker.guests);
        about("requests", &worker.requests);
        about("stolen", &worker.stolen);
        about("io_uring", &u8::from(worker.io_uring));
        about("busy_us", &worker.busy.as_micros());
        about("awake_us", &worker.awake.as_micros());
        about("tail_p99_us", &optional(worker.tail.map(Duration::as_micros)));
    }
    for cpu in &status.cpus {
        let mut about =
            |what: &str, value: &dyn std::fmt::Display| say(&format!("{}:{what}", cpu.cpu), value);
        about(
            "idle_limit_us",
            &match cpu.limit {
                IdleLimit::None => "none".to_owned(),
                IdleLimit::Deepest => "deepest".to_owned(),
                IdleLimit::ExitLatency(latency) => latency.as_micros().to_string(),
            },
        );
        about("idle_limit_in_force", &optional(cpu.in_force.map(u8::from)));
        about("busy_us", &optional(cpu.busy.map(Duration::as_micros)));
        for (state, time) in &cpu.residency {
            about(&format!("residency_{}_us", one_word(state)), &time.as_micros());
        }
    }
    let transfers = &status.transfers;
    say("transfers_ordered", &transfers.ordered);
    say("transfers_send_home", &transfers.send_home);
    say("transfer_p50_ns", &optional(transfers.p50.map(Duration::as_nanos)));
    say("transfer_p99_ns", &optional(transfers.p99.map(Duration::as_nanos)));
    say("transfer_to_sleeper_p50_ns", &optional(transfers.sleeper_p50.map(Duration::as_nanos)));
    say("transfer_to_sleeper_p99_ns", &optional(transfers.sleeper_p99.map(Duration::as_nanos)));
    if let Some(energy) = &status.energy {
        say("energy_uj", &energy.used.0);
        say("energy_source", &energy.source);
    }
}

/// A name from outside as part of a statistic's name, which ends at the first space.
fn one_word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect()
}

/// Missing figures are shown as missing, never zero.
fn optional(value: Option<impl std::fmt::Display>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}

/// `stats settings`: memcached's names first.
fn settings(config: &Config, addresses: &[SocketAddr]) -> Vec<(&'static str, String)> {
    let unix = config.listen.iter().find_map(|place| match place {
        Listen::Unix { path, mode } => Some((path.display().to_string(), *mode)),
        Listen::Tcp(_) | Listen::Tls(_) => None,
    });
    let (path, mode) = unix.unwrap_or_else(|| ("NULL".to_owned(), 0o600));
    let first = addresses.first();
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    vec![
        ("maxbytes", config.store.memory_limit.to_string()),
        ("maxconns", config.limits.max_connections.to_string()),
        ("tcpport", first.map_or(0, SocketAddr::port).to_string()),
        ("udpport", "0".to_owned()),
        ("inter", first.map_or("NULL".to_owned(), |address| address.ip().to_string())),
        ("verbosity", "0".to_owned()),
        ("evictions", "on".to_owned()),
        ("domain_socket", path),
        ("umask", format!("{mode:o}")),
        ("num_threads", config.worker_cpus.len().to_string()),
        ("cas_enabled", "yes".to_owned()),
        ("auth_enabled_sasl", "no".to_owned()),
        ("auth_enabled_ascii", yes(config.users.is_some())),
        ("item_size_max", config.store.max_item_size.to_string()),
        ("maxconns_fast", "yes".to_owned()),
        ("binding_protocol", "ascii".to_owned()),
        ("flush_enabled", "yes".to_owned()),
        ("dump_enabled", yes(config.limits.session.dump)),
        ("roost_policy", config.policy.name().to_owned()),
        ("roost_stall_timeout", config.limits.stall.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client of the protocol takes the text after the second space for the value.
    #[test]
    fn no_name_of_a_statistic_holds_a_space() {
        let cpu = CpuStatus {
            cpu: CpuId(3),
            limit: IdleLimit::None,
            in_force: None,
            residency: vec![
                ("haltpoll idle".to_owned(), Duration::from_micros(7)),
                ("C1-ACPI\t\u{e9}\r\n".to_owned(), Duration::from_micros(9)),
            ],
            busy: None,
        };
        let status = Status {
            uptime: Duration::ZERO,
            policy: "all-awake".to_owned(),
            workers: Vec::new(),
            cpus: vec![cpu],
            transfers: crate::status::TransferStatus::default(),
            requests: 0,
            connections: 0,
            items: 0,
            memory_used: 0,
            memory_limit: 0,
            meters_read: Duration::ZERO,
            energy: None,
        };
        let mut said = Vec::new();
        describe(&status, &mut |name, value| said.push((name.to_owned(), value.to_owned())));
        for (name, _) in &said {
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
        }
        let find = |name: &str| said.iter().any(|(known, value)| known == name && value == "7");
        assert!(find("cpu3:residency_haltpoll_idle_us"), "{said:?}");
    }
}
