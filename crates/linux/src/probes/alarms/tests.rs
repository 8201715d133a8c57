use super::*;
use std::sync::mpsc::{Sender, channel};
use std::thread::{scope, sleep};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
/// Alarms go off on a CPU that goes idle. While others keep it busy without a pause the wait is
/// repeated, this many times.
const BUSY_MAX: usize = 10;

/// Ticks idle, of the two thousand of [`PATIENCE`], in which a look must meet a sleep.
const MUCH_IDLE: u64 = 200;

/// The last CPU's; `None`, and why, where the kernel has none.
fn alarm() -> Option<(AlarmProgram, KernelAlarm)> {
    let cpu = *crate::allowed_cpus().unwrap().0.last().unwrap();
    let program = crate::probes::unless_lacking(AlarmProgram::load())?;
    let alarm = program.alarm(cpu).unwrap();
    Some((program, alarm))
}

/// Waits on the alarm's CPU again and again, and reports each alarm with its time, until it is
/// notified while `ends` is set.
fn listen(alarm: &KernelAlarm, ends: &AtomicU64, heard: &Sender<(Option<FellDue>, Instant)>) {
    crate::pin_current_thread(alarm.cpu).unwrap();
    let mut waiter = alarm.waiter().unwrap();
    while ends.load(Ordering::SeqCst) == 0 {
        let fell = waiter.wait(None);
        // The test has failed if no thread reads it.
        let _ = heard.send((fell, crate::now()));
    }
}

/// Runs `test` beside such a thread.
fn beside(
    alarm: &KernelAlarm,
    test: impl FnOnce(&mut dyn FnMut() -> (Option<FellDue>, Instant)) + std::panic::UnwindSafe,
) {
    let ends = AtomicU64::new(0);
    let (heard, hears) = channel();
    scope(|scope| {
        let ends = &ends;
        scope.spawn(move || listen(alarm, ends, &heard));
        let mut next = || {
            for _ in 0..BUSY_MAX {
                let idle = crate::probes::idle_ticks(alarm.cpu);
                match hears.recv_timeout(PATIENCE) {
                    Ok(heard) => return heard,
                    Err(_) => assert_eq!(crate::probes::idle_ticks(alarm.cpu), idle, "it is told when idle"),
                }
            }
            panic!("others keep {} busy", alarm.cpu);
        };
        // A failed assertion must not leave the other thread waiting.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&mut next)));
        ends.store(1, Ordering::SeqCst);
        alarm.notify();
        if let Err(failed) = result {
            std::panic::resume_unwind(failed);
        }
    });
}

#[test]
fn who_waits_is_told_in_time_and_never_too_soon() {
    let Some((_program, alarm)) = alarm() else { return };
    beside(&alarm, |next| {
        for _ in 0..20 {
            let due = crate::now() + Duration::from_millis(3);
            alarm.set(Some(due));
            // The CPU may sleep by now, and only this test knows.
            if alarm.sleeps_past(Some(due)) {
                alarm.notify();
            }
            loop {
                let (fell, at) = next();
                let Some(fell) = fell else { continue };
                assert_eq!(fell.due, due);
                assert!(at >= due, "{at:?} before {due:?}");
                break;
            }
        }
    });
    let [set, refused] = alarm.counted();
    assert!(set >= 20 && refused == 0, "{set} set, {refused} refused");
}

#[test]
fn a_cpu_that_sleeps_past_a_new_time_is_known_and_rung() {
    let Some((_program, alarm)) = alarm() else { return };
    beside(&alarm, |next| {
        let far = crate::now() + Duration::from_secs(600);
        alarm.set(Some(far));
        alarm.notify();
        assert_eq!(next().0, None, "a call is no alarm");
        let (mut idle, mut began) = (crate::probes::idle_ticks(alarm.cpu), std::time::Instant::now());
        let mut turns = 0;
        // For a moment it is idle and its timer is not there yet, and a look then notifies once too
        // often.
        while !alarm.sleeps_past(Some(crate::now())) || alarm.sleeps_past(Some(far)) {
            sleep(std::time::Duration::from_millis(1));
            if began.elapsed() >= PATIENCE {
                turns += 1;
                let now = crate::probes::idle_ticks(alarm.cpu);
                // On a busy CPU a short sleep may pass between two looks.
                assert!(now - idle < MUCH_IDLE, "it sleeps, and its timer is there");
                if turns == BUSY_MAX {
                    eprintln!("SKIPPED: others keep {} busy, and its sleeps are looked at", alarm.cpu);
                    return;
                }
                (idle, began) = (now, std::time::Instant::now());
            }
        }
        assert!(!alarm.sleeps_past(None), "nothing is due");
        alarm.notify();
        assert_eq!(next().0, None);
    });
}

#[test]
fn a_time_that_moves_away_wakes_nobody_until_it_comes() {
    let Some((_program, alarm)) = alarm() else { return };
    beside(&alarm, |next| {
        // A thread that is held up for longer than this sets a time that has come already, and
        // tries a longer one.
        for soon in (0..8).map(|attempt| Duration::from_millis(20 << attempt)) {
            let soon = crate::now() + soon;
            alarm.set(Some(soon));
            alarm.notify();
            // Records of an earlier attempt are passed over.
            let first = loop {
                let fell = next().0;
                if fell.is_none_or(|fell| fell.due == soon) {
                    break fell;
                }
            };
            // Wherever the timer stands by now: the later time counts.
            let later = soon + Duration::from_millis(40);
            alarm.set(Some(later));
            if crate::now() >= soon {
                alarm.set(None);
                println!("held up");
                continue;
            }
            assert_eq!(first, None);
            let (fell, at) = next();
            assert_eq!(fell.map(|fell| fell.due), Some(later));
            assert!(at >= later);
            return;
        }
        panic!("it is held up for seconds");
    });
}

#[test]
fn a_time_that_came_while_the_cpu_was_busy_is_told_when_it_goes_idle() {
    let Some((_program, alarm)) = alarm() else { return };
    beside(&alarm, |next| {
        let due = std::thread::scope(|scope| {
            let busy = scope.spawn(|| {
                crate::pin_current_thread(alarm.cpu).unwrap();
                let due = crate::now() + Duration::from_millis(5);
                alarm.set(Some(due));
                while crate::now() < due + Duration::from_millis(5) {
                    std::hint::spin_loop();
                }
                due
            });
            busy.join().unwrap()
        });
        let (fell, at) = next();
        assert_eq!(fell, Some(FellDue { due, was_asleep: false }));
        assert!(at >= due + Duration::from_millis(5), "{at:?} for {due:?}");
    });
}

#[test]
fn who_waits_on_a_cpu_that_never_goes_idle_has_patience_for_so_long() {
    let Some((_program, alarm)) = alarm() else { return };
    // The CPU never goes idle while this thread spins; and where nothing is due, nothing comes
    // either way.
    crate::pin_current_thread(alarm.cpu).unwrap();
    let mut waiter = alarm.waiter().unwrap();
    let due = crate::now() + Duration::from_micros(100);
    alarm.set(Some(due));
    while crate::now() < due {
        std::hint::spin_loop();
    }
    assert_eq!(waiter.wait(Some(Duration::ZERO)), None);
    assert_eq!(waiter.wait(None).map(|fell| fell.due), Some(due), "once it goes idle");
    alarm.set(None);
    let began = crate::now();
    assert_eq!(waiter.wait(Some(Duration::from_millis(5))), None);
    assert!(crate::now() >= began + Duration::from_millis(5));
}

#[test]
fn there_is_no_alarm_where_there_is_no_cpu() {
    let Some((program, _alarm)) = alarm() else { return };
    assert!(program.alarm(CpuId(60_000)).is_err());
}
