//! Functions of an unchanged program: the threads inside, in the layout of hot-function slots, and
//! counts and times, as a tally.
//!
//! The problem: a server whose source is not at hand, or that may not be restarted, has no agent.
//! The kernel's uprobes stop it at an instruction and run a program of ours there. That program
//! must write the same as an agent, so that a reader need not know; and the server must always go
//! on.
//!
//! The approach: one map of the kernel's *is* a slot file: its bytes have the same layout
//! (docs/formats.md) and are mapped into this process. Reading costs no system call and no copy. A
//! program in the kernel cannot wake a futex, so the doorbell is a ring buffer ([`ImageRings`]).
//!
//! Invariants:
//! - The server's stack is never touched. The kernel's return probes replace the return address
//!   there, and a C++ exception or a Rust panic that passes it ends the server (seen on 6.18). So
//!   ways out are plain probes on the return instructions ([`crate::processes::symbols`]).
//! - A call whose way out is not seen (an exception, `longjmp`, a conditional tail call) is over as
//!   soon as the thread enters or leaves a watched function further out on its stack. Until then
//!   [`stack_of_sleeper`] shows a thread that sleeps further out.
//! - A thread that ends frees its slot in the same moment.
//! - The probes end with this process, also after a SIGKILL: the instructions are as they were.

use super::{Attachment, BpfError, Fields, Place, RequestTimes, Running, run};
use crate::processes::symbols::Function;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use machine::Duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Mutex;

/// The most functions watched at a time.
pub const FUNCTIONS_MAX: usize = 16;
/// The most threads inside them at a time.
pub const SLOT_COUNT: u32 = 1024;

/// A function to watch, and its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The file as this process sees it.
    pub binary: PathBuf,
    /// Its offset in the file.
    pub function: Function,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTally {
    /// Calls from outside: recursion is one.
    pub calls: u64,
    /// Calls whose way out was not seen.
    pub unseen: u64,
    /// The time of the other calls.
    pub times: RequestTimes,
}

#[derive(Debug)]
pub struct FunctionProgram {
    running: Running,
    image: MapHandle,
    tallies: MapHandle,
    functions: usize,
}

impl FunctionProgram {
    /// Watches functions of process `pid`. `image`: an empty slot file with [`SLOT_COUNT`] slots
    /// and their names. `tallies`: also count and time, which costs a little more.
    pub fn attach(pid: u32, probes: &[Probe], image: &[u8], tallies: bool) -> Result<Self, BpfError> {
        let refused = |reason: String| BpfError::Refused { program: NAME.to_owned(), reason };
        if probes.is_empty() || probes.len() > FUNCTIONS_MAX {
            return Err(refused(format!(
                "it watches 1 to {FUNCTIONS_MAX} functions, and {} were named",
                probes.len()
            )));
        }
        let process = i32::try_from(pid).map_err(|_| refused(format!("there is no process {pid}")))?;
        let mut places = Vec::new();
        // Ways out first: a thread whose enter is seen must be seen to leave.
        for (probe, cookie) in probes.iter().zip(0..) {
            let place = |program, offset: u64| {
                let offset =
                    usize::try_from(offset).map_err(|_| refused(format!("no such offset: {offset}")))?;
                Ok(Place { program, process, binary: probe.binary.clone(), offset, cookie })
            };
            for &exit in &probe.function.exits {
                places.push(place("left", exit)?);
            }
            places.push(place("entered", probe.function.entry)?);
        }
        let config = |open: &mut libbpf_rs::OpenObject| {
            super::configure(open, &u32::from(tallies).to_ne_bytes());
        };
        let running =
            run(NAME, include_bytes!("functions.bpf.o"), &[], config, &Attachment::Places(&places))?;
        let map =
            |name: &str| running.map(name).ok_or_else(|| refused(format!("its object has no map {name}")));
        let (kept, vacant, counted) = (map("image")?, map("vacant")?, map("tallies")?);
        let failed = |error: libbpf_rs::Error| refused(format!("{error:#}"));
        for place in 0..SLOT_COUNT {
            vacant.update(&[], &place.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        }
        // Last, because it switches the programs on.
        kept.update(&0u32.to_ne_bytes(), image, MapFlags::ANY).map_err(failed)?;
        Ok(Self { running, image: kept, tallies: counted, functions: probes.len() })
    }

    /// The map that is a slot file, to be mapped into memory.
    pub fn image(&self) -> io::Result<OwnedFd> {
        self.image.as_fd().try_clone_to_owned()
    }

    pub fn rings(&self) -> io::Result<ImageRings> {
        let map = self.running.map("rings").ok_or(io::ErrorKind::NotFound)?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, |_| 0).map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        Ok(ImageRings {
            ring: Mutex::new(ring),
            call: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            _map: map,
        })
    }

    /// The tally of each function, in the order of their names' list; none where nothing is
    /// counted.
    pub fn tallies(&self) -> Vec<FunctionTally> {
        let of = |function: u32| {
            let bytes = self.tallies.lookup(&function.to_ne_bytes(), MapFlags::ANY).ok()??;
            tally(&bytes)
        };
        (0..self.functions as u32).filter_map(of).collect()
    }

    /// Enters and exits that the probes saw, and enters of threads that found no room.
    pub fn probed(&self) -> [u64; 3] {
        self.running.read().fold([0; 3], |sum, (_, bytes)| {
            if bytes.len() != 3 * size_of::<u64>() {
                return sum;
            }
            let mut fields = Fields(&bytes);
            sum.map(|count| count + fields.u64())
        })
    }
}

/// Wakes the thread that waits for an enter.
pub struct ImageRings {
    ring: Mutex<RingBuffer<'static>>,
    call: OwnedFd,
    _map: MapHandle,
}

impl std::fmt::Debug for ImageRings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageRings").finish_non_exhaustive()
    }
}

impl ImageRings {
    /// Sleeps until an enter rings, [`call`](Self::call) is called, or the time is over. Earlier
    /// rings end it at once.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        let ring = self.ring.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: the ring's own descriptor, which lives as long as the ring does.
        let rung = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
        let mut ends = [PollFd::new(&rung, PollFlags::IN), PollFd::new(&self.call, PollFlags::IN)];
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (timeout.as_nanos() % 1_000_000_000) as _,
        });
        match rustix::event::poll(&mut ends, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let _ = rustix::io::read(&self.call, &mut [0u8; 8]);
        ring.consume().map_err(io::Error::other)
    }

    /// Ends a wait from another thread, also one that is about to begin.
    pub fn call(&self) -> io::Result<()> {
        rustix::io::write(&self.call, &1u64.to_ne_bytes()).map(drop).map_err(Into::into)
    }
}

/// The stack pointer of a thread that sleeps in a system call; `None` of one that runs, or may not
/// be looked at.
pub fn stack_of_sleeper(pid: u32, tid: u32) -> Option<u64> {
    sleeper(&fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?)
}

/// `NUMBER ARGUMENTS... SP PC`, or `running`; -1 and two words where it sleeps elsewhere.
fn sleeper(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [.., stack, _counter] = words[..] else { return None };
    u64::from_str_radix(stack.strip_prefix("0x")?, 16).ok()
}

/// The kernel's `struct tally`.
fn tally(bytes: &[u8]) -> Option<FunctionTally> {
    // The compiler rounds the struct up to a multiple of eight bytes.
    let length: usize = 3 * size_of::<u64>() + RequestTimes::BUCKETS * size_of::<u32>();
    if bytes.len() != length.next_multiple_of(8) {
        return None;
    }
    let mut fields = Fields(bytes);
    Some(FunctionTally { calls: fields.u64(), unseen: fields.u64(), times: RequestTimes::take(&mut fields) })
}

const NAME: &str = "functions";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_s_stack_is_the_word_before_the_last() {
        assert_eq!(sleeper("232 0x5 0x7ffc 0x40 0x0 0x0 0x0 0x7ffd33f0 0x7f32c\n"), Some(0x7ffd_33f0));
        assert_eq!(sleeper("-1 0x7ffd33f0 0x7f32c"), Some(0x7ffd_33f0));
        for nothing in ["running\n", "", "0x1", "1 2 3"] {
            assert_eq!(sleeper(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn too_many_functions_are_refused_with_the_number() {
        let probe = Probe {
            binary: PathBuf::from("/bin/true"),
            function: Function { name: "f".into(), entry: 0, exits: Vec::new() },
        };
        for probes in [vec![], vec![probe; 17]] {
            let error = FunctionProgram::attach(1, &probes, &[], false).unwrap_err();
            assert!(error.to_string().contains("1 to 16 functions"), "{error}");
        }
    }
}
