//! A machine of eight CPUs with four idle states, as a folder.

use std::fs;
use std::path::Path;
use tempfile::TempDir;

pub fn server() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "sys/devices/system/cpu/online", "0-7\n");
    for cpu in 0..8 {
        let cpu = format!("sys/devices/system/cpu/cpu{cpu}");
        write(folder.path(), &format!("{cpu}/power/pm_qos_resume_latency_us"), "0\n");
        let states = [("POLL", 0, 0), ("C1", 2, 2), ("C1E", 10, 20), ("C6", 133, 600)];
        for (index, (name, latency, residency)) in states.into_iter().enumerate() {
            let state = format!("{cpu}/cpuidle/state{index}");
            write(folder.path(), &format!("{state}/name"), &format!("{name}\n"));
            write(folder.path(), &format!("{state}/latency"), &format!("{latency}\n"));
            write(folder.path(), &format!("{state}/residency"), &format!("{residency}\n"));
            write(folder.path(), &format!("{state}/disable"), "0\n");
        }
    }
    folder
}

pub fn write(root: &Path, below: &str, text: &str) {
    let path = root.join(below);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

pub fn qos(root: &Path, cpu: u16) -> String {
    let file = format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
    fs::read_to_string(root.join(file)).unwrap().trim().to_owned()
}

pub fn disabled(root: &Path, cpu: u16) -> String {
    (0..4)
        .map(|state| format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/disable"))
        .map(|file| fs::read_to_string(root.join(file)).unwrap().trim().to_owned())
        .collect()
}
