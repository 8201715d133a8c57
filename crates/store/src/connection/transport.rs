//! The carrier of a connection's bytes: a socket that does not block, or a test's script of reads
//! and writes.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Carries bytes without blocking: [`Errno::AGAIN`] where there is nothing to take, or no room.
pub(crate) trait Transport {
    /// Bytes received into `into`; zero at the end of the stream.
    fn receive(&self, into: &mut [u8]) -> Result<usize, Errno>;

    /// Appends received bytes to `into`, within its capacity. Returns how many bytes; zero at the
    /// end of the stream.
    fn receive_behind(&self, into: &mut Vec<u8>) -> Result<usize, Errno>;

    /// Bytes of `bytes` that were taken.
    fn send(&self, bytes: &[u8]) -> Result<usize, Errno>;
}

impl Transport for OwnedFd {
    fn receive(&self, into: &mut [u8]) -> Result<usize, Errno> {
        recv(self, into, RecvFlags::empty()).map(|(length, _)| length)
    }

    fn receive_behind(&self, into: &mut Vec<u8>) -> Result<usize, Errno> {
        recv(self, rustix::buffer::spare_capacity(into), RecvFlags::empty()).map(|(length, _)| length)
    }

    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        send(self, bytes, SendFlags::NOSIGNAL)
    }
}
