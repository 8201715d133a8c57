//! The account of one principal: time awake, and energy to the last microwatt times nanosecond.

use machine::{Duration, Microjoules, Microwatts};
use serde::{Deserialize, Serialize};

/// The requests of one principal and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Its share of the time that CPUs were kept awake.
    pub awake: Duration,
    /// Its share of the energy of that time.
    pub energy: Microjoules,
    /// The debt beyond `energy`: below a microjoule, in microwatts times nanoseconds.
    pub(super) carry_fj: u64,
    pub accepted: u64,
    /// Of these, those that came too late to be ready in time: the CPU began to wake at once.
    pub late: u64,
    /// Events that came while their request stood.
    pub came: u64,
    pub withdrawn: u64,
    /// Requests whose window ended without the event.
    pub expired: u64,
}

/// Microwatts times nanoseconds in a microjoule.
pub(super) const FJ_PER_UJ: u128 = 1_000_000_000;

impl Account {
    /// Requests whose window is not over.
    pub fn outstanding(&self) -> u64 {
        self.accepted - self.came - self.withdrawn - self.expired
    }

    pub(super) fn charge(&mut self, length: Duration, power: Microwatts) {
        let owed = u128::from(power.0) * u128::from(length.as_nanos()) + u128::from(self.carry_fj);
        self.awake += length;
        self.energy += Microjoules((owed / FJ_PER_UJ) as u64);
        self.carry_fj = (owed % FJ_PER_UJ) as u64;
    }

    /// Takes over the figures of another.
    pub(super) fn merge(&mut self, other: &Self) {
        let owed = u128::from(self.carry_fj) + u128::from(other.carry_fj);
        self.awake += other.awake;
        self.energy += other.energy + Microjoules((owed / FJ_PER_UJ) as u64);
        self.carry_fj = (owed % FJ_PER_UJ) as u64;
        self.accepted += other.accepted;
        self.late += other.late;
        self.came += other.came;
        self.withdrawn += other.withdrawn;
        self.expired += other.expired;
    }
}
