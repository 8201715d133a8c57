//! The power of a package beside its cores, that ends while all of them sleep.
//!
//! The active cores fill one package after the other; one without active cores sleeps. Each active
//! core sleeps for the same share of its time. Then all cores of a package sleep together
//! - for the product of their shares, with a queue per core: exact,
//! - for the share of time in which M/M/k is empty, with a shared queue: exact for exponential service
//!   and one package. Waking counts as work, and the cores of another package as a queue of their own.
//!
//! Package states take as long to leave as the core states beside them: their own latency is none.

use super::params::Queueing;
use machine::Platform;
use serde::{Deserialize, Serialize};

/// The sockets of a machine and their power beside the cores, in microwatts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Package {
    pub sockets: u16,
    /// The cores of one socket, which all sleep before it does.
    pub cores: u16,
    /// The shallowest core state in which it sleeps, by its place in the table.
    pub from_state: u8,
    /// What one that is awake draws beside its cores, more than asleep.
    pub awake: f64,
}

impl Package {
    /// `None` if it saves nothing to sleep.
    pub fn of(platform: &Platform) -> Option<Self> {
        let state = platform.package?;
        let awake = platform.uncore.0.saturating_sub(state.power.0) as f64;
        let (sockets, cores) = (platform.sockets, platform.cores_per_socket);
        (awake > 0.0).then_some(Self { sockets, cores, from_state: state.from_state, awake })
    }

    /// With so many active cores one package more is awake than with one core less.
    pub fn begins_with(&self, active: u16) -> bool {
        active > 1 && (active - 1).is_multiple_of(self.cores) && active <= self.sockets * self.cores
    }

    /// Of all together, while each of `active` cores sleeps in the state `idle` for this share of its
    /// time.
    pub fn power(&self, queueing: Queueing, active: u16, idle: usize, asleep: f64) -> f64 {
        let sleeps = idle >= usize::from(self.from_state);
        let awake = |socket: u16| match active.saturating_sub(socket * self.cores).min(self.cores) {
            0 => 0.0,
            cores if sleeps => 1.0 - together(queueing, cores, asleep),
            _ => 1.0,
        };
        self.awake * (0..self.sockets).map(awake).sum::<f64>()
    }

    /// No number of cores that have so much work on average brings it below.
    pub fn least(&self, idle: usize, busy: f64) -> f64 {
        if idle >= usize::from(self.from_state) { self.awake * -(-busy).exp_m1() } else { self.awake }
    }
}

/// The share of time in which so many cores sleep at once.
fn together(queueing: Queueing, cores: u16, asleep: f64) -> f64 {
    match queueing {
        Queueing::PerCore => asleep.powi(i32::from(cores)),
        Queueing::Shared => {
            let busy = f64::from(cores) * (1.0 - asleep);
            // Of exactly so many requests, against none.
            let (mut exactly, mut any) = (1.0, 0.0);
            for number in 0..cores {
                any += exactly;
                exactly *= busy / f64::from(number + 1);
            }
            1.0 / (any + exactly / asleep)
        }
    }
}
