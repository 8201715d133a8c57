//! Policies as the server drives them, with every input and output recorded when `--record` asks for it.
//!
//! Each instance writes a log of its own from the one thread that drives it, so its order is the order of its inputs.
//! The log is a ring of bounded segments, `worker-0.000042.jsonl` and so on; each begins with the policy's state, so the
//! oldest can go without making the others unreadable. What a segment means is `policy::log`'s business.
//!
//! Not recording costs one comparison per turn.

use crate::config::{Config, Log};
use machine::{Command, ConnId, Instant, Reading, WorkerId, WorkerReading};
use policy::log::{Recorded, SchedulingInput, WorkerInput, WorkerOutput, state_line, step_line};
use policy::peafowl::{Answer, ConnectionLoad, Departure, LearnedLimit, Order, Sample, Transfer, Verdict};
use policy::{Guidance, Movable, Moved, Placement, Scheduling};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A segment is closed at this size, bytes.
const SEGMENT_SIZE: usize = 16 << 20;

/// Segments kept per instance; the oldest goes when another begins.
const SEGMENTS_KEPT: u64 = 8;

/// A worker's policy.
pub(crate) struct RecordedWorker {
    policy: policy::peafowl::Worker,
    log: Option<Segments>,
}

impl RecordedWorker {
    pub(crate) fn new(policy: policy::peafowl::Worker, config: &Config) -> std::io::Result<Self> {
        let log = Segments::begin(config.record.as_deref(), &config.log, policy.id().to_string(), &policy)?;
        Ok(Self { policy, log })
    }

    pub(crate) fn handle_arrival(
        &mut self,
        now: Instant,
        slot: u32,
        conn: ConnId,
        home: WorkerId,
        load: ConnectionLoad,
    ) {
        self.tell(now, WorkerInput::Arrival { slot, conn, home, load });
    }

    pub(crate) fn handle_departure(&mut self, now: Instant, slot: u32, sent: bool) -> Departure {
        match self.tell(now, WorkerInput::Departure { slot, sent }) {
            WorkerOutput::Departure(departure) => departure,
            other => unreachable!("a departure answered {other:?}"),
        }
    }

    /// The request path.
    #[inline]
    pub(crate) fn handle_served(&mut self, now: Instant, slot: u32, requests: u32) -> Verdict {
        if self.log.is_none() {
            return self.policy.handle_served(now, slot, requests);
        }
        match self.tell(now, WorkerInput::Served { slot, requests }) {
            WorkerOutput::Verdict(verdict) => verdict,
            other => unreachable!("requests served answered {other:?}"),
        }
    }

    pub(crate) fn handle_order(&mut self, now: Instant, order: Order) -> Answer {
        match self.tell(now, WorkerInput::Order(order)) {
            WorkerOutput::Answer(answer) => answer,
            other => unreachable!("an order answered {other:?}"),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.policy.poll_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.tell(now, WorkerInput::Timeout);
    }

    pub(crate) fn poll_transfer(&mut self, now: Instant) -> Option<Transfer> {
        match self.tell(now, WorkerInput::Transfer) {
            WorkerOutput::Transfer(transfer) => transfer,
            other => unreachable!("asking for a transfer answered {other:?}"),
        }
    }

    pub(crate) fn handle_report(&mut self, now: Instant, sample: Sample) -> (WorkerReading, Option<Movable>) {
        match self.tell(now, WorkerInput::Report(sample)) {
            WorkerOutput::Report { reading, movable } => (reading, movable),
            other => unreachable!("a report answered {other:?}"),
        }
    }

    pub(crate) fn learned(&self) -> &LearnedLimit {
        self.policy.learned()
    }

    fn tell(&mut self, now: Instant, input: WorkerInput) -> WorkerOutput {
        tell(&mut self.policy, &mut self.log, now, &input)
    }
}

/// The scheduler's policy.
pub(crate) struct RecordedScheduler {
    policy: Scheduling,
    log: Option<Segments>,
    commands: VecDeque<Command>,
}

impl RecordedScheduler {
    pub(crate) fn new(policy: Scheduling, config: &Config) -> std::io::Result<Self> {
        let log = Segments::begin(config.record.as_deref(), &config.log, "scheduler".to_owned(), &policy)?;
        Ok(Self { policy, log, commands: VecDeque::new() })
    }

    /// What all workers shall know from now on.
    pub(crate) fn handle_reading(&mut self, now: Instant, reading: Reading) -> Guidance {
        self.tell(now, SchedulingInput::Reading(reading)).1.unwrap_or_default()
    }

    pub(crate) fn handle_movable(&mut self, now: Instant, worker: WorkerId, movable: Option<Movable>) {
        self.tell(now, SchedulingInput::Movable { worker, movable });
    }

    pub(crate) fn handle_moved(&mut self, now: Instant, moved: Moved) {
        self.tell(now, SchedulingInput::Moved(moved));
    }

    pub(crate) fn handle_refused(&mut self, now: Instant, worker: WorkerId) {
        self.tell(now, SchedulingInput::Refused(worker));
    }

    pub(crate) fn handle_released(&mut self, now: Instant, worker: WorkerId) {
        self.tell(now, SchedulingInput::Released(worker));
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.tell(now, SchedulingInput::Timeout);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.policy.poll_timeout()
    }

    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    pub(crate) fn place(&mut self, now: Instant) -> Placement {
        self.tell(now, SchedulingInput::Place).0.expect("a policy places every connection")
    }

    fn tell(&mut self, now: Instant, input: SchedulingInput) -> (Option<Placement>, Option<Guidance>) {
        let output = tell(&mut self.policy, &mut self.log, now, &input);
        self.commands.extend(output.commands);
        (output.placement, output.guidance)
    }
}

fn tell<P: Recorded>(
    policy: &mut P,
    log: &mut Option<Segments>,
    now: Instant,
    input: &P::Input,
) -> P::Output {
    let output = policy.apply(now, input);
    if let Some(segments) = log {
        let written = segments.write(&step_line::<P>(now, input, &output));
        let turned = written.and_then(|()| if segments.is_full() { segments.turn(policy) } else { Ok(()) });
        if let Err(error) = turned {
            segments.operator.say(&format!("recording ends here: {}: {error}", segments.folder.display()));
            *log = None;
        }
    }
    output
}

/// The log of one instance.
struct Segments {
    folder: PathBuf,
    operator: Log,
    instance: String,
    number: u64,
    file: BufWriter<File>,
    size: usize,
}

impl Segments {
    /// `None` if nothing is to be recorded.
    fn begin<P: Recorded>(
        folder: Option<&Path>,
        operator: &Log,
        instance: String,
        policy: &P,
    ) -> std::io::Result<Option<Self>> {
        let Some(folder) = folder else { return Ok(None) };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let file = Self::open(folder, &instance, 0)?;
        let operator = operator.clone();
        let mut segments = Self { folder: folder.to_owned(), operator, instance, number: 0, file, size: 0 };
        segments.write(&state_line(policy))?;
        Ok(Some(segments))
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        self.size += line.len() + 1;
        writeln!(self.file, "{line}")
    }

    fn is_full(&self) -> bool {
        self.size >= SEGMENT_SIZE
    }

    /// Closes the segment and begins the next.
    fn turn<P: Recorded>(&mut self, policy: &P) -> std::io::Result<()> {
        self.file.flush()?;
        self.number += 1;
        self.file = Self::open(&self.folder, &self.instance, self.number)?;
        self.size = 0;
        if let Some(oldest) = self.number.checked_sub(SEGMENTS_KEPT) {
            let _ = fs::remove_file(Self::path(&self.folder, &self.instance, oldest));
        }
        self.write(&state_line(policy))
    }

    fn open(folder: &Path, instance: &str, number: u64) -> std::io::Result<BufWriter<File>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        Ok(BufWriter::with_capacity(1 << 20, options.open(Self::path(folder, instance, number))?))
    }

    fn path(folder: &Path, instance: &str, number: u64) -> PathBuf {
        folder.join(format!("{instance}.{number:06}.jsonl"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;
    use policy::log::replay;

    #[test]
    fn segments_are_bounded_and_each_replays_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let policy = policy::peafowl::Worker::new(policy::peafowl::Params::default(), WorkerId(0), None);
        let log = Log::new(|line| panic!("{line}"));
        let segments = Segments::begin(Some(folder.path()), &log, "worker-0".to_owned(), &policy).unwrap();
        let mut worker = RecordedWorker { policy, log: segments };
        let at = |n: u64| Instant::ZERO + Duration::from_micros(n);
        worker.handle_arrival(at(0), 0, ConnId(0), WorkerId(0), ConnectionLoad::new(at(0)));
        let mut n = 0;
        while worker.log.as_ref().unwrap().number < SEGMENTS_KEPT + 2 {
            n += 1;
            worker.handle_served(at(n), 0, 1);
        }
        drop(worker);
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert_eq!(names.len() as u64, SEGMENTS_KEPT, "the oldest are gone");
        let text = fs::read_to_string(&names[3]).unwrap();
        assert!(text.len() < SEGMENT_SIZE + 4096);
        replay::<policy::peafowl::Worker>(&text).unwrap();
    }
}
