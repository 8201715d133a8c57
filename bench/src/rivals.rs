//! Programs that the store is measured beside: told apart by their own word, and how each is started.

use crate::exit::usage;
use anyhow::Result;
use loadgen::Dialect;
use std::path::Path;
use std::process::Command;

/// A server of keys that is not memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rival {
    /// As it starts: with io_uring, where the kernel has it.
    Pogocache,
    PogocacheEpoll,
    /// With a thread for the commands, and the others for input and output.
    Valkey,
    Redis,
}

impl Rival {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pogocache => "pogocache",
            Self::PogocacheEpoll => "pogocache, epoll",
            Self::Valkey => "valkey",
            Self::Redis => "redis",
        }
    }

    pub fn dialect(self) -> Dialect {
        match self {
            Self::Pogocache | Self::PogocacheEpoll => Dialect::Memcached,
            Self::Valkey | Self::Redis => Dialect::Redis,
        }
    }

    /// One worker or thread for each CPU; nothing is written to a disk.
    pub fn command(self, binary: &Path, port: u16, threads: usize, memory_mib: u64) -> Command {
        let mut command = Command::new(binary);
        let (port, threads, memory) = (port.to_string(), threads.to_string(), format!("{memory_mib}mb"));
        match self {
            Self::Pogocache | Self::PogocacheEpoll => {
                command.args(["-h", "127.0.0.1", "-p", &port, "--threads", &threads, "--maxconns", "20000"]);
                let uring = if self == Self::Pogocache { "yes" } else { "no" };
                command.args(["--maxmemory", &memory, "--uring", uring]);
            }
            Self::Valkey | Self::Redis => {
                command.args(["--bind", "127.0.0.1", "--port", &port, "--save", ""]);
                command.args(["--io-threads", &threads, "--maxclients", "20000", "--maxmemory", &memory]);
                command.args(["--maxmemory-policy", "allkeys-lru"]);
            }
        }
        command
    }
}

/// A program, by its own word.
#[derive(Debug, PartialEq, Eq)]
pub enum Program {
    Memcached((u32, u32, u32)),
    /// And its version, as it writes it. Pogocache is measured in both of its ways.
    Rivals(&'static [Rival], String),
}

impl Program {
    /// Asks the program.
    ///
    /// # Errors
    /// It cannot be started, or is none of those that can be measured.
    pub fn of(binary: &Path) -> Result<Self> {
        let output = Command::new(binary).arg("--version").output().map_err(|cause| {
            usage(format!("--peer {}: {cause}; name the binary of a store", binary.display()))
        })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Self::parse(&text).ok_or_else(|| {
            usage(format!(
                "--peer {}: `{}` is no version of memcached, Pogocache, Valkey or Redis; name the binary of one",
                binary.display(),
                text.lines().next().unwrap_or_default()
            ))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.trim();
        if let Some(version) = line.strip_prefix("memcached ") {
            let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
            return Some(Self::Memcached((numbers.next()??, numbers.next()??, numbers.next()??)));
        }
        let (rivals, version): (&[Rival], _) = if let Some(version) = line.strip_prefix("pogocache ") {
            (&[Rival::Pogocache, Rival::PogocacheEpoll], version)
        } else if let Some(rest) = line.strip_prefix("Valkey server v=") {
            (&[Rival::Valkey], rest)
        } else {
            (&[Rival::Redis], line.strip_prefix("Redis server v=")?)
        };
        Some(Self::Rivals(rivals, version.split(' ').next()?.to_owned()))
    }
}

/// The version of a memcached.
///
/// # Errors
/// The program is another one.
pub fn memcached_version(binary: &Path) -> Result<(u32, u32, u32)> {
    match Program::of(binary)? {
        Program::Memcached(version) => Ok(version),
        Program::Rivals(rivals, _) => Err(usage(format!(
            "--peer {} is {}; name a memcached binary",
            binary.display(),
            rivals[0].name()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_apart_by_what_they_print() {
        assert_eq!(Program::parse("memcached 1.6.45\n"), Some(Program::Memcached((1, 6, 45))));
        assert_eq!(Program::parse("memcached 1.6.18-3-gabc"), Some(Program::Memcached((1, 6, 18))));
        let rivals = |rivals, version: &str| Some(Program::Rivals(rivals, version.to_owned()));
        assert_eq!(
            Program::parse("pogocache 1.3.1-4-g8e20ffc\n"),
            rivals(&[Rival::Pogocache, Rival::PogocacheEpoll], "1.3.1-4-g8e20ffc")
        );
        assert_eq!(
            Program::parse("Valkey server v=8.0.1 sha=00000000:0 malloc=libc bits=64 build=af\n"),
            rivals(&[Rival::Valkey], "8.0.1")
        );
        assert_eq!(
            Program::parse("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=d8\n"),
            rivals(&[Rival::Redis], "7.0.15")
        );
        for text in
            ["", "memcached", "memcached UNKNOWN", "redis 7.0.15", "redis-cli 7.0.15", "memcached 1.6"]
        {
            assert_eq!(Program::parse(text), None, "{text}");
        }
        let version = |text| match Program::parse(text) {
            Some(Program::Memcached(version)) => version,
            other => panic!("{text}: {other:?}"),
        };
        assert!(version("memcached 1.6.18") < version("memcached 1.6.35"));
    }
}
