use super::clock::{GOVERNOR, MAX, MIN, SPEED, USERSPACE};
use super::*;
use crate::cpufreq::FOLDER;
use crate::fake::FakeMachine;
use crate::journal::Step;
use FrequencyLimit::{AtMost, Exactly, None as Free};
use machine::Kilohertz;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const GHZ: fn(u64) -> Kilohertz = |tenths| Kilohertz(tenths * 100_000);

fn file(policy: u16, name: &str) -> String {
    format!("{FOLDER}/policy{policy}/{name}")
}

/// Domains of `share` CPUs each, under this governor, as acpi-cpufreq shows them.
fn machine(cpus: u16, share: u16, governor: &str) -> FakeMachine {
    let machine = FakeMachine::intel_server(cpus);
    for policy in (0..cpus).step_by(share.into()) {
        let affected: Vec<String> = (policy..policy + share).map(|cpu| cpu.to_string()).collect();
        let speed = if governor == USERSPACE { "2600000" } else { "<unsupported>" };
        for (name, text) in [
            ("affected_cpus", affected.join(" ").as_str()),
            ("cpuinfo_min_freq", "1000000"),
            ("cpuinfo_max_freq", "2600000"),
            ("scaling_min_freq", "1000000"),
            ("scaling_max_freq", "2600000"),
            ("scaling_setspeed", speed),
            ("scaling_governor", governor),
            ("scaling_available_governors", "schedutil userspace"),
            ("scaling_available_frequencies", "2600000 2300000 2000000 1700000 1400000 1000000"),
        ] {
            machine.write(&file(policy, name), &format!("{text}\n"));
        }
    }
    machine
}

fn open(machine: &FakeMachine, cpus: &str) -> FrequencyControl {
    FrequencyControl::open(machine.root(), &cpus.parse().unwrap(), FrequencyOptions::new("a test")).unwrap()
}

fn reads(machine: &FakeMachine, policy: u16) -> [String; 3] {
    [MIN, MAX, SPEED].map(|name| machine.read(&file(policy, name)))
}

fn refused(state: &FrequencyState, why: &str) -> bool {
    matches!(state, FrequencyState::Refused { reason } if reason.contains(why))
}

#[test]
fn a_cap_reaches_its_own_domain_alone_and_goes_with_its_owner() {
    for (governor, expected) in [
        ("schedutil", ["1000000", "1400000", "<unsupported>"]),
        (USERSPACE, ["1000000", "2600000", "1400000"]),
    ] {
        let machine = machine(4, 1, governor);
        let before = machine.snapshot();
        let mut control = open(&machine, "0-3");
        let state = control.limit(CpuId(2), AtMost(GHZ(14)));
        let by = if governor == USERSPACE { FrequencyActuator::SetSpeed } else { FrequencyActuator::Bounds };
        assert_eq!(
            state,
            FrequencyState::InForce {
                limit: AtMost(GHZ(14)),
                reads: GHZ(14),
                by,
                setting: None,
                kept_stricter: false
            }
        );
        assert_eq!(reads(&machine, 2), expected, "{governor}");
        for other in [0, 1, 3] {
            assert_ne!(reads(&machine, other), expected, "{governor}, cpu{other}");
        }
        assert_eq!(control.limit(CpuId(2), Free), FrequencyState::Free);
        assert_eq!(machine.snapshot(), before, "{governor}");
        control.limit(CpuId(1), AtMost(GHZ(10)));
        drop(control);
        assert_eq!(machine.snapshot(), before, "{governor}");
    }
}

#[test]
fn a_speed_is_both_bounds_and_they_never_cross() {
    let machine = machine(1, 1, "schedutil");
    let folder = machine.path(&format!("{FOLDER}/policy0"));
    let checkpoint: Checkpoint = Box::new(move |_: Step| {
        let khz = |name: &str| -> u64 {
            std::fs::read_to_string(folder.join(name)).unwrap().trim().parse().unwrap()
        };
        assert!(khz(MIN) <= khz(MAX), "{} {}", khz(MIN), khz(MAX));
    });
    let options = FrequencyOptions { checkpoint: Some(checkpoint), ..FrequencyOptions::new("a test") };
    let before = machine.snapshot();
    let mut control = FrequencyControl::open(machine.root(), &"0".parse().unwrap(), options).unwrap();
    for speed in [GHZ(20), GHZ(10), GHZ(26), GHZ(14), GHZ(23)] {
        control.limit(CpuId(0), Exactly(speed));
        let text = speed.0.to_string();
        assert_eq!(reads(&machine, 0)[..2], [text.clone(), text]);
        control.limit(CpuId(0), AtMost(GHZ(17)));
        assert_eq!(reads(&machine, 0)[..2], ["1000000", "1700000"]);
    }
    control.limit(CpuId(0), Exactly(GHZ(20)));
    drop(control);
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn caps_round_down_and_speeds_up_to_what_there_is() {
    let machine = machine(2, 1, "schedutil");
    let mut control = open(&machine, "0-1");
    control.limit(CpuId(0), AtMost(GHZ(15)));
    assert_eq!(reads(&machine, 0)[1], "1400000");
    control.limit(CpuId(1), Exactly(GHZ(15)));
    assert_eq!(reads(&machine, 1)[..2], ["1700000", "1700000"]);
}

#[test]
fn a_shared_clock_gets_the_fastest_of_what_its_cpus_ask_for() {
    let machine = machine(4, 4, "schedutil");
    let mut control = open(&machine, "0-3");
    let max = || machine.read(&file(0, MAX));
    for cpu in 0..3 {
        control.limit(CpuId(cpu), AtMost(GHZ(14)));
    }
    assert_eq!(max(), "2600000", "cpu3 is asked nothing and wants all");
    control.limit(CpuId(3), AtMost(GHZ(20)));
    assert_eq!(max(), "2000000");
    control.limit(CpuId(3), AtMost(GHZ(10)));
    assert_eq!(max(), "1400000");
    control.limit(CpuId(1), Free);
    assert_eq!(max(), "2600000");
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let machine = machine(4, 2, "schedutil");
    let before = machine.snapshot();
    let mut control = open(&machine, "0-2");
    let state = control.limit(CpuId(0), AtMost(GHZ(30)));
    assert!(refused(&state, "3000MHz is beyond what CPU 0-1 can do: write 1000MHz to 2600MHz"), "{state}");
    assert!(refused(&control.limit(CpuId(0), Exactly(Kilohertz(999_999))), "999.999MHz is beyond"));
    // A domain of which another process has a CPU, and a CPU that belongs to no domain here.
    let state = control.limit(CpuId(2), AtMost(GHZ(14)));
    assert!(refused(&state, "CPU 2-3 can only change speed together, and CPU 3 is not ours"), "{state}");
    assert!(refused(&control.limit(CpuId(9), AtMost(GHZ(14))), "not among the CPUs"));
    assert_eq!(machine.snapshot(), before);
    let notices = control.drain_notices();
    control.limit(CpuId(0), AtMost(GHZ(30)));
    assert!(!notices.is_empty() && control.drain_notices().is_empty(), "said once: {notices:?}");
}

#[test]
fn the_administrators_bounds_stay_and_their_changes_are_theirs() {
    let machine = machine(2, 1, "schedutil");
    machine.write(&file(0, MAX), "1700000\n");
    machine.write(&file(1, MIN), "2000000\n");
    let mut control = open(&machine, "0-1");
    let state = control.limit(CpuId(0), AtMost(GHZ(20)));
    assert!(matches!(state, FrequencyState::InForce { kept_stricter: true, .. }), "{state}");
    assert!(state.to_string().contains("administrator"), "{state}");
    assert_eq!(machine.read(&file(0, MAX)), "1700000");
    control.limit(CpuId(1), AtMost(GHZ(14)));
    assert_eq!(reads(&machine, 1)[..2], ["2000000", "2000000"]);
    // The administrator's, set while ours was in force.
    control.limit(CpuId(0), AtMost(GHZ(14)));
    assert_eq!(control.drift(), []);
    machine.write(&file(0, MAX), "2300000\n");
    let drift = control.drift();
    assert_eq!(drift.len(), 1);
    assert_eq!(drift[0].to_string(), "scaling_max_freq of CPU 0 reads 2300000 where we had set 1400000");
    control.reassert();
    assert_eq!((machine.read(&file(0, MAX)).as_str(), control.drift()), ("1400000", vec![]));
    let lines = control.release();
    assert_eq!(machine.read(&file(0, MAX)), "2300000");
    assert!(lines.iter().any(|line| line.contains("from `1400000` to `2300000`")), "{lines:?}");
}

#[test]
fn a_cap_never_raises_a_speed_that_somebody_chose() {
    let machine = machine(1, 1, USERSPACE);
    machine.write(&file(0, SPEED), "1400000\n");
    let mut control = open(&machine, "0");
    let state = control.limit(CpuId(0), AtMost(GHZ(20)));
    assert!(
        matches!(state, FrequencyState::InForce { reads, kept_stricter: true, .. } if reads == GHZ(14)),
        "{state}"
    );
    assert_eq!(machine.read(&file(0, SPEED)), "1400000");
    control.limit(CpuId(0), Exactly(GHZ(20)));
    assert_eq!(machine.read(&file(0, SPEED)), "2000000");
    drop(control);
    assert_eq!(machine.read(&file(0, SPEED)), "1400000");
}

#[test]
fn a_governor_is_replaced_where_allowed_and_comes_back() {
    let machine = machine(2, 1, "schedutil");
    machine.write(&file(1, "scaling_available_governors"), "performance powersave\n");
    // A plain folder has no kernel that brings the speed's file to life.
    machine.write(&file(0, SPEED), "1000000\n");
    let before = machine.snapshot();
    let options = FrequencyOptions { may_replace_governor: true, ..FrequencyOptions::new("a test") };
    let mut control = FrequencyControl::open(machine.root(), &"0-1".parse().unwrap(), options).unwrap();
    assert_eq!(machine.read(&file(0, GOVERNOR)), USERSPACE);
    assert_eq!(machine.read(&file(1, GOVERNOR)), "schedutil");
    assert_eq!(machine.read(&file(0, SPEED)), "2600000", "free is fast, for nothing else raises it");
    control.limit(CpuId(0), AtMost(GHZ(17)));
    control.limit(CpuId(1), AtMost(GHZ(17)));
    assert_eq!(
        (machine.read(&file(0, SPEED)).as_str(), machine.read(&file(1, MAX)).as_str()),
        ("1700000", "1700000")
    );
    control.limit(CpuId(0), Free);
    assert_eq!(machine.read(&file(0, SPEED)), "2600000");
    drop(control);
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn a_governor_that_somebody_changes_takes_the_other_way() {
    let machine = machine(1, 1, USERSPACE);
    let mut control = open(&machine, "0");
    control.limit(CpuId(0), AtMost(GHZ(14)));
    machine.write(&file(0, GOVERNOR), "schedutil\n");
    machine.write(&file(0, SPEED), "<unsupported>\n");
    assert_eq!(control.drift().len(), 1);
    control.reassert();
    assert_eq!(reads(&machine, 0), ["1000000", "1400000", "<unsupported>"]);
    drop(control);
    assert_eq!(reads(&machine, 0), ["1000000", "2600000", "<unsupported>"]);
}

/// Makes a file of a domain one of the real kernel's.
fn becomes(machine: &FakeMachine, name: &str, real: &str) {
    machine.remove(&file(0, name));
    std::os::unix::fs::symlink(real, machine.path(&file(0, name))).unwrap();
}

#[test]
fn what_the_kernel_refuses_is_a_state_with_its_reason() {
    // EINVAL: this one takes -1000 to 1000.
    let machine = machine(1, 1, USERSPACE);
    becomes(&machine, SPEED, "/proc/self/oom_score_adj");
    let mut control = open(&machine, "0");
    let state = control.limit(CpuId(0), Exactly(GHZ(20)));
    assert!(refused(&state, "scaling_setspeed cannot be written: Invalid argument"), "{state}");
    drop(control);
    // EACCES, or EROFS in a container: this file cannot be written, not even by root.
    becomes(&machine, SPEED, "/sys/class/net/lo/addr_assign_type");
    let mut control = open(&machine, "0");
    let state = control.limit(CpuId(0), Exactly(GHZ(20)));
    assert!(refused(&state, "scaling_setspeed cannot be written"), "{state}");
    // Nonsense is not written over, and a file that is gone is a reason.
    machine.remove(&file(0, SPEED));
    machine.write(&file(0, SPEED), "fast\n");
    let state = control.limit(CpuId(0), AtMost(GHZ(20)));
    assert!(refused(&state, "reads `fast`"), "{state}");
    drop(control);
    machine.remove(&file(0, SPEED));
    let state = open(&machine, "0").limit(CpuId(0), AtMost(GHZ(20)));
    assert!(refused(&state, "no such file"), "{state}");
    // Bounds that no such machine can have.
    machine.write(&file(0, GOVERNOR), "schedutil\n");
    machine.write(&file(0, MAX), "0\n");
    let state = open(&machine, "0").limit(CpuId(0), AtMost(GHZ(20)));
    assert!(refused(&state, "which this hardware does not have"), "{state}");
}

#[test]
fn half_a_speed_is_taken_back() {
    let machine = machine(1, 1, "schedutil");
    let (kernel, before) = (machine.path(&file(0, MAX)), machine.snapshot());
    // A kernel in which another request holds the upper bound. The lower one is written first on
    // the way down.
    let checkpoint: Checkpoint = Box::new(move |_| std::fs::write(&kernel, "2600000\n").unwrap());
    let options = FrequencyOptions { checkpoint: Some(checkpoint), ..FrequencyOptions::new("a test") };
    let mut control = FrequencyControl::open(machine.root(), &"0".parse().unwrap(), options).unwrap();
    let state = control.limit(CpuId(0), Exactly(GHZ(20)));
    assert!(refused(&state, "scaling_max_freq reads 2600000 after 2000000 was written"), "{state}");
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn without_clocks_there_is_nothing_to_hold() {
    let machine = FakeMachine::virtual_machine(2);
    let error = FrequencyControl::open(machine.root(), &"0-1".parse().unwrap(), FrequencyOptions::new("x"))
        .unwrap_err();
    assert!(matches!(error, FrequencyError::Unsupported { .. }));
    assert!(error.to_string().contains("cpufreq") && error.to_string().contains("hint:"), "{error}");
    assert_eq!(speeds(machine.root(), &"0-1".parse().unwrap()), []);
}

#[test]
fn clocks_have_one_holder_and_sleeps_another() {
    let machine = machine(4, 1, "schedutil");
    let cpus: CpuList = "0-1".parse().unwrap();
    let _sleeps =
        crate::IdleControl::open(machine.root(), &cpus, crate::IdleOptions::new("roost serve")).unwrap();
    let _first = open(&machine, "0-1");
    let second =
        FrequencyControl::open(machine.root(), &"1-2".parse().unwrap(), FrequencyOptions::new("another"));
    let error = second.unwrap_err().to_string();
    assert!(error.contains("cpu1 is held by a test (process"), "{error}");
    open(&machine, "2-3");
}

/// A bound that the kernel takes up after we have stopped waiting is ours all the same.
#[test]
fn a_bound_that_comes_into_force_too_late_is_put_back() {
    let machine = machine(1, 1, "schedutil");
    let (path, before) = (machine.path(&file(0, MAX)), machine.snapshot());
    let late = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&late);
    let kernel = path.clone();
    // A kernel that has not taken the text up yet: the written text disappears for now.
    let checkpoint: Checkpoint = Box::new(move |step: Step| {
        let text = std::fs::read_to_string(&kernel).unwrap();
        if step == Step::Committed && text != "2600000\n" {
            written.lock().unwrap().push(text);
            std::fs::write(&kernel, "2600000\n").unwrap();
        }
    });
    let options = FrequencyOptions { checkpoint: Some(checkpoint), ..FrequencyOptions::new("a test") };
    let mut control = FrequencyControl::open(machine.root(), &"0".parse().unwrap(), options).unwrap();
    let state = control.limit(CpuId(0), AtMost(GHZ(14)));
    assert!(matches!(state, FrequencyState::Refused { .. }), "{state}");
    assert_eq!(late.lock().unwrap().as_slice(), ["1400000\n"]);
    drop(control);
    assert_eq!(machine.snapshot(), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// For any requests and any changes by other programs meanwhile: a domain is free if a CPU of
    /// it is, else at the fastest request; and in the end all reads as before, or as another
    /// program left it.
    #[test]
    fn domains_follow_their_cpus_and_the_end_is_the_beginning(
        share in 1u16..3,
        userspace in any::<bool>(),
        asks in prop::collection::vec((0u16..4, 0u64..32, any::<bool>()), 1..30),
    ) {
        let governor = if userspace { USERSPACE } else { "schedutil" };
        let machine = machine(4, share, governor);
        let before = machine.snapshot();
        let mut control = open(&machine, "0-3");
        let mut asked = BTreeMap::new();
        for (cpu, tenths, exactly) in asks {
            let limit = match (tenths, exactly) {
                (0..5, _) => Free,
                (_, true) => Exactly(GHZ(tenths)),
                (_, false) => AtMost(GHZ(tenths)),
            };
            let state = control.limit(CpuId(cpu), limit);
            let possible = matches!(tenths, 0..5 | 10..=26);
            prop_assert_eq!(possible, !matches!(state, FrequencyState::Refused { .. }), "{} {}", tenths, state);
            if possible {
                asked.insert(cpu, limit);
            }
            for policy in (0..4).step_by(share.into()) {
                let of: Vec<_> = (policy..policy + share).map(|cpu| asked.get(&cpu).copied().unwrap_or(Free)).collect();
                let [min, max, speed] = reads(&machine, policy);
                let runs = if userspace { &speed } else { &max };
                let khz = |limit: &FrequencyLimit| match limit {
                    Free => 2_600_000,
                    AtMost(khz) | Exactly(khz) => khz.0,
                };
                let fastest = of.iter().map(khz).max().unwrap();
                let reads: u64 = runs.parse().unwrap();
                // Rounded to a step, which are at most 400 MHz apart.
                prop_assert!(reads.abs_diff(fastest) < 400_000, "{} for {:?}", reads, of);
                prop_assert!(min.parse::<u64>().unwrap() <= max.parse::<u64>().unwrap());
                if of.contains(&Free) {
                    prop_assert_eq!(reads, 2_600_000);
                }
            }
        }
        drop(control);
        prop_assert_eq!(machine.snapshot(), before);
    }
}
