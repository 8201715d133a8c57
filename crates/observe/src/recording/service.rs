//! One service in a recording: which threads are its own, and their work.
//!
//! The file is read twice: a thread may work long before the recording tells whose it is.

use super::input::Opened;
use super::line::{self, Layout};
use super::lines::Lines;
use super::perf_data;
use super::schedule::{Members, Schedule, ServiceWork};
use super::{Input, Reading, RecordingError};
use crate::sleep::{SleepPattern, SleepSource};
use machine::{CpuId, CstateTable};
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRecording {
    pub layout: Layout,
    /// Of its main thread; `None` if that never had a CPU.
    pub name: Option<String>,
    pub work: ServiceWork,
    /// `None` without `cpu_idle` events.
    pub sleeps: Option<SleepPattern>,
    /// Of the machine: as the recording says, or else those that it shows.
    pub cpus: u32,
    pub kernel: Option<String>,
    pub processor: Option<String>,
    /// Remarks for the reader, a sentence each.
    pub notes: Vec<String>,
}

/// Reads the work of `process` and its children from a recording with the scheduler's events. `now`
/// are the threads that the process has today, for a recording that does not tell whose a thread is.
pub fn read_service(input: Input<'_>, process: u32, now: &[u32]) -> Result<ServiceRecording, RecordingError> {
    let name = input.name();
    work_and_sleeps(input, process, now).map_err(|error| {
        // Sleeps alone are no work: these two name the events that a recording of sleeps needs.
        let why = match error {
            RecordingError::Empty(_) => "it is empty",
            RecordingError::NoEvents(_) => "none of its lines is an event of perf script or trace-cmd report",
            other => return other,
        };
        RecordingError::NoService { name, why: format!("{why}; record with `{RECORD}`") }
    })
}

fn work_and_sleeps(input: Input<'_>, process: u32, now: &[u32]) -> Result<ServiceRecording, RecordingError> {
    let name = input.name();
    let refused = |why: String| RecordingError::NoService { name: name.clone(), why };
    let members = members(input, process)?;
    let mut threads = members.threads();
    if !members.are_told {
        threads.insert(process);
        threads.extend(now);
    }
    if threads.is_empty() {
        return Err(refused(format!("no process {process} is in it; --pid names the recorded process")));
    }
    let mut reading = Reading::new(&name);
    reading.schedule = Some(Schedule::of(threads));
    reading.all(input)?;
    let Some(layout) = reading.layout else { return Err(RecordingError::NoEvents(name)) };
    let schedule = reading.schedule.take();
    let seen: BTreeSet<CpuId> =
        schedule.iter().flat_map(Schedule::cpus).chain(reading.idle_cpus.iter().copied()).collect();
    let beyond = seen.last().map_or(0, |last| u32::from(last.0) + 1);
    let Some(work) = schedule.and_then(Schedule::work) else {
        return Err(refused(format!("it has no sched_switch events; record with `{RECORD}`")));
    };
    let mut notes = if reading.idle_events > 0 { reading.notes() } else { Vec::new() };
    if !members.are_told {
        let taken = if now.is_empty() { "only the thread of that number is" } else { "those of today are" };
        notes.push(format!(
            "The recording does not say which threads belong to process {process}, so {taken} the service; \
             `perf record` says it, or `perf script -F comm,pid,tid,cpu,time,event,trace`."
        ));
    }
    if work.service.turns == 0 {
        let hint = notes.pop().filter(|_| !members.are_told).unwrap_or_default();
        return Err(refused(
            format!("process {process} never had a CPU in it. {hint}").trim_end().to_owned(),
        ));
    }
    let sleeps = (reading.idle_events > 0).then(|| {
        let source = SleepSource::Recording(name.clone());
        reading.recorder.pattern(reading.recorder.span(), source, |_| CstateTable::default())
    });
    Ok(ServiceRecording {
        layout,
        name: members.name.filter(|name| !name.is_empty()),
        work,
        sleeps,
        cpus: reading.cpus.unwrap_or(0).max(beyond),
        kernel: reading.kernel,
        processor: reading.processor,
        notes,
    })
}

fn members(input: Input<'_>, process: u32) -> Result<Members, RecordingError> {
    let mut members = Members::of(process);
    match input.open()? {
        Opened::PerfData(file) => {
            perf_data::read(&input.name(), file, |said| members.take(said))?;
        }
        Opened::Text(mut text) => {
            let mut lines = Lines::new(&mut text.reader);
            while let Some(line) = lines.next().map_err(|cause| input.unreadable(cause))? {
                if let Some(said) = line::thread(line.text) {
                    members.take(&said);
                }
            }
            input.end(text)?;
        }
    }
    Ok(members)
}

pub(super) const RECORD: &str =
    "perf record -a -e sched:sched_switch,sched:sched_wakeup,power:cpu_idle -- sleep 10";

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn kept(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings").join(name)
    }

    /// The memcached of testdata/recordings/README.md.
    const MEMCACHED: u32 = 17103;
    const WORKER: u32 = 17106;

    #[test]
    fn a_file_of_perf_and_the_text_of_it_tell_the_same() {
        let file = read_service(Input::File(&kept("service.perf.data")), MEMCACHED, &[]).unwrap();
        let text = read_service(Input::File(&kept("service-perf-script.txt")), MEMCACHED, &[]).unwrap();
        assert_eq!((file.layout, text.layout), (Layout::PerfData, Layout::PerfScript));
        let counts = |found: &ServiceRecording| {
            let work = &found.work;
            (
                work.service.turns,
                work.others.turns,
                work.wakes,
                work.threads.clone(),
                work.each_second.clone(),
            )
        };
        assert_eq!(counts(&file), counts(&text));
        // The text has whole microseconds.
        let off = file.work.service.cpu.as_secs_f64() / text.work.service.cpu.as_secs_f64();
        assert!((off - 1.0).abs() < 0.02, "{off}");
        let (slept, told) = (file.sleeps.unwrap(), text.sleeps.unwrap());
        // The other CPU had work all the time.
        assert_eq!((slept.cpus.len(), slept.lost, told.lost), (1, 0, 0));
        for (one, other) in slept.cpus.iter().zip(&told.cpus) {
            assert_eq!(one.active.count(), other.active.count());
        }
        assert_eq!(file.kernel.as_deref(), Some("6.18.44-fc-v669"));
        assert_eq!((&file.kernel, &file.processor, file.cpus), (&text.kernel, &text.processor, 2));
        assert!(file.notes == text.notes && file.notes.len() == 1, "{:?} {:?}", file.notes, text.notes);
    }

    /// `roost load` sent 300 requests a second, and at that rate each finds its worker asleep.
    #[test]
    fn wake_ups_of_a_service_that_is_little_used_are_its_requests() {
        let work = read_service(Input::File(&kept("service.perf.data")), MEMCACHED, &[]).unwrap().work;
        let rate = work.wakes as f64 / work.elapsed.as_secs_f64();
        assert!((240.0..360.0).contains(&rate), "{rate}");
        assert_eq!((work.each_second.iter().sum::<u64>(), work.threads.len()), (work.wakes, 3));
        let (waiting, each) = (work.waiting.unwrap(), work.work.unwrap());
        assert!(waiting.value_at_quantile(0.5) < 200_000 && each.value_at_quantile(0.5) < 100_000);
    }

    #[test]
    fn a_process_that_is_not_there_is_told() {
        let refused = |name: &str, process| {
            read_service(Input::File(&kept(name)), process, &[]).unwrap_err().to_string()
        };
        assert!(refused("service.perf.data", 4_000_000).contains("no process 4000000"));
        assert!(refused("lab-perf-script.txt", 1).contains("no sched_switch events"));
        for bytes in ["", "a page, a letter\n"] {
            let said = read_service(Input::Bytes { name: "other.txt", bytes: bytes.as_bytes() }, 1, &[]);
            assert!(said.unwrap_err().to_string().contains(RECORD), "{bytes:?}");
        }
        // As `perf script` writes it by itself: threads without their processes.
        let text = std::fs::read_to_string(kept("service-perf-script.txt")).unwrap();
        let plain: String = text.lines().map(|line| without_process(line) + "\n").collect();
        let read =
            |process| read_service(Input::Bytes { name: "plain.txt", bytes: plain.as_bytes() }, process, &[]);
        // A worker; the main thread only waits for connections.
        let found = read(WORKER).unwrap();
        assert!(found.notes.iter().any(|note| note.contains("-F comm,pid,tid")), "{:?}", found.notes);
        let whole = read_service(Input::File(&kept("service.perf.data")), MEMCACHED, &[]).unwrap();
        assert!(found.work.wakes > 50 && found.work.wakes < whole.work.wakes);
        let said = read(MEMCACHED).unwrap_err().to_string();
        assert!(said.contains("never had a CPU") && said.contains("-F comm,pid,tid"), "{said}");
        // The process still runs: its threads are known.
        let input = Input::Bytes { name: "plain.txt", bytes: plain.as_bytes() };
        let found = read_service(input, MEMCACHED, &[MEMCACHED, WORKER]).unwrap();
        assert!(found.notes.iter().any(|note| note.contains("those of today")), "{:?}", found.notes);
        assert!(found.work.wakes > 50 && found.work.wakes < whole.work.wakes);
    }

    /// `name 10/12 [003]` as `name 12 [003]`.
    fn without_process(line: &str) -> String {
        let task = line.split(" [").next().unwrap_or_default();
        let Some(at) = task.rfind('/') else { return line.to_owned() };
        let begin = line[..at].rfind(' ').map_or(0, |space| space + 1);
        let is_number = line[begin..at].bytes().all(|byte| byte.is_ascii_digit());
        if is_number { format!("{}{}", &line[..begin], &line[at + 1..]) } else { line.to_owned() }
    }

    #[test]
    fn a_file_of_perf_cut_anywhere_is_refused_or_read() {
        let whole = std::fs::read(kept("service.perf.data")).unwrap();
        for length in (0..whole.len()).step_by(9_973) {
            let cut = Input::Bytes { name: "cut.data", bytes: &whole[..length] };
            let said = read_service(cut, MEMCACHED, &[]).unwrap_err().to_string();
            assert!(said.contains("cut.data") && !said.contains('\n'), "{said}");
        }
    }
}
