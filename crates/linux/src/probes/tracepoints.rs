//! The kernel's tracepoints that can be watched, and the means.
//!
//! tracefs lists them as folders (`events/power/cpu_idle`), but only root may enter it. The
//! kernel's BTF, its own description of its types, is open to all and has a type `btf_trace_NAME`
//! for every tracepoint: from there even an unprivileged doctor knows the kernel's offer. BTF also
//! lets one BPF program fit many kernels.

use crate::root::{FileError, Gaps, Root};
use serde::Serialize;
use std::fs;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tracing {
    /// The mount of tracefs; `None` if there is none, or this user may not see it.
    pub tracefs: Option<String>,
    /// True if the kernel describes its types, so that compiled BPF programs fit it.
    pub btf: Option<bool>,
    /// The tracepoints that Roost watches or could, in the order of [`TRACEPOINTS`].
    pub tracepoints: Vec<Tracepoint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tracepoint {
    /// `power:cpu_idle`.
    pub name: &'static str,
    pub shows: &'static str,
    /// True if this kernel has it; `None` if neither tracefs nor BTF could be looked into.
    pub present: Option<bool>,
}

/// The tracepoints that are looked for, and why.
pub const TRACEPOINTS: [(&str, &str); 15] = [
    ("power:cpu_idle", "the length of each sleep"),
    ("power:cpu_idle_miss", "sleeps in the wrong state, as the kernel judges"),
    ("power:cpu_frequency", "changes of clocks"),
    ("power:pm_qos_update_request", "who limits all CPUs"),
    ("power:dev_pm_qos_update_request", "who limits one CPU"),
    ("irq:irq_handler_entry", "devices that wake a CPU"),
    ("irq:softirq_entry", "the delay before the network is served"),
    ("irq_vectors:local_timer_entry", "timers that wake a CPU"),
    ("irq_vectors:reschedule_entry", "other CPUs that wake a CPU"),
    ("ipi:ipi_send_cpu", "who sends such a wake-up"),
    ("sched:sched_waking", "what a wake-up is for"),
    ("sched:sched_switch", "who runs"),
    ("sock:sk_data_ready", "the arrival of a request"),
    ("sock:sock_recv_length", "the reading of a request"),
    ("sock:sock_send_length", "the sending of an answer"),
];

/// The file that describes the kernel's types.
const BTF: &str = "sys/kernel/btf/vmlinux";

/// Looks at tracefs where it may, and at BTF otherwise.
pub fn tracing(root: &Root, gaps: &mut Gaps) -> Tracing {
    let tracefs = ["sys/kernel/tracing", "sys/kernel/debug/tracing"]
        .into_iter()
        .find(|folder| root.has(&format!("{folder}/events")) == Some(true));
    let btf = fs::read(root.path(BTF)).map_err(|cause| FileError::unreadable(&root.path(BTF), cause));
    let has_btf = match &btf {
        Ok(_) => Some(true),
        Err(FileError::Missing { .. }) => Some(false),
        Err(_) => None,
    };
    let btf = gaps.see(btf);
    let described = btf.as_deref().map(|btf| described(btf, &TRACEPOINTS.map(|(name, _)| name)));
    let tracepoint = |index: usize| {
        let (name, shows) = TRACEPOINTS[index];
        let folder = name.replace(':', "/");
        let listed = tracefs.map(|tracefs| root.has(&format!("{tracefs}/events/{folder}")));
        let present = listed.flatten().or_else(|| described.as_ref().map(|found| found[index]));
        Tracepoint { name, shows, present }
    };
    Tracing {
        tracefs: tracefs.map(str::to_owned),
        btf: has_btf,
        tracepoints: (0..TRACEPOINTS.len()).map(tracepoint).collect(),
    }
}

/// For each tracepoint `group:name`: true if the kernel's BTF has a type for it.
pub fn described(btf: &[u8], names: &[&str]) -> Vec<bool> {
    /// The beginning of the name of a tracepoint's type. Names in BTF end with a zero byte.
    const PREFIX: &[u8] = b"btf_trace_";
    let mut found = vec![false; names.len()];
    let mut rest = btf;
    while let Some(at) = rest.iter().position(|&byte| byte == PREFIX[0]) {
        rest = &rest[at..];
        if let Some(name) = rest.strip_prefix(PREFIX) {
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            for (found, wanted) in found.iter_mut().zip(names) {
                let event = wanted.split(':').next_back().unwrap_or(wanted);
                *found |= name[..end] == *event.as_bytes();
            }
        }
        rest = &rest[1..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    fn present(tracing: &Tracing, name: &str) -> Option<bool> {
        tracing.tracepoints.iter().find(|point| point.name == name).unwrap().present
    }

    #[test]
    fn what_tracefs_lists_is_there() {
        let machine = FakeMachine::intel_server(1);
        machine.write("sys/kernel/debug/tracing/events/power/cpu_idle/id", "1\n");
        let tracing = tracing(machine.root(), &mut Gaps::default());
        assert_eq!(tracing.tracefs.as_deref(), Some("sys/kernel/debug/tracing"));
        assert_eq!((present(&tracing, "power:cpu_idle"), tracing.btf), (Some(true), Some(false)));
        assert_eq!(present(&tracing, "sock:sk_data_ready"), Some(false));
    }

    #[test]
    fn without_tracefs_the_kernels_types_tell() {
        let machine = FakeMachine::intel_server(1);
        assert_eq!(present(&tracing(machine.root(), &mut Gaps::default()), "power:cpu_idle"), None);
        machine.write("sys/kernel/btf/vmlinux", "\0btf_trace_cpu_idle\0btf_trace_sk_data_ready_x\0bb");
        let tracing = tracing(machine.root(), &mut Gaps::default());
        assert_eq!((present(&tracing, "power:cpu_idle"), tracing.btf), (Some(true), Some(true)));
        assert_eq!(present(&tracing, "sock:sk_data_ready"), Some(false), "a longer name is another");
        assert_eq!(present(&tracing, "power:cpu_idle_miss"), Some(false), "a shorter name too");
    }

    #[test]
    fn tracefs_and_types_agree_on_the_running_machine() {
        let (root, mut gaps) = (Root::system(), Gaps::default());
        let seen = tracing(&root, &mut gaps);
        let Ok(btf) = fs::read(root.path(BTF)) else {
            eprintln!("SKIPPED: no BTF here");
            return;
        };
        if seen.tracefs.is_none() {
            eprintln!("SKIPPED: tracefs cannot be entered here");
            return;
        }
        for (point, described) in
            seen.tracepoints.iter().zip(described(&btf, &TRACEPOINTS.map(|(name, _)| name)))
        {
            assert_eq!(point.present, Some(described), "{}", point.name);
        }
    }
}
