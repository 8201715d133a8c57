//! Sets of the CPUs of one machine, as bits.

/// A CPU set of at most [`MAX_CPUS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet([u64; MAX_CPUS / 64]);

/// So many CPUs one simulated machine may have: two sockets of the largest preset, or one with
/// hyperthreads.
pub const MAX_CPUS: usize = 256;

impl CpuSet {
    #[inline]
    pub fn insert(&mut self, cpu: usize) {
        self.0[cpu / 64] |= 1 << (cpu % 64);
    }
    #[inline]
    pub fn remove(&mut self, cpu: usize) {
        self.0[cpu / 64] &= !(1 << (cpu % 64));
    }
    #[inline]
    pub fn contains(&self, cpu: usize) -> bool {
        self.0[cpu / 64] >> (cpu % 64) & 1 == 1
    }
    /// The CPUs that are in both sets.
    #[inline]
    pub fn both(&self, other: &Self) -> Self {
        let mut words = self.0;
        words.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= other);
        Self(words)
    }
    /// The lowest CPU number in the set.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        let word = self.0.iter().position(|&word| word != 0)?;
        Some(word * 64 + self.0[word].trailing_zeros() as usize)
    }
    #[inline]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
    /// The one that has `place` lower ones in the set.
    pub fn nth(&self, place: usize) -> Option<usize> {
        self.iter().nth(place)
    }
    /// The numbers of the CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(index * 64 + bit)
            })
        })
    }
}
