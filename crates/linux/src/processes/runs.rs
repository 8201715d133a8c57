//! The use of the CPUs by thread: CPU time, and the number of turns on a CPU that it came in.
//!
//! The third number of `/proc/PID/task/TID/schedstat` counts how often the scheduler put the thread
//! on a CPU, the first is its time there in nanoseconds
//! (`Documentation/scheduler/sched-stats.rst`). Both grow from the thread's birth. Two readings and
//! their difference cost two walks of `/proc`. A thread that begins and ends between them is in
//! neither: its time is missing.

use super::service::command;
use crate::root::Root;
use machine::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadUse {
    pub process: u32,
    /// A thread of the kernel's own.
    pub is_kernel: bool,
    pub cpu_time: Duration,
    /// Times that it was put on a CPU.
    pub turns: u64,
}

/// All threads by number; empty where the kernel keeps no such counts (`CONFIG_SCHED_INFO`).
pub fn thread_uses(root: &Root) -> BTreeMap<u32, ThreadUse> {
    let mut found = BTreeMap::new();
    let numbers = |folder: &str| -> Vec<u32> {
        root.names(folder).unwrap_or_default().iter().filter_map(|name| name.parse().ok()).collect()
    };
    for process in numbers("proc") {
        let is_kernel = is_kernel(root, process);
        for thread in numbers(&format!("proc/{process}/task")) {
            let text = root.text(&format!("proc/{process}/task/{thread}/schedstat"));
            if let Some((cpu_time, turns)) = text.ok().as_deref().and_then(parsed) {
                found.insert(thread, ThreadUse { process, is_kernel, cpu_time, turns });
            }
        }
    }
    found
}

/// CPU time, time that it waited for a CPU, turns.
fn parsed(text: &str) -> Option<(Duration, u64)> {
    let mut fields = text.split_ascii_whitespace();
    let cpu_time = Duration::from_nanos(fields.next()?.parse().ok()?);
    let _waited: u64 = fields.next()?.parse().ok()?;
    Some((cpu_time, fields.next()?.parse().ok()?))
}

/// The flag `PF_KTHREAD` of field 9 of its `stat`, which is as old as the kernel's sources in git.
fn is_kernel(root: &Root, process: u32) -> bool {
    const KTHREAD: u32 = 0x0020_0000;
    let flags = root
        .text(&format!("proc/{process}/stat"))
        .ok()
        .and_then(|text| text.rsplit_once(')')?.1.split_ascii_whitespace().nth(6)?.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & KTHREAD != 0)
}

/// Established connections to a service's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Established connections, as the service has them.
    pub connections: u64,
    /// Processes of this machine that hold the other end, with their names.
    pub processes: BTreeMap<u32, String>,
}

/// The connections of `service`, a process that listens on `ports`, and the processes at their
/// other end.
pub fn peers(root: &Root, service: u32, ports: &BTreeSet<u16>) -> Peers {
    let mut connections = 0;
    let mut outer = BTreeSet::new();
    for file in ["tcp", "tcp6"] {
        let text = root.text(&format!("proc/{service}/net/{file}")).unwrap_or_default();
        for (local, remote, inode) in text.lines().skip(1).filter_map(established) {
            connections += u64::from(ports.contains(&local));
            if ports.contains(&remote) {
                outer.insert(inode);
            }
        }
    }
    let mut peers = Peers { connections, ..Peers::default() };
    if outer.is_empty() {
        return peers;
    }
    for process in root.names("proc").unwrap_or_default().iter().filter_map(|name| name.parse().ok()) {
        let links = fs::read_dir(root.path(&format!("proc/{process}/fd"))).into_iter().flatten().flatten();
        let mut inodes = links.filter_map(|link| {
            let target = fs::read_link(link.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
        });
        if inodes.any(|inode| outer.contains(&inode)) {
            peers.processes.insert(process, command(root, process));
        }
    }
    peers
}

/// One line of `/proc/net/tcp` of an established connection: its ports and its inode.
fn established(line: &str) -> Option<(u16, u16, u64)> {
    const ESTABLISHED: &str = "01";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let port = |at: usize| u16::from_str_radix(fields.get(at)?.rsplit_once(':')?.1, 16).ok();
    (*fields.get(3)? == ESTABLISHED).then_some(())?;
    Some((port(1)?, port(2)?, fields.get(9)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_thread_that_works_is_seen_to_work() {
        let root = Root::system();
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let Some(before) = thread_uses(&root).remove(&me) else {
            eprintln!("skipped: this kernel keeps no schedstat");
            return;
        };
        let until = std::time::Instant::now() + std::time::Duration::from_millis(30);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        std::thread::yield_now();
        let after = thread_uses(&root).remove(&me).expect("it is alive");
        assert!(after.cpu_time > before.cpu_time && after.turns >= before.turns);
        assert_eq!((after.process, after.is_kernel), (std::process::id(), false));
    }

    #[test]
    fn nonsense_is_no_thread() {
        for text in ["", "1", "1 2", "a b c", "1 2 -3"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert_eq!(parsed("1000 5 7\n"), Some((Duration::from_nanos(1000), 7)));
    }

    #[test]
    fn a_client_on_this_machine_is_found_and_a_listener_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let of = || peers(&Root::system(), std::process::id(), &BTreeSet::from([port]));
        assert_eq!(of(), Peers::default());
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _accepted = listener.accept().unwrap();
        let found = of();
        assert_eq!(found.connections, 1);
        assert!(found.processes.contains_key(&std::process::id()), "{found:?}");
    }
}
