//! Child processes that end with their parent, and start on the right CPUs.
//!
//! A process that starts a server to measure or test it may be killed. Its children would go on:
//! unwanted load, and, where they are governors, limits that are never put back. The kernel can
//! signal a child when its parent ends (`PR_SET_PDEATHSIG`, `prctl(2)`); at SIGTERM our own
//! programs put the machine back.
//!
//! The parent is the *thread* that starts the child (`prctl(2)`, "caveats"): start it from one that
//! lives long enough. For the same reason the child itself sets its CPUs here, and not a thread
//! that pins itself, starts it and ends.

use machine::CpuList;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::sched_setaffinity;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The steps of a command between its fork and its exec.
pub trait EndsWithParent {
    /// The child gets SIGTERM when the thread that starts it ends in any way.
    fn ends_with_parent(&mut self) -> &mut Self;

    /// The child may run on `cpus` alone. Starting it fails where none of them is available.
    fn starts_on(&mut self, cpus: &CpuList) -> &mut Self;
}

impl EndsWithParent for Command {
    fn ends_with_parent(&mut self) -> &mut Self {
        let parent = rustix::process::getpid();
        let in_child = move || {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // It may have ended before the kernel got the request.
            if getppid() == Some(parent) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
        };
        // SAFETY: two system calls, no allocation, no lock: safe between fork and exec.
        unsafe { self.pre_exec(in_child) }
    }

    fn starts_on(&mut self, cpus: &CpuList) -> &mut Self {
        let set = crate::processes::affinity::cpu_set(cpus);
        let in_child = move || Ok(sched_setaffinity(None, &set.ok_or(rustix::io::Errno::INVAL)?)?);
        // SAFETY: one system call with a set that was made before the fork.
        unsafe { self.pre_exec(in_child) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, test_kill_process};
    use std::process::Stdio;
    use std::sync::mpsc;

    #[test]
    fn a_child_ends_with_the_thread_that_started_it() {
        let (tell, told) = mpsc::channel();
        let starter = std::thread::spawn(move || {
            let mut command = Command::new("sleep");
            let child = command.arg("600").stdin(Stdio::null()).ends_with_parent().spawn().unwrap();
            assert!(test_kill_process(Pid::from_child(&child)).is_ok());
            tell.send(child).unwrap();
        });
        let mut child = told.recv().unwrap();
        starter.join().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15), "{status}");
    }

    #[test]
    fn a_child_starts_where_it_shall() {
        let cpu = *crate::allowed_cpus().unwrap().0.last().unwrap();
        let only = CpuList([cpu].into());
        let output =
            Command::new("grep").args(["Cpus_allowed_list", "/proc/self/status"]).starts_on(&only).output();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        assert_eq!(said.split_whitespace().last(), Some(cpu.0.to_string().as_str()), "{said}");
        assert!(Command::new("true").starts_on(&CpuList::default()).status().is_err(), "no CPU at all");
    }
}
