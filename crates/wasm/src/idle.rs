//! A module that chooses idle states: each CPU has an instance of its own.

use crate::host::ns;
use crate::{EVENT_FUEL, Guest, Knobs, Module};
use machine::{CstateIndex, Duration, Instant};
use policy::kind::IdlePolicy;
use policy::kind::idle::{IdleEntry, IdleTable, Sleep, WakeCause, Woken};
use wasmi::TypedFunc;

/// The exported calls about one CPU's sleeps.
pub(crate) struct Calls {
    on_idle: TypedFunc<(i64, i64, i64, i64), i32>,
    on_wake: Option<TypedFunc<(i32, i64, i32), ()>>,
}

impl Calls {
    pub fn of(guest: &Guest) -> Result<Self, String> {
        let on_idle = guest.call_of("on_idle")?.ok_or("exports no on_idle")?;
        Ok(Self { on_idle, on_wake: guest.call_of("on_wake")? })
    }
}

/// One CPU's instance, or its fault.
pub(crate) struct Governor(Result<(Guest, Calls, String), String>);

impl Governor {
    pub fn new(module: &Module, knobs: Knobs) -> Self {
        let begun = module.begun(knobs);
        Self(begun.and_then(|guest| Calls::of(&guest).map(|calls| (guest, calls, module.name.clone()))))
    }

    pub fn failed(fault: String) -> Self {
        Self(Err(fault))
    }
}

impl IdlePolicy for Governor {
    fn select(&mut self, table: &IdleTable, entry: &IdleEntry) -> Sleep {
        let Ok((guest, calls, name)) = &mut self.0 else { return Sleep::Poll };
        let now = entry.now.since(Instant::ZERO);
        let given = (ns(now), ns(entry.next_timer), ns(entry.next_tick), ns(entry.limit));
        let answer = guest.call(calls.on_idle, EVENT_FUEL, given);
        match answer.and_then(|answer| sleep(answer, table, entry.limit)) {
            Ok(sleep) => sleep,
            Err(problem) => {
                self.0 = Err(format!("{name} at {now}: {problem}"));
                Sleep::Poll
            }
        }
    }

    fn reflect(&mut self, table: &IdleTable, woken: &Woken) {
        let Ok((guest, Calls { on_wake: Some(on_wake), .. }, name)) = &mut self.0 else { return };
        let by = match woken.by {
            WakeCause::Interrupt => 0,
            WakeCause::Timer => 1,
            WakeCause::Tick => 2,
        };
        let given = (woken.selected.0.into(), ns(woken.idle(table)), by);
        if let Err(problem) = guest.call(*on_wake, EVENT_FUEL, given) {
            self.0 = Err(format!("{name}: {problem}"));
        }
    }

    fn fault(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }
}

/// The sleep that an answer of `on_idle` means, within the limit.
fn sleep(answer: i32, table: &IdleTable, limit: Duration) -> Result<Sleep, String> {
    let (state, keep_tick) = (answer & !KEEP_TICK, answer & KEEP_TICK != 0);
    match usize::try_from(state) {
        _ if answer == POLL => Ok(Sleep::Poll),
        Ok(state) if state < table.len() => Ok(if table.halts_within(limit) {
            let index = CstateIndex(state.min(table.deepest_within(limit)) as u8);
            Sleep::State { index, keep_tick }
        } else {
            Sleep::Poll
        }),
        _ => Err(format!("on_idle returned {answer}: there are {} states, and -1 for polling", table.len())),
    }
}

/// Polling, as an answer of `on_idle`.
const POLL: i32 = -1;

/// Added to a state: the scheduler's tick goes on.
const KEEP_TICK: i32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Cstate, CstateKind, CstateTable};
    use proptest::prelude::*;

    fn table(count: u64) -> IdleTable {
        let state = |depth: u64| Cstate {
            name: String::new(),
            kind: CstateKind::Halting,
            exit_latency: Duration::from_micros(depth * 10),
            true_exit_latency: None,
            entry_latency: None,
            target_residency: Duration::from_micros(depth * 30),
            power: None,
        };
        IdleTable::new(&CstateTable((1..=count).map(state).collect()))
    }

    proptest! {
        /// Whatever a module answers, its state is in the table and within the limit.
        #[test]
        fn no_answer_goes_beyond_table_or_limit(
            answer in prop_oneof![-3..300_i32, any::<i32>()],
            count in 1..5_u64,
            limit_us in 0..60_u64,
        ) {
            let (table, limit) = (table(count), Duration::from_micros(limit_us));
            if let Ok(Sleep::State { index, keep_tick }) = sleep(answer, &table, limit) {
                prop_assert!(table.exit_latency(index.index()) <= limit);
                prop_assert!(index.index() <= (answer & 0xff) as usize);
                prop_assert_eq!(keep_tick, answer & KEEP_TICK != 0);
            }
        }
    }

    #[test]
    fn answers_mean_states() {
        let state = |index, keep_tick| Ok(Sleep::State { index: CstateIndex(index), keep_tick });
        for (answer, expected) in
            [(-1, Ok(Sleep::Poll)), (0, state(0, false)), (2, state(2, false)), (258, state(2, true))]
        {
            assert_eq!(sleep(answer, &table(3), Duration::MAX), expected, "{answer}");
        }
        for answer in [3, 259, 512, -2, i32::MIN, i32::MAX] {
            assert!(sleep(answer, &table(3), Duration::MAX).unwrap_err().contains("3 states"), "{answer}");
        }
    }
}
