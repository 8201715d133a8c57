//! The planner as a child, the CPUs that may not sleep, and the kernel's counts of a CPU's sleep.

use super::Part;
use anyhow::{Context as _, Result, bail};
use daemon::wake::wire::{WakeAnswer, WakeAsk};
use daemon::wake::{Act, Alarm, WakeStatus};
use linux::EndsWithParent as _;
use linux::arbiter::request::{IdleRequest, Request};
use linux::arbiter::{Arbiter, Connection};
use linux::probes::{IdleNow, IdleProgram};
use linux::{LimitState, Root, idle_table};
use machine::{CpuId, CpuList, CstateKind, Duration, IdleLimit, Instant};
use policy::wake_plan::Record;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Serialize, de::DeserializeOwned};
use slots::wake::WakeClient;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub struct Child {
    process: std::process::Child,
    folder: tempfile::TempDir,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Asked,
    /// The kernel reports disks, and no program need announce anything.
    Disks,
}

/// The name of this in `roost wake` and its JSON, such as an [`Act`].
pub fn named<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

/// The name of such a thing.
fn name(named: impl Serialize) -> Result<String> {
    let name = serde_json::to_value(named)?;
    name.as_str().map(str::to_owned).context("its name")
}

impl Child {
    /// Started, calibrated (unless the cost of waking is given), listening.
    pub fn start(
        kind: Kind,
        act: Option<Act>,
        alarm: Option<Alarm>,
        exit_latency: Option<Duration>,
        margin: Option<Duration>,
    ) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder")?;
        let roost = crate::product::roost()?;
        let mut command = Command::new(roost);
        command.arg("wake");
        // The limits are not for the figures that the bars hold it to.
        let mut keys = format!("[wake]\nmax_share = 100.0\ndisks = {}\n", kind == Kind::Disks);
        if let Some(act) = act {
            writeln!(keys, "act = \"{}\"", name(act)?)?;
        }
        if let Some(alarm) = alarm {
            writeln!(keys, "alarm = \"{}\"", name(alarm)?)?;
        }
        for (key, time) in [("exit_latency", exit_latency), ("margin", margin)] {
            if let Some(time) = time {
                writeln!(keys, "{key} = \"{}ns\"", time.as_nanos())?;
            }
        }
        let file = folder.path().join("wake.toml");
        std::fs::write(&file, keys).context("its configuration")?;
        let mut process = command
            .args(["--json", "--config"])
            .arg(file)
            .arg("--socket")
            .arg(socket(&folder))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .context("the planner")?;
        let mut lines = BufReader::new(process.stderr.take().context("piped")?).lines();
        let mut said = String::new();
        for line in lines.by_ref() {
            let line = line?;
            if line.starts_with("listening") {
                // Its later output is read, so that it never waits for us.
                std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
                return Ok(Self { process, folder, kind });
            }
            said += &(line + "\n");
        }
        let _ = process.wait();
        bail!("the planner did not start: {said}");
    }

    fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }

    /// A client with a ring, named after its measurement.
    pub fn client(&self, part: Part) -> Result<WakeClient> {
        Ok(WakeClient::connect(&self.socket(), &format!("bench {part:?}"))?)
    }

    pub fn status(&self) -> Result<WakeStatus> {
        let mut stream = UnixStream::connect(self.socket()).context("the planner's socket")?;
        stream.write_all((serde_json::to_string(&WakeAsk::Planner)? + "\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        match serde_json::from_str(&line)? {
            WakeAnswer::Status(status) => Ok(*status),
            other => bail!("the planner answers {other:?}"),
        }
    }

    /// How its predictions fared: of a disk's reads, or of repeated runs.
    pub fn record(&self) -> Result<Record> {
        let name = match self.kind {
            Kind::Asked => "kernels",
            Kind::Disks => "disk reads",
        };
        let status = self.status()?;
        let found = status.predictors.into_iter().find(|one| one.name == name);
        Ok(found.map(|one| one.record).unwrap_or_default())
    }

    /// Told to end, and waited for.
    pub fn end(&mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.process), Signal::TERM)
            .context("the planner has ended by itself")?;
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the planner failed: {status}");
        }
        Ok(())
    }
}

fn socket(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("roost.sock")
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// CPUs that may not sleep while this lives: asked of the planner, where one runs.
pub enum Always {
    Asked { _until_dropped: Connection },
    Own { _until_dropped: Arbiter },
}

impl Always {
    pub fn hold(cpus: &[CpuId], planner: Option<&Child>) -> Result<Self> {
        let (root, limit) = (Root::system(), IdleLimit::ExitLatency(Duration::ZERO));
        let list = CpuList(cpus.iter().copied().collect());
        let socket = planner.map_or_else(|| linux::run_place(&root).join("roost.sock"), Child::socket);
        if let Ok(mut connection) = Connection::open(&socket) {
            let idle = vec![IdleRequest { cpus: list, limit }];
            connection.ask(Request { asker: NAME.to_owned(), idle, ..Request::default() })?;
            let combined = loop {
                match connection.hear()? {
                    Some(answer) => break answer.map_err(anyhow::Error::msg)?,
                    None => std::thread::sleep(std::time::Duration::from_millis(1)),
                }
            };
            if let Some(refused) = combined.refused.first() {
                bail!("CPU {} cannot be kept awake: {}", refused.cpus, refused.why);
            }
            return Ok(Self::Asked { _until_dropped: connection });
        }
        let arbiter = Arbiter::new(&root, NAME);
        arbiter.idle.hold(NAME, &list)?;
        for &cpu in cpus {
            if let LimitState::Refused { reason } = arbiter.idle.limit(NAME, cpu, limit) {
                bail!("{cpu} cannot be kept awake: {reason}");
            }
        }
        Ok(Self::Own { _until_dropped: arbiter })
    }
}

/// As it is known to others.
const NAME: &str = "roost-bench wake";

/// How long each CPU has halted, by `cpu_idle` events.
pub struct SleepMeter(IdleProgram);

pub type Halted = (Instant, BTreeMap<CpuId, Duration>);

impl SleepMeter {
    pub fn open() -> Result<Self> {
        Ok(Self(IdleProgram::load(false).context("time awake is measured by events of the kernel")?))
    }

    pub fn read(&self) -> Halted {
        let root = Root::system();
        let now = linux::now();
        let halted = self.0.read().into_iter().map(|counts| {
            let table = idle_table(&root, counts.cpu).unwrap_or_default();
            let halts =
                |state: usize| table.0.get(state).is_none_or(|state| state.kind == CstateKind::Halting);
            let ended = counts.idle.iter().enumerate().filter(|(state, _)| halts(*state));
            let mut halted = ended.fold(Duration::ZERO, |sum, (_, lengths)| sum + lengths.time());
            if let IdleNow::Idle(state, since) = counts.now
                && halts(state)
            {
                halted += now.since(since);
            }
            (counts.cpu, halted)
        });
        (now, halted.collect())
    }
}

/// How long `cpu` was awake between two readings; polling is being awake.
pub fn awake(before: &Halted, after: &Halted, cpu: CpuId) -> Duration {
    let halted = |reading: &Halted| reading.1.get(&cpu).copied().unwrap_or_default();
    after.0.since(before.0) - (halted(after) - halted(before))
}
