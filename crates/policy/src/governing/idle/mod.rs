//! How deep the CPUs of a governed service may sleep.
//!
//! A parked CPU has no limit of ours: it shall sleep as deeply as it can. For an active one there
//! is a choice. `feedback` is the Tradeoffs paper's loop (section III-C) around the kernel's own
//! governor, which cannot be replaced from outside: it counts sleeps that it chose too deep in
//! `above`, and the exit latency can be bounded. So the bound goes one state shallower where more
//! than a quarter of an epoch's sleeps were premature, and one deeper after so many good epochs
//! \[D\]; never below the shallowest state that halts, since polling is no sleep.
//!
//! CPUs of one service may have modes of their own ([`IdleModes`]).
//!
//! Invariants: a limit is asked for when it changes and not otherwise; a CPU without a known
//! table is never limited but by a number that a person gave.

mod mode;

pub use mode::{IdleMode, IdleModes};

use machine::{Command, CpuId, CpuReading, Duration, IdleLimit};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One CPU's part of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Loop {
    /// The deepest of its halting states that is allowed, counted from the shallowest.
    cap: usize,
    /// Epochs in a row with few premature sleeps.
    good: u32,
}

/// The idle limits of the CPUs of one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceIdle {
    modes: IdleModes,
    /// By CPU the exit latencies of its states that halt, the shallowest first.
    halts: BTreeMap<CpuId, Vec<Duration>>,
    loops: BTreeMap<CpuId, Loop>,
    in_force: BTreeMap<CpuId, IdleLimit>,
}

impl ServiceIdle {
    /// No limit yet on any of `cpus`.
    pub fn new(
        modes: impl Into<IdleModes>,
        cpus: impl IntoIterator<Item = CpuId>,
        halts: BTreeMap<CpuId, Vec<Duration>>,
    ) -> Self {
        let loops = halts.iter().filter(|(_, halts)| !halts.is_empty());
        let loops = loops.map(|(&cpu, halts)| (cpu, Loop { cap: halts.len() - 1, good: 0 })).collect();
        let in_force = cpus.into_iter().map(|cpu| (cpu, IdleLimit::None)).collect();
        Self { modes: modes.into(), halts, loops, in_force }
    }

    pub fn set_modes(&mut self, modes: IdleModes) {
        self.modes = modes;
    }

    /// True if the mode can change nothing here: no CPU has a second state that halts, and polling
    /// was not asked for.
    pub fn has_no_effect(&self) -> bool {
        let asks = |cpu: &CpuId| self.modes.mode(*cpu) != IdleMode::Stock;
        let changes = |cpu: &CpuId| match self.modes.mode(*cpu) {
            IdleMode::Limit(latency) if latency.is_zero() => true,
            _ => self.halts.get(cpu).is_some_and(|halts| halts.len() > 1),
        };
        let mut asked = self.in_force.keys().filter(|cpu| asks(cpu)).peekable();
        asked.peek().is_some() && !asked.any(changes)
    }

    /// An epoch is over: the loop learns from the CPUs that were active in it.
    pub fn handle_epoch(&mut self, active: &BTreeSet<CpuId>, cpus: &[CpuReading]) {
        let (modes, loops) = (&self.modes, &mut self.loops);
        let is_looped = |cpu: CpuId| active.contains(&cpu) && modes.mode(cpu) == IdleMode::Feedback;
        for reading in cpus.iter().filter(|reading| is_looped(reading.cpu)) {
            let (Some(halts), Some(state)) = (self.halts.get(&reading.cpu), loops.get_mut(&reading.cpu))
            else {
                continue;
            };
            let Some(premature) = reading.premature else { continue };
            if premature.as_f64() > CURB_ABOVE {
                *state = Loop { cap: state.cap.saturating_sub(1), good: 0 };
            } else if premature.as_f64() < RELAX_BELOW {
                state.good += 1;
                if state.good >= RELAX_AFTER {
                    *state = Loop { cap: (state.cap + 1).min(halts.len() - 1), good: 0 };
                }
            } else {
                state.good = 0;
            }
        }
    }

    /// The commands that are due when these CPUs are active.
    pub fn limits(&mut self, active: &BTreeSet<CpuId>) -> Vec<Command> {
        let Self { modes, halts, loops, in_force } = self;
        let mut commands = Vec::new();
        for (&cpu, current) in in_force {
            let halts = halts.get(&cpu).filter(|halts| halts.len() > 1);
            let limit = match (modes.mode(cpu), halts) {
                _ if !active.contains(&cpu) => IdleLimit::None,
                (IdleMode::Limit(latency), _) => IdleLimit::ExitLatency(latency),
                (IdleMode::Stock, _) | (_, None) => IdleLimit::None,
                (IdleMode::Deep, Some(_)) => IdleLimit::Deepest,
                (IdleMode::Shallow, Some(halts)) => IdleLimit::ExitLatency(halts[0]),
                (IdleMode::Feedback, Some(halts)) => {
                    let cap = loops.get(&cpu).map_or(halts.len() - 1, |state| state.cap);
                    if cap + 1 >= halts.len() { IdleLimit::None } else { IdleLimit::ExitLatency(halts[cap]) }
                }
            };
            if limit != *current {
                *current = limit;
                commands.push(Command::LimitIdle { cpu, limit });
            }
        }
        commands
    }

    /// The commands that withdraw every limit in force.
    pub fn withdraw(&mut self) -> Vec<Command> {
        self.limits(&BTreeSet::new())
    }
}

/// A larger share of premature sleeps curbs \[D\], as in `idle::feedback`.
const CURB_ABOVE: f64 = 0.25;

/// A smaller share is good \[D\].
const RELAX_BELOW: f64 = 0.05;

/// So many good epochs relax: an epoch holds hundreds of sleeps, where the loop inside a governor
/// counts 32 of them \[D\].
const RELAX_AFTER: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Ratio;

    const US: fn(u64) -> Duration = Duration::from_micros;

    fn idle(mode: IdleMode) -> ServiceIdle {
        let cpus = [CpuId(0), CpuId(1)];
        ServiceIdle::new(mode, cpus, cpus.map(|cpu| (cpu, vec![US(2), US(10), US(133)])).into())
    }

    fn set(cpus: &[u16]) -> BTreeSet<CpuId> {
        cpus.iter().copied().map(CpuId).collect()
    }

    fn limit(cpu: u16, limit: IdleLimit) -> Command {
        Command::LimitIdle { cpu: CpuId(cpu), limit }
    }

    fn reading(cpu: u16, premature: f64) -> CpuReading {
        let premature = Some(Ratio::new(premature));
        CpuReading {
            cpu: CpuId(cpu),
            busy: None,
            residency: None,
            premature,
            instructions: None,
            clock: None,
        }
    }

    #[test]
    fn parked_cpus_have_no_limit_and_changes_alone_are_told() {
        let mut idle = idle(IdleMode::Shallow);
        let shallow = IdleLimit::ExitLatency(US(2));
        assert_eq!(idle.limits(&set(&[0, 1])), [limit(0, shallow), limit(1, shallow)]);
        assert_eq!(idle.limits(&set(&[0, 1])), []);
        assert_eq!(idle.limits(&set(&[0])), [limit(1, IdleLimit::None)]);
        assert_eq!(idle.withdraw(), [limit(0, IdleLimit::None)]);
    }

    #[test]
    fn premature_sleeps_curb_and_good_epochs_relax() {
        let mut idle = idle(IdleMode::Feedback);
        let active = set(&[0, 1]);
        assert_eq!(idle.limits(&active), []);
        for (epochs, premature, told) in [
            (1, 0.3, vec![limit(0, IdleLimit::ExitLatency(US(10)))]),
            (1, 0.9, vec![limit(0, IdleLimit::ExitLatency(US(2)))]),
            // Never below the shallowest state that halts.
            (9, 0.9, vec![]),
            (4, 0.01, vec![]),
            // A middling epoch begins the count anew.
            (1, 0.1, vec![]),
            (4, 0.01, vec![]),
            (1, 0.01, vec![limit(0, IdleLimit::ExitLatency(US(10)))]),
            (5, 0.01, vec![limit(0, IdleLimit::None)]),
        ] {
            let mut commands = Vec::new();
            for _ in 0..epochs {
                idle.handle_epoch(&active, &[reading(0, premature)]);
                commands.extend(idle.limits(&active));
            }
            assert_eq!(commands, told, "{epochs} epochs with {premature}");
        }
    }

    #[test]
    fn one_halting_state_leaves_nothing_to_choose_but_polling() {
        let one = BTreeMap::from([(CpuId(0), vec![US(0)])]);
        for (mode, without) in [
            (IdleMode::Shallow, true),
            (IdleMode::Feedback, true),
            (IdleMode::Deep, true),
            (IdleMode::Limit(US(50)), true),
            (IdleMode::Limit(Duration::ZERO), false),
            (IdleMode::Stock, false),
        ] {
            let idle = ServiceIdle::new(mode, [CpuId(0)], one.clone());
            assert_eq!(idle.has_no_effect(), without, "{mode}");
        }
        let mut idle = ServiceIdle::new(IdleMode::Feedback, [CpuId(0)], one);
        idle.handle_epoch(&set(&[0]), &[reading(0, 1.0)]);
        assert_eq!(idle.limits(&set(&[0])), []);
    }

    #[test]
    fn cpus_may_have_modes_of_their_own() {
        let modes: IdleModes = "stock; 0=shallow;1 = deep".parse().unwrap();
        assert_eq!(modes.to_string(), "stock; 0=shallow; 1=deep");
        assert_eq!(modes.to_string().parse(), Ok(modes.clone()));
        let halts = idle(IdleMode::Stock).halts;
        let mut idle = ServiceIdle::new(modes, [0, 1, 2].map(CpuId), halts);
        assert_eq!(
            idle.limits(&set(&[0, 1, 2])),
            [limit(0, IdleLimit::ExitLatency(US(2))), limit(1, IdleLimit::Deepest)]
        );
        assert_eq!(idle.limits(&set(&[0])), [limit(1, IdleLimit::None)]);
        assert!(!idle.has_no_effect());
        for (wrong, told) in [
            ("stock; shallow", "no `=`"),
            ("stock; 0-x=shallow", "0-1=shallow"),
            ("stock; 0-1=shallow; 1=deep", "cpu1 has a mode already"),
            ("0=deep", "write stock"),
            ("stock; 0=deeper", "write stock"),
        ] {
            assert!(wrong.parse::<IdleModes>().unwrap_err().contains(told), "{wrong}");
        }
    }

    #[test]
    fn modes_read_as_a_person_writes_them() {
        for (text, mode) in [
            ("stock", IdleMode::Stock),
            ("feedback", IdleMode::Feedback),
            ("deep", IdleMode::Deep),
            ("0us", IdleMode::Limit(Duration::ZERO)),
            ("50us", IdleMode::Limit(US(50))),
        ] {
            assert_eq!(text.parse(), Ok(mode));
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("deepest".parse::<IdleMode>().unwrap_err().contains("such as 50us"));
    }
}
