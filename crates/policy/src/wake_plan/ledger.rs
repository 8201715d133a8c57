//! Who pays for the time that CPUs are kept awake.
//!
//! The paper: "the energy use of a resource principal should include that of its anticipatory CPU wakeups even if the
//! system idles for much of the wakeup durations". It leaves open how to share. Ours: an instant that several
//! principals asked for is paid by them in equal parts, however many requests each has there (or asking twice would
//! double what the others save). Time that a CPU was kept awake although no request asked for it (the driver came late
//! to end the window) is nobody's: it is in the ledger under no name, so that the sum is right.
//!
//! What always holds: the accounts and the unowned one sum to the time that CPUs were kept awake, to the nanosecond,
//! and to the energy of that time, to the microwatt times nanosecond.

use super::Principal;
use super::allowance::Allowance;
use machine::{Duration, Microjoules, Microwatts};
use serde::{Deserialize, Serialize};

/// What one principal asked for and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Its share of the time that CPUs were kept awake.
    pub awake: Duration,
    /// Its share of the energy of that time.
    pub energy: Microjoules,
    /// What is owed beyond `energy`: below a microjoule, in microwatts times nanoseconds.
    carry_fj: u64,
    /// Requests that were accepted.
    pub accepted: u64,
    /// Of these, those that came too late to be ready in time: the CPU began to wake at once.
    pub late: u64,
    /// Events that came while their request stood.
    pub came: u64,
    /// Requests that were taken back.
    pub withdrawn: u64,
    /// Requests whose window ended without the event.
    pub expired: u64,
    /// What it may still ask for, where there is a bound.
    pub(super) allowance: Allowance,
}

/// Microwatts times nanoseconds in a microjoule.
const FJ_PER_UJ: u128 = 1_000_000_000;

impl Account {
    /// Requests whose window is not over.
    pub fn outstanding(&self) -> u64 {
        self.accepted - self.came - self.withdrawn - self.expired
    }

    fn charge(&mut self, length: Duration, power: Microwatts) {
        let owed = u128::from(power.0) * u128::from(length.as_nanos()) + u128::from(self.carry_fj);
        self.awake += length;
        self.energy += Microjoules((owed / FJ_PER_UJ) as u64);
        self.carry_fj = (owed % FJ_PER_UJ) as u64;
    }
}

/// The accounts of all principals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// By principal.
    accounts: Vec<(Principal, Account)>,
    unowned: Account,
}

impl Ledger {
    /// The account of `principal`, if it has one.
    pub fn account(&self, principal: Principal) -> Option<&Account> {
        self.place(principal).ok().map(|at| &self.accounts[at].1)
    }

    /// All accounts, by principal.
    pub fn accounts(&self) -> impl Iterator<Item = (Principal, &Account)> {
        self.accounts.iter().map(|(principal, account)| (*principal, account))
    }

    /// Time for which CPUs were kept awake and nobody had asked.
    pub fn unowned(&self) -> &Account {
        &self.unowned
    }

    /// `length` of one CPU kept awake at `power`: paid in equal parts by `sharers`, each named once, or by nobody.
    pub fn charge(
        &mut self,
        sharers: impl Iterator<Item = Principal> + Clone,
        length: Duration,
        power: Microwatts,
    ) {
        let count = sharers.clone().count() as u64;
        if count == 0 {
            self.unowned.charge(length, power);
            return;
        }
        // What equal parts leave over is paid nanosecond by nanosecond by the first of them.
        let left_over = length.as_nanos() % count;
        for (nth, principal) in (0..).zip(sharers) {
            let part = length / count + Duration::from_nanos(u64::from(nth < left_over));
            match self.place(principal) {
                Ok(at) => self.accounts[at].1.charge(part, power),
                // Its account was closed: what is still to pay is nobody's.
                Err(_) => self.unowned.charge(part, power),
            }
        }
    }

    /// The account of `principal`, opened now if it has none; `None` if there are already `limit` of them.
    pub(super) fn open(&mut self, principal: Principal, limit: u16) -> Option<&mut Account> {
        let at = match self.place(principal) {
            Ok(at) => at,
            Err(_) if self.accounts.len() >= usize::from(limit) => return None,
            Err(at) => {
                self.accounts.insert(at, (principal, Account::default()));
                at
            }
        };
        Some(&mut self.accounts[at].1)
    }

    /// Lets `note` write into the account of `principal`, if it has one.
    pub(super) fn note(&mut self, principal: Principal, note: impl FnOnce(&mut Account)) {
        if let Ok(at) = self.place(principal) {
            note(&mut self.accounts[at].1);
        }
    }

    /// Closes the account of `principal`.
    pub(super) fn close(&mut self, principal: Principal) -> Option<Account> {
        self.place(principal).ok().map(|at| self.accounts.remove(at).1)
    }

    fn place(&self, principal: Principal) -> Result<usize, usize> {
        self.accounts.binary_search_by_key(&principal, |(principal, _)| *principal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ledger(principals: u32) -> Ledger {
        let mut ledger = Ledger::default();
        for principal in 0..principals {
            ledger.open(Principal(principal), 100).unwrap();
        }
        ledger
    }

    #[test]
    fn a_shared_instant_is_paid_in_equal_parts() {
        let mut ledger = ledger(3);
        let watt = Microwatts::from_watts(1.0);
        ledger.charge([Principal(0), Principal(2)].into_iter(), Duration::from_nanos(101), watt);
        let awake = |principal| ledger.account(Principal(principal)).unwrap().awake.as_nanos();
        assert_eq!([awake(0), awake(1), awake(2)], [51, 0, 50]);
    }

    #[test]
    fn energy_is_power_times_awake_time() {
        let mut ledger = ledger(1);
        // 1000 times 20 us at 5.7 W; each alone is 114 uJ.
        for _ in 0..1000 {
            let power = Microwatts::from_watts(5.7);
            ledger.charge([Principal(0)].into_iter(), Duration::from_micros(20), power);
        }
        assert_eq!(ledger.account(Principal(0)).unwrap().energy, Microjoules(114_000));
    }

    #[test]
    fn what_nobody_asked_for_is_nobodys() {
        let mut ledger = ledger(1);
        ledger.charge(std::iter::empty(), Duration::from_nanos(7), Microwatts(1));
        ledger.charge([Principal(9)].into_iter(), Duration::from_nanos(5), Microwatts(1));
        assert_eq!(ledger.unowned().awake, Duration::from_nanos(12));
        assert_eq!(ledger.account(Principal(0)), Some(&Account::default()));
    }

    #[test]
    fn the_number_of_accounts_is_bounded() {
        let mut ledger = ledger(2);
        assert!(ledger.open(Principal(7), 2).is_none());
        assert!(ledger.open(Principal(1), 2).is_some());
        ledger.close(Principal(1));
        assert!(ledger.open(Principal(7), 2).is_some());
    }

    proptest! {
        #[test]
        fn charges_sum_to_time_and_energy(
            pieces in prop::collection::vec((0_u8..16, 0_u64..1_000_000, 0_u64..200_000_000), 0..100),
        ) {
            let mut ledger = ledger(4);
            let (mut awake, mut owed) = (0, 0_u128);
            for (sharers, nanos, microwatts) in pieces {
                let named = (0..4).filter(|bit| sharers & (1 << bit) != 0).map(Principal);
                ledger.charge(named, Duration::from_nanos(nanos), Microwatts(microwatts));
                awake += nanos;
                owed += u128::from(nanos) * u128::from(microwatts);
            }
            let all = || ledger.accounts().map(|(_, account)| account).chain([ledger.unowned()]);
            prop_assert_eq!(all().map(|account| account.awake.as_nanos()).sum::<u64>(), awake);
            let charged = |account: &Account| u128::from(account.energy.0) * FJ_PER_UJ + u128::from(account.carry_fj);
            prop_assert_eq!(all().map(charged).sum::<u128>(), owed);
        }
    }
}
