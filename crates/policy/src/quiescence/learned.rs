//! The learned waits: how long each of its kind lasts, and whether a background group may be waited
//! for.
//!
//! A driver sees that a thread is blocked in `recv` on a connection to elsewhere, or in
//! `epoll_wait`, but neither how long that will take nor, in the second case, its cause. Both are
//! learned per *site*: the group, the kind of the wait and its place (the port at the other end,
//! the descriptor). The expected length is shorter than most: of the last [`LENGTHS_MAX`] lengths
//! one in eight was shorter, so that a wait that is taken to be worth freezing for mostly is.
//!
//! A wait whose end may come from within the machine (several things at once, a socket to here) is
//! [`Nature::Doubtful`]. It counts as one for input or output only after it ended [`CLEAN_MIN`]
//! times running without a background thread having ended it; until then, and from the first time
//! that one does, no group stands still for it.

use super::{GroupId, TaskId, Wait};
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The nature of a wait as far as a driver alone can tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nature {
    /// For a disk, or a peer on another machine.
    Io,
    /// Perhaps for that, perhaps for another process of this machine.
    Doubtful,
    /// For another thread of its own process, or for a time: for no task that may be frozen.
    Within,
    Other,
}

/// Waits that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Site {
    /// The group that its thread belongs to.
    pub group: GroupId,
    pub nature: Nature,
    /// The mark that tells it from others, as the driver numbers them.
    pub place: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct History {
    /// The last ones, the oldest first.
    lengths: Vec<Duration>,
    /// Ends running that no background thread brought about.
    clean: u32,
    used: Instant,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    #[serde(with = "pairs")]
    sites: BTreeMap<Site, History>,
    under_way: BTreeMap<TaskId, (Site, Instant)>,
}

/// Number of lengths remembered for each site.
pub const LENGTHS_MAX: usize = 16;
/// With fewer lengths nothing is expected.
const LENGTHS_MIN: usize = 4;
/// Ends without a background thread after which a doubtful wait is believed. Eight in a row: one
/// that is ended by a background thread every other time is believed once in 256 times.
pub const CLEAN_MIN: u32 = 8;
/// A kind of wait is punctual if all but the shortest and the longest eighth of the last ones
/// differ by this part of their length at most: a fiftieth is lost where every task goes on
/// too early.
const PUNCTUAL: u64 = 50;
/// Sites at a time; the one that was not used for longest goes.
const SITES_MAX: usize = 1024;
/// Waits under way at a time: more threads than the causal graph takes.
const UNDER_WAY_MAX: usize = 16_384;

impl Waits {
    /// A wait begins. Returns the wait as [`super::Quiescence`] shall see it.
    pub fn began(&mut self, now: Instant, task: TaskId, site: Site) -> Wait {
        let is_full = self.under_way.len() >= UNDER_WAY_MAX && !self.under_way.contains_key(&task);
        if matches!(site.nature, Nature::Other | Nature::Within) || is_full {
            self.under_way.remove(&task);
            return if site.nature == Nature::Within { Wait::Within } else { Wait::Other };
        }
        self.under_way.insert(task, (site, now));
        let Some(history) = self.sites.get(&site) else {
            return if site.nature == Nature::Io { Wait::Io { expected: None } } else { Wait::Other };
        };
        if site.nature == Nature::Doubtful && history.clean < CLEAN_MIN {
            return Wait::Other;
        }
        history.wait()
    }

    /// It ended, by a thread of the background group `by` if there was one.
    pub fn ended(&mut self, now: Instant, task: TaskId, by: Option<GroupId>) {
        let Some((site, began)) = self.under_way.remove(&task) else { return };
        if !self.sites.contains_key(&site) && self.sites.len() >= SITES_MAX {
            let oldest = self.sites.iter().min_by_key(|(_, history)| history.used).map(|(&site, _)| site);
            oldest.map(|oldest| self.sites.remove(&oldest));
        }
        let history = self.sites.entry(site).or_default();
        history.used = now;
        history.clean = if by.is_some() { 0 } else { history.clean.saturating_add(1) };
        if history.lengths.len() == LENGTHS_MAX {
            history.lengths.remove(0);
        }
        history.lengths.push(now.since(began));
    }

    /// The thread is gone, or its state is not known any more.
    pub fn forget(&mut self, task: TaskId) {
        self.under_way.remove(&task);
    }

    /// The state of no thread is known any more.
    pub fn forget_all(&mut self) {
        self.under_way.clear();
    }

    /// Every site with its expected wait, and whether that is believed.
    pub fn sites(&self) -> impl Iterator<Item = (Site, Option<Duration>, bool)> + '_ {
        self.sites.iter().map(|(&site, history)| {
            let is_believed = site.nature == Nature::Io || history.clean >= CLEAN_MIN;
            (site, history.expected(), is_believed)
        })
    }
}

impl History {
    /// The expected length of the next one.
    fn wait(&self) -> Wait {
        let mut sorted = self.lengths.clone();
        sorted.sort();
        let eighth = sorted.len() / 8;
        match (sorted.get(eighth), sorted.get(sorted.len().saturating_sub(1 + eighth))) {
            (Some(&short), Some(&long)) if eighth > 0 && long <= short + short / PUNCTUAL => {
                Wait::Punctual { length: short }
            }
            _ => Wait::Io { expected: self.expected() },
        }
    }

    fn expected(&self) -> Option<Duration> {
        if self.lengths.len() < LENGTHS_MIN {
            return None;
        }
        let mut sorted = self.lengths.clone();
        sorted.sort();
        Some(sorted[sorted.len() / 8])
    }
}

/// JSON has no maps by anything but text.
mod pairs {
    use super::{BTreeMap, Deserialize, History, Serialize, Site};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(map: &BTreeMap<Site, History>, out: S) -> Result<S::Ok, S::Error> {
        map.iter().collect::<Vec<_>>().serialize(out)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<Site, History>, D::Error> {
        Ok(Vec::<(Site, History)>::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: TaskId = TaskId(7);
    const BACKGROUND: GroupId = GroupId(2);

    fn site(nature: Nature) -> Site {
        Site { group: GroupId(1), nature, place: 443 }
    }

    /// Waits one after the other; returns the kind that the last one was taken for.
    fn wait(waits: &mut Waits, nature: Nature, lengths_ms: &[u64], by: Option<GroupId>) -> Wait {
        let mut now = Instant::ZERO;
        let mut told = Wait::Other;
        for &length in lengths_ms {
            told = waits.began(now, TASK, site(nature));
            now += Duration::from_millis(length);
            waits.ended(now, TASK, by);
        }
        told
    }

    #[test]
    fn what_is_expected_is_short_of_what_was_seen() {
        let mut waits = Waits::default();
        assert_eq!(wait(&mut waits, Nature::Io, &[100; 4], None), Wait::Io { expected: None });
        let hundred = Wait::Punctual { length: Duration::from_millis(100) };
        assert_eq!(wait(&mut waits, Nature::Io, &[100; 13], None), hundred);
        // One short wait in sixteen is passed over, and three are not.
        assert_eq!(wait(&mut waits, Nature::Io, &[1, 100], None), hundred);
        let short = Wait::Io { expected: Some(Duration::from_millis(1)) };
        assert_eq!(wait(&mut waits, Nature::Io, &[1, 1, 100], None), short);
        assert_eq!(wait(&mut waits, Nature::Io, &[100; LENGTHS_MAX + 1], None), hundred, "it forgets");
    }

    #[test]
    fn waits_that_differ_by_more_than_a_fiftieth_are_not_punctual() {
        let lengths = |spread: u64| (0..16).map(|nth| 100 + nth % 2 * spread).collect::<Vec<u64>>();
        let length = Duration::from_millis(100);
        let told = |lengths: &[u64]| wait(&mut Waits::default(), Nature::Io, lengths, None);
        assert_eq!(told(&lengths(2)), Wait::Punctual { length });
        assert_eq!(told(&lengths(3)), Wait::Io { expected: Some(length) });
        assert_eq!(told(&[100; 8]), Wait::Io { expected: Some(length) }, "seven are too few");
        assert_eq!(told(&[100; 9]), Wait::Punctual { length });
    }

    #[test]
    fn a_doubtful_wait_is_believed_when_no_background_thread_ends_it() {
        let mut waits = Waits::default();
        assert_eq!(wait(&mut waits, Nature::Doubtful, &[100; CLEAN_MIN as usize], None), Wait::Other);
        let believed = Wait::Punctual { length: Duration::from_millis(100) };
        assert_eq!(wait(&mut waits, Nature::Doubtful, &[100], None), believed);
        wait(&mut waits, Nature::Doubtful, &[100], Some(BACKGROUND));
        assert_eq!(wait(&mut waits, Nature::Doubtful, &[100; CLEAN_MIN as usize], None), Wait::Other);
        assert_eq!(wait(&mut waits, Nature::Doubtful, &[100], None), believed);
    }

    #[test]
    fn waits_for_others_and_within_are_what_they_are() {
        let mut waits = Waits::default();
        assert_eq!(wait(&mut waits, Nature::Other, &[100; 20], None), Wait::Other);
        assert_eq!(wait(&mut waits, Nature::Within, &[100; 20], None), Wait::Within);
        assert_eq!(waits.sites().count(), 0);
        // A wait whose begin was not seen teaches nothing.
        waits.ended(Instant::ZERO, TASK, None);
        assert_eq!(waits.sites().count(), 0);
    }

    #[test]
    fn tables_are_bounded() {
        let mut waits = Waits::default();
        for place in 0..2 * SITES_MAX as u64 {
            let now = Instant::from_nanos(place);
            waits.began(now, TASK, Site { place, ..site(Nature::Io) });
            waits.ended(now, TASK, None);
        }
        assert_eq!(waits.sites().count(), SITES_MAX);
        assert!(waits.sites().all(|(site, ..)| site.place >= SITES_MAX as u64), "the oldest went");
        for task in 0..2 * UNDER_WAY_MAX as u32 {
            waits.began(Instant::ZERO, TaskId(task), site(Nature::Io));
        }
        assert_eq!(waits.under_way.len(), UNDER_WAY_MAX);
        let text = serde_json::to_string(&waits).unwrap();
        assert_eq!(serde_json::from_str::<Waits>(&text).unwrap(), waits);
    }
}
