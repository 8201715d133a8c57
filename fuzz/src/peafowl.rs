//! A worker and a scheduler of the store, driven for a few seconds: no file's parameters may stop
//! them.

use machine::{ConnId, CpuId, Duration, Instant, Ratio, Reading, WorkerId};
use policy::peafowl::{ConnectionLoad, LearnedLimit, Params, Sample, Scheduler, Worker};

/// Drives both by these rules; the worker with an earlier run's limits.
pub(crate) fn drive(params: Params, learned: Option<LearnedLimit>) {
    let ids = [WorkerId(0), WorkerId(1)];
    let mut scheduler = Scheduler::new(params, &[(ids[0], CpuId(0)), (ids[1], CpuId(1))]);
    let mut workers = ids.map(|id| Worker::new(params, id, learned));
    let mut now = Instant::ZERO;
    for (slot, worker) in workers.iter_mut().enumerate() {
        worker.handle_arrival(now, 0, ConnId(slot as u64), worker.id(), ConnectionLoad::new(now));
    }
    for round in 0..50_u32 {
        for worker in &mut workers {
            for _ in 0..round % 7 {
                now += Duration::from_millis(1);
                let _ = worker.handle_served(now, 0, 1 + round * 10, Duration::from_micros(100));
                let _ = worker.poll_transfer();
            }
            if worker.poll_timeout().is_some_and(|at| at <= now) {
                worker.handle_timeout(now);
            }
        }
        now += Duration::from_millis(50);
        let sample = Sample {
            busy: Ratio::new(f64::from(round % 11) / 10.0),
            tail: (round % 2 == 0).then(|| Duration::from_micros(500)),
            requests: round * 100,
        };
        let reports = workers.iter_mut().map(|worker| worker.handle_report(now, &sample)).collect();
        scheduler.handle_reading(now, &Reading { workers: reports, ..Reading::default() });
        if scheduler.poll_timeout().is_some_and(|at| at <= now) {
            scheduler.handle_timeout(now);
        }
        let commands = std::iter::from_fn(|| scheduler.poll_command()).take(COMMANDS_MAX).count();
        assert!(commands < COMMANDS_MAX, "commands without an end");
        let _ = scheduler.place(now);
    }
}

/// Two workers with two connections need fewer at a time.
const COMMANDS_MAX: usize = 1000;
