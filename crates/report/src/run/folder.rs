//! The folder itself: one writer, one reader.

use super::{Frame, RunInfo, Summary};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A run as read back.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What was run.
    pub info: RunInfo,
    /// Its moments, in order.
    pub frames: Vec<Frame>,
    /// What came out; `None` for a run that was cut short.
    pub summary: Option<Summary>,
    /// What is unusual about the folder, in sentences.
    pub remarks: Vec<String>,
}

/// Why a folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No folder of a run.
    #[error("{path} is no run folder: it has no run.toml; name a folder that `roost demo` wrote")]
    NotARun {
        /// What was named.
        path: PathBuf,
    },
    /// A file that the system does not let us read.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file whose content is wrong.
    #[error("{path}, line {line}: {problem}; correct or delete that line, or record the run again")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A folder in a format that this version does not know.
    #[error(
        "{path} has format {found}, this version reads format {known}; use the Roost that wrote it ({version})"
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Format found.
        found: u32,
        /// Format known.
        known: u32,
        /// The version that wrote it.
        version: String,
    },
}

/// Why a folder cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The system refused.
    #[error("cannot write {path}: {cause}; choose another folder or free some space")]
    Refused {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A value that the format cannot hold.
    #[error("cannot write {path}: {problem}")]
    Unrepresentable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl Run {
    /// Reads the folder at `path`.
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

/// Writes a folder while the run goes on.
#[derive(Debug)]
pub struct RunWriter {
    path: PathBuf,
    frames: BufWriter<File>,
    line: Vec<u8>,
}

impl RunWriter {
    /// Makes the folder at `path`, with its parents, and writes `run.toml`. A folder that is there already loses
    /// the frames, summary and report of the run before, so that no report mixes two runs.
    pub fn create(path: &Path, info: &RunInfo) -> Result<Self, WriteError> {
        let refused = |at: &Path| {
            let path = at.to_owned();
            move |cause| WriteError::Refused { path, cause }
        };
        fs::create_dir_all(path).map_err(refused(path))?;
        for name in [SUMMARY, REPORT] {
            match fs::remove_file(path.join(name)) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    return Err(WriteError::Refused { path: path.join(name), cause });
                }
                _ => {}
            }
        }
        let text = toml::to_string(info).map_err(|error| WriteError::Unrepresentable {
            path: path.join(INFO),
            problem: error.to_string(),
        })?;
        fs::write(path.join(INFO), text).map_err(refused(&path.join(INFO)))?;
        let frames = File::create(path.join(FRAMES)).map_err(refused(&path.join(FRAMES)))?;
        Ok(Self { path: path.to_owned(), frames: BufWriter::new(frames), line: Vec::new() })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one moment. Each line reaches the system at once, so that a run that dies leaves what it saw.
    pub fn frame(&mut self, frame: &Frame) -> Result<(), WriteError> {
        let path = self.path.join(FRAMES);
        self.line.clear();
        serde_json::to_writer(&mut self.line, frame).map_err(|error| WriteError::Unrepresentable {
            path: path.clone(),
            problem: error.to_string(),
        })?;
        self.line.push(b'\n');
        let written = self.frames.write_all(&self.line).and_then(|()| self.frames.flush());
        written.map_err(|cause| WriteError::Refused { path, cause })
    }

    /// Writes `summary.json`.
    pub fn summary(&mut self, summary: &Summary) -> Result<(), WriteError> {
        let path = self.path.join(SUMMARY);
        let mut text = serde_json::to_string_pretty(summary).map_err(|error| {
            WriteError::Unrepresentable { path: path.clone(), problem: error.to_string() }
        })?;
        text.push('\n');
        fs::write(&path, text).map_err(|cause| WriteError::Refused { path, cause })
    }

    /// Writes `report.html` from what the folder holds, and says where it is.
    pub fn report(folder: &Path, page: &str) -> Result<PathBuf, WriteError> {
        let path = folder.join(REPORT);
        match fs::write(&path, page) {
            Ok(()) => Ok(path),
            Err(cause) => Err(WriteError::Refused { path, cause }),
        }
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
const FRAMES: &str = "frames.jsonl";
const SUMMARY: &str = "summary.json";
const REPORT: &str = "report.html";
