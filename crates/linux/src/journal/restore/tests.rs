use super::*;
use crate::fake::FakeMachine;
use crate::journal::record::Record;

const KNOB: &str = "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";

/// A journal as a killed process leaves it: there, and not locked.
fn leave_journal(machine: &FakeMachine, boot: &str, records: &[Record]) {
    leave(machine, "4000000-1-0.journal", &run(4_000_000, boot, &namespaces()), records);
}

fn run(process: u32, boot: &str, namespaces: &str) -> Record {
    Record::Run {
        holder: "roost serve".into(),
        process,
        boot: boot.to_owned(),
        version: 2,
        program: "roost 9".into(),
        namespaces: namespaces.to_owned(),
    }
}

fn leave(machine: &FakeMachine, name: &str, run: &Record, records: &[Record]) {
    let text: String = std::iter::once(run).chain(records).map(Record::line).collect();
    machine.write(&format!("run/roost/{name}"), &text);
}

fn left(machine: &FakeMachine) -> Vec<String> {
    machine.root().names("run/roost").unwrap()
}

fn intent(path: &str, before: &str, after: &str) -> Record {
    Record::Intent { path: path.into(), before: before.into(), after: after.into() }
}

#[test]
fn a_killed_runs_change_is_put_back_once() {
    let machine = FakeMachine::intel_server(2);
    machine.write(KNOB, "2\n");
    leave_journal(&machine, &boot_id(), &[intent(KNOB, "100", "2")]);
    assert_eq!(restore_pending(machine.root()), 1);
    let report = restore(machine.root()).unwrap();
    assert_eq!((report.put_back, report.left_alone, report.failed), (1, 0, 0), "{report:?}");
    assert_eq!((machine.read(KNOB).as_str(), restore_pending(machine.root())), ("100", 0));
    assert!(report.lines[0].contains("roost serve (process 4000000)"), "{report:?}");
    assert!(restore(machine.root()).unwrap().lines[0].starts_with("nothing to put back"));
}

#[test]
fn a_journal_that_a_kill_left_half_begun_goes_at_the_next_start() {
    let machine = FakeMachine::intel_server(2);
    let half = &run(4_000_000, &boot_id(), &namespaces()).line()[..20];
    machine.write("run/roost/.4000000-1-0.journal.0123456789abcdef.new", half);
    assert_eq!(restore_at_start(machine.root()).unwrap(), [""; 0]);
    assert!(left(&machine).iter().all(|name| name == "restore.lock"), "{:?}", left(&machine));
    // One that lives has no draft beside it, and is locked.
    let journal = crate::journal::Journal::begin(machine.root(), "roost serve", None).unwrap();
    assert!(restore(machine.root()).unwrap().lines[0].contains("still runs"));
    assert_eq!(restore_pending(machine.root()), 0);
    assert_eq!(left(&machine).iter().filter(|name| name.contains("journal")).count(), 1);
    drop(journal);
}

#[test]
fn a_change_that_was_never_made_is_not_unmade() {
    let machine = FakeMachine::intel_server(2);
    leave_journal(&machine, &boot_id(), &[intent(KNOB, "0", "2")]);
    let report = restore(machine.root()).unwrap();
    assert_eq!((report.put_back, report.left_alone), (0, 0));
    assert!(report.lines[0].contains("already reads"), "{report:?}");
}

#[test]
fn what_somebody_changed_since_is_left_alone() {
    let machine = FakeMachine::intel_server(2);
    machine.write(KNOB, "33\n");
    leave_journal(&machine, &boot_id(), &[intent(KNOB, "0", "2")]);
    let report = restore(machine.root()).unwrap();
    assert_eq!((report.put_back, report.left_alone), (0, 1));
    assert!(report.lines[0].contains("left alone") && report.lines[0].contains("33"), "{report:?}");
    assert_eq!(machine.read(KNOB), "33");
}

#[test]
fn a_cpu_that_was_removed_is_no_failure() {
    let machine = FakeMachine::intel_server(2);
    machine.remove("sys/devices/system/cpu/cpu1");
    leave_journal(&machine, &boot_id(), &[intent(KNOB, "0", "2")]);
    let report = restore(machine.root()).unwrap();
    assert!(report.failed == 0 && report.lines[0].contains("no longer exists"), "{report:?}");
}

#[test]
fn a_journal_from_before_a_restart_is_thrown_away_unread() {
    let machine = FakeMachine::intel_server(2);
    machine.write(KNOB, "2\n");
    leave_journal(&machine, "another-boot", &[intent(KNOB, "0", "2")]);
    let report = restore(machine.root()).unwrap();
    assert_eq!(machine.read(KNOB), "2");
    assert!(report.lines[0].contains("last started"), "{report:?}");
    assert!(left(&machine).is_empty());
}

#[test]
fn a_journal_leads_nowhere_but_to_the_files_that_we_change() {
    let machine = FakeMachine::intel_server(2);
    machine.write("etc/shadow", "2\n");
    let paths = [
        "etc/shadow",
        "/etc/shadow",
        "sys/devices/system/cpu/cpu1/../../../../../etc/shadow",
        "sys/devices/system/cpu/cpu0/hotplug/target",
        "sys/devices/system/cpu/cpu/power/pm_qos_resume_latency_us",
    ];
    leave_journal(&machine, &boot_id(), &paths.map(|path| intent(path, "evil", "2")));
    let report = restore(machine.root()).unwrap();
    assert_eq!((report.put_back, report.lines.len()), (0, paths.len()), "{report:?}");
    assert_eq!(machine.read("etc/shadow"), "2");
}

#[test]
fn who_begins_waits_for_another_that_is_just_putting_back() {
    let machine = FakeMachine::intel_server(2);
    machine.write(KNOB, "2\n");
    leave_journal(&machine, &boot_id(), &[intent(KNOB, "100", "2")]);
    // The other has the lock and the journal, and has not written yet.
    let journal = machine.path("run/roost/4000000-1-0.journal");
    let one_restores = crate::lock::take(&machine.path("run/roost/restore.lock"), "roost restore").unwrap();
    let lock = File::open(&journal).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let locks = (one_restores, lock);
    std::thread::scope(|scope| {
        let beginning = scope.spawn(|| {
            restore_at_start(machine.root()).unwrap();
            machine.read(KNOB)
        });
        // Long enough for one that does not wait to be seen to do so; else only the test is
        // weaker.
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            assert!(!beginning.is_finished(), "it did not wait");
        }
        machine.write(KNOB, "100");
        fs::remove_file(&journal).unwrap();
        drop(locks);
        assert_eq!(beginning.join().unwrap(), "100");
    });
}

#[test]
fn who_begins_waits_for_the_end_of_a_process_that_was_killed() {
    use crate::EndsWithParent as _;
    let machine = FakeMachine::intel_server(2);
    machine.write(KNOB, "2\n");
    // Killed and not waited for: it stays a zombie, as a process that the kernel has not
    // finished with.
    let mut killed = std::process::Command::new("sleep").arg("600").ends_with_parent().spawn().unwrap();
    assert!(!is_ending(killed.id()) && !is_ending(std::process::id()));
    killed.kill().unwrap();
    while !is_ending(killed.id()) {
        std::thread::yield_now();
    }
    let run = run(killed.id(), &boot_id(), "");
    let journal = machine.path("run/roost/1-1-0.journal");
    machine.write("run/roost/1-1-0.journal", &(run.line() + &intent(KNOB, "100", "2").line()));
    let lock = File::open(&journal).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    std::thread::scope(|scope| {
        let beginning = scope.spawn(|| restore(machine.root()).unwrap());
        // Long enough for one that does not wait to be seen to do so; else only the test is
        // weaker.
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            assert!(!beginning.is_finished(), "it did not wait");
        }
        drop(lock);
        assert_eq!(beginning.join().unwrap().put_back, 1);
    });
    assert_eq!(machine.read(KNOB), "100");
    killed.wait().unwrap();
}

#[test]
fn a_journal_that_is_a_link_is_refused_and_the_others_are_followed() {
    let machine = FakeMachine::intel_server(2);
    machine.write(KNOB, "2\n");
    machine.write("run/roost/elsewhere", "");
    std::os::unix::fs::symlink(machine.path("run/roost/elsewhere"), machine.path("run/roost/1-1-0.journal"))
        .unwrap();
    leave_journal(&machine, &boot_id(), &[intent(KNOB, "100", "2")]);
    let report = restore(machine.root()).unwrap();
    assert_eq!((report.put_back, report.failed), (1, 1), "{report:?}");
    assert!(report.lines.iter().any(|line| line.contains("1-1-0.journal is a link")), "{report:?}");
    assert_eq!(machine.read(KNOB), "100");
    assert!(left(&machine).contains(&"1-1-0.journal".to_owned()));
}

#[test]
fn a_journal_of_another_user_or_no_file_at_all_is_not_followed() {
    let machine = FakeMachine::intel_server(2);
    machine.write(KNOB, "2\n");
    leave_journal(&machine, &boot_id(), &[intent(KNOB, "100", "2")]);
    let journal = machine.path("run/roost/4000000-1-0.journal");
    std::fs::create_dir(machine.path("run/roost/2-2-0.journal")).unwrap();
    let is_chowned = std::os::unix::fs::chown(&journal, Some(65534), None).is_ok();
    let report = restore(machine.root()).unwrap();
    if is_chowned {
        assert_eq!((report.put_back, report.failed), (0, 2), "{report:?}");
        assert!(report.lines.iter().any(|line| line.contains("belongs to user 65534")), "{report:?}");
        assert_eq!((machine.read(KNOB).as_str(), journal.exists()), ("2", true));
    } else {
        assert_eq!(report.failed, 1, "{report:?}");
    }
}

#[test]
fn a_complete_line_of_another_version_keeps_the_journal_and_fails() {
    let machine = FakeMachine::intel_server(2);
    machine.write(KNOB, "2\n");
    let known = run(4_000_000, &boot_id(), &namespaces()).line() + &intent(KNOB, "100", "2").line();
    // As that version would write it: an intent with one key more.
    let json = r#"{"record":"intent","path":"x","before":"0","after":"1","until":"tomorrow"}"#;
    let foreign = format!("{:016x} {json}\n", crate::journal::record::checksum(json.as_bytes()));
    machine.write("run/roost/4000000-1-0.journal", &(known + &foreign));
    for _ in 0..2 {
        let report = restore(machine.root()).unwrap();
        assert_eq!(report.failed, 1, "{report:?}");
        let told = "1 line(s) of its journal are not understood; they are of version 2 of the \
            journal, by roost 9";
        assert!(report.lines.iter().any(|line| line.contains(told)), "{report:?}");
        assert_eq!(machine.read(KNOB), "100", "what is understood is put back");
        assert_eq!(left(&machine), ["4000000-1-0.journal"]);
    }
}

#[test]
fn a_torn_last_line_is_passed_over_and_a_spoilt_one_before_it_is_not() {
    let machine = FakeMachine::intel_server(2);
    let whole = run(4_000_000, &boot_id(), &namespaces()).line() + &intent(KNOB, "100", "2").line();
    let torn = &intent(KNOB, "100", "3").line()[..40];
    machine.write(KNOB, "2\n");
    machine.write("run/roost/4000000-1-0.journal", &format!("{whole}{torn}"));
    let report = restore(machine.root()).unwrap();
    assert_eq!((report.put_back, report.failed), (1, 0), "{report:?}");
    assert!(left(&machine).is_empty());
    machine.write(KNOB, "2\n");
    machine.write("run/roost/4000000-1-0.journal", &format!("{torn}\n{whole}"));
    let report = restore(machine.root()).unwrap();
    assert_eq!((report.put_back, report.failed), (1, 1), "{report:?}");
    assert_eq!(left(&machine), ["4000000-1-0.journal"]);
}

#[test]
fn a_thread_of_other_namespaces_is_not_taken_for_gone() {
    let machine = FakeMachine::intel_server(2);
    machine.write(KNOB, "2\n");
    let pid = std::process::id();
    // By the clock of another time namespace this process began at another time.
    let began = threads::began(pid, pid).unwrap() + 86_400 * 100;
    let thread = format!("affinity/{pid}:{began}/{pid}:{began}");
    let gone = format!("affinity/{0}:1/{0}:1", u32::MAX);
    let records = [intent(KNOB, "100", "2"), intent(&thread, "0-1", "1"), intent(&gone, "0-1", "1")];
    let here = namespaces();
    let (numbers, _) = here.split_once(' ').unwrap();
    let run = run(4_000_000, &boot_id(), &format!("{numbers} time:[1]"));
    leave(&machine, "4000000-1-0.journal", &run, &records);
    let report = restore(machine.root()).unwrap();
    assert_eq!((report.put_back, report.failed), (1, 1), "{report:?}");
    assert!(
        report.lines.iter().any(|line| line.contains("1 thread(s) cannot be told from here")),
        "{report:?}"
    );
    assert_eq!((machine.read(KNOB).as_str(), left(&machine).len()), ("100", 1));
}

/// Such a journal, as if it had been written since the machine was started.
fn of_this_boot(bytes: &str) -> String {
    let line = |line: &str| {
        let json = &line[17..];
        let boot = json.split_once(r#""boot":""#).map(|(_, rest)| &rest[..36]);
        let json = boot.map_or_else(|| json.to_owned(), |boot| json.replace(boot, &boot_id()));
        format!("{:016x} {json}\n", crate::journal::record::checksum(json.as_bytes()))
    };
    bytes.lines().map(line).collect()
}

#[test]
fn journals_of_the_version_before_are_understood() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/journals");
    let old = |name: &str| of_this_boot(&fs::read_to_string(format!("{folder}/{name}")).unwrap());
    let machine = FakeMachine::intel_server(2);
    let other = KNOB.replace("cpu1", "cpu0");
    machine.write(KNOB, "2\n");
    machine.write(&other, "2\n");
    machine.write("run/roost/19113-1-0.journal", &old("serve.journal"));
    machine.write("run/roost/19133-1-0.journal", &old("govern.journal"));
    let report = restore(machine.root()).unwrap();
    assert_eq!((report.put_back, report.failed), (2, 0), "{report:?}");
    assert_eq!((machine.read(KNOB), machine.read(&other)), ("0".to_owned(), "0".to_owned()));
    assert!(report.lines.iter().any(|line| line.contains("roost govern port-48001 (process 19133)")));
    assert!(left(&machine).is_empty(), "{report:?}");
}

#[test]
fn a_draft_of_an_earlier_version_goes_with_its_process() {
    let machine = FakeMachine::intel_server(2);
    let names = |pid: u32| [format!("{pid}-71-0.draft"), format!("{pid}-72-1.draft")];
    let (dead, alive) = (names(4_000_000), names(std::process::id()));
    let others = ["notes.draft", "4000000.draft", "4000000-7-x.draft", "4000000-71-0.draft.old"];
    for name in dead.iter().chain(&alive).map(String::as_str).chain(others) {
        machine.write(&format!("run/roost/{name}"), "half");
    }
    // A process of another namespace may have this number, and has the lock.
    let locked = File::open(machine.path(&format!("run/roost/{}", dead[1]))).unwrap();
    flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
    restore(machine.root()).unwrap();
    let is_there = |name: &str| machine.path(&format!("run/roost/{name}")).exists();
    assert_eq!(dead.each_ref().map(|name| is_there(name)), [false, true]);
    assert!(alive.iter().all(|name| is_there(name)) && others.into_iter().all(is_there));
}

#[test]
fn a_folder_that_another_process_has_locked_stops_nobody() {
    let machine = FakeMachine::intel_server(2);
    machine.write(KNOB, "2\n");
    leave_journal(&machine, &boot_id(), &[intent(KNOB, "100", "2")]);
    let stranger = File::open(machine.path("run/roost")).unwrap();
    flock(&stranger, FlockOperation::NonBlockingLockExclusive).unwrap();
    let report = restore(machine.root()).unwrap();
    assert_eq!((report.put_back, report.failed), (1, 0), "{report:?}");
    assert!(report.lines[0].contains("as an earlier Roost does"), "{report:?}");
}
