//! A daemon whose service is not there: what it holds for it is held all the same, on a machine made by hand.

use super::*;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

struct Made {
    folder: tempfile::TempDir,
    daemon: Daemon,
    said: Arc<Mutex<Vec<String>>>,
    /// Kept, so that what the daemon tells itself arrives.
    _heard: Receiver<Event>,
}

const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";

fn write(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// Two CPUs that share a clock, and a service on them that nobody listens for.
fn made(keys: &str) -> Made {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("affected_cpus", "0 1"),
        ("cpuinfo_min_freq", "1000000"),
        ("cpuinfo_max_freq", "2600000"),
        ("scaling_min_freq", "1000000"),
        ("scaling_max_freq", "2600000"),
        ("scaling_setspeed", "<unsupported>"),
        ("scaling_governor", "schedutil"),
        ("scaling_available_governors", "schedutil userspace"),
        ("scaling_available_frequencies", "2600000 2000000 1400000 1000000"),
    ] {
        write(folder.path(), &format!("{POLICY}/{file}"), text);
    }
    write(folder.path(), "sys/devices/system/cpu/online", "0-1");
    let file = folder.path().join("roost.toml");
    fs::write(&file, service(keys)).unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&said);
    let config = Config { socket: folder.path().join("roost.sock"), ..Config::load(&file).unwrap() };
    let (events, heard) = std::sync::mpsc::channel();
    let options = Options {
        root: Root::at(folder.path()),
        config,
        file: Some(file),
        dry_run: false,
        strict: false,
        events,
        observer: None,
    };
    let daemon = Daemon::start(options, move |line| hears.lock().unwrap().push(line.to_owned())).unwrap();
    Made { folder, daemon, said, _heard: heard }
}

fn service(keys: &str) -> String {
    format!(
        "{keys}\n[[service]]\nname = \"shop\"\nport = 9\npolicy = \"fixed\"\ngoal = \"1ms@p99\"\nfrequency = \"pegasus\"\n"
    )
}

impl Made {
    /// What it says to another configuration.
    fn reload(&mut self, keys: &str) -> String {
        self.said.lock().unwrap().clear();
        fs::write(self.folder.path().join("roost.toml"), service(keys)).unwrap();
        self.daemon.reload();
        self.said.lock().unwrap().join("\n")
    }

    fn governor(&self) -> String {
        fs::read_to_string(self.folder.path().join(POLICY).join("scaling_governor"))
            .unwrap()
            .trim()
            .to_owned()
    }
}

#[test]
fn other_means_of_clocks_are_taken_on_reload_and_the_old_ones_put_back() {
    let mut made = made("");
    assert_eq!(made.governor(), "schedutil");
    // Who names the speed gets the governor that takes one.
    let said = made.reload("frequency_actuator = \"speed\"");
    assert_eq!(made.governor(), "userspace", "{said}");
    assert!(said.contains("read again"), "{said}");
    let said = made.reload("frequency_actuator = \"bounds\"");
    assert_eq!(made.governor(), "schedutil", "{said}");
    // They are held still: another process has to ask for them.
    let root = Root::at(made.folder.path());
    let cpus = "0-1".parse().unwrap();
    let other = Clocks::open(&root, &cpus, "another", linux::holder::ClockMeans::default()).unwrap();
    let notices = other.drain_notices();
    assert!(notices.iter().any(|notice| notice.contains("held by roost govern")), "{notices:?}");
}

#[test]
fn a_clock_that_is_shared_with_further_cpus_can_be_set_when_those_are_named_too() {
    let mut made = made("");
    let file = made.folder.path().join("roost.toml");
    let mut reload = |cpus: &str| {
        fs::write(&file, service("") + &format!("cpus = \"{cpus}\"\n")).unwrap();
        made.daemon.reload();
        let clocks = made.daemon.clocks.clone().unwrap();
        let cap = machine::FrequencyLimit::AtMost(machine::Kilohertz(1_400_000));
        for cpu in 0..2 {
            clocks.limit("a test", machine::CpuId(cpu), cap);
        }
        let max = fs::read_to_string(made.folder.path().join(POLICY).join("scaling_max_freq")).unwrap();
        clocks.withdraw("a test");
        max.trim().to_owned()
    };
    // Fewer CPUs are no reason to hold them anew.
    assert_eq!(reload("0"), "1400000");
    assert_eq!(reload("0-1"), "1400000");
    // More are: of a clock that is held in part nothing may be set.
    let mut made = self::made("");
    made.daemon.clocks = None;
    let root = Root::at(made.folder.path());
    let means = linux::holder::ClockMeans::default();
    made.daemon.clocks = Some(Clocks::open(&root, &"0".parse().unwrap(), NAME, means).unwrap());
    let said = made.reload("");
    assert!(made.daemon.clocks.as_ref().unwrap().is_for(&"0-1".parse().unwrap()), "{said}");
}

#[test]
fn means_that_cannot_be_had_change_nothing() {
    let mut made = made("frequency_actuator = \"speed\"");
    let before = made.daemon.config.clone();
    for (keys, why) in [
        ("frequency_actuator = \"rapl\"", "/sys/class/powercap"),
        ("frequency_actuator = \"epp\"", "amd_pstate=active"),
        ("frequency_actuator = \"duty-cycle\"", "allow_msr"),
        ("frequency_actuator = \"warp\"", "warp"),
    ] {
        let said = made.reload(keys);
        assert!(
            said.contains("the configuration is not taken, the earlier one stays") && said.contains(why),
            "{said}"
        );
        assert_eq!((&made.daemon.config, made.governor().as_str()), (&before, "userspace"));
    }
}

#[test]
fn whom_parking_concerns_and_more_cpus_are_taken_on_reload() {
    let mut made = made("");
    let lock = |name: &str| fs::metadata(made.folder.path().join("run/roost").join(name)).is_ok();
    assert!(lock("active.lock") && !lock("cpu0.lock"));
    let text = service("move_interrupts = true") + "idle = \"70us\"\ncpus = \"0\"\n";
    fs::write(made.folder.path().join("roost.toml"), &text).unwrap();
    made.daemon.reload();
    let lock = |name: &str| fs::metadata(made.folder.path().join("run/roost").join(name)).is_ok();
    assert!(lock("cpu0.lock") && !lock("cpu1.lock"));
    fs::write(made.folder.path().join("roost.toml"), text.replace("cpus = \"0\"", "cpus = \"0-1\"")).unwrap();
    made.daemon.reload();
    assert!(made.folder.path().join("run/roost/cpu1.lock").exists(), "{:?}", made.said.lock().unwrap());
}
