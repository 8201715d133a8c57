//! The policies and core counts that a plan compares, each with the line that carries it out.
//!
//! A candidate that this machine cannot carry out is simulated as well and marked: it shows the
//! worth of a setting of the firmware or of the host.

use super::recording::Recording;
use super::written::stock_policy;
use machine::Goal;
use toml::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub name: String,
    pub policies: String,
    /// Keys of the scenario that it sets.
    pub set: Vec<(String, Value)>,
    /// Arguments of `roost` that carry it out; `None` for the service as it is.
    pub line: Option<String>,
    /// The reason why this machine cannot, if it cannot.
    pub unable: Option<String>,
}

/// The candidates on `workers` cores at most. `service` is how `roost govern` names it, such as
/// `--port 11211`.
pub fn candidates(recording: &Recording, workers: u16, service: &str, goal: Option<Goal>) -> Vec<Candidate> {
    let stock = stock_policy(&recording.machine);
    let states = &recording.machine.states;
    let halting = states.iter().filter(|state| !state.polls).count();
    let polls = states.iter().any(|state| state.polls);
    let mut all = Vec::new();
    for cores in (1..=workers.max(1)).rev() {
        let set = vec![("server.workers".to_owned(), Value::Integer(i64::from(cores)))];
        let fixed = format!("govern {service} --policy fixed --cores {cores}");
        let is_now = cores == workers;
        let name = |idle: &str| format!("{cores} {}, {idle}", if cores == 1 { "core" } else { "cores" });
        let few = states.is_empty().then(|| "the kernel shows no idle states".to_owned());
        all.push(Candidate {
            name: name("idle as now"),
            policies: stock.to_owned(),
            set: set.clone(),
            line: (!is_now).then(|| fixed.clone()),
            unable: None,
        });
        if stock != "shallow" || halting > 1 {
            all.push(Candidate {
                name: name("shallow idle"),
                policies: "shallow".to_owned(),
                set: set.clone(),
                line: Some(format!("{fixed} --idle shallow")),
                unable: few.clone().or_else(|| {
                    (halting < 2).then(|| "there is one idle state, so nothing to choose".to_owned())
                }),
            });
        }
        all.push(Candidate {
            name: name("polling idle"),
            policies: "poll".to_owned(),
            set,
            line: Some(format!("{fixed} --idle 0us")),
            unable: few.or_else(|| (!polls).then(|| "the kernel has no polling state".to_owned())),
        });
    }
    let Some(goal) = goal else { return all };
    all.push(Candidate {
        name: "carb, by the goal".to_owned(),
        policies: format!("carb-goal + {stock}"),
        set: vec![("server.workers".to_owned(), Value::Integer(i64::from(workers)))],
        line: Some(format!("govern {service} --goal {goal}")),
        unable: (workers < 2).then(|| "the service has one core".to_owned()),
    });
    let clocks = recording.machine.clocks_khz.len();
    all.push(Candidate {
        name: "pegasus, by the goal".to_owned(),
        policies: format!("{stock} + pegasus"),
        set: vec![("server.workers".to_owned(), Value::Integer(i64::from(workers)))],
        line: Some(format!(
            "govern {service} --policy fixed --cores {workers} --goal {goal} --frequency pegasus"
        )),
        unable: (clocks < 2).then(|| "no clock can be chosen here".to_owned()),
    });
    all
}

#[cfg(test)]
mod tests {
    use super::super::recording::tests::sample;
    use super::super::written::scenario_text;
    use super::*;
    use crate::scenario::{Document, Estimates};
    use std::path::Path;

    #[test]
    fn every_candidate_can_be_simulated() {
        let recording = sample();
        let goal: Goal = "500us@p99".parse().unwrap();
        let text = scenario_text(&recording, Some(goal)).unwrap();
        let document = Document::parse(Path::new("s.toml"), &text, &Estimates::default()).unwrap();
        let all = candidates(&recording, 2, "--port 11211", Some(goal));
        for candidate in &all {
            let mut changed = document.clone();
            for (key, value) in &candidate.set {
                changed = changed.with(key, value).unwrap();
            }
            changed.setup(&candidate.policies, 1).unwrap_or_else(|error| panic!("{candidate:?}: {error}"));
        }
        assert_eq!(all[0].line, None, "the first is the service as it is");
        let one = all.iter().find(|candidate| candidate.name == "1 core, idle as now").unwrap();
        assert_eq!(one.line.as_deref(), Some("govern --port 11211 --policy fixed --cores 1"));
    }

    #[test]
    fn a_machine_is_not_asked_for_more_than_it_has() {
        let unable = |recording: &Recording, name: &str| {
            let goal = Some("1ms@p99".parse().unwrap());
            let all = candidates(recording, 2, "--port 1", goal);
            all.into_iter().find(|one| one.name == name).unwrap().unable
        };
        let mut recording = sample();
        assert!(unable(&recording, "pegasus, by the goal").is_some());
        assert_eq!(unable(&recording, "2 cores, polling idle"), None);
        recording.machine.clocks_khz = vec![800_000, 2_100_000];
        recording.machine.states.remove(0);
        assert_eq!(unable(&recording, "pegasus, by the goal"), None);
        assert!(unable(&recording, "2 cores, polling idle").is_some());
    }
}
