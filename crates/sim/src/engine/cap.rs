//! The bound on a socket's mean power: the clock of its cores falls until the mean is at the bound.
//!
//! As RAPL's first limit does (Intel 64 and IA-32 Software Developer's Manual, volume 3, "Package
//! RAPL Domain"), each socket keeps an exponential mean of its power over the window. While mean
//! and present power are both above the bound, the fastest clock that is allowed falls by one step
//! each time the socket looks; while both are below, it rises by one. In between it stays: the mean
//! follows by itself. Bursts shorter than the window pass, as they do in hardware.

use super::{Engine, Later};
use crate::engine::hardware::Hardware;
use machine::{Platform, PowerCap};

/// The limiters of all sockets, and when they looked last.
#[derive(Clone, Debug)]
pub(super) struct Cap {
    cap: PowerCap,
    every_ns: u64,
    looked_ns: u64,
    sockets: Vec<Limited>,
}

#[derive(Clone, Debug)]
struct Limited {
    /// Joules of its cores, and time that it slept, up to the last look.
    joules: f64,
    asleep_ns: u64,
    mean_watts: f64,
    /// The fastest clock allowed, counted from the slowest operating point.
    ceiling: usize,
}

/// A socket looks so many times in a window: often enough for its mean to be smooth \[D\].
const LOOKS: u64 = 50;

impl Cap {
    pub fn new(platform: &Platform, hardware: &Hardware) -> Option<Self> {
        let cap = platform.cap?;
        let limited = Limited {
            joules: 0.0,
            asleep_ns: 0,
            mean_watts: platform.asleep_watts(),
            ceiling: hardware.ceilings() - 1,
        };
        let every_ns = (cap.window.as_nanos() / LOOKS).max(1);
        Some(Self { cap, every_ns, looked_ns: 0, sockets: vec![limited; usize::from(platform.sockets)] })
    }
}

impl Engine {
    pub(super) fn begin_capping(&mut self) {
        if let Some(cap) = &self.cap {
            self.events.add(cap.every_ns, Later::Cap);
        }
    }

    /// Each socket looks at its power.
    pub(super) fn look_at_power(&mut self) {
        let now = self.now;
        let Some(cap) = &mut self.cap else { return };
        let passed_ns = (now - cap.looked_ns) as f64;
        cap.looked_ns = now;
        let weight = (passed_ns / cap.cap.window.as_nanos() as f64).min(1.0);
        let bound = cap.cap.power.as_watts();
        let top = self.hardware.ceilings() - 1;
        let mut moved = Vec::new();
        for (socket, limited) in cap.sockets.iter_mut().enumerate() {
            let joules = self.hardware.socket_joules(socket, now);
            let asleep_ns = self.hardware.socket_asleep_ns(socket, now);
            let asleep = (asleep_ns - limited.asleep_ns) as f64 / passed_ns;
            let platform = &self.setup.platform;
            let clocked = platform.uncore.as_watts() - self.hardware.uncore_spared_watts();
            let uncore = clocked * (1.0 - asleep) + platform.asleep_watts() * asleep;
            let beyond = (joules - limited.joules) / (passed_ns * 1e-9) + uncore - platform.asleep_watts();
            (limited.joules, limited.asleep_ns) = (joules, asleep_ns);
            let watts = platform.asleep_watts() + beyond * platform.warmth(beyond);
            limited.mean_watts += (watts - limited.mean_watts) * weight;
            let ceiling = if limited.mean_watts > bound && watts > bound {
                limited.ceiling.saturating_sub(1)
            } else if limited.mean_watts < bound && watts < bound {
                (limited.ceiling + 1).min(top)
            } else {
                limited.ceiling
            };
            if ceiling != limited.ceiling {
                limited.ceiling = ceiling;
                moved.push((socket, ceiling));
            }
        }
        let every_ns = cap.every_ns;
        for (socket, ceiling) in moved {
            for change in self.hardware.limit(socket, ceiling, now) {
                self.clock_to_change(Some(change));
            }
            // A turbo clock changes without a change of operating point.
            for cpu in 0..self.hardware.cpus() {
                if self.hardware.socket(cpu) == socket && self.hardware.is_fastest(cpu) {
                    self.retime(cpu, 0);
                }
            }
        }
        self.events.add(now + every_ns, Later::Cap);
    }
}
