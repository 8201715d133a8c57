//! A probe as a table for people.

use super::{Batch, Probe, StateShare, WakeSource};
use crate::doctor::page::{WIDTH, wrapped};
use std::fmt;

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Measured wake latency")?;
        let waker = self.waker.map_or("none".to_owned(), |cpu| cpu.to_string());
        writeln!(
            f,
            "  {} sleeps; it is woken by {waker}, or by its own timer; the clock's own cost is {}",
            self.sleeper, self.clock
        )?;
        let driver = self.driver.as_deref().unwrap_or("none");
        writeln!(f, "  call is how long the waker's call took, half of them at most")?;
        writeln!(f, "  states are those asked for (driver {driver}), with the exit latency it advertises")?;
        if !self.batches.is_empty() {
            writeln!(
                f,
                "  {:<14}{:>8}  {:<9}{:>8}{:>9}{:>9}{:>9}  states",
                "at most", "sleep", "woken by", "p50", "p99", "call", "samples"
            )?;
        }
        for batch in &self.batches {
            writeln!(f, "{}", row(batch, &waker))?;
        }
        for note in &self.notes {
            for (index, line) in wrapped(note, WIDTH - 8).iter().enumerate() {
                writeln!(f, "  {}{line}", if index == 0 { "note: " } else { "      " })?;
            }
        }
        if self.stopped {
            writeln!(f, "  stopped before its time: what is above is all there is")?;
        }
        Ok(())
    }
}

fn row(batch: &Batch, waker: &str) -> String {
    let way = match batch.way {
        WakeSource::OtherCpu => waker,
        WakeSource::Timer => "timer",
    };
    let states = match &batch.states {
        None => "unknown".to_owned(),
        // A state that one in fifty sleeps took does not explain a median.
        Some(states) => {
            states.iter().filter(|one| one.share.as_f64() >= 0.02).map(state).collect::<Vec<_>>().join(", ")
        }
    };
    let row = format!(
        "  {:<14}{:>8}  {:<9}{:>8}{:>9}{:>9}{:>9}  {states}",
        batch.limited_to.as_deref().unwrap_or("as it is"),
        batch.sleep.to_string(),
        way,
        batch.p50.to_string(),
        batch.p99.to_string(),
        batch.call.map_or_else(|| "-".to_owned(), |call| call.to_string()),
        batch.samples,
    );
    row.trim_end().to_owned()
}

fn state(share: &StateShare) -> String {
    format!("{} {:.0}% ({})", share.name, share.share.as_f64() * 100.0, share.advertised)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{CpuId, Duration, Ratio};

    #[test]
    fn measured_stands_beside_advertised() {
        let batch = Batch {
            limited_to: Some("C1".to_owned()),
            way: WakeSource::OtherCpu,
            sleep: Duration::from_millis(1),
            samples: 900,
            p50: Duration::from_nanos(3_100),
            p99: Duration::from_nanos(9_900),
            call: Some(Duration::from_micros(13)),
            busy: None,
            states: Some(vec![
                StateShare {
                    name: "C1".to_owned(),
                    advertised: Duration::from_micros(2),
                    share: Ratio::new(0.985),
                },
                StateShare { name: "POLL".to_owned(), advertised: Duration::ZERO, share: Ratio::new(0.015) },
            ]),
        };
        let unknown =
            Batch { limited_to: None, way: WakeSource::Timer, states: None, call: None, ..batch.clone() };
        let probe = Probe {
            sleeper: CpuId(3),
            waker: Some(CpuId(0)),
            driver: None,
            clock: Duration::from_nanos(25),
            batches: vec![unknown, batch],
            notes: vec!["a reason".to_owned()],
            stopped: true,
        };
        let text = probe.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[4..],
            [
                "  at most          sleep  woken by      p50      p99     call  samples  states",
                "  as it is        1.00ms  timer      3.10us   9.90us        -      900  unknown",
                "  C1              1.00ms  cpu0       3.10us   9.90us   13.0us      900  C1 98% (2.00us)",
                "  note: a reason",
                "  stopped before its time: what is above is all there is",
            ]
        );
    }
}
