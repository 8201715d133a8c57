//! `roost govern hurry-up` on a made-up machine: real threads, real slots, clocks that are files.
//! What a real kernel does with the writes is shown by `lab/run hurry-up`.
//!
//! The service is this test program again (`puppet`), whose threads enter, compute, wait and die as
//! they are told; and a JVM with the agent.

use crate::fixture::{ConfigFile, ROOST, repository, signal};
use crate::jvm::Jvm;
use linux::EndsWithParent as _;
use machine::CpuId;
use observe::functions::{FunctionError, FunctionName, FunctionWatch};
use serde_json::Value;
use slots::{Writer, WriterOptions};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Beyond what a machine under load makes any of this take; what does not come until then does not
/// come.
const PATIENCE: Duration = Duration::from_secs(120);
const PUPPET: &str = "ROOST_TEST_PUPPET_SLOTS";
const MIN: &str = "1000000";
const MID: &str = "2000000";
const MAX: &str = "2600000";

/// Not a test of its own: the body of the service. `spin`, `wait` and `stop` name a thread; `die`
/// is a thread that ends inside.
#[test]
fn puppet() {
    let Ok(path) = std::env::var(PUPPET) else { return };
    let writer = Writer::create(Path::new(&path), &["puppet::hot"], WriterOptions::default()).unwrap();
    let hot = writer.method(0).unwrap();
    println!("ready");
    let mut stops: BTreeMap<String, Arc<AtomicBool>> = BTreeMap::new();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (what, name) = line.split_once(' ').unwrap();
        if what == "stop" {
            stops.remove(name).unwrap().store(true, Ordering::Release);
            continue;
        }
        let (what, writer, stop) = (what.to_owned(), writer.clone(), Arc::new(AtomicBool::new(false)));
        stops.insert(name.to_owned(), stop.clone());
        let body = move || {
            let slot = writer.register();
            let inside = slot.enter(hot);
            while !stop.load(Ordering::Acquire) {
                if what == "wait" {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                } else if what == "die" {
                    // Neither the call nor the slot is ever given back.
                    std::mem::forget(inside);
                    std::mem::forget(slot);
                    return;
                }
            }
            // Threads of a server live on, and keep their slots.
            drop(inside);
            loop {
                std::thread::park();
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(body).unwrap();
    }
}

/// A machine with a clock for each CPU of this one, and a slot file.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for cpu in linux::allowed_cpus().unwrap().0 {
            let policy = folder.path().join(format!("sys/devices/system/cpu/cpufreq/policy{}", cpu.0));
            fs::create_dir_all(&policy).unwrap();
            for (file, text) in [
                ("affected_cpus", cpu.0.to_string().as_str()),
                ("cpuinfo_min_freq", MIN),
                ("cpuinfo_max_freq", MAX),
                ("scaling_min_freq", MIN),
                ("scaling_max_freq", MAX),
                ("scaling_setspeed", "1700000"),
                ("scaling_governor", "userspace"),
                ("scaling_available_frequencies", "2600000 2300000 2000000 1700000 1400000 1000000"),
            ] {
                fs::write(policy.join(file), format!("{text}\n")).unwrap();
            }
        }
        fs::create_dir_all(folder.path().join("run")).unwrap();
        Self { folder }
    }

    fn slots(&self) -> PathBuf {
        self.folder.path().join("slots")
    }

    /// Every CPU's clock, as the files read.
    fn clocks(&self) -> Vec<String> {
        let read = |cpu: u16| {
            let policy = self.folder.path().join(format!("sys/devices/system/cpu/cpufreq/policy{cpu}"));
            fs::read_to_string(policy.join("scaling_setspeed")).unwrap().trim().to_owned()
        };
        linux::allowed_cpus().unwrap().0.iter().map(|cpu| read(cpu.0)).collect()
    }

    fn is_as_it_was(&self) -> bool {
        self.clocks().iter().all(|clock| clock == "1700000")
    }

    fn puppet(&self) -> Puppet {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hurrying::puppet", "--nocapture", "--test-threads=1"])
            .env(PUPPET, self.slots())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")));
        Puppet { child, _lines: lines }
    }

    fn governor(&self, flags: &[&str]) -> Governor {
        let slots = self.slots();
        self.governor_of(&["--slots", slots.to_str().unwrap()], flags)
    }

    /// One that the kernel allows no programs: it follows threads by their files.
    fn governor_without_programs(&self, flags: &[&str]) -> Governor {
        let slots = self.slots();
        let mut command = Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            command.args(["--bounding-set", "-bpf,-sys_admin,-perfmon", ROOST]);
        } else {
            // It may not anyway.
            command = Command::new(ROOST);
        }
        self.started(command, &["--slots", slots.to_str().unwrap()], flags)
    }

    /// Of whatever tells who is inside.
    fn governor_of(&self, source: &[&str], flags: &[&str]) -> Governor {
        self.started(Command::new(ROOST), source, flags)
    }

    fn started(&self, mut command: Command, source: &[&str], flags: &[&str]) -> Governor {
        command.args(["govern", "hurry-up", "--json", "--take-over", "--root"]).arg(self.folder.path());
        command.args(source).args(flags);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).ends_with_parent().spawn().unwrap();
        let (told, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // It ends with the governor.
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| told.send(line)));
        Governor { child, lines }
    }
}

struct Puppet {
    child: Child,
    _lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Puppet {
    fn tell(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Governor {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Governor {
    /// Waits for a line of which this holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let (mut last, began) = (Value::Null, Instant::now());
        while let Some(left) = PATIENCE.checked_sub(began.elapsed()) {
            match self.lines.recv_timeout(left) {
                Ok(line) => last = serde_json::from_str(&line).expect("JSON"),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    let mut said = String::new();
                    self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                    panic!("it ended before {what}: {said}; the last: {last}");
                }
            }
            if holds(&last) {
                return last;
            }
        }
        panic!("not {what} in {PATIENCE:?}; the last: {last}");
    }

    /// Its exit code, and what it said in the end.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }

    fn end(self) -> (Option<i32>, String) {
        signal(self.child.id(), "TERM");
        self.ended()
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The thread of this name that is inside.
fn hot<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status["hot"].as_array().unwrap().iter().find(|hot| hot["name"] == name)
}

fn is_at(status: &Value, name: &str, level: &str) -> bool {
    hot(status, name).is_some_and(|hot| hot["level"] == level)
}

fn levels(status: &Value) -> Vec<&str> {
    status["cpus"].as_array().unwrap().iter().map(|cpu| cpu["level"].as_str().unwrap()).collect()
}

fn none_is_fast(status: &Value) -> bool {
    !levels(status).contains(&"max")
}

#[test]
fn a_heavy_call_has_its_core_fast_and_leaves_no_core_fast() {
    let machine = Machine::new();
    let mut service = machine.puppet();
    let mut governor = machine.governor(&["--threshold", "100ms"]);
    governor.until("a first look", |_| true);
    service.tell("spin heavy");
    let light = governor.until("it is inside", |status| hot(status, "heavy").is_some());
    assert!(light["threshold_us"] == 100_000, "{light}");
    let late = governor.until("it is late", |status| is_at(status, "heavy", "max"));
    assert!(hot(&late, "heavy").unwrap()["for_us"].as_u64() >= Some(100_000), "{late}");
    let fast = governor.until("its core is fast", |status| {
        let cpu = hot(status, "heavy").map(|hot| &hot["cpu"]);
        status["cpus"].as_array().unwrap().iter().any(|of| Some(&of["cpu"]) == cpu && of["level"] == "max")
    });
    assert!(machine.clocks().iter().any(|clock| clock == MAX), "{:?}, {fast}", machine.clocks());
    service.tell("stop heavy");
    let after = governor.until("it has left", |status| status["hot"].as_array().unwrap().is_empty());
    assert!(none_is_fast(&after), "{after}");
    // A line is written when it is done.
    assert!(machine.clocks().iter().all(|clock| clock == MIN || clock == MID), "{:?}", machine.clocks());
    let (code, said) = governor.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(machine.is_as_it_was(), "{:?}", machine.clocks());
}

#[test]
fn a_thread_that_died_inside_and_a_service_that_is_killed_leave_no_core_fast() {
    let machine = Machine::new();
    let mut service = machine.puppet();
    // Dead before the governor looked, its slot says inside.
    service.tell("die early");
    let mut governor = machine.governor(&["--threshold", "20ms"]);
    service.tell("spin heavy");
    governor.until("it is late", |status| is_at(status, "heavy", "max"));
    service.tell("die late");
    service.tell("stop heavy");
    let after = governor.until("no thread is inside", |status| status["hot"].as_array().unwrap().is_empty());
    assert!(none_is_fast(&after), "{after}");
    // Who falls within a second of the service's end counts as one that fell with it.
    std::thread::sleep(Duration::from_millis(1200));
    service.tell("spin heavy");
    governor.until("another call is late", |status| is_at(status, "heavy", "max"));
    service.kill();
    let (code, said) = governor.ended();
    assert!(code == Some(1) && said.contains("died with 1 of its threads"), "{code:?}: {said}");
    assert!(machine.is_as_it_was(), "{:?}", machine.clocks());
}

#[test]
fn clocks_go_back_on_every_signal() {
    for name in crate::ending::ending_controllers() {
        let machine = Machine::new();
        let mut service = machine.puppet();
        let mut governor = machine.governor(&["--threshold", "20ms"]);
        service.tell("spin heavy");
        governor.until("it is late", |status| is_at(status, "heavy", "max"));
        assert!(!machine.is_as_it_was());
        signal(governor.child.id(), name);
        let (code, said) = governor.ended();
        assert_eq!(code, Some(0), "SIG{name}: {said}");
        assert!(machine.is_as_it_was(), "SIG{name}: {:?}", machine.clocks());
        let files = fs::read_dir(machine.folder.path().join("run/roost")).into_iter().flatten().flatten();
        let journals = files.filter(|file| file.path().extension().is_some_and(|kind| kind == "journal"));
        assert_eq!(journals.count(), 0, "SIG{name}");
    }
}

/// The fastest of the CPUs, as the status has it.
fn fast(status: &Value) -> Vec<u64> {
    let cpus = status["cpus"].as_array().unwrap().iter().filter(|cpu| cpu["level"] == "max");
    cpus.map(|cpu| cpu["cpu"].as_u64().unwrap()).collect()
}

#[test]
fn threads_are_followed_by_their_files_where_the_kernel_allows_no_programs() {
    let machine = Machine::new();
    let cpus: Vec<CpuId> = linux::allowed_cpus().unwrap().0.into_iter().collect();
    let mut service = machine.puppet();
    let mut governor = machine.governor_without_programs(&["--threshold", "20ms"]);
    let first = governor.until("a first look", |_| true);
    // No file tells whether CPUs are busy, so none is taken for idle.
    assert!(!levels(&first).contains(&"min"), "{first}");
    service.tell("spin heavy");
    let late = governor.until("it is late", |status| is_at(status, "heavy", "max"));
    let thread = hot(&late, "heavy").unwrap()["thread"].as_u64().unwrap();
    // Wherever it goes, its CPU is the fast one, and no other. Where it is already nothing changes,
    // so nothing is told: there it does not go first.
    let at = hot(&late, "heavy").unwrap()["cpu"].as_u64();
    let elsewhere = cpus.iter().position(|cpu| Some(u64::from(cpu.0)) != at).unwrap_or(0);
    for cpu in cpus.iter().cycle().skip(elsewhere).take(if cpus.len() > 1 { 4 } else { 0 }) {
        pin(thread, *cpu);
        governor.until("its CPU is fast", |status| {
            hot(status, "heavy").is_some_and(|hot| hot["cpu"] == cpu.0) && fast(status) == [u64::from(cpu.0)]
        });
    }
    service.tell("stop heavy");
    let after = governor.until("it has left", |status| status["hot"].as_array().unwrap().is_empty());
    assert!(none_is_fast(&after), "{after}");
    // One that dies inside is gone, for its file says so.
    service.tell("spin heavy");
    governor.until("another call is late", |status| is_at(status, "heavy", "max"));
    service.tell("die late");
    service.tell("stop heavy");
    let after = governor.until("no thread is inside", |status| status["hot"].as_array().unwrap().is_empty());
    assert!(none_is_fast(&after), "{after}");
    let (code, said) = governor.end();
    assert!(code == Some(0) && said.contains("followed by their files in /proc"), "{code:?}: {said}");
    assert!(machine.is_as_it_was(), "{:?}", machine.clocks());
}

/// Has this thread run there and nowhere else.
fn pin(thread: u64, cpu: CpuId) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu.0.into());
    let thread = rustix::process::Pid::from_raw(thread.try_into().unwrap());
    rustix::thread::sched_setaffinity(thread, &set).unwrap();
}

#[test]
fn a_killed_governor_is_undone_by_restore() {
    let machine = Machine::new();
    let mut service = machine.puppet();
    let mut governor = machine.governor(&["--threshold", "1ms"]);
    service.tell("spin heavy");
    governor.until("it is late", |status| is_at(status, "heavy", "max"));
    signal(governor.child.id(), "KILL");
    governor.child.wait().unwrap();
    assert!(!machine.is_as_it_was());
    let restored =
        Command::new(ROOST).args(["restore", "--root"]).arg(machine.folder.path()).output().unwrap();
    assert_eq!(restored.status.code(), Some(0), "{}", String::from_utf8_lossy(&restored.stderr));
    assert!(machine.is_as_it_was(), "{:?}", machine.clocks());
}

#[test]
fn a_file_that_is_cut_short_ends_it_and_somebody_elses_clock_is_theirs() {
    let machine = Machine::new();
    let mut service = machine.puppet();
    let mut governor = machine.governor(&["--threshold", "1ms"]);
    service.tell("wait one");
    governor.until("it is inside", |status| hot(status, "one").is_some());
    fs::OpenOptions::new().write(true).open(machine.slots()).unwrap().set_len(100).unwrap();
    let (code, said) = governor.ended();
    assert!(code == Some(1) && said.contains("was cut short"), "{code:?}: {said}");
    assert!(machine.is_as_it_was(), "{:?}", machine.clocks());
    drop(service);

    let machine = Machine::new();
    let mut service = machine.puppet();
    let mut governor = machine.governor(&["--threshold", "1h"]);
    service.tell("wait one");
    governor.until("it is inside", |status| hot(status, "one").is_some());
    let theirs = machine.folder.path().join("sys/devices/system/cpu/cpufreq/policy0/scaling_setspeed");
    // Twice a second it looks; twice in a row is another program that means it.
    let stop = Arc::new(AtomicBool::new(false));
    let over = stop.clone();
    let other = std::thread::spawn(move || {
        while !over.load(Ordering::Acquire) {
            fs::write(&theirs, "2300000\n").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    let (code, said) = governor.ended();
    stop.store(true, Ordering::Release);
    other.join().unwrap();
    assert!(code == Some(4) && said.contains("another process sets these clocks"), "{code:?}: {said}");
    assert_eq!(machine.clocks()[0], "2300000");
}

#[test]
fn a_run_leaves_a_page_and_a_recording_that_replays() {
    let machine = Machine::new();
    let mut service = machine.puppet();
    let out = machine.folder.path().join("run-folder");
    let record = machine.folder.path().join("recording");
    let config = ConfigFile::new(&format!("record = \"{}\"", record.display()));
    let flags = ["--threshold", "5ms", "--out", out.to_str().unwrap(), "--config", &*config];
    let mut governor = machine.governor(&flags);
    for _ in 0..3 {
        service.tell("spin heavy");
        governor.until("it is late", |status| is_at(status, "heavy", "max"));
        service.tell("stop heavy");
        governor.until("it has left", |status| status["hot"].as_array().unwrap().is_empty());
    }
    let (code, said) = governor.end();
    assert_eq!(code, Some(0), "{said}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Calls by their length") && page.contains("Clocks over time"), "{page}");
    let numbers: Value =
        serde_json::from_str(&fs::read_to_string(out.join("hurry-up.json")).unwrap()).unwrap();
    assert!(numbers["last"]["calls"].as_u64() >= Some(3), "{numbers}");
    let replayed = Command::new(ROOST).arg("replay").arg(&record).output().unwrap();
    let said = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert!(replayed.status.success() && said.contains("the same commands again"), "{said}");
}

fn asked(machine: &Machine, flags: &[&str]) -> Output {
    let mut command = Command::new(ROOST);
    command.args(["govern", "hurry-up", "--json", "--take-over", "--slots"]).arg(machine.slots()).args(flags);
    command.output().unwrap()
}

fn refused(machine: &Machine, flags: &[&str]) -> (Option<i32>, String) {
    let output = asked(machine, flags);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_is_wrong_is_told_with_what_to_do() {
    let machine = Machine::new();
    let (code, said) = refused(&machine, &[]);
    assert!(code == Some(2) && said.contains("-javaagent:roost-agent.jar="), "{code:?}: {said}");
    fs::write(machine.slots(), "no slots\n").unwrap();
    let (code, said) = refused(&machine, &[]);
    assert!(code == Some(2) && said.contains("is not a slot file"), "{code:?}: {said}");
    fs::remove_file(machine.slots()).unwrap();
    let service = machine.puppet();
    let own = std::process::id().to_string();
    let (code, said) = refused(&machine, &["--pid", &own]);
    let writer = format!("written by process {}", service.child.id());
    assert!(code == Some(2) && said.contains(&writer), "{code:?}: {said}");
    let root = machine.folder.path().to_str().unwrap();
    let clocks = ConfigFile::new("[[hurry_up]]\nmin = \"2GHz\"\nmid = \"1GHz\"");
    let cpus = ConfigFile::new("[[hurry_up]]\ncpus = \"999\"");
    let means = ConfigFile::new("frequency_actuator = \"duty-cycle\"");
    for (flags, told) in [
        (&["--config", &*clocks][..], "f_min"),
        (&["--config", &*cpus], "leaves none"),
        (&["--threshold", "soon"], "such as p75"),
        (&["--config", &*means], "allow_msr = true"),
    ] {
        let (code, said) = refused(&machine, &[&["--root", root][..], flags].concat());
        assert!(code == Some(2) && said.contains(told), "{flags:?}, {code:?}: {said}");
    }
    // A machine without clocks: 3, but for who only looks.
    let bare = tempfile::tempdir().unwrap();
    let root = bare.path().to_str().unwrap();
    let (code, said) = refused(&machine, &["--root", root]);
    assert!(code == Some(3) && said.contains("--dry-run"), "{code:?}: {said}");
    let shown = asked(&machine, &["--root", root, "--dry-run", "--for", "100ms"]);
    let lines = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success() && lines.contains("\"dry_run\":true"), "{lines}");
    drop(service);
    let (code, said) = refused(&machine, &["--root", machine.folder.path().to_str().unwrap()]);
    assert!(code == Some(2) && said.contains("has ended"), "{code:?}: {said}");
}

#[test]
fn nobody_inside_costs_no_wake_up_and_a_writer_that_lies_costs_its_own_service_alone() {
    let machine = Machine::new();
    let service = machine.puppet();
    let mut governor = machine.governor(&[]);
    governor.until("a first look", |_| true);
    // A slot of a thread that there is not, and one of another process's thread, both inside since
    // the beginning of time.
    let mut bytes = fs::read(machine.slots()).unwrap();
    for (slot, tid) in [(0, 1_i32), (1, std::process::id() as i32)] {
        let at = 36_864 + slot * 64;
        bytes[at] = 1;
        bytes[at + 4] = 1;
        bytes[at + 8..at + 16].copy_from_slice(&1_u64.to_le_bytes());
        bytes[at + 32..at + 36].copy_from_slice(&tid.to_le_bytes());
        bytes[at + 36] = 1;
    }
    bytes[184] = 2;
    use std::os::unix::fs::FileExt as _;
    let file = fs::OpenOptions::new().write(true).open(machine.slots()).unwrap();
    file.write_all_at(&bytes[36_864..36_992], 36_864).unwrap();
    file.write_all_at(&bytes[184..185], 184).unwrap();
    let (code, said) = governor.end();
    assert_eq!(code, Some(0), "{said}");
    // Meanwhile a CPU is idle and busy in turn, many times a second: what else this machine does
    // keeps no thread awake, neither the paper's, which follows threads alone, nor ours.
    let (other, has_ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let busy = std::thread::spawn({
        let other = other.clone();
        move || {
            while !other.load(Ordering::Acquire) {
                std::thread::sleep(std::time::Duration::from_millis(2));
                let began = std::time::Instant::now();
                while began.elapsed().as_millis() < 2 {}
            }
        }
    });
    let file = ConfigFile::new("[[hurry_up]]\npreset = \"paper\"");
    for flags in [&["--config", &*file][..], &[]] {
        let mut governor = machine.governor(flags);
        let status = governor.until("a look", |_| true);
        assert!(status["hot"].as_array().unwrap().is_empty() && none_is_fast(&status), "{status}");
        // A pipe that no process reads would put it to sleep as well.
        let process = governor.child.id();
        has_ended.store(false, Ordering::Release);
        let rests = std::thread::scope(|scope| {
            let rests = scope.spawn(|| {
                let rests = comes_to_rest(process, &has_ended);
                signal(process, "TERM");
                rests
            });
            let (code, said) = governor.ended();
            has_ended.store(true, Ordering::Release);
            assert_eq!(code, Some(0), "{said}");
            rests.join().unwrap()
        });
        assert!(rests, "{flags:?}");
    }
    other.store(true, Ordering::Release);
    busy.join().unwrap();
    drop(service);
    assert!(machine.is_as_it_was());
}

/// True if a process comes to stand still for three seconds: liars are looked for ten times at
/// most, a tenth of a second apart, and CPUs that flap are asked five times at most.
fn comes_to_rest(process: u32, has_ended: &AtomicBool) -> bool {
    let (mut last, mut quiet) = (switches(process), 0);
    for _ in 0..40 {
        std::thread::sleep(std::time::Duration::from_secs(1));
        if has_ended.load(Ordering::Acquire) {
            return false;
        }
        let now = switches(process);
        quiet = if std::mem::replace(&mut last, now) == now { quiet + 1 } else { 0 };
        if quiet == 3 {
            return true;
        }
    }
    false
}

/// How often threads of a process were switched to.
fn switches(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_task = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let counts =
            status.lines().filter_map(|line| line.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok());
        counts.sum::<u64>()
    };
    tasks.map(of_task).sum()
}

/// A server in C++ that knows nothing of slots, and a connection to it.
struct Unchanged {
    process: Child,
    client: TcpStream,
    _folder: tempfile::TempDir,
}

impl Unchanged {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("server");
        let source = repository().join("crates/observe/tests/native/server.cc");
        let done = Command::new("c++").args(["-O2", "-pthread", "-o"]).arg(&program).arg(source).status();
        assert!(done.expect("c++; `scripts/setup test` installs it").success());
        let mut process = Command::new(&program).stdout(Stdio::piped()).ends_with_parent().spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port: u16 = line.split_whitespace().nth(2).expect("ready PID PORT").parse().unwrap();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_nodelay(true).unwrap();
        Self { process, client, _folder: folder }
    }

    fn ask(&mut self, how: u8) -> u8 {
        self.client.write_all(&[how]).unwrap();
        let mut reply = [0];
        self.client.read_exact(&mut reply).unwrap();
        reply[0]
    }

    /// Why its functions cannot be watched here.
    fn cannot_be_watched(&self) -> Option<String> {
        let name = FunctionName { binary: "server".into(), symbol: "search".into() };
        match FunctionWatch::attach(&linux::Root::system(), self.process.id(), &[name], false) {
            Ok(_) => None,
            Err(FunctionError::Bpf(why)) => Some(why.to_string()),
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Unchanged {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_program_that_was_not_changed_is_governed_and_leaves_no_core_fast() {
    let machine = Machine::new();
    let mut server = Unchanged::start();
    if let Some(why) = server.cannot_be_watched() {
        return crate::fixture::skipped("hurry-up by uprobes", &why);
    }
    // Before it is watched, a call is as any other.
    assert_eq!(server.ask(b's'), b'o');
    let pid = server.process.id().to_string();
    let source = ["--pid", &pid, "--uprobe", "server:search"];
    let mut governor = machine.governor_of(&source, &["--threshold", "20ms"]);
    governor.until("a first look", |_| true);
    // By a return; by an exception that no probe sees, after which the thread sleeps; and both once
    // more.
    for (how, answer) in [(b'b', b'o'), (b'e', b'x'), (b'e', b'x'), (b'b', b'o')] {
        assert_eq!(server.ask(how), b'i');
        governor.until("it is late", |status| is_at(status, "server", "max"));
        assert!(machine.clocks().iter().any(|clock| clock == MAX), "{:?}", machine.clocks());
        assert_eq!(server.ask(b'.'), answer);
        let after = governor.until("it is outside", |status| status["hot"].as_array().unwrap().is_empty());
        assert!(none_is_fast(&after), "{after}");
        assert!(machine.clocks().iter().all(|clock| clock == MIN || clock == MID), "{:?}", machine.clocks());
    }
    // A governor that is killed takes its probes along, and the program goes on; what it left is
    // put back by the next.
    assert_eq!(server.ask(b'b'), b'i');
    governor.until("it is late", |status| is_at(status, "server", "max"));
    signal(governor.child.id(), "KILL");
    governor.child.wait().unwrap();
    assert_eq!(server.ask(b'.'), b'o');
    let restored =
        Command::new(ROOST).args(["restore", "--root"]).arg(machine.folder.path()).output().unwrap();
    assert!(restored.status.success() && machine.is_as_it_was(), "{:?}", machine.clocks());
    // A program that is killed in the middle of a call.
    let mut governor = machine.governor_of(&source, &["--threshold", "20ms"]);
    governor.until("a first look", |_| true);
    assert_eq!(server.ask(b'b'), b'i');
    governor.until("it is late", |status| is_at(status, "server", "max"));
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let (code, said) = governor.ended();
    assert!(code == Some(1) && said.contains("died with 1 of its threads"), "{code:?}: {said}");
    assert!(machine.is_as_it_was(), "{:?}", machine.clocks());
}

#[test]
fn functions_that_cannot_be_watched_are_told_with_what_to_do() {
    let machine = Machine::new();
    let server = Unchanged::start();
    if let Some(why) = server.cannot_be_watched() {
        return crate::fixture::skipped("hurry-up by uprobes", &why);
    }
    let (pid, root) = (server.process.id().to_string(), machine.folder.path().to_str().unwrap().to_owned());
    for (flags, code, words) in [
        (&["--uprobe", "server:serch"][..], 2, "the nearest: search"),
        (&["--uprobe", "nothing:search"], 2, "runs no file nothing"),
        (&["--uprobe", "search"], 2, "BINARY:SYMBOL"),
        (&["--uprobe", "server:search", "--slots", "/dev/shm/x"], 2, "cannot be used with"),
    ] {
        let mut command = Command::new(ROOST);
        command
            .args([
                "govern",
                "hurry-up",
                "--json",
                "--take-over",
                "--for",
                "1s",
                "--root",
                &root,
                "--pid",
                &pid,
            ])
            .args(flags);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{flags:?}: {said}");
    }
    assert!(machine.is_as_it_was());
}

/// A JVM under the governor; `None` where there is none, which is said.
fn jvm(machine: &Machine, flags: &[&str]) -> Option<Jvm> {
    let methods = "method=tiny.Server::spin,method=tiny.Server::search";
    match Jvm::start(&format!("{methods},file={}", machine.slots().display()), flags) {
        Ok(jvm) => Some(jvm),
        Err(why) => {
            crate::fixture::skipped("hurry-up on a JVM", &why);
            None
        }
    }
}

#[test]
fn collecting_garbage_is_as_urgent_as_the_request_that_waits_for_it() {
    let machine = Machine::new();
    let flags = ["-Xmx512m", "-XX:+UseParallelGC", "-XX:ParallelGCThreads=2"];
    let Some(mut server) = jvm(&machine, &flags) else { return };
    // No request is late in this test: fast ones are so because a caller waits for them.
    let mut governor = machine.governor(&["--threshold", "1h"]);
    server.tell("spin 120000");
    governor.until("it is inside", |status| hot(status, "spinner").is_some());
    assert_eq!(server.answer(), "ok");
    server.tell("collect 200 20");
    let waits = governor.until("it waits for the collector", |status| {
        hot(status, "spinner").is_some_and(|hot| hot["runs"] == false) && levels(status).contains(&"max")
    });
    assert!(is_at(&waits, "spinner", "mid"), "{waits}");
    let after = governor.until("it runs again", |status| {
        hot(status, "spinner").is_some_and(|hot| hot["runs"] == true) && none_is_fast(status)
    });
    assert!(is_at(&after, "spinner", "mid"), "{after}");
    // In the middle of a request, and of collecting garbage perhaps.
    server.kill();
    let (code, said) = governor.ended();
    assert!(code == Some(1) && said.contains("died with 1 of its threads"), "{code:?}: {said}");
    assert!(machine.is_as_it_was(), "{:?}", machine.clocks());
}

#[test]
fn calls_of_a_jvm_that_end_by_an_exception_are_over() {
    let machine = Machine::new();
    let Some(mut server) = jvm(&machine, &["-Xmx64m"]) else { return };
    let mut governor = machine.governor(&["--threshold", "1ms"]);
    server.tell("spin 300");
    governor.until("it is late", |status| is_at(status, "spinner", "max"));
    assert_eq!(server.answer(), "ok");
    assert_eq!(server.ask("throw 1000"), "ok");
    let after = governor.until("no thread is inside", |status| {
        status["hot"].as_array().unwrap().is_empty() && none_is_fast(status)
    });
    assert_eq!(after["process"], server.id());
    let (code, said) = governor.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(machine.is_as_it_was());
}
