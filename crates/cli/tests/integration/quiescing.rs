//! `roost quiesce` on this machine's own kernel, with the programs of `roost-bench quiesce`: a
//! client that fetches, and an updater that stands still meanwhile, here by signals.

use crate::fixture::{IdleLimits, ROOST, roost_bench, signal, skipped};
use linux::EndsWithParent as _;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// A server, a client that waits for it, and an updater.
pub struct Example {
    server: Child,
    client: Child,
    updater: Child,
    _client_says: Option<BufReader<ChildStdout>>,
    /// For the control socket.
    folder: tempfile::TempDir,
    /// A run that begins puts back all that dead ones left, of another test as well.
    _limits: IdleLimits,
}

fn part(words: &[&str]) -> (Child, String, BufReader<ChildStdout>) {
    let mut child = Command::new(roost_bench())
        .arg("quiesce-part")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .ends_with_parent()
        .spawn()
        .unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    says.read_line(&mut line).unwrap();
    (child, line.trim().to_owned(), says)
}

impl Example {
    pub fn start() -> Self {
        let (updater, ready, _) = part(&["updater", "--load", "0.3", "--seed", "1"]);
        assert_eq!(ready, "ready");
        // Far more than twenty times what signals take on a machine that is busy.
        let (server, port, _) = part(&["server", "--wait", "400ms"]);
        let (client, _, says) = part(&["client", "--port", &port, "--compute", "1ms"]);
        Self::of(server, client, updater, Some(says))
    }

    fn of(server: Child, client: Child, updater: Child, says: Option<BufReader<ChildStdout>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { server, client, updater, _client_says: says, folder, _limits: IdleLimits::shared() }
    }

    /// The server asks the updater, which is in a cgroup, before it answers.
    fn chain(group: &Group) -> Self {
        let (updater, name, _) = part(&["updater", "--load", "0.3", "--seed", "1", "--answers", "3ms"]);
        fs::write(group.folder.join("cgroup.procs"), updater.id().to_string()).unwrap();
        let (server, port, _) = part(&["server", "--wait", "60ms", "--asks", &name]);
        let (client, _, mut says) = part(&["client", "--port", &port, "--compute", "1ms"]);
        // It writes a line for each response, and would wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut says, &mut std::io::sink()));
        Self::of(server, client, updater, None)
    }

    /// `keys` are others of its table.
    fn quiesce(&self, keys: &str, flags: &[&str]) -> Command {
        let file = self.folder.path().join("quiesce.toml");
        fs::write(&file, format!("[[quiesce]]\nfreezer = \"SIGSTOP\"\nalways = true\n{keys}")).unwrap();
        let mut command = Command::new(ROOST);
        command.args(["quiesce", "--json", "--socket"]).arg(self.folder.path().join("roost.sock"));
        command.args(["--critical", &self.client.id().to_string()]);
        command.args(["--background", &self.updater.id().to_string(), "--config"]).arg(file).args(flags);
        command.stdin(Stdio::null());
        command
    }

    /// What would be frozen, by cgroups where they have a freezer.
    fn dry(&self, background: &str) -> Command {
        let mut command = Command::new(ROOST);
        command.args(["quiesce", "--json", "--socket"]).arg(self.folder.path().join("roost.sock"));
        command.args(["--critical", &self.client.id().to_string()]);
        command.args(["--background", background, "--for", "1ms", "--dry-run"]).stdin(Stdio::null());
        command
    }

    pub fn is_frozen(&self) -> bool {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.updater.id())).unwrap();
        text.rsplit_once(") ").unwrap().1.starts_with('T')
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server, &mut self.updater] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A `roost quiesce` that has frozen; `None` where it cannot see the scheduler's events.
#[expect(clippy::zombie_processes, reason = "the caller waits for it")]
pub fn frozen(
    test: &str,
    example: &Example,
    keys: &str,
    flags: &[&str],
) -> Option<(Child, BufReader<ChildStdout>)> {
    let mut child = example
        .quiesce(keys, flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .ends_with_parent()
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap() == 0 {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(3), "{said}");
            skipped(test, &said);
            return None;
        }
        let told: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(told["format"], 1, "{line}");
        if told["background"][0]["freezes"].as_u64().unwrap() > 0 {
            return Some((child, lines));
        }
    }
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !holds() {
        assert!(std::time::Instant::now() < patience, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn it_freezes_and_leaves_nothing_and_a_second_one_is_refused() {
    const TEST: &str = "it_freezes_and_leaves_nothing_and_a_second_one_is_refused";
    let example = Example::start();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let flags = ["--out", out.to_str().unwrap(), "--metrics", "127.0.0.1:0"];
    let Some((mut first, mut lines)) = frozen(TEST, &example, "", &flags) else { return };
    let second = example.quiesce("", &["--for", "1s"]).output().unwrap();
    assert_eq!(second.status.code(), Some(4), "{}", said(&second));
    assert!(said(&second).contains("roost quiesce (process"), "{}", said(&second));
    let mut stderr = BufReader::new(first.stderr.take().unwrap());
    let mut address = String::new();
    stderr.read_line(&mut address).unwrap();
    let address =
        address.trim().strip_prefix("metrics on http://").unwrap().strip_suffix("/metrics").unwrap();
    let mut page = TcpStream::connect(address).unwrap();
    write!(page, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    page.read_to_string(&mut metrics).unwrap();
    assert!(metrics.contains("roost_quiesce_all_idle_seconds_total{controller=\"quiesce:"), "{metrics}");
    signal(first.id(), "TERM");
    let mut told = String::new();
    lines.read_to_string(&mut told).unwrap();
    assert!(first.wait().unwrap().success());
    until("the end lets it go on", || !example.is_frozen());
    let last: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert!(
        last["cost_is_measured"].as_bool().unwrap() && last["min_wait_us"].as_f64().unwrap() > 0.0,
        "{last}"
    );
    assert_eq!(last["lost"], 0);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("How long all were idle at once"), "a page");
    let numbers: Value =
        serde_json::from_str(&fs::read_to_string(out.join("quiesce.json")).unwrap()).unwrap();
    assert!(numbers["last"]["background"][0]["frozen_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_a_killed_one_froze_is_let_go_by_restore() {
    const TEST: &str = "what_a_killed_one_froze_is_let_go_by_restore";
    let example = Example::start();
    let Some((mut child, _lines)) = frozen(TEST, &example, "max_pause = \"10s\"", &[]) else { return };
    // The client goes on every 400 ms; the moment is caught by stopping it.
    until("it stands still", || {
        let is_frozen = example.is_frozen();
        if is_frozen {
            child.kill().unwrap();
        }
        is_frozen
    });
    child.wait().unwrap();
    let restored = Command::new(ROOST).arg("restore").output().unwrap();
    assert!(restored.status.success(), "{}", said(&restored));
    until("it goes on", || !example.is_frozen());
}

#[test]
fn one_line_says_what_is_wrong_and_nothing_changes() {
    let example = Example::start();
    let client = example.client.id().to_string();
    let own = std::process::id().to_string();
    for (flags, keys, code, word) in [
        (&["--background", "no-such-unit"][..], "", 2, "no-such-unit"),
        (&["--critical", "/no/such/cgroup"], "", 2, "/no/such/cgroup"),
        (&["--background", &client], "", 2, "critical"),
        (&["--background", "1"], "", 4, "process 1"),
        (&["--background", &own], "", 4, "this process is in it"),
        (&[], "domain = \"cluster:99\"", 2, "cluster 0"),
        (&[], "max_pause = \"0s\"", 2, "max_pause = 0"),
        (&[], "max_share = 1.5", 2, "max_share = 1.5"),
        (&[], "trigger = \"accept\"", 2, "listens on a TCP port"),
    ] {
        let output = example.quiesce(keys, &["--for", "1s"]).args(flags).output().unwrap();
        let said = said(&output);
        if output.status.code() == Some(3) {
            skipped("one_line_says_what_is_wrong_and_nothing_changes", &said);
            return;
        }
        assert_eq!(output.status.code(), Some(code), "{flags:?} {keys}: {said}");
        assert!(said.starts_with("roost: ") && said.contains(word), "{flags:?} {keys}: {said}");
        assert!(output.stdout.is_empty() && !example.is_frozen(), "{flags:?}");
    }
    let dry = example.quiesce("", &["--for", "1ms", "--dry-run"]).output().unwrap();
    assert!(matches!(dry.status.code(), Some(0 | 3)), "{}", said(&dry));
    assert!(!example.is_frozen());
}

/// A cgroup of this test's own, in a tree with a freezer. Its processes end, and it goes, with
/// this.
struct Group {
    folder: PathBuf,
    members: Vec<Child>,
}

impl Group {
    /// Below the tree's root; `None` where none may be made.
    fn make(test: &str, name: &str) -> Option<Self> {
        let freezer = linux::cgroups(&linux::Root::system(), &mut linux::Gaps::default()).freezer;
        let Some(place) = freezer else {
            skipped(test, "no cgroup tree with a freezer is mounted here");
            return None;
        };
        let folder = Path::new(&place.path).join(format!("roost-test-{}", std::process::id())).join(name);
        if let Err(error) = fs::create_dir_all(&folder) {
            skipped(test, &format!("{}: {error}", folder.display()));
            return None;
        }
        Some(Self { folder, members: Vec::new() })
    }

    fn path(&self) -> &str {
        self.folder.to_str().unwrap()
    }

    fn tree(&self) -> PathBuf {
        let is_root = |folder: &&Path| !folder.to_str().unwrap().contains("roost-test-");
        self.folder.ancestors().find(is_root).unwrap().to_owned()
    }

    /// A process in it: a program of this name, which waits for its standard input to end.
    fn runs(mut self, programs: &Path, program: &str) -> Self {
        let file = programs.join(program);
        fs::write(&file, "#!/bin/sh\necho ready\nread word\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let join = format!("echo $$ >{}/cgroup.procs; exec {}", self.path(), file.display());
        let mut command = Command::new("sh");
        command.args(["-c", &join]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.ends_with_parent().spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        self.members.push(child);
        self
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
        // Those above it, too, as soon as no other process has one in there.
        let own = |folder: &&Path| folder.to_str().is_some_and(|path| path.contains("roost-test-"));
        for folder in self.folder.ancestors().take_while(own) {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The client waits for the server, which waits for the updater: nothing connects the client with
/// the updater that can be seen.
#[test]
fn what_critical_work_needs_through_a_third_process_is_not_frozen_for_long() {
    const TEST: &str = "what_critical_work_needs_through_a_third_process_is_not_frozen_for_long";
    let Some(group) = Group::make(TEST, "backend") else { return };
    let chain = Example::chain(&group);
    let start = || {
        let mut command = Command::new(ROOST);
        command.args(["quiesce", "--json", "--socket"]).arg(chain.folder.path().join("roost.sock"));
        command.args(["--critical", &chain.client.id().to_string(), "--background"]);
        command
            .arg(&group.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .unwrap()
    };
    let parsed = |line: std::io::Result<String>| serde_json::from_str::<Value>(&line.unwrap()).unwrap();
    // Freezing that was measured beside other work may take so long that no wait of the example
    // counts: then it is measured anew.
    let mut calm = None;
    for _ in 0..60 {
        let mut child = start();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().map(parsed);
        if first.as_ref().is_none_or(|told| told["min_wait_us"].as_f64().unwrap() < 40_000.0) {
            calm = Some((child, lines, first));
            break;
        }
        signal(child.id(), "TERM");
        assert!(child.wait().unwrap().success());
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
    let Some((mut child, mut lines, mut first)) = calm else {
        return skipped(TEST, "freezing a group takes too long beside other work");
    };
    let mut next = || first.take().or_else(|| lines.next().map(parsed));
    let settled = loop {
        let Some(told) = next() else {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(3), "{said}");
            skipped(TEST, &said);
            return;
        };
        if told["payoff"]["is_trying"] == false {
            break told;
        }
    };
    assert_eq!(settled["payoff"]["pays"], false, "{settled}");
    let why = settled["payoff"]["why"].as_str().unwrap();
    let freezes = |told: &Value| told["background"][0]["freezes"].as_u64().unwrap();
    println!("{why} after {} ms and {} freezes", settled["at_ms"], freezes(&settled));
    // Nothing is frozen any more: five more looks, of a minute until it is tried again.
    for _ in 0..5 {
        let told = next().unwrap();
        assert_eq!(
            (freezes(&told), &told["payoff"]["pays"]),
            (freezes(&settled), &Value::Bool(false)),
            "{told}"
        );
        assert_eq!(told["background"][0]["is_frozen"], false, "{told}");
    }
    signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_others_wait_for_is_refused_as_background_and_what_only_sounds_like_it_is_not() {
    const TEST: &str = "what_others_wait_for_is_refused_as_background_and_what_only_sounds_like_it_is_not";
    let example = Example::start();
    let programs = tempfile::tempdir().unwrap();
    let dry = |background: &str| example.dry(background).output().unwrap();
    if dry(&example.updater.id().to_string()).status.code() == Some(3) {
        skipped(TEST, "the scheduler's events cannot be seen here");
        return;
    }
    for (group, program, refused) in [
        ("sshd.service", "worker", Some("it is the way into this machine")),
        ("a/ssh@7-10.0.0.1:22.service", "worker", Some("it is the way into this machine")),
        ("b/systemd-journald.service", "worker", Some("log waits for it")),
        ("b/kubelet.service", "worker", Some("taken for lost")),
        ("work", "systemd-journald", Some("it holds systemd-journal (")),
        ("work", "dbus-daemon", Some("it holds dbus-daemon (")),
        ("work", "dbus-broker-launch", Some("it holds dbus-broker-lau (")),
        ("work", "sshd", Some("it holds sshd (")),
        ("work", "systemd-logind", Some("logins wait for it")),
        ("work", "systemd-udevd", Some("devices wait for it")),
        ("work", "kubelet", Some("taken for lost")),
        ("work", "containerd-shim-runc-v2", Some("containers wait for it")),
        ("work", "crio", Some("containers wait for it")),
        ("work", "dockerd", Some("containers wait for it")),
        ("work", "conmon", Some("containers wait for it")),
        ("my-sshd.service", "worker", None),
        ("sshd.service.d", "sshd-exporter", None),
        ("docker-0123.scope", "podman", None),
    ] {
        let Some(made) = Group::make(TEST, group) else { return };
        let made = made.runs(programs.path(), program);
        let above = made.folder.ancestors().nth(1).unwrap().to_str().unwrap().to_owned();
        let member = made.members[0].id().to_string();
        let mut asked = vec![made.path().to_owned()];
        if group == "work" && refused.is_some() {
            asked.push(member);
        }
        // What is below a group stands still with it.
        asked.extend(refused.map(|_| above));
        for background in asked {
            let output = dry(&background);
            let said = said(&output);
            match refused {
                Some(word) => {
                    assert_eq!(output.status.code(), Some(4), "{group} {program} {background}: {said}");
                    assert!(said.contains(word) && said.contains("systemd-run --unit"), "{program}: {said}");
                }
                None => assert_eq!(output.status.code(), Some(0), "{group} {program}: {said}"),
            }
        }
    }
}

#[test]
fn a_group_from_which_the_command_was_started_is_refused_though_it_has_left_it() {
    const TEST: &str = "a_group_from_which_the_command_was_started_is_refused_though_it_has_left_it";
    let example = Example::start();
    let Some(group) = Group::make(TEST, "session") else { return };
    let (folder, tree) = (group.path(), group.tree());
    let leave = format!("echo \\$\\$ >{}/cgroup.procs; exec \\\"\\$@\\\"", tree.display());
    let script = format!("echo $$ >{folder}/cgroup.procs; sh -c \"{leave}\" - \"$@\"; exit $?");
    let asked = example.dry(folder);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "-"]).arg(ROOST).args(asked.get_args()).stdin(Stdio::null());
    let output = shell.output().unwrap();
    let said = said(&output);
    if output.status.code() == Some(3) {
        skipped(TEST, &said);
        return;
    }
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("this process was started from it, by sh ("), "{said}");
}

#[test]
fn the_slice_of_the_systems_services_is_refused_as_a_whole() {
    const TEST: &str = "the_slice_of_the_systems_services_is_refused_as_a_whole";
    let example = Example::start();
    let programs = tempfile::tempdir().unwrap();
    let Some(probe) = Group::make(TEST, "probe") else { return };
    let folder = probe.tree().join("system.slice");
    let has_been_there = folder.is_dir();
    let mut made = None;
    if !has_been_there {
        fs::create_dir(&folder).unwrap();
        made = Some(Group { folder: folder.clone(), members: Vec::new() }.runs(programs.path(), "worker"));
    }
    let output = example.dry(folder.to_str().unwrap()).output().unwrap();
    drop(made);
    if !has_been_there {
        fs::remove_dir(&folder).unwrap();
    }
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains("all of the system's services"), "{}", said(&output));
}
