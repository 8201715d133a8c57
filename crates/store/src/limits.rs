//! How deeply the workers' CPUs may sleep, as it is asked of the machine: by way of the daemon
//! where one runs, and else by the store itself.
//!
//! ```text
//!   alone (own locks) --a daemon listens--> asks --granted--> by the daemon
//!        ^    ^                              |                    |
//!        |    '---------- refused -----------'                    |
//!        '----------------------- the daemon ends ----------------'
//! ```
//!
//! Properties:
//! - Nothing here waits for another process.
//! - Limits that the store set are let go of after the daemon has granted them, and not before.
//! - A CPU that another process holds is left as it is, which is said, and is asked for again ever
//!   more rarely.

use crate::config::{Config, Log, Policy};
use linux::arbiter::request::{IdleRequest, Request};
use linux::arbiter::{Connection, Doorway};
use linux::{IdleActuator, IdleControl, IdleOptions, LockError, Root};
use machine::{CpuId, CpuList, CstateTable, Duration, IdleLimit, Instant};
use rustix::fd::BorrowedFd;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The store's requests to the machine.
pub(crate) struct Limits {
    root: Root,
    /// As other processes know the store.
    name: String,
    cpus: CpuList,
    actuator: IdleActuator,
    /// Idle limits are asked for; else only which CPUs are needed.
    is_limiting: bool,
    socket: PathBuf,
    doorway: Option<Doorway>,
    active: CpuList,
    wanted: BTreeMap<CpuId, IdleLimit>,
    /// The daemon does not know the last change yet.
    is_changed: bool,
    own: Option<IdleControl>,
    daemon: Option<Connection>,
    is_granted: bool,
    /// CPUs whose limit the daemon could not set.
    refused: CpuList,
    /// This daemon does not hear the store.
    deaf: Option<u32>,
    /// The CPUs are asked for again then, since another process has them; and how long was waited
    /// last.
    again: Option<(Instant, Duration)>,
    /// A socket that appeared is knocked at until it is listened at: so many times more, and then.
    knocks: u32,
    knock_at: Instant,
    log: Log,
}

impl Limits {
    /// Takes the CPUs' locks or asks a daemon. An error: another process holds one, and keeps it.
    pub(crate) fn open(
        config: &Config,
        actuator: IdleActuator,
        cpus: &CpuList,
        name: String,
    ) -> Result<Self, LockError> {
        let mut limits = Self {
            root: config.root.clone(),
            name,
            cpus: cpus.clone(),
            actuator,
            is_limiting: config.active_idle != policy::active_idle::Mode::Stock
                || matches!(config.policy, Policy::Joint(_)),
            socket: config.control.clone(),
            doorway: None,
            active: cpus.clone(),
            wanted: BTreeMap::new(),
            is_changed: false,
            own: None,
            daemon: None,
            is_granted: false,
            refused: CpuList::default(),
            deaf: None,
            again: None,
            knocks: 0,
            knock_at: Instant::ZERO,
            log: config.log.clone(),
        };
        limits.knock();
        if limits.daemon.is_none() && limits.is_limiting {
            match limits.take_own() {
                Ok(()) => limits.log.say(&format!(
                    "no daemon runs at {}: the store limits the idle states of its CPUs itself",
                    limits.socket.display()
                )),
                Err(error) if error.is_yielded() => limits.say_taken(&error),
                Err(error) => return Err(error),
            }
        }
        limits.doorway = Doorway::beside(&limits.socket).ok();
        // One may have begun to listen in between.
        limits.knock();
        Ok(limits)
    }

    /// The idle states of a CPU.
    pub(crate) fn table(&self, cpu: CpuId) -> CstateTable {
        linux::idle_table(&self.root, cpu).unwrap_or_default()
    }

    /// Asks for this on `cpu`. True if it is in force, as far as is known.
    pub(crate) fn limit(&mut self, cpu: CpuId, limit: IdleLimit) -> bool {
        let before = self.wanted.insert(cpu, limit);
        self.is_changed |= before != Some(limit);
        if let Some(own) = &mut self.own {
            own.apply(cpu, limit);
            self.say_of_own();
        }
        self.is_in_force(cpu)
    }

    /// What is asked for, and if it is in force, as far as is known.
    pub(crate) fn states(&self) -> impl Iterator<Item = (CpuId, IdleLimit, bool)> + '_ {
        self.wanted.iter().map(|(&cpu, &limit)| (cpu, limit, self.is_in_force(cpu)))
    }

    fn is_in_force(&self, cpu: CpuId) -> bool {
        match &self.own {
            Some(own) => own.states().any(|(of, state)| of == cpu && state.limit().is_some()),
            None => self.is_granted && !self.refused.0.contains(&cpu),
        }
    }

    /// The CPUs that the store needs from now on.
    pub(crate) fn need(&mut self, active: &CpuList) {
        self.is_changed |= self.active != *active;
        self.active = active.clone();
    }

    /// Tells the daemon what has changed.
    pub(crate) fn flush(&mut self, now: Instant) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let request = self.request();
        if self.daemon.as_mut().is_some_and(|daemon| daemon.ask(request).is_err()) {
            self.lose_daemon(now);
        }
    }

    /// Each readable when it is time for [`Self::look_after`].
    pub(crate) fn bells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.daemon.iter().map(Connection::bell).chain(self.doorway.iter().map(Doorway::bell))
    }

    /// When it is time without one.
    pub(crate) fn due(&self) -> Option<Instant> {
        let knock = (self.knocks > 0).then_some(self.knock_at);
        self.again.map(|(at, _)| at).into_iter().chain(knock).min()
    }

    /// Hears the daemon, finds one that has begun, and takes over from one that has ended.
    pub(crate) fn look_after(&mut self, now: Instant) {
        if self.doorway.as_ref().is_some_and(Doorway::silence) {
            self.knocks = KNOCKS;
        }
        self.hear(now);
        self.knock_at = now + KNOCK_AGAIN;
        // A daemon that begins rings.
        if self.knocks > 0 || self.doorway.is_none() {
            self.knock();
        }
        if self.daemon.is_none()
            && self.is_limiting
            && self.own.is_none()
            && self.again.is_none_or(|(at, _)| at <= now)
        {
            self.take_over(now);
        }
    }

    fn hear(&mut self, now: Instant) {
        loop {
            let Some(daemon) = &mut self.daemon else { return };
            let process = daemon.daemon();
            match daemon.hear() {
                Ok(None) => return,
                Ok(Some(Ok(combined))) => {
                    for refused in &combined.refused {
                        self.log.say(&format!("CPU {}: {}", refused.cpus, linux::printable(&refused.why)));
                    }
                    self.refused = CpuList(
                        combined.refused.iter().flat_map(|refused| refused.cpus.0.iter().copied()).collect(),
                    );
                    if !std::mem::replace(&mut self.is_granted, true) {
                        self.log.say(&format!("the daemon (process {process}) is asked for idle limits"));
                        // What was set is put back, and the locks are the daemon's to take.
                        self.own = None;
                        self.again = None;
                    }
                }
                Ok(Some(Err(why))) => {
                    self.log.say(&format!("the daemon (process {process}) sets no idle limits: {why}"));
                    self.deaf = Some(process);
                    (self.daemon, self.is_granted) = (None, false);
                }
                Err(_) => self.lose_daemon(now),
            }
        }
    }

    fn lose_daemon(&mut self, now: Instant) {
        let was_granted = std::mem::take(&mut self.is_granted);
        self.daemon = None;
        if was_granted {
            self.log.say("the daemon has ended: the store limits the idle states of its CPUs itself");
            // Another store that asked it may be quicker, and takes what it needs.
            self.again = Some((now, Duration::ZERO));
        }
    }

    /// Asks a daemon, where one listens.
    fn knock(&mut self) {
        if self.daemon.is_some() {
            return;
        }
        match Connection::open(&self.socket) {
            Ok(mut daemon) if Some(daemon.daemon()) != self.deaf => {
                self.knocks = 0;
                if daemon.ask(self.request()).is_ok() {
                    (self.daemon, self.is_granted) = (Some(daemon), false);
                }
            }
            Ok(_) => self.knocks = 0,
            // It was made, and is not listened at yet; or its daemon was killed.
            Err(cause) if cause.kind() == std::io::ErrorKind::ConnectionRefused => {
                self.knocks = self.knocks.saturating_sub(1);
            }
            Err(_) => self.knocks = 0,
        }
    }

    fn request(&self) -> Request {
        let mut idle: Vec<IdleRequest> = Vec::new();
        for (&cpu, &limit) in self.wanted.iter().filter(|_| self.is_limiting) {
            match idle.iter_mut().find(|known| known.limit == limit) {
                Some(known) => drop(known.cpus.0.insert(cpu)),
                None => idle.push(IdleRequest { cpus: CpuList([cpu].into()), limit }),
            }
        }
        Request { asker: self.name.clone(), active: self.active.clone(), idle }
    }

    fn take_over(&mut self, now: Instant) {
        match self.take_own() {
            Ok(()) => self.again = None,
            Err(error) => {
                let waited = self.again.map_or(Duration::ZERO, |(_, waited)| waited);
                if waited == Duration::ZERO {
                    self.say_taken(&error);
                }
                let wait = (waited * 2).clamp(FIRST_WAIT, LAST_WAIT);
                self.again = Some((now + wait, wait));
            }
        }
    }

    fn take_own(&mut self) -> Result<(), LockError> {
        let options =
            IdleOptions { actuator: self.actuator, yields: true, ..IdleOptions::new(self.name.clone()) };
        let mut own = IdleControl::open(&self.root, &self.cpus, options)?;
        for (&cpu, &limit) in &self.wanted {
            own.apply(cpu, limit);
        }
        self.own = Some(own);
        self.say_of_own();
        Ok(())
    }

    fn say_of_own(&mut self) {
        for notice in self.own.iter_mut().flat_map(IdleControl::drain_notices) {
            self.log.say(&notice);
        }
    }

    fn say_taken(&mut self, error: &LockError) {
        self.log.say(&format!(
            "idle states are not limited: {error}\nhint: stores share CPUs by way of a daemon: `roost daemon`"
        ));
    }
}

/// A socket that is made is listened at within a moment.
const KNOCKS: u32 = 20;
const KNOCK_AGAIN: Duration = Duration::from_millis(50);

/// CPUs that another process holds are asked for again after this time, then after twice as long,
/// and so on.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// And at the latest after this time.
const LAST_WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Policy;
    use std::fs;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    const FILE: &str = "sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us";
    const GRANTED: &str = "{\"combined\":{\"refused\":[]}}\n";

    struct Made {
        folder: tempfile::TempDir,
        said: Arc<Mutex<String>>,
        config: Config,
    }

    impl Made {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(FILE);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::create_dir_all(folder.path().join("run/roost")).unwrap();
            fs::write(file, "0\n").unwrap();
            let said = Arc::new(Mutex::new(String::new()));
            let hears = Arc::clone(&said);
            let config = Config {
                active_idle: policy::active_idle::Mode::Halt,
                root: Root::at(folder.path()),
                control: folder.path().join("run/roost/roost.sock"),
                log: Log::new(move |line| *hears.lock().unwrap() += &format!("{line}\n")),
                ..Config::on_loopback(vec![CpuId(0)], Policy::AllAwake)
            };
            Self { folder, said, config }
        }

        fn open(&self, name: &str) -> Limits {
            let mut limits =
                Limits::open(&self.config, IdleActuator::PmQos, &"0".parse().unwrap(), name.to_owned())
                    .unwrap();
            limits.limit(CpuId(0), IdleLimit::ExitLatency(Duration::from_micros(2)));
            limits.flush(linux::now());
            limits
        }

        fn limit(&self) -> String {
            fs::read_to_string(self.folder.path().join(FILE)).unwrap().trim().to_owned()
        }

        fn said(&self) -> String {
            std::mem::take(&mut self.said.lock().unwrap())
        }

        /// Another may take the CPU.
        fn is_free(&self) -> bool {
            let cpus = "0".parse().unwrap();
            IdleControl::open(&self.config.root, &cpus, IdleOptions::new("another")).is_ok()
        }
    }

    /// The store's end, and the daemon's.
    fn accepted(listener: &UnixListener) -> (UnixStream, String) {
        let (stream, _) = listener.accept().unwrap();
        let line = next_line(&stream);
        (stream, line)
    }

    fn next_line(stream: &UnixStream) -> String {
        let mut line = String::new();
        // One line is sent at a time, so none is left in the buffer.
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    fn listen(socket: &Path) -> UnixListener {
        let _ = fs::remove_file(socket);
        UnixListener::bind(socket).unwrap()
    }

    #[test]
    fn alone_it_limits_itself_and_gives_up_what_a_daemon_has_granted_until_that_ends() {
        let made = Made::new();
        let mut limits = made.open("roost serve");
        assert_eq!((made.limit().as_str(), made.is_free()), ("2", false));
        assert!(made.said().contains("limits the idle states of its CPUs itself"));

        let listener = listen(&made.config.control);
        limits.look_after(linux::now());
        let (mut daemon, line) = accepted(&listener);
        assert!(
            line.contains("\"cpus\":\"0\"") && line.contains("2000") && line.contains("roost serve"),
            "{line}"
        );
        assert_eq!(made.limit(), "2", "not granted yet");
        daemon.write_all(GRANTED.as_bytes()).unwrap();
        limits.look_after(linux::now());
        assert_eq!((made.limit().as_str(), made.is_free()), ("0", true), "the daemon's to set");
        assert!(limits.states().all(|(.., in_force)| in_force));
        limits.limit(CpuId(0), IdleLimit::None);
        limits.flush(linux::now());
        assert!(next_line(&daemon).contains("\"none\""));

        drop((daemon, listener));
        limits.limit(CpuId(0), IdleLimit::ExitLatency(Duration::from_micros(3)));
        limits.look_after(linux::now());
        assert_eq!((made.limit().as_str(), made.is_free()), ("3", false), "{}", made.said());
        drop(limits);
        assert_eq!(made.limit(), "0");
    }

    #[test]
    fn a_daemon_that_refuses_is_asked_once_and_the_limits_stay() {
        let made = Made::new();
        let listener = listen(&made.config.control);
        let mut limits = made.open("roost serve");
        let (mut daemon, _) = accepted(&listener);
        daemon.write_all(b"{\"denied\":\"use sudo\"}\n").unwrap();
        for _ in 0..3 {
            limits.look_after(linux::now());
        }
        assert_eq!(made.limit(), "2");
        assert!(made.said().contains("use sudo"));
        listener.set_nonblocking(true).unwrap();
        // Its own lock and journal ring: it looks which daemon listens, and asks nothing.
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            assert_eq!(next_line(&stream), "");
        }
        limits.look_after(linux::now());
        assert!(listener.accept().is_err(), "nothing rang");
        drop(limits);
        assert_eq!(made.limit(), "0");
    }

    #[test]
    fn cpus_of_another_store_are_asked_for_again_and_a_bench_is_named() {
        let made = Made::new();
        let first = made.open("first");
        let mut second = made.open("second");
        assert!(made.said().contains("first (process") && made.limit() == "2");
        drop(first);
        second.look_after(second.due().unwrap_or(linux::now()));
        assert_eq!((made.limit().as_str(), made.is_free()), ("2", false), "{}", made.said());
        drop(second);
        let cpus: CpuList = "0".parse().unwrap();
        let _bench = IdleControl::open(&made.config.root, &cpus, IdleOptions::new("roost bench")).unwrap();
        let refused = Limits::open(&made.config, IdleActuator::PmQos, &cpus, "third".to_owned());
        assert!(refused.err().unwrap().to_string().contains("roost bench"));
    }
}
