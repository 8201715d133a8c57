//! The meaning of one line of a recording.
//!
//! Both layouts put the same things in the same order: the task, `[CPU]`, some marks, the time with
//! a colon, the event with a colon, its fields.
//!
//! ```text
//!   swapper     0 [003] 12345.678901:       power:cpu_idle: state=1 cpu_id=3       perf script
//!    <idle>-0     [003] d..1. 12345.678901: cpu_idle:       state=1 cpu_id=3       trace-cmd report, tracefs
//! ```
//!
//! So one reading serves both: the time is the first number that ends in a colon and is followed,
//! at once or after one more word (perf's period, trace-cmd's difference), by a word that ends in a
//! colon. The name of a program may hold spaces, brackets and colons; one that looks like a time
//! *and* stands before something that looks like an event is not expected.

use super::sched;
use crate::sleep::Waker;
use machine::{CpuId, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    /// A CPU goes idle in a state, or leaves it.
    Idle {
        at: Instant,
        cpu: CpuId,
        state: Option<usize>,
    },
    Interrupt {
        at: Instant,
        cpu: CpuId,
        waker: Waker,
    },
    /// Events are missing here; how many, and of which CPU, if that is known.
    Lost {
        events: u64,
        cpu: Option<CpuId>,
    },
    OtherEvent,
    /// A `cpu_idle` event without a time in seconds.
    NoTime,
    /// A `cpu_idle` event whose fields cannot be read.
    Damaged {
        cpu: Option<CpuId>,
    },
    /// How many CPUs the recorded machine has.
    Cpus(u32),
    /// A CPU passes from one thread to another; thread 0 is its idle one. `sleeps`: the thread that
    /// leaves waits for something, and was not preempted.
    Switch {
        at: Instant,
        cpu: CpuId,
        left: u32,
        sleeps: bool,
        taken: u32,
    },
    Woken {
        at: Instant,
        thread: u32,
    },
    /// A thread, with its process where that is known.
    Thread {
        process: Option<u32>,
        thread: u32,
        name: &'a [u8],
    },
    Child {
        process: u32,
        parent: u32,
    },
    Kernel(&'a [u8]),
    Processor(&'a [u8]),
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    PerfScript,
    /// `trace-cmd report`, or `/sys/kernel/tracing/trace`.
    TraceCmd,
    /// The file of `perf record` itself.
    PerfData,
}

pub(super) fn read(line: &[u8]) -> Said<'_> {
    let Some(event) = event(line) else { return beside(line) };
    let Some(at) = time(event.time) else {
        return if event.name == b"cpu_idle" { Said::NoTime } else { Said::OtherEvent };
    };
    let cpu = event.before.and_then(cpu_before);
    if event.name == b"cpu_idle" {
        let (state, of) = (field(event.fields, b"state="), field(event.fields, b"cpu_id="));
        return match (state, of.and_then(known_cpu)) {
            (Some(LEFT_32 | LEFT_64), Some(cpu)) => Said::Idle { at, cpu, state: None },
            (Some(state), Some(cpu)) => {
                Said::Idle { at, cpu, state: Some(usize::try_from(state).unwrap_or(usize::MAX)) }
            }
            _ => Said::Damaged { cpu },
        };
    }
    match (waker(event.name, event.fields), cpu) {
        (Some(waker), Some(cpu)) => Said::Interrupt { at, cpu, waker },
        _ => sched::read(event.name, event.fields, at, cpu).unwrap_or(Said::OtherEvent),
    }
}

/// The thread that an event's line is about, as `name 12 [003]`, `name 10/12 [003]`,
/// `name-12 [003]` or `name-12 (10) [003]`.
pub(super) fn thread(line: &[u8]) -> Option<Said<'_>> {
    let before = event(line)?.before?;
    let bracket = spans(before).filter(|&(from, to)| bracketed(&before[from..to]).is_some()).last()?.0;
    let task = before[..bracket].trim_ascii_end();
    if let Some(open) = task.strip_suffix(b")").and_then(|task| task.iter().rposition(|&byte| byte == b'(')) {
        let process = number(task[open + 1..task.len() - 1].trim_ascii()).and_then(thread_number);
        return with_dash(task[..open].trim_ascii(), process);
    }
    let (from, to) = spans(task).last()?;
    let (name, last) = (task[..from].trim_ascii(), &task[from..to]);
    match last.iter().position(|&byte| byte == b'/') {
        Some(slash) if is_digits(&last[..slash]) => Some(Said::Thread {
            process: number(&last[..slash]).and_then(thread_number),
            thread: number(&last[slash + 1..]).and_then(thread_number)?,
            name,
        }),
        _ if is_digits(last) => {
            Some(Said::Thread { process: None, thread: number(last).and_then(thread_number)?, name })
        }
        _ => with_dash(task.trim_ascii(), None),
    }
}

fn with_dash(task: &[u8], process: Option<u32>) -> Option<Said<'_>> {
    let dash = task.iter().rposition(|&byte| byte == b'-')?;
    let thread = number(&task[dash + 1..]).and_then(thread_number)?;
    Some(Said::Thread { process, thread, name: &task[..dash] })
}

fn is_digits(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

/// Linux numbers threads below 2^22 (`PID_MAX_LIMIT`).
pub(super) fn thread_number(number: u64) -> Option<u32> {
    u32::try_from(number).ok().filter(|&thread| thread < 1 << 22)
}

/// Which layout an event's line has; `None` for a line without an event.
pub(super) fn layout(line: &[u8]) -> Option<Layout> {
    let event = event(line)?;
    let mut words = words(event.before.unwrap_or_default()).collect::<Vec<_>>();
    if let Some(bracket) = words.iter().rposition(|word| bracketed(word).is_some()) {
        words.truncate(bracket);
    }
    // perf has the thread's number alone, or process/thread; trace-cmd ties it to the name, or has
    // the process in parentheses.
    let perf = words.last().is_some_and(|word| {
        word.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'/' | b'-' | b':'))
    });
    let group = event.group;
    Some(if perf || group { Layout::PerfScript } else { Layout::TraceCmd })
}

struct Event<'a> {
    before: Option<&'a [u8]>,
    /// The time without its colon; empty if there is none.
    time: &'a [u8],
    /// The event's name, without its group and its colon.
    name: &'a [u8],
    /// True if the group stood before it.
    group: bool,
    fields: &'a [u8],
}

fn event(line: &[u8]) -> Option<Event<'_>> {
    // Where each word begins and ends.
    let mut time: Option<(usize, usize)> = None;
    let mut since_time = 0;
    for (from, to) in spans(line) {
        let Some((&b':', word)) = line[from..to].split_last() else {
            if time.is_some() {
                since_time += 1;
                if since_time > 1 {
                    time = None;
                }
            }
            continue;
        };
        match time {
            // A time may not be followed by another: the second is the time.
            Some((begin, end)) if !is_number(word) => {
                let (name, group) = without_group(word);
                let (before, time) = (Some(&line[..begin]), &line[begin..end - 1]);
                return Some(Event { before, time, name, group, fields: &line[to..] });
            }
            _ if is_number(word) => (time, since_time) = (Some((from, to)), 0),
            // Without times, as `perf script -F comm,cpu,event,trace` writes it.
            _ if without_group(word).0 == b"cpu_idle" => {
                let (name, group) = without_group(word);
                return Some(Event { before: None, time: &[], name, group, fields: &line[to..] });
            }
            _ => {}
        }
    }
    None
}

/// `power:cpu_idle` is `cpu_idle`.
fn without_group(word: &[u8]) -> (&[u8], bool) {
    match word.iter().rposition(|&byte| byte == b':') {
        Some(colon) => (&word[colon + 1..], true),
        None => (word, false),
    }
}

/// The interrupts that end idle periods, as kernels report them: x86's vectors and devices, Arm's
/// interrupts between processors. On Arm the timer is a device among others.
pub(super) fn waker(name: &[u8], fields: &[u8]) -> Option<Waker> {
    match name {
        b"local_timer_entry" => Some(Waker::Timer),
        b"reschedule_entry"
        | b"call_function_entry"
        | b"call_function_single_entry"
        | b"irq_work_entry"
        | b"ipi_entry" => Some(Waker::Ipi),
        b"irq_handler_entry" if find(fields, b"timer").is_some() => Some(Waker::Timer),
        b"irq_handler_entry" => Some(Waker::Device),
        _ => None,
    }
}

/// `12345.678901` or, with `perf script --ns`, nine places. A clock that does not count seconds has
/// no point.
fn time(word: &[u8]) -> Option<Instant> {
    let point = word.iter().position(|&byte| byte == b'.')?;
    let (seconds, places) = (&word[..point], &word[point + 1..]);
    if places.is_empty() || places.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(9 - places.len() as u32);
    let nanos = number(places)?.checked_mul(scale)?;
    Some(Instant::from_nanos(number(seconds)?.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

/// Lines that are neither an event nor noise: losses and headers.
fn beside(line: &[u8]) -> Said<'_> {
    let line = line.trim_ascii();
    let told = |key: &[u8]| line.strip_prefix(key).map(<[u8]>::trim_ascii);
    if let Some(kernel) = told(b"# os release :") {
        return Said::Kernel(kernel);
    }
    if let Some(processor) = told(b"# cpudesc :") {
        return Said::Processor(processor);
    }
    let first = |needle: &[u8]| find(line, needle).map(|at| &line[at + needle.len()..]);
    if let Some(of) = line.strip_prefix(b"CPU:") {
        // trace-cmd and tracefs: `CPU:2 [LOST 3 EVENTS]`, `CPU:2 [3 EVENTS DROPPED]`, both also
        // without the number.
        if find(of, b"LOST").is_some() || find(of, b"DROPPED").is_some() {
            let cpu = words(of).next().and_then(number).and_then(known_cpu);
            return Said::Lost { events: words(of).skip(1).find_map(in_brackets).unwrap_or(1), cpu };
        }
    } else if line.starts_with(b"[LOST ") || line.starts_with(b"LOST ") {
        return Said::Lost { events: words(line).find_map(number).unwrap_or(1), cpu: None };
    } else if let Some(after) = first(b"PERF_RECORD_LOST") {
        // perf script --show-lost-events
        return Said::Lost { events: words(after).find_map(number).unwrap_or(1), cpu: cpu_before(line) };
    } else if line.starts_with(b"Processed ") {
        // perf's last line where stderr was kept as well:
        // `Processed 1000 events and lost 3 chunks!`
        if let Some(after) = first(b" lost ") {
            return Said::Lost { events: words(after).find_map(number).unwrap_or(1), cpu: None };
        }
    }
    // tracefs says it at the end of its second line: `entries-in-buffer/entries-written: 9/9   #P:8`
    let declared = line
        .strip_prefix(b"cpus=")
        .or_else(|| line.strip_prefix(b"# nrcpus online :"))
        .or_else(|| line.starts_with(b"# entries-in-buffer").then(|| first(b"#P:")).flatten());
    match declared.and_then(|text| number(text.trim_ascii())).map(u32::try_from) {
        Some(Ok(cpus @ 1..)) => Said::Cpus(cpus),
        _ => Said::Text,
    }
}

/// The last `[003]`, which is the CPU that it happened on.
fn cpu_before(text: &[u8]) -> Option<CpuId> {
    let mut cpus = words(text).filter_map(bracketed);
    let mut last = cpus.next()?;
    for cpu in cpus {
        last = cpu;
    }
    known_cpu(last)
}

fn bracketed(word: &[u8]) -> Option<u64> {
    number(word.strip_prefix(b"[")?.strip_suffix(b"]")?)
}

fn in_brackets(word: &[u8]) -> Option<u64> {
    number(word.strip_prefix(b"[").unwrap_or(word))
}

/// Linux numbers no CPU higher than this; a line that does is damaged, and must not cost memory.
pub(super) fn known_cpu(number: u64) -> Option<CpuId> {
    u16::try_from(number).ok().filter(|&cpu| cpu < CPUS_MAX).map(CpuId)
}

fn field(fields: &[u8], key: &[u8]) -> Option<u64> {
    let text = words(fields).find_map(|word| word.strip_prefix(key))?;
    if text == b"-1" { Some(LEFT_64) } else { number(text) }
}

pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

fn is_number(word: &[u8]) -> bool {
    word.first().is_some_and(u8::is_ascii_digit)
        && word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn spans(line: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = at + line[at..].iter().position(|byte| !byte.is_ascii_whitespace())?;
        let length = line[from..].iter().position(u8::is_ascii_whitespace).unwrap_or(line.len() - from);
        at = from + length;
        Some((from, at))
    })
}

pub(super) fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}

/// The kernel's value for "left": minus one in 32 bits.
pub(super) const LEFT_32: u64 = u32::MAX as u64;
/// The same where it was printed wider.
const LEFT_64: u64 = u64::MAX;
/// The most CPUs that a kernel can be built for.
const CPUS_MAX: u16 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(nanos: u64, cpu: u16, state: Option<usize>) -> Said<'static> {
        Said::Idle { at: Instant::from_nanos(nanos), cpu: CpuId(cpu), state }
    }

    fn said(line: &str) -> Said<'_> {
        read(line.as_bytes())
    }

    #[test]
    fn an_idle_event_reads_the_same_whoever_wrote_it() {
        let expected = idle(12_345_678_901_000, 3, Some(1));
        for line in [
            "swapper     0 [003] 12345.678901:       power:cpu_idle: state=1 cpu_id=3",
            "         swapper     0/0     [003] 12345.678901000: cpu_idle: state=1 cpu_id=3",
            "swapper     0 [003] 12345.678901:          1 power:cpu_idle: state=1 cpu_id=3",
            "          <idle>-0     [003] d..1. 12345.678901: cpu_idle: state=1 cpu_id=3",
            "          <idle>-0     [003]  12345.678901: cpu_idle:             state=1 cpu_id=3",
            "          <idle>-0     (-----) [003] d..1. 12345.678901: cpu_idle: state=1 cpu_id=3",
            "Web: Content [7] 12 [003] 12345.678901: power:cpu_idle: state=1 cpu_id=3",
            "kworker/0:1-ev-77 [003] d..1 12345.678901: (+12) cpu_idle: state=1 cpu_id=3",
        ] {
            assert_eq!(said(line), expected, "{line}");
        }
    }

    #[test]
    fn leaving_is_minus_one_in_any_width() {
        for state in ["4294967295", "18446744073709551615", "-1"] {
            let line = format!("swapper 0 [001] 7.5: power:cpu_idle: state={state} cpu_id=1");
            assert_eq!(said(&line), idle(7_500_000_000, 1, None), "{line}");
        }
    }

    #[test]
    fn who_wrote_it_is_seen_from_the_first_event() {
        let layout = |line: &str| layout(line.as_bytes());
        for line in ["swapper 0 [003] 1.5: power:cpu_idle: state=1 cpu_id=3", "a b 1/2 [003] 1.5: sched_x: y"]
        {
            assert_eq!(layout(line), Some(Layout::PerfScript), "{line}");
        }
        for line in
            ["<idle>-0 [003] d..1. 1.5: cpu_idle: state=1 cpu_id=3", "a-2 (  2) [003] 1.5: sched_x: y"]
        {
            assert_eq!(layout(line), Some(Layout::TraceCmd), "{line}");
        }
        assert_eq!(layout("cpus=8"), None);
    }

    #[test]
    fn interrupts_are_told_by_their_names() {
        let cases = [
            ("irq_vectors:local_timer_entry: vector=236", Waker::Timer),
            ("reschedule_entry: vector=253", Waker::Ipi),
            ("irq_vectors:call_function_single_entry: vector=251", Waker::Ipi),
            ("ipi:ipi_entry: (Rescheduling interrupts)", Waker::Ipi),
            ("irq:irq_handler_entry: irq=24 name=virtio0-input.0", Waker::Device),
            ("irq:irq_handler_entry: irq=11 name=arch_timer", Waker::Timer),
        ];
        for (event, waker) in cases {
            let line = format!("swapper 0 [002] 1.5: {event}");
            let expected = Said::Interrupt { at: Instant::from_nanos(1_500_000_000), cpu: CpuId(2), waker };
            assert_eq!(said(&line), expected, "{line}");
        }
    }

    #[test]
    fn other_events_are_passed_over() {
        for event in ["cpu_idle_miss: cpu_id=1 state=2", "power:cpu_frequency: state=1 cpu_id=0", "x: y"] {
            assert_eq!(said(&format!("a 1 [000] 1.5: {event}")), Said::OtherEvent, "{event}");
        }
        for text in
            ["", "# captured on : Sun", "\tffffffff81 do_idle+0x1 ([kernel])", "CPU 3 is empty", "cpus=x"]
        {
            assert_eq!(said(text), Said::Text, "{text}");
        }
        assert_eq!((said("cpus=8"), said("# nrcpus online : 64")), (Said::Cpus(8), Said::Cpus(64)));
        assert_eq!(said("# entries-in-buffer/entries-written: 5866/5866   #P:8"), Said::Cpus(8));
    }

    #[test]
    fn losses_are_told_in_many_ways() {
        let cases = [
            ("CPU:2 [LOST 3 EVENTS]", 3, Some(2)),
            ("CPU:2 [LOST EVENTS]", 1, Some(2)),
            ("CPU:12 [4 EVENTS DROPPED]", 4, Some(12)),
            ("CPU:12 [EVENTS DROPPED]", 1, Some(12)),
            ("[LOST 12 EVENTS]", 12, None),
            ("LOST 5 events!", 5, None),
            ("swapper 0 [003] 5.25: PERF_RECORD_LOST lost 7", 7, Some(3)),
            ("swapper 0 [003] 5.25: PERF_RECORD_LOST_SAMPLES lost 9", 9, Some(3)),
            ("Processed 1000 events and lost 3 chunks!", 3, None),
        ];
        for (line, events, cpu) in cases {
            assert_eq!(said(line), Said::Lost { events, cpu: cpu.map(CpuId) }, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_apart() {
        for line in [
            "swapper 0 [003] power:cpu_idle: state=1 cpu_id=3",
            "<idle>-0 [003] d..1. 123456: cpu_idle: state=1 cpu_id=3",
            "<idle>-0 [003] 99999999999999999.1: cpu_idle: state=1 cpu_id=3",
        ] {
            assert_eq!(said(line), Said::NoTime, "{line}");
        }
        for fields in
            ["", "state=1", "state=x cpu_id=3", "state=1 cpu_id=9999", "state=1 cpu_id=99999999999999999999"]
        {
            let line = format!("swapper 0 [003] 1.5: power:cpu_idle: {fields}");
            assert_eq!(said(&line), Said::Damaged { cpu: Some(CpuId(3)) }, "{line}");
        }
    }
}
