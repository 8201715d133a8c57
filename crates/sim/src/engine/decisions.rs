//! Readings for policies, and the effect of their decisions.

use super::hardware::Hardware;
use super::metrics::histogram;
use super::{Core, Doing, Engine, Later};
use hdrhistogram::Histogram;
use machine::Duration;
use policy::frequency::PointIndex;
use policy::kind::{CpuTotals, Decision, Readings, Responses, Seen};

/// The readings that one policy asked for.
pub(super) struct Readers {
    wants: Readings,
    responses: Histogram<u64>,
    cpus: Vec<CpuTotals>,
}

impl Readers {
    pub fn new(wants: Readings) -> Self {
        Self { wants, responses: histogram(3), cpus: Vec::new() }
    }

    #[inline]
    pub fn wants_responses(&self) -> bool {
        self.wants.quantile.is_some()
    }

    #[inline]
    pub fn record(&mut self, response_ns: u64) {
        if self.wants_responses() {
            self.responses.saturating_record(response_ns);
        }
    }

    /// All readings up to now; responses begin anew.
    pub fn read(&mut self, hardware: &Hardware, cores: &[Core], now: u64, active: usize) -> Seen<'_> {
        if self.wants.cpus {
            self.cpus.clear();
            let totals = cores.iter().enumerate().map(|(cpu, core)| CpuTotals {
                busy: Duration::from_nanos(hardware.busy_ns(cpu, now)),
                working: Duration::from_nanos(hardware.working_ns(cpu, now)),
                core_working: Duration::from_nanos(hardware.core_working_ns(cpu, now)),
                work_done: core.work_done(now),
                point: PointIndex(hardware.point(cpu)),
                is_working: core.doing == Doing::Working,
            });
            self.cpus.extend(totals);
        }
        let mut responses = Responses::default();
        if let Some(quantile) = self.wants.quantile.filter(|_| !self.responses.is_empty()) {
            responses = Responses {
                count: self.responses.len(),
                tail: Some(Duration::from_nanos(self.responses.value_at_quantile(quantile))),
                mean: Some(Duration::from_nanos(self.responses.mean() as u64)),
            };
            self.responses.reset();
        }
        let core_joules = if self.wants.cpus { hardware.core_joules(now) } else { 0.0 };
        Seen { cpus: &self.cpus, responses, active: active as u16, core_joules }
    }
}

impl Engine {
    pub(super) fn carry_out(&mut self, decision: Decision) {
        if self.chronicle.is_some() {
            self.tell_of_decision(decision);
        }
        match decision {
            Decision::Active(wanted) => {
                if !self.place_on(usize::from(wanted)) {
                    self.activate(usize::from(wanted));
                }
            }
            Decision::IdleStates { active, parked } => {
                let parked = parked.map_or_else(|| self.sleepers.deepest(), |state| state.0);
                self.settle_sleep(active.0, parked);
            }
            Decision::IdleLimit(limit) => self.limit_active(limit),
            Decision::OperatingPoint { cpu, point } => self.wish(cpu.index(), point),
            Decision::Points(point) => (0..self.hardware.cpus()).for_each(|cpu| self.wish(cpu, point)),
            Decision::Uncore(limit) => self.set_uncore(limit),
            Decision::Review { cpu, at } => {
                self.events.add(at.as_nanos(), Later::Review { cpu: cpu.index() });
            }
        }
    }
}

impl Core {
    /// Work done so far, in ns of work at the nominal clock: a counter of instructions in another
    /// unit.
    fn work_done(&self, now: u64) -> f64 {
        let open = if self.doing == Doing::Working && self.ends > self.began {
            let all = (self.task.compute_ns + self.task.memory_ns) as f64;
            let ahead =
                self.ends.saturating_sub(now.max(self.began)) as f64 / (self.ends - self.began) as f64;
            all * (1.0 - self.left * ahead)
        } else {
            0.0
        };
        self.completed_ns as f64 + open
    }
}
