//! The hash of a key: rapidhash, seeded for each process.
//!
//! Its 64 bits are used without overlap: 0-31 choose the bucket (and the ghost's line), 32-47 are
//! the ghost's fingerprint and 40-55 the index's tag, 56-63 choose the shard. The seed keeps a
//! client from computing keys that all fall into one bucket.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
use std::hash::{BuildHasher, RandomState};

/// Hashes keys, alike in all shards of one store.
#[derive(Clone, Copy)]
pub(super) struct KeyHasher {
    secrets: RapidSecrets,
}

impl KeyHasher {
    /// A hasher whose seed no client can know.
    pub(super) fn random() -> Self {
        // The standard library's random state is keyed by the system's random numbers.
        Self::seeded(RandomState::new().hash_one(0u32))
    }

    pub(super) fn seeded(seed: u64) -> Self {
        Self { secrets: RapidSecrets::seed(seed) }
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_inline::<true, false, true>(key, &self.secrets)
    }
}
