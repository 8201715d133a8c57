//! The times when any thread of one service runs, on any CPU, and when any task runs at all: the
//! time in which a whole service, or a whole machine, is idle, from every switch of the scheduler.
//!
//! Invariants:
//! - An idle period of a service counts when it has ended, with its length; in it no thread of the
//!   service had a CPU.
//! - Nothing is known of a CPU before its first switch: begin a second before the measurement.

use super::{Attachment, BpfError, Fields, Running, run};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use machine::{Duration, Instant, LengthHistogram};
use std::io;
use std::mem::size_of;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The tasks whose activity is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// All threads of one process, by its number in the first pid namespace.
    Process(u32),
    /// All tasks in one cgroup of version 2, without those in groups below it.
    Cgroup(u64),
}

impl Whose {
    /// The cgroup at `folder` below a mount of version 2: its number is that of the folder.
    pub fn cgroup(folder: &Path) -> io::Result<Self> {
        let about = std::fs::metadata(folder)?;
        if !folder.join("cgroup.procs").exists() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no cgroup of version 2"));
        }
        Ok(Self::Cgroup(about.ino()))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleSpans {
    /// All periods that have ended, by length.
    pub lengths: LengthHistogram,
    /// Of those, the long ones.
    pub long_count: u64,
    pub long: Duration,
}

impl IdleSpans {
    /// The growth since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            lengths: self.lengths.since(&earlier.lengths),
            long_count: self.long_count.saturating_sub(earlier.long_count),
            long: self.long - earlier.long,
        }
    }
}

/// The counts since the program was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    pub at: Instant,
    /// No thread of the service ran.
    pub service: IdleSpans,
    /// No task ran.
    pub machine: IdleSpans,
    /// The time that CPUs ran any task, all CPUs together.
    pub busy: Duration,
}

impl Activity {
    /// The growth since `earlier`, a reading of the same program.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            at: self.at,
            service: self.service.since(&earlier.service),
            machine: self.machine.since(&earlier.machine),
            busy: self.busy - earlier.busy,
        }
    }
}

#[derive(Debug)]
pub struct ActivityProgram {
    running: Running,
    whole: MapHandle,
}

const OBJECT: &[u8] = include_bytes!("activity.bpf.o");
const SPAN_BYTES: usize = (2 * LengthHistogram::BUCKETS + 4) * size_of::<u64>();

impl ActivityProgram {
    /// Starts to watch; idle periods of at least `long` are added up.
    pub fn load(whose: Whose, long: Duration) -> Result<Self, BpfError> {
        let (cgroup, process) = match whose {
            Whose::Process(process) => (0, process),
            Whose::Cgroup(number) => (number, 0),
        };
        let mut config = Vec::new();
        config.extend(cgroup.to_ne_bytes());
        config.extend(process.to_ne_bytes());
        config.extend(0_u32.to_ne_bytes());
        config.extend(long.as_nanos().to_ne_bytes());
        let prepare = |open: &mut libbpf_rs::OpenObject| super::configure(open, &config);
        let running = run("activity", OBJECT, &[], prepare, &Attachment::Own)?;
        let whole = running.map("whole").expect("the program has this map");
        Ok(Self { running, whole })
    }

    /// The counts since it was loaded.
    pub fn read(&self) -> Activity {
        let at = crate::now();
        let bytes = self.whole.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
        let spans = |bytes: Option<&[u8]>| bytes.map_or_else(IdleSpans::default, spans);
        let busy = self.running.read().map(|(_, bytes)| busy(&bytes, at)).sum();
        Activity {
            at,
            service: spans(bytes.get(..SPAN_BYTES)),
            machine: spans(bytes.get(SPAN_BYTES..2 * SPAN_BYTES)),
            busy,
        }
    }
}

/// The kernel's `struct idle`.
fn spans(bytes: &[u8]) -> IdleSpans {
    let mut fields = Fields(bytes);
    let mut lengths = LengthHistogram::default();
    lengths.counts.iter_mut().for_each(|count| *count = fields.u64());
    lengths.times.iter_mut().for_each(|time| *time = Duration::from_nanos(fields.u64()));
    let (_running, _left) = (fields.u64(), fields.u64());
    IdleSpans { lengths, long_count: fields.u64(), long: Duration::from_nanos(fields.u64()) }
}

/// The kernel's `struct cpu`.
fn busy(bytes: &[u8], at: Instant) -> Duration {
    let mut fields = Fields(bytes);
    let (_, is_busy, since) = (fields.u64(), fields.u64(), fields.u64());
    let ended = Duration::from_nanos(fields.u64());
    if is_busy == 0 { ended } else { ended + at.since(Instant::from_nanos(since)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndsWithParent as _;
    use std::io::{BufRead as _, BufReader, Write as _};

    #[test]
    fn a_process_that_sleeps_twenty_times_is_idle_twenty_times() {
        let long = Duration::from_millis(20);
        // Sleeps of 30 ms, and of 2 ms, by turns. It reports how many took it 20 ms: on a busy
        // machine a woken thread waits for a CPU. Its beginning and its end, which may wait as
        // long, are left out: it is watched between two lines that it reads.
        let script = "
import time
print('ready', flush=True)
input()
long = 0
last = time.monotonic()
for sleep in [0.03, 0.002] * 20:
    time.sleep(sleep)
    now = time.monotonic()
    long += now - last >= 0.02
    last = now
print(long, flush=True)
input()
";
        let mut child = std::process::Command::new("python3")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .ends_with_parent()
            .spawn()
            .unwrap();
        let program = match ActivityProgram::load(Whose::Process(child.id()), long) {
            Ok(program) => program,
            Err(error) if error.is_lack() => {
                let _ = child.kill();
                let _ = child.wait();
                return println!("SKIPPED: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let mut asks = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(answers.next().unwrap().unwrap(), "ready");
        let before = program.read();
        asks.write_all(b"\n").unwrap();
        let told: u64 = answers.next().unwrap().unwrap().parse().unwrap();
        let seen = program.read().since(&before);
        asks.write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
        // Its wait for the line may have been long, and so may be that of its answer for a CPU.
        assert!((20..=told + 2).contains(&seen.service.long_count), "{told}: {seen:?}");
        assert!(seen.service.long >= Duration::from_millis(600), "{seen:?}");
        assert!(seen.service.lengths.count() >= 39, "{seen:?}");
        // The machine is idle only while the process is.
        assert!(seen.machine.lengths.time() <= seen.at.since(before.at), "{seen:?}");
        assert!(!seen.busy.is_zero());
    }

    #[test]
    fn a_folder_that_is_no_cgroup_is_refused() {
        assert!(Whose::cgroup(Path::new("/tmp")).is_err() && Whose::cgroup(Path::new("/nowhere")).is_err());
    }
}
