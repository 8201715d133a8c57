//! The words for a pod: an annotation with its state, and Events.
//!
//! - The annotation changes at most once in [`STATUS_EVERY`], and only if its words changed.
//! - An Event of the same words is sent at most once in [`EVENT_EVERY`].
//! - Both are remembered for the pods that there are, and for no others.

use daemon::Status;
use machine::{Duration, Instant};
use policy::governing::Mode;
use std::collections::BTreeMap;

pub const STATUS_EVERY: Duration = Duration::from_secs(60);
pub const EVENT_EVERY: Duration = Duration::from_secs(3_600);
/// A pod whose words change all the time is not told each of them.
const EVENTS_MOST: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    pub is_warning: bool,
    /// One word, as `kubectl get events` has it.
    pub reason: &'static str,
    pub message: String,
}

impl Note {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_warning: false, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_warning: true, reason, message: message.into() }
    }
}

/// The state in a few words.
pub fn words(status: &Status, is_observed: bool) -> String {
    let (awake, all) = status.cores;
    let mut words = match &status.mode {
        _ if is_observed => "observed".to_owned(),
        Mode::Searching => format!("governed: {awake} of {all} cores"),
        Mode::Open { .. } => "failed open: all cores, no limits".to_owned(),
        Mode::Paused => "paused: all cores".to_owned(),
    };
    match (status.service.tail, status.goal) {
        (Some(tail), Some(goal)) => {
            let kept = if tail <= goal.latency { "kept" } else { "missed" };
            words.push_str(&format!(", {tail} of {goal}: {kept}"));
        }
        (None, Some(goal)) => words.push_str(&format!(", goal {goal}, too few requests to tell")),
        (_, None) => {
            if let Some(p99) = status.service.p99 {
                words.push_str(&format!(", p99 {p99}"));
            }
        }
    }
    words
}

#[derive(Debug, Default)]
pub struct Told {
    pods: BTreeMap<String, OfPod>,
}

#[derive(Debug, Default)]
struct OfPod {
    status: Option<(String, Instant)>,
    notes: BTreeMap<Note, Instant>,
}

impl Told {
    /// True if the pod's annotation is to be these words now.
    pub fn is_news(&mut self, uid: &str, words: &str, now: Instant) -> bool {
        let pod = self.pods.entry(uid.to_owned()).or_default();
        let is_news = match &pod.status {
            None => true,
            Some((last, at)) => last != words && now.since(*at) >= STATUS_EVERY,
        };
        if is_news {
            pod.status = Some((words.to_owned(), now));
        }
        is_news
    }

    /// True if the pod is to have this Event now.
    pub fn is_new_note(&mut self, uid: &str, note: &Note, now: Instant) -> bool {
        let pod = self.pods.entry(uid.to_owned()).or_default();
        pod.notes.retain(|_, at| now.since(*at) < EVENT_EVERY);
        if pod.notes.contains_key(note) || pod.notes.len() >= EVENTS_MOST {
            return false;
        }
        pod.notes.insert(note.clone(), now);
        true
    }

    /// The words to this pod did not arrive, and are to be said again.
    pub fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.pods.retain(|uid, _| is_there(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn a_state_that_flickers_is_told_once_a_minute() {
        let mut told = Told::default();
        assert!(told.is_news("a", "1 of 2 cores", at(0)));
        assert!(!told.is_news("a", "2 of 2 cores", at(30)));
        assert!(!told.is_news("a", "1 of 2 cores", at(61)), "it is what it was");
        assert!(told.is_news("a", "2 of 2 cores", at(62)));
        assert!(told.is_news("b", "2 of 2 cores", at(62)));
    }

    #[test]
    fn an_event_is_sent_once_an_hour_and_a_flood_not_at_all() {
        let mut told = Told::default();
        let note = Note::warning("Refused", "another program holds the cpuset");
        assert!(told.is_new_note("a", &note, at(0)));
        assert!(!told.is_new_note("a", &note, at(3_599)));
        assert!(told.is_new_note("a", &note, at(3_600)));
        let sent = (0..100).filter(|n| told.is_new_note("a", &Note::normal("N", n.to_string()), at(3_601)));
        assert_eq!(sent.count(), EVENTS_MOST - 1);
        told.keep(|uid| uid == "b");
        assert!(told.is_new_note("a", &note, at(3_602)), "another pod of that uid");
    }
}
