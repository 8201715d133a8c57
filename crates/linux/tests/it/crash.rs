//! A process that dies by SIGKILL at any point of a change leaves nothing that `restore` cannot put
//! back.
//!
//! The test runs itself again as a child (`victim`), which changes limits below a folder and kills
//! itself at the given step. The parent then looks at the folder, restores, and looks again.

use crate::tree::{disabled, qos, server, write};
use linux::{IdleActuator, IdleControl, IdleOptions, Root, Step, restore};
use machine::{CpuId, CstateIndex, Duration, IdleLimit};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const HALT: IdleLimit = IdleLimit::ExitLatency(Duration::from_micros(2));
const CHILD_ROOT: &str = "ROOST_TEST_CHILD_ROOT";
const CHILD_PLAN: &str = "ROOST_TEST_CHILD_PLAN";

/// The way in which the child dies.
#[derive(Clone, Copy)]
pub struct Plan {
    pub actuator: IdleActuator,
    /// Its last step, counted from 1 over all changes; none: it stays until it is killed.
    pub dies_at: Option<usize>,
}

/// Not a test of its own: the body of the child process.
#[test]
fn victim() {
    let Ok(root) = std::env::var(CHILD_ROOT) else { return };
    let plan = std::env::var(CHILD_PLAN).unwrap();
    let (actuator, dies_at) = plan.split_once(' ').unwrap();
    let actuator = if actuator == "disable" { IdleActuator::Disable } else { IdleActuator::PmQos };
    let mut left: Option<usize> = dies_at.parse().ok();
    let checkpoint = Box::new(move |_: Step| {
        if let Some(left) = &mut left {
            *left -= 1;
            if *left == 0 {
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                    .unwrap();
            }
        }
    });
    let options =
        IdleOptions { holder: "victim".into(), actuator, yields: false, checkpoint: Some(checkpoint) };
    let mut control = IdleControl::open(&Root::at(root), &"2-3".parse().unwrap(), options).unwrap();
    // Limit, limit again in another way, withdraw one: every kind of change there is.
    control.apply(CpuId(2), HALT);
    control.apply(CpuId(3), IdleLimit::ExitLatency(Duration::ZERO));
    control.apply(CpuId(3), HALT);
    control.apply(CpuId(2), IdleLimit::None);
    // On both sides of a ceiling, and where the administrator has forbidden a state.
    control.forbid_shallower(CpuId(2), CstateIndex(3));
    control.forbid_shallower(CpuId(3), CstateIndex(3));
    control.apply(CpuId(3), HALT);
    control.apply(CpuId(2), HALT);
    // Windows, and limits within them.
    control.prepare_window(CpuId(2)).unwrap();
    control.set_window(CpuId(2), true).unwrap();
    control.apply(CpuId(2), IdleLimit::ExitLatency(Duration::from_micros(50)));
    control.set_window(CpuId(2), false).unwrap();
    control.set_window(CpuId(2), true).unwrap();
    control.apply(CpuId(2), HALT);
    control.set_window(CpuId(2), false).unwrap();
    control.end_windows(CpuId(2));
    println!("limits are in force");
    std::thread::sleep(std::time::Duration::from_secs(600));
}

fn spawn(root: &Path, plan: Plan) -> Child {
    let actuator = if plan.actuator == IdleActuator::Disable { "disable" } else { "pm_qos" };
    let dies_at = plan.dies_at.map_or("never".to_owned(), |step| step.to_string());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::victim", "--nocapture", "--test-threads=1"])
        .env(CHILD_ROOT, root)
        .env(CHILD_PLAN, format!("{actuator} {dies_at}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until the child has made all its changes. False if it died before.
fn ready(child: &mut Child) -> bool {
    use std::io::{BufRead, BufReader};
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    lines.map_while(Result::ok).any(|line| line.contains("limits are in force"))
}

/// Runs a child to the given step; false if it has fewer steps.
pub fn dies_at(root: &Path, plan: Plan) -> bool {
    let mut child = spawn(root, plan);
    let survived = ready(&mut child);
    if survived {
        child.kill().unwrap();
    }
    child.wait().unwrap();
    !survived
}

fn limits(root: &Path) -> Vec<(String, String)> {
    (0..8).map(|cpu| (qos(root, cpu), disabled(root, cpu))).collect()
}

#[test]
fn a_kill_between_any_two_steps_is_undone() {
    for actuator in [IdleActuator::PmQos, IdleActuator::Disable] {
        let (mut step, mut changed) = (1, 0);
        loop {
            let folder = server();
            write(folder.path(), "sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us", "70\n");
            write(folder.path(), "sys/devices/system/cpu/cpu3/cpuidle/state2/disable", "1\n");
            let before = limits(folder.path());
            let died = dies_at(folder.path(), Plan { actuator, dies_at: Some(step) });
            for cpu in [2, 3] {
                let reads = disabled(folder.path(), cpu);
                assert!(reads.contains('0'), "{actuator:?}, step {step}: cpu{cpu} has no state");
            }
            changed += usize::from(limits(folder.path()) != before);
            let report = restore(&Root::at(folder.path())).unwrap();
            assert_eq!(limits(folder.path()), before, "{actuator:?}, step {step}: {report:?}");
            assert_eq!((report.left_alone, report.failed), (0, 0), "{actuator:?}, step {step}: {report:?}");
            let again = restore(&Root::at(folder.path())).unwrap();
            assert_eq!(again.put_back, 0, "twice is once: {again:?}");
            if !died {
                break;
            }
            step += 1;
        }
        // Three steps to each of at least five changes, and most of the deaths really left
        // something behind.
        assert!(step > 15 && changed > 10, "{actuator:?}: {step} steps, {changed} left the machine changed");
    }
}

#[test]
fn after_a_kill_somebody_elses_change_is_left_alone() {
    let folder = server();
    assert!(!dies_at(folder.path(), Plan { actuator: IdleActuator::PmQos, dies_at: None }));
    assert_eq!((qos(folder.path(), 2), qos(folder.path(), 3)), ("2".into(), "2".into()));
    write(folder.path(), "sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us", "33\n");
    let report = restore(&Root::at(folder.path())).unwrap();
    assert_eq!((report.put_back, report.left_alone), (1, 1), "{report:?}");
    assert_eq!((qos(folder.path(), 2), qos(folder.path(), 3)), ("0".into(), "33".into()));
    assert!(report.lines.iter().any(|line| line.contains("victim (process")), "{report:?}");
}

#[test]
fn a_living_run_is_not_restored_and_not_robbed() {
    let folder = server();
    let root = Root::at(folder.path());
    let mut child = spawn(folder.path(), Plan { actuator: IdleActuator::PmQos, dies_at: None });
    assert!(ready(&mut child));
    let report = restore(&root).unwrap();
    assert_eq!((report.alive, report.put_back), (1, 0), "{report:?}");
    assert_eq!(qos(folder.path(), 2), "2");
    let error = IdleControl::open(&root, &"3-5".parse().unwrap(), IdleOptions::new("second")).unwrap_err();
    assert!(error.to_string().contains(&format!("victim (process {})", child.id())), "{error}");
    // CPUs that it does not hold are free, and a process that takes them does not disturb it.
    drop(IdleControl::open(&root, &"4-5".parse().unwrap(), IdleOptions::new("third")).unwrap());
    assert_eq!(qos(folder.path(), 2), "2");
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel has let go of the dead one's lock, and the next holder does not take its limits
    // for the machine's.
    let mut control = IdleControl::open(&root, &"2-3".parse().unwrap(), IdleOptions::new("second")).unwrap();
    let notices = control.drain_notices();
    assert!(notices.iter().any(|notice| notice.contains("put back from `2` to `0`")), "{notices:?}");
    control.apply(CpuId(2), HALT);
    drop(control);
    assert_eq!(qos(folder.path(), 2), "0");
}

#[test]
fn two_restores_at_once_put_back_once() {
    let folder = server();
    assert!(!dies_at(folder.path(), Plan { actuator: IdleActuator::PmQos, dies_at: None }));
    let root = Root::at(folder.path());
    let reports: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| restore(&root).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(reports.iter().map(|report| report.put_back).sum::<usize>(), 2, "{reports:?}");
    assert_eq!((qos(folder.path(), 2), qos(folder.path(), 3)), ("0".into(), "0".into()));
}
