//! The whole planner: its start, its end and its status.

use super::books::Books;
use super::caller::Predictors;
use super::disk::Disks;
use super::helper::{self, Helper};
use super::listener::Listening;
use super::plan::{Plan, Shared};
use super::remote::RemoteDesk;
use super::status::{AccountStatus, Asked, CpuStatus, PredictorStatus, WakeStatus, quantile};
use super::{Act, Alarm, Calibration, PrincipalKind, Roll, WakeError, WakeOptions};
use crate::controllers::Machine;
use linux::Root;
use linux::arbiter::IdleLimits;
use linux::probes::AlarmProgram;
use machine::{CpuId, Duration, Instant};
use policy::wake_plan::{Account, CpuCosts};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A running planner. Dropping it closes all windows and returns the limits.
#[derive(Debug)]
pub struct WakeDaemon {
    shared: Shared,
    threads: Vec<JoinHandle<()>>,
    handle: WakeHandle,
    limits: IdleLimits,
    udp: Option<SocketAddr>,
}

/// A handle for other threads: status, end and remote callers.
#[derive(Clone, Debug)]
pub struct WakeHandle(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) shared: Shared,
    books: Mutex<Books>,
    calibration: Calibration,
    act: Act,
    alarm: Alarm,
    began: Instant,
    pub(super) lead: Duration,
    pub(super) asked: Mutex<Asked>,
    pub(super) remote: Option<RemoteDesk>,
    disks: Option<Disks>,
    pub(super) stop: OwnedFd,
    has_ended: AtomicBool,
}

impl WakeDaemon {
    /// Measures, takes the knobs, and listens. Returns notices about the machine as well.
    pub fn open(options: &WakeOptions, machine: &Machine) -> Result<(Self, Vec<String>), WakeError> {
        let limits = &machine.arbiter.idle;
        limits.hold(ASKER, &options.cpus)?;
        let opened = Self::open_on(options, machine);
        if opened.is_err() {
            limits.withdraw(ASKER);
        }
        opened
    }

    fn open_on(options: &WakeOptions, machine: &Machine) -> Result<(Self, Vec<String>), WakeError> {
        let (root, limits, ends) = (Root::system(), &machine.arbiter.idle, &machine.ends);
        // Callers wait while waking is measured, which takes seconds.
        let arrivals = machine.callers.open().map_err(|cause| WakeError::Failed(cause.to_string()))?;
        let mut notices = Vec::new();
        // The kernel's timer is tried where it was asked for, or where waking is measured.
        let is_kernel_asked = match options.alarm {
            Some(alarm) => alarm == Alarm::Kernel,
            None => options.exit_latency.is_none(),
        };
        let alarms = match is_kernel_asked.then(AlarmProgram::load).transpose() {
            Ok(alarms) => alarms,
            Err(error) if options.alarm.is_some() => return Err(WakeError::Unsupported(error.to_string())),
            // The thread's timer takes its place.
            Err(_) => None,
        };
        let calibration = match options.exit_latency {
            None => Calibration::measure(&options.cpus, limits, alarms.as_ref(), ends)?,
            Some(_) => Calibration::default(),
        };
        if ends.load(Ordering::Acquire) {
            return Err(WakeError::Failed("it was told to end before it had measured".to_owned()));
        }
        let act = options.act.unwrap_or_else(|| calibration.act());
        let alarm = options.alarm.unwrap_or_else(|| calibration.alarm());
        let alarms = alarms.filter(|_| alarm == Alarm::Kernel);
        let (mut books, notice) = Books::open(&root, &options.cpus, options.events);
        notices.extend(notice);
        let costs: Vec<CpuCosts> = options
            .cpus
            .0
            .iter()
            .map(|&cpu| CpuCosts {
                cpu,
                exit_latency: options
                    .exit_latency
                    .or_else(|| calibration.exit_latency(cpu, alarm))
                    .unwrap_or(Duration::from_micros(200)),
                min_sleep: shallowest(limits, cpu),
                power: books.model.active,
            })
            .collect();
        let mut windows = Vec::new();
        for &CpuCosts { cpu, .. } in &costs {
            let window = match act {
                Act::Spin => None,
                Act::Polling => match limits.window(cpu) {
                    Ok(window) => Some(window),
                    // The window opens when the holder of its CPU has released it.
                    Err(_) if limits.is_waiting() => None,
                    Err(reason) => return Err(WakeError::Unsupported(reason)),
                },
            };
            let alarm = alarms.as_ref().map(|alarms| alarms.alarm(cpu)).transpose();
            let alarm = alarm.map_err(|error| WakeError::Unsupported(error.to_string()))?;
            windows.push((cpu, window, Helper::new(cpu, act, alarm)));
        }
        let helpers: Vec<_> = windows.iter().map(|(_, _, helper)| Arc::clone(helper)).collect();
        let longest = costs.iter().map(|costs| costs.exit_latency).max().unwrap_or_default();
        let lead = calibration.doorbell() + longest + options.params.margin;
        let shared = Shared::new(Plan::new(options.params, &costs, windows, Predictors::default()));
        let mut threads = Vec::new();
        let mut ordinary = None;
        for helper in helpers {
            match helper::start(Arc::clone(&helper), shared.clone()) {
                Ok((thread, notice)) => {
                    threads.push(thread);
                    ordinary = ordinary.or(notice);
                }
                Err(reason) => {
                    shared.look().helpers().iter().for_each(|helper| helper.end());
                    return Err(WakeError::Failed(reason));
                }
            }
        }
        notices.extend(ordinary.map(|reason| {
            format!("CPUs are woken by ordinary threads, which a busy CPU may keep waiting: {reason}")
        }));
        books.begin();
        let roll = Roll::default();
        let remote = options
            .token
            .clone()
            .map(|token| RemoteDesk::new(token, options.remote_cpus.clone(), shared.clone(), roll.clone()));
        let disks = match options.disks.then(|| Disks::open(None, &options.cpus, shared.clone(), &roll)) {
            Some(Ok(disks)) => Some(disks),
            Some(Err(error)) => {
                notices.push(format!("disks are not foreseen: {error}"));
                None
            }
            None => None,
        };
        let failed = |cause: Errno| WakeError::Failed(format!("cannot listen: {cause}"));
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let handle = WakeHandle(Arc::new(Inner {
            shared: shared.clone(),
            books: Mutex::new(books),
            calibration,
            act,
            alarm,
            began: linux::now(),
            lead,
            asked: Mutex::default(),
            remote,
            disks,
            stop,
            has_ended: AtomicBool::new(false),
        }));
        let mut daemon = Self { shared, threads, handle, limits: limits.clone(), udp: None };
        let listening = Listening::open(options, arrivals, daemon.handle.clone(), roll)?;
        daemon.udp = listening.udp_address();
        let thread = std::thread::Builder::new()
            .name("wake-loop".to_owned())
            .spawn(move || listening.run())
            .map_err(|cause| WakeError::Failed(cause.to_string()))?;
        daemon.threads.push(thread);
        Ok((daemon, notices))
    }

    /// The address for datagrams, with the port that the kernel chose.
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.udp
    }

    pub fn handle(&self) -> WakeHandle {
        self.handle.clone()
    }

    /// To be called now and then: opens lost windows again, and returns notices.
    pub fn look_after(&mut self) -> Vec<String> {
        if self.handle.0.act == Act::Polling {
            // Not in the loop's head, which would keep the plan's lock through the loop.
            let lost = self.shared.look().lost_windows();
            for cpu in lost {
                if let Ok(window) = self.limits.window(cpu) {
                    self.shared.change(|plan| plan.give_window(cpu, window));
                }
            }
        }
        self.shared.change(|plan| std::mem::take(&mut plan.notices))
    }
}

impl Drop for WakeDaemon {
    fn drop(&mut self) {
        self.handle.stop();
        self.shared.look().helpers().iter().for_each(|helper| helper.end());
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
        self.shared.change(Plan::release);
        self.limits.withdraw(ASKER);
    }
}

/// CPUs are held under this name.
const ASKER: &str = "wake";

/// The shortest sleep that saves energy.
fn shallowest(limits: &IdleLimits, cpu: CpuId) -> Duration {
    let table = limits.table(cpu);
    let halts = table.0.iter().filter(|state| state.kind == machine::CstateKind::Halting);
    halts.map(|state| state.target_residency).min().unwrap_or_default()
}

impl WakeHandle {
    /// Tells all threads to end.
    pub fn stop(&self) {
        self.0.has_ended.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.0.stop, &1_u64.to_ne_bytes());
    }

    /// True after [`Self::stop`].
    pub fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }

    /// Hears remote callers; `None` without a token.
    pub fn remote(&self) -> Option<RemoteDesk> {
        self.0.remote.clone()
    }

    pub fn status(&self) -> WakeStatus {
        let inner = &*self.0;
        let passed = inner.books.lock().unwrap_or_else(PoisonError::into_inner).read();
        let plan = inner.shared.look();
        let mut asked = *inner.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.accepted = plan.tally.accepted;
        asked.refused = plan.tally.refused;
        asked.writes_failed = plan.tally.writes_failed;
        if let Some(remote) = &inner.remote {
            let [wrong, nonsense] = remote.counted();
            asked.wrong_tokens = wrong;
            asked.nonsense += nonsense;
        }
        let cpus = plan
            .looks()
            .into_iter()
            .map(|look| CpuStatus {
                cpu: look.cpu,
                is_awake: look.is_open,
                exit_latency: look.costs.exit_latency,
                windows: look.opened,
                late_p50: quantile(&look.lateness, 0.5),
                late_p99: quantile(&look.lateness, 0.99),
            })
            .collect();
        let mut accounts = Vec::new();
        let (mut owned, mut owned_joules) = (Duration::ZERO, 0.0);
        for (principal, account) in plan.planner().ledger().accounts() {
            let info = plan.principals.get(&principal);
            let name = info.map_or_else(
                || principal.to_string(),
                |info| match info.kind {
                    PrincipalKind::Local => info.name.clone(),
                    PrincipalKind::Remote => format!("{} (remote)", info.name),
                    PrincipalKind::Device => format!("{} (device)", info.name),
                },
            );
            accounts.push(account_status(name, info.and_then(|info| info.user), account));
            owned += account.awake;
            owned_joules += account.energy.0 as f64 / 1e6;
        }
        let closed = plan.planner().ledger().closed();
        if closed.accepted > 0 {
            accounts.push(account_status("(gone)".to_owned(), None, closed));
            owned += closed.awake;
            owned_joules += closed.energy.0 as f64 / 1e6;
        }
        drop(plan);
        // Outside all windows CPUs were awake for other work.
        let rest = (passed.all - passed.asleep) - owned;
        let books = inner.books.lock().unwrap_or_else(PoisonError::into_inner);
        let rest_joules = books.model.active.as_watts() * rest.as_secs_f64();
        drop(books);
        let others = |name: &str, time: Duration, joules: f64| AccountStatus {
            time,
            joules,
            ..account_status(name.to_owned(), None, &Account::default())
        };
        accounts.push(others("(unowned)", rest, rest_joules));
        accounts.push(others("(idle)", passed.asleep, passed.idle_joules));
        let mut energy = passed.source.to_string();
        if let Some(measured) = passed.measured_joules {
            let modelled = owned_joules + rest_joules + passed.idle_joules;
            let scale = if modelled > 0.0 { measured / modelled } else { 0.0 };
            accounts.iter_mut().for_each(|account| account.joules *= scale);
            energy += ", shared out as the table of powers has it";
        }
        let mut records = inner.shared.look().predictors.records().to_vec();
        if let Some(disks) = &inner.disks {
            let [reads, writes] = disks.records();
            records.extend([("disk reads", reads), ("disk writes", writes)]);
            asked.full += disks.lost();
        }
        WakeStatus {
            running: linux::now().since(inner.began),
            act: inner.act,
            alarm: inner.alarm,
            lead: inner.lead,
            calibration: inner.calibration.clone(),
            cpus,
            accounts,
            check: passed.check,
            predictors: records
                .into_iter()
                .map(|(name, record)| PredictorStatus { name: name.to_owned(), record })
                .collect(),
            asked,
            energy,
        }
    }
}

fn account_status(name: String, user: Option<u32>, account: &Account) -> AccountStatus {
    AccountStatus {
        name,
        user,
        time: account.awake,
        joules: account.energy.0 as f64 / 1e6,
        accepted: account.accepted,
        late: account.late,
        came: account.came,
        withdrawn: account.withdrawn,
        expired: account.expired,
    }
}
