//! Power and energy in the units that Linux's powercap and cpufreq speak, and the model that stands
//! in for a meter.

use crate::{Cstate, CstateKind, CstateTable, Duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

/// A clock frequency in kHz, cpufreq's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Kilohertz(pub u64);

/// Power in millionths of a watt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Microwatts(pub u64);

/// Energy in millionths of a joule, powercap's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Microjoules(pub u64);

impl fmt::Display for Kilohertz {
    /// In MHz, exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}MHz", self.0 as f64 / 1e3))
    }
}

impl FromStr for Kilohertz {
    type Err = String;

    /// `1700MHz`, `1.7GHz` or `1700000kHz`; a bare number could be any of them.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no frequency: write a number and its unit, such as 1700MHz or 1.7GHz");
        let lower = text.trim().to_ascii_lowercase();
        let units = [("khz", 1.0), ("mhz", 1e3), ("ghz", 1e6)];
        let (number, in_khz) = units
            .iter()
            .find_map(|(unit, in_khz)| Some((lower.strip_suffix(unit)?, in_khz)))
            .ok_or_else(wrong)?;
        let khz = number.trim().parse::<f64>().map_err(|_| wrong())? * in_khz;
        // A terahertz is a slip of the unit.
        if (1.0..1e9).contains(&khz) { Ok(Self(khz.round() as u64)) } else { Err(wrong()) }
    }
}

impl Microwatts {
    pub fn from_watts(watts: f64) -> Self {
        Self((watts * 1e6).round() as u64)
    }
    pub fn as_watts(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// The energy that this power uses in `length`.
    pub fn over(self, length: Duration) -> Microjoules {
        Microjoules((u128::from(self.0) * u128::from(length.as_nanos()) / 1_000_000_000) as u64)
    }
}

impl Microjoules {
    pub fn as_joules(self) -> f64 {
        self.0 as f64 / 1e6
    }
}
impl Add for Microjoules {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Microjoules {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl fmt::Display for Microjoules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1} J", self.as_joules()))
    }
}

/// Where an energy figure comes from. It is printed wherever the figure is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergySource {
    /// Read from a meter, which is named.
    Measured(String),
    /// Computed from busy time and idle residency with a table of powers, which is named.
    Modelled(String),
}
impl fmt::Display for EnergySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(meter) => write!(f, "measured ({meter})"),
            Self::Modelled(table) => write!(f, "modelled ({table})"),
        }
    }
}

/// Core power by activity: the stand-in for a meter.
///
/// Energy = busy time x `active` + sum over idle states of residency x that state's power. Polling
/// is charged as `polling`; as `active` where that is not known, because a polling core executes
/// instructions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerModel {
    /// The preset's name, as printed beside every figure that comes of it.
    pub name: String,
    /// Power of one core that executes, at its nominal frequency.
    pub active: Microwatts,
    /// Power of one core that polls, at its nominal frequency; `None` in models written before there
    /// was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling: Option<Microwatts>,
    /// Power of one core in each idle state, by exit latency from shallow to deep.
    pub idle: Vec<Cstate>,
}

impl PowerModel {
    /// The state of this table under which a machine's `state` is charged; `None` if it polls.
    ///
    /// It is the one whose exit latency is nearest by ratio, the shallower of two equally near:
    /// firmware states the same sleep at 92 or 133 us, at 400 or 800. A virtual machine's only halt
    /// so becomes C1, the least that a halt saves: a guest cannot see the host's state behind it.
    pub fn charged_as(&self, state: &Cstate) -> Option<&Cstate> {
        if state.kind == CstateKind::Polling {
            return None;
        }
        // A plain halt may advertise zero.
        let log = |state: &Cstate| (state.exit_latency.as_nanos().max(1_000) as f64).ln();
        let distance = |candidate: &&Cstate| (log(candidate) - log(state)).abs();
        self.idle.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)))
    }

    /// The power of a core in `state`.
    pub fn idle_power(&self, state: &Cstate) -> Microwatts {
        if state.kind == CstateKind::Polling {
            return self.polling.unwrap_or(self.active);
        }
        self.charged_as(state).and_then(|charged| charged.power).unwrap_or(self.active)
    }

    /// The energy of one core that was busy for `busy` and in each state of `table` for the time in
    /// `residency`, which is in the table's order.
    pub fn energy(&self, busy: Duration, table: &CstateTable, residency: &[Duration]) -> Microjoules {
        let idle = table.0.iter().zip(residency).map(|(state, &length)| self.idle_power(state).over(length));
        idle.fold(self.active.over(busy), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, kind: CstateKind, micros: u64) -> Cstate {
        Cstate {
            name: name.to_owned(),
            kind,
            exit_latency: Duration::from_micros(micros),
            true_exit_latency: None,
            entry_latency: None,
            target_residency: Duration::ZERO,
            power: None,
        }
    }

    #[test]
    fn frequencies_are_written_with_a_unit_and_read_back() {
        for (text, khz) in
            [("1700MHz", 1_700_000), ("1.7 GHz", 1_700_000), ("1700000kHz", 1_700_000), ("2mhz", 2_000)]
        {
            assert_eq!(text.parse(), Ok(Kilohertz(khz)), "{text}");
            assert_eq!(Kilohertz(khz).to_string().parse(), Ok(Kilohertz(khz)), "{text}");
        }
        assert_eq!(Kilohertz(2_599_999).to_string(), "2599.999MHz");
        for text in ["", "1700", "fast", "0MHz", "-1GHz", "nanGHz", "infGHz", "9e9GHz", "GHz"] {
            assert!(text.parse::<Kilohertz>().unwrap_err().contains("such as 1700MHz"), "{text}");
        }
    }

    fn charged(table: &str, micros: u64) -> String {
        let model = PowerModel::by_name(table).unwrap();
        model.charged_as(&state("x", CstateKind::Halting, micros)).unwrap().name.clone()
    }

    #[test]
    fn states_are_charged_by_latency_whatever_the_firmware_calls_them() {
        for (micros, name) in
            [(0, "C1"), (1, "C1"), (2, "C1"), (10, "C1E"), (92, "C6"), (133, "C6"), (800, "C6")]
        {
            assert_eq!(charged("xeon-silver-4116", micros), name, "{micros}");
        }
        assert_eq!(charged("ivybridge-ep-12", 59), "C3");
        assert_eq!(charged("epyc-9755", 400), "C2");
        assert_eq!(charged("epyc-9755", 1), "C1");
    }

    #[test]
    fn polling_costs_its_share_of_the_power_of_work() {
        let second = Duration::from_secs(1);
        let table = CstateTable(vec![state("POLL", CstateKind::Polling, 0)]);
        let polled = |name| PowerModel::by_name(name).unwrap().energy(Duration::ZERO, &table, &[second]);
        assert_eq!(polled("xeon-gold-6126"), Microjoules(4_731_000), "0.57 of 8.3 W");
        let model = PowerModel::by_name("xeon-silver-4116").unwrap();
        let table =
            CstateTable(vec![state("POLL", CstateKind::Polling, 0), state("C1", CstateKind::Halting, 2)]);
        let working = model.energy(second, &table, &[]);
        assert_eq!(model.energy(Duration::ZERO, &table, &[second]), working);
        assert_eq!(working, Microjoules(5_700_000));
        assert_eq!(model.energy(Duration::ZERO, &table, &[Duration::ZERO, second]), Microjoules(2_000_000));
    }

    #[test]
    fn a_table_without_idle_states_charges_everything_as_active() {
        let model = PowerModel {
            name: "bare".into(),
            active: Microwatts::from_watts(3.0),
            polling: None,
            idle: Vec::new(),
        };
        let table = CstateTable(vec![state("C1", CstateKind::Halting, 2)]);
        assert_eq!(model.energy(Duration::ZERO, &table, &[Duration::from_secs(2)]), Microjoules(6_000_000));
    }
}
