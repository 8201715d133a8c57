use super::*;
use crate::fake::FakeMachine;
use std::net::TcpListener;
use std::os::unix::fs::symlink;

/// A server (7) with a child (8), each listening on a port of its own, and a stranger (9).
fn machine() -> FakeMachine {
    let machine = FakeMachine::virtual_machine(1);
    let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
        uid  timeout inode\n";
    let line = |port: u16, state: &str, inode: u64| {
        format!(
            "   0: 0100007F:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 \
             00000000  0  0 {inode} 1\n"
        )
    };
    let table =
        [head.to_owned(), line(11211, "0A", 100), line(40000, "01", 101), line(8080, "0A", 102)].concat();
    for (pid, parent, inodes) in [(7, 1, vec![100, 101]), (8, 7, vec![102]), (9, 1, vec![])] {
        machine.write(&format!("proc/{pid}/comm"), &format!("server {pid}\n"));
        machine.write(&format!("proc/{pid}/stat"), &format!("{pid} (a) b) S {parent} 7 7 0\n"));
        machine.write(&format!("proc/{pid}/net/tcp"), &table);
        machine.write(&format!("proc/{pid}/fd/none"), "");
        for inode in inodes {
            symlink(format!("socket:[{inode}]"), machine.path(&format!("proc/{pid}/fd/{inode}"))).unwrap();
        }
    }
    machine
}

#[test]
fn a_process_brings_its_children_and_only_ports_that_listen() {
    let machine = machine();
    let service = of_process(machine.root(), 7).unwrap();
    assert_eq!(service.name, "server 7");
    assert_eq!(service.processes, BTreeSet::from([7, 8]));
    assert_eq!(service.ports, BTreeSet::from([8080, 11211]));
    assert_eq!(of_process(machine.root(), 8).unwrap().ports, BTreeSet::from([8080]));
    assert!(of_process(machine.root(), 9).unwrap().with_port().is_err());
    assert!(matches!(of_process(machine.root(), 77), Err(ServiceError::NoProcess(77))));
}

#[test]
fn a_cgroup_is_its_members_and_those_below() {
    let machine = machine();
    let unit = "sys/fs/cgroup/system.slice/store.service";
    machine.write(&format!("{unit}/cgroup.procs"), "7\n");
    machine.write(&format!("{unit}/child/cgroup.procs"), "8\n0\n");
    machine.write("sys/fs/cgroup/empty/cgroup.procs", "");
    for folder in [format!("/{unit}"), "system.slice/store.service".to_owned()] {
        assert_eq!(of_cgroup(machine.root(), &folder).unwrap().processes, BTreeSet::from([7, 8]), "{folder}");
    }
    assert_eq!(of_unit(machine.root(), "store").unwrap().processes, BTreeSet::from([7, 8]));
    assert!(matches!(of_unit(machine.root(), "shop"), Err(ServiceError::NoUnit(_))));
    assert!(matches!(of_cgroup(machine.root(), "empty"), Err(ServiceError::Empty(_))));
    assert!(matches!(of_cgroup(machine.root(), "gone"), Err(ServiceError::NoCgroup(_))));
}

#[test]
fn of_a_pod_the_container_that_listens_is_the_service() {
    let machine = machine();
    let pod = "sys/fs/cgroup/kubepods/pod1";
    machine.write(&format!("{pod}/cgroup.procs"), "");
    for (container, members) in [("pause", "9\n"), ("server", "7\n"), ("sidecar", "8\n")] {
        machine.write(&format!("{pod}/{container}/cgroup.procs"), members);
    }
    let of = |port| of_cgroup_and_port(machine.root(), pod, port).unwrap();
    assert_eq!((of(11211).processes, of(11211).ports), (BTreeSet::from([7]), BTreeSet::from([11211])));
    assert_eq!(of(8080).processes, BTreeSet::from([8]));
    assert_eq!((of(80).processes.len(), of(80).ports.len()), (3, 0), "no process listens there yet");
    machine.write("sys/fs/cgroup/kubepods/cpuset.cpus.effective", "0-3\n");
    assert_eq!(cpuset_file(machine.root(), pod, 7).unwrap(), "sys/fs/cgroup/kubepods/cpuset.cpus.effective");
    machine.write(&format!("{pod}/server/cpuset.effective_cpus"), "2\n");
    let file = cpuset_file(machine.root(), pod, 7).unwrap();
    assert_eq!(cpus_in_force(machine.root(), &file), Some("2".parse().unwrap()));
    machine.write("sys/devices/system/cpu/online", "0-2\n");
    let other = |before: &str| other_cpus(machine.root(), &file, &before.parse().unwrap());
    assert_eq!((other("2"), other("2-3"), other("0,2")), (None, None, Some("2".parse().unwrap())));
    assert_eq!((cpuset_file(machine.root(), pod, 77), cpus_in_force(machine.root(), "gone")), (None, None));
}

/// Two units of one name: the system's (7) and that of a user (8), who chose the name.
fn namesakes() -> FakeMachine {
    let machine = machine();
    machine.write("sys/fs/cgroup/system.slice/shop.service/cgroup.procs", "7\n");
    let users = "sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/shop.service";
    machine.write(&format!("{users}/cgroup.procs"), "8\n");
    machine
}

/// A systemctl that knows these cgroups.
fn systemd(machine: &FakeMachine, answer: &str) {
    machine.write("run/systemd/system/here", "");
    machine.program("usr/bin/systemctl", &format!("#!/bin/sh\necho 'ControlGroup={answer}'\n"));
}

#[test]
fn a_name_that_two_units_bear_is_no_ones_without_systemd() {
    let machine = namesakes();
    let error = of_unit(machine.root(), "shop").unwrap_err();
    assert!(matches!(&error, ServiceError::Several { folders, .. } if folders.len() == 2), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("--cgroup /system.slice/shop.service, or --cgroup /user.slice/user-1000"),
        "{text}"
    );
    // systemd knows the cgroup of each.
    assert_eq!(
        of_cgroup(machine.root(), "/system.slice/shop.service").unwrap().processes,
        BTreeSet::from([7])
    );
}

#[test]
fn systemd_says_which_unit_is_the_systems() {
    let machine = namesakes();
    systemd(&machine, "/system.slice/shop.service");
    assert_eq!(of_unit(machine.root(), "shop").unwrap().processes, BTreeSet::from([7]));
    // A unit of the system's that does not run, and a user's that does.
    systemd(&machine, "");
    let error = of_unit(machine.root(), "shop").unwrap_err().to_string();
    assert!(error.contains("shop") && error.contains("--cgroup"), "{error}");
    assert!(matches!(of_unit(machine.root(), "elsewhere"), Err(ServiceError::NoUnit(_))));
    assert!(matches!(of_unit(machine.root(), "--help.service"), Err(ServiceError::NoUnit(_))));
}

#[test]
fn one_unit_in_two_trees_is_one() {
    let machine = machine();
    for tree in ["unified", "systemd"] {
        machine.write(&format!("sys/fs/cgroup/{tree}/system.slice/shop.service/cgroup.procs"), "7\n");
    }
    assert_eq!(of_unit(machine.root(), "shop").unwrap().processes, BTreeSet::from([7]));
}

#[test]
fn lines_that_are_none_are_passed_over() {
    for line in ["", "0: 1", "0: 0100007F:ZZZZ 0 0A 0 0 0 0 0 1", "0: nothing 0 0A 0 0 0 0 0 x"] {
        assert_eq!(listening_line(line), None, "{line}");
    }
}

#[test]
fn this_process_is_found_by_its_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = of_port(&Root::system(), port).unwrap();
    assert!(service.processes.contains(&std::process::id()), "{service:?}");
    assert!(of_process(&Root::system(), std::process::id()).unwrap().ports.contains(&port));
    drop(listener);
    assert!(matches!(of_port(&Root::system(), port), Err(ServiceError::NoListener(_))));
}
