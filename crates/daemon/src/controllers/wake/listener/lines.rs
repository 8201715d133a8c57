//! Lines of a connection and their answers. A line can also ask for a ring.

use super::{Connection, Listening, token};
use crate::controllers::wake::PrincipalKind;
use crate::controllers::wake::caller::Caller;
use crate::controllers::wake::wire::{self, LINE_MAX, WakeAnswer, WakeAsk, plain_name};
use rustix::event::epoll::{self, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use slots::wake::Ring;
use std::fs;
use std::io::{self, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;

impl Listening {
    /// False if the connection has ended.
    pub(super) fn hear_lines(&mut self, number: u64) -> bool {
        let mut bytes = [0; LINE_MAX];
        let Some(connection) = self.connections.get_mut(&number) else { return true };
        let length = match (&connection.stream).read(&mut bytes) {
            Ok(0) => return false,
            Ok(length) => length,
            Err(cause) => {
                return cause.kind() == io::ErrorKind::WouldBlock
                    || cause.kind() == io::ErrorKind::Interrupted;
            }
        };
        self.hear_bytes(number, &bytes[..length])
    }

    /// False if the connection has to end.
    pub(super) fn hear_bytes(&mut self, number: u64, bytes: &[u8]) -> bool {
        for &byte in bytes {
            let Some(connection) = self.connections.get_mut(&number) else { return true };
            if byte != b'\n' {
                connection.line.push(byte);
                if connection.line.len() > LINE_MAX {
                    let refused = WakeAnswer::Refused(format!("a line has up to {LINE_MAX} bytes"));
                    let _ = answer(connection, &refused);
                    return false;
                }
                continue;
            }
            let line = std::mem::take(&mut connection.line);
            let is_taken = match wire::wake_ask(&line) {
                Ok(ask) => self.hear(number, &ask),
                Err(reason) => {
                    self.before.nonsense += 1;
                    let Some(connection) = self.connections.get_mut(&number) else { return true };
                    answer(connection, &WakeAnswer::Refused(reason))
                }
            };
            // A peer that does not read its answers loses its connection.
            if !is_taken {
                return false;
            }
        }
        true
    }

    /// False if the peer did not read its answer.
    fn hear(&mut self, number: u64, ask: &WakeAsk) -> bool {
        match ask {
            WakeAsk::Planner => {
                let status = self.handle.status();
                let Some(connection) = self.connections.get_mut(&number) else { return true };
                answer(connection, &WakeAnswer::Status(Box::new(status)))
            }
            WakeAsk::Ring { name, entries } => {
                self.hand_out(number, name, entries.unwrap_or(slots::wake::RING_ENTRIES))
            }
            WakeAsk::Hello { name } => {
                let said = self.name(number, name);
                let Some(connection) = self.connections.get_mut(&number) else { return true };
                answer(connection, &said.map_or_else(WakeAnswer::Refused, |()| WakeAnswer::Done { id: 0 }))
            }
            _ => {
                let said = self.say(number, ask);
                let Some(connection) = self.connections.get_mut(&number) else { return true };
                answer(connection, &said.map_or_else(WakeAnswer::Refused, |id| WakeAnswer::Done { id }))
            }
        }
    }

    fn say(&mut self, number: u64, ask: &WakeAsk) -> Result<u64, String> {
        if self.connections.get(&number).is_some_and(|known| known.caller.is_none()) {
            let name = self.connections.get(&number).map(peer_name).unwrap_or_default();
            self.name(number, &name)?;
        }
        let ended = || "the connection has ended".to_owned();
        let connection = self.connections.get_mut(&number).ok_or_else(ended)?;
        let id = match ask {
            WakeAsk::Came { id } | WakeAsk::Withdraw { id } | WakeAsk::Ended { id } => *id,
            _ => {
                connection.ids += 1;
                connection.ids
            }
        };
        let now = linux::now();
        let said = wire::said(ask, now, id, &self.default_cpus)?.ok_or("nothing about CPUs")?;
        let caller = connection.caller.as_mut().ok_or_else(ended)?;
        let shared = &self.handle.0.shared;
        shared.change(|plan| caller.hear(plan, now, said)).map_err(|why| why.to_string())?;
        Ok(id)
    }

    /// Sets the name of the principal that asks and pays from now on.
    fn name(&mut self, number: u64, name: &str) -> Result<(), String> {
        let name = plain_name(name)?;
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        self.handle.0.shared.change(|plan| {
            let principal = self.roll.enter(plan, PrincipalKind::Local, Some(connection.user), &name);
            if let Some(mut before) = connection.caller.replace(Caller::new(principal)) {
                let now = linux::now();
                before.depart(plan, now);
                self.roll.leave(plan, before.principal, now);
            }
        });
        Ok(())
    }

    fn hand_out(&mut self, number: u64, name: &str, entries: u32) -> bool {
        let made = self.name(number, name).and_then(|()| {
            let told = |cause: io::Error| format!("no ring can be made: {cause}");
            let ring = Ring::create(entries).map_err(told)?;
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|cause| told(cause.into()))?;
            ring.set_lead(self.handle.0.lead);
            epoll::add(&self.epoll, &bell, token(number, true), EventFlags::IN)
                .map_err(|cause| told(cause.into()))?;
            Ok((ring, bell))
        });
        let Some(connection) = self.connections.get_mut(&number) else { return true };
        let (ring, bell) = match made {
            Ok(made) if connection.ring.is_none() => made,
            Ok(_) => {
                return answer(connection, &WakeAnswer::Refused("this connection has a ring".to_owned()));
            }
            Err(reason) => return answer(connection, &WakeAnswer::Refused(reason)),
        };
        let text = wire::line(&WakeAnswer::Ring { entries: ring.capacity() });
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [ring.descriptor(), bell.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(&connection.stream, &[IoSlice::new(&text)], &mut ancillary, flags);
        let is_sent = sent == Ok(text.len());
        connection.ring = Some((ring, bell));
        is_sent
    }
}

/// False if the peer does not read it.
fn answer(connection: &mut Connection, what: &WakeAnswer) -> bool {
    let text = wire::line(what);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::send(&connection.stream, &text, flags) == Ok(text.len())
}

/// The command of the process at the other end, as the kernel reports it.
fn peer_name(connection: &Connection) -> String {
    let process = socket_peercred(&connection.stream).map(|peer| peer.pid.as_raw_nonzero().get());
    let command = process.ok().and_then(|process| fs::read_to_string(format!("/proc/{process}/comm")).ok());
    let command = command.map(|command| command.trim().replace(char::is_control, "?"));
    command.filter(|command| !command.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
