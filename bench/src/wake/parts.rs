//! The measured loops of events. A latency begins at the moment that something woke the waiting
//! thread.
//!
//! The waiting thread is pinned to one CPU and its waker to another, which both sleep in between. A
//! way that announces does so before it waits, as a program would that knows the time of its reply;
//! the other ways run the same code without.

use super::{Bench, Part};
use anyhow::{Context as _, Result};
use linux::SafeFolder;
use machine::{CpuId, Duration, Instant};
use slots::wake::WakeClient;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use workload::Random;

#[derive(Default)]
pub struct Done {
    pub latencies: Vec<Duration>,
    /// Events, those included that were announced and did not come.
    pub events: usize,
    /// Of repeated runs: how many the oracle had within a tenth, and how many there were.
    pub oracle: Option<(u64, u64)>,
    /// Of disk reads: the gap before each.
    pub gaps: Vec<Duration>,
    /// Of repeated runs: how long each took, until the device was done.
    pub lengths: Vec<Duration>,
}

const GAP: Duration = Duration::from_millis(10);
/// The announced event may come this much later, mostly by the delay of a sleeping CPU's own timer.
const STAY: Duration = Duration::from_micros(400);
/// Bytes of the file that is read.
const FILE_BYTES: u64 = 64 << 20;
const READ: u64 = 4096;

pub fn run(part: Part, bench: &Bench<'_>, client: Option<&WakeClient>, round: u32) -> Result<Done> {
    let mut random = Random::new(u64::from(round), part as u64);
    let events = bench.args.events;
    match part {
        Part::Cross => {
            let turns = (0..events).map(|_| Turn { gap: GAP, ..Turn::default() }).collect();
            wake_ups(bench, client, turns, None)
        }
        Part::Jitter => {
            let turns = (0..events)
                .map(|_| Turn {
                    gap: GAP,
                    announced: Some(GAP.scale(0.8 + 0.4 * random.unit())),
                    never: random.unit() < 0.1,
                })
                .collect();
            wake_ups(bench, client, turns, None)
        }
        Part::KMeans | Part::StreamCluster => {
            let law = if part == Part::KMeans { Law::k_means() } else { Law::stream_cluster() };
            let mut oracle = 0;
            let turns: Vec<Turn> = (0..events)
                .map(|nth| {
                    let (length, middle) = law.draw(&mut random, f64::from(nth) / f64::from(events));
                    oracle += u64::from((length - middle).abs() <= middle / 10.0);
                    Turn { gap: Duration::from_nanos((length * 1e3) as u64), ..Turn::default() }
                })
                .collect();
            let mut done = wake_ups(bench, client, turns, Some(part as u64))?;
            done.oracle = Some((oracle, u64::from(events)));
            Ok(done)
        }
        Part::PingPong => ping_pong(bench, client),
        Part::Disk => disk(bench, &mut random),
        Part::Bystander => unreachable!("it is no part of events"),
    }
}

/// The length of a kernel's run, in us: the paper's figure shows twice the deviation.
struct Law {
    middle: f64,
    deviation: f64,
    outliers: f64,
    drift: f64,
}

impl Law {
    fn k_means() -> Self {
        Self { middle: 540.0, deviation: 12.5, outliers: 0.0, drift: 0.0 }
    }

    fn stream_cluster() -> Self {
        Self { middle: 500.0, deviation: 25.0, outliers: 0.02, drift: 0.1 }
    }

    /// A length, and the middle of the law then, `at` of the way.
    fn draw(&self, random: &mut Random, at: f64) -> (f64, f64) {
        let middle = self.middle * (1.0 + self.drift * (at - 0.5));
        let length = middle + self.deviation * random.normal();
        let is_outlier = random.unit() < self.outliers;
        (if is_outlier { 3.0 * length } else { length }.max(50.0), middle)
    }
}

#[derive(Clone, Copy, Default)]
struct Turn {
    /// From its announcement until it comes.
    gap: Duration,
    announced: Option<Duration>,
    never: bool,
}

#[derive(Default)]
struct Turns {
    /// The turn for which the sleeper waits.
    ready: AtomicU64,
    /// The turn that is over; [`END`].
    over: AtomicU64,
    stamp: AtomicU64,
    /// The turn as a run that the planner was told of, one more than its number; 0: as none.
    run: AtomicU64,
}

const END: u64 = u64::MAX;
/// The device's last wait is spun, so that its end is punctual.
const SPUN: Duration = Duration::from_micros(150);

/// A thread is woken by one on another CPU. With a `kernel`, the waiting thread announces each as a
/// run of that kind, and the device's thread tells its end, as a stream's host callback does. Else
/// the waker says when.
fn wake_ups(
    bench: &Bench<'_>,
    client: Option<&WakeClient>,
    events: Vec<Turn>,
    kernel: Option<u64>,
) -> Result<Done> {
    let turns = Turns::default();
    let (sleeper, waker) = (bench.sleeper, bench.waker);
    let count = events.len();
    let (latencies, lengths) = thread::scope(|scope| {
        let sleeping = scope.spawn(|| {
            let pinned = begin(sleeper);
            let (mut latencies, mut lengths) = (Vec::with_capacity(count), Vec::with_capacity(count));
            for turn in 1.. {
                let launched = linux::now();
                let run = kernel.and_then(|key| client?.began(key, &[sleeper]).id());
                turns.run.store(run.map_or(0, |id| id + 1), Ordering::Relaxed);
                turns.ready.store(turn, Ordering::Release);
                while turns.over.load(Ordering::Acquire) < turn {
                    thread::park();
                }
                let awake = linux::now();
                if turns.over.load(Ordering::Acquire) == END {
                    break;
                }
                let stamp = turns.stamp.load(Ordering::Acquire);
                // Zero: it did not come, and the turn is over all the same.
                if stamp > 0 {
                    let done = Instant::from_nanos(stamp);
                    latencies.push(awake.since(done));
                    lengths.push(done.since(launched));
                }
            }
            pinned.map(|()| (latencies, lengths))
        });
        let (thread, turns) = (sleeping.thread().clone(), &turns);
        let waking = scope.spawn(move || {
            let pinned = begin(waker);
            for (turn, event) in (1..).zip(&events) {
                while turns.ready.load(Ordering::Acquire) < turn && pinned.is_ok() {
                    std::hint::spin_loop();
                }
                let run = turns.run.load(Ordering::Relaxed).checked_sub(1);
                let due = linux::now() + event.gap;
                let said = client.filter(|_| kernel.is_none()).map(|client| match event.announced {
                    // Both are on the way of the event: who waits, and who wakes.
                    None => (client, client.wake(&[sleeper, waker], due, STAY)),
                    Some(announced) => (client, client.follows(1, linux::now() + announced, &[sleeper])),
                });
                if kernel.is_some() {
                    linux::sleep_until(due - SPUN);
                    while linux::now() < due {
                        std::hint::spin_loop();
                    }
                } else {
                    linux::sleep_until(due);
                }
                turns.stamp.store(if event.never { 0 } else { linux::now().as_nanos() }, Ordering::Release);
                turns.over.store(turn, Ordering::Release);
                thread.unpark();
                if let (Some(client), Some(id)) = (client, run) {
                    client.ended(id);
                }
                if let Some((client, id)) = said.and_then(|(client, said)| Some((client, said.id()?))) {
                    if event.never {
                        client.withdraw(id);
                    } else {
                        client.ended(id);
                    }
                }
            }
            // The last is over when the next could begin: who sleeps must not take the end of all
            // for it.
            while pinned.is_ok() && turns.ready.load(Ordering::Acquire) <= count as u64 {
                std::hint::spin_loop();
            }
            turns.over.store(END, Ordering::Release);
            thread.unpark();
            pinned
        });
        waking.join().expect("the waker does not panic")?;
        sleeping.join().expect("the sleeper does not panic")
    })?;
    // The first is cold.
    Ok(Done {
        latencies: latencies.into_iter().skip(1).collect(),
        events: count,
        lengths: if kernel.is_some() { lengths.into_iter().skip(1).collect() } else { Vec::new() },
        ..Done::default()
    })
}

/// A byte there and back, from the moment at which it is sent; the client has slept before, and
/// says beforehand that it will send.
fn ping_pong(bench: &Bench<'_>, client: Option<&WakeClient>) -> Result<Done> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("the loopback")?;
    let address = listener.local_addr()?;
    let (sleeper, waker, events) = (bench.sleeper, bench.waker, bench.args.events);
    thread::scope(|scope| {
        let serving = scope.spawn(move || -> Result<()> {
            begin(sleeper)?;
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            let mut byte = [0];
            while stream.read(&mut byte)? == 1 {
                stream.write_all(&byte)?;
            }
            Ok(())
        });
        let asking = scope.spawn(move || -> Result<Done> {
            begin(waker)?;
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            let mut latencies = Vec::with_capacity(events as usize);
            for nth in 0..=events {
                let due = linux::now() + GAP;
                let said = client.map(|client| (client, client.wake(&[sleeper, waker], due, STAY)));
                linux::sleep_until(due);
                let sent = linux::now();
                stream.write_all(b".")?;
                stream.read_exact(&mut [0])?;
                let length = linux::now().since(sent);
                if let Some((client, id)) = said.and_then(|(client, said)| Some((client, said.id()?))) {
                    client.came(id);
                }
                if nth > 0 {
                    latencies.push(length);
                }
            }
            Ok(Done { latencies, events: events as usize, ..Done::default() })
        });
        let done = asking.join().expect("the client does not panic");
        serving.join().expect("the server does not panic")?;
        done
    })
}

/// Reads past the page cache, at random places, after random gaps. No program announces them: the
/// kernel's events foretell them.
fn disk(bench: &Bench<'_>, random: &mut Random) -> Result<Done> {
    let file = open_direct(&bench.args.file)?;
    let sleeper = bench.sleeper;
    thread::scope(|scope| {
        let reading = scope.spawn(|| -> Result<Done> {
            begin(sleeper)?;
            let mut page = Page([0; READ as usize]);
            let mut latencies = Vec::with_capacity(bench.args.events as usize);
            let mut gaps = Vec::with_capacity(bench.args.events as usize);
            for _ in 0..bench.args.events {
                // Even on a logarithmic scale, 0.1 to 10 ms.
                let gap = Duration::from_nanos((1e5 * 100_f64.powf(random.unit())) as u64);
                linux::sleep_until(linux::now() + gap);
                let at = random.below(FILE_BYTES / READ) * READ;
                let began = linux::now();
                file.read_exact_at(&mut page.0, at).context("reading past the page cache")?;
                latencies.push(linux::now().since(began));
                gaps.push(gap);
            }
            Ok(Done { events: latencies.len(), latencies, gaps, ..Done::default() })
        });
        reading.join().expect("the reader does not panic")
    })
}

/// As the kernel wants it for O_DIRECT.
#[repr(align(4096))]
struct Page([u8; READ as usize]);

fn open_direct(path: &std::path::Path) -> Result<File> {
    let told = || format!("{}: name a file on the disk to be read with --file", path.display());
    if std::fs::metadata(path).map_or(0, |file| file.len()) < FILE_BYTES {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            SafeFolder::make(folder, 0o777).with_context(told)?;
        }
        let mut file = SafeFolder::begin(path, 0o666).with_context(told)?;
        let block = vec![0x5a; 1 << 20];
        (0..FILE_BYTES >> 20).try_for_each(|_| file.write_all(&block)).with_context(told)?;
        file.sync_all().with_context(told)?;
    }
    let direct = rustix::fs::OFlags::DIRECT.bits();
    OpenOptions::new().read(true).custom_flags(direct as i32).open(path).with_context(told)
}

fn begin(cpu: CpuId) -> Result<(), linux::AffinityError> {
    linux::want_exact_timers();
    linux::pin_current_thread(cpu)
}
