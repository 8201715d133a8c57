//! What the store's workers cost and how often they were woken, by the kernel's own books of these threads: what other
//! programs do on the same CPUs is not in them.

use machine::Duration;
use std::fs;

/// Of all workers of this process together, since they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workers {
    /// CPU time.
    pub cpu: Duration,
    /// Sleeps that began; each ends with a wake-up.
    pub sleeps: u64,
}

impl Workers {
    /// Reads `/proc/self/task`. A thread that ends meanwhile is left out.
    pub fn read() -> Option<Self> {
        let mut sum = Self::default();
        let mut found = false;
        for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
            let text = |file: &str| fs::read_to_string(task.path().join(file)).ok();
            if !text("comm").is_some_and(|name| name.starts_with("worker")) {
                continue;
            }
            let (Some(status), Some(times)) = (text("status"), text("schedstat")) else { continue };
            let sleeps = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok());
            let nanos = times.split(' ').next().and_then(|field| field.parse().ok());
            let (Some(sleeps), Some(nanos)) = (sleeps, nanos) else { continue };
            sum.sleeps += sleeps;
            sum.cpu += Duration::from_nanos(nanos);
            found = true;
        }
        found.then_some(sum)
    }
}
