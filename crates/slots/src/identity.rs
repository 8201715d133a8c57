//! Which process wrote a file: a number alone is used again, also after a restart of the machine.

use std::fs;

/// A process, for as long as this machine runs, and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Number of the process, in the writer's own pid namespace.
    pub pid: u32,
    /// When it began, in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub started: u64,
    /// `/proc/sys/kernel/random/boot_id`, its hexadecimal digits as bytes.
    pub boot_id: [u8; 16],
}

impl Identity {
    /// The calling process. A number that `/proc` does not give is zero.
    pub fn own() -> Self {
        Self::of(std::process::id())
    }

    /// The process that has this number now, in our pid namespace.
    pub fn of(pid: u32) -> Self {
        Self { pid, started: process_started(pid).unwrap_or(0), boot_id: boot_id() }
    }

    /// Whether that process still runs, as far as this pid namespace can tell.
    pub fn is_alive(&self) -> bool {
        self.boot_id == boot_id() && process_started(self.pid).is_some_and(|started| started == self.started)
    }
}

/// The command stands in parentheses and may hold spaces and parentheses itself.
fn process_started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_command) = text.rsplit_once(')')?;
    after_command.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).take(32).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_another_of_its_number_does_not() {
        let own = Identity::own();
        assert!(own.is_alive() && own.started > 0 && own.boot_id != [0; 16]);
        assert!(!Identity { started: own.started + 1, ..own }.is_alive());
        assert!(!Identity { boot_id: [7; 16], ..own }.is_alive());
    }
}
