//! Batch work in a control group of its own, of either version: where CPUs are lent.

use linux::{EndsWithParent as _, Root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A group of processes that never sleep.
pub struct Batch {
    pub name: String,
    folders: Vec<PathBuf>,
    pub processes: Vec<Child>,
}

/// The trees that have these controllers: one in version 2, several in version 1. Without systemd no
/// program enables those of version 2.
fn trees() -> Option<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let wanted = ["cpuset", "cpu", "cpuacct", "freezer"];
    let mut found = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let tree = PathBuf::from(fields[1]);
        let lists = |file: &str| {
            let text = fs::read_to_string(tree.join(file)).unwrap_or_default();
            ["cpu", "cpuset"].iter().all(|name| text.split_whitespace().any(|one| one == *name))
        };
        if fields[2] == "cgroup2" && lists("cgroup.controllers") {
            if !lists("cgroup.subtree_control") && !Path::new("/run/systemd/system").exists() {
                fs::write(tree.join("cgroup.subtree_control"), "+cpu +cpuset").unwrap();
            }
            return lists("cgroup.subtree_control").then(|| vec![tree]);
        }
        if fields[2] == "cgroup" && fields[3].split(',').any(|word| wanted.contains(&word)) {
            found.push(tree);
        }
    }
    let has = |file: &str| found.iter().any(|tree| tree.join(file).exists());
    (has("cpuset.cpus") && has("cpu.shares")).then_some(found)
}

const PREFIX: &str = "roost-test-lend-";

/// Removes the empty groups of runs that were killed.
fn sweep(tree: &Path) {
    for entry in fs::read_dir(tree).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Batch {
    pub fn begin(count: usize) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let Some(trees) = trees() else {
            println!("SKIPPED: no control groups with cpu and cpuset here");
            return None;
        };
        trees.iter().for_each(|tree| sweep(tree));
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let folders: Vec<PathBuf> = trees.iter().map(|tree| tree.join(&name)).collect();
        let mut batch = Self { name, folders, processes: Vec::new() };
        for folder in &batch.folders {
            if let Err(error) = fs::create_dir(folder) {
                println!("SKIPPED: {}: {error}", folder.display());
                return None;
            }
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(text) = fs::read_to_string(folder.parent().unwrap().join(file)) {
                    let _ = fs::write(folder.join(file), text);
                }
            }
        }
        for _ in 0..count {
            let mut process = Command::new("sh");
            process.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).ends_with_parent();
            batch.add(process);
        }
        batch.write("cpu.shares", "512");
        batch.write("cpu.weight", "50");
        Some(batch)
    }

    pub fn add(&mut self, mut process: Command) {
        let process = process.spawn().unwrap();
        for folder in &self.folders {
            fs::write(folder.join("cgroup.procs"), process.id().to_string()).unwrap();
        }
        self.processes.push(process);
    }

    pub fn read(&self, file: &str) -> String {
        let texts = self.folders.iter().filter_map(|folder| fs::read_to_string(folder.join(file)).ok());
        texts.map(|text| text.trim().to_owned()).next().unwrap_or_default()
    }

    pub fn write(&self, file: &str, text: &str) {
        for folder in &self.folders {
            if folder.join(file).exists() {
                fs::write(folder.join(file), text).unwrap();
            }
        }
    }

    /// The texts of all files that lending changes. A list of version 2 that has been set cannot be emptied
    /// while there are processes: all CPUs are the same.
    pub fn state(&self) -> [String; 6] {
        let all = linux::online_cpus(&Root::system()).unwrap().to_string();
        ["cpu.idle", "cpu.shares", "cpu.weight", "cpuset.cpus", "freezer.state", "cgroup.freeze"]
            .map(|file| self.read(file))
            .map(|text| if text == all { String::new() } else { text })
    }

    pub fn is_frozen(&self) -> bool {
        self.read("freezer.state") == "FROZEN" || self.read("cgroup.freeze") == "1"
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.write("freezer.state", "THAWED");
        self.write("cgroup.freeze", "0");
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        for folder in &self.folders {
            for _ in 0..1000 {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}
