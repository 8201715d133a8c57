//! One holder per knob: stores and governors on the same CPUs. Whoever comes second asks who came first.

use crate::fixture::{IdleLimits, ROOST, Server, signal, skipped};
use crate::governing::{Governor, Memcached, cannot};
use linux::EndsWithParent as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// Runs a test once more in a process that sees a `/run/roost` of its own, and is true there: what other tests claim at the same
/// time must not count. The kernel's files are still everybody's, so no other test writes them meanwhile.
pub fn is_apart(test: &str) -> bool {
    const APART: &str = "ROOST_TEST_APART";
    if std::env::var_os(APART).is_some() {
        return true;
    }
    let _alone = IdleLimits::alone();
    fs::create_dir_all("/run/roost").expect("a folder for the mount");
    let own = "mount -t tmpfs -o mode=711 roost /run/roost && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", own]).arg(std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--nocapture"]).env(APART, "1");
    // What is killed with this test has no journal left in a folder that went with it: it must put back by itself.
    let output = command.ends_with_parent().output().expect("unshare runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
    print!("{}", said(&output.stdout));
    false
}

/// Everything to do with a governor lies in a folder of its own.
fn place(folder: &Path, name: &str) -> PathBuf {
    let place = folder.join(name);
    fs::create_dir(&place).expect("a folder");
    place
}

fn store() -> Server {
    // A worker on each CPU; polling shows on machines without idle states, too.
    let mut command = Command::new(ROOST);
    Server::start_command(command.args([
        "serve",
        "--port",
        "0",
        "--policy",
        "all-awake",
        "--active-idle",
        "poll",
    ]))
}

fn governor(folder: &Path, port: u16) -> Governor {
    governor_of(folder, port, "70us")
}

fn governor_of(folder: &Path, port: u16, idle: &str) -> Governor {
    let port = port.to_string();
    // Whatever idle states there are: the limit is written where the kernel has a file for it.
    let flags = ["--port", &port, "--policy", "fixed", "--idle", idle, "--epoch", "50ms"];
    let mut governor = Governor::start(folder, &flags);
    governor.until("an epoch", |epoch| epoch["epochs"].as_u64() > Some(1));
    governor
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
            &format!("somebody limits these CPUs already: {}", limit()),
        );
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let memcached = Memcached::start(folder.path());

    // The governor first.
    let first = governor(folder.path(), memcached.port);
    until_limit("70");
    let second = store();
    until_limit("n/a");
    let status = String::from_utf8(first.ask(&["status"]).stdout).expect("text");
    assert!(status.contains("roost serve on"), "{status}");
    assert_eq!(second.terminate().0, Some(0));
    until_limit("70");
    let (code, said) = first.end();
    assert_eq!((code, limit().as_str()), (Some(0), "0"), "{said}");

    // The store first; then it is killed, and the governor takes over what it held.
    let first = store();
    until_limit("n/a");
    let second = governor(folder.path(), memcached.port);
    assert_eq!(limit(), "n/a", "the strictest");
    signal(first.pid(), "KILL");
    until_limit("70");
    let (code, said) = second.end();
    assert_eq!((code, limit().as_str()), (Some(0), "0"), "{said}");
    assert!(said.contains("is asked for idle limits") && said.contains("seen to anew"), "{said}");
}

#[test]
fn two_governors_share_the_cpus_and_the_survivor_takes_over() {
    if cannot("two governors") {
        return;
    }
    if !is_apart("holding::two_governors_share_the_cpus_and_the_survivor_takes_over") {
        return;
    }
    if limit() != "0" {
        return skipped("two governors", &format!("somebody limits these CPUs already: {}", limit()));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers = ["shop", "cache"].map(|name| {
        let place = place(folder.path(), name);
        (Memcached::start(&place), place)
    });
    let govern = |at: usize, idle| governor_of(&servers[at].1, servers[at].0.port, idle);

    // Each asks for its own service, in this order and in the other.
    for (holds, asks) in [(0, 1), (1, 0)] {
        let (first, second) = (govern(holds, "70us"), govern(asks, "30us"));
        until_limit("30");
        let status = String::from_utf8(first.ask(&["status"]).stdout).expect("text");
        let theirs = format!("roost govern ({})", second.child.id());
        assert!(status.contains(&theirs) && status.contains("exit latency <= 30.0us"), "{status}");
        assert!(status.contains("exit latency <= 70.0us") && status.contains("active"), "{status}");
        let status = String::from_utf8(second.ask(&["status"]).stdout).expect("text");
        assert!(
            status.contains(&format!("as roost govern (process {}) has it", first.child.id())),
            "{status}"
        );

        // The asker is killed: it asks for nothing any more.
        signal(second.child.id(), "KILL");
        until_limit("70");
        // One that comes again asks again; then the holder is killed.
        let second = govern(asks, "30us");
        until_limit("30");
        signal(first.child.id(), "KILL");
        drop(first);
        let mut survivor = second;
        survivor.until("the survivor to go on", |epoch| epoch["mode"] == "searching");
        let third = govern(holds, "20us");
        until_limit("20");
        let status = String::from_utf8(survivor.ask(&["status"]).stdout).expect("text");
        assert!(
            status.contains(&format!("roost govern ({})", third.child.id())),
            "it holds them now: {status}"
        );
        assert_eq!(third.end().0, Some(0));
        until_limit("30");
        let (code, said) = survivor.end();
        assert_eq!((code, limit().as_str()), (Some(0), "0"), "{said}");
        assert!(said.contains("seen to anew"), "{said}");
    }

    // The same service twice is what cannot be shared.
    let first = govern(0, "70us");
    let port = servers[0].0.port.to_string();
    let mut again = Command::new(ROOST);
    again.args(["govern", "--port", &port, "--for", "1s", "--socket"]).arg(servers[1].1.join("again.sock"));
    let output = again.output().expect("roost runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert_eq!(first.end().0, Some(0));
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
    // Nobody asks for anything, so one core is enough, and everybody else shall leave the other.
    let flags = ["--port", &port, "--goal", "10s@p99", "--epoch", "50ms", "--park-all"];
    let govern = || {
        let mut governor = Governor::start(folder.path(), &flags);
        governor.until("one core", |epoch| epoch["cpus"].as_array().is_some_and(|cpus| cpus.len() == 1));
        governor
    };

    // The governor keeps the register; a store with a worker on each CPU comes and is killed.
    let mut governor = govern();
    governor.until("an epoch", |_| true);
    let alone = queues();
    assert_ne!(alone, before, "one CPU is parked for everybody");
    let first = store();
    until_queues(&before);
    let status = String::from_utf8(governor.ask(&["status"]).stdout).expect("text");
    let line = status.lines().find(|line| line.contains(&format!("({})", first.pid()))).unwrap_or(&status);
    assert!(line.contains("active") && line.contains("roost serve on"), "{status}");
    signal(first.pid(), "KILL");
    until_queues(&alone);
    assert_eq!(governor.end().0, Some(0));
    assert_eq!(queues(), before);

    // The store keeps it, and tells everybody where to be for a governor that asks; the governor is killed.
    let second = store();
    let mut governor = govern();
    governor.until("an epoch", |_| true);
    assert_eq!(queues(), before, "all are needed");
    signal(second.pid(), "KILL");
    drop(second);
    // It takes over, and parks when those who may have to come had their time.
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
    let prefix = format!("holder-{}-", governor.child.id());
    let files = fs::read_dir("/run/roost").expect("a folder").flatten();
    let own = files.filter(|file| file.file_name().to_string_lossy().starts_with(&prefix));
    let sockets: Vec<PathBuf> = own.map(|file| file.path()).collect();
    assert_eq!(sockets.len(), 2, "it holds idle limits, and which CPUs are needed");
    let mut peers = Vec::new();
    for socket in &sockets {
        let mut half = UnixStream::connect(socket).expect("it listens");
        half.write_all(b"{\"v\":1,\"asker\":\"half").expect("heard");
        let mut garbage = UnixStream::connect(socket).expect("it listens");
        let _ = garbage.write_all(&vec![0xff; 1 << 20]);
        peers.extend([half, garbage]);
    }
    // And one that asks and asks, and reads nothing.
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let floods: Vec<_> = sockets
        .iter()
        .map(|socket| {
            let (socket, over) = (socket.clone(), std::sync::Arc::clone(&over));
            std::thread::spawn(move || {
                let lines = b"{\"v\":1,\"asker\":\"flood\",\"ask\":\"needed\"}\n".repeat(100);
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let Ok(mut stream) = UnixStream::connect(&socket) else { return };
                    let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
                    while stream.write_all(&lines).is_ok() && !over.load(std::sync::atomic::Ordering::Relaxed)
                    {
                        let _ = stream.read(&mut [0; 16]);
                    }
                }
            })
        })
        .collect();
    let began = Instant::now();
    for _ in 0..40 {
        governor.until("an epoch", |_| true);
    }
    // Forty epochs are two seconds; a peer's patience for each of them would be forty.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().expect("it ends"));
    drop(peers);
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
        return skipped("an unprivileged question", &format!("nobody cannot run {ROOST}"));
    };
    assert_eq!(status.status.code(), Some(0), "everybody may look: {status:?}");
    let set = nobody(&["pause", &name]).expect("it ran before");
    let said = String::from_utf8_lossy(&set.stderr).into_owned();
    assert_eq!(set.status.code(), Some(4), "{said}");
    assert!(said.contains("only the daemon's own user and root may change something: use sudo"), "{said}");
    // A socket that is not everybody's says so, too, and not that nobody listens.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).expect("ours");
    let status = nobody(&["status"]).expect("it ran before");
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert_eq!(status.status.code(), Some(4), "{said}");
    assert!(said.contains("may not be asked by this user"), "{said}");
    assert_eq!(governor.end().0, Some(0));
}
