//! The cgroups that a kubelet gives pods, by the pod's uid.
//!
//! | driver | folder of a pod |
//! |---|---|
//! | cgroupfs | `kubepods/[burstable/\|besteffort/]podUID` |
//! | systemd | `kubepods.slice/[kubepods-burstable.slice/]kubepods[-burstable]-podUID.slice`, `_` for `-` |
//!
//! A kubelet that runs in a container has them below a cgroup of its own. The containers of
//! containerd (`cri-containerd-ID.scope`) and CRI-O (`crio-ID.scope`) lie inside.

use crate::root::Root;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The cgroup of each pod on this node, by uid: in version 2, else in version 1's cpuset.
pub fn pod_cgroups(root: &Root) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    // Of version 1 each controller has the pods.
    let trees = match root.path("sys/fs/cgroup/cgroup.controllers").exists() {
        true => &["sys/fs/cgroup"][..],
        false => &["sys/fs/cgroup/cpuset", "sys/fs/cgroup/unified"],
    };
    for tree in trees {
        let mut folders = Vec::new();
        collect(&root.path(tree), false, DEEPEST, &mut folders);
        for (uid, folder) in folders {
            if let Ok(below) = folder.strip_prefix(root.path("")) {
                found.entry(uid).or_insert_with(|| format!("/{}", below.display()));
            }
        }
    }
    found
}

/// Below a kubelet's own cgroup, that of all pods and that of their class.
const DEEPEST: u8 = 6;

fn collect(folder: &Path, is_of_pods: bool, depth: u8, found: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir())) else {
            continue;
        };
        let is_of_pods = is_of_pods || name.contains("kubepods");
        match uid_of(name).filter(|_| is_of_pods) {
            Some(uid) => found.push((uid, entry.path())),
            None if depth > 0 && (is_of_pods || name.contains("kubelet") || depth == DEEPEST) => {
                collect(&entry.path(), is_of_pods, depth - 1, found);
            }
            None => {}
        }
    }
}

/// The uid in the name of a pod's cgroup.
fn uid_of(name: &str) -> Option<String> {
    let uid = match name.strip_prefix("pod") {
        Some(uid) => uid.to_owned(),
        None => name.strip_suffix(".slice")?.rsplit_once("-pod")?.1.replace('_', "-"),
    };
    let is_uid = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uid.then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    #[test]
    fn pods_are_found_under_each_driver_and_version() {
        let slice = UID.replace('-', "_");
        let inner = "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice";
        for folder in [
            format!("sys/fs/cgroup/kubepods/pod{UID}"),
            format!("sys/fs/cgroup/kubepods/burstable/pod{UID}"),
            format!("sys/fs/cgroup/kubepods.slice/kubepods-pod{slice}.slice"),
            format!(
                "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice"
            ),
            format!("sys/fs/cgroup/{inner}/kubelet-kubepods-besteffort-pod{slice}.slice"),
            format!("sys/fs/cgroup/cpuset/kubepods/besteffort/pod{UID}"),
            format!("sys/fs/cgroup/docker/kubelet/kubepods/pod{UID}"),
        ] {
            let machine = FakeMachine::intel_server(2);
            if folder.contains("/cpuset/") {
                machine
                    .write(&format!("sys/fs/cgroup/blkio/kubepods/besteffort/pod{UID}/cgroup.procs"), "7\n");
            } else {
                machine.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n");
            }
            machine.write(&format!("{folder}/cri-containerd-42.scope/cgroup.procs"), "7\n");
            let found = pod_cgroups(machine.root());
            assert_eq!(found, BTreeMap::from([(UID.to_owned(), format!("/{folder}"))]), "{folder}");
        }
    }

    #[test]
    fn a_folder_that_a_user_named_like_a_pod_is_none() {
        let machine = FakeMachine::intel_server(2);
        // A delegated session, in which a user makes cgroups of any name.
        machine.write(&format!("sys/fs/cgroup/user.slice/user-1000.slice/pod{UID}/cgroup.procs"), "7\n");
        machine.write("sys/fs/cgroup/kubepods/podlong/cgroup.procs", "7\n");
        machine.write("sys/fs/cgroup/kubepods/burstable/cgroup.procs", "");
        assert_eq!(pod_cgroups(machine.root()), BTreeMap::new());
    }
}
