//! Each CPU's entry into an idle state and exit from it, event by event: for machines that refuse
//! BPF programs.

use super::rings::{PerfError, RawEvent, Rings, word};
use machine::{CpuId, CpuList, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleEvent {
    /// Entry into the state of this number, or exit.
    Change {
        /// The time, by the monotonic clock.
        at: Instant,
        cpu: CpuId,
        /// The requested state; `None`: awake.
        state: Option<usize>,
    },
    /// Events were lost: the buffer was full.
    Lost { cpu: CpuId, events: u64 },
}

/// `power:cpu_idle` of some CPUs.
#[derive(Debug)]
pub struct IdleEvents(Rings);

impl IdleEvents {
    pub fn open(cpus: &CpuList) -> Result<Self, PerfError> {
        Ok(Self(Rings::open("power/cpu_idle", cpus)?))
    }

    pub fn drain(&mut self, mut seen: impl FnMut(IdleEvent)) {
        self.0.drain(|event| match event {
            RawEvent::Sample { at, fields, .. } => {
                if let Some((state, cpu)) = change(fields) {
                    seen(IdleEvent::Change { at, cpu, state });
                }
            }
            RawEvent::Lost { cpu, events } => seen(IdleEvent::Lost { cpu, events }),
        });
    }
}

/// The event's own fields, behind the eight bytes that all events begin with: state and CPU.
fn change(raw: &[u8]) -> Option<(Option<usize>, CpuId)> {
    const AWAKE: u32 = u32::MAX;
    let (state, cpu) = (word(raw, 8)?, word(raw, 12)?);
    Some(((state != AWAKE).then_some(state as usize), CpuId(u16::try_from(cpu).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_kernels_format_says() {
        let mut raw = vec![0; 20];
        raw[8] = 3;
        raw[12] = 7;
        assert_eq!(change(&raw), Some((Some(3), CpuId(7))));
        raw[8..12].fill(0xff);
        assert_eq!(change(&raw), Some((None, CpuId(7))));
        assert_eq!(change(&raw[..14]), None);
    }

    #[test]
    fn the_events_of_this_machine_alternate() {
        let cpus = crate::allowed_cpus().unwrap();
        let mut events = match IdleEvents::open(&cpus) {
            Ok(events) => events,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let mut last = std::collections::BTreeMap::new();
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            events.drain(|event| match event {
                IdleEvent::Change { at, cpu, state } => {
                    if let Some((before, asleep)) = last.insert(cpu, (at, state.is_some())) {
                        assert!(at >= before, "{cpu}: {at:?} after {before:?}");
                        assert_ne!(asleep, state.is_some(), "{cpu}: two entries or two exits in a row");
                    }
                }
                IdleEvent::Lost { .. } => panic!("a buffer of a megabyte ran over in 2 ms"),
            });
        }
    }
}
