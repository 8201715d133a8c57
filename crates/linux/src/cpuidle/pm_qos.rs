//! The two latency limits of the kernel's power-management quality of service.
//!
//! Per CPU, `cpuN/power/pm_qos_resume_latency_us`: one slot for all of user space. The notation
//! bites: `0` is *no limit* and `n/a` is *zero latency*, the strictest. Negative numbers and
//! `INT_MAX` are refused. cpuidle then chooses among states whose exit latency is at most the
//! limit.
//!
//! For all CPUs, `/dev/cpu_dma_latency` and, on kernels that have it, `/dev/cpu_wakeup_latency`: the
//! minimum over every process that holds one open. It can only be tightened, and each change wakes
//! every idle CPU, so Roost reads them and never sets them.
//!
//! The limit in effect on a CPU is the smaller of the two.

use crate::Root;
use crate::root::{FileError, cpu_folder};
use machine::{CpuId, Duration, IdleLimit};
use std::fs::File;
use std::io::Read;

pub(crate) fn resume_latency_file(cpu: CpuId) -> String {
    format!("{}/power/pm_qos_resume_latency_us", cpu_folder(cpu))
}

/// The limit in the file's notation.
pub(crate) fn to_text(limit: IdleLimit) -> String {
    /// `INT_MAX` itself is refused.
    const MICROS_MAX: u64 = i32::MAX as u64 - 1;
    match limit {
        // A floor is no bound on latency, and is set elsewhere.
        IdleLimit::None | IdleLimit::Deepest => "0".to_owned(),
        IdleLimit::ExitLatency(Duration::ZERO) => "n/a".to_owned(),
        // Less than a microsecond must not be rounded to `0`, which would lift the limit.
        IdleLimit::ExitLatency(latency) => latency.as_micros().clamp(1, MICROS_MAX).to_string(),
    }
}

/// The limit that the file's text means; `None` for a text that the kernel never writes.
pub(crate) fn from_text(text: &str) -> Option<IdleLimit> {
    match text.trim() {
        "n/a" => Some(IdleLimit::ExitLatency(Duration::ZERO)),
        "0" => Some(IdleLimit::None),
        number => Some(IdleLimit::ExitLatency(Duration::from_micros(number.parse::<u32>().ok()?.into()))),
    }
}

/// The stricter of two limits: requests for idle latency combine as their minimum.
pub(crate) fn stricter(one: IdleLimit, other: IdleLimit) -> IdleLimit {
    if bound(one) <= bound(other) { one } else { other }
}

/// The longest exit latency that the limit lets through.
pub(crate) fn bound(limit: IdleLimit) -> Duration {
    match limit {
        IdleLimit::None | IdleLimit::Deepest => Duration::MAX,
        IdleLimit::ExitLatency(latency) => latency,
    }
}

/// The limit that user space has set for `cpu` alone.
pub fn cpu_limit(root: &Root, cpu: CpuId) -> Result<IdleLimit, FileError> {
    let below = resume_latency_file(cpu);
    let text = root.text(&below)?;
    from_text(&text).ok_or_else(|| FileError::Nonsense {
        path: root.path(&below),
        text,
        expected: "`0`, `n/a` or a number of microseconds",
    })
}

/// True if this user could set the limit of `cpu`; `None` for a recorded machine.
pub fn may_limit(root: &Root, cpu: CpuId) -> Option<bool> {
    root.may_write(&resume_latency_file(cpu))
}

/// The limit of other processes on all CPUs, through a device that they hold open, where it can be
/// read. Reading adds no request that could change it.
pub fn global_limit(root: &Root) -> Option<IdleLimit> {
    try_global_limit(root).ok()
}

/// The same, with the reason if it cannot be read: the devices belong to root alone on most
/// machines.
pub fn try_global_limit(root: &Root) -> Result<IdleLimit, FileError> {
    let [idle, wakeup] = DEVICES.map(|device| device_limit(root, device));
    match wakeup {
        // Most kernels have none.
        Err(FileError::Missing { .. }) => idle,
        wakeup => Ok(stricter(idle?, wakeup?)),
    }
}

/// The device whose limit is the stricter one.
pub fn latency_device(root: &Root) -> &'static str {
    let bounds = DEVICES.map(|device| device_limit(root, device).map_or(Duration::MAX, bound));
    if bounds[1] < bounds[0] { DEVICES[1] } else { DEVICES[0] }
}

/// A number in such a file limits every CPU while a process keeps it open. The second came with Linux
/// 6.19 (`CONFIG_PM_QOS_CPU_SYSTEM_WAKEUP`); governors heed the smaller of both
/// (`cpuidle_governor_latency_req`).
pub(crate) const DEVICES: [&str; 2] = ["/dev/cpu_dma_latency", "/dev/cpu_wakeup_latency"];

fn device_limit(root: &Root, device: &str) -> Result<IdleLimit, FileError> {
    /// `PM_QOS_CPU_LATENCY_DEFAULT_VALUE` of the kernel: 2000 s, in microseconds. The second device
    /// has `INT_MAX`.
    const NO_LIMIT_MICROS: i32 = 2_000_000_000;
    let path = root.path(device.trim_start_matches('/'));
    let mut bytes = [0; 4];
    File::open(&path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|cause| FileError::unreadable(&path, cause))?;
    match i32::from_ne_bytes(bytes) {
        NO_LIMIT_MICROS.. => Ok(IdleLimit::None),
        micros => match u64::try_from(micros) {
            Ok(micros) => Ok(IdleLimit::ExitLatency(Duration::from_micros(micros))),
            Err(_) => {
                Err(FileError::Nonsense { path, text: micros.to_string(), expected: "no negative latency" })
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: u64) -> IdleLimit {
        IdleLimit::ExitLatency(Duration::from_micros(micros))
    }

    #[test]
    fn zero_means_no_limit_to_the_kernel_and_polling_to_us() {
        assert_eq!(to_text(IdleLimit::None), "0");
        assert_eq!(to_text(us(0)), "n/a");
        assert_eq!(to_text(us(133)), "133");
        assert_eq!(from_text("0"), Some(IdleLimit::None));
        assert_eq!(from_text("n/a\n"), Some(us(0)));
        assert_eq!(from_text("133"), Some(us(133)));
        for nonsense in ["", "-1", "1.5", "none", "99999999999"] {
            assert_eq!(from_text(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_tiny_or_a_huge_limit_stays_a_limit() {
        assert_eq!(to_text(IdleLimit::ExitLatency(Duration::from_nanos(1))), "1");
        assert_eq!(to_text(IdleLimit::ExitLatency(Duration::from_nanos(2_900))), "2");
        assert_eq!(to_text(IdleLimit::ExitLatency(Duration::MAX)), "2147483646");
    }

    #[test]
    fn limits_combine_as_their_minimum() {
        assert_eq!(stricter(us(2), us(50)), us(2));
        assert_eq!(stricter(IdleLimit::None, us(50)), us(50));
        assert_eq!(stricter(us(0), IdleLimit::None), us(0));
    }

    #[test]
    fn a_cpus_own_limit_is_read_or_its_nonsense_shown() {
        let machine = crate::fake::FakeMachine::intel_server(1);
        let file = resume_latency_file(CpuId(0));
        for (text, limit) in [("0\n", IdleLimit::None), ("n/a\n", us(0)), ("70\n", us(70))] {
            machine.write(&file, text);
            assert_eq!(cpu_limit(machine.root(), CpuId(0)).unwrap(), limit);
        }
        machine.write(&file, "deep\n");
        assert!(cpu_limit(machine.root(), CpuId(0)).unwrap_err().to_string().contains("`deep`"));
        assert!(matches!(cpu_limit(machine.root(), CpuId(1)), Err(FileError::Missing { .. })));
        assert_eq!(may_limit(machine.root(), CpuId(0)), None, "a recording's files prove no permission");
    }

    #[test]
    fn the_global_limit_reads_as_the_kernel_stores_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert_eq!(global_limit(&root), None);
        std::fs::create_dir(root.path("dev")).unwrap();
        for (micros, limit) in [(2_000_000_000, IdleLimit::None), (50, us(50)), (0, us(0))] {
            std::fs::write(root.path("dev/cpu_dma_latency"), i32::to_ne_bytes(micros)).unwrap();
            assert_eq!(global_limit(&root), Some(limit));
        }
        std::fs::write(root.path("dev/cpu_dma_latency"), (-1i32).to_ne_bytes()).unwrap();
        assert!(matches!(try_global_limit(&root), Err(FileError::Nonsense { .. })));
        // A kernel that has the second device: the stricter counts, and is named.
        for (idle, wakeup, limit, device) in [
            (2_000_000_000, i32::MAX, IdleLimit::None, DEVICES[0]),
            (50, i32::MAX, us(50), DEVICES[0]),
            (50, 20, us(20), DEVICES[1]),
            (2_000_000_000, 20, us(20), DEVICES[1]),
        ] {
            std::fs::write(root.path("dev/cpu_dma_latency"), i32::to_ne_bytes(idle)).unwrap();
            std::fs::write(root.path("dev/cpu_wakeup_latency"), i32::to_ne_bytes(wakeup)).unwrap();
            assert_eq!((global_limit(&root), latency_device(&root)), (Some(limit), device));
        }
        std::fs::remove_file(root.path("dev/cpu_wakeup_latency")).unwrap();
        std::fs::write(root.path("dev/cpu_dma_latency"), [0]).unwrap();
        assert_eq!(global_limit(&root), None);
        assert!(matches!(try_global_limit(&root), Err(FileError::Unreadable { .. })));
    }
}
