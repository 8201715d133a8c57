//! The counts of the program in the kernel against those of cpuidle: two views of the same sleeps.

use linux::probes::{IdleCounts, IdleProgram};
use linux::{Root, StateCounts, idle_table, pin_current_thread, state_counts};
use machine::{CpuId, CpuList};

/// The CPUs, or a line with the reason that nothing can be compared here.
fn machine() -> Option<(IdleProgram, CpuList)> {
    let root = Root::system();
    let cpus = linux::online_cpus(&root).unwrap();
    if let Err(error) = idle_table(&root, cpus.0.iter().copied().next().unwrap()) {
        eprintln!("skipped: no cpuidle to compare with: {error}");
        return None;
    }
    match IdleProgram::load(true) {
        Ok(program) => Some((program, cpus)),
        Err(error) if error.is_lack() => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Sleeps on `cpu`, of lengths for which a kernel would choose different states.
fn nap(cpu: CpuId, rounds: u64) {
    let napping = move || {
        pin_current_thread(cpu).unwrap();
        for round in 0..rounds {
            std::thread::sleep(std::time::Duration::from_micros([100, 900, 15_000][round as usize % 3]));
        }
    };
    std::thread::spawn(napping).join().unwrap();
}

/// Both counts of `cpu`, taken while a thread runs there, so that no sleep is under way. `None`
/// before its first event.
fn both(program: &IdleProgram, cpu: CpuId) -> Option<(IdleCounts, Vec<StateCounts>)> {
    std::thread::scope(|scope| {
        let here = scope.spawn(|| {
            pin_current_thread(cpu).unwrap();
            let counted = program.read().into_iter().find(|counts| counts.cpu == cpu)?;
            Some((counted, state_counts(&Root::system(), cpu).unwrap()))
        });
        here.join().unwrap()
    })
}

/// The first event of a CPU only begins its record. `None` where it never slept: other work keeps
/// it busy, and no thread's naps are its sleeps.
fn begun(program: &IdleProgram, cpu: CpuId) -> Option<(IdleCounts, Vec<StateCounts>)> {
    let sleeps = || state_counts(&Root::system(), cpu).unwrap().iter().map(|state| state.usage).sum::<u64>();
    let before = sleeps();
    let mut tries = (0..1000).map(|_| {
        nap(cpu, 3);
        both(program, cpu)
    });
    let begun = tries.find_map(|counts| counts);
    assert!(begun.is_some() || sleeps() <= before + 1, "{cpu} slept unseen");
    begun
}

#[test]
fn counts_are_cpuidles_own_and_times_agree() {
    let Some((program, cpus)) = machine() else { return };
    for &cpu in &cpus.0 {
        let Some((counted_before, kernel_before)) = begun(&program, cpu) else {
            println!("SKIPPED on {cpu}: other work kept it from any sleep in 3000 naps");
            continue;
        };
        let slept_since = |kernel: &[StateCounts]| {
            kernel.iter().zip(&kernel_before).any(|(now, before)| now.usage > before.usage)
        };
        let mut tries = (0..100).map(|_| {
            nap(cpu, 90);
            both(&program, cpu).unwrap()
        });
        let Some((counted, kernel)) = tries.find(|(_, kernel)| slept_since(kernel)) else {
            println!("SKIPPED on {cpu}: other work kept it from any sleep in 9000 naps");
            continue;
        };
        let mut slept = 0;
        for state in 0..kernel.len() {
            let seen = counted.idle[state].since(&counted_before.idle[state]);
            let kernels = |counts: &[StateCounts]| counts[state].usage + counts[state].rejected.unwrap_or(0);
            let expected = kernels(&kernel) - kernels(&kernel_before);
            assert!(
                seen.count().abs_diff(expected) <= 1,
                "{cpu} state{state}: {} for {expected}",
                seen.count()
            );
            // One period more or less between the two readings is up to 15 ms; else within 1 %, and
            // 3 us a sleep, since the kernel takes its times inside of the events.
            let time = kernel[state].time - kernel_before[state].time;
            let allowed = time.as_nanos() / 100 + 3_000 * expected + 15_000_000;
            assert!(
                seen.time().as_nanos().abs_diff(time.as_nanos()) <= allowed,
                "{cpu} state{state}: {} for {time} in {expected} sleeps",
                seen.time()
            );
            slept += seen.count();
        }
        assert!(slept > 0, "{cpu} slept unseen");
        assert_eq!(counted.odd, 0);
    }
}
