//! The CPU time of the store's workers, by the kernel's own accounting of these threads: other
//! programs on the same CPUs are not in it.

use machine::Duration;
use std::fs;

/// CPU time of all workers of this process together, since they began, from `/proc/self/task`. A
/// thread that ends meanwhile is left out.
pub fn workers_cpu() -> Option<Duration> {
    let mut sum = None;
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let text = |file: &str| fs::read_to_string(task.path().join(file)).ok();
        if !text("comm").is_some_and(|name| name.starts_with("worker")) {
            continue;
        }
        let nanos = text("schedstat").and_then(|times| times.split(' ').next()?.parse().ok());
        if let Some(nanos) = nanos {
            *sum.get_or_insert(Duration::ZERO) += Duration::from_nanos(nanos);
        }
    }
    sum
}
