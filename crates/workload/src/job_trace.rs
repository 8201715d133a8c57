//! Requests from a CSV file: arrival, class and service time of each.
//!
//! Lines of `time,class,service` or `time,class,service,connection`: times since the beginning,
//! never falling; a class's name; the service time at the nominal clock; the number of the
//! connection. A bare number of either time is seconds, and a unit may follow (`35us`). Blank lines
//! and lines that begin with `#` are skipped, and so is a first line of column names.
//!
//! The file is read twice: once to see that every line is right, before anything else is begun, and
//! once to be replayed. Neither pass holds more than a line of it, so a trace may be larger than
//! memory.

use crate::SpecError;
use machine::{Duration, Rate};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    pub at: Duration,
    pub class: u8,
    pub service: Duration,
    /// None if the file does not say.
    pub connection: Option<u32>,
}

/// A file in which every line is right.
#[derive(Clone, Debug)]
pub(crate) struct JobTrace {
    path: PathBuf,
    /// In the order in which they were declared, or else first seen.
    pub classes: Vec<String>,
    /// Requests and service time of each class.
    pub totals: Vec<(u64, Duration)>,
    pub end: Duration,
    /// The highest number of a connection, if any is given.
    pub last_connection: Option<u32>,
}

impl JobTrace {
    /// Reads all of the file. A class that is not among `declared` is an error, unless none is
    /// declared.
    pub fn open(path: &Path, declared: &[String]) -> Result<Self, SpecError> {
        Self::check(Lines::open(path)?, declared)
    }

    fn check(mut lines: Lines<impl BufRead>, declared: &[String]) -> Result<Self, SpecError> {
        let path = lines.path.clone();
        let mut trace = Self {
            path: path.to_path_buf(),
            classes: declared.to_vec(),
            totals: vec![(0, Duration::ZERO); declared.len()],
            end: Duration::ZERO,
            last_connection: None,
        };
        while let Some(entry) = lines.next(&mut trace.classes, declared.is_empty())? {
            trace.totals.resize(trace.classes.len(), (0, Duration::ZERO));
            let total = &mut trace.totals[usize::from(entry.class)];
            *total = (total.0 + 1, total.1 + entry.service);
            trace.end = entry.at;
            trace.last_connection = trace.last_connection.max(entry.connection);
        }
        if trace.totals.iter().all(|total| total.0 == 0) {
            let problem = "has no request in it".to_owned();
            return Err(SpecError::FileShort { path: trace.path, problem, form: FORM });
        }
        Ok(trace)
    }

    /// The requests from the first on.
    pub fn replay(&self) -> Result<Replay, SpecError> {
        Ok(Replay { lines: Lines::open(&self.path)?, classes: self.classes.clone() })
    }

    pub fn requests(&self) -> u64 {
        self.totals.iter().map(|total| total.0).sum()
    }

    /// Requests per second over the whole.
    pub fn rate(&self) -> Rate {
        Rate::of(self.requests(), self.end)
    }

    /// Mean service time over all classes.
    pub fn mean_service(&self) -> Duration {
        self.totals.iter().map(|total| total.1).sum::<Duration>() / self.requests()
    }
}

/// The requests of a trace, one after the other.
#[derive(Debug)]
pub(crate) struct Replay {
    lines: Lines<BufReader<File>>,
    classes: Vec<String>,
}

impl Replay {
    /// The next request; none after the last. Fails only if the file changed since it was opened.
    pub fn next(&mut self) -> Result<Option<Entry>, SpecError> {
        self.lines.next(&mut self.classes, false)
    }
}

/// The lines of a file as entries.
#[derive(Debug)]
struct Lines<R> {
    path: Arc<Path>,
    source: R,
    text: Vec<u8>,
    number: usize,
    /// Time of the entry before; none before the first.
    before: Option<Duration>,
}

impl Lines<BufReader<File>> {
    fn open(path: &Path) -> Result<Self, SpecError> {
        let unreadable = |cause| SpecError::FileUnreadable { path: path.to_owned(), cause, form: FORM };
        let file = File::open(path).map_err(unreadable)?;
        Ok(Self::new(BufReader::with_capacity(1 << 16, file), path))
    }
}

impl<R: BufRead> Lines<R> {
    fn new(source: R, path: &Path) -> Self {
        Self { path: path.into(), source, text: Vec::new(), number: 0, before: None }
    }

    fn next(&mut self, classes: &mut Vec<String>, may_add: bool) -> Result<Option<Entry>, SpecError> {
        loop {
            self.text.clear();
            self.number += 1;
            let read = (&mut self.source).take(LINE_MAX).read_until(b'\n', &mut self.text);
            let unreadable =
                |cause| SpecError::FileUnreadable { path: self.path.to_path_buf(), cause, form: FORM };
            if read.map_err(unreadable)? == 0 {
                return Ok(None);
            }
            let refused = |text: &str, problem: &str| {
                SpecError::file_line(&self.path, self.number, text, problem, FORM)
            };
            let Ok(line) = std::str::from_utf8(&self.text).map(str::trim) else {
                return Err(refused(&String::from_utf8_lossy(&self.text), "is not text"));
            };
            if self.text.len() as u64 == LINE_MAX {
                return Err(refused(line, "is longer than 1000 bytes"));
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if self.before.is_none() && line.starts_with("time,") {
                continue;
            }
            let entry = parse(line, classes, may_add).map_err(|problem| refused(line, &problem))?;
            if self.before.is_some_and(|before| entry.at < before) {
                return Err(refused(line, "arrives before the line above: sort the trace by time"));
            }
            self.before = Some(entry.at);
            return Ok(Some(entry));
        }
    }
}

fn parse(line: &str, classes: &mut Vec<String>, may_add: bool) -> Result<Entry, String> {
    let mut fields = line.split(',').map(str::trim);
    let mut field = |key: &str| fields.next().filter(|text| !text.is_empty()).ok_or(format!("has no {key}"));
    let at = time("time", field("time")?)?;
    let name = field("class")?;
    let service = time("service", field("service")?)?;
    let connection = match fields.next() {
        None => None,
        Some(text) => {
            let number = text.parse().ok().filter(|number| *number < CONNECTIONS_MAX);
            Some(number.ok_or(format!("has the connection `{text}`, which is no number below a million"))?)
        }
    };
    if fields.next().is_some() {
        return Err("has more than four fields".into());
    }
    let class = match classes.iter().position(|class| class == name) {
        Some(place) => place,
        None if may_add && classes.len() < CLASSES_MAX => {
            classes.push(name.to_owned());
            classes.len() - 1
        }
        None if may_add => return Err(format!("has the class `{name}`, the 257th: use at most 256")),
        None => return Err(format!("has the class `{name}`, which is none of {}", classes.join(", "))),
    };
    Ok(Entry { at, class: class as u8, service, connection })
}

fn time(key: &str, text: &str) -> Result<Duration, String> {
    let wrong = || format!("has the {key} `{text}`, which is no time from 0 to 10^7 s");
    let time = match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => {
            Duration::from_nanos((seconds * 1e9).round() as u64)
        }
        Ok(_) => return Err(wrong()),
        Err(_) => text.parse().map_err(|_| wrong())?,
    };
    if time.as_secs_f64() <= SECONDS_MAX { Ok(time) } else { Err(wrong()) }
}

/// The contents of such a file.
const FORM: &str = "each line is `time,class,service[,connection]` by rising time, in seconds or with a \
                    unit, such as `0.25,get,35us,7`";
/// More than any line needs: a file that is no trace shall not be taken for one long line.
const LINE_MAX: u64 = 1001;
const CONNECTIONS_MAX: u32 = 1_000_000;
/// As many as a `u8` tells apart.
pub(crate) const CLASSES_MAX: usize = 256;
const SECONDS_MAX: f64 = 1e7;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn open(text: &str, declared: &[&str]) -> Result<JobTrace, SpecError> {
        let declared: Vec<String> = declared.iter().map(|name| (*name).to_owned()).collect();
        JobTrace::check(Lines::new(text.as_bytes(), Path::new("day.csv")), &declared)
    }

    #[test]
    fn lines_are_read_in_seconds_or_with_a_unit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("day.csv");
        std::fs::write(
            &path,
            "time,class,service,connection\n# a day\n0,get,35us,7\n\n1.5e-3, set ,2e-6\n1500us,get,0,0\n",
        )
        .unwrap();
        let trace = JobTrace::open(&path, &[]).unwrap();
        assert_eq!(trace.classes, ["get", "set"]);
        assert_eq!(trace.totals, [(2, Duration::from_micros(35)), (1, Duration::from_micros(2))]);
        assert_eq!((trace.requests(), trace.last_connection), (3, Some(7)));
        assert_eq!(trace.rate().as_per_second(), 2000.0);
        let mut replay = trace.replay().unwrap();
        let entries: Vec<Entry> = std::iter::from_fn(|| replay.next().unwrap()).collect();
        let at = |micros, class, service_us, connection| Entry {
            at: Duration::from_micros(micros),
            class,
            service: Duration::from_micros(service_us),
            connection,
        };
        assert_eq!(entries, [at(0, 0, 35, Some(7)), at(1500, 1, 2, None), at(1500, 0, 0, Some(0))]);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number_key_and_the_fix() {
        let long = "x".repeat(2000);
        for (text, line, problem) in [
            ("0,a,1us\n1,a", 2, "has no service"),
            ("0,a,1us\n\n,a,1us", 3, "has no time"),
            ("0,,1us", 1, "has no class"),
            ("1,a,1us\n0.5,a,1us", 2, "sort the trace by time"),
            ("nan,a,1us", 1, "the time `nan`"),
            ("-1,a,1us", 1, "the time `-1`"),
            ("0,a,-1us", 1, "the service `-1us`"),
            ("0,a,inf", 1, "the service `inf`"),
            ("0,a,1e99", 1, "the service `1e99`"),
            ("0,a,5parsecs", 1, "the service `5parsecs`"),
            ("0,a,1us,x", 1, "the connection `x`"),
            ("0,a,1us,-1", 1, "the connection `-1`"),
            ("0,a,1us,99999999", 1, "the connection `99999999`"),
            ("0,a,1us,1,2", 1, "more than four fields"),
            ("root:x:0:0:root:/root:/bin/sh", 1, "the time `root"),
            (long.as_str(), 1, "longer than 1000"),
        ] {
            let message = open(text, &[]).unwrap_err().to_string();
            assert!(message.starts_with(&format!("day.csv:{line}:")), "{message}");
            assert!(message.contains(problem) && message.contains("0.25,get,35us,7"), "{message}");
        }
        let message = open("0,get,1us\n1,put,1us", &["get", "set"]).unwrap_err().to_string();
        assert!(message.contains("class `put`, which is none of get, set"), "{message}");
        let many: String = (0..257).map(|n| format!("{n},c{n},1us\n")).collect();
        assert!(open(&many, &[]).unwrap_err().to_string().contains("at most 256"));
    }

    #[test]
    fn what_is_no_trace_is_said_to_be_none() {
        for text in ["", "# nothing\n", "time,class,service\n", "\n\n"] {
            assert!(open(text, &[]).unwrap_err().to_string().contains("has no request"), "{text:?}");
        }
        let missing = JobTrace::open(Path::new("/nonexistent/day.csv"), &[]).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/day.csv") && missing.contains("time,class"), "{missing}");
        let binary = Lines::new(&[0xff, 0xfe, b'\n'][..], Path::new("b"));
        assert!(JobTrace::check(binary, &[]).unwrap_err().to_string().contains("is not text"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,200}") {
            let _ = open(&text, &[]);
        }

        #[test]
        fn no_fields_panic(text in "([-0-9.eunsa,]{0,16}\n){0,8}") {
            if let Ok(trace) = open(&text, &[]) {
                prop_assert!(trace.requests() > 0 && trace.classes.len() == trace.totals.len());
            }
        }
    }
}
