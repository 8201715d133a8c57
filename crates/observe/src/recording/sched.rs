//! The scheduler's events in text: as the kernel prints them, and as libtraceevent shortens them.
//!
//! ```text
//!   sched_switch: prev_comm=a prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=b next_pid=7 next_prio=120
//!   sched_switch: a:12 [120] S ==> b:7 [120]
//!   sched_wakeup: comm=a pid=12 prio=120 target_cpu=000
//!   sched_wakeup: a:12 [120] CPU:000
//! ```

use super::line::{Said, find, number, thread_number, words};
use machine::{CpuId, Instant};

pub(super) fn read(name: &[u8], fields: &[u8], at: Instant, cpu: Option<CpuId>) -> Option<Said<'static>> {
    match name {
        b"sched_switch" => {
            let arrow = find(fields, ARROW)?;
            let (left, taken) = (fields[..arrow].trim_ascii(), &fields[arrow + ARROW.len()..]);
            let state = last(left, b"prev_state=").or_else(|| words(left).last())?;
            let sleeps = !state.starts_with(b"R");
            let (left, taken) = (thread(left, b"prev_pid=")?, thread(taken, b"next_pid=")?);
            Some(Said::Switch { at, cpu: cpu?, left, sleeps, taken })
        }
        b"sched_wakeup" | b"sched_wakeup_new" => Some(Said::Woken { at, thread: thread(fields, b"pid=")? }),
        _ => None,
    }
}

fn thread(side: &[u8], key: &[u8]) -> Option<u32> {
    let number = match last(side, key) {
        Some(value) => number(value)?,
        // `name:12 [120] S`; a name may hold spaces, colons and brackets.
        None => {
            let bracket = side.windows(2).rposition(|pair| pair == b" [")?;
            let task = side[..bracket].trim_ascii();
            number(&task[task.iter().rposition(|&byte| byte == b':')? + 1..])?
        }
    };
    thread_number(number)
}

/// The last value of `key`: a program's name that holds the same words stands before it.
fn last<'a>(side: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    words(side).filter_map(|word| word.strip_prefix(key)).last()
}

const ARROW: &[u8] = b"==>";

#[cfg(test)]
mod tests {
    use super::super::line::{Said, read, thread};
    use machine::{CpuId, Instant};

    const AT: Instant = Instant::from_nanos(1_500_000_000);

    fn switch(left: u32, sleeps: bool, taken: u32) -> Said<'static> {
        Said::Switch { at: AT, cpu: CpuId(1), left, sleeps, taken }
    }

    #[test]
    fn switches_read_the_same_whoever_wrote_them() {
        let long = "prev_comm=mc worker prev_pid=12 prev_prio=120 prev_state=";
        let next = "==> next_comm=swapper/1 next_pid=0 next_prio=120";
        for (state, sleeps) in [("S", true), ("D|K", true), ("R", false), ("R+", false)] {
            for line in [
                format!("a 12 [001] 1.5: sched:sched_switch: {long}{state} {next}"),
                format!("a-12 [001] d..2. 1.5: sched_switch: {long}{state} {next}"),
                format!("a-12 [001] 1.5: sched_switch:   mc worker:12 [120] {state} ==> swapper/1:0 [120]"),
            ] {
                assert_eq!(read(line.as_bytes()), switch(12, sleeps, 0), "{line}");
            }
        }
    }

    #[test]
    fn wake_ups_name_their_thread() {
        let woken = Said::Woken { at: AT, thread: 12 };
        for fields in [
            "comm=pid=7 pid=12 prio=120 target_cpu=001",
            "mc: [x] worker:12 [120] success=1 CPU:001",
            "mc:12 [120]<CANT FAIL> CPU:001",
        ] {
            for name in ["sched:sched_wakeup", "sched_wakeup_new"] {
                let line = format!("a 7 [000] 1.5: {name}: {fields}");
                assert_eq!(read(line.as_bytes()), woken, "{line}");
            }
        }
    }

    #[test]
    fn damaged_ones_are_other_events() {
        for event in [
            "sched_switch: prev_pid=12 prev_state=S",
            "sched_switch: prev_pid=12 prev_state=S ==> next_pid=x",
            "sched_switch: a:12 S ==> b:7",
            "sched_wakeup: pid=99999999999",
            "sched_wakeup:",
        ] {
            let line = format!("a 7 [000] 1.5: {event}");
            assert_eq!(read(line.as_bytes()), Said::OtherEvent, "{line}");
        }
    }

    #[test]
    fn the_thread_of_a_line_has_its_process_where_that_is_told() {
        let event = "[003] d..1. 1.5: cpu_idle: state=1 cpu_id=3";
        for (task, process, number, name) in [
            ("mc worker    12", None, 12, "mc worker"),
            ("mc-worker 10/12", Some(10), 12, "mc-worker"),
            ("mc-worker-12", None, 12, "mc-worker"),
            ("mc-worker-12 (   10)", Some(10), 12, "mc-worker"),
            ("mc-worker-12 (-----)", None, 12, "mc-worker"),
            ("kworker/0:1-ev-77", None, 77, "kworker/0:1-ev"),
        ] {
            let line = format!("   {task} {event}");
            let found = thread(line.as_bytes());
            let told = Said::Thread { process, thread: number, name: name.as_bytes() };
            assert_eq!(found, Some(told), "{line}");
        }
        assert_eq!(thread(b"# cpudesc : x"), None);
    }
}
