//! Services that are never frozen because others wait for them, or because they are the way into
//! the machine.
//!
//! A service is known by the name of its cgroup, and by the programs that run in a group of any
//! name: by the file that a process executes, or by the name that the kernel keeps of it. Names are
//! compared whole; an instance of a template (`sshd@7.service`) counts as its template. Processes
//! of another PID namespace are passed over: a container's own bus or log serves only the
//! container.
//!
//! Invariant: a group that cannot be read counts as holding nothing; callers look at it again
//! later.

use crate::Root;
use crate::processes::service::{collect_members, command, parent};
use os::printable_name;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// A service that must not be frozen.
struct Service {
    /// Its purpose, or the services that wait for it.
    why: &'static str,
    units: &'static [&'static str],
    programs: &'static [&'static str],
}

const SERVICES: [Service; 7] = [
    Service {
        why: "whatever writes to the system's log waits for it",
        units: &["systemd-journald.service", "rsyslog.service", "syslog-ng.service"],
        programs: &["systemd-journald", "rsyslogd", "syslog-ng"],
    },
    Service {
        why: "whatever calls over the bus waits for it",
        units: &["dbus.service", "dbus-broker.service"],
        programs: &["dbus-daemon", "dbus-broker", "dbus-broker-launch"],
    },
    Service {
        why: "it is the way into this machine",
        units: &["ssh.service", "sshd.service", "dropbear.service"],
        programs: &["sshd", "sshd-session", "sshd-auth", "dropbear"],
    },
    Service {
        why: "logins wait for it",
        units: &["systemd-logind.service", "elogind.service"],
        programs: &["systemd-logind", "elogind-daemon", "elogind"],
    },
    Service {
        why: "devices wait for it",
        units: &["systemd-udevd.service"],
        programs: &["systemd-udevd", "udevd"],
    },
    Service {
        why: "a node whose kubelet is silent is taken for lost",
        units: &["kubelet.service", "k3s.service", "k3s-agent.service"],
        programs: &["kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent"],
    },
    Service {
        why: "containers wait for it",
        units: &["containerd.service", "crio.service", "cri-o.service", "docker.service", "podman.service"],
        programs: &["containerd", "containerd-shim", "containerd-shim-runc-v2", "crio", "dockerd", "conmon"],
    },
];

/// Groups that are never frozen as a whole, by their paths in their tree.
const WHOLE: [(&str, &str); 2] = [
    ("system.slice", "it holds all of the system's services"),
    ("-.slice", "it is the root of its tree, which holds everything"),
];

/// The bytes that the kernel keeps of a program's name.
const COMMAND_MAX: usize = 15;

/// Why the group of this path in its tree, which lies in `folder`, must not be frozen: by its name
/// and by those of the groups below it that hold processes of this machine.
pub(super) fn by_name(root: &Root, path: &str, folder: &Path) -> Option<String> {
    let path = path.trim_matches('/');
    if let Some((_, why)) = WHOLE.iter().find(|(whole, _)| *whole == path) {
        return Some((*why).to_owned());
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    if name == "init.scope" {
        return Some("it holds process 1, from which all others descend".to_owned());
    }
    if let Some(service) = by_unit(name) {
        return Some(format!("it is {name}: {}", service.why));
    }
    below(root, folder)
}

fn below(root: &Root, folder: &Path) -> Option<String> {
    let folders = fs::read_dir(folder).into_iter().flatten().flatten();
    folders.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).find_map(|entry| {
        let name = entry.file_name();
        let found = name.to_str().and_then(by_unit).filter(|_| {
            let mut members = BTreeSet::new();
            collect_members(&entry.path(), &mut members);
            members.iter().any(|&process| is_here(root, process))
        });
        match found {
            Some(service) => Some(format!("it holds {}: {}", name.to_string_lossy(), service.why)),
            None => below(root, &entry.path()),
        }
    })
}

fn by_unit(name: &str) -> Option<&'static Service> {
    // `sshd@7-10.0.0.1:22.service` is an instance of `sshd.service`.
    let template = name
        .split_once('@')
        .and_then(|(name, rest)| Some(format!("{name}.{}", rest.rsplit_once('.')?.1)))
        .unwrap_or_else(|| name.to_owned());
    SERVICES.iter().find(|service| service.units.contains(&template.as_str()))
}

/// The first of these processes that must not be frozen, and why.
pub(super) fn among(root: &Root, processes: &BTreeSet<u32>) -> Option<(u32, String)> {
    processes.iter().find_map(|&process| {
        let service = by_program(root, process).filter(|_| is_here(root, process))?;
        let name = printable_name(&command(root, process));
        Some((process, format!("it holds {name} ({process}): {}", service.why)))
    })
}

fn by_program(root: &Root, process: u32) -> Option<&'static Service> {
    let kept = command(root, process);
    let file = fs::read_link(root.path(&format!("proc/{process}/exe"))).ok();
    // The kernel shows a replaced file like this.
    let file = file
        .as_deref()
        .and_then(|path| path.file_name()?.to_str())
        .map(|name| name.strip_suffix(" (deleted)").unwrap_or(name));
    let is = |program: &&str| Some(*program) == file || kept == program[..program.len().min(COMMAND_MAX)];
    SERVICES.iter().find(|service| service.programs.iter().any(is))
}

/// False if it is of another PID namespace than this process, as far as can be read.
fn is_here(root: &Root, process: u32) -> bool {
    let namespace = |process: u32| -> Option<OsString> {
        Some(fs::read_link(root.path(&format!("proc/{process}/ns/pid"))).ok()?.into_os_string())
    };
    match (namespace(process), namespace(std::process::id())) {
        (Some(its), Some(own)) => its == own,
        _ => true,
    }
}

/// This process and all its ancestors, except process 1.
pub(super) fn ancestors(root: &Root) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next = Some(std::process::id());
    while let Some(process) = next.filter(|&process| process > 1 && found.insert(process)) {
        next = parent(root, process);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;
    use std::os::unix::fs::symlink;

    const TREE: &str = "sys/fs/cgroup";

    fn process(machine: &FakeMachine, pid: u32, kept: &str, file: &str) {
        machine.write(&format!("proc/{pid}/comm"), &format!("{kept}\n"));
        symlink(file, machine.path(&format!("proc/{pid}/exe"))).unwrap();
    }

    fn namespace(machine: &FakeMachine, pid: u32, number: u32) {
        machine.write(&format!("proc/{pid}/ns/mnt"), "");
        symlink(format!("pid:[{number}]"), machine.path(&format!("proc/{pid}/ns/pid"))).unwrap();
    }

    fn group(machine: &FakeMachine, path: &str, members: &[u32]) {
        let lines: Vec<String> = members.iter().map(u32::to_string).collect();
        machine.write(&format!("{TREE}/{path}/cgroup.procs"), &lines.join("\n"));
    }

    fn named(machine: &FakeMachine, path: &str) -> Option<String> {
        by_name(machine.root(), path, &machine.path(&format!("{TREE}/{path}")))
    }

    #[test]
    fn services_are_known_by_their_whole_name() {
        let machine = FakeMachine::intel_server(1);
        for path in [
            "system.slice",
            "system.slice/systemd-journald.service",
            "system.slice/dbus-broker.service",
            "user.slice/user-7.slice/user@7.service/app.slice/dbus.service",
            "system.slice/sshd@7-10.0.0.1:22-10.0.0.2:999.service",
            "system.slice/systemd-journald@batch.service",
            "system.slice/systemd-logind.service",
            "system.slice/systemd-udevd.service",
            "runtime.slice/kubelet.service",
            "containerd.service",
            "docker.service",
            "crio.service",
            "init.scope",
            "user.slice/user-7.slice/user@7.service/init.scope",
        ] {
            assert!(named(&machine, path).is_some(), "{path}");
        }
        for path in [
            "batch/system.slice",
            "system.slice/my-sshd.service",
            "system.slice/sshd.service.old",
            "system.slice/sshd-exporter.service",
            "system.slice/sshd@7.socket",
            "system.slice/updater.service",
            "system.slice/docker-0123.scope",
            "user.slice",
            "",
        ] {
            assert_eq!(named(&machine, path), None, "{path}");
        }
    }

    #[test]
    fn services_below_a_group_count_if_they_are_of_this_machine() {
        let machine = FakeMachine::intel_server(1);
        group(&machine, "batch", &[70]);
        group(&machine, "batch/system.slice/dbus.service", &[71]);
        namespace(&machine, std::process::id(), 1);
        namespace(&machine, 71, 2);
        assert_eq!(named(&machine, "batch"), None, "a container's own bus");
        group(&machine, "batch/deep/sshd.service", &[]);
        assert_eq!(named(&machine, "batch"), None, "it is empty");
        group(&machine, "batch/deep/sshd.service", &[72]);
        namespace(&machine, 72, 1);
        assert!(named(&machine, "batch").unwrap().contains("sshd.service"));
    }

    #[test]
    fn programs_are_known_by_their_file_or_by_the_name_that_the_kernel_keeps() {
        let machine = FakeMachine::intel_server(1);
        let found = |pid| among(machine.root(), &BTreeSet::from([pid])).map(|(process, _)| process);
        for (pid, kept, file) in [
            (10, "systemd-journal", "/usr/lib/systemd/systemd-journald"),
            (11, "systemd-journal", "/usr/bin/strange"),
            (12, "(journald)", "/usr/lib/systemd/systemd-journald (deleted)"),
            (13, "systemd-udevd", "/usr/bin/udevadm"),
            (14, "dbus-broker-lau", "/usr/bin/dbus-broker-launch"),
            (15, "conmon", "/usr/bin/conmon"),
            (16, "k3s-agent", "/usr/local/bin/k3s"),
        ] {
            process(&machine, pid, kept, file);
            assert_eq!(found(pid), Some(pid), "{kept} {file}");
        }
        for (pid, kept, file) in [
            (20, "sshd_exporter", "/usr/bin/sshd_exporter"),
            (21, "ssh", "/usr/bin/ssh"),
            (22, "podman", "/usr/bin/podman"),
            (23, "journal", "/opt/sshd/journal"),
            (24, "systemd-journa", "/usr/bin/other"),
        ] {
            process(&machine, pid, kept, file);
            assert_eq!(found(pid), None, "{kept} {file}");
        }
        process(&machine, 30, "sshd", "/usr/sbin/sshd");
        namespace(&machine, std::process::id(), 1);
        namespace(&machine, 30, 2);
        assert_eq!(found(30), None, "a container's own");
        assert_eq!(found(31), None, "it is gone");
    }

    #[test]
    fn all_from_which_this_process_descends_are_found_but_for_process_1() {
        let machine = FakeMachine::intel_server(1);
        let own = std::process::id();
        for (pid, parent) in [(own, 4_000_001), (4_000_001, 4_000_002), (4_000_002, 1)] {
            machine.write(&format!("proc/{pid}/stat"), &format!("{pid} (a) b) S {parent} 7 7 0\n"));
        }
        assert_eq!(ancestors(machine.root()), BTreeSet::from([own, 4_000_001, 4_000_002]));
        // A parent that cannot be read ends it, as a circle does.
        machine.write("proc/4000002/stat", &format!("4000002 (a) S {own} 7 7 0\n"));
        assert_eq!(ancestors(machine.root()).len(), 3);
    }
}
