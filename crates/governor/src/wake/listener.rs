//! The loop that hears callers, and the daemon as a whole.

use super::books::Books;
use super::caller::{Caller, Predictors};
use super::disk::Disks;
use super::helper::{self, Helper};
use super::plan::{Plan, Shared};
use super::remote::{DATAGRAM_MAX, RemoteDesk, Unheard};
use super::status::{AccountStatus, Asked, CpuStatus, PredictorStatus, WakeStatus, quantile};
use super::wire::{self, LINE_MAX, WakeAnswer, WakeAsk, plain_name};
use super::{Act, Calibration, PrincipalKind, Roll, WakeError, WakeOptions};
use host::Root;
use host::holder::IdleHolder;
use host::IdleActuator;
use machine::{CpuId, Duration, Instant};
use policy::wake_plan::{Account, CpuCosts};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::geteuid;
use slots::wake::Ring;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// More connections at a time are refused.
const CONNECTIONS_MAX: usize = 256;
/// Lines, datagrams and bytes taken from one peer before the next is looked at.
const TURN: usize = 64;

/// What the loop's descriptors are, in epoll's word; connections come after.
const STOP: u64 = 0;
const LISTEN: u64 = 1;
const UDP: u64 = 2;
const FIRST: u64 = 16;

/// A planner at work. Dropped, it closes all windows and gives the limits back.
#[derive(Debug)]
pub struct WakeDaemon {
    shared: Shared,
    threads: Vec<JoinHandle<()>>,
    handle: WakeHandle,
    /// Dropped after the windows.
    holder: IdleHolder,
}

/// For other threads: how things are, an end, remote callers.
#[derive(Clone, Debug)]
pub struct WakeHandle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Shared,
    books: Mutex<Books>,
    calibration: Calibration,
    act: Act,
    began: Instant,
    lead: Duration,
    asked: Mutex<Asked>,
    remote: Option<RemoteDesk>,
    disks: Option<Disks>,
    stop: OwnedFd,
    has_ended: AtomicBool,
}

impl WakeDaemon {
    /// Measures, takes the knobs, and listens. What is there to say of the machine comes beside.
    pub fn open(options: &WakeOptions) -> Result<(Self, Vec<String>), WakeError> {
        let root = Root::system();
        let holder = IdleHolder::open(&root, &options.cpus, "roost wake", IdleActuator::PmQos)?;
        let mut notices = Vec::new();
        let calibration = match options.exit_latency {
            None => Calibration::measure(&options.cpus, &holder)?,
            Some(_) => Calibration::default(),
        };
        let act = options.act.unwrap_or_else(|| calibration.act());
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
                    .or_else(|| calibration.exit_latency(cpu))
                    .unwrap_or(Duration::from_micros(200)),
                min_sleep: shallowest(&holder, cpu),
                power: books.model.active,
            })
            .collect();
        let mut windows = Vec::new();
        for &CpuCosts { cpu, .. } in &costs {
            let window = match act {
                Act::Spin => None,
                Act::Polling => match holder.window(cpu) {
                    Ok(window) => Some(window),
                    Err(reason) => return Err(WakeError::Unsupported(reason)),
                },
            };
            windows.push((cpu, window, Helper::new(cpu, act)));
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
                    shared.plan().helpers().iter().for_each(|helper| helper.end());
                    return Err(WakeError::Failed(reason));
                }
            }
        }
        notices.extend(ordinary.map(|reason| {
            format!("CPUs are woken by ordinary threads, which a busy CPU may keep waiting: {reason}")
        }));
        books.begin();
        let roll = Roll::default();
        let remote = options.token.clone().map(|token| {
            RemoteDesk::new(token, options.remote_cpus.clone(), shared.clone(), roll.clone())
        });
        let disks = match options.disks.then(|| Disks::open(None, shared.clone(), &roll)) {
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
            began: host::now(),
            lead,
            asked: Mutex::default(),
            remote,
            disks,
            stop,
            has_ended: AtomicBool::new(false),
        }));
        let mut daemon = Self { shared, threads, handle, holder };
        let listening = Listening::open(options, daemon.handle.clone(), roll)?;
        let thread = std::thread::Builder::new()
            .name("wake-loop".to_owned())
            .spawn(move || listening.run())
            .map_err(|cause| WakeError::Failed(cause.to_string()))?;
        daemon.threads.push(thread);
        notices.extend(daemon.holder.drain_notices());
        Ok((daemon, notices))
    }

    /// For other threads.
    pub fn handle(&self) -> WakeHandle {
        self.handle.clone()
    }

    /// To be called now and then: takes over from holders that have ended. What there is to say comes back.
    pub fn look_after(&mut self) -> Vec<String> {
        self.holder.look_after();
        if self.handle.0.act == Act::Polling {
            for cpu in self.shared.plan().lost_windows() {
                // Not under the plan's lock: the holder of the knob may be slow.
                if let Ok(window) = self.holder.window(cpu) {
                    self.shared.plan().give_window(cpu, window);
                }
            }
        }
        let mut notices = std::mem::take(&mut self.shared.plan().notices);
        notices.extend(self.holder.drain_notices());
        notices
    }
}

impl Drop for WakeDaemon {
    fn drop(&mut self) {
        self.handle.stop();
        self.shared.plan().helpers().iter().for_each(|helper| helper.end());
        for thread in self.threads.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
        self.shared.plan().release();
    }
}

/// A sleep shorter than this saves nothing.
fn shallowest(holder: &IdleHolder, cpu: CpuId) -> Duration {
    let table = holder.table(cpu);
    let halts = table.0.iter().filter(|state| state.kind == machine::CstateKind::Halting);
    halts.map(|state| state.target_residency).min().unwrap_or_default()
}

impl WakeHandle {
    /// It shall end.
    pub fn stop(&self) {
        self.0.has_ended.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.0.stop, &1_u64.to_ne_bytes());
    }

    /// True once it was told to end.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }

    /// Where remote callers are heard, if a token was given.
    pub fn remote(&self) -> Option<RemoteDesk> {
        self.0.remote.clone()
    }

    /// How things are.
    pub fn status(&self) -> WakeStatus {
        let inner = &*self.0;
        let passed = inner.books.lock().unwrap_or_else(PoisonError::into_inner).read();
        let plan = inner.shared.plan();
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
                held_by: look.asked_of,
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
        drop(plan);
        // Beside all windows CPUs were awake for everybody else.
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
        let mut records = inner.shared.plan().predictors.records().to_vec();
        if let Some(disks) = &inner.disks {
            let [reads, writes] = disks.records();
            records.extend([("disk reads", reads), ("disk writes", writes)]);
            asked.full += disks.lost();
        }
        WakeStatus {
            running: host::now().since(inner.began),
            act: inner.act,
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

/// Who is connected.
#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    line: Vec<u8>,
    user: u32,
    caller: Option<Caller>,
    ids: u64,
    ring: Option<(Ring, OwnedFd)>,
}

#[derive(Debug)]
struct Listening {
    handle: WakeHandle,
    roll: Roll,
    epoll: OwnedFd,
    listener: UnixListener,
    /// Where that is, removed at the end.
    path: PathBuf,
    home: Option<CpuId>,
    udp: Option<UdpSocket>,
    users: Vec<u32>,
    default_cpus: machine::CpuList,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    /// Of rings that are gone.
    before: Asked,
}

/// A connection's descriptors: its stream, and its ring's doorbell.
fn token(connection: u64, is_bell: bool) -> EventData {
    EventData::new_u64(FIRST + 2 * connection + u64::from(is_bell))
}

impl Listening {
    fn open(options: &WakeOptions, handle: WakeHandle, roll: Roll) -> Result<Self, WakeError> {
        // First, so that no socket is left behind if its place is taken.
        let udp = options.udp.map(|address| {
            let told = |cause| WakeError::Taken { place: address.to_string(), cause };
            let socket = UdpSocket::bind(address).map_err(told)?;
            socket.set_nonblocking(true).map_err(told)?;
            Ok::<_, WakeError>(socket)
        });
        let udp = udp.transpose()?;
        let path = &options.socket;
        let taken = |cause| WakeError::Taken { place: path.display().to_string(), cause };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(taken)?;
        }
        let listener = match UnixListener::bind(path) {
            // A dead planner leaves its socket; a living one answers at it.
            Err(cause) if cause.kind() == io::ErrorKind::AddrInUse && UnixStream::connect(path).is_err() => {
                fs::remove_file(path).map_err(taken)?;
                UnixListener::bind(path).map_err(taken)?
            }
            other => other.map_err(taken)?,
        };
        // The kernel's word on the peer decides; the mode spares the others the question.
        let mode = if options.users.is_empty() { 0o600 } else { 0o666 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(taken)?;
        listener.set_nonblocking(true).map_err(taken)?;
        let failed = |cause: Errno| WakeError::Failed(format!("cannot listen: {cause}"));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, &handle.0.stop, EventData::new_u64(STOP), EventFlags::IN).map_err(failed)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTEN), EventFlags::IN).map_err(failed)?;
        if let Some(udp) = &udp {
            epoll::add(&epoll, udp, EventData::new_u64(UDP), EventFlags::IN).map_err(failed)?;
        }
        Ok(Self {
            handle,
            roll,
            epoll,
            listener,
            path: path.clone(),
            home: options.home,
            udp,
            users: options.users.clone(),
            default_cpus: options.remote_cpus.clone(),
            connections: BTreeMap::new(),
            next: 0,
            before: Asked::default(),
        })
    }

    fn run(mut self) {
        // Else each thing that is said wakes whichever CPU happens to sleep. Where it may not be there it runs anywhere.
        if let Some(home) = self.home {
            let _ = host::pin_current_thread(home);
        }
        let mut events = Vec::with_capacity(TURN);
        loop {
            // What is said from here on rings, or is seen at once.
            let mut is_said = false;
            for (ring, _) in self.connections.values().filter_map(|connection| connection.ring.as_ref()) {
                is_said |= ring.sleep();
            }
            let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            events.clear();
            let waited = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                is_said.then_some(&at_once),
            );
            if self.handle.has_ended() {
                break;
            }
            for (ring, _) in self.connections.values().filter_map(|connection| connection.ring.as_ref()) {
                ring.wake();
            }
            if waited.is_err_and(|cause| cause != Errno::INTR) {
                // Out of memory, say, and at once again if asked at once.
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            // Rings first: they are in a hurry.
            self.hear_rings();
            for event in &events {
                match event.data.u64() {
                    STOP => {}
                    LISTEN => self.accept(),
                    UDP => self.hear_datagrams(),
                    number => {
                        let (connection, is_bell) = ((number - FIRST) / 2, (number - FIRST) % 2 == 1);
                        if is_bell {
                            self.hush(connection);
                        } else if !self.hear_lines(connection) {
                            self.end(connection);
                        }
                    }
                }
            }
            self.count();
        }
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            self.end(connection);
        }
    }

    /// Everything that rings say, a ring's worth of each at most.
    fn hear_rings(&mut self) {
        let shared = self.handle.0.shared.clone();
        for connection in self.connections.values_mut() {
            let (Some((ring, _)), Some(caller)) = (&mut connection.ring, &mut connection.caller) else { continue };
            let mut turn = 0;
            while let Some(said) = ring.take(&mut turn) {
                let mut plan = shared.plan();
                // What is refused is counted, here and in the ring.
                let _ = caller.hear(&mut plan, host::now(), said);
            }
            if turn > 0 {
                ring.tell(caller.accepted, caller.refused);
            }
        }
    }

    fn hush(&self, connection: u64) {
        if let Some((_, bell)) = self.connections.get(&connection).and_then(|known| known.ring.as_ref()) {
            let _ = rustix::io::read(bell, &mut [0_u8; 8]);
        }
    }

    fn accept(&mut self) {
        for _ in 0..TURN {
            let Ok((stream, _)) = self.listener.accept() else { return };
            let Ok(peer) = socket_peercred(&stream) else { continue };
            let user = peer.uid.as_raw();
            let is_known = peer.uid.is_root() || peer.uid == geteuid() || self.users.contains(&user);
            let refusal = match () {
                () if !is_known => Some(format!("user {user} may not ask: start `roost wake` with --user {user}")),
                () if self.connections.len() >= CONNECTIONS_MAX => {
                    Some(format!("{CONNECTIONS_MAX} are connected already: end some"))
                }
                () => None,
            };
            if let Some(reason) = refusal {
                let _ = rustix::io::write(&stream, &wire::line(&WakeAnswer::Refused(reason)));
                continue;
            }
            let number = self.next;
            if stream.set_nonblocking(true).is_err()
                || epoll::add(&self.epoll, &stream, token(number, false), EventFlags::IN | EventFlags::RDHUP).is_err()
            {
                continue;
            }
            self.next += 1;
            let connection = Connection { stream, line: Vec::new(), user, caller: None, ids: 0, ring: None };
            self.connections.insert(number, connection);
        }
    }

    /// False when it is over.
    fn hear_lines(&mut self, number: u64) -> bool {
        let mut bytes = [0; LINE_MAX];
        let Some(connection) = self.connections.get_mut(&number) else { return true };
        let length = match (&connection.stream).read(&mut bytes) {
            Ok(0) => return false,
            Ok(length) => length,
            Err(cause) => return cause.kind() == io::ErrorKind::WouldBlock || cause.kind() == io::ErrorKind::Interrupted,
        };
        for &byte in &bytes[..length] {
            let Some(connection) = self.connections.get_mut(&number) else { return true };
            if byte != b'\n' {
                connection.line.push(byte);
                if connection.line.len() > LINE_MAX {
                    let refused = WakeAnswer::Refused(format!("a line has up to {LINE_MAX} bytes"));
                    let _ = answer(connection, &refused);
                    return false;
                }
                continue;
            }
            let line = std::mem::take(&mut connection.line);
            let is_taken = match wire::wake_ask(&line) {
                Ok(ask) => self.hear(number, &ask),
                Err(reason) => {
                    self.before.nonsense += 1;
                    let Some(connection) = self.connections.get_mut(&number) else { return true };
                    answer(connection, &WakeAnswer::Refused(reason))
                }
            };
            // One that does not take its answers is not waited for.
            if !is_taken {
                return false;
            }
        }
        true
    }

    /// False if it did not take its answer.
    fn hear(&mut self, number: u64, ask: &WakeAsk) -> bool {
        match ask {
            WakeAsk::Status => {
                let status = self.handle.status();
                let Some(connection) = self.connections.get_mut(&number) else { return true };
                answer(connection, &WakeAnswer::Status(Box::new(status)))
            }
            WakeAsk::Ring { name, entries } => self.hand_out(number, name, entries.unwrap_or(slots::wake::RING_ENTRIES)),
            WakeAsk::Hello { name } => {
                let said = self.name(number, name);
                let Some(connection) = self.connections.get_mut(&number) else { return true };
                answer(connection, &said.map_or_else(WakeAnswer::Refused, |()| WakeAnswer::Done { id: 0 }))
            }
            _ => {
                let said = self.say(number, ask);
                let Some(connection) = self.connections.get_mut(&number) else { return true };
                answer(connection, &said.map_or_else(WakeAnswer::Refused, |id| WakeAnswer::Done { id }))
            }
        }
    }

    fn say(&mut self, number: u64, ask: &WakeAsk) -> Result<u64, String> {
        if self.connections.get(&number).is_some_and(|known| known.caller.is_none()) {
            let name = self.connections.get(&number).map(peer_name).unwrap_or_default();
            self.name(number, &name)?;
        }
        let ended = || "the connection has ended".to_owned();
        let connection = self.connections.get_mut(&number).ok_or_else(ended)?;
        let id = match ask {
            WakeAsk::Came { id } | WakeAsk::Withdraw { id } | WakeAsk::Ended { id } => *id,
            _ => {
                connection.ids += 1;
                connection.ids
            }
        };
        let now = host::now();
        let said = wire::said(ask, now, id, &self.default_cpus)?.ok_or("nothing about CPUs")?;
        let caller = connection.caller.as_mut().ok_or_else(ended)?;
        let mut plan = self.handle.0.shared.plan();
        caller.hear(&mut plan, now, said).map_err(|why| why.to_string())?;
        Ok(id)
    }

    /// From now on it asks and pays under this name.
    fn name(&mut self, number: u64, name: &str) -> Result<(), String> {
        let name = plain_name(name)?;
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        let mut plan = self.handle.0.shared.plan();
        let principal = self.roll.enter(&mut plan, PrincipalKind::Local, Some(connection.user), &name);
        if let Some(mut before) = connection.caller.replace(Caller::new(principal)) {
            before.depart(&mut plan, host::now());
            self.roll.leave(&mut plan, before.principal);
        }
        Ok(())
    }

    fn hand_out(&mut self, number: u64, name: &str, entries: u32) -> bool {
        let made = self.name(number, name).and_then(|()| {
            let told = |cause: io::Error| format!("no ring can be made: {cause}");
            let ring = Ring::create(entries).map_err(told)?;
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|cause| told(cause.into()))?;
            ring.set_lead(self.handle.0.lead);
            epoll::add(&self.epoll, &bell, token(number, true), EventFlags::IN).map_err(|cause| told(cause.into()))?;
            Ok((ring, bell))
        });
        let Some(connection) = self.connections.get_mut(&number) else { return true };
        let (ring, bell) = match made {
            Ok(made) if connection.ring.is_none() => made,
            Ok(_) => return answer(connection, &WakeAnswer::Refused("this connection has a ring".to_owned())),
            Err(reason) => return answer(connection, &WakeAnswer::Refused(reason)),
        };
        let text = wire::line(&WakeAnswer::Ring { entries: ring.capacity() });
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [ring.descriptor(), bell.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(&connection.stream, &[IoSlice::new(&text)], &mut ancillary, flags);
        let is_sent = sent == Ok(text.len());
        drop(ancillary);
        connection.ring = Some((ring, bell));
        is_sent
    }

    fn hear_datagrams(&mut self) {
        let (Some(udp), Some(remote)) = (&self.udp, &self.handle.0.remote) else { return };
        let mut bytes = [0; DATAGRAM_MAX + 1];
        for _ in 0..TURN {
            let Ok((length, peer)) = udp.recv_from(&mut bytes) else { return };
            if length > DATAGRAM_MAX {
                continue;
            }
            let text = match remote.hear(&bytes[..length], None) {
                Ok(id) => format!("ok {id}"),
                Err(Unheard::Refused(reason)) => reason,
                Err(Unheard::Token) => continue,
            };
            let mut end = text.len().min(length);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let _ = udp.send_to(&text.as_bytes()[..end], peer);
        }
    }

    fn end(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        let _ = epoll::delete(&self.epoll, &connection.stream);
        if let Some((ring, bell)) = &connection.ring {
            let _ = epoll::delete(&self.epoll, bell);
            add(&mut self.before, ring);
        }
        if let Some(mut caller) = connection.caller {
            let mut plan = self.handle.0.shared.plan();
            caller.depart(&mut plan, host::now());
            self.roll.leave(&mut plan, caller.principal);
        }
    }

    fn count(&self) {
        let mut asked = self.before;
        asked.connections = self.connections.len() as u64;
        for (ring, _) in self.connections.values().filter_map(|connection| connection.ring.as_ref()) {
            add(&mut asked, ring);
        }
        *self.handle.0.asked.lock().unwrap_or_else(PoisonError::into_inner) = asked;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What a ring's client has counted, which it may have made up.
fn add(asked: &mut Asked, ring: &Ring) {
    let tally = ring.tally();
    asked.too_late = asked.too_late.saturating_add(tally.too_late);
    asked.full = asked.full.saturating_add(tally.full);
    asked.rung = asked.rung.saturating_add(tally.rung);
    asked.nonsense = asked.nonsense.saturating_add(tally.nonsense);
}

/// False if it does not take it.
fn answer(connection: &mut Connection, what: &WakeAnswer) -> bool {
    let text = wire::line(what);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::send(&connection.stream, &text, flags) == Ok(text.len())
}

/// The command of the process at the other end, as the kernel has it.
fn peer_name(connection: &Connection) -> String {
    let process = socket_peercred(&connection.stream).map(|peer| peer.pid.as_raw_nonzero().get());
    let command = process.ok().and_then(|process| fs::read_to_string(format!("/proc/{process}/comm")).ok());
    let command = command.map(|command| command.trim().replace(char::is_control, "?"));
    command.filter(|command| !command.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
