//! The services that follow from the pods of a node and the limits of their namespaces.
//!
//! ```text
//!   pod: running, with a wish --limits--> granted --cgroup--> Service --diff--> take, drop
//! ```
//! Pure: cgroups and time are arguments.

use crate::annotations::{Mode, Wish, wish};
use crate::limits::Limits;
use daemon::ServiceConfig;
use machine::{Duration, Instant};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A pod as the API server tells it; all else is passed over.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: Metadata,
    pub spec: Spec,
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub deletion_timestamp: Option<String>,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    pub node_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    pub phase: String,
}

/// The next step for a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// To be held; the remarks are for the pod.
    Hold { service: Box<ServiceConfig>, mode: Mode, remarks: Vec<String> },
    /// A wish that is granted, of a pod that does not run, or has no cgroup yet.
    Wait,
    /// Its annotations are wrong; the fault and its remedy.
    Wrong(String),
}

/// A refused service is tried again as soon as its pod or the limits change, and after so long: twice
/// as long each time, from the first (a server may not listen yet) to the last.
pub const PATIENCE: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(600)];

/// The verdict on each pod with a wish, by uid.
pub fn verdicts(
    pods: &BTreeMap<String, Pod>,
    limits: &Limits,
    cgroups: &BTreeMap<String, String>,
) -> BTreeMap<String, Verdict> {
    let verdict = |(uid, pod): (&String, &Pod)| {
        let wish = match wish(&pod.metadata.annotations) {
            Ok(wish) => wish?,
            Err(error) => return Some((uid.clone(), Verdict::Wrong(error.to_string()))),
        };
        let is_running = pod.status.phase == "Running" && pod.metadata.deletion_timestamp.is_none();
        let cgroup = cgroups.get(uid).filter(|_| is_running);
        let granted = limits.grant(&pod.metadata.namespace, wish);
        Some((
            uid.clone(),
            match cgroup.map(|cgroup| service(pod, &granted.wish, cgroup)) {
                None => Verdict::Wait,
                Some(Err(fault)) => Verdict::Wrong(fault),
                Some(Ok(service)) => Verdict::Hold {
                    service: Box::new(service),
                    mode: granted.wish.mode,
                    remarks: granted.remarks,
                },
            },
        ))
    };
    pods.iter().filter_map(verdict).collect()
}

/// As the daemon's configuration has it, so that the daemon's own checks hold.
fn service(pod: &Pod, wish: &Wish, cgroup: &str) -> Result<ServiceConfig, String> {
    let mut table = toml::Table::new();
    let mut put = |key: &str, value: toml::Value| table.insert(key.to_owned(), value);
    put("name", service_name(&pod.metadata).into());
    put("cgroup", cgroup.into());
    // Cgroups below a container's would keep the kubelet from changing its cpuset.
    put("actuator", "affinity".into());
    if let Some(port) = wish.port {
        put("port", i64::from(port).into());
    }
    match (wish.mode, wish.goal) {
        // All cores: requests and tails are seen, and no CPU is taken from it.
        (Mode::Observe, _) => put("policy", "fixed".into()),
        (Mode::Govern, goal) => {
            if let Some(goal) = goal {
                put("goal", goal.to_string().into());
            }
            put("policy", wish.policy.as_str().into())
        }
    };
    table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}

/// Namespace and name, within the 64 characters that the daemon allows; else the uid tells it apart.
pub fn service_name(pod: &Metadata) -> String {
    const MOST: usize = 64;
    let whole = format!("{}.{}", pod.namespace, pod.name);
    if whole.len() <= MOST {
        return whole;
    }
    let uid: String = pod.uid.chars().take(8).collect();
    format!("{}-{uid}", whole.chars().take(MOST - 9).collect::<String>())
}

/// A service that was refused, and when it may be tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    pub service: ServiceConfig,
    pub until: Instant,
    pub patience: Duration,
}

impl Refused {
    /// The refusal of a service now, after an earlier one.
    pub fn after(earlier: Option<&Self>, service: ServiceConfig, now: Instant) -> Self {
        let [first, last] = PATIENCE;
        let earlier = earlier.filter(|earlier| earlier.service == service);
        let patience = earlier.map_or(first, |earlier| (earlier.patience + earlier.patience).min(last));
        Self { service, until: now + patience, patience }
    }
}

/// The pods whose lease ends, and those that get one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    pub leave: Vec<String>,
    pub take: Vec<(String, ServiceConfig)>,
}

/// From the services that are held to those that are wanted. A changed one is left and taken anew.
pub fn difference(
    held: &BTreeMap<String, ServiceConfig>,
    verdicts: &BTreeMap<String, Verdict>,
    refused: &BTreeMap<String, Refused>,
    now: Instant,
) -> Difference {
    let wanted = |uid: &String| match verdicts.get(uid) {
        Some(Verdict::Hold { service, .. }) => Some(&**service),
        _ => None,
    };
    let leave = held.iter().filter(|(uid, service)| wanted(uid) != Some(*service));
    let may_be_tried = |uid: &String, service: &ServiceConfig| {
        refused.get(uid).is_none_or(|refused| refused.service != *service || now >= refused.until)
    };
    let take = verdicts.keys().filter_map(|uid| Some((uid, wanted(uid)?)));
    let take = take.filter(|(uid, service)| held.get(*uid) != Some(*service) && may_be_tried(uid, service));
    Difference {
        leave: leave.map(|(uid, _)| uid.clone()).collect(),
        take: take.map(|(uid, service)| (uid.clone(), service.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Target;
    use proptest::prelude::*;

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    fn pod(annotations: &[(&str, &str)]) -> Pod {
        let text = serde_json::json!({
            "metadata": {
                "name": "cache-7d9f", "namespace": "shop", "uid": UID, "resourceVersion": "7",
                "annotations": annotations.iter().copied().collect::<BTreeMap<_, _>>(),
            },
            "spec": { "nodeName": "here", "containers": [] },
            "status": { "phase": "Running", "qosClass": "Burstable" },
        });
        serde_json::from_value(text).unwrap()
    }

    fn verdict(pod: &Pod, limits: &str) -> Option<Verdict> {
        let cgroups = BTreeMap::from([(UID.to_owned(), "/sys/fs/cgroup/kubepods/pod1".to_owned())]);
        let pods = BTreeMap::from([(UID.to_owned(), pod.clone())]);
        verdicts(&pods, &Limits::parse(limits).unwrap(), &cgroups).remove(UID)
    }

    const GOVERNED: &str = "[namespace.shop]\nmodes = ['govern']";
    const ASKED: [(&str, &str); 2] = [("roost.dev/goal", "1ms@p99"), ("roost.dev/port", "11211")];

    #[test]
    fn a_granted_pod_is_a_service_of_its_own_cgroup() {
        let Some(Verdict::Hold { service, mode, remarks }) = verdict(&pod(&ASKED), GOVERNED) else {
            panic!()
        };
        assert_eq!((service.name.as_str(), mode, remarks.len()), ("shop.cache-7d9f", Mode::Govern, 0));
        assert_eq!(service.target, Target::Cgroup("/sys/fs/cgroup/kubepods/pod1".into(), Some(11211)));
        assert_eq!(service.goal, Some("1ms@p99".parse().unwrap()));
    }

    #[test]
    fn one_that_may_only_be_observed_has_all_cores() {
        let Some(Verdict::Hold { service, mode, remarks }) = verdict(&pod(&ASKED), "") else { panic!() };
        assert_eq!((mode, service.policy, service.goal), (Mode::Observe, daemon::Policy::Fixed, None));
        assert_eq!(remarks.len(), 1);
    }

    #[test]
    fn pods_that_end_or_have_no_wish_are_not_held() {
        assert_eq!(verdict(&pod(&[]), GOVERNED), None);
        let mut ending = pod(&ASKED);
        ending.metadata.deletion_timestamp = Some("2026-11-27T00:00:00Z".to_owned());
        assert_eq!(verdict(&ending, GOVERNED), Some(Verdict::Wait));
        let mut pending = pod(&ASKED);
        pending.status.phase = "Pending".to_owned();
        assert_eq!(verdict(&pending, GOVERNED), Some(Verdict::Wait));
        assert!(matches!(verdict(&pod(&[("roost.dev/goal", "x")]), GOVERNED), Some(Verdict::Wrong(_))));
    }

    #[test]
    fn names_are_short_and_told_apart() {
        let mut long = pod(&ASKED).metadata;
        long.name = "a".repeat(200);
        assert_eq!(service_name(&long).len(), 64);
        assert!(service_name(&long).ends_with("-0a1b2c3d"));
    }

    #[test]
    fn a_refusal_waits_for_a_change_or_for_its_time() {
        let pods = BTreeMap::from([(UID.to_owned(), pod(&ASKED))]);
        let cgroups = BTreeMap::from([(UID.to_owned(), "/c".to_owned())]);
        let verdicts = verdicts(&pods, &Limits::parse(GOVERNED).unwrap(), &cgroups);
        let now = Instant::from_nanos(0);
        let first = difference(&BTreeMap::new(), &verdicts, &BTreeMap::new(), now);
        let (uid, service) = first.take[0].clone();
        let once = Refused::after(None, service.clone(), now);
        let refused = BTreeMap::from([(uid.clone(), once.clone())]);
        assert_eq!(difference(&BTreeMap::new(), &verdicts, &refused, now), Difference::default());
        assert_eq!(difference(&BTreeMap::new(), &verdicts, &refused, now + PATIENCE[0]).take.len(), 1);
        let mut often = once;
        (0..20).for_each(|_| often = Refused::after(Some(&often), service.clone(), now));
        assert_eq!(often.patience, PATIENCE[1]);
        let mut other = service.clone();
        other.goal = None;
        assert_eq!(Refused::after(Some(&often), other.clone(), now).patience, PATIENCE[0]);
        let refused = BTreeMap::from([(uid.clone(), Refused::after(None, other, now))]);
        assert_eq!(difference(&BTreeMap::new(), &verdicts, &refused, now).take.len(), 1);
        let held = BTreeMap::from([(uid.clone(), service)]);
        assert_eq!(difference(&held, &verdicts, &BTreeMap::new(), now), Difference::default());
        assert_eq!(difference(&held, &BTreeMap::new(), &BTreeMap::new(), now).leave, [uid]);
    }

    proptest! {
        /// Whatever a pod is called and asks for, nothing panics and its service is found by its uid.
        #[test]
        fn any_pod_has_a_verdict(name in ".{0,80}", namespace in ".{0,80}", goal in ".{0,20}") {
            let mut any = pod(&[("roost.dev/goal", &goal), ("roost.dev/mode", "govern")]);
            (any.metadata.name, any.metadata.namespace) = (name, namespace);
            if let Some(Verdict::Hold { service, .. }) = verdict(&any, GOVERNED) {
                prop_assert_eq!(service.target, Target::Cgroup("/sys/fs/cgroup/kubepods/pod1".into(), None));
            }
        }
    }
}
