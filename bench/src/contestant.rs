//! A server as a child process on CPUs of its own, with its figures from the kernel.

use crate::exit::usage;
use crate::rivals::Rival;
use crate::run_folder;
use anyhow::{Context as _, Result, bail};
use linux::EndsWithParent as _;
use loadgen::{Dialect, Target};
use machine::{CpuList, Duration};
use rustix::process::{Pid, Signal, getuid, kill_process};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

/// A child that is told to end, and waited for: it puts back on SIGTERM.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Peer,
    AllAwake,
    Peafowl,
    Rival(Rival),
}

impl Who {
    pub fn name(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::AllAwake => "roost",
            Self::Peafowl => "roost, scheduler",
            Self::Rival(rival) => rival.name(),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The common set-up for starting any of them.
pub struct Stable {
    peer: PathBuf,
    pub ours: PathBuf,
    /// CPUs that servers run on, one worker or thread for each.
    pub cpus: CpuList,
    memory_mib: u64,
    /// Where logs go, and memcached's word of its port.
    folder: PathBuf,
    /// The files of those that are here.
    pub rivals: BTreeMap<Rival, PathBuf>,
}

/// A server that runs. It ends when this is dropped.
pub struct Contestant {
    process: Child,
    target: Target,
    dialect: Dialect,
}

impl Stable {
    /// With this memcached, this program's `roost`, and no rivals.
    pub fn of(peer: &Path, cpus: CpuList, memory_mib: u64, folder: &Path) -> Result<Self> {
        let (peer, ours, folder) = (peer.to_owned(), crate::product::roost()?, folder.to_owned());
        Ok(Self { peer, ours, cpus, memory_mib, folder, rivals: BTreeMap::new() })
    }

    /// Starts a server and waits until it listens.
    pub fn start(&self, who: Who) -> Result<Contestant> {
        self.start_with(who, None)
    }

    /// The same, with TLS where there is an identity.
    pub fn start_with(&self, who: Who, tls: Option<&tls::Identity>) -> Result<Contestant> {
        let log = run_folder::begin(&self.folder, &format!("{}.log", who.name().replace(", ", "-")))?;
        let port_file = self.folder.join("port");
        run_folder::remove(&self.folder, &["port"])?;
        let mut command = match who {
            Who::Peer => self.peer_command(&port_file),
            Who::AllAwake => self.our_command("all-awake"),
            Who::Peafowl => self.our_command("peafowl"),
            Who::Rival(rival) => {
                let port = free_port()?;
                let (binary, threads) = (&self.rivals[&rival], self.cpus.0.len());
                let mut command = rival.command(binary, port, threads, self.memory_mib);
                command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
                let target = Target::Tcp(format!("127.0.0.1:{port}"));
                let mut contestant =
                    Contestant { process: self.spawn(command)?, target, dialect: rival.dialect() };
                contestant.wait_until_it_listens(port).with_context(|| format!("starting {who}"))?;
                return Ok(contestant);
            }
        };
        if let Some(tls::Identity { certificate, key, .. }) = tls {
            if who == Who::Peer {
                let files = format!("ssl_chain_cert={},ssl_key={}", certificate.display(), key.display());
                command.args(["-Z", "-o", &files]);
            } else {
                command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
            }
        }
        let piped = if who == Who::Peer { Stdio::null() } else { Stdio::piped() };
        command.stdin(Stdio::null()).stdout(piped).stderr(log);
        let mut contestant = Contestant {
            process: self.spawn(command)?,
            target: Target::Unix(PathBuf::new()),
            dialect: Dialect::Memcached,
        };
        let port = match contestant.process.stdout.take() {
            Some(stdout) => announced_port(stdout),
            None => filed_port(&port_file, &mut contestant.process),
        };
        run_folder::remove(&self.folder, &["port"])?;
        contestant.target =
            Target::Tcp(format!("127.0.0.1:{}", port.with_context(|| format!("starting {}", who.name()))?));
        Ok(contestant)
    }

    fn peer_command(&self, port_file: &Path) -> Command {
        let mut command = Command::new(&self.peer);
        // Port -1 lets the system choose; memcached then writes its choice into the file named by
        // the environment.
        command.args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-c", "20000"]);
        command.args(["-t", &self.cpus.0.len().to_string(), "-m", &self.memory_mib.to_string()]);
        command.env("MEMCACHED_PORT_FILENAME", port_file);
        if getuid().is_root() {
            command.args(["-u", "root"]);
        }
        command
    }

    /// Idle limits are the bench's business, the same for every contestant, so the store leaves
    /// them alone.
    fn our_command(&self, policy: &str) -> Command {
        let mut command = Command::new(&self.ours);
        command.args([
            "serve",
            "--port",
            "0",
            "--policy",
            policy,
            "--active-idle",
            "stock",
            "--idle-actuator",
            "none",
        ]);
        command.args(["--cpus", &self.cpus.to_string(), "--memory-limit", &format!("{}m", self.memory_mib)]);
        command
    }

    fn spawn(&self, mut command: Command) -> Result<Child> {
        command.starts_on(&self.cpus).ends_with_parent();
        command.spawn().map_err(|cause| usage(format!("cannot start {:?}: {cause}", command.get_program())))
    }
}

impl Contestant {
    fn wait_until_it_listens(&mut self, port: u16) -> Result<()> {
        let asked = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = self.process.try_wait()? {
                bail!("it ended at once ({status}); see its log");
            }
            if asked.elapsed() > START_PATIENCE {
                bail!("it does not listen; see its log");
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    pub fn target(&self) -> Target {
        self.target.clone()
    }

    /// The protocol in which it is loaded.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The TCP port that it listens on.
    pub fn port(&self) -> Option<u16> {
        match &self.target {
            Target::Tcp(place) => place.rsplit(':').next()?.parse().ok(),
            Target::Unix(_) => None,
        }
    }

    /// CPU time of all its threads, in nanoseconds' resolution (`/proc/PID/task/*/schedstat`).
    pub fn cpu_time(&self) -> Result<Duration> {
        cpu_time(self.process.id())
    }

    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// How often its threads went to sleep of their own accord.
    pub fn sleeps(&self) -> Result<u64> {
        of_each_task(self.process.id(), "status", |text| {
            let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            line.trim().parse().ok()
        })
    }

    /// Bytes of it that are in memory.
    pub fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/statm", self.process.id());
        let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let pages: u64 =
            text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).context("resident pages")?;
        Ok(pages * rustix::param::page_size() as u64)
    }
}

/// CPU time of all threads of a process that live.
pub fn cpu_time(process: u32) -> Result<Duration> {
    let nanos = of_each_task(process, "schedstat", |text| text.split(' ').next()?.parse::<u64>().ok())?;
    Ok(Duration::from_nanos(nanos))
}

fn of_each_task(process: u32, file: &str, read: impl Fn(&str) -> Option<u64>) -> Result<u64> {
    let folder = format!("/proc/{process}/task");
    let mut sum = 0;
    for task in fs::read_dir(&folder).with_context(|| format!("reading {folder}"))? {
        let path = task?.path().join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        sum += read(&text).with_context(|| format!("no number in {}", path.display()))?;
    }
    Ok(sum)
}

impl Drop for Contestant {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.process);
        let _ = kill_process(pid, Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < STOP_PATIENCE {
            match self.process.try_wait() {
                Ok(None) => std::thread::sleep(POLL),
                _ => return,
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The port in the line that our store prints when it listens.
fn announced_port(stdout: std::process::ChildStdout) -> Result<u16> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        let _ = sender.send(reader.read_line(&mut line).map(|_| line));
        // Read on, so that the store never writes into a closed pipe.
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
    });
    let line =
        receiver.recv_timeout(START_PATIENCE).context("it did not say that it listens; see its log")??;
    let port =
        line.trim().strip_prefix("listening on ").and_then(|place| place.rsplit(':').next()?.parse().ok());
    port.with_context(|| format!("it printed {line:?} instead of where it listens; see its log"))
}

/// The port that memcached wrote into its file.
fn filed_port(path: &Path, process: &mut Child) -> Result<u16> {
    let asked = Instant::now();
    while asked.elapsed() < START_PATIENCE {
        if let Ok(text) = fs::read_to_string(path) {
            let port = text.lines().find_map(|line| line.strip_prefix("TCP INET:")?.trim().parse().ok());
            return port.with_context(|| format!("no port in {text:?}"));
        }
        if let Some(status) = process.try_wait()? {
            bail!("it ended at once ({status}); see its log");
        }
        std::thread::sleep(POLL);
    }
    bail!("it did not say where it listens; see its log")
}

/// A port that is free now, for servers that cannot say which one the system chose.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("asking for a free port")?;
    Ok(listener.local_addr()?.port())
}

const START_PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// A store that drains its connections may take this long.
const STOP_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
const POLL: std::time::Duration = std::time::Duration::from_millis(5);
