use super::*;
use crate::fake::FakeMachine;

const TIMES: SuspendTimes =
    SuspendTimes { suspend: Duration::from_millis(20), flush: Duration::from_micros(20), looks: 100 };

fn machine() -> FakeMachine {
    let machine = FakeMachine::intel_server(2);
    for id in [257, 300] {
        machine.write(&format!("napi/eth0/{id}/gro-flush-timeout"), "0\n");
        machine.write(&format!("napi/eth0/{id}/defer-hard-irqs"), "2\n");
        machine.write(&format!("napi/eth0/{id}/irq-suspend-timeout"), "0\n");
    }
    machine
}

fn settings(machine: &FakeMachine, id: u32) -> [String; 3] {
    NapiSetting::ALL.map(|setting| machine.read(&napi_of("eth0", id, setting)))
}

#[test]
fn all_queues_are_set_and_put_back() {
    let machine = machine();
    let held = NicSuspension::open(machine.root(), "eth0", TIMES, "a test", None).unwrap();
    assert_eq!(held.queues(), 2);
    for id in [257, 300] {
        assert_eq!(settings(&machine, id), ["20000", "100", "20000000"]);
    }
    let error = NicSuspension::open(machine.root(), "eth0", TIMES, "another", None).unwrap_err();
    assert!(error.to_string().contains("a test"), "{error}");
    // Another program's change in the meantime stays.
    machine.write("napi/eth0/300/defer-hard-irqs", "7\n");
    drop(held);
    assert_eq!(settings(&machine, 257), ["0", "2", "0"]);
    assert_eq!(settings(&machine, 300), ["0", "7", "0"]);
}

#[test]
fn a_device_without_queues_and_a_wrong_name_are_refused_by_name() {
    let machine = machine();
    let refused = |device: &str| {
        NicSuspension::open(machine.root(), device, TIMES, "a test", None).unwrap_err().to_string()
    };
    assert!(refused("eth1").contains("eth1 has no queue"), "{}", refused("eth1"));
    for name in ["", "..", "a/b", "a name", "a_name_that_is_too_long"] {
        assert!(refused(name).contains("no name of a network device"), "{}", refused(name));
    }
    let of_loopback = NicSuspension::open(&Root::system(), "lo", TIMES, "a test", None).unwrap_err();
    assert!(of_loopback.to_string().contains("lo has no queue"), "{of_loopback}");
}

#[test]
fn an_epoll_set_takes_the_preference_where_the_kernel_knows_it() {
    use rustix::event::epoll;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    match prefer_busy_poll(&set, Duration::ZERO) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTTY.raw_os_error()) => {
            println!("SKIPPED: this kernel's epoll sets have no parameters (Linux 6.9 has)");
        }
        Err(error) => panic!("{error}"),
    }
    // No epoll set.
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(prefer_busy_poll(&file, Duration::ZERO).is_err());
}

/// A pair of devices, `device` with a queue, in a network namespace of the calling thread's own. Locks are
/// by name: each test has its own.
fn in_namespace(device: &str, act: impl FnOnce() + Send) {
    let run = |program: &str, words: &str| {
        let status = std::process::Command::new(program).args(words.split(' ')).status();
        status.is_ok_and(|status| status.success())
    };
    let body = || {
        // SAFETY: the thread ends with this test, and no other has its namespace.
        if unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.is_err() {
            return println!("SKIPPED: no network namespace of one's own: that takes root");
        }
        if !run("ip", &format!("link add {device} type veth peer name roost-peer")) {
            return println!("SKIPPED: no pair of devices (veth): that takes iproute2, and the module");
        }
        if !(run("ip", &format!("link set {device} up")) && run("ethtool", &format!("-K {device} gro on"))) {
            return println!("SKIPPED: the device has no queue: that takes ethtool");
        }
        if queues_of(device).map_or(true, |queues| queues.is_empty()) {
            return println!("SKIPPED: this kernel shows no queues (Linux 6.13 does)");
        }
        act();
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap());
}

fn real_settings(device: &str) -> Vec<[Option<u64>; 3]> {
    let queues = queues_of(device).unwrap();
    queues.iter().map(|queue| NapiSetting::ALL.map(|setting| queue.get(setting))).collect()
}

#[test]
fn a_real_queue_is_set_and_put_back() {
    const DEVICE: &str = "roost-test-0";
    in_namespace(DEVICE, || {
        let before = real_settings(DEVICE);
        let held = NicSuspension::open(&Root::system(), DEVICE, TIMES, "a test", None).unwrap();
        assert_eq!(real_settings(DEVICE), [[Some(20_000), Some(100), Some(20_000_000)]]);
        drop(held);
        assert_eq!(real_settings(DEVICE), before);
    });
}

const OUTSIDERS: &str = "roost-test-2";

#[test]
fn a_restore_puts_back_in_the_namespace_of_the_journal() {
    in_namespace(OUTSIDERS, || {
        let before = real_settings(OUTSIDERS);
        let victim = std::process::Command::new(std::env::current_exe().unwrap())
            .arg(module_path!().split_once("::").unwrap().1.to_owned() + "::a_process_dies_while_it_sets")
            .args(["--exact", "--ignored"])
            .env(DIES_AT, "9")
            .env(VICTIM, OUTSIDERS)
            .stdout(std::process::Stdio::null())
            .status();
        assert!(!victim.unwrap().success());
        assert_ne!(real_settings(OUTSIDERS), before);
        let outside = std::fs::File::open("/proc/self/ns/net").unwrap();
        let report = std::thread::scope(|scope| {
            let restore = || {
                let net = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(outside.as_fd(), net).unwrap();
                crate::restore(&Root::system()).unwrap()
            };
            scope.spawn(restore).join().unwrap()
        });
        assert_eq!(report.failed, 0, "{report:?}");
        assert_eq!(real_settings(OUTSIDERS), before, "{report:?}");
    });
}

const DIES_AT: &str = "ROOST_TEST_NIC_DIES_AT";
const VICTIM: &str = "ROOST_TEST_NIC_DEVICE";
const VICTIMS: &str = "roost-test-1";

/// Not a test: dies at a step, when the next test starts this program again.
#[test]
#[ignore = "the victim of another test"]
fn a_process_dies_while_it_sets() {
    let Ok(at) = std::env::var(DIES_AT) else { return };
    let mut left: u32 = at.parse().unwrap();
    let checkpoint = Box::new(move |_| {
        left -= 1;
        if left == 0 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    });
    let device = std::env::var(VICTIM).unwrap();
    drop(NicSuspension::open(&Root::system(), &device, TIMES, "victim", Some(checkpoint)).unwrap());
}

#[test]
fn a_kill_between_any_two_steps_is_undone() {
    use std::os::unix::process::ExitStatusExt as _;
    in_namespace(VICTIMS, || {
        let before = real_settings(VICTIMS);
        let mut deaths = 0;
        loop {
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .arg(module_path!().split_once("::").unwrap().1.to_owned() + "::a_process_dies_while_it_sets")
                .args(["--exact", "--ignored"])
                .env(DIES_AT, (deaths + 1).to_string())
                .env(VICTIM, VICTIMS)
                .stdout(std::process::Stdio::null())
                .status()
                .unwrap();
            if status.success() {
                break;
            }
            assert_eq!(status.signal(), Some(9), "{status}");
            deaths += 1;
            crate::restore(&Root::system()).unwrap();
            assert_eq!(real_settings(VICTIMS), before, "after {deaths} steps");
        }
        assert_eq!(real_settings(VICTIMS), before);
        // Three settings, three steps each.
        assert_eq!(deaths, 9);
    });
}
