//! The two latency limits of the kernel's power-management quality of service.
//!
//! Per CPU, `cpuN/power/pm_qos_resume_latency_us`: one slot for all of user space. The notation bites: `0` is *no
//! limit* and `n/a` is *zero latency*, the strictest. Negative numbers and `INT_MAX` are refused. cpuidle then
//! chooses among states whose exit latency is at most the limit.
//!
//! For all CPUs, `/dev/cpu_dma_latency`: the minimum over every process that holds it open. It can only be tightened,
//! and each change wakes every idle CPU, so Roost reads it and never sets it.
//!
//! The limit in effect on a CPU is the smaller of the two.

use crate::Root;
use crate::root::cpu_folder;
use machine::{CpuId, Duration, IdleLimit};
use std::fs::File;
use std::io::Read;

/// The per-CPU limit's file.
pub(crate) fn resume_latency_file(cpu: CpuId) -> String {
    format!("{}/power/pm_qos_resume_latency_us", cpu_folder(cpu))
}

/// The limit as the file wants it written.
pub(crate) fn to_text(limit: IdleLimit) -> String {
    /// `INT_MAX` itself is refused.
    const MICROS_MAX: u64 = i32::MAX as u64 - 1;
    match limit {
        IdleLimit::None => "0".to_owned(),
        IdleLimit::ExitLatency(Duration::ZERO) => "n/a".to_owned(),
        // Less than a microsecond must not be rounded to `0`, which would lift the limit.
        IdleLimit::ExitLatency(latency) => latency.as_micros().clamp(1, MICROS_MAX).to_string(),
    }
}

/// What the file's text means; `None` if it is none that the kernel writes.
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
        IdleLimit::None => Duration::MAX,
        IdleLimit::ExitLatency(latency) => latency,
    }
}

/// The limit that other processes hold on all CPUs through `/dev/cpu_dma_latency`, where it can be read. Reading
/// adds no request of ours that could change it.
pub fn global_limit(root: &Root) -> Option<IdleLimit> {
    /// `PM_QOS_CPU_LATENCY_DEFAULT_VALUE` of the kernel: 2000 s, in microseconds.
    const NO_LIMIT_MICROS: i32 = 2_000_000_000;
    let mut bytes = [0; 4];
    File::open(root.path("dev/cpu_dma_latency")).ok()?.read_exact(&mut bytes).ok()?;
    match i32::from_ne_bytes(bytes) {
        NO_LIMIT_MICROS.. => Some(IdleLimit::None),
        micros => Some(IdleLimit::ExitLatency(Duration::from_micros(u64::try_from(micros).ok()?))),
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
    fn the_global_limit_reads_as_the_kernel_stores_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert_eq!(global_limit(&root), None);
        std::fs::create_dir(root.path("dev")).unwrap();
        for (micros, limit) in [(2_000_000_000, IdleLimit::None), (50, us(50)), (0, us(0))] {
            std::fs::write(root.path("dev/cpu_dma_latency"), i32::to_ne_bytes(micros)).unwrap();
            assert_eq!(global_limit(&root), Some(limit));
        }
        std::fs::write(root.path("dev/cpu_dma_latency"), [0]).unwrap();
        assert_eq!(global_limit(&root), None);
    }
}
