//! The payers of the time that CPUs are kept awake.
//!
//! The paper: "the energy use of a resource principal should include that of its anticipatory CPU
//! wakeups even if the system idles for much of the wakeup durations". It leaves open how to share.
//! Ours: an instant that several principals asked for is paid by them in equal parts, however many
//! requests each has there (or asking twice would double the others' saving). Time that a CPU was
//! kept awake although no request asked for it (the driver came late to end the window) is no
//! principal's: it is in the ledger under no name, so that the sum is right.
//!
//! Accounts are of principals, which are names. The allowance is in the *purse* of a payer, and an
//! instant is paid by payers in equal parts before it is paid by the names of each: whatever names
//! a payer invents, it pays and may ask for the same. An account that is closed goes on in
//! [`Ledger::closed`]; its purse stays until it is settled, or coming again under another name
//! would be free.
//!
//! Invariants: the accounts, the closed and the unowned one sum to the time that CPUs were
//! kept awake, to the nanosecond, and to the energy of that time, to the microwatt times
//! nanosecond.

use super::allowance::{Allowance, AllowanceParams};
use super::{Account, Payer, Principal, Refused};
use machine::{Duration, Instant, Microwatts};
use serde::{Deserialize, Serialize};

/// The debt of a payer, and its allowance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Purse {
    /// Time awake for all its principals, those that are gone as well.
    awake: Duration,
    /// Requests of all its principals whose window is not over.
    outstanding: u64,
    allowance: Allowance,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    accounts: Vec<(Principal, Account)>,
    purses: Vec<(Payer, Purse)>,
    /// Principals that share a purse, by principal.
    sharing: Vec<(Principal, u64)>,
    /// All purses together.
    together: Purse,
    unowned: Account,
    closed: Account,
}

impl Ledger {
    /// The account of `principal`, if it has one.
    pub fn account(&self, principal: Principal) -> Option<&Account> {
        self.place(principal).ok().map(|at| &self.accounts[at].1)
    }

    pub fn accounts(&self) -> impl Iterator<Item = (Principal, &Account)> {
        self.accounts.iter().map(|(principal, account)| (*principal, account))
    }

    /// Time for which CPUs were kept awake without a request.
    pub fn unowned(&self) -> &Account {
        &self.unowned
    }

    /// The sums of the accounts that are closed.
    pub fn closed(&self) -> &Account {
        &self.closed
    }

    /// The payer whose allowance `principal` uses.
    pub fn payer(&self, principal: Principal) -> Payer {
        match self.sharing.binary_search_by_key(&principal, |(principal, _)| *principal) {
            Ok(at) => Payer::Shared(self.sharing[at].1),
            Err(_) => Payer::Alone(principal),
        }
    }

    /// Requests of the payer of `principal` whose window is not over.
    pub(super) fn outstanding(&self, principal: Principal) -> u64 {
        self.purse_place(self.payer(principal)).map_or(0, |at| self.purses[at].1.outstanding)
    }

    /// `length` of one CPU kept awake at `power`: paid in equal parts by the payers of `sharers`,
    /// and by each payer's principals in equal parts; or by none. Each sharer is named once.
    pub fn charge(
        &mut self,
        sharers: impl Iterator<Item = Principal> + Clone,
        length: Duration,
        power: Microwatts,
    ) {
        let Some(first) = self.nth_payer(sharers.clone(), 0) else {
            self.unowned.charge(length, power);
            return;
        };
        let count = (1..).find(|&nth| self.nth_payer(sharers.clone(), nth).is_none()).unwrap_or(1);
        let mut next = Some(first);
        let mut nth = 0;
        while let Some(payer) = next {
            self.charge_payer(payer, sharers.clone(), nth_part(length, nth, count as u64), power);
            nth += 1;
            next = self.nth_payer(sharers.clone(), nth as usize);
        }
    }

    /// The payers of these, each once, in the order in which they are named.
    fn nth_payer(&self, sharers: impl Iterator<Item = Principal> + Clone, nth: usize) -> Option<Payer> {
        let payers = || sharers.clone().map(|principal| self.payer(principal));
        let is_first = |(at, payer): &(usize, Payer)| !payers().take(*at).any(|other| other == *payer);
        payers().enumerate().filter(is_first).nth(nth).map(|(_, payer)| payer)
    }

    fn charge_payer(
        &mut self,
        payer: Payer,
        sharers: impl Iterator<Item = Principal> + Clone,
        length: Duration,
        power: Microwatts,
    ) {
        if let Ok(at) = self.purse_place(payer) {
            self.purses[at].1.awake += length;
        }
        self.together.awake += length;
        let of_payer = |ledger: &Self, principal: Principal| ledger.payer(principal) == payer;
        let count = sharers.clone().filter(|&principal| of_payer(self, principal)).count() as u64;
        let mut nth = 0;
        for principal in sharers {
            if !of_payer(self, principal) {
                continue;
            }
            let part = nth_part(length, nth, count);
            nth += 1;
            match self.place(principal) {
                Ok(at) => self.accounts[at].1.charge(part, power),
                // Its account was closed: the rest to pay is no principal's.
                Err(_) => self.unowned.charge(part, power),
            }
        }
    }

    /// `principal` uses the allowance of all of this number, from now on and until its account is
    /// closed.
    pub(super) fn share(&mut self, principal: Principal, number: u64) {
        match self.sharing.binary_search_by_key(&principal, |(principal, _)| *principal) {
            Ok(at) => self.sharing[at].1 = number,
            Err(at) => self.sharing.insert(at, (principal, number)),
        }
    }

    /// One request of `principal`, which has an account, by the bounds of its payer and of all
    /// together, which share so many CPUs. A refused request takes nothing.
    pub(super) fn take(
        &mut self,
        principal: Principal,
        now: Instant,
        params: Option<&AllowanceParams>,
        machine: Option<(&AllowanceParams, u64)>,
    ) -> Result<(), Refused> {
        let place = self.purse_place(self.payer(principal)).ok();
        let mut purse = place.map(|at| self.purses[at].1).unwrap_or_default();
        let mut together = self.together;
        if let Some(params) = params {
            purse.allowance.take(params, now, purse.awake)?;
        }
        if let Some((machine, cpus)) = machine {
            together.allowance.take(machine, now, together.awake / cpus.max(1)).map_err(|why| match why {
                Refused::TooOften(rate) => Refused::MachineTooOften(rate),
                Refused::TooMuch(share) => Refused::MachineTooMuch(share),
                other => other,
            })?;
        }
        self.together = together;
        if let Some(at) = place {
            self.purses[at].1 = purse;
        }
        Ok(())
    }

    /// The account of `principal`, opened now if it has none; `None` if there are already `limit`
    /// of them.
    pub(super) fn open(&mut self, principal: Principal, limit: u16) -> Option<&mut Account> {
        let at = match self.place(principal) {
            Ok(at) => at,
            Err(_) if self.accounts.len() >= usize::from(limit) => return None,
            Err(at) => {
                let payer = self.payer(principal);
                if let Err(place) = self.purse_place(payer) {
                    self.purses.insert(place, (payer, Purse::default()));
                }
                self.accounts.insert(at, (principal, Account::default()));
                at
            }
        };
        Some(&mut self.accounts[at].1)
    }

    /// Lets `note` write into the account of `principal`, if it has one.
    pub(super) fn note(&mut self, principal: Principal, note: impl FnOnce(&mut Account)) {
        let Ok(at) = self.place(principal) else { return };
        let account = &mut self.accounts[at].1;
        let before = account.outstanding();
        note(account);
        let after = account.outstanding();
        if let Ok(at) = self.purse_place(self.payer(principal)) {
            let purse = &mut self.purses[at].1;
            purse.outstanding = (purse.outstanding + after).saturating_sub(before);
        }
    }

    /// Closes the account of `principal`, of which no request stands. Its payer's debt stays until
    /// `is_settled`.
    pub(super) fn close(
        &mut self,
        principal: Principal,
        is_settled: impl Fn(&Allowance, Duration) -> bool,
    ) -> Option<Account> {
        let at = self.place(principal).ok()?;
        let account = self.accounts.remove(at).1;
        self.closed.merge(&account);
        if let Ok(at) = self.sharing.binary_search_by_key(&principal, |(principal, _)| *principal) {
            self.sharing.remove(at);
        }
        // Of payers that are gone as well.
        let used = |payer: Payer| match payer {
            Payer::Alone(principal) => self.place(principal).is_ok(),
            Payer::Shared(number) => self.sharing.iter().any(|(_, shared)| *shared == number),
        };
        let kept: Vec<_> = self
            .purses
            .iter()
            .filter(|(payer, purse)| used(*payer) || !is_settled(&purse.allowance, purse.awake))
            .copied()
            .collect();
        self.purses = kept;
        Some(account)
    }

    fn purse_place(&self, payer: Payer) -> Result<usize, usize> {
        self.purses.binary_search_by_key(&payer, |(payer, _)| *payer)
    }

    fn place(&self, principal: Principal) -> Result<usize, usize> {
        self.accounts.binary_search_by_key(&principal, |(principal, _)| *principal)
    }
}

/// Equal parts of `length`; the remainder is paid nanosecond by nanosecond by the first.
fn nth_part(length: Duration, nth: u64, count: u64) -> Duration {
    length / count + Duration::from_nanos(u64::from(nth < length.as_nanos() % count))
}

#[cfg(test)]
mod tests {
    use super::super::account::FJ_PER_UJ;
    use super::*;
    use machine::Microjoules;
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
        ledger.close(Principal(1), |_, _| true);
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
