//! A socket's uncore: its clock is limited as a core's is, and the fastest request of its CPUs
//! counts. One service on a socket, or all of them, must ask: a CPU that is not ours keeps the
//! uncore as it is.
//!
//! | limit | `max_freq_khz` | `min_freq_khz`, `elc_floor_freq_khz` | `elc_high_threshold_enable` |
//! |---|---|---|---|
//! | at most C | C | no higher than C | as it is |
//! | at most the fastest clock, or more | as it is | the slowest clock | 1 |
//! | exactly C | C | C | as it is |
//!
//! A cap at the fastest clock limits nothing, so it stands for another request: the hardware may
//! choose any clock (efficiency latency control, `elc`). A socket without ELC refuses that one.
//!
//! Steps are of 100 MHz, the driver's unit. A socket with several clusters has one limit; each
//! cluster gets the part of it that lies within its own range.
//!
//! Invariant: the maximum is never above the administrator's.

use super::domain::{Domain, Means, Order, Speeds, Trouble};
use super::state::{FrequencyActuator, FrequencyState};
use crate::cpufreq::uncore::{BY_STEPS, FLOOR, FOLDER, MAX, MIN, uncore_domains};
use crate::journal::{ChangeError, Journal};
use crate::root::{Gaps, Root};
use machine::{CpuList, FrequencyLimit, Kilohertz};

#[derive(Debug)]
pub(super) struct Uncore {
    clusters: Vec<Cluster>,
}

/// A part of a socket's uncore with a clock of its own.
#[derive(Debug)]
struct Cluster {
    folder: String,
    hardware: (Kilohertz, Kilohertz),
    has_elc: bool,
}

impl Uncore {
    pub(super) fn put_in_force(
        &self,
        journal: &mut Journal,
        order: &Order<'_>,
    ) -> Result<FrequencyState, Trouble> {
        let &Order { speeds, limit, clock } = order;
        let is_free_choice = matches!(limit, FrequencyLimit::AtMost(asked) if asked >= speeds.hardware.1);
        if is_free_choice && !self.clusters.iter().any(|cluster| cluster.has_elc) {
            return Err(Trouble::Told(NO_ELC.to_owned()));
        }
        let mut kept_stricter = false;
        for cluster in &self.clusters {
            let (slowest, fastest) = cluster.hardware;
            let clock = clock.clamp(slowest, fastest);
            let most = khz(journal, &cluster.file(MAX))?;
            kept_stricter |= !is_free_choice && most < clock;
            let max = if is_free_choice { most } else { clock.min(most) };
            let below = |earlier: Kilohertz| match limit {
                _ if is_free_choice => slowest,
                FrequencyLimit::Exactly(_) => max,
                FrequencyLimit::AtMost(_) | FrequencyLimit::None => earlier.min(max),
            };
            // The lower bound first where both fall; no order is refused.
            let mut files = vec![(MIN, below(khz(journal, &cluster.file(MIN))?)), (MAX, max)];
            if cluster.has_elc {
                files.insert(0, (FLOOR, below(khz(journal, &cluster.file(FLOOR))?)));
            }
            for (file, value) in files {
                set(journal, &cluster.file(file), value.0)?;
            }
            if cluster.has_elc && is_free_choice {
                set(journal, &cluster.file(BY_STEPS), 1)?;
            } else if cluster.has_elc {
                journal.put_back(&cluster.file(BY_STEPS))?;
            }
        }
        let setting = is_free_choice.then(|| "efficiency latency control".to_owned());
        let by = FrequencyActuator::Uncore;
        Ok(FrequencyState::InForce { limit, reads: clock, by, setting, kept_stricter })
    }

    pub(super) fn free(&self, journal: &mut Journal) -> Result<(), ChangeError> {
        let files = self
            .clusters
            .iter()
            .flat_map(|cluster| [MAX, MIN, FLOOR, BY_STEPS].map(|file| cluster.file(file)));
        files.into_iter().try_for_each(|file| journal.put_back(&file))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        let folder = path.rsplit_once('/').map(|(folder, _)| folder);
        self.clusters.iter().any(|cluster| Some(cluster.folder.as_str()) == folder)
    }
}

impl Cluster {
    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}

/// The text without us, as a clock.
fn khz(journal: &mut Journal, file: &str) -> Result<Kilohertz, Trouble> {
    let text = journal.earlier(file)?;
    let khz = text.parse().map(Kilohertz);
    khz.map_err(|_| Trouble::Told(format!("/{file} reads `{text}` where kHz were expected")))
}

fn set(journal: &mut Journal, file: &str, value: u64) -> Result<(), Trouble> {
    let value = value.to_string();
    let reads = journal.set(file, &value)?;
    if reads == value {
        return Ok(());
    }
    Err(Trouble::Told(format!(
        "/{file} reads {reads} after {value} was written: the firmware or another program bounds it"
    )))
}

/// The sockets or dies with a CPU among `cpus`, or why their uncore cannot be limited.
pub(super) fn domains(root: &Root, cpus: &CpuList) -> Result<Vec<Domain>, String> {
    let mut found: Vec<(CpuList, Vec<Cluster>)> = Vec::new();
    for domain in uncore_domains(root, &mut Gaps::default()) {
        let Some(hardware) = domain.hardware.filter(|_| domain.min.is_some() && domain.max.is_some()) else {
            continue;
        };
        if domain.cpus.0.is_disjoint(&cpus.0) {
            continue;
        }
        let folder = format!("{FOLDER}/{}", domain.name);
        let cluster = Cluster { folder, hardware, has_elc: domain.elc.is_some() };
        match found.iter_mut().find(|(cpus, _)| *cpus == domain.cpus) {
            Some((_, clusters)) => clusters.push(cluster),
            None => found.push((domain.cpus, vec![cluster])),
        }
    }
    if found.is_empty() {
        return Err("the kernel shows no clock of the uncore that can be set \
                    (/sys/devices/system/cpu/intel_uncore_frequency), as on virtual machines and AMD's \
                    processors\nhint: on an Intel server load its driver (modprobe intel-uncore-frequency; \
                    Debian's cloud kernels lack it), or leave uncore out"
            .to_owned());
    }
    let domain = |(cpus, clusters): (CpuList, Vec<Cluster>)| {
        let slowest = clusters.iter().map(|cluster| cluster.hardware.0).min()?;
        let fastest = clusters.iter().map(|cluster| cluster.hardware.1).max()?;
        let between = (slowest.0..fastest.0).step_by(STEP_KHZ).map(Kilohertz);
        let steps = between.chain([fastest]).collect();
        let speeds = Speeds { cpus, hardware: (slowest, fastest), base: None, steps };
        Some(Domain::new(Means::Uncore(Uncore { clusters }), speeds))
    };
    Ok(found.into_iter().filter_map(domain).collect())
}

const STEP_KHZ: usize = 100_000;

const NO_ELC: &str = "this socket shows no efficiency latency control (elc_floor_freq_khz: Linux 6.12, and \
                      a processor with TPMI); choose auto or fixed";

#[cfg(test)]
mod tests;
