//! Threads of running processes: their list, their CPUs, and how to tell one from a later one with
//! the same number.
//!
//! The kernel uses a thread's number again after some time, so a recorded number proves little.
//! With the thread's start time (field 22 of its `stat`, in clock ticks since boot) it names that
//! thread and no other. The path of such a name in a journal is
//! `affinity/PROCESS:BEGAN/THREAD:BEGAN`.
//!
//! Everything is read from the real `/proc`, even under a moved root: a system call reaches real
//! threads only.

use crate::processes::thread_places::{PlaceState, ThreadPlace};
use machine::{CpuId, CpuList};
use rustix::io::Errno;
use rustix::process::test_kill_process;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

/// The beginning of a thread's affinity path in a journal.
pub(crate) const AFFINITY: &str = "affinity/";

/// One thread of one process, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadName {
    pub(crate) process: u32,
    pub(crate) process_began: u64,
    pub(crate) thread: u32,
    pub(crate) began: u64,
}

impl ThreadName {
    /// The thread that has this number now.
    pub(crate) fn now(process: u32, process_began: u64, thread: u32) -> io::Result<Self> {
        let began = if thread == process { process_began } else { began(process, thread)? };
        Ok(Self { process, process_began, thread, began })
    }

    pub(crate) fn path(&self) -> String {
        let Self { process, process_began, thread, began } = self;
        format!("{AFFINITY}{process}:{process_began}/{thread}:{began}")
    }

    pub(crate) fn from_path(path: &str) -> Option<Self> {
        // Not `u32::from_str` alone: it takes a plus sign, and a path has one spelling.
        let number =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
        let (process, thread) = path.strip_prefix(AFFINITY)?.split_once('/')?;
        let pair = |text: &str| -> Option<(u32, u64)> {
            let (id, began) = text.split_once(':')?;
            Some((u32::try_from(number(id)?).ok()?, number(began)?))
        };
        let ((process, process_began), (thread, began)) = (pair(process)?, pair(thread)?);
        Some(Self { process, process_began, thread, began })
    }

    /// True if the process is still the named one.
    pub(crate) fn process_lives(&self) -> bool {
        began(self.process, self.process).is_ok_and(|began| began == self.process_began)
    }
}

/// When a thread began, in clock ticks since boot.
pub(crate) fn began(process: u32, thread: u32) -> io::Result<u64> {
    // The fields up to the needed one fill less than this, and the kernel hands them over in one
    // piece.
    let mut text = [0; 1024];
    let length = File::open(format!("/proc/{process}/task/{thread}/stat"))?.read(&mut text)?;
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "no start time in its stat");
    began_in(&String::from_utf8_lossy(&text[..length])).ok_or_else(nonsense)
}

/// True if a process has this number now.
pub(crate) fn lives(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) != Err(Errno::SRCH))
}

/// True if the process runs as this user. False also for one whose memory is closed to its user
/// (`prctl(PR_SET_DUMPABLE)`): the kernel calls it root's.
pub(crate) fn is_of(process: u32, user: u32) -> bool {
    fs::metadata(format!("/proc/{process}")).is_ok_and(|folder| folder.uid() == user)
}

/// Field 22, counted after the command: that stands in parentheses and may hold spaces and
/// parentheses itself.
fn began_in(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// True for a kernel thread that cannot be moved: it belongs to its CPU (`PF_NO_SETAFFINITY`), or
/// follows the interrupt that it serves (`irq/N-NAME`).
pub(crate) fn is_kept_by_kernel(process: u32, thread: u32) -> io::Result<bool> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"))?;
    Ok(is_kept_in(&text))
}

/// Field 9 is the flags, of which this one and the one that says "the kernel's own" are as old as
/// the kernel's sources in git.
fn is_kept_in(stat: &str) -> bool {
    const NO_SETAFFINITY: u32 = 0x0400_0000;
    const KTHREAD: u32 = 0x0020_0000;
    let Some((head, tail)) = stat.rsplit_once(')') else { return false };
    let flags: u32 = tail.split_ascii_whitespace().nth(6).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    let serves_interrupt = head.split_once('(').is_some_and(|(_, name)| name.starts_with("irq/"));
    flags & NO_SETAFFINITY != 0 || (flags & KTHREAD != 0 && serves_interrupt)
}

/// The cpuset of a thread, as a path in the tree that has the controller; `None` where the kernel
/// does not show it.
pub(crate) fn cpuset_of(process: u32, thread: u32) -> Option<String> {
    let text = |file: &str| fs::read_to_string(format!("/proc/{process}/task/{thread}/{file}")).ok();
    // A kernel without cpusets of version 1 may lack the file (7.2 as Debian builds it).
    text("cpuset").map_or_else(|| cpuset_in(&text("cgroup")?), |path| Some(path.trim_end().to_owned()))
}

/// The group in a thread's `cgroup` file that decides on its CPUs: version 1's, or else version
/// 2's.
fn cpuset_in(text: &str) -> Option<String> {
    let groups = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let of_first = groups().find(|(controllers, _)| controllers.split(',').any(|one| one == "cpuset"));
    let of_second = || groups().find(|(controllers, _)| controllers.is_empty());
    of_first.or_else(of_second).map(|(_, path)| path.to_owned())
}

/// The union of the CPUs of a process's threads; `None` if it has ended.
pub fn cpus_of_process(process: u32) -> Option<CpuList> {
    let threads = of_process(process).ok()?;
    let cpus: Vec<CpuList> = threads.into_iter().filter_map(|thread| cpus(thread).ok()).collect();
    (!cpus.is_empty()).then(|| CpuList(cpus.into_iter().flat_map(|cpus| cpus.0).collect()))
}

/// This kernel's release: `6.1.0-32-cloud-amd64`.
pub(crate) fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// True if a kernel of this release remembers the CPUs that a thread chose for itself when its
/// cpuset changes or a CPU goes: since 6.2. Before, every thread of the cpuset is given all that
/// the cpuset has.
pub(crate) fn remembers_pins(release: &str) -> bool {
    let mut numbers = release.split(|byte: char| !byte.is_ascii_digit()).map_while(|part| part.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 2)
}

/// The place of a thread; `None` if it has ended.
pub(crate) fn place(process: u32, thread: u32) -> Option<ThreadPlace> {
    place_from(&File::open(format!("/proc/{process}/task/{thread}/stat")).ok()?)
}

/// The same from its `stat`, kept open: reading fails when the thread has ended, even if its number
/// is in use again.
pub(crate) fn place_from(stat: &File) -> Option<ThreadPlace> {
    let mut text = [0; 1024];
    let length = stat.read_at(&mut text, 0).ok()?;
    place_in(&String::from_utf8_lossy(&text[..length]))
}

/// Fields 3 and 39, counted after the command.
fn place_in(stat: &str) -> Option<ThreadPlace> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = match fields.next()? {
        "R" => PlaceState::Runs,
        // Ended, and not yet waited for.
        "Z" | "X" => return None,
        _ => PlaceState::Waits,
    };
    Some(ThreadPlace { cpu: CpuId(fields.nth(35)?.parse().ok()?), state })
}

pub(crate) fn command(process: u32, thread: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm")).ok()?;
    Some(crate::printable_name(text.trim_end()))
}

/// The threads of a process; none if it has ended.
pub fn of_process(process: u32) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(format!("/proc/{process}/task")) {
        Err(cause) if is_gone(&cause) => return Ok(Vec::new()),
        entries => entries?,
    };
    // The folder may vanish while it is read: then the process has ended.
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The number of threads of a process; 0 if it has ended.
pub(crate) fn count(process: u32) -> usize {
    use std::os::unix::fs::MetadataExt;
    let links = fs::metadata(format!("/proc/{process}/task")).map_or(0, |folder| folder.nlink());
    // One link for each thread, and `.` and `..` as in every folder.
    usize::try_from(links.saturating_sub(2)).unwrap_or_default()
}

/// The CPUs that a thread may run on. CPUs that are offline are left out, by the kernel.
pub(crate) fn cpus(thread: u32) -> io::Result<CpuList> {
    let set = sched_getaffinity(pid(thread)?)?;
    let possible = u16::try_from(CpuSet::MAX_CPU).unwrap_or(u16::MAX);
    Ok(CpuList((0..possible).filter(|&cpu| set.is_set(usize::from(cpu))).map(CpuId).collect()))
}

/// Lets a thread run on `cpus` only.
pub(crate) fn set_cpus(thread: u32, cpus: &CpuList) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.0.iter().filter(|cpu| cpu.index() < CpuSet::MAX_CPU) {
        set.set(cpu.index());
    }
    set_mask(thread, &set)
}

/// Lets a thread run wherever its cpuset lets it. Kernels since 6.2 remember the requested CPUs and
/// not the remaining ones, so such a thread follows when its cpuset grows or a CPU comes back, as
/// one that was never pinned.
pub(crate) fn set_all_cpus(thread: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in 0..CpuSet::MAX_CPU {
        set.set(cpu);
    }
    set_mask(thread, &set)
}

fn set_mask(thread: u32, set: &CpuSet) -> io::Result<()> {
    sched_setaffinity(pid(thread)?, set).map_err(|cause| match cause {
        Errno::PERM => io::Error::other(format!(
            "{}: a thread of another user needs CAP_SYS_NICE; run as root or grant it",
            io::Error::from(cause)
        )),
        Errno::INVAL => io::Error::other(
            "none of these CPUs is online and within the thread's cpuset (or it is a thread of the kernel)",
        ),
        cause => cause.into(),
    })
}

fn pid(thread: u32) -> io::Result<Option<Pid>> {
    let pid = i32::try_from(thread).ok().and_then(Pid::from_raw);
    // No number would mean the calling thread.
    pid.map(Some).ok_or_else(|| Errno::SRCH.into())
}

/// True if the error says that the process or thread has ended.
pub(crate) fn is_gone(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::NotFound || cause.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpuset_is_told_by_the_cgroup_where_no_other_file_tells() {
        assert_eq!(cpuset_in("0::/a.slice/b:c.service\n").as_deref(), Some("/a.slice/b:c.service"));
        let hybrid = "3:cpu,cpuacct:/x\n2:cpuset:/shop\n0::/a.slice\n";
        assert_eq!(cpuset_in(hybrid).as_deref(), Some("/shop"));
        assert_eq!(cpuset_in("3:cpu,cpuacct:/x\n0::/a.slice\n").as_deref(), Some("/a.slice"));
        assert_eq!(cpuset_in("nonsense\n"), None);
        let own = std::process::id();
        let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| cpuset_in(&text));
        assert_eq!(cpuset_of(own, own).is_some(), group.is_some());
    }

    #[test]
    fn a_name_is_read_back_from_its_path_and_nothing_else_is_one() {
        let name = ThreadName { process: 12, process_began: 345, thread: 13, began: 678 };
        assert_eq!(name.path(), "affinity/12:345/13:678");
        assert_eq!(ThreadName::from_path(&name.path()), Some(name));
        let others =
            ["affinity/12:345", "affinity/12/13", "affinity/+12:345/13:678", "affinity/12:345/13:678/x", ""];
        for path in others {
            assert_eq!(ThreadName::from_path(path), None, "{path}");
        }
    }

    #[test]
    fn a_command_with_parentheses_does_not_shift_the_fields() {
        let fields = (4..=21).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(began_in(&format!("7 (a) S b) S {fields} 4711 23")), Some(4711));
        for nonsense in ["", "7 (a", "7 (a) S 1 2"] {
            assert_eq!(began_in(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn who_belongs_to_a_cpu_or_an_interrupt_is_not_to_be_moved() {
        for (stat, kept) in [
            ("16 (cpuhp/1) S 2 0 0 0 -1 69238848 0 0", true),
            ("90 (irq/25-ACPI:Ged) S 2 0 0 0 -1 2097216 0 0", true),
            ("15 (rcu_preempt) I 2 0 0 0 -1 2129984 0 0", false),
            ("7 (irq/25-fake) S 1 0 0 0 -1 4194560 0 0", false),
            ("7 (a) S b) S 1 0 0 0 -1 67108864 0 0", true),
            ("", false),
        ] {
            assert_eq!(is_kept_in(stat), kept, "{stat}");
        }
    }

    #[test]
    fn a_place_is_the_state_and_the_cpu_and_an_ended_thread_has_none() {
        let stat = |state: &str| {
            let fields = (4..=38).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
            format!("7 (a) S 9 b) {state} {fields} 3 40 41")
        };
        let place = |state| Some(ThreadPlace { cpu: CpuId(3), state });
        assert_eq!(place_in(&stat("R")), place(PlaceState::Runs));
        assert_eq!(place_in(&stat("S")), place(PlaceState::Waits));
        assert_eq!((place_in(&stat("Z")), place_in("7 (a) R 1 2"), place_in("")), (None, None, None));
        let kept = std::thread::spawn(|| {
            let mine = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let file = File::open(format!("/proc/self/task/{mine}/stat")).unwrap();
            assert_eq!(place_from(&file).map(|place| place.state), Some(PlaceState::Runs));
            assert!(command(std::process::id(), mine).is_some_and(|name| !name.is_empty()));
            file
        });
        let kept = kept.join().unwrap();
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while place_from(&kept).is_some() {
            // `join` returns a little before the kernel has let go of the thread.
            assert!(std::time::Instant::now() < patience);
            std::thread::yield_now();
        }
    }

    #[test]
    fn this_thread_is_found_counted_and_named() {
        let me = std::process::id();
        let mine = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        assert!(of_process(me).unwrap().contains(&mine) && count(me) > 1);
        let name = ThreadName::now(me, began(me, me).unwrap(), mine).unwrap();
        assert!(name.process_lives());
        assert!(!ThreadName { process_began: name.process_began + 1, ..name }.process_lives());
        assert_eq!(cpus(mine).unwrap(), crate::allowed_cpus().unwrap());
        assert_eq!((of_process(u32::MAX).unwrap(), count(u32::MAX)), (Vec::new(), 0));
        assert!(is_gone(&cpus(u32::MAX).unwrap_err()) && is_gone(&cpus(0).unwrap_err()));
    }
}
