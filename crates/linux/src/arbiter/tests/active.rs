use super::*;
use crate::cpuset::isolation::Scope;
use std::path::PathBuf;

const QUEUES: &str = "sys/devices/virtual/workqueue/cpumask";
const REST: &str = "sys/fs/cgroup/rest/cpuset.cpus";
const SHOP: &str = "sys/fs/cgroup/shop/cpuset.cpus";

fn machine() -> FakeMachine {
    let machine = FakeMachine::intel_server(8);
    machine.write(QUEUES, "ff\n");
    for name in ["shop", "rest"] {
        machine.write(&format!("sys/fs/cgroup/{name}/cgroup.type"), "domain\n");
        machine.write(&format!("sys/fs/cgroup/{name}/cpuset.cpus"), "\n");
    }
    machine
}

fn active(machine: &FakeMachine) -> ActiveCpus {
    let active = Arbiter::new(machine.root(), "roost govern").active;
    active.hold().unwrap();
    active
}

/// A service that could use `could`, has `active`, and wants all other tasks to leave the rest.
fn parks(could: &str, active: &str) -> Claim {
    let scope = Scope { all_tasks: true, ..Scope::default() };
    Claim { could: cpus(could), active: cpus(active), scope, ..Claim::default() }
}

/// A service that needs these CPUs and parks none.
fn needs(active: &str) -> Claim {
    Claim { active: cpus(active), ..Claim::default() }
}

#[test]
fn what_another_process_needs_is_not_parked_and_is_when_it_has_gone() {
    let machine = machine();
    let active = active(&machine);
    let store = lease(1, "roost serve");
    active.claim("shop", &parks("0-5", "0")).unwrap();
    assert_eq!(machine.read(REST), "0,6-7");
    active.claim(store.clone(), &needs("1-2")).unwrap();
    assert_eq!(
        (machine.read(REST), machine.read(QUEUES)),
        ("0-2,6-7".into(), "c7".into()),
        "in force on return"
    );
    assert_eq!(
        active.needed("shop"),
        Needed { by_all: cpus("0-2"), by_others: cpus("1-2"), ..Needed::default() }
    );
    assert_eq!(active.needed(store.clone()).by_others, cpus("0"));
    active.claim(store.clone(), &needs("2")).unwrap();
    assert_eq!(machine.read(REST), "0,2,6-7");
    let asked = active.asked();
    let told = |asker: &str, wish| {
        asked
            .iter()
            .find(|asked| asked.asker == asker && asked.wish == wish)
            .map(|asked| asked.cpus.to_string())
    };
    assert_eq!(told("roost serve", Wish::Active).unwrap(), "2");
    assert_eq!(told("shop", Wish::Active).unwrap(), "0");
    let parked: Vec<_> = asked
        .iter()
        .filter(|asked| asked.wish == Wish::Parked)
        .map(|asked| (asked.cpus.to_string(), asked.together))
        .collect();
    assert_eq!(parked, [("1,3-5".to_owned(), Some(Wish::Parked)), ("2".to_owned(), Some(Wish::Active))]);
    active.withdraw(store);
    assert_eq!(machine.read(REST), "0,6-7");
    drop(active);
    assert_eq!((machine.read(REST), machine.read(QUEUES)), (String::new(), "ff".into()));
}

#[test]
fn two_that_park_leave_alone_what_the_other_has() {
    let machine = machine();
    let active = active(&machine);
    active.claim(lease(1, "roost serve"), &needs("0-1")).unwrap();
    active.claim("shop", &Claim { places: [SHOP.to_owned()].into(), ..parks("0-3", "2") }).unwrap();
    assert_eq!(
        (machine.read(REST), machine.read(SHOP)),
        ("0-2,4-7".into(), String::new()),
        "its own place is its own"
    );
    active.claim("cache", &parks("2-5", "3")).unwrap();
    assert_eq!(machine.read(REST), "0-3,6-7");
    active.claim("cache", &needs("3")).unwrap();
    assert_eq!(machine.read(REST), "", "it parks nothing any more, and cpu3 is needed");
    active.withdraw("cache");
    assert_eq!(machine.read(REST), "0-2,4-7");
    let lines = active.release();
    assert!(
        !lines.is_empty() && active.asked().iter().all(|asked| asked.asker == "roost serve"),
        "{lines:?}"
    );
    assert_eq!(machine.read(REST), "");
}

/// The text in its lock says that the last arbiter was killed, or that other processes asked it.
#[test]
fn an_arbiter_after_one_that_others_asked_parks_nothing_before_they_have_come() {
    let machine = machine();
    let first = active(&machine);
    first.claim(lease(1, "roost serve"), &needs("1")).unwrap();
    drop(first);
    let second = active(&machine);
    second.claim("shop", &parks("0-5", "0")).unwrap();
    assert_eq!(machine.read(REST), "", "not yet: the store has not said anew what it needs");
    second.claim(lease(1, "roost serve"), &needs("1")).unwrap();
    let began = crate::now();
    while machine.read(REST).is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
        second.look_after();
        assert!(crate::now().since(began) < Duration::from_secs(60), "it never parks again");
    }
    assert_eq!(machine.read(REST), "0-1,6-7");
    // An arbiter that no other process asked leaves no reason to wait.
    second.withdraw(lease(1, "roost serve"));
    drop(second);
    let third = active(&machine);
    third.claim("shop", &parks("0-5", "0")).unwrap();
    assert_eq!(machine.read(REST), "0,6-7");
}

#[test]
fn the_next_arbiter_puts_back_what_a_dead_one_left() {
    let machine = machine();
    let first = active(&machine);
    first.claim("shop", &parks("0-5", "0")).unwrap();
    // A SIGKILL leaves the files written and the lock free.
    let journal: Vec<PathBuf> = std::fs::read_dir(machine.path("run/roost"))
        .unwrap()
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().ends_with(".journal"))
        .map(|file| file.path())
        .collect();
    let kept: Vec<_> =
        journal.iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect();
    drop(first);
    for (path, text) in kept {
        // No process has this ID.
        let dead = text.replace(&format!("\"process\":{}", std::process::id()), "\"process\":4194305");
        assert_ne!(dead, text);
        std::fs::write(path, dead).unwrap();
    }
    machine.write(REST, "0,6-7\n");
    let _next = active(&machine);
    assert_eq!(machine.read(REST), "");
}

#[test]
fn a_cpu_that_another_process_comes_to_need_is_back_online_when_its_claim_returns() {
    let machine = machine();
    let switch = |cpu: u16| format!("sys/devices/system/cpu/cpu{cpu}/online");
    (1..8).for_each(|cpu| machine.write(&switch(cpu), "1\n"));
    let are = || (1..5).map(|cpu| machine.read(&switch(cpu))).collect::<String>();
    let active = active(&machine);
    let store = lease(1, "roost serve");
    let goes = |active: &str| Claim { offline: cpus("0-3"), ..Claim { could: cpus("0-3"), ..needs(active) } };
    active.claim("cache", &goes("0")).unwrap();
    assert_eq!(are(), "0001");
    // The fake kernel does not change this file by itself.
    machine.write("sys/devices/system/cpu/online", "0,4-7\n");
    assert_eq!(active.needed(store.clone()).offline, cpus("1-3"));
    active.claim(store.clone(), &needs("2")).unwrap();
    assert_eq!(are(), "0101");
    machine.write("sys/devices/system/cpu/online", "0,2,4-7\n");
    active.claim("cache", &goes("0,3")).unwrap();
    assert_eq!(are(), "0111");
    machine.write("sys/devices/system/cpu/online", "0,2-7\n");
    active.withdraw("cache");
    assert_eq!(are(), "1111", "no claim wants any of them offline");
    assert_eq!(active.needed("cache").offline, CpuList::default());
}
