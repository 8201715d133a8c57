//! Many sockets received from, or sent to, by one system call: io_uring, for sockets that do not block.
//!
//! The worker finds by epoll which sockets are ready; the ring carries the bytes alone. A receive or send on a
//! socket that does not block completes while it is submitted, so the call that submits a batch returns
//! with all its results. Answers then leave within one call, and clients that ask again at once are
//! found together in the next. (Multishot receives interrupt the worker for each packet, and cost more
//! than they save: docs/journal/2026-11-28-answers.md.)

use io_uring::{IoUring, opcode, squeue, types};
use rustix::fd::{AsRawFd as _, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io;

pub(super) struct Ring {
    ring: IoUring,
    results: Vec<Option<Result<usize, Errno>>>,
}

impl Ring {
    /// For batches of at most so many sockets, of the thread that calls.
    ///
    /// # Errors
    /// The kernel is older than 6.1, or forbids it: `kernel.io_uring_disabled`, a container's filter.
    pub(super) fn new(most: u32) -> io::Result<Self> {
        let mut ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(most)?;
        // A filter may let a ring be made and not be used.
        // SAFETY: the entry names no memory.
        let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
        pushed.map_err(io::Error::other)?;
        ring.submit_and_wait(1)?;
        ring.completion().for_each(drop);
        Ok(Self { ring, results: Vec::with_capacity(most as usize) })
    }

    /// Receives into each buffer; the results are at the given places, and `None` at all others.
    pub(super) fn receive<'a>(
        &mut self,
        places: usize,
        wanted: impl Iterator<Item = (usize, BorrowedFd<'a>, &'a mut [u8])>,
    ) -> &[Option<Result<usize, Errno>>] {
        self.run(
            places,
            wanted.map(|(place, socket, into)| {
                let length = into.len().try_into().unwrap_or(u32::MAX);
                let receive = opcode::Recv::new(types::Fd(socket.as_raw_fd()), into.as_mut_ptr(), length);
                receive.flags(RecvFlags::DONTWAIT.bits() as i32).build().user_data(place as u64)
            }),
        )
    }

    /// Sends each, in the same way.
    pub(super) fn send<'a>(
        &mut self,
        places: usize,
        wanted: impl Iterator<Item = (usize, BorrowedFd<'a>, &'a [u8])>,
    ) -> &[Option<Result<usize, Errno>>] {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.run(
            places,
            wanted.map(|(place, socket, bytes)| {
                let length = bytes.len().try_into().unwrap_or(u32::MAX);
                let send = opcode::Send::new(types::Fd(socket.as_raw_fd()), bytes.as_ptr(), length);
                send.flags(flags.bits() as i32).build().user_data(place as u64)
            }),
        )
    }

    fn run(
        &mut self,
        places: usize,
        entries: impl Iterator<Item = squeue::Entry>,
    ) -> &[Option<Result<usize, Errno>>] {
        self.results.clear();
        self.results.resize(places, None);
        let mut waiting = 0;
        for entry in entries {
            // SAFETY: the socket and the memory are borrowed for `'a`, which outlives this call, and the
            // call ends when the kernel has completed each entry.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            // One that finds no room counts as not tried.
            waiting += usize::from(pushed.is_ok());
        }
        while waiting > 0 {
            if let Err(cause) = self.ring.submit_and_wait(waiting) {
                let is_passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY].map(Errno::raw_os_error);
                // Memory that the kernel may still write to cannot be given back.
                if !cause.raw_os_error().is_some_and(|errno| is_passing.contains(&errno)) {
                    eprintln!("roost: io_uring: {cause}");
                    std::process::abort();
                }
            }
            for completion in self.ring.completion() {
                let result = completion.result();
                let result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
                self.results[completion.user_data() as usize] = Some(result);
                waiting -= 1;
            }
        }
        &self.results
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Policy, Server};
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    /// None, and a line that says so, where the kernel has none for us.
    fn ring(test: &str) -> Option<Ring> {
        match Ring::new(8) {
            Ok(ring) => Some(ring),
            Err(cause) => {
                eprintln!("SKIPPED {test}: no io_uring here: {cause}");
                None
            }
        }
    }

    /// Also of one that has served nothing yet.
    #[test]
    fn the_status_says_whether_a_worker_has_one() {
        let cpus = linux::allowed_cpus().unwrap().0.into_iter().take(2).collect();
        let server = Server::start(Config::on_loopback(cpus, Policy::AllAwake), || {}).unwrap();
        let expected = Ring::new(8).is_ok();
        let began = std::time::Instant::now();
        while server.status().workers.iter().any(|worker| worker.io_uring != expected) {
            assert!(began.elapsed() < std::time::Duration::from_secs(300), "one says otherwise");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        server.stop().unwrap();
    }

    fn pairs() -> [(UnixStream, UnixStream); 3] {
        std::array::from_fn(|_| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            (ours, theirs)
        })
    }

    #[test]
    fn bytes_an_empty_socket_and_an_end_are_told_apart() {
        let Some(mut ring) = ring("bytes_an_empty_socket_and_an_end_are_told_apart") else { return };
        let mut pairs = pairs();
        pairs[0].1.write_all(b"hello").unwrap();
        pairs[2].1.shutdown(std::net::Shutdown::Write).unwrap();
        let mut buffers = [[0; 8]; 3];
        let wanted = pairs.iter().zip(&mut buffers).enumerate();
        let wanted = wanted.map(|(at, ((ours, _), into))| (2 * at, ours.as_fd(), &mut into[..]));
        let results = ring.receive(6, wanted);
        assert_eq!(results, [Some(Ok(5)), None, Some(Err(Errno::AGAIN)), None, Some(Ok(0)), None]);
        assert_eq!(&buffers[0][..5], b"hello");
        // A batch after a batch begins anew.
        pairs[1].1.write_all(b"abc").unwrap();
        let results = ring.receive(1, [(0, pairs[1].0.as_fd(), &mut buffers[1][..2])].into_iter());
        assert_eq!(results, [Some(Ok(2))]);
        assert_eq!(&buffers[1][..2], b"ab");
    }

    #[test]
    fn a_full_socket_takes_what_it_can_and_a_closed_one_is_an_error() {
        let Some(mut ring) = ring("a_full_socket_takes_what_it_can_and_a_closed_one_is_an_error") else {
            return;
        };
        let [(free, mut reader), (full, _kept), (closed, gone)] = pairs();
        drop(gone);
        let large = vec![7; 8 << 20];
        let wanted = [(0, &free, &b"answer"[..]), (1, &full, &large), (2, &closed, b"x")];
        let results = ring.send(3, wanted.into_iter().map(|(at, socket, bytes)| (at, socket.as_fd(), bytes)));
        assert_eq!((results[0], results[2]), (Some(Ok(6)), Some(Err(Errno::PIPE))));
        assert!(results[1].unwrap().is_ok_and(|taken| (1..large.len()).contains(&taken)), "{results:?}");
        assert_eq!(ring.send(1, [(0, full.as_fd(), &b"y"[..])].into_iter()), [Some(Err(Errno::AGAIN))]);
        let mut answer = [0; 6];
        reader.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    }

    #[test]
    fn more_than_there_is_room_for_is_left_untried() {
        let Some(mut ring) = ring("more_than_there_is_room_for_is_left_untried") else { return };
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let wanted = (0..20).map(|at| (at, ours.as_fd(), &b"z"[..]));
        let results = ring.send(20, wanted);
        assert_eq!(results.iter().filter(|result| **result == Some(Ok(1))).count(), 8);
        assert!(results[8..].iter().all(Option::is_none));
        theirs.read_exact(&mut [0; 8]).unwrap();
    }
}
