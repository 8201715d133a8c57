//! The policies that choose clocks, on the lab's machine of eight CPUs with six frequencies each
//! (`lab/run frequency-policies`).
//!
//! An emulator has no counters and its clock changes no speed. So the *observations* are made up
//! here: instructions by the cap that is in force, tails by the same. The *actions* are real: a
//! port of the machine, one for each CPU, reads Linux' commands.

use crate::govern_lab::{self, Other, Server};
use crate::lab_ports::commanded;
use daemon::{Clocks, Policy, ServiceConfig, points};
use linux::arbiter::Arbiter;
use linux::{FrequencyState, Root};
use machine::{
    Command, CpuId, CpuList, CpuReading, Duration, FrequencyLimit, Goal, Instant, Kilohertz, Rate, Ratio,
    Reading, ServiceReading,
};
use policy::frequency::{pegasus, sensitivity};
use policy::governing::{
    Cores, CpuTopology, Frequency, FrequencyMode, IdleMode, Input, Params, ServiceController,
};
use policy::log::Recorded as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

fn all() -> CpuList {
    "0-7".parse().expect("CPUs")
}

fn begin(governor: &str) {
    for cpu in 0..8 {
        for (file, text) in [
            ("scaling_governor", "userspace"),
            // The kernel does not repeat a command that it believes to be in force.
            ("scaling_setspeed", "1000000"),
            ("scaling_setspeed", "2600000"),
            ("scaling_governor", governor),
        ] {
            let path = format!("/sys/devices/system/cpu/cpufreq/policy{cpu}/{file}");
            std::fs::write(&path, text)
                .expect("this needs the lab's machine: run `lab/run frequency-policies`");
        }
    }
    until([26; 8]);
}

/// The kernel takes bounds up a moment later, and a busy host lets it wait.
fn until(wanted: [u8; 8]) {
    for _ in 0..2_000 {
        if commanded() == wanted {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(commanded(), wanted);
}

/// A policy whose commands about clocks are carried out.
struct Driven {
    policy: ServiceController,
    clocks: Clocks,
    now: Instant,
}

impl Driven {
    fn by(frequency: Frequency) -> Self {
        let root = Root::system();
        let cores = (0..8).map(|cpu| vec![CpuId(cpu)]).collect();
        let topology = CpuTopology {
            cores,
            points: Some(points(&root, &all(), None).expect("clocks")),
            ..CpuTopology::default()
        };
        let params = Params { frequency, ..Params::new(Cores::All, IdleMode::Stock) };
        let limits = Arbiter::new(&root, "lab").clocks;
        limits.hold("lab", &all()).expect("no other process has them");
        let clocks = Clocks::of(&limits);
        clocks.join("shop", &all());
        Self { policy: ServiceController::new(params, topology), clocks, now: Instant::ZERO }
    }

    fn cap(&self, cpu: u16) -> Kilohertz {
        match self.policy.clocks().get(&CpuId(cpu)) {
            Some(FrequencyLimit::AtMost(clock) | FrequencyLimit::Exactly(clock)) => *clock,
            _ => Kilohertz(2_600_000),
        }
    }

    fn tell(&mut self, input: &Input) {
        self.now += Duration::from_secs(1);
        for decided in self.policy.apply(self.now, input) {
            if let Command::SetFrequency { cpu, limit } = decided.command {
                let mut state = self.clocks.limit("shop", cpu, limit);
                for _ in 0..20 {
                    // Under a busy host 50 ms may be too little for the kernel of an emulator.
                    if !matches!(state, FrequencyState::Refused { .. }) {
                        break;
                    }
                    state = self.clocks.limit("shop", cpu, limit);
                }
                assert!(!matches!(state, FrequencyState::Refused { .. }), "{cpu} {limit:?}: {state}");
            }
        }
    }
}

fn service(tail: Duration) -> ServiceReading {
    ServiceReading { rate: Some(Rate::per_second(1e4)), tail: Some(tail), ..ServiceReading::default() }
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run frequency-policies"]
fn each_core_s_clock_follows_what_its_work_makes_of_it() {
    for governor in ["userspace", "performance"] {
        begin(governor);
        let slack = Ratio::new(0.1);
        let params =
            sensitivity::Params { step: Duration::from_secs(1), slack, ..sensitivity::Params::default() };
        let mut driven = Driven::by(Frequency::Sensitivity(params));
        // CPUs 0-3 only compute, 4-6 only wait for memory, 7 is idle and nothing is counted there.
        let mut slowest = [26; 8];
        for _ in 0..24 {
            let reading = |cpu: u16| {
                let computing = if cpu < 4 { 1.0 } else { 0.0 };
                let slower = 2_600_000.0 / driven.cap(cpu).0 as f64;
                let counted = cpu < 7;
                CpuReading {
                    cpu: CpuId(cpu),
                    busy: Some(Ratio::new(if counted { 0.5 } else { 0.0 })),
                    residency: None,
                    premature: None,
                    instructions: counted
                        .then(|| Rate::per_second(1e9 / (computing * slower + 1.0 - computing))),
                    clock: counted.then(|| driven.cap(cpu)),
                }
            };
            let cpus = (0..8).map(reading).collect();
            let service = service(Duration::from_micros(100));
            driven.tell(&Input::Reading(Reading { cpus, service, ..Reading::default() }));
            for (slowest, now) in slowest.iter_mut().zip(commanded()) {
                *slowest = now.min(*slowest);
            }
        }
        println!("{governor}: slowest seen {slowest:?}, now {:?}", commanded());
        // 10 % is less than the smallest step costs a thread that only computes, and
        // all of it costs a thread nothing that only waits.
        until([26, 26, 26, 26, 10, 10, 10, commanded()[7]]);
        assert_eq!(slowest[..7], [10; 7], "each was tried in the slowest operating point");
        driven.tell(&Input::Pause(true));
        until([26; 8]);
        assert_eq!(driven.clocks.release_of("lab"), [""; 0], "nothing is left to put back");
    }
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run frequency-policies"]
fn all_clocks_go_as_low_as_the_goal_allows_and_up_at_once_when_it_is_missed() {
    for governor in ["userspace", "performance"] {
        begin(governor);
        let goal: Goal = "1ms@p99".parse().expect("a goal");
        let mut driven = Driven::by(Frequency::Pegasus(goal, pegasus::Params::default()));
        // A tail in inverse proportion to the clock: within the band of 0.85 to 1 at 1.7 GHz and at
        // no other.
        let mut at = Vec::new();
        for _ in 0..80 {
            let tail = Duration::from_nanos(1_600_000 * 1_000_000 / driven.cap(0).0);
            driven.tell(&Input::Reading(Reading { service: service(tail), ..Reading::default() }));
            if at.last() != Some(&driven.cap(0).0) {
                at.push(driven.cap(0).0);
            }
        }
        println!("{governor}: {at:?}");
        until([17; 8]);
        driven.tell(&Input::Reading(Reading {
            service: service(Duration::from_millis(9)),
            ..Reading::default()
        }));
        until([26; 8]);
        drop(driven);
        until([26; 8]);
    }
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run frequency-policies"]
fn a_running_server_s_clocks_are_slowed_by_the_daemon_and_found_as_they_were() {
    begin("performance");
    let folder = std::env::temp_dir().join(format!("clocks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let server = Server::start();
    let config = ServiceConfig {
        policy: Policy::Fixed,
        goal: Some("10s@p50".parse().expect("a goal")),
        idle: IdleMode::Stock.into(),
        frequency: FrequencyMode::Pegasus,
        ..govern_lab::service(&server)
    };
    let daemon = govern_lab::govern_as(config, &folder);
    let client = TcpStream::connect(("127.0.0.1", server.port)).expect("it accepts");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut lines = BufReader::new(&client).lines();
            let mut writer = &client;
            while writer.write_all(b"hello\n").is_ok() && lines.next().is_some_and(|line| line.is_ok()) {}
        });
        let status = daemon.until("slower clocks", |status| {
            status.clocks.len() == 8
                && status.clocks.values().all(|cap| *cap == FrequencyLimit::AtMost(Kilohertz(2_000_000)))
        });
        println!("{} after {} epochs, seen by {}", status.frequency, status.epochs, status.seen_by);
        until([20; 8]);
        let _ = client.shutdown(std::net::Shutdown::Both);
    });
    let lines = daemon.end();
    println!("{}", lines.join("\n"));
    until([26; 8]);
    let _ = std::fs::remove_dir_all(&folder);
}

/// A server whose clocks are capped for as long as it is governed.
fn capped(server: &Server, name: &str, mhz: u64) -> ServiceConfig {
    ServiceConfig {
        name: name.to_owned(),
        policy: Policy::Fixed,
        goal: None,
        idle: IdleMode::Stock.into(),
        frequency: FrequencyMode::Cap(Kilohertz(mhz * 1_000)),
        ..govern_lab::service(server)
    }
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run frequency-policies"]
fn two_services_share_the_clocks_and_the_faster_wins() {
    // Under the first governor a cap is a speed, under the second it is a bound.
    for governor in ["userspace", "performance"] {
        begin(governor);
        let (shop, cache) = (Server::start_in("lab-shop"), Server::start_in("lab-cache"));
        let daemon = Other::govern(&capped(&shop, "shop", 1_000));
        until([10; 8]);
        // Its own CPUs alone: the other four are the first one's to slow.
        let fewer =
            ServiceConfig { cpus: Some("4-7".parse().expect("CPUs")), ..capped(&cache, "cache", 1_700) };
        let lease = daemon.lease(&fewer);
        until([10, 10, 10, 10, 17, 17, 17, 17]);
        drop(lease);
        until([10; 8]);
        let _lease = daemon.lease(&fewer);
        until([10, 10, 10, 10, 17, 17, 17, 17]);
        // The next daemon puts the dead one's changes back.
        daemon.kill();
        let next = Other::govern(&capped(&shop, "shop", 1_400));
        until([14; 8]);
        next.end();
        until([26; 8]);
    }
}
