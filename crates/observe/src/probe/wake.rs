//! From a probe to the wake-up latency of each state, for later observations of that machine.
//!
//! A batch counts for a state if nearly all of its sleeps were in it: then its middle is that
//! state's middle. A state's part is only seen between batches that differ in nothing else. So the
//! figures of all states come from sleeps of one length and one way of waking: those that cover the
//! most states. Of several, the choice is sleeps that another CPU ended, because that is how
//! requests come, and then the shortest, which have the most samples. A latency ends when the woken
//! thread reads the clock, so the scheduler's part is in it: between two states that cancels out,
//! and as a cost of waking it is one.

use super::{Batch, Probe, WakeSource};
use crate::sleep::MeasuredWake;
use machine::{Cstate, CstateIndex, CstateKind, CstateTable, Duration};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Why a probe tells nothing of the machine that is observed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WakeError {
    /// No batch belongs to a state.
    #[error("it tells no idle state's wake latency: that kernel did not say which states were entered")]
    Untold,
    #[error(
        "it is of another machine: its {name}, which advertises {advertised}, is no idle state of the one \
         that is observed"
    )]
    Another { name: String, advertised: Duration },
}

impl Probe {
    /// The wake-up latency of each halting state of `table`, where it was seen.
    pub fn wake_latencies(
        &self,
        table: &CstateTable,
    ) -> Result<BTreeMap<CstateIndex, MeasuredWake>, WakeError> {
        let mut alike: BTreeMap<_, BTreeMap<CstateIndex, (u64, MeasuredWake)>> = BTreeMap::new();
        for batch in &self.batches {
            for state in batch.states.iter().flatten() {
                let is_same =
                    |known: &Cstate| known.name == state.name && known.exit_latency == state.advertised;
                let Some(place) = table.0.iter().position(is_same) else {
                    return Err(WakeError::Another {
                        name: state.name.clone(),
                        advertised: state.advertised,
                    });
                };
                let share = state.share.as_f64();
                if share < NEARLY_ALL || table.0[place].kind == CstateKind::Polling || batch.samples == 0 {
                    continue;
                }
                // As it is and under a limit, both may have been in one state.
                let sleeps = (batch.samples as f64 * share) as u64;
                let told =
                    alike.entry((batch.way == WakeSource::OtherCpu, Reverse(batch.sleep))).or_default();
                let known = told.entry(CstateIndex(place as u8)).or_insert((sleeps, measured(batch)));
                if sleeps > known.0 {
                    *known = (sleeps, measured(batch));
                }
            }
        }
        let best =
            alike.into_iter().max_by_key(|(kind, told)| (told.len(), *kind)).ok_or(WakeError::Untold)?;
        Ok(best.1.into_iter().map(|(state, (_, wake))| (state, wake)).collect())
    }

    /// The scheduler's part of a wake-up by another CPU: the middle of those that found the CPU
    /// polling, of the shortest sleeps. Absent where none did.
    pub fn scheduling(&self, table: &CstateTable) -> Option<Duration> {
        let is_polling = |batch: &&Batch| {
            let mut states = batch.states.iter().flatten().filter(|state| state.share.as_f64() >= NEARLY_ALL);
            states.any(|state| {
                let known = table.0.iter().find(|known| known.name == state.name);
                known.is_some_and(|known| known.kind == CstateKind::Polling)
            })
        };
        let batches =
            self.batches.iter().filter(|batch| batch.way == WakeSource::OtherCpu && batch.samples > 0);
        batches.filter(is_polling).min_by_key(|batch| batch.sleep).map(|batch| batch.p50)
    }
}

impl Probe {
    /// The option of the kernel's command line that has intel_idle take the measured latencies (Linux
    /// 7.0): `intel_idle.table=C1:3:3,C6:95:600`, by state exit latency and target residency in us. None
    /// for other drivers, and where nothing was measured.
    ///
    /// A latency is the 99th percentile less [`Self::scheduling`], since cpuidle takes it for the
    /// longest. Residencies are the advertised ones: a break-even takes a meter. The driver takes no
    /// table whose deeper states are not slower, or whose residency is below the latency
    /// (Documentation/admin-guide/pm/intel_idle.rst), so either is raised where it must be.
    pub fn boot_table(&self, table: &CstateTable) -> Option<String> {
        if self.driver.as_deref() != Some("intel_idle") {
            return None;
        }
        let measured = self.wake_latencies(table).ok()?;
        let scheduling = self.scheduling(table).unwrap_or(Duration::ZERO);
        let (mut latency, mut residency) = (0, 0);
        let mut entries = Vec::new();
        let halting = table.0.iter().enumerate().filter(|(_, state)| state.kind == CstateKind::Halting);
        for (at, state) in halting {
            let wake = measured.get(&CstateIndex(at as u8)).map(|wake| wake.p99 - scheduling.min(wake.p99));
            let micros = |length: Duration| length.as_nanos().div_ceil(1000);
            latency = micros(wake.unwrap_or(state.exit_latency)).max(latency + 1);
            residency = micros(state.target_residency).max(latency).max(residency + 1);
            entries.push(format!("{}:{latency}:{residency}", state.name));
        }
        Some(format!("intel_idle.table={}", entries.join(",")))
    }
}

fn measured(batch: &Batch) -> MeasuredWake {
    MeasuredWake { p50: batch.p50, p99: batch.p99.max(batch.p50) }
}

/// With fewer of the sleeps in a state, the middle may be another's.
const NEARLY_ALL: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::StateShare;
    use machine::{CpuId, Ratio};

    fn table() -> CstateTable {
        let state = |name: &str, kind, micros| Cstate {
            name: name.to_owned(),
            kind,
            exit_latency: Duration::from_micros(micros),
            true_exit_latency: None,
            entry_latency: None,
            target_residency: Duration::ZERO,
            power: None,
        };
        CstateTable(vec![
            state("POLL", CstateKind::Polling, 0),
            state("C1", CstateKind::Halting, 2),
            state("C6", CstateKind::Halting, 133),
        ])
    }

    fn batch(way: WakeSource, samples: usize, p50: u64, states: &[(&str, u64, f64)]) -> Batch {
        let share = |&(name, micros, share): &(&str, u64, f64)| StateShare {
            name: name.to_owned(),
            advertised: Duration::from_micros(micros),
            share: Ratio::new(share),
        };
        Batch {
            limited_to: None,
            way,
            sleep: Duration::from_millis(1),
            samples,
            p50: Duration::from_micros(p50),
            p99: Duration::from_micros(3 * p50),
            call: None,
            busy: None,
            states: Some(states.iter().map(share).collect()),
        }
    }

    fn probe(batches: Vec<Batch>) -> Probe {
        Probe {
            sleeper: CpuId(1),
            waker: Some(CpuId(0)),
            driver: None,
            clock: Duration::ZERO,
            batches,
            notes: Vec::new(),
            stopped: false,
        }
    }

    fn latencies(batches: Vec<Batch>) -> Result<Vec<(u8, u64)>, WakeError> {
        let found = probe(batches).wake_latencies(&table())?;
        Ok(found.into_iter().map(|(state, wake)| (state.0, wake.p50.as_micros())).collect())
    }

    #[test]
    fn a_state_has_the_latency_of_the_sleeps_that_were_in_it() {
        let found = latencies(vec![
            batch(WakeSource::Timer, 2_000, 4, &[("C1", 2, 1.0)]),
            batch(WakeSource::OtherCpu, 90, 7, &[("C1", 2, 0.95), ("C6", 133, 0.05)]),
            batch(WakeSource::OtherCpu, 80, 8, &[("C1", 2, 1.0)]),
            // Half and half counts for no state, and spinning is no waking.
            batch(WakeSource::OtherCpu, 2_000, 50, &[("C1", 2, 0.5), ("C6", 133, 0.5)]),
            batch(WakeSource::OtherCpu, 2_000, 1, &[("POLL", 0, 1.0)]),
        ]);
        assert_eq!(found, Ok(vec![(1, 7)]));
    }

    #[test]
    fn the_schedulers_part_is_that_of_a_polling_cpu() {
        let polled = |way, micros| batch(way, 100, micros, &[("POLL", 0, 1.0)]);
        let longer = Batch { sleep: Duration::from_millis(10), ..polled(WakeSource::OtherCpu, 8) };
        let halted = batch(WakeSource::OtherCpu, 90, 7, &[("C1", 2, 1.0)]);
        let found = probe(vec![
            longer,
            polled(WakeSource::Timer, 3),
            halted.clone(),
            polled(WakeSource::OtherCpu, 4),
        ]);
        assert_eq!(found.scheduling(&table()), Some(Duration::from_micros(4)));
        assert_eq!(probe(vec![halted]).scheduling(&table()), None);
    }

    #[test]
    fn the_kernels_option_has_the_measured_latencies_in_an_order_that_it_takes() {
        let batches = vec![
            batch(WakeSource::OtherCpu, 90, 1, &[("POLL", 0, 1.0)]),
            batch(WakeSource::OtherCpu, 90, 4, &[("C1", 2, 1.0)]),
            batch(WakeSource::OtherCpu, 90, 40, &[("C6", 133, 1.0)]),
        ];
        let of = |driver: &str, batches: Vec<Batch>| {
            let mut table = table();
            table.0[2].target_residency = Duration::from_micros(600);
            Probe { driver: Some(driver.to_owned()), ..probe(batches) }.boot_table(&table)
        };
        // 12 and 120 us at the 99th percentile, 1 us of it the scheduler's.
        let option = "intel_idle.table=C1:11:11,C6:119:600";
        assert_eq!(of("intel_idle", batches.clone()).as_deref(), Some(option));
        assert_eq!(of("acpi_idle", batches.clone()), None);
        assert_eq!(of("intel_idle", Vec::new()), None);
        // A deep state as fast as the shallow one; and one that was not seen.
        let alike = [batches[1].clone(), batch(WakeSource::OtherCpu, 90, 4, &[("C6", 133, 1.0)])].to_vec();
        assert_eq!(of("intel_idle", alike).as_deref(), Some("intel_idle.table=C1:12:12,C6:13:600"));
        let deep = vec![batches[2].clone()];
        assert_eq!(of("intel_idle", deep).as_deref(), Some("intel_idle.table=C1:2:2,C6:120:600"));
    }

    #[test]
    fn states_are_compared_by_sleeps_of_one_length() {
        let of = |millis, batch: Batch| Batch { sleep: Duration::from_millis(millis), ..batch };
        let found = latencies(vec![
            batch(WakeSource::OtherCpu, 2_000, 5, &[("C1", 2, 1.0)]),
            of(10, batch(WakeSource::OtherCpu, 90, 30, &[("C1", 2, 1.0)])),
            of(10, batch(WakeSource::OtherCpu, 90, 170, &[("C6", 133, 1.0)])),
            of(100, batch(WakeSource::OtherCpu, 20, 40, &[("C1", 2, 1.0)])),
            of(100, batch(WakeSource::OtherCpu, 20, 190, &[("C6", 133, 1.0)])),
        ]);
        assert_eq!(found, Ok(vec![(1, 30), (2, 170)]), "5 against 170 us would be cold caches, too");
    }

    #[test]
    fn a_real_probe_tells_all_states_that_halt() {
        let file = include_str!("../../testdata/doctor/lab-probe.json");
        let report: serde_json::Value = serde_json::from_str(file).unwrap();
        let probe: Probe = serde_json::from_value(report["probe"].clone()).unwrap();
        let state = |name: &str, kind, exit| Cstate {
            exit_latency: Duration::from_micros(exit),
            kind,
            name: name.to_owned(),
            ..table().0[0].clone()
        };
        let halting =
            [("C1", 2), ("C2", 10), ("C3", 133)].map(|(name, exit)| state(name, CstateKind::Halting, exit));
        let lab =
            CstateTable(std::iter::once(state("POLL", CstateKind::Polling, 0)).chain(halting).collect());
        let found = probe.wake_latencies(&lab).unwrap();
        let middle: Vec<(u8, u64)> =
            found.iter().map(|(state, wake)| (state.0, wake.p50.as_micros())).collect();
        assert_eq!(middle, [(1, 176), (2, 165), (3, 192)]);
    }

    #[test]
    fn a_probe_of_another_machine_or_of_none_is_refused() {
        assert_eq!(latencies(Vec::new()), Err(WakeError::Untold));
        let blind = Batch { states: None, ..batch(WakeSource::Timer, 9, 4, &[]) };
        assert_eq!(
            latencies(vec![blind, batch(WakeSource::Timer, 0, 4, &[("C1", 2, 1.0)])]),
            Err(WakeError::Untold)
        );
        for (name, micros) in [("C1", 3), ("C1E", 2)] {
            let other = latencies(vec![batch(WakeSource::Timer, 9, 4, &[(name, micros, 0.01)])]);
            assert!(matches!(&other, Err(WakeError::Another { .. })), "{other:?}");
        }
    }
}
