//! Windows: a CPU polls instead of sleeping for some microseconds, thousands of times a second.
//!
//! A limit goes through the journal, which reads, notes, writes, reads back and notes again. That
//! is too slow for a window, and it would note the same two texts forever. So the journal notes
//! once that the file may read `n/a` at any time (a *promise*). A window is then one write through
//! an open descriptor, 0.6 us: `n/a` at its begin, and at its end the *rest*, the combined text of
//! all other requests and the administrator.
//!
//! Invariants:
//! - The journal has every text that the file can read when this process is killed: `roost restore`
//!   puts the earlier text back.
//! - A limit that is requested while a window is open is in force when it ends; the window stays
//!   open.
//! - A text that is neither ours nor the rest is another program's: it becomes the rest.
//! - A write does not wake a CPU that sleeps already. To wake it, a thread has to run there.

use super::{IdleControl, NOT_OURS};
use crate::cpuidle::pm_qos::resume_latency_file;
use crate::journal::Step;
use machine::CpuId;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

/// The strictest limit, as the file wants it: no state but polling.
const POLLING: &str = "n/a";

/// `SYSFS_MAGIC` (`include/uapi/linux/magic.h`).
const SYSFS: rustix::fs::FsWord = 0x6265_6572;

/// A text of this file is shorter.
const TEXT_MAX: usize = 32;

#[derive(Debug)]
pub(super) struct Window {
    file: File,
    /// A plain file keeps the text behind a shorter write; the kernel's files do not, and asking
    /// costs as much as writing.
    is_plain: bool,
    /// The text of the file while the window is closed.
    rest: String,
    is_open: bool,
}

impl Window {
    /// Writes one of its two texts.
    fn put(&self, text: &str) -> io::Result<()> {
        let mut line = [0; TEXT_MAX];
        let length = text.len().min(TEXT_MAX - 1);
        line[..length].copy_from_slice(&text.as_bytes()[..length]);
        line[length] = b'\n';
        self.file.write_all_at(&line[..=length], 0)?;
        if self.is_plain { self.file.set_len(length as u64 + 1) } else { Ok(()) }
    }
}

impl IdleControl {
    /// Allows windows on `cpu` from now on; returns the reason if that fails.
    pub fn prepare_window(&mut self, cpu: CpuId) -> Result<(), String> {
        if !self.cpus.contains_key(&cpu) {
            return Err(NOT_OURS.to_owned());
        }
        let journal = self.journal.as_mut().map_err(|reason| reason.clone())?;
        let path = resume_latency_file(cpu);
        journal.promise(&path, POLLING).map_err(|error| error.reason())?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.root.path(&path))
            .map_err(|cause| format!("{path}: {cause}"))?;
        let rest = text(&file).map_err(|cause| format!("{path}: {cause}"))?;
        let is_first = self.windows.is_empty();
        let is_plain = rustix::fs::fstatfs(&file).map_or(true, |about| about.f_type != SYSFS);
        self.windows.insert(cpu, Window { file, is_plain, rest, is_open: false });
        if is_first {
            self.bound_polls();
        }
        Ok(())
    }

    /// Ends windows on `cpu`.
    pub fn end_windows(&mut self, cpu: CpuId) {
        let _ = self.set_window(cpu, false);
        self.windows.remove(&cpu);
        if self.windows.is_empty() {
            self.free_polls();
        }
        if let Ok(journal) = &mut self.journal
            && !self.windows.contains_key(&cpu)
        {
            // The file reads the rest, so only the promise ends; a limit of ours is requested again
            // below.
            let limit = self.cpus.get(&cpu).and_then(|owned| owned.state.limit());
            let _ = journal.put_back(&resume_latency_file(cpu));
            if let Some(limit) = limit {
                self.apply(cpu, limit);
            }
        }
    }

    /// Opens or closes the window of `cpu`.
    pub fn set_window(&mut self, cpu: CpuId, open: bool) -> Result<(), String> {
        match self.try_set_window(cpu, open) {
            // A descriptor dies with its CPU, which may be back with another.
            Err(cause) if cause.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
                self.prepare_window(cpu)?;
                self.try_set_window(cpu, open)
            }
            result => result,
        }
        .map_err(|cause| format!("the window of {cpu}: {cause}"))
    }

    fn try_set_window(&mut self, cpu: CpuId, open: bool) -> io::Result<()> {
        let window = self.windows.get_mut(&cpu).ok_or(io::ErrorKind::NotFound)?;
        let reads = text(&window.file)?;
        let is_ours = reads == if window.is_open { POLLING } else { window.rest.as_str() };
        if !is_ours {
            window.rest.clone_from(&reads);
            // The journal has to know the text to go back to.
            self.promise_again(cpu);
        }
        let window = self.windows.get_mut(&cpu).ok_or(io::ErrorKind::NotFound)?;
        let wanted = if open { POLLING } else { window.rest.as_str() };
        if wanted != reads {
            window.put(wanted)?;
        }
        window.is_open = open;
        if let Ok(journal) = &mut self.journal {
            journal.at(Step::Written);
        }
        Ok(())
    }

    /// After a change through the journal: the text that it left is the rest, and an open window is
    /// open still.
    pub(super) fn renew_window(&mut self, cpu: CpuId) {
        let Some(window) = self.windows.get_mut(&cpu) else { return };
        if let Ok(reads) = text(&window.file) {
            window.rest = reads;
        }
        self.promise_again(cpu);
        if let Some(window) = self.windows.get(&cpu).filter(|window| window.is_open) {
            // Refused: the CPU sleeps a little early, and the next window says why.
            let _ = window.put(POLLING);
        }
    }

    fn promise_again(&mut self, cpu: CpuId) {
        let promised = match &mut self.journal {
            Ok(journal) => {
                journal.promise(&resume_latency_file(cpu), POLLING).map_err(|error| error.reason())
            }
            Err(reason) => Err(reason.clone()),
        };
        if let Err(reason) = promised {
            // A file that the journal does not name is not written.
            self.windows.remove(&cpu);
            self.notices.push(format!("{cpu} is kept awake no more: {reason}"));
        }
    }
}

fn text(file: &File) -> io::Result<String> {
    let mut bytes = [0; TEXT_MAX];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpuidle::control::IdleOptions;
    use crate::fake::FakeMachine;
    use machine::{CpuList, Duration, IdleLimit};

    const CPU: CpuId = CpuId(0);

    fn control(machine: &FakeMachine) -> IdleControl {
        let mut control =
            IdleControl::open(machine.root(), &CpuList([CPU].into()), IdleOptions::new("test")).unwrap();
        control.prepare_window(CPU).unwrap();
        control
    }

    fn reads(machine: &FakeMachine) -> String {
        machine.root().text(&resume_latency_file(CPU)).unwrap().trim().to_owned()
    }

    #[test]
    fn a_window_polls_and_what_was_there_comes_back() {
        let machine = FakeMachine::intel_server(1);
        machine.write(&resume_latency_file(CPU), "0\n");
        let mut control = control(&machine);
        assert_eq!(reads(&machine), "0");
        for _ in 0..3 {
            control.set_window(CPU, true).unwrap();
            assert_eq!(reads(&machine), "n/a");
            control.set_window(CPU, false).unwrap();
            assert_eq!(reads(&machine), "0");
        }
        control.set_window(CPU, true).unwrap();
        drop(control);
        assert_eq!(reads(&machine), "0", "dropped in the middle of a window");
    }

    #[test]
    fn a_limit_asked_for_in_a_window_is_in_force_after_it() {
        let machine = FakeMachine::intel_server(1);
        machine.write(&resume_latency_file(CPU), "0\n");
        let mut control = control(&machine);
        control.set_window(CPU, true).unwrap();
        control.apply(CPU, IdleLimit::ExitLatency(Duration::from_micros(10)));
        assert_eq!(reads(&machine), "n/a", "the window is open still");
        control.set_window(CPU, false).unwrap();
        assert_eq!(reads(&machine), "10");
        control.set_window(CPU, true).unwrap();
        control.apply(CPU, IdleLimit::None);
        control.set_window(CPU, false).unwrap();
        assert_eq!(reads(&machine), "0");
    }

    #[test]
    fn an_administrators_change_is_left_alone_and_gone_back_to() {
        let machine = FakeMachine::intel_server(1);
        machine.write(&resume_latency_file(CPU), "0\n");
        let mut control = control(&machine);
        machine.write(&resume_latency_file(CPU), "70\n");
        control.set_window(CPU, true).unwrap();
        assert_eq!(reads(&machine), "n/a");
        control.set_window(CPU, false).unwrap();
        assert_eq!(reads(&machine), "70");
        control.set_window(CPU, true).unwrap();
        drop(control);
        assert_eq!(reads(&machine), "70");
    }

    #[test]
    fn a_cpu_that_is_not_ours_has_no_windows() {
        let machine = FakeMachine::intel_server(1);
        machine.write(&resume_latency_file(CPU), "0\n");
        let mut control = control(&machine);
        assert!(control.prepare_window(CpuId(1)).is_err());
        assert!(control.set_window(CpuId(1), true).is_err());
        control.end_windows(CPU);
        assert!(control.set_window(CPU, true).is_err());
        assert_eq!(reads(&machine), "0");
    }

    #[test]
    fn who_is_killed_in_a_window_leaves_it_in_the_journal() {
        let machine = FakeMachine::intel_server(1);
        machine.write(&resume_latency_file(CPU), "50\n");
        let mut control = control(&machine);
        control.set_window(CPU, true).unwrap();
        // As a SIGKILL would: nothing is dropped, and the lock goes with the descriptor.
        let folder = machine.root().path("run/roost");
        let journal = std::fs::read_dir(&folder)
            .unwrap()
            .flatten()
            .find(|file| file.path().extension().is_some_and(|end| end == "journal"))
            .unwrap();
        let text = std::fs::read_to_string(journal.path()).unwrap();
        assert!(text.contains(r#""before":"50","after":"n/a""#), "{text}");
    }
}
