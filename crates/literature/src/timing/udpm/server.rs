//! uDPM as the policy of a server that delays wake-ups.

use super::UDpm;
use machine::{Duration, Instant};
use policy::frequency::PointIndex;
use policy::kind::WakeDelayPolicy;

impl WakeDelayPolicy for UDpm {
    fn route(&self, home: usize, now: Instant, draw: &mut dyn FnMut() -> u64) -> usize {
        self.route(home, now, draw())
    }

    fn handle_arrival(&mut self, core: usize, now: Instant) -> Option<Instant> {
        self.handle_arrival(core, now).map(|wake| wake.begin)
    }

    fn wake_point(&self, core: usize) -> Option<PointIndex> {
        self.wake(core).map(|wake| wake.point)
    }

    fn handle_awake(&mut self, core: usize) {
        self.handle_awake(core);
    }

    fn handle_idle(&mut self, core: usize, now: Instant) {
        self.handle_idle(core, now);
    }

    fn handle_completion(
        &mut self,
        core: usize,
        now: Instant,
        needed: (Duration, Duration),
        waiting: &dyn Fn(usize) -> Option<Instant>,
    ) -> Option<PointIndex> {
        self.handle_completion(core, now, needed, (0..).map_while(waiting))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }
}
