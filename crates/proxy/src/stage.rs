//! One server's stage: the held requests, and their release. `policy::staging` decides, and
//! `timetable.rs` says when a burst's time has come.
//!
//! Invariants:
//! - Every ticket ends once: withdrawn while it was held, or completed or failed after its release.
//!   Dropping it does the rest.
//! - While a request is held, the timetable knows its latest release.
//! - Everything that the policy is told goes through one call, which records it where a recording
//!   is kept.

use crate::history::Recording;
use crate::timetable::Line;
use machine::{Duration, Instant};
use policy::staging::{Input, Output, Params, Record, Release, StagedId, Stager};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct Stage {
    inner: Mutex<Inner>,
    line: Line,
}

#[derive(Debug)]
struct Inner {
    stager: Stager,
    recording: Option<Recording>,
    held: BTreeMap<StagedId, oneshot::Sender<Release>>,
    next: u64,
    in_service: u64,
    is_draining: bool,
    /// The last bursts, until they are taken.
    bursts: VecDeque<Burst>,
    numbers: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    #[serde(rename = "at_ns")]
    pub at: Instant,
    /// Its number among its server's, from 1.
    pub number: u64,
    pub released: u32,
    /// Of these and others, how many were in service then.
    pub in_service: u32,
    /// How long the first of them had waited.
    #[serde(rename = "longest_ns")]
    pub longest: Duration,
    pub why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Period,
    Deadline,
    /// As many were held as may be.
    Full,
    /// Another server's burst was to come, to which this one gave way.
    Way,
    /// Nothing was to be held any more.
    Drain,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) held: usize,
    pub(crate) in_service: u64,
    pub(crate) bursts: u64,
    pub(crate) record: Record,
    /// How long before its deadline a request goes, with as many in service as just now.
    pub(crate) lead: Option<Duration>,
    pub(crate) due: Option<Instant>,
}

impl Stage {
    /// An empty one. `record` is the folder and the name of a log of everything that the policy is
    /// told.
    pub(crate) fn new(params: Params, record: Option<(&Path, &str)>, line: Line) -> io::Result<Arc<Self>> {
        let stager = Stager::new(params);
        let recording = record.map(|(folder, name)| Recording::begin(folder, name, &stager)).transpose()?;
        let inner = Inner {
            stager,
            recording,
            held: BTreeMap::new(),
            next: 0,
            in_service: 0,
            is_draining: false,
            bursts: VecDeque::new(),
            numbers: 0,
        };
        Ok(Arc::new(Self { inner: Mutex::new(inner), line }))
    }

    /// A place for a request that should be answered by `deadline`.
    pub(crate) fn arrive(self: &Arc<Self>, deadline: Instant) -> Ticket {
        let (tell, told) = oneshot::channel();
        let mut inner = self.inner();
        let id = StagedId(inner.next);
        inner.next += 1;
        inner.held.insert(id, tell);
        let now = linux::now();
        inner.tell(now, Input::Arrival { id, deadline });
        if inner.is_draining {
            inner.tell(now, Input::Drain);
        }
        self.line.tell(inner.stager.coming());
        Ticket { stage: self.clone(), id, told, release: None, is_over: false }
    }

    /// From now on no request is held, and the held ones go.
    pub(crate) fn drain(&self) {
        let mut inner = self.inner();
        inner.is_draining = true;
        inner.tell(linux::now(), Input::Drain);
        self.line.tell(inner.stager.coming());
    }

    /// Its place in the timetable has come.
    pub(crate) fn go(&self, now: Instant) {
        let mut inner = self.inner();
        let is_due = inner.stager.poll_timeout().is_some_and(|due| due <= now);
        inner.tell(now, if is_due { Input::Timeout } else { Input::GiveWay });
        self.line.tell(inner.stager.coming());
    }

    pub(crate) fn look(&self) -> Look {
        let inner = self.inner();
        let in_service = inner.in_service;
        let size = u32::try_from(in_service + inner.stager.held() as u64).unwrap_or(u32::MAX);
        Look {
            held: inner.stager.held(),
            in_service,
            bursts: inner.numbers,
            record: inner.stager.record(),
            lead: inner.stager.lead(size.max(1)),
            due: inner.stager.poll_timeout(),
        }
    }

    /// The bursts since the last call, the oldest of very many left out.
    pub(crate) fn take_bursts(&self) -> VecDeque<Burst> {
        std::mem::take(&mut self.inner().bursts)
    }

    /// The recorded entries are in its files.
    pub(crate) fn flush(&self) -> io::Result<()> {
        match &mut self.inner().recording {
            Some(recording) => recording.flush(),
            None => Ok(()),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn tell(&mut self, now: Instant, input: Input) {
        let before = self.stager.record();
        let output = match &mut self.recording {
            None => policy::log::Recorded::apply(&mut self.stager, now, &input),
            Some(recording) => recording.apply(&mut self.stager, now, &input),
        };
        match input {
            Input::Completed(_) | Input::Failed(_) => self.in_service = self.in_service.saturating_sub(1),
            Input::Withdrawn(id) => drop(self.held.remove(&id)),
            Input::Arrival { .. } | Input::GiveWay | Input::Drain | Input::Timeout => {}
        }
        self.let_go(now, before, output);
    }

    fn let_go(&mut self, now: Instant, before: Record, output: Output) {
        let Some(first) = output.releases.first() else { return };
        let record = self.stager.record();
        let why = [
            (Why::Period, record.by_period - before.by_period),
            (Why::Deadline, record.by_deadline - before.by_deadline),
            (Why::Full, record.by_full - before.by_full),
            (Why::Way, record.by_giving_way - before.by_giving_way),
        ];
        self.numbers += 1;
        let burst = Burst {
            at: now,
            number: self.numbers,
            released: output.releases.len() as u32,
            in_service: first.burst,
            longest: first.released.since(first.arrived),
            why: why.iter().find(|(_, count)| *count > 0).map_or(Why::Drain, |&(why, _)| why),
        };
        if self.bursts.len() >= BURSTS_KEPT {
            self.bursts.pop_front();
        }
        self.bursts.push_back(burst);
        for release in output.releases {
            self.in_service += 1;
            // A dropped ticket withdraws itself first, so there is a receiver to be told.
            let told = self.held.remove(&release.id).is_some_and(|waiting| waiting.send(release).is_ok());
            debug_assert!(told, "a request was released without a waiter");
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ticket {
    stage: Arc<Stage>,
    id: StagedId,
    told: oneshot::Receiver<Release>,
    release: Option<Release>,
    is_over: bool,
}

impl Ticket {
    /// Waits until it goes; returns how long it was held.
    pub(crate) async fn released(&mut self) -> Duration {
        if self.release.is_none() {
            // The stage keeps the other end until it has told.
            self.release = (&mut self.told).await.ok();
        }
        self.release.map_or(Duration::ZERO, |release| linux::now().since(release.arrived))
    }

    /// The answer is whole: the stage learns from it.
    pub(crate) fn completed(mut self) {
        self.end(true);
    }

    fn end(&mut self, is_complete: bool) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        let stage = self.stage.clone();
        let mut inner = stage.inner();
        let release = self.release.or_else(|| self.told.try_recv().ok());
        let input = match release {
            None => Input::Withdrawn(self.id),
            Some(release) if is_complete => Input::Completed(release),
            Some(release) => Input::Failed(release),
        };
        inner.tell(linux::now(), input);
        stage.line.tell(inner.stager.coming());
    }
}

impl Drop for Ticket {
    /// A request without an answer: nothing is learned from it.
    fn drop(&mut self) {
        self.end(false);
    }
}

/// More bursts than these in one reading are not told one by one.
const BURSTS_KEPT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timetable::Timetable;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    fn alone(params: Params, record: Option<(&Path, &str)>) -> Arc<Stage> {
        Stage::new(params, record, Timetable::new(1).line(0)).unwrap()
    }

    fn in_an_hour() -> Instant {
        linux::now() + Duration::from_secs(3600)
    }

    #[test]
    fn a_full_stage_goes_and_completions_are_counted() {
        let stage = alone(Params { max_staged: 2, ..Params::default() }, None);
        run(async {
            let mut first = stage.arrive(in_an_hour());
            assert_eq!((stage.look().held, stage.look().in_service), (1, 0));
            let mut second = stage.arrive(in_an_hour());
            first.released().await;
            second.released().await;
            assert_eq!((stage.look().held, stage.look().in_service), (0, 2));
            first.completed();
            drop(second);
            let look = stage.look();
            assert_eq!((look.in_service, look.record.in_time, look.record.by_full), (0, 1, 1));
            let bursts = stage.take_bursts();
            assert_eq!((bursts.len(), bursts[0].released, bursts[0].why), (1, 2, Why::Full));
        });
    }

    #[test]
    fn who_leaves_is_forgotten_whenever_it_is() {
        let stage = alone(Params { max_staged: 3, ..Params::default() }, None);
        drop(stage.arrive(in_an_hour()));
        assert_eq!((stage.look().held, stage.look().record.withdrawn), (0, 1));
        let tickets = [stage.arrive(in_an_hour()), stage.arrive(in_an_hour()), stage.arrive(in_an_hour())];
        assert_eq!(stage.look().in_service, 3);
        // Released, and gone before they could look.
        drop(tickets);
        assert_eq!((stage.look().in_service, stage.look().held, stage.look().record.in_time), (0, 0, 0));
    }

    #[test]
    fn a_drained_stage_holds_nobody() {
        let stage = alone(Params::default(), None);
        run(async {
            let mut held = stage.arrive(in_an_hour());
            stage.drain();
            held.released().await;
            stage.arrive(in_an_hour()).released().await;
            assert_eq!(stage.look().record.by_drain, 2);
        });
    }

    #[test]
    fn a_recording_replays() {
        let folder = tempfile::tempdir().unwrap();
        let stage = alone(Params { max_staged: 3, ..Params::default() }, Some((folder.path(), "one")));
        for round in 0..50 {
            let tickets: Vec<Ticket> = (0..4).map(|_| stage.arrive(in_an_hour())).collect();
            for (number, mut ticket) in tickets.into_iter().enumerate().take(3) {
                ticket.release = ticket.told.try_recv().ok();
                if (round + number) % 3 > 0 {
                    ticket.completed();
                }
            }
        }
        stage.flush().unwrap();
        let text = std::fs::read_to_string(folder.path().join("stage-one.000000.jsonl")).unwrap();
        let replayed = policy::log::replay::<Stager>(&text).unwrap();
        assert!(replayed.steps > 300);
        assert_eq!(replayed.state, stage.inner().stager);
    }
}
