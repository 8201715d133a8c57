//! Hurry-up on the lab's machine of eight CPUs with six frequencies each (`lab/run hurry-up`): real
//! threads, the program in a real kernel, `scaling_setspeed`, and a port for each CPU that reads
//! what Linux commanded.
//!
//! The service is this program again (`victim`), a native server that writes slots; no JVM fits
//! into that machine. Nothing is judged by time: the test waits for the events.

use crate::lab_ports::commanded;
use daemon::hurry_up::{ClocksAsked, Ending, Hurry, HurryOptions, Preset, SlotSource, Stop};
use linux::arbiter::{Arbiter, ClockMeans};
use linux::probes::ThreadProgram;
use linux::{Root, restore};
use machine::{CpuList, Duration};
use policy::frequency::hurry_up::Threshold;
use slots::{Writer, WriterOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

const VICTIM: &str = "ROOST_LAB_HURRY_UP";

/// Not a test of its own: the body of the service. One thread, which goes where it is told, enters,
/// and leaves.
#[test]
fn victim() {
    let Ok(path) = std::env::var(VICTIM) else { return };
    let writer =
        Writer::create(Path::new(&path), &["lab::hot"], WriterOptions::default()).expect("a slot file");
    let hot = writer.method(0).expect("its method");
    let (commands, command) = std::sync::mpsc::channel::<String>();
    // It computes between two commands, so it must not wait for them.
    std::thread::spawn(move || {
        let slot = writer.register();
        let mut inside = None;
        loop {
            match command.try_recv().as_deref() {
                Ok("enter") => inside = Some(slot.enter(hot)),
                Ok("leave") => drop(inside.take()),
                Ok("wait") => std::thread::sleep(std::time::Duration::from_secs(600)),
                Ok(cpus) => {
                    linux::pin_current_thread_to(&cpus.parse::<CpuList>().expect("CPUs")).expect("a CPU")
                }
                Err(_) => std::thread::yield_now(),
            }
        }
    });
    println!("ready");
    for line in std::io::stdin().lines() {
        commands.send(line.expect("a line")).expect("the thread lives");
    }
}

struct Service {
    child: Child,
    slots: PathBuf,
}

impl Service {
    fn start(folder: &Path) -> Self {
        let slots = folder.join("slots");
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "hurry_up_lab::victim", "--nocapture", "--test-threads=1"])
            .env(VICTIM, &slots)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.expect("a line").ends_with("ready")));
        // A reader has to remain.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, slots }
    }

    fn tell(&mut self, what: &str) {
        self.child
            .stdin
            .as_mut()
            .expect("piped")
            .write_all(format!("{what}\n").as_bytes())
            .expect("it reads");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn options(process: u32, slots: &Path, threshold: Duration) -> HurryOptions {
    HurryOptions {
        root: Root::system(),
        slots: SlotSource::File { path: slots.to_owned(), process: Some(process) },
        cpus: None,
        preset: Preset::Learned,
        threshold: Some(Threshold::Fixed(threshold)),
        clocks: ClocksAsked::default(),
        means: ClockMeans::default(),
        dry_run: false,
        record: None,
        audit: None,
        arbiter: Arbiter::new(&Root::system(), "lab"),
    }
}

/// The governor, on a thread of its own.
struct Governor {
    stop: Stop,
    thread: JoinHandle<Ending>,
    /// Idle CPUs go to the minimum.
    sees_idle: bool,
}

impl Governor {
    fn start(service: &Service, threshold: Duration) -> Self {
        let options = options(service.child.id(), &service.slots, threshold);
        let mut hurry = Hurry::open(&options).expect("this needs the lab's machine: run `lab/run hurry-up`");
        let notices = hurry.drain_notices();
        // On a kernel that lacks a feature of the program, threads are followed by files in /proc,
        // and no idle CPU can be told.
        let sees_idle = match ThreadProgram::load(std::process::id()) {
            Err(error) if error.is_lack() => {
                println!("SKIPPED, idle CPUs: {error}");
                assert!(matches!(&notices[..], [one] if one.contains(&error.to_string())), "{notices:?}");
                false
            }
            _ => {
                assert_eq!(notices, [""; 0], "this machine lacks nothing");
                true
            }
        };
        let stop = hurry.stop();
        let thread = std::thread::spawn(move || {
            let ending = hurry.run(None, |_| {}).expect("it goes on");
            println!("{}", hurry.release().join("\n"));
            ending
        });
        Self { stop, thread, sees_idle }
    }

    fn end(self) -> Ending {
        self.stop.now();
        self.thread.join().expect("it does not panic")
    }
}

fn begin() {
    for cpu in 0..8 {
        for (file, text) in [
            ("scaling_governor", "userspace"),
            ("scaling_setspeed", "1000000"),
            ("scaling_setspeed", "2300000"),
        ] {
            let path = format!("/sys/devices/system/cpu/cpufreq/policy{cpu}/{file}");
            std::fs::write(path, text).expect("this needs the lab's machine: run `lab/run hurry-up`");
        }
    }
    assert_eq!(commanded(), BEFORE);
}

const BEFORE: [u8; 8] = [23; 8];
const IDLE: u8 = 10;
const WORK: u8 = 20;
const HEAVY: u8 = 26;

/// Waits until this holds of all ports.
fn until(what: &str, holds: impl Fn(&[u8; 8]) -> bool) -> [u8; 8] {
    for _ in 0..20_000 {
        let now = commanded();
        if holds(&now) {
            return now;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("not {what}: {:?}", commanded());
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run hurry-up"]
fn a_call_takes_its_clock_from_cpu_to_cpu_and_leaves_none_behind() {
    begin();
    let folder = tempfile::tempdir().expect("a folder");
    let mut service = Service::start(folder.path());
    service.tell("6");
    let governor = Governor::start(&service, Duration::from_secs(2));
    // It computes outside, since before the governor came: other work. The number of idle CPUs at a
    // look is chance: while no thread is inside it looks seldom.
    let sees_idle = governor.sees_idle;
    until("at work", |ports| ports[6] == WORK && (ports.contains(&IDLE) || !sees_idle));
    service.tell("enter");
    // Now it looks all the time, and the other CPUs are idle, but for the work of it and of this
    // test.
    let idle = |ports: &[u8; 8]| ports.iter().filter(|port| **port == IDLE).count();
    let late = until("heavy", |ports| ports[6] == HEAVY && (idle(ports) >= 5 || !sees_idle));
    assert_eq!(late.iter().filter(|port| **port == HEAVY).count(), 1, "{late:?}");
    service.tell("3");
    until("heavy elsewhere", |ports| ports[3] == HEAVY && ports[6] != HEAVY);
    service.tell("leave");
    until("over", |ports| ports.iter().all(|port| *port == IDLE || *port == WORK));
    assert_eq!(commanded()[3], WORK, "it goes on outside");
    assert_eq!(governor.end(), Ending::Stopped);
    assert_eq!(commanded(), BEFORE);
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run hurry-up"]
fn who_waits_inside_needs_no_clock_and_who_dies_there_leaves_none_fast() {
    begin();
    let folder = tempfile::tempdir().expect("a folder");
    let mut service = Service::start(folder.path());
    service.tell("5");
    let governor = Governor::start(&service, Duration::from_millis(1));
    service.tell("enter");
    until("heavy", |ports| ports[5] == HEAVY);
    service.tell("wait");
    let rests = if governor.sees_idle { IDLE } else { WORK };
    until("idle, though it is inside", |ports| ports[5] == rests);
    drop(service);
    assert_eq!(governor.thread.join().expect("it ends by itself"), Ending::ServiceEnded { inside: 1 });
    assert_eq!(commanded(), BEFORE);
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run hurry-up"]
fn a_killed_governor_is_undone() {
    begin();
    let folder = tempfile::tempdir().expect("a folder");
    let mut service = Service::start(folder.path());
    service.tell("4");
    service.tell("enter");
    let governor = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "hurry_up_lab::governor", "--nocapture", "--test-threads=1"])
        .env(GOVERNED, service.child.id().to_string())
        .env(VICTIM, &service.slots)
        .spawn();
    let mut governor = governor.expect("it starts");
    until("heavy", |ports| ports[4] == HEAVY);
    governor.kill().expect("it runs");
    governor.wait().expect("it has ended");
    assert_eq!(commanded()[4], HEAVY, "it is not put back yet");
    let report = restore(&Root::system()).expect("a journal");
    assert_eq!((report.failed, commanded()), (0, BEFORE), "{report:?}");
}

const GOVERNED: &str = "ROOST_LAB_GOVERNED";

/// Not a test of its own: the body of a governor that is killed.
#[test]
fn governor() {
    let (Ok(process), Ok(slots)) = (std::env::var(GOVERNED), std::env::var(VICTIM)) else { return };
    let options = options(process.parse().expect("a process"), Path::new(&slots), Duration::from_millis(1));
    let mut hurry = Hurry::open(&options).expect("the lab's machine");
    hurry.run(None, |_| {}).expect("it is killed before it ends");
}
