use super::*;
use crate::fake::FakeMachine;
use crate::{FrequencyControl, FrequencyError, FrequencyOptions};
use FrequencyLimit::{AtMost, Exactly, None as Free};
use machine::CpuId;
use proptest::prelude::*;

fn mhz(mhz: u64) -> Kilohertz {
    Kilohertz(mhz * 1000)
}

/// Two sockets of two CPUs. The first has two clusters with ELC, the second is one die without.
fn machine() -> FakeMachine {
    let machine = FakeMachine::intel_server(4);
    for cpu in 0..4 {
        let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        machine.write(&file, &format!("{}\n", cpu / 2));
    }
    for (name, slowest, fastest) in [
        ("package_00_die_00", 800, 2500),
        ("package_01_die_00", 1200, 2400),
        ("uncore00", 800, 2200),
        ("uncore01", 800, 2500),
    ] {
        let mut files = vec![
            ("initial_min_freq_khz", slowest * 1000),
            ("initial_max_freq_khz", fastest * 1000),
            (MIN, slowest * 1000),
            (MAX, fastest * 1000),
        ];
        if name.starts_with("uncore") {
            files.extend([("package_id", 0), ("domain_id", 0), ("current_freq_khz", 1_800_000)]);
            files.extend([(FLOOR, 1_600_000), (BY_STEPS, 0)]);
            files.extend([("elc_low_threshold_percent", 10), ("elc_high_threshold_percent", 95)]);
        }
        for (file, value) in files {
            machine.write(&format!("{FOLDER}/{name}/{file}"), &format!("{value}\n"));
        }
    }
    machine
}

fn open(machine: &FakeMachine, cpus: &str) -> FrequencyControl {
    let options =
        FrequencyOptions { actuator: Some(FrequencyActuator::Uncore), ..FrequencyOptions::new("a test") };
    FrequencyControl::open(machine.root(), &cpus.parse().unwrap(), options).unwrap()
}

fn reads(machine: &FakeMachine, name: &str) -> [u64; 3] {
    [MIN, MAX, FLOOR].map(|file| {
        let path = format!("{FOLDER}/{name}/{file}");
        if machine.root().path(&path).exists() { machine.read(&path).parse().unwrap() } else { 0 }
    })
}

/// Asks for the same on each CPU of a socket.
fn ask(control: &mut FrequencyControl, cpus: [u16; 2], limit: FrequencyLimit) -> FrequencyState {
    cpus.map(|cpu| control.limit(CpuId(cpu), limit))[1].clone()
}

#[test]
fn domains_are_clusters_where_there_are_some_and_dies_elsewhere() {
    let machine = machine();
    machine.write("sys/devices/platform/AMDI0097:01/fclk_input", "1800\n");
    let mut gaps = Gaps::default();
    let domains = uncore_domains(machine.root(), &mut gaps);
    let told: Vec<(&str, String)> =
        domains.iter().map(|domain| (domain.name.as_str(), domain.cpus.to_string())).collect();
    let expected =
        [("uncore00", "0-1"), ("uncore01", "0-1"), ("package_01_die_00", "2-3"), ("AMDI0097:01", "2-3")];
    assert_eq!(told, expected.map(|(name, cpus)| (name, cpus.to_owned())));
    let elc = domains[0].elc.unwrap();
    assert_eq!((elc.floor, elc.low_percent, elc.rises_by_steps), (mhz(1600), Some(10), Some(false)));
    assert_eq!((domains[2].elc, domains[3].current), (None, Some(mhz(1800))));
    assert!(gaps.0.is_empty(), "{gaps:?}");
}

#[test]
fn strange_and_newer_files_are_gaps_and_the_rest_is_read() {
    let machine = machine();
    machine.write(&format!("{FOLDER}/uncore00/max_freq_khz"), "fast\n");
    machine.write(&format!("{FOLDER}/uncore01/initial_max_freq_khz"), "0\n");
    machine.write(&format!("{FOLDER}/uncore01/agent_types"), "core io\n");
    machine.write(&format!("{FOLDER}/uncore02/package_id"), "many\n");
    machine.write(&format!("{FOLDER}/something/max_freq_khz"), "1\n");
    let mut gaps = Gaps::default();
    let domains = uncore_domains(machine.root(), &mut gaps);
    assert_eq!((domains.len(), domains[0].max, domains[1].hardware), (3, None, None));
    assert_eq!(gaps.0.len(), 2, "{gaps:?}");
    // A domain with such a file is not set.
    let speeds = crate::speeds_by(machine.root(), &"0-3".parse().unwrap(), Some(FrequencyActuator::Uncore));
    assert_eq!(speeds.unwrap().iter().map(|speeds| speeds.cpus.to_string()).collect::<Vec<_>>(), ["2-3"]);
}

#[test]
fn a_cap_takes_the_bounds_and_the_floor_along() {
    let machine = machine();
    let before = machine.snapshot();
    let mut control = open(&machine, "0-3");
    control.limit(CpuId(0), AtMost(mhz(1400)));
    assert_eq!(reads(&machine, "uncore00"), [800_000, 2_200_000, 1_600_000], "its neighbour wants all");
    let state = control.limit(CpuId(1), AtMost(mhz(1200)));
    assert_eq!(state.to_string(), "at most 1400MHz");
    assert_eq!(reads(&machine, "uncore00"), [800_000, 1_400_000, 1_400_000]);
    assert_eq!(reads(&machine, "uncore01"), [800_000, 1_400_000, 1_400_000]);
    assert_eq!(reads(&machine, "package_00_die_00")[1], 2_500_000, "its clusters are written, and not it");
    ask(&mut control, [2, 3], AtMost(mhz(1250)));
    assert_eq!(reads(&machine, "package_01_die_00"), [1_200_000, 1_200_000, 0]);
    assert_eq!(control.limit(CpuId(0), Free), FrequencyState::Free);
    ask(&mut control, [2, 3], Free);
    assert_eq!(machine.snapshot(), before);
    ask(&mut control, [0, 1], AtMost(mhz(900)));
    drop(control);
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn a_fixed_clock_is_both_bounds_within_each_clusters_range() {
    let machine = machine();
    let before = machine.snapshot();
    let mut control = open(&machine, "0-1");
    ask(&mut control, [0, 1], Exactly(mhz(2400)));
    assert_eq!(reads(&machine, "uncore00"), [2_200_000; 3]);
    assert_eq!(reads(&machine, "uncore01"), [2_400_000; 3]);
    control.release();
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn elc_leaves_the_choice_to_the_hardware_and_is_refused_where_there_is_none() {
    let machine = machine();
    let before = machine.snapshot();
    machine.write(&format!("{FOLDER}/uncore01/{MIN}"), "1400000\n");
    let mut control = open(&machine, "0-3");
    let state = ask(&mut control, [0, 1], AtMost(mhz(2500)));
    assert!(state.to_string().starts_with("efficiency latency control"), "{state}");
    assert_eq!(reads(&machine, "uncore00"), [800_000, 2_200_000, 800_000]);
    assert_eq!(reads(&machine, "uncore01"), [800_000, 2_500_000, 800_000]);
    assert_eq!(machine.read(&format!("{FOLDER}/uncore01/{BY_STEPS}")), "1");
    let state = ask(&mut control, [2, 3], AtMost(mhz(2400)));
    assert!(state.to_string().contains("Linux 6.12"), "{state}");
    control.release();
    machine.write(&format!("{FOLDER}/uncore01/{MIN}"), "800000\n");
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn one_request_for_elc_serves_sockets_whose_fastest_clocks_differ() {
    let machine = machine();
    for (file, value) in [(FLOOR, "2000000"), (BY_STEPS, "0")] {
        machine.write(&format!("{FOLDER}/package_01_die_00/{file}"), &format!("{value}\n"));
    }
    let before = machine.snapshot();
    let mut control = open(&machine, "0-3");
    for cpus in [[0, 1], [2, 3]] {
        let state = ask(&mut control, cpus, AtMost(mhz(2500)));
        assert!(state.to_string().starts_with("efficiency latency control"), "{cpus:?}: {state}");
    }
    assert_eq!(reads(&machine, "package_01_die_00"), [1_200_000, 2_400_000, 1_200_000]);
    // A clock beyond the range, or below it, is none for the socket.
    for limit in [Exactly(mhz(2500)), AtMost(mhz(1100))] {
        let state = ask(&mut control, [2, 3], limit);
        assert!(state.to_string().contains("write 1200MHz to 2400MHz"), "{state}");
    }
    drop(control);
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn the_administrators_maximum_stays_and_another_programs_is_drift() {
    let machine = machine();
    machine.write(&format!("{FOLDER}/uncore01/{MAX}"), "1300000\n");
    let mut control = open(&machine, "0-1");
    let state = ask(&mut control, [0, 1], AtMost(mhz(1500)));
    assert!(matches!(state, FrequencyState::InForce { kept_stricter: true, .. }), "{state}");
    assert_eq!(reads(&machine, "uncore01")[1], 1_300_000);
    machine.write(&format!("{FOLDER}/uncore00/{MAX}"), "2000000\n");
    let drift = control.drift();
    assert_eq!(drift[0].to_string(), "max_freq_khz of CPU 0-1 reads 2000000 where we had set 1500000");
    control.reassert();
    assert_eq!(reads(&machine, "uncore00")[1], 1_500_000);
    control.release();
    assert_eq!(reads(&machine, "uncore00")[1], 2_000_000, "the other program's");
}

#[test]
fn a_socket_with_a_cpu_that_is_not_ours_keeps_its_uncore() {
    let machine = machine();
    let mut control = open(&machine, "1-3");
    let state = control.limit(CpuId(1), AtMost(mhz(1400)));
    assert!(state.to_string().contains("CPU 0 is not ours"), "{state}");
    // The uncore is another knob than the clock: its locks keep no one from that.
    let clock = FrequencyControl::open(
        machine.root(),
        &"2-3".parse().unwrap(),
        FrequencyOptions { actuator: Some(FrequencyActuator::Uncore), ..FrequencyOptions::new("second") },
    );
    assert!(matches!(clock.unwrap_err(), FrequencyError::Lock(_)));
    assert!(machine.root().path("run/roost/cpu2.uncore.lock").exists());
}

#[test]
fn a_machine_without_a_driver_is_told_how_to_get_one() {
    let machine = FakeMachine::intel_server(2);
    let error = crate::speeds_by(machine.root(), &"0-1".parse().unwrap(), Some(FrequencyActuator::Uncore))
        .unwrap_err();
    assert!(error.to_string().contains("modprobe intel-uncore-frequency"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is asked for, in whatever order: each file is as it was in the end.
    #[test]
    fn all_is_put_back(asked in proptest::collection::vec((0..4u16, 0..4u8, 8..26u64), 0..12)) {
        let machine = machine();
        let before = machine.snapshot();
        let mut control = open(&machine, "0-3");
        for (cpu, kind, hundreds) in asked {
            let clock = mhz(hundreds * 100);
            control.limit(CpuId(cpu), [Free, AtMost(clock), Exactly(clock), AtMost(mhz(2500))][usize::from(kind)]);
            for name in ["uncore00", "uncore01", "package_01_die_00"] {
                let [min, max, floor] = reads(&machine, name);
                prop_assert!(min <= max && floor <= max.max(1_600_000), "{name}: {min} {max} {floor}");
            }
        }
        drop(control);
        prop_assert_eq!(machine.snapshot(), before);
    }
}
