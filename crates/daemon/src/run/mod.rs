//! All services, and the requests of clients in between.
//!
//! One thread waits for the next of: an epoch that is over, a change that has taken effect, a
//! question, a signal. A service that is not there is looked for again, ever more rarely; one that
//! ends is released and looked for. The thread keeps itself on the CPUs that the services have:
//! those are awake anyway, and a parked CPU is not woken for its sake.

mod controllers;
mod knob_leases;
mod knobs;
mod leases;
mod reload;

use crate::audit::{Audit, Entry, now_unix_s};
use crate::clocks::Clocks;
use crate::config::{Config, Part, ServiceConfig};
use crate::control::{
    Answer, Ask, Asker, Callers, Control, ControlError, Heard, Reply, Running, Set, running,
};
use crate::controllers::cores::{AlarmSink, EpochReport, Governed, Open, OpenError, Status};
use crate::controllers::{ControllerStatus, Happened, Hosted, Observer, Owner, Refusal};
use crate::log::Log;
use crate::park::{Lent, Park};
use knob_leases::KnobLease;
use linux::arbiter::{Arbiter, IdleLimits};
use linux::probes::RequestAlarm;
use linux::{FrequencyError, HotplugError, LockError, Root};
use machine::{CpuList, Duration, Goal, Instant};
use policy::governing::Input;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use thiserror::Error;

#[derive(Debug)]
pub enum Event {
    Stop,
    Reload,
    /// Far more came for this service than was reckoned with.
    Alarm(String, RequestAlarm),
    /// A question at the control socket, or the end of a lease.
    Heard(Heard),
    /// A real-time thread computed for 100 ms without a pause.
    Overrun,
    /// A message from a controller's thread, with the number of its run.
    Controller(u64, Happened),
    /// The state of everything is asked for, by the page of metrics.
    Snapshot(Sender<Snapshot>),
}

/// The state of everything, with its types.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub services: Vec<Status>,
    pub controllers: Vec<(String, ControllerStatus)>,
    pub lent: Option<Lent>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The things put back, a line each.
    pub lines: Vec<String>,
    /// `Ok`: it was told to, its time was over, or the service of its command ended in good order.
    pub outcome: Result<(), Refusal>,
}

/// Why the daemon does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A service cannot be governed, and the command line named it.
    #[error(transparent)]
    Service(#[from] OpenError),
    /// Another Roost holds the CPUs' idle limits.
    #[error(transparent)]
    Held(#[from] LockError),
    /// The clocks of a service cannot be chosen here.
    #[error("{service}: {reason}")]
    NoClocks {
        service: String,
        /// The missing feature, and the remedy.
        reason: String,
    },
    /// The clocks cannot be held.
    #[error(transparent)]
    Clocks(#[from] FrequencyError),
    /// Parked CPUs cannot be taken offline.
    #[error(transparent)]
    Hotplug(#[from] HotplugError),
    /// CPUs cannot be lent to the group that the command line named.
    #[error(transparent)]
    Lend(#[from] linux::LendError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("{0} governs this machine already\nhint: stop it, or add to its configuration and reload it")]
    Running(Running),
    #[error("cannot append to {path}: {cause}\nhint: name another file with audit = \
             \"...\"", path = path.display())]
    Audit { path: PathBuf, cause: io::Error },
}

pub struct Options {
    /// Where `/sys`, `/proc` and `/run` are.
    pub root: Root,
    pub config: Config,
    /// Where the configuration comes from, for a reload; `None`: the command line.
    pub file: Option<PathBuf>,
    pub dry_run: bool,
    /// A missing service is an error, and the end of all governed services ends the daemon.
    pub strict: bool,
    /// Where [`Daemon::run`] hears: the other end of its receiver.
    pub events: Sender<Event>,
    /// Sees the controllers of the configuration at work.
    pub observer: Option<Observer>,
}

pub struct Daemon {
    root: Root,
    config: Config,
    file: Option<PathBuf>,
    dry_run: bool,
    slots: Vec<Slot>,
    arbiter: Arbiter,
    callers: Callers,
    holder: Option<IdleLimits>,
    clocks: Option<Clocks>,
    uncore: Option<Clocks>,
    park: Option<Park>,
    /// When a group that CPUs are lent to is looked for again.
    lends_at: Instant,
    audit: Audit,
    _control: Control,
    log: Log,
    say: Box<dyn FnMut(&str) + Send>,
    own: CpuList,
    alarms: Option<Sender<Event>>,
    heart: Option<Heart>,
    /// Why a configuration that is read again may not be taken, if so.
    objection: Objection,
    events: Sender<Event>,
    observer: Option<Observer>,
    strict: bool,
    controllers: Vec<Hosted>,
    runs: u64,
    leases: BTreeMap<u64, Lease>,
    knob_leases: BTreeMap<u64, KnobLease>,
    /// The reason why it ends by itself.
    finished: Option<Result<(), Refusal>>,
}

/// A service that another process has governed for as long as it is connected.
struct Lease {
    part: Part,
    asker: Asker,
    /// Not answered yet, and how many of its controllers have not taken hold.
    pending: Option<(Reply, usize)>,
}

type Objection = Box<dyn Fn(&Config) -> Option<String> + Send>;

/// Says now and then that the loop goes round.
struct Heart {
    every: Duration,
    next: Instant,
    beat: Box<dyn FnMut() + Send>,
}

/// A service that is configured, or that a lease names.
struct Slot {
    owner: Owner,
    config: ServiceConfig,
    state: State,
}

enum State {
    Governed {
        governed: Box<Governed>,
        due: Instant,
        /// A change has taken effect then.
        settled: Option<Instant>,
    },
    /// It is not there, or cannot be governed.
    Waiting { why: String, until: Instant, wait: Duration },
    /// Governing it panicked, and it is left alone until `roost resume`.
    Withdrawn { why: String },
}

impl Daemon {
    /// Takes hold of every service that is there. `say` takes the notices for an operator, a line
    /// at a time.
    pub fn start(options: Options, say: impl FnMut(&str) + Send + 'static) -> Result<Self, StartError> {
        let Options { root, config, file, dry_run, strict, events, observer } = options;
        // First: a second daemon is refused before it touches anything.
        let callers = Callers::at(&config.socket);
        if config.socket.parent() == Some(&linux::run_place(&root))
            // A kubelet makes it readable by all, who could then hold its lock. One that cannot be made is
            // the socket's trouble.
            && let Err(error @ LockError::Unsafe { .. }) = linux::run_folder(&root)
        {
            return Err(error.into());
        }
        let control = listen(callers.clone(), events.clone())?;
        let audit = match config.audit.as_ref().filter(|_| !dry_run) {
            None => Audit::default(),
            Some(path) => {
                Audit::append_to(path).map_err(|cause| StartError::Audit { path: path.clone(), cause })?
            }
        };
        let mut daemon = Self {
            arbiter: Arbiter::new(&root, &Running::of(std::process::id()).command),
            callers,
            root,
            file,
            dry_run,
            slots: Vec::new(),
            holder: None,
            clocks: None,
            uncore: None,
            park: None,
            lends_at: Instant::ZERO,
            audit,
            _control: control,
            log: Log::default(),
            say: Box::new(say),
            own: CpuList::default(),
            alarms: None,
            heart: None,
            objection: Box::new(|_| None),
            events,
            observer,
            strict,
            controllers: config
                .part()
                .tables()
                .into_iter()
                .map(|table| Hosted::new(table, Owner::Config))
                .collect(),
            runs: 0,
            leases: BTreeMap::new(),
            knob_leases: BTreeMap::new(),
            finished: None,
            config,
        };
        daemon.hold()?;
        daemon.hold_clocks()?;
        daemon.hold_uncore()?;
        daemon.hold_park()?;
        for config in daemon.config.services.clone() {
            let slot = daemon.opened(config, Owner::Config);
            match slot {
                Err(not_there) if strict => return Err(not_there.error.into()),
                slot => daemon.take(slot),
            }
        }
        match daemon.hold_lending() {
            Err(error) if strict => return Err(error.into()),
            told => daemon.tell_of_lending(told),
        }
        Ok(daemon)
    }

    /// Tells the tail at this goal's percentile of services that have no goal, so that they can be
    /// compared.
    pub fn watch_goal(&mut self, goal: Goal) {
        for slot in &mut self.slots {
            if let State::Governed { governed, .. } = &mut slot.state {
                governed.watch_goal(goal);
            }
        }
    }

    /// Alarms come as events to `sender`; [`Self::run`] gets its other end. Without this there are
    /// none.
    pub fn hear_alarms(&mut self, sender: Sender<Event>) {
        self.alarms = Some(sender);
        for slot in &mut self.slots {
            if let State::Governed { governed, .. } = &mut slot.state {
                governed.hear(heard(self.alarms.as_ref(), &slot.config.name));
            }
        }
    }

    /// Calls `beat` this often, by the loop itself and so whether or not there is a service: a
    /// watchdog hears of a daemon that hangs, and not of one that has nothing to do.
    pub fn keep_alive(&mut self, every: Duration, beat: impl FnMut() + Send + 'static) {
        self.heart = Some(Heart { every, next: linux::now(), beat: Box::new(beat) });
    }

    /// A configuration that is read again is taken only where `objection` has none: an objection
    /// that does not matter with nothing to govern may matter for a service.
    pub fn object(&mut self, objection: impl Fn(&Config) -> Option<String> + Send + 'static) {
        self.objection = Box::new(objection);
    }

    /// Governs until an event says stop, or for `length` from the moment at which all controllers
    /// have taken hold. Then puts everything back and reports it. `look` is called after each epoch
    /// of a service.
    pub fn run(
        mut self,
        events: &Receiver<Event>,
        length: Option<Duration>,
        mut look: impl FnMut(&Governed),
    ) -> Finished {
        let mut until = None;
        let outcome = loop {
            let now = linux::now();
            if until.is_none() && !self.controllers.iter().any(Hosted::is_opening) {
                until = length.map(|length| now + length);
            }
            if until.is_some_and(|until| until <= now) {
                break Ok(());
            }
            let beat = self.heart.as_ref().map(|heart| heart.next);
            let told = self.log.wakes_at();
            let opens = self.controllers.iter().filter_map(Hosted::due);
            let again = self.arbiter.is_waiting().then(|| now + LOOK_AGAIN);
            let next = self
                .slots
                .iter()
                .filter_map(Slot::due)
                .chain(until)
                .chain(beat)
                .chain(told)
                .chain(opens)
                .chain(again)
                .min();
            let wait = next.map_or(Duration::from_secs(3600), |next| next.since(now));
            match events.recv_timeout(wait.into()) {
                Ok(Event::Stop) => break Ok(()),
                Ok(Event::Reload) => self.reload(),
                Ok(Event::Alarm(service, alarm)) => self.alarm(&service, &alarm),
                Ok(Event::Heard(Heard::Question(Ask::Lease(part), reply))) => self.lease(*part, reply),
                Ok(Event::Heard(Heard::Question(Ask::Knobs(request), reply))) => {
                    self.combine(request, reply);
                }
                Ok(Event::Heard(Heard::Question(ask, reply))) => {
                    let answer = self.answer(ask, reply.asker());
                    reply.send(answer);
                }
                Ok(Event::Heard(Heard::LeaseEnded(lease))) => {
                    self.end_knobs(lease);
                    self.end_lease(lease, "its command ended");
                }
                Ok(Event::Overrun) => self.end_realtime(),
                Ok(Event::Controller(run, happened)) => self.controller_tells(run, happened),
                Ok(Event::Snapshot(sender)) => {
                    // Its asker may have gone.
                    let _ = sender.send(self.snapshot());
                }
                Err(RecvTimeoutError::Timeout) => {}
                // No sender of a stop is left; the epochs go on.
                Err(RecvTimeoutError::Disconnected) => linux::sleep_until(now + wait),
            }
            self.turn(&mut look);
            if let Some(outcome) = self.finished.take() {
                break outcome;
            }
            let left_out = self.log.due(linux::now());
            left_out.iter().for_each(|line| (self.say)(line));
            if let Some(heart) = self.heart.as_mut().filter(|heart| heart.next <= linux::now()) {
                (heart.beat)();
                heart.next = linux::now() + heart.every;
            }
        };
        Finished { lines: self.release(events), outcome }
    }

    fn turn(&mut self, look: &mut impl FnMut(&Governed)) {
        self.open_controllers();
        let mut all = EpochReport::default();
        self.arbiter.look_after();
        all.notices.extend(self.arbiter.drain_notices());
        for at in 0..self.slots.len() {
            let now = linux::now();
            let slot = &mut self.slots[at];
            match &mut slot.state {
                State::Governed { governed, due, settled } => {
                    if settled.is_some_and(|at| at <= now) {
                        governed.settled(now);
                        *settled = None;
                        *due = now + self.config.epoch;
                    } else if settled.is_none() && *due <= now {
                        let mut report = EpochReport::default();
                        let holder = self.holder.as_mut();
                        let governs = catch_unwind(AssertUnwindSafe(|| {
                            governed.epoch(now, holder, &mut report);
                            look(governed);
                        }));
                        if governs.is_err() {
                            self.withdraw(at, &mut all);
                            continue;
                        }
                        // Epochs that were slept through are not made up for.
                        *due = (*due + self.config.epoch).max(now + self.config.epoch / 2);
                        if report.moved {
                            *settled = Some(linux::now() + SETTLING);
                        }
                        let (ended, has_other_cpus) = (report.ended, report.has_other_cpus);
                        all.take(report);
                        if ended {
                            let (why, wait) = match has_other_cpus {
                                true => ("it has other CPUs, and is taken anew", Duration::ZERO),
                                false => ("it has ended; looking for it again", FIRST_WAIT),
                            };
                            // Its second death is news as well.
                            self.log.forget(&slot.config.name);
                            all.notices.push(format!("{}: {why}", slot.config.name));
                            let state =
                                State::Waiting { why: why.to_owned(), until: now + wait, wait: FIRST_WAIT };
                            if let State::Governed { governed, .. } =
                                std::mem::replace(&mut slot.state, state)
                            {
                                governed.release(self.holder.as_mut());
                            }
                        }
                    }
                }
                State::Waiting { until, wait, .. } if *until <= now => {
                    let wait = (*wait * 2).min(LAST_WAIT);
                    let (config, owner) = (slot.config.clone(), slot.owner);
                    let found = self.opened(config, owner);
                    self.slots[at] = self.slot_of(found, wait);
                }
                State::Waiting { .. } | State::Withdrawn { .. } => {}
            }
        }
        self.look_after_lending(&mut all);
        if let Some(park) = &self.park {
            all.notices.extend(park.drain_notices());
        }
        self.tell(all);
        self.keep_out_of_the_way();
    }

    /// Puts back a service's changes when governing it panicked, and leaves it alone.
    fn withdraw(&mut self, at: usize, report: &mut EpochReport) {
        let why = "governing it panicked, which is a fault of Roost; its changes are put back".to_owned();
        let slot = &mut self.slots[at];
        let name = slot.config.name.clone();
        let state = std::mem::replace(&mut slot.state, State::Withdrawn { why: why.clone() });
        report.notices.push(format!("{name}: {why}\nhint: roost resume {name}"));
        if let Some(park) = &self.park {
            park.leave(&name);
        }
        for clocks in self.clocks.iter().chain(&self.uncore) {
            clocks.withdraw(&name);
        }
        if let Some(holder) = &mut self.holder {
            holder.withdraw(&name);
        }
        if let State::Governed { governed, .. } = state {
            // A value that panicked once may do so again; a confiner that is dropped puts back as
            // well.
            let _ = catch_unwind(AssertUnwindSafe(move || governed.release(None)));
        }
        if self.strict {
            self.finished = Some(Err(Refusal::failed(format!("{name}: {why}"))));
        }
    }

    /// Waits, ever longer, for a service that is not there.
    fn slot_of(&mut self, found: Found, wait: Duration) -> Slot {
        match found {
            Ok((slot, report)) => {
                self.tell(report);
                slot
            }
            Err(not_there) => {
                let NotThere { config, owner, error } = *not_there;
                let why = error.to_string();
                self.say_once(&format!("{}: {}", config.name, why.lines().next().unwrap_or_default()));
                Slot { owner, config, state: State::Waiting { why, until: linux::now() + wait, wait } }
            }
        }
    }

    fn take(&mut self, found: Found) {
        let slot = self.slot_of(found, FIRST_WAIT);
        self.slots.push(slot);
    }

    fn opened(&self, config: ServiceConfig, owner: Owner) -> Found {
        let park = self.park.as_ref().filter(|park| !park.offline().0.is_empty());
        match park.filter(|_| config.target.find(&self.root).is_ok()) {
            None => self.opened_now(config, owner),
            // It is asked which CPUs it may use, and those that are offline by us are among them.
            Some(park) => park.with_all_online(&self.cpus_there(), || self.opened_now(config, owner)),
        }
    }

    fn opened_now(&self, config: ServiceConfig, owner: Owner) -> Found {
        let mut report = EpochReport::default();
        let now = linux::now();
        let only_user = self.only_user(owner);
        let open = Open { root: &self.root, daemon: &self.config, only_user, dry_run: self.dry_run };
        match Governed::open(&open, &config, now, &mut report) {
            Ok(mut governed) => {
                governed.choose_clocks(self.clocks.as_ref());
                governed.choose_uncore(self.uncore.as_ref());
                governed.keep_others_off(self.park.as_ref());
                if self.alarms.is_some() {
                    governed.hear(heard(self.alarms.as_ref(), &config.name));
                }
                let state = State::Governed {
                    governed: Box::new(governed),
                    due: now + self.config.epoch,
                    settled: None,
                };
                Ok((Slot { owner, config, state }, report))
            }
            Err(error) => Err(Box::new(NotThere { config, owner, error })),
        }
    }

    fn answer(&mut self, ask: Ask, asker: Asker) -> Answer {
        match ask {
            Ask::Status => {
                let (mut governed, mut waiting) = (Vec::new(), Vec::new());
                for slot in &self.slots {
                    match &slot.state {
                        State::Governed { governed: service, .. } => governed.push(service.status()),
                        State::Waiting { why, .. } | State::Withdrawn { why } => {
                            waiting.push((slot.config.name.clone(), why.clone()));
                        }
                    }
                }
                let asked = self.arbiter.asked();
                let controllers =
                    self.controllers.iter().map(|hosted| hosted.report(self.owner(hosted.owner)));
                Answer::Status {
                    governed,
                    waiting,
                    asked,
                    controllers: controllers.collect(),
                    lent: self.park.as_ref().and_then(Park::lent),
                    dry_run: self.dry_run,
                }
            }
            Ask::Set { service, set } => self.set(&service, set, asker),
            Ask::Lease(_) | Ask::Knobs(_) => Answer::Refused("a lease is asked for once".to_owned()),
        }
    }

    fn alarm(&mut self, service: &str, alarm: &RequestAlarm) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.config.name == service) else { return };
        let State::Governed { governed, settled, .. } = &mut slot.state else { return };
        let mut report = EpochReport::default();
        governed.alarm(linux::now(), alarm, self.holder.as_mut(), &mut report);
        if report.moved {
            *settled = Some(linux::now() + SETTLING);
        }
        self.tell(report);
    }

    fn set(&mut self, service: &str, set: Set, asker: Asker) -> Answer {
        if let Some(answer) = self.set_controller(service, set, asker) {
            return answer;
        }
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.config.name == service) else {
            let services = self.slots.iter().map(|slot| slot.config.name.clone());
            let controllers = self.controllers.iter().map(|hosted| hosted.table.name());
            let names: Vec<String> = services.chain(controllers).collect();
            return Answer::Refused(format!(
                "there is no service {service}; there are: {}",
                names.join(", ")
            ));
        };
        if let (State::Withdrawn { why }, Set::Resume) = (&slot.state, set) {
            let why = why.clone();
            slot.state = State::Waiting { why, until: Instant::ZERO, wait: FIRST_WAIT };
            return Answer::Done;
        }
        let State::Governed { governed, settled, .. } = &mut slot.state else {
            return Answer::Refused(format!("{service} is not governed now; see `roost status`"));
        };
        let source = &slot.config.telemetry;
        if matches!(set, Set::Goal(_)) && !source.tells_times() {
            return Answer::Refused(format!(
                "telemetry = \"{source}\" tells no response times, which a goal is judged by: {}",
                source.fix()
            ));
        }
        let (input, new) = match set {
            Set::Goal(goal) => (Input::Goal(goal), goal.to_string()),
            Set::Pause => (Input::Pause(true), "paused".to_owned()),
            Set::Resume => (Input::Pause(false), "resumed".to_owned()),
        };
        let mut report = EpochReport::default();
        let old = governed.status().goal.map_or_else(|| "-".to_owned(), |goal| goal.to_string());
        let entry = Entry {
            at_unix_s: now_unix_s(),
            service: service.to_owned(),
            what: "set".to_owned(),
            old,
            new,
            why: "asked for".to_owned(),
            by: format!("roost set ({asker})"),
        };
        report.entries.push(entry);
        if let Set::Goal(goal) = set {
            slot.config.goal = Some(goal);
        }
        governed.tell(linux::now(), input, self.holder.as_mut(), &mut report);
        if report.moved {
            *settled = Some(linux::now() + SETTLING);
        }
        self.tell(report);
        Answer::Done
    }

    fn let_go(&mut self, slot: Slot) {
        if let State::Governed { governed, .. } = slot.state {
            let lines = governed.release(self.holder.as_mut());
            lines.iter().for_each(|line| self.say(&format!("{}: {line}", slot.config.name)));
        }
    }

    fn release(mut self, events: &Receiver<Event>) -> Vec<String> {
        let mut lines = self.end_controllers(events);
        lines.extend(self.park.as_ref().and_then(Park::lent).and_then(|lent| {
            Some(format!("{}: {} of CPU time on CPUs that no service needed", lent.to, lent.used?))
        }));
        // First: a service that lives among them gets its CPUs back from above.
        lines.extend(self.park.as_ref().map(Park::release).unwrap_or_default());
        for slot in std::mem::take(&mut self.slots) {
            if let State::Governed { governed, .. } = slot.state {
                lines.extend(governed.release(self.holder.as_mut()));
            }
        }
        lines.extend(self.arbiter.idle.release());
        lines.extend(self.arbiter.clocks.release());
        lines.extend(self.arbiter.uncore.release());
        lines
    }

    /// On the CPUs that are awake anyway.
    fn keep_out_of_the_way(&mut self) {
        if self.dry_run {
            return;
        }
        let awake = self.slots.iter().filter_map(|slot| match &slot.state {
            State::Governed { governed, .. } => Some(governed.cpus().0.iter().copied()),
            State::Waiting { .. } | State::Withdrawn { .. } => None,
        });
        let awake = CpuList(awake.flatten().collect());
        if !awake.0.is_empty() && awake != self.own {
            // A cpuset of ours may forbid it; then we are where we are.
            let _ = linux::pin_current_thread_to(&awake);
            for slot in &self.slots {
                if let State::Governed { governed, .. } = &slot.state {
                    governed.stay_on(&awake);
                }
            }
            self.own = awake;
        }
    }

    fn tell(&mut self, report: EpochReport) {
        for entry in &report.entries {
            self.say(&entry.line());
            if let Some(trouble) = self.audit.write(entry) {
                self.say(&trouble);
            }
        }
        for notice in &report.notices {
            self.say_once(notice);
        }
    }

    fn say(&mut self, line: &str) {
        let lines = self.log.line(linux::now(), line);
        lines.iter().for_each(|line| (self.say)(line));
    }

    /// A fault that lasts is reported now and then.
    fn say_once(&mut self, line: &str) {
        let lines = self.log.once(linux::now(), line);
        lines.iter().for_each(|line| (self.say)(line));
    }
}

type Found = Result<(Slot, EpochReport), Box<NotThere>>;

/// A service that is not there, or cannot be governed.
struct NotThere {
    config: ServiceConfig,
    owner: Owner,
    error: OpenError,
}

/// A thread that rings may have outlived the daemon.
fn heard(alarms: Option<&Sender<Event>>, service: &str) -> AlarmSink {
    let (alarms, service) = (alarms.cloned(), service.to_owned());
    Arc::new(move |alarm| {
        if let Some(alarms) = &alarms {
            let _ = alarms.send(Event::Alarm(service.clone(), alarm));
        }
    })
}

impl Slot {
    /// When there is something to do for it; `None`: not until it is resumed.
    fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Governed { due, settled, .. } => Some(settled.unwrap_or(*due)),
            State::Waiting { until, .. } => Some(*until),
            State::Withdrawn { .. } => None,
        }
    }
}

impl EpochReport {
    fn take(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.notices.extend(other.notices);
    }
}

/// The control socket; an error that names the daemon that listens there already.
fn listen(callers: Callers, events: Sender<Event>) -> Result<Control, StartError> {
    let path = callers.socket().to_owned();
    let hear = move |heard| events.send(Event::Heard(heard)).is_ok();
    Control::listen(callers, hear).map_err(|error| match error {
        ControlError::Taken { ref cause, .. } if cause.kind() == io::ErrorKind::AddrInUse => {
            running(&path).map_or(StartError::Control(error), StartError::Running)
        }
        error => StartError::Control(error),
    })
}

/// Between two looks whether a process has let go of CPUs.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Under this name CPUs are held for services.
const NAME: &str = "services";

/// A change of a running service's CPUs takes effect within 15 ms in 99 of 100 cases
/// (`bpf-and-wakeups.md` measured 12).
const SETTLING: Duration = Duration::from_millis(20);

/// A service that is not there is looked for after this time, then after twice as long, and so on.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// And at the latest after this time.
const LAST_WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
