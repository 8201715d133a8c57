//! A run told event by event, for traces: what a person wants to see of a CPU, a request, a decision.
//!
//! It begins with the run and ends when as many requests as asked for have been answered, so that
//! memory does not grow with the run; [`Chronicle::cut_ns`] says when. A run without it pays a store for
//! each request and a test for each wake-up.

use super::Engine;
use super::task::{Task, WHOLE};
use policy::Why;
use policy::kind::Decision;

/// Times are nanoseconds since the run began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chronicle {
    /// In order of their ends, on each CPU.
    pub pieces: Vec<Piece>,
    /// In order of their ends, on each CPU.
    pub sleeps: Vec<Sleep>,
    /// In order of time, on each CPU.
    pub clocks: Vec<Clock>,
    pub decisions: Vec<Decided>,
    /// No event after it is told; `None` if the whole run is.
    pub cut_ns: Option<u64>,
    requests: u64,
    most: u64,
    /// The request whose arrival, beginning or end a policy is being told of.
    cause: Option<u64>,
}

/// The work on a request, or on one of its pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// When its request was due, in nanoseconds.
    pub arrived_ns: u64,
    pub began_ns: u64,
    pub ended_ns: u64,
    pub cpu: u16,
    /// A place in the list of classes.
    pub class: u8,
    /// Of its request: requests are numbered as they come.
    pub request: u64,
    /// True if the request has other pieces.
    pub is_part: bool,
}

/// An idle period, and the waking after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sleep {
    pub from_ns: u64,
    pub until_ns: u64,
    pub awake_ns: u64,
    pub cpu: u16,
    /// A place in the table of idle states; `None`: it polled.
    pub state: Option<u8>,
}

/// The clock of a CPU from then on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    pub at_ns: u64,
    pub cpu: u16,
    /// A place in the table of operating points.
    pub point: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decided {
    pub at_ns: u64,
    pub what: What,
    /// In words, where the policy says it.
    pub why: Option<Why>,
    /// The request whose arrival, beginning or end led to it.
    pub request: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    Decision(Decision),
    /// A connection went from one worker to another.
    Moved {
        source: u16,
        target: u16,
    },
}

impl Chronicle {
    /// An empty one that keeps the pieces of so many requests.
    pub fn of(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    fn is_cut(&self) -> bool {
        self.cut_ns.is_some()
    }

    fn decide(&mut self, at_ns: u64, what: What, why: Option<Why>) {
        // Policies that decide at each request make no more decisions than that.
        if (self.decisions.len() as u64) < self.most {
            self.decisions.push(Decided { at_ns, what, why, request: self.cause });
        }
    }
}

impl Engine {
    /// The same, and it tells of its first requests one by one.
    pub fn with_chronicle(mut self, requests: u64) -> Self {
        self.chronicle = Some(Box::new(Chronicle::of(requests)));
        self
    }

    /// A task is done that `core` began to work on at its `started`.
    #[cold]
    pub(super) fn tell_of_work(&mut self, core: usize, task: &Task) {
        let (now, began_ns) = (self.now, self.cores[core].started);
        let Some(chronicle) = self.chronicle.as_mut().filter(|chronicle| !chronicle.is_cut()) else { return };
        chronicle.pieces.push(Piece {
            arrived_ns: task.arrived_ns,
            began_ns,
            ended_ns: now,
            cpu: core as u16,
            class: task.class,
            request: u64::from(task.ticket),
            is_part: task.request != WHOLE,
        });
        chronicle.cause = Some(u64::from(task.ticket));
        chronicle.requests += 1;
        if chronicle.requests >= chronicle.most {
            chronicle.cut_ns = Some(now);
        }
    }

    /// An idle period has ended, and the CPU is awake after `exit_ns`.
    #[cold]
    pub(super) fn tell_of_sleep(&mut self, cpu: usize, from_ns: u64, state: Option<u8>, exit_ns: u64) {
        let now = self.now;
        if let Some(chronicle) = self.chronicle.as_mut().filter(|chronicle| !chronicle.is_cut()) {
            chronicle.sleeps.push(Sleep {
                from_ns,
                until_ns: now,
                awake_ns: now + exit_ns,
                cpu: cpu as u16,
                state,
            });
        }
    }

    pub(super) fn tell_of_clock(&mut self, cpu: usize) {
        let (at_ns, point) = (self.now, self.hardware.point(cpu));
        if let Some(chronicle) = self.chronicle.as_mut().filter(|chronicle| !chronicle.is_cut()) {
            chronicle.clocks.push(Clock { at_ns, cpu: cpu as u16, point });
        }
    }

    #[cold]
    pub(super) fn tell_of_decision(&mut self, decision: Decision) {
        let now = self.now;
        if let Some(chronicle) = self.chronicle.as_mut().filter(|chronicle| !chronicle.is_cut()) {
            chronicle.decide(now, What::Decision(decision), None);
        }
    }

    #[cold]
    pub(super) fn tell_of_move(&mut self, source: usize, target: usize, why: Why) {
        let now = self.now;
        if let Some(chronicle) = self.chronicle.as_mut().filter(|chronicle| !chronicle.is_cut()) {
            let what = What::Moved { source: source as u16, target: target as u16 };
            chronicle.decide(now, what, Some(why));
        }
    }

    /// Decisions from now on are about this request; `None`: about none.
    #[inline]
    pub(super) fn about(&mut self, task: Option<&Task>) {
        if let Some(chronicle) = &mut self.chronicle {
            chronicle.cause = task.map(|task| u64::from(task.ticket));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Document;
    use crate::runner::Task;
    use crate::scenario::{Contestant, Estimates};
    use std::path::Path;

    fn task(policies: &str, server: &str) -> Task {
        let text = format!(
            "policies = [\"{policies}\"]\ngoal = \"20ms@p95\"\n[machine]\npreset = \"xeon-gold-6126\"\n\
             sockets = 1\ncores = 4\n[server]\n{server}\n[workload]\nservice = {{ exponential = \"2ms\" }}\n\
             [run]\nutilisation = 0.5\nrequests = 4000\n"
        );
        let document = Document::parse(Path::new("x.toml"), &text, &Estimates::default()).unwrap();
        let contestant = Contestant { name: "it".to_owned(), policies: policies.to_owned(), document };
        Task { contestant, seed: 7 }
    }

    #[test]
    fn telling_changes_nothing_and_tells_everything() {
        for policies in ["menu", "poll", "menu + rubik", "menu + pegasus", "carb"] {
            let task = task(policies, "");
            let told = task.tell(u64::MAX).unwrap();
            let chronicle = told.chronicle().unwrap();
            let silent = task.run().unwrap();
            assert_eq!(chronicle.pieces.len() as u64, told.metrics().left(), "{policies}");
            assert_eq!(silent.responses, crate::Outcome::new("it", &told).responses);
            assert_eq!(
                silent.power.cpu_watts,
                crate::Outcome::new("it", &told).power.cpu_watts,
                "{policies}: the same run"
            );
            let asleep: u64 = chronicle
                .sleeps
                .iter()
                .filter(|sleep| sleep.state.is_some())
                .map(|sleep| sleep.until_ns - sleep.from_ns)
                .sum();
            // Those that lasted when the run ended are not told.
            assert!(asleep <= told.residency.asleep_ns.iter().sum(), "{policies}");
            assert!(policies == "poll" || asleep > 0, "{policies}");
        }
    }

    #[test]
    fn nothing_overlaps_on_a_cpu() {
        for (policies, server) in [("menu + rubik", ""), ("menu", "dispatch = \"random\"\nworkers = 3")] {
            let told = task(policies, server).tell(u64::MAX).unwrap();
            let chronicle = told.chronicle().unwrap();
            for cpu in 0..4 {
                let pieces: Vec<_> = chronicle.pieces.iter().filter(|piece| piece.cpu == cpu).collect();
                assert!(pieces.iter().all(|piece| piece.arrived_ns <= piece.began_ns));
                assert!(pieces.windows(2).all(|pair| pair[0].ended_ns <= pair[1].began_ns), "{policies}");
                let sleeps: Vec<_> = chronicle.sleeps.iter().filter(|sleep| sleep.cpu == cpu).collect();
                assert!(sleeps.windows(2).all(|pair| pair[0].awake_ns <= pair[1].from_ns), "{policies}");
            }
        }
    }

    #[test]
    fn it_is_cut_where_it_was_to_end() {
        let told = task("menu + rubik", "").tell(3_000).unwrap();
        let chronicle = told.chronicle().unwrap();
        let cut = chronicle.cut_ns.unwrap();
        assert_eq!(chronicle.pieces.len(), 3_000);
        assert!(chronicle.sleeps.iter().all(|sleep| sleep.until_ns <= cut));
        assert!(chronicle.decisions.iter().all(|decided| decided.at_ns <= cut));
        assert!(chronicle.decisions.iter().any(|decided| decided.request.is_some()));
        assert_eq!(told.metrics().left(), 4000, "the run goes on");
    }
}
