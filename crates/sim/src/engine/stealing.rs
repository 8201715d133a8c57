//! Work stealing: an idle active worker takes the next request of the longest queue.
//!
//! Connections tie requests to workers, and then one queue grows while another worker has nothing to
//! do. ZygOS (SOSP 2017) and Shenango (NSDI 2019) let idle workers look into the others' queues. So no
//! active worker is idle while a request waits, and with a cost of zero the number in the system is
//! that of one queue for all. Only the order of service differs. The connection stays where it is, and
//! its worker answers for its load.
//!
//! The cost lengthens the stolen request's work: cache lines of the connection, of the queue and of
//! the reply come from another core.

use super::Engine;
use super::task::Task;

impl Engine {
    /// A request waits behind another one: an idle worker is told to come for it.
    pub(super) fn call_thief(&mut self) {
        if let Some(thief) = self.pick_idle() {
            self.signal_work(thief);
        }
    }

    /// The request that an active worker without work takes from another.
    pub(super) fn steal(&mut self, thief: usize) -> Option<Task> {
        let cost = self.setup.stealing?;
        if !self.active.contains(thief) {
            return None;
        }
        // The lowest number of those as long.
        let waiting = |&core: &usize| (self.cores[core].queue.len(), std::cmp::Reverse(core));
        let longest = (0..self.setup.workers).max_by_key(waiting)?;
        let task = self.cores[longest].queue.pop_front()?;
        Some(Task { compute_ns: task.compute_ns + cost.as_nanos(), ..task })
    }
}
