//! The policy, and the log of all that it is told: replayed, it must command the same
//! (`policy::log`).

use super::QuiesceError;
use linux::{RotatingLog, SegmentBounds};
use machine::{Duration, Instant};
use policy::log::{Recorded as _, state_line, step_line};
use policy::quiescence::{
    Event, GroupId, Outlook, Quiescence, QuiescenceCommand, QuiescenceInput, Record, TaskId, Verdict,
};
use std::io;
use std::path::Path;

#[derive(Debug)]
pub(super) struct Decider {
    policy: Quiescence,
    recording: Option<RotatingLog>,
    notice: Option<String>,
}

/// A step takes about 150 bytes: of 64 MiB, some 400000 events.
const BOUNDS: SegmentBounds = SegmentBounds { size: 16 << 20, kept: 4 };
const INSTANCE: &str = "quiesce";

impl Decider {
    /// With a log in this folder, if one is named.
    pub(super) fn new(policy: Quiescence, folder: Option<&Path>) -> Result<Self, QuiesceError> {
        let begin = |folder: &Path| {
            let begun = if folder.join(format!("{INSTANCE}.000000.jsonl")).exists() {
                // Their segments would be mixed.
                Err(io::Error::new(io::ErrorKind::AlreadyExists, "it has a recording already"))
            } else {
                RotatingLog::begin(folder, INSTANCE, BOUNDS, &state_line(&policy))
            };
            begun.map_err(|cause| QuiesceError::Record { folder: folder.to_owned(), cause })
        };
        let recording = folder.map(begin).transpose()?;
        Ok(Self { policy, recording, notice: None })
    }

    fn tell(&mut self, now: Instant, input: QuiescenceInput) -> Vec<QuiescenceCommand> {
        let commands = self.policy.apply(now, &input);
        let Some(recording) = &mut self.recording else { return commands };
        if input == QuiescenceInput::Poll && commands.is_empty() {
            return commands;
        }
        let written = recording.write(&step_line::<Quiescence>(now, &input, &commands));
        let written = written.and_then(|()| {
            if recording.is_full() { recording.rotate(&state_line(&self.policy)) } else { Ok(()) }
        });
        if let Err(error) = written {
            self.notice = Some(format!("the recording ends here: {error}"));
            self.recording = None;
        }
        commands
    }

    pub(super) fn handle_event(&mut self, now: Instant, event: &Event) {
        self.tell(now, QuiescenceInput::Event(*event));
    }

    pub(super) fn handle_idle(&mut self, now: Instant, idle: Duration) {
        self.tell(now, QuiescenceInput::Idle(idle));
    }

    pub(super) fn handle_cost(&mut self, now: Instant, cost: Duration) {
        self.tell(now, QuiescenceInput::Cost(cost));
    }

    pub(super) fn leave_alone(&mut self, now: Instant, group: GroupId) {
        self.tell(now, QuiescenceInput::LeaveAlone(group));
    }

    pub(super) fn handle_lost(&mut self, now: Instant) {
        self.tell(now, QuiescenceInput::Lost);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.policy.poll_timeout().is_some_and(|due| due <= now) {
            self.tell(now, QuiescenceInput::Timeout);
        }
    }

    pub(super) fn handle_stop(&mut self, now: Instant) {
        self.tell(now, QuiescenceInput::Stop);
    }

    pub(super) fn commands(&mut self, now: Instant) -> Vec<QuiescenceCommand> {
        self.tell(now, QuiescenceInput::Poll)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.policy.poll_timeout()
    }

    pub(super) fn is_critical(&self, task: TaskId) -> bool {
        self.policy.is_critical(task)
    }

    pub(super) fn outlook(&self, now: Instant) -> Outlook {
        self.policy.outlook(now)
    }

    pub(super) fn min_wait(&self) -> Duration {
        self.policy.min_wait()
    }

    pub(super) fn record(&self) -> Record {
        self.policy.record()
    }

    pub(super) fn is_on(&self) -> bool {
        self.policy.is_on()
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.policy.verdict()
    }

    /// The record is in its files. Returns the notices about it since the last call.
    pub(super) fn flush(&mut self) -> Option<String> {
        if let Some(Err(error)) = self.recording.as_mut().map(RotatingLog::flush) {
            self.notice = Some(format!("the recording ends here: {error}"));
            self.recording = None;
        }
        self.notice.take()
    }
}
