//! The time that requests spend at a device, where they hold no core: no plan shortens it, and so the
//! cores have what it leaves of the goal.
//!
//! A response is the time at the cores and the time at the device. The two are taken as independent, and
//! their distances from mean to tail add as deviations do, by their squares; exact where one of the two
//! is constant. The mean of the time at the cores is taken as that of a service. Another error than a
//! constant factor of the tail (`correction`) is not made up for.

use super::lengths::Lengths;
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

    /// For requests whose service takes `service_ns` on average; `None` if they call no device. To be
    /// called now and then: it forgets.
    pub fn at(&mut self, quantile: f64, service_ns: f64) -> Option<Device> {
        let total = self.lengths.total();
        let tail_ns = self.lengths.quantile(quantile)?;
        let mean_ns = self.sum_ns / total as f64;
        if total > REMEMBERED {
            self.lengths.halve();
            self.sum_ns *= self.lengths.total() as f64 / total as f64;
        }
        Some(Device { means_ns: [mean_ns, service_ns], beyond_ns: (tail_ns - mean_ns).max(0.0) })
    }
}

/// What a device does to the tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Device {
    /// Of the time there, and of the time at the cores.
    means_ns: [f64; 2],
    /// From the mean of the time there to its tail.
    beyond_ns: f64,
}

impl Device {
    /// The tail of both, where that at the cores is this.
    pub fn whole_ns(&self, tail_ns: f64) -> f64 {
        let [device_ns, cores_ns] = self.means_ns;
        let cores_ns = cores_ns.min(tail_ns);
        device_ns + cores_ns + (tail_ns - cores_ns).hypot(self.beyond_ns)
    }

    /// The tail at the cores that is left of this one of both; 0 if there is none.
    pub fn room_ns(&self, tail_ns: f64) -> f64 {
        let [device_ns, cores_ns] = self.means_ns;
        let beyond_ns = tail_ns - device_ns - cores_ns;
        if beyond_ns > self.beyond_ns {
            return cores_ns + (beyond_ns.powi(2) - self.beyond_ns.powi(2)).sqrt();
        }
        // Less than a mean service: only the device's tail is beside it.
        (tail_ns - device_ns - self.beyond_ns).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(lengths_us: impl IntoIterator<Item = u64>, service_us: f64) -> Option<Device> {
        let mut devices = Devices::new();
        lengths_us.into_iter().for_each(|us| devices.record(Duration::from_micros(us)));
        devices.at(0.99, service_us * 1e3)
    }

    #[test]
    fn requests_without_a_device_have_all_of_the_goal() {
        assert_eq!(seen([0; 1_000], 20.0), None);
    }

    #[test]
    fn a_device_of_constant_time_leaves_the_rest() {
        let device = seen([600; 1_000], 50.0).unwrap();
        let room_ns = device.room_ns(1e6);
        assert!((room_ns / 400e3 - 1.0).abs() < 0.05, "{room_ns}");
    }

    #[test]
    fn independent_tails_meet_seldom() {
        // Exponential both, with a mean of 100 us: 1 % of the sums are beyond 664 us (Erlang 2).
        let exponential = (0..20_000).map(|k| (-100.0 * (1.0 - (f64::from(k) + 0.5) / 20_000.0).ln()) as u64);
        let device = seen(exponential, 100.0).unwrap();
        let whole_ns = device.whole_ns(460.5e3);
        assert!((1.0..1.08).contains(&(whole_ns / 664e3)), "{whole_ns}: to the safe side");
    }

    proptest! {
        #[test]
        fn room_and_whole_are_each_other_s_inverse_and_rise(
            lengths in prop::collection::vec(0_u64..5_000, 1..50),
            service_us in 1.0..500.0_f64,
            tails_us in (0.0..20_000.0_f64, 0.0..20_000.0_f64),
        ) {
            let Some(device) = seen(lengths, service_us) else { return Ok(()) };
            let (a, b) = (tails_us.0 * 1e3, tails_us.1 * 1e3);
            prop_assert!((device.room_ns(a) <= device.room_ns(b)) == (a <= b) || device.room_ns(a.max(b)) == 0.0);
            prop_assert!((device.room_ns(device.whole_ns(a)) - a).abs() <= 1.0 + a * 1e-6);
        }
    }
}
