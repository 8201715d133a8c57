//! The folder itself: how it is read.

use super::{Frame, RunInfo, Summary};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub info: RunInfo,
    pub frames: Vec<Frame>,
    /// The results; `None` for a run that was cut short.
    pub summary: Option<Summary>,
    pub remarks: Vec<String>,
}

/// Why a folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{path} is no run folder: it has no run.toml; name a folder that a run of Roost wrote")]
    NotARun { path: PathBuf },
    /// A file that the system does not let us read.
    #[error("cannot read {path}: {cause}")]
    Unreadable { path: PathBuf, cause: io::Error },
    /// A file whose content is wrong.
    #[error("{path}, line {line}: {problem}; correct or delete that line, or record the run again")]
    Malformed {
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        problem: String,
    },
    /// A folder in a format that this version does not know.
    #[error(
        "{path} has format {found}, this version reads format {known}; use the Roost that wrote it \
         ({version})"
    )]
    OtherFormat { path: PathBuf, found: u32, known: u32, version: String },
}

impl Run {
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let info_path = path.join(INFO);
        let text = match fs::read_to_string(&info_path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                return Err(ReadError::NotARun { path: path.to_owned() });
            }
            read => read.map_err(|cause| ReadError::Unreadable { path: info_path.clone(), cause })?,
        };
        let info = read_info(&info_path, &text)?;
        let mut remarks = Vec::new();
        let frames = read_frames(&path.join(FRAMES), &mut remarks)?;
        let summary = read_summary(&path.join(SUMMARY))?;
        if summary.is_none() {
            remarks.push(format!("The run was cut short: there is no {SUMMARY}."));
        }
        Ok(Self { info, frames, summary, remarks })
    }
}

fn read_info(path: &Path, text: &str) -> Result<RunInfo, ReadError> {
    // The format first: a folder of another format would otherwise be called malformed.
    #[derive(serde::Deserialize)]
    struct Envelope {
        format: u32,
        #[serde(default)]
        version: String,
    }
    let malformed = |error: toml::de::Error| ReadError::Malformed {
        path: path.to_owned(),
        line: error
            .span()
            .map_or(1, |span| 1 + text.bytes().take(span.start).filter(|&byte| byte == b'\n').count()),
        problem: error.message().trim().to_owned(),
    };
    let envelope: Envelope = toml::from_str(text).map_err(malformed)?;
    if envelope.format != RunInfo::FORMAT {
        return Err(ReadError::OtherFormat {
            path: path.to_owned(),
            found: envelope.format,
            known: RunInfo::FORMAT,
            version: envelope.version,
        });
    }
    toml::from_str(text).map_err(malformed)
}

fn read_frames(path: &Path, remarks: &mut Vec<String>) -> Result<Vec<Frame>, ReadError> {
    let bytes = match fs::read(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            remarks.push(format!("Nothing was recorded over time: there is no {FRAMES}."));
            return Ok(Vec::new());
        }
        read => read.map_err(|cause| ReadError::Unreadable { path: path.to_owned(), cause })?,
    };
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    if whole < bytes.len() {
        remarks
            .push(format!("The last line of {FRAMES} was being written when the run ended; it is left out."));
    }
    let mut frames = Vec::new();
    for (index, line) in bytes[..whole].split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        frames.push(serde_json::from_slice(line).map_err(|error| ReadError::Malformed {
            path: path.to_owned(),
            line: index + 1,
            problem: error.to_string(),
        })?);
    }
    Ok(frames)
}

fn read_summary(path: &Path) -> Result<Option<Summary>, ReadError> {
    let bytes = match fs::read(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|cause| ReadError::Unreadable { path: path.to_owned(), cause })?,
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| ReadError::Malformed {
        path: path.to_owned(),
        line: error.line().max(1),
        problem: error.to_string(),
    })
}

const INFO: &str = "run.toml";
/// The run's moments, a line for each.
pub const FRAMES: &str = "frames.jsonl";
pub const SUMMARY: &str = "summary.json";
