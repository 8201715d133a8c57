//! The shortest reader of all, `experiments/hurry-up/slots.py`: its output must match the writers'
//! calls.

use crate::{memory_folder, root};
use machine::Instant;
use slots::{EventKind, Reader, Writer, WriterOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The output of this program, run beside `slots.py` with the file's name in `path`.
fn python(path: &Path, script: &str) -> String {
    let begin = "import sys; from slots import *; path = sys.argv[1]\n";
    let done = Command::new("python3")
        .args(["-c", &format!("{begin}{script}")])
        .arg(path)
        .env("PYTHONPATH", root().join("experiments/hurry-up"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3; `scripts/setup test` installs it");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Its calls since that event, one a line, or its message instead.
fn calls(path: &Path, since: u64) -> String {
    let script = "try:
    for call in calls(path, SINCE): print(*call)
except ValueError as error: print('refused:', error)";
    python(path, &script.replace("SINCE", &since.to_string()))
}

/// Calls from outside as the events of the other reader tell them.
fn paired(reader: &mut Reader) -> String {
    let mut inside: BTreeMap<i32, Instant> = BTreeMap::new();
    let mut found = Vec::new();
    for event in reader.events_from(0).unwrap().events {
        match (event.kind, event.depth) {
            (EventKind::Enter, 1) => drop(inside.insert(event.tid, event.at)),
            (EventKind::Exit, 0) => {
                let entered = inside.remove(&event.tid).unwrap();
                found.push((entered.as_nanos(), event.at.since(entered).as_nanos(), event.tid));
            }
            _ => {}
        }
    }
    found.sort_unstable();
    found.iter().map(|(at, length, tid)| format!("{at} {length} {tid}\n")).collect()
}

#[test]
fn calls_and_slots_are_what_the_writers_did() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let writer =
        Writer::create(&path, &["a::b", "c::d"], WriterOptions { events: 1024, ..WriterOptions::default() })
            .unwrap();
    let (outer, inner) = (writer.method(0).unwrap(), writer.method(1).unwrap());
    let mut reader = Reader::open(&path).unwrap();
    std::thread::scope(|scope| {
        for turn in 0..3 {
            let writer = writer.clone();
            scope.spawn(move || {
                let slot = writer.register();
                for call in 0..10 * (turn + 1) {
                    let _inside = slot.enter(outer);
                    if call % 3 == 0 {
                        // A call from inside is none of its own.
                        let _nested = slot.enter(inner);
                    }
                }
            });
        }
    });
    let slot = writer.register();
    let _inside = slot.enter(inner);
    let theirs = calls(&path, 0);
    assert_eq!(theirs, paired(&mut reader));
    assert_eq!(theirs.lines().count(), 60);
    let said = python(
        &path,
        "methods, failures, slots = read(path)\nprint(methods, sum(failures.values()))\nprint(slots[-1][:4], next_event(path))",
    );
    let tid = rustix::thread::gettid().as_raw_nonzero();
    // 60 calls and 21 within them, and one that has not ended.
    let expected = format!("[('a::b', 'watched'), ('c::d', 'watched')] 0\n({tid}, 1, 1, 1) {}\n", 2 * 81 + 1);
    assert_eq!(said, expected);
}

#[test]
fn what_the_ring_no_longer_holds_is_an_error_and_never_a_guess() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let writer =
        Writer::create(&path, &["m"], WriterOptions { events: 64, ..WriterOptions::default() }).unwrap();
    let slot = writer.register();
    let method = writer.method(0).unwrap();
    for _ in 0..40 {
        drop(slot.enter(method));
    }
    assert!(calls(&path, 0).contains("refused: 80 events came and the ring holds 64"), "{}", calls(&path, 0));
    // From where it still has them all, it is whole.
    assert_eq!(calls(&path, 20).lines().count(), 30);
    // One that its writer never finished.
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let ring = 36_864 + 64 * u64::from(WriterOptions::default().slots);
    file.write_all_at(&u64::MAX.to_le_bytes(), ring + 32 * (79 % 64)).unwrap();
    assert_eq!(calls(&path, 20), "refused: 1 events are missing\n");
}
