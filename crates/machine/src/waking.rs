//! The energy of waking, settled against the idle states' own target residencies.
//!
//! The kernel defines a target residency as the least time in a state, its entry included, that
//! saves energy over every shallower state (`Documentation/admin-guide/pm/cpuidle.rst`; the
//! Tradeoffs paper, section II). So a table says where two neighbouring states cost the same:
//!
//! ```text
//! E_k + P_k r_k = E_(k-1) + P_(k-1) r_k      E_k = E_(k-1) + (P_(k-1) - P_k) r_k
//! ```
//!
//! with P_k the power in state k, r_k its target residency, and E_k all that entering and leaving
//! it costs beside P_k times the time from entry to wake-up signal. The shallowest state's
//! alternative is to idle awake: E_0 = 0, and P_0 is the power of polling at the nominal clock. A
//! wake-up draws E_k over the exit latency that it really takes, in every operating point: tables
//! have one figure for all.
//!
//! Some tables are no evidence. Firmware of AMD's and other ACPI machines gives a latency and no
//! residency, and Linux then takes twice the latency (`drivers/acpi/processor_idle.c`). There
//! waking is charged as work at the nominal clock for the whole exit latency,
//! [`Waking::FullPower`]; so it is in a state whose residency is zero.
//!
//! Where a table's residency is long and its latency short (C1E of the Ivy Bridge servers: 500 and
//! 10 us), a wake-up so draws more than a core at work. The energy is as the table claims; it
//! has no upper bound.

use crate::{Cstate, CstateKind, CstateTable, Duration, Platform, PowerModel};
use serde::{Deserialize, Serialize};

/// The rule for the energy of waking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waking {
    /// So that each state breaks even at its target residency.
    #[default]
    BreakEven,
    /// The power of work at the nominal clock, for the whole exit latency.
    FullPower,
}

/// Of states from shallow to deep. `full_watts`: the power for the whole exit latency, of a state that is
/// not to break even at its target residency.
fn wake_joules(
    states: &[Cstate],
    polling_watts: f64,
    full_watts: impl Fn(&Cstate) -> Option<f64>,
) -> Vec<f64> {
    let mut shallower = (0.0, polling_watts);
    let energy = |state: &Cstate| {
        let watts = state.power.map_or(0.0, |power| power.as_watts());
        let breaks_even =
            || shallower.0 + (shallower.1 - watts).max(0.0) * state.target_residency.as_secs_f64();
        let at = |full_watts: f64| full_watts * state.real_exit_latency().as_secs_f64();
        let joules = full_watts(state).map_or_else(breaks_even, at);
        shallower = (joules, watts);
        joules
    };
    states.iter().map(energy).collect()
}

impl PowerModel {
    /// A machine's halting states, as they are charged: each with its joules of waking.
    pub fn charged_states(&self, table: &CstateTable) -> Vec<(Cstate, f64)> {
        let is_halting = |state: &&Cstate| state.kind != CstateKind::Polling;
        let charged = |state: &Cstate| Cstate { power: Some(self.idle_power(state)), ..state.clone() };
        let states: Vec<Cstate> = table.0.iter().filter(is_halting).map(charged).collect();
        let polling_watts = self.polling.unwrap_or(self.active).as_watts();
        let joules = wake_joules(&states, polling_watts, |_| None);
        states.into_iter().zip(joules).collect()
    }
}

impl Platform {
    /// Watts of a core that polls at the nominal clock.
    fn polling_watts(&self) -> f64 {
        self.nominal_watts() * self.poll_share
    }

    fn nominal_watts(&self) -> f64 {
        self.frequencies.points.last().map_or(0.0, |point| point.power.as_watts())
    }

    /// By idle state, the joules of entering and leaving it beside its power: E_k of the module
    /// above.
    pub fn wake_joules(&self) -> Vec<f64> {
        let at_full_power = (self.waking == Waking::FullPower).then_some(self.nominal_watts());
        wake_joules(&self.cstates.0, self.polling_watts(), |state| {
            at_full_power.or(state.target_residency.is_zero().then_some(self.nominal_watts()))
        })
    }

    /// By idle state, the shortest time from entry to wake-up signal for which it takes no more
    /// energy than polling or any shallower state; `None` if no time is long enough.
    pub fn break_even(&self) -> Vec<Option<Duration>> {
        let joules = self.wake_joules();
        let watts = self.cstates.0.iter().map(|state| state.power.map_or(0.0, |power| power.as_watts()));
        let states: Vec<(f64, f64)> =
            std::iter::once((0.0, self.polling_watts())).chain(joules.into_iter().zip(watts)).collect();
        let of_state = |k: usize| {
            let (joules, watts) = states[k];
            let against = |&(other, shallower): &(f64, f64)| match joules - other {
                excess if excess <= 0.0 => 0.0,
                excess => excess / (shallower - watts).max(0.0),
            };
            let seconds = states[..k].iter().map(against).fold(0.0, f64::max);
            seconds.is_finite().then(|| Duration::from_nanos((seconds * 1e9).round() as u64))
        };
        (1..states.len()).map(of_state).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_breaks_even_at_its_tables_target_residencies() {
        for platform in Platform::presets().iter().filter(|platform| platform.waking == Waking::BreakEven) {
            let mut above = None;
            for (state, found) in platform.cstates.0.iter().zip(platform.break_even()) {
                // A state that saves nothing over the one above it pays where that one does.
                if std::mem::replace(&mut above, state.power) == state.power {
                    continue;
                }
                let found = found.unwrap_or_else(|| panic!("{}: {}", platform.name, state.name));
                let off = found.as_nanos().abs_diff(state.target_residency.as_nanos());
                assert!(
                    off <= 1,
                    "{}: {}: {found}, not {}",
                    platform.name,
                    state.name,
                    state.target_residency
                );
            }
        }
    }

    #[test]
    fn tables_from_firmware_without_residencies_are_charged_as_work() {
        let by_firmware = ["a10-6800k", "epyc-7502", "epyc-7763", "epyc-9654", "epyc-9755"];
        for platform in Platform::presets() {
            let is_listed = by_firmware.contains(&platform.name.as_str());
            assert_eq!(platform.waking == Waking::FullPower, is_listed, "{}", platform.name);
            let said = platform.sources.iter().any(|line| line.contains("residency"));
            assert!(said || !is_listed, "{}", platform.name);
        }
        let epyc = Platform::by_name("epyc-7502").unwrap();
        let watts = epyc.nominal_watts();
        let joules = epyc.wake_joules();
        assert!((joules[0] - watts * 1e-6).abs() < 1e-12 && (joules[1] - watts * 22e-6).abs() < 1e-12);
    }

    #[test]
    fn waking_by_hand() {
        // Sandy Bridge, 11.5 W at work, C1 4.1 W and 1 us, C3 0.575 W and 106 us: 7.4 uJ, and 3.525
        // W more for 106 us.
        let platform = Platform::by_name("tradeoffs-sandybridge").unwrap();
        let active = platform.nominal_watts();
        let joules = platform.wake_joules();
        let c1 = (active - 4.1) * 1e-6;
        assert!((joules[0] - c1).abs() < 1e-12);
        assert!((joules[1] - (c1 + 3.525 * 106e-6)).abs() < 1e-12);
        // At full power it would be 80 us of 11.5 W, which pays after 260 us.
        let full = Platform { waking: Waking::FullPower, ..platform };
        assert!((full.wake_joules()[1] - active * 80e-6).abs() < 1e-12);
        assert!(full.break_even()[1].unwrap() > Duration::from_micros(255));
    }

    #[test]
    fn polling_takes_a_share_of_the_power_of_work() {
        let mut platform = Platform::by_name("xeon-gold-6126").unwrap();
        assert_eq!(platform.check(), Ok(()));
        for share in [0.0, -0.5, 1.1, f64::NAN] {
            platform.poll_share = share;
            assert_eq!(platform.check().unwrap_err().key, "poll_share", "{share}");
        }
    }

    #[test]
    fn a_state_that_saves_nothing_never_breaks_even() {
        let mut platform = Platform::by_name("tradeoffs-sandybridge").unwrap();
        platform.waking = Waking::FullPower;
        platform.cstates.0[2].power = platform.cstates.0[1].power;
        assert_eq!(platform.break_even()[2], None);
    }
}
