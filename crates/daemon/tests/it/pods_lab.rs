//! A pod's container in cgroups of version 2, as a kubelet with systemd's driver and containerd name
//! them, governed on the lab's machine of eight CPUs (`lab/run pods`).

use crate::govern_lab::{Server, govern_as, load_of, service};
use daemon::{ServiceConfig, Target};
use linux::{ConfineActuator, Root, pod_cgroups};
use machine::CpuList;
use std::fs;
use std::path::{Path, PathBuf};

const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

/// The cgroups of a pod and its container, outermost first.
struct Pod(Vec<PathBuf>);

impl Pod {
    /// With exclusive CPUs of the static CPU manager.
    fn make(cpus: &str) -> Self {
        let slice = format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
        let names = ["kubepods.slice", "kubepods-burstable.slice", &slice, "cri-containerd-7d9f.scope"];
        let mut above = PathBuf::from("/sys/fs/cgroup");
        let mut made = Vec::new();
        for name in names {
            fs::write(above.join("cgroup.subtree_control"), "+cpuset").expect("this needs `lab/run pods`");
            above.push(name);
            fs::create_dir(&above).expect("a cgroup");
            made.push(above.clone());
        }
        let pod = Self(made);
        pod.give(cpus);
        pod
    }

    fn container(&self) -> &Path {
        &self.0[3]
    }

    /// Writes its cpuset, as a kubelet with the static CPU manager does.
    fn give(&self, cpus: &str) {
        fs::write(self.container().join("cpuset.cpus"), cpus).expect("a cpuset");
    }

    /// The files that a kubelet writes, and nothing else may.
    fn state(&self) -> Vec<String> {
        let controllers = self.0.iter().map(|group| group.join("cgroup.subtree_control"));
        let files = controllers.chain([self.container().join("cpuset.cpus")]);
        files.map(|file| fs::read_to_string(file).expect("a file of the cgroup")).collect()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for group in self.0.iter().rev() {
            for _ in 0..1000 {
                if fs::remove_dir(group).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "-cpuset");
    }
}

fn is_within(cpus: &str, set: &str) -> bool {
    let [cpus, set]: [CpuList; 2] = [cpus, set].map(|text| text.parse().expect("CPUs"));
    cpus.0.is_subset(&set.0)
}

#[test]
#[ignore = "needs eight CPUs and cgroups of version 2: lab/run pods"]
fn a_pod_of_version_2_is_governed_on_its_own_cpus_and_follows_its_kubelet() {
    let folder = std::env::temp_dir().join(format!("pods-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let pod = Pod::make("2-5");
    let server = Server::start_in("lab-pods");
    server.move_to(pod.container());
    let found = pod_cgroups(&Root::system());
    let group = pod.0[2].to_str().expect("a text").to_owned();
    assert_eq!(found.get(UID), Some(&group));

    let mut kept = pod.state();
    let wanted = ServiceConfig {
        target: Target::Cgroup(group, Some(server.port)),
        actuator: Some(ConfineActuator::Affinity),
        ..service(&server)
    };
    let daemon = govern_as(wanted, &folder);
    daemon.until("one core", |status| status.cores.0 == 1);
    let parked = server.cpus();
    assert!(is_within(&parked, "2-5") && parked.len() == 1, "{parked}");
    assert_eq!(pod.state(), kept);
    pod.give("4-7");
    *kept.last_mut().expect("its CPUs") = "4-7\n".to_owned();
    daemon.until("a core of the new set", |_| is_within(&server.cpus(), "4-7"));
    daemon.until("one core again", |status| status.cores.0 == 1 && server.cpus().len() == 1);

    load_of(&server, || {
        daemon.until("all cores of its own", |_| {
            let cpus = server.cpus();
            assert!(is_within(&cpus, "4-7"), "{cpus}");
            cpus == "4-7"
        });
    });
    assert_eq!(pod.state(), kept);
    println!("{}", daemon.end().join("\n"));
    assert_eq!((server.cpus().as_str(), pod.state()), ("4-7", kept));
    // It goes first: its process is in the pod's cgroup.
    drop(server);
    drop(pod);
    let _ = fs::remove_dir_all(&folder);
}
