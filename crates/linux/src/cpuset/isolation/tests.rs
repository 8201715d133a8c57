use super::*;
use crate::fake::FakeMachine;
use crate::knob::Knob;

fn machine() -> FakeMachine {
    let machine = FakeMachine::intel_server(8);
    machine.write("sys/devices/virtual/workqueue/cpumask", "ff\n");
    machine.write("proc/irq/default_smp_affinity", "ff\n");
    for name in ["shop", "rest"] {
        machine.write(&format!("sys/fs/cgroup/{name}/cgroup.type"), "domain\n");
        machine.write(&format!("sys/fs/cgroup/{name}/cpuset.cpus"), "\n");
    }
    machine.write("sys/fs/cgroup/without/cgroup.type", "domain\n");
    machine
}

fn all_tasks(cpus: &str) -> Placement {
    Placement { all_tasks: Some(cpus.parse().unwrap()), ..Placement::default() }
}

fn reads(machine: &FakeMachine) -> [String; 4] {
    [MASKS[0], MASKS[1], "sys/fs/cgroup/rest/cpuset.cpus", "sys/fs/cgroup/shop/cpuset.cpus"]
        .map(|path| machine.read(path))
}

#[test]
fn all_other_tasks_are_moved_and_moved_back() {
    let machine = machine();
    let before = reads(&machine);
    let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
    around.keep_on(&all_tasks("0-1"));
    assert_eq!(reads(&machine), ["3", "3", "0-1", "0-1"]);
    around.keep_on(&all_tasks("0-3"));
    assert_eq!(reads(&machine)[0], "f");
    assert_eq!(around.drain_notices(), Vec::<String>::new());
    around.release();
    assert_eq!(reads(&machine), before);
    around.keep_on(&all_tasks("2"));
    drop(around);
    assert_eq!(reads(&machine), before);
}

#[test]
fn a_killed_run_is_put_back_and_somebody_elses_change_stays() {
    let machine = machine();
    let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
    around.keep_on(&all_tasks("0-1"));
    // The administrator, meanwhile.
    machine.write(MASKS[1], "f0\n");
    let mut lines = around.release();
    lines.retain(|line| line.contains("left alone"));
    assert_eq!((lines.len(), machine.read(MASKS[1]).as_str()), (1, "f0"), "{lines:?}");
    assert_eq!(machine.read(MASKS[0]), "ff");
}

#[test]
fn interrupts_move_where_that_is_asked_for_and_masks_come_back() {
    let machine = machine();
    let masks = ["proc/irq/4/smp_affinity", "proc/irq/9/smp_affinity", "proc/irq/31/smp_affinity"];
    let queues = ["rx-0", "rx-1"].map(|queue| format!("sys/class/net/eth0/queues/{queue}/rps_cpus"));
    let before = ["ff", "c0", "01", "00", "f0"];
    let files: Vec<&str> = masks.into_iter().chain(queues.iter().map(String::as_str)).collect();
    for (file, mask) in files.iter().zip(before) {
        machine.write(file, &format!("{mask}\n"));
    }
    machine.write("sys/class/net/lo/mtu", "65536\n");
    let read = || files.iter().map(|file| machine.read(file)).collect::<Vec<_>>();
    let interrupts =
        |cpus: &str| Placement { interrupts: Some(cpus.parse().unwrap()), ..Placement::default() };
    let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
    around.keep_on(&interrupts("0-1"));
    assert_eq!(read(), ["3", "3", "01", "00", "3"]);
    assert_eq!(machine.read(MASKS[0]), "ff", "no other group was requested");
    around.keep_on(&interrupts("0-1,6"));
    assert_eq!(read(), ["43", "40", "01", "00", "40"], "as near to what it was as there is");
    drop(around);
    assert_eq!(read(), before);
}

#[test]
fn packets_go_to_queues_of_the_cpus_and_tables_come_back() {
    let machine = machine();
    let table = "ethtool/eth0/indirection";
    // Four queues, each of two CPUs.
    for (queue, mask) in ["03", "0c", "30", "c0"].iter().enumerate() {
        let number = 24 + queue;
        machine.write(&format!("sys/class/net/eth0/device/msi_irqs/{number}"), "msix\n");
        machine.write(&format!("proc/irq/{number}/eth0-TxRx-{queue}/.keep"), "");
        machine.write(&format!("proc/irq/{number}/smp_affinity"), &format!("{mask}\n"));
    }
    let before = "0,1,2,3,0,1,2,3";
    machine.write(table, &format!("{before}\n"));
    let interrupts =
        |cpus: &str| Placement { interrupts: Some(cpus.parse().unwrap()), ..Placement::default() };
    let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
    around.keep_on(&interrupts("0-3"));
    assert_eq!(machine.read(table), "0,1,0,1,0,1,0,1", "those of CPUs 4 to 7 get nothing");
    // Their interrupts were moved here meanwhile; they still are no queues of these CPUs.
    around.keep_on(&interrupts("0"));
    assert_eq!(machine.read(table), "0,0,0,0,0,0,0,0");
    around.keep_on(&interrupts("1,5"));
    assert_eq!(machine.read(table), "0,0,2,2,0,0,2,2");
    around.keep_on(&Placement::default());
    assert_eq!(machine.read(table), before);
    around.keep_on(&interrupts("2"));
    machine.write(table, "3,3,3,3,3,3,3,3\n");
    drop(around);
    assert_eq!(machine.read(table), "3,3,3,3,3,3,3,3", "another program's");
    let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
    around.keep_on(&interrupts("0-1"));
    assert_eq!(machine.read(table), "3,3,3,3,3,3,3,3", "no queue is left: its interrupt has moved");
    assert_eq!(around.drain_notices(), Vec::<String>::new());
}

/// The first card with a table, and that table.
fn real_card(root: &Root) -> Option<(String, String)> {
    let table = |device: &String| Knob::at(root, &indirection_of(device))?.read().ok();
    network_devices(root).into_iter().find_map(|device| table(&device).map(|table| (device, table)))
}

/// A real card that is up, and its interrupts.
struct Card {
    device: String,
    numbers: Vec<String>,
}

impl Card {
    fn up<'a>(device: &str, masks: impl Iterator<Item = &'a String>) -> Self {
        let number = |path: &String| path.split('/').nth(2).unwrap().to_owned();
        let card = Self { device: device.to_owned(), numbers: masks.map(number).collect() };
        card.set("up");
        card
    }

    fn set(&self, word: &str) {
        let mut command = std::process::Command::new("/bin/busybox");
        assert!(command.args(["ip", "link", "set", &self.device, word]).status().unwrap().success());
    }

    /// By CPU, since the machine began.
    fn taken(&self) -> Vec<u64> {
        let text = std::fs::read_to_string("/proc/interrupts").unwrap();
        let cpus = text.lines().next().unwrap().split_whitespace().count();
        let mut taken = vec![0; cpus];
        for line in text.lines() {
            let Some((number, counts)) = line.split_once(':') else { continue };
            if !self.numbers.iter().any(|one| one == number.trim()) {
                continue;
            }
            for (sum, count) in taken.iter_mut().zip(counts.split_whitespace()) {
                *sum += count.parse::<u64>().unwrap();
            }
        }
        taken
    }

    /// Whether those of some five seconds are `enough`, within two minutes.
    fn until(&self, enough: impl Fn(&[u64]) -> bool) -> bool {
        (0..24).any(|_| {
            let before = self.taken();
            std::thread::sleep(std::time::Duration::from_secs(5));
            let taken: Vec<u64> =
                self.taken().iter().zip(&before).map(|(now, before)| now - before).collect();
            println!("interrupts of {} by CPU in 5 s: {taken:?}", self.device);
            enough(&taken)
        })
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        self.set("down");
    }
}

/// Not a test: keeps the packets of a real card on two CPUs until it is killed, when that test
/// starts this program again.
#[test]
#[ignore = "the victim of another test"]
fn a_real_card_is_held() {
    if std::env::var_os(HOLDS).is_none() {
        return;
    }
    let mut around = CpuIsolation::open(&Root::system(), "a test").unwrap();
    around.keep_on(&Placement { interrupts: Some("2-3".parse().unwrap()), ..Placement::default() });
    println!("\nheld");
    std::thread::park();
}

const HOLDS: &str = "ROOST_LAB_HOLDS";

#[test]
#[ignore = "needs a network card that spreads packets: run `lab/run queues`"]
fn a_real_card_gives_packets_to_queues_of_the_cpus() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    if std::env::var_os(HOLDS).is_some() {
        return;
    }
    let root = Root::system();
    let Some((device, before)) = real_card(&root) else {
        return println!("SKIPPED: no network card here spreads packets (RSS)");
    };
    let interrupts = interrupts_of_queues(&root, &device);
    assert_eq!(interrupts.len(), 8, "{interrupts:?}");
    let masks = || interrupts.values().map(|path| root.text(path).unwrap()).collect::<Vec<_>>();
    let masks_before = masks();
    let queues = || {
        let table = real_card(&root).unwrap().1;
        entries_of(&table).unwrap().into_iter().collect::<BTreeSet<_>>()
    };
    assert_eq!(queues(), (0..8).collect());
    // This driver gives each queue's interrupt to one CPU.
    let of = |cpus: std::ops::Range<usize>| -> BTreeSet<u32> {
        let is_of = |path: &String| {
            let mask = cpus_of(&root.text(path).unwrap()).unwrap();
            mask.0.iter().any(|cpu| cpus.contains(&cpu.index()))
        };
        interrupts.iter().filter(|(_, path)| is_of(path)).map(|(&queue, _)| queue).collect()
    };
    let (first, middle) = (of(0..2), of(2..4));
    assert_eq!((first.len(), middle.len()), (2, 2), "{masks_before:?}");
    let card = Card::up(&device, interrupts.values());
    let packets_come = card.until(|taken| taken[2..].iter().sum::<u64>() >= 20);
    if !packets_come {
        println!("SKIPPED: the interrupts of a parked CPU: no packets come to {device}");
    }

    let mut around = CpuIsolation::open(&root, "a test").unwrap();
    around.keep_on(&Placement { interrupts: Some("0-1".parse().unwrap()), ..Placement::default() });
    assert_eq!(queues(), first);
    // Some are under way still. Then five seconds pass without one.
    assert!(
        !packets_come || card.until(|taken| taken[..2].iter().sum::<u64>() >= 20 && taken[2..] == [0; 6]),
        "interrupts of {device} come to parked CPUs"
    );
    around.keep_on(&Placement::default());
    assert_eq!((real_card(&root).unwrap().1, masks()), (before.clone(), masks_before.clone()));
    drop(around);

    let mut victim = Command::new(std::env::current_exe().unwrap())
        .arg(module_path!().split_once("::").unwrap().1.to_owned() + "::a_real_card_is_held")
        .args(["--exact", "--ignored", "--nocapture"])
        .env(HOLDS, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("held")), "it ended before");
    assert_eq!(queues(), middle);
    victim.kill().unwrap();
    victim.wait().unwrap();
    crate::restore(&root).unwrap();
    assert_eq!((real_card(&root).unwrap().1, masks()), (before, masks_before));
}

#[test]
fn without_partitions_tasks_leave_by_cpusets_and_it_is_said_once() {
    let machine = machine();
    let before = reads(&machine);
    let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
    for _ in 0..2 {
        around.keep_on(&Placement { isolated: Some("2-7".parse().unwrap()), ..all_tasks("0-1") });
        assert_eq!(reads(&machine), ["3", "3", "0-1", "0-1"]);
    }
    let notices = around.drain_notices();
    assert!(notices.len() == 1 && notices[0].contains("no isolated partition"), "{notices:?}");
    drop(around);
    assert_eq!(reads(&machine), before);
}

#[test]
fn there_is_one_who_does_it_and_what_is_missing_is_no_error() {
    let machine = FakeMachine::intel_server(2);
    let mut first = CpuIsolation::open(machine.root(), "first").unwrap();
    let error = CpuIsolation::open(machine.root(), "second").unwrap_err().to_string();
    assert!(error.contains("first"), "{error}");
    first.keep_on(&all_tasks("0"));
    assert_eq!(first.drain_notices(), Vec::<String>::new());
}
