//! The wishes that a namespace may have: TOML in a ConfigMap.
//!
//! ```toml
//! [namespace.shop]
//! modes = ["observe", "govern"]   # observe alone where this is left out
//! least_goal = "200us"            # a shorter goal is taken as this
//! policies = ["carb"]             # all where this is left out
//! ```
//! A namespace without an entry may ask to be observed, and no more.

use crate::annotations::{Mode, POLICIES, Wish};
use machine::Duration;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    namespace: BTreeMap<String, Namespace>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Namespace {
    modes: Vec<Mode>,
    #[serde(deserialize_with = "time")]
    least_goal: Option<Duration>,
    policies: Vec<String>,
}

fn time<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    String::deserialize(from)?
        .parse()
        .map(Some)
        .map_err(|_| serde::de::Error::custom("write a time, such as 200us"))
}

impl Default for Namespace {
    fn default() -> Self {
        Self { modes: vec![Mode::Observe], least_goal: None, policies: POLICIES.map(str::to_owned).to_vec() }
    }
}

/// A wish as far as it is granted, and the remarks for the pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    pub wish: Wish,
    pub remarks: Vec<String>,
}

impl Limits {
    pub fn parse(text: &str) -> Result<Self, String> {
        let limits: Self = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        for (name, entry) in &limits.namespace {
            if let Some(policy) = entry.policies.iter().find(|policy| !POLICIES.contains(&policy.as_str())) {
                return Err(format!(
                    "namespace.{name}: policies: {policy:?}: write some of {}",
                    POLICIES.join(", ")
                ));
            }
        }
        Ok(limits)
    }

    pub fn grant(&self, namespace: &str, mut wish: Wish) -> Granted {
        let fallback = Namespace::default();
        let mut remarks = Vec::new();
        let entry = self.namespace.get(namespace);
        let limit = entry.unwrap_or(&fallback);
        if wish.mode == Mode::Govern && !limit.modes.contains(&Mode::Govern) {
            wish.mode = Mode::Observe;
            let why = if entry.is_some() { "modes of its entry" } else { "no entry for it" };
            remarks.push(format!("observed only: namespace {namespace} may not be governed ({why})"));
        }
        if !limit.policies.contains(&wish.policy) {
            wish.mode = Mode::Observe;
            remarks.push(format!("observed only: namespace {namespace} may not use policy {}", wish.policy));
        }
        if let (Some(goal), Some(least)) = (&mut wish.goal, limit.least_goal)
            && goal.latency < least
        {
            goal.latency = least;
            remarks.push(format!("goal taken as {goal}: the shortest of namespace {namespace}"));
        }
        Granted { wish, remarks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(mode: Mode, goal: Option<&str>, policy: &str) -> Wish {
        Wish { mode, goal: goal.map(|goal| goal.parse().unwrap()), port: None, policy: policy.to_owned() }
    }

    #[test]
    fn a_namespace_without_an_entry_is_observed_and_no_more() {
        let limits = Limits::parse("[namespace.shop]\nmodes = ['observe', 'govern']").unwrap();
        let asked = wish(Mode::Govern, Some("1ms@p99"), "carb");
        assert_eq!(limits.grant("shop", asked.clone()), Granted { wish: asked.clone(), remarks: Vec::new() });
        let granted = limits.grant("other", asked);
        assert_eq!(granted.wish.mode, Mode::Observe);
        assert!(granted.remarks[0].contains("no entry"), "{granted:?}");
    }

    #[test]
    fn goals_are_clamped_and_policies_refused() {
        let text = "[namespace.shop]\nmodes = ['govern']\nleast_goal = '200us'\npolicies = ['carb']";
        let limits = Limits::parse(text).unwrap();
        let granted = limits.grant("shop", wish(Mode::Govern, Some("50us@p99"), "carb"));
        assert_eq!(granted.wish.goal, Some("200us@p99".parse().unwrap()));
        assert!(granted.remarks[0].contains("200us@p99"), "{granted:?}");
        assert_eq!(limits.grant("shop", wish(Mode::Govern, None, "fixed")).wish.mode, Mode::Observe);
    }

    #[test]
    fn a_wrong_map_is_refused_with_its_fault() {
        for (text, told) in [
            ("[namespace.shop]\nmode = 'govern'", "unknown field `mode`"),
            ("[namespace.shop]\nmodes = ['rule']", "unknown variant `rule`"),
            ("[namespace.shop]\nleast_goal = 'soon'", "write a time"),
            ("[namespace.shop]\npolicies = ['mine.wasm']", "write some of"),
            ("[shop]", "unknown field `shop`"),
        ] {
            let found = Limits::parse(text).unwrap_err();
            assert!(found.contains(told), "{found}");
        }
        assert_eq!(Limits::parse(""), Ok(Limits::default()));
    }
}
