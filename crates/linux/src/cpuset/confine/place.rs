//! The place of a service in the trees of cgroups, and its neighbours there.

use super::ConfineError;
use crate::Root;
use crate::cpuset::cgroups::{CgroupPlace, cgroups};
use crate::journal::ancestry;
use crate::knob::CGROUPS;
use crate::processes::service::{collect_members, command, parent, with_descendants};
use crate::processes::threads as kernel;
use crate::root::Gaps;
use machine::CpuList;
use std::collections::{BTreeMap, BTreeSet};

/// Longer chains of parents than this are not followed.
const GENERATIONS_MAX: usize = 64;

/// These processes and all their descendants, without this process and its own children.
pub(super) fn family(known: &BTreeSet<u32>) -> Result<BTreeSet<u32>, ConfineError> {
    let own = std::process::id();
    let mut all = with_descendants(&Root::system(), known.clone())?;
    let line = all.clone();
    all.retain(|process| {
        known.contains(process) || {
            let line = ancestry(*process, &line);
            line.iter().find(|&&one| one == own || known.contains(&one)).is_some_and(|&one| one != own)
        }
    });
    Ok(all)
}

/// Says that the tree belongs to systemd, if it does.
pub(super) fn of_systemd(root: &Root) -> Option<String> {
    (root.has("run/systemd/system") == Some(true))
        .then(|| "systemd owns the tree of cgroups here and may rewrite what others set".to_owned())
}

/// The tree where CPUs are chosen, if it is of this version.
pub(super) fn tree(root: &Root, version: u8) -> Result<String, String> {
    let CgroupPlace { version: found, path } = cgroups(root, &mut Gaps::default())
        .cpuset
        .ok_or("this machine mounts no cgroup tree with the cpuset controller")?;
    if found != version {
        return Err(format!("the cpuset controller is in cgroups of version {found} here"));
    }
    let mount = path.trim_start_matches('/').to_owned();
    match mount.strip_prefix(CGROUPS) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Ok(mount),
        _ => Err(format!("its tree is mounted at {path}, and Roost changes cgroups below /{CGROUPS} only")),
    }
}

/// The cgroup of a process or thread, in the tree that has the cpuset controller.
pub(super) fn group_of(process: u32, thread: u32, version: u8) -> Result<String, String> {
    let file = group_file(process, thread);
    let text = Root::system().text(&file).map_err(|error| error.to_string())?;
    group_in_text(&text, &file, version)
}

/// The file that shows it, below the root.
pub(super) fn group_file(process: u32, thread: u32) -> String {
    format!("proc/{process}/task/{thread}/cgroup")
}

/// The same from the text of that file.
pub(super) fn group_in_text(text: &str, file: &str, version: u8) -> Result<String, String> {
    let group = text.lines().find_map(|line| group_in(line, version));
    match group {
        // Seen from a namespace of cgroups, this one lies outside.
        Some(group) if group.starts_with("/..") => Err(format!("{group} lies outside this cgroup namespace")),
        Some(group) => Ok(group.to_owned()),
        None => Err(format!("/{file} names no cgroup of version {version} with cpusets")),
    }
}

/// `0::/a/b` of version 2, `3:cpuset:/a/b` or `3:cpu,cpuset:/a/b` of version 1.
fn group_in(line: &str, version: u8) -> Option<&str> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
    let here = match version {
        2 => number == "0" && controllers.is_empty(),
        _ => controllers.split(',').any(|name| name == "cpuset"),
    };
    here.then_some(group)
}

/// The innermost cgroup that holds all of these processes.
pub(super) fn common_group(processes: &BTreeMap<u32, u64>, version: u8) -> Result<String, String> {
    let mut common: Option<String> = None;
    for &process in processes.keys() {
        let group = match group_of(process, process, version) {
            Ok(group) => group,
            // It has ended.
            Err(_) if kernel::count(process) == 0 => continue,
            Err(reason) => return Err(reason),
        };
        common = Some(match common {
            None => group,
            Some(common) => shared(&common, &group),
        });
    }
    common.ok_or_else(|| "the service has ended".to_owned())
}

/// The common beginning of two paths, in whole parts; `/` at least.
fn shared(one: &str, other: &str) -> String {
    let parts = one.split('/').zip(other.split('/')).take_while(|(one, other)| one == other);
    let path = parts.map(|(part, _)| part).collect::<Vec<_>>().join("/");
    if path.is_empty() { "/".to_owned() } else { path }
}

/// The folder of a group below the root.
pub(super) fn folder_of(mount: &str, group: &str) -> String {
    format!("{mount}{}", group.trim_end_matches('/'))
}

/// An error that names the processes of this cgroup outside the service, if there are any.
pub(super) fn only_of(root: &Root, folder: &str, processes: &BTreeMap<u32, u64>) -> Result<(), String> {
    let mut members = BTreeSet::new();
    collect_members(&root.path(folder), &mut members);
    let others: Vec<u32> = members.into_iter().filter(|&member| !descends(member, processes)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let shown = others.iter().take(3).map(|&other| format!("{} ({other})", command(root, other)));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = if others.len() > 3 { format!(" and {} more", others.len() - 3) } else { String::new() };
    Err(format!("/{folder} also holds {shown}{more}"))
}

/// True if it is one of these, or one of theirs: it may have been born since.
fn descends(process: u32, processes: &BTreeMap<u32, u64>) -> bool {
    let mut line = std::iter::successors(Some(process), |&one| parent(&Root::system(), one));
    let own = std::process::id();
    let found = line.by_ref().take(GENERATIONS_MAX).find(|one| *one == own || processes.contains_key(one));
    found.is_some_and(|one| one != own)
}

/// An error where a cpuset would make threads forget their own CPUs. Kernels since 6.2 remember.
pub(super) fn remembers_pins(
    release: &str,
    processes: &BTreeMap<u32, u64>,
    effective: &CpuList,
) -> Result<(), String> {
    if kernel::remembers_pins(release) {
        return Ok(());
    }
    let threads = processes.keys().flat_map(|&process| kernel::of_process(process).unwrap_or_default());
    let pinned = threads.filter(|&thread| kernel::cpus(thread).is_ok_and(|cpus| cpus != *effective)).count();
    if pinned == 0 {
        return Ok(());
    }
    Err(format!(
        "{pinned} thread(s) of the service chose their CPUs themselves, and this kernel \
         ({release}, before 6.2) forgets \
         that when a cpuset changes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndsWithParent as _;

    #[test]
    fn the_group_is_read_for_each_version() {
        for (line, version, group) in [
            ("0::/system.slice/shop.service", 2, Some("/system.slice/shop.service")),
            ("0::/a:b", 2, Some("/a:b")),
            ("3:cpuset:/", 1, Some("/")),
            ("3:cpu,cpuset:/a", 1, Some("/a")),
            ("3:cpuset:/a", 2, None),
            ("2:cpuacct:/a", 1, None),
            ("0::/a", 1, None),
            ("1:name=systemd:/a", 2, None),
            ("", 2, None),
        ] {
            assert_eq!(group_in(line, version), group, "{line}");
        }
    }

    #[test]
    fn what_two_groups_share_is_whole_parts() {
        for (one, other, both) in
            [("/a/b", "/a/c", "/a"), ("/ab", "/ac", "/"), ("/", "/a", "/"), ("/a/b", "/a/b", "/a/b")]
        {
            assert_eq!(shared(one, other), both);
        }
        assert_eq!(folder_of("sys/fs/cgroup", "/"), "sys/fs/cgroup");
        assert_eq!(folder_of("sys/fs/cgroup", "/a"), "sys/fs/cgroup/a");
    }

    #[test]
    fn this_process_and_what_it_starts_are_nobodys_family() {
        let own = std::process::id();
        let above = parent(&Root::system(), own).unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").ends_with_parent().spawn().unwrap();
        let family_above = family(&BTreeSet::from([above])).unwrap();
        assert!(family_above.contains(&above), "{family_above:?}");
        assert!(!family_above.contains(&own) && !family_above.contains(&child.id()), "{family_above:?}");
        assert_eq!(family(&BTreeSet::from([child.id()])).unwrap(), BTreeSet::from([child.id()]));
        assert!(descends(child.id(), &BTreeMap::from([(child.id(), 0)])));
        assert!(!descends(child.id(), &BTreeMap::from([(above, 0)])));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn an_old_kernel_forgets_and_is_not_trusted_with_pinned_threads() {
        let me = BTreeMap::from([(std::process::id(), 0)]);
        let mine = crate::allowed_cpus().unwrap();
        let other: CpuList = "1023".parse().unwrap();
        for release in ["6.2.0", "6.18.44-fc-v595", "10.0"] {
            remembers_pins(release, &me, &other).unwrap();
        }
        for release in ["6.1.0-32-cloud-amd64", "5.14", "", "unknown"] {
            assert!(remembers_pins(release, &me, &other).unwrap_err().contains("forgets"), "{release}");
        }
        // Other tests of this process pin threads, so only a process that has one thread is sure.
        let mut child = std::process::Command::new("sleep").arg("600").ends_with_parent().spawn().unwrap();
        remembers_pins("6.1", &BTreeMap::from([(child.id(), 0)]), &mine).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
