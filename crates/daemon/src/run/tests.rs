//! A daemon whose service is not there: its settings for it are held all the same, on a machine
//! made by hand.

use super::*;
use linux::arbiter::Connection;
use linux::arbiter::request::{IdleRequest, Request};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

struct Made {
    folder: tempfile::TempDir,
    daemon: Daemon,
    said: Arc<Mutex<Vec<String>>>,
    /// Kept, so that the daemon's messages to itself arrive.
    _heard: Receiver<Event>,
}

const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";

fn write(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// Two CPUs that share a clock, and a service on them without a listening process.
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
    /// Its answer to another configuration.
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
    // They are held still.
    let root = Root::at(made.folder.path());
    let refused =
        linux::FrequencyControl::open(&root, &"0-1".parse().unwrap(), linux::FrequencyOptions::new("x"));
    let own = Running::of(std::process::id()).to_string();
    assert!(refused.unwrap_err().to_string().contains(&own));
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
    made.daemon.arbiter.clocks.withdraw(NAME);
    made.daemon.arbiter.clocks.hold(NAME, &"0".parse().unwrap()).unwrap();
    let said = made.reload("");
    assert!(made.daemon.clocks.as_ref().unwrap().is_for(&"0-1".parse().unwrap()), "{said}");
}

#[test]
fn an_uncore_that_cannot_be_had_changes_nothing() {
    let mut made = made("");
    let before = made.daemon.config.clone();
    let file = made.folder.path().join("roost.toml");
    for keys in ["uncore = \"elc\"", "uncore = \"fixed:1.6GHz\""] {
        fs::write(&file, format!("{}{keys}\n", service(""))).unwrap();
        made.said.lock().unwrap().clear();
        made.daemon.reload();
        let said = made.said.lock().unwrap().join("\n");
        assert!(said.contains("modprobe intel-uncore-frequency"), "{said}");
        assert!(said.contains("the earlier one stays"), "{said}");
        assert_eq!(made.daemon.config, before);
    }
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
    assert!(lock("arbiter.lock") && !lock("cpu0.lock"));
    let text = service("move_interrupts = true") + "idle = \"70us\"\ncpus = \"0\"\n";
    fs::write(made.folder.path().join("roost.toml"), &text).unwrap();
    made.daemon.reload();
    let lock = |name: &str| fs::metadata(made.folder.path().join("run/roost").join(name)).is_ok();
    assert!(lock("cpu0.lock") && !lock("cpu1.lock"));
    fs::write(made.folder.path().join("roost.toml"), text.replace("cpus = \"0\"", "cpus = \"0-1\"")).unwrap();
    made.daemon.reload();
    assert!(made.folder.path().join("run/roost/cpu1.lock").exists(), "{:?}", made.said.lock().unwrap());
}

/// A lease of two controllers whose services are not there; the numbers of their runs.
fn leased(made: &mut Made) -> [u64; 2] {
    let part: Part = toml::from_str(
        "[[quiesce]]\nname = \"a\"\ncritical = [\"none-a\"]\nbackground = [\"/none\"]\n\
         [[quiesce]]\nname = \"b\"\ncritical = [\"none-b\"]\nbackground = [\"/none\"]\n",
    )
    .unwrap();
    let tables = part.tables();
    made.daemon.leases.insert(7, Lease { part, asker: Asker { user: 0, process: 1 }, pending: None });
    made.daemon.controllers.extend(tables.into_iter().map(|table| Hosted::new(table, Owner::Lease(7))));
    made.daemon.open_controllers();
    [made.daemon.runs - 1, made.daemon.runs]
}

fn reports(daemon: &Daemon) -> Vec<crate::controllers::ControllerReport> {
    daemon.controllers.iter().map(|hosted| hosted.report(String::new())).collect()
}

#[test]
fn a_controller_of_a_lease_is_withdrawn_alone_and_its_report_says_how_it_ended() {
    use crate::controllers::{ControllerState, RefusalKind};
    let mut made = made("");
    let [first, second] = leased(&mut made);
    let ended = |outcome| Happened::Ended { outcome, lines: Vec::new(), is_final: false };
    made.daemon.controller_tells(second, Happened::Opened);
    made.daemon.controller_tells(first, ended(Ok(Some("the service has ended".to_owned()))));
    let told = reports(&made.daemon);
    assert_eq!((told[0].state, told[0].refused), (ControllerState::Withdrawn, None));
    assert_eq!(told[0].why.as_deref(), Some("the service has ended"));
    assert_eq!(told[1].state, ControllerState::Running, "the other one goes on");
    let refused = Refusal { kind: crate::RefusalKind::Unsupported, message: "no program".to_owned() };
    made.daemon.controller_tells(second, ended(Err(refused)));
    let told = reports(&made.daemon);
    assert_eq!(
        (told[1].state, told[1].refused),
        (ControllerState::Withdrawn, Some(RefusalKind::Unsupported))
    );
}

#[test]
fn what_a_run_that_was_paused_still_tells_changes_nothing() {
    use crate::controllers::ControllerState;
    let mut made = made("");
    let [first, _] = leased(&mut made);
    let asker = Asker { user: 0, process: 1 };
    made.daemon.set_controller("quiesce:a", Set::Pause, asker).unwrap();
    // Its thread had refused, or had taken hold, just before.
    for stale in [Happened::Refused(Refusal::usage("no such unit")), Happened::Opened] {
        made.daemon.controller_tells(first, stale);
        assert_eq!(reports(&made.daemon)[0].state, ControllerState::Paused);
    }
    // Another one of its name is not concerned either.
    made.daemon.set_controller("quiesce:a", Set::Resume, asker).unwrap();
    made.daemon.open_controllers();
    let lines = vec!["put back".to_owned()];
    made.daemon.controller_tells(first, Happened::Ended { outcome: Ok(None), lines, is_final: true });
    assert_eq!(reports(&made.daemon)[0].state, ControllerState::Opening);
    assert!(made.said.lock().unwrap().iter().any(|line| line == "put back"), "its last line is said");
}

#[test]
fn a_lease_keeps_its_names_on_reload_and_ends_with_the_admission_of_its_user() {
    let mut made = made("users = [1234]");
    let part: Part = toml::from_str("[[service]]\nname = \"till\"\npid = 1\npolicy = \"fixed\"\n").unwrap();
    let service = part.services[0].clone();
    made.daemon.config.services.push(service.clone());
    made.daemon.leases.insert(7, Lease { part, asker: Asker { user: 1234, process: 1 }, pending: None });
    let state = State::Waiting { why: String::new(), until: Instant::ZERO, wait: FIRST_WAIT };
    made.daemon.slots.push(Slot { owner: Owner::Lease(7), config: service.clone(), state });
    let file = made.folder.path().join("roost.toml");
    fs::write(&file, self::service("users = [1234]").replace("shop", "till")).unwrap();
    made.daemon.reload();
    let said = made.said.lock().unwrap().join("\n");
    assert!(said.contains("till is governed for user 1234") && said.contains("is not taken"), "{said}");
    let said = made.reload("users = [1234]\nepoch = \"2s\"");
    assert!(made.daemon.leases.contains_key(&7), "{said}");
    for keys in ["", "users = [1234]\npark = \"all\"", "users = [1234]\nmove_interrupts = true"] {
        let part = Part { services: vec![service.clone()], ..Part::default() };
        made.daemon.leases.insert(7, Lease { part, asker: Asker { user: 1234, process: 1 }, pending: None });
        let said = made.reload(keys);
        assert!(made.daemon.leases.is_empty(), "{keys}: {said}");
        assert!(made.daemon.config.services.iter().all(|one| one.name == "shop"), "{said}");
    }
}

#[test]
fn a_service_whose_governing_panics_is_withdrawn_alone_until_it_is_resumed() {
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap());
    let [a, b] = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    let folder = tempfile::tempdir().unwrap();
    let service =
        |name: &str, port| format!("[[service]]\nname = \"{name}\"\nport = {port}\npolicy = \"fixed\"\n");
    let text = format!("epoch = \"20ms\"\n{}{}", service("a", a), service("b", b));
    let config: Config = toml::from_str(&text).unwrap();
    let config = Config { socket: folder.path().join("roost.sock"), ..config };
    let (events, heard) = std::sync::mpsc::channel();
    let socket = config.socket.clone();
    let options = Options {
        root: Root::system(),
        config,
        file: None,
        dry_run: true,
        strict: false,
        events: events.clone(),
        observer: None,
    };
    let daemon = Daemon::start(options, |_| {}).unwrap();
    if let Some(Slot { state: State::Waiting { why, .. }, .. }) = daemon.slots.first() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let looked_again = Arc::new(AtomicBool::new(false));
    let looks_again = Arc::clone(&looked_again);
    let asking = std::thread::spawn(move || {
        let waiting = || match crate::control::ask(&socket, &Ask::Status) {
            Ok(Answer::Status { waiting, governed, .. }) => (waiting, governed.len()),
            other => panic!("{other:?}"),
        };
        let until = |holds: &dyn Fn() -> bool| {
            while !holds() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        until(&|| waiting().1 == 1);
        let (gone, _) = waiting();
        assert_eq!(gone[0].0, "a");
        assert!(gone[0].1.contains("panicked"), "{gone:?}");
        let resume = Ask::Set { service: "a".into(), set: Set::Resume };
        assert_eq!(crate::control::ask(&socket, &resume).unwrap(), Answer::Done);
        until(&|| waiting().1 == 2);
        // Resumed is not looked at yet.
        until(&|| looks_again.load(Ordering::SeqCst));
        events.send(Event::Stop).unwrap();
    });
    let mut looks = BTreeMap::new();
    let finished = daemon.run(&heard, None, |governed| {
        let looks = looks.entry(governed.name().to_owned()).or_insert(0);
        *looks += 1;
        assert!(governed.name() != "a" || *looks != 2, "told to panic");
        looked_again.fetch_or(governed.name() == "a" && *looks > 2, Ordering::SeqCst);
    });
    asking.join().unwrap();
    assert_eq!(finished.outcome, Ok(()));
    assert!(looks["a"] > 2 && looks["b"] > 2, "{looks:?}");
}

#[test]
fn the_folder_of_the_socket_is_closed_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let round = Round::start("", false);
    let folder = fs::metadata(round.socket().parent().unwrap()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o711);
}

/// A daemon that goes round on a thread of its own, and stops when it is dropped.
struct Round {
    folder: tempfile::TempDir,
    events: Sender<Event>,
    thread: Option<std::thread::JoinHandle<Finished>>,
}

impl Round {
    fn start(keys: &str, dry_run: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "sys/devices/system/cpu/online", "0-3");
        for cpu in 0..4 {
            write(folder.path(), &limit_file(cpu), "0");
        }
        let mut running = Self { folder, events: std::sync::mpsc::channel().0, thread: None };
        running.begin(keys, dry_run);
        running
    }

    fn begin(&mut self, keys: &str, dry_run: bool) {
        let file = self.folder.path().join("roost.toml");
        fs::write(&file, keys).unwrap();
        let config = Config { socket: self.socket(), ..Config::load(&file).unwrap() };
        let (events, heard) = std::sync::mpsc::channel();
        self.events = events.clone();
        let root = Root::at(self.folder.path());
        let (ready, is_ready) = std::sync::mpsc::channel();
        self.thread = Some(std::thread::spawn(move || {
            let options =
                Options { root, config, file: Some(file), dry_run, strict: false, events, observer: None };
            let daemon = Daemon::start(options, |_| {}).unwrap();
            ready.send(()).unwrap();
            daemon.run(&heard, None, |_| {})
        }));
        is_ready.recv().unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("run/roost/roost.sock")
    }

    fn limit(&self, cpu: u16) -> String {
        fs::read_to_string(self.folder.path().join(limit_file(cpu))).unwrap().trim().to_owned()
    }

    fn until_limits(&self, wanted: [&str; 4]) {
        let limits = || [0, 1, 2, 3].map(|cpu| self.limit(cpu));
        for _ in 0..10_000 {
            if limits() == wanted {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("{:?} and not {wanted:?}", limits());
    }

    fn end(&mut self) {
        let _ = self.events.send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.end();
    }
}

fn limit_file(cpu: u16) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us")
}

/// Asks, and waits for the answer.
fn asked(
    connection: &mut Connection,
    idle: &[(&str, u64)],
) -> Result<linux::arbiter::request::Combined, String> {
    let idle = idle.iter().map(|&(cpus, us)| IdleRequest {
        cpus: cpus.parse().unwrap(),
        limit: machine::IdleLimit::ExitLatency(Duration::from_micros(us)),
    });
    let asker = "roost serve".to_owned();
    connection.ask(Request { asker, active: CpuList::default(), idle: idle.collect() }).unwrap();
    for _ in 0..10_000 {
        if let Some(answer) = connection.hear().unwrap() {
            return answer;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("no answer");
}

#[test]
fn what_connections_ask_is_combined_and_withdrawn_with_each() {
    let running = Round::start("", false);
    let open = || Connection::open(&running.socket()).unwrap();
    let (mut first, mut second) = (open(), open());
    asked(&mut first, &[("0-1", 70), ("2", 30)]).unwrap();
    running.until_limits(["70", "70", "30", "0"]);
    asked(&mut second, &[("1-3", 50)]).unwrap();
    running.until_limits(["70", "50", "30", "50"]);
    // Each request takes the place of the last one.
    asked(&mut first, &[("0", 20)]).unwrap();
    running.until_limits(["20", "50", "50", "50"]);
    let Ok(Answer::Status { asked: told, .. }) = crate::control::ask(&running.socket(), &Ask::Status) else {
        panic!("a status");
    };
    assert!(told.iter().any(|asked| asked.asker == "roost serve"
        && asked.process == std::process::id()
        && asked.cpus == "1-3".parse().unwrap()));
    drop(second);
    running.until_limits(["20", "0", "0", "0"]);
    drop(first);
    running.until_limits(["0"; 4]);
}

#[test]
fn a_connection_that_sends_nonsense_asks_for_nothing_any_more() {
    use std::io::{Read as _, Write as _};
    let running = Round::start("", false);
    let mut peer = std::os::unix::net::UnixStream::connect(running.socket()).unwrap();
    let line =
        "{\"knobs\":{\"asker\":\"x\",\"idle\":[{\"cpus\":\"0\",\"limit\":{\"exit_latency\":9000}}]}}\n";
    peer.write_all(line.as_bytes()).unwrap();
    running.until_limits(["9", "0", "0", "0"]);
    peer.write_all(b"{\"knobs\":{\"asker\":\"\\u001b\"}}\n").unwrap();
    let mut said = String::new();
    peer.read_to_string(&mut said).unwrap();
    assert!(said.contains("1 to 80 letters"), "{said}");
    running.until_limits(["0"; 4]);
}

#[test]
fn a_cpu_that_a_bench_holds_is_refused_by_name_and_nothing_is_left_of_the_request() {
    let running = Round::start("", false);
    let root = Root::at(running.folder.path());
    let options = linux::IdleOptions::new("roost bench");
    let _bench = linux::IdleControl::open(&root, &"3".parse().unwrap(), options).unwrap();
    let mut connection = Connection::open(&running.socket()).unwrap();
    let why = asked(&mut connection, &[("0-3", 70)]).unwrap_err();
    assert!(why.contains("cpu3") && why.contains("roost bench"), "{why}");
    running.until_limits(["0"; 4]);
}

#[test]
fn a_dry_run_sets_no_limit_for_others() {
    let running = Round::start("", true);
    let mut connection = Connection::open(&running.socket()).unwrap();
    assert!(asked(&mut connection, &[("0", 70)]).unwrap_err().contains("--dry-run"));
    running.until_limits(["0"; 4]);
}

#[test]
fn a_second_daemon_in_the_run_folder_is_refused_with_the_first_ones_name() {
    let running = Round::start("", false);
    let mut connection = Connection::open(&running.socket()).unwrap();
    asked(&mut connection, &[("0", 70)]).unwrap();
    let file = running.folder.path().join("second.toml");
    fs::write(
        &file,
        "[[service]]\nname = \"shop\"\nport = 9\npolicy = \"fixed\"\nidle = \"70us\"\ncpus = \"2\"\n",
    )
    .unwrap();
    let config = Config { socket: running.folder.path().join("second.sock"), ..Config::load(&file).unwrap() };
    let (events, _heard) = std::sync::mpsc::channel();
    let options = Options {
        root: Root::at(running.folder.path()),
        config,
        file: None,
        dry_run: false,
        strict: false,
        events,
        observer: None,
    };
    let refused = Refusal::from(Daemon::start(options, |_| {}).err().expect("refused"));
    assert_eq!(refused.kind, crate::controllers::RefusalKind::Held);
    let own = Running::of(std::process::id()).to_string();
    assert!(refused.message.contains(&own), "{}", refused.message);
}

#[test]
fn a_group_is_lent_nothing_and_left_alone_while_no_service_is_governed() {
    const BATCH: &str = "sys/fs/cgroup/batch.slice";
    let keys = "lend = \"cgroup:batch.slice\"\n[[service]]\nname = \"shop\"\nport = 9\npolicy = \"fixed\"\n";
    let mut round = Round::start("", false);
    let files = "cgroup.procs=4242 cgroup.freeze=0 cpuset.cpus= cpu.idle=0 cpu.weight=50";
    for (file, text) in files.split(' ').filter_map(|pair| pair.split_once('=')) {
        write(round.folder.path(), &format!("{BATCH}/{file}"), text);
    }
    write(round.folder.path(), &format!("{BATCH}/cgroup.events"), "populated 1\nfrozen 0");
    write(round.folder.path(), "proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0");
    write(round.folder.path(), "sys/fs/cgroup/cgroup.controllers", "cpuset cpu");
    write(round.folder.path(), "proc/4242/stat", "4242 (batch) R 1 0 0");
    round.end();
    round.begin(keys, false);
    let Ok(Answer::Status { lent, .. }) = crate::control::ask(&round.socket(), &Ask::Status) else {
        panic!("a status");
    };
    assert_eq!(lent, None);
    let read = |file: &str| fs::read_to_string(round.folder.path().join(BATCH).join(file)).unwrap();
    assert_eq!([read("cgroup.freeze"), read("cpu.idle"), read("cpu.weight")], ["0\n", "0\n", "50\n"]);
}
