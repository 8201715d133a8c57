//! Every signal that ends a process, sent to every command that changes the machine or holds what
//! is a client's: each ends as by SIGTERM, and puts back.

use crate::fixture::{ConfigFile, IdleLimits, ROOST, signal, skipped};
use crate::governing::{Governor, Memcached, cannot};
use crate::putting_back::{limits, machine, start, wait_for_limits};
use crate::quiescing::{self, Example};
use crate::staging::{self, Stage};
use crate::terminal::Terminal;
use crate::waking::{self, Planner};
use linux::EndsWithParent as _;
use machine::Duration;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

/// All whose default is to end the process, but for SIGKILL, faults and SIGPIPE, which is ignored.
pub const SIGNALS: [&str; 11] =
    ["HUP", "INT", "TERM", "QUIT", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU", "XFSZ"];

/// Those that end a command with controllers. SIGXCPU makes its real-time threads ordinary ones:
/// `leasing::a_real_time_thread_that_does_not_pause_ends_no_daemon`.
pub fn ending_controllers() -> impl Iterator<Item = &'static str> {
    SIGNALS.into_iter().filter(|name| *name != "XCPU")
}

#[test]
fn a_store_puts_back_saves_and_ends_on_every_signal() {
    for name in SIGNALS {
        let machine = machine();
        let (state, socket) = (machine.path().join("learned"), machine.path().join("store.sock"));
        let flags = ["--policy", "all-awake", "--state", state.to_str().unwrap(), "--listen", "127.0.0.1"];
        let place = format!("unix:{}", socket.display());
        let flags = [&flags[..], &["--listen", &place]].concat();
        let server = start(machine.path(), &flags);
        wait_for_limits(machine.path(), "2");
        assert!(socket.exists());
        // Whatever it writes when it begins does not count.
        let _ = fs::remove_file(&state);
        let (code, _) = server.end_by(name);
        assert_eq!(code, Some(0), "SIG{name}");
        let after = limits(machine.path());
        assert!(after.iter().all(|limit| limit == "0"), "SIG{name}: {after:?}");
        assert!(!socket.exists(), "SIG{name}: the socket is gone");
        assert!(state.exists(), "SIG{name}: what was learned is kept");
        let journals = fs::read_dir(machine.path().join("run/roost")).unwrap().flatten();
        let left = journals.filter(|file| file.path().extension().is_some_and(|kind| kind == "journal"));
        assert_eq!(left.count(), 0, "SIG{name}");
    }
}

#[test]
fn a_signal_that_nohup_takes_away_ends_nothing() {
    let machine = machine();
    let mut command = Command::new("nohup");
    command.arg(ROOST).args(["serve", "--port", "0", "--memory-limit", "64m", "--policy", "all-awake"]);
    command.arg("--root").arg(machine.path()).stderr(Stdio::null());
    let server = crate::fixture::Server::start_command(&mut command);
    wait_for_limits(machine.path(), "2");
    signal(server.pid(), "HUP");
    // A signal is dealt with before a connection that is asked for after it.
    let mut client = server.connect();
    assert_eq!(client.set("k", "v"), "STORED");
    assert_eq!(client.value("k").as_deref(), Some("v"));
    assert!(limits(machine.path()).iter().all(|limit| limit == "2"));
    assert_eq!(server.terminate().0, Some(0));
    assert!(limits(machine.path()).iter().all(|limit| limit == "0"));
}

#[test]
fn a_proxy_answers_and_tells_on_every_signal() {
    let server = staging::server();
    for name in SIGNALS {
        let stage = Stage::start(&["--to", &server, "--json"]);
        let (code, text) = stage.end_by(name);
        assert_eq!(code, Some(0), "SIG{name}: {text}");
        let status: Result<serde_json::Value, _> = serde_json::from_str(&text);
        assert!(status.is_ok(), "SIG{name}: it says what came of it, not {text:?}");
    }
}

#[test]
fn a_governor_gives_its_service_back_on_every_signal_and_a_daemon_reloads_on_one() {
    if cannot("ending a governor") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Memcached::start(folder.path());
    let before = server.place();
    let port = server.port.to_string();
    let one_core = |epoch: &serde_json::Value| crate::governing::cpus(epoch) == 1;
    let file = ConfigFile::new("epoch = \"50ms\"");
    for name in ending_controllers() {
        let mut governor = Governor::start(folder.path(), &["--port", &port, "--config", &file]);
        governor.until("one core", one_core);
        let (code, said) = governor.end_by(name);
        assert_eq!(code, Some(0), "SIG{name}: {said}");
        assert_eq!(server.place(), before, "SIG{name}: {said}");
    }
    let config = folder.path().join("roost.toml");
    fs::write(&config, format!("epoch = \"50ms\"\n[[service]]\nport = {port}\n")).unwrap();
    let mut daemon = Governor::start(folder.path(), &["--config", config.to_str().unwrap()]);
    daemon.until("one core", one_core);
    signal(daemon.child.id(), "HUP");
    daemon.until("it goes on", |_| true);
    let (code, said) = daemon.end();
    assert_eq!((code, server.place()), (Some(0), before), "{said}");
    assert!(said.contains("read again"), "{said}");
}

#[test]
fn a_planner_closes_its_window_on_every_signal() {
    for name in ending_controllers() {
        let Some(planner) = Planner::start("") else { return };
        let before = waking::limit(waking::cpu());
        let client = planner.client("last");
        client.wake(&[waking::cpu()], client.now() + Duration::from_millis(1), Duration::from_millis(95));
        planner.end_by(name);
        waking::until_limit(&before);
    }
}

#[test]
fn what_is_frozen_is_let_go_on_every_signal() {
    const TEST: &str = "what_is_frozen_is_let_go_on_every_signal";
    let example = Example::start();
    for name in ending_controllers() {
        let Some((mut child, mut lines)) = quiescing::frozen(TEST, &example, "max_pause = \"10s\"", &[])
        else {
            return;
        };
        signal(child.id(), name);
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "SIG{name}");
        quiescing::until(&format!("it goes on after SIG{name}"), || !example.is_frozen());
    }
}

/// True if a process of that number has something to put back.
fn has_journal(process: u32) -> bool {
    let begins = format!("{process}-");
    let files = fs::read_dir("/run/roost").into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.into_iter().any(|name| name.starts_with(&begins) && name.ends_with(".journal"))
}

/// Waits until it has; false if it ended first, or holds nothing by itself: a Roost beside these
/// tests holds the CPUs for it.
fn until_journal(child: &mut Child) -> bool {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !has_journal(child.id()) {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if std::time::Instant::now() > patience {
            signal(child.id(), "TERM");
            child.wait().unwrap();
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    true
}

/// A command that measures and never looks up.
#[test]
fn a_measurement_that_is_ended_by_a_signal_is_put_back_and_ends_by_that_signal() {
    let _alone = IdleLimits::alone();
    let before = waking::limit(waking::cpu());
    for (number, name) in [(1, "HUP"), (2, "INT"), (15, "TERM"), (3, "QUIT"), (10, "USR1")] {
        let mut child = Command::new(ROOST)
            .args(["wake", "--calibrate"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .unwrap();
        if !until_journal(&mut child) {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            return skipped("ending a measurement", &said);
        }
        signal(child.id(), name);
        let status = child.wait().unwrap();
        assert!(status.signal() == Some(number) || status.code() == Some(0), "SIG{name}: {status}");
        assert!(!has_journal(child.id()), "SIG{name}: nothing is left to put back");
        waking::until_limit(&before);
    }
}

/// What a hang-up, Ctrl-C and a service manager send.
const COMMON: [(&str, i32); 3] = [("HUP", 1), ("INT", 2), ("TERM", 15)];

#[test]
fn a_view_gives_the_terminal_back_on_every_signal() {
    let store = crate::fixture::Server::start(&["--memory-limit", "64m"]);
    let (port, pid) = (format!("127.0.0.1:{}", store.port), store.pid().to_string());
    let out = tempfile::tempdir().unwrap();
    let out = out.path().to_str().unwrap();
    let top = ["top", &port];
    let observe = ["observe", "--pid", &pid, "--for", "10m", "--live", "--out", out];
    for command in [&top[..], &observe] {
        for (name, _) in COMMON {
            let Some(mut terminal) = Terminal::start(command[0], command) else { return };
            if terminal.ends_without_a_screen() {
                skipped(command[0], &terminal.left().text);
                break;
            }
            signal(terminal.pid(), name);
            let left = terminal.left();
            assert_eq!(left.code, 0, "{command:?}, SIG{name}: {}", left.text);
            assert!(left.is_given_back, "{command:?}, SIG{name}: {:?}", left.text);
        }
    }
}

fn children(of: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

#[test]
fn a_search_for_the_hot_function_leaves_neither_child_nor_file_on_any_signal() {
    let store = crate::fixture::Server::start(&["--memory-limit", "64m"]);
    for (name, number) in COMMON {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(ROOST)
            .args(["hot", "--for", "10m", "--pid", &store.pid().to_string(), "--out", "out"])
            .current_dir(folder.path())
            .env("TMPDIR", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .unwrap();
        let perf = loop {
            if let Some(&perf) = children(child.id()).first() {
                break perf;
            }
            if let Some(status) = child.try_wait().unwrap() {
                let mut said = String::new();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                return skipped("ending a search", &format!("{status}: {said}"));
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        signal(child.id(), name);
        assert_eq!(child.wait().unwrap().signal(), Some(number), "SIG{name}");
        quiescing::until(&format!("perf ends after SIG{name}"), || {
            // Of another name by now, if the number was used again.
            fs::read_to_string(format!("/proc/{perf}/comm")).map_or(true, |comm| comm.trim() != "perf")
        });
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert!(left.is_empty(), "SIG{name}: {left:?}");
    }
}

#[test]
fn a_probe_of_wake_ups_puts_back_and_says_so_on_every_signal() {
    let _alone = IdleLimits::alone();
    let before = waking::limit(waking::cpu());
    for (name, _) in COMMON {
        let mut child = Command::new(ROOST)
            .args(["doctor", "--probe", "15s"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .unwrap();
        if !until_journal(&mut child) {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            return skipped("ending a probe", &said);
        }
        signal(child.id(), name);
        assert_eq!(child.wait().unwrap().code(), Some(1), "SIG{name}");
        assert!(!has_journal(child.id()), "SIG{name}: nothing is left to put back");
        waking::until_limit(&before);
    }
}

#[test]
fn a_demo_that_is_ended_puts_back_and_keeps_what_it_saw() {
    let _alone = IdleLimits::alone();
    let before = waking::limit(waking::cpu());
    for (name, _) in COMMON {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(ROOST)
            .args(["demo", "--peak", "1k", "--phase-length", "10m", "--rounds", "3", "--out"])
            .arg(folder.path().join("run"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("stock") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
        }
        signal(child.id(), name);
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "SIG{name}: {rest}");
        assert!(rest.contains("stopped before the end"), "SIG{name}: {rest}");
        assert!(!has_journal(child.id()), "SIG{name}: nothing is left to put back");
        waking::until_limit(&before);
        let frames = fs::read_to_string(folder.path().join("run/frames.jsonl")).unwrap();
        assert!(frames.ends_with('\n'), "SIG{name}");
    }
}
