//! A thread that runs as soon as it is woken, however busy its CPU is, and that cannot keep a CPU
//! to itself.
//!
//! `SCHED_FIFO` of priority 1, the lowest that goes before all ordinary threads. It is bounded
//! twice: by `RLIMIT_RTTIME`, which sends SIGXCPU (catch it: [`end_realtime`], or put things back)
//! if one of the process's real-time threads computes for [`LONGEST_TURN_US`] without waiting for
//! anything, and by the kernel's own share for ordinary threads (`sched_rt_runtime_us`). Threads
//! that it starts are ordinary ones.
//!
//! A load generator that shares its CPUs with the server has the priority without the first bound
//! ([`schedule_fifo`]): at worst it loses its own measurement, and ending it for an overload would
//! lose the user's.
//!
//! And its opposite, a thread that runs only on a CPU that is otherwise idle (`SCHED_IDLE`): every
//! ordinary thread that is woken there takes its place at once. Threads that it starts are the
//! same. A low priority (`nice 19`) does not promise that: the scheduler lets such a thread finish
//! its slice now and then.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{c_int, c_long};
use std::io;
use thiserror::Error;

/// Why a thread stays an ordinary one.
#[derive(Debug, Error)]
pub enum RealtimeError {
    #[error(
        "not permitted to run at real-time priority\nhint: run as root, grant CAP_SYS_NICE, or \
         raise RLIMIT_RTPRIO \
         (LimitRTPRIO=1 in a unit)"
    )]
    NotPermitted,
    #[error("real-time priority cannot be had: {0}")]
    Refused(io::Error),
}

/// The longest computation of such a thread at a stretch, in us. A control step of the daemon takes
/// some tens of them.
const LONGEST_TURN_US: u64 = 100_000;

/// The kernel's `struct sched_attr`, in its first version.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SCHED_OTHER: u32 = 0;
const SCHED_FIFO: u32 = 1;
const SCHED_IDLE: u32 = 5;
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

#[cfg(target_arch = "x86_64")]
const SCHED_SETATTR: Option<c_long> = Some(314);
#[cfg(target_arch = "aarch64")]
const SCHED_SETATTR: Option<c_long> = Some(274);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SCHED_SETATTR: Option<c_long> = None;

unsafe extern "C" {
    fn syscall(number: c_long, thread: c_int, attr: *const SchedAttr, flags: u32) -> c_long;
}

/// Makes the calling thread one that runs as soon as it is woken.
pub fn schedule_fifo_bounded() -> Result<(), RealtimeError> {
    // The bound first: there is no moment without one.
    let before = getrlimit(Resource::Rttime);
    let bound = before.maximum.map_or(LONGEST_TURN_US, |maximum| maximum.min(LONGEST_TURN_US));
    setrlimit(Resource::Rttime, Rlimit { current: Some(bound), maximum: before.maximum })
        .map_err(|error| RealtimeError::Refused(error.into()))?;
    set_policy(SCHED_FIFO, 1)
}

/// The same without a bound of its own: the kernel's share for ordinary threads is the only one.
/// For measurements, never for long-running programs.
pub fn schedule_fifo() -> Result<(), RealtimeError> {
    set_policy(SCHED_FIFO, 1)
}

/// Makes the calling thread one that runs only on a CPU that is otherwise idle.
pub fn schedule_idle() -> Result<(), RealtimeError> {
    set_policy(SCHED_IDLE, 0)
}

/// Makes every real-time thread of this process an ordinary one. Returns how many there were.
///
/// For SIGXCPU: the kernel does not name the thread that computed without a pause.
pub fn end_realtime() -> io::Result<usize> {
    let mut ended = 0;
    for thread in std::fs::read_dir("/proc/self/task")?.flatten() {
        let Some(number) = thread.file_name().to_str().and_then(|name| name.parse::<c_int>().ok()) else {
            continue;
        };
        // It may have ended meanwhile.
        let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else { continue };
        if policy_in(&stat) == Some(SCHED_FIFO) && set_policy_of(number, SCHED_OTHER, 0).is_ok() {
            ended += 1;
        }
    }
    Ok(ended)
}

/// Field 41 of a thread's `stat`, counted after the command, which may hold spaces.
fn policy_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(38)?.parse().ok()
}

fn set_policy(policy: u32, priority: u32) -> Result<(), RealtimeError> {
    set_policy_of(0, policy, priority)
}

/// 0: the calling thread. Threads that it starts under a real-time policy become ordinary ones
/// (`sched_fork`, `kernel/sched/core.c`).
fn set_policy_of(thread: c_int, policy: u32, priority: u32) -> Result<(), RealtimeError> {
    let number = SCHED_SETATTR.ok_or_else(|| RealtimeError::Refused(io::ErrorKind::Unsupported.into()))?;
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy,
        flags: SCHED_FLAG_RESET_ON_FORK,
        nice: 0,
        priority,
        runtime: 0,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of `attr`, which is as long, and changes nothing of
    // ours in memory.
    if unsafe { syscall(number, thread, &raw const attr, 0) } == 0 {
        return Ok(());
    }
    let cause = io::Error::last_os_error();
    let is_forbidden = cause.raw_os_error() == Some(Errno::PERM.raw_os_error());
    Err(if is_forbidden { RealtimeError::NotPermitted } else { RealtimeError::Refused(cause) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test at a time has real-time threads: [`end_realtime`] ends those of the process.
    static REALTIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn alone() -> std::sync::MutexGuard<'static, ()> {
        REALTIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn policy_of_this_thread() -> String {
        policy_in(&std::fs::read_to_string("/proc/thread-self/stat").unwrap()).unwrap().to_string()
    }

    #[test]
    fn threads_of_this_process_become_ordinary_at_once() {
        let _alone = alone();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (go, goes) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let is_realtime = schedule_fifo_bounded().is_ok();
            ready.send(is_realtime).unwrap();
            goes.recv().unwrap();
            policy_of_this_thread()
        });
        let is_realtime = is_ready.recv().unwrap();
        assert_eq!(end_realtime().unwrap(), usize::from(is_realtime));
        go.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), "0");
        assert_eq!(end_realtime().unwrap(), 0);
    }

    #[test]
    fn one_thread_runs_at_once_within_a_bound_and_its_children_do_not() {
        let _alone = alone();
        std::thread::spawn(|| {
            if let Err(error) = schedule_fifo_bounded() {
                println!("SKIPPED: {error}");
                return;
            }
            assert_eq!(policy_of_this_thread(), "1");
            assert_eq!(getrlimit(Resource::Rttime).current, Some(LONGEST_TURN_US));
            std::thread::spawn(|| assert_eq!(policy_of_this_thread(), "0")).join().unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(policy_of_this_thread(), "0");
    }

    #[test]
    fn a_thread_without_a_bound_runs_before_others_and_its_children_do_not() {
        let _alone = alone();
        let before = getrlimit(Resource::Rttime).current;
        std::thread::spawn(move || {
            if let Err(error) = schedule_fifo() {
                println!("SKIPPED: {error}");
                return;
            }
            assert_eq!(policy_of_this_thread(), "1");
            std::thread::spawn(|| assert_eq!(policy_of_this_thread(), "0")).join().unwrap();
        })
        .join()
        .unwrap();
        // Another test may have set the bound of this process meanwhile.
        assert!([before, Some(LONGEST_TURN_US)].contains(&getrlimit(Resource::Rttime).current));
    }

    #[test]
    fn a_thread_makes_way_for_all_others_and_so_do_those_that_it_starts() {
        std::thread::spawn(|| {
            schedule_idle().unwrap();
            assert_eq!(policy_of_this_thread(), "5");
            std::thread::spawn(|| assert_eq!(policy_of_this_thread(), "5")).join().unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(policy_of_this_thread(), "0");
    }
}
