//! A process that holds frequencies and dies by SIGKILL at any point of a change leaves nothing
//! that `restore` cannot put back.
//!
//! As in `crash`: the test runs itself again as a child, which changes frequencies below a folder
//! and kills itself at the given step.

use crate::files;
use crate::tree::{server, write};
use linux::{FrequencyActuator, FrequencyControl, FrequencyOptions, FrequencyState, Root, Step, restore};
use machine::{CpuId, FrequencyLimit, Kilohertz};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const CHILD_ROOT: &str = "ROOST_TEST_CHILD_CLOCK_ROOT";
const CHILD_PLAN: &str = "ROOST_TEST_CHILD_CLOCK_PLAN";

/// Not a test of its own: the body of the child process.
#[test]
fn victim() {
    let Ok(root) = std::env::var(CHILD_ROOT) else { return };
    let plan = std::env::var(CHILD_PLAN).unwrap();
    let (means, dies_at) = plan.split_once(' ').unwrap();
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
    let actuator = match means {
        "epp" => Some(FrequencyActuator::Preference),
        "duty-cycle" => Some(FrequencyActuator::DutyCycle),
        "rapl" => Some(FrequencyActuator::PowerCap),
        "uncore" => Some(FrequencyActuator::Uncore),
        _ => None,
    };
    let options = FrequencyOptions {
        actuator,
        allow_msr: true,
        may_replace_governor: means == "true",
        checkpoint: Some(checkpoint),
        ..FrequencyOptions::new("victim")
    };
    let mut control = FrequencyControl::open(&Root::at(root), &"2-3".parse().unwrap(), options).unwrap();
    let ghz = |tenths: u64| Kilohertz(tenths * 100_000);
    // Every kind of change there is: caps and, where it has them, speeds, up and down, withdrawn
    // and not.
    let exactly = match actuator {
        Some(FrequencyActuator::Preference | FrequencyActuator::PowerCap) => FrequencyLimit::AtMost,
        _ => FrequencyLimit::Exactly,
    };
    let mut limit = |cpu, limit| match control.limit(CpuId(cpu), limit) {
        FrequencyState::Refused { reason } => panic!("{reason}"),
        state => state,
    };
    limit(2, FrequencyLimit::AtMost(ghz(14)));
    limit(3, exactly(ghz(20)));
    limit(3, exactly(ghz(10)));
    limit(2, FrequencyLimit::None);
    limit(3, exactly(ghz(23)));
    limit(2, FrequencyLimit::AtMost(ghz(17)));
    println!("limits are in force");
    std::thread::sleep(std::time::Duration::from_secs(600));
}

/// Runs a child to the given step of all its changes; false if it has fewer, and is killed after
/// the last.
pub fn dies_at(root: &Path, may_replace_governor: bool, step: usize) -> bool {
    dies_by(root, &may_replace_governor.to_string(), step)
}

/// The same by this means.
fn dies_by(root: &Path, means: &str, step: usize) -> bool {
    use std::io::{BufRead, BufReader};
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "frequency::victim", "--nocapture", "--test-threads=1"])
        .env(CHILD_ROOT, root)
        .env(CHILD_PLAN, format!("{means} {step}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let survived = lines.map_while(Result::ok).any(|line| line.contains("limits are in force"));
    if survived {
        child.kill().unwrap();
    }
    child.wait().unwrap();
    !survived
}

/// Eight CPUs with a frequency each.
fn clocks(governor: &str, speed: &str) -> TempDir {
    let folder = server();
    for cpu in 0..8 {
        for (file, text) in [
            ("affected_cpus", cpu.to_string().as_str()),
            ("cpuinfo_min_freq", "1000000"),
            ("cpuinfo_max_freq", "2600000"),
            ("scaling_min_freq", "1000000"),
            ("scaling_max_freq", if cpu == 3 { "2300000" } else { "2600000" }),
            ("scaling_setspeed", speed),
            ("scaling_governor", governor),
            ("scaling_available_governors", "ondemand userspace"),
            ("scaling_available_frequencies", "2600000 2300000 2000000 1700000 1400000 1000000"),
        ] {
            write(
                folder.path(),
                &format!("sys/devices/system/cpu/cpufreq/policy{cpu}/{file}"),
                &format!("{text}\n"),
            );
        }
        let setting = format!("sys/devices/system/cpu/cpufreq/policy{cpu}/ondemand/up_threshold");
        write(folder.path(), &setting, "80\n");
    }
    folder
}

fn all(root: &Path) -> Vec<String> {
    let files = [
        "scaling_min_freq",
        "scaling_max_freq",
        "scaling_setspeed",
        "scaling_governor",
        "ondemand/up_threshold",
    ];
    let read = |cpu: u16, file: &str| {
        fs::read_to_string(root.join(format!("sys/devices/system/cpu/cpufreq/policy{cpu}/{file}"))).unwrap()
    };
    (0..8).flat_map(|cpu| files.map(|file| format!("{cpu} {file} {}", read(cpu, file)))).collect()
}

/// Kills at each step in turn on a fresh machine, as long as `dies` says that it died there, and
/// checks that all is `seen` as before. A trial needs more steps than `least.0`, and more deaths
/// with remains than `least.1`.
fn every_kill_is_undone<T: PartialEq + std::fmt::Debug>(
    what: &str,
    least: (usize, usize),
    machine: impl Fn() -> TempDir,
    seen: impl Fn(&Path) -> T,
    dies: impl Fn(&Path, usize) -> bool,
) {
    let mut changed = 0;
    for step in 1.. {
        let folder = machine();
        let before = seen(folder.path());
        let died = dies(folder.path(), step);
        changed += usize::from(seen(folder.path()) != before);
        let report = restore(&Root::at(folder.path())).unwrap();
        assert!(seen(folder.path()) == before, "{what}, step {step}: {report:?}");
        assert_eq!((report.left_alone, report.failed), (0, 0), "{what}, step {step}: {report:?}");
        assert_eq!(restore(&Root::at(folder.path())).unwrap().put_back, 0, "twice is once");
        if !died {
            assert!(
                step > least.0 && changed > least.1,
                "{what}: {step} steps, {changed} left the machine changed"
            );
            break;
        }
    }
}

#[test]
fn a_kill_between_any_two_steps_is_undone() {
    for (governor, speed, may_replace) in
        [("ondemand", "<unsupported>", false), ("userspace", "2600000", false), ("ondemand", "2000000", true)]
    {
        every_kill_is_undone(
            &format!("{governor} {may_replace}"),
            (15, 10),
            || clocks(governor, speed),
            all,
            |root, step| dies_at(root, may_replace, step),
        );
    }
}

#[test]
fn after_a_kill_somebody_elses_change_is_left_alone() {
    let folder = clocks("ondemand", "<unsupported>");
    assert!(!dies_at(folder.path(), false, 1000));
    let file = "sys/devices/system/cpu/cpufreq/policy2/scaling_max_freq";
    write(folder.path(), file, "1200000\n");
    let report = restore(&Root::at(folder.path())).unwrap();
    assert_eq!((report.left_alone, report.put_back), (1, 1), "{report:?}");
    assert_eq!(fs::read_to_string(folder.path().join(file)).unwrap(), "1200000\n");
}

/// CPUs 2 and 3 as both threads of a core, which is a socket: with a preference, a register each,
/// and a power limit.
fn knobs() -> TempDir {
    let folder = clocks("powersave", "<unsupported>");
    let root = folder.path();
    write(root, "proc/cpuinfo", "vendor_id : GenuineIntel\nflags : acpi\n");
    for cpu in 0..8 {
        let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
        write(root, &format!("{policy}/scaling_driver"), "amd-pstate-epp\n");
        write(root, &format!("{policy}/energy_performance_preference"), "performance\n");
        let names = "default performance balance_performance balance_power power\n";
        write(root, &format!("{policy}/energy_performance_available_preferences"), names);
        for file in ["core_id", "physical_package_id"] {
            let place = format!("sys/devices/system/cpu/cpu{cpu}/topology/{file}");
            write(root, &place, &format!("{}\n", cpu / 2));
        }
        write(root, &format!("dev/cpu/{cpu}/msr"), &"\0".repeat(0x200));
    }
    for socket in 0..4 {
        let zone = format!("sys/class/powercap/intel-rapl:{socket}");
        write(root, &format!("{zone}/name"), &format!("package-{socket}\n"));
        write(root, &format!("{zone}/constraint_0_power_limit_uw"), "100000000\n");
        write(root, &format!("{zone}/constraint_0_max_power_uw"), "90000000\n");
        write(root, &format!("{zone}/enabled"), "0\n");
        let uncore = format!("sys/devices/system/cpu/intel_uncore_frequency/uncore0{socket}");
        for (file, value) in [
            ("package_id", socket),
            ("initial_min_freq_khz", 800_000),
            ("initial_max_freq_khz", 2_500_000),
            ("min_freq_khz", 1_200_000),
            ("max_freq_khz", 2_500_000),
            ("elc_floor_freq_khz", 1_600_000),
            ("elc_high_threshold_enable", 0),
        ] {
            write(root, &format!("{uncore}/{file}"), &format!("{value}\n"));
        }
    }
    folder
}

/// Every file that the kernel would show.
fn everything(root: &Path) -> Vec<(PathBuf, String)> {
    files::below(vec![root.join("sys"), root.join("dev")])
}

#[test]
fn a_kill_is_undone_whatever_the_means() {
    for means in ["epp", "duty-cycle", "rapl", "uncore"] {
        every_kill_is_undone(means, (10, 5), knobs, everything, |root, step| dies_by(root, means, step));
    }
}

#[test]
fn after_a_kill_somebody_elses_change_survives_whatever_the_means() {
    // CPU 3's frequency is so near the fastest that its preference stays; a socket has a switch
    // beside its limit.
    for (means, others, file, theirs) in [
        (
            "epp",
            0,
            "sys/devices/system/cpu/cpufreq/policy2/energy_performance_preference",
            "balance_performance\n",
        ),
        ("rapl", 1, "sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw", "80000000\n"),
        ("uncore", 0, "sys/devices/system/cpu/intel_uncore_frequency/uncore01/max_freq_khz", "2000000\n"),
        ("duty-cycle", 1, "dev/cpu/3/msr", &format!("{}\u{12}{}", "\0".repeat(0x19A), "\0".repeat(0x65))),
    ] {
        let folder = knobs();
        assert!(!dies_by(folder.path(), means, 1000));
        write(folder.path(), file, theirs);
        let report = restore(&Root::at(folder.path())).unwrap();
        assert_eq!((report.left_alone, report.put_back), (1, others), "{means}: {report:?}");
        assert_eq!(fs::read_to_string(folder.path().join(file)).unwrap(), theirs);
    }
}
