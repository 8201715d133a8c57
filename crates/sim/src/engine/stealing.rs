//! Work stealing: an idle active worker takes a request of the longest queue.
//!
//! Connections tie requests to workers, and then one queue grows while another worker has nothing to
//! do. ZygOS (SOSP 2017) and Shenango (NSDI 2019) let idle workers look into the others' queues.
//! [`policy::stealing`] says how many requests a worker keeps: the one that it works on, and those that
//! it comes to within `after`. Where that is zero no active worker is idle while a request waits, and
//! with a cost of zero the number in the system is that of one queue for all. Only the order of service
//! differs. The connection stays where it is, and its worker answers for its load.
//!
//! The cost lengthens the stolen request's work: cache lines of the connection, of the queue and of
//! the reply come from another core.

use super::Engine;
use super::task::Task;
use machine::Duration;

/// How idle workers take requests of others.
#[derive(Clone, Copy, Debug)]
pub struct Stealing {
    /// CPU time by which it lengthens a request.
    pub cost: Duration,
    /// A request that is stolen would wait for longer than this.
    pub after: Duration,
}

impl Engine {
    /// A request waits: if its worker does not come to it soon, an idle one is told to come for it.
    pub(super) fn call_thief(&mut self, owner: usize) {
        if self.cores[owner].queue.len() >= self.keeping[owner].kept()
            && let Some(thief) = self.pick_idle()
        {
            self.signal_work(thief);
        }
    }

    /// The request that an active worker without work takes from another.
    pub(super) fn steal(&mut self, thief: usize) -> Option<Task> {
        let Stealing { cost, .. } = self.setup.stealing?;
        if !self.active.contains(thief) {
            return None;
        }
        // One of those that are kept is in service.
        let kept = |core: usize| self.keeping[core].kept() - 1;
        let offered = |core: usize| self.cores[core].queue.len().saturating_sub(kept(core));
        // The lowest number of those as long.
        let longest = |&core: &usize| (offered(core), std::cmp::Reverse(core));
        let owner = (0..self.setup.workers).max_by_key(longest)?;
        let task = self.cores[owner].queue.remove(kept(owner))?;
        Some(Task { compute_ns: task.compute_ns + cost.as_nanos(), ..task })
    }

    /// A core has worked on a request for so long.
    pub(super) fn note_turn(&mut self, core: usize) {
        let busy = Duration::from_nanos(self.now - self.cores[core].started);
        if let Some(keeping) = self.keeping.get_mut(core) {
            keeping.handle_turn(busy);
        }
    }
}
