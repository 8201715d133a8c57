//! The example at work, and the readings of it and of the machine in a block.

use super::{Args, Block};
use crate::exit::{Exit, coded};
use anyhow::{Context as _, Result, bail};
use linux::EndsWithParent as _;
use linux::probes::{AllIdle, BpfError, WaitProgram};
use linux::{CgroupVersion, EnergyMeter, Gaps, Root, UsageMeter};
use machine::{CpuList, Duration, Instant};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// The programs of the example, at work.
pub(super) struct Example {
    server: Child,
    client: Child,
    updater: Child,
    group: PathBuf,
    /// When each fetch began and ended.
    fetches: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Example {
    pub(super) fn start(args: &Args, load: u8, round: u32) -> Result<Self> {
        let group = group()?;
        let (share, seed) = ((f64::from(load) / 100.0).to_string(), (u64::from(round) + 1).to_string());
        let mut words = vec!["updater", "--load", &share, "--seed", &seed];
        words.extend(args.chain.then_some(["--answers", ANSWERS]).into_iter().flatten());
        let mut updater = part(&words)?;
        let joined = fs::write(group.join("cgroup.procs"), updater.id().to_string());
        let said = first_line(&mut updater)?.0;
        let wait = args.wait.to_string();
        let mut words = vec!["server", "--wait", &wait];
        words.extend(args.chain.then_some(["--asks", said.trim()]).into_iter().flatten());
        let mut server = part(&words)?;
        let port = first_line(&mut server)?.0;
        let mut client = part(&["client", "--port", port.trim(), "--compute", &args.compute.to_string()])?;
        let (first, lines) = first_line(&mut client)?;
        let fetches = Arc::new(Mutex::new(Vec::new()));
        let filled = fetches.clone();
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let times = line
                    .split_once(' ')
                    .and_then(|(began, ended)| Some((began.parse().ok()?, ended.parse().ok()?)));
                filled.lock().expect("no thread panics while holding it").extend(times);
            }
        });
        let example = Self { server, client, updater, group, fetches };
        joined.with_context(|| format!("{}: the updater does not join", example.group.display()))?;
        if said.is_empty() || first.is_empty() {
            bail!("the example's programs do not start");
        }
        Ok(example)
    }

    pub(super) fn block(&self, args: &Args, meters: &mut Meters, quiesces: bool) -> Result<Block> {
        let started = linux::now();
        let mut quiescer =
            quiesces.then(|| Quiescer::start(args, self.client.id(), &self.group)).transpose()?;
        // The trial of freezing lies before the block.
        match &mut quiescer {
            Some(quiescer) => quiescer.settles(args)?,
            None => thread::sleep(WARM),
        }
        let began = linux::now();
        let own = quiescer.as_ref().map(|own| own.child.id());
        let before = (meters.read(began), self.work(own)?);
        let told_before = quiescer.as_ref().and_then(Quiescer::told);
        thread::sleep(args.block.into());
        let ended = linux::now();
        let after = (meters.read(ended), self.work(own)?);
        let told_after = quiescer.as_ref().and_then(Quiescer::told);
        if let Some(quiescer) = &mut quiescer {
            quiescer.end()?;
        }
        let seconds = ended.since(began).as_secs_f64();
        let share = |time: Duration| time.as_secs_f64() / seconds;
        let spent = |of: fn(&Work) -> Duration| of(&after.1) - of(&before.1);
        let all = spent(|work| work.updater + work.own + work.rest);
        let busy = after.0.busy.zip(before.0.busy).map(|(after, before)| after - before);
        let joules = after.0.joules.zip(before.0.joules).map(|(after, before)| after - before);
        let fetches = self.fetches.lock().expect("no thread panics while holding it");
        let inside = |since: Instant, until: Instant| {
            fetches
                .iter()
                .copied()
                .filter(|&(from, to)| Instant::from_nanos(from) >= since && Instant::from_nanos(to) <= until)
                .collect::<Vec<(u64, u64)>>()
        };
        let lengths_ms = |fetches: &[(u64, u64)]| -> Vec<f64> {
            fetches.iter().map(|(from, to)| (to - from) as f64 / 1e6).collect()
        };
        let responses = inside(began, ended);
        let span = responses.first().zip(responses.last()).map_or(0, |((from, _), (_, to))| to - from);
        let number = |told: &Option<serde_json::Value>, name: &str| {
            told.as_ref().and_then(|told| told["background"][0][name].as_f64()).unwrap_or(0.0)
        };
        let at_ms = |told: &Option<serde_json::Value>| {
            told.as_ref().and_then(|told| told["at_ms"].as_f64()).unwrap_or(0.0)
        };
        let told_ms = at_ms(&told_after) - at_ms(&told_before);
        let frozen_s = number(&told_after, "frozen_s") - number(&told_before, "frozen_s");
        Ok(Block {
            seconds,
            responses_ms: lengths_ms(&responses),
            span_s: span as f64 / 1e9,
            settled_s: quiesces.then(|| began.since(started).as_secs_f64()),
            until_settled_ms: if quiesces { lengths_ms(&inside(started, began)) } else { Vec::new() },
            why: told_after.as_ref().and_then(|told| told["payoff"]["why"].as_str()).map(str::to_owned),
            all_idle_share: share(after.0.idle.time - before.0.idle.time),
            all_idle_per_s: (after.0.idle.times - before.0.idle.times) as f64 / seconds,
            updater_share: share(spent(|work| work.updater)),
            own_share: share(spent(|work| work.own)),
            others_share: busy.map(|busy| share(busy - all)),
            watts: joules.map(|joules| joules / seconds),
            pays: told_after.as_ref().and_then(|told| told["payoff"]["pays"].as_bool()),
            is_trying: told_after.as_ref().is_some_and(|told| told["payoff"]["is_trying"] == true),
            frozen_share: if told_ms > 0.0 { frozen_s / told_ms * 1e3 } else { 0.0 },
            freezes: (number(&told_after, "freezes") - number(&told_before, "freezes")) as u64,
            cost_us: told_after.and_then(|told| told["cost_us"].as_f64()).unwrap_or(0.0),
        })
    }
}

/// CPU time of the updater's work for each question of the server's.
const ANSWERS: &str = "3ms";
/// Before a block without quiescence, so that the programs are as warm as in the others.
const WARM: std::time::Duration = std::time::Duration::from_secs(2);
/// It says once a second how things stand.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(100);

/// CPU time of the programs, so far.
struct Work {
    updater: Duration,
    own: Duration,
    /// Of client, server, and this program.
    rest: Duration,
}

impl Example {
    fn work(&self, own: Option<u32>) -> Result<Work> {
        let rest = [self.client.id(), self.server.id(), std::process::id()];
        Ok(Work {
            updater: cpu_time(self.updater.id())?,
            own: own.map_or(Ok(Duration::ZERO), cpu_time)?,
            rest: rest.into_iter().map(cpu_time).sum::<Result<_>>()?,
        })
    }
}

/// The counters of the whole machine.
pub(super) struct Meters {
    program: WaitProgram,
    usage: UsageMeter,
    energy: EnergyMeter,
}

struct Metered {
    idle: AllIdle,
    busy: Option<Duration>,
    joules: Option<f64>,
}

impl Meters {
    pub(super) fn open(cpus: &CpuList) -> Result<Self, BpfError> {
        let (root, now) = (Root::system(), linux::now());
        Ok(Self {
            program: WaitProgram::load(cpus, false)?,
            usage: UsageMeter::start(&root, cpus, now),
            energy: EnergyMeter::open(&root, cpus, now),
        })
    }

    pub(super) fn energy(&self) -> String {
        self.energy.source().to_string()
    }

    fn read(&mut self, now: Instant) -> Metered {
        Metered {
            idle: self.program.all_idle(),
            busy: self.usage.read(now).iter().map(|cpu| cpu.busy).sum(),
            joules: self.energy.read(now).map(|energy| energy.used.as_joules()),
        }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server, &mut self.updater] {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir(&self.group);
    }
}

struct Quiescer {
    child: Child,
    _config: tempfile::NamedTempFile,
    last: Arc<Mutex<Option<serde_json::Value>>>,
}

impl Quiescer {
    fn start(args: &Args, client: u32, group: &std::path::Path) -> Result<Self> {
        // It ends by itself if the bench is killed.
        let length = args.settle + args.block + Duration::from_secs(30);
        let config = tempfile::NamedTempFile::new().context("its configuration")?;
        let (share, always) = (args.max_share, args.always);
        let keys = format!("[[quiesce]]\nrealtime = true\nmax_share = {share:?}\nalways = {always}\n");
        fs::write(config.path(), keys).context("its configuration")?;
        let mut child = Command::new(crate::product::roost()?)
            .args(["quiesce", "--json", "--critical", &client.to_string(), "--background"])
            .arg(group)
            .args(["--for", &length.to_string(), "--config"])
            .arg(config.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .context("roost quiesce")?;
        let last = Arc::new(Mutex::new(None));
        let (told, lines) = (last.clone(), child.stdout.take().context("piped")?);
        thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                *told.lock().expect("no thread panics while holding it") = serde_json::from_str(&line).ok();
            }
        });
        Ok(Self { child, _config: config, last })
    }

    fn told(&self) -> Option<serde_json::Value> {
        self.last.lock().expect("no thread panics while holding it").clone()
    }

    /// Until it has found out whether freezing pays; if it is not to, until it has frozen.
    fn settles(&mut self, args: &Args) -> Result<()> {
        let patience = linux::now() + args.settle;
        let is_settled = |told: &serde_json::Value| match args.always {
            true => told["background"][0]["freezes"].as_u64().is_some_and(|freezes| freezes > 0),
            false => told["payoff"]["is_trying"] == false,
        };
        while linux::now() < patience && !self.told().as_ref().is_some_and(is_settled) {
            if self.child.try_wait()?.is_some() {
                return self.end();
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let ended_before = self.child.try_wait()?.is_some();
        if !ended_before {
            kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        }
        let status = self.child.wait()?;
        if ended_before || !status.success() {
            let mut said = String::new();
            if let Some(mut stderr) = self.child.stderr.take() {
                std::io::Read::read_to_string(&mut stderr, &mut said)?;
            }
            bail!("roost quiesce ended by itself ({status}): {said}");
        }
        Ok(())
    }
}

impl Drop for Quiescer {
    fn drop(&mut self) {
        // It ends well on request; its frozen processes go on then.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn part(words: &[&str]) -> Result<Child> {
    Command::new(crate::product::own()?)
        .args(["quiesce-part"])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .ends_with_parent()
        .spawn()
        .with_context(|| format!("starting the {}", words[0]))
}

fn first_line(child: &mut Child) -> Result<(String, BufReader<std::process::ChildStdout>)> {
    let mut lines = BufReader::new(child.stdout.take().context("piped")?);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    Ok((line, lines))
}

/// A cgroup for the updater, which can be frozen.
fn group() -> Result<PathBuf> {
    let root = Root::system();
    let found = linux::cgroups(&root, &mut Gaps::default());
    let place = found.freezer.filter(|_| found.version != CgroupVersion::None);
    let place =
        place.ok_or_else(|| coded(Exit::Unsupported, "no cgroup tree with a freezer is mounted here"))?;
    let folder = PathBuf::from(place.path).join(format!("roost-bench-quiesce-{}", std::process::id()));
    match fs::create_dir(&folder) {
        Err(cause) if cause.kind() != std::io::ErrorKind::AlreadyExists => Err(coded(
            Exit::Unsupported,
            format!("cannot make the cgroup {}: {cause}\nhint: run as root", folder.display()),
        )),
        _ => Ok(folder),
    }
}

/// CPU time of a process's threads, to the nanosecond.
fn cpu_time(process: u32) -> Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{process}/task")).context("it has ended")? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).context("schedstat")?;
    }
    Ok(Duration::from_nanos(nanos))
}
