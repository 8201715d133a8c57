//! What can be wrong with a description of a workload; every message names the fix.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// A workload that cannot be.
#[derive(Debug, Error)]
pub enum SpecError {
    /// A text that is no rate.
    #[error("`{0}` is no rate: write requests per second as a number above zero, such as 800, 50k or 1.2M")]
    Rate(String),
    /// A text that is no distribution of gaps.
    #[error(
        "`{0}` is no kind of arrivals: write poisson, gpareto, etc, uniform, or h2:CV with CV from 1 to 100, such as h2:1.5"
    )]
    Arrivals(String),
    /// A text that is no popularity.
    #[error("`{0}` is no popularity: write uniform, or zipf:S with S from 0 to 10, such as zipf:0.99")]
    Popularity(String),
    /// A text that is no number of keywords.
    #[error(
        "`{0}` is no number of keywords: write paper, cloudsuite, light (3-4), heavy (12-18), or numbers from 1 to 18 such as \
         7 or 12-18"
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
        /// Number of keys asked for.
        keys: u64,
        /// Key size asked for, in bytes.
        size: usize,
        /// The smallest size that would do, in bytes.
        least: usize,
    },
    /// No key at all.
    #[error("a workload needs at least one key: use --keys with a number above zero")]
    NoKeys,
    /// A text that is no load shape.
    #[error("`{text}` is no load shape: {fix}")]
    Shape {
        /// What was written.
        text: String,
        /// What to write instead.
        fix: String,
    },
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
    TraceUnreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A trace file with a line that is none.
    #[error(
        "{path}:{line}: `{text}` {problem}: each line of a trace is `seconds,rate`, seconds rising, such as `60,50000`",
        path = .path.display()
    )]
    TraceLine {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The line, shortened.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A trace file with fewer lines than make a trace.
    #[error(
        "{path} is no trace: it has {lines} lines of `seconds,rate` and needs at least two (the last one ends the trace)",
        path = .path.display()
    )]
    TraceShort {
        /// The file.
        path: PathBuf,
        /// Usable lines found.
        lines: usize,
    },
    /// A factor by which time cannot be compressed.
    #[error(
        "`{0}` is no time compression: write a factor above zero, such as 60 to play an hour in a minute"
    )]
    Compression(String),
    /// A key of a description that cannot be as it is.
    #[error("`{key}` {problem}: {fix}")]
    Key {
        /// Which key.
        key: String,
        /// What is wrong with it.
        problem: String,
        /// What to write.
        fix: &'static str,
    },
    /// A parameter of a distribution out of range.
    #[error("distribution `{name}`: {key} is out of range: {fix}")]
    Distribution {
        /// Which law.
        name: &'static str,
        /// Which parameter.
        key: &'static str,
        /// What to write.
        fix: &'static str,
    },
    /// A file that cannot be read.
    #[error("cannot read {path}: {cause}: {form}", path = .path.display())]
    FileUnreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
        /// What belongs there.
        form: &'static str,
    },
    /// A file with a line that does not belong there.
    #[error("{path}:{line}: `{text}` {problem}: {form}", path = .path.display())]
    FileLine {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The line, shortened.
        text: String,
        /// What is wrong with it.
        problem: String,
        /// What belongs there.
        form: &'static str,
    },
    /// A file with too little in it.
    #[error("{path} {problem}: {form}", path = .path.display())]
    FileShort {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What belongs there.
        form: &'static str,
    },
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
