//! The loop of a node: news of pods and limits in, leases and words out.

use crate::annotations::{Mode, PREFIX, STATUS};
use crate::api::{ApiError, Client, News};
use crate::leases::Leases;
use crate::limits::Limits;
use crate::node::{Pod, Refused, Verdict, difference, service_name, verdicts};
use crate::told::{Note, Told, words};
use crate::watcher::watch;
use anyhow::Result;
use daemon::ControlError;
use linux::Root;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Options {
    /// The node's name in the cluster.
    pub node: String,
    pub socket: PathBuf,
    /// Namespace and name of the ConfigMap with the limits.
    pub limits: (String, String),
    pub root: Root,
}

enum Message {
    Pods(News<Pod>),
    Limits(News<ConfigMap>),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    data: BTreeMap<String, String>,
}

/// Governs the node's pods until `ends`. Returning ends all leases.
pub fn run(client: Client, options: Options, ends: &AtomicBool) -> Result<()> {
    let (namespace, name) = &options.limits;
    let (sender, messages) = channel();
    let pods = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", options.node);
    watch(client.clone(), pods, sender.clone(), Message::Pods)?;
    let limits = format!("/api/v1/namespaces/{namespace}/configmaps?fieldSelector=metadata.name%3D{name}");
    watch(client.clone(), limits, sender, Message::Limits)?;
    let mut node = Node::new(client, options);
    let (mut looked, mut pause) = (linux::now(), TICK);
    while !ends.load(Ordering::Relaxed) {
        match messages.recv_timeout(TICK) {
            Ok(message) => {
                node.hear(message);
                pause = TICK;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        // A burst of news is one change.
        messages.try_iter().for_each(|message| node.hear(message));
        if linux::now().since(looked) >= machine::Duration::from(pause) {
            pause = if node.step() { SETTLED } else { TICK };
            looked = linux::now();
        }
    }
    Ok(())
}

const TICK: Duration = Duration::from_secs(1);
/// Of an outage the newest Events are kept.
const UNSENT_MOST: usize = 1_000;
/// Between two looks while no pod waits for anything.
const SETTLED: Duration = Duration::from_secs(5);

/// Everything that is known about this node.
struct Node {
    client: Client,
    name: String,
    root: Root,
    /// `None` before the first reading of either: then nothing is left or taken.
    pods: Option<BTreeMap<String, Pod>>,
    limits: Option<Limits>,
    leases: Leases,
    refused: BTreeMap<String, Refused>,
    told: Told,
    /// Events and their collections, the oldest first.
    unsent: VecDeque<(String, Value)>,
    /// The account may not patch pods: they are told by Events alone.
    may_patch: bool,
    /// The last trouble that was said.
    trouble: BTreeMap<&'static str, String>,
}

impl Node {
    fn new(client: Client, options: Options) -> Self {
        Self {
            client,
            name: options.node,
            root: options.root,
            pods: None,
            limits: None,
            leases: Leases::at(options.socket),
            refused: BTreeMap::new(),
            told: Told::default(),
            unsent: VecDeque::new(),
            may_patch: true,
            trouble: BTreeMap::new(),
        }
    }

    /// Says a trouble once, and its end.
    fn say(&mut self, about: &'static str, trouble: Option<String>) {
        match trouble {
            Some(trouble) if self.trouble.get(about) != Some(&trouble) => {
                eprintln!("roost-kube: {about}: {trouble}");
                self.trouble.insert(about, trouble);
            }
            None if self.trouble.remove(about).is_some() => {
                eprintln!("roost-kube: {about}: all is well again")
            }
            _ => {}
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Pods(News::Away(why)) => self.say("the API server, pods", Some(why)),
            Message::Pods(news) => {
                self.say("the API server, pods", None);
                let pods = self.pods.get_or_insert_default();
                let kept = |mut pod: Pod| {
                    // Those of others may be 256 KiB a pod.
                    pod.metadata.annotations.retain(|key, _| key.starts_with(PREFIX));
                    (pod.metadata.uid.clone(), pod)
                };
                match news {
                    News::All(all) => *pods = all.into_iter().map(kept).collect(),
                    News::Is(pod) => pods.extend([kept(pod)]),
                    News::Gone(pod) => drop(pods.remove(&pod.metadata.uid)),
                    News::Away(_) => {}
                }
            }
            Message::Limits(News::Away(why)) => self.say("the API server, limits", Some(why)),
            Message::Limits(news) => {
                self.say("the API server, limits", None);
                let map = match news {
                    News::All(all) => all.into_iter().next(),
                    News::Is(map) => Some(map),
                    News::Gone(_) | News::Away(_) => None,
                };
                let text = map.and_then(|map| map.data.get("limits.toml").cloned()).unwrap_or_default();
                match Limits::parse(&text) {
                    Ok(limits) => {
                        self.say("limits.toml", None);
                        self.limits = Some(limits);
                    }
                    // The last good ones stand.
                    Err(fault) => self.say("limits.toml", Some(fault)),
                }
            }
        }
    }

    /// Leaves and takes services, and tells the pods. True if no pod waits for anything.
    fn step(&mut self) -> bool {
        let (Some(pods), Some(limits)) = (self.pods.clone(), &self.limits) else { return false };
        let now = linux::now();
        let verdicts = verdicts(&pods, limits, &linux::pod_cgroups(&self.root));
        for uid in self.leases.lost() {
            self.note(&pods, &uid, &Note::warning("Released", "the daemon has ended its lease"));
        }
        self.refused.retain(|uid, _| pods.contains_key(uid));
        self.told.keep(|uid| pods.contains_key(uid));
        let change = difference(&self.leases.held(), &verdicts, &self.refused, now);
        for uid in change.leave {
            self.leases.leave(&uid);
            self.note(&pods, &uid, &Note::normal("Released", "no longer governed; all is put back"));
        }
        for (uid, service) in change.take {
            match self.leases.take(&uid, &service) {
                Ok(Ok(())) => {
                    self.say("the daemon", None);
                    self.refused.remove(&uid);
                }
                Ok(Err(refusal)) => {
                    self.say("the daemon", None);
                    self.note(&pods, &uid, &Note::warning("Refused", one_line(&refusal.message)));
                    let refused = Refused::after(self.refused.get(&uid), service, now);
                    self.refused.insert(uid, refused);
                }
                Err(error) => {
                    self.say("the daemon", Some(one_line(&error.to_string())));
                    if matches!(error, ControlError::NoDaemon { .. } | ControlError::Denied { .. }) {
                        break;
                    }
                }
            }
        }
        self.tell(&pods, &verdicts);
        self.send();
        let held = self.leases.held();
        verdicts.iter().all(|(uid, verdict)| matches!(verdict, Verdict::Wrong(_)) || held.contains_key(uid))
    }

    fn tell(&mut self, pods: &BTreeMap<String, Pod>, verdicts: &BTreeMap<String, Verdict>) {
        let states = self.leases.states().unwrap_or_default();
        let held = self.leases.held();
        for (uid, verdict) in verdicts {
            let Some(pod) = pods.get(uid) else { continue };
            let state = match verdict {
                Verdict::Wrong(fault) => {
                    self.note(pods, uid, &Note::warning("WrongAnnotation", fault));
                    format!("refused: {fault}")
                }
                Verdict::Wait => continue,
                Verdict::Hold { service, mode, remarks } => {
                    for remark in remarks {
                        self.note(pods, uid, &Note::normal("Limited", remark));
                    }
                    let is_held = held.contains_key(uid);
                    match (states.governed.get(&service.name), states.waiting.get(&service.name)) {
                        (Some(status), _) if is_held => {
                            let started = match mode {
                                Mode::Govern => Note::normal("Governed", "its cores are governed"),
                                Mode::Observe => Note::normal("Observed", "its requests are watched"),
                            };
                            self.note(pods, uid, &started);
                            words(status, *mode == Mode::Observe)
                        }
                        (_, Some(why)) if is_held => format!("waits: {}", one_line(why)),
                        _ => continue,
                    }
                }
            };
            let now = linux::now();
            if self.may_patch && self.told.is_news(uid, &state, now) {
                let path =
                    format!("/api/v1/namespaces/{}/pods/{}", pod.metadata.namespace, pod.metadata.name);
                // The uid guards against a new pod of the same name.
                let fields = json!({ "metadata": { "uid": uid, "annotations": { STATUS: state } } });
                match self.client.patch(&path, &fields) {
                    Err(error) if error.is_forbidden() => {
                        self.may_patch = false;
                        self.say(
                            "status annotations",
                            Some(format!("{error}; pods are told by Events alone")),
                        );
                    }
                    Err(ApiError::Refused { code: 404 | 409, .. }) | Ok(()) => {}
                    Err(error) => {
                        self.say("status annotations", Some(error.to_string()));
                        self.told.forget(uid);
                        return;
                    }
                }
            }
        }
    }

    fn note(&mut self, pods: &BTreeMap<String, Pod>, uid: &str, note: &Note) {
        let Some(pod) = pods.get(uid) else { return };
        if !self.told.is_new_note(uid, note, linux::now()) {
            return;
        }
        let meta = &pod.metadata;
        let now = timestamp();
        eprintln!("roost-kube: {}: {}: {}", service_name(meta), note.reason, note.message);
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "generateName": format!("{}.", meta.name), "namespace": meta.namespace },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "name": meta.name, "namespace": meta.namespace, "uid": uid,
            },
            "type": if note.is_warning { "Warning" } else { "Normal" },
            "reason": note.reason, "message": note.message.chars().take(1_000).collect::<String>(),
            "source": { "component": "roost", "host": self.name },
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        self.unsent.push_back((format!("/api/v1/namespaces/{}/events", meta.namespace), event));
        if self.unsent.len() > UNSENT_MOST {
            self.unsent.pop_front();
        }
    }

    /// Sends the Events of this step, and those that an outage of the server has left.
    fn send(&mut self) {
        while let Some((path, event)) = self.unsent.front() {
            match self.client.post(path, event) {
                // A namespace that ends takes no more; neither does a server that forbids it.
                Err(error @ ApiError::Refused { code: 400 | 403 | 404 | 422, .. }) => {
                    self.say("Events", Some(error.to_string()));
                }
                Err(error) => return self.say("Events", Some(error.to_string())),
                Ok(()) => self.say("Events", None),
            }
            self.unsent.pop_front();
        }
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

/// Now, as RFC 3339 has it.
fn timestamp() -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    report::run::utc(seconds.unwrap_or_default().as_secs()).replacen(' ', "T", 1).replace(" UTC", "Z")
}
