//! Taking hold: the slot file, its process, its CPUs and their clocks; or why not.

use super::domains::{cores, domains};
use super::tracker::EventTracker;
use super::{FLAPPING, Hurry, HurryError, Stop, Tally};
use crate::audit::Audit;
use crate::clocks::{Clocks, points};
use crate::controllers::cores::unused_name;
use linux::arbiter::{Arbiter, ClockMeans};
use linux::probes::knows_thread_numbers;
use linux::service::Service;
use linux::{NamespacedThreads, Root, RotatingLog, SegmentBounds, ThreadPlaces};
use machine::{CpuId, CpuList, Instant, Kilohertz, Microwatts, OperatingPoint, PointKind};
use observe::functions::{FunctionError, FunctionName, FunctionWatch};
use policy::check::Check as _;
use policy::frequency::hurry_up::{Params, Threshold};
use policy::frequency::{HurryUp, PointTable};
use policy::log::state_line;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use slots::{Enable, Identity, MethodState, Reader, ReaderError};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Debug)]
pub struct HurryOptions {
    pub root: Root,
    pub slots: SlotSource,
    /// Only these of its CPUs.
    pub cpus: Option<CpuList>,
    pub preset: Preset,
    /// When a call is heavy; `None`: as the preset says.
    pub threshold: Option<Threshold>,
    pub clocks: ClocksAsked,
    pub means: ClockMeans,
    /// Through which clocks are asked for.
    pub arbiter: Arbiter,
    /// Touch nothing, also where nothing could be touched.
    pub dry_run: bool,
    pub record: Option<PathBuf>,
    /// Append a line for each change of the threshold, and for each change by another process, to
    /// this file.
    pub audit: Option<PathBuf>,
}

/// Who tells which threads are in the hot function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotSource {
    /// The service itself, by a file.
    File {
        path: PathBuf,
        /// The service, as it is seen here; `None`: the writer of the file.
        process: Option<u32>,
    },
    /// The kernel, by probes on functions of a program that was not changed, for as long as this
    /// goes on.
    Functions {
        /// The service, as it is seen here.
        process: u32,
        names: Vec<FunctionName>,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Ours: by events, the threshold learned, other work followed.
    #[default]
    Learned,
    /// The paper's flowchart, as it was tuned: 450 ms, looked at every 50 ms.
    Paper,
}

/// Clocks; those not named are chosen for this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClocksAsked {
    /// The lowest; else the slowest there is.
    pub min: Option<Kilohertz>,
    /// The middle; else ten thirteenths of the fastest, as in the paper (2.0 of 2.6 GHz).
    pub mid: Option<Kilohertz>,
    /// The highest; else the fastest there is (without turbo).
    pub max: Option<Kilohertz>,
}

/// 64 MiB.
const BOUNDS: SegmentBounds = SegmentBounds { size: 16 << 20, kept: 4 };
/// How the paper's clocks are to each other.
const PAPER_KHZ: [u64; 3] = [1_000_000, 2_000_000, 2_600_000];

impl Hurry {
    /// Takes hold. Nothing is changed yet but the file's wish for exit times.
    pub fn open(options: &HurryOptions) -> Result<Self, HurryError> {
        let HurryOptions { root, means, .. } = options;
        let Source { reader, process, threads, probes } = Source::open(&options.slots)?;
        let mut notices = about(&reader)?;
        let cpus = cpus_of(process, options.cpus.as_ref())?;
        let (table, groups) = match points(root, &cpus, means.actuator) {
            Ok(table) => (table, domains(root, &cpus, means.actuator)?),
            Err(why) if options.dry_run => {
                notices.push(format!(
                    "{}\nhint: a dry run goes on with made-up clocks",
                    why.replace("\nhint:", ";")
                ));
                (made_up(options.clocks)?, cores(root, &cpus))
            }
            Err(why) => return Err(HurryError::NoClocks(why)),
        };
        let params = params(options, &table);
        params.check()?;
        let asker = format!("{} of process {process}", super::SERVICE);
        let clocks = if options.dry_run {
            None
        } else {
            let limits = &options.arbiter.clocks;
            limits.use_means(*means)?;
            limits.hold(&asker, &cpus)?;
            let clocks = Clocks::of(limits);
            clocks.join(&asker, &cpus);
            Some(clocks)
        };
        let (places, refused) = ThreadPlaces::open(process);
        if let Some(why) = refused {
            notices.push(format!(
                "threads are followed by their files in /proc, 3 us for each that is inside and \
                 each look, and idle CPUs cannot be told, so none goes \
                 to the minimum: {why}"
            ));
        }
        let policy = HurryUp::of_service(params, &table, groups);
        let recording =
            options.record.as_deref().map(|folder| record(folder, process, &policy)).transpose()?;
        let audit = options.audit.as_deref().map(|path| {
            Audit::append_to(path).map_err(|cause| HurryError::Output {
                path: path.to_owned(),
                cause,
                key: "audit",
            })
        });
        let audit = audit.transpose()?.unwrap_or_default();
        let bell = reader.bell();
        let kicked = bell.clone();
        let kicks = places.hear_kicks(move || drop(kicked.ring()));
        let kicks = kicks.map_err(|cause| HurryError::Watch { process, cause })?;
        let ended = Arc::new(AtomicBool::new(false));
        let end = watch_end(&threads, ended.clone(), bell.clone())
            .map_err(|cause| HurryError::Watch { process, cause })?;
        // The threshold is learned from the length of calls.
        reader.enable(Enable::OnWithExitTimes)?;
        let now = linux::now();
        Ok(Self {
            process,
            _probes: probes,
            tally: Tally::begin(now, &cpus),
            tracker: EventTracker::new(reader, threads, places, &cpus),
            policy,
            asker,
            clocks,
            actuator: means.actuator,
            recording,
            audit,
            notices,
            stop: Stop { is_asked: Arc::new(AtomicBool::new(false)), bell },
            ended,
            looked: Instant::ZERO,
            fallen: VecDeque::new(),
            repaired: now,
            asked_kicks: false,
            ask_from: now + FLAPPING,
            disturbed: 0,
            _kicks: kicks,
            _end: end,
        })
    }
}

/// Slots, and the process whose threads they are.
struct Source {
    reader: Reader,
    process: u32,
    threads: NamespacedThreads,
    /// They are there for as long as this is.
    probes: Option<FunctionWatch>,
}

impl Source {
    fn open(asked: &SlotSource) -> Result<Self, HurryError> {
        match asked {
            SlotSource::File { path, process } => {
                let reader = Reader::open(path).map_err(|error| match error {
                    ReaderError::Io { source, path } if source.kind() == io::ErrorKind::NotFound => {
                        HurryError::NoSlots { path }
                    }
                    error => error.into(),
                })?;
                let (process, threads) = writer_of(&reader, path, *process)?;
                Ok(Self { reader, process, threads, probes: None })
            }
            SlotSource::Functions { process, names } => {
                let process = *process;
                // Programs in the kernel tell threads by its own numbers, wherever the service
                // lives.
                let threads =
                    NamespacedThreads::by_our_numbers(process).ok_or(HurryError::NoProcess(process))?;
                knows_thread_numbers("functions").map_err(FunctionError::from)?;
                // Real processes run on the machine itself, whatever machine's clocks are written.
                let probes = FunctionWatch::attach(&Root::system(), process, names, false)?;
                Ok(Self { reader: probes.reader()?, process, threads, probes: Some(probes) })
            }
        }
    }
}

/// The notices about the file.
fn about(reader: &Reader) -> Result<Vec<String>, HurryError> {
    let mut notices = Vec::new();
    let ours = env!("CARGO_PKG_VERSION");
    let writer = reader.writer();
    if !writer.split(' ').any(|word| word == ours) {
        notices.push(format!(
            "the slots were written by `{writer}`, and this is Roost {ours}; they understand each \
             other, but were not tested together"
        ));
    }
    for method in reader.methods()? {
        match method.state {
            MethodState::Watched => {}
            MethodState::Waiting => notices.push(format!("{} is not loaded yet", method.name)),
            MethodState::Refused => {
                notices.push(format!(
                    "{} is not watched: the agent found no such method, or several; the service's \
                     standard error says which",
                    method.name
                ));
            }
        }
    }
    let failures = reader.failures()?;
    if failures.no_tid > 0 {
        notices
            .push(format!("{} threads could not tell their numbers and are not followed", failures.no_tid));
    }
    if failures.errors > 0 {
        notices.push(
            "the agent has switched itself off after an error: see the service's standard error".to_owned(),
        );
    }
    Ok(notices)
}

/// The process that writes the file, as it is seen here.
fn writer_of(
    reader: &Reader,
    path: &Path,
    asked: Option<u32>,
) -> Result<(u32, NamespacedThreads), HurryError> {
    let writer = reader.identity();
    let path = path.to_owned();
    let Some(process) = asked else {
        // Its number is that of its own namespace; the time at which it began tells whether that is
        // ours.
        let threads = NamespacedThreads::of(writer.pid).filter(|_| writer.is_alive());
        return threads
            .map(|threads| (writer.pid, threads))
            .ok_or(HurryError::Left { path, writer: writer.pid });
    };
    let threads = NamespacedThreads::of(process).ok_or(HurryError::NoProcess(process))?;
    let here = Identity::own().boot_id;
    let is_writer =
        (writer.pid, writer.started, writer.boot_id) == (threads.inner_process(), threads.began(), here);
    if !is_writer {
        let inner = threads.inner_process();
        let inner = if inner == process {
            String::new()
        } else {
            format!(" (it is {inner} in its own pid namespace)")
        };
        return Err(HurryError::OtherProcess { path, writer: writer.pid, process, inner });
    }
    Ok((process, threads))
}

fn cpus_of(process: u32, asked: Option<&CpuList>) -> Result<CpuList, HurryError> {
    let service = Service { processes: BTreeSet::from([process]), ..Service::default() };
    let allowed = linux::cpus_of(&service)?;
    let Some(asked) = asked else { return Ok(allowed) };
    let left = CpuList(asked.0.intersection(&allowed.0).copied().collect::<BTreeSet<CpuId>>());
    if left.0.is_empty() {
        return Err(HurryError::NoCpu { process, asked: asked.clone(), allowed });
    }
    Ok(left)
}

/// The preset, with this machine's clocks and the named values.
fn params(options: &HurryOptions, table: &PointTable) -> Params {
    let base = match options.preset {
        Preset::Learned => Params::default(),
        Preset::Paper => Params::tuned(),
    };
    let fastest = table.khz(table.fastest());
    let middle = Kilohertz(fastest.0 * PAPER_KHZ[1] / PAPER_KHZ[2]);
    let f_min = options.clocks.min.unwrap_or_else(|| table.khz(table.slowest()));
    let f_max = options.clocks.max.unwrap_or(fastest);
    Params {
        f_min,
        f_mid: options.clocks.mid.unwrap_or_else(|| middle.clamp(f_min.min(f_max), f_max)),
        f_max,
        threshold: options.threshold.unwrap_or(base.threshold),
        ..base
    }
}

/// The clocks that were named, or the paper's, where there are none.
fn made_up(asked: ClocksAsked) -> Result<PointTable, HurryError> {
    let paper = PAPER_KHZ.map(Kilohertz);
    let clocks: BTreeSet<Kilohertz> = [asked.min, asked.mid, asked.max]
        .into_iter()
        .zip(paper)
        .map(|(asked, paper)| asked.unwrap_or(paper))
        .collect();
    let point =
        |frequency| OperatingPoint { frequency, power: Microwatts::from_watts(1.0), kind: PointKind::Pstate };
    let points: Vec<OperatingPoint> = clocks.into_iter().map(point).collect();
    points.try_into().map_err(|error| HurryError::NoClocks(format!("clocks to show: {error}")))
}

fn record(folder: &Path, process: u32, policy: &HurryUp) -> Result<RotatingLog, HurryError> {
    let instance = unused_name(folder, &format!("hurry-up-{process}"));
    RotatingLog::begin(folder, &instance, BOUNDS, &state_line(policy)).map_err(|cause| HurryError::Output {
        path: folder.to_owned(),
        cause,
        key: "record",
    })
}

/// Calls back when the service ends, from a thread that waits for it and for nothing else, until
/// the returned value is dropped.
fn watch_end(threads: &NamespacedThreads, ended: Arc<AtomicBool>, bell: slots::Bell) -> io::Result<OwnedFd> {
    let end = threads.end().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "it has ended, or this kernel cannot tell of its end (Linux 5.3)",
        )
    })?;
    let (let_go, held) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    std::thread::Builder::new().name("end".to_owned()).spawn(move || {
        loop {
            let (end, let_go) = (end.as_fd(), let_go.as_fd());
            let mut both = [PollFd::new(&end, PollFlags::IN), PollFd::new(&let_go, PollFlags::empty())];
            match poll(&mut both, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            if !both[0].revents().is_empty() {
                ended.store(true, Ordering::Release);
                // A file that is cut short ends it as well.
                let _ = bell.ring();
            }
            return;
        }
    })?;
    Ok(held)
}
