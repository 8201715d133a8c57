//! The file of `perf record`, read without perf.
//!
//! The crate `linux-perf-data` knows the file's records and puts them in order of time, round by
//! round; what the fields of an event are, the file itself says (`format`). It trusts the lengths that
//! a file names, so `checked` looks at them first.

mod checked;
mod format;

use super::RecordingError;
use super::line::{self, Said, known_cpu};
use super::schedule::thread_of;
use format::Formats;
use linux_perf_data::linux_perf_event_reader::{
    EventRecord, RawData, RawEventRecord, RecordType, SampleRecord,
};
use linux_perf_data::{AttributeDescription, Error, Feature, PerfFileReader, PerfFileRecord};
use machine::{CpuId, Instant};
use std::io::{BufRead, Seek, SeekFrom};

/// The beginning of such a file, in both orders of bytes.
pub(super) const MAGIC: [&[u8]; 2] = [b"PERFILE2", b"2ELIFREP"];

/// Hands over everything that the file says, in order of time. A file that breaks off is read up to
/// there; the result says whether it was whole.
pub(super) fn read(
    name: &str,
    mut file: impl BufRead + Seek,
    mut take: impl FnMut(&Said<'_>),
) -> Result<bool, RecordingError> {
    let wrong = |why: String| RecordingError::PerfData { name: name.to_owned(), why };
    checked::check(&mut file).map_err(wrong)?;
    file.seek(SeekFrom::Start(0)).map_err(|cause| wrong(cause.to_string()))?;
    let opened = PerfFileReader::parse_file(file);
    let PerfFileReader { mut perf_file, mut record_iter } =
        opened.map_err(|cause| wrong(cause.to_string()))?;
    let is_little = perf_file.endian() == linux_perf_data::Endianness::LittleEndian;
    let formats =
        Formats::of(perf_file.feature_section_data(Feature::TRACING_DATA).unwrap_or_default(), is_little);
    let names: Vec<String> = perf_file
        .event_attributes()
        .iter()
        .map(|event| AttributeDescription::name(event).unwrap_or_default())
        .map(|name| name.rsplit(':').next().unwrap_or_default().to_owned())
        .collect();
    if let Ok(Some(kernel)) = perf_file.os_release() {
        take(&Said::Kernel(kernel.as_bytes()));
    }
    if let Ok(Some(processor)) = perf_file.cpu_desc() {
        take(&Said::Processor(processor.as_bytes()));
    }
    if let Ok(Some(cpus)) = perf_file.nr_cpus() {
        take(&Said::Cpus(cpus.nr_cpus_online));
    }
    loop {
        let record = match record_iter.next_record(&mut perf_file) {
            Ok(Some(PerfFileRecord::EventRecord { attr_index, record })) => (attr_index, record),
            Ok(Some(PerfFileRecord::UserRecord(_))) => continue,
            Ok(None) => return Ok(true),
            Err(Error::IoError(cause)) if cause.kind() == std::io::ErrorKind::Unsupported => {
                return Err(wrong("it is compressed".to_owned()));
            }
            Err(_) => return Ok(false),
        };
        let (event, raw) = record;
        if matches!(raw.record_type, RecordType::LOST | RecordType::LOST_SAMPLES) {
            let cpu = raw.common_data().ok().and_then(|common| common.cpu);
            let cpu = cpu.and_then(|cpu| known_cpu(cpu.into()));
            let events = lost(&raw, is_little);
            if events > 0 {
                take(&Said::Lost { events, cpu });
            }
            continue;
        }
        match raw.parse() {
            Ok(EventRecord::Sample(sample)) => {
                let name = names.get(event).map_or("", String::as_str);
                sampled(name, &sample, &formats, &mut take);
            }
            Ok(EventRecord::Comm(comm)) => {
                let name = comm.name.as_slice();
                let (process, thread) = (thread_of(comm.pid.into()), thread_of(comm.tid.into()));
                if let Some(thread) = thread {
                    take(&Said::Thread { process, thread, name: &name });
                }
            }
            Ok(EventRecord::Fork(fork)) => {
                let process = thread_of(fork.pid.into());
                if let Some((process, parent)) = process.zip(thread_of(fork.ppid.into())) {
                    take(&Said::Child { process, parent });
                }
            }
            _ => {}
        }
    }
}

/// How many were lost: a word behind the event's number, or the first one.
fn lost(raw: &RawEventRecord<'_>, is_little: bool) -> u64 {
    let at = if raw.record_type == RecordType::LOST { 8 } else { 0 };
    let bytes = raw.data.as_slice();
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(1, |word| if is_little { u64::from_le_bytes(word) } else { u64::from_be_bytes(word) })
}

fn sampled(name: &str, sample: &SampleRecord<'_>, formats: &Formats, take: &mut impl FnMut(&Said<'_>)) {
    if let Some((process, thread)) = sample.pid.zip(sample.tid)
        && let Some(thread) = thread_of(thread.into())
    {
        take(&Said::Thread { process: thread_of(process.into()), thread, name: b"" });
    }
    let cpu = sample.cpu.and_then(|cpu| known_cpu(cpu.into()));
    let is_idle = name == "cpu_idle";
    let Some(at) = sample.timestamp.map(Instant::from_nanos) else {
        take(if is_idle { &Said::NoTime } else { &Said::OtherEvent });
        return;
    };
    let raw = sample.raw.as_ref().map(RawData::as_slice);
    let raw = raw.as_deref().unwrap_or_default();
    let said = event(name, raw, formats, at, cpu);
    take(&said.unwrap_or(if is_idle { Said::Damaged { cpu } } else { Said::OtherEvent }));
}

fn event(
    name: &str,
    raw: &[u8],
    formats: &Formats,
    at: Instant,
    cpu: Option<CpuId>,
) -> Option<Said<'static>> {
    let field = |field: &str| formats.number(name, field, raw);
    let thread = |name: &str| thread_of(field(name)?);
    match name {
        "cpu_idle" => {
            let state = field("state")? as u32;
            let cpu = u64::try_from(field("cpu_id")?).ok().and_then(known_cpu)?;
            let left = u64::from(state) == line::LEFT_32;
            Some(Said::Idle { at, cpu, state: (!left).then_some(state as usize) })
        }
        "sched_switch" => {
            // `TASK_REPORT`: the states in which a thread waits. The bit above says preempted.
            let sleeps = field("prev_state")? & 0xff != 0;
            Some(Said::Switch {
                at,
                cpu: cpu?,
                left: thread("prev_pid")?,
                sleeps,
                taken: thread("next_pid")?,
            })
        }
        "sched_wakeup" | "sched_wakeup_new" => Some(Said::Woken { at, thread: thread("pid")? }),
        _ => {
            let waker = line::waker(name.as_bytes(), formats.text(name, "name", raw).unwrap_or_default())?;
            Some(Said::Interrupt { at, cpu: cpu?, waker })
        }
    }
}
