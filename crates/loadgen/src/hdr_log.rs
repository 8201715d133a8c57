//! Latencies as an HdrHistogram log, one line for each interval, for the tools that read that
//! format (HdrHistogramVisualizer, hdr-plot, and libraries of many languages).

use crate::{Interval, Part};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use os::{SafeError, SafeFolder};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

pub struct HdrLog {
    file: BufWriter<File>,
    serializer: V2DeflateSerializer,
    begun: SystemTime,
    headed: bool,
}

impl HdrLog {
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::new(SafeFolder::begin(path, 0o666).map_err(SafeError::into_io)?);
        Ok(Self { file, serializer: V2DeflateSerializer::new(), begun: SystemTime::now(), headed: false })
    }

    /// Appends one interval. Those of the warm-up carry the tag `warmup`.
    pub fn record(&mut self, interval: &Interval<'_>) -> io::Result<()> {
        let progress = interval.progress;
        let begin = Duration::from(progress.at - progress.length);
        let mut builder = IntervalLogWriterBuilder::new();
        if !self.headed {
            builder.add_comment("latency from the intended send time, in nanoseconds");
            builder.with_start_time(self.begun).with_base_time(self.begun);
            self.headed = true;
        }
        let mut log = builder.begin_log_with(&mut self.file, &mut self.serializer)?;
        let tag = if progress.part == Part::Warmup { Tag::new("warmup") } else { None };
        log.write_histogram(interval.latencies, begin, progress.length.into(), tag)
            .map_err(io::Error::other)?;
        self.file.flush()
    }
}
