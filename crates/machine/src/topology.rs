//! CPUs, the cores and sockets they belong to, and the kernel's notation for lists of them.

use crate::CpuId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// One logical CPU and where it sits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    pub id: CpuId,
    /// The physical core, unique within its package; hyperthreads share it.
    pub core: u16,
    pub package: u16,
    /// The NUMA node of its memory; 0 where it is not told.
    #[serde(default)]
    pub node: u16,
    /// The first CPU of those that share its last-level cache; 0 where it is not told.
    #[serde(default)]
    pub cache: u16,
    /// Its speed, of 1024, on machines with cores of several kinds; 0 elsewhere.
    #[serde(default)]
    pub capacity: u16,
}

impl Cpu {
    /// One of which nothing else is told.
    pub fn at(id: CpuId, core: u16, package: u16) -> Self {
        Self { id, core, package, node: 0, cache: 0, capacity: 0 }
    }
}

/// The CPUs of a machine, ordered by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Topology(pub Vec<Cpu>);

impl Topology {
    /// A machine of `packages` x `cores` x `threads`, numbered as Linux does: first threads of all
    /// cores first.
    pub fn uniform(packages: u16, cores: u16, threads: u16) -> Self {
        let mut cpus = Vec::new();
        for thread in 0..threads {
            for package in 0..packages {
                for core in 0..cores {
                    let id = CpuId(thread * packages * cores + package * cores + core);
                    cpus.push(Cpu::at(id, core, package));
                }
            }
        }
        Self(cpus)
    }

    /// The CPUs that share a physical core with `cpu`, itself among them.
    pub fn siblings(&self, cpu: CpuId) -> impl Iterator<Item = CpuId> + '_ {
        let place = self.0.iter().find(|c| c.id == cpu).map(|c| (c.package, c.core));
        self.0.iter().filter(move |c| Some((c.package, c.core)) == place).map(|c| c.id)
    }
}

/// A set of CPUs in the kernel's list notation: `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuList(pub BTreeSet<CpuId>);

/// A text that is no list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseCpuListError(String);

impl fmt::Display for ParseCpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no list of CPUs: write numbers and ranges such as 0-3,8", self.0)
    }
}
impl std::error::Error for ParseCpuListError {}

impl FromStr for CpuList {
    type Err = ParseCpuListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseCpuListError(text.to_owned());
        let number = |part: &str| part.trim().parse::<u16>().map_err(|_| refused());
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(refused());
            }
            cpus.extend((first..=last).map(CpuId));
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.0.iter().map(|cpu| cpu.0).peekable();
        let mut separator = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while last.checked_add(1).is_some_and(|next| numbers.peek() == Some(&next)) {
                last = numbers.next().expect("peeked");
            }
            if first == last {
                write!(f, "{separator}{first}")?
            } else {
                write!(f, "{separator}{first}-{last}")?
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_and_print_in_the_kernels_notation() {
        for text in ["0", "0-3,8", "1,3,5-6", "65534-65535"] {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), text);
        }
        assert_eq!("3,1,2".parse::<CpuList>().unwrap().to_string(), "1-3");
        for text in ["", "a", "3-1", "1,,2", "-1", "70000"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    #[test]
    fn hyperthreads_share_a_core() {
        let machine = Topology::uniform(2, 4, 2);
        assert_eq!(machine.siblings(CpuId(1)).collect::<Vec<_>>(), [CpuId(1), CpuId(9)]);
        assert_eq!(machine.siblings(CpuId(99)).count(), 0);
    }
}
