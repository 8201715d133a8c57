//! Counts of calls of some functions, and how long each took; and the agent's file of them
//! (docs/formats.md, "Counted calls"). The file is the service's user's: any bytes are counts or an
//! error.

use hdrhistogram::Histogram;
use linux::probes::{FunctionTally, RequestTimes};
use machine::{Duration, Instant};
use std::collections::BTreeMap;
use thiserror::Error;

/// How the counting of one function went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedState {
    Counted,
    /// It is called so often that counting it was ended early.
    TooOften,
    /// It could not be found or watched.
    Refused,
}

#[derive(Clone, Debug)]
pub struct Counted {
    pub state: CountedState,
    pub calls: u64,
    pub began: Instant,
    /// For how long they were counted.
    pub elapsed: Duration,
    /// Requests that were answered in that very time; `None` where that was not told.
    pub requests: Option<u64>,
    pub times: Times,
    /// Why it could not be counted; nothing if it was.
    pub why: String,
}

/// Lengths of calls: from 1 ns to a day, within a hundredth.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Counted {
    pub fn per_second(&self) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { self.calls as f64 / self.elapsed.as_secs_f64() }
    }

    /// Calls for each request: by those of that very time, for a function that is watched slows the
    /// service while it is; or, where there were none or they were not told, by how many come a
    /// second all in all.
    pub fn per_request(&self, rate: Option<f64>) -> Option<f64> {
        match self.requests.filter(|&requests| requests > 0) {
            Some(requests) => Some(self.calls as f64 / requests as f64),
            None => rate.filter(|rate| *rate > 0.0).map(|rate| self.per_second() / rate),
        }
    }

    /// As a program in the kernel tallied them.
    pub fn of_tally(tally: &FunctionTally, began: Instant, elapsed: Duration) -> Self {
        let mut times = Times::default();
        for (bucket, &count) in tally.times.counts.iter().enumerate() {
            let (from, to) = RequestTimes::bounds(bucket);
            let to = to.min(from + from + Duration::from_nanos(256));
            times.add(from.as_nanos().midpoint(to.as_nanos()), count.into());
        }
        let why = String::new();
        Self { state: CountedState::Counted, calls: tally.calls, began, elapsed, requests: None, times, why }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self(
            Histogram::new_with_bounds(1, 86_400_000_000_000, 2)
                .expect("the bounds and two digits are allowed"),
        )
    }
}

impl Times {
    fn add(&mut self, nanos: u64, count: u64) {
        if count > 0 {
            self.0.saturating_record_n(nanos.max(1), count);
        }
    }

    /// A percentile; `None` if no call ended.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_nanos(self.0.value_at_percentile(percent)))
    }

    /// The mean of the calls up to the median: the time of light requests.
    pub fn light(&self) -> Option<Duration> {
        let median = self.percentile(50.0)?.as_nanos();
        let light = self.0.iter_recorded().filter(|step| step.value_iterated_to() <= median);
        let (sum, count) = light.fold((0.0, 0.0), |(sum, count), step| {
            let many = step.count_at_value() as f64;
            (sum + many * step.value_iterated_to() as f64, count + many)
        });
        Some(Duration::from_nanos((sum / f64::max(count, 1.0)) as u64))
    }
}

/// Why a file holds no counts.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CountError {
    #[error(
        "it is no file of counted calls, or of another version of the agent: it does not begin \
         with \"{HEAD}\""
    )]
    NotOne,
    #[error("it ends in the middle")]
    Unfinished,
    #[error("line {0} is none of such a file")]
    Line(usize),
}

const HEAD: &str = "roost-count 2";
const FUNCTIONS_MAX: usize = 64;

/// The counts of the agent's file, by the names that were asked for.
pub fn read_counts(text: &str) -> Result<BTreeMap<String, Counted>, CountError> {
    let mut lines = text.lines().enumerate();
    if lines.next().is_none_or(|(_, first)| first != HEAD) {
        return Err(CountError::NotOne);
    }
    let mut found: BTreeMap<String, Counted> = BTreeMap::new();
    let mut last: Option<String> = None;
    for (at, line) in lines {
        let odd = || CountError::Line(at + 1);
        if line == "end" {
            return Ok(found);
        }
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        if kind == "method" {
            let (asked, counted) = method(rest).filter(|_| found.len() < FUNCTIONS_MAX).ok_or_else(odd)?;
            last = Some(asked.clone());
            found.insert(asked, counted);
            continue;
        }
        match (kind, last.as_ref().and_then(|name| found.get_mut(name))) {
            ("times", Some(counted)) => {
                for pair in rest.split_ascii_whitespace() {
                    let (nanos, count) = pair.split_once(':').ok_or_else(odd)?;
                    counted.times.add(nanos.parse().map_err(|_| odd())?, count.parse().map_err(|_| odd())?);
                }
            }
            ("why", Some(counted)) => counted.why = rest.replace(char::is_control, "?"),
            _ => return Err(odd()),
        }
    }
    Err(CountError::Unfinished)
}

/// `STATE CALLS BEGAN NANOSECONDS ASKED FOUND`.
fn method(text: &str) -> Option<(String, Counted)> {
    let mut words = text.split(' ');
    let state = match words.next()? {
        "watched" => CountedState::Counted,
        "too-often" => CountedState::TooOften,
        "refused" | "waiting" => CountedState::Refused,
        _ => return None,
    };
    let mut number = || words.next()?.parse().ok();
    let (calls, began, elapsed) = (number()?, number()?, number()?);
    let (began, elapsed) = (Instant::from_nanos(began), Duration::from_nanos(elapsed));
    Some((
        words.next()?.to_owned(),
        Counted { state, calls, began, elapsed, requests: None, times: Times::default(), why: String::new() },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "roost-count 2\n\
        method watched 662 7000000000 2000000000 a.B::search a.B::search(I)J\ntimes 1000:300 \
        2000:300 90000:62\nwhy \n\
        method too-often 9000 7000000000 40000000 a.B::score a.B::score()V\ntimes 10:9000\nwhy \n\
        method refused 0 0 0 a.B::sear a.B::sear\ntimes\nwhy a.B has no such method\nend\n";

    #[test]
    fn the_agent_s_file_is_read() {
        let found = read_counts(TEXT).unwrap();
        let search = &found["a.B::search"];
        assert_eq!((search.state, search.calls, search.per_second()), (CountedState::Counted, 662, 331.0));
        assert_eq!(search.began, Instant::from_nanos(7_000_000_000));
        assert!(search.times.percentile(99.0).unwrap() >= Duration::from_nanos(89_000));
        let light = search.times.light().unwrap().as_nanos();
        assert!((1000..2100).contains(&light), "{light}");
        assert_eq!(found["a.B::score"].state, CountedState::TooOften);
        assert_eq!(found["a.B::sear"].why, "a.B has no such method");
        assert_eq!(Times::default().percentile(50.0), None);
        // By rates, where requests were not counted in the same time, or none came.
        assert_eq!((search.per_request(Some(331.0)), search.per_request(None)), (Some(1.0), None));
        let told = |requests| Counted { requests: Some(requests), ..search.clone() }.per_request(Some(331.0));
        assert_eq!((told(331), told(0)), (Some(2.0), Some(1.0)));
    }

    #[test]
    fn what_is_cut_short_or_odd_is_an_error() {
        assert_eq!(read_counts("").unwrap_err(), CountError::NotOne);
        assert_eq!(read_counts("roost-count 1\nend\n").unwrap_err(), CountError::NotOne);
        assert_eq!(read_counts(TEXT.trim_end().trim_end_matches("end")).unwrap_err(), CountError::Unfinished);
        assert_eq!(read_counts("roost-count 2\ntimes 1:1\nend").unwrap_err(), CountError::Line(2));
        assert_eq!(
            read_counts("roost-count 2\nmethod watched 1 x 1 a b\nend").unwrap_err(),
            CountError::Line(2)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_counts_or_an_error(text in "(roost-count 2\n)?((method|times|why) \
            (watched|refused)?[ 0-9:a-z\u{1}]{0,30}\n){0,6}(end)?") {
            let _ = read_counts(&text);
        }
    }
}
