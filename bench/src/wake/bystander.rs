//! The loss of a program that asks for nothing, while another asks for its CPU every 10 ms.

use super::{Bench, Part};
use crate::harness::figure::{By, Figure, Of};
use crate::harness::{Measured, Run};
use anyhow::Result;
use machine::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Blocks of each kind: at least forty, as the target has it, and enough for an interval of half a
/// percent.
const PAIRS: u32 = 120;
const BLOCK: Duration = Duration::from_millis(250);
/// Between two requests, and for how long each.
const GAP: Duration = Duration::from_millis(10);
const STAY: Duration = Duration::from_micros(100);

const WITH: &str = "with requests";
const WITHOUT: &str = "without requests";
const COST_TARGET: f64 = 1.01;

pub fn run(bench: &Bench<'_>, run: &mut Run) -> Result<()> {
    run.rounds(Part::Bystander.name(), PAIRS, &[WITHOUT, WITH], |&treatment, _| {
        Ok(Measured::of([("work_per_s", block(bench, treatment == WITH)?)]))
    })
}

/// The time for the same work, with requests over without.
pub fn figure() -> Figure {
    let cost = Figure::new("work_per_s", "/s", Of::Ratio(WITHOUT, WITH)).at_most(COST_TARGET);
    Figure { by: By::IntervalEnd, ..cost.in_case(Part::Bystander.name()) }
}

/// Rounds of arithmetic a second that a thread on the CPU that is asked for gets done.
fn block(bench: &Bench<'_>, asked: bool) -> Result<f64> {
    let client = asked.then(|| bench.client(Part::Bystander)).transpose()?;
    let has_ended = AtomicBool::new(false);
    let (sleeper, waker) = (bench.sleeper, bench.waker);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            linux::pin_current_thread(waker)?;
            linux::want_exact_timers();
            while let Some(client) = &client
                && !has_ended.load(Ordering::Relaxed)
            {
                let due = linux::now() + GAP;
                client.wake(&[sleeper], due, STAY);
                linux::sleep_until(due);
            }
            Ok::<_, linux::AffinityError>(())
        });
        let working = scope.spawn(|| {
            linux::pin_current_thread(sleeper)?;
            let began = linux::now();
            let (mut rounds, mut word) = (0_u64, 1_u64);
            while linux::now().since(began) < BLOCK {
                for _ in 0..2_000 {
                    word = std::hint::black_box(
                        word.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17) ^ rounds,
                    );
                }
                rounds += 1;
            }
            Ok::<_, linux::AffinityError>(rounds as f64 / linux::now().since(began).as_secs_f64())
        });
        let rounds = working.join().expect("it only counts")?;
        has_ended.store(true, Ordering::Relaxed);
        asking.join().expect("it only asks")?;
        Ok(rounds)
    })
}
