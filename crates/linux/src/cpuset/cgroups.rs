//! The control groups of this machine: version 1, version 2 or both, and the trees where CPUs are
//! chosen and processes frozen.
//!
//! In version 2 there is one tree with all controllers, and freezing needs none. In version 1 each
//! controller has a tree of its own. A *hybrid* machine mounts both: then a controller belongs to
//! version 2 only if no version-1 tree has taken it. The file `cgroup.controllers` of the version-2
//! root shows which.

use crate::root::{Gaps, Root};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    None,
    V1,
    V2,
    Hybrid,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupPlace {
    /// 1 or 2.
    pub version: u8,
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cgroups {
    pub version: CgroupVersion,
    pub cpuset: Option<CgroupPlace>,
    /// True if a cpuset may be an isolated partition whatever the groups around it are: version 2, Linux 6.7.
    pub partitions: bool,
    pub freezer: Option<CgroupPlace>,
    /// True if sysfs may be written at all; services under `ProtectKernelTunables=` see it
    /// read-only.
    pub sysfs_writable: Option<bool>,
}

/// The mounted trees, from `/proc/self/mounts`.
pub fn cgroups(root: &Root, gaps: &mut Gaps) -> Cgroups {
    let mounts = gaps.text(root, "proc/self/mounts").unwrap_or_default();
    let (mut first, mut second) = (Vec::new(), None);
    let mut sysfs_writable = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(path), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        match kind {
            "cgroup" => first.push((path, options)),
            "cgroup2" => second = second.or(Some(path)),
            // A later mount lies over an earlier one.
            "sysfs" if path == "/sys" => sysfs_writable = Some(!options.split(',').any(|word| word == "ro")),
            _ => {}
        }
    }
    let version = match (first.is_empty(), second) {
        (true, None) => CgroupVersion::None,
        (true, Some(_)) => CgroupVersion::V2,
        (false, None) => CgroupVersion::V1,
        (false, Some(_)) => CgroupVersion::Hybrid,
    };
    let in_first = |controller: &str| {
        let (path, _) =
            first.iter().find(|(_, options)| options.split(',').any(|word| word == controller))?;
        Some(CgroupPlace { version: 1, path: (*path).to_owned() })
    };
    let in_second = || second.map(|path| CgroupPlace { version: 2, path: path.to_owned() });
    let controllers = second
        .and_then(|path| gaps.text(root, &format!("{}/cgroup.controllers", path.trim_start_matches('/'))));
    let second_has_cpuset = controllers.is_some_and(|text| text.split(' ').any(|name| name == "cpuset"));
    // A file of the root's alone, as old as `cpuset.cpus.exclusive`, which the root has not.
    let isolated = second.map(|path| format!("{}/cpuset.cpus.isolated", path.trim_start_matches('/')));
    let partitions = second_has_cpuset && isolated.is_some_and(|file| root.has(&file) == Some(true));
    Cgroups {
        version,
        partitions,
        cpuset: in_second().filter(|_| second_has_cpuset).or_else(|| in_first("cpuset")),
        freezer: in_second().or_else(|| in_first("freezer")),
        sysfs_writable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    fn read(mounts: &str, controllers: &str) -> Cgroups {
        let machine = FakeMachine::intel_server(1);
        machine.write("proc/self/mounts", mounts);
        machine.write("sys/fs/cgroup/cgroup.controllers", controllers);
        machine.write("sys/fs/cgroup/unified/cgroup.controllers", controllers);
        for folder in ["sys/fs/cgroup", "sys/fs/cgroup/unified"] {
            machine.write(&format!("{folder}/cpuset.cpus.isolated"), "\n");
        }
        cgroups(machine.root(), &mut Gaps::default())
    }

    #[test]
    fn a_controller_belongs_to_one_version() {
        let v2 = "sysfs /sys sysfs ro,nosuid 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let found = read(v2, "cpuset cpu io memory pids\n");
        assert_eq!(found.version, CgroupVersion::V2);
        assert_eq!((found.cpuset.unwrap().version, found.freezer.unwrap().version), (2, 2));
        assert_eq!((found.sysfs_writable, found.partitions), (Some(false), true));
        let hybrid = "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = read(hybrid, "hugetlb\n");
        assert_eq!(
            (found.version, found.partitions),
            (CgroupVersion::Hybrid, false),
            "cpuset is of version 1"
        );
        assert_eq!(found.cpuset.unwrap().path, "/sys/fs/cgroup/cpuset");
        assert_eq!(found.freezer.unwrap().version, 2);
        let v1 = "cgroup /sys/fs/cgroup/cpu,cpuset cgroup rw,cpu,cpuset 0 0\n";
        assert_eq!((read(v1, "").version, read(v1, "").freezer), (CgroupVersion::V1, None));
        for nothing in ["", "\n\n", "cgroup\n", "cgroup2 /sys/fs/cgroup"] {
            assert_eq!(read(nothing, "cpuset").version, CgroupVersion::None, "{nothing:?}");
        }
    }
}
