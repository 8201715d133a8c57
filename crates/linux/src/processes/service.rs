//! The processes of a service, and the TCP ports that it listens on: by process, cgroup, systemd
//! unit or port.
//!
//! The kernel links both ways only through socket numbers: `/proc/PID/fd/N` points to
//! `socket:[INODE]`, and `/proc/PID/net/tcp` lists, for that process's network namespace, ports by
//! inode. So a service in a container is found through its process, not through ours.
//!
//! Invariants: facts that one user may not see of another's processes are left out, and where
//! nothing is left because of that, the error says so.

use crate::root::{FileError, Root};
use machine::CpuList;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A service: its processes and the TCP ports that they listen on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// A readable name: the command of its first process.
    pub name: String,
    pub processes: BTreeSet<u32>,
    pub ports: BTreeSet<u16>,
}

/// Why a service was not found.
#[derive(Debug, Error)]
pub enum ServiceError {
    #[error("there is no process {0}\nhint: `pgrep -a NAME` lists processes by name")]
    NoProcess(u32),
    #[error(
        "there is no cgroup {0}\nhint: give its folder, as in /sys/fs/cgroup/system.slice/memcached.service"
    )]
    NoCgroup(String),
    #[error("no cgroup of a unit {0} was found\nhint: `systemctl status {0}` tells whether it runs")]
    NoUnit(String),
    /// Several of that name, or one that is not the system's.
    #[error(
        "{}\nhint: say which by its cgroup: {}",
        match .folders.as_slice() {
            [one] => format!("the system has no unit {unit} that runs, and a user has one: {one}"),
            several => format!("{} units are called {unit}: {}", several.len(), several.join(", ")),
        },
        .folders.iter().map(|folder| format!("--cgroup {folder}")).collect::<Vec<_>>().join(", or ")
    )]
    Several { unit: String, folders: Vec<String> },
    #[error("the cgroup {0} has no process")]
    Empty(String),
    #[error("no process listens on TCP port {0}\nhint: `ss -ltn` lists the ports in use")]
    NoListener(u16),
    #[error("{0} listens on no TCP port that this user can see\nhint: name it with --port, or run as root")]
    NoPort(String),
    #[error(transparent)]
    File(#[from] FileError),
}

/// A process with its threads, and all its children that are alive: servers fork.
pub fn of_process(root: &Root, pid: u32) -> Result<Service, ServiceError> {
    if !root.path(&format!("proc/{pid}")).is_dir() {
        return Err(ServiceError::NoProcess(pid));
    }
    Ok(described(root, with_descendants(root, BTreeSet::from([pid]))?))
}

/// These processes and all their descendants that are alive. It looks at every process of the
/// machine.
pub(crate) fn with_descendants(root: &Root, mut family: BTreeSet<u32>) -> Result<BTreeSet<u32>, FileError> {
    let parents: BTreeMap<u32, u32> =
        processes(root)?.into_iter().filter_map(|process| Some((process, parent(root, process)?))).collect();
    loop {
        let children = parents.iter().filter(|(_, parent)| family.contains(parent)).map(|(&child, _)| child);
        let grown: BTreeSet<u32> = family.iter().copied().chain(children).collect();
        if grown.len() == family.len() {
            return Ok(family);
        }
        family = grown;
    }
}

/// One process and all its descendants that are alive: by the kernel's list of each one's children
/// (`CONFIG_PROC_CHILDREN`), a few files instead of one for each process of the machine; else as
/// [`with_descendants`].
pub(crate) fn family(root: &Root, process: u32) -> Result<BTreeSet<u32>, FileError> {
    if !root.path("proc/thread-self/children").exists() {
        return with_descendants(root, BTreeSet::from([process]));
    }
    let (mut family, mut left) = (BTreeSet::from([process]), vec![process]);
    while let Some(one) = left.pop() {
        // Empty once it has ended: then it has no descendants any more.
        for thread in root.names(&format!("proc/{one}/task")).unwrap_or_default() {
            let children = root.text(&format!("proc/{one}/task/{thread}/children")).unwrap_or_default();
            let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
            left.extend(children.filter(|child| family.insert(*child)));
        }
    }
    Ok(family)
}

/// All processes of a cgroup and of those below it, of either version.
pub fn of_cgroup(root: &Root, folder: &str) -> Result<Service, ServiceError> {
    let found = cgroup_folder(root, folder)?;
    let mut members = BTreeSet::new();
    collect_members(&root.path(&found), &mut members);
    if members.is_empty() {
        return Err(ServiceError::Empty(folder.to_owned()));
    }
    Ok(described(root, members))
}

/// The processes of a cgroup that serve `port`: those of the cgroups in it of which one listens there, as a
/// pod's container does beside others and the pause; all of them where none does.
pub fn of_cgroup_and_port(root: &Root, folder: &str, port: u16) -> Result<Service, ServiceError> {
    let whole = of_cgroup(root, folder)?;
    let mut serving = BTreeSet::new();
    for entry in fs::read_dir(root.path(&cgroup_folder(root, folder)?)).into_iter().flatten().flatten() {
        let mut members = BTreeSet::new();
        collect_members(&entry.path(), &mut members);
        if members.iter().any(|&member| listening_ports(root, member).contains(&port)) {
            serving.extend(members);
        }
    }
    let mut found = if serving.is_empty() { whole } else { described(root, serving) };
    found.ports.retain(|listens| *listens == port);
    Ok(found)
}

/// The file with the CPUs in force for a process of a cgroup: of its own cgroup in there, or of the
/// nearest above that has them.
pub fn cpuset_file(root: &Root, folder: &str, process: u32) -> Option<String> {
    let folder = cgroup_folder(root, folder).ok()?;
    let holder = holder_of(&root.path(&folder), &process.to_string())?;
    let mut place = holder.strip_prefix(root.path("")).ok()?.display().to_string();
    loop {
        let files = ["cpuset.cpus.effective", "cpuset.effective_cpus"].map(|name| format!("{place}/{name}"));
        if let Some(file) = files.into_iter().find(|file| root.path(file).exists()) {
            return Some(file);
        }
        place.truncate(place.rfind('/')?);
    }
}

/// The CPUs in such a file; `None` once the cgroup is gone.
pub fn cpus_in_force(root: &Root, file: &str) -> Option<CpuList> {
    root.parse(file, "a list of CPUs such as 0-3,8").ok()
}

/// The CPUs in such a file, where they are others than `before`. Those that are offline are in none.
pub fn other_cpus(root: &Root, file: &str, before: &CpuList) -> Option<CpuList> {
    let (now, online) = (cpus_in_force(root, file)?, crate::online_cpus(root).ok()?);
    let left: BTreeSet<_> = before.0.intersection(&online.0).copied().collect();
    (now.0 != left).then_some(now)
}

fn holder_of(folder: &Path, process: &str) -> Option<PathBuf> {
    let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    if members.lines().any(|member| member == process) {
        return Some(folder.to_owned());
    }
    let below = fs::read_dir(folder).ok()?.flatten();
    below
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .find_map(|entry| holder_of(&entry.path(), process))
}

/// The folder of a cgroup, below the root: from its whole path, or from that inside a tree.
pub(crate) fn cgroup_folder(root: &Root, folder: &str) -> Result<String, ServiceError> {
    let below = folder.trim_matches('/');
    let tried = [
        below.to_owned(),
        format!("sys/fs/cgroup/{below}"),
        format!("sys/fs/cgroup/unified/{below}"),
        format!("sys/fs/cgroup/freezer/{below}"),
    ];
    let found = tried.into_iter().find(|folder| root.path(folder).join("cgroup.procs").exists());
    found.ok_or_else(|| ServiceError::NoCgroup(folder.to_owned()))
}

/// A systemd unit, by the cgroup that bears its name: `memcached` or `memcached.service`.
pub fn of_unit(root: &Root, unit: &str) -> Result<Service, ServiceError> {
    let folder = unit_folder(root, unit)?;
    let mut members = BTreeSet::new();
    collect_members(&folder, &mut members);
    if members.is_empty() {
        return Err(ServiceError::Empty(folder.display().to_string()));
    }
    Ok(described(root, members))
}

/// The folder of a unit's cgroup. Users may give their units the names of the system's. systemd,
/// where it runs, says which is the system's; else a name that two have is an error.
pub(crate) fn unit_folder(root: &Root, unit: &str) -> Result<PathBuf, ServiceError> {
    let name = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    let none = || ServiceError::NoUnit(unit.to_owned());
    if !crate::knob::is_unit(&name) {
        return Err(none());
    }
    let trees = ["sys/fs/cgroup", "sys/fs/cgroup/unified", "sys/fs/cgroup/systemd"];
    // The trees by their place: the same unit lies in several where both versions are mounted.
    let mut found: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for tree in trees.map(|tree| root.path(tree)) {
        let mut folders = Vec::new();
        folders_named(&tree, &name, DEEPEST, &mut folders);
        for folder in folders {
            let within = trees.iter().rev().find_map(|tree| folder.strip_prefix(root.path(tree)).ok());
            let within = within.unwrap_or(&folder).to_owned();
            found.entry(within).or_insert(folder);
        }
    }
    let several = |found: &BTreeMap<PathBuf, PathBuf>| ServiceError::Several {
        unit: unit.to_owned(),
        folders: found.keys().map(|within| format!("/{}", within.display())).collect(),
    };
    match control_group(root, &name) {
        Some(group) if group.is_empty() && found.is_empty() => Err(none()),
        Some(group) if group.is_empty() => Err(several(&found)),
        Some(group) => found.remove(std::path::Path::new(group.trim_start_matches('/'))).ok_or_else(none),
        None if found.len() > 1 => Err(several(&found)),
        None => found.into_values().next().ok_or_else(none),
    }
}

/// systemd's answer about the unit's cgroup: nothing for one that does not run. `None` where
/// systemd does not run, or does not answer.
fn control_group(root: &Root, unit: &str) -> Option<String> {
    if !root.path("run/systemd/system").is_dir() {
        return None;
    }
    let mut command = std::process::Command::new(root.path("usr/bin/systemctl"));
    command.args(["--no-ask-password", "--no-pager", "show", "--property=ControlGroup", unit]);
    let mut child = command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .ok()?;
    let over = crate::now() + machine::Duration::from_secs(10);
    while child.try_wait().ok()?.is_none() {
        if crate::now() > over {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let output = child.wait_with_output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix("ControlGroup="))?.trim().to_owned())
}

/// The processes that listen on `port`. Where this user may not see them, the service has the port
/// and no process.
pub fn of_port(root: &Root, port: u16) -> Result<Service, ServiceError> {
    let all = processes(root)?;
    let mut service =
        Service { name: format!("port {port}"), ports: BTreeSet::from([port]), ..Service::default() };
    for &process in &all {
        // A process of another network namespace has a port of its own by this number.
        if listening_ports(root, process).contains(&port) {
            service.processes.insert(process);
        }
    }
    if let Some(&first) = service.processes.first() {
        service.name = command(root, first);
    } else if !listening(root, "self").iter().any(|&(_, listens)| listens == port) {
        return Err(ServiceError::NoListener(port));
    }
    Ok(service)
}

impl Service {
    /// An error unless it listens somewhere.
    pub fn with_port(self) -> Result<Self, ServiceError> {
        if self.ports.is_empty() { Err(ServiceError::NoPort(self.name)) } else { Ok(self) }
    }
}

fn described(root: &Root, processes: BTreeSet<u32>) -> Service {
    let ports = processes.iter().flat_map(|&process| listening_ports(root, process)).collect();
    let name = processes.first().map(|&first| command(root, first)).unwrap_or_default();
    Service { name, processes, ports }
}

fn processes(root: &Root) -> Result<Vec<u32>, FileError> {
    Ok(root.names("proc")?.iter().filter_map(|name| name.parse().ok()).collect())
}

pub(crate) fn command(root: &Root, pid: u32) -> String {
    let name = root.text(&format!("proc/{pid}/comm"));
    name.map_or_else(|_| format!("process {pid}"), |name| crate::printable_name(&name))
}

pub(crate) fn parent(root: &Root, pid: u32) -> Option<u32> {
    let text = root.text(&format!("proc/{pid}/stat")).ok()?;
    // The command stands in parentheses and may hold some itself.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The TCP ports that this process listens on.
pub fn ports_of(root: &Root, pid: u32) -> BTreeSet<u16> {
    listening_ports(root, pid)
}

/// The ports that this process listens on.
fn listening_ports(root: &Root, pid: u32) -> BTreeSet<u16> {
    let folder = root.path(&format!("proc/{pid}/fd"));
    let inodes: BTreeSet<u64> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let target = fs::read_link(entry.ok()?.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect();
    if inodes.is_empty() {
        return BTreeSet::new();
    }
    listening(root, &pid.to_string())
        .into_iter()
        .filter(|(inode, _)| inodes.contains(inode))
        .map(|(_, port)| port)
        .collect()
}

/// Inode and port of every socket that listens, in the network namespace of `process`.
fn listening(root: &Root, process: &str) -> Vec<(u64, u16)> {
    ["tcp", "tcp6"]
        .iter()
        .filter_map(|file| root.text(&format!("proc/{process}/net/{file}")).ok())
        .flat_map(|text| text.lines().skip(1).filter_map(listening_line).collect::<Vec<_>>())
        .collect()
}

/// One line of `/proc/net/tcp`: number, local address and port in hexadecimal, remote, state, ...,
/// inode in tenth place.
fn listening_line(line: &str) -> Option<(u64, u16)> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (_, port) = fields.get(1)?.rsplit_once(':')?;
    if *fields.get(3)? != LISTEN {
        return None;
    }
    Some((fields.get(9)?.parse().ok()?, u16::from_str_radix(port, 16).ok()?))
}

pub(crate) fn collect_members(folder: &std::path::Path, members: &mut BTreeSet<u32>) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    members.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|&pid| pid > 0));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_members(&entry.path(), members);
        }
    }
}

/// The depth of units below a tree's root: in a user's session, in slices.
const DEEPEST: u8 = 8;

fn folders_named(folder: &std::path::Path, name: &str, depth: u8, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name() == name {
            found.push(entry.path());
        } else if depth > 0 {
            folders_named(&entry.path(), name, depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests;
