//! A daemon's log for its operator: neither a flood nor silence.
//!
//! A fault that occurs every second is one line and not 86,400 a day. Lines that differ by a figure
//! each time are bounded in number per minute. But the omitted lines are counted, and after the
//! minute lines are written again: a log that ends for good hides the next failure.
//!
//! What always holds, for any lines at any times:
//! - In a window of [`WINDOW`] at most [`LINES_MAX`] lines are written, and one that counts those
//!   that were not.
//! - Each line was written, or counted in such a line, or is the repetition of one that was written
//!   within [`AGAIN`].

use machine::{Duration, Instant};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Log {
    /// When each line was written last.
    known: BTreeMap<String, Instant>,
    since: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Log {
    /// Lines to write now, for one that is news each time.
    pub fn line(&mut self, now: Instant, line: &str) -> Vec<String> {
        let mut lines: Vec<String> = self.due(now).into_iter().collect();
        if self.since.is_none() {
            self.since = Some(now);
        }
        if self.written < LINES_MAX {
            self.written += 1;
            lines.push(line.to_owned());
        } else {
            self.left_out += 1;
        }
        lines
    }

    /// The same for a line that may only repeat a known fact.
    pub fn once(&mut self, now: Instant, line: &str) -> Vec<String> {
        if self.known.get(line).is_some_and(|&at| now.since(at) < AGAIN) {
            return self.due(now).into_iter().collect();
        }
        let lines = self.line(now, line);
        if lines.last().is_some_and(|last| last == line) {
            self.remember(now, line);
        }
        lines
    }

    /// Lines on this subject are new from now on.
    pub fn forget(&mut self, subject: &str) {
        let about = format!("{subject}: ");
        self.known.retain(|line, _| !line.starts_with(&about));
    }

    /// The line that counts the omitted ones, once its window is over.
    pub fn due(&mut self, now: Instant) -> Option<String> {
        if self.since.is_none_or(|since| now.since(since) < WINDOW) {
            return None;
        }
        self.since = None;
        self.written = 0;
        self.rest()
    }

    /// The same at the end of all, in the middle of a window.
    pub fn rest(&mut self) -> Option<String> {
        let left_out = std::mem::take(&mut self.left_out);
        (left_out > 0)
            .then(|| format!("{left_out} more lines were not written: over {LINES_MAX} in a minute"))
    }

    /// When to ask for that line.
    pub fn wakes_at(&self) -> Option<Instant> {
        self.since.filter(|_| self.left_out > 0).map(|since| since + WINDOW)
    }

    fn remember(&mut self, now: Instant, line: &str) {
        if self.known.len() >= KNOWN_MAX {
            self.known.retain(|_, at| now.since(*at) < AGAIN);
        }
        if self.known.len() >= KNOWN_MAX {
            let oldest = self.known.iter().min_by_key(|(_, at)| **at).map(|(line, _)| line.clone());
            oldest.and_then(|line| self.known.remove(&line));
        }
        self.known.insert(line.to_owned(), now);
    }
}

/// More lines in a window go unread.
const LINES_MAX: u32 = 200;

/// Which are counted in a window of this length.
const WINDOW: Duration = Duration::from_secs(60);

/// A fault that lasts this long is reported once more.
const AGAIN: Duration = Duration::from_secs(3600);

const KNOWN_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_flood_of_different_lines_ends_and_the_next_minute_is_heard() {
        let mut log = Log::default();
        let written: usize = (0..20_000).map(|n| log.once(at(1), &format!("alarm {n}")).len()).sum();
        assert_eq!(written, LINES_MAX as usize);
        assert_eq!(log.wakes_at(), Some(at(61)));
        assert_eq!(log.due(at(60)), None);
        let later = log.once(at(61), "cache: it has ended");
        assert_eq!(later.len(), 2, "{later:?}");
        assert!(later[0].starts_with("19800 more lines were not written"), "{later:?}");
        assert_eq!(later[1], "cache: it has ended");
    }

    #[test]
    fn what_stays_wrong_is_said_once_an_hour_and_a_second_death_at_once() {
        let mut log = Log::default();
        let said = (0..7200).filter(|&second| !log.once(at(second), "cache: no process listens").is_empty());
        assert_eq!(said.count(), 2);
        assert_eq!(log.once(at(7201), "cache: it has ended").len(), 1);
        assert!(log.once(at(7202), "cache: it has ended").is_empty());
        log.forget("cache");
        assert_eq!(log.once(at(7203), "cache: it has ended").len(), 1);
    }

    proptest! {
        #[test]
        fn no_flood_no_silence_and_nothing_uncounted(
            steps in prop::collection::vec((0_u64..40, 0_u32..300, any::<bool>()), 1..200),
        ) {
            let mut log = Log::default();
            let (mut now, mut number, mut given, mut written, mut counted) = (0, 0_u64, 0_u64, 0_u64, 0_u64);
            let mut times = Vec::new();
            let mut take = |now: u64, lines: Vec<String>| {
                for line in lines {
                    times.push(now);
                    match line.split_once(" more lines were not written") {
                        Some((count, _)) => counted += count.parse::<u64>().unwrap(),
                        None => written += 1,
                    }
                }
            };
            for (pause, lines, is_once) in steps {
                now += pause;
                for _ in 0..lines {
                    number += 1;
                    given += 1;
                    let text = format!("line {number}");
                    let lines = if is_once { log.once(at(now), &text) } else { log.line(at(now), &text) };
                    take(now, lines);
                }
            }
            take(now + 60, log.due(at(now + 60)).into_iter().collect());
            let last = log.line(at(now + 61), "the last");
            prop_assert_eq!(last.last().map(String::as_str), Some("the last"), "never silent for ever");
            prop_assert_eq!(written + counted, given);
            for (nth, &begin) in times.iter().enumerate() {
                let within = times[nth..].iter().take_while(|&&at| at < begin + 60).count();
                prop_assert!(within <= 2 * (LINES_MAX as usize + 1), "{} lines in a minute", within);
            }
        }
    }
}
