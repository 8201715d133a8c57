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

pub use pulse::{ALARM_WINDOW, Pulse, RequestAlarm, WindowCounts};

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
            super::configure(open, &bytes);
            for mut map in open.maps_mut().filter(|map| !alarms && map.name() == "alarms") {
                map.set_autocreate(false).expect("it is not loaded yet");
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

    /// Counts arrivals in windows from now on, without an alarm; `batch` as for [`Self::expect`].
    pub fn count_windows(&self, batch: u64) -> Result<(), BpfError> {
        self.maps.rule(self.epoch, 0, batch.max(1))
    }

    pub fn windows(&self) -> WindowCounts {
        self.maps.read().unwrap_or_default().windows
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
mod tests;
