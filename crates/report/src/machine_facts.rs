//! A run's facts about its machine.

use crate::run::Machine;
use std::fs::read_to_string;

/// The facts that this machine's files give.
pub fn this_machine() -> Machine {
    let root = linux::Root::system();
    let driver = linux::idle_driver(&root);
    let cpu = linux::allowed_cpus().ok().and_then(|cpus| cpus.0.first().copied());
    let table = cpu.and_then(|cpu| linux::idle_table(&root, cpu).ok()).unwrap_or_default();
    Machine {
        host: read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()),
        cpu_model: line_value("/proc/cpuinfo", "model name"),
        cpus: linux::online_cpus(&root).ok().map(|cpus| cpus.0.len() as u32),
        memory_bytes: memory_bytes(),
        kernel: read_to_string("/proc/sys/kernel/osrelease").ok().map(|release| release.trim().to_owned()),
        hypervisor: line_value("/proc/cpuinfo", "flags")
            .filter(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
            .map(|_| {
                read_to_string("/sys/class/dmi/id/sys_vendor")
                    .map_or("yes".to_owned(), |name| name.trim().to_owned())
            }),
        idle_driver: Some(
            [driver.driver, driver.governor].into_iter().flatten().collect::<Vec<_>>().join(", "),
        )
        .filter(|text| !text.is_empty()),
        idle_states: table.0.iter().map(|state| format!("{} ({})", state.name, state.exit_latency)).collect(),
    }
}

/// Bytes of memory that the machine has.
pub fn memory_bytes() -> Option<u64> {
    let text = line_value("/proc/meminfo", "MemTotal")?;
    text.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The value behind a name and a colon in one of the kernel's lists.
fn line_value(path: &str, name: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}
