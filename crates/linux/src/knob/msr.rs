//! A core's duty cycle: `IA32_CLOCK_MODULATION`, a model-specific register (MSR) of Intel's
//! processors.
//!
//! Registers of CPU N are read and written through `/dev/cpu/N/msr` (module `msr`) at the offset of
//! their number, eight bytes at a time, by interrupting that CPU, which wakes it. The first write
//! by any program taints the kernel until the next boot.
//!
//! The text of this knob is the register's low five bits in hexadecimal, `0x1a`: bit 4 switches the
//! modulation on, the others hold the part of the time that the clock runs. No other bit is ever
//! changed, whatever a journal says.

use crate::root::FileError;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// `IA32_CLOCK_MODULATION`.
const REGISTER: u64 = 0x19A;

/// The bits that are ours to change.
const FIELD: u64 = 0x1f;

/// The journal's name for the duty cycle of a CPU.
pub(crate) fn duty_cycle_of(cpu: u16) -> String {
    format!("msr/cpu{cpu}/{NAME}")
}

/// The CPU whose duty cycle `path` names.
pub(super) fn cpu_in(path: &str) -> Option<u16> {
    let cpu = path.strip_prefix("msr/cpu")?.strip_suffix(NAME)?.strip_suffix('/')?;
    // As `duty_cycle_of` writes it, and in no other way.
    cpu.parse().ok().filter(|&number: &u16| number.to_string() == cpu)
}

/// The file with the registers of a CPU, below the root.
pub(crate) fn registers_of(cpu: u16) -> String {
    format!("dev/cpu/{cpu}/msr")
}

/// The bits as the journal has them.
pub(crate) fn text_of(bits: u64) -> String {
    format!("{:#04x}", bits & FIELD)
}

/// The bits of such a text.
pub(crate) fn bits_of(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok().filter(|bits| bits & !FIELD == 0)
}

#[derive(Debug)]
pub(super) struct DutyCycleKnob {
    path: PathBuf,
}

impl DutyCycleKnob {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn read(&self) -> Result<String, FileError> {
        let register = File::open(&self.path).and_then(|file| register(&file));
        register.map(text_of).map_err(|cause| FileError::unreadable(&self.path, known(cause)))
    }

    pub(super) fn write(&self, value: &str) -> Result<(), FileError> {
        let write = || {
            let bits = bits_of(value).ok_or(io::ErrorKind::InvalidInput)?;
            let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
            let whole = register(&file)? & !FIELD | bits;
            file.write_all_at(&whole.to_le_bytes(), REGISTER)
        };
        write().map_err(|cause| FileError::unwritable(&self.path, value, known(cause)))
    }
}

fn register(file: &File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, REGISTER)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A CPU that is offline has the device still, and it cannot be opened (ENXIO): the register counts
/// as gone.
fn known(cause: io::Error) -> io::Error {
    if cause.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) {
        io::ErrorKind::NotFound.into()
    } else {
        cause
    }
}

const NAME: &str = "clock_modulation";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    #[test]
    fn only_five_bits_are_ours() {
        let machine = FakeMachine::intel_server(1);
        machine.set_register(0, REGISTER, 0xdead_beef_0000_0100);
        let knob = DutyCycleKnob::new(machine.path(&registers_of(0)));
        assert_eq!(knob.read().unwrap(), "0x00");
        knob.write("0x1a").unwrap();
        assert_eq!(knob.read().unwrap(), "0x1a");
        assert_eq!(machine.register(0, REGISTER), 0xdead_beef_0000_011a);
        // A journal that was tampered with.
        for wrong in ["0x11a", "26", "", "0x"] {
            assert!(knob.write(wrong).is_err(), "{wrong}");
        }
        assert_eq!(machine.register(0, REGISTER), 0xdead_beef_0000_011a);
    }

    #[test]
    fn its_name_leads_to_a_cpu_and_nowhere_else() {
        assert_eq!(cpu_in(&duty_cycle_of(12)), Some(12));
        for wrong in [
            "msr/cpu/clock_modulation",
            "msr/cpu1x/clock_modulation",
            "msr/cpu+1/clock_modulation",
            "msr/cpu1/0x10",
        ] {
            assert_eq!(cpu_in(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_register_that_is_not_there_is_no_zero() {
        let machine = FakeMachine::intel_server(1);
        let knob = DutyCycleKnob::new(machine.path(&registers_of(0)));
        assert!(matches!(knob.read(), Err(FileError::Missing { .. })));
        machine.write(&registers_of(0), "too short");
        assert!(matches!(knob.read(), Err(FileError::Unreadable { .. })));
        assert!(matches!(knob.write("0x00"), Err(FileError::Unwritable { .. })));
    }
}
