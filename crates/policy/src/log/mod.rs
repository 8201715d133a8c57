//! The replay log: a policy's inputs and its answers, as lines of JSON, and the proof that it would
//! say the same again.
//!
//! Every instance (each worker's, and the scheduler's) has a log of its own, because each is driven
//! by one thread in an order of its own. A log is a sequence of segments; the server bounds their
//! size and number. A segment begins with the policy's whole state, parameters included, so that it
//! can be replayed without those before it:
//!
//! ```text
//! {"state":{...}}
//! {"step":{"at":81210040,"input":{"served":{"slot":3,"requests":1}},"output":{"verdict":"stay"}}}
//! {"step":{"at":81290012,"input":{"order":{"move":{"target":0,"pick":"next_served"}}},"output":{"answer":"accepted"}}}
//! ```
//!
//! [`replay`] restores the state, feeds the inputs and compares the outputs, to the last bit of
//! every number: floats are written in the shortest form that reads back as the same float. Where
//! segments follow each other in one text, the state that the next begins with must be the one that
//! the last has led to.
//!
//! Recording goes through [`Recorded::apply`], the same calls that an unrecorded driver makes by
//! name.

mod scheduling;
mod worker;

pub use scheduling::{SchedulingInput, SchedulingOutput};
pub use worker::{WorkerInput, WorkerOutput};

use machine::Instant;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A policy whose inputs and outputs can be recorded and replayed.
pub trait Recorded: Clone + Debug + PartialEq + Serialize + DeserializeOwned {
    /// One thing that it is told.
    type Input: Clone + Debug + PartialEq + Serialize + DeserializeOwned;
    type Output: Clone + Debug + PartialEq + Serialize + DeserializeOwned;

    fn apply(&mut self, now: Instant, input: &Self::Input) -> Self::Output;
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum LineOut<'a, P: Recorded> {
    State(&'a P),
    Step { at: Instant, input: &'a P::Input, output: &'a P::Output },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", bound = "")]
enum LineIn<P: Recorded> {
    State(Box<P>),
    Step { at: Instant, input: P::Input, output: P::Output },
}

/// The errors of a replay: it differs from its record, or the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Divergence {
    #[error(
        "line {line} is no record of this policy ({cause})\n\nhint: each log belongs to one policy \
         instance and begins with its state"
    )]
    Unreadable {
        /// Line of the log, counted from 1.
        line: usize,
        cause: serde_json::Error,
    },
    #[error(
        "line {line} is a step, but no state came before it\n\nhint: begin with the first line of a segment"
    )]
    NoState {
        /// Line of the log, counted from 1.
        line: usize,
    },
    /// A step that the policy has no answer for: it panicked, as it may where its driver lies to it.
    #[error(
        "line {line}: no run has come to this step ({why})\n\nhint: the log is damaged, or of another version"
    )]
    Impossible {
        /// Line of the log, counted from 1.
        line: usize,
        why: String,
    },
    /// The policy says something else now.
    #[error("line {line}: at {at} ns the run answered {recorded}, the replay {replayed}")]
    Output {
        /// Line of the log, counted from 1.
        line: usize,
        at: u64,
        /// The answer that the log holds.
        recorded: String,
        /// The answer that the replay gives.
        replayed: String,
    },
    /// A segment begins with another state than the one before it led to.
    #[error(
        "line {line}: the segment begins with another state than the segment before it led to\n\n\
         hint: replay segments one by one if some between them are missing"
    )]
    State {
        /// Line of the log, counted from 1.
        line: usize,
    },
}

/// The figures of a replay that agreed with its log.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed<P> {
    pub segments: usize,
    pub steps: usize,
    /// The policy's state after the last step.
    pub state: P,
}

/// The first line of a segment.
pub fn state_line<P: Recorded>(policy: &P) -> String {
    encode(&LineOut::State(policy))
}

pub fn step_line<P: Recorded>(at: Instant, input: &P::Input, output: &P::Output) -> String {
    encode::<P>(&LineOut::Step { at, input, output })
}

fn encode<P: Recorded>(line: &LineOut<'_, P>) -> String {
    json(line)
}

fn json(plain: &impl Serialize) -> String {
    // Only maps with keys that are no strings cannot be written, and there are none in these types.
    serde_json::to_string(plain).expect("plain data is written without error")
}

/// Repeats a log and compares. An empty text has no state and is an error.
pub fn replay<P: Recorded>(text: &str) -> Result<Replayed<P>, Divergence> {
    let mut state: Option<P> = None;
    let (mut segments, mut steps) = (0, 0);
    for (line, content) in (1..).zip(text.lines()).filter(|(_, content)| !content.is_empty()) {
        match serde_json::from_str::<LineIn<P>>(content)
            .map_err(|cause| Divergence::Unreadable { line, cause })?
        {
            LineIn::State(next) => {
                if state.replace((*next).clone()).is_some_and(|reached| reached != *next) {
                    return Err(Divergence::State { line });
                }
                segments += 1;
            }
            LineIn::Step { at, input, output } => {
                let state = state.as_mut().ok_or(Divergence::NoState { line })?;
                let applied = catch_unwind(AssertUnwindSafe(|| state.apply(at, &input)));
                let replayed = applied.map_err(|panic| {
                    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                    let why = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                    Divergence::Impossible { line, why }
                })?;
                if replayed != output {
                    let [recorded, replayed] = [&output, &replayed].map(json);
                    return Err(Divergence::Output { line, at: at.as_nanos(), recorded, replayed });
                }
                steps += 1;
            }
        }
    }
    let state = state.ok_or(Divergence::NoState { line: 1 })?;
    Ok(Replayed { segments, steps, state })
}

#[derive(Clone, Debug, PartialEq)]
pub struct Steps<P: Recorded> {
    /// The state that it begins with.
    pub state: P,
    /// The times, the inputs and the answers.
    pub steps: Vec<(Instant, P::Input, P::Output)>,
}

/// Reads one segment without repeating it: to ask another policy the same.
pub fn steps<P: Recorded>(text: &str) -> Result<Steps<P>, Divergence> {
    let mut state = None;
    let mut steps = Vec::new();
    for (line, content) in (1..).zip(text.lines()).filter(|(_, content)| !content.is_empty()) {
        match serde_json::from_str::<LineIn<P>>(content)
            .map_err(|cause| Divergence::Unreadable { line, cause })?
        {
            LineIn::State(first) => {
                state.get_or_insert(*first);
            }
            LineIn::Step { .. } if state.is_none() => return Err(Divergence::NoState { line }),
            LineIn::Step { at, input, output } => steps.push((at, input, output)),
        }
    }
    let state = state.ok_or(Divergence::NoState { line: 1 })?;
    Ok(Steps { state, steps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scheduling;
    use crate::peafowl::{ConnectionLoad, Order, Params, Sample, Worker};
    use machine::{ConnId, CpuId, Duration, Reading, WorkerId};

    fn worker() -> Worker {
        Worker::new(Params::default(), WorkerId(0), None)
    }

    fn recorded(steps: &[WorkerInput]) -> (String, Worker) {
        let mut worker = worker();
        let mut text = state_line(&worker) + "\n";
        for (at, input) in (1..).map(|ms| Instant::ZERO + Duration::from_millis(ms)).zip(steps) {
            let output = worker.apply(at, input);
            text += &(step_line::<Worker>(at, input, &output) + "\n");
        }
        (text, worker)
    }

    fn steps() -> Vec<WorkerInput> {
        let load = ConnectionLoad::new(Instant::ZERO);
        let arrival = |slot, home| WorkerInput::Arrival { slot, conn: ConnId(u64::from(slot)), home, load };
        let mut steps = vec![arrival(0, WorkerId(0)), arrival(1, WorkerId(1))];
        steps.extend((0..300).map(|at| WorkerInput::Served {
            slot: at % 2,
            requests: 1 + at % 3,
            busy: Duration::from_nanos(u64::from(at) % 5 * 700),
        }));
        steps.push(WorkerInput::Report(Sample { requests: 7, ..Sample::default() }));
        let order = Order::Move { target: WorkerId(1), pick: machine::Pick::NextServed };
        steps.extend([WorkerInput::Order(order), WorkerInput::Timeout, WorkerInput::Transfer]);
        steps.push(WorkerInput::Served { slot: 1, requests: 1, busy: Duration::ZERO });
        steps.push(WorkerInput::Departure { slot: 1, sent: true });
        steps
    }

    #[test]
    fn a_log_replays_to_the_same_state() {
        let (text, worker) = recorded(&steps());
        let replayed = replay::<Worker>(&text).unwrap();
        assert_eq!(replayed, Replayed { segments: 1, steps: steps().len(), state: worker });
    }

    #[test]
    fn lines_look_as_documented() {
        let (text, _) = recorded(&[WorkerInput::Timeout]);
        let step = text.lines().nth(1).unwrap();
        assert_eq!(step, r#"{"step":{"at":1000000,"input":"timeout","output":"done"}}"#);
    }

    #[test]
    fn a_changed_output_is_found() {
        let (text, _) = recorded(&steps());
        let changed = text.replace("\"connections\":2", "\"connections\":3");
        let error = replay::<Worker>(&changed).unwrap_err();
        assert!(matches!(error, Divergence::Output { line: 304, .. }), "{error}");
    }

    #[test]
    fn a_step_that_no_run_can_come_to_is_told_and_is_no_panic() {
        let (text, _) = recorded(&steps());
        for (input, line) in [("arrival", 3), ("departure", 309)] {
            let of = |slot: u32| format!("\"{input}\":{{\"slot\":{slot}");
            assert!(text.contains(&of(1)), "{input}");
            let error = replay::<Worker>(&text.replacen(&of(1), &of(u32::MAX), 1)).unwrap_err();
            assert!(matches!(error, Divergence::Impossible { line: at, .. } if at == line), "{error}");
        }
    }

    #[test]
    fn a_missing_segment_is_found() {
        let (first, mut worker) = recorded(&steps());
        let seamless = first.clone() + &state_line(&worker);
        assert_eq!(replay::<Worker>(&seamless).unwrap().segments, 2);
        worker.apply(Instant::ZERO, &WorkerInput::Report(Sample::default()));
        let torn = first + &state_line(&worker);
        assert!(
            matches!(replay::<Worker>(&torn), Err(Divergence::State { line: 310 })),
            "{}",
            torn.lines().count()
        );
    }

    #[test]
    fn what_is_no_log_is_refused_with_its_line() {
        assert!(matches!(replay::<Worker>(""), Err(Divergence::NoState { .. })));
        let (text, _) = recorded(&[WorkerInput::Timeout]);
        let headless = text.lines().nth(1).unwrap();
        assert!(matches!(replay::<Worker>(headless), Err(Divergence::NoState { line: 1 })));
        assert!(matches!(replay::<Worker>("GET / HTTP/1.1"), Err(Divergence::Unreadable { line: 1, .. })));
        assert!(matches!(replay::<Scheduling>(&text), Err(Divergence::Unreadable { line: 1, .. })));
    }

    #[test]
    fn floats_read_back_exactly() {
        let odd = [0.1 + 0.2, 1.0 / 3.0, 5e-324, 1.797_693_134_862_315_7e308, 123_456.789_012_345_67];
        for number in odd {
            let text = serde_json::to_string(&number).unwrap();
            assert_eq!(serde_json::from_str::<f64>(&text).unwrap().to_bits(), f64::to_bits(number));
        }
    }

    #[test]
    fn every_policy_that_places_connections_replays() {
        let workers = [(WorkerId(0), CpuId(0)), (WorkerId(1), CpuId(0))];
        for mut policy in [
            Scheduling::peafowl(Params::default(), &workers),
            Scheduling::carb(crate::carb::Params::default(), &workers),
            Scheduling::counted(&workers),
            Scheduling::all_awake(&workers),
        ] {
            let mut text = state_line(&policy) + "\n";
            let inputs = [
                SchedulingInput::Place,
                SchedulingInput::Wanted { workers: 1 },
                SchedulingInput::Reading(Reading::default()),
                SchedulingInput::Released(WorkerId(0)),
                SchedulingInput::Timeout,
            ];
            for (at, input) in (1..).map(|s| Instant::ZERO + Duration::from_secs(s)).zip(inputs) {
                let output = policy.apply(at, &input);
                text += &(step_line::<Scheduling>(at, &input, &output) + "\n");
            }
            assert_eq!(replay::<Scheduling>(&text).unwrap().state, policy);
        }
    }
}
