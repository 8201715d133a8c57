//! A load trace from a CSV file.
//!
//! Lines of `seconds,rate`, seconds rising from anywhere. Each rate holds until the next line's
//! second; the last line ends the trace, its own rate holding as long as the one before it did.
//! Blank lines and lines that begin with `#` are skipped, and so is a first line of column names.

use crate::{Segment, SpecError};
use machine::{Duration, Rate};
use std::path::Path;

pub(crate) fn read(path: &Path) -> Result<Vec<Segment>, SpecError> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| SpecError::TraceUnreadable { path: path.to_owned(), cause })?;
    parse(&text, path)
}

fn parse(text: &str, path: &Path) -> Result<Vec<Segment>, SpecError> {
    let mut rows: Vec<(f64, f64)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refused = |problem| SpecError::TraceLine {
            path: path.to_owned(),
            line: index + 1,
            text: line.chars().take(LINE_SHOWN_CHARS).collect(),
            problem,
        };
        let (seconds, rate) = line.split_once(',').ok_or_else(|| refused("has no comma"))?;
        let (seconds, rate) = (seconds.trim(), rate.trim());
        let names_columns = |field: &str| field.starts_with(|c: char| c.is_ascii_alphabetic());
        if rows.is_empty() && names_columns(seconds) && names_columns(rate) {
            continue;
        }
        let seconds: f64 = seconds.parse().map_err(|_| refused("does not begin with a number"))?;
        let rate: f64 = rate.parse().map_err(|_| refused("does not end with one number"))?;
        if !seconds.is_finite() || !(0.0..=RATE_MAX).contains(&rate) {
            return Err(refused("has a number out of range"));
        }
        if rows.last().is_some_and(|(before, _)| seconds <= *before) {
            return Err(refused("is not later than the line before"));
        }
        rows.push((seconds, rate));
    }
    let [.., (before, _), (last, ending)] = rows[..] else {
        return Err(SpecError::TraceShort { path: path.to_owned(), lines: rows.len() });
    };
    let hold = |length_s: f64, rate: f64| Segment {
        length: Duration::from_secs_f64(length_s),
        from: Rate::per_second(rate),
        to: Rate::per_second(rate),
    };
    let mut segments: Vec<Segment> = rows.windows(2).map(|w| hold(w[1].0 - w[0].0, w[0].1)).collect();
    segments.push(hold(last - before, ending));
    Ok(segments)
}

/// Nothing sends faster, in requests per second.
const RATE_MAX: f64 = 1e9;
/// Of a wrong line, as much as the message shows.
const LINE_SHOWN_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        parse(text, Path::new("day.csv")).unwrap_err().to_string()
    }

    #[test]
    fn each_rate_holds_until_the_next_line() {
        let segments = parse("seconds,rate\n# a day\n0,100\n\n10, 200\n30,50\n", Path::new("t")).unwrap();
        let plain: Vec<(u64, f64)> =
            segments.iter().map(|s| (s.length.as_millis(), s.from.as_per_second())).collect();
        assert_eq!(plain, [(10_000, 100.0), (20_000, 200.0), (20_000, 50.0)]);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number_and_the_fix() {
        for (text, line, problem) in [
            ("0,1\nfast\n", 2, "has no comma"),
            ("0,1\n\n1,x", 3, "does not end with one number"),
            ("0,1\nx,1", 2, "does not begin with a number"),
            ("5,1\n5,2", 2, "is not later"),
            ("5,1\n4,2", 2, "is not later"),
            ("0,-1", 1, "out of range"),
            ("0,nan", 1, "out of range"),
            ("inf,1", 1, "out of range"),
            ("0,1,2", 1, "does not end with one number"),
            ("root:x:0:0:root:/root:/bin/sh", 1, "has no comma"),
        ] {
            let message = error(text);
            assert!(message.starts_with(&format!("day.csv:{line}:")), "{message}");
            assert!(message.contains(problem) && message.contains("60,50000"), "{message}");
        }
    }

    #[test]
    fn what_is_no_trace_is_said_to_be_none() {
        for text in ["", "# nothing\n", "seconds,rate\n", "0,100\n"] {
            assert!(error(text).contains("is no trace") && error(text).contains("at least two"), "{text}");
        }
        let missing = read(Path::new("/nonexistent/day.csv")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/day.csv") && missing.contains("seconds,rate"), "{missing}");
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("binary");
        std::fs::write(&binary, [0xff, 0xfe, 0, 1]).unwrap();
        assert!(read(&binary).unwrap_err().to_string().contains("cannot read the trace"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,200}") {
            let _ = parse(&text, Path::new("t"));
        }

        #[test]
        fn no_numbers_panic(text in "([-0-9.e,]{0,12}\n){0,8}") {
            let _ = parse(&text, Path::new("t"));
        }
    }
}
