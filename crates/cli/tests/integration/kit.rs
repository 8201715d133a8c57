//! `roost prove --kit`: however it ends, the machine is as it was, and the archive reads.

use crate::fixture::{IdleLimits, ROOST, signal, skipped};
use linux::EndsWithParent as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

struct Kit {
    child: Child,
    said: BufReader<ChildStderr>,
    archive: PathBuf,
}

impl Kit {
    fn start(folder: &Path) -> Self {
        let archive = folder.join("kit.tar.gz");
        let mut command = Command::new(ROOST);
        command.args(["prove", "--kit", "1m", "--meter", "echo 7 secret", "--out"]).arg(&archive);
        command.arg("--").arg("--socket").arg(folder.join("s"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).ends_with_parent();
        let mut child = command.spawn().expect("roost starts");
        let said = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, said, archive }
    }

    /// Reads on until it says this; nothing if it ends before.
    fn until(&mut self, words: &str) -> Option<String> {
        self.said.by_ref().lines().map(|line| line.expect("text")).find(|line| line.contains(words))
    }

    /// Its exit code; nothing if a signal ended it.
    fn end(mut self) -> Option<i32> {
        // It may still have much to say.
        self.said.by_ref().lines().for_each(drop);
        self.child.wait().expect("it ends").code()
    }

    fn report(archive: &Path) -> String {
        let output = Command::new(ROOST).arg("report").arg(archive).arg("--json").output();
        let output = output.expect("roost runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// Everything by which idle states are limited here.
fn limits() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for cpu in linux::allowed_cpus().expect("CPUs").0 {
        let folder = PathBuf::from(format!("/sys/devices/system/cpu/cpu{}", cpu.0));
        files.push(folder.join("power/pm_qos_resume_latency_us"));
        files.extend((0..16).map(|state| folder.join(format!("cpuidle/state{state}/disable"))));
    }
    files.push(PathBuf::from("/sys/module/haltpoll/parameters/guest_halt_poll_ns"));
    let read = |file: PathBuf| fs::read_to_string(&file).ok().map(|text| (file, text));
    files.into_iter().filter_map(read).collect()
}

/// A run whose idle states are limited now; nothing where they cannot be.
fn limited(folder: &Path, before: &[(PathBuf, String)], test: &str) -> Option<Kit> {
    let mut kit = Kit::start(folder);
    kit.until("idle power by state").expect("the part begins");
    let second = kit.until(" of ").and_then(|_| kit.until("2 of"));
    // It takes more than a second, most of it in force.
    std::thread::sleep(Duration::from_millis(500));
    if second.is_none() || limits() == before {
        skipped(test, "no idle state can be limited here");
        return None;
    }
    Some(kit)
}

#[test]
fn a_signal_puts_all_back_and_leaves_the_parts_that_were_done() {
    let _alone = IdleLimits::alone();
    let (folder, before) = (tempfile::tempdir().expect("a folder"), limits());
    let Some(kit) = limited(folder.path(), &before, "a kit that a signal ends") else { return };
    signal(kit.child.id(), "INT");
    let archive = kit.archive.clone();
    assert_eq!(kit.end(), Some(0));
    assert_eq!(limits(), before);
    let page = Kit::report(&archive);
    for words in ["A signal ended the run", "ended early", "not begun", "command 1"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!page.contains("secret"), "a meter's words are in the archive: {page}");
}

#[test]
fn after_a_kill_roost_restore_puts_all_back() {
    let _alone = IdleLimits::alone();
    let (folder, before) = (tempfile::tempdir().expect("a folder"), limits());
    let Some(kit) = limited(folder.path(), &before, "a kit that is killed") else { return };
    signal(kit.child.id(), "KILL");
    let archive = kit.archive.clone();
    assert_eq!(kit.end(), None);
    assert!(limits() != before, "a kill leaves the limits");
    let restored = Command::new(ROOST).arg("restore").output().expect("roost runs");
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(limits(), before);
    assert!(Kit::report(&archive).contains("wake-up times"), "the parts that were done are kept");
}

#[test]
fn a_file_that_is_neither_page_nor_archive_is_named_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kit.tar.gz");
    fs::write(&file, [0xff, 0xfe, 0x00, 0x80].repeat(100)).expect("written");
    let output = Command::new(ROOST).arg("report").arg(&file).output().expect("roost runs");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("neither a page's figures as JSON nor an archive"), "{said}");
}
