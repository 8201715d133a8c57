//! The files with the CPUs of an interrupt and of a network queue's work; and the queue that each
//! interrupt serves.

use crate::root::Root;
use std::collections::BTreeMap;

/// `smp_affinity` of every interrupt.
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

pub(crate) fn network_devices(root: &Root) -> Vec<String> {
    root.names("sys/class/net").unwrap_or_default()
}

/// `smp_affinity` of the interrupt of each receive queue of a network device, as far as the names
/// show interrupts of their own. None at all where two would be of one queue: then their names mean
/// something else.
pub(crate) fn interrupts_of_queues(root: &Root, device: &str) -> BTreeMap<u32, String> {
    // A card's own, or of the PCI device below a virtual one (virtio).
    let folders = ["device/msi_irqs", "device/../msi_irqs"].map(|at| format!("sys/class/net/{device}/{at}"));
    let numbers = folders.iter().map(|folder| root.names(folder).unwrap_or_default());
    let mut queues = BTreeMap::new();
    for number in numbers.into_iter().find(|numbers| !numbers.is_empty()).unwrap_or_default() {
        // A driver that has requested an interrupt has a folder there.
        let actions = root.names(&format!("proc/irq/{number}")).unwrap_or_default();
        for queue in actions.iter().filter_map(|action| receive_queue(action)) {
            if queues.insert(queue, format!("proc/irq/{number}/smp_affinity")).is_some() {
                return BTreeMap::new();
            }
        }
    }
    queues
}

/// The receive queue that an interrupt serves, by its driver's name: `virtio0-input.3`,
/// `eth0-TxRx-3`, `ens5-Tx-Rx-3`, `mlx5_comp3@pci:0000:01:00.0`.
fn receive_queue(action: &str) -> Option<u32> {
    let name = action.split('@').next()?.to_ascii_lowercase();
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let receives = ["input", "rx", "comp"].iter().any(|word| stem.contains(word));
    receives.then(|| name[stem.len()..].parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    #[test]
    fn a_queue_is_told_by_its_interrupts_name() {
        for (action, queue) in [
            ("virtio0-input.3", Some(3)),
            ("virtio0-output.3", None),
            ("virtio0-config", None),
            ("i40e-eth0-TxRx-12", Some(12)),
            ("ens5-Tx-Rx-7", Some(7)),
            ("mlx5_comp3@pci:0000:01:00.0", Some(3)),
            ("mlx5_async0@pci:0000:01:00.0", None),
            ("eth0-tx-1", None),
            ("eth0", None),
            ("nvme0q3", None),
            ("eth0-rx-99999999999", None),
        ] {
            assert_eq!(receive_queue(action), queue, "{action}");
        }
    }

    #[test]
    fn two_interrupts_of_one_queue_are_none() {
        let machine = FakeMachine::intel_server(2);
        for (number, action) in [(24, "eth0-rx-0"), (25, "eth0-rx-1")] {
            machine.write(&format!("sys/class/net/eth0/device/msi_irqs/{number}"), "msix\n");
            machine.write(&format!("proc/irq/{number}/{action}/.keep"), "");
        }
        let queues = interrupts_of_queues(machine.root(), "eth0");
        assert_eq!(
            queues.into_iter().collect::<Vec<_>>(),
            [0, 1].map(|queue| (queue, format!("proc/irq/{}/smp_affinity", 24 + queue)))
        );
        machine.write("sys/class/net/eth0/device/msi_irqs/26", "msix\n");
        machine.write("proc/irq/26/eth0-rx-1/.keep", "");
        assert_eq!(interrupts_of_queues(machine.root(), "eth0"), BTreeMap::new());
        assert_eq!(interrupts_of_queues(machine.root(), "lo"), BTreeMap::new());
    }
}
