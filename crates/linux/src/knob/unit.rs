//! `AllowedCPUs=` of a systemd unit, as a runtime property.
//!
//! Where systemd owns the tree of cgroups it also rewrites it, so the change goes through systemd:
//! `systemctl set-property --runtime UNIT AllowedCPUs=LIST`. Only the runtime copy below `/run` is
//! changed. An unset property reads as an empty text, and setting it to that unsets it.
//!
//! systemd keeps a given list in a drop-in below `/run/systemd/system.control`, an empty one too;
//! and that file overrides every drop-in of the administrator's in `/etc/systemd/system`. So it is
//! taken away again where there was none before. Where a unit had no list, it goes with the list.
//! Where a unit had one, from a file of its own or of the administrator's, it is a knob of its own
//! ([`DropInKnob`]), after systemd was given that list back.
//!
//! systemctl gets at most ten seconds. A systemd that does not answer must not stop the daemon.

use crate::root::{FileError, Root};
use machine::CpuList;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The beginning and the end of the path of a unit's property in a journal.
const UNIT: &str = "unit/";
const PROPERTY: &str = "/AllowedCPUs";
const DROP_IN: &str = "/AllowedCPUs-drop-in";

/// The text of a missing drop-in.
pub(crate) const NO_DROP_IN: &str = "absent";

/// How long systemctl may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The path of this unit's property in a journal.
pub(crate) fn path_of(unit: &str) -> String {
    format!("{UNIT}{unit}{PROPERTY}")
}

/// The unit in such a path. It becomes an argument of a command, so only characters that systemd
/// allows in a name pass.
pub(super) fn name_in(path: &str) -> Option<&str> {
    let name = path.strip_prefix(UNIT)?.strip_suffix(PROPERTY)?;
    is_unit(name).then_some(name)
}

/// The path of this unit's runtime drop-in in a journal.
pub(crate) fn drop_in_of(unit: &str) -> String {
    format!("{UNIT}{unit}{DROP_IN}")
}

/// The unit in such a path.
pub(super) fn drop_in_name(path: &str) -> Option<&str> {
    let name = path.strip_prefix(UNIT)?.strip_suffix(DROP_IN)?;
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

    /// Gives it every CPU. Unsetting alone is not enough: systemd empties the `cpuset.cpus` of the
    /// unit's cgroup then, which the kernel refuses while it has processes (systemd issue 43846),
    /// and they stay where they were.
    pub(super) fn free(&self, root: &Root) -> Result<(), FileError> {
        self.write(&root.text("sys/devices/system/cpu/possible")?)
    }

    /// Takes away the drop-in that says "no list", which must be ours where there was none before.
    /// systemd itself knows no list by then; until its next `daemon-reload` it says that a file has
    /// changed.
    pub(super) fn forget(&self) {
        let file = drop_in(&self.root, &self.name);
        let settles =
            |line: &str| line.strip_prefix("AllowedCPUs=").is_some_and(|list| !list.trim().is_empty());
        if fs::read_to_string(&file).is_ok_and(|text| !text.lines().any(settles)) {
            let _ = remove(&file);
        }
    }

    fn systemctl(&self, words: &[&str]) -> io::Result<Output> {
        let mut command = Command::new(self.path());
        command.args(["--no-ask-password", "--no-pager"]).args(words);
        let output = output_within(&mut command, PATIENCE).map_err(|cause| match cause.kind() {
            io::ErrorKind::TimedOut => io::Error::new(
                cause.kind(),
                format!("systemctl {} did not answer within {} s", words.join(" "), PATIENCE.as_secs()),
            ),
            _ => cause,
        })?;
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

/// The file in which systemd keeps the given list for this boot.
fn drop_in(root: &Root, unit: &str) -> PathBuf {
    root.path(&format!("run/systemd/system.control/{unit}.d/50-AllowedCPUs.conf"))
}

fn remove(file: &Path) -> io::Result<()> {
    fs::remove_file(file)?;
    // Only if nothing else is in its folder.
    let _ = file.parent().map(fs::remove_dir);
    Ok(())
}

/// That file: its text is the list in it, or [`NO_DROP_IN`]. Only systemd writes it; we can only
/// take it away, after which systemd keeps its list until it reads its files again.
#[derive(Debug)]
pub(super) struct DropInKnob(PathBuf);

impl DropInKnob {
    pub(super) fn new(root: &Root, name: &str) -> Self {
        Self(drop_in(root, name))
    }

    pub(super) fn read(&self) -> Result<String, FileError> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(NO_DROP_IN.to_owned()),
            Err(cause) => return Err(FileError::Unreadable { path: self.0.clone(), cause }),
        };
        let mut lists = text.lines().filter_map(|line| line.strip_prefix("AllowedCPUs="));
        let list =
            lists.next_back().unwrap_or_default().split_ascii_whitespace().collect::<Vec<_>>().join(",");
        Ok(list.parse::<CpuList>().map_or(list, |cpus| cpus.to_string()))
    }

    pub(super) fn write(&self, value: &str) -> Result<(), FileError> {
        let unwritable =
            |cause| FileError::Unwritable { path: self.0.clone(), value: value.to_owned(), cause };
        if value != NO_DROP_IN {
            return Err(unwritable(io::Error::from(io::ErrorKind::Unsupported)));
        }
        match remove(&self.0) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(unwritable(cause)),
            _ => Ok(()),
        }
    }
}

/// A command's output, which must be short; the command is killed if it takes longer than
/// `patience`.
fn output_within(command: &mut Command, patience: Duration) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() >= patience {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    /// Plays systemctl: keeps the property in a file, notes its calls.
    fn machine(body: &str) -> FakeMachine {
        let machine = FakeMachine::intel_server(8);
        let folder = machine.path("").display().to_string();
        let script = format!("#!/bin/sh\ncd '{folder}' || exit 9\necho \"$*\" >>calls\n{body}\n");
        machine.program("usr/bin/systemctl", &script);
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

        // A list that was set since stays, and an empty folder goes too.
        machine.write(&ours, "[Service]\nAllowedCPUs=1\n");
        UnitKnob::new(machine.root(), "shop.service").forget();
        assert!(machine.path(&ours).exists());
        machine.remove(&other);
        machine.write(&ours, "[Service]\nAllowedCPUs=\n");
        knob.give_back("").unwrap();
        assert!(!machine.path(folder).exists());
    }

    #[test]
    fn a_systemctl_that_does_not_answer_is_given_up() {
        let error = output_within(Command::new("sleep").arg("600"), Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let output = output_within(Command::new("echo").arg("text"), Duration::from_secs(60)).unwrap();
        assert_eq!(output.stdout, b"text\n");
    }

    #[test]
    fn a_drop_in_reads_its_list_and_can_only_be_taken_away() {
        let machine = FakeMachine::intel_server(8);
        let file = "run/systemd/system.control/shop.service.d/50-AllowedCPUs.conf";
        let mut knob = crate::knob::Knob::at(machine.root(), &drop_in_of("shop.service")).unwrap();
        assert_eq!(knob.read().unwrap(), NO_DROP_IN);
        machine.write(file, "# by systemctl set-property\n[Service]\nAllowedCPUs=\nAllowedCPUs=1 2 3 5\n");
        assert_eq!(knob.read().unwrap(), "1-3,5");
        assert!(knob.write("4").is_err());
        assert_eq!(knob.give_back(NO_DROP_IN).unwrap(), NO_DROP_IN);
        assert!(!machine.path(file).exists());
        knob.write(NO_DROP_IN).unwrap();
        assert!(crate::knob::Knob::at(machine.root(), "unit/../x.service/AllowedCPUs-drop-in").is_none());
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
