//! Threads by their numbers in their own pid namespace, as a process in a container writes them
//! down.
//!
//! The kernel lists all numbers of a thread in its `status`, the outermost first: `NSpid: 4711 17`.
//! The outer number is that of the namespace of our `/proc`. A process that shares our namespace
//! has one number, and nothing needs to be looked up.
//!
//! Invariants:
//! - A number that is found belongs to the thread with the given start time.
//! - All of `/proc` is searched for a thread at most ten times a second, whatever numbers a
//!   stranger writes down.

use crate::processes::threads;
use machine::{Duration, Instant};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostThread {
    /// Its number, as we see it.
    pub number: u32,
    /// When it began, in clock ticks since boot.
    pub began: u64,
}

impl HostThread {
    /// When it began, on the monotonic clock, a hundredth of a second early or late.
    pub fn began_at(&self) -> Instant {
        let nanos = |time: Timespec| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        // Threads are dated by a clock that goes on while the machine is suspended.
        let suspended = nanos(clock_gettime(ClockId::Boottime)).saturating_sub(crate::now().as_nanos());
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Instant::from_nanos(self.began.saturating_mul(tick).saturating_sub(suspended))
    }
}

#[derive(Debug)]
pub struct NamespacedThreads {
    process: u32,
    /// Its own number in its own namespace.
    inner: u32,
    began: u64,
    is_same_namespace: bool,
    by_inner: BTreeMap<u32, HostThread>,
    searched: Option<Instant>,
}

/// The pause between two searches.
const SEARCH_AGAIN: Duration = Duration::from_millis(100);

impl NamespacedThreads {
    /// Of `process`, as we see it; `None` if there is no such process.
    pub fn of(process: u32) -> Option<Self> {
        let began = threads::began(process, process).ok()?;
        let numbers = numbers(process, process)?;
        let inner = *numbers.last()?;
        let is_same_namespace = numbers.len() == 1;
        Some(Self { process, inner, began, is_same_namespace, by_inner: BTreeMap::new(), searched: None })
    }

    /// The same, for numbers that are ours already, as programs in the kernel report them: nothing
    /// is looked up.
    pub fn by_our_numbers(process: u32) -> Option<Self> {
        Self::of(process).map(|threads| Self { is_same_namespace: true, ..threads })
    }

    /// The process's own number in its own namespace.
    pub fn inner_process(&self) -> u32 {
        self.inner
    }

    /// When the process began, in clock ticks since boot.
    pub fn began(&self) -> u64 {
        self.began
    }

    pub fn is_alive(&self) -> bool {
        threads::began(self.process, self.process).is_ok_and(|began| began == self.began)
    }

    /// Becomes readable when the process ends; `None` where the kernel has none (Linux 5.3) or the
    /// process has ended.
    pub fn end(&self) -> Option<OwnedFd> {
        let pid = rustix::process::Pid::from_raw(self.process.try_into().ok()?)?;
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
    }

    /// The thread that has this number in the process's own namespace; `None` if there is none.
    pub fn find(&mut self, now: Instant, inner: u32) -> Option<HostThread> {
        let outer = |number| Some(HostThread { number, began: threads::began(self.process, number).ok()? });
        if self.is_same_namespace {
            return outer(inner);
        }
        // Its number may be another thread's by now.
        if let Some(known) = self.by_inner.get(&inner)
            && self.has(*known)
        {
            return Some(*known);
        }
        if self.searched.is_some_and(|last| now.since(last) < SEARCH_AGAIN) {
            return None;
        }
        self.searched = Some(now);
        let all = threads::of_process(self.process).unwrap_or_default();
        let named = all
            .into_iter()
            .filter_map(|number| Some((*numbers(self.process, number)?.last()?, outer(number)?)));
        self.by_inner = named.collect();
        self.by_inner.get(&inner).copied()
    }

    /// True if that very thread still runs.
    pub fn has(&self, thread: HostThread) -> bool {
        threads::began(self.process, thread.number).is_ok_and(|began| began == thread.began)
    }

    /// A thread's name, by our number.
    pub fn command(&self, number: u32) -> Option<String> {
        threads::command(self.process, number)
    }
}

/// A thread's numbers, the outermost namespace first.
fn numbers(process: u32, thread: u32) -> Option<Vec<u32>> {
    let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
    numbers_in(&status).or_else(|| Some(vec![thread]))
}

/// Kernels without pid namespaces have no such line.
fn numbers_in(status: &str) -> Option<Vec<u32>> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let numbers: Vec<u32> = line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    (!numbers.is_empty()).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn numbers_are_listed_from_the_outside_in() {
        assert_eq!(numbers_in("Name:\tjava\nNSpid:\t4711\t17\t1\nNSsid:\t1\n"), Some(vec![4711, 17, 1]));
        assert_eq!((numbers_in("Name:\tjava\n"), numbers_in("NSpid:\tx\n")), (None, None));
    }

    #[test]
    fn who_shares_our_namespace_is_found_by_its_number() {
        let me = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let mut own = NamespacedThreads::of(std::process::id()).unwrap();
        let found = own.find(Instant::ZERO, me).unwrap();
        assert_eq!(found, HostThread { number: me, began: threads::began(std::process::id(), me).unwrap() });
        assert!(own.is_alive() && own.inner_process() == std::process::id() && own.command(me).is_some());
        assert!(own.has(found) && !own.has(HostThread { began: found.began + 1, ..found }));
        let age = crate::now().since(found.began_at());
        assert!(age < Duration::from_secs(600), "{age}");
        assert_eq!(own.find(Instant::ZERO, u32::MAX), None);
        assert!(NamespacedThreads::of(u32::MAX).is_none());
    }

    #[test]
    fn a_process_in_a_namespace_of_its_own_is_found_by_its_inner_number() {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "sh", "-c", "echo inner $$; read end"]);
        let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
            println!("SKIPPED: no unshare here");
            return;
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            println!("SKIPPED: pid namespaces need root");
            let _ = child.wait();
            return;
        }
        assert_eq!(line, "inner 1\n");
        let outer = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
        let outer: u32 = outer.trim().parse().unwrap();
        let mut inside = NamespacedThreads::of(outer).unwrap();
        assert_eq!(inside.inner_process(), 1);
        assert_eq!(inside.find(Instant::ZERO, 1).map(|found| found.number), Some(outer));
        // Found again without a search; one that is not there is looked for now and then only.
        assert_eq!(inside.find(Instant::ZERO, 1).map(|found| found.number), Some(outer));
        assert_eq!(inside.find(Instant::ZERO, 2), None);
        let mut ours = NamespacedThreads::by_our_numbers(outer).unwrap();
        assert_eq!(ours.find(Instant::ZERO, outer).map(|found| found.number), Some(outer));
        assert_eq!((ours.find(Instant::ZERO, 1), ours.inner_process()), (None, 1));
        assert!(inside.end().is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!inside.is_alive());
        assert_eq!(inside.find(Instant::from_nanos(1 << 40), 1), None);
    }
}
