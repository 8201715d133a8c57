//! Decisions as commands: more room before it is used, less after.

use super::{Decision, ServiceController, Why};
use machine::{Command, CpuId};
use std::collections::BTreeSet;

impl ServiceController {
    pub(super) fn give_all(&mut self, why: Why) {
        let withdrawn = self.idle.withdraw();
        self.decide(withdrawn, &why);
        let withdrawn = self.frequency.withdraw();
        self.decide(withdrawn, &why);
        let withdrawn = self.uncore.withdraw();
        self.decide(withdrawn.into_iter().collect(), &why);
        let cores = self.topology.cores.len() as u16;
        // Told even where it changes nothing: another program may have made the present setting.
        self.active = cores;
        self.decided.push_back(Decision { command: Command::SetActiveCpus(self.active()), why });
    }

    pub(super) fn put(&mut self, wanted: u16, why: Why) {
        let wanted = wanted.clamp(1, self.topology.cores.len() as u16);
        let grows = wanted > self.active;
        let changes = wanted != self.active;
        self.active = wanted;
        let limits = self.idle.limits(&self.active_set());
        let set =
            changes.then(|| Decision { command: Command::SetActiveCpus(self.active()), why: why.clone() });
        // More room first: a CPU that is about to be used may be limited a moment too late, not
        // used too late.
        if grows {
            self.decided.extend(set);
            self.decide(limits, &why);
        } else {
            self.decide(limits, &why);
            self.decided.extend(set);
        }
    }

    pub(super) fn set_clocks(&mut self) {
        let changed = self.frequency.limits(&self.topology, self.active);
        let decided = |(command, why)| Decision { command, why: Why::Clock(why) };
        self.decided.extend(changed.into_iter().map(decided));
        let uncore = self.uncore.limit(&self.topology);
        self.decided.extend(uncore.map(|(command, why)| Decision { command, why: Why::Uncore(why) }));
    }

    pub(super) fn decide(&mut self, commands: Vec<Command>, why: &Why) {
        self.decided.extend(commands.into_iter().map(|command| Decision { command, why: why.clone() }));
    }

    pub(super) fn active_set(&self) -> BTreeSet<CpuId> {
        self.topology.cores.iter().take(usize::from(self.active)).flatten().copied().collect()
    }
}
