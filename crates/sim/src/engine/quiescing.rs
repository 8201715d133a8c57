//! Holding back work of other programs while the work that the user waits for is waiting itself
//! (the CPU sleeps paper, section 3).
//!
//! Each request that calls the device is an interaction: it begins with its first phase, blocks on
//! the device, and ends with its reply. Deferrable noise is the one background group. Noise that
//! strikes while the group is frozen runs when it thaws, all of it: its work is moved, never saved.

use super::event_queue::NEVER;
use super::interrupts::Interrupt;
use super::{Engine, Later, Setup};
use machine::Instant;
use policy::quiescence::{
    Event, GroupId, InteractionId, Quiescence, QuiescenceCommand, Role, Task, TaskId, Wait,
};

/// The policy, and the work that is held back.
pub(super) struct Quiescing {
    policy: Quiescence,
    frozen: bool,
    held: Vec<(usize, Interrupt)>,
    timer_ns: u64,
}

const SERVICE: GroupId = GroupId(0);
const BACKGROUND: GroupId = GroupId(1);

/// The next step of a request of several phases.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Begins,
    Blocks,
    GoesOn,
    Ends,
}

impl Quiescing {
    pub fn new(setup: &Setup) -> Option<Self> {
        let params = setup.policies.quiescence(setup)?;
        Some(Self {
            policy: Quiescence::new(params, [(BACKGROUND, Role::Background)]),
            frozen: false,
            held: Vec::new(),
            timer_ns: NEVER,
        })
    }
}

impl Engine {
    /// A request of several phases does something.
    pub(super) fn phase(&mut self, request: u32, phase: Phase) {
        let now = Instant::from_nanos(self.now);
        let Some(quiescing) = &mut self.quiescing else { return };
        let task = Task { id: TaskId(request), group: SERVICE };
        let interaction = InteractionId(u64::from(request));
        let mut tell = |event| quiescing.policy.handle_event(now, &event);
        match phase {
            Phase::Begins => tell(Event::Trigger { task, interaction }),
            Phase::Blocks => tell(Event::Block { task, on: Wait::Io { expected: None } }),
            Phase::GoesOn => tell(Event::Unblock { task }),
            Phase::Ends => {
                tell(Event::Response { interaction });
                tell(Event::Exit { task: task.id });
            }
        }
        self.obey_quiescence();
    }

    pub(super) fn quiesce_timer(&mut self) {
        let now = Instant::from_nanos(self.now);
        let Some(quiescing) = &mut self.quiescing else { return };
        if self.now >= quiescing.timer_ns {
            quiescing.timer_ns = NEVER;
        }
        quiescing.policy.handle_timeout(now);
        self.obey_quiescence();
    }

    fn obey_quiescence(&mut self) {
        while let Some(quiescing) = &mut self.quiescing
            && let Some(command) = quiescing.policy.poll_command()
        {
            quiescing.frozen = matches!(command, QuiescenceCommand::Freeze(_));
            if !quiescing.frozen {
                for (cpu, interrupt) in std::mem::take(&mut quiescing.held) {
                    self.interrupt(cpu, interrupt);
                }
            }
        }
        let Some(quiescing) = &mut self.quiescing else { return };
        if let Some(due) = quiescing.policy.poll_timeout() {
            let due = due.as_nanos().max(self.now + 1);
            if due < quiescing.timer_ns {
                quiescing.timer_ns = due;
                self.events.add(due, Later::Quiescing);
            }
        }
    }

    /// Holds back a piece of background work, if the background is frozen.
    pub(super) fn hold_back(&mut self, cpu: usize, interrupt: Interrupt) -> bool {
        match &mut self.quiescing {
            Some(quiescing) if quiescing.frozen => {
                quiescing.held.push((cpu, interrupt));
                true
            }
            _ => false,
        }
    }
}
