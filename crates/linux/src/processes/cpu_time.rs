//! Resource use: memory of this process, CPU time of any.

use crate::root::{FileError, Root};
use machine::Duration;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Bytes of this process that are in memory now (the second field of `/proc/self/statm`, in pages).
pub fn resident_bytes() -> Result<u64, FileError> {
    let root = Root::system();
    let text = root.text("proc/self/statm")?;
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    let pages = pages.ok_or_else(|| FileError::Nonsense {
        path: root.path("proc/self/statm"),
        text,
        expected: "numbers of pages",
    })?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Detects whether a process or thread was born, in this process's own namespace of numbers or one
/// below it.
///
/// The last field of `/proc/loadavg` (`fs/proc/loadavg.c`) is the number that was given last: while
/// it stays the same, no process was born, and no number has come to mean another one. The file
/// stays open: closing one costs the kernel a grace period, and some CPU a wake-up.
#[derive(Debug)]
pub(crate) struct Births {
    loadavg: Option<File>,
}

impl Births {
    pub(crate) fn open() -> Self {
        Self { loadavg: File::open("/proc/loadavg").ok() }
    }

    /// The number that was given last, where this kernel shows it.
    pub(crate) fn youngest(&self) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.loadavg.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.trim_end().rsplit(' ').next()?.parse().ok()
    }
}

/// CPU time that a process has used since it began, its ended threads included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Executing its own code.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
}

impl CpuTime {
    pub fn total(self) -> Duration {
        self.user + self.system
    }
}

/// The CPU time of process `pid`, from `/proc/PID/stat`: in steps of one clock tick (10 ms), so
/// measure over seconds.
pub fn cpu_time(root: &Root, pid: u32) -> Result<CpuTime, FileError> {
    let below = format!("proc/{pid}/stat");
    let text = root.text(&below)?;
    parse_stat(&text, rustix::param::clock_ticks_per_second()).ok_or_else(|| FileError::Nonsense {
        path: root.path(&below),
        text,
        expected: "a process's numbers",
    })
}

/// Fields 14 and 15, counted after the command: it stands in parentheses and may hold spaces and
/// parentheses itself.
fn parse_stat(text: &str, ticks_per_second: u64) -> Option<CpuTime> {
    let (_, after_command) = text.rsplit_once(')')?;
    let mut fields = after_command.split_ascii_whitespace().skip(11);
    let mut length = || {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(Duration::from_nanos(ticks.checked_mul(1_000_000_000)? / ticks_per_second.max(1)))
    };
    Some(CpuTime { user: length()?, system: length()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_or_thread_that_is_born_is_the_youngest_or_an_elder_of_it() {
        let births = Births::open();
        let born = [
            births.youngest(),
            std::thread::scope(|scope| scope.spawn(|| births.youngest()).join().unwrap()),
            std::process::Command::new("true").status().ok().and_then(|_| births.youngest()),
        ];
        assert!(born.iter().all(Option::is_some), "{born:?}");
        assert!(born[0] != born[1] && born[1] != born[2], "{born:?}");
    }

    #[test]
    fn a_command_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194304 10 0 0 0 250 75 0 0 20 0 1 0 100";
        let time = parse_stat(text, 100).unwrap();
        assert_eq!(
            (time.user.as_millis(), time.system.as_millis(), time.total().as_millis()),
            (2500, 750, 3250)
        );
        for nonsense in ["", "7 (a", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 4194304 10 0 0 0 x y"] {
            assert_eq!(parse_stat(nonsense, 100), None, "{nonsense}");
        }
    }

    #[test]
    fn memory_that_is_touched_becomes_resident() {
        let before = resident_bytes().unwrap();
        let block = vec![1u8; 64 << 20];
        let after = resident_bytes().unwrap();
        assert!(
            after >= before + (60 << 20),
            "{before} -> {after} for {} bytes",
            std::hint::black_box(&block).len()
        );
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(matches!(cpu_time(&Root::system(), u32::MAX), Err(FileError::Missing { .. })));
        cpu_time(&Root::system(), std::process::id()).unwrap();
    }
}
