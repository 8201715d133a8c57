//! The receive queues over which a network card spreads its packets (RSS): its indirection table.
//!
//! The card hashes each packet's addresses and looks the hash's low bits up in a table of some 128
//! entries, each the number of a queue. A queue that no entry names gets no packets, so its
//! interrupt is silent: the only way to keep a CPU out of a card's work where the driver keeps the
//! interrupts' affinity.
//!
//! The kernel has no file for it, but `ioctl(SIOCETHTOOL)` on any socket (`net/ethtool/ioctl.c`:
//! `ETHTOOL_GRXFHINDIR`, `ETHTOOL_SRXFHINDIR`). As this knob's text the table is its entries with
//! commas between. A table that was never set spreads entry `i` to queue `i mod rings` and follows
//! when the card gets more queues. One that was set does not, and the kernel then refuses to take
//! queues away that it names. The kernel does not show which of the two a table is. So for a table
//! that reads as the kernel's own, the kernel is asked to make it anew (a table of no entries), and
//! then it follows again.
//!
//! On a made-up machine the table is a file, `ethtool/DEVICE/indirection`.

use crate::root::{FileError, Root, overwrite};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use std::ffi::c_void;
use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// The journal's name for the table of a network device.
pub(crate) fn indirection_of(device: &str) -> String {
    format!("ethtool/{device}/indirection")
}

/// The device whose table `path` names.
pub(super) fn device_in(path: &str) -> Option<&str> {
    let device = path.strip_prefix("ethtool/")?.strip_suffix("/indirection")?;
    is_device(device).then_some(device)
}

/// True of a valid device name for the kernel (`dev_valid_name`).
pub(crate) fn is_device(name: &str) -> bool {
    !name.is_empty()
        && name.len() < NAME_MAX
        && !matches!(name, "." | "..")
        && !name.contains(|letter: char| letter == '/' || letter == ':' || letter.is_whitespace())
}

/// The queues of a table, entry by entry; `None` if the text is none.
pub(crate) fn entries_of(text: &str) -> Option<Vec<u32>> {
    text.split(',').map(|entry| entry.parse().ok()).collect()
}

/// A table as this knob's text.
pub(crate) fn table_of(entries: &[u32]) -> String {
    entries.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[derive(Debug)]
pub(super) struct IndirectionKnob {
    device: String,
    /// The object that an error names: `/sys/class/net/DEVICE`, or the file of a made-up machine.
    path: PathBuf,
    is_real: bool,
}

impl IndirectionKnob {
    pub(super) fn new(root: &Root, device: &str) -> Self {
        let is_real = *root == Root::system();
        let path =
            root.path(&if is_real { format!("sys/class/net/{device}") } else { indirection_of(device) });
        Self { device: device.to_owned(), path, is_real }
    }

    pub(super) fn read(&self) -> Result<String, FileError> {
        let table = if self.is_real {
            entries(&self.device).map(|entries| table_of(&entries))
        } else {
            fs::read_to_string(&self.path).map(|text| text.trim_end().to_owned())
        };
        table.map_err(|cause| FileError::unreadable(&self.path, cause))
    }

    pub(super) fn write(&self, value: &str) -> Result<(), FileError> {
        let write = || {
            let entries = entries_of(value).ok_or(io::ErrorKind::InvalidInput)?;
            if self.is_real {
                set(&self.device, &entries)
            } else {
                overwrite(&self.path, &format!("{value}\n"))
            }
        };
        write().map_err(|cause| FileError::unwritable(&self.path, value, cause))
    }

    /// Has the kernel make its own table anew, if `before` was that.
    pub(super) fn free(&self, before: &str) -> Result<(), FileError> {
        let free = || {
            if self.is_real
                && entries_of(before).is_some_and(|entries| is_made(&entries, rings(&self.device)))
            {
                set(&self.device, &[])?;
            }
            Ok(())
        };
        free().map_err(|cause: io::Error| FileError::unwritable(&self.path, before, cause))
    }
}

/// True if a table is as the kernel makes one for so many rings (`ethtool_rxfh_indir_default`).
fn is_made(entries: &[u32], rings: io::Result<u32>) -> bool {
    rings.is_ok_and(|rings| rings > 0 && entries.iter().zip(0..).all(|(&queue, at)| queue == at % rings))
}

/// `include/uapi/linux/ethtool.h`.
const GET_RINGS: u32 = 0x2d;
const GET_TABLE: u32 = 0x38;
const SET_TABLE: u32 = 0x39;

/// Of a device's name, its end included (`IFNAMSIZ`).
const NAME_MAX: usize = 16;

/// More entries than any card has; a driver's larger number is not believed.
const ENTRIES_MAX: u32 = 1 << 16;

/// `struct ifreq` with a pointer: 16 bytes of name and a union of 24.
#[repr(C)]
struct Request {
    name: [u8; NAME_MAX],
    data: *mut c_void,
    rest: [u8; 16],
}

/// `SIOCETHTOOL`.
struct Ethtool(Request);

// SAFETY: the opcode takes a pointer to a `struct ifreq` and writes at most into it and where its
// data points, which `ask` keeps alive.
unsafe impl Ioctl for Ethtool {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        0x8946
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Hands `words` to the device's driver and takes its answer in the same place.
///
/// # Safety
/// `words` must be as long as the kernel takes the command that they begin with to be.
unsafe fn ask(device: &str, words: &mut [u32]) -> io::Result<()> {
    let mut name = [0; NAME_MAX];
    let bytes = device.as_bytes();
    name.get_mut(..bytes.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
    let request = Request { name, data: words.as_mut_ptr().cast(), rest: [0; 16] };
    // Any socket does; this one connects to nothing.
    let socket = UnixDatagram::unbound()?;
    // SAFETY: `words` outlives the call and is long enough, by this function's own contract.
    let asked = unsafe { ioctl(&socket, Ethtool(request)) };
    asked.map_err(|errno| match errno {
        Errno::NODEV | Errno::OPNOTSUPP => io::ErrorKind::NotFound.into(),
        errno => errno.into(),
    })
}

fn entries(device: &str) -> io::Result<Vec<u32>> {
    let mut head = [GET_TABLE, 0];
    // SAFETY: a table of no entries is two words; the kernel answers with the number of entries.
    unsafe { ask(device, &mut head)? };
    let length = head[1];
    if length == 0 || length > ENTRIES_MAX {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut words = vec![0; 2 + length as usize];
    words[..2].copy_from_slice(&[GET_TABLE, length]);
    // SAFETY: two words and as many entries as the second says; the kernel refuses where it has
    // another number of them.
    unsafe { ask(device, &mut words)? };
    Ok(words.split_off(2))
}

/// No entries at all: the kernel's own.
fn set(device: &str, entries: &[u32]) -> io::Result<()> {
    let length = u32::try_from(entries.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut words = vec![SET_TABLE, length];
    words.extend(entries);
    // SAFETY: two words and as many entries as the second says.
    unsafe { ask(device, &mut words) }
}

/// The number of receive rings over which the device spreads.
fn rings(device: &str) -> io::Result<u32> {
    // `struct ethtool_rxnfc` is 192 bytes; the number comes in its `data`, the third word.
    let mut words = [0; 64];
    words[0] = GET_RINGS;
    // SAFETY: longer than the kernel's structure with any of its unions.
    unsafe { ask(device, &mut words)? };
    Ok(words[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_devices_table_is_one() {
        assert_eq!(device_in(&indirection_of("eth0.7")), Some("eth0.7"));
        for path in [
            "ethtool//indirection",
            "ethtool/../indirection",
            "ethtool/a/b/indirection",
            "ethtool/eth0:1/indirection",
            "ethtool/a b/indirection",
            "ethtool/a_name_that_is_too_long/indirection",
            "ethtool/eth0/key",
        ] {
            assert_eq!(device_in(path), None, "{path}");
        }
    }

    #[test]
    fn a_table_is_its_entries() {
        assert_eq!(entries_of(&table_of(&[0, 1, 2, 1])), Some(vec![0, 1, 2, 1]));
        for text in ["", "0,", "0 1", "-1", "4294967296"] {
            assert_eq!(entries_of(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_table_that_follows_the_rings_is_told_from_one_that_was_set() {
        assert!(is_made(&[0, 1, 2, 0, 1, 2, 0, 1], Ok(3)));
        assert!(!is_made(&[0, 1, 0, 1, 0, 1, 0, 1], Ok(3)), "two of three rings");
        assert!(!is_made(&[0, 1, 2], Ok(0)));
        assert!(!is_made(&[0, 1, 2], Err(io::ErrorKind::NotFound.into())));
    }

    #[test]
    fn a_device_without_a_table_has_no_such_knob() {
        let knob = IndirectionKnob::new(&Root::system(), "lo");
        assert!(matches!(knob.read(), Err(FileError::Missing { .. })), "{:?}", knob.read());
        assert!(matches!(knob.write("0,0"), Err(FileError::Missing { .. })), "{:?}", knob.write("0,0"));
        let absent = IndirectionKnob::new(&Root::system(), "no-such-device0");
        assert!(matches!(absent.read(), Err(FileError::Missing { .. })), "{:?}", absent.read());
    }
}
