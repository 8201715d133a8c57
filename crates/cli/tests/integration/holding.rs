//! One arbiter on a machine: stores and services on the same CPUs. Stores ask the daemon where one
//! runs.

use crate::fixture::{ConfigFile, IdleLimits, ROOST, Server, signal, skipped};
use crate::governing::{Governor, Memcached, cannot};
use linux::EndsWithParent as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What every CPU's limit reads, if it is the same.
fn limit() -> String {
    let read = |cpu: &machine::CpuId| {
        let path = format!("/sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us", cpu.0);
        fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let mut limits: Vec<String> = linux::allowed_cpus().expect("CPUs").0.iter().map(read).collect();
    limits.dedup();
    if limits.len() == 1 { limits.remove(0) } else { format!("{limits:?}") }
}

fn until_limit(wanted: &str) {
    for _ in 0..5000 {
        if limit() == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the limit reads {} and not {wanted}", limit());
}

/// On what the kernel's own unbound work runs, as a mask.
const QUEUES: &str = "/sys/devices/virtual/workqueue/cpumask";

fn queues() -> String {
    fs::read_to_string(QUEUES).expect("a mask").trim().to_owned()
}

fn until_queues(wanted: &str) {
    for _ in 0..5000 {
        if queues() == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the mask reads {} and not {wanted}", queues());
}

/// The `/run/roost` of such a test, one at a time.
const APART_PLACE: &str = "/run/roost-apart";

/// Runs a test once more in a process that sees a `/run/roost` of its own, and is true there: what
/// other tests claim at the same time must not count. The kernel's files are still shared by all, so
/// no other test writes them meanwhile.
pub fn is_apart(test: &str) -> bool {
    const APART: &str = "ROOST_TEST_APART";
    if std::env::var_os(APART).is_some() {
        return true;
    }
    let _alone = IdleLimits::alone();
    for folder in ["/run/roost", APART_PLACE] {
        fs::create_dir_all(folder).expect("a folder for the mount");
    }
    // A test that was killed has left its journals there: its changes go back first.
    let own = "mount --bind \"$0\" /run/roost && \"$1\" restore && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", own, APART_PLACE, ROOST]);
    command.arg(std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--nocapture"]).env(APART, "1");
    let output = command.ends_with_parent().output().expect("unshare runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
    fs::remove_dir_all(APART_PLACE).expect("its folder goes");
    print!("{}", said(&output.stdout));
    false
}

/// Everything to do with a governor lies in a folder of its own.
fn place(folder: &Path, name: &str) -> PathBuf {
    let place = folder.join(name);
    fs::create_dir(&place).expect("a folder");
    place
}

/// A store that asks the governor in `folder`, where one runs.
fn store(folder: &Path) -> Server {
    // A worker on each CPU; polling shows on machines without idle states, too.
    let words = ["serve", "--port", "0", "--policy", "all-awake", "--active-idle", "poll", "--socket"];
    Server::start_command(Command::new(ROOST).args(words).arg(folder.join("govern.sock")))
}

fn governor(folder: &Path, port: u16) -> Governor {
    let port = port.to_string();
    // Whatever idle states there are: the limit is written where the kernel has a file for it.
    let file = ConfigFile::new("epoch = \"50ms\"");
    let flags = ["--port", &port, "--policy", "fixed", "--idle", "70us", "--config", &file];
    let mut governor = Governor::start(folder, &flags);
    governor.until("an epoch", |epoch| epoch["epochs"].as_u64() > Some(1));
    governor
}

fn until_status(governor: &Governor, words: &str) {
    let status = || String::from_utf8(governor.ask(&["status"]).stdout).expect("text");
    for _ in 0..1000 {
        if status().contains(words) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no `{words}` in {}", status());
}

#[test]
fn a_store_and_a_governor_share_the_cpus_in_either_order() {
    if cannot("two holders of one knob") {
        return;
    }
    if !is_apart("holding::a_store_and_a_governor_share_the_cpus_in_either_order") {
        return;
    }
    if limit() != "0" {
        return skipped(
            "two holders of one knob",
            &format!("another program limits these CPUs already: {}", limit()),
        );
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let memcached = Memcached::start(folder.path());

    // The governor first.
    let first = governor(folder.path(), memcached.port);
    until_limit("70");
    let second = store(folder.path());
    until_limit("n/a");
    until_status(&first, "roost serve on");
    assert_eq!(second.terminate().0, Some(0));
    until_limit("70");
    let (code, said) = first.end();
    assert_eq!((code, limit().as_str()), (Some(0), "0"), "{said}");

    // The store first, which asks the governor as soon as there is one; then it is killed.
    let first = store(folder.path());
    until_limit("n/a");
    let second = governor(folder.path(), memcached.port);
    until_status(&second, "roost serve on");
    assert_eq!(limit(), "n/a", "the strictest");
    signal(first.pid(), "KILL");
    until_limit("70");
    drop(first);

    // The governor is killed: the store limits its CPUs itself again, and puts back what the dead
    // one left.
    let store = store(folder.path());
    until_limit("n/a");
    until_status(&second, "roost serve on");
    signal(second.child.id(), "KILL");
    drop(second);
    let third = governor(folder.path(), memcached.port);
    until_status(&third, "roost serve on");
    until_limit("n/a");
    assert_eq!(third.end().0, Some(0));
    until_limit("n/a");
    assert_eq!(store.terminate().0, Some(0));
    assert_eq!(limit(), "0");
}

#[test]
fn two_services_share_the_cpus_and_a_second_daemon_is_refused() {
    if cannot("two governors") {
        return;
    }
    if !is_apart("holding::two_services_share_the_cpus_and_a_second_daemon_is_refused") {
        return;
    }
    if limit() != "0" {
        return skipped("two governors", &format!("another process limits these CPUs already: {}", limit()));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers = ["shop", "cache"].map(|name| Memcached::start(&place(folder.path(), name)));
    let first = governor(folder.path(), servers[0].port);
    until_limit("70");
    let govern = |socket: &str, port: u16| {
        let mut command = Command::new(ROOST);
        command.args([
            "govern",
            "--json",
            "--policy",
            "fixed",
            "--idle",
            "30us",
            "--port",
            &port.to_string(),
        ]);
        command.arg("--socket").arg(folder.path().join(socket)).ends_with_parent();
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut second = govern("govern.sock", servers[1].port).spawn().expect("roost runs");
    until_limit("30");
    for words in ["exit latency <= 30.0us", "exit latency <= 70.0us", "active"] {
        until_status(&first, words);
    }
    // It is killed: it asks for nothing any more.
    signal(second.id(), "KILL");
    second.wait().expect("it is dead");
    until_limit("70");

    // The same service twice is what cannot be shared, and so are the knobs between two daemons.
    for (socket, port) in [("govern.sock", servers[0].port), ("another.sock", servers[1].port)] {
        let output = govern(socket, port).args(["--for", "1s"]).stderr(Stdio::piped()).output();
        let output = output.expect("roost runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains(&format!("roost govern (process {})", first.child.id())), "{said}");
    }
    assert_eq!(limit(), "70");
    let (code, said) = first.end();
    assert_eq!((code, limit().as_str()), (Some(0), "0"), "{said}");
}

#[test]
fn what_another_process_needs_is_not_parked() {
    if cannot("what is needed and parked") || !is_apart("holding::what_another_process_needs_is_not_parked") {
        return;
    }
    let before = match fs::read_to_string(QUEUES).and_then(|mask| fs::write(QUEUES, &mask).map(|()| mask)) {
        Ok(mask) => mask.trim().to_owned(),
        Err(error) => return skipped("what is needed and parked", &format!("{QUEUES}: {error}")),
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let memcached = Memcached::start(folder.path());
    let port = memcached.port.to_string();
    // No request comes, so one core is enough, and all other work has to leave the other.
    let file = ConfigFile::new("epoch = \"50ms\"\npark = \"all\"");
    let flags = ["--port", &port, "--goal", "10s@p99", "--config", &file];
    let govern = || {
        let mut governor = Governor::start(folder.path(), &flags);
        governor.until("one core", |epoch| epoch["cpus"].as_array().is_some_and(|cpus| cpus.len() == 1));
        governor
    };

    // A store with a worker on each CPU comes and is killed.
    let mut governor = govern();
    governor.until("an epoch", |_| true);
    let alone = queues();
    assert_ne!(alone, before, "one CPU is parked for all");
    let first = store(folder.path());
    until_queues(&before);
    let status = String::from_utf8(governor.ask(&["status"]).stdout).expect("text");
    let line = status.lines().find(|line| line.contains(&format!("({})", first.pid()))).unwrap_or(&status);
    assert!(line.contains("active") && line.contains("roost serve on"), "{status}");
    signal(first.pid(), "KILL");
    until_queues(&alone);
    assert_eq!(governor.end().0, Some(0));
    assert_eq!(queues(), before);

    // The store comes first: a governor parks nothing before it knows what the store needs.
    let second = store(folder.path());
    let mut governor = govern();
    until_status(&governor, "roost serve on");
    governor.until("an epoch", |_| true);
    assert_eq!(queues(), before, "all are needed");
    signal(second.pid(), "KILL");
    drop(second);
    until_queues(&alone);
    signal(governor.child.id(), "KILL");
    drop(governor);
    let restored = Command::new(ROOST).arg("restore").output().expect("roost runs");
    assert_eq!((restored.status.code(), queues()), (Some(0), before), "{restored:?}");
}

#[test]
fn a_hostile_peer_does_not_keep_a_governor_from_its_epochs() {
    if cannot("a hostile peer")
        || !is_apart("holding::a_hostile_peer_does_not_keep_a_governor_from_its_epochs")
    {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let memcached = Memcached::start(folder.path());
    let mut governor = governor(folder.path(), memcached.port);
    let socket = folder.path().join("govern.sock");
    let knobs = b"{\"knobs\":{\"asker\":\"flood\",\"idle\":[]}}\n";
    let mut half = UnixStream::connect(&socket).expect("it listens");
    half.write_all(knobs).expect("heard");
    half.write_all(b"{\"knobs\":{\"asker\":\"half").expect("heard");
    let mut garbage = UnixStream::connect(&socket).expect("it listens");
    let _ = garbage.write_all(&vec![0xff; 1 << 20]);
    // And one that asks and asks, and reads nothing.
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flood = {
        let over = std::sync::Arc::clone(&over);
        std::thread::spawn(move || {
            let lines = knobs.repeat(100);
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let Ok(mut stream) = UnixStream::connect(&socket) else { return };
                let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
                let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
                while stream.write_all(&lines).is_ok() && !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = stream.read(&mut [0; 16]);
                }
            }
        })
    };
    let began = Instant::now();
    for _ in 0..40 {
        governor.until("an epoch", |_| true);
    }
    // Forty epochs are two seconds; a peer's patience for each of them would be forty.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    flood.join().expect("it ends");
    drop((half, garbage));
    let status = governor.ask(&["status"]);
    assert_eq!(status.status.code(), Some(0));
    let (code, said) = governor.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn who_may_only_look_is_told_so_when_it_changes_something() {
    if cannot("an unprivileged question") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let memcached = Memcached::start(folder.path());
    let governor = governor(folder.path(), memcached.port);
    let name = format!("port-{}", memcached.port);
    let socket = folder.path().join("govern.sock");
    let nobody = |words: &[&str]| {
        let mut command = Command::new(ROOST);
        command.args(words).arg("--socket").arg(&socket).current_dir("/");
        command.uid(65534).gid(65534).output()
    };
    let Ok(status) = nobody(&["status"]) else {
        return skipped("an unprivileged question", &format!("the user `nobody` cannot run {ROOST}"));
    };
    assert_eq!(status.status.code(), Some(0), "every user may look: {status:?}");
    let set = nobody(&["pause", &name]).expect("it ran before");
    let said = String::from_utf8_lossy(&set.stderr).into_owned();
    assert_eq!(set.status.code(), Some(4), "{said}");
    assert!(said.contains("only the daemon's own user and root may change something: use sudo"), "{said}");
    // A socket that is not open to all says so, too, and not that no process listens.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).expect("ours");
    let status = nobody(&["status"]).expect("it ran before");
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert_eq!(status.status.code(), Some(4), "{said}");
    assert!(said.contains("may not be asked by this user"), "{said}");
    assert_eq!(governor.end().0, Some(0));
}
