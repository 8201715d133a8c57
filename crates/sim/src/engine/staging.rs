//! Bursts: requests wait before the server and go in together, so that its cores sleep together
//! between two bursts (the CPU sleeps paper, section 3). The stage stands in front of the machine,
//! as the paper's proxy did on another one; its own energy is not counted.

use super::event_queue::NEVER;
use super::task::Task;
use super::{Engine, Later, Setup};
use machine::{Duration, Instant};
use policy::staging::{Params, Release, StagedId, Stager, Verdict};
use std::collections::{BTreeMap, VecDeque};

/// The stage and its requests.
pub(super) struct Stage {
    stager: Stager,
    goal: Duration,
    /// The requests that are held, by the stage's number.
    held: BTreeMap<u64, Task>,
    /// The requests that were released and are being served, by arrival; of equal ones any.
    served: BTreeMap<u64, VecDeque<Release>>,
    next: u64,
    timer_ns: u64,
}

impl Stage {
    pub fn new(setup: &Setup) -> Option<Self> {
        let (params, goal): (Params, Duration) = setup.policies.staging(setup)?;
        Some(Self {
            stager: Stager::new(params),
            goal,
            held: BTreeMap::new(),
            served: BTreeMap::new(),
            next: 0,
            timer_ns: NEVER,
        })
    }
}

impl Engine {
    /// A request comes to the stage.
    pub(super) fn stage(&mut self, task: Task) {
        let now = Instant::from_nanos(self.now);
        let Some(stage) = &mut self.staging else { return };
        let id = stage.next;
        stage.next += 1;
        stage.held.insert(id, task);
        let deadline = Instant::from_nanos(task.arrived_ns) + stage.goal;
        match stage.stager.handle_arrival(now, StagedId(id), deadline) {
            Verdict::Hold => self.stage_timer_again(),
            Verdict::ReleaseNow => self.release(),
        }
    }

    pub(super) fn stage_timer(&mut self) {
        let now = Instant::from_nanos(self.now);
        let Some(stage) = &mut self.staging else { return };
        if self.now >= stage.timer_ns {
            stage.timer_ns = NEVER;
        }
        stage.stager.handle_timeout(now);
        self.release();
    }

    /// Lets in the requests that the stage lets go.
    fn release(&mut self) {
        while let Some(stage) = &mut self.staging
            && let Some(release) = stage.stager.poll_release()
        {
            let Some(task) = stage.held.remove(&release.id.0) else { continue };
            stage.served.entry(task.arrived_ns).or_default().push_back(release);
            self.admit(task);
        }
        self.stage_timer_again();
    }

    fn stage_timer_again(&mut self) {
        let Some(stage) = &mut self.staging else { return };
        if let Some(due) = stage.stager.poll_timeout() {
            let due = due.as_nanos().max(self.now + 1);
            if due < stage.timer_ns {
                stage.timer_ns = due;
                self.events.add(due, Later::Staging);
            }
        }
    }

    /// A request that was on the stage is answered.
    pub(super) fn staged_served(&mut self, arrived_ns: u64) {
        let now = Instant::from_nanos(self.now);
        let Some(stage) = &mut self.staging else { return };
        let Some(releases) = stage.served.get_mut(&arrived_ns) else { return };
        let release = releases.pop_front();
        if releases.is_empty() {
            stage.served.remove(&arrived_ns);
        }
        if let Some(release) = release {
            stage.stager.handle_completed(now, &release);
        }
        self.release();
    }
}
