//! Requests of an unchanged server: their number, and the time from the first byte in to the first
//! byte out.
//!
//! ```text
//!   way        sees                              on                            cost, of memcached's throughput
//!   Sockets    response = waiting + service      Linux 6.3 and later           none seen
//!   Packets    response                          any with cgroup v2            none seen
//!   Calls      service (the server's own code)   any, by process               a fifth
//! ```
//!
//! Invariants:
//! - Requests that a client sends without waiting for the replies are one here; such cases are
//!   counted.
//! - Every request is counted. On a CPU with more than some two thousand a second, the sockets'
//!   program times only some, chosen by chance, and each stands for the number that it was drawn
//!   from (`include/requests.h`): half of the cost is the clock and the histograms.
//!   [`RequestCounts::timed`] is the base of the percentiles.
//! - A way without a time says `None`.

mod pulse;

pub use pulse::{ALARM_WINDOW, Pulse, RequestAlarm};

use super::{Attachment, BpfError, Fields, Notifier, Running, has_event, run};
use crate::root::Root;
use libbpf_rs::MapType;
use machine::{CpuId, Duration};
use pulse::{Heart, PulseMaps};
use std::fmt;
use std::fs::File;
use std::mem::size_of;
use std::os::fd::AsFd;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// The TCP ports that it listens on.
    pub ports: Vec<u16>,
    pub processes: Vec<u32>,
}

impl Watched {
    /// Programs compare with each, at every packet.
    pub const AT_MOST: usize = 16;
}

/// The ways to see requests, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestWay {
    /// At the server's sockets.
    Sockets,
    /// At its packets.
    Packets,
    /// At its system calls.
    Calls,
}

impl RequestWay {
    /// All, best first.
    pub const ALL: [Self; 3] = [Self::Sockets, Self::Packets, Self::Calls];
}

impl fmt::Display for RequestWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sockets => "sockets",
            Self::Packets => "packets",
            Self::Calls => "system calls",
        })
    }
}

/// Times in buckets, sixty-four to each doubling from 256 ns to 17 s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTimes {
    /// The number in each bucket; wraps at 2^32, so take differences.
    pub counts: Vec<u32>,
    /// Their sum, which does not wrap.
    pub total: Duration,
}

impl RequestTimes {
    const LOWEST: u32 = 8;
    const HIGHEST: u32 = 34;
    const FINE: u32 = 6;
    /// Buckets in all.
    pub const BUCKETS: usize = 2 + ((Self::HIGHEST - Self::LOWEST) << Self::FINE) as usize;

    /// The times that belong to a bucket: from the first, inclusive, up to the second, exclusive.
    pub fn bounds(bucket: usize) -> (Duration, Duration) {
        let begin = |bucket: usize| match bucket {
            0 => Duration::ZERO,
            _ if bucket >= Self::BUCKETS => Duration::MAX,
            _ => {
                let (octave, part) =
                    ((bucket - 1) >> Self::FINE, (bucket - 1) as u64 & ((1 << Self::FINE) - 1));
                Duration::from_nanos(
                    ((1 << Self::FINE) + part) << (octave as u32 + Self::LOWEST - Self::FINE),
                )
            }
        };
        (begin(bucket), begin(bucket + 1))
    }

    pub(super) fn take(fields: &mut Fields<'_>) -> Self {
        let total = Duration::from_nanos(fields.u64());
        Self { total, counts: (0..Self::BUCKETS).map(|_| fields.u32()).collect() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCounts {
    pub cpu: CpuId,
    pub requests: u64,
    /// Those of them that were timed.
    pub timed: u64,
    /// Times that data came while a request of its connection was under way and was taken as part
    /// of it.
    pub merged: u64,
    /// Times that a connection found no room.
    pub unfit: u64,
    /// From ready (or the packet) to replied.
    pub response: Option<RequestTimes>,
    /// From taken to replied.
    pub service: Option<RequestTimes>,
    /// From ready to taken: the socket's queue, and waking the server.
    pub waiting: Option<RequestTimes>,
    /// Before the socket: from the end of the interrupted CPU's idle state to its network work.
    pub interrupt: Option<RequestTimes>,
    /// Packets whose CPU was idle, but told its waking only afterwards, as CPUs that halt do.
    pub wakes_hidden: u64,
}

/// A program that watches requests, at work.
#[derive(Debug)]
pub struct RequestProgram {
    running: Running,
    way: RequestWay,
    maps: PulseMaps,
    /// `None`: there is no loopback.
    heart: Option<Heart>,
    beats: u64,
    /// Counts the calls of [`Self::expect`].
    epoch: u64,
}

/// `struct seen` up to its times: five counts, how many were timed, and the two words of its
/// `choice`.
const BEFORE_TIMES: usize = size_of::<[u64; 8]>();
const BYTES: usize = BEFORE_TIMES + 4 * (size_of::<u64>() + RequestTimes::BUCKETS * size_of::<u32>());

impl RequestProgram {
    /// The best way that this kernel allows, and why those before it are not possible.
    pub fn load(root: &Root, watched: &Watched) -> (Result<Self, BpfError>, Vec<(RequestWay, BpfError)>) {
        let mut failed = Vec::new();
        for way in RequestWay::ALL {
            match Self::load_way(root, way, watched) {
                Ok(program) => return (Ok(program), failed),
                Err(error) => failed.push((way, error)),
            }
        }
        let (_, last) = failed.first().cloned().expect("there are ways");
        (Err(last), failed)
    }

    /// This way or none.
    pub fn load_way(root: &Root, way: RequestWay, watched: &Watched) -> Result<Self, BpfError> {
        Self::load_on(root, way, watched, MapType::RingBuf.is_supported().unwrap_or(false))
    }

    /// On a kernel with ring buffers (5.8), which alarms need, or one without.
    fn load_on(root: &Root, way: RequestWay, watched: &Watched, alarms: bool) -> Result<Self, BpfError> {
        let name = format!("{way}");
        let targets: Vec<u32> = match way {
            RequestWay::Calls => watched.processes.clone(),
            _ => watched.ports.iter().map(|&port| port.into()).collect(),
        };
        if targets.is_empty() || targets.len() > Watched::AT_MOST {
            let (what, many) = match way {
                RequestWay::Calls => ("processes", targets.len()),
                _ => ("ports", targets.len()),
            };
            let reason = format!("it watches 1 to {} {what}, and {many} were named", Watched::AT_MOST);
            return Err(BpfError::Refused { program: name, reason });
        }
        let heart = Heart::open().ok();
        let config = |open: &mut libbpf_rs::OpenObject| {
            let mut bytes: Vec<u8> = targets.iter().flat_map(|target| target.to_ne_bytes()).collect();
            bytes.resize(Watched::AT_MOST * size_of::<u32>(), 0);
            bytes.extend((targets.len() as u32).to_ne_bytes());
            bytes.extend(heart.as_ref().map_or(0, |heart| heart.name(way)).to_ne_bytes());
            bytes.extend(u32::from(alarms).to_ne_bytes());
            for mut map in open.maps_mut() {
                // libbpf shortens the object's name before it, never the section's.
                if map.name().to_string_lossy().ends_with(".rodata.config") {
                    map.set_initial_value(&bytes).expect("as long as the struct `config`");
                } else if !alarms && map.name() == "alarms" {
                    map.set_autocreate(false).expect("it is not loaded yet");
                }
            }
        };
        let running = match way {
            RequestWay::Sockets => {
                for event in ["sk_data_ready", "sock_recv_length", "sock_send_length"] {
                    if !has_event(event) {
                        return Err(BpfError::NoEvent(event));
                    }
                }
                let optional = [("cpu_idle", "cpu_idle"), ("softirq", "softirq_entry")];
                run(&name, include_bytes!("sockets.bpf.o"), &optional, config, &Attachment::Own)?
            }
            RequestWay::Packets => {
                let cgroup = root_cgroup(root)
                    .map_err(|reason| BpfError::Refused { program: name.clone(), reason })?;
                run(&name, include_bytes!("packets.bpf.o"), &[], config, &Attachment::Cgroup(cgroup.as_fd()))?
            }
            RequestWay::Calls => run(&name, include_bytes!("calls.bpf.o"), &[], config, &Attachment::Own)?,
        };
        let map = |name: &str| {
            let reason = || format!("its object has no map {name}");
            running.map(name).ok_or_else(|| BpfError::Refused { program: format!("{way}"), reason: reason() })
        };
        let maps = PulseMaps {
            rules: map("rules")?,
            pulses: map("pulses")?,
            alarms: alarms.then(|| running.map("alarms")).flatten(),
        };
        let mut program = Self { running, way, maps, heart, beats: 0, epoch: 0 };
        if let Some(heart) = &mut program.heart {
            heart.beat();
        }
        Ok(program)
    }

    /// Sends a heartbeat, and returns whether the programs saw the last one. Once an epoch: two
    /// calls in a row leave a beat no time to arrive.
    pub fn pulse(&mut self) -> Pulse {
        if let Some(heart) = &mut self.heart {
            heart.beat();
        }
        let counted = self.maps.read().unwrap_or_default();
        let has_grown = counted.beats > std::mem::replace(&mut self.beats, counted.beats);
        // A window of an epoch without arrivals is never begun.
        let peak = if counted.epoch == self.epoch { counted.peak } else { 0 };
        Pulse { is_alive: self.heart.is_some().then_some(has_grown), peak }
    }

    /// A new epoch: peaks are counted anew, and the first window with this many `arrivals` triggers
    /// the [`Notifier`]. `batch`: the number of arrivals that a CPU adds to the window at a time.
    /// Returns the number that an alarm of this epoch has.
    pub fn expect(&mut self, arrivals: Option<u64>, batch: u64) -> Result<u64, BpfError> {
        self.epoch += 1;
        self.maps.rule(self.epoch, arrivals.unwrap_or(0), batch.max(1))?;
        Ok(self.epoch)
    }

    /// Calls `heard` at each alarm, on a thread of its own, until the notifier is dropped.
    pub fn notifier(
        &self,
        mut heard: impl FnMut(RequestAlarm) + Send + 'static,
    ) -> Result<Notifier, BpfError> {
        let refused = |reason: String| BpfError::Refused { program: "alarm".to_owned(), reason };
        let alarms = self.running.map("alarms").filter(|_| self.maps.alarms.is_some());
        let alarms =
            alarms.ok_or_else(|| refused("this kernel has no BPF ring buffers (Linux 5.8)".to_owned()))?;
        let heard = move |bytes: &[u8]| pulse::alarm(bytes).into_iter().for_each(&mut heard);
        Notifier::start("alarms", alarms, heard).map_err(|error| refused(error.to_string()))
    }

    /// Takes the programs off their events, as `bpftool link detach` does from outside; the counts
    /// stay. For tests of programs that must notice.
    pub fn sever(&mut self) {
        self.running.links.clear();
    }

    pub fn way(&self) -> RequestWay {
        self.way
    }

    /// The counts of every CPU since the program was loaded. CPUs without any are left out.
    pub fn read(&self) -> Vec<RequestCounts> {
        let counts = |(cpu, bytes): (u32, Vec<u8>)| counts(CpuId(u16::try_from(cpu).ok()?), self.way, &bytes);
        self.running
            .read()
            .filter_map(counts)
            .filter(|seen| seen.requests + seen.merged + seen.unfit > 0)
            .collect()
    }
}

/// The kernel's `struct seen`.
fn counts(cpu: CpuId, way: RequestWay, bytes: &[u8]) -> Option<RequestCounts> {
    if bytes.len() != BYTES {
        return None;
    }
    let mut fields = Fields(bytes);
    let (requests, merged, unfit, wakes_hidden) = (fields.u64(), fields.u64(), fields.u64(), fields.u64());
    let _arrivals_not_yet_added = fields.u64();
    let timed = fields.u64();
    let _how_the_next_is_chosen = (fields.u64(), fields.u64());
    let mut times = |ways: &[RequestWay]| {
        let times = RequestTimes::take(&mut fields);
        ways.contains(&way).then_some(times)
    };
    Some(RequestCounts {
        cpu,
        requests,
        timed: if way == RequestWay::Sockets { timed } else { requests },
        merged,
        unfit,
        wakes_hidden,
        response: times(&[RequestWay::Sockets, RequestWay::Packets]),
        service: times(&[RequestWay::Sockets, RequestWay::Calls]),
        waiting: times(&[RequestWay::Sockets]),
        interrupt: times(&[RequestWay::Sockets]),
    })
}

/// The cgroup that holds all processes: where v2 is mounted, alone or beside v1.
fn root_cgroup(root: &Root) -> Result<File, String> {
    for folder in ["sys/fs/cgroup", "sys/fs/cgroup/unified"] {
        if root.path(folder).join("cgroup.controllers").exists() {
            return File::open(root.path(folder)).map_err(|error| format!("{folder}: {error}"));
        }
    }
    Err("no cgroup v2 is mounted\nhint: mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::RecvTimeoutError;

    #[test]
    fn buckets_of_times_follow_each_other_within_a_sixtieth() {
        for bucket in 0..RequestTimes::BUCKETS - 1 {
            let (from, to) = RequestTimes::bounds(bucket);
            assert!(from < to && to == RequestTimes::bounds(bucket + 1).0);
            if bucket > 0 {
                assert!((to - from).as_nanos() * 64 <= from.as_nanos());
            }
        }
        assert_eq!(RequestTimes::bounds(1).0, Duration::from_nanos(256));
    }

    /// The program; prints why if this kernel has none.
    fn told(way: RequestWay, program: Result<RequestProgram, BpfError>) -> Option<RequestProgram> {
        program.inspect_err(|error| eprintln!("skipped: {way}: {error}")).ok()
    }

    fn watching(way: RequestWay, watched: &Watched) -> Option<RequestProgram> {
        told(way, RequestProgram::load_way(&Root::system(), way, watched))
    }

    /// A client and its server's end, in one thread.
    fn connected(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// A server of one connection that answers each byte after a while, `rounds` times; and a
    /// client.
    fn converse(listener: &TcpListener, rounds: usize, service: std::time::Duration) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_nodelay(true).unwrap();
                let mut byte = [0];
                while stream.read(&mut byte).unwrap() > 0 {
                    let began = std::time::Instant::now();
                    while began.elapsed() < service {
                        std::hint::spin_loop();
                    }
                    stream.write_all(&byte).unwrap();
                }
            });
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_nodelay(true).unwrap();
            for _ in 0..rounds {
                client.write_all(b"x").unwrap();
                client.read_exact(&mut [0]).unwrap();
            }
        });
    }

    fn median(times: &[&RequestTimes]) -> Duration {
        let total: u64 = times.iter().flat_map(|times| &times.counts).map(|&count| u64::from(count)).sum();
        let mut below = 0;
        let bucket = (0..RequestTimes::BUCKETS)
            .find(|&bucket| {
                below += times.iter().map(|times| u64::from(times.counts[bucket])).sum::<u64>();
                below * 2 > total
            })
            .unwrap();
        RequestTimes::bounds(bucket).0
    }

    #[test]
    fn each_way_counts_every_request_and_sees_what_it_says() {
        let service = std::time::Duration::from_micros(300);
        for way in RequestWay::ALL {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let watched = Watched {
                ports: vec![listener.local_addr().unwrap().port()],
                processes: vec![std::process::id()],
            };
            let Some(program) = watching(way, &watched) else { continue };
            converse(&listener, 50, service);
            let seen = program.read();
            let requests: u64 = seen.iter().map(|seen| seen.requests).sum();
            // The client is of this process too, and its reads and writes look like a server's to
            // the last way.
            if way == RequestWay::Calls {
                assert!(requests >= 50, "{way}: {seen:?}");
                continue;
            }
            assert_eq!(requests, 50, "{way}");
            assert_eq!(seen.iter().map(|seen| seen.merged).sum::<u64>(), 0, "{way}");
            let median_of = |which: fn(&RequestCounts) -> Option<&RequestTimes>| {
                median(&seen.iter().filter_map(which).collect::<Vec<_>>())
            };
            let response = median_of(|seen| seen.response.as_ref());
            assert!(response >= Duration::from_micros(295), "{way}: {response}");
            if way == RequestWay::Sockets {
                let taken = median_of(|seen| seen.service.as_ref());
                let waited = median_of(|seen| seen.waiting.as_ref());
                assert!(taken >= Duration::from_micros(295) && taken <= response, "{taken} of {response}");
                assert!(waited < response, "{waited} of {response}");
            } else {
                assert!(seen.iter().all(|seen| seen.service.is_none() && seen.waiting.is_none()));
            }
        }
    }

    #[test]
    fn a_program_that_is_detached_has_no_pulse_and_one_that_is_idle_has() {
        for way in RequestWay::ALL {
            // No process listens there: the heart alone beats.
            let watched = Watched { ports: vec![1], processes: vec![1] };
            let Some(mut program) = watching(way, &watched) else { continue };
            let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
            for _ in 0..5 {
                pause();
                assert_eq!(program.pulse(), Pulse { is_alive: Some(true), peak: 0 }, "{way}");
                assert!(way == RequestWay::Calls || program.read().is_empty(), "no beat is a request: {way}");
            }
            program.sever();
            // The one that was under way.
            program.pulse();
            for _ in 0..3 {
                pause();
                assert_eq!(program.pulse().is_alive, Some(false), "{way}");
            }
        }
    }

    #[test]
    fn an_alarm_is_rung_once_an_epoch_at_its_threshold_and_never_below() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for way in RequestWay::ALL {
            let watched = Watched {
                ports: vec![listener.local_addr().unwrap().port()],
                processes: vec![std::process::id()],
            };
            let Some(mut program) = watching(way, &watched) else { continue };
            let (sender, heard) = std::sync::mpsc::channel();
            let notifier = program.notifier(move |alarm| sender.send(alarm).unwrap_or_default()).unwrap();
            // Before an expectation nothing is counted.
            converse(&listener, 200, std::time::Duration::ZERO);
            assert_eq!(program.pulse().peak, 0, "{way}");
            // Peaks are counted without a threshold as well.
            program.expect(None, 1).unwrap();
            converse(&listener, 200, std::time::Duration::ZERO);
            let peak = program.pulse().peak;
            assert!((2..=1000).contains(&peak), "{way}: {peak}");
            program.expect(Some(100_000), 1).unwrap();
            converse(&listener, 200, std::time::Duration::ZERO);
            assert!(heard.recv_timeout(std::time::Duration::from_millis(50)).is_err(), "{way}");
            for _ in 0..2 {
                let before = crate::now();
                let epoch = program.expect(Some(2), 1).unwrap();
                converse(&listener, 400, std::time::Duration::ZERO);
                let alarm = heard.recv_timeout(std::time::Duration::from_secs(5)).unwrap();
                assert!(alarm.epoch == epoch && alarm.arrivals >= 2 && alarm.at > before, "{way}: {alarm:?}");
                // Several CPUs may see the threshold passed at the same moment.
                let more: Vec<RequestAlarm> = heard.try_iter().collect();
                assert!(more.len() <= 1 && more.iter().all(|alarm| alarm.epoch == epoch), "{way}: {more:?}");
            }
            // After its drop the notifier reports no more.
            program.expect(Some(2), 1).unwrap();
            drop(notifier);
            assert!(matches!(
                heard.recv_timeout(std::time::Duration::from_secs(5)),
                Err(RecvTimeoutError::Disconnected)
            ));
        }
    }

    /// Two kinds of request of one connection, the slow one in every ninth place: a gap in step
    /// with them would see one kind only.
    #[test]
    fn timed_requests_stand_for_all_of_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watched = Watched { ports: vec![listener.local_addr().unwrap().port()], processes: Vec::new() };
        let (rounds, slow) = (40_000_u64, std::time::Duration::from_micros(200));
        let Some(program) = watching(RequestWay::Sockets, &watched) else { return };
        let (mut client, mut server) = connected(&listener);
        let mut byte = [0];
        let began = std::time::Instant::now();
        // One thread is both ends, so requests follow each other as fast as one CPU can.
        for round in 0..rounds {
            client.write_all(b"x").unwrap();
            server.read_exact(&mut byte).unwrap();
            let began = std::time::Instant::now();
            while round % 9 == 0 && began.elapsed() < slow {
                std::hint::spin_loop();
            }
            server.write_all(&byte).unwrap();
            client.read_exact(&mut byte).unwrap();
        }
        if began.elapsed() > std::time::Duration::from_micros(80 * rounds) {
            return eprintln!("skipped: this machine is so slow that each may be timed");
        }
        let seen = program.read();
        let sum = |field: fn(&RequestCounts) -> u64| seen.iter().map(field).sum::<u64>();
        let (timed, held) = (
            sum(|seen| seen.timed),
            sum(|seen| {
                seen.response.iter().flat_map(|times| &times.counts).map(|&count| u64::from(count)).sum()
            }),
        );
        let long = sum(|seen| {
            let from = |bucket: &usize| RequestTimes::bounds(*bucket).0 >= Duration::from_micros(190);
            let service = seen.service.as_ref().unwrap();
            (0..RequestTimes::BUCKETS).filter(from).map(|bucket| u64::from(service.counts[bucket])).sum()
        });
        assert_eq!(sum(|seen| seen.requests), rounds);
        assert!(timed < rounds, "each was timed");
        // A deviation by chance is 3 to 5 %, of the slow ones too.
        let near = |held: u64, truth: u64| held.abs_diff(truth) * 4 < truth;
        assert!(near(held, rounds) && near(long, rounds / 9), "{timed} timed: {held}, slow {long}");
    }

    #[test]
    fn a_kernel_without_ring_buffers_is_watched_without_alarms() {
        for way in RequestWay::ALL {
            let watched = Watched { ports: vec![1], processes: vec![1] };
            let Some(mut program) = told(way, RequestProgram::load_on(&Root::system(), way, &watched, false))
            else {
                continue;
            };
            assert!(program.notifier(|_| {}).unwrap_err().to_string().contains("5.8"), "{way}");
            program.expect(Some(1), 1).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(program.pulse().is_alive, Some(true), "{way}");
        }
    }

    #[test]
    fn other_ports_are_not_watched() {
        let (listener, other) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let watched = Watched { ports: vec![other.local_addr().unwrap().port()], processes: Vec::new() };
        for way in [RequestWay::Sockets, RequestWay::Packets] {
            let Some(program) = watching(way, &watched) else { continue };
            converse(&listener, 5, std::time::Duration::ZERO);
            assert_eq!(program.read(), []);
        }
    }

    #[test]
    fn requests_that_do_not_wait_are_merged_and_the_rest_of_a_long_one_is_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watched = Watched { ports: vec![listener.local_addr().unwrap().port()], processes: Vec::new() };
        let Some(program) = watching(RequestWay::Sockets, &watched) else { return };
        let (mut client, mut server) = connected(&listener);
        let mut bytes = [0; 8];
        // Two that arrive before the first is read.
        client.write_all(b"a").unwrap();
        client.write_all(b"b").unwrap();
        server.read_exact(&mut bytes[..2]).unwrap();
        server.write_all(b"AB").unwrap();
        // The second half arrives when the first was taken.
        client.write_all(b"c").unwrap();
        server.read_exact(&mut bytes[..1]).unwrap();
        client.write_all(b"d").unwrap();
        server.read_exact(&mut bytes[..1]).unwrap();
        server.write_all(b"CD").unwrap();
        // The next one arrives while this one is served, and is taken after its reply: two
        // requests.
        client.write_all(b"e").unwrap();
        server.read_exact(&mut bytes[..1]).unwrap();
        client.write_all(b"f").unwrap();
        server.write_all(b"E").unwrap();
        server.read_exact(&mut bytes[..1]).unwrap();
        server.write_all(b"F").unwrap();
        // A reply in two parts is one.
        server.write_all(b"!").unwrap();
        let seen = program.read();
        let sum = |field: fn(&RequestCounts) -> u64| seen.iter().map(field).sum::<u64>();
        assert_eq!((sum(|seen| seen.requests), sum(|seen| seen.merged)), (4, 2));
    }

    #[test]
    fn too_many_or_no_ports_are_refused_with_the_number() {
        for ports in [vec![], (1..=17).collect()] {
            let watched = Watched { ports, processes: Vec::new() };
            let error = RequestProgram::load_way(&Root::system(), RequestWay::Packets, &watched).unwrap_err();
            assert!(error.to_string().contains("1 to 16 ports"), "{error}");
        }
    }
}
