//! When the queues of a network card interrupt: the settings of their NAPI instances, one for each
//! queue or pair of queues.
//!
//! The kernel shows and sets them by generic netlink, family `netdev`: `napi-get` from Linux 6.8,
//! `napi-set` from 6.13 (`Documentation/netlink/specs/netdev.yaml`, `Documentation/networking/napi.rst`).
//!
//! | setting | unit | is |
//! |---|---|---|
//! | `gro-flush-timeout` | ns | so long after a poll, with the interrupt off, the kernel polls again |
//! | `defer-hard-irqs` | polls | so many that find nothing pass until the interrupt is on again |
//! | `irq-suspend-timeout` | ns | the interrupt is off so long while a program takes events; 0: never |
//!
//! A socket of this family belongs to a network namespace: devices are those of the calling thread's.

use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::io;

/// A number that a queue goes by; see above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NapiSetting {
    DeferHardIrqs,
    GroFlushTimeout,
    IrqSuspendTimeout,
}

impl NapiSetting {
    pub(crate) const ALL: [Self; 3] = [Self::GroFlushTimeout, Self::DeferHardIrqs, Self::IrqSuspendTimeout];

    /// As the kernel's specification calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DeferHardIrqs => "defer-hard-irqs",
            Self::GroFlushTimeout => "gro-flush-timeout",
            Self::IrqSuspendTimeout => "irq-suspend-timeout",
        }
    }

    // `NETDEV_A_NAPI_...` of `include/uapi/linux/netdev.h`.
    fn attribute(self) -> u16 {
        match self {
            Self::DeferHardIrqs => 5,
            Self::GroFlushTimeout => 6,
            Self::IrqSuspendTimeout => 7,
        }
    }
}

/// A queue of a device, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Napi {
    pub(crate) id: u32,
    /// In the order of [`NapiSetting::ALL`]; absent where the kernel knows no such setting.
    settings: [Option<u64>; 3],
}

impl Napi {
    pub(crate) fn get(&self, setting: NapiSetting) -> Option<u64> {
        let at = NapiSetting::ALL.iter().position(|&one| one == setting)?;
        self.settings[at]
    }
}

/// A device's own name, where `name` is one of its others.
pub(crate) fn name_of(name: &str) -> io::Result<String> {
    let netlink = Netlink::open()?;
    let index = rustix::net::netdevice::name_to_index(&netlink.socket, name).map_err(absent)?;
    rustix::net::netdevice::index_to_name(&netlink.socket, index).map_err(absent)
}

/// The queues of a device, none while it is down; `NotFound` where there is no such device, or no such
/// family.
pub(crate) fn queues_of(device: &str) -> io::Result<Vec<Napi>> {
    let mut netlink = Netlink::open()?;
    let index = rustix::net::netdevice::name_to_index(&netlink.socket, device).map_err(absent)?;
    let answers = netlink.ask(NAPI_GET, DUMP, &[(IFINDEX, number(u64::from(index)))])?;
    let napi = |attributes: &[(u16, Vec<u8>)]| {
        let value = |wanted: u16| {
            let found = attributes.iter().find(|(attribute, _)| *attribute == wanted)?;
            value_of(&found.1)
        };
        let id = u32::try_from(value(ID)?).ok()?;
        Some(Napi { id, settings: NapiSetting::ALL.map(|setting| value(setting.attribute())) })
    };
    let mut queues: Vec<Napi> = answers.iter().filter_map(|answer| napi(answer)).collect();
    queues.sort_by_key(|queue| queue.id);
    Ok(queues)
}

pub(crate) fn set(id: u32, setting: NapiSetting, value: u64) -> io::Result<()> {
    let attributes = [(ID, number(u64::from(id))), (setting.attribute(), number(value))];
    Netlink::open()?.ask(NAPI_SET, ACKNOWLEDGE, &attributes).map(drop)
}

// `include/uapi/linux/genetlink.h`, `netdev.h` and `netlink.h`.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const IFINDEX: u16 = 1;
const ID: u16 = 2;
const REQUEST: u16 = 1;
const MULTI: u16 = 2;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Of a message, and of generic netlink in it.
const HEADER: usize = 16;
const GENERIC: usize = 4;
/// Two bits of an attribute's type are flags.
const TYPE: u16 = 0x3fff;

/// The kernel fills a dump's messages up to this size at most (`netlink_dump`).
const MOST: usize = 64 << 10;

struct Netlink {
    socket: OwnedFd,
    family: u16,
}

impl Netlink {
    fn open() -> io::Result<Self> {
        let protocol = Some(netlink::GENERIC);
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        let mut control = Self { socket, family: CONTROL };
        let answers = control.ask(GET_FAMILY, 0, &[(FAMILY_NAME, b"netdev\0".to_vec())])?;
        let id = answers.iter().flatten().find(|(attribute, _)| *attribute == FAMILY_ID);
        let id = id.and_then(|(_, bytes)| bytes.get(..2)?.try_into().ok().map(u16::from_ne_bytes));
        Ok(Self { family: id.ok_or(io::ErrorKind::InvalidData)?, ..control })
    }

    /// Sends a command and takes its answers, each as its attributes.
    fn ask(&mut self, command: u8, flags: u16, attributes: &[(u16, Vec<u8>)]) -> io::Result<Vec<Attributes>> {
        let message = message(self.family, command, flags | REQUEST, attributes);
        rustix::net::send(&self.socket, &message, SendFlags::empty())?;
        let mut buffer = vec![0; MOST];
        let mut answers = Vec::new();
        loop {
            let (_, length) = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::TRUNC)?;
            let bytes = buffer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
            if take(bytes, &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

type Attributes = Vec<(u16, Vec<u8>)>;

/// A number as the kernel takes it: in four bytes where it fits, else in eight.
fn number(value: u64) -> Vec<u8> {
    u32::try_from(value).map_or_else(|_| value.to_ne_bytes().to_vec(), |small| small.to_ne_bytes().to_vec())
}

fn value_of(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?))),
        8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

fn message(family: u16, command: u8, flags: u16, attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![command, 1, 0, 0];
    for (attribute, bytes) in attributes {
        body.extend(u16::try_from(bytes.len() + 4).unwrap_or(u16::MAX).to_ne_bytes());
        body.extend(attribute.to_ne_bytes());
        body.extend(bytes);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Takes the messages of a datagram. True: the last one of the answer was among them.
fn take(mut bytes: &[u8], answers: &mut Vec<Attributes>) -> io::Result<bool> {
    let short = || io::Error::from(io::ErrorKind::InvalidData);
    while !bytes.is_empty() {
        let word = |at: usize| bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
        let length = bytes.get(..4).and_then(|head| head.try_into().ok()).map(u32::from_ne_bytes);
        let length = length.ok_or_else(short)? as usize;
        let (kind, flags) = word(4).zip(word(6)).ok_or_else(short)?;
        let body = bytes.get(HEADER..length).ok_or_else(short)?;
        match kind {
            DONE | ERROR => {
                let code = body.get(..4).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
                return match code {
                    0 => Ok(true),
                    code => Err(absent(rustix::io::Errno::from_raw_os_error(code.saturating_neg()))),
                };
            }
            _ => {
                answers.push(attributes_of(body.get(GENERIC..).ok_or_else(short)?).ok_or_else(short)?);
                if flags & MULTI == 0 {
                    return Ok(true);
                }
            }
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn attributes_of(mut bytes: &[u8]) -> Option<Attributes> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let attribute = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & TYPE;
        all.push((attribute, bytes.get(4..length)?.to_vec()));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(all)
}

/// No such device, no such queue, and a kernel without the family or the command are all "not there".
fn absent(errno: rustix::io::Errno) -> io::Error {
    use rustix::io::Errno;
    match errno {
        Errno::NODEV | Errno::NXIO | Errno::NOENT | Errno::OPNOTSUPP => io::ErrorKind::NotFound.into(),
        errno => errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_laid_out_as_the_kernel_reads_it() {
        let asked =
            message(0x14, NAPI_SET, REQUEST | ACKNOWLEDGE, &[(ID, number(258)), (7, number(1 << 40))]);
        assert_eq!(asked.len(), 16 + 4 + 8 + 12);
        assert_eq!(asked[..4], 40_u32.to_ne_bytes());
        let mut answers = Vec::new();
        assert!(take(&asked, &mut answers).unwrap());
        assert_eq!(answers, [vec![(ID, number(258)), (7, number(1 << 40))]]);
        assert_eq!((value_of(&number(258)), value_of(&number(1 << 40))), (Some(258), Some(1 << 40)));
    }

    #[test]
    fn an_error_of_the_kernel_is_one() {
        let refused = |code: i32| {
            let mut bytes = message(ERROR, 0, 0, &[]);
            bytes[HEADER..].copy_from_slice(&code.to_ne_bytes());
            take(&bytes, &mut Vec::new())
        };
        assert!(refused(0).unwrap(), "an acknowledgement");
        assert_eq!(refused(-1).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(refused(-2).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(refused(-95).unwrap_err().kind(), io::ErrorKind::NotFound, "an older kernel");
    }

    #[test]
    fn a_device_that_is_not_there_is_not_found() {
        // An older kernel without the family says the same.
        assert_eq!(queues_of("no-such-device0").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(queues_of("lo").map_or(0, |queues| queues.len()), 0, "it has no queues");
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            length in 0..64_u32,
        ) {
            let _ = take(&bytes, &mut Vec::new());
            // With a length that leads on.
            let mut message = bytes;
            if message.len() >= 4 {
                message[..4].copy_from_slice(&length.to_ne_bytes());
            }
            let _ = take(&message, &mut Vec::new());
        }
    }
}
