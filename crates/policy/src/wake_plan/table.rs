//! The state of each of a bounded number of things; when one more comes, the one not used for
//! longest is forgotten.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Table<K, V> {
    capacity: u16,
    uses: u64,
    /// By key, with the number of its last use.
    entries: Vec<(K, u64, V)>,
}

impl<K: Copy + Ord, V> Table<K, V> {
    /// Room for `capacity` entries, at least one.
    pub fn new(capacity: u16) -> Self {
        Self { capacity: capacity.max(1), uses: 0, entries: Vec::new() }
    }

    /// The entry of `key`, new if there was none.
    pub fn entry(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let at = match self.place(key) {
            Ok(at) => at,
            Err(_) => {
                if self.entries.len() >= usize::from(self.capacity)
                    && let Some((oldest, _)) =
                        self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.1)
                {
                    self.entries.remove(oldest);
                }
                let at = self.entries.partition_point(|entry| entry.0 < key);
                self.entries.insert(at, (key, 0, new()));
                at
            }
        };
        let entry = &mut self.entries[at];
        entry.1 = self.uses;
        &mut entry.2
    }

    /// The entry of `key`, if it is still there.
    pub fn find(&self, key: K) -> Option<&V> {
        self.place(key).ok().map(|at| &self.entries[at].2)
    }

    /// The same, to change; this is no use.
    pub fn find_mut(&mut self, key: K) -> Option<&mut V> {
        self.place(key).ok().map(|at| &mut self.entries[at].2)
    }

    /// All values, in order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|entry| &entry.2)
    }

    fn place(&self, key: K) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&key, |entry| entry.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_not_used_for_longest_goes() {
        let mut table = Table::new(2);
        table.entry(7, || 'a');
        table.entry(3, || 'b');
        table.entry(7, || 'x');
        table.entry(5, || 'c');
        assert_eq!((table.find(7), table.find(3), table.find(5)), (Some(&'a'), None, Some(&'c')));
        assert_eq!(table.values().collect::<String>(), "ca");
    }
}
