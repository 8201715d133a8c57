//! Decisions as commands: more room before it is used, less after.

use super::{Decided, Governing, Why};
use machine::{Command, CpuId};
use std::collections::BTreeSet;

impl Governing {
    pub(super) fn give_all(&mut self, why: Why) {
        let withdrawn = self.idle.withdraw();
        self.decide(withdrawn, &why);
        let withdrawn = self.frequency.withdraw();
        self.decide(withdrawn, &why);
        let seats = self.place.seats.len() as u16;
        // Told even where it changes nothing: another program may have made the present setting.
        self.active = seats;
        self.decided.push_back(Decided { command: Command::SetActiveCpus(self.active()), why });
    }

    pub(super) fn put(&mut self, wanted: u16, why: Why) {
        let wanted = wanted.clamp(1, self.place.seats.len() as u16);
        let grows = wanted > self.active;
        let changes = wanted != self.active;
        self.active = wanted;
        let limits = self.idle.limits(&self.active_set());
        let set =
            changes.then(|| Decided { command: Command::SetActiveCpus(self.active()), why: why.clone() });
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
        let changed = self.frequency.limits(&self.place, self.active);
        let decided = |(command, why)| Decided { command, why: Why::Clock(why) };
        self.decided.extend(changed.into_iter().map(decided));
    }

    pub(super) fn decide(&mut self, commands: Vec<Command>, why: &Why) {
        self.decided.extend(commands.into_iter().map(|command| Decided { command, why: why.clone() }));
    }

    pub(super) fn active_set(&self) -> BTreeSet<CpuId> {
        self.place.seats.iter().take(usize::from(self.active)).flatten().copied().collect()
    }
}
