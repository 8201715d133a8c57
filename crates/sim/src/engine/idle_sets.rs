//! Which CPUs are idle, by state.

use super::MAX_STATES;
use super::cpu_set::CpuSet;

/// Idle CPUs: first those that poll, then by state. Few states have a CPU, and under load often
/// none has; so it is known which do.
#[derive(Clone, Debug, Default)]
pub(super) struct IdleSets {
    sets: [CpuSet; MAX_STATES + 1],
    counts: [u16; MAX_STATES + 1],
    /// Places of the sets that are not empty, as bits.
    some: u16,
}

impl IdleSets {
    /// The CPU is idle in the state of this place.
    #[inline]
    pub fn insert(&mut self, place: usize, cpu: usize) {
        self.sets[place].insert(cpu);
        self.counts[place] += 1;
        self.some |= 1 << place;
    }

    #[inline]
    pub fn remove(&mut self, place: usize, cpu: usize) {
        self.sets[place].remove(cpu);
        self.counts[place] -= 1;
        self.some &= !(u16::from(self.counts[place] == 0) << place);
    }

    /// Is it idle, in whatever state?
    pub fn contains(&self, cpu: usize) -> bool {
        self.iter().any(|set| set.contains(cpu))
    }

    /// The sets that are not empty, shallow to deep.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &CpuSet> {
        let mut some = self.some;
        std::iter::from_fn(move || {
            let place = (some != 0).then(|| some.trailing_zeros() as usize)?;
            some &= some - 1;
            Some(&self.sets[place])
        })
    }
}
