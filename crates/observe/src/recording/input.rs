//! Where a recording is: in a file, or in memory. It can be read more than once.

use super::RecordingError;
use super::perf_data;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Seek};
use std::path::Path;
use std::process::{Child, Command, Stdio};

#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    File(&'a Path),
    /// Messages call it `name`.
    Bytes {
        name: &'a str,
        bytes: &'a [u8],
    },
}

pub(super) trait ReadAgain: BufRead + Seek {}

impl<T: BufRead + Seek> ReadAgain for T {}

/// An opened recording.
pub(super) enum Opened<'a> {
    PerfData(Box<dyn ReadAgain + 'a>),
    Text(Text<'a>),
}

/// The text of a recording: the file's own, or the one that trace-cmd makes of its file.
pub(super) struct Text<'a> {
    pub reader: Box<dyn BufRead + 'a>,
    child: Option<Child>,
}

impl<'a> Input<'a> {
    pub(super) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Bytes { name, .. } => (*name).to_owned(),
        }
    }

    pub(super) fn open(&self) -> Result<Opened<'a>, RecordingError> {
        let wrong = |cause| self.unreadable(cause);
        let mut file: Box<dyn ReadAgain + 'a> = match *self {
            Self::File(path) => {
                Box::new(BufReader::with_capacity(READ_AHEAD, File::open(path).map_err(wrong)?))
            }
            Self::Bytes { bytes, .. } => Box::new(Cursor::new(bytes)),
        };
        let start = file.fill_buf().map_err(wrong)?;
        if perf_data::MAGIC.iter().any(|magic| start.starts_with(magic)) {
            return Ok(Opened::PerfData(file));
        }
        let made = match *self {
            Self::File(path) if start.starts_with(TRACE_DAT) => report(path),
            _ => None,
        };
        // Without trace-cmd the reader sees the file itself, and says what to do with it.
        Ok(Opened::Text(made.unwrap_or(Text { reader: Box::new(file), child: None })))
    }

    pub(super) fn unreadable(&self, cause: io::Error) -> RecordingError {
        RecordingError::Unreadable { name: self.name(), cause }
    }

    /// The text has been read; trace-cmd's own error, if it had one.
    pub(super) fn end(&self, text: Text<'_>) -> Result<(), RecordingError> {
        let Some(mut child) = text.child else { return Ok(()) };
        drop(text.reader);
        let ended = child.wait().map_err(|cause| self.unreadable(cause))?;
        if ended.success() {
            return Ok(());
        }
        let why = "trace-cmd report cannot read it; try it by hand: trace-cmd report -i FILE";
        Err(self.unreadable(io::Error::other(why)))
    }
}

/// The text that trace-cmd makes of its file; `None` if it is not installed.
fn report(path: &Path) -> Option<Text<'static>> {
    let report = Command::new("trace-cmd")
        .args(["report", "-N", "-i"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = report.ok()?;
    let output = child.stdout.take()?;
    Some(Text { reader: Box::new(BufReader::with_capacity(READ_AHEAD, output)), child: Some(child) })
}

/// The beginning of a file of trace-cmd.
pub(super) const TRACE_DAT: &[u8] = b"\x17\x08\x44tracing";
/// Recordings are long; so much is read at once.
const READ_AHEAD: usize = 1 << 20;
