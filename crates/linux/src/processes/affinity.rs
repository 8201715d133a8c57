//! The CPUs that this process may use, pinning a thread to one of them, and naming the thread.

use machine::{CpuId, CpuList};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::CString;
use std::io;

/// A request for CPUs that this process cannot have.
#[derive(Debug, thiserror::Error)]
pub enum AffinityError {
    /// Some of the requested CPUs are not ours to use.
    #[error(
        "CPU {missing} is not available: asked for {asked}, allowed here are {allowed}; choose \
         among the allowed \
         ones, or widen this process's affinity (taskset, cpuset, AllowedCPUs=)"
    )]
    NotAllowed {
        asked: CpuList,
        /// The CPUs that are not available.
        missing: CpuList,
        /// The CPUs that the kernel lets this process use.
        allowed: CpuList,
    },
    #[error("cannot set or read the CPU affinity of this thread: {0}")]
    Refused(#[from] io::Error),
}

/// The CPUs that the calling thread may run on.
pub fn allowed_cpus() -> Result<CpuList, AffinityError> {
    let set = sched_getaffinity(None).map_err(io::Error::from)?;
    let possible = u16::try_from(CpuSet::MAX_CPU).unwrap_or(u16::MAX);
    Ok(CpuList((0..possible).filter(|&cpu| set.is_set(usize::from(cpu))).map(CpuId).collect()))
}

/// Returns the `asked` CPUs that are not available as an error, if any.
pub fn check_allowed(asked: &CpuList, allowed: &CpuList) -> Result<(), AffinityError> {
    let missing: CpuList = CpuList(asked.0.difference(&allowed.0).copied().collect());
    if missing.0.is_empty() {
        return Ok(());
    }
    Err(AffinityError::NotAllowed { asked: asked.clone(), missing, allowed: allowed.clone() })
}

/// Binds the calling thread to `cpu` alone.
pub fn pin_current_thread(cpu: CpuId) -> Result<(), AffinityError> {
    pin_current_thread_to(&CpuList([cpu].into()))
}

/// The kernel's form of `cpus`; `None` if it has none for them, or if they are empty.
pub(crate) fn cpu_set(cpus: &CpuList) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    for cpu in &cpus.0 {
        if cpu.index() >= CpuSet::MAX_CPU {
            return None;
        }
        set.set(cpu.index());
    }
    (!cpus.0.is_empty()).then_some(set)
}

/// Binds the calling thread to `cpus`. Threads that it starts afterwards inherit the binding.
pub fn pin_current_thread_to(cpus: &CpuList) -> Result<(), AffinityError> {
    let Some(set) = cpu_set(cpus) else {
        let allowed = allowed_cpus()?;
        return Err(AffinityError::NotAllowed { asked: cpus.clone(), missing: cpus.clone(), allowed });
    };
    sched_setaffinity(None, &set).map_err(|cause| match cause {
        // The kernel says EINVAL when nothing of the set is left after the cpuset's own limits.
        rustix::io::Errno::INVAL => match allowed_cpus() {
            Ok(allowed) => AffinityError::NotAllowed { asked: cpus.clone(), missing: cpus.clone(), allowed },
            Err(error) => error,
        },
        _ => AffinityError::Refused(cause.into()),
    })
}

/// Names the calling thread as `ps -L` and `top -H` show it. The kernel keeps 15 bytes; a longer
/// name is cut.
pub fn name_current_thread(name: &str) {
    let bytes: Vec<u8> = name.bytes().filter(|&byte| byte != 0).take(15).collect();
    // A thread without its name still works, so a refusal is not worth an error.
    if let Ok(name) = CString::new(bytes) {
        let _ = rustix::thread::set_name(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_was_pinned() {
        std::thread::spawn(|| {
            let last = *allowed_cpus().unwrap().0.last().unwrap();
            pin_current_thread(last).unwrap();
            name_current_thread("worker-with-a-long-name");
            assert_eq!(allowed_cpus().unwrap().0, [last].into());
            assert_eq!(rustix::thread::sched_getcpu(), last.index());
            let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            assert_eq!(comm.trim(), "worker-with-a-l");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn an_impossible_list_names_what_was_asked_and_what_is_allowed() {
        let (asked, allowed) = ("0-1,7".parse().unwrap(), "0-3".parse().unwrap());
        let text = check_allowed(&asked, &allowed).unwrap_err().to_string();
        assert!(text.contains("CPU 7") && text.contains("0-1,7") && text.contains("0-3"), "{text}");
        check_allowed(&"1-2".parse().unwrap(), &allowed).unwrap();
    }

    #[test]
    fn pinning_to_a_cpu_that_is_not_there_is_an_error_not_a_panic() {
        for cpu in [1000, 1023, 1024, u16::MAX] {
            assert!(matches!(pin_current_thread(CpuId(cpu)), Err(AffinityError::NotAllowed { .. })), "{cpu}");
        }
        assert!(pin_current_thread_to(&CpuList::default()).is_err());
    }
}
