//! A mask of CPUs in a file: the places of the kernel's own work, and of interrupts.
//!
//! Files of `/proc` are written from their beginning and in one piece; the kernel refuses a
//! position (ESPIPE), so each write opens the file anew.

use crate::root::{FileError, overwrite};
use machine::{CpuId, CpuList};
use std::fs;
use std::path::PathBuf;

/// The masks that are set besides the services: unbound work queues, and interrupts that are
/// requested from now on.
pub(crate) const MASKS: [&str; 2] =
    ["sys/devices/virtual/workqueue/cpumask", "proc/irq/default_smp_affinity"];

/// True for a file with a mask that we may write: those, an interrupt's own, and that of a network
/// queue's work (RPS).
pub(super) fn is_mask_file(path: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = path.split('/').collect();
    MASKS.contains(&path)
        || match parts[..] {
            ["proc", "irq", interrupt, "smp_affinity"] => number(interrupt),
            ["sys", "class", "net", device, "queues", queue, "rps_cpus"] => {
                !matches!(device, "" | "." | "..") && queue.strip_prefix("rx-").is_some_and(number)
            }
            _ => false,
        }
}

/// The CPUs of a mask; `None` if it is none.
pub(crate) fn cpus_of(mask: &str) -> Option<CpuList> {
    let mut cpus = CpuList::default();
    for (group, word) in mask.trim().rsplit(',').enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        let bits = (0..32).filter(|bit| word >> bit & 1 == 1);
        for bit in bits {
            cpus.0.insert(CpuId(u16::try_from(group * 32 + bit).ok()?));
        }
    }
    Some(cpus)
}

/// A mask as the kernel takes it: hexadecimal digits in groups of eight, the highest CPUs first.
pub(crate) fn mask_of(cpus: &CpuList) -> String {
    let groups = cpus.0.iter().map(|cpu| cpu.index() / 32).max().unwrap_or(0);
    let mut words = vec![0u32; groups + 1];
    for cpu in &cpus.0 {
        words[cpu.index() / 32] |= 1 << (cpu.index() % 32);
    }
    let mut words = words.iter().rev();
    let first = words.next().map_or_else(String::new, |word| format!("{word:x}"));
    words.fold(first, |text, word| format!("{text},{word:08x}"))
}

/// True if two masks name the same CPUs: the kernel fills up with zeros as far as there are CPUs.
pub(super) fn same_mask(text: &str, reads: &str) -> bool {
    let digits = |text: &str| text.replace(',', "").trim_start_matches('0').to_ascii_lowercase();
    let is_mask = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b',');
    is_mask(text) && is_mask(reads) && digits(text) == digits(reads)
}

#[derive(Debug)]
pub(super) struct MaskKnob {
    path: PathBuf,
}

impl MaskKnob {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn read(&self) -> Result<String, FileError> {
        let text = fs::read_to_string(&self.path);
        text.map(|text| text.trim_end().to_owned()).map_err(|cause| FileError::unreadable(&self.path, cause))
    }

    pub(super) fn write(&self, value: &str) -> Result<(), FileError> {
        overwrite(&self.path, &format!("{value}\n"))
            .map_err(|cause| FileError::unwritable(&self.path, value, cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_file_is_one() {
        for path in ["proc/irq/24/smp_affinity", "sys/class/net/eth0/queues/rx-3/rps_cpus", MASKS[0]] {
            assert!(is_mask_file(path), "{path}");
        }
        for path in [
            "proc/irq/../smp_affinity",
            "proc/irq//smp_affinity",
            "proc/irq/24/spurious",
            "sys/class/net/../queues/rx-3/rps_cpus",
            "sys/class/net/eth0/queues/rx-/rps_cpus",
            "etc/passwd",
        ] {
            assert!(!is_mask_file(path), "{path}");
        }
    }

    #[test]
    fn masks_are_what_the_kernel_prints() {
        for (cpus, mask) in
            [("0", "1"), ("0-7", "ff"), ("4,31", "80000010"), ("33,64", "1,00000002,00000000")]
        {
            assert_eq!(mask_of(&cpus.parse().unwrap()), mask);
            assert_eq!(cpus_of(mask), Some(cpus.parse().unwrap()));
        }
        assert_eq!((cpus_of(""), cpus_of("xyz"), cpus_of("0")), (None, None, Some(CpuList::default())));
        assert!(
            same_mask("1", "00000001") && same_mask("3,00000000", "0003,00000000") && same_mask("F", "f")
        );
        assert!(!same_mask("1", "10") && !same_mask("x", "x"));
    }
}
