//! The agent in a real Java server, read by [`slots::Reader`]: this crate reads the bytes of
//! `java/`, and rings.

use crate::jvm::Jvm;
use crate::memory_folder;
use machine::Duration;
use slots::{Activity, MethodState, Reader, Woken};
use std::path::PathBuf;

#[test]
fn a_java_server_with_the_agent_is_read_and_rings() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let methods = "method=tiny.Server::search,method=tiny.Server::hold,method=tiny.Nothing::here";
    let options = format!("{methods},file={},events=1024", path.display());
    let mut server = match Jvm::start(&options, &["-Xmx64m"]) {
        Ok(server) => server,
        Err(why) => {
            println!("SKIPPED: {why}");
            return;
        }
    };

    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.identity().pid, server.id());
    assert!(reader.identity().is_alive() && reader.can_be_rung());
    assert!(reader.writer().starts_with("roost-agent "), "{}", reader.writer());
    let states: Vec<_> =
        reader.methods().unwrap().into_iter().map(|method| (method.name, method.state)).collect();
    assert_eq!(states[0], ("tiny.Server::search(I)J".into(), MethodState::Watched));
    assert_eq!(states[2], ("tiny.Nothing::here".into(), MethodState::Waiting));

    assert_eq!(server.ask("throw 100"), "ok");
    let events = reader.events().unwrap();
    assert_eq!((events.events.len(), events.lost), (200, 0));
    assert_eq!(server.ask("calls 2 50000"), "ok");
    let sequences: Vec<_> = reader.look().unwrap().iter().map(|slot| slot.sequence).collect();
    assert_eq!(sequences, [200, 100_000, 100_000]);
    for slot in reader.look().unwrap() {
        assert_eq!(slot.activity, Activity::Outside { last: None });
        let tid = slot.tid.expect("the kernel's number of the thread");
        assert!(PathBuf::from(format!("/proc/{}/task/{tid}", server.id())).exists());
    }

    // The enter rings a reader that sleeps in another process.
    assert_eq!(reader.sleep(Some(Duration::from_millis(20))).unwrap(), Woken::TimedOut);
    let asked = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(server.ask("hold"), "inside");
        server
    });
    assert_eq!(reader.sleep(Some(Duration::from_secs(20))).unwrap(), Woken::Entered);
    let mut server = asked.join().unwrap();
    let inside = reader.look().unwrap()[0];
    assert!(matches!(inside.activity, Activity::Inside { method: 1, depth: 1, .. }), "{inside:?}");
    assert_eq!(server.ask("go"), "ok");
    // Two threads at full speed lap each other in so short a ring; nothing else may have gone
    // wrong.
    let failures = slots::Failures { events_lost: 0, ..reader.failures().unwrap() };
    assert_eq!(failures, slots::Failures::default());

    // It dies in the middle of a call: the slot says inside for ever, the identity says dead.
    assert_eq!(server.ask("hold"), "inside");
    server.kill();
    assert!(matches!(reader.look().unwrap()[0].activity, Activity::Inside { .. }));
    assert!(!reader.identity().is_alive());
}
