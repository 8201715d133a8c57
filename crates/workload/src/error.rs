//! The faults of a workload's description; every message names the fix.

use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SpecError {
    /// A text that is no rate.
    #[error("`{0}` is no rate: write requests per second as a number above zero, such as 800, 50k or 1.2M")]
    Rate(String),
    /// A text that is no distribution of gaps.
    #[error(
        "`{0}` is no kind of arrivals: write poisson, gpareto, etc, uniform, or h2:CV with CV from 1 to \
         100, such as h2:1.5"
    )]
    Arrivals(String),
    /// A text that is no popularity.
    #[error("`{0}` is no popularity: write uniform, or zipf:S with S from 0 to 10, such as zipf:0.99")]
    Popularity(String),
    /// A text that is no number of keywords.
    #[error(
        "`{0}` is no number of keywords: write paper, cloudsuite, light (3-4), heavy (12-18), or numbers \
         from 1 to 18 such as 7 or 12-18"
    )]
    Keywords(String),
    /// A text that is no key size.
    #[error("`{0}` is no key size: write a number of bytes from 1 to 250, etc or usr")]
    KeySize(String),
    /// A text that is no value size.
    #[error("`{0}` is no value size: write a number of bytes from 0 to 134217728, etc or usr")]
    ValueSize(String),
    /// A key space that no key size can number.
    #[error(
        "{keys} keys cannot be told apart in {size} bytes: use a key size of at least {least}, or fewer keys"
    )]
    KeysTooMany {
        keys: u64,
        /// Key size asked for, in bytes.
        size: usize,
        /// The smallest size that would do, in bytes.
        least: usize,
    },
    #[error("a workload needs at least one key: use --keys with a number above zero")]
    NoKeys,
    /// A text that is no load shape.
    #[error("`{text}` is no load shape: {fix}")]
    Shape { text: String, fix: String },
    /// A shape that has no rate of its own and was given none.
    #[error(
        "the load shape {0} has no rate of its own: give its highest rate with --rate, such as --rate 50k"
    )]
    RateMissing(String),
    /// A trace in which nothing ever arrives.
    #[error("the load shape has no moment with a rate above zero: give it one")]
    NothingArrives,
    /// A trace file that cannot be read.
    #[error("cannot read the trace {path}: {cause}: name a CSV file of `seconds,rate` lines", path = .path.display())]
    TraceUnreadable { path: PathBuf, cause: std::io::Error },
    /// A trace file with a line that is none.
    #[error(
        "{path}:{line}: `{text}` {problem}: each line of a trace is `seconds,rate`, seconds rising, such \
         as `60,50000`",
        path = .path.display()
    )]
    TraceLine {
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        text: String,
        problem: &'static str,
    },
    /// A trace file with fewer lines than make a trace.
    #[error(
        "{path} is no trace: it has {lines} lines of `seconds,rate` and needs at least two (the last one \
         ends the trace)",
        path = .path.display()
    )]
    TraceShort { path: PathBuf, lines: usize },
    /// A factor by which time cannot be compressed.
    #[error(
        "`{0}` is no time compression: write a factor above zero, such as 60 to play an hour in a minute"
    )]
    Compression(String),
    /// A key of a description that cannot be as it is.
    #[error("`{key}` {problem}: {fix}")]
    Key { key: String, problem: String, fix: &'static str },
    /// A parameter of a distribution out of range.
    #[error("distribution `{name}`: {key} is out of range: {fix}")]
    Distribution { name: &'static str, key: &'static str, fix: &'static str },
    /// A file that cannot be read.
    #[error("cannot read {path}: {cause}: {form}", path = .path.display())]
    FileUnreadable { path: PathBuf, cause: std::io::Error, form: &'static str },
    /// A file with a line that does not belong there.
    #[error("{path}:{line}: `{text}` {problem}: {form}", path = .path.display())]
    FileLine {
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        text: String,
        problem: String,
        form: &'static str,
    },
    /// A file with too little in it.
    #[error("{path} {problem}: {form}", path = .path.display())]
    FileShort { path: PathBuf, problem: String, form: &'static str },
}

impl SpecError {
    /// A line of a file that does not belong there.
    pub(crate) fn file_line(path: &Path, line: usize, text: &str, problem: &str, form: &'static str) -> Self {
        let text = text.chars().take(LINE_SHOWN_CHARS).collect();
        Self::FileLine { path: path.to_owned(), line, text, problem: problem.to_owned(), form }
    }
}

/// Of a wrong line, as much as a message shows.
const LINE_SHOWN_CHARS: usize = 40;
