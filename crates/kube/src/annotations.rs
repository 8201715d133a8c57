//! A pod's wish.
//!
//! | annotation | is |
//! |---|---|
//! | `roost.dev/goal` | a latency goal, such as `500us@p99` |
//! | `roost.dev/port` | the TCP port that it is about; all ports of the pod where it is left out |
//! | `roost.dev/policy` | `carb` (the default), `carb-paper` or `fixed` |
//! | `roost.dev/mode` | `govern` (the default with a goal) or `observe` |
//! | `roost.dev/status` | ours: the state, in words |

use machine::Goal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

pub const PREFIX: &str = "roost.dev/";
pub const STATUS: &str = "roost.dev/status";

/// Requests are watched, or the cores are governed as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Observe,
    Govern,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    pub mode: Mode,
    pub goal: Option<Goal>,
    pub port: Option<u16>,
    pub policy: String,
}

/// The policies that a pod may name; one of its own would be a file of this node.
pub const POLICIES: [&str; 3] = ["carb", "carb-paper", "fixed"];

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{PREFIX}{key}: {value:?}: {fix}")]
pub struct WishError {
    key: String,
    value: String,
    fix: String,
}

/// The wish in a pod's annotations; `None` if it has none.
pub fn wish(annotations: &BTreeMap<String, String>) -> Result<Option<Wish>, WishError> {
    let ours = annotations.iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value.trim())));
    let (mut goal, mut port, mut mode, mut policy) = (None, None, None, None);
    let mut is_asked = false;
    for (key, value) in ours.filter(|(key, _)| *key != "status") {
        is_asked = true;
        let wrong = |fix: String| WishError { key: shown(key), value: shown(value), fix };
        match key {
            "goal" => goal = Some(value.parse::<Goal>().map_err(|_| wrong("write 500us@p99".to_owned()))?),
            "port" => {
                let found = value.parse::<u16>().ok().filter(|&port| port > 0);
                port = Some(found.ok_or_else(|| wrong("write a TCP port, such as 11211".to_owned()))?);
            }
            "mode" => {
                mode = Some(match value {
                    "observe" => Mode::Observe,
                    "govern" => Mode::Govern,
                    _ => return Err(wrong("write observe or govern".to_owned())),
                });
            }
            "policy" if POLICIES.contains(&value) => policy = Some(value.to_owned()),
            "policy" => return Err(wrong(format!("write one of {}", POLICIES.join(", ")))),
            _ => return Err(wrong("there are goal, port, policy and mode: leave this one out".to_owned())),
        }
    }
    let policy = policy.unwrap_or_else(|| "carb".to_owned());
    if goal.is_some() && policy != "carb" {
        let fix = "a goal needs the policy carb: leave one of them out".to_owned();
        return Err(WishError { key: "policy".to_owned(), value: policy, fix });
    }
    let mode = mode.unwrap_or(if goal.is_some() { Mode::Govern } else { Mode::Observe });
    Ok(is_asked.then_some(Wish { mode, goal, port, policy }))
}

/// A stranger's text as a message may hold it.
fn shown(text: &str) -> String {
    text.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Option<Wish>, String> {
        let all = pairs.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned())).collect();
        wish(&all).map_err(|error| error.to_string())
    }

    #[test]
    fn a_goal_asks_to_be_governed_and_a_port_alone_to_be_observed() {
        let found = of(&[("goal", " 500us@p99 "), ("port", "11211")]).unwrap().unwrap();
        assert_eq!((found.mode, found.port, found.policy.as_str()), (Mode::Govern, Some(11211), "carb"));
        assert_eq!(found.goal, Some("500us@p99".parse().unwrap()));
        assert_eq!(of(&[("port", "80")]).unwrap().unwrap().mode, Mode::Observe);
        assert_eq!(of(&[("mode", "govern"), ("policy", "fixed")]).unwrap().unwrap().mode, Mode::Govern);
        assert_eq!(of(&[("goal", "1ms@p99"), ("mode", "observe")]).unwrap().unwrap().mode, Mode::Observe);
        assert_eq!(of(&[("status", "anything")]), Ok(None));
        assert_eq!(wish(&BTreeMap::from([("app".to_owned(), "shop".to_owned())])), Ok(None));
    }

    #[test]
    fn a_wrong_annotation_names_its_remedy() {
        for (pairs, told) in [
            (&[("goal", "fast")][..], "roost.dev/goal: \"fast\": write 500us@p99"),
            (&[("port", "0")], "write a TCP port"),
            (&[("port", "65536")], "write a TCP port"),
            (&[("mode", "on")], "write observe or govern"),
            (&[("policy", "/etc/passwd")], "write one of carb, carb-paper, fixed"),
            (&[("gaol", "1ms@p99")], "there are goal, port, policy and mode"),
            (&[("goal", "1ms@p99"), ("policy", "fixed")], "a goal needs the policy carb"),
        ] {
            let found = of(pairs).unwrap_err();
            assert!(found.contains(told), "{found}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_wish_or_a_short_error(key in "(goal|port|mode|policy|.{0,9})", value in ".{0,200}") {
            if let Err(error) = of(&[(&key, &value)]) {
                prop_assert!(error.len() < 700 && !error.contains('\n'), "{error}");
            }
        }
    }
}
