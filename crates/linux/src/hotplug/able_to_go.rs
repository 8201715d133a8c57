//! Selects the CPUs that can go offline.

use super::Hotplug;
use super::belongings::cpusets;
use crate::knob::switch_of;
use crate::lock::needed_by_others;
use machine::{CpuId, CpuList};
use std::collections::BTreeSet;

impl Hotplug {
    /// Those of `wanted` that are online and can go, in whole cores.
    pub(super) fn able_to_go(
        &mut self,
        wanted: &BTreeSet<CpuId>,
        online: &BTreeSet<CpuId>,
    ) -> BTreeSet<CpuId> {
        let needed = needed_by_others(&self.root);
        let (mut going, mut reasons) = (BTreeSet::new(), Vec::new());
        for core in &self.cores {
            let up = core & online;
            // One that is needed keeps the core awake whatever its siblings do.
            if up.is_empty() || !up.is_subset(wanted) || !up.is_disjoint(&self.theirs) {
                continue;
            }
            let why_not = up.iter().find_map(|&cpu| {
                if self.root.has(&switch_of(cpu)) != Some(true) {
                    return Some(format!("{cpu} stays online: the kernel shows no `online` file of it"));
                }
                needed.get(&cpu).map(|holder| format!("{cpu} stays online: {holder} needs it"))
            });
            match why_not {
                Some(reason) => reasons.push(reason),
                None => going.extend(up),
            }
        }
        for cpuset in cpusets(&self.root) {
            let has: CpuList =
                self.own_of(&cpuset.cpus).and_then(|text| text.parse().ok()).unwrap_or_default();
            if has.0.is_disjoint(&going)
                || has.0.iter().any(|cpu| online.contains(cpu) && !going.contains(cpu))
            {
                continue;
            }
            reasons.push(format!("CPU {has} stays online: /{} has no other", cpuset.folder));
            let keeps = self.cores.iter().filter(|core| !core.is_disjoint(&has.0));
            let keeps: BTreeSet<CpuId> = keeps.flatten().copied().collect();
            going = &going - &keeps;
        }
        // The kernel refuses the last one, after it has moved everything there.
        if going.is_superset(online) {
            going.clear();
        }
        reasons.into_iter().for_each(|reason| self.tell(reason));
        going
    }
}
