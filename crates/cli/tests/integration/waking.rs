//! A planner of wake-ups with its callers: over shared memory from Rust and C, over lines from
//! Python, remote, late, absurd, dead and hostile.

use crate::fixture::{ConfigFile, IdleLimits, ROOST, repository, signal, skipped};
use linux::EndsWithParent as _;
use machine::{CpuId, Duration};
use serde_json::Value;
use slots::wake::{Outcome, WakeClient};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The CPU that is asked for.
pub fn cpu() -> CpuId {
    *linux::allowed_cpus().expect("CPUs").0.last().expect("one")
}

pub fn limit(cpu: CpuId) -> String {
    let path = format!("/sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us", cpu.0);
    fs::read_to_string(path).expect("the limit").trim().to_owned()
}

/// Others that end may have the limit for a moment.
pub fn until_limit(wanted: &str) {
    for _ in 0..2000 {
        if limit(cpu()) == wanted {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the limit reads {} and not {wanted}", limit(cpu()));
}

/// A planner that is told to end when this goes.
pub struct Planner {
    /// One planner at a time: one that is killed takes along what it holds for the others.
    _alone: IdleLimits,
    child: Child,
    folder: tempfile::TempDir,
    /// What it said before it listened.
    said: String,
    lines: Option<BufReader<std::process::ChildStderr>>,
}

/// A planner that listens at `socket`, what it said before that, and what it says from then on; or
/// why there is none. `keys` are others of `[wake]`. Without calibration: tests are about requests,
/// not about their speed.
fn listening(
    socket: &Path,
    keys: &str,
) -> Result<(Child, String, BufReader<std::process::ChildStderr>), String> {
    let file = config(keys);
    let mut child = start(socket, &["--config", &file]);
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    let mut said = String::new();
    while lines.read_line(&mut said).expect("text") > 0 {
        if said.lines().last().is_some_and(|line| line.starts_with("listening")) {
            return Ok((child, said, lines));
        }
    }
    let code = child.wait().expect("it ended").code();
    Err(format!("no planner here (exit {code:?}): {said}"))
}

fn start(socket: &Path, more: &[&str]) -> Child {
    let mut command = Command::new(ROOST);
    command.args(["wake", "--json", "--socket"]).arg(socket).args(more).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.ends_with_parent().spawn().expect("roost wake starts")
}

fn config(keys: &str) -> ConfigFile {
    ConfigFile::new(&format!("[wake]\nexit_latency = \"200us\"\n{keys}"))
}

impl Planner {
    pub fn start(keys: &str) -> Option<Self> {
        let alone = IdleLimits::alone();
        let folder = tempfile::tempdir().expect("a folder");
        match listening(&folder.path().join("roost.sock"), keys) {
            Ok((child, said, lines)) => Some(Self { _alone: alone, child, folder, said, lines: Some(lines) }),
            Err(reason) => {
                skipped("wake", &reason);
                None
            }
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("roost.sock")
    }

    pub fn client(&self, name: &str) -> WakeClient {
        WakeClient::connect(&self.socket(), name).expect("the planner hands out a ring")
    }

    fn status(&self) -> Value {
        self.ask("\"planner\"")["status"].clone()
    }

    fn ask(&self, line: &str) -> Value {
        let mut lines = self.lines();
        lines.say(line)
    }

    fn lines(&self) -> Lines {
        Lines(BufReader::new(UnixStream::connect(self.socket()).expect("the planner listens")))
    }

    /// Waits until the status is so.
    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..2000 {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("{what}: {}", self.status());
    }

    fn terminate(self) -> String {
        self.end_by("TERM")
    }

    pub fn end_by(mut self, name: &str) -> String {
        signal(self.child.id(), name);
        let status = self.child.wait().expect("it ends");
        let mut rest = String::new();
        self.lines.take().expect("once").read_to_string(&mut rest).expect("text");
        assert_eq!(status.code(), Some(0), "{rest}");
        rest
    }
}

impl Drop for Planner {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            signal(self.child.id(), "TERM");
            let _ = self.child.wait();
        }
    }
}

struct Lines(BufReader<UnixStream>);

impl Lines {
    fn say(&mut self, line: &str) -> Value {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("it reads");
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("it answers");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer}: {error}"))
    }
}

fn account<'a>(status: &'a Value, name: &str) -> &'a Value {
    let accounts = status["accounts"].as_array().expect("accounts");
    accounts.iter().find(|account| account["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn a_caller_that_comes_while_waking_is_measured_has_its_answer_after_that() {
    let _alone = IdleLimits::alone();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("roost.sock");
    let mut planner = start(&socket, &[]);
    let mut lines = BufReader::new(planner.stderr.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("measuring what waking takes") || !socket.exists() {
        if lines.read_line(&mut said).expect("text") == 0 {
            planner.wait().expect("it ended");
            return skipped("wake", &said);
        }
    }
    let asks = ["wake", "at", "--in", "2ms", "--cpus", &cpu().0.to_string(), "--socket"];
    let asked = Command::new(ROOST).args(asks).arg(&socket).output().expect("roost runs");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    signal(planner.id(), "TERM");
    lines.read_to_string(&mut said).expect("text");
    assert!(planner.wait().expect("it ends").success(), "{said}");
}

#[test]
fn a_request_over_shared_memory_opens_a_window_and_is_paid() {
    let Some(planner) = Planner::start("max_stay = \"10s\"") else { return };
    let before = limit(cpu());
    let client = planner.client("ring test");
    let (asked, stay) = (client.now(), Duration::from_secs(1));
    let ready = asked + Duration::from_millis(30);
    assert!(matches!(client.wake(&[cpu()], ready, stay), Outcome::Sent(_)));
    until_limit("n/a");
    // How late it is opened is the machine's: what is paid is at least the time for which it was
    // seen open, and no more than passed.
    let opened = client.now();
    assert!(opened < ready + stay, "open after its end");
    while client.now() < ready + stay {
        if limit(cpu()) != "n/a" {
            assert!(client.now() >= ready + stay, "it was closed before its end");
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let status = planner.until("the window ends", |status| account(status, "ring test")["expired"] == 1);
    let passed = client.now().since(asked);
    until_limit(&before);
    let time = Duration::from_nanos(account(&status, "ring test")["time"].as_u64().expect("ns"));
    assert!((ready + stay).since(opened) <= time && time <= passed, "{time} paid of {passed}");
    assert_eq!(client.answered(), (1, 0));
    planner.terminate();
}

#[test]
fn the_event_ends_the_window_and_a_withdrawal_does_too() {
    let Some(planner) = Planner::start("max_stay = \"10s\"") else { return };
    let client = planner.client("early");
    let far = Duration::from_secs(8);
    let first = client.wake(&[cpu()], client.now() + Duration::from_millis(1), far).id().expect("sent");
    planner.until("it is open", |status| {
        status["cpus"].as_array().expect("cpus").iter().any(|cpu| cpu["is_awake"] == true)
    });
    client.came(first);
    let status = planner.until("it came", |status| account(status, "early")["came"] == 1);
    let time = account(&status, "early")["time"].as_u64().expect("ns");
    assert!(time < 8_000_000_000, "{time}: it ended before its end");
    let second = client.wake(&[cpu()], client.now() + far, far).id().expect("sent");
    client.withdraw(second);
    planner.until("it is withdrawn", |status| account(status, "early")["withdrawn"] == 1);
}

/// Wherever its CPU sleeps to by then: a time that is nearer than the one before has to reach it,
/// and one that moves away must not keep it. In the state idle since boot: the fourth number of the
/// CPU's line in `/proc/stat`.
fn idle_ticks(cpu: CpuId) -> String {
    let text = std::fs::read_to_string("/proc/stat").expect("proc");
    let line = text.lines().find(|line| line.starts_with(&format!("{cpu} "))).expect("the CPU's line");
    line.split_ascii_whitespace().nth(4).expect("its idle time").to_owned()
}

#[test]
fn a_timer_that_the_kernel_sets_opens_windows_too() {
    let Some(planner) = Planner::start("alarm = \"kernel\"") else { return };
    assert_eq!(planner.status()["alarm"], "kernel");
    let before = limit(cpu());
    let client = planner.client("kernel timer");
    let far = client.now() + Duration::from_secs(50);
    let id = client.wake(&[cpu()], far, Duration::from_millis(1)).id().expect("sent");
    planner.until("it is far", |status| account(status, "kernel timer")["accepted"] == 1);
    let (mut rounds, mut seen) = (0, 0);
    while seen < 5 {
        assert!(rounds < 400, "others kept the CPU busy in {} rounds of {rounds}", rounds - seen);
        rounds += 1;
        let (ready, stay) = (client.now() + Duration::from_millis(30), Duration::from_millis(60));
        assert!(matches!(client.wake(&[cpu()], ready, stay), Outcome::Sent(_)));
        let idle = idle_ticks(cpu());
        let mut is_open = false;
        while client.now() < ready + stay {
            // Who looks may do so on that very CPU, and where a thread runs none need be woken.
            std::thread::sleep(std::time::Duration::from_millis(1));
            is_open |= limit(cpu()) == "n/a";
        }
        // Only a CPU that others keep busy all the time needs no window.
        assert!(is_open || idle_ticks(cpu()) == idle, "round {rounds}: the limit never read n/a");
        seen += u64::from(is_open);
        planner.until("the window ends", |status| account(status, "kernel timer")["expired"] == rounds);
        until_limit(&before);
    }
    client.withdraw(id);
    let status =
        planner.until("it is taken back", |status| account(status, "kernel timer")["withdrawn"] == 1);
    let of_cpu = status["cpus"].as_array().expect("cpus").iter().find(|row| row["cpu"] == cpu().0);
    let windows = of_cpu.expect("the CPU")["windows"].as_u64().expect("a number");
    assert!((seen..=rounds).contains(&windows), "{windows} windows in {rounds} rounds, {seen} seen");
    planner.terminate();
}

#[test]
fn late_over_absurd_and_too_many_requests_are_counted_and_harm_nobody() {
    let Some(planner) = Planner::start("max_rate = 300") else { return };
    let client = planner.client("absurd");
    // Nearer than the lead, and over before anything could be done.
    let soon = client.now() + Duration::from_micros(1);
    assert_eq!(client.wake(&[cpu()], soon, Duration::ZERO), Outcome::TooLate);
    // Late, but it reaches further: it is sent, and counted on both sides.
    client.wake(&[cpu()], client.now(), Duration::from_millis(50)).id().expect("sent");
    let refused = [
        (CpuId(60_000), Duration::from_millis(10), Duration::from_millis(1)),
        (cpu(), Duration::from_secs(3600), Duration::from_millis(1)),
        (cpu(), Duration::from_millis(10), Duration::MAX),
        (cpu(), Duration::from_millis(10), Duration::from_secs(5)),
    ];
    for (cpu, ahead, stay) in refused {
        client.wake(&[cpu], client.now() + ahead, stay).id().expect("sent");
    }
    // The planner adds up the counts of rings after it has decided.
    let status = planner.until("four are refused, and two too late", |status| {
        status["asked"]["refused"].as_u64() >= Some(4) && status["asked"]["too_late"] == 2
    });
    assert_eq!(account(&status, "absurd")["late"], 1);
    // More than the rate allows; names that mean nothing; no CPU at all.
    for nth in 0..2000_u64 {
        while client.wake(&[cpu()], client.now() + Duration::from_millis(500), Duration::from_micros(1))
            == Outcome::Full
        {
            std::thread::yield_now();
        }
        client.came(1_000_000 + nth);
    }
    client.wake(&[], client.now() + Duration::from_millis(10), Duration::from_millis(1));
    let status = planner
        .until("what was too much is refused", |status| status["asked"]["refused"].as_u64() > Some(1000));
    assert!(account(&status, "absurd")["accepted"].as_u64() <= Some(1000), "{status}");
    // Another name of the same user has the same purse: it is served as soon as that has room
    // again.
    let other = planner.client("patient");
    planner.until("the other is served", |status| {
        other.wake(&[cpu()], other.now() + Duration::from_millis(500), Duration::from_millis(1));
        account(status, "patient")["accepted"].as_u64() >= Some(1)
    });
}

#[test]
fn repeated_runs_timers_arrivals_and_announcements_are_foreseen() {
    // A run that took twice as long as the others makes those after it unforeseeable; then the
    // machine has stalled, and a new planner tries.
    const STALL: Duration = Duration::from_millis(6);
    for _ in 0..20 {
        let Some(planner) = Planner::start("") else { return };
        let client = planner.client("foresight");
        let pause = || std::thread::sleep(std::time::Duration::from_millis(4));
        let mut longest = Duration::ZERO;
        for _ in 0..30 {
            let began = client.now();
            let run = client.began(7, &[cpu()]).id().expect("sent");
            let timer = client.armed(client.now() + Duration::from_millis(4), &[cpu()]).id().expect("sent");
            let peer =
                client.follows(3, client.now() + Duration::from_millis(4), &[cpu()]).id().expect("sent");
            client.arrived(9, &[cpu()]);
            pause();
            for id in [run, timer, peer] {
                client.ended(id);
            }
            longest = longest.max(client.now().since(began));
        }
        let status = planner.until("all is heard", |_| client.taken() >= 30 * 7);
        let short: Vec<String> = ["kernels", "timers", "announcements", "arrivals"]
            .iter()
            .filter_map(|&name| {
                let all = status["predictors"].as_array().expect("some");
                let found = all.iter().find(|one| one["name"] == name);
                let record = &found.unwrap_or_else(|| panic!("{name}: {status}"))["record"];
                let foreseen: u64 =
                    ["hits", "early", "late"].map(|key| record[key].as_u64().unwrap_or(0)).iter().sum();
                (foreseen < 10).then(|| format!("{name}: {record}"))
            })
            .collect();
        if short.is_empty() {
            return;
        }
        assert!(longest > STALL, "{} (no run took longer than {longest})", short.join("; "));
    }
    panic!("the machine stalls in every thirty runs");
}

#[test]
fn who_dies_asks_for_nothing_any_more() {
    let Some(planner) = Planner::start("max_stay = \"1m\"") else { return };
    let before = limit(cpu());
    let mut lines = planner.lines();
    assert_eq!(lines.say(r#"{"hello":{"name":"mayfly"}}"#)["done"]["id"], 0);
    let asked = format!(r#"{{"wake":{{"cpus":"{}","in":"10ms","stay":"50s"}}}}"#, cpu().0);
    assert_eq!(lines.say(&asked)["done"]["id"], 1);
    until_limit("n/a");
    drop(lines);
    let status = planner.until("it is taken back", |status| account(status, "mayfly")["withdrawn"] == 1);
    assert_eq!(account(&status, "mayfly")["expired"], 0);
    until_limit(&before);
}

#[test]
fn a_planner_that_is_killed_in_a_window_leaves_what_restore_puts_back() {
    let Some(mut planner) = Planner::start("") else { return };
    let before = limit(cpu());
    let client = planner.client("last");
    for _ in 0..20 {
        client.wake(&[cpu()], client.now() + Duration::from_millis(1), Duration::from_millis(95));
        for _ in 0..200 {
            if limit(cpu()) == "n/a" {
                planner.child.kill().expect("SIGKILL");
                planner.child.wait().expect("it is dead");
                let output = Command::new(ROOST).arg("restore").output().expect("roost restore runs");
                assert!(output.status.success(), "{output:?}");
                until_limit(&before);
                let far = client.now() + Duration::from_secs(1);
                let said = client.wake(&[cpu()], far, Duration::ZERO);
                assert!(said.id().is_some(), "who goes on asking a dead planner is not hurt");
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    }
    panic!("no window was seen open");
}

#[test]
fn a_user_with_many_names_may_ask_for_no_more_than_with_one() {
    let began = std::time::Instant::now();
    let Some(planner) = Planner::start("max_rate = 10") else { return };
    let wake = format!(r#"{{"wake":{{"cpus":"{}","in":"30s","stay":"1us"}}}}"#, cpu().0);
    let mut accepted = 0;
    for name in 0..20 {
        let mut caller = planner.lines();
        assert!(caller.say(&format!(r#"{{"hello":{{"name":"name {name}"}}}}"#))["done"].is_object());
        accepted += (0..10).filter(|_| caller.say(&wake)["done"].is_object()).count();
    }
    // A second's worth at once, and what was earned since.
    let earned = 10.0 * (began.elapsed().as_secs_f64() + 1.0);
    assert!(accepted as f64 <= earned + 1.0, "{accepted} of 200 were accepted, and {earned:.1} earned");
}

#[test]
fn names_that_are_gone_keep_nobody_out() {
    let Some(planner) = Planner::start("") else { return };
    let wake = format!(r#"{{"wake":{{"cpus":"{}","in":"1ms","stay":"1us"}}}}"#, cpu().0);
    let ask = |name: usize| {
        let mut caller = planner.lines();
        caller.say(&format!(r#"{{"hello":{{"name":"name {name}"}}}}"#));
        caller.say(&wake)
    };
    for name in 0..1100 {
        let answer = ask(name);
        assert!(answer["done"].is_object(), "name {name}: {answer}");
    }
    let status = planner.status();
    assert!(status["accounts"].as_array().expect("accounts").len() < 100, "{status}");
    let gone = account(&status, "(gone)")["accepted"].as_u64().expect("those that went first");
    assert!((1000..=1100).contains(&gone), "{gone}");
}

#[test]
fn without_descriptors_callers_that_are_there_are_served_and_later_ones_come_in_again() {
    let Some(planner) = Planner::start("") else { return };
    let mut watching = planner.lines();
    assert!(watching.say("\"planner\"")["status"].is_object());
    let open = || fs::read_dir(format!("/proc/{}/fd", planner.child.id())).expect("it lives").count() as u64;
    let limit = open() + 8;
    let limits = rustix::process::Rlimit { current: Some(limit), maximum: Some(4096) };
    let process = rustix::process::Pid::from_raw(planner.child.id() as i32).expect("a process");
    rustix::process::prlimit(Some(process), rustix::process::Resource::Nofile, limits).expect("a limit");
    let waiting: Vec<_> =
        (0..200).map(|_| UnixStream::connect(planner.socket()).expect("a backlog")).collect();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while open() < limit {
        assert!(std::time::Instant::now() < patience, "{} of {limit} descriptors", open());
    }
    for _ in 0..20 {
        assert!(watching.say("\"planner\"")["status"].is_object(), "it is served meanwhile");
    }
    drop(waiting);
    let status = loop {
        // Until the last of the crowd is closed, a ring may find no descriptors.
        if let Ok(client) = WakeClient::connect(&planner.socket(), "later") {
            client.wake(&[cpu()], client.now() + Duration::from_millis(500), Duration::from_micros(1));
            break planner.until("it is heard", |status| account(status, "later")["accepted"] == 1);
        }
        assert!(std::time::Instant::now() < patience, "no caller comes in any more");
    };
    assert!(status["asked"]["connections"].as_u64() >= Some(2), "{status}");
}

#[test]
fn nonsense_half_lines_and_answers_that_nobody_reads_keep_nobody_waiting() {
    let Some(planner) = Planner::start("") else { return };
    assert!(planner.ask("GET / HTTP/1.1")["refused"].as_str().expect("refused").contains("for example"));
    assert!(planner.ask(r#"{"wake":{"cpus":"0-9","in":"1ms","stay":"1ms"}}"#)["refused"].is_string());
    // A line without an end is cut off.
    let Lines(endless) = planner.lines();
    let mut endless = endless.into_inner();
    let mut answer = Vec::new();
    let _ = endless.write_all(&[&b"\"planner\"\n"[..], &[b'x'; 9000]].concat());
    let _ = endless.read_to_end(&mut answer);
    assert!(
        String::from_utf8_lossy(&answer).contains("up to 4096 bytes"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    // Questions without end, and no answer taken.
    let mut flood = UnixStream::connect(planner.socket()).expect("it listens");
    flood.set_write_timeout(Some(std::time::Duration::from_secs(5))).expect("a timeout");
    let refused = (0..20_000).any(|_| flood.write_all(b"\"planner\"\n").is_err());
    assert!(refused, "who takes no answers is hung up on");
    // A half line disturbs no other caller.
    let mut half = UnixStream::connect(planner.socket()).expect("it listens");
    half.write_all(b"{\"wake\":").expect("it reads");
    assert!(planner.status()["running"].as_u64() > Some(0));
}

#[test]
fn a_ring_full_of_nonsense_is_counted_and_the_others_are_served() {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let Some(planner) = Planner::start("") else { return };
    let mut stream = UnixStream::connect(planner.socket()).expect("it listens");
    stream.write_all(b"{\"ring\":{\"name\":\"hostile\",\"entries\":4}}\n").expect("it reads");
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 256];
    let parts = &mut [std::io::IoSliceMut::new(&mut bytes)];
    recvmsg(&stream, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).expect("an answer");
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let [memory, bell] = <[_; 2]>::try_from(descriptors).expect("memory and bell");
    let memory = fs::File::from(memory);
    assert!(memory.set_len(0).is_err(), "its length is sealed");
    let map = slots::Map::new(&memory, 4096 + 4 * 64).expect("a mapping");
    // Every word of the ring, again and again, while the bell rings.
    let mut random = workload::Random::new(7, 0);
    for round in 0..3000_u64 {
        for word in (4096..4096 + 4 * 64).step_by(8) {
            // Every other time a sequence that the planner waits for.
            let text =
                if word % 64 == 0 && random.below(2) == 0 { round + random.below(8) } else { random.bits() };
            map.word64(word).store(text, std::sync::atomic::Ordering::Release);
        }
        let _ = rustix::io::write(&bell, &1_u64.to_ne_bytes());
    }
    let client = planner.client("honest");
    client
        .wake(&[cpu()], client.now() + Duration::from_millis(500), Duration::from_millis(1))
        .id()
        .expect("sent");
    planner.until("the honest one is served", |status| account(status, "honest")["accepted"] == 1);
    planner.terminate();
}

fn token_file(folder: &Path) -> PathBuf {
    let path = folder.join("token");
    fs::write(&path, "0123456789abcdef0123\n").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
    path
}

#[test]
fn remote_callers_need_the_token_and_others_learn_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = token_file(folder.path());
    let token = token.to_str().expect("text");
    let keys = format!("udp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ntoken_file = {token:?}");
    let Some(planner) = Planner::start(&keys) else { return };
    let udp = planner
        .said
        .lines()
        .find_map(|line| line.strip_prefix("datagrams at "))
        .expect("its address")
        .to_owned();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
    let mut bytes = [0; 1024];
    let wrong = r#"{"token":"0123456789abcdef0124","client":"web","say":{"follows":{"in":"400us"}}}"#;
    let right =
        r#"{"token":"0123456789abcdef0123","client":"web","say":{"wake":{"in":"20ms","stay":"1ms"}}}"#;
    for message in [wrong, "nonsense", "", right] {
        socket.send_to(message.as_bytes(), &udp).expect("sent");
    }
    let (length, _) =
        socket.recv_from(&mut bytes).expect("the right one is answered, and the first answer is its");
    assert!(bytes[..length].starts_with(b"ok "), "{}", String::from_utf8_lossy(&bytes[..length]));
    let status = planner.until("both are counted", |status| status["asked"]["wrong_tokens"] == 1);
    assert_eq!(account(&status, "web (remote)")["accepted"], 1);

    let address = planner
        .said
        .lines()
        .find_map(|line| line.strip_prefix("announcements at http://"))
        .expect("its address");
    let address = address.strip_suffix("/wake").expect("its path").to_owned();
    let post = |token: &str, body: &str| {
        let mut stream = std::net::TcpStream::connect(&address).expect("HTTP answers");
        let head = format!(
            "POST /wake HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer \
             {token}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    let body = r#"{"client":"web","say":{"wake":{"in":"20ms","stay":"1ms"}}}"#;
    assert!(post("0123456789abcdef0123", body).starts_with("HTTP/1.1 200"));
    assert!(post("0123456789abcdef012", body).starts_with("HTTP/1.1 401"));
    assert!(post("", body).starts_with("HTTP/1.1 401"));
    assert!(post("0123456789abcdef0123", "{}").starts_with("HTTP/1.1 422"));
    assert!(
        post("0123456789abcdef0123", r#"{"client":"web","say":{"wake":{"in":"1h","stay":"1ms"}}}"#)
            .starts_with("HTTP/1.1 422")
    );
    assert!(post("0123456789abcdef0123", &"x".repeat(5000)).starts_with("HTTP/1.1 413"));
}

#[test]
fn what_is_not_allowed_is_one_clear_line_and_nothing_changes() {
    let _alone = IdleLimits::alone();
    let before = limit(cpu());
    let folder = tempfile::tempdir().expect("a folder");
    let loose = folder.path().join("loose");
    fs::write(&loose, "0123456789abcdef0123\n").expect("written");
    fs::set_permissions(&loose, fs::Permissions::from_mode(0o644)).expect("its mode");
    let loose = loose.to_str().expect("text");
    let good = token_file(folder.path());
    let good = good.to_str().expect("text");
    let bare = config("udp = \"127.0.0.1:0\"");
    let loose = config(&format!("udp = \"127.0.0.1:0\"\ntoken_file = {loose:?}"));
    let good = config(&format!("udp = \"0.0.0.0:0\"\ntoken_file = {good:?}"));
    let share = config("max_share = 120.0");
    for (flags, words) in [
        (&["--cpus", "60000"][..], "is not available"),
        (&["--config", &*bare], "needs token_file"),
        (&["--config", &*loose], "chmod 600"),
        (&["--config", &*good], "remote = true"),
        (&["--config", &*share], "percent"),
        (&["at", "--in", "1ms", "--socket", "/nonexistent/roost.sock"], "no planner answers"),
    ] {
        let output = Command::new(ROOST).arg("wake").args(flags).output().expect("roost runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{flags:?}: {output:?}");
        assert!(said.contains(words), "{flags:?}: {said}");
    }
    assert_eq!(limit(cpu()), before);
}

#[test]
fn a_second_planner_is_refused_with_the_first_ones_name() {
    let Some(planner) = Planner::start("") else { return };
    let (first, own) = (planner.socket(), planner.folder.path().join("own.sock"));
    let name = format!("roost wake (process {})", planner.child.id());
    // Beside a daemon that has a planner, by that daemon; beside another, by the arbiter's lock.
    for (socket, words) in [(&first, "wake is governed already, by roost wake"), (&own, name.as_str())] {
        let mut command = Command::new(ROOST);
        let file = config("");
        command.args(["wake", "--json", "--config", &file, "--for", "5s", "--socket"]);
        let output = command.arg(socket).output().expect("roost runs");
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{output:?}");
    }
    assert!(planner.status()["running"].as_u64() > Some(0), "the first still listens");
}

#[test]
fn c_and_python_clients_are_served() {
    let Some(planner) = Planner::start("max_stay = \"1m\"") else { return };
    let program = planner.folder.path().join("announce");
    for (compiler, standard, language) in [("cc", "-std=c11", "c"), ("c++", "-std=c++11", "c++")] {
        let done = Command::new(compiler)
            .args([
                standard,
                "-x",
                language,
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pthread",
                "-D_GNU_SOURCE",
                "-I",
            ])
            .arg(repository().join("include"))
            .arg(repository().join("crates/cli/tests/native/announce.c"))
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error}; `scripts/setup test` installs it"));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let name = format!("from {language}");
        let ran = Command::new(&program)
            .arg(planner.socket())
            .arg(&name)
            .arg(cpu().0.to_string())
            .output()
            .expect("it runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let status =
            planner.until("it is served", |status| account(status, &name)["came"].as_u64() >= Some(1));
        assert_eq!(account(&status, &name)["accepted"], 201, "{status}");
    }
    let script = repository().join("crates/cli/tests/native/announce.py");
    match Command::new("python3").arg(script).arg(planner.socket()).arg(cpu().0.to_string()).output() {
        Ok(ran) => {
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            planner.until("it is served", |status| account(status, "from python")["came"] == 1);
        }
        Err(error) => skipped("wake: python", &format!("python3: {error}")),
    }
}

#[test]
fn strangers_at_the_planners_socket_delay_no_question_of_roots() {
    let Some(folder) = crate::governing::place_for_strangers("strangers at the planner") else { return };
    let Some(planner) = Planner::start("users = [65534]") else { return };
    drop(folder);
    fs::set_permissions(planner.folder.path(), fs::Permissions::from_mode(0o711)).expect("its mode");
    let held = crate::governing::held_by_nobody(&planner.socket(), 400);
    assert!(held.len() >= 40, "{} connections", held.len());
    for _ in 0..5 {
        let mut status = Command::new(ROOST);
        status.args(["status", "--socket"]).arg(planner.socket());
        let output = status.output().expect("roost runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    drop(held);
    planner.terminate();
}

#[test]
fn readers_of_its_lines_that_are_gone_end_no_planner() {
    let Some(planner) = Planner::start("") else { return };
    planner.terminate();
    let _alone = IdleLimits::alone();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("roost.sock");
    let file = config("");
    let mut child = Command::new(ROOST)
        .args(["wake", "--config", &file, "--out"])
        .arg(folder.path().join("run"))
        .arg("--socket")
        .arg(&socket)
        .stdin(Stdio::null())
        .stdout(crate::pages::gone())
        .stderr(crate::pages::gone())
        .ends_with_parent()
        .spawn()
        .expect("roost wake starts");
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(120);
    let client = loop {
        match WakeClient::connect(&socket, "last") {
            Ok(client) => break client,
            Err(error) => assert!(std::time::Instant::now() < patience, "{error}"),
        }
        assert!(child.try_wait().expect("its state").is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    client.wake(&[cpu()], client.now() + Duration::from_millis(1), Duration::from_millis(5));
    let mut status = Command::new(ROOST);
    let output = status.args(["status", "--socket"]).arg(&socket).output().expect("roost runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    signal(child.id(), "TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
