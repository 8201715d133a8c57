//! A store's status, and a generator's progress, as the frames that reports and live views are made
//! of.

use machine::{Duration, Rate, Ratio};
use report::run::{CpuFrame, Frame, StateShare, WorkerFrame};
use store::status::{CpuStatus, Status, WorkerStatus};

/// The earlier reading, if it is of the same run of the store: one that began anew since has
/// nothing to subtract.
pub fn same_run<'a>(before: Option<&'a Status>, now: &Status) -> Option<&'a Status> {
    before.filter(|before| before.uptime < now.uptime && before.requests <= now.requests)
}

/// The store's work between two readings; since its start, if there is no earlier one or it began
/// anew since.
pub fn store_frame(before: Option<&Status>, now: &Status) -> Frame {
    let before = same_run(before, now);
    let span = now.uptime - before.map_or(Duration::ZERO, |before| before.uptime);
    let requests = now.requests - before.map_or(0, |before| before.requests);
    let earlier_worker =
        |worker: &WorkerStatus| before?.workers.iter().find(|earlier| earlier.worker == worker.worker);
    let earlier_cpu = |cpu: &CpuStatus| before?.cpus.iter().find(|earlier| earlier.cpu == cpu.cpu);
    Frame {
        at: now.uptime,
        achieved: Some(Rate::of(requests, span)),
        workers: now
            .workers
            .iter()
            .map(|worker| worker_frame(worker, earlier_worker(worker), span))
            .collect(),
        cpus: now.cpus.iter().map(|cpu| cpu_frame(cpu, earlier_cpu(cpu), span)).collect(),
        transfers: Some(now.transfers.ordered + now.transfers.send_home),
        awake: Some(now.workers.iter().map(|worker| worker.awake).sum()),
        energy: now.energy.clone(),
        ..Frame::default()
    }
}

fn worker_frame(now: &WorkerStatus, before: Option<&WorkerStatus>, span: Duration) -> WorkerFrame {
    let busy = now.busy - before.map_or(Duration::ZERO, |before| before.busy);
    WorkerFrame {
        worker: now.worker,
        cpu: now.cpu,
        active: now.active,
        load: now.load,
        limit: now.limit,
        busy: Some(Ratio::of(busy, span)),
        residents: now.residents,
        guests: now.guests,
    }
}

fn cpu_frame(now: &CpuStatus, before: Option<&CpuStatus>, span: Duration) -> CpuFrame {
    let busy = now.busy.map(|busy| busy - before.and_then(|before| before.busy).unwrap_or_default());
    let share = |(state, time): &(String, Duration)| {
        let earlier = before.and_then(|before| before.residency.iter().find(|(name, _)| name == state));
        let earlier = earlier.map_or(Duration::ZERO, |(_, time)| *time);
        StateShare { state: state.clone(), share: Ratio::of(*time - earlier, span) }
    };
    CpuFrame {
        cpu: now.cpu,
        busy: busy.map(|busy| Ratio::of(busy, span)),
        residency: (!now.residency.is_empty()).then(|| now.residency.iter().map(share).collect()),
        limit: now.limit,
        in_force: now.in_force,
    }
}

/// The mean over CPUs of the share of time in each idle state.
pub fn mean_residency(cpus: &[CpuFrame]) -> Option<Vec<StateShare>> {
    let shares: Vec<&Vec<StateShare>> = cpus.iter().filter_map(|cpu| cpu.residency.as_ref()).collect();
    let states = shares.first()?;
    let mean = |at: usize| {
        let sum: f64 = shares.iter().filter_map(|of_cpu| Some(of_cpu.get(at)?.share.as_f64())).sum();
        Ratio::new(sum / shares.len() as f64)
    };
    Some(
        states
            .iter()
            .enumerate()
            .map(|(at, state)| StateShare { state: state.state.clone(), share: mean(at) })
            .collect(),
    )
}
