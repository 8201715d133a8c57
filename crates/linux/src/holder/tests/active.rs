use super::super::register::GRACE;
use super::*;
use crate::cpuset::isolation::Scope;

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

fn active(machine: &FakeMachine, name: &str) -> ActiveCpus {
    ActiveCpus::open(machine.root(), name).unwrap()
}

/// A service that could have `could`, has `active`, and whose rest everybody shall leave.
fn parks(could: &str, active: &str) -> Claim {
    let scope = Scope { everybody: true, interrupts: false };
    Claim { could: cpus(could), active: cpus(active), scope, ..Claim::default() }
}

/// One that needs some, whoever else is there.
fn needs(active: &str) -> Claim {
    Claim { active: cpus(active), ..Claim::default() }
}

#[test]
fn what_another_process_needs_is_not_parked_and_is_when_it_has_gone() {
    let machine = machine();
    let mut governor = active(&machine, "roost govern");
    let mut store = active(&machine, "roost serve");
    governor.claim("shop", &parks("0-5", "0")).unwrap();
    assert_eq!(machine.read(REST), "0,6-7");
    store.claim("store", &needs("1-2")).unwrap();
    assert_eq!(
        (machine.read(REST), machine.read(QUEUES)),
        ("0-2,6-7".into(), "c7".into()),
        "in force on return"
    );
    assert_eq!(
        governor.needed(),
        Ok(Needed { by_all: cpus("0-2"), by_others: cpus("1-2"), ..Needed::default() })
    );
    assert_eq!(store.needed(), Ok(Needed { by_all: cpus("0-2"), by_others: cpus("0"), ..Needed::default() }));
    store.claim("store", &needs("2")).unwrap();
    assert_eq!(machine.read(REST), "0,2,6-7");
    let asked = governor.asked();
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
    drop(store);
    soon("withdrawn with its connection", || machine.read(REST) == "0,6-7");
    drop(governor);
    assert_eq!((machine.read(REST), machine.read(QUEUES)), (String::new(), "ff".into()));
}

#[test]
fn whoever_keeps_the_register_parks_for_those_who_ask_it() {
    let machine = machine();
    let mut store = active(&machine, "roost serve");
    store.claim("store", &needs("0-1")).unwrap();
    let mut first = active(&machine, "roost govern");
    let mut second = active(&machine, "another governor");
    first.claim("shop", &Claim { places: [SHOP.to_owned()].into(), ..parks("0-3", "2") }).unwrap();
    assert_eq!(
        (machine.read(REST), machine.read(SHOP)),
        ("0-2,4-7".into(), String::new()),
        "its own place is its own"
    );
    // Two that park: what one has is the other's to leave alone.
    second.claim("cache", &parks("2-5", "3")).unwrap();
    assert_eq!(machine.read(REST), "0-3,6-7");
    second.claim("cache", &needs("3")).unwrap();
    assert_eq!(machine.read(REST), "", "it parks nothing any more, and cpu3 is needed");
    drop(second);
    soon("withdrawn", || machine.read(REST) == "0-2,4-7");
    first.release();
    assert_eq!(machine.read(REST), "");
}

#[test]
fn who_takes_the_register_over_parks_nothing_before_the_others_have_come() {
    let machine = machine();
    let first = active(&machine, "roost serve");
    let mut governor = active(&machine, "roost govern");
    let mut store = active(&machine, "another store");
    governor.claim("shop", &parks("0-5", "0")).unwrap();
    store.claim("store", &needs("1")).unwrap();
    assert_eq!(machine.read(REST), "0-1,6-7");
    drop(first);
    assert_eq!(machine.read(REST), "", "who kept it has put back what it had told");
    assert!(governor.needed().is_err(), "nobody knows just now");
    governor.look_after();
    assert_eq!(machine.read(REST), "", "not yet: the other store has not said anew what it needs");
    assert_eq!(governor.needed().unwrap().by_all, cpus("0"));
    store.look_after();
    assert_eq!(governor.needed().unwrap().by_others, cpus("1"));
    let began = crate::now();
    while machine.read(REST).is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
        governor.look_after();
        assert!(crate::now().since(began) < GRACE * 2, "it never parks again");
    }
    assert_eq!(machine.read(REST), "0-1,6-7");
    // A further one that begins anew is as careful: this one ends with nobody told what the store needs.
    drop(governor);
    let mut next = active(&machine, "a third");
    next.claim("shop", &parks("0-5", "0")).unwrap();
    assert_eq!(machine.read(REST), "");
}

#[test]
fn the_dead_are_put_back_by_who_comes_next() {
    let machine = machine();
    let mut first = active(&machine, "roost govern");
    first.claim("shop", &parks("0-5", "0")).unwrap();
    // As a SIGKILL leaves it: the files written, the lock free.
    let journal: Vec<_> = std::fs::read_dir(machine.path("run/roost"))
        .unwrap()
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().ends_with(".journal"))
        .map(|file| file.path())
        .collect();
    let kept: Vec<_> =
        journal.iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect();
    drop(first);
    for (path, text) in kept {
        // No process has this number.
        let dead = text.replace(&format!("\"process\":{}", std::process::id()), "\"process\":4194305");
        assert_ne!(dead, text);
        std::fs::write(path, dead).unwrap();
    }
    machine.write(REST, "0,6-7\n");
    let _next = active(&machine, "roost serve");
    assert_eq!(machine.read(REST), "");
}

#[test]
fn one_that_takes_no_claims_is_named() {
    let machine = machine();
    std::fs::create_dir_all(machine.path("run/roost")).unwrap();
    let _lock = crate::lock::take(&machine.path("run/roost/active.lock"), "something old").ok().unwrap();
    let error = ActiveCpus::open(machine.root(), "roost govern").unwrap_err().to_string();
    assert!(error.contains("something old") && error.contains("stop it"), "{error}");
}

#[test]
fn a_cpu_that_another_process_comes_to_need_is_back_online_when_its_claim_returns() {
    let machine = machine();
    let switch = |cpu: u16| format!("sys/devices/system/cpu/cpu{cpu}/online");
    (1..8).for_each(|cpu| machine.write(&switch(cpu), "1\n"));
    let are = || (1..5).map(|cpu| machine.read(&switch(cpu))).collect::<String>();
    let mut governor = active(&machine, "roost govern");
    let mut store = active(&machine, "roost serve");
    let goes = |active: &str| Claim { offline: cpus("0-3"), ..Claim { could: cpus("0-3"), ..needs(active) } };
    governor.claim("cache", &goes("0")).unwrap();
    assert_eq!(are(), "0001");
    // This folder's kernel does not notice by itself.
    machine.write("sys/devices/system/cpu/online", "0,4-7\n");
    assert_eq!(store.needed().unwrap().offline, cpus("1-3"));
    store.claim("store", &needs("2")).unwrap();
    assert_eq!(are(), "0101");
    machine.write("sys/devices/system/cpu/online", "0,2,4-7\n");
    governor.claim("cache", &goes("0,3")).unwrap();
    assert_eq!(are(), "0111");
    machine.write("sys/devices/system/cpu/online", "0,2-7\n");
    governor.withdraw("cache");
    assert_eq!(are(), "1111", "nobody wants any of them offline");
    assert_eq!(governor.needed().unwrap().offline, CpuList::default());
}
