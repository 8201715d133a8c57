use super::*;
use linux::arbiter::Arbiter;
use std::fs;
use std::path::PathBuf;

/// Two CPUs that share a clock.
fn machine(steps: &str) -> (tempfile::TempDir, Root, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("sys/devices/system/cpu/cpufreq/policy0");
    fs::create_dir_all(&policy).unwrap();
    fs::create_dir_all(folder.path().join("run")).unwrap();
    for (file, text) in [
        ("affected_cpus", "0 1"),
        ("cpuinfo_min_freq", "1000000"),
        ("cpuinfo_max_freq", "2600000"),
        ("scaling_min_freq", "1000000"),
        ("scaling_max_freq", "2600000"),
        ("scaling_setspeed", "<unsupported>"),
        ("scaling_governor", "schedutil"),
        ("scaling_available_frequencies", steps),
    ] {
        fs::write(policy.join(file), format!("{text}\n")).unwrap();
    }
    let root = Root::at(folder.path());
    (folder, root, policy.join("scaling_max_freq"))
}

const STEPS: &str = "2600000 2000000 1400000 1000000";

fn cpus(text: &str) -> CpuList {
    text.parse().unwrap()
}

fn at_most(mhz: u64) -> FrequencyLimit {
    FrequencyLimit::AtMost(Kilohertz(mhz * 1_000))
}

fn clocks(root: &Root) -> Clocks {
    let limits = Arbiter::new(root, "a test").clocks;
    limits.hold("services", &cpus("0-1")).unwrap();
    Clocks::of(&limits)
}

#[test]
fn the_fastest_wins_and_withdrawing_gives_what_the_rest_asks_for() {
    let (_folder, root, max) = machine(STEPS);
    let reads = || fs::read_to_string(&max).unwrap().trim().to_owned();
    let clocks = clocks(&root);
    clocks.join("cache", &cpus("0-1"));
    clocks.limit("cache", CpuId(0), at_most(1_000));
    assert_eq!(reads(), "2600000", "cpu1 is free, and shares the clock");
    clocks.limit("cache", CpuId(1), at_most(1_400));
    assert_eq!(reads(), "1400000");
    // Who has a say and asks for nothing wants all.
    clocks.join("search", &cpus("0"));
    assert_eq!(reads(), "2600000");
    clocks.limit("search", CpuId(0), at_most(2_000));
    assert_eq!(reads(), "2000000");
    clocks.withdraw("search");
    assert_eq!(reads(), "1400000");
    clocks.withdraw("cache");
    assert_eq!(reads(), "2600000");
    clocks.limit("cache", CpuId(0), at_most(1_000));
    drop(clocks);
    assert_eq!(reads(), "2600000");
}

#[test]
fn somebody_elses_change_is_repaired_once() {
    let (_folder, root, max) = machine(STEPS);
    let clocks = clocks(&root);
    for cpu in [0, 1] {
        clocks.limit("cache", CpuId(cpu), at_most(1_400));
    }
    assert_eq!(clocks.repair("cache"), Repair::Unneeded);
    fs::write(&max, "2000000\n").unwrap();
    assert!(matches!(clocks.repair("cache"), Repair::Done(what) if what.contains("scaling_max_freq")));
    assert_eq!(fs::read_to_string(&max).unwrap(), "1400000\n");
    fs::write(&max, "2000000\n").unwrap();
    assert!(matches!(clocks.repair("cache"), Repair::Vain(_)));
    clocks.withdraw("cache");
    assert_eq!(fs::read_to_string(&max).unwrap(), "2000000\n", "theirs stays");
}

#[test]
fn points_are_what_all_cpus_have() {
    let (_folder, root, _) = machine(STEPS);
    let table = points(&root, &cpus("0-1"), None).unwrap();
    assert_eq!((table.count(), table.khz(table.slowest())), (4, Kilohertz(1_000_000)));
    assert!(points(&root, &cpus("0-2"), None).unwrap_err().contains("2 of 3 CPUs"));
    // Any speed: every 100 MHz.
    let (_folder, root, _) = machine("");
    let table = points(&root, &cpus("0-1"), None).unwrap();
    assert_eq!((table.count(), table.khz(table.fastest())), (17, Kilohertz(2_600_000)));
    // More than a table holds.
    let many: Vec<String> = (0..100).map(|step| (1_000_000 + step * 16_000).to_string()).collect();
    let (_folder, root, _) = machine(&many.join(" "));
    let table = points(&root, &cpus("0-1"), None).unwrap();
    assert_eq!((table.count(), table.khz(table.fastest())), (32, Kilohertz(2_584_000)));
    let (_folder, root, _) = machine("1000000");
    assert_eq!(points(&root, &cpus("0-1"), None).unwrap().count(), 1);
}

#[test]
fn points_of_a_duty_cycle_cost_in_proportion_and_those_of_a_power_cap_are_even() {
    let (folder, root, _) = machine(STEPS);
    for (file, text) in [
        ("proc/cpuinfo", "vendor_id : GenuineIntel\nflags : acpi\n"),
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("dev/cpu/0/msr", ""),
        ("dev/cpu/1/msr", ""),
        ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
        ("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "100000000\n"),
    ] {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let table = points(&root, &cpus("0-1"), Some(FrequencyActuator::DutyCycle)).unwrap();
    let slowest = table.slowest();
    assert_eq!((table.count(), table.speed(slowest), table.power(slowest).as_watts()), (8, 0.125, 1.25));
    let table = points(&root, &cpus("0-1"), Some(FrequencyActuator::PowerCap)).unwrap();
    let watts: Vec<f64> = table.iter().map(|point| table.power(point).as_watts()).collect();
    assert_eq!(watts.len(), 32);
    assert!(watts.windows(2).all(|two| (two[1] - two[0] - 10.0 / 32.0).abs() < 1e-3), "{watts:?}");
}

#[test]
fn services_share_a_sockets_power_and_the_most_wins() {
    let (folder, root, _) = machine(STEPS);
    let zone = folder.path().join("sys/class/powercap/intel-rapl:0");
    fs::create_dir_all(&zone).unwrap();
    fs::write(folder.path().join("sys/devices/system/cpu/online"), "0-1\n").unwrap();
    fs::write(zone.join("name"), "package-0\n").unwrap();
    let limit = zone.join("constraint_0_power_limit_uw");
    fs::write(&limit, "100000000\n").unwrap();
    let reads = || fs::read_to_string(&limit).unwrap().trim().to_owned();
    let means = ClockMeans { actuator: Some(FrequencyActuator::PowerCap), allow_msr: false };
    let limits = Arbiter::new(&root, "a test").clocks;
    limits.use_means(means).unwrap();
    limits.hold("services", &cpus("0-1")).unwrap();
    let clocks = Clocks::of(&limits);
    clocks.limit("cache", CpuId(0), at_most(1_300));
    clocks.limit("search", CpuId(1), at_most(2_100));
    // Of 2.6 GHz: 0.527 of full power, rounded down to 16 of 32 steps, between 30 and 100 W.
    assert_eq!(reads(), "65000000");
    clocks.withdraw("search");
    assert_eq!(reads(), "100000000", "cpu1 is asked nothing now, and wants all");
    clocks.limit("search", CpuId(1), at_most(1_300));
    assert_eq!(reads(), "38750000");
    fs::write(&limit, "90000000\n").unwrap();
    assert!(matches!(clocks.repair("cache"), Repair::Done(_)));
    fs::write(&limit, "90000000\n").unwrap();
    assert!(matches!(clocks.repair("cache"), Repair::Vain(_)));
    clocks.withdraw("cache");
    clocks.withdraw("search");
    assert_eq!(reads(), "90000000", "theirs stays");
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let bare = Root::at(folder.path());
    assert_eq!(missing(&bare, FrequencyMode::Stock, &cpus("0"), ClockMeans::default()), None);
    let told = missing(&bare, FrequencyMode::Sensitivity, &cpus("0"), ClockMeans::default()).unwrap();
    assert!(told.contains("cpufreq") && told.contains("hint:"), "{told}");
    let (_folder, root, _) = machine(STEPS);
    for (actuator, told) in [
        (FrequencyActuator::Preference, "amd_pstate=active"),
        (FrequencyActuator::DutyCycle, "Intel's processors"),
        (FrequencyActuator::PowerCap, "/sys/class/powercap"),
    ] {
        let means = ClockMeans { actuator: Some(actuator), allow_msr: true };
        let reason = missing(&root, FrequencyMode::Pegasus, &cpus("0-1"), means).unwrap();
        assert!(reason.contains(told) && reason.matches("hint:").count() == 1, "{reason}");
    }
    assert_eq!(missing(&root, FrequencyMode::Pegasus, &cpus("0-1"), ClockMeans::default()), None);
    assert_eq!(
        missing(&root, FrequencyMode::Cap(Kilohertz(1_500_000)), &cpus("0-1"), ClockMeans::default()),
        None
    );
    let told =
        missing(&root, FrequencyMode::Cap(Kilohertz(900_000)), &cpus("0-1"), ClockMeans::default()).unwrap();
    assert!(told.contains("900MHz is beyond") && told.contains("write 1000MHz to 2600MHz"), "{told}");
}

#[test]
fn pace_is_over_busy_time_and_a_count_that_goes_back_is_none() {
    let seen = |instructions, cycles, ms| Seen { instructions, cycles, busy: Duration::from_millis(ms) };
    let (rate, clock) = pace(seen(1_000, 1_000, 10), seen(2_001_000, 1_001_000, 11)).unwrap();
    assert_eq!((rate.as_per_second(), clock), (2e9, Kilohertz(1_000_000)));
    assert_eq!(pace(seen(10, 10, 1), seen(5, 20, 2)), None);
    assert_eq!(pace(seen(10, 10, 1), seen(20, 20, 1)), None);
}

/// Two sockets of a CPU each, with other ranges of the uncore's clock; `elc` of them have ELC.
fn two_sockets(elc: usize) -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let write = |below: String, text: &str| {
        let path = folder.path().join("sys/devices/system/cpu").join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    write("online".to_owned(), "0-1");
    for (socket, range) in [["800000", "2500000"], ["1200000", "2400000"]].into_iter().enumerate() {
        write(format!("cpu{socket}/topology/physical_package_id"), &socket.to_string());
        let domain = format!("intel_uncore_frequency/package_0{socket}_die_00");
        for (file, value) in [("min", range[0]), ("max", range[1])] {
            write(format!("{domain}/{file}_freq_khz"), value);
            write(format!("{domain}/initial_{file}_freq_khz"), value);
        }
        if socket < elc {
            write(format!("{domain}/elc_floor_freq_khz"), range[0]);
        }
    }
    let root = Root::at(folder.path());
    (folder, root)
}

#[test]
fn the_uncore_has_the_clocks_that_all_sockets_of_a_service_have() {
    let (_folder, root) = two_sockets(0);
    let mhz = |mode: &str, on: &str| -> Vec<u64> {
        let clocks = uncore_clocks(&root, &cpus(on), mode.parse().unwrap());
        clocks.iter().map(|clock| clock.0 / 1000).collect()
    };
    assert_eq!(mhz("auto", "0-1"), (12..=24).map(|hundreds| hundreds * 100).collect::<Vec<_>>());
    assert_eq!(mhz("auto", "0").len(), 18);
    // One request that frees each of them.
    assert_eq!(mhz("elc", "0-1"), [2500]);
    assert_eq!((mhz("stock", "0-1"), mhz("fixed:2GHz", "0-1")), (vec![], vec![]));
}

#[test]
fn an_uncore_that_cannot_be_had_is_told_with_what_can() {
    let missing = |elc: usize, mode: &str, on: &str| {
        let (_folder, root) = two_sockets(elc);
        uncore_missing(&root, mode.parse().unwrap(), &cpus(on))
    };
    for (elc, mode, on) in
        [(0, "auto", "0-1"), (0, "fixed:2.4GHz", "0-1"), (1, "elc", "0"), (2, "elc", "0-1")]
    {
        assert_eq!(missing(elc, mode, on), None, "{mode} on {on}");
    }
    for (elc, mode, on, told) in [
        (0, "fixed:2.5GHz", "0-1", "write fixed:1200MHz to fixed:2400MHz"),
        (1, "elc", "0-1", "no efficiency latency control"),
        (1, "elc", "1", "no efficiency latency control"),
    ] {
        let why = missing(elc, mode, on).unwrap_or_default();
        assert!(why.contains(told), "{mode} on {on}: {why}");
    }
}
