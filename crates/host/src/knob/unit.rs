//! `AllowedCPUs=` of a systemd unit, as a runtime property.
//!
//! Where systemd owns the tree of cgroups it also rewrites it, so it is asked instead: `systemctl set-property --runtime
//! UNIT AllowedCPUs=LIST`. Nothing but the runtime copy below `/run` is changed. An unset property reads as nothing,
//! and setting it to nothing unsets it.
//!
//! systemd keeps what it was told in a drop-in below `/run/systemd/system.control`, also that it was told nothing; and what
//! stands there overrides every drop-in of the administrator's in `/etc/systemd/system`. So where a unit had no list, that file is
//! taken away again.

use crate::root::{FileError, Root};
use machine::CpuList;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// How the path of a unit's property begins in a journal, and how it ends.
const UNIT: &str = "unit/";
const PROPERTY: &str = "/AllowedCPUs";

/// The path of this unit's property in a journal.
pub(crate) fn path_of(unit: &str) -> String {
    format!("{UNIT}{unit}{PROPERTY}")
}

/// The unit in such a path. It becomes an argument of a command, so only what systemd allows in a name is one.
pub(super) fn name_in(path: &str) -> Option<&str> {
    let name = path.strip_prefix(UNIT)?.strip_suffix(PROPERTY)?;
    is_unit(name).then_some(name)
}

/// True for the name of a unit that has processes.
pub(crate) fn is_unit(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    let kind = name.rsplit_once('.').map(|(_, kind)| kind);
    matches!(kind, Some("service" | "scope" | "slice"))
        && name.bytes().all(plain)
        && !name.starts_with(['-', '.'])
}

#[derive(Debug)]
pub(super) struct UnitKnob {
    root: Root,
    name: String,
}

impl UnitKnob {
    pub(super) fn new(root: &Root, name: &str) -> Self {
        Self { root: root.clone(), name: name.to_owned() }
    }

    /// The list in the kernel's notation; systemd prints ranges with spaces between.
    pub(super) fn read(&self) -> Result<String, FileError> {
        let output = self.systemctl(&["show", "--property=LoadState,AllowedCPUs", &self.name]);
        let output = output.map_err(|cause| FileError::Unreadable { path: self.path(), cause })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let property = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::trim)
        };
        if property("LoadState") == Some("not-found") {
            return Err(FileError::Missing { path: self.path() });
        }
        let nonsense = |text: &str| FileError::Nonsense {
            path: self.path(),
            text: text.to_owned(),
            expected: "`AllowedCPUs=` and a list of CPUs (systemd 244 or later)",
        };
        let list = property("AllowedCPUs").ok_or_else(|| nonsense(&text))?;
        if list.is_empty() {
            return Ok(String::new());
        }
        let list = list.split_ascii_whitespace().collect::<Vec<_>>().join(",");
        list.parse::<CpuList>().map(|cpus| cpus.to_string()).map_err(|_| nonsense(&list))
    }

    pub(super) fn write(&self, value: &str) -> Result<(), FileError> {
        let property = format!("AllowedCPUs={value}");
        self.systemctl(&["set-property", "--runtime", &self.name, &property])
            .map(drop)
            .map_err(|cause| FileError::Unwritable { path: self.path(), value: value.to_owned(), cause })
    }

    /// Gives it every CPU. Unsetting alone is not enough: systemd empties the `cpuset.cpus` of the unit's cgroup then,
    /// which the kernel refuses while it has processes (systemd issue 43846), and they stay where they were.
    pub(super) fn free(&self, root: &Root) -> Result<(), FileError> {
        self.write(&root.text("sys/devices/system/cpu/possible")?)
    }

    /// Takes away the drop-in that says "no list", which nobody but us has made where there was none before. systemd itself knows
    /// no list by then; until its next `daemon-reload` it says that a file has changed.
    pub(super) fn forget(&self) {
        let folder = self.root.path(&format!("run/systemd/system.control/{}.d", self.name));
        let file = folder.join("50-AllowedCPUs.conf");
        let settles =
            |line: &str| line.strip_prefix("AllowedCPUs=").is_some_and(|list| !list.trim().is_empty());
        if fs::read_to_string(&file).is_ok_and(|text| !text.lines().any(settles)) {
            let _ = fs::remove_file(&file);
            // Only if nothing else is in it.
            let _ = fs::remove_dir(&folder);
        }
    }

    fn systemctl(&self, words: &[&str]) -> io::Result<Output> {
        let output = Command::new(self.path())
            .args(["--no-ask-password", "--no-pager"])
            .args(words)
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(io::Error::other(format!("systemctl {}: {}: {said}", words.join(" "), output.status)))
    }

    /// The program, below the root as everything.
    fn path(&self) -> PathBuf {
        self.root.path("usr/bin/systemctl")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    /// Plays systemctl: keeps the property in a file, notes how it was called.
    fn machine(body: &str) -> FakeMachine {
        let machine = FakeMachine::intel_server(8);
        let folder = machine.path("").display().to_string();
        let script = format!("#!/bin/sh\ncd '{folder}' || exit 9\necho \"$*\" >>calls\n{body}\n");
        machine.write("usr/bin/systemctl", &script);
        fs::set_permissions(machine.path("usr/bin/systemctl"), Permissions::from_mode(0o755)).unwrap();
        machine.write("property", "");
        machine
    }

    const HONEST: &str = r#"case "$*" in
*set-property*) for last; do :; done; echo "${last#AllowedCPUs=}" | tr , ' ' >property;;
*) echo LoadState=loaded; echo "AllowedCPUs=$(cat property)";;
esac"#;

    #[test]
    fn the_runtime_property_is_set_and_unset() {
        let machine = machine(HONEST);
        let knob = UnitKnob::new(machine.root(), "shop.service");
        assert_eq!(knob.read().unwrap(), "");
        knob.write("1-2,5").unwrap();
        assert_eq!(machine.read("property"), "1-2 5");
        assert_eq!(knob.read().unwrap(), "1-2,5");
        knob.write("").unwrap();
        assert_eq!(knob.read().unwrap(), "");
        let set = "--no-ask-password --no-pager set-property --runtime shop.service AllowedCPUs=";
        assert!(machine.read("calls").contains(&format!("{set}1-2,5\n")), "{}", machine.read("calls"));
        assert!(machine.read("calls").lines().any(|call| call == set), "{}", machine.read("calls"));
    }

    #[test]
    fn a_unit_that_had_no_list_is_freed_before_the_list_is_unset() {
        let machine = machine(HONEST);
        machine.write("sys/devices/system/cpu/possible", "0-7\n");
        let mut knob = crate::knob::Knob::at(machine.root(), "unit/shop.service/AllowedCPUs").unwrap();
        assert_eq!(knob.write("2").unwrap(), "2");
        assert_eq!(knob.give_back("").unwrap(), "");
        let calls = machine.read("calls");
        let set: Vec<&str> =
            calls.lines().filter_map(|call| call.rsplit_once("AllowedCPUs=")).map(|call| call.1).collect();
        assert_eq!(set, ["2", "0-7", ""], "{calls}");
        knob.give_back("1-3").unwrap();
        assert_eq!(machine.read("property"), "1-3");
    }

    #[test]
    fn no_drop_in_stays_that_would_override_an_administrator_later() {
        let machine = machine(HONEST);
        machine.write("sys/devices/system/cpu/possible", "0-7\n");
        let folder = "run/systemd/system.control/shop.service.d";
        let (ours, other) = (format!("{folder}/50-AllowedCPUs.conf"), format!("{folder}/50-CPUWeight.conf"));
        machine.write(&ours, "# by systemctl set-property\n[Service]\nAllowedCPUs=\n");
        machine.write(&other, "[Service]\nCPUWeight=50\n");
        let mut knob = crate::knob::Knob::at(machine.root(), "unit/shop.service/AllowedCPUs").unwrap();
        knob.write("2").unwrap();
        knob.give_back("").unwrap();
        assert!(!machine.path(&ours).exists() && machine.path(&other).exists());

        // What somebody set since is theirs, and a folder with nothing in it goes too.
        machine.write(&ours, "[Service]\nAllowedCPUs=1\n");
        UnitKnob::new(machine.root(), "shop.service").forget();
        assert!(machine.path(&ours).exists());
        machine.remove(&other);
        machine.write(&ours, "[Service]\nAllowedCPUs=\n");
        knob.give_back("").unwrap();
        assert!(!machine.path(folder).exists());
    }

    #[test]
    fn what_systemctl_says_is_passed_on() {
        let refuses = machine("echo 'Access denied' >&2; exit 1");
        let error = UnitKnob::new(refuses.root(), "shop.service").write("1").unwrap_err().to_string();
        assert!(error.contains("Access denied") && error.contains("set-property --runtime"), "{error}");
        let unknown = machine("echo LoadState=not-found; echo AllowedCPUs=");
        let error = UnitKnob::new(unknown.root(), "shop.service").read().unwrap_err();
        assert!(matches!(error, FileError::Missing { .. }), "{error}");
        let old = machine("echo LoadState=loaded");
        let error = UnitKnob::new(old.root(), "shop.service").read().unwrap_err().to_string();
        assert!(error.contains("244"), "{error}");
    }
}
