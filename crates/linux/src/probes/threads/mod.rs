//! The places of the threads of one process and the use of each CPU, from the scheduler's own
//! events (`threads.bpf.c`) through memory that both sides share: a look is a few loads.
//!
//! Terms:
//! - A CPU that is asked to *kick* reports once, through a ring buffer, that it is idle, or that it
//!   has worked for longer than [`KICK_PATIENCE`] at a stretch. A controller that chose its
//!   frequency by its work needs no timer to find out.
//!
//! Invariants:
//! - A CPU is idle if it said so, at an event or at the start; before that it is unknown, not idle.
//! - A place is one word: CPU and state belong together.
//! - Before its first event a thread's place is the one in `/proc` when it was first watched.
//! - Thread numbers are those of the first pid namespace, so a watcher that runs in another one
//!   must use something else; [`ThreadProgram::load`] refuses there.

use super::mapped::MappedWords;
use super::{Attachment, BpfError, Notifier, Running, run};
use crate::processes::thread_places::{Kick, Occupant, PlaceState, ThreadPlace};
use crate::processes::threads;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use machine::{CpuId, Duration};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::Ordering::Relaxed;

/// The longest work at a stretch of a CPU that was asked to kick. 2 ms: a few hundred changes of
/// frequency, and shorter than a scheduler's slice; shorter work ends before a faster frequency
/// would have paid.
pub const KICK_PATIENCE: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub struct ThreadProgram {
    process: u32,
    running: Running,
    places: MappedWords,
    cpus: MappedWords,
    indices: MapHandle,
    /// By thread, its index among the places.
    watched: BTreeMap<u32, u32>,
    free: Vec<u32>,
}

const OBJECT: &[u8] = include_bytes!("threads.bpf.o");
/// As many as a slot file can hold.
const THREADS_MAX: u32 = 16_384;
/// Words of `struct cpu`.
const CPU_WORDS: usize = 8;
const NOW: usize = 0;
const ASKED: usize = 1;
const SINCE: usize = 2;
/// The other uses of a CPU beside running a thread.
const UNKNOWN: u64 = 0;
const IDLE: u64 = 1;
/// Inode of the first pid namespace in the kernel's own file system of namespaces
/// (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// True if threads have the same numbers for this process as for `program`, which uses the kernel's
/// own; the reason if not.
pub fn knows_thread_numbers(program: &str) -> Result<(), BpfError> {
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino());
    if namespace == FIRST_PID_NAMESPACE {
        return Ok(());
    }
    Err(BpfError::Refused {
        program: program.to_owned(),
        reason: "this process runs in a pid namespace of its own, where threads have other numbers \
            than in the kernel; \
                 hint: run the governor on the host, or its container with hostPID"
            .to_owned(),
    })
}

impl ThreadProgram {
    /// Watches the CPUs, and those threads of `process` that [`Self::watch`] names.
    pub fn load(process: u32) -> Result<Self, BpfError> {
        knows_thread_numbers("threads")?;
        let mut config = Vec::new();
        config.extend(process.to_ne_bytes());
        config.extend(std::process::id().to_ne_bytes());
        config.extend(KICK_PATIENCE.as_nanos().to_ne_bytes());
        let prepare = |open: &mut libbpf_rs::OpenObject| super::configure(open, &config);
        let optional = [("goes_on", "sched_stat_runtime")];
        let running = run("threads", OBJECT, &optional, prepare, &Attachment::Own)?;
        running.run_everywhere("asked_now");
        let map = |name: &str| running.map(name).expect("the program has this map");
        Ok(Self {
            process,
            places: MappedWords::of(&map("places"))?,
            cpus: MappedWords::of(&running.counts)?,
            indices: map("indices"),
            watched: BTreeMap::new(),
            free: (0..THREADS_MAX).rev().collect(),
            running,
        })
    }

    /// Follows this thread from now on. One that has ended, or is one too many, is not followed.
    pub fn watch(&mut self, thread: u32) {
        if self.watched.contains_key(&thread) {
            if self.place(thread).is_some() {
                return;
            }
            // Another thread has got the number of one that has ended.
            self.forget(thread);
        }
        let Some(index) = self.free.pop() else { return };
        let word = self.places.word(index as usize).expect("as many words as indices");
        word.store(0, Relaxed);
        let (key, value) = (thread.to_ne_bytes(), index.to_ne_bytes());
        if self.indices.update(&key, &value, MapFlags::ANY).is_err() {
            self.free.push(index);
            return;
        }
        self.watched.insert(thread, index);
        // After the index is in the map: an event that comes first is newer than the file's text.
        let now = threads::place(self.process, thread);
        let _ = word.compare_exchange(0, word_of(now), Relaxed, Relaxed);
    }

    pub fn forget(&mut self, thread: u32) {
        if let Some(index) = self.watched.remove(&thread) {
            // It may have gone already.
            let _ = self.indices.delete(&thread.to_ne_bytes());
            self.free.push(index);
        }
    }

    /// The place of a watched thread; `None` if it is not watched, or has ended.
    pub fn place(&self, thread: u32) -> Option<ThreadPlace> {
        let index = *self.watched.get(&thread)?;
        place_in(self.places.word(index as usize)?.load(Relaxed))
    }

    /// The use of a CPU, the calling process aside; `None` for a CPU that cannot exist, and for one
    /// of which nothing is known yet.
    pub fn occupant(&self, cpu: CpuId) -> Option<Occupant> {
        match self.cpu_word(cpu, NOW)?.load(Relaxed) {
            UNKNOWN => None,
            IDLE => Some(Occupant::Idle),
            now if (now >> 32) as u32 == self.process => Some(Occupant::Own { thread: now as u32 }),
            _ => Some(Occupant::Other),
        }
    }

    /// Asks a CPU to kick, in place of its earlier request.
    pub fn ask_kick(&self, cpu: CpuId, kick: Kick) {
        if let (Some(since), Some(asked)) = (self.cpu_word(cpu, SINCE), self.cpu_word(cpu, ASKED)) {
            since.store(0, Relaxed);
            asked.store(kick as u64, Relaxed);
        }
    }

    /// Calls `heard` on a thread of its own when a CPU kicks, until the notifier is dropped.
    pub fn hear_kicks(&self, mut heard: impl FnMut() + Send + 'static) -> io::Result<Notifier> {
        let kicks = self.running.map("kicks").ok_or(io::ErrorKind::Unsupported)?;
        Notifier::start("kicks", kicks, move |_| heard())
    }

    fn cpu_word(&self, cpu: CpuId, word: usize) -> Option<&std::sync::atomic::AtomicU64> {
        self.cpus.word(cpu.index() * CPU_WORDS + word)
    }
}

const RUNS: u64 = 1;
const READY: u64 = 2;
const WAITS: u64 = 3;
const GONE: u64 = 4;

fn word_of(place: Option<ThreadPlace>) -> u64 {
    let Some(ThreadPlace { cpu, state }) = place else { return GONE << 32 };
    let state = match state {
        PlaceState::Runs => RUNS,
        PlaceState::Waits => WAITS,
    };
    state << 32 | u64::from(cpu.0)
}

fn place_in(word: u64) -> Option<ThreadPlace> {
    let state = match word >> 32 {
        RUNS | READY => PlaceState::Runs,
        WAITS => PlaceState::Waits,
        _ => return None,
    };
    Some(ThreadPlace { cpu: CpuId(u16::try_from(word as u32).ok()?), state })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndsWithParent as _;
    use crate::probes::idle_ticks;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, mpsc};
    use std::thread;

    fn program() -> Option<ThreadProgram> {
        crate::probes::unless_lacking(ThreadProgram::load(std::process::id()))
    }

    fn own_number() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().try_into().unwrap()
    }

    /// A process that computes on this CPU alone, without a pause and from now on.
    fn computing(cpu: CpuId, nice: i32) -> std::process::Child {
        use std::io::BufRead as _;
        let begin = format!("taskset -cp {} $$; renice -n {nice} $$; echo ready", cpu.0);
        let mut worker = std::process::Command::new("sh")
            .args(["-c", &format!("{begin}; while :; do :; done")])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .ends_with_parent()
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(worker.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
        worker
    }

    /// The expected event comes soon, or the test fails.
    fn until(what: &str, holds: impl Fn() -> bool) {
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !holds() {
            assert!(std::time::Instant::now() < patience, "{what}");
            thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_is_seen_running_waiting_and_gone() {
        let Some(mut program) = program() else { return };
        let (numbers, number) = mpsc::channel();
        let (go, waits) = mpsc::channel::<()>();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let worker = thread::spawn(move || {
            numbers.send(own_number()).unwrap();
            waits.recv().unwrap();
            while !over.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        let number = number.recv().unwrap();
        assert_eq!(program.place(number), None, "it is not watched yet");
        program.watch(number);
        until("it waits", || program.place(number).is_some_and(|place| place.state == PlaceState::Waits));
        go.send(()).unwrap();
        until("it runs", || program.place(number).is_some_and(|place| place.state == PlaceState::Runs));
        is_over.store(true, Relaxed);
        worker.join().unwrap();
        until("it has ended", || program.place(number).is_none());
        // Another thread may get its number, and a watcher must not take the two for one.
        program.forget(number);
        program.watch(own_number());
        assert_eq!(program.place(own_number()).map(|place| place.state), Some(PlaceState::Runs));
        program.watch(u32::MAX);
        assert_eq!(program.place(u32::MAX), None);
    }

    #[test]
    fn a_thread_is_followed_from_cpu_to_cpu() {
        let cpus: Vec<CpuId> = crate::allowed_cpus().unwrap().0.into_iter().collect();
        let (Some(mut program), true) = (program(), cpus.len() > 1) else { return };
        thread::scope(|scope| {
            scope.spawn(|| {
                program.watch(own_number());
                for _ in 0..20 {
                    for &cpu in &cpus {
                        threads::set_cpus(own_number(), &machine::CpuList([cpu].into())).unwrap();
                        assert_eq!(program.place(own_number()).map(|place| place.cpu), Some(cpu));
                    }
                }
            });
        });
    }

    #[test]
    fn who_computes_without_a_pause_since_before_it_began_is_not_idle() {
        if program().is_none() {
            return;
        }
        let cpu = *crate::allowed_cpus().unwrap().0.last().unwrap();
        // Before everything else on its CPU: it is switched away from as seldom as can be.
        let mut worker = computing(cpu, -20);
        // Each begins with a map of its own, in which nothing has happened yet.
        let seen: Vec<_> = (0..10).map(|_| program().unwrap().occupant(cpu)).collect();
        worker.kill().unwrap();
        worker.wait().unwrap();
        assert!(!seen.contains(&Some(Occupant::Idle)), "{seen:?}");
        assert!(seen.contains(&Some(Occupant::Other)), "it is asked when the program begins: {seen:?}");
    }

    #[test]
    fn a_cpu_with_work_that_is_ready_is_not_idle_while_its_watcher_runs() {
        let Some(program) = program() else { return };
        let cpu = *crate::allowed_cpus().unwrap().0.last().unwrap();
        // One computes, and one goes to sleep before the watcher's slices.
        let sleeping = std::process::Command::new("taskset")
            .args(["-c", &cpu.0.to_string(), "sh", "-c", "while :; do sleep 0.0005; done"])
            .ends_with_parent()
            .spawn()
            .unwrap();
        let mut workers = [computing(cpu, 0), sleeping];
        thread::scope(|scope| {
            scope.spawn(|| {
                threads::set_cpus(own_number(), &machine::CpuList([cpu].into())).unwrap();
                until("it works", || program.occupant(cpu) == Some(Occupant::Other));
                for _ in 0..2_000 {
                    thread::sleep(std::time::Duration::from_micros(200));
                    assert_eq!(program.occupant(cpu), Some(Occupant::Other));
                }
            });
        });
        for worker in &mut workers {
            worker.kill().unwrap();
            worker.wait().unwrap();
        }
    }

    #[test]
    fn a_cpu_kicks_once_when_it_works_and_once_when_it_is_idle() {
        let Some(program) = program() else { return };
        let (kicks, kick) = mpsc::channel();
        let _bell = program.hear_kicks(move || kicks.send(()).unwrap());
        let (soon, long) = (std::time::Duration::from_millis(50), std::time::Duration::from_secs(20));
        let cpu = *crate::allowed_cpus().unwrap().0.first().unwrap();
        // Another process: our own slices are passed over.
        let mut worker = computing(cpu, 0);
        until("it works", || program.occupant(cpu).is_some_and(|now| now != Occupant::Idle));
        program.ask_kick(cpu, Kick::WhenItWorks);
        kick.recv_timeout(long).expect("it works");
        kick.recv_timeout(soon).expect_err("once for each time that it is asked");
        program.ask_kick(cpu, Kick::Never);
        kick.recv_timeout(soon).expect_err("it is not asked any more");
        program.ask_kick(cpu, Kick::WhenItIsIdle);
        worker.kill().unwrap();
        worker.wait().unwrap();
        let idle = idle_ticks(cpu);
        if kick.recv_timeout(long).is_err() {
            assert_eq!(idle_ticks(cpu), idle, "it was idle, and said nothing");
            println!("SKIPPED: others kept {cpu} busy all the time");
        }
        assert_eq!(program.occupant(CpuId(u16::MAX)), None);
    }
}
