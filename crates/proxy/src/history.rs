//! The log of a stage's policy, inputs and answers, for replay (`policy::log`): a ring of bounded
//! segments.

use linux::{RotatingLog, SegmentBounds};
use machine::Instant;
use policy::log::{Recorded as _, state_line, step_line};
use policy::staging::{Input, Output, Stager};
use std::io::{self, Write as _};
use std::path::Path;

#[derive(Debug)]
pub(crate) struct Recording {
    segments: RotatingLog,
    /// The disk was full, or the like: said once, and no more is written.
    has_failed: bool,
}

impl Recording {
    pub(crate) fn begin(folder: &Path, name: &str, stager: &Stager) -> io::Result<Self> {
        let segments = RotatingLog::begin(folder, &file_name(name), BOUNDS, &state_line(stager))?;
        Ok(Self { segments, has_failed: false })
    }

    /// Tells the policy, and writes it down.
    pub(crate) fn apply(&mut self, stager: &mut Stager, now: Instant, input: &Input) -> Output {
        let output = stager.apply(now, input);
        if !self.has_failed
            && let Err(cause) = self.write(stager, now, input, &output)
        {
            self.has_failed = true;
            // The reader may have gone; requests are staged on.
            let _ = writeln!(
                io::stderr(),
                "roost: the recording in {} ends here: {cause}; free some space and start again",
                self.segments.folder().display()
            );
        }
        output
    }

    fn write(&mut self, stager: &Stager, now: Instant, input: &Input, output: &Output) -> io::Result<()> {
        self.segments.write(&step_line::<Stager>(now, input, output))?;
        if self.segments.is_full() { self.segments.rotate(&state_line(stager)) } else { Ok(()) }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.segments.flush()
    }
}

/// The log's name. Whatever of a server's is no letter, digit, dot or hyphen is a hyphen.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    format!("stage-{}", name.chars().map(plain).collect::<String>())
}

/// Some 100,000 requests in a segment, a million in all.
const BOUNDS: SegmentBounds = SegmentBounds { size: 64 << 20, kept: 10 };
