//! SleepScale as the frequency policy of a server.

use super::{Choice, Served, SleepScale};
use machine::Instant;
use policy::kind::{Decision, FrequencyPolicy, Policy, Request, Seen, Watch};

/// The policy of a server, with the part of its choice that the driver has taken.
pub struct Server {
    policy: SleepScale,
    told: Told,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    IdleStates,
    All,
}

impl Server {
    pub(super) fn new(policy: SleepScale) -> Self {
        Self { policy, told: Told::Nothing }
    }
}

impl Policy for Server {
    fn handle_timeout(&mut self, now: Instant, _: &Seen<'_>) {
        if self.policy.handle_timeout(now).is_some() {
            self.told = Told::Nothing;
        }
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        let Choice { state, point } = self.policy.choice();
        match self.told {
            Told::Nothing => {
                self.told = Told::IdleStates;
                Some(Decision::IdleStates { active: state, parked: Some(state) })
            }
            Told::IdleStates => {
                self.told = Told::All;
                Some(Decision::Points(point))
            }
            Told::All => None,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.policy.poll_timeout())
    }
}

impl FrequencyPolicy for Server {
    fn watches(&self) -> Watch {
        Watch::Completions
    }

    fn handle_completion(&mut self, _: Instant, cpu: usize, request: &Request) {
        let Request { arrived, compute, memory, .. } = *request;
        self.policy.handle_completion(Served { arrived, core: cpu as u16, compute, memory });
    }
}
