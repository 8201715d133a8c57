//! Policies as the server drives them, with every input and output recorded when `--record` asks
//! for it.
//!
//! Each instance writes a log of its own from the one thread that drives it, so its order is the
//! order of its inputs. The log is a ring of bounded segments, `worker-0.000042.jsonl` and so on;
//! each begins with the policy's state, so the oldest can go without making the others unreadable.
//! The meaning of a segment is `policy::log`'s business.
//!
//! Not recording costs one comparison per turn.

use crate::config::{Config, Log};
use linux::{RotatingLog, SegmentBounds};
use machine::{Command, ConnId, Duration, Instant, Reading, WorkerId, WorkerReading};
use policy::joint::Answered;
use policy::log::{Recorded, SchedulingInput, WorkerInput, WorkerOutput, state_line, step_line};
use policy::peafowl::{Answer, ConnectionLoad, Departure, LearnedLimit, Order, Sample, Transfer, Verdict};
use policy::{Guidance, Movable, Moved, Placement, Scheduling};
use std::collections::VecDeque;
use std::path::Path;

pub(crate) struct RecordedWorker {
    policy: policy::peafowl::Worker,
    log: Option<Recording>,
}

impl RecordedWorker {
    pub(crate) fn new(policy: policy::peafowl::Worker, config: &Config) -> std::io::Result<Self> {
        let log = Recording::begin(config.record.as_deref(), &config.log, &policy.id().to_string(), &policy)?;
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

    #[inline]
    pub(crate) fn handle_served(
        &mut self,
        now: Instant,
        slot: u32,
        requests: u32,
        busy: Duration,
    ) -> Verdict {
        if self.log.is_none() {
            return self.policy.handle_served(now, slot, requests, busy);
        }
        match self.tell(now, WorkerInput::Served { slot, requests, busy }) {
            WorkerOutput::Verdict(verdict) => verdict,
            other => unreachable!("requests served answered {other:?}"),
        }
    }

    pub(crate) fn watches_backlog(&self, waiting: u32) -> bool {
        self.policy.watches_backlog(waiting)
    }

    pub(crate) fn handle_backlog(&mut self, now: Instant, waiting: u32) {
        self.tell(now, WorkerInput::Backlog { waiting });
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

pub(crate) struct RecordedScheduler {
    policy: Scheduling,
    log: Option<Recording>,
    commands: VecDeque<Command>,
}

impl RecordedScheduler {
    pub(crate) fn new(policy: Scheduling, config: &Config) -> std::io::Result<Self> {
        let log = Recording::begin(config.record.as_deref(), &config.log, "scheduler", &policy)?;
        Ok(Self { policy, log, commands: VecDeque::new() })
    }

    pub(crate) fn handle_reading(&mut self, now: Instant, reading: Reading) -> Guidance {
        self.tell(now, SchedulingInput::Reading(reading)).1.unwrap_or_default()
    }

    pub(crate) fn handle_answered(&mut self, now: Instant, answered: Answered) {
        self.tell(now, SchedulingInput::Answered(answered));
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
    log: &mut Option<Recording>,
    now: Instant,
    input: &P::Input,
) -> P::Output {
    let output = policy.apply(now, input);
    if let Some(Recording { segments, operator }) = log {
        let written = segments.write(&step_line::<P>(now, input, &output));
        let turned = written
            .and_then(|()| if segments.is_full() { segments.rotate(&state_line(policy)) } else { Ok(()) });
        if let Err(error) = turned {
            operator.say(&format!("recording ends here: {}: {error}", segments.folder().display()));
            *log = None;
        }
    }
    output
}

/// The log of one instance, and the receiver of its end.
struct Recording {
    segments: RotatingLog,
    operator: Log,
}

impl Recording {
    /// `None` if nothing is to be recorded.
    fn begin<P: Recorded>(
        folder: Option<&Path>,
        operator: &Log,
        instance: &str,
        policy: &P,
    ) -> std::io::Result<Option<Self>> {
        let Some(folder) = folder else { return Ok(None) };
        let segments =
            RotatingLog::begin(folder, instance, BOUNDS, &state_line(policy)).map_err(|cause| {
                std::io::Error::new(cause.kind(), format!("--record {}: {cause}", folder.display()))
            })?;
        Ok(Some(Self { segments, operator: operator.clone() }))
    }
}

/// 128 MiB for each instance.
const BOUNDS: SegmentBounds = SegmentBounds { size: 16 << 20, kept: 8 };

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;
    use policy::log::replay;

    #[test]
    fn each_segment_replays_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let policy = policy::peafowl::Worker::new(policy::peafowl::Params::default(), WorkerId(0), None);
        let log = Log::new(|line| panic!("{line}"));
        let recording = Recording::begin(Some(folder.path()), &log, "worker-0", &policy).unwrap();
        let mut worker = RecordedWorker { policy, log: recording };
        let at = |n: u64| Instant::ZERO + Duration::from_micros(n);
        worker.handle_arrival(at(0), 0, ConnId(0), WorkerId(0), ConnectionLoad::new(at(0)));
        let second = folder.path().join("worker-0.000002.jsonl");
        let mut n = 0;
        while !second.exists() {
            n += 1;
            worker.handle_served(at(n), 0, 1, Duration::ZERO);
        }
        drop(worker);
        let whole = folder.path().join("worker-0.000001.jsonl");
        replay::<policy::peafowl::Worker>(&std::fs::read_to_string(whole).unwrap()).unwrap();
    }
}
