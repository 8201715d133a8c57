//! The place where a unit is frozen, or why it must not be.

use super::{FreezerError, FreezerWay, is_same_group, members, named, needed};
use crate::Root;
use crate::cpuset::cgroups::cgroups;
use crate::knob::CGROUPS;
use crate::processes::service::{ServiceError, cgroup_folder, family, unit_folder};
use crate::root::Gaps;
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A folder of the tree of version 2, below the root.
    V2(String),
    /// A folder of version 1's freezer.
    V1(String),
    /// A process, with all its descendants.
    Family(u32),
}

impl Place {
    /// The target that `unit` names: a process by its number, a cgroup by its path, else a systemd
    /// unit.
    pub(super) fn find(root: &Root, unit: &str, without: &[FreezerWay]) -> Result<Self, FreezerError> {
        let place = if !unit.is_empty() && unit.bytes().all(|byte| byte.is_ascii_digit()) {
            let process = unit.parse().unwrap_or(u32::MAX);
            if !root.path(&format!("proc/{process}")).is_dir() {
                return Err(ServiceError::NoProcess(process).into());
            }
            Self::of_process(root, process, without)?
        } else if unit.contains('/') {
            Self::of_folder(root, unit, &cgroup_folder(root, unit)?, without)?
        } else {
            let folder = unit_folder(root, unit)?;
            let folder = folder.strip_prefix(root.path("")).unwrap_or(&folder).to_string_lossy().into_owned();
            Self::of_folder(root, unit, &folder, without)?
        };
        if place.processes(root).is_empty() {
            return Err(ServiceError::Empty(unit.to_owned()).into());
        }
        Ok(place)
    }

    /// By the freezer of its group, if the group holds no other process; else by signals.
    fn of_process(root: &Root, process: u32, without: &[FreezerWay]) -> Result<Self, FreezerError> {
        let family = family(root, process)?;
        let text = root.text(&format!("proc/{process}/cgroup")).unwrap_or_default();
        let (v2, v1) = trees(root);
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let mount = match controllers {
                "" => &v2,
                _ if controllers.split(',').any(|name| name == "freezer") => &v1,
                _ => continue,
            };
            let Some(mount) = mount else { continue };
            if matches!(group, "/" | "") || group.starts_with("/..") {
                continue;
            }
            let folder = format!("{mount}{group}");
            if let Some(place) = Self::in_tree(root, &folder, without)
                && members(root, &folder).is_subset(&family)
            {
                return Ok(place);
            }
        }
        if without.contains(&FreezerWay::Signal) {
            let reason = "its cgroups hold others too, and signals are not to be used".to_owned();
            return Err(FreezerError::NoWay { unit: process.to_string(), reason });
        }
        Ok(Self::Family(process))
    }

    /// In its own tree, or, where that has no freezer, in the one that has, by the same path.
    fn of_folder(
        root: &Root,
        unit: &str,
        folder: &str,
        without: &[FreezerWay],
    ) -> Result<Self, FreezerError> {
        if let Some(place) = Self::in_tree(root, folder, without) {
            return Ok(place);
        }
        let (v2, v1) = trees(root);
        let trees: Vec<String> = v2.into_iter().chain(v1).collect();
        if trees.iter().any(|tree| tree == folder) || folder.trim_end_matches('/') == CGROUPS {
            let reason = "it is the root of its tree, which holds everything".to_owned();
            return Err(FreezerError::NotOurs { unit: unit.to_owned(), reason });
        }
        // `sys/fs/cgroup/systemd/system.slice/x.service`: the part after the tree's own folder.
        let inside =
            folder.strip_prefix(CGROUPS).and_then(|rest| rest.trim_start_matches('/').split_once('/'));
        let twins =
            inside.iter().flat_map(|(_, group)| trees.iter().map(move |tree| format!("{tree}/{group}")));
        for twin in twins {
            // The same name may be another group there.
            if is_same_group(root, &twin, folder)
                && let Some(place) = Self::in_tree(root, &twin, without)
            {
                return Ok(place);
            }
        }
        let reason = "no tree with a freezer has this cgroup; name its main process instead".to_owned();
        Err(FreezerError::NoWay { unit: unit.to_owned(), reason })
    }

    fn in_tree(root: &Root, folder: &str, without: &[FreezerWay]) -> Option<Self> {
        let has = |file: &str, way| !without.contains(&way) && root.path(folder).join(file).exists();
        // The journal takes no other path.
        let folder_is_plain =
            folder.starts_with(CGROUPS) && !folder.split('/').any(|part| matches!(part, "" | "." | ".."));
        if !folder_is_plain {
            None
        } else if has("cgroup.freeze", FreezerWay::V2) {
            Some(Self::V2(folder.to_owned()))
        } else if has("freezer.state", FreezerWay::V1) {
            Some(Self::V1(folder.to_owned()))
        } else {
            None
        }
    }

    pub(super) fn way(&self) -> FreezerWay {
        match self {
            Self::V2(_) => FreezerWay::V2,
            Self::V1(_) => FreezerWay::V1,
            Self::Family(_) => FreezerWay::Signal,
        }
    }

    pub(super) fn processes(&self, root: &Root) -> BTreeSet<u32> {
        match self {
            Self::V2(folder) | Self::V1(folder) => members(root, folder),
            Self::Family(process) if root.path(&format!("proc/{process}")).is_dir() => {
                family(root, *process).unwrap_or_default()
            }
            Self::Family(_) => BTreeSet::new(),
        }
    }

    /// An error if it must not be frozen.
    pub(super) fn check(
        &self,
        root: &Root,
        unit: &str,
        critical: &BTreeSet<u32>,
    ) -> Result<(), FreezerError> {
        let not_ours = |reason: String| Err(FreezerError::NotOurs { unit: unit.to_owned(), reason });
        let here = self.processes(root);
        if here.contains(&1) {
            return not_ours("it holds process 1, from which all others descend".to_owned());
        }
        if here.contains(&std::process::id()) {
            return not_ours("this process is in it".to_owned());
        }
        let ancestors: BTreeSet<u32> = here.intersection(&needed::ancestors(root)).copied().collect();
        if !ancestors.is_empty() {
            return not_ours(format!("this process was started from it, by {}", named(root, &ancestors)));
        }
        if let Self::V2(folder) | Self::V1(folder) = self
            && let Some(why) = needed::by_name(root, in_its_tree(root, folder), &root.path(folder))
        {
            return not_ours(why);
        }
        if let Some((_, why)) = needed::among(root, &here) {
            return not_ours(why);
        }
        let among: BTreeSet<u32> = here.intersection(critical).copied().collect();
        if among.is_empty() {
            return Ok(());
        }
        let reason = format!("it holds critical processes: {}", named(root, &among));
        Err(FreezerError::Critical { unit: unit.to_owned(), reason })
    }
}

/// A group's path in the tree in which it lies.
fn in_its_tree<'a>(root: &Root, folder: &'a str) -> &'a str {
    let (v2, v1) = trees(root);
    let within = [v2, v1].into_iter().flatten().filter_map(|tree| folder.strip_prefix(tree.as_str()));
    // Version 1's freezer may lie in the folder of version 2's tree.
    within.min_by_key(|within| within.len()).unwrap_or(folder)
}

/// The mounted trees with a freezer, below the root: of version 2 and of version 1.
fn trees(root: &Root) -> (Option<String>, Option<String>) {
    let mounts = root.text("proc/self/mounts").unwrap_or_default();
    let below = |path: &str| path.trim_start_matches('/').to_owned();
    let second = cgroups(root, &mut Gaps::default()).freezer.filter(|place| place.version == 2);
    let first = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup" && options.split(',').any(|word| word == "freezer")).then(|| below(path))
    });
    (second.map(|place| below(&place.path)), first)
}
