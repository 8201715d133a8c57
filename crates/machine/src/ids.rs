//! Identities. Each is a type of its own, so that a worker's number cannot be used as a CPU's: the
//! published Peafowl code wrote the idle-state files of CPU `worker + 1`.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// As an index into a list that has one entry for each.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!(concat!($prefix, "{}"), self.0))
            }
        }
    };
}

identity!(
    /// A logical CPU by the kernel's own number (`/sys/devices/system/cpu/cpuN`).
    CpuId(u16),
    "cpu"
);
identity!(
    /// A worker of the store; its thread is named `worker-N`.
    WorkerId(u16),
    "worker-"
);
identity!(
    /// A client connection, numbered in order of arrival and never reused within a run.
    ConnId(u64),
    "conn-"
);
identity!(
    /// An idle state by its place in the CPU's table (`cpuidle/stateN`). Choose states by latency,
    /// never by this.
    CstateIndex(u8),
    "state"
);
