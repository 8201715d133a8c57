//! The shared test vectors, `testdata/slots`: steps in a text file, the bytes that they must leave
//! behind in a `.bin` of the same name, and the reader's report of those bytes. The writers in Rust
//! (here), C (`native.rs`) and Java (`java/`) are held to the same bytes, so they agree with each
//! other.
//!
//! ```text
//! file slots N events N            enter THREAD METHOD AT
//! writer TEXT                      exit THREAD AT
//! process PID STARTED BOOT_ID      end THREAD
//! method NAME                      enable WORD
//! thread NAME TID
//!
//! expect slot I tid T claims N sequence N nested N ACTIVITY
//!     ACTIVITY: inside METHOD SINCE DEPTH | outside LAST
//! expect event AT TID METHOD KIND SEQUENCE DEPTH
//! expect failures no_slot N no_tid N
//! ```
//!
//! After a change that is meant, `ROOST_BLESS=1 cargo test -p slots vectors` writes the bytes anew.

use crate::{memory_folder, root};
use slots::{
    Activity, Enable, Event, EventKind, Identity, MethodId, Reader, Slot, ThreadSlot, Writer, WriterOptions,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// A thread of a vector, and its open calls: method, and the result of enter.
struct Thread {
    slot: ThreadSlot,
    calls: Vec<(MethodId, Option<u16>)>,
}

fn boot_id(text: &str) -> [u8; 16] {
    let mut id = [0; 16];
    for (index, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap();
    }
    id
}

/// Every vector: its name, its text.
pub(crate) fn vectors() -> Vec<(PathBuf, String)> {
    let folder = root().join("testdata/slots");
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    found.sort();
    assert!(found.len() >= 3);
    found
}

/// Carries a vector's steps out with the writer of this crate.
fn write(text: &str, path: &Path) {
    let mut options = WriterOptions::default();
    let (mut methods, mut enable) = (Vec::new(), None);
    let (mut writer, mut threads) = (None, BTreeMap::new());
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["file", "slots", slots, "events", events] => {
                (options.slots, options.events) = (slots.parse().unwrap(), events.parse().unwrap());
            }
            ["writer", ..] => options.writer = line["writer ".len()..].into(),
            ["process", pid, started, boot] => {
                let (pid, started) = (pid.parse().unwrap(), started.parse().unwrap());
                options.identity = Identity { pid, started, boot_id: boot_id(boot) };
            }
            ["method", ..] => methods.push(&line["method ".len()..]),
            ["enable", "3"] => enable = Some(Enable::OnWithExitTimes),
            ["thread", name, tid] => {
                let writer: &mut Writer = writer.get_or_insert_with(|| {
                    let writer = Writer::create(path, &methods, options.clone()).unwrap();
                    if let Some(enable) = enable {
                        Reader::open(path).unwrap().enable(enable).unwrap();
                    }
                    writer
                });
                let slot = writer.register_as(tid.parse().unwrap());
                threads.insert(name, Thread { slot, calls: Vec::new() });
            }
            ["enter", name, method, at] => {
                let thread = threads.get_mut(name).unwrap();
                let method = writer.as_ref().unwrap().method(method.parse().unwrap()).unwrap();
                thread.calls.push((method, thread.slot.enter_at(method, at.parse().unwrap())));
            }
            ["exit", name, at] => {
                let thread = threads.get_mut(name).unwrap();
                let (method, depth) = thread.calls.pop().unwrap();
                if let Some(depth) = depth {
                    thread.slot.exit_at(method, depth, || at.parse().unwrap());
                }
            }
            ["end", name] => drop(threads.remove(name)),
            _ => assert!(line.is_empty() || line.starts_with('#') || line.starts_with("expect "), "{line}"),
        }
    }
    // Threads that did not end keep their slots.
    threads.into_values().for_each(std::mem::forget);
}

fn told(slot: &Slot) -> String {
    let tid = slot.tid.map_or("-".into(), |tid| tid.to_string());
    let activity = match slot.activity {
        Activity::Inside { method, since, depth } => format!("inside {method} {} {depth}", since.as_nanos()),
        Activity::Outside { last } => {
            format!("outside {}", last.map_or("-".into(), |last| last.as_nanos().to_string()))
        }
        Activity::Moving => "moving".into(),
    };
    let Slot { index, claims, sequence, nested, .. } = slot;
    format!("expect slot {index} tid {tid} claims {claims} sequence {sequence} nested {nested} {activity}")
}

fn told_event(event: &Event) -> String {
    let kind = match event.kind {
        EventKind::Enter => "enter",
        EventKind::Exit => "exit",
    };
    let (at, Event { tid, method, sequence, depth, .. }) = (event.at.as_nanos(), event);
    format!("expect event {at} {tid} {method} {kind} {sequence} {depth}")
}

/// The reader's report of a file, in the vectors' words.
pub(crate) fn read(path: &Path) -> Vec<String> {
    let mut reader = Reader::open(path).unwrap();
    let mut lines = Vec::new();
    let failures = reader.failures().unwrap();
    if failures.no_slot > 0 {
        lines.push(format!("expect failures no_slot {} no_tid {}", failures.no_slot, failures.no_tid));
    }
    lines.extend(reader.look().unwrap().iter().map(told));
    // The ring is read from where it stood when the file was opened; a vector is read from its
    // beginning.
    lines.extend(reader.events_from(0).unwrap().events.iter().map(told_event));
    lines
}

#[test]
fn this_writer_leaves_the_vectors_bytes_and_the_reader_tells_what_they_say() {
    let folder = memory_folder();
    for (path, text) in vectors() {
        let made = folder.path().join("made");
        write(&text, &made);
        let bytes = fs::read(&made).unwrap();
        let kept = path.with_extension("bin");
        if env::var_os("ROOST_BLESS").is_some() {
            fs::write(&kept, &bytes).unwrap();
        }
        assert!(bytes == fs::read(&kept).unwrap(), "{}: other bytes", path.display());
        let expected: Vec<_> = text.lines().filter(|line| line.starts_with("expect ")).collect();
        // A file in a checkout may be read-only; a copy is the same.
        assert_eq!(read(&made), expected, "{}", path.display());
        fs::remove_file(&made).unwrap();
    }
}
