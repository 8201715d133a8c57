//! The files that say which CPUs serve an interrupt, and which the work of a network queue.

use crate::root::Root;

/// `smp_affinity` of every interrupt that is there.
pub(crate) fn masks_of_interrupts(root: &Root) -> Vec<String> {
    let names = root.names("proc/irq").unwrap_or_default();
    let numbers = names.into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.map(|number| format!("proc/irq/{number}/smp_affinity")).collect()
}

/// `rps_cpus` of every receive queue: where its work is spread by software.
pub(crate) fn masks_of_queues(root: &Root) -> Vec<String> {
    let names = |folder: &str| root.names(folder).unwrap_or_default();
    let queues = names("sys/class/net").into_iter().flat_map(|device| {
        let queues = format!("sys/class/net/{device}/queues");
        let receive = names(&queues).into_iter().filter(|queue| queue.starts_with("rx-"));
        receive.map(|queue| format!("{queues}/{queue}/rps_cpus")).collect::<Vec<_>>()
    });
    queues.collect()
}
