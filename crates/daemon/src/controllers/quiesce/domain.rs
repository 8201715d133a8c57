//! Which CPUs are to sleep together.

use super::QuiesceError;
use linux::{Root, clusters, online_cpus, topology};
use machine::CpuList;
use std::collections::BTreeSet;

/// The CPUs of a domain, and how it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// `all`, `socket:0`, `cluster:1`, or a list of CPUs.
    pub name: String,
    /// Its CPUs, all of them online.
    pub cpus: CpuList,
}

impl Domain {
    /// The units that `name` means on this machine.
    pub fn find(root: &Root, name: &str) -> Result<Self, QuiesceError> {
        let wrong = |reason: String| QuiesceError::Domain { domain: name.to_owned(), reason };
        let unreadable = |error: linux::FileError| wrong(error.to_string());
        let online = online_cpus(root).map_err(unreadable)?;
        let cpus = match name.split_once(':') {
            None if name == "all" => online,
            None => {
                let cpus: CpuList = name.parse().map_err(|_| {
                    wrong("write all, socket:N, cluster:N or a list of CPUs such as 0-3,8".to_owned())
                })?;
                let away: BTreeSet<_> = cpus.0.difference(&online.0).copied().collect();
                if !away.is_empty() {
                    return Err(wrong(format!("CPU {} is not online: online are {online}", CpuList(away))));
                }
                cpus
            }
            Some((kind, number)) => {
                let groups = match kind {
                    "socket" => {
                        let all = topology(root).map_err(unreadable)?;
                        let packages: BTreeSet<u16> = all.0.iter().map(|cpu| cpu.package).collect();
                        let of = |package| all.0.iter().filter(move |cpu| cpu.package == package);
                        packages.into_iter().map(|one| CpuList(of(one).map(|cpu| cpu.id).collect())).collect()
                    }
                    "cluster" => clusters(root, &online),
                    _ => return Err(wrong("there are the kinds socket and cluster".to_owned())),
                };
                let found = number.parse::<usize>().ok().and_then(|number| groups.get(number).cloned());
                let last = groups.len().saturating_sub(1);
                found.ok_or_else(|| wrong(format!("this machine has {kind} 0 to {last}")))?
            }
        };
        if cpus.0.is_empty() {
            return Err(wrong("it names no CPU".to_owned()));
        }
        Ok(Self { name: name.to_owned(), cpus })
    }

    /// An error if none of these processes may run there: freezing them would let no CPU sleep.
    pub(super) fn is_reached_by(&self, processes: &BTreeSet<u32>) -> Result<(), QuiesceError> {
        let runs_there = |&process: &u32| {
            // One that has ended in between would not have been in the way.
            linux::cpus_of_process(process)
                .is_none_or(|cpus| cpus.0.intersection(&self.cpus.0).next().is_some())
        };
        if processes.iter().any(runs_there) {
            return Ok(());
        }
        let reason = format!(
            "no background process may run on CPU {}, so freezing them lets none of these sleep",
            self.cpus
        );
        Err(QuiesceError::Domain { domain: self.name.clone(), reason })
    }
}
