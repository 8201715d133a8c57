//! The time that requests spend at a device, where they hold no core: no plan shortens it, and so the
//! cores have the rest of the goal.
//!
//! A response is the time at the cores and the time at the device. Of a request that never waits both are
//! known; as if independent, their distances from mean to tail add as deviations do, by their squares. By
//! so much as the tail of both is above that of the service alone, the device *takes* of the goal. Waits
//! and exits are added to that in full, and so is a slower clock: to the safe side.

use super::lengths::Lengths;
use super::service::Shape;
use machine::Duration;
use serde::{Deserialize, Serialize};

/// The measurements, of which the latest count most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Devices {
    lengths: Lengths,
    sum_ns: f64,
}

/// From here on older counts are halved, as `service` does.
const REMEMBERED: u64 = 16_384;

impl Devices {
    pub fn new() -> Self {
        Self { lengths: Lengths::new(), sum_ns: 0.0 }
    }

    /// A request was there for so long in all.
    #[inline]
    pub fn record(&mut self, length: Duration) {
        if length == Duration::ZERO && self.sum_ns == 0.0 {
            return;
        }
        self.lengths.record(length);
        self.sum_ns += length.as_nanos() as f64;
    }

    /// For requests of this service. To be called now and then: it forgets.
    pub fn at(&mut self, service: &Shape, quantile: f64) -> Device {
        let total = self.lengths.total();
        let Some(tail_ns) = self.lengths.quantile(quantile) else { return Device::default() };
        let mean_ns = self.sum_ns / total as f64;
        if total > REMEMBERED {
            self.lengths.halve();
            self.sum_ns *= self.lengths.total() as f64 / total as f64;
        }
        let beyond_ns = (service.quantile_ns(quantile) - service.mean_ns).max(0.0);
        let both_ns = beyond_ns.hypot((tail_ns - mean_ns).max(0.0));
        Device { mean_ns, takes_ns: mean_ns + both_ns - beyond_ns }
    }
}

/// The effect of a device on responses; none if none is called.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Device {
    pub mean_ns: f64,
    /// So much longer is the tail of responses.
    pub takes_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::super::service::Service;
    use super::*;
    use proptest::prelude::*;

    /// Lengths at the device and at the cores, in microseconds.
    fn seen(device: &[u64], service: &[u64]) -> (Device, Shape) {
        let (mut devices, mut services) = (Devices::new(), Service::new());
        device.iter().for_each(|us| devices.record(Duration::from_micros(*us)));
        service.iter().for_each(|us| services.record(Duration::from_micros(*us), Duration::ZERO));
        let shape = services.shape(0.99).expect("work");
        (devices.at(&shape, 0.99), shape)
    }

    fn exponential() -> Vec<u64> {
        (0..20_000).map(|k| 1 + (-100.0 * (1.0 - (f64::from(k) + 0.5) / 20_000.0).ln()) as u64).collect()
    }

    #[test]
    fn without_a_device_requests_have_all_of_the_goal() {
        assert_eq!(seen(&[0; 1_000], &[20; 1_000]).0, Device::default());
    }

    #[test]
    fn a_device_of_constant_time_takes_that() {
        let (device, _) = seen(&[600; 1_000], &exponential());
        assert!((device.takes_ns / 600e3 - 1.0).abs() < 0.04, "{device:?}");
    }

    #[test]
    fn independent_tails_meet_seldom() {
        // Exponential both, with a mean of 100 us: 1 % of the sums are beyond 664 us (Erlang 2).
        let (device, shape) = seen(&exponential(), &exponential());
        let both_ns = shape.quantile_ns(0.99) + device.takes_ns;
        assert!((1.0..1.08).contains(&(both_ns / 664e3)), "{both_ns}: to the safe side");
    }

    proptest! {
        #[test]
        fn it_takes_its_mean_at_least_and_its_tail_at_most(
            device in prop::collection::vec(0_u64..5_000, 1..50),
            service in prop::collection::vec(1_u64..5_000, 1..50),
        ) {
            let (device_ns, _) = seen(&device, &service);
            let longest = *device.iter().max().expect("one at least") as f64 * 1e3;
            prop_assert!(device_ns.takes_ns >= device_ns.mean_ns);
            prop_assert!(device_ns.takes_ns <= longest * 1.05 + 64.0, "{device_ns:?} of {longest}");
        }
    }
}
