//! The folder of locks and journals: the powers of another user there, and the files that are believed.

use crate::fixture::{ROOST, is_installed, signal, skipped};
use crate::putting_back::{limits, machine, restore, start, wait_for_limits};
use linux::EndsWithParent as _;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const NOBODY: u32 = 65534;

/// True where this test may not be another user.
fn cannot(test: &str) -> bool {
    let reason = if fs::metadata("/proc/self").unwrap().uid() != 0 {
        "only root can be another user"
    } else if !is_installed("setpriv") || !is_installed("flock") {
        "setpriv and flock are not installed"
    } else {
        return false;
    };
    skipped(test, reason);
    true
}

/// A made-up machine into which every user may look.
fn open_machine() -> tempfile::TempDir {
    let machine = machine();
    fs::set_permissions(machine.path(), fs::Permissions::from_mode(0o755)).unwrap();
    machine
}

/// Its folder as systemd makes it by default, locked by the user `nobody` for as long as the child
/// lives.
fn locked_by_nobody(root: &Path) -> Child {
    let folder = root.join("run/roost");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "flock"])
        .arg(&folder)
        .args(["sh", "-c", "echo locked; exec sleep 600"])
        .stdout(Stdio::piped())
        .ends_with_parent()
        .spawn()
        .unwrap();
    let mut said = [0; 7];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(&said, b"locked\n");
    child
}

#[test]
fn another_users_lock_on_the_folder_stops_neither_a_start_nor_restore() {
    if cannot("a lock of another user's") {
        return;
    }
    let machine = open_machine();
    let mut stranger = locked_by_nobody(machine.path());
    let server = start(machine.path(), &["--policy", "all-awake"]);
    wait_for_limits(machine.path(), "2");
    signal(server.pid(), "KILL");
    drop(server);
    let (code, said) = restore(machine.path());
    assert_eq!(code, Some(0), "{said}");
    assert!(limits(machine.path()).iter().all(|limit| limit == "0"), "{said}");
    assert!(stranger.try_wait().unwrap().is_none(), "it holds its lock still");
    let mode = fs::metadata(machine.path().join("run/roost")).unwrap().mode() & 0o7777;
    assert_eq!(mode, 0o711, "no other user can open the folder any longer");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// `roost serve` that is to be refused.
fn refused(root: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(ROOST);
    command.args(["serve", "--port", "0", "--memory-limit", "64m", "--root"]).arg(root);
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_folder_of_another_users_is_neither_used_nor_believed() {
    if cannot("a folder of another user's") {
        return;
    }
    let machine = open_machine();
    let folder = machine.path().join("run/roost");
    let server = start(machine.path(), &["--policy", "all-awake"]);
    wait_for_limits(machine.path(), "2");
    signal(server.pid(), "KILL");
    drop(server);
    chown(&folder, Some(NOBODY), None).unwrap();
    let output = Command::new(ROOST).args(["restore", "--root"]).arg(machine.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("belongs to user 65534") && said.contains("hint:"), "{said}");
    assert!(limits(machine.path()).iter().all(|limit| limit == "2"), "nothing is put back on its word");
    let (code, said) = refused(machine.path());
    assert_eq!(code, Some(4), "{said}");
    // Given back, it is believed again, but for a journal that is another user's.
    chown(&folder, Some(0), None).unwrap();
    let journals = fs::read_dir(&folder).unwrap().flatten().map(|file| file.path());
    let journal = journals.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "journal"));
    let journal = journal.expect("the killed store's");
    chown(&journal, Some(NOBODY), None).unwrap();
    let (code, said) = restore(machine.path());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("belongs to user 65534"), "{said}");
    assert!(limits(machine.path()).iter().all(|limit| limit == "2"), "{said}");
    chown(&journal, Some(0), None).unwrap();
    let (code, said) = restore(machine.path());
    assert_eq!(code, Some(0), "{said}");
    assert!(limits(machine.path()).iter().all(|limit| limit == "0"), "{said}");
}

#[test]
fn a_link_in_place_of_a_lock_leads_nowhere() {
    let machine = machine();
    let folder = machine.path().join("run/roost");
    fs::create_dir_all(&folder).unwrap();
    let precious = machine.path().join("precious");
    fs::write(&precious, "text").unwrap();
    let cpu = linux::allowed_cpus().unwrap().0.first().unwrap().0;
    symlink(&precious, folder.join(format!("cpu{cpu}.lock"))).unwrap();
    let (code, said) = refused(machine.path());
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("is a link"), "{said}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
}

#[test]
fn a_user_has_a_folder_of_its_own() {
    if cannot("a user's own folder") {
        return;
    }
    let own = tempfile::tempdir().unwrap();
    let program = own.path().join("roost");
    fs::copy(ROOST, &program).unwrap();
    for path in [own.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let runtime = own.path().join("runtime");
    fs::create_dir(&runtime).unwrap();
    chown(&runtime, Some(NOBODY), None).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .arg("restore")
        .env("XDG_RUNTIME_DIR", &runtime)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(runtime.join("roost").to_str().unwrap()), "{said}");
}
