//! Recordings that were made elsewhere: the files of `perf record` and `trace-cmd record`, the text
//! of `perf script`, of `trace-cmd report`, or of the kernel's own `/sys/kernel/tracing/trace`, read
//! into a [`SleepPattern`], and into the [work of a service](ServiceWork) where the scheduler's events
//! are there.
//!
//! The problem: the machine whose sleeps are in question is often one on which nothing may be
//! installed; but perf is there, and a recording can be carried away. It may be gigabytes long,
//! hold any other events, lack some of its own, break off where a disk was full, or be no recording
//! at all. The approach: one line at a time, each of which is an event, a loss or neither (`line`);
//! the conclusions are [`Recorder`]'s business, as for live events.
//!
//! ```text
//!   text      --lines--> line::read --Said--> Recorder --> SleepPattern
//!   perf.data --records--> perf_data --Said-+> Schedule --> ServiceWork
//!   trace.dat --trace-cmd report--> text
//! ```
//!
//! Invariants:
//! - Memory does not grow with the recording: one line, or the records between two of perf's rounds,
//!   and per CPU its histograms.
//! - Any bytes at all give a pattern or one of [`RecordingError`]'s sentences.
//! - Missing or damaged lines are counted as lost, and remarks for the reader are notes.
//! - A recording does not describe its states: their table comes from the caller, or is empty.

mod input;
mod line;
mod lines;
mod perf_data;
mod sched;
mod schedule;
mod service;

pub use input::Input;
pub use line::Layout;
pub use schedule::{ServiceWork, Worked};
pub use service::{ServiceRecording, read_service};

use crate::sleep::{Recorder, SleepPattern, SleepSource};
use input::Opened;
use line::Said;
use lines::Lines;
use linux::perf::IdleEvent;
use machine::{CpuId, CstateTable};
use schedule::Schedule;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead};
use thiserror::Error;

#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    pub layout: Layout,
    pub pattern: SleepPattern,
    /// Remarks for the reader, a sentence each; empty if all is well.
    pub notes: Vec<String>,
}

/// Why nothing can be learned from a file. Each names the way out.
#[derive(Debug, Error)]
pub enum RecordingError {
    #[error("{name}: {cause}")]
    Unreadable { name: String, cause: io::Error },
    #[error("{0} is empty; record with `{RECORD}`")]
    Empty(String),
    /// It is perf's or trace-cmd's recording, not the text that they make of it.
    #[error("{name} is a binary file of {tool}; make text of it with `{command}`")]
    Binary { name: String, tool: &'static str, command: &'static str },
    /// perf's own file, with something that this reader does not take.
    #[error("{name}: {why}; make text of it with `perf script -i FILE > TEXT`")]
    PerfData { name: String, why: String },
    /// Its process or its work is not in the recording.
    #[error("{name}: {why}")]
    NoService { name: String, why: String },
    /// No line of it is an event.
    #[error(
        "{0} is no recording: none of its lines is an event as perf script or trace-cmd report write it; \
         record with `{RECORD}`"
    )]
    NoEvents(String),
    /// It has events, but none that tells of sleeps.
    #[error("{0} has events, but no cpu_idle events; record them with `{RECORD}`")]
    NoIdleEvents(String),
    /// Its events cannot be placed in time.
    #[error(
        "{name}, line {line}: no time in seconds at this cpu_idle event: `{text}`; leave -F away from perf \
         script, or have `time` in it; with trace-cmd, leave the clock as it is"
    )]
    NoTime { name: String, line: u64, text: String },
}

const RECORD: &str = "perf record -e power:cpu_idle -a -- sleep 10; perf script > FILE";

/// Reads a recording. Messages call it `name`; `table` describes a CPU's idle states; `tell` hears of
/// each event of sleep.
pub fn read(
    name: &str,
    input: impl BufRead,
    table: impl Fn(CpuId) -> CstateTable,
    tell: &mut dyn FnMut(IdleEvent),
) -> Result<Recording, RecordingError> {
    let mut reading = Reading::new(name);
    reading.tell = Some(tell);
    let mut lines = Lines::new(input);
    while let Some(line) = lines.next().map_err(|cause| unreadable(name, cause))? {
        reading.line(&line)?;
    }
    reading.finish(table)
}

/// Reads the recording in a file, whichever of the kinds it is.
pub fn read_input(
    input: Input<'_>,
    table: impl Fn(CpuId) -> CstateTable,
    tell: &mut dyn FnMut(IdleEvent),
) -> Result<Recording, RecordingError> {
    let name = input.name();
    let mut reading = Reading::new(&name);
    reading.tell = Some(tell);
    reading.all(input)?;
    reading.finish(table)
}

/// A recording that is being read.
struct Reading<'a> {
    name: &'a str,
    recorder: Recorder,
    layout: Option<Layout>,
    lines: u64,
    idle_events: u64,
    damaged: u64,
    cut_short: Option<u64>,
    cpus: Option<u32>,
    idle_cpus: BTreeSet<CpuId>,
    kernel: Option<String>,
    processor: Option<String>,
    schedule: Option<Schedule>,
    tell: Option<&'a mut dyn FnMut(IdleEvent)>,
}

impl<'a> Reading<'a> {
    fn new(name: &'a str) -> Self {
        Self {
            name,
            recorder: Recorder::default(),
            layout: None,
            lines: 0,
            idle_events: 0,
            damaged: 0,
            cut_short: None,
            cpus: None,
            idle_cpus: BTreeSet::new(),
            kernel: None,
            processor: None,
            schedule: None,
            tell: None,
        }
    }

    fn all(&mut self, input: Input<'_>) -> Result<(), RecordingError> {
        match input.open()? {
            Opened::PerfData(file) => self.perf_data(file),
            Opened::Text(mut text) => {
                let mut lines = Lines::new(&mut text.reader);
                while let Some(line) = lines.next().map_err(|cause| input.unreadable(cause))? {
                    self.line(&line)?;
                }
                input.end(text)
            }
        }
    }

    fn perf_data(&mut self, file: impl BufRead + io::Seek) -> Result<(), RecordingError> {
        self.layout = Some(Layout::PerfData);
        let name = self.name;
        let mut is_timeless = false;
        let whole = perf_data::read(name, file, |said| {
            self.lines += 1;
            match said {
                Said::NoTime if self.idle_events == 0 => is_timeless = true,
                said => self.take(said),
            }
        })?;
        if is_timeless {
            let why = "its samples have no time".to_owned();
            return Err(RecordingError::PerfData { name: name.to_owned(), why });
        }
        self.cut_short = (!whole).then_some(self.lines);
        Ok(())
    }

    fn line(&mut self, line: &lines::Line<'_>) -> Result<(), RecordingError> {
        self.lines = line.number;
        if line.number == 1 {
            self.refuse_binary(line.text)?;
        }
        if !line.whole {
            // `cpu_id=1` may have been about to become `cpu_id=12`.
            self.cut_short = Some(line.number);
            return Ok(());
        }
        let said = line::read(line.text);
        if self.layout.is_none() {
            self.layout = line::layout(line.text);
            if self.layout.is_none() && line.number >= LINES_WITHOUT_EVENT {
                return Err(RecordingError::NoEvents(self.name.to_owned()));
            }
        }
        match said {
            // One among many is damage; the first of all says that the whole recording is so.
            Said::NoTime if self.idle_events == 0 => return Err(self.no_time(line)),
            said => self.take(&said),
        }
        Ok(())
    }

    fn take(&mut self, said: &Said<'_>) {
        if let Some(schedule) = &mut self.schedule {
            schedule.take(said);
        }
        let text = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into_owned());
        match *said {
            Said::Idle { at, cpu, state } => {
                self.recorder.event(at, cpu, state);
                self.idle_events += 1;
                self.idle_cpus.insert(cpu);
                if let Some(tell) = &mut self.tell {
                    tell(IdleEvent::Change { at, cpu, state });
                }
            }
            Said::Interrupt { at, cpu, waker } => self.recorder.interrupt(at, cpu, waker),
            Said::Lost { events, cpu } => {
                self.recorder.lose(events, cpu);
                if let Some(tell) = &mut self.tell {
                    let of = self.idle_cpus.iter().filter(|which| cpu.is_none_or(|cpu| cpu == **which));
                    of.for_each(|&cpu| tell(IdleEvent::Lost { cpu, events }));
                }
            }
            Said::NoTime => self.damage(None),
            Said::Damaged { cpu } => self.damage(cpu),
            Said::Cpus(cpus) => self.cpus = Some(cpus),
            Said::Kernel(kernel) => self.kernel = text(kernel),
            Said::Processor(processor) => self.processor = text(processor),
            Said::OtherEvent
            | Said::Switch { .. }
            | Said::Woken { .. }
            | Said::Thread { .. }
            | Said::Child { .. }
            | Said::Text => {}
        }
    }

    fn damage(&mut self, cpu: Option<CpuId>) {
        self.damaged += 1;
        self.recorder.lose(1, cpu);
    }

    fn no_time(&self, line: &lines::Line<'_>) -> RecordingError {
        let text = String::from_utf8_lossy(line.text);
        let text = text.trim().chars().filter(|letter| !letter.is_control()).take(SHOWN).collect();
        RecordingError::NoTime { name: self.name.to_owned(), line: line.number, text }
    }

    fn refuse_binary(&self, start: &[u8]) -> Result<(), RecordingError> {
        let binary = |tool, command| RecordingError::Binary { name: self.name.to_owned(), tool, command };
        if start.starts_with(b"PERFILE") {
            Err(binary("perf", "perf script -i FILE > TEXT"))
        } else if start.starts_with(input::TRACE_DAT) {
            Err(binary("trace-cmd", "trace-cmd report -i FILE > TEXT"))
        } else {
            Ok(())
        }
    }

    fn finish(self, table: impl Fn(CpuId) -> CstateTable) -> Result<Recording, RecordingError> {
        let name = self.name.to_owned();
        if self.lines == 0 {
            return Err(RecordingError::Empty(name));
        }
        let Some(layout) = self.layout else { return Err(RecordingError::NoEvents(name)) };
        if self.idle_events == 0 {
            return Err(RecordingError::NoIdleEvents(name));
        }
        let notes = self.notes();
        let source = SleepSource::Recording(name);
        Ok(Recording { layout, pattern: self.recorder.pattern(self.recorder.span(), source, table), notes })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(line) = self.cut_short {
            notes.push(format!(
                "The recording breaks off in the middle of {} {line}; what stands before it counts.",
                if self.layout == Some(Layout::PerfData) { "record" } else { "line" }
            ));
        }
        if self.damaged > 0 {
            notes.push(format!(
                "{} cpu_idle events could not be read; they are among the lost.",
                self.damaged
            ));
        }
        let silent = self.cpus.map_or(0, |cpus| u64::from(cpus).saturating_sub(self.idle_cpus.len() as u64));
        if silent > 0 {
            notes.push(format!(
                "{silent} of {} CPUs have no cpu_idle event: they slept, or worked, all the time, and are \
                 left out.",
                self.cpus.unwrap_or_default()
            ));
        }
        notes
    }
}

fn unreadable(name: &str, cause: io::Error) -> RecordingError {
    RecordingError::Unreadable { name: name.to_owned(), cause }
}

/// A header may be long, a file of something else may be longer: after so many lines without an
/// event it is that.
const LINES_WITHOUT_EVENT: u64 = 100_000;
/// Of a wrong line, as many letters as the message shows.
const SHOWN: usize = 60;

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PerfScript => "perf script",
            Self::TraceCmd => "trace-cmd report",
            Self::PerfData => "perf record",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;
    use proptest::prelude::*;

    fn recording(text: &[u8]) -> Result<Recording, RecordingError> {
        read("rec.txt", text, |_| CstateTable::default(), &mut |_| ())
    }

    fn refused(text: &[u8]) -> String {
        let said = recording(text).unwrap_err().to_string();
        assert!(said.contains("rec.txt") && !said.contains('\n'), "{said}");
        said
    }

    const PERF: &str = "\
# ========
# nrcpus online : 3
# ========
#
swapper     0 [000]   100.000000: power:cpu_idle: state=1 cpu_id=0
swapper     0 [001]   100.000100: power:cpu_idle: state=2 cpu_id=1
swapper     0 [000]   100.000300: irq_vectors:local_timer_entry: vector=236
swapper     0 [000]   100.000301: power:cpu_idle: state=4294967295 cpu_id=0
   memcached  812 [000]   100.000305: sched:sched_switch: prev_comm=swapper
\tffffffff8100 do_idle+0x1f ([kernel.kallsyms])
swapper     0 [000]   100.000350: power:cpu_idle: state=1 cpu_id=0
swapper     0 [001]   100.002100: power:cpu_idle: state=4294967295 cpu_id=1
";

    #[test]
    fn a_recording_becomes_periods() {
        let found = recording(PERF.as_bytes()).unwrap();
        assert_eq!(found.layout, Layout::PerfScript);
        let [first, second] = &found.pattern.cpus[..] else { panic!("{:?}", found.pattern) };
        assert_eq!(first.idle[1].time(), Duration::from_micros(301));
        assert_eq!(first.active.time(), Duration::from_micros(49));
        assert_eq!(second.idle[2].time(), Duration::from_millis(2));
        assert_eq!(first.wakers.unwrap().timer, 1);
        assert_eq!((found.pattern.lost, found.pattern.elapsed), (0, Duration::from_micros(2_100)));
        assert_eq!(found.notes.len(), 1);
        assert!(found.notes[0].starts_with("1 of 3 CPUs"), "{:?}", found.notes);
    }

    #[test]
    fn the_layout_makes_no_difference_to_what_is_found() {
        let trace: String = PERF
            .replace("# nrcpus online : ", "cpus=")
            .replace("swapper     0 [", "          <idle>-0     [")
            .replace("memcached  812", "memcached-812")
            .replace("power:", "")
            .replace("irq_vectors:", "")
            .replace("sched:", "");
        let (perf, trace) = (recording(PERF.as_bytes()).unwrap(), recording(trace.as_bytes()).unwrap());
        assert_eq!(trace.layout, Layout::TraceCmd);
        assert_eq!((perf.pattern, perf.notes), (trace.pattern, trace.notes));
    }

    /// Recordings of a real kernel; see testdata/recordings/README.md.
    #[test]
    fn real_recordings_are_read_without_a_loss() {
        let read_file = |name: &str| {
            let path =
                std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings").join(name);
            let file = std::fs::File::open(path).expect("it is in the repository");
            read(name, io::BufReader::new(file), |_| CstateTable::default(), &mut |_| ()).unwrap()
        };
        let (perf, trace) = (read_file("lab-perf-script.txt"), read_file("lab-tracefs.txt"));
        assert_eq!((perf.layout, trace.layout), (Layout::PerfScript, Layout::TraceCmd));
        for recording in [&perf, &trace] {
            let pattern = &recording.pattern;
            assert_eq!((pattern.cpus.len(), pattern.lost, recording.notes.len()), (8, 0, 0), "{recording:?}");
            for cpu in &pattern.cpus {
                let seen =
                    cpu.idle.iter().map(|lengths| lengths.time()).sum::<Duration>() + cpu.active.time();
                assert!(seen <= pattern.elapsed, "{cpu:?}");
            }
        }
        let wakers = |recording: &Recording| recording.pattern.cpus[2].wakers;
        assert_eq!(wakers(&perf), None);
        assert!(wakers(&trace).unwrap().timer > 0);
    }

    #[test]
    fn a_recording_that_breaks_off_counts_up_to_there_and_says_so() {
        let cut = &PERF.as_bytes()[..PERF.len() - 3];
        let found = recording(cut).unwrap();
        assert_eq!(found.pattern.cpus[1].idle.len(), 0);
        assert!(found.notes[0].contains("middle of line 12"), "{:?}", found.notes);
    }

    #[test]
    fn losses_are_counted_and_the_period_around_them_given_up() {
        let lossy = PERF.replace(
            "   memcached",
            "CPU:1 [LOST 40 EVENTS]\nswapper 0 [000] 100.000302: power:cpu_idle: state=\n   memcached",
        );
        let found = recording(lossy.as_bytes()).unwrap();
        assert_eq!(found.pattern.lost, 41);
        assert_eq!((found.pattern.cpus[0].active.count(), found.pattern.cpus[1].idle.len()), (0, 0));
        assert!(found.notes[0].starts_with("1 cpu_idle events could not"), "{:?}", found.notes);
    }

    #[test]
    fn what_is_no_use_is_refused_in_one_line_that_names_the_way_out() {
        assert!(refused(b"").contains("is empty"));
        assert!(refused(b"once upon a time\nthere was a king\n").contains("is no recording"));
        assert!(refused(b"PERFILE2\0\0\0\x10").contains("perf script -i"));
        assert!(refused(b"\x17\x08\x44tracing6\0\n").contains("trace-cmd report -i"));
        let others = PERF.replace("cpu_idle", "cpu_busy");
        assert!(refused(others.as_bytes()).contains("perf record -e power:cpu_idle -a -- sleep 10"));
        let timeless: String = PERF.lines().map(|line| line.replace("   100.", " ") + "\n").collect();
        let said = refused(timeless.as_bytes());
        assert!(said.contains("line 5: no time in seconds") && said.contains("state=1 cpu_id=0"), "{said}");
    }

    #[test]
    fn a_long_file_of_something_else_is_not_read_to_its_end() {
        let nonsense = std::io::BufReader::new(std::io::repeat(b'\n'));
        assert!(read("log", nonsense, |_| CstateTable::default(), &mut |_| ()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_recording_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let _ = recording(&bytes);
        }

        #[test]
        fn any_mixture_of_its_words_is_a_recording_or_refused(
            words in proptest::collection::vec(0..WORDS.len(), 0..400),
        ) {
            let text: Vec<u8> = words.iter().flat_map(|&word| WORDS[word].bytes()).collect();
            if let Ok(found) = recording(&text) {
                let elapsed = found.pattern.elapsed;
                for cpu in found.pattern.cpus {
                    let idle: Duration = cpu.idle.iter().map(|lengths| lengths.time()).sum();
                    prop_assert!(idle + cpu.active.time() <= elapsed);
                }
            }
        }
    }

    const WORDS: &[&str] = &[
        " ",
        "\n",
        " swapper 0 [000]",
        " <idle>-0 [001] d..1.",
        " 1.000001:",
        " 2.5:",
        " 1:",
        " power:cpu_idle:",
        " cpu_idle:",
        " state=1",
        " state=4294967295",
        " state=99",
        " cpu_id=0",
        " cpu_id=1",
        " cpu_id=70000",
        "CPU:1 [LOST 3 EVENTS]",
        " local_timer_entry:",
        " 18446744073.9:",
        "PERF_RECORD_LOST",
        ":",
        "[",
        " [EVENTS DROPPED]",
        "swapper 0 [001] 3.25: power:cpu_idle: state=2 cpu_id=1\n",
        "swapper 0 [001] 3.75: power:cpu_idle: state=4294967295 cpu_id=1\n",
    ];
}
